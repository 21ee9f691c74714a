//! `Graph`: nodes and the edges between them.
//!
//! Every node in a graph is valid: its op is known, its attributes are complete and fit the op's definition, its
//! inputs exist and have the types the op wants. [`import`] and [`Graph::add`] are the only ways in.

pub mod export;
mod frames;
mod function;
pub mod import;
mod instantiate;
pub mod text;
mod types;

pub use frames::{Frame, Frames};
pub use function::{FunctionLibrary, NameAttrList};

use crate::attr::{Attr, Attrs, FromAttr};
use crate::op::{ControlFlow, Op};
use crate::shapes::InferenceContext;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use tensor::{DType, PartialShape, Result, Tensor, internal, invalid};

/// Names a node within its graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u32);

impl NodeId {
    /// As an index into the graph's nodes.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// One output of a node: what an edge starts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Output {
    /// The node.
    pub node: NodeId,
    /// Which of its outputs.
    pub index: u32,
}

impl From<NodeId> for Output {
    fn from(node: NodeId) -> Output {
        Output { node, index: 0 }
    }
}

/// What a node's output is known to be while the graph is built.
#[derive(Clone, Debug)]
pub struct OutputInfo {
    /// Its element type.
    pub dtype: DType,
    /// Whether a reference passes here.
    pub is_ref: bool,
    /// What is known of its shape.
    pub shape: PartialShape,
    /// Its value, where it is small and known already.
    pub value: Option<Tensor>,
}

/// A node: an op with attributes, inputs and a place.
#[derive(Clone, Debug)]
pub struct Node {
    /// Unique in the graph.
    pub name: String,
    /// What kind of node.
    pub op: Arc<Op>,
    /// Attributes, complete.
    pub attrs: Attrs,
    /// Where the data comes from.
    pub inputs: Vec<Output>,
    /// What must have run before.
    pub control_inputs: Vec<NodeId>,
    /// The device asked for, as written; empty if none.
    pub device: String,
    /// What is known of the outputs.
    pub outputs: Vec<OutputInfo>,
}

impl Node {
    /// A node that is not in a graph yet and will get inputs such as these: attributes completed and checked, outputs
    /// inferred.
    pub fn checked(name: String, op: Arc<Op>, attrs: Attrs, inputs: &[OutputInfo]) -> Result<Node> {
        let inputs: Vec<&OutputInfo> = inputs.iter().collect();
        let (attrs, outputs) = check(&op, &attrs, &inputs)?;
        Ok(Node { name, op, attrs, inputs: vec![], control_inputs: vec![], device: String::new(), outputs })
    }

    /// An attribute as a Rust value.
    pub fn attr<T: FromAttr>(&self, name: &str) -> Result<T> {
        let attr = self
            .attrs
            .get(name)
            .ok_or_else(|| invalid!("node '{}' ({}) has no attribute '{name}'", self.name, self.op.name))?;
        T::from_attr(attr).ok_or_else(|| {
            invalid!(
                "attribute '{name}' of node '{}' ({}) is {}, another kind was wanted",
                self.name,
                self.op.name,
                attr.kind()
            )
        })
    }

    /// The types the inputs must have, and which of them are references.
    pub fn input_types(&self) -> Result<Vec<(DType, bool)>> {
        types::arg_types(&self.op.inputs, &self.attrs)
    }

    /// The nodes this one is to be colocated with, by `_class`.
    pub fn colocated_with(&self) -> Vec<String> {
        let class = self.attrs.get("_class").and_then(Vec::<bytes::Bytes>::from_attr).unwrap_or_default();
        class.iter().filter_map(|c| std::str::from_utf8(c).ok()?.strip_prefix("loc:@").map(str::to_string)).collect()
    }
}

/// Everything needed to add a node.
#[derive(Clone, Debug)]
pub struct NewNode {
    /// Unique in the graph.
    pub name: String,
    /// What kind of node.
    pub op: Arc<Op>,
    /// Attributes that differ from their defaults; types and counts are taken from the inputs.
    pub attrs: Attrs,
    /// Where the data comes from.
    pub inputs: Vec<Output>,
    /// What must have run before.
    pub control_inputs: Vec<NodeId>,
    /// The device asked for.
    pub device: String,
}

/// Nodes, and the functions they may call.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    nodes: Vec<Node>,
    by_name: HashMap<String, NodeId>,
    /// Functions by name, carried along.
    pub library: FunctionLibrary,
    /// The version numbers of whoever made the graph, carried along.
    pub versions: Option<proto::VersionDef>,
}

impl Graph {
    /// A graph without nodes.
    pub fn new() -> Graph {
        Graph::default()
    }

    /// All nodes, in the order they were added.
    pub fn nodes(&self) -> impl ExactSizeIterator<Item = (NodeId, &Node)> {
        self.nodes.iter().enumerate().map(|(i, node)| (NodeId(i as u32), node))
    }

    /// How many nodes there are.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// A node of this graph.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }

    /// The node of this name.
    pub fn find(&self, name: &str) -> Option<NodeId> {
        self.by_name.get(name).copied()
    }

    /// What is known of an output.
    pub fn info(&self, output: Output) -> Result<&OutputInfo> {
        let node = self
            .nodes
            .get(output.node.index())
            .ok_or_else(|| internal!("node {} is not in the graph", output.node.0))?;
        node.outputs.get(output.index as usize).ok_or_else(|| {
            invalid!("node '{}' has {} outputs, there is no output {}", node.name, node.outputs.len(), output.index)
        })
    }

    /// `name:index` of an output.
    pub fn output_name(&self, output: Output) -> String {
        format!("{}:{}", self.node(output.node).name, output.index)
    }

    /// The output that a client calls `name` or `name:index`.
    pub fn find_output(&self, name: &str) -> Option<Output> {
        let (node, index) = match name.rsplit_once(':') {
            Some((node, index)) => (node, index.parse().ok()?),
            None => (name, 0),
        };
        self.find(node).map(|node| Output { node, index })
    }

    /// Adds a node after checking it: attributes completed and validated, inputs of the right types, shapes that fit.
    pub fn add(&mut self, new: NewNode) -> Result<NodeId> {
        let here = |e: tensor::Error| e.context(format_args!("[[{{{{node {}}}}} = {}]]", new.name, new.op.name));
        let (attrs, outputs) = self.check(&new).map_err(here)?;
        Ok(self.push(Node {
            name: new.name,
            op: new.op,
            attrs,
            inputs: new.inputs,
            control_inputs: new.control_inputs,
            device: new.device,
            outputs,
        }))
    }

    fn check(&self, new: &NewNode) -> Result<(Attrs, Vec<OutputInfo>)> {
        types::check_name(&new.name)?;
        if self.by_name.contains_key(&new.name) {
            return Err(invalid!("Node name '{}' already exists in the graph; names must be unique", new.name));
        }
        let inputs: Vec<&OutputInfo> = new.inputs.iter().map(|&o| self.info(o)).collect::<Result<_>>()?;
        for control in &new.control_inputs {
            if control.index() >= self.nodes.len() {
                return Err(internal!("control input {} is not in the graph", control.0));
            }
        }
        check(&new.op, &new.attrs, &inputs)
    }

    /// Infers all outputs anew, after edges were changed; where that fails a node keeps what is known of it.
    pub fn infer_again(&mut self) -> Result<()> {
        for id in self.in_topological_order()? {
            let node = self.node(id);
            let inputs: Vec<&OutputInfo> = node.inputs.iter().map(|&input| self.info(input)).collect::<Result<_>>()?;
            let Ok(mut outputs) = infer(&node.op, &node.attrs, &inputs) else { continue };
            let is_loop = node.inputs.iter().any(|input| self.is_back_edge(input.node, id));
            if let (true, Some(first)) = (is_loop, outputs.first_mut()) {
                (first.shape, first.value) = (PartialShape::unknown(), None);
            }
            self.nodes[id.index()].outputs = outputs;
        }
        Ok(())
    }

    /// Adds a node that was checked as part of another graph, its inputs renumbered. They may name nodes that are yet
    /// to come, as a loop's way back does; whoever copies a graph copies those too.
    pub fn adopt(&mut self, node: Node) -> Result<NodeId> {
        if self.by_name.contains_key(&node.name) {
            return Err(invalid!("Node name '{}' already exists in the graph; names must be unique", node.name));
        }
        Ok(self.push(node))
    }

    pub(crate) fn push(&mut self, node: Node) -> NodeId {
        let id = NodeId(self.nodes.len() as u32);
        self.by_name.insert(node.name.clone(), id);
        self.nodes.push(node);
        id
    }

    /// Replaces an input: how a loop's back edge is closed. The new source must have the same type.
    pub fn set_input(&mut self, node: NodeId, index: usize, source: Output) -> Result<()> {
        let (have, want) = (self.info(self.node(node).inputs[index])?.dtype, self.info(source)?.dtype);
        if have != want {
            return Err(invalid!("input {index} of '{}' is {have}, found {want}", self.node(node).name));
        }
        self.nodes[node.index()].inputs[index] = source;
        Ok(())
    }

    /// Forgets what was inferred of an output's shape and value: for outputs that later iterations may change.
    pub fn relax_shape(&mut self, output: Output, shape: PartialShape) {
        if let Some(info) = self.nodes[output.node.index()].outputs.get_mut(output.index as usize) {
            (info.shape, info.value) = (shape, None);
        }
    }

    /// Says more about an output's shape than inference found.
    pub fn set_shape(&mut self, output: Output, shape: &PartialShape) -> Result<()> {
        let merged = self.info(output)?.shape.merge(shape)?;
        self.nodes[output.node.index()].outputs[output.index as usize].shape = merged;
        Ok(())
    }

    /// Sets an attribute that every node may have: one whose name starts with an underscore.
    pub fn annotate(&mut self, node: NodeId, name: &str, value: Attr) {
        assert!(name.starts_with('_'), "only private attributes may be set on a finished node");
        self.nodes[node.index()].attrs.insert(name.to_string(), value);
    }

    /// Adds a control edge.
    pub fn add_control(&mut self, from: NodeId, to: NodeId) {
        let controls = &mut self.nodes[to.index()].control_inputs;
        if !controls.contains(&from) {
            controls.push(from);
        }
    }

    /// Asks for a device.
    pub fn set_device(&mut self, node: NodeId, device: impl Into<String>) {
        self.nodes[node.index()].device = device.into();
    }

    /// The nodes so that each comes after all it depends on, back edges of loops excepted; an error names a cycle.
    pub fn in_topological_order(&self) -> Result<Vec<NodeId>> {
        let mut waiting: Vec<u32> = Vec::with_capacity(self.len());
        let mut consumers: Vec<Vec<NodeId>> = vec![Vec::new(); self.len()];
        for (id, node) in self.nodes() {
            let mut count = 0;
            for source in sources(node) {
                if !self.is_back_edge(source, id) {
                    consumers[source.index()].push(id);
                    count += 1;
                }
            }
            waiting.push(count);
        }
        let mut order: Vec<NodeId> = (0..self.len() as u32).map(NodeId).filter(|id| waiting[id.index()] == 0).collect();
        let mut next = 0;
        while next < order.len() {
            for consumer in &consumers[order[next].index()] {
                waiting[consumer.index()] -= 1;
                if waiting[consumer.index()] == 0 {
                    order.push(*consumer);
                }
            }
            next += 1;
        }
        if order.len() < self.len() {
            let stuck = self.nodes().find(|(id, _)| waiting[id.index()] > 0).map_or("?", |(_, n)| n.name.as_str());
            return Err(invalid!(
                "the graph has a cycle through node '{stuck}' ({} nodes wait for each other); only a \
                                 NextIteration may lead back, into a Merge",
                self.len() - order.len()
            ));
        }
        Ok(order)
    }

    fn is_back_edge(&self, from: NodeId, to: NodeId) -> bool {
        self.node(from).op.control_flow == ControlFlow::NextIteration
            && self.node(to).op.control_flow == ControlFlow::Merge
    }

    /// For each node, who uses its outputs or waits for it.
    pub fn consumers(&self) -> Vec<Vec<NodeId>> {
        let mut consumers = vec![Vec::new(); self.len()];
        for (id, node) in self.nodes() {
            for source in sources(node) {
                consumers[source.index()].push(id);
            }
        }
        consumers
    }
}

/// The nodes a node depends on, by data or control.
pub fn sources(node: &Node) -> impl Iterator<Item = NodeId> + '_ {
    node.inputs.iter().map(|o| o.node).chain(node.control_inputs.iter().copied())
}

/// The complete attributes and the outputs of an op given these inputs, if they fit it.
fn check(op: &Op, attrs: &Attrs, inputs: &[&OutputInfo]) -> Result<(Attrs, Vec<OutputInfo>)> {
    let found: Vec<(DType, bool)> = inputs.iter().map(|i| (i.dtype, i.is_ref)).collect();
    let attrs = types::complete_attrs(op, attrs, &found)?;
    types::check_inputs(op, &attrs, &found)?;
    let outputs = infer(op, &attrs, inputs)?;
    Ok((attrs, outputs))
}

/// What is known of the outputs of an op with these attributes and inputs.
pub(crate) fn infer(op: &Op, attrs: &Attrs, inputs: &[&OutputInfo]) -> Result<Vec<OutputInfo>> {
    let types = types::arg_types(&op.outputs, attrs)?;
    let context = InferenceContext::new(op, attrs, inputs, types.len());
    let shapes = match op.shape_fn {
        Some(shape_fn) => shape_fn(&context)?,
        None => vec![PartialShape::unknown(); types.len()],
    };
    if shapes.len() != types.len() {
        return Err(internal!(
            "the shape function of {} gives {} shapes for {} outputs",
            op.name,
            shapes.len(),
            types.len()
        ));
    }
    let mut values = op.value_fn.and_then(|f| f(&context)).unwrap_or_default();
    values.resize(types.len(), None);
    Ok(types
        .into_iter()
        .zip(shapes)
        .zip(values)
        .map(|(((dtype, is_ref), shape), value)| OutputInfo { dtype, is_ref, shape, value })
        .collect())
}

impl fmt::Display for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&text::print(self))
    }
}

//! Puts the bodies of functions in place of the nodes that call them.
//!
//! What is inside a function is then placed, pruned, optimised and cut like everything else. Branches and loops made of
//! functions are [lowered](crate::lower) to the ones the executor knows on the way.
//!
//! The node itself stays, as one that passes the results on: it can still be fetched, fed, and waited for, and whoever
//! waits for it waits for all effects of the body. A body's node `x` is called `call/x`.
//!
//! Some calls are left as they are, for the executor to run: of functions that call themselves, ask not to be inlined or
//! are broken, and those beyond a limit to how much a graph may grow.

use crate::lower;
use framework::graph::{NameAttrList, OutputInfo, sources};
use framework::{Attr, Attrs, ControlFlow, DeviceSpec, Graph, Node, NodeId, Output, Registry};
use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::sync::Arc;
use tensor::{Result, internal, invalid};

/// A graph grows by no more nodes than this; a few functions that call each other twice could make it grow for ever.
const MAX_NEW_NODES: usize = 1 << 16;

/// The graph with the bodies of functions in place of calls, branches and loops.
pub fn inline_functions(graph: Graph, registry: &Registry) -> Result<Graph> {
    if graph.library.is_empty() || !graph.nodes().any(|(_, node)| is_call(&graph, node)) {
        return Ok(graph);
    }
    let mut draft = Draft::new(&graph, registry)?;
    let mut next = 0;
    // What is put in comes at the end, and has its turn there.
    while next < draft.nodes.len() {
        let id = NodeId(next as u32);
        if is_call(&graph, draft.node(id)) && draft.nodes.len() < graph.len() + MAX_NEW_NODES {
            draft.expand(id)?;
        }
        next += 1;
    }
    draft.finish()
}

fn is_call(graph: &Graph, node: &Node) -> bool {
    match node.op.name.as_str() {
        "PartitionedCall" | "StatefulPartitionedCall" => true,
        "If" | "StatelessIf" | "While" | "StatelessWhile" | "Case" | "StatelessCase" => true,
        name => graph.library.op(name).is_some(),
    }
}

/// What a copied body gives to those around it.
pub(crate) struct Body {
    pub(crate) results: Vec<Output>,
    /// Nodes that must have run before the call is over.
    pub(crate) effects: Vec<NodeId>,
}

/// Where a body is copied to, and what it waits for.
pub(crate) struct Site<'a> {
    /// The node whose expansion this is.
    pub(crate) call: NodeId,
    /// What the names of the copies begin with.
    pub(crate) prefix: &'a str,
    /// What nodes without inputs wait for.
    pub(crate) start: Option<NodeId>,
    /// Whether the body may be dead, or belongs to a loop.
    pub(crate) is_guarded: bool,
}

/// A graph that grows: the nodes it had keep their numbers.
pub(crate) struct Draft<'a> {
    graph: &'a Graph,
    registry: &'a Registry,
    nodes: Vec<Node>,
    names: HashSet<String>,
    /// For each node, whether it may be dead or belongs to a loop.
    is_guarded: Vec<bool>,
    /// For each node, the function it was copied from; in `sites`.
    site: Vec<Option<usize>>,
    /// Functions put in so far, each with the one around it.
    sites: Vec<(String, Option<usize>)>,
    /// Outputs that others stand for.
    forward: HashMap<Output, Output>,
    /// Bodies made so far, by function and attributes.
    bodies: HashMap<String, Arc<Graph>>,
}

impl<'a> Draft<'a> {
    fn new(graph: &'a Graph, registry: &'a Registry) -> Result<Draft<'a>> {
        let mut is_guarded = vec![false; graph.len()];
        for id in graph.in_topological_order()? {
            let node = graph.node(id);
            let guards = matches!(node.op.control_flow, ControlFlow::Switch | ControlFlow::Enter);
            is_guarded[id.index()] = guards || sources(node).any(|s| is_guarded[s.index()]);
        }
        Ok(Draft {
            nodes: graph.nodes().map(|(_, node)| node.clone()).collect(),
            names: graph.nodes().map(|(_, node)| node.name.clone()).collect(),
            is_guarded,
            site: vec![None; graph.len()],
            sites: Vec::new(),
            forward: HashMap::new(),
            bodies: HashMap::new(),
            graph,
            registry,
        })
    }

    pub(crate) fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }

    pub(crate) fn info(&self, output: Output) -> Result<&OutputInfo> {
        let node = self.node(output.node);
        let info = node.outputs.get(output.index as usize);
        info.ok_or_else(|| internal!("'{}' has no output {}", node.name, output.index))
    }

    /// Puts bodies in place of a call, a branch or a loop, if that can be done.
    fn expand(&mut self, id: NodeId) -> Result<()> {
        match self.node(id).op.name.as_str() {
            "If" | "StatelessIf" => lower::lower_if(self, id),
            "Case" | "StatelessCase" => lower::lower_case(self, id),
            "While" | "StatelessWhile" => lower::lower_while(self, id),
            "PartitionedCall" | "StatefulPartitionedCall" => {
                let function = self.node(id).attr("f")?;
                self.inline_call(id, &function)
            }
            name => {
                let function = NameAttrList { name: name.to_string(), attrs: self.node(id).attrs.clone() };
                self.inline_call(id, &function)
            }
        }
    }

    fn inline_call(&mut self, id: NodeId, function: &NameAttrList) -> Result<()> {
        let Some(body) = self.body(id, function) else { return Ok(()) };
        let call = self.node(id).clone();
        let (mut start, mut arguments) = (None, call.inputs.clone());
        if !call.control_inputs.is_empty() {
            let waits = match call.control_inputs.as_slice() {
                [one] => *one,
                many => self.add("NoOp", &call, "start", vec![], many.to_vec())?,
            };
            start = Some(waits);
            for (index, argument) in arguments.iter_mut().enumerate() {
                *argument = self.pass_on(&call, &format!("arg_{index}"), *argument, vec![waits])?.into();
            }
        } else if self.is_guarded[id.index()]
            && let Some(&first) = arguments.first()
        {
            start = Some(self.pass_on(&call, "start", first, vec![])?);
        }
        let site = Site { call: id, prefix: &call.name, start, is_guarded: self.is_guarded[id.index()] };
        let body = self.copy(&body, &function.name, &arguments, &site)?;
        self.replace(id, body)
    }

    /// The body of a function that a node names; nothing if it is not to be inlined there, or cannot be: then whoever
    /// runs the node learns why.
    pub(crate) fn body(&mut self, call: NodeId, function: &NameAttrList) -> Option<Arc<Graph>> {
        let library = &self.graph.library;
        let definition = library.function(&function.name)?;
        let stays = definition.attr.get("_noinline").and_then(|value| Attr::from_proto(value).ok());
        if stays == Some(Attr::Bool(true)) || self.is_within(call, &function.name) {
            return None;
        }
        let mut key = function.name.clone();
        for (name, value) in &function.attrs {
            let _ = write!(key, " {name}={value}");
        }
        if let Some(known) = self.bodies.get(&key) {
            return Some(known.clone());
        }
        let made = Arc::new(library.instantiate(function).ok()?);
        self.bodies.insert(key, made.clone());
        Some(made)
    }

    /// Whether a node was copied from a function, or from one that this one called.
    fn is_within(&self, node: NodeId, function: &str) -> bool {
        let mut site = self.site[node.index()];
        while let Some(number) = site {
            let (name, around) = &self.sites[number];
            if name == function {
                return true;
            }
            site = *around;
        }
        false
    }

    /// Copies the nodes of a body, with its arguments put in.
    pub(crate) fn copy(&mut self, body: &Graph, function: &str, arguments: &[Output], site: &Site<'_>) -> Result<Body> {
        self.sites.push((function.to_string(), self.site[site.call.index()]));
        let number = self.sites.len() - 1;
        let map = self.number_copies(body, arguments)?;
        let device: DeviceSpec = self.node(site.call).device.parse().unwrap_or_default();
        let mut results: Vec<(i64, Output)> = Vec::new();
        let mut effects = Vec::new();
        for (id, node) in body.nodes() {
            let source = |output: Output| match map[output.node.index()] {
                Place::Argument(argument) => argument,
                Place::Copy(node) => Output { node, index: output.index },
            };
            match node.op.name.as_str() {
                "_Arg" => continue,
                "_Retval" => {
                    results.push((node.attr("index")?, source(node.inputs[0])));
                    continue;
                }
                _ => {}
            }
            let mut copy = node.clone();
            copy.name = self.unused(&format!("{}/{}", site.prefix, node.name));
            copy.inputs = node.inputs.iter().map(|&input| source(input)).collect();
            copy.control_inputs = node.control_inputs.iter().map(|&control| source(control.into()).node).collect();
            // An argument may come from a `Switch`: the node runs although the value is dead.
            let is_argument = |control: &NodeId| matches!(map[control.index()], Place::Argument(_));
            if copy.inputs.is_empty() && node.control_inputs.iter().all(is_argument) {
                copy.control_inputs.extend(site.start);
            }
            copy.device = inner_device(&node.device, &device);
            rename_attrs(&mut copy.attrs, body, site.prefix);
            if has_effect(node)
                && let Place::Copy(copied) = map[id.index()]
            {
                effects.push(copied);
            }
            self.push(copy, site.is_guarded, Some(number));
        }
        results.sort_unstable_by_key(|(index, _)| *index);
        Ok(Body { results: results.into_iter().map(|(_, output)| output).collect(), effects })
    }

    /// What will stand for each node of a body; a loop's way back leads to a node that is yet to come.
    fn number_copies(&self, body: &Graph, arguments: &[Output]) -> Result<Vec<Place>> {
        let mut next = self.nodes.len() as u32;
        let place = |(_, node): (NodeId, &Node)| match node.op.name.as_str() {
            "_Arg" => {
                let index: i64 = node.attr("index")?;
                let argument = usize::try_from(index).ok().and_then(|index| arguments.get(index));
                let missing = || invalid!("a function takes an argument {index}, and is given {}", arguments.len());
                argument.map(|&argument| Place::Argument(argument)).ok_or_else(missing)
            }
            // Nobody uses it.
            "_Retval" => Ok(Place::Copy(NodeId(next))),
            _ => {
                next += 1;
                Ok(Place::Copy(NodeId(next - 1)))
            }
        };
        body.nodes().map(place).collect()
    }

    /// Turns a call into a node that passes on the results of what was put in its place.
    pub(crate) fn replace(&mut self, id: NodeId, body: Body) -> Result<()> {
        let call = self.node(id);
        if body.results.len() != call.outputs.len() {
            return Err(invalid!(
                "Node '{}' has {} outputs, its function has {}",
                call.name,
                call.outputs.len(),
                body.results.len()
            ));
        }
        let mut control_inputs = call.control_inputs.clone();
        control_inputs.extend(&body.effects);
        let mut outputs = Vec::with_capacity(body.results.len());
        for (result, declared) in body.results.iter().zip(&call.outputs) {
            let found = OutputInfo { is_ref: false, ..self.info(*result)?.clone() };
            if found.dtype != declared.dtype {
                return Err(invalid!(
                    "Node '{}' has an output of {}, its function one of {}",
                    call.name,
                    declared.dtype,
                    found.dtype
                ));
            }
            outputs.push(found);
        }
        let types: Vec<_> = outputs.iter().map(|o| o.dtype).collect();
        let mut attrs = Attrs::new();
        let op = match types.as_slice() {
            [] => "NoOp",
            [one] => {
                attrs.insert("T".into(), (*one).into());
                "Identity"
            }
            _ => {
                attrs.insert("T".into(), types.into());
                "IdentityN"
            }
        };
        if outputs.len() > 1 && body.effects.is_empty() && call.control_inputs.is_empty() {
            // Who uses one result need not wait for the others, nor have them computed.
            let results = body.results.iter().enumerate();
            self.forward.extend(results.map(|(index, &result)| (Output { node: id, index: index as u32 }, result)));
        }
        let op = self.registry.lookup(op)?.clone();
        let node = &mut self.nodes[id.index()];
        (node.op, node.attrs, node.inputs, node.control_inputs, node.outputs) =
            (op, attrs, body.results, control_inputs, outputs);
        Ok(())
    }

    /// Adds a node that passes a value on after waiting for others.
    pub(crate) fn pass_on(&mut self, call: &Node, name: &str, value: Output, after: Vec<NodeId>) -> Result<NodeId> {
        self.add("Identity", call, name, vec![value], after)
    }

    /// Adds a node of ours on the device of a call.
    pub(crate) fn add(
        &mut self,
        op: &str,
        call: &Node,
        name: &str,
        inputs: Vec<Output>,
        control_inputs: Vec<NodeId>,
    ) -> Result<NodeId> {
        self.add_with(op, call, name, inputs, control_inputs, Attrs::new())
    }

    /// The same, with attributes that the inputs do not tell.
    pub(crate) fn add_with(
        &mut self,
        op: &str,
        call: &Node,
        name: &str,
        inputs: Vec<Output>,
        control_inputs: Vec<NodeId>,
        attrs: Attrs,
    ) -> Result<NodeId> {
        let op = self.registry.lookup(op)?.clone();
        let infos: Vec<OutputInfo> = inputs.iter().map(|&input| self.info(input).cloned()).collect::<Result<_>>()?;
        let node = Node::checked(self.unused(&format!("{}/{name}", call.name)), op, attrs, &infos)?;
        let node = Node { inputs, control_inputs, device: call.device.clone(), ..node };
        Ok(self.push(node, true, None))
    }

    /// Closes a loop: the second input of a `Merge`.
    pub(crate) fn close_loop(&mut self, merge: NodeId, back: NodeId) {
        self.nodes[merge.index()].inputs[1] = back.into();
    }

    fn push(&mut self, node: Node, is_guarded: bool, site: Option<usize>) -> NodeId {
        let id = NodeId(self.nodes.len() as u32);
        self.nodes.push(node);
        self.is_guarded.push(is_guarded);
        self.site.push(site);
        id
    }

    fn unused(&mut self, wanted: &str) -> String {
        let mut name = wanted.to_string();
        let mut number = 0;
        while !self.names.insert(name.clone()) {
            number += 1;
            name = format!("{wanted}_{number}");
        }
        name
    }

    fn finish(self) -> Result<Graph> {
        let mut graph = Graph::new();
        graph.library = self.graph.library.clone();
        graph.versions = self.graph.versions.clone();
        for mut node in self.nodes {
            for input in &mut node.inputs {
                while let Some(result) = self.forward.get(input) {
                    *input = *result;
                }
            }
            graph.adopt(node)?;
        }
        graph.infer_again()?;
        Ok(graph)
    }
}

/// What stands for a node of a body.
#[derive(Clone, Copy)]
enum Place {
    Argument(Output),
    Copy(NodeId),
}

/// The device of a body's node: what it leaves open is as the call says.
fn inner_device(device: &str, call: &DeviceSpec) -> String {
    match device.parse::<DeviceSpec>() {
        Ok(own) if !call.is_empty() => own.or(call).to_string(),
        _ => device.to_string(),
    }
}

/// Names within attributes follow the nodes they name.
fn rename_attrs(attrs: &mut Attrs, body: &Graph, prefix: &str) {
    if let Some(Attr::String(frame)) = attrs.get_mut("frame_name") {
        *frame = [prefix.as_bytes(), b"/", frame].concat().into();
    }
    if let Some(Attr::Strings(classes)) = attrs.get_mut("_class") {
        for class in classes {
            let name = std::str::from_utf8(class).ok().and_then(|c| c.strip_prefix("loc:@"));
            if let Some(name) = name.filter(|name| body.find(name).is_some()) {
                *class = format!("loc:@{prefix}/{name}").into();
            }
        }
    }
}

/// Whether a node changes something that others can see.
fn has_effect(node: &Node) -> bool {
    let name = node.op.name.as_str();
    let only_reads = name.starts_with("Random")
        || matches!(
            name,
            "ReadVariableOp"
                | "ResourceGather"
                | "ResourceGatherNd"
                | "VarHandleOp"
                | "VarIsInitializedOp"
                | "VariableShape"
                | "TruncatedNormal"
                | "Multinomial"
        );
    node.op.is_stateful && !only_reads
}

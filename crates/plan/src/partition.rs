//! Cuts a placed graph into one graph per task, or per device.
//!
//! An edge between two parts becomes a `_Send` on one side and a `_Recv` on the other, under a key that both sides
//! compute alone. A value that several nodes of a part use is sent there once, and a small constant not at all. To wait for a node of another part is to
//! receive an empty tensor from it.
//!
//! What a node computes is not looked at, with one exception: a loop whose body lies in several parts must be kept in
//! step in all of them, which is prepared by [`control_loops`](crate::control_loops) before anything is cut.

use crate::control_loops;
use crate::replicate::replicate_constants;
use framework::graph::{OutputInfo, sources};
use framework::{Attrs, DeviceName, Graph, Node, NodeId, Output, Registry};
use std::collections::HashMap;
use tensor::{DType, PartialShape, Result, Tensor, invalid};

/// The share of a graph that one task, or one device, executes.
#[derive(Debug)]
pub struct Part {
    /// The task or device.
    pub name: String,
    /// Its nodes, with those that send and receive.
    pub graph: Graph,
}

/// Counts the edges cut in a session, so that no two have the same name.
#[derive(Debug, Default)]
pub struct EdgeNames {
    next: u64,
}

impl EdgeNames {
    fn next(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    /// A name for a node of ours that serves another one.
    pub(crate) fn node(&mut self, graph: &Graph, serves: &str) -> String {
        loop {
            let name = format!("{serves}_S{}", self.next());
            if graph.find(&name).is_none() {
                return name;
            }
        }
    }
}

/// Cuts a graph whose every node has a complete device into one graph per group of devices.
pub fn partition(
    graph: &Graph,
    registry: &Registry,
    group_of: &dyn Fn(&DeviceName) -> String,
    incarnation: &dyn Fn(&DeviceName) -> Result<u64>,
    names: &mut EdgeNames,
) -> Result<Vec<Part>> {
    // Also for a task that has several devices: it cuts its part later, and may not know the loop's predicate.
    let prepared = control_loops::prepare(graph, registry, names)?;
    let graph = prepared.as_ref().unwrap_or(graph);
    let replicated = replicate_constants(graph, names)?;
    let graph = replicated.as_ref().unwrap_or(graph);
    let mut places = Places::new(graph, group_of)?;
    if places.groups.len() <= 1 {
        let graph = with_reachable_functions(graph.clone());
        return Ok(places.groups.pop().map(|name| Part { name, graph }).into_iter().collect());
    }
    let mut cutter = Cutter {
        nodes: graph.nodes().map(|(_, node)| node.clone()).collect(),
        order: vec![Vec::new(); places.groups.len()],
        received: HashMap::new(),
        signals: HashMap::new(),
        graph,
        places,
        registry,
        incarnation,
        names,
    };
    for (id, _) in graph.nodes() {
        cutter.cut_inputs(id)?;
    }
    cutter.finish()
}

fn with_reachable_functions(mut graph: Graph) -> Graph {
    if !graph.library.is_empty() {
        graph.library = graph.library.reachable_from(graph.nodes().map(|(_, node)| node));
    }
    graph
}

/// Where the nodes are.
struct Places {
    groups: Vec<String>,
    group: Vec<usize>,
}

impl Places {
    fn new(graph: &Graph, group_of: &dyn Fn(&DeviceName) -> String) -> Result<Places> {
        let mut places = Places { groups: Vec::new(), group: Vec::with_capacity(graph.len()) };
        let mut known: HashMap<&str, usize> = HashMap::new();
        for (_, node) in graph.nodes() {
            let group = match known.get(node.device.as_str()) {
                Some(&group) => group,
                None => {
                    let name = group_of(&complete_device(node)?);
                    let group = places.groups.iter().position(|g| *g == name).unwrap_or_else(|| {
                        places.groups.push(name);
                        places.groups.len() - 1
                    });
                    known.insert(&node.device, group);
                    group
                }
            };
            places.group.push(group);
        }
        Ok(places)
    }
}

fn complete_device(node: &Node) -> Result<DeviceName> {
    node.device.parse().map_err(|_| match node.device.as_str() {
        "" => invalid!("Node '{}' is missing a device specification", node.name),
        device => invalid!("Node '{}' has the incomplete device specification '{device}'", node.name),
    })
}

/// The nodes of all parts. Those of the graph have the numbers they have there; those that send and receive come after
/// them.
struct Cutter<'a> {
    nodes: Vec<Node>,
    /// The nodes of each part, in the order they will have.
    order: Vec<Vec<NodeId>>,
    /// The `_Recv` of a value in a part.
    received: HashMap<(Output, usize), NodeId>,
    /// What to wait for in a part in place of a node of another one.
    signals: HashMap<(NodeId, usize), NodeId>,
    graph: &'a Graph,
    places: Places,
    registry: &'a Registry,
    incarnation: &'a dyn Fn(&DeviceName) -> Result<u64>,
    names: &'a mut EdgeNames,
}

impl Cutter<'_> {
    /// Adds a node to its part, after what it needs to receive.
    fn cut_inputs(&mut self, id: NodeId) -> Result<()> {
        let (node, group) = (self.graph.node(id), self.places.group[id.index()]);
        let is_remote = |source: NodeId, places: &Places| places.group[source.index()] != group;
        let trigger = control_loops::trigger(self.graph, node);
        let is_cut = sources(node).any(|source| is_remote(source, &self.places));
        for (index, &input) in node.inputs.iter().enumerate() {
            if is_remote(input.node, &self.places) {
                let received = self.receive(input, id, index, trigger)?;
                self.nodes[id.index()].inputs[index] = received.into();
            }
        }
        for (index, &control) in node.control_inputs.iter().enumerate() {
            if is_remote(control, &self.places) {
                let signal = self.await_signal(control, group, &node.device, trigger)?;
                self.nodes[id.index()].control_inputs[index] = signal;
            }
        }
        self.order[group].push(id);
        if let (true, Some(trigger)) = (is_cut, trigger) {
            self.release(id, trigger);
        }
        Ok(())
    }

    /// What waits for a receive need not wait for the receive's trigger as well, unless it will be cut once more.
    fn release(&mut self, id: NodeId, trigger: NodeId) {
        let node = &self.nodes[id.index()];
        let is_apart = |source: NodeId| self.nodes[source.index()].device != node.device;
        if !sources(node).any(is_apart) {
            self.nodes[id.index()].control_inputs.retain(|c| *c != trigger);
        }
    }

    /// The `_Recv` that stands for a value of another part.
    fn receive(&mut self, value: Output, user: NodeId, index: usize, trigger: Option<NodeId>) -> Result<NodeId> {
        let (node, group) = (self.graph.node(user), self.places.group[user.index()]);
        let info = self.graph.info(value)?.clone();
        if info.is_ref {
            return self.receive_reference(value, &info, user, index, trigger);
        }
        if let Some(&known) = self.received.get(&(value, group)) {
            return Ok(known);
        }
        let (received, _) = self.cut(value, &self.graph.node(value.node).name, &info, group, &node.device, trigger)?;
        self.received.insert((value, group), received);
        Ok(received)
    }

    /// A variable is read when its user would have read it: once for each user, after all that this one waits for.
    fn receive_reference(
        &mut self,
        value: Output,
        info: &OutputInfo,
        user: NodeId,
        index: usize,
        trigger: Option<NodeId>,
    ) -> Result<NodeId> {
        let node = self.graph.node(user);
        if node.input_types()?.get(index).is_some_and(|(_, wants_ref)| *wants_ref) {
            let source = self.graph.node(value.node);
            return Err(invalid!(
                "Node '{}' on {} takes a reference to '{}' on {}: they must be on the same device\n\t [[{{{{node {}}}}}]]",
                node.name,
                node.device,
                source.name,
                source.device,
                node.name
            ));
        }
        let (received, sent) = self.cut(
            value,
            &self.graph.node(value.node).name,
            info,
            self.places.group[user.index()],
            &node.device,
            trigger,
        )?;
        let (source, source_group) = (value.node, self.places.group[value.node.index()]);
        for &control in node.control_inputs.iter().filter(|c| Some(**c) != trigger) {
            let waits_for = if self.places.group[control.index()] == source_group {
                control
            } else if trigger.is_some() {
                continue; // Within a loop nothing would start such a receive: the user alone waits.
            } else {
                let device = self.graph.node(source).device.clone();
                self.await_signal(control, source_group, &device, None)?
            };
            self.nodes[sent.index()].control_inputs.push(waits_for);
        }
        Ok(received)
    }

    /// Something to wait for in a part in place of a node of another one.
    fn await_signal(&mut self, source: NodeId, group: usize, device: &str, trigger: Option<NodeId>) -> Result<NodeId> {
        if let Some(&known) = self.signals.get(&(source, group)) {
            return Ok(known);
        }
        let name = self.graph.node(source).name.clone();
        let empty = Tensor::from_vec([0], Vec::<f32>::new())?;
        let info = OutputInfo { dtype: DType::F32, is_ref: false, shape: PartialShape::from([0]), value: None };
        let mut attrs = Attrs::new();
        attrs.insert("dtype".into(), DType::F32.into());
        attrs.insert("value".into(), empty.into());
        let from = self.graph.node(source).device.clone();
        let constant = Node {
            control_inputs: vec![source],
            outputs: vec![info.clone()],
            ..self.bare_node("Const", &name, attrs, &from)?
        };
        let constant = self.push(constant, self.places.group[source.index()]);
        let (received, _) = self.cut(constant.into(), &name, &info, group, device, trigger)?;
        let mut attrs = Attrs::new();
        attrs.insert("T".into(), DType::F32.into());
        let identity = Node {
            inputs: vec![received.into()],
            outputs: vec![info],
            ..self.bare_node("Identity", &name, attrs, device)?
        };
        let identity = self.push(identity, group);
        self.signals.insert((source, group), identity);
        Ok(identity)
    }

    /// Sends a value to a part, under the name of the node it serves: the `_Recv` there, and the `_Send` here.
    fn cut(
        &mut self,
        value: Output,
        name: &str,
        info: &OutputInfo,
        group: usize,
        to: &str,
        trigger: Option<NodeId>,
    ) -> Result<(NodeId, NodeId)> {
        let from = self.nodes[value.node.index()].device.clone();
        let mut attrs = Attrs::new();
        attrs.insert("tensor_name".into(), format!("edge_{}_{name}", self.names.next()).into());
        attrs.insert("send_device".into(), from.as_str().into());
        attrs.insert("recv_device".into(), to.into());
        // The wire has no unsigned attribute: the bits of the incarnation travel as they are.
        attrs.insert("send_device_incarnation".into(), ((self.incarnation)(&from.parse()?)? as i64).into());
        attrs.insert("client_terminated".into(), false.into());
        let mut send_attrs = attrs.clone();
        send_attrs.insert("T".into(), info.dtype.into());
        attrs.insert("tensor_type".into(), info.dtype.into());

        let outputs = vec![OutputInfo { is_ref: false, ..info.clone() }];
        let control_inputs = trigger.into_iter().collect();
        let received = Node { outputs, control_inputs, ..self.bare_node("_Recv", name, attrs, to)? };
        let received = self.push(received, group);
        let sent = Node { inputs: vec![value], ..self.bare_node("_Send", name, send_attrs, &from)? };
        let source_group = self.places.group[value.node.index()];
        Ok((received, self.push(sent, source_group)))
    }

    /// A node of ours: named after the node it serves, all attributes given.
    fn bare_node(&mut self, op: &str, serves: &str, attrs: Attrs, device: &str) -> Result<Node> {
        Ok(Node {
            name: self.names.node(self.graph, serves),
            op: self.registry.lookup(op)?.clone(),
            attrs,
            inputs: Vec::new(),
            control_inputs: Vec::new(),
            device: device.to_string(),
            outputs: Vec::new(),
        })
    }

    fn push(&mut self, node: Node, group: usize) -> NodeId {
        let id = NodeId(self.nodes.len() as u32);
        self.nodes.push(node);
        self.places.group.push(group);
        self.order[group].push(id);
        id
    }

    fn finish(mut self) -> Result<Vec<Part>> {
        let mut number = vec![NodeId(0); self.nodes.len()];
        for ids in &self.order {
            for (local, id) in ids.iter().enumerate() {
                number[id.index()] = NodeId(local as u32);
            }
        }
        let mut parts = Vec::with_capacity(self.order.len());
        for (name, ids) in self.places.groups.into_iter().zip(&self.order) {
            let mut part = Graph::new();
            part.versions = self.graph.versions.clone();
            for id in ids {
                let node = &mut self.nodes[id.index()];
                for input in &mut node.inputs {
                    input.node = number[input.node.index()];
                }
                for control in &mut node.control_inputs {
                    *control = number[control.index()];
                }
                part.adopt(node.clone())?;
            }
            part.library = self.graph.library.clone();
            parts.push(Part { name, graph: with_reachable_functions(part) });
        }
        Ok(parts)
    }
}

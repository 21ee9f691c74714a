//! Leads values and waits past nodes that only pass them on.
//!
//! Graphs built in Python are full of them: each group of operations is a `NoOp`, each gradient goes through an `Identity`
//! that waits for the others. They take no time to compute, but each is a node to be counted down, run and handed on. Whoever
//! used one uses what it used instead. TensorFlow's own optimizer does the same.

use crate::copy::{copy_nodes, without_nodes};
use crate::users;
use framework::graph::sources;
use framework::{ControlFlow, Graph, Node, NodeId, Output};
use std::collections::{HashMap, HashSet};
use tensor::Result;

/// Ops that give what they are given.
const SAME: [&str; 4] = ["Identity", "Snapshot", "StopGradient", "PreventGradient"];
const NOTHING: &str = "NoOp";

/// Ops whose value may be dead though the node itself has run, which who waits for the node does not see.
const RECEIVES: [&str; 2] = ["_Recv", "_HostRecv"];

/// The graph without nodes that only pass on a value or a wait, as long as there are no more edges than before.
pub fn bypass(graph: Graph) -> Result<Graph> {
    let (users, is_steered) = (users(&graph), beside_steering(&graph));
    let mut ways: Vec<Option<Way>> = graph.nodes().map(|_| None).collect();
    let mut is_reference = vec![false; graph.len()];
    for id in graph.in_topological_order()? {
        let (node, users) = (graph.node(id), users[id.index()]);
        is_reference[id.index()] = node.outputs.iter().any(|output| output.is_ref)
            || node.op.passes_references && node.inputs.iter().any(|input| is_reference[input.node.index()]);
        let only_passes_on = match node.inputs.as_slice() {
            [] => node.op.name == NOTHING,
            [input] => SAME.contains(&node.op.name.as_str()) && !is_reference[input.node.index()],
            _ => false,
        };
        if only_passes_on && !is_steered[id.index()] {
            let way = Way::past(node, &ways);
            let is_received =
                way.value.is_some_and(|value| RECEIVES.contains(&graph.node(value.node).op.name.as_str()));
            if way.pays(users.uses + users.waits) && !(is_received && users.waits > 0) {
                ways[id.index()] = Some(way);
            }
        }
    }
    if ways.iter().all(Option::is_none) {
        return Ok(graph);
    }
    let keep: Vec<bool> = ways.iter().map(Option::is_none).collect();
    let mut out = without_nodes(&graph);
    copy_nodes(&graph, &keep, &mut out, &HashMap::new(), |_, node| {
        if !steers(node) {
            node.control_inputs = waits_of(node, &ways);
            node.inputs.iter_mut().for_each(|input| *input = value_of(*input, &ways));
        }
        Ok(())
    })?;
    Ok(out)
}

/// Whether a node decides what runs: which way a switch goes and which turn of a loop it is, its value says and not its end.
fn steers(node: &Node) -> bool {
    !matches!(node.op.control_flow, ControlFlow::None | ControlFlow::Send)
}

/// Which nodes give something to one that steers, or get something from one.
fn beside_steering(graph: &Graph) -> Vec<bool> {
    let mut beside = vec![false; graph.len()];
    for (id, node) in graph.nodes() {
        for source in sources(node) {
            beside[source.index()] |= steers(node);
            beside[id.index()] |= steers(graph.node(source));
        }
    }
    beside
}

/// What is used in place of a node, and what is waited for.
struct Way {
    value: Option<Output>,
    waits: Vec<NodeId>,
}

impl Way {
    fn past(node: &Node, ways: &[Option<Way>]) -> Way {
        Way { value: node.inputs.first().map(|input| value_of(*input, ways)), waits: waits_of(node, ways) }
    }

    /// Whether so many users may take it. What has none is what the step is for, and stays.
    fn pays(&self, users: usize) -> bool {
        let edges = self.value.iter().len() + self.waits.len();
        users > 0 && edges * users <= edges + users
    }
}

/// Where a value comes from.
fn value_of(output: Output, ways: &[Option<Way>]) -> Output {
    ways[output.node.index()].as_ref().and_then(|way| way.value).unwrap_or(output)
}

/// What a node waits for besides its inputs, each once.
fn waits_of(node: &Node, ways: &[Option<Way>]) -> Vec<NodeId> {
    let way = |id: NodeId| ways[id.index()].as_ref();
    let mut waits: Vec<NodeId> = Vec::new();
    // Who used a node waits for all that it waited for.
    for input in &node.inputs {
        waits.extend(way(input.node).iter().flat_map(|way| &way.waits));
    }
    for control in &node.control_inputs {
        match way(*control) {
            Some(way) => waits.extend(way.value.iter().map(|value| value.node).chain(way.waits.iter().copied())),
            None => waits.push(*control),
        }
    }
    let inputs = node.inputs.iter().map(|input| value_of(*input, ways).node);
    let mut seen: HashSet<NodeId> = inputs.collect();
    waits.retain(|id| seen.insert(*id));
    waits
}

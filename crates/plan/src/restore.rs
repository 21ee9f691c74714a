//! Reads the tensors of a checkpoint one by one.
//!
//! `RestoreV2` gives all its tensors at once, so that a model is in memory twice before the first variable takes its value.
//! Here a node of that name checks that all of them can be had, and behind it each is read by a node of its own: several at
//! a time, and each variable lets go of its old value before most others are read.

use crate::copy::{copy_nodes, without_nodes};
use framework::{Attr, Attrs, Graph, Node, NodeId, Output, Registry};
use std::collections::HashMap;
use tensor::Result;

/// The graph with a node for each tensor that is restored together with others.
pub fn split_restores(graph: Graph, registry: &Registry) -> Result<Graph> {
    let restores = find(&graph);
    if restores.is_empty() {
        return Ok(graph);
    }
    let mut parts = Vec::new();
    let mut given = HashMap::new();
    for &restore in &restores {
        for index in 0..graph.node(restore).outputs.len() {
            // All nodes keep their numbers, and the new ones follow.
            let part = NodeId((graph.len() + parts.len()) as u32);
            given.insert(Output { node: restore, index: index as u32 }, Output::from(part));
            parts.push(part_of(&graph, restore, index, registry)?);
        }
    }
    let mut out = without_nodes(&graph);
    copy_nodes(&graph, &vec![true; graph.len()], &mut out, &given, |id, node| {
        if restores.contains(&id) {
            *node = check_before(&graph, node, registry)?;
        }
        Ok(())
    })?;
    parts.into_iter().try_for_each(|part| out.adopt(part).map(drop))?;
    Ok(out)
}

/// Nodes that restore several tensors, and that nobody waits for as a whole.
fn find(graph: &Graph) -> Vec<NodeId> {
    let mut found: Vec<NodeId> = graph
        .nodes()
        .filter(|(_, node)| node.op.name == "RestoreV2" && node.outputs.len() > 1)
        .map(|(id, _)| id)
        .collect();
    if !found.is_empty() {
        let waited_for: Vec<NodeId> = graph.nodes().flat_map(|(_, node)| node.control_inputs.iter().copied()).collect();
        found.retain(|id| !waited_for.contains(id));
    }
    found
}

/// What stands in the place of a node that restores: it gives the prefix, if there is all that is wanted.
fn check_before(graph: &Graph, restore: &Node, registry: &Registry) -> Result<Node> {
    let attrs = Attrs::from_iter([("dtypes".into(), restore.attrs["dtypes"].clone())]);
    let mut node = node(graph, restore.name.clone(), "_RestoreCheck", attrs, restore, registry)?;
    node.inputs.clone_from(&restore.inputs);
    node.control_inputs.clone_from(&restore.control_inputs);
    Ok(node)
}

/// The node that reads one of the tensors.
fn part_of(graph: &Graph, id: NodeId, index: usize, registry: &Registry) -> Result<Node> {
    let restore = graph.node(id);
    let output = &restore.outputs[index];
    let attrs =
        Attrs::from_iter([("dtype".into(), Attr::Type(output.dtype)), ("index".into(), Attr::Int(index as i64))]);
    let mut node = node(graph, format!("{}/_part_{index}", restore.name), "_RestorePart", attrs, restore, registry)?;
    node.inputs = vec![Output::from(id), restore.inputs[1], restore.inputs[2]];
    node.outputs = vec![output.clone()];
    Ok(node)
}

/// A node with inputs such as `restore` has, where it is.
fn node(graph: &Graph, name: String, op: &str, attrs: Attrs, restore: &Node, registry: &Registry) -> Result<Node> {
    let inputs = restore.inputs.iter().map(|input| graph.info(*input).cloned()).collect::<Result<Vec<_>>>()?;
    let node = Node::checked(name, registry.lookup(op)?.clone(), attrs, &inputs)?;
    Ok(Node { device: restore.device.clone(), ..node })
}

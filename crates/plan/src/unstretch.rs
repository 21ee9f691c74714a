//! Leaves out copies that are only made for arithmetic, which stretches its operands by itself.
//!
//! The gradient of a sum is a number, repeated to the shape of what was summed up. Where it is then multiplied with something
//! of that shape, the number alone will do.

use crate::copy::{copy_nodes, without_nodes};
use crate::{Users, users};
use framework::{Graph, Node, NodeId, Output};
use std::collections::HashMap;
use tensor::{Result, Shape, broadcast};

/// Ops of two operands that are stretched to each other.
const STRETCHES: [&str; 9] =
    ["Add", "AddV2", "Sub", "Mul", "Div", "RealDiv", "Maximum", "Minimum", "SquaredDifference"];

/// The graph in which arithmetic uses what would be repeated for it, wherever its other operand has the full shape.
///
/// Only where all shapes are known: then nothing is lost but copies. Targets of the run stay.
pub fn unstretch(graph: Graph, targets: &[String]) -> Result<Graph> {
    let mut users = users(&graph);
    let shorter: HashMap<NodeId, (usize, Output)> =
        graph.nodes().filter_map(|(id, node)| Some((id, shorter_operand(&graph, node, &users)?))).collect();
    if shorter.is_empty() {
        return Ok(graph);
    }
    let mut keep = vec![true; graph.len()];
    shorter.values().for_each(|(_, value)| users[value.node.index()].uses += 1);
    for (id, (side, _)) in &shorter {
        let repetition = graph.node(*id).inputs[*side].node;
        drop_one_use(&graph, repetition, targets, &mut users, &mut keep);
    }
    let mut out = without_nodes(&graph);
    copy_nodes(&graph, &keep, &mut out, &HashMap::new(), |id, node| {
        if let Some((side, value)) = shorter.get(&id) {
            node.inputs[*side] = *value;
        }
        Ok(())
    })?;
    Ok(out)
}

/// Which operand of a node is a repetition that it need not be given, and what is repeated.
fn shorter_operand(graph: &Graph, node: &Node, users: &[Users]) -> Option<(usize, Output)> {
    if !STRETCHES.contains(&node.op.name.as_str()) {
        return None;
    }
    let shape = node.outputs[0].shape.known()?;
    let is_whole = |output: Output| graph.info(output).is_ok_and(|info| info.shape == node.outputs[0].shape);
    (0..2).find_map(|side| {
        let (operand, other) = (node.inputs[side], node.inputs[1 - side]);
        let value = repeated(graph, graph.node(operand.node), &shape)?;
        let nobody_waits = users[operand.node.index()].waits == 0;
        (is_whole(operand) && is_whole(other) && nobody_waits).then_some((side, value))
    })
}

/// What a node repeats, if it could be stretched to this shape.
fn repeated(graph: &Graph, node: &Node, shape: &Shape) -> Option<Output> {
    let (value, how) = match node.op.name.as_str() {
        "BroadcastTo" | "Tile" => (node.inputs[0], node.inputs[1]),
        "Fill" => (node.inputs[1], node.inputs[0]),
        _ => return None,
    };
    // What else a node waits for, whether it lives, and what a variable held when it was read, its value does not tell.
    let how = graph.node(how.node);
    let is_plain = node.control_inputs.is_empty() && how.op.name == "Const" && how.control_inputs.is_empty();
    let info = graph.info(value).ok()?;
    let stretched = broadcast(&info.shape.known()?, shape).ok()?;
    (is_plain && !info.is_ref && stretched == *shape).then_some(value)
}

/// A repetition, or a constant that says how to repeat, has one use less; without any it is not kept.
fn drop_one_use(graph: &Graph, id: NodeId, targets: &[String], users: &mut [Users], keep: &mut [bool]) {
    let (node, users_left) = (graph.node(id), &mut users[id.index()]);
    users_left.uses -= 1;
    if users_left.uses + users_left.waits > 0 || targets.contains(&node.name) {
        return;
    }
    keep[id.index()] = false;
    let how = node.inputs.iter().filter(|input| graph.node(input.node).op.name == "Const");
    how.for_each(|input| drop_one_use(graph, input.node, targets, users, keep));
}

//! Leaves out what is computed for nobody.
//!
//! Programs wait for values they never look at. TensorFlow's gradients are the common case: those of both sides of a product are
//! waited for together, though nobody wants that of the images. Such a node need not compute anything, as long as it still
//! waits for what it would have needed: it becomes a `NoOp`. TensorFlow's own optimizer does the same.

use crate::copy::{copy_nodes, without_nodes};
use crate::{only_computes, users};
use framework::graph::sources;
use framework::{Attrs, ControlFlow, Graph, Node, NodeId, Output, Registry};
use std::collections::{HashMap, HashSet};
use tensor::Result;

/// Ops that are there to fail, or that stand for something else.
const KEPT: [&str; 4] = ["CheckNumerics", "EnsureShape", "Placeholder", "PlaceholderWithDefault"];

/// How many steps are taken in all to find out what is waited for twice. Beyond, it is.
const STEPS_MAX: usize = 1 << 20;

/// The graph with a `NoOp` in place of each node that has no effect, and that others only wait for. Targets of the run stay.
pub fn leave_out(graph: Graph, targets: &[String], registry: &Registry) -> Result<Graph> {
    let mut users = users(&graph);
    let mut is_left_out = vec![false; graph.len()];
    for id in graph.in_topological_order()?.into_iter().rev() {
        let node = graph.node(id);
        if users[id.index()].waits > 0
            && users[id.index()].uses == 0
            && may_leave_out(&graph, node)
            && !targets.contains(&node.name)
        {
            is_left_out[id.index()] = true;
            for input in &node.inputs {
                users[input.node.index()].uses -= 1;
                users[input.node.index()].waits += 1;
            }
        }
    }
    if !is_left_out.contains(&true) {
        return Ok(graph);
    }
    let nothing = registry.lookup("NoOp")?;
    let mut steps = STEPS_MAX;
    let mut out = without_nodes(&graph);
    copy_nodes(&graph, &vec![true; graph.len()], &mut out, &HashMap::new(), |id, node| {
        if is_left_out[id.index()] {
            node.control_inputs = awaited(&graph, node, &mut steps);
            (node.op, node.attrs) = (nothing.clone(), Attrs::new());
            node.inputs.clear();
            node.outputs.clear();
        }
        Ok(())
    })?;
    Ok(out)
}

fn may_leave_out(graph: &Graph, node: &Node) -> bool {
    // Who waits for a switch does not know which way it goes.
    let knows_the_way = |input: &Output| graph.node(input.node).op.control_flow == ControlFlow::Switch;
    only_computes(node) && !node.inputs.iter().any(knows_the_way) && !KEPT.contains(&node.op.name.as_str())
}

/// What a node waits for, without what comes before the rest of it anyway: that spares edges between tasks.
fn awaited(graph: &Graph, node: &Node, steps: &mut usize) -> Vec<NodeId> {
    let mut seen = HashSet::new();
    let mut awaited: Vec<NodeId> = sources(node).filter(|parent| seen.insert(*parent)).collect();
    let mut at = 0;
    while at < awaited.len() && awaited.len() > 1 {
        let last = awaited[at];
        let before = before(graph, last, steps);
        awaited.retain(|id| *id == last || !before.contains(id));
        at = awaited.iter().position(|id| *id == last).map_or(awaited.len(), |place| place + 1);
    }
    awaited
}

/// Nodes that have run when this one runs, in the same turn of the same loop: as many as there are steps for.
fn before(graph: &Graph, id: NodeId, steps: &mut usize) -> HashSet<NodeId> {
    let (mut seen, mut next) = (HashSet::new(), vec![id]);
    while let Some(node) = next.pop().map(|id| graph.node(id)) {
        if node.op.control_flow == ControlFlow::None {
            for parent in sources(node) {
                if *steps == 0 {
                    return seen;
                }
                *steps -= 1;
                if seen.insert(parent) {
                    next.push(parent);
                }
            }
        }
    }
    seen
}

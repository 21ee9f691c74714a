//! Fuses chains of elementwise nodes on floats into one node that passes over memory once.
//!
//! A node is drawn into its consumer if nobody else uses it or waits for it, and if both have the same shape as far as
//! is known: then nothing is computed more often than before.

use crate::copy::{copy_nodes, without_nodes};
use crate::users;
use framework::{Attr, Attrs, Graph, Node, NodeId, Output, Registry};
use std::collections::HashMap;
use tensor::{DType, Result};

/// A fused node reads at most this many inputs, and does at most this many steps: its values stay in the first cache.
const MAX_INPUTS: usize = 8;
const MAX_STEPS: usize = 16;

/// The graph with chains of elementwise nodes fused.
pub fn fuse(graph: Graph, registry: &Registry) -> Result<Graph> {
    let groups = find_groups(&graph)?;
    if groups.iter().all(Option::is_none) {
        return Ok(graph);
    }
    let mut keep = vec![true; graph.len()];
    for group in groups.iter().flatten() {
        for node in &group.nodes[..group.nodes.len() - 1] {
            keep[node.index()] = false;
        }
    }
    let mut out = without_nodes(&graph);
    copy_nodes(&graph, &keep, &mut out, &HashMap::new(), |id, node| {
        if let Some(group) = &groups[id.index()] {
            *node = group.node(&graph, node, registry)?;
        }
        Ok(())
    })?;
    Ok(out)
}

/// Nodes to become one; the last is the one whose name and consumers stay.
struct Group {
    nodes: Vec<NodeId>,
}

impl Group {
    fn node(&self, graph: &Graph, root: &Node, registry: &Registry) -> Result<Node> {
        let mut inputs: Vec<Output> = Vec::new();
        let inside = |o: &Output| self.nodes.iter().position(|n| *n == o.node);
        for input in self.nodes.iter().flat_map(|n| &graph.node(*n).inputs).filter(|i| inside(i).is_none()) {
            if !inputs.contains(input) {
                inputs.push(*input);
            }
        }
        let operand = |o: &Output| match inside(o) {
            Some(step) => (inputs.len() + step) as i64,
            None => inputs.iter().position(|i| i == o).expect("collected above") as i64,
        };
        let steps: Vec<bytes::Bytes> = self.nodes.iter().map(|n| graph.node(*n).op.name.clone().into()).collect();
        let operands: Vec<i64> = self.nodes.iter().flat_map(|n| &graph.node(*n).inputs).map(operand).collect();
        let mut control_inputs: Vec<NodeId> =
            self.nodes.iter().flat_map(|n| graph.node(*n).control_inputs.iter().copied()).collect();
        control_inputs.sort_unstable();
        control_inputs.dedup();
        let op = registry.lookup("_FusedElementwise")?.clone();
        let mut attrs = Attrs::new();
        attrs.insert("N".into(), Attr::Int(inputs.len() as i64));
        attrs.insert("steps".into(), steps.into());
        attrs.insert("operands".into(), operands.into());
        // The checks that adding a node makes hold by construction: all inputs are floats.
        Ok(Node {
            name: root.name.clone(),
            op,
            attrs,
            inputs,
            control_inputs,
            device: root.device.clone(),
            outputs: root.outputs.clone(),
        })
    }
}

fn find_groups(graph: &Graph) -> Result<Vec<Option<Group>>> {
    let users = users(graph);
    let mut groups: Vec<Option<Group>> = graph.nodes().map(|_| None).collect();
    let mut taken = vec![false; graph.len()];
    // From the end, so that a chain is entered at its last node.
    for id in graph.in_topological_order()?.into_iter().rev() {
        if taken[id.index()] || !is_fusible(graph.node(id)) {
            continue;
        }
        let mut nodes = vec![id];
        let mut next = 0;
        while next < nodes.len() {
            for input in &graph.node(nodes[next]).inputs {
                let source = input.node;
                let joins = !nodes.contains(&source)
                    && !taken[source.index()]
                    && users[source.index()].waits == 0
                    && is_fusible(graph.node(source))
                    && users[source.index()].uses == uses_within(graph, &nodes, source)
                    && same_place(graph.node(source), graph.node(id))
                    && nodes.len() < MAX_STEPS
                    && num_inputs(graph, &nodes, source) <= MAX_INPUTS;
                if joins {
                    nodes.push(source);
                }
            }
            next += 1;
        }
        if nodes.len() > 1 {
            nodes.iter().for_each(|n| taken[n.index()] = true);
            groups[id.index()] = Some(Group { nodes: in_order(graph, nodes) });
        }
    }
    Ok(groups)
}

fn is_fusible(node: &Node) -> bool {
    node.op.is_elementwise
        && node.outputs.len() == 1
        && node.outputs[0].dtype == DType::F32
        && node.outputs[0].shape.rank().is_some_and(|r| r > 0)
}

fn same_place(a: &Node, b: &Node) -> bool {
    a.device == b.device && a.outputs[0].shape == b.outputs[0].shape
}

fn uses_within(graph: &Graph, nodes: &[NodeId], source: NodeId) -> usize {
    nodes.iter().flat_map(|n| &graph.node(*n).inputs).filter(|i| i.node == source).count()
}

fn num_inputs(graph: &Graph, nodes: &[NodeId], more: NodeId) -> usize {
    let inside = |n: NodeId| n == more || nodes.contains(&n);
    let mut inputs: Vec<Output> = Vec::new();
    for input in nodes.iter().chain([&more]).flat_map(|n| &graph.node(*n).inputs).filter(|i| !inside(i.node)) {
        if !inputs.contains(input) {
            inputs.push(*input);
        }
    }
    inputs.len()
}

/// The nodes so that each comes after those it uses; the root, which all others lead to, comes last.
fn in_order(graph: &Graph, nodes: Vec<NodeId>) -> Vec<NodeId> {
    let mut order: Vec<NodeId> = Vec::with_capacity(nodes.len());
    while order.len() < nodes.len() {
        let ready = nodes.iter().find(|n| {
            let waits = graph.node(**n).inputs.iter().any(|i| nodes.contains(&i.node) && !order.contains(&i.node));
            !order.contains(n) && !waits
        });
        order.push(*ready.expect("a chain has no cycle"));
    }
    order
}

//! Merges nodes that compute the same.

use crate::copy::{copy_nodes, without_nodes};
use crate::only_computes;
use framework::{Graph, Node, NodeId};
use std::collections::{HashMap, HashSet};
use tensor::Result;

/// The graph with one node in place of several equal ones.
pub fn merge_equal_nodes(graph: Graph) -> Result<Graph> {
    let order = graph.in_topological_order()?;
    let mut stands_for: Vec<NodeId> = (0..graph.len() as u32).map(NodeId).collect();
    let mut seen: HashMap<String, NodeId> = HashMap::new();
    let mut merged = false;
    for id in order {
        let node = graph.node(id);
        if only_computes(node) && node.op.name != "Placeholder" {
            let first = *seen.entry(fingerprint(node, &stands_for)).or_insert(id);
            merged |= first != id;
            stands_for[id.index()] = first;
        }
    }
    if !merged {
        return Ok(graph);
    }
    let keep: Vec<bool> = stands_for.iter().enumerate().map(|(i, n)| n.index() == i).collect();
    let mut out = without_nodes(&graph);
    copy_nodes(&graph, &keep, &mut out, &HashMap::new(), |_, node| {
        node.inputs.iter_mut().for_each(|i| i.node = stands_for[i.node.index()]);
        node.control_inputs.iter_mut().for_each(|c| *c = stands_for[c.index()]);
        let mut seen = HashSet::new();
        node.control_inputs.retain(|c| seen.insert(*c));
        Ok(())
    })?;
    Ok(out)
}

/// Equal for nodes that compute the same. Large constants are told apart by their names: comparing them costs more
/// than it saves.
fn fingerprint(node: &Node, stands_for: &[NodeId]) -> String {
    use std::fmt::Write as _;
    let mut text = format!("{} {}", node.op.name, node.device);
    for input in &node.inputs {
        let _ = write!(text, " {}:{}", stands_for[input.node.index()].0, input.index);
    }
    let mut controls: Vec<u32> = node.control_inputs.iter().map(|c| stands_for[c.index()].0).collect();
    controls.sort_unstable();
    let _ = write!(text, " {controls:?}");
    for (name, value) in node.attrs.iter().filter(|(name, _)| !name.starts_with('_')) {
        match value {
            framework::Attr::Tensor(t) if t.num_bytes() > 256 => {
                let _ = write!(text, " {name}=#{}", node.name);
            }
            framework::Attr::Tensor(t) => {
                let _ = write!(text, " {name}={}{}{:?}", t.dtype(), t.shape(), t.to_proto());
            }
            _ => {
                let _ = write!(text, " {name}={value}");
            }
        }
    }
    text
}

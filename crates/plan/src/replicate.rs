//! Gives every device its own copy of the small constants it uses, so that they do not travel in every step.

use crate::partition::EdgeNames;
use framework::{Graph, Node, NodeId};
use tensor::{Result, Tensor};

/// Larger constants stay where they are: a graph is sent to each task too.
const MAX_BYTES: usize = 1024;

/// The graph with copies of small constants where they are used; nothing if they are all there already.
pub(crate) fn replicate_constants(graph: &Graph, names: &mut EdgeNames) -> Result<Option<Graph>> {
    let mut users: Vec<Vec<(NodeId, usize)>> = vec![Vec::new(); graph.len()];
    let mut is_used_here = vec![false; graph.len()];
    let mut is_used_afar = false;
    for (id, node) in graph.nodes() {
        for (index, input) in node.inputs.iter().enumerate() {
            let source = graph.node(input.node);
            // What is fetched is computed where it was placed, and sent from there: that is what a trace shows.
            if source.device == node.device || node.op.name == "_Send" {
                is_used_here[input.node.index()] = true;
            } else if is_small_constant(source) {
                users[input.node.index()].push((id, index));
                is_used_afar = true;
            }
        }
        node.control_inputs.iter().for_each(|c| is_used_here[c.index()] = true);
    }
    if !is_used_afar {
        return Ok(None);
    }
    let mut out = graph.clone();
    for (id, constant) in graph.nodes() {
        let mut copies: Vec<NodeId> = Vec::new();
        for &(user, index) in &users[id.index()] {
            let device = &graph.node(user).device;
            let copy = match copies.iter().find(|copy| out.node(**copy).device == *device) {
                Some(copy) => *copy,
                // The first device gets the constant itself if its own does not need it.
                None if copies.is_empty() && !is_used_here[id.index()] => {
                    out.set_device(id, device);
                    id
                }
                None => {
                    let name = names.node(&out, &constant.name);
                    out.adopt(Node { name, device: device.clone(), ..constant.clone() })?
                }
            };
            copies.push(copy);
            out.set_input(user, index, copy.into())?;
        }
    }
    Ok(Some(out))
}

fn is_small_constant(node: &Node) -> bool {
    node.op.name == "Const"
        && node.control_inputs.is_empty()
        && node.attr::<Tensor>("value").is_ok_and(|value| value.num_bytes() <= MAX_BYTES)
}

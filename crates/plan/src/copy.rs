//! Copies nodes from one graph to another: what every function from graph to graph does in the end.

use framework::{Graph, Node, NodeId, Output};
use std::collections::HashMap;
use tensor::{Result, internal};

/// A graph without nodes, with the functions and versions of another.
pub(crate) fn without_nodes(graph: &Graph) -> Graph {
    let mut out = Graph::new();
    (out.library, out.versions) = (graph.library.clone(), graph.versions.clone());
    out
}

/// Adds copies of those nodes of a graph that are to be kept, in their order, and says what became of each.
///
/// `edit` may change a copy while it still has the numbers of the graph it comes from. An output in `given` is then
/// replaced by what `out` has already in its place; every other input must be of a node that is kept. Who waited for a
/// node that is not kept waits for what is given for its first output, or for nothing.
pub(crate) fn copy_nodes(
    from: &Graph,
    keep: &[bool],
    out: &mut Graph,
    given: &HashMap<Output, Output>,
    mut edit: impl FnMut(NodeId, &mut Node) -> Result<()>,
) -> Result<Vec<Option<NodeId>>> {
    // Numbers first, so that a loop's way back finds its node.
    let mut numbers = (out.len() as u32..).map(NodeId);
    let map: Vec<Option<NodeId>> = keep.iter().map(|&k| if k { numbers.next() } else { None }).collect();
    for (id, node) in from.nodes().filter(|(id, _)| keep[id.index()]) {
        let mut copy = node.clone();
        edit(id, &mut copy)?;
        for input in &mut copy.inputs {
            let kept = map[input.node.index()].map(|node| Output { node, index: input.index });
            let found = given.get(input).copied().or(kept);
            let lost = || internal!("'{}' is copied without its input '{}'", node.name, from.output_name(*input));
            *input = found.ok_or_else(lost)?;
        }
        let control = |c: &NodeId| map[c.index()].or_else(|| given.get(&Output::from(*c)).map(|o| o.node));
        copy.control_inputs = copy.control_inputs.iter().filter_map(control).collect();
        out.adopt(copy)?;
    }
    Ok(map)
}

//! Pure functions from graph to graph: from what a client built to what a task runs.
//!
//! 1. [`inline_functions`] puts functions in place of the nodes that call them.
//! 2. [`place`] gives every node of the session's graph a device; a variable never moves between runs.
//! 3. For each new combination of feeds, fetches and targets, [`prune`] keeps what that run needs, with a `_Recv` for
//!    each feed and a `_Send` for each fetch.
//! 4. [`optimize`] shrinks the result: copies that only arithmetic wants are [not made](unstretch), constants are
//!    [folded](fold), equal nodes [merged](cse), and what nobody looks at is [left out](unused).
//! 5. [`mod@partition`] cuts it into one graph per task, and each task cuts its own into one per device.
//! 6. [`optimize_for_device`] makes the graph of one device faster: nodes that only pass something on are [bypassed](bypass),
//!    chains of elementwise nodes [fused](fuse), and tensors [restored](restore) one by one.

pub mod bypass;
mod colocate;
mod control_loops;
mod copy;
pub mod cse;
pub mod fold;
pub mod fuse;
pub mod inline;
mod lower;
pub mod partition;
pub mod place;
pub mod prune;
mod replicate;
pub mod restore;
pub mod unstretch;
pub mod unused;

pub use inline::inline_functions;
pub use partition::{EdgeNames, Part, partition};
pub use place::{PlacedGraph, place};
pub use prune::{ClientEnd, Pruned, RunSignature, prune};

use framework::interpret::Interpreter;
use framework::{ControlFlow, Graph, Node, Registry};
use tensor::Result;

/// Shrinks a graph that was pruned for these targets, using only ops that any TensorFlow task knows. Nothing moves to another
/// device.
pub fn optimize(graph: Graph, targets: &[String], interpreter: &Interpreter, registry: &Registry) -> Result<Graph> {
    let graph = fold::fold(unstretch::unstretch(graph, targets)?, interpreter, registry)?;
    unused::leave_out(cse::merge_equal_nodes(graph)?, targets, registry)
}

/// Makes the graph of one device faster, with ops of our own: for whoever executes it.
pub fn optimize_for_device(graph: Graph, registry: &Registry) -> Result<Graph> {
    fuse::fuse(bypass::bypass(restore::split_restores(graph, registry)?)?, registry)
}

/// Whether a node does nothing but compute its outputs: it may be merged with an equal one, and left out if nobody looks.
fn only_computes(node: &Node) -> bool {
    !node.op.is_stateful
        && node.op.control_flow == ControlFlow::None
        && !node.outputs.is_empty()
        && node.outputs.iter().all(|output| !output.is_ref)
        && !node.op.inputs.iter().any(|input| input.is_ref)
}

/// How often a node's values are used, and how often it is waited for.
#[derive(Clone, Copy, Default)]
struct Users {
    uses: usize,
    waits: usize,
}

/// The users of every node.
fn users(graph: &Graph) -> Vec<Users> {
    let mut all = vec![Users::default(); graph.len()];
    for (_, node) in graph.nodes() {
        node.inputs.iter().for_each(|input| all[input.node.index()].uses += 1);
        node.control_inputs.iter().for_each(|control| all[control.index()].waits += 1);
    }
    all
}

//! Pure functions from graph to graph: from what a client built to what a task runs.
//!
//! 1. [`place`] gives every node of the session's graph a device, once; so a variable never moves between runs.
//! 2. For each new combination of feeds, fetches and targets, [`prune`] keeps what that run needs, with a `_Recv` for
//!    each feed and a `_Send` for each fetch.
//! 3. [`optimize`] shrinks the result: constants are [folded](fold), equal nodes [merged](cse), chains of elementwise
//!    nodes [fused](fuse).

pub mod cse;
pub mod fold;
pub mod fuse;
pub mod place;
pub mod prune;

pub use place::{PlacedGraph, place};
pub use prune::{ClientEnd, Pruned, RunSignature, prune};

use framework::interpret::Interpreter;
use framework::{Graph, Registry};
use tensor::Result;

/// All passes over a pruned graph, in order. Each leaves a graph that computes the same.
pub fn optimize(graph: Graph, interpreter: &Interpreter, registry: &Registry) -> Result<Graph> {
    let graph = fold::fold(graph, interpreter, registry)?;
    let graph = cse::merge_equal_nodes(graph);
    fuse::fuse(graph, registry)
}

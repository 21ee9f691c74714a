//! Keeps a loop whose body lies on several devices in step on all of them.

use crate::partition::EdgeNames;
use framework::{ControlFlow, Graph, Node, NodeId, Registry};
use tensor::Result;

pub(crate) fn prepare(_graph: &Graph, _registry: &Registry, _names: &mut EdgeNames) -> Result<Option<Graph>> {
    Ok(None)
}

/// What starts, in each iteration, the receives of a node within a loop.
pub(crate) fn trigger(graph: &Graph, node: &Node) -> Option<NodeId> {
    let is_trigger = |id: &NodeId| {
        let source = graph.node(*id);
        source.op.control_flow == ControlFlow::Merge && source.name.starts_with(PREFIX)
    };
    node.control_inputs.iter().copied().find(is_trigger)
}

/// How the names of control loops begin, here and in TensorFlow.
const PREFIX: &str = "_cloop";

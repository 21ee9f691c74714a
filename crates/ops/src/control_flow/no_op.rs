//! `NoOp` and `ControlTrigger`: something to wait for.

use framework::kernel::function;
use framework::shapes::no_outputs;
use framework::{ControlFlow, NodeId, Op, Scope};
use tensor::Result;

pub fn ops() -> Vec<Op> {
    vec![
        Op::new("NoOp").shape(no_outputs).kernel(function(|_| Ok(()))),
        Op::new("ControlTrigger")
            .shape(no_outputs)
            .control_flow(ControlFlow::ControlTrigger)
            .kernel(function(|_| Ok(()))),
    ]
}

/// A node that is done when all of these are.
pub fn no_op(s: &Scope, after: &[NodeId]) -> Result<NodeId> {
    after.iter().fold(s.node("NoOp"), |node, &control| node.control(control)).build()
}

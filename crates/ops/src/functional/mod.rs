//! Ops that call functions of the graph's library, and the ends of such calls.

mod branch;
mod call;
mod repeat;

use framework::Op;

/// All ops of the family.
pub fn ops() -> Vec<Op> {
    [branch::ops(), call::ops(), repeat::ops()].concat()
}

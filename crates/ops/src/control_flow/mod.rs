//! Ops that decide what runs: branches, loops, waiting, assertions.

mod no_op;

pub use no_op::no_op;

use framework::Op;

/// All ops of the family.
pub fn ops() -> Vec<Op> {
    [no_op::ops()].concat()
}

//! Ops that decide what runs: branches, loops, waiting, assertions.

mod assert;
mod branch;
mod loops;
mod no_op;
mod print;

pub use assert::assert;
pub use branch::{merge, switch};
pub use no_op::no_op;

use framework::Op;

/// All ops of the family.
pub fn ops() -> Vec<Op> {
    [assert::ops(), branch::ops(), loops::ops(), no_op::ops(), print::ops()].concat()
}

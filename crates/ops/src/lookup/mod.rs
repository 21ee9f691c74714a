//! Tables from keys to values.

pub mod table;
mod table_ops;

use framework::Op;

/// All ops of the family.
pub fn ops() -> Vec<Op> {
    table_ops::ops()
}

//! Ops of the family `math`.

use framework::Op;

/// All ops of the family.
pub fn ops() -> Vec<Op> {
    Vec::new()
}

//! Ops of the family `data_flow`.

use framework::Op;

/// All ops of the family.
pub fn ops() -> Vec<Op> {
    Vec::new()
}

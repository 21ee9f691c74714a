//! Ops of the family `control_flow`.

use framework::Op;

/// All ops of the family.
pub fn ops() -> Vec<Op> {
    Vec::new()
}

//! Ops of the family `array`.

use framework::Op;

/// All ops of the family.
pub fn ops() -> Vec<Op> {
    Vec::new()
}

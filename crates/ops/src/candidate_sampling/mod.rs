//! Ops of the family `candidate_sampling`.

use framework::Op;

/// All ops of the family.
pub fn ops() -> Vec<Op> {
    Vec::new()
}

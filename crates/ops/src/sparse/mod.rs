//! Ops on sparse tensors: coordinates, values and a shape.

mod cross;
mod fill_empty_rows;
mod reshape;
mod to_dense;

pub use to_dense::sparse_to_dense;

use framework::Op;

/// All ops of the family.
pub fn ops() -> Vec<Op> {
    [cross::ops(), fill_empty_rows::ops(), reshape::ops(), to_dense::ops()].concat()
}

/// `[1, 2]`: an index vector as messages show it.
pub(crate) fn vector_text(vector: &[i64]) -> String {
    let numbers: Vec<String> = vector.iter().map(i64::to_string).collect();
    format!("[{}]", numbers.join(","))
}

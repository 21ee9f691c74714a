//! Ops that touch files: checkpoints and readers.

mod checkpoint;
mod filename;
mod reader;
mod whole_file;

use framework::Op;

/// All ops of the family.
pub fn ops() -> Vec<Op> {
    [checkpoint::ops(), filename::ops(), reader::ops(), whole_file::ops()].concat()
}

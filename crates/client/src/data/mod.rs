//! Data for training: handwritten digits, files of records, and a pipeline that reads ahead.

pub mod mnist;
mod prefetch;
pub mod records;

pub use prefetch::{Batchable, Pipeline};

//! What the tests share: reading cases, running graphs, comparing tensors.

pub mod compare;
pub mod json;
pub mod runner;

//! One file per command.

pub mod graph;

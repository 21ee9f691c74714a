//! One file per command.

pub mod graph;
pub mod server;
pub mod status;

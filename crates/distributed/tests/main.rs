//! Clusters joined in memory, seen through the master's interface.

mod bad_input;
mod clusters;
mod functions;
mod memory;
mod sessions;
mod steps;
mod support;
mod waiting;

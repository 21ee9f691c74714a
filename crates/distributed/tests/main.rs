//! A one-task cluster joined in memory, seen through the master's interface.

mod bad_input;
mod sessions;
mod steps;
mod support;
mod waiting;

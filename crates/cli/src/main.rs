//! The `ferroflow` command.

fn main() {}

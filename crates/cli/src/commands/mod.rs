//! One file per command.

pub mod checkpoint;
pub mod completions;
pub mod demo;
pub mod events;
pub mod graph;
pub mod launch;
pub mod server;
pub mod status;

use ferroflow::{Error, Result};
use std::io::{ErrorKind, Write};

/// Prints a text. That whoever read it has seen enough is no error.
pub fn print(text: &str) -> Result<()> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(e) if e.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => result.map_err(Error::from),
    }
}

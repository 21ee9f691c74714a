//! `ferroflow graph`: looks into graph files.

use clap::Subcommand;
use ferroflow::{Error, Graph, Result};
use std::io::{ErrorKind, Write};
use std::path::PathBuf;

/// What to do with a graph file.
#[derive(Subcommand)]
pub enum Command {
    /// Print a graph, one line per node: name, op, inputs, attributes that differ from their defaults, device
    #[command(after_help = "Example:\n  ferroflow graph show model/graph.pb | grep MatMul")]
    Show {
        /// A serialized GraphDef, as TensorFlow writes it
        file: PathBuf,
    },
}

/// Runs the command.
pub fn run(command: Command) -> Result<()> {
    match command {
        Command::Show { file } => {
            let text = Graph::read(&file)?.to_string();
            match std::io::stdout().write_all(text.as_bytes()) {
                // Whoever read the output has seen enough.
                Err(e) if e.kind() == ErrorKind::BrokenPipe => Ok(()),
                result => result.map_err(Error::from),
            }
        }
    }
}

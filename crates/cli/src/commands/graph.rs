//! `ferroflow graph`: looks into graph files.

use clap::Subcommand;
use ferroflow::{Graph, Result};
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
        Command::Show { file } => super::print(&Graph::read(&file)?.to_string()),
    }
}

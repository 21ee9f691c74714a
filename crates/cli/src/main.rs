//! The `ferroflow` command: launches, watches and inspects.

mod commands;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// The distributed TensorFlow runtime, rebuilt in Rust.
#[derive(Parser)]
#[command(name = "ferroflow", version, arg_required_else_help = true)]
#[command(after_help = "Examples:\n  ferroflow graph show model/graph.pb")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Look into graph files
    #[command(subcommand)]
    Graph(commands::graph::Command),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Graph(command) => commands::graph::run(command),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ferroflow: {}", error.message);
            ExitCode::FAILURE
        }
    }
}

//! The project's own verbs: `cargo xtask codegen`, `cargo xtask check` and `cargo xtask bench`.

mod bench;
mod check;
mod codegen;
mod layers;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// What goes wrong here is told to a person and to nobody else.
type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// The project's own verbs.
#[derive(Parser)]
#[command(bin_name = "cargo xtask", arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Compile crates/proto/protos to crates/proto/src/generated.rs; no protoc needed
    Codegen {
        /// Only say whether the checked-in file is what would be written
        #[arg(long)]
        check: bool,
    },
    /// Everything a change must pass: formatting, lints, layers, tests
    Check,
    /// Measure our servers and client beside TensorFlow's, and write a page and, from the main one, rows in README.md
    Bench {
        /// A Python that has TensorFlow
        #[arg(long, default_value = "python3")]
        python: String,
        /// How often each kind of server is measured
        #[arg(long, default_value_t = 3)]
        rounds: u32,
        /// As across a network: every process of ours is a user of its own; to be run by root
        #[arg(long)]
        apart: bool,
        /// Another page than the main one, such as docs/benchmarks_intel.md for another kind of machine
        #[arg(long)]
        page: Option<String>,
        /// Workloads whose names contain one of these; nothing is written then
        only: Vec<String>,
    },
}

fn main() -> ExitCode {
    let done = match Arguments::parse().verb {
        Verb::Codegen { check: false } => codegen::write(root()),
        Verb::Codegen { check: true } => codegen::compare(root()),
        Verb::Check => check::run(root()),
        Verb::Bench { python, rounds, apart, page, only } => {
            bench::run(root(), &python, rounds, apart, page.as_deref(), &only)
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The workspace's own folder, wherever cargo was called.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace")
}

/// Reads a file, naming it when that fails.
fn read(path: impl Into<PathBuf>) -> Result<String> {
    let path = path.into();
    std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()).into())
}

//! `cargo xtask bench`: our servers beside TensorFlow's, measured by `tests/bench`.

use crate::Result;
use std::path::Path;
use std::process::Command;

/// Builds the servers, measures, and writes `docs/benchmarks.md` unless only some workloads are wanted.
pub fn run(root: &Path, python: &str, rounds: u32, only: &[String]) -> Result<()> {
    succeed(Command::new(env!("CARGO")).current_dir(root).args(["build", "--release", "-p", "ferroflow-cli"]))?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), Into::into);
    let mut measure = Command::new(python);
    measure.current_dir(root).arg("tests/bench/run.py").arg(target.join("release/ferroflow"));
    measure.args(["--rounds", &rounds.to_string()]);
    if only.is_empty() {
        measure.args(["--write", "docs/benchmarks.md"]);
    } else {
        measure.arg("--only").args(only);
    }
    succeed(&mut measure)
}

fn succeed(command: &mut Command) -> Result<()> {
    let status = command.status().map_err(|error| format!("{command:?}: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{command:?} ended with {status}").into()) }
}

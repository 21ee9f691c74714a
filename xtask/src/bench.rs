//! `cargo xtask bench`: our servers and client beside TensorFlow's, measured by `tests/bench`.

use crate::Result;
use std::path::Path;
use std::process::Command;

/// The page whose most telling rows stand in the README as well.
const MAIN_PAGE: &str = "docs/benchmarks.md";

/// The page for processes that are strangers to each other.
const APART_PAGE: &str = "docs/benchmarks_apart.md";

/// Builds servers and client and measures; unless only some workloads are wanted, writes the pages that show the figures.
pub fn run(root: &Path, python: &str, rounds: u32, apart: bool, page: Option<&str>, only: &[String]) -> Result<()> {
    let build = ["build", "--release", "-p", "ferroflow-cli", "-p", "ferroflow", "--bin", "ferroflow"];
    succeed(Command::new(env!("CARGO")).current_dir(root).args(build).args(["--example", "bench_client"]))?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), Into::into).join("release");
    let mut measure = Command::new(python);
    measure.current_dir(root).arg("tests/bench/run.py").arg(target.join("ferroflow")).args(only);
    measure.arg("--client").arg(target.join("examples/bench_client")).args(["--rounds", &rounds.to_string()]);
    if apart {
        measure.arg("--apart");
    }
    if only.is_empty() {
        let page = page.unwrap_or(if apart { APART_PAGE } else { MAIN_PAGE });
        measure.args(["--write", page]);
        if page == MAIN_PAGE {
            measure.args(["--readme", "README.md"]);
        }
    }
    succeed(&mut measure)
}

fn succeed(command: &mut Command) -> Result<()> {
    let status = command.status().map_err(|error| format!("{command:?}: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{command:?} ended with {status}").into()) }
}

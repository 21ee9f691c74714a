//! Runs what a change must pass, and stops at the first thing that fails.

use std::path::Path;
use std::process::Command;

use crate::{Result, codegen, layers};

const STEPS: [&[&str]; 3] = [
    &["fmt", "--all", "--check"],
    &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"],
    &["test", "--workspace"],
];

/// Checks generated code, layers, formatting, lints and tests, in the order in which they are quick.
pub fn run(root: &Path) -> Result<()> {
    codegen::compare(root)?;
    layers::check(root)?;
    for arguments in STEPS {
        println!("cargo {}", arguments.join(" "));
        let status = Command::new(env!("CARGO")).args(arguments).current_dir(root).status()?;
        if !status.success() {
            return Err(format!("`cargo {}` failed", arguments.join(" ")).into());
        }
    }
    Ok(())
}

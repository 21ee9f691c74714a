//! What the program says while it works: lines for people, or JSON for programs, on standard error.

use clap::ValueEnum;
use std::io::IsTerminal;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::prelude::*;

/// How log lines are written.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub enum Format {
    /// For people
    #[default]
    Text,
    /// One JSON object a line
    Json,
}

/// Starts logging. The environment variable FERROFLOW_LOG overrides the level, module by module if need be
/// (`warn,rpc=debug`).
pub fn start(level: &str, format: Format) {
    let chosen = std::env::var("FERROFLOW_LOG").ok().and_then(|filter| filter.parse::<Targets>().ok());
    let filter = chosen.unwrap_or_else(|| level.parse().unwrap_or_default());
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_target(false);
    match format {
        Format::Text => {
            let lines = lines.with_ansi(std::io::stderr().is_terminal());
            tracing_subscriber::registry().with(lines.with_filter(filter)).init();
        }
        Format::Json => tracing_subscriber::registry().with(lines.json().with_filter(filter)).init(),
    }
}

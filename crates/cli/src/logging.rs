//! What the program says while it works: lines for people, or JSON for programs, on standard error.

use clap::ValueEnum;
use std::io::IsTerminal;
use tracing_subscriber::EnvFilter;

/// How log lines are written.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub enum Format {
    /// For people
    #[default]
    Text,
    /// One JSON object a line
    Json,
}

/// Starts logging. The environment variable FERROFLOW_LOG overrides the level, module by module if need be.
pub fn start(level: &str, format: Format) {
    let filter = EnvFilter::try_from_env("FERROFLOW_LOG").unwrap_or_else(|_| EnvFilter::new(level));
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_target(false);
    match format {
        Format::Text => lines.with_ansi(std::io::stderr().is_terminal()).init(),
        Format::Json => lines.json().init(),
    }
}

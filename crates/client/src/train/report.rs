//! What training tells a person while it runs: one line at a time.

use std::fmt::Arguments;

/// Says something in one line: to the program's log if it keeps one, and otherwise to standard error.
pub(crate) fn say(text: Arguments<'_>) {
    let line = one_line(&text.to_string());
    if tracing::dispatcher::has_been_set() {
        tracing::info!("{line}");
    } else {
        eprintln!("{line}");
    }
}

/// The text without line breaks: an error's context stands on lines of its own.
pub(crate) fn one_line(text: &str) -> String {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ")
}

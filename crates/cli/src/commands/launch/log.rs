//! One log for many processes: each line begins with its task, in a colour of its own on a terminal.

use crate::processes::{Notice, Stream, describe, short};
use ferroflow::TaskName;
use std::collections::HashMap;
use std::io::{IsTerminal, Write};

/// Colours that can be read on dark and light grounds, as ANSI counts them.
const COLOURS: [u8; 10] = [36, 33, 32, 35, 34, 96, 93, 92, 95, 94];

/// Writes the lines of all tasks.
pub struct Log {
    prefixes: HashMap<TaskName, String>,
    own: String,
    coloured: bool,
}

impl Log {
    /// A log for these tasks.
    pub fn new<'a>(tasks: impl Iterator<Item = &'a TaskName> + Clone) -> Log {
        let own = "launch";
        let width = tasks.clone().map(|task| short(task).len()).chain([own.len()]).max().unwrap_or(0);
        let prefix = |name: &str| format!("{name:<width$} | ");
        let prefixes = tasks.map(|task| (task.clone(), prefix(&short(task)))).collect();
        let coloured = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        let mut log = Log { prefixes, own: prefix(own), coloured };
        log.colour();
        log
    }

    fn colour(&mut self) {
        if !self.coloured {
            return;
        }
        let mut tasks: Vec<TaskName> = self.prefixes.keys().cloned().collect();
        tasks.sort();
        for (i, task) in tasks.iter().enumerate() {
            if let Some(prefix) = self.prefixes.get_mut(task) {
                *prefix = format!("\x1b[{}m{prefix}\x1b[0m", COLOURS[i % COLOURS.len()]);
            }
        }
        self.own = format!("\x1b[1m{}\x1b[0m", self.own);
    }

    /// Writes a line of our own.
    pub fn note(&mut self, text: &str) {
        let _ = writeln!(std::io::stderr(), "{}{text}", self.own);
    }

    /// Writes what happens.
    pub fn show(&mut self, notice: Notice<'_>) {
        match notice {
            Notice::Line(task, stream, text) => self.line(task, stream, text),
            Notice::Started(task, pid) => self.note(&format!("{} is process {pid}", short(task))),
            Notice::Ended(task, status) => self.note(&format!("{} {}", short(task), said(&describe(status)))),
            Notice::Restarting(task, pause, n, of) => {
                self.note(&format!("{} starts again in {:.1} s ({n} of {of})", short(task), pause.as_secs_f64()));
            }
            Notice::Stopping(reason) => self.note(&format!("{reason}; stopping what still runs")),
            Notice::Killing(task) => self.note(&format!("{} did not end when told to, and is killed", short(task))),
        }
    }

    fn line(&self, task: &TaskName, stream: Stream, text: &str) {
        let prefix = self.prefixes.get(task).map_or("", String::as_str);
        // Whoever reads us may have gone; the processes go on.
        let _ = match stream {
            Stream::Out => writeln!(std::io::stdout(), "{prefix}{text}"),
            Stream::Err => writeln!(std::io::stderr(), "{prefix}{text}"),
        };
    }
}

fn said(end: &str) -> String {
    if end == "done" { "is done".into() } else { end.into() }
}

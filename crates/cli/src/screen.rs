//! A view that is drawn anew: on a terminal over what was there before, in a pipe below it.

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use signal_hook::consts::{SIGINT, SIGTERM};
use std::io::{IsTerminal, Read, Write, stdin, stdout};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// A screen of its own on a terminal, given back when dropped.
pub struct Screen {
    is_terminal: bool,
    modes: Option<Termios>,
    closed: Receiver<()>,
    /// Held so that waiting goes on when nobody is left who could close it.
    _close: Sender<()>,
}

impl Screen {
    /// Takes the terminal, if there is one.
    pub fn open() -> std::io::Result<Screen> {
        let (close, closed) = channel();
        let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM])?;
        let on_signal = close.clone();
        std::thread::spawn(move || signals.forever().next().map(|_| on_signal.send(())));
        let is_terminal = stdout().is_terminal();
        let modes = (is_terminal && stdin().is_terminal()).then(read_keys_at_once).flatten();
        if modes.is_some() {
            let on_key = close.clone();
            std::thread::spawn(move || {
                let mut keys = stdin().lock().bytes().map_while(Result::ok);
                keys.find(|key| b"qQ\x1b".contains(key)).map(|_| on_key.send(()))
            });
        }
        if is_terminal {
            write!(stdout(), "\x1b[?1049h\x1b[?25l")?;
        }
        Ok(Screen { is_terminal, modes, closed, _close: close })
    }

    /// Whether the user has seen enough; waits this long for it.
    pub fn closed_within(&self, time: Duration) -> bool {
        self.closed.recv_timeout(time).is_ok()
    }

    /// Draws a text below a title.
    pub fn show(&self, title: &str, text: &str) -> std::io::Result<()> {
        let mut out = stdout().lock();
        if !self.is_terminal {
            return writeln!(out, "{text}").and_then(|()| out.flush());
        }
        let size = tcgetwinsize(&out).ok();
        let (columns, rows) = size.map_or((120, 40), |size| (usize::from(size.ws_col), usize::from(size.ws_row)));
        let mut page = format!("\x1b[H\x1b[1m{}\x1b[0m   q to leave\x1b[K\r\n\x1b[K\r\n", cut(title, columns));
        for (i, line) in text.lines().take(rows.saturating_sub(3)).enumerate() {
            page.push_str(&paint(&cut(line, columns), i == 0));
            page.push_str("\x1b[K\r\n");
        }
        write!(out, "{page}\x1b[J").and_then(|()| out.flush())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        if self.is_terminal {
            let _ = write!(stdout(), "\x1b[?25h\x1b[?1049l");
            let _ = stdout().flush();
        }
        if let Some(modes) = &self.modes {
            let _ = tcsetattr(stdin(), OptionalActions::Now, modes);
        }
    }
}

/// Keys are read as they come and not shown; returns how it was before.
fn read_keys_at_once() -> Option<Termios> {
    let before = tcgetattr(stdin()).ok()?;
    let mut modes = before.clone();
    modes.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
    tcsetattr(stdin(), OptionalActions::Now, &modes).ok()?;
    Some(before)
}

fn cut(line: &str, columns: usize) -> String {
    line.chars().take(columns).collect()
}

/// The header in bold, what is down in red, what steps do dimmed.
fn paint(line: &str, is_header: bool) -> String {
    let colour = if is_header {
        "1"
    } else if line.contains("  down ") {
        "31"
    } else if line.starts_with("    ") {
        "2"
    } else {
        return line.to_string();
    };
    format!("\x1b[{colour}m{line}\x1b[0m")
}

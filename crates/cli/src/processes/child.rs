//! One process with all that it starts: its lines and its end become events, and nothing of it is left behind.

use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, kill_process_group, set_parent_process_death_signal, waitid,
};
use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// A longer line is cut into several.
const LINE_MAX: u64 = 64 << 10;

/// How long output may still come after the end of a process whose pipe somebody else holds open.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// What to run.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    /// The program and its arguments.
    pub arguments: Vec<String>,
    /// What is added to the environment.
    pub environment: BTreeMap<String, String>,
    /// How it is told to end.
    pub stop: Stop,
}

/// How a process is told to end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Stop {
    /// SIGTERM to it and all that it started.
    Signal,
    /// The end of its standard input: for a process on another machine, which no signal reaches.
    EndOfInput,
}

/// What a process does.
#[derive(Debug)]
pub enum Event {
    /// It wrote a line.
    Line(Stream, String),
    /// It is gone, and so is everything it had started.
    Ended(ExitStatus),
}

/// Where a line was written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Stream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

/// A running process, the leader of a group of its own.
pub struct Child {
    group: Pid,
    input: Option<ChildStdin>,
}

impl Child {
    /// Starts it; `tell` hears what it does. To be called on a thread that lives as long as we do: the system ends the
    /// process with the thread that started it.
    pub fn start(program: &Program, tell: impl Fn(Event) + Clone + Send + 'static) -> io::Result<Child> {
        let (name, arguments) = program.arguments.split_first().expect("a program is never empty");
        let mut command = Command::new(name);
        command.args(arguments).envs(&program.environment).process_group(0);
        command.stdin(if program.stop == Stop::EndOfInput { Stdio::piped() } else { Stdio::null() });
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        // SAFETY: the closure makes one system call, takes no lock and allocates nothing.
        unsafe { command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::KILL))?)) };
        let mut child = command.spawn()?;

        let group = Pid::from_child(&child);
        let input = child.stdin.take();
        let (open, closed) = channel();
        let output = child.stdout.take().map(|pipe| (Stream::Out, Box::new(pipe) as Box<dyn Read + Send>));
        let errors = child.stderr.take().map(|pipe| (Stream::Err, Box::new(pipe) as Box<dyn Read + Send>));
        for (stream, pipe) in output.into_iter().chain(errors) {
            let (tell, open) = (tell.clone(), open.clone());
            std::thread::spawn(move || read_lines(pipe, open, |line| tell(Event::Line(stream, line))));
        }
        drop(open);
        std::thread::spawn(move || {
            clear_group_at_end(group);
            wait_for_last_words(&closed);
            tell(Event::Ended(child.wait().unwrap_or_else(|_| ExitStatus::from_raw(1 << 8))));
        });
        Ok(Child { group, input })
    }

    /// Its number.
    pub fn pid(&self) -> u32 {
        self.group.as_raw_nonzero().get() as u32
    }

    /// Asks it to end.
    pub fn ask_to_end(&mut self) {
        if self.input.take().is_none() {
            let _ = kill_process_group(self.group, Signal::TERM);
        }
    }

    /// Ends it and what it started, at once.
    pub fn kill(&self) {
        let _ = kill_process_group(self.group, Signal::KILL);
    }
}

/// Waits for the leader's end and then ends the rest of its group. The leader is still to be reaped, so that its number
/// cannot have become somebody else's.
fn clear_group_at_end(group: Pid) {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    while let Err(rustix::io::Errno::INTR) = waitid(WaitId::Pid(group), options) {}
    let _ = kill_process_group(group, Signal::KILL);
}

fn wait_for_last_words(closed: &Receiver<()>) {
    let _ = closed.recv_timeout(LAST_WORDS);
}

/// Hands over line after line; `_open` is dropped at the end.
fn read_lines(pipe: impl Read, _open: Sender<()>, mut tell: impl FnMut(String)) {
    let mut pipe = BufReader::new(pipe);
    let mut line = Vec::new();
    loop {
        line.clear();
        match pipe.by_ref().take(LINE_MAX).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => tell(printable(&line)),
        }
    }
}

/// A line as a terminal would show it: what stands before a carriage return was written over.
fn printable(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    let text = text.trim_end_matches(['\n', '\r']);
    text.rsplit('\r').next().unwrap_or_default().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    fn shell(script: &str) -> Program {
        let arguments = ["sh", "-c", script].map(String::from).to_vec();
        Program { arguments, environment: BTreeMap::new(), stop: Stop::Signal }
    }

    fn start(program: &Program) -> (Child, Receiver<Event>) {
        let (tell, events) = channel();
        let child = Child::start(program, move |event| drop(tell.send(event))).unwrap();
        (child, events)
    }

    fn next(events: &Receiver<Event>) -> Event {
        events.recv_timeout(Duration::from_secs(20)).expect("an event within 20 seconds")
    }

    fn line(events: &Receiver<Event>) -> String {
        match next(events) {
            Event::Line(_, text) => text,
            other => panic!("wanted a line, got {other:?}"),
        }
    }

    fn end(events: &Receiver<Event>) -> ExitStatus {
        loop {
            if let Event::Ended(status) = next(events) {
                return status;
            }
        }
    }

    #[test]
    fn lines_come_before_the_end() {
        let (_child, events) = start(&shell("printf 'a\\nb\\rc\\nno newline'; exit 3"));
        assert_eq!([line(&events), line(&events), line(&events)], ["a", "c", "no newline"]);
        assert_eq!(end(&events).code(), Some(3));
    }

    #[test]
    fn what_a_process_started_ends_with_it() {
        let (_child, events) = start(&shell("sleep 1000 & echo $!; exit 0"));
        let left = Pid::from_raw(line(&events).parse().unwrap()).unwrap();
        assert!(end(&events).success());
        // It was killed; the system may take a moment, and nobody may have reaped it.
        let end = Instant::now() + Duration::from_secs(20);
        loop {
            let state = std::fs::read_to_string(format!("/proc/{}/stat", left.as_raw_nonzero())).unwrap_or_default();
            if state.is_empty() || state.contains(") Z") || state.contains(") X") {
                break;
            }
            assert!(Instant::now() < end, "{state}");
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_process_is_told_to_end_in_its_own_way() {
        let (mut child, events) = start(&shell("trap 'exit 7' TERM; echo up; while :; do sleep 0.01; done"));
        line(&events);
        child.ask_to_end();
        assert_eq!(end(&events).code(), Some(7));

        let (mut child, events) = start(&Program { stop: Stop::EndOfInput, ..shell("cat; exit 8") });
        child.ask_to_end();
        assert_eq!(end(&events).code(), Some(8));

        let (child, events) = start(&shell("trap '' TERM; echo up; while :; do sleep 0.01; done"));
        line(&events);
        child.kill();
        assert_eq!(end(&events).signal(), Some(9));
    }

    #[test]
    fn a_program_that_is_not_there_is_an_error() {
        let program = Program { arguments: vec!["/nowhere/at all".into()], ..shell("") };
        assert_eq!(Child::start(&program, |_| ()).map(|_| ()).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}

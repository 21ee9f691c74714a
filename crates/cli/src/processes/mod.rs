//! Runs the processes of a cluster to their end: starts them, passes on what they say, starts again what may be, and
//! stops the rest when the work is done or cannot be.
//!
//! Work is what the workers do; the other tasks serve. When the last worker has ended well the servers are stopped, and
//! the whole has ended well. A worker or a server that fails for good ends it with its own exit code.

mod child;

pub use child::{Event, Program, Stop, Stream};

use child::Child;
use ferroflow::{Code, Error, Result, TaskName};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// The first pause before a process is started again; it doubles each time.
const PAUSE: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// Signals this close together are one request: `timeout`, for one, sends its signal to the process and to its group.
const SAME_REQUEST: Duration = Duration::from_millis(200);

/// A process and the task it is.
pub struct TaskProcess {
    /// The task.
    pub task: TaskName,
    /// What runs as that task.
    pub program: Program,
    /// Whether the whole is done when it and its like are.
    pub is_work: bool,
}

/// What is done when processes end, and when they do not.
#[derive(Clone, Debug)]
pub struct Policy {
    /// How often a process that failed is started again.
    pub restarts: u32,
    /// How long a process that was told to end may take.
    pub grace: Duration,
    /// How long other workers may go on after the first of them has ended well; without limit unless given.
    pub linger: Option<Duration>,
}

/// What happens, for whoever shows it.
pub enum Notice<'a> {
    /// A process was started.
    Started(&'a TaskName, u32),
    /// It wrote a line.
    Line(&'a TaskName, Stream, &'a str),
    /// It has ended.
    Ended(&'a TaskName, ExitStatus),
    /// It will be started again after this pause; the how-manieth time, and of how many.
    Restarting(&'a TaskName, Duration, u32, u32),
    /// All that still runs is told to end, for this reason.
    Stopping(&'a str),
    /// It did not end when told, and is killed.
    Killing(&'a TaskName),
}

/// What comes in from the threads that watch.
enum Incoming {
    Event(usize, Event),
    Signal(i32),
}

/// Runs processes to their end; returns the exit code of the whole. To be called on the main thread.
pub fn run(tasks: Vec<TaskProcess>, policy: Policy, show: &mut dyn FnMut(Notice<'_>)) -> Result<u8> {
    let (sender, incoming) = channel();
    let signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    let handle = signals.handle();
    watch_signals(signals, sender.clone());
    let mut run = Run::new(tasks, policy, sender);
    let result = run.follow(&incoming, show);
    handle.close();
    result
}

fn watch_signals(mut signals: Signals, sender: Sender<Incoming>) {
    std::thread::spawn(move || {
        for signal in signals.forever() {
            if sender.send(Incoming::Signal(signal)).is_err() {
                return;
            }
        }
    });
}

struct Run {
    slots: Vec<Slot>,
    policy: Policy,
    sender: Sender<Incoming>,
    /// The exit code of the whole, once it is known; everything is being stopped then.
    outcome: Option<u8>,
    kill_at: Option<Instant>,
    linger_until: Option<Instant>,
    /// When we were first asked to stop.
    asked_at: Option<Instant>,
}

struct Slot {
    process: TaskProcess,
    state: State,
    tries: u32,
}

enum State {
    Waiting(Instant),
    Running(Child),
    Ended,
}

impl Drop for Run {
    /// Whatever made us leave, nothing stays behind.
    fn drop(&mut self) {
        self.running().for_each(|child| child.kill());
    }
}

impl Run {
    fn new(tasks: Vec<TaskProcess>, policy: Policy, sender: Sender<Incoming>) -> Run {
        let slot = |process| Slot { process, state: State::Waiting(Instant::now()), tries: 0 };
        let slots = tasks.into_iter().map(slot).collect();
        Run { slots, policy, sender, outcome: None, kill_at: None, linger_until: None, asked_at: None }
    }

    fn follow(&mut self, incoming: &Receiver<Incoming>, show: &mut dyn FnMut(Notice<'_>)) -> Result<u8> {
        loop {
            self.start_due(show)?;
            self.kill_due(show);
            if let (Some(code), None) = (self.outcome, self.running().next()) {
                return Ok(code);
            }
            match self.next(incoming) {
                Some(Incoming::Event(slot, Event::Line(stream, text))) => {
                    show(Notice::Line(&self.slots[slot].process.task, stream, &text));
                }
                Some(Incoming::Event(slot, Event::Ended(status))) => self.ended(slot, status, show),
                Some(Incoming::Signal(signal)) => self.signalled(signal, show),
                None => {}
            }
        }
    }

    fn running(&mut self) -> impl Iterator<Item = &mut Child> {
        self.slots.iter_mut().filter_map(|slot| match &mut slot.state {
            State::Running(child) => Some(child),
            _ => None,
        })
    }

    /// What happens next, or nothing when something is due.
    fn next(&self, incoming: &Receiver<Incoming>) -> Option<Incoming> {
        let starts = self.slots.iter().filter_map(|slot| match slot.state {
            State::Waiting(at) => Some(at),
            _ => None,
        });
        let due = starts.chain(self.kill_at).chain(self.linger_until).min();
        let wait = due.map_or(Duration::from_secs(3600), |at| at.saturating_duration_since(Instant::now()));
        incoming.recv_timeout(wait).ok()
    }

    fn start_due(&mut self, show: &mut dyn FnMut(Notice<'_>)) -> Result<()> {
        for (i, slot) in self.slots.iter_mut().enumerate() {
            if !matches!(slot.state, State::Waiting(at) if at <= Instant::now()) {
                continue;
            }
            let sender = self.sender.clone();
            let program = &slot.process.program;
            let child = Child::start(program, move |event| drop(sender.send(Incoming::Event(i, event))))
                .map_err(|e| cannot_start(&slot.process, e))?;
            show(Notice::Started(&slot.process.task, child.pid()));
            slot.state = State::Running(child);
        }
        Ok(())
    }

    fn kill_due(&mut self, show: &mut dyn FnMut(Notice<'_>)) {
        let now = Instant::now();
        if self.linger_until.is_some_and(|at| at <= now) {
            self.finish(0, "worker/0 is done, and the others had their time", show);
        }
        if self.kill_at.is_some_and(|at| at <= now) {
            self.kill_at = None;
            for slot in &self.slots {
                if let State::Running(child) = &slot.state {
                    show(Notice::Killing(&slot.process.task));
                    child.kill();
                }
            }
        }
    }

    fn ended(&mut self, slot: usize, status: ExitStatus, show: &mut dyn FnMut(Notice<'_>)) {
        self.slots[slot].state = State::Ended;
        if self.outcome.is_some() {
            return;
        }
        show(Notice::Ended(&self.slots[slot].process.task, status));
        match status.success() {
            true => self.ended_well(slot, show),
            false => self.failed(slot, status, show),
        }
    }

    fn ended_well(&mut self, slot: usize, show: &mut dyn FnMut(Notice<'_>)) {
        let is_done = |slot: &Slot| matches!(slot.state, State::Ended);
        if self.slots.iter().filter(|slot| slot.process.is_work).all(is_done) && self.slots[slot].process.is_work {
            self.finish(0, "the workers are done", show);
        } else if self.slots.iter().all(is_done) {
            self.finish(0, "all have ended", show);
        } else if self.slots[slot].process.is_work && self.slots[slot].process.task.index == 0 {
            self.linger_until = self.policy.linger.map(|time| Instant::now() + time);
        }
    }

    fn failed(&mut self, slot: usize, status: ExitStatus, show: &mut dyn FnMut(Notice<'_>)) {
        let restarts = self.policy.restarts;
        let failed = &mut self.slots[slot];
        if failed.tries < restarts {
            let pause = PAUSE.saturating_mul(1 << failed.tries.min(8)).min(PAUSE_MAX);
            failed.tries += 1;
            failed.state = State::Waiting(Instant::now() + pause);
            show(Notice::Restarting(&failed.process.task, pause, failed.tries, restarts));
        } else {
            let reason = format!("{} failed", short(&failed.process.task));
            self.finish(exit_code(status), &reason, show);
        }
    }

    fn signalled(&mut self, signal: i32, show: &mut dyn FnMut(Notice<'_>)) {
        match self.asked_at {
            None => {
                self.asked_at = Some(Instant::now());
                self.finish(128 + signal as u8, "asked to stop (ask again to end everything at once)", show);
            }
            Some(at) if at.elapsed() > SAME_REQUEST => self.kill_at = Some(Instant::now()),
            Some(_) => {}
        }
    }

    /// The whole is over: what still runs is told to end.
    fn finish(&mut self, code: u8, reason: &str, show: &mut dyn FnMut(Notice<'_>)) {
        self.linger_until = None;
        if self.outcome.is_none() || code > 128 {
            self.outcome = Some(code);
        }
        self.slots.iter_mut().filter(|slot| matches!(slot.state, State::Waiting(_))).for_each(|slot| {
            slot.state = State::Ended;
        });
        if self.running().next().is_some() {
            show(Notice::Stopping(reason));
            self.running().for_each(Child::ask_to_end);
            self.kill_at = Some(Instant::now() + self.policy.grace);
        }
    }
}

/// `ps/0`: a task in few letters.
pub fn short(task: &TaskName) -> String {
    format!("{}/{}", task.job, task.index)
}

/// A process's end in words.
pub fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(0), _) => "done".into(),
        (Some(code), _) => format!("ended with exit code {code}"),
        (None, Some(signal)) => format!("was ended by signal {signal}{}", signal_name(signal)),
        (None, None) => "ended".into(),
    }
}

fn signal_name(signal: i32) -> String {
    signal_hook::low_level::signal_name(signal).map(|name| format!(" ({name})")).unwrap_or_default()
}

/// As a shell counts: the exit code, or 128 and the signal.
fn exit_code(status: ExitStatus) -> u8 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0)).clamp(1, 255) as u8
}

fn cannot_start(process: &TaskProcess, e: io::Error) -> Error {
    let program = &process.program.arguments[0];
    let advice = match e.kind() {
        io::ErrorKind::NotFound if program.contains('/') => {
            "there is no such file; the path is taken from this directory"
        }
        io::ErrorKind::NotFound => "it is not in PATH; a program of this directory is written as ./NAME",
        io::ErrorKind::PermissionDenied => "it may not be executed; try chmod +x, or the interpreter before it",
        _ => "the system refuses",
    };
    let code = if e.kind() == io::ErrorKind::NotFound { Code::NotFound } else { Code::PermissionDenied };
    Error::new(code, format!("{} cannot be started: '{program}': {advice} ({e})", short(&process.task)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(task: (&str, u32), script: &str) -> TaskProcess {
        let arguments = ["sh", "-c", script].map(String::from).to_vec();
        TaskProcess {
            task: TaskName::new(task.0, task.1),
            program: Program { arguments, environment: Default::default(), stop: Stop::Signal },
            is_work: task.0 == "worker",
        }
    }

    /// The exit code, and what was shown but for the processes' numbers.
    fn check(tasks: Vec<TaskProcess>, restarts: u32, linger: Option<Duration>) -> (u8, Vec<String>) {
        let mut shown = Vec::new();
        let policy = Policy { restarts, grace: Duration::from_millis(300), linger };
        let code = run(tasks, policy, &mut |notice| {
            shown.push(match notice {
                Notice::Started(..) => return,
                Notice::Line(task, _, text) => format!("{}: {text}", short(task)),
                Notice::Ended(task, status) => format!("{} {}", short(task), describe(status)),
                Notice::Restarting(task, _, n, of) => format!("{} again, {n} of {of}", short(task)),
                Notice::Stopping(reason) => format!("stop: {reason}"),
                Notice::Killing(task) => format!("{} killed", short(task)),
            });
        });
        (code.unwrap(), shown)
    }

    const SERVE: &str = "while :; do sleep 0.01; done";

    #[test]
    fn servers_are_stopped_when_the_workers_are_done() {
        let tasks = vec![process(("ps", 0), SERVE), process(("worker", 0), "echo trained")];
        let (code, shown) = check(tasks, 0, None);
        assert_eq!(
            (code, shown.join("; ").as_str()),
            (0, "worker/0: trained; worker/0 done; stop: the workers are done")
        );
    }

    #[test]
    fn a_server_that_does_not_listen_is_killed() {
        let folder = tempfile::tempdir().unwrap();
        let deaf = folder.path().join("deaf");
        let server = format!("trap '' TERM; touch {}; {SERVE}", deaf.display());
        let worker = format!("until [ -e {} ]; do sleep 0.01; done", deaf.display());
        let tasks = vec![process(("ps", 0), &server), process(("worker", 0), &worker)];
        let (code, shown) = check(tasks, 0, None);
        assert_eq!((code, shown.last().unwrap().as_str()), (0, "ps/0 killed"));
    }

    #[test]
    fn the_exit_code_is_that_of_the_task_that_failed() {
        for (script, code, said) in [
            ("exit 3", 3, "worker/0 ended with exit code 3"),
            ("kill -SEGV $$", 139, "worker/0 was ended by signal 11 (SIGSEGV)"),
        ] {
            let tasks = vec![process(("ps", 0), SERVE), process(("worker", 0), script), process(("worker", 1), SERVE)];
            let (found, shown) = check(tasks, 0, None);
            assert_eq!(found, code);
            assert_eq!(shown, [said, "stop: worker/0 failed"]);
        }
    }

    #[test]
    fn what_failed_is_started_again_as_often_as_allowed() {
        let folder = std::env::temp_dir().join(format!("ferroflow-restart-{}", std::process::id()));
        let script = format!("mkdir {0} 2>/dev/null && exit 5; rmdir {0}; echo back", folder.display());
        let (code, shown) = check(vec![process(("worker", 0), &script)], 1, None);
        assert_eq!(code, 0);
        let want = ["worker/0 ended with exit code 5", "worker/0 again, 1 of 1", "worker/0: back", "worker/0 done"];
        assert_eq!(shown, want);
        assert_eq!(check(vec![process(("worker", 0), "exit 5")], 1, None).0, 5);
    }

    #[test]
    fn others_may_linger_after_the_first_worker() {
        let tasks = vec![process(("worker", 0), "exit 0"), process(("worker", 1), SERVE)];
        let (code, shown) = check(tasks, 0, Some(Duration::from_millis(50)));
        assert_eq!(code, 0);
        assert_eq!(shown, ["worker/0 done", "stop: worker/0 is done, and the others had their time"]);
    }

    #[test]
    fn servers_alone_end_when_all_have() {
        assert_eq!(check(vec![process(("ps", 0), "exit 0"), process(("ps", 1), "exit 0")], 0, None).0, 0);
    }

    #[test]
    fn only_a_later_signal_ends_everything_at_once() {
        let policy = Policy { restarts: 0, grace: Duration::ZERO, linger: None };
        let mut run = Run::new(Vec::new(), policy, channel().0);
        run.signalled(SIGTERM, &mut |_| ());
        assert_eq!((run.outcome, run.kill_at), (Some(143), None));
        let asked = run.asked_at.unwrap();
        run.asked_at = Some(asked + Duration::from_secs(3600));
        run.signalled(SIGTERM, &mut |_| ());
        assert_eq!(run.kill_at, None);
        run.asked_at = asked.checked_sub(2 * SAME_REQUEST);
        run.signalled(SIGTERM, &mut |_| ());
        assert!(run.kill_at.is_some());
    }

    #[test]
    fn a_program_that_cannot_be_started_is_named() {
        let mut task = process(("worker", 2), "");
        task.program.arguments = vec!["no-such-program".into()];
        let policy = Policy { restarts: 0, grace: Duration::ZERO, linger: None };
        let e = run(vec![task], policy, &mut |_| ()).unwrap_err();
        assert!(e.message.starts_with("worker/2 cannot be started: 'no-such-program': it is not in PATH"), "{e}");
    }
}

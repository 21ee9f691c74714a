//! What one sees of the demonstration: a live line on a terminal, plain lines in a pipe, and a summary at the end.

use super::super::print;
use crate::plot;
use crate::processes::{Notice, describe, short};
use ferroflow::{Result, TaskName};
use rustix::termios::tcgetwinsize;
use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::io::{IsTerminal, Write as _, stdout};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How often the live line is drawn, and a plain line printed.
const DRAW: Duration = Duration::from_millis(80);
const PRINT: Duration = Duration::from_secs(1);

/// How much of what a task said is kept for the case that it fails.
const KEPT_LINES: usize = 15;

/// What is run.
pub struct Setup {
    /// Its tasks.
    pub tasks: Vec<TaskName>,
    /// Where one of them can be asked how it is.
    pub address: String,
    /// How many steps are to be taken.
    pub steps: u32,
    /// Whether workers step together.
    pub sync: bool,
    /// Where its files are.
    pub train_dir: PathBuf,
}

/// How far it is.
pub struct Progress {
    setup: Setup,
    live: bool,
    started: Instant,
    /// When the first step was seen, and which.
    began: Option<(Instant, i64)>,
    drawn: Option<Instant>,
    step: i64,
    /// When the last step was seen.
    stepped: Instant,
    losses: BTreeMap<i64, f64>,
    accuracy: Option<f64>,
    test: Option<(f64, u64)>,
    staleness: BTreeMap<TaskName, f64>,
    states: BTreeMap<TaskName, State>,
    said: BTreeMap<TaskName, VecDeque<String>>,
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Starting,
    Up,
    Done,
    Failed,
}

impl Progress {
    /// At the beginning.
    pub fn new(setup: Setup) -> Progress {
        let live = stdout().is_terminal();
        let count = |job: &str| setup.tasks.iter().filter(|task| task.job == job).count();
        let how = if setup.sync { "synchronous" } else { "asynchronous" };
        println!("MNIST on {} ps and {} workers, {how}, {} steps", count("ps"), count("worker"), setup.steps);
        println!("to look inside meanwhile: {} status {} --watch", own_name(), setup.address);
        Progress {
            states: setup.tasks.iter().map(|task| (task.clone(), State::Starting)).collect(),
            setup,
            live,
            started: Instant::now(),
            began: None,
            drawn: None,
            step: 0,
            stepped: Instant::now(),
            losses: BTreeMap::new(),
            accuracy: None,
            test: None,
            staleness: BTreeMap::new(),
            said: BTreeMap::new(),
        }
    }

    /// Takes in what happens, and shows it.
    pub fn show(&mut self, notice: Notice<'_>) {
        match notice {
            Notice::Line(task, _, text) => {
                match text.strip_prefix('@').and_then(|json| serde_json::from_str(json).ok()) {
                    Some(report) => self.take(task, &report),
                    None => self.keep(task, text),
                }
            }
            Notice::Ended(task, status) => {
                let state = if status.success() { State::Done } else { State::Failed };
                self.states.insert(task.clone(), state);
                if state == State::Failed {
                    self.keep(task, &describe(status));
                }
            }
            Notice::Stopping(_) => self.finished_serving(),
            Notice::Started(..) | Notice::Restarting(..) | Notice::Killing(..) => {}
        }
        self.draw();
    }

    /// Parameter servers end because they are told to.
    fn finished_serving(&mut self) {
        let ok = !self.states.values().any(|state| *state == State::Failed);
        self.states.values_mut().filter(|state| ok && **state == State::Up).for_each(|state| *state = State::Done);
    }

    fn keep(&mut self, task: &TaskName, text: &str) {
        let lines = self.said.entry(task.clone()).or_default();
        lines.push_back(text.to_string());
        if lines.len() > KEPT_LINES {
            lines.pop_front();
        }
    }

    fn take(&mut self, task: &TaskName, report: &serde_json::Value) {
        self.states.insert(task.clone(), State::Up);
        let number = |name: &str| report[name].as_f64();
        if let (Some(step), Some(loss)) = (report["step"].as_i64(), number("loss")) {
            self.began.get_or_insert((Instant::now(), step));
            if step > self.step {
                (self.step, self.stepped) = (step, Instant::now());
            }
            self.losses.insert(step, loss);
            self.staleness.extend(number("staleness").map(|staleness| (task.clone(), staleness)));
        }
        self.accuracy = number("accuracy").or(self.accuracy);
        self.test = number("test_accuracy").zip(report["test_digits"].as_u64()).or(self.test);
    }

    /// Steps a second, once two reports have come.
    fn rate(&self) -> Option<f64> {
        let (since, first) = self.began.filter(|(_, first)| self.step > *first)?;
        Some((self.step - first) as f64 / self.stepped.duration_since(since).as_secs_f64().max(1e-3))
    }

    fn draw(&mut self) {
        let pause = if self.live { DRAW } else { PRINT };
        if self.drawn.is_some_and(|drawn| drawn.elapsed() < pause) || (!self.live && self.step == 0) {
            return;
        }
        self.drawn = Some(Instant::now());
        let mut out = stdout().lock();
        let _ = match self.live {
            true => write!(out, "\r{}\x1b[K", self.live_line(columns())),
            false => writeln!(out, "{}", self.plain_line()),
        };
        let _ = out.flush();
    }

    fn numbers(&self) -> String {
        let mut text = self.rate().map_or("- steps/s".into(), |rate| format!("{rate:.0} steps/s"));
        if let Some((_, loss)) = self.losses.last_key_value() {
            let _ = write!(text, "  loss {loss:.3}");
        }
        if let Some(accuracy) = self.accuracy {
            let _ = write!(text, "  accuracy {accuracy:.3}");
        }
        if !self.staleness.is_empty() {
            let mean = self.staleness.values().sum::<f64>() / self.staleness.len() as f64;
            let _ = write!(text, "  staleness {mean:.1}");
        }
        text
    }

    fn plain_line(&self) -> String {
        let state = |(task, state): (&TaskName, &State)| {
            let word = match state {
                State::Starting => "starting",
                State::Up => "up",
                State::Done => "done",
                State::Failed => "failed",
            };
            format!("{} {word}", short(task))
        };
        let states: Vec<String> = self.states.iter().map(state).collect();
        format!("step {}/{}  {}  {}", self.step, self.setup.steps, self.numbers(), states.join(", "))
    }

    /// The line, its parts left out from the end when the terminal is narrow.
    fn live_line(&self, columns: usize) -> String {
        const BAR: usize = 12;
        let done = (self.step.max(0) as usize * BAR / self.setup.steps.max(1) as usize).min(BAR);
        let count = format!("{:>5}/{}", self.step, self.setup.steps);
        let numbers = if self.step == 0 { "starting".to_string() } else { self.numbers() };
        let mut line =
            format!("{count} \x1b[36m{}\x1b[2m{}\x1b[0m {numbers} ", "━".repeat(done), "━".repeat(BAR - done));
        let mut width = count.chars().count() + BAR + numbers.chars().count() + 4;
        for (task, state) in &self.states {
            let name = short(task);
            width += name.len() + 3;
            if width > columns {
                break;
            }
            let (colour, mark) = match state {
                State::Starting => (2, '○'),
                State::Up => (32, '●'),
                State::Done => (32, '✓'),
                State::Failed => (31, '✗'),
            };
            let _ = write!(line, " \x1b[{colour}m{mark}\x1b[0m {name}");
        }
        line
    }

    /// The summary of a run that ended with this exit code.
    pub fn finish(&mut self, code: u8) -> Result<()> {
        if code == 0 {
            // Workers report the count as it was when they began their last step.
            self.step = self.step.max(self.setup.steps.into());
        }
        if self.live {
            let _ = writeln!(stdout(), "\r{}\x1b[K", self.live_line(columns()));
        } else {
            println!("{}", self.plain_line());
        }
        match code {
            0 => print(&self.summary()),
            // The user has ended it.
            130 | 143 | 129 => print(&format!("stopped at step {}\n", self.step)),
            _ => {
                eprint!("{}", self.last_words());
                Ok(())
            }
        }
    }

    fn last_words(&self) -> String {
        let failed = self.states.iter().filter(|(_, state)| **state == State::Failed);
        let mut out = String::new();
        for (task, _) in failed {
            for line in self.said.get(task).into_iter().flatten() {
                let _ = writeln!(out, "{} | {line}", short(task));
            }
        }
        out
    }

    fn summary(&self) -> String {
        let points: Vec<(f64, f64)> = self.losses.iter().map(|(step, loss)| (*step as f64, *loss)).collect();
        let curve = plot::plot(&plot::smooth(&points, 120), 64, 8);
        let mut out = format!("\nloss\n{}\n", if self.live { coloured(&curve) } else { curve });
        let seconds = self.started.elapsed().as_secs_f64();
        let rate = self.rate().map(|rate| format!(", {rate:.0} steps/s")).unwrap_or_default();
        let _ = writeln!(out, "trained {} steps in {seconds:.1} s{rate}", self.step);
        if let Some((accuracy, digits)) = self.test {
            let _ = writeln!(out, "test accuracy {accuracy:.4}, on {digits} digits it had never seen");
        }
        let dir = self.setup.train_dir.display();
        let checkpoint = ferroflow::train::latest_checkpoint(&self.setup.train_dir).ok().flatten();
        let _ = writeln!(out);
        if let Some(checkpoint) = checkpoint {
            let _ = writeln!(out, "checkpoint   {}", checkpoint.display());
        }
        let _ = writeln!(out, "event files  {dir}\n\nTry next:");
        let own = own_name();
        let commands = [
            (format!("{own} demo mnist --sync --workers 4"), "workers that step together"),
            (format!("{own} events {dir}"), "the curves; TensorBoard shows them too"),
            (format!("{own} checkpoint show {dir}"), "what was learned"),
        ];
        let width = commands.iter().map(|(command, _)| command.chars().count()).max().unwrap_or(0);
        for (command, why) in commands {
            let _ = writeln!(out, "  {command:<width$}   # {why}");
        }
        out
    }
}

/// A curve in the colour of the bar; its axes stay as they are.
fn coloured(curve: &str) -> String {
    let paint = |line: &str| match line.split_once('┤') {
        Some((label, dots)) => format!("{label}┤\x1b[36m{dots}\x1b[0m\n"),
        None => format!("{line}\n"),
    };
    curve.lines().map(paint).collect()
}

/// How this command was called, if that is short.
fn own_name() -> String {
    std::env::args().next().filter(|name| !name.starts_with('/')).unwrap_or_else(|| "ferroflow".into())
}

fn columns() -> usize {
    tcgetwinsize(stdout()).map_or(120, |size| usize::from(size.ws_col).max(40))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    fn progress() -> Progress {
        let tasks = vec![TaskName::new("ps", 0), TaskName::new("worker", 0)];
        let setup =
            Setup { tasks, address: "localhost:1".into(), steps: 100, sync: false, train_dir: "/nowhere".into() };
        Progress { live: false, ..Progress::new(setup) }
    }

    fn say(progress: &mut Progress, task: (&str, u32), text: &str) {
        progress.show(Notice::Line(&TaskName::new(task.0, task.1), crate::processes::Stream::Out, text));
    }

    #[test]
    fn reports_become_a_line() {
        let mut progress = progress();
        say(&mut progress, ("ps", 0), r#"@{"up":true}"#);
        say(&mut progress, ("worker", 0), r#"@{"step":40,"loss":0.25,"staleness":1.0}"#);
        say(&mut progress, ("worker", 0), r#"@{"accuracy":0.9}"#);
        let want = "step 40/100  - steps/s  loss 0.250  accuracy 0.900  staleness 1.0  ps/0 up, worker/0 up";
        assert_eq!(progress.plain_line(), want);
        assert!(progress.live_line(200).contains("worker/0") && !progress.live_line(60).contains("worker/0"));
    }

    #[test]
    fn the_summary_says_what_came_out_and_where_it_is() {
        let mut progress = progress();
        for step in 1..=10 {
            say(&mut progress, ("worker", 0), &format!(r#"@{{"step":{step},"loss":{}}}"#, 1.0 / f64::from(step)));
        }
        say(&mut progress, ("worker", 0), r#"@{"test_accuracy":0.9735,"test_digits":2000}"#);
        let text = progress.summary();
        for want in
            ["test accuracy 0.9735, on 2000 digits", "event files  /nowhere", "trained 10 steps", "events /nowhere"]
        {
            assert!(text.contains(want), "{want} in {text}");
        }
    }

    #[test]
    fn a_task_that_fails_has_the_last_word() {
        let mut progress = progress();
        say(&mut progress, ("worker", 0), "ferroflow: there is no port");
        progress.show(Notice::Ended(&TaskName::new("worker", 0), ExitStatus::from_raw(1 << 8)));
        assert_eq!(
            progress.last_words(),
            "worker/0 | ferroflow: there is no port\nworker/0 | ended with exit code 1\n"
        );
    }
}

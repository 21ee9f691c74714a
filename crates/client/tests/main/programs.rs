//! Runs the examples as what they are: programs, each in a process of its own.

use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant, SystemTime};

/// Longer than any program here takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);

/// A running example. It is killed when this is dropped.
pub struct Program {
    name: String,
    child: Child,
    lines: Receiver<String>,
    seen: Vec<String>,
}

impl Program {
    /// Starts an example with these arguments.
    #[track_caller]
    pub fn start(example: &str, arguments: &[&str]) -> Program {
        let mut command = Command::new(built(example));
        command.args(arguments);
        Program::run(example, command)
    }

    /// Starts any program; messages call it by this name.
    pub fn run(name: &str, mut command: Command) -> Program {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (sender, lines) = channel();
        follow(child.stdout.take().unwrap(), sender.clone());
        follow(child.stderr.take().unwrap(), sender);
        Program { name: name.into(), child, lines, seen: Vec::new() }
    }

    /// Ends it at once, wherever it is; its ports are free then.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Takes the lines of this time, and those it has said before.
    pub fn listen(&mut self, time: Duration) {
        let end = Instant::now() + time;
        while let Ok(line) = self.lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
            self.seen.push(line);
        }
    }

    /// Waits until it has ended in an error, and gives all it said.
    #[track_caller]
    pub fn fail(mut self) -> Vec<String> {
        let status = self.wait();
        assert!(!status.success(), "{} ended well:\n{}", self.name, self.seen.join("\n"));
        std::mem::take(&mut self.seen)
    }

    /// Waits for a line that holds this text, and gives it.
    #[track_caller]
    pub fn wait_for(&mut self, text: &str) -> String {
        let deadline = Instant::now() + LIMIT;
        loop {
            match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    self.seen.push(line.clone());
                    if line.contains(text) {
                        return line;
                    }
                }
                Err(e) => panic!("{} did not say '{text}': {e}\n{}", self.name, self.seen.join("\n")),
            }
        }
    }

    /// Waits until it has ended by itself and well, and gives all it said.
    #[track_caller]
    pub fn finish(mut self) -> Vec<String> {
        let status = self.wait();
        assert!(status.success(), "{} ended with {status}:\n{}", self.name, self.seen.join("\n"));
        std::mem::take(&mut self.seen)
    }

    /// Waits until it has ended by itself. Its lines end when it does.
    #[track_caller]
    fn wait(&mut self) -> ExitStatus {
        let deadline = Instant::now() + LIMIT;
        loop {
            match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => self.seen.push(line),
                Err(RecvTimeoutError::Disconnected) => return self.child.wait().unwrap(),
                Err(RecvTimeoutError::Timeout) => {
                    panic!("{} still runs after {LIMIT:?}:\n{}", self.name, self.seen.join("\n"))
                }
            }
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // One that has ended already cannot be killed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Addresses on this machine that were free a moment ago.
pub fn free_addresses(count: usize) -> Vec<String> {
    let listeners: Vec<_> = (0..count).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    listeners.iter().map(|listener| listener.local_addr().unwrap().to_string()).collect()
}

fn follow(output: impl Read + Send + 'static, lines: Sender<String>) {
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            // Who started the program may have lost interest.
            let _ = lines.send(line);
        }
    });
}

/// The example as a program. Cargo builds all of them before it runs the tests, unless it was asked for some tests only.
fn built(example: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let profile = test.parent().and_then(Path::parent).unwrap(); // the test is in PROFILE/deps
    let program = profile.join("examples").join(format!("{example}{}", std::env::consts::EXE_SUFFIX));
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let is_current = program
        .metadata()
        .and_then(|m| m.modified())
        .is_ok_and(|built| [root.join("src"), root.join("examples")].iter().all(|folder| newest(folder) <= built));
    if !is_current {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--package", "ferroflow", "--example", example]).current_dir(root);
        if profile.ends_with("release") {
            cargo.arg("--release");
        }
        assert!(cargo.arg("--target-dir").arg(profile.parent().unwrap()).status().unwrap().success());
    }
    program
}

/// When a file in this folder was last changed.
fn newest(folder: &Path) -> SystemTime {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let times = entries.map(|entry| match entry.file_type().unwrap().is_dir() {
        true => newest(&entry.path()),
        false => entry.metadata().unwrap().modified().unwrap(),
    });
    times.max().unwrap_or(SystemTime::UNIX_EPOCH)
}

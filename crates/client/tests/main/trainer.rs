//! The example `trainer` as real processes, which are killed and started again.

use crate::programs::{Program, free_addresses};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);

/// The tasks of a cluster on this machine.
struct Cluster {
    flags: [String; 3],
    ps: String,
}

impl Cluster {
    fn new(dir: &Path) -> Cluster {
        let hosts = free_addresses(3);
        let flags = [
            format!("--ps_hosts={}", hosts[0]),
            format!("--worker_hosts={},{}", hosts[1], hosts[2]),
            format!("--checkpoint_dir={}", dir.display()),
        ];
        Cluster { flags, ps: hosts[0].clone() }
    }

    fn start(&self, job: &str, index: usize, more: &[&str]) -> Program {
        let own = [format!("--job_name={job}"), format!("--task_index={index}")];
        let flags: Vec<&str> = self.flags.iter().chain(&own).map(String::as_str).chain(more.iter().copied()).collect();
        Program::start("trainer", &flags)
    }

    /// When the ps is up.
    fn wait_for_ps(&self) -> Instant {
        let deadline = Instant::now() + LIMIT;
        while TcpStream::connect(&self.ps).is_err() {
            assert!(Instant::now() < deadline, "the ps does not come up");
        }
        Instant::now()
    }
}

/// The number behind some words.
#[track_caller]
fn number(line: &str, before: &str) -> i64 {
    let rest = line.split(before).nth(1).unwrap_or_else(|| panic!("no '{before}' in: {line}"));
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap_or_else(|_| panic!("no number behind '{before}' in: {line}"))
}

fn step(program: &mut Program) -> i64 {
    number(&program.wait_for("step = "), "step = ")
}

#[test]
fn tasks_may_be_killed_and_training_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = Cluster::new(dir.path());
    let mut other = cluster.start("worker", 1, &[]);
    let line = other.wait_for("waiting for a session since");
    assert!(line.contains("/job:ps/replica:0/task:0") && line.contains(&cluster.ps), "it says for whom: {line}");
    let ps = cluster.start("ps", 0, &[]);
    let mut chief = cluster.start("worker", 0, &[]);
    for program in [&mut chief, &mut other] {
        assert!(step(program) < step(program));
    }

    // The ps: the chief goes back to the last checkpoint, that of the beginning, and both go on.
    drop(ps);
    let ps = cluster.start("ps", 0, &[]);
    let back = cluster.wait_for_ps();
    let line = chief.wait_for("training goes on after");
    let took = back.elapsed();
    let (restored, last) = (number(&line, "at global step "), number(&line, "the last one seen was "));
    assert_eq!(number(&line, &format!("step {restored}, ")), last - restored, "{line}");
    assert!(restored < last && line.contains(&format!("restored {}/model.ckpt-", dir.path().display())), "{line}");
    assert!(line.contains("/job:ps/replica:0/task:0"), "it says who was lost: {line}");
    assert!(took < Duration::from_secs(30), "{took:?}: {line}");
    other.wait_for("training goes on after");
    for program in [&mut chief, &mut other] {
        assert!(step(program) < step(program));
    }

    // The chief, with its server: what the ps holds is taken over, no step is lost.
    let seen = step(&mut other);
    drop(chief);
    let mut chief = cluster.start("worker", 0, &[]);
    let line = chief.wait_for("training goes on from there");
    assert!(line.contains("the servers hold the model") && number(&line, "at global step ") >= seen, "{line}");
    let seen = step(&mut chief);

    // Another worker.
    drop(other);
    let mut other = cluster.start("worker", 1, &[]);
    assert!(step(&mut other) >= seen);

    // Training that has come to its end is not gone on with, and leaves a checkpoint of what there is.
    drop((chief, other));
    cluster.start("worker", 1, &["--last_step=1"]).finish();
    cluster.start("worker", 0, &["--last_step=1"]).finish();
    let saved = ferroflow::train::latest_checkpoint(dir.path()).unwrap().unwrap();
    assert!(number(&saved.display().to_string(), "model.ckpt-") >= seen, "{saved:?}");
    ps.finish();
}

#[test]
fn one_process_trains_to_the_last_step() {
    let dir = tempfile::tempdir().unwrap();
    Program::start("trainer", &["--last_step=300", &format!("--checkpoint_dir={}", dir.path().display())]).finish();
    let saved = ferroflow::train::latest_checkpoint(dir.path()).unwrap().unwrap();
    assert!(saved.ends_with("model.ckpt-300"), "{saved:?}");
}

//! `ferroflow launch`, with real processes.

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);

fn launch(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ferroflow"));
    command.arg("launch").args(arguments);
    command
}

fn output(arguments: &[&str]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = launch(arguments).output().unwrap();
    (status.code(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

/// A launcher under way, and the lines it writes to standard error.
fn start(arguments: &[&str]) -> (Child, Receiver<String>) {
    let mut child = launch(arguments).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let (sender, lines) = channel();
    let pipe = BufReader::new(child.stderr.take().unwrap());
    std::thread::spawn(move || pipe.lines().map_while(Result::ok).all(|line| sender.send(line).is_ok()));
    (child, lines)
}

/// The part of a line behind `what`, as soon as there is such a line.
fn await_line(lines: &Receiver<String>, what: &str) -> String {
    let end = Instant::now() + LIMIT;
    loop {
        let line = lines.recv_timeout(end.saturating_duration_since(Instant::now())).expect(what);
        if let Some((_, rest)) = line.split_once(what) {
            return rest.to_string();
        }
    }
}

fn pid(text: &str) -> Pid {
    Pid::from_raw(text.trim().parse().unwrap()).unwrap()
}

fn wait(child: &mut Child) -> ExitStatus {
    let end = Instant::now() + LIMIT;
    loop {
        match child.try_wait().unwrap() {
            Some(status) => return status,
            None => assert!(Instant::now() < end, "the launcher does not end"),
        }
        std::thread::yield_now();
    }
}

#[test]
fn every_task_learns_its_place_and_the_ps_is_ended() {
    // The workers wait for the ps, which is ended with the last of them and might not have come to speak.
    let folder = tempfile::tempdir().unwrap();
    let spoke = folder.path().join("spoke");
    let script = format!(
        "echo $1 $TF_CONFIG; if [ {{job}} = ps ]; then touch {0}; while :; do sleep 0.05; done; fi; \
         until [ -e {0} ]; do sleep 0.01; done",
        spoke.display()
    );
    let (code, out, _) = output(&["--ps", "1", "--workers", "2", "--", "sh", "-c", &script, "sh", "{flags}"]);
    assert_eq!(code, Some(0));
    for task in ["worker/0", "worker/1", "ps/0"] {
        let start = format!("{task:<8} | --ps_hosts=localhost:");
        let line = out.lines().find(|line| line.starts_with(&start)).expect(&start);
        let (job, index) = task.split_once('/').unwrap();
        assert!(line.ends_with(&format!(r#""task":{{"index":{index},"type":"{job}"}}}}"#)), "{line}");
    }
}

#[test]
fn the_exit_code_is_the_failed_programs() {
    let (code, _, err) =
        output(&["--ps", "0", "--workers", "2", "--", "sh", "-c", "test {index} = 0 || exit 7; sleep 60"]);
    assert_eq!(code, Some(7));
    assert!(err.contains("launch   | worker/1 ended with exit code 7"), "{err}");
}

#[test]
fn servers_of_ours_serve_until_they_are_asked_to_stop() {
    let (mut launcher, lines) = start(&["--ps", "1", "--workers", "1"]);
    let cluster = await_line(&lines, "1 ps and 1 worker on ");
    for _ in 0..2 {
        await_line(&lines, "INFO serving");
    }
    kill_process(Pid::from_child(&launcher), Signal::INT).unwrap();
    assert_eq!(wait(&mut launcher).code(), Some(130));
    for port in cluster.split(|c: char| !c.is_ascii_digit()).filter_map(|number| number.parse::<u16>().ok()) {
        // Another launcher, which looks for free ports, may hold it for a moment.
        let end = Instant::now() + LIMIT;
        while let Err(error) = TcpListener::bind(("0.0.0.0", port)) {
            assert!(Instant::now() < end, "port {port} is not free again: {error}");
            std::thread::yield_now();
        }
    }
}

#[test]
fn a_launcher_that_is_killed_takes_its_processes_along() {
    let (mut launcher, lines) = start(&["--ps", "1", "--workers", "0"]);
    let server = pid(&await_line(&lines, "ps/0 is process "));
    await_line(&lines, "INFO serving");
    launcher.kill().unwrap();
    wait(&mut launcher);
    let end = Instant::now() + LIMIT;
    while test_kill_process(server).is_ok() {
        let state = std::fs::read_to_string(format!("/proc/{}/stat", server.as_raw_nonzero())).unwrap_or_default();
        if state.contains(") Z") {
            break;
        }
        assert!(Instant::now() < end, "the server outlives its launcher");
        std::thread::yield_now();
    }
}

/// A stand-in for ssh that runs the command here.
fn fake_ssh(folder: &std::path::Path) -> String {
    let path = folder.join("ssh");
    std::fs::write(&path, "echo to $3\nexec sh -c \"$4\"\n").unwrap();
    // Read rather than executed: a process that another test starts just now may hold it open for writing.
    format!("sh {}", path.display())
}

#[test]
fn over_ssh_programs_run_on_the_machines_of_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let hosts = folder.path().join("hosts");
    std::fs::write(&hosts, "one\ntwo slots=2\n").unwrap();
    let script = "echo \"it's {address}\" $1; test {job} = worker || exec sleep 1000";
    let ssh = fake_ssh(folder.path());
    let line = [
        "--host-file",
        hosts.to_str().unwrap(),
        "--ssh",
        &ssh,
        "--workers=2",
        "--",
        "sh",
        "-c",
        script,
        "sh",
        "{flags}",
    ];
    let (code, out, err) = output(&line);
    assert_eq!(code, Some(0), "{err}");
    let hosts = "--ps_hosts=one:2222";
    for want in ["ps/0     | to one", "worker/0 | to two", "worker/1 | to two"] {
        assert!(out.lines().any(|line| line == want), "{want} in {out}");
    }
    for want in ["it's two:2222", "it's two:2223"] {
        assert!(out.lines().any(|line| line.ends_with(&format!("{want} {hosts}"))), "{want} in {out}");
    }
    assert!(!err.contains("did not end"), "{err}");
}

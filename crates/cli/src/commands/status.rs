//! `ferroflow status` and `ferroflow stop`: a running cluster, asked and told.

use super::print;
use crate::screen::Screen;
use clap::Args;
use ferroflow::inspect::{self, TaskStatus};
use ferroflow::{Code, Error, Result};
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::time::{Duration, Instant};

/// Show the tasks of a cluster: devices, sessions, steps a second, running steps and what each waits for
#[derive(Args)]
#[command(after_help = "\
SESSIONS counts those opened on a task + those that run a part of their graph on it. Below a task stand its running steps,
and what each of them has waited for longest.

Examples:
  ferroflow status grpc://h1:2222
  ferroflow status h1:2222 --watch
  ferroflow status h1:2222 --json | jq '.[].steps'")]
pub struct Arguments {
    /// Any task of the cluster
    #[arg(value_name = "TARGET")]
    target: String,
    /// Go on showing it, until q or Ctrl-C
    #[arg(long, conflicts_with = "json")]
    watch: bool,
    /// Seconds from one look to the next
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, allow_negative_numbers = true)]
    interval: f64,
    /// Print JSON, for programs
    #[arg(long)]
    json: bool,
    /// Seconds to wait for each task
    #[arg(long, value_name = "SECONDS", default_value_t = 5)]
    wait: u64,
}

/// Ask a task to finish what it is doing and to exit
#[derive(Args)]
#[command(after_help = "Examples:\n  ferroflow stop grpc://h1:2222\n  ferroflow stop h1:2222 --all")]
pub struct StopArguments {
    /// The task
    #[arg(value_name = "TARGET")]
    target: String,
    /// Stop every task of its cluster
    #[arg(long)]
    all: bool,
    /// Seconds that calls under way may take to end
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    drain: u64,
    /// Seconds to wait for an answer
    #[arg(long, value_name = "SECONDS", default_value_t = 5)]
    wait: u64,
}

/// Of what a step waits for so many are shown, those longest waited for; `--json` has all.
const WAITS_SHOWN: usize = 3;

/// How long steps are counted for a single look.
const SAMPLE: Duration = Duration::from_millis(400);

/// Prints how the tasks are.
pub fn run(arguments: Arguments) -> Result<()> {
    let limit = Duration::from_secs(arguments.wait);
    let mut rates = Rates::default();
    check_target(&arguments.target)?;
    let first = inspect::status(&arguments.target, limit).map_err(|e| advised(&arguments.target, e))?;
    rates.update(&first);
    if arguments.json {
        return print(&json(&first));
    }
    if arguments.watch {
        let interval = Duration::try_from_secs_f64(arguments.interval).map_err(|_| {
            Error::new(Code::InvalidArgument, format!("--interval is {}, wanted seconds", arguments.interval))
        })?;
        return watch(&arguments.target, limit, interval.max(Duration::from_millis(50)), table(&first, &rates), rates);
    }
    std::thread::sleep(SAMPLE);
    let tasks = inspect::status(&arguments.target, limit)?;
    rates.update(&tasks);
    print(&table(&tasks, &rates))
}

/// Looks again and again, after a first look. A cluster that cannot be reached may come back.
fn watch(target: &str, limit: Duration, interval: Duration, first: String, mut rates: Rates) -> Result<()> {
    let screen = Screen::open()?;
    let mut text = first;
    loop {
        screen.show(&format!("ferroflow status {target}"), &text)?;
        if screen.closed_within(interval) {
            return Ok(());
        }
        text = match inspect::status(target, limit) {
            Ok(tasks) => {
                rates.update(&tasks);
                table(&tasks, &rates)
            }
            Err(e) => format!("{}\n", e.message),
        };
    }
}

/// How many steps a second each task runs, from one look to the next.
#[derive(Default)]
struct Rates {
    seen: HashMap<String, (Instant, u64)>,
    per_second: HashMap<String, f64>,
}

impl Rates {
    fn update(&mut self, tasks: &[TaskStatus]) {
        let now = Instant::now();
        for task in tasks.iter().filter(|task| task.problem.is_none()) {
            let before = self.seen.insert(task.task.clone(), (now, task.steps_run));
            // A task that was started again counts from nothing.
            let since = before.filter(|(_, count)| *count <= task.steps_run);
            let rate = since.map(|(at, count)| (task.steps_run - count) as f64 / (now - at).as_secs_f64().max(1e-3));
            self.per_second.extend(rate.map(|rate| (task.task.clone(), rate)));
        }
    }

    fn of(&self, task: &TaskStatus) -> String {
        self.per_second.get(&task.task).map_or_else(|| "-".into(), |rate| format!("{rate:.0}"))
    }
}

/// Stops a task, or all of its cluster: the one asked last.
pub fn stop(arguments: StopArguments) -> Result<()> {
    let (drain, limit) = (Duration::from_secs(arguments.drain), Duration::from_secs(arguments.wait));
    check_target(&arguments.target)?;
    let mut name = arguments.target.clone();
    if arguments.all {
        let tasks = inspect::status(&arguments.target, limit).map_err(|e| advised(&arguments.target, e))?;
        for task in tasks.iter().skip(1) {
            match &task.problem {
                Some(problem) => println!("{}: {problem}", short(&task.task)),
                None => {
                    inspect::stop(&task.address, drain, limit)?;
                    println!("{}: stopping", short(&task.task));
                }
            }
        }
        tasks.first().into_iter().for_each(|asked| name = short(&asked.task));
    }
    inspect::stop(&arguments.target, drain, limit).map_err(|e| advised(&arguments.target, e))?;
    println!("{name}: stopping");
    Ok(())
}

fn check_target(target: &str) -> Result<()> {
    let address = target.strip_prefix("grpc://").unwrap_or(target);
    let port = address.rsplit_once(':').filter(|(host, _)| !host.is_empty()).map(|(_, port)| port.parse::<u16>());
    match port {
        Some(Ok(_)) => Ok(()),
        _ => Err(Error::new(
            Code::InvalidArgument,
            format!("'{target}' names no task; wanted HOST:PORT or grpc://HOST:PORT"),
        )),
    }
}

/// The error of a task that does not answer, with what to try.
fn advised(target: &str, e: Error) -> Error {
    let advice = match e.code {
        _ if e.message.contains("does not speak HTTP/2") => "another program listens there; is the port right?",
        Code::Unavailable => "is it running? any other task of its cluster can be asked too",
        Code::Unimplemented => "it is a server of another kind: only tasks of ours can be asked",
        Code::DeadlineExceeded => "give it more time with --wait, or look at its machine",
        _ => return e,
    };
    let text = format!("{}; {advice}", e.message);
    Error {
        message: if text.contains(target.trim_start_matches("grpc://")) { text } else { format!("{target}: {text}") },
        ..e
    }
}

/// `/job:ps/task:0`: the replica is always 0, and most tasks have one device.
fn short(text: &str) -> String {
    text.replace("/replica:0", "").replace("/device:CPU:0", "")
}

fn table(tasks: &[TaskStatus], rates: &Rates) -> String {
    let header = ["TASK", "ADDRESS", "UPTIME", "MEMORY", "DEVICES", "SESSIONS", "GRAPHS", "STEPS/S", "RUNNING"];
    let row = |task: &TaskStatus| {
        let mut cells = vec![short(&task.task), task.address.clone()];
        match task.problem {
            Some(_) => cells.extend(["down", "-", "-", "-", "-", "-", "-"].map(String::from)),
            None => cells.extend([
                age(task.uptime),
                format!("{} MB", task.resident_bytes >> 20),
                devices(task),
                format!("{} + {}", task.sessions, task.shares),
                task.graphs.to_string(),
                rates.of(task),
                task.steps.len().to_string(),
            ]),
        }
        cells
    };
    let rows: Vec<Vec<String>> =
        std::iter::once(header.map(String::from).to_vec()).chain(tasks.iter().map(row)).collect();
    let mut out = String::new();
    for (i, line) in crate::table::lines(&rows).iter().enumerate() {
        let _ = writeln!(out, "{line}");
        if let Some(task) = i.checked_sub(1).map(|i| &tasks[i]) {
            details(&mut out, task);
        }
    }
    out
}

/// `2 CPU`: how many devices of each kind.
fn devices(task: &TaskStatus) -> String {
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    for name in &task.devices {
        let kind = name.rsplit("device:").next().and_then(|device| device.split(':').next()).unwrap_or(name);
        *kinds.entry(kind).or_default() += 1;
    }
    let counted: Vec<String> = kinds.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    counted.join(", ")
}

fn details(out: &mut String, task: &TaskStatus) {
    if let Some(problem) = &task.problem {
        let _ = writeln!(out, "    {problem}");
    }
    for step in &task.steps {
        let _ = writeln!(out, "    step {} of session {}, for {}:", step.step, step.session, age(step.age));
        if step.waits.is_empty() {
            let _ = writeln!(out, "        {:>6}  computes", "");
        }
        let mut waits: Vec<&(String, Duration)> = step.waits.iter().collect();
        waits.sort_by_key(|(_, since)| std::cmp::Reverse(*since));
        for (what, since) in waits.iter().take(WAITS_SHOWN) {
            // The time comes first: a narrow terminal cuts what is long.
            let _ = writeln!(out, "        {:>6}  {}", age(*since), short(plain(what)));
        }
        if waits.len() > WAITS_SHOWN {
            let _ = writeln!(out, "        {:>6}  and {} more", "", waits.len() - WAITS_SHOWN);
        }
    }
}

/// `w from TASK`, for a value that comes from elsewhere; the node that receives it was named by us. Else what was said.
fn plain(wait: &str) -> &str {
    let received = wait.split_once(" (_Recv) for edge_").and_then(|(_, rest)| rest.split_once('_'));
    received.map_or(wait, |(_, name_and_source)| name_and_source)
}

/// A time for people.
pub fn age(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..60 => format!("{:.1} s", time.as_secs_f64()),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        _ => format!("{}h{:02}m", seconds / 3600, seconds / 60 % 60),
    }
}

fn json(tasks: &[TaskStatus]) -> String {
    let seconds = |time: Duration| time.as_secs_f64();
    let step = |step: &inspect::StepStatus| {
        let waits =
            step.waits.iter().map(|(what, since)| serde_json::json!({"what": what, "seconds": seconds(*since)}));
        serde_json::json!({
            "step": step.step,
            "session": step.session,
            "seconds": seconds(step.age),
            "waits": waits.collect::<Vec<_>>(),
        })
    };
    let task = |t: &TaskStatus| {
        serde_json::json!({
            "task": t.task,
            "address": t.address,
            "problem": t.problem,
            "pid": t.pid,
            "uptime_seconds": seconds(t.uptime),
            "resident_bytes": t.resident_bytes,
            "version": t.version,
            "devices": t.devices,
            "sessions": t.sessions,
            "shares": t.shares,
            "graphs": t.graphs,
            "steps_run": t.steps_run,
            "steps": t.steps.iter().map(step).collect::<Vec<_>>(),
        })
    };
    let list: Vec<_> = tasks.iter().map(task).collect();
    format!("{:#}\n", serde_json::Value::from(list))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_shows_who_waits_for_what_and_who_is_down() {
        let step = inspect::StepStatus {
            step: 7,
            session: "abc".into(),
            age: Duration::from_millis(4100),
            waits: [("a", 1), ("w_S9 (_Recv) for edge_8_w from /job:ps/replica:0/task:0/device:CPU:0", 2), ("b", 0)]
                .into_iter()
                .chain([("get (QueueDequeueV2) for its handle", 61), ("c", 0)])
                .map(|(what, seconds)| (what.to_string(), Duration::from_secs(seconds)))
                .collect(),
        };
        let up = TaskStatus {
            task: "/job:ps/replica:0/task:0".into(),
            address: "a:1".into(),
            uptime: Duration::from_secs(3700),
            resident_bytes: 15 << 20,
            devices: vec!["/job:ps/replica:0/task:0/device:CPU:0".into()],
            sessions: 1,
            shares: 2,
            graphs: 3,
            steps: vec![step],
            ..TaskStatus::default()
        };
        let down = TaskStatus {
            task: "/job:worker/replica:0/task:0".into(),
            address: "b:1".into(),
            problem: Some("connection refused".into()),
            ..TaskStatus::default()
        };
        let mut rates = Rates::default();
        rates.update(&[TaskStatus { steps_run: 9, ..up.clone() }]);
        assert_eq!(rates.of(&up), "-", "one look counts nothing");
        rates.update(&[TaskStatus { steps_run: 9, ..up.clone() }]);
        expect_test::expect![[r#"
            TASK                ADDRESS  UPTIME  MEMORY  DEVICES  SESSIONS  GRAPHS  STEPS/S  RUNNING
            /job:ps/task:0      a:1      1h01m   15 MB   1 CPU    1 + 2     3       0        1
                step 7 of session abc, for 4.1 s:
                     1m01s  get (QueueDequeueV2) for its handle
                     2.0 s  w from /job:ps/task:0
                     1.0 s  a
                            and 2 more
            /job:worker/task:0  b:1      down    -       -        -         -       -        -
                connection refused
        "#]]
        .assert_eq(&table(&[up.clone(), down.clone()], &rates));
        let parsed: serde_json::Value = serde_json::from_str(&json(&[up, down])).unwrap();
        assert_eq!(parsed[0]["steps"][0]["waits"][3]["seconds"], 61.0);
        assert_eq!(parsed[1]["problem"], "connection refused");
    }
}

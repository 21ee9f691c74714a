//! `ferroflow status` and `ferroflow stop`: a running cluster, asked and told.

use clap::Args;
use ferroflow::Result;
use ferroflow::inspect::{self, TaskStatus};
use std::fmt::Write as _;
use std::time::Duration;

/// Show the tasks of a cluster: devices, sessions, running steps and what each waits for
#[derive(Args)]
#[command(after_help = "Examples:\n  ferroflow status grpc://h1:2222\n  ferroflow status h1:2222 --json")]
pub struct Arguments {
    /// Any task of the cluster
    #[arg(value_name = "TARGET")]
    target: String,
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

/// Prints how the tasks are.
pub fn run(arguments: Arguments) -> Result<()> {
    let tasks = inspect::status(&arguments.target, Duration::from_secs(arguments.wait))?;
    print!("{}", if arguments.json { json(&tasks) } else { table(&tasks) });
    Ok(())
}

/// Stops a task, or all of its cluster: the one asked last.
pub fn stop(arguments: StopArguments) -> Result<()> {
    let (drain, limit) = (Duration::from_secs(arguments.drain), Duration::from_secs(arguments.wait));
    if arguments.all {
        for task in inspect::status(&arguments.target, limit)?.iter().skip(1) {
            match &task.problem {
                Some(problem) => println!("{}: {problem}", short(&task.task)),
                None => {
                    inspect::stop(&task.address, drain, limit)?;
                    println!("{}: stopping", short(&task.task));
                }
            }
        }
    }
    inspect::stop(&arguments.target, drain, limit)?;
    println!("{}: stopping", arguments.target);
    Ok(())
}

/// `/job:ps/task:0`: the replica is always 0.
fn short(task: &str) -> String {
    task.replace("/replica:0", "")
}

fn table(tasks: &[TaskStatus]) -> String {
    let header = ["TASK", "ADDRESS", "UPTIME", "MEMORY", "DEVICES", "SESSIONS", "GRAPHS", "STEPS"].map(String::from);
    let rows = tasks.iter().map(|t| match &t.problem {
        Some(_) => [
            short(&t.task),
            t.address.clone(),
            "down".into(),
            "-".into(),
            "-".into(),
            "-".into(),
            "-".into(),
            "-".into(),
        ],
        None => [
            short(&t.task),
            t.address.clone(),
            age(t.uptime),
            format!("{} MB", t.resident_bytes >> 20),
            t.devices.len().to_string(),
            format!("{} + {}", t.sessions, t.shares),
            t.graphs.to_string(),
            t.steps.len().to_string(),
        ],
    });
    let rows: Vec<[String; 8]> = std::iter::once(header).chain(rows).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let mut out = String::new();
    for (i, row) in rows.iter().enumerate() {
        let cells: Vec<String> = row.iter().enumerate().map(|(c, cell)| format!("{cell:<0$}", width(c))).collect();
        let _ = writeln!(out, "{}", cells.join("  ").trim_end());
        if let Some(task) = i.checked_sub(1).map(|i| &tasks[i]) {
            details(&mut out, task);
        }
    }
    out
}

fn details(out: &mut String, task: &TaskStatus) {
    if let Some(problem) = &task.problem {
        let _ = writeln!(out, "    {problem}");
    }
    for step in &task.steps {
        let _ = writeln!(out, "    step {} of session {}, for {}:", step.step, step.session, age(step.age));
        if step.waits.is_empty() {
            let _ = writeln!(out, "        computes");
        }
        for (what, since) in &step.waits {
            let _ = writeln!(out, "        {what}, for {}", age(*since));
        }
    }
}

fn age(time: Duration) -> String {
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
            waits: vec![("get (QueueDequeueV2) for its handle".into(), Duration::from_secs(61))],
        };
        let up = TaskStatus {
            task: "/job:ps/replica:0/task:0".into(),
            address: "a:1".into(),
            uptime: Duration::from_secs(3700),
            resident_bytes: 15 << 20,
            devices: vec!["cpu".into()],
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
        expect_test::expect![[r#"
            TASK                ADDRESS  UPTIME  MEMORY  DEVICES  SESSIONS  GRAPHS  STEPS
            /job:ps/task:0      a:1      1h01m   15 MB   1        1 + 2     3       1
                step 7 of session abc, for 4.1 s:
                    get (QueueDequeueV2) for its handle, for 1m01s
            /job:worker/task:0  b:1      down    -       -        -         -       -
                connection refused
        "#]]
        .assert_eq(&table(&[up.clone(), down.clone()]));
        let parsed: serde_json::Value = serde_json::from_str(&json(&[up, down])).unwrap();
        assert_eq!(parsed[0]["steps"][0]["waits"][0]["seconds"], 61.0);
        assert_eq!(parsed[1]["problem"], "connection refused");
    }
}

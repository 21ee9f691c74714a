//! Looks into what there is: running tasks, which can also be told to stop, checkpoints, event files and graphs.

mod checkpoint;
mod events;
mod graph;

pub use checkpoint::{Checkpoint, CheckpointFiles, CheckpointTensor, checkpoints, numbers};
pub use distributed::nearest;
pub use events::{Point, scalars};
pub use graph::{GraphNode, GraphOutput, nodes};

use distributed::ClusterSpec;
use futures_util::future::join_all;
use rpc::RemoteTask;
use runtime::block_on;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tensor::Result;

/// How a task is; what it does not tell is empty.
#[derive(Clone, Debug, Default)]
pub struct TaskStatus {
    /// The task, such as `/job:ps/replica:0/task:0`.
    pub task: String,
    /// Where it listens.
    pub address: String,
    /// Why nothing more is known, if it could not be asked.
    pub problem: Option<String>,
    /// Its process.
    pub pid: u32,
    /// How long it has been running.
    pub uptime: Duration,
    /// The memory it holds.
    pub resident_bytes: u64,
    /// The version of the program.
    pub version: String,
    /// Its devices.
    pub devices: Vec<String>,
    /// Sessions whose master it is.
    pub sessions: usize,
    /// Sessions for which it executes graphs.
    pub shares: usize,
    /// Graphs registered here.
    pub graphs: u32,
    /// How many steps it has executed a part of.
    pub steps_run: u64,
    /// Steps under way, the oldest first.
    pub steps: Vec<StepStatus>,
}

/// A step under way.
#[derive(Clone, Debug)]
pub struct StepStatus {
    /// Its number.
    pub step: i64,
    /// The session it belongs to.
    pub session: String,
    /// How long it has been running.
    pub age: Duration,
    /// What it waits for, and for how long; if nothing, it computes.
    pub waits: Vec<(String, Duration)>,
}

/// How the tasks of a cluster are: the one asked first, then the others of its cluster.
pub fn status(target: &str, limit: Duration) -> Result<Vec<TaskStatus>> {
    let first = wait(RemoteTask::new(target, limit).status())?;
    let cluster: ClusterSpec = first.cluster.parse()?;
    let own = first.task.clone();
    let others = cluster.tasks().filter(|(task, _)| task.to_string() != own).map(|(task, address)| async move {
        match RemoteTask::new(address, limit).status().await {
            Ok(status) => read(status),
            Err(e) => TaskStatus {
                task: task.to_string(),
                address: address.to_string(),
                problem: Some(e.message),
                ..TaskStatus::default()
            },
        }
    });
    let others = wait(join_all(others));
    Ok(std::iter::once(read(first)).chain(others).collect())
}

/// Asks a task to stop. It ends when the calls under way have ended, at the latest after `drain`.
pub fn stop(target: &str, drain: Duration, limit: Duration) -> Result<()> {
    wait(RemoteTask::new(target, limit).stop(Some(drain)))
}

/// Every question has a limit of its own.
fn wait<F: Future>(question: F) -> F::Output {
    block_on(question, None).expect("without a deadline nothing is given up")
}

fn read(status: proto::ferroflow::StatusResponse) -> TaskStatus {
    let micros = |n: i64| Duration::from_micros(n.max(0) as u64);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let steps = status.step.into_iter().map(|step| StepStatus {
        step: step.step_id,
        session: step.session,
        age: micros(step.age_micros),
        waits: step.wait.into_iter().map(|w| (format!("{} for {}", w.node, w.what), micros(w.age_micros))).collect(),
    });
    let (opened, shares): (Vec<_>, Vec<_>) = status.session.iter().partition(|s| s.is_master);
    TaskStatus {
        task: status.task,
        address: status.address,
        problem: None,
        pid: status.pid,
        uptime: now.saturating_sub(micros(status.start_micros)),
        resident_bytes: status.resident_bytes,
        version: status.version,
        devices: status.device.into_iter().map(|d| d.name).collect(),
        sessions: opened.len(),
        shares: shares.len(),
        graphs: shares.iter().map(|s| s.graphs).sum(),
        steps_run: status.steps_run,
        steps: steps.collect(),
    }
}

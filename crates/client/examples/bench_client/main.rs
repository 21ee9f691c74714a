//! The Rust side of `cargo xtask bench`: one workload of `tests/bench`, driven by this client on servers that run already.
//!
//! ```sh
//! bench_client null_step --ps_hosts=localhost:2222 --worker_hosts=localhost:2223
//! ```
//!
//! Prints a line for each thing measured: its name, as `tests/bench` has it, the value and the unit, with tabs between them.

mod measure;
mod steps;
mod training;
mod transfers;

use clap::Parser;
use ferroflow::prelude::*;
use measure::Bench;
use std::time::Duration;

/// Measures one workload on a cluster
#[derive(Parser)]
struct Flags {
    /// What to measure: null_step, step_over_two_tasks, connections, training, training_sync, training_own,
    /// training_own_sync, one_process, towers, dense_SIZE such as dense_64MB, many_small, embedding, kernel
    workload: String,
    /// The parameter servers
    #[arg(long = "ps_hosts", value_name = "HOST:PORT,…", default_value = "")]
    ps_hosts: String,
    /// The workers
    #[arg(long = "worker_hosts", value_name = "HOST:PORT,…", default_value = "")]
    worker_hosts: String,
    /// Which worker this is, for what the workloads start themselves
    #[arg(long = "task_index", value_name = "INDEX", default_value_t = 0)]
    task_index: u32,
    /// Processes on this machine whose CPU time is the servers'
    #[arg(long, value_name = "PID,…", value_delimiter = ',')]
    pids: Vec<u32>,
    /// How long to measure one thing
    #[arg(long, value_name = "SECONDS", default_value_t = 1.5)]
    seconds: f64,
}

fn main() -> Result<()> {
    let flags = Flags::parse();
    let jobs = [("ps", flags.ps_hosts.as_str()), ("worker", flags.worker_hosts.as_str())];
    let cluster = ClusterSpec::from_hosts(jobs.into_iter().filter(|(_, hosts)| !hosts.is_empty()))?;
    let seconds = Duration::try_from_secs_f64(flags.seconds)
        .map_err(|error| Error::new(Code::InvalidArgument, format!("--seconds: {error}")))?;
    let bench = Bench { cluster, pids: flags.pids, seconds };
    match flags.workload.as_str() {
        "null_step" => steps::null(&bench),
        "step_over_two_tasks" => steps::over_two_tasks(&bench),
        "connections" => steps::connections(&bench),
        "training" => training::replicas(&bench, false),
        "training_sync" => training::replicas(&bench, true),
        "training_own" => training::own_workers(&bench, false),
        "training_own_sync" => training::own_workers(&bench, true),
        "own_worker" => training::own_worker(&bench, flags.task_index, false),
        "own_worker_sync" => training::own_worker(&bench, flags.task_index, true),
        "one_process" => training::one_process(&bench),
        "towers" => training::towers(&bench),
        "many_small" => transfers::many_small(&bench),
        "embedding" => transfers::embedding(&bench),
        "kernel" => steps::kernel(&bench),
        other => match other.strip_prefix("dense_").and_then(transfers::parse_size) {
            Some(bytes) => transfers::dense(&bench, bytes),
            None => Err(Error::new(Code::InvalidArgument, format!("there is no workload called '{other}'"))),
        },
    }
}

//! `ferroflow server`: runs one task of a cluster.

use clap::Args;
use ferroflow::train::{ClusterFlags, LostWorker};
use ferroflow::{Code, Error, Result, Server};
use std::time::Duration;

/// Run one task of a cluster: a full member beside others of ours and TensorFlow's own
#[derive(Args)]
#[command(after_help = "\
The cluster and this task's place in it come from --cluster, from --ps_hosts and --worker_hosts, from the environment
variable TF_CONFIG, or from SLURM, with --job_name and --task_index where they are not told.

Examples:
  ferroflow server --cluster 'ps|h0:2222,worker|h1:2222;h2:2222' --job_name ps --task_index 0
  ferroflow server --ps_hosts h0:2222 --worker_hosts h1:2222,h2:2222 --job_name worker --task_index 1
  TF_CONFIG='{\"cluster\": {\"ps\": [\"h0:2222\"]}, \"task\": {\"type\": \"ps\", \"index\": 0}}' ferroflow server")]
pub struct Arguments {
    #[command(flatten)]
    place: ClusterFlags,
    /// Listen here rather than on the address of this task's own entry; 0.0.0.0:PORT is every interface
    #[arg(long, value_name = "HOST:PORT")]
    bind: Option<String>,
    /// CPU devices of this task; they share its threads
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    cpus: u32,
    /// Threads that compute; as many as there are cores unless given
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
    /// Seconds that a session waits for a task it needs
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0, allow_negative_numbers = true)]
    wait: f64,
    /// When a synchronous training that does not say loses a worker: shrink goes on, wait waits for it, fail ends
    #[arg(long = "lost-worker", alias = "lost_worker", value_name = "POLICY", default_value_t)]
    lost_worker: LostWorker,
}

/// Runs until it is told to stop.
pub fn run(arguments: Arguments) -> Result<()> {
    let place = arguments.place.task()?;
    let task = place.name();
    let wait = Duration::try_from_secs_f64(arguments.wait)
        .map_err(|_| invalid(format!("--wait is {}, wanted a number of seconds", arguments.wait)))?;
    let mut builder =
        Server::builder(&place.cluster, &task.job, task.index).device_count(arguments.cpus).patience(wait);
    builder = builder.lost_worker(arguments.lost_worker);
    if let Some(address) = arguments.bind {
        builder = builder.bind(address);
    }
    if let Some(threads) = arguments.threads {
        builder = builder.threads(threads.into());
    }
    let server = builder.start()?;
    tracing::info!(task = %task, target = server.target(), cluster = %server.cluster(), "serving");
    server.join()?;
    tracing::info!(task = %task, "stopped");
    Ok(())
}

fn invalid(message: String) -> Error {
    Error::new(Code::InvalidArgument, message)
}

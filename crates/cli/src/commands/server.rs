//! `ferroflow server`: runs one task of a cluster.

use clap::Args;
use ferroflow::{ClusterSpec, Code, Error, Result, Server, TaskName};
use std::time::Duration;

/// Run one task of a cluster: a full member beside others of ours and TensorFlow's own
#[derive(Args)]
#[command(after_help = "\
The cluster and this task's place in it come from --cluster, from --ps_hosts and --worker_hosts, or from the environment
variable TF_CONFIG, with --job_name and --task_index.

Examples:
  ferroflow server --cluster 'ps|h0:2222,worker|h1:2222;h2:2222' --job-name ps --task-index 0
  ferroflow server --ps_hosts h0:2222 --worker_hosts h1:2222,h2:2222 --job_name worker --task_index 1
  TF_CONFIG='{\"cluster\": {\"ps\": [\"h0:2222\"]}, \"task\": {\"type\": \"ps\", \"index\": 0}}' ferroflow server")]
pub struct Arguments {
    /// All tasks on one line: JOB|HOST:PORT;HOST:PORT,JOB|HOST:PORT (a task may be given as INDEX=HOST:PORT)
    #[arg(long, value_name = "SPEC", conflicts_with_all = ["ps_hosts", "worker_hosts"])]
    cluster: Option<String>,
    /// The parameter servers, separated by commas
    #[arg(long = "ps_hosts", alias = "ps-hosts", value_name = "HOSTS")]
    ps_hosts: Option<String>,
    /// The workers, separated by commas
    #[arg(long = "worker_hosts", alias = "worker-hosts", value_name = "HOSTS")]
    worker_hosts: Option<String>,
    /// The job of this task
    #[arg(long = "job-name", alias = "job_name", value_name = "JOB")]
    job: Option<String>,
    /// The number of this task in its job
    #[arg(long = "task-index", alias = "task_index", value_name = "INDEX")]
    index: Option<u32>,
    /// Listen here rather than on the address of this task's own entry; 0.0.0.0:PORT is every interface
    #[arg(long, value_name = "HOST:PORT")]
    bind: Option<String>,
    /// CPU devices of this task; they share its threads
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    cpus: u32,
    /// Threads that compute; as many as there are cores unless given
    #[arg(long, value_name = "COUNT")]
    threads: Option<usize>,
    /// Seconds that a session waits for a task it needs
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0)]
    wait: f64,
}

/// Runs until it is told to stop.
pub fn run(arguments: Arguments) -> Result<()> {
    let (cluster, task) = arguments.place(std::env::var("TF_CONFIG").ok().as_deref())?;
    let wait = Duration::try_from_secs_f64(arguments.wait)
        .map_err(|_| invalid(format!("--wait is {}, wanted a number of seconds", arguments.wait)))?;
    let mut builder = Server::builder(&cluster, &task.job, task.index).device_count(arguments.cpus).patience(wait);
    if let Some(address) = arguments.bind {
        builder = builder.bind(address);
    }
    if let Some(threads) = arguments.threads {
        builder = builder.threads(threads);
    }
    let server = builder.start()?;
    tracing::info!(task = %task, target = server.target(), cluster = %server.cluster(), "serving");
    server.join()?;
    tracing::info!(task = %task, "stopped");
    Ok(())
}

impl Arguments {
    /// The cluster, and this task's place in it.
    fn place(&self, tf_config: Option<&str>) -> Result<(ClusterSpec, TaskName)> {
        let hosts = [("ps", self.ps_hosts.as_deref()), ("worker", self.worker_hosts.as_deref())];
        let (cluster, task) = if let Some(spec) = &self.cluster {
            (spec.parse()?, None)
        } else if hosts.iter().any(|(_, list)| list.is_some()) {
            (ClusterSpec::from_hosts(hosts.into_iter().filter_map(|(job, list)| Some((job, list?))))?, None)
        } else if let Some(config) = tf_config {
            ClusterSpec::from_tf_config(config)?
        } else {
            return Err(missing("the cluster", "--cluster, --ps_hosts and --worker_hosts, or TF_CONFIG"));
        };
        let job = self.job.clone().or_else(|| task.as_ref().map(|t| t.job.clone()));
        let index = self.index.or_else(|| task.as_ref().map(|t| t.index));
        let job = job.ok_or_else(|| missing("this task's job", "--job-name"))?;
        let only = cluster.num_tasks(&job)? == 1;
        let index = index.or(only.then_some(0)).ok_or_else(|| missing("this task's number", "--task-index"))?;
        cluster.task_address(&job, index)?;
        Ok((cluster, TaskName::new(job, index)))
    }
}

fn missing(what: &str, flags: &str) -> Error {
    invalid(format!("{what} is not given; use {flags} (ferroflow server --help shows examples)"))
}

fn invalid(message: String) -> Error {
    Error::new(Code::InvalidArgument, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn place(flags: &[&str], tf_config: Option<&str>) -> Result<String> {
        let line = Line::try_parse_from(std::iter::once(&"server").chain(flags)).map_err(|e| invalid(e.to_string()))?;
        line.arguments.place(tf_config).map(|(cluster, task)| format!("{task} of {cluster}"))
    }

    #[test]
    fn the_place_comes_from_every_source() {
        let ps0 = "/job:ps/replica:0/task:0 of ps|a:1,worker|b:2;c:3";
        let config = r#"{"cluster": {"ps": ["a:1"], "worker": ["b:2", "c:3"]}, "task": {"type": "ps", "index": 0}}"#;
        let cases: [(&[&str], Option<&str>, &str); 5] = [
            (&["--cluster", "ps|a:1,worker|b:2;c:3", "--job-name", "ps", "--task-index", "0"], None, ps0),
            (&["--cluster", "ps|a:1,worker|b:2;c:3", "--job_name=ps"], None, ps0),
            (&["--ps_hosts=a:1", "--worker_hosts=b:2,c:3", "--job_name=ps", "--task_index=0"], Some(config), ps0),
            (&[], Some(config), ps0),
            (
                &["--job_name=worker", "--task_index=1"],
                Some(config),
                "/job:worker/replica:0/task:1 of ps|a:1,worker|b:2;c:3",
            ),
        ];
        for (flags, tf_config, want) in cases {
            assert_eq!(place(flags, tf_config).unwrap(), want, "{flags:?}");
        }
    }

    #[test]
    fn what_is_missing_is_said() {
        let cases: [(&[&str], &str); 5] = [
            (&[], "the cluster is not given"),
            (&["--cluster", "ps|a:1"], "this task's job is not given"),
            (&["--cluster", "ps|a:1;b:1", "--job-name", "ps"], "this task's number is not given"),
            (&["--cluster", "ps|a:1", "--job-name", "pss"], "there is no job 'pss'"),
            (&["--cluster", "ps|a:1", "--job-name", "ps", "--task-index", "3"], "there is no task 3 in job 'ps'"),
        ];
        for (flags, want) in cases {
            let message = place(flags, None).unwrap_err().message;
            assert!(message.contains(want), "{flags:?}: {message}");
        }
    }
}

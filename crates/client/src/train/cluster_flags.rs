//! `ClusterFlags`: a program's cluster, and its own place there, from its command line or its surroundings.
//!
//! In this order: `--cluster`, `--ps_hosts` and `--worker_hosts`, the variable `TF_CONFIG`, and what SLURM tells each of
//! the processes it starts.

use super::slurm;
use crate::{ClusterSpec, TaskName};
use tensor::{Error, Result, invalid};

/// The flags of a program that is one task of a cluster: `#[command(flatten)] cluster: ClusterFlags`.
///
/// ```
/// use clap::Parser;
/// use ferroflow::prelude::*;
///
/// #[derive(Parser)]
/// struct Flags {
///     #[command(flatten)]
///     cluster: ClusterFlags,
/// }
///
/// let line = ["trainer", "--ps_hosts=a:1", "--worker_hosts=b:2,c:3", "--job_name=worker", "--task_index=1"];
/// let task = Flags::parse_from(line).cluster.task()?;
/// assert_eq!((task.job.as_str(), task.index), ("worker", 1));
/// assert_eq!(task.device(), "/job:worker/task:1");
/// assert_eq!(task.cluster.num_tasks("worker")?, 2);
/// # Ok::<(), ferroflow::Error>(())
/// ```
#[derive(clap::Args, Clone, Debug, Default)]
pub struct ClusterFlags {
    /// All tasks on one line: JOB|HOST:PORT;HOST:PORT,JOB|HOST:PORT (a task may be given as INDEX=HOST:PORT)
    #[arg(long, value_name = "SPEC", conflicts_with_all = ["ps_hosts", "worker_hosts"])]
    pub cluster: Option<String>,
    /// The parameter servers, separated by commas
    #[arg(long = "ps_hosts", alias = "ps-hosts", value_name = "HOSTS")]
    pub ps_hosts: Option<String>,
    /// The workers, separated by commas
    #[arg(long = "worker_hosts", alias = "worker-hosts", value_name = "HOSTS")]
    pub worker_hosts: Option<String>,
    /// The job of this task
    #[arg(long = "job_name", alias = "job-name", value_name = "JOB")]
    pub job_name: Option<String>,
    /// The number of this task in its job
    #[arg(long = "task_index", alias = "task-index", value_name = "INDEX")]
    pub task_index: Option<u32>,
    /// Under SLURM: how many of its tasks are parameter servers; they come first [default: 1]
    #[arg(long = "slurm_ps", alias = "slurm-ps", value_name = "COUNT")]
    pub slurm_ps: Option<u32>,
    /// Under SLURM: the port of a node's first task, counted up for further ones [default: 8888]
    #[arg(long = "slurm_port", alias = "slurm-port", value_name = "PORT")]
    pub slurm_port: Option<u16>,
}

/// A cluster, and the place of one program there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterTask {
    /// All tasks.
    pub cluster: ClusterSpec,
    /// The job of this one.
    pub job: String,
    /// Its number in the job.
    pub index: u32,
}

impl ClusterFlags {
    /// The cluster, and this program's place there; what is missing is said.
    pub fn task(&self) -> Result<ClusterTask> {
        self.task_in(&|name| std::env::var(name).ok())
    }

    /// The cluster alone: for a program that is no task of it, such as a client of servers that run already.
    pub fn cluster(&self) -> Result<ClusterSpec> {
        Ok(self.source(&|name| std::env::var(name).ok())?.0)
    }

    /// Whether anything tells of a cluster: a program may do without one.
    pub fn is_given(&self) -> bool {
        let flags = [&self.cluster, &self.ps_hosts, &self.worker_hosts, &self.job_name];
        flags.iter().any(|flag| flag.is_some())
            || ["TF_CONFIG", "SLURM_PROCID"].iter().any(|v| std::env::var_os(v).is_some())
    }

    /// The same with an environment of one's own.
    pub(crate) fn task_in(&self, variable: &dyn Fn(&str) -> Option<String>) -> Result<ClusterTask> {
        let (cluster, told) = self.source(variable)?;
        let job = self.job_name.clone().or_else(|| told.as_ref().map(|t| t.job.clone()));
        let job = job.ok_or_else(|| missing("this task's job", "--job_name"))?;
        let index = self.task_index.or(told.filter(|t| t.job == job).map(|t| t.index));
        let only = cluster.num_tasks(&job)? == 1;
        let index = index.or(only.then_some(0)).ok_or_else(|| missing("this task's number", "--task_index"))?;
        cluster.task_address(&job, index)?;
        Ok(ClusterTask { cluster, job, index })
    }

    /// The cluster, and the task if it was told with it.
    fn source(&self, variable: &dyn Fn(&str) -> Option<String>) -> Result<(ClusterSpec, Option<TaskName>)> {
        let hosts = [("ps", self.ps_hosts.as_deref()), ("worker", self.worker_hosts.as_deref())];
        if let Some(spec) = &self.cluster {
            Ok((spec.parse()?, None))
        } else if hosts.iter().any(|(_, list)| list.is_some()) {
            Ok((ClusterSpec::from_hosts(hosts.into_iter().filter_map(|(job, list)| Some((job, list?))))?, None))
        } else if let Some(config) = variable("TF_CONFIG") {
            ClusterSpec::from_tf_config(&config)
        } else if let Some(step) = slurm::Step::read(variable)? {
            let (cluster, task) = step.cluster(self.slurm_ps.unwrap_or(1), self.slurm_port.unwrap_or(8888))?;
            Ok((cluster, Some(task)))
        } else {
            Err(missing("the cluster", "--ps_hosts and --worker_hosts, --cluster, or the variable TF_CONFIG"))
        }
    }
}

impl ClusterTask {
    /// The task as a device: `/job:worker/task:1`.
    pub fn device(&self) -> String {
        format!("/job:{}/task:{}", self.job, self.index)
    }

    /// Its name as errors and logs spell it.
    pub fn name(&self) -> TaskName {
        TaskName::new(self.job.clone(), self.index)
    }
}

fn missing(what: &str, flags: &str) -> Error {
    invalid!("{what} is not given; use {flags} (--help shows all)")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        flags: ClusterFlags,
    }

    /// Flags, the environment, and what is wanted.
    type Case<'a> = (&'a [&'a str], &'a [(&'a str, &'a str)], &'a str);

    fn place(flags: &[&str], environment: &[(&str, &str)]) -> Result<String> {
        let line = Line::try_parse_from(std::iter::once(&"trainer").chain(flags)).map_err(|e| invalid!("{e}"))?;
        let variable =
            |name: &str| environment.iter().find(|(known, _)| *known == name).map(|(_, value)| value.to_string());
        line.flags.task_in(&variable).map(|task| format!("{} of {}", task.name(), task.cluster))
    }

    #[test]
    fn the_place_comes_from_every_source() {
        let ps0 = "/job:ps/replica:0/task:0 of ps|a:1,worker|b:2;c:3";
        let worker1 = "/job:worker/replica:0/task:1 of ps|a:1,worker|b:2;c:3";
        let config = r#"{"cluster": {"ps": ["a:1"], "worker": ["b:2", "c:3"]}, "task": {"type": "ps", "index": 0}}"#;
        let config = [("TF_CONFIG", config)];
        let slurm = [
            ("SLURM_STEP_NODELIST", "n[1-2]"),
            ("SLURM_STEP_TASKS_PER_NODE", "2,1"),
            ("SLURM_PROCID", "2"),
            ("SLURM_JOB_NODELIST", "n[1-9]"),
        ];
        let cases: [Case<'_>; 8] = [
            (&["--cluster", "ps|a:1,worker|b:2;c:3", "--job-name", "ps", "--task-index", "0"], &[], ps0),
            (&["--cluster", "ps|a:1,worker|b:2;c:3", "--job_name=ps"], &[], ps0),
            (&["--ps_hosts=a:1", "--worker_hosts=b:2,c:3", "--job_name=ps", "--task_index=0"], &config, ps0),
            (&[], &config, ps0),
            (&["--job_name=worker", "--task_index=1"], &config, worker1),
            (&[], &slurm, "/job:worker/replica:0/task:1 of ps|n1:8888,worker|n1:8889;n2:8888"),
            (
                &["--slurm_ps=2", "--slurm_port=70"],
                &slurm,
                "/job:worker/replica:0/task:0 of ps|n1:70;n1:71,worker|n2:70",
            ),
            (&["--job_name=ps"], &slurm, "/job:ps/replica:0/task:0 of ps|n1:8888,worker|n1:8889;n2:8888"),
        ];
        for (flags, environment, want) in cases {
            assert_eq!(place(flags, environment).unwrap(), want, "{flags:?}");
        }
    }

    #[test]
    fn what_is_missing_or_wrong_is_said() {
        let config = [("TF_CONFIG", r#"{"cluster": {"worker": ["b:2", "c:3"]}, "task": {"type": "ps", "index": 0}}"#)];
        let alone = [("SLURM_JOB_NODELIST", "n1"), ("SLURM_TASKS_PER_NODE", "1"), ("SLURM_PROCID", "0")];
        let cases: [Case<'_>; 9] = [
            (&[], &[], "the cluster is not given"),
            (&["--cluster", "ps|a:1"], &[], "this task's job is not given"),
            (&["--cluster", "ps|a:1;b:1", "--job_name", "ps"], &[], "this task's number is not given"),
            (&["--cluster", "ps|a:1", "--job_name", "pss"], &[], "there is no job 'pss'"),
            (&["--cluster", "ps|a:1", "--job_name", "ps", "--task_index", "3"], &[], "there is no task 3 in job 'ps'"),
            (&["--cluster", "ps|a:1", "--ps_hosts", "a:1"], &[], "cannot be used with"),
            (&[], &config, "there is no job 'ps'"),
            (&["--job_name=worker"], &config, "this task's number is not given"),
            (&[], &alone, "SLURM runs 1 task"),
        ];
        for (flags, environment, want) in cases {
            let message = place(flags, environment).unwrap_err().message;
            assert!(message.contains(want), "{flags:?}: {message}");
        }
    }
}

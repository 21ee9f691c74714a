//! Who is in a cluster, and how to reach them.

use crate::interface::WorkerInterface;
use crate::nearest::nearest;
use framework::{BoxFuture, DeviceName, DeviceSpec, FastMap};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use tensor::{Error, Result, invalid, not_found};

/// One task of a cluster: `/job:ps/replica:0/task:0`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TaskName {
    /// The job it belongs to.
    pub job: String,
    /// Its number within the job.
    pub index: u32,
}

impl TaskName {
    /// A task by job and number.
    pub fn new(job: impl Into<String>, index: u32) -> TaskName {
        TaskName { job: job.into(), index }
    }

    /// The task a device belongs to.
    pub fn of(device: &DeviceName) -> TaskName {
        TaskName::new(device.job.clone(), device.task)
    }

    /// Whether a filter such as `/job:ps` or `/job:worker/task:1` selects this task.
    pub fn fits(&self, filter: &DeviceSpec) -> bool {
        filter.job.as_ref().is_none_or(|job| *job == self.job)
            && filter.replica.is_none_or(|replica| replica == 0)
            && filter.task.is_none_or(|task| task == self.index)
    }
}

impl fmt::Display for TaskName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/job:{}/replica:0/task:{}", self.job, self.index)
    }
}

impl FromStr for TaskName {
    type Err = Error;

    fn from_str(text: &str) -> Result<TaskName> {
        let spec: DeviceSpec = text.parse()?;
        match (spec.job, spec.task) {
            (Some(job), Some(index)) => Ok(TaskName { job, index }),
            _ => Err(invalid!("'{text}' does not name a task; wanted something like /job:ps/task:0")),
        }
    }
}

/// All tasks of a cluster with their addresses, as every one of them knows it.
///
/// Written on one line it reads `ps|host:port;host:port,worker|host:port`; an index may be given, as in
/// `worker|3=host:port`.
/// A mistake is kept until [`check`](ClusterSpec::check), which every server calls when it starts, so that building
/// one reads without interruption.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterSpec {
    jobs: BTreeMap<String, BTreeMap<u32, String>>,
    problem: Option<Error>,
}

impl ClusterSpec {
    /// A cluster without tasks.
    pub fn new() -> ClusterSpec {
        ClusterSpec::default()
    }

    /// Adds a job whose tasks are numbered in order.
    pub fn job<A: Into<String>>(self, name: &str, addresses: impl IntoIterator<Item = A>) -> ClusterSpec {
        let numbered = addresses.into_iter().enumerate().map(|(i, a)| (i as u32, a.into()));
        self.sparse_job(name, numbered.collect())
    }

    /// Adds a job whose tasks have the numbers given: there may be gaps.
    pub fn sparse_job(mut self, name: &str, tasks: BTreeMap<u32, String>) -> ClusterSpec {
        let checked = check_job(name, &tasks);
        let is_new = self.jobs.insert(name.to_string(), tasks).is_none();
        let checked = checked.and(if is_new { Ok(()) } else { Err(invalid!("the job '{name}' is given twice")) });
        self.problem = self.problem.or(checked.err());
        self
    }

    /// What is wrong with it, if anything.
    pub fn check(&self) -> Result<()> {
        self.problem.clone().map_or(Ok(()), Err)
    }

    fn checked(self) -> Result<ClusterSpec> {
        self.check().map(|()| self)
    }

    /// From lists as `--ps_hosts=a:1,b:2 --worker_hosts=c:3` give them; an empty list is no job.
    pub fn from_hosts<'a>(jobs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<ClusterSpec> {
        let jobs = jobs.into_iter().filter(|(_, hosts)| !hosts.trim().is_empty());
        let spec = jobs.fold(ClusterSpec::new(), |spec, (job, hosts)| spec.job(job, hosts.split(',').map(str::trim)));
        spec.checked()
    }

    /// The cluster, and this task's place in it, as `TF_CONFIG` gives them: `{"cluster": {"ps": ["h:p"], …}, "task":
    /// {"type": "ps", "index": 0}}`. A job may be a list of addresses, or a dictionary from index to address.
    pub fn from_tf_config(json: &str) -> Result<(ClusterSpec, Option<TaskName>)> {
        let config: TfConfig = serde_json::from_str(json).map_err(|e| {
            invalid!("TF_CONFIG cannot be read: {e}; wanted {{\"cluster\": {{\"ps\": [\"host:port\"], …}}, \"task\": {{\"type\": \"ps\", \"index\": 0}}}}")
        })?;
        let spec = config.cluster.into_iter().try_fold(ClusterSpec::new(), |spec, (job, tasks)| match tasks {
            TfJob::List(addresses) => Ok(spec.job(&job, addresses)),
            TfJob::ByIndex(tasks) => {
                let number = |index: &str| {
                    index
                        .parse()
                        .map_err(|_| invalid!("job '{job}' has a task '{index}' in TF_CONFIG; wanted a number"))
                };
                let tasks = tasks.into_iter().map(|(index, address)| Ok((number(&index)?, address)));
                Ok::<_, Error>(spec.sparse_job(&job, tasks.collect::<Result<_>>()?))
            }
        });
        let task = config.task.map(|task| TaskName::new(task.job, task.index));
        Ok((spec?.checked()?, task))
    }

    /// The jobs' names, sorted.
    pub fn jobs(&self) -> impl Iterator<Item = &str> {
        self.jobs.keys().map(String::as_str)
    }

    /// How many tasks a job has.
    pub fn num_tasks(&self, job: &str) -> Result<usize> {
        Ok(self.tasks_of(job)?.len())
    }

    /// A job's tasks by number.
    pub fn tasks_of(&self, job: &str) -> Result<&BTreeMap<u32, String>> {
        self.jobs.get(job).ok_or_else(|| {
            let known: Vec<&str> = self.jobs().collect();
            let advice = nearest(job, self.jobs()).map(|near| format!("; did you mean '{near}'?")).unwrap_or_default();
            not_found!("there is no job '{job}' in the cluster; its jobs are {}{advice}", known.join(", "))
        })
    }

    /// Where a task listens.
    pub fn task_address(&self, job: &str, index: u32) -> Result<&str> {
        let tasks = self.tasks_of(job)?;
        tasks.get(&index).map(String::as_str).ok_or_else(|| {
            let known: Vec<String> = tasks.keys().map(u32::to_string).collect();
            not_found!("there is no task {index} in job '{job}'; its tasks are {}", known.join(", "))
        })
    }

    /// Every task, job by job.
    pub fn tasks(&self) -> impl Iterator<Item = (TaskName, &str)> {
        self.jobs.iter().flat_map(|(job, tasks)| {
            tasks.iter().map(|(index, address)| (TaskName::new(job.clone(), *index), address.as_str()))
        })
    }

    /// Jobs, each with its tasks' addresses by number.
    pub fn as_dict(&self) -> &BTreeMap<String, BTreeMap<u32, String>> {
        &self.jobs
    }

    /// The same cluster with another address for one task: for a port that was chosen when it was bound.
    pub fn with_address(mut self, task: &TaskName, address: impl Into<String>) -> Result<ClusterSpec> {
        self.task_address(&task.job, task.index)?;
        if let Some(tasks) = self.jobs.get_mut(&task.job) {
            tasks.insert(task.index, address.into());
        }
        Ok(self)
    }

    /// As a message.
    pub fn to_proto(&self) -> proto::ClusterDef {
        let jobs = self.jobs.iter().map(|(name, tasks)| proto::JobDef {
            name: name.clone(),
            tasks: tasks.iter().map(|(index, address)| (*index as i32, address.clone())).collect(),
        });
        proto::ClusterDef { job: jobs.collect() }
    }

    /// From a message.
    pub fn from_proto(message: &proto::ClusterDef) -> Result<ClusterSpec> {
        let spec = message.job.iter().try_fold(ClusterSpec::new(), |spec, job| {
            let tasks = job.tasks.iter().map(|(index, address)| {
                let index = u32::try_from(*index).map_err(|_| invalid!("job '{}' has a task {index}", job.name))?;
                Ok((index, address.clone()))
            });
            Ok::<_, Error>(spec.sparse_job(&job.name, tasks.collect::<Result<_>>()?))
        });
        spec?.checked()
    }
}

impl FromStr for ClusterSpec {
    type Err = Error;

    fn from_str(text: &str) -> Result<ClusterSpec> {
        let jobs = text.split(',').filter(|job| !job.trim().is_empty());
        let spec = jobs.into_iter().try_fold(ClusterSpec::new(), |spec, job| {
            let wanted = || invalid!("'{job}' is not a job of a cluster; wanted NAME|HOST:PORT;HOST:PORT;…");
            let (name, hosts) = job.trim().split_once('|').ok_or_else(wanted)?;
            let mut tasks = BTreeMap::new();
            for (place, host) in hosts.split(';').map(str::trim).enumerate() {
                let (index, address) = match host.split_once('=') {
                    Some((index, address)) => (index.parse().map_err(|_| wanted())?, address),
                    None => (place as u32, host),
                };
                if tasks.insert(index, address.to_string()).is_some() {
                    return Err(invalid!("task {index} of job '{name}' is given twice"));
                }
            }
            Ok(spec.sparse_job(name, tasks))
        });
        spec?.checked()
    }
}

impl fmt::Display for ClusterSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (job, tasks)) in self.jobs.iter().enumerate() {
            write!(f, "{}{job}|", if i > 0 { "," } else { "" })?;
            for (place, (index, address)) in tasks.iter().enumerate() {
                let separator = if place > 0 { ";" } else { "" };
                let index = if place as u32 == *index { String::new() } else { format!("{index}=") };
                write!(f, "{separator}{index}{address}")?;
            }
        }
        Ok(())
    }
}

/// `TF_CONFIG` as it is written; what else it holds is for others.
#[derive(serde::Deserialize)]
struct TfConfig {
    cluster: BTreeMap<String, TfJob>,
    task: Option<TfTask>,
}

#[derive(serde::Deserialize)]
#[serde(untagged)]
enum TfJob {
    List(Vec<String>),
    /// The index is text, as all keys are.
    ByIndex(BTreeMap<String, String>),
}

#[derive(serde::Deserialize)]
struct TfTask {
    #[serde(rename = "type")]
    job: String,
    #[serde(default, deserialize_with = "index_or_text")]
    index: u32,
}

/// Some launchers write the index as text.
fn index_or_text<'de, D: serde::Deserializer<'de>>(from: D) -> std::result::Result<u32, D::Error> {
    #[derive(serde::Deserialize)]
    #[serde(untagged)]
    enum Index {
        Number(u32),
        Text(String),
    }
    match serde::Deserialize::deserialize(from)? {
        Index::Number(number) => Ok(number),
        Index::Text(text) => text.parse().map_err(serde::de::Error::custom),
    }
}

fn check_job(name: &str, tasks: &BTreeMap<u32, String>) -> Result<()> {
    if !is_job_name(name) {
        return Err(invalid!("'{name}' is not a job's name: a letter, then letters, digits and underscores"));
    }
    for (index, address) in tasks {
        check_address(address).map_err(|why| invalid!("the address '{address}' of /job:{name}/task:{index} {why}"))?;
    }
    Ok(())
}

fn is_job_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic()) && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// `host:port`; what is wrong with it otherwise.
fn check_address(address: &str) -> Result<(), &'static str> {
    let Some((host, port)) = address.rsplit_once(':') else { return Err("has no port; wanted HOST:PORT") };
    if host.is_empty() {
        return Err("has no host; wanted HOST:PORT");
    }
    port.parse::<u16>().map(|_| ()).map_err(|_| "has a port that is not a number up to 65535; wanted HOST:PORT")
}

/// The world outside a task.
pub trait Network: Send + Sync {
    /// The worker of the task at this address. Nothing is sent yet; a peer that cannot be reached is an error of the
    /// call that needs it.
    fn worker(&self, task: &TaskName, address: &str) -> Result<Arc<dyn WorkerInterface>>;
    /// Lets work go on that nobody waits for.
    fn spawn(&self, work: BoxFuture<()>);
}

/// The other tasks of a cluster, as one of them sees them.
pub struct Peers {
    cluster: ClusterSpec,
    own: TaskName,
    network: Arc<dyn Network>,
    known: Mutex<FastMap<TaskName, Arc<dyn WorkerInterface>>>,
}

impl Peers {
    /// The cluster as seen from `own`.
    pub fn new(cluster: ClusterSpec, own: TaskName, network: Arc<dyn Network>) -> Peers {
        Peers { cluster, own, network, known: Mutex::default() }
    }

    /// The task that looks.
    pub fn own(&self) -> &TaskName {
        &self.own
    }

    /// All there are, the one that looks included.
    pub fn cluster(&self) -> &ClusterSpec {
        &self.cluster
    }

    /// The other tasks that filters select; all if there are none.
    pub fn others(&self, filters: &[DeviceSpec]) -> Vec<TaskName> {
        let tasks = self.cluster.tasks().map(|(task, _)| task).filter(|task| *task != self.own);
        tasks.filter(|task| filters.is_empty() || filters.iter().any(|filter| task.fits(filter))).collect()
    }

    /// How they are reached.
    pub fn network(&self) -> &Arc<dyn Network> {
        &self.network
    }

    /// The worker of another task.
    pub fn worker(&self, task: &TaskName) -> Result<Arc<dyn WorkerInterface>> {
        if let Some(known) = self.known.lock().get(task) {
            return Ok(known.clone());
        }
        let address = self.cluster.task_address(&task.job, task.index)?;
        let worker = self.network.worker(task, address)?;
        Ok(self.known.lock().entry(task.clone()).or_insert(worker).clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_is_written_on_one_line_and_read_back() {
        let cases = [
            ("ps|a:1;b:2,worker|c:3", "ps|a:1;b:2,worker|c:3"),
            ("worker|3=c:3;5=d:4", "worker|3=c:3;5=d:4"),
            ("ps|0=a:1;1=b:2", "ps|a:1;b:2"),
            ("ps|[::1]:80", "ps|[::1]:80"),
            ("", ""),
        ];
        for (text, want) in cases {
            let spec: ClusterSpec = text.parse().unwrap();
            assert_eq!(spec.to_string(), want);
            assert_eq!(ClusterSpec::from_proto(&spec.to_proto()).unwrap(), spec);
        }
    }

    #[test]
    fn what_is_wrong_with_a_cluster_is_said() {
        let cases = [
            ("ps", "wanted NAME|HOST:PORT"),
            ("ps|a", "has no port"),
            ("ps|:1", "has no host"),
            ("ps|a:99999", "not a number up to 65535"),
            ("ps|a:1,ps|b:1", "given twice"),
            ("ps|1=a:1;1=b:1", "given twice"),
            ("1ps|a:1", "is not a job's name"),
        ];
        for (text, want) in cases {
            let message = text.parse::<ClusterSpec>().unwrap_err().message;
            assert!(message.contains(want), "{text}: {message}");
        }
    }

    #[test]
    fn tf_config_gives_the_cluster_and_the_task() {
        let (spec, task) = ClusterSpec::from_tf_config(
            r#"{"cluster": {"worker": {"1": "c:3"}, "ps": ["a:1", "b:2"]}, "task": {"type": "ps", "index": "1"}, "environment": "cloud"}"#,
        )
        .unwrap();
        assert_eq!(spec.to_string(), "ps|a:1;b:2,worker|1=c:3");
        assert_eq!(task, Some(TaskName::new("ps", 1)));
        let (_, nobody) = ClusterSpec::from_tf_config(r#"{"cluster": {"ps": ["a:1"]}}"#).unwrap();
        assert_eq!(nobody, None);
        for (wrong, want) in
            [("", "cannot be read"), ("{}", "cluster"), (r#"{"cluster": {"ps": ["a"]}}"#, "has no port")]
        {
            let message = ClusterSpec::from_tf_config(wrong).unwrap_err().message;
            assert!(message.contains(want), "{wrong}: {message}");
        }
    }

    #[test]
    fn tasks_are_found_by_job_and_number() {
        let spec = ClusterSpec::from_hosts([("ps", "a:1, b:2"), ("worker", "")]).unwrap();
        assert_eq!(spec.jobs().collect::<Vec<_>>(), ["ps"]);
        assert_eq!(spec.num_tasks("ps").unwrap(), 2);
        assert_eq!(spec.task_address("ps", 1).unwrap(), "b:2");
        assert!(spec.task_address("ps", 2).unwrap_err().message.contains("its tasks are 0, 1"));
        assert!(spec.num_tasks("worker").unwrap_err().message.contains("its jobs are ps"));
        let task: TaskName = "/job:ps/task:1".parse().unwrap();
        assert_eq!(spec.with_address(&task, "b:9").unwrap().task_address("ps", 1).unwrap(), "b:9");
        assert!(task.fits(&"/job:ps".parse().unwrap()) && !task.fits(&"/job:ps/task:0".parse().unwrap()));
    }
}

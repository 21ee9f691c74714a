//! What one task runs: the program with this task's place filled in.

use crate::processes::{Program, Stop};
use ferroflow::{ClusterSpec, Code, Error, Result, TaskName};
use serde_json::json;
use std::collections::BTreeMap;

/// Stands for all the flags of a task.
pub const FLAGS: &str = "{flags}";

/// A program as one task: placeholders filled in, and `TF_CONFIG` in the environment.
pub fn of_task(arguments: &[String], cluster: &ClusterSpec, task: &TaskName) -> Result<Program> {
    let address = cluster.task_address(&task.job, task.index)?;
    let filled = arguments.iter().flat_map(|argument| match argument.as_str() {
        FLAGS => flags(cluster, task),
        _ => vec![fill(argument, cluster, task, address)],
    });
    let arguments: Vec<String> = filled.collect();
    if arguments.first().is_none_or(String::is_empty) {
        return Err(Error::new(Code::InvalidArgument, "the program after -- has no name"));
    }
    let environment = BTreeMap::from([("TF_CONFIG".to_string(), tf_config(cluster, task, json!(task.index)))]);
    Ok(Program { arguments, environment, stop: Stop::Signal })
}

/// The command line of a server of ours, to be filled in.
pub fn server(task: &TaskName) -> Result<Vec<String>> {
    let own = std::env::current_exe()?;
    let name = format!("--job-name={}", task.job);
    let number = format!("--task-index={}", task.index);
    Ok(vec![own.to_string_lossy().into_owned(), "server".into(), "--cluster={cluster}".into(), name, number])
}

/// `--ps_hosts=… --worker_hosts=… --job_name=… --task_index=…`, as the programs of the guide take them.
pub fn flags(cluster: &ClusterSpec, task: &TaskName) -> Vec<String> {
    let hosts = |(job, tasks): (&String, &BTreeMap<u32, String>)| {
        let addresses: Vec<&str> = tasks.values().map(String::as_str).collect();
        format!("--{job}_hosts={}", addresses.join(","))
    };
    let place = [format!("--job_name={}", task.job), format!("--task_index={}", task.index)];
    cluster.as_dict().iter().map(hosts).chain(place).collect()
}

fn fill(argument: &str, cluster: &ClusterSpec, task: &TaskName, address: &str) -> String {
    let all_flags = || flags(cluster, task).join(" ");
    argument
        .replace("{cluster}", &cluster.to_string())
        .replace("{job}", &task.job)
        .replace("{index}", &task.index.to_string())
        .replace("{address}", address)
        .replace(FLAGS, &all_flags())
}

/// The cluster and a task's place in it, as TensorFlow's own programs read them.
pub fn tf_config(cluster: &ClusterSpec, task: &TaskName, index: serde_json::Value) -> String {
    let jobs: BTreeMap<&str, Vec<&String>> =
        cluster.as_dict().iter().map(|(job, tasks)| (job.as_str(), tasks.values().collect())).collect();
    json!({"cluster": jobs, "task": {"type": task.job, "index": index}}).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(given: &[&str]) -> Vec<String> {
        let cluster: ClusterSpec = "ps|a:1,worker|b:2;c:3".parse().unwrap();
        let given: Vec<String> = given.iter().map(|a| a.to_string()).collect();
        of_task(&given, &cluster, &TaskName::new("worker", 1)).unwrap().arguments
    }

    #[test]
    fn a_task_finds_its_place_among_the_arguments() {
        let flags = ["--ps_hosts=a:1", "--worker_hosts=b:2,c:3", "--job_name=worker", "--task_index=1"];
        assert_eq!(arguments(&["t", "{flags}", "--x"]), [&["t"], &flags[..], &["--x"]].concat());
        assert_eq!(arguments(&["t", "log.{job}.{index}"]), ["t", "log.worker.1"]);
        assert_eq!(arguments(&["t", "{cluster}", "{address}"]), ["t", "ps|a:1,worker|b:2;c:3", "c:3"]);
        assert_eq!(arguments(&["sh", "-c", "t {flags}"])[2], format!("t {}", flags.join(" ")));
    }

    #[test]
    fn the_environment_tells_it_too() {
        let cluster: ClusterSpec = "ps|a:1,worker|b:2;c:3".parse().unwrap();
        let program = of_task(&["t".into()], &cluster, &TaskName::new("worker", 1)).unwrap();
        let (found, task) = ClusterSpec::from_tf_config(&program.environment["TF_CONFIG"]).unwrap();
        assert_eq!((found, task), (cluster, Some(TaskName::new("worker", 1))));
    }
}

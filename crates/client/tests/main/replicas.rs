//! The programs that train replicas, as real processes: each task of a cluster is a program of its own.

use crate::programs::{Program, free_addresses};

/// The tasks of a cluster, each running the same example: the parameter servers and the workers in order.
fn start_cluster(example: &str, num_ps: usize, num_workers: usize, flags: &[&str]) -> (Vec<Program>, Vec<Program>) {
    let addresses = free_addresses(num_ps + num_workers);
    let (ps, workers) = addresses.split_at(num_ps);
    let hosts = [format!("--ps_hosts={}", ps.join(",")), format!("--worker_hosts={}", workers.join(","))];
    let start = |job: &str, index: usize| {
        let place = [format!("--job_name={job}"), format!("--task_index={index}")];
        let arguments: Vec<&str> =
            hosts.iter().chain(&place).map(String::as_str).chain(flags.iter().copied()).collect();
        Program::start(example, &arguments)
    };
    let ps = (0..num_ps).map(|index| start("ps", index)).collect();
    (ps, (0..num_workers).map(|index| start("worker", index)).collect())
}

/// The number that follows `word` in each line that has it.
fn numbers_after(lines: &[String], word: &str) -> Vec<f64> {
    let number = |rest: &str| rest.trim_start().split(|c: char| !"0123456789.e-".contains(c)).next()?.parse().ok();
    lines.iter().filter_map(|line| number(line.split_once(word)?.1)).collect()
}

#[test]
fn in_graph_trains_a_tower_on_each_worker() {
    let (_ps, mut workers) = start_cluster("in_graph", 1, 2, &["--steps=41"]);
    let mut client = workers.remove(0);
    client.wait_for("step    0");
    let losses = numbers_after(&client.finish(), "towers ");
    assert!(losses.len() == 5 && losses[4] < 0.7 * losses[0], "{losses:?}");
}

#[test]
fn model_parallel_trains_layers_on_different_workers() {
    let (_, mut workers) = start_cluster("model_parallel", 0, 2, &["--steps=61"]);
    let losses = numbers_after(&workers.remove(0).finish(), "loss ");
    assert!(losses.len() == 7 && losses[6] < 0.7 * losses[0], "{losses:?}");
}

/// Trains digits on two parameter servers and two workers, all of which end; what each worker said.
fn train_digits(flags: &[&str]) -> [Vec<String>; 2] {
    let (servers, workers) = start_cluster("mnist_replica", 2, 2, flags);
    let said: Vec<Vec<String>> = workers.into_iter().map(Program::finish).collect();
    servers.into_iter().for_each(|server| drop(server.finish()));
    said.try_into().expect("two workers")
}

#[test]
fn mnist_replica_trains_asynchronously_and_counts_the_steps_of_all() {
    let said = train_digits(&["--train_steps=150"]);
    let accuracies: Vec<f64> = said.iter().flat_map(|lines| numbers_after(lines, "validation accuracy = ")).collect();
    assert!(accuracies.len() == 2 && accuracies.iter().all(|accuracy| *accuracy > 0.8), "{said:?}");
    let runs: usize = said.iter().map(|lines| numbers_after(lines, "global step: ").len()).sum();
    assert!((150..=152).contains(&runs), "each run is a step: {runs}");
}

#[test]
fn mnist_replica_trains_synchronously_and_counts_rounds() {
    let said = train_digits(&["--train_steps=40", "--sync_replicas"]);
    let accuracy = numbers_after(&said[0], "validation accuracy = ");
    assert!(accuracy.len() == 1 && accuracy[0] > 0.7, "{said:?}");
    let runs: usize = said.iter().map(|lines| numbers_after(lines, "global step: ").len()).sum();
    assert!(runs >= 79, "each step takes two gradients: {runs}");
}

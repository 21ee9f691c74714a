//! The examples run, and find what they should. They are compiled in here, and by cargo as programs.

#[allow(dead_code, clippy::duplicate_mod)] // each is compiled in whole, its own `main` and reader of digits too
#[path = "../../examples/linear_regression.rs"]
mod linear_regression;
#[allow(dead_code, clippy::duplicate_mod)] // each is compiled in whole, its own `main` and reader of digits too
#[path = "../../examples/mnist_cnn.rs"]
mod mnist_cnn;
#[allow(dead_code, clippy::duplicate_mod)] // each is compiled in whole, its own `main` and reader of digits too
#[path = "../../examples/mnist_local.rs"]
mod mnist_local;

use crate::programs::{Program, free_addresses};
use ferroflow::Server;

#[test]
fn hello_says_hello() {
    let mut hello = Program::start("hello", &[]);
    hello.wait_for("Hello");
    assert_eq!(hello.finish(), ["Hello, distributed world!"]);
}

#[test]
fn two_servers_are_one_cluster() {
    let hosts = free_addresses(2).join(",");
    let _second = Program::start("local_cluster", &["--local_hosts", &hosts, "--task_index", "1"]);
    let first = Program::start("local_cluster", &["--local_hosts", &hosts, "--task_index", "0"]);
    let one_process = Program::start("local_cluster", &[]);
    for program in [first, one_process] {
        let wanted = [
            "w = 3, sum of v times w = 9",
            "the other session sees v = [11 12], sum of v times w = 69",
            "devices: /job:local/replica:0/task:0/device:CPU:0 /job:local/replica:0/task:1/device:CPU:0",
        ];
        assert_eq!(program.finish(), wanted);
    }
}

#[test]
fn device_pinned_learns_on_three_tasks() {
    let hosts = free_addresses(3);
    let cluster = format!("--cluster=ps|{};{},worker|{}", hosts[0], hosts[1], hosts[2]);
    let start = |flags: &[&str]| Program::start("device_pinned", &[&[cluster.as_str()], flags].concat());
    let _first = start(&["--job_name=ps", "--task_index=0"]);
    let _second = start(&["--job_name=ps", "--task_index=1"]);
    let lines = start(&["--job_name=worker"]).finish();
    let losses: Vec<f32> = lines.iter().map(|line| line.rsplit(' ').next().unwrap().parse().unwrap()).collect();
    assert!(losses.len() == 20 && losses.last() < losses.first(), "{losses:?}");
    assert_eq!(Program::start("device_pinned", &[]).finish(), lines, "one process computes the same");
}

#[test]
fn linear_regression_finds_the_line() {
    let (w, b) = linear_regression::fit(100).unwrap();
    assert!((w - 3.0).abs() < 0.05 && (b - 2.0).abs() < 0.05, "y = {w} x + {b}");
}

#[test]
fn mnist_local_learns_the_digits() {
    let flags = mnist_local::mnist_data::Flags { data_dir: None, steps: Some(100) };
    let accuracy = mnist_local::train(&flags).unwrap();
    assert!(accuracy > 0.9, "{accuracy}");
}

#[test]
fn mnist_cnn_trains() {
    let flags = mnist_cnn::mnist_data::Flags { data_dir: None, steps: Some(4) };
    let accuracy = mnist_cnn::train(&flags, 20).unwrap();
    assert!(accuracy > 0.1, "better than guessing: {accuracy}");
}

#[test]
fn bench_client_measures_every_kind_of_step() {
    for (workload, wanted) in [
        ("null_step", "null step, 16 threads"),
        ("step_over_two_tasks", "step over ps and worker, 1 thread: median time"),
        ("training", "MNIST replica, asynchronous, 1 ps and 2 workers"),
        ("training_sync", "MNIST replica, synchronous, 1 ps and 2 workers"),
        ("towers", "in-graph, 2 towers, fed by the client"),
        ("dense_4KB", "push 4 KB"),
    ] {
        let servers = Server::create_cluster([("ps", 1), ("worker", 2)]).unwrap();
        let hosts = |job: &str, count: u32| {
            let addresses = (0..count).map(|index| servers[0].cluster().task_address(job, index).unwrap().to_string());
            format!("--{job}_hosts={}", addresses.collect::<Vec<_>>().join(","))
        };
        let flags = [workload, &hosts("ps", 1), &hosts("worker", 2), "--seconds", "0.01"];
        let lines = Program::start("bench_client", &flags).finish();
        let fields: Vec<Vec<&str>> = lines.iter().map(|line| line.split('\t').collect()).collect();
        let is_measurement = |line: &Vec<&str>| line.len() == 3 && line[1].parse::<f64>().is_ok();
        assert!(fields.iter().all(is_measurement), "{workload}: {lines:?}");
        assert!(fields.iter().any(|line| line[0] == wanted), "{workload}: {lines:?}");
    }
}

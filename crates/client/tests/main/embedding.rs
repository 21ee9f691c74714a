//! The example `embedding` as processes: a table over two parameter servers, and then over three.

use crate::programs::{Program, free_addresses};

/// What a worker says of `steps` steps on a cluster with so many parameter servers.
fn train(num_ps: usize, steps: &str, folder: &str) -> Vec<String> {
    let addresses = free_addresses(num_ps + 1);
    let (ps, worker) = (addresses[1..].join(","), addresses[0].clone());
    let start = |job: &str, index: usize| {
        let index = index.to_string();
        let cluster = ["--ps_hosts", &ps, "--worker_hosts", &worker, "--job_name", job, "--task_index", &index];
        let model = ["--words", "2000", "--steps", steps, "--checkpoint_dir", folder];
        Program::start("embedding", &[&cluster[..], &model[..]].concat())
    };
    let _servers: Vec<Program> = (0..num_ps).map(|index| start("ps", index)).collect();
    start("worker", 0).finish()
}

fn losses(lines: &[String]) -> Vec<f32> {
    lines.iter().filter_map(|line| line.split_once("loss ")?.1.parse().ok()).collect()
}

#[test]
fn a_table_over_two_servers_is_trained_and_then_goes_on_over_three() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().to_str().unwrap();
    let first = train(2, "101", folder);
    assert_eq!(
        first[..2],
        ["table/part_0: float[1000,8] on /job:ps/task:0", "table/part_1: float[1000,8] on /job:ps/task:1"]
    );
    let rows = first.iter().find(|line| line.contains("looked up")).unwrap();
    let numbers: Vec<usize> = rows.split(' ').filter_map(|word| word.parse().ok()).collect();
    assert!(numbers[0] == numbers[2] && numbers[0] < numbers[1], "{rows}");
    assert!(losses(&first).last() < losses(&first).first(), "{first:?}");
    assert_eq!(first.last(), Some(&format!("saved {folder}/embedding-101")));

    let second = train(3, "51", folder);
    assert_eq!(second[0], "table/part_0: float[667,8] on /job:ps/task:0");
    assert_eq!(second[3], format!("restored {folder}/embedding-101"));
    assert!(second[4].starts_with("step  101 "), "{second:?}");
    assert!(losses(&second)[0] < losses(&first)[0] * 0.95, "it began anew: {first:?} {second:?}");
    assert_eq!(second.last(), Some(&format!("saved {folder}/embedding-152")));
}

//! Workers of synchronous training that are killed, or done before others: each task is a process of its own.

use crate::programs::{Program, free_addresses};
use ferroflow::prelude::*;
use ferroflow::train::LostWorker;
use std::process::Command;
use std::time::{Duration, Instant};

/// What a process of these tests is told by.
const ROLE: &str = "FERROFLOW_TEST_TASK";
/// How many kills to try, and to measure.
const KILLS: &str = "FERROFLOW_TEST_KILLS";

/// A parameter server and some workers, all to step together.
struct Training {
    cluster: String,
    workers: usize,
    policy: LostWorker,
    ps: Program,
}

impl Training {
    fn start(workers: usize, policy: LostWorker) -> Training {
        let addresses = free_addresses(workers + 1);
        let cluster = format!("ps|{},worker|{}", addresses[0], addresses[1..].join(";"));
        let mut ps = task(&cluster, "ps", 0, workers, policy, 0);
        ps.wait_for("serving");
        Training { cluster, workers, policy, ps }
    }

    /// A worker with this much to do; the first is the chief.
    fn worker(&self, index: usize, batches: usize) -> Program {
        task(&self.cluster, "worker", index, self.workers, self.policy, batches)
    }
}

/// This program once more, as a task.
fn task(cluster: &str, job: &str, index: usize, workers: usize, policy: LostWorker, batches: usize) -> Program {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["liveness::a_task", "--exact", "--ignored", "--nocapture"]);
    command.env(ROLE, format!("{cluster} {job} {index} {workers} {policy} {batches}"));
    Program::run(&format!("{job} {index}"), command)
}

#[test]
#[ignore = "a process that the tests of this file start"]
fn a_task() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let words: Vec<&str> = role.split(' ').collect();
    let [cluster, job, index, workers, policy, batches] = words[..] else { panic!("{role}") };
    let (cluster, index): (ClusterSpec, u32) = (cluster.parse().unwrap(), index.parse().unwrap());
    let server = Server::start(&cluster, job, index).unwrap();
    println!("serving");
    if job == "ps" {
        return server.join().unwrap();
    }
    let optimizer = SyncReplicas::new(GradientDescent::new(0.01))
        .replicas_to_aggregate(workers.parse().unwrap())
        .total_num_replicas(workers.parse().unwrap())
        .when_a_worker_dies(policy.parse().unwrap());
    if let Err(error) = train(&server, index, &optimizer, batches.parse().unwrap()) {
        eprintln!("{error}");
        std::process::exit(1);
    }
    println!("done");
}

fn train(server: &Server, index: u32, optimizer: &SyncReplicas, mut batches: usize) -> Result<()> {
    let g = Graph::new();
    let place = format!("/job:worker/task:{index}");
    let (step, train) = g.device(replica_device_setter(server.cluster()).worker_device(place), || {
        let step = g.global_step();
        let (w, b) = (g.variable("w", [4.0f32, -2.0]), g.variable("b", 1.0f32));
        let loss = w.square().sum() + b.square();
        let train = optimizer.minimize(&loss).increment(&step);
        (step, train)
    });
    let mut session = MonitoredTrainingSession::new(&g)
        .master(server.target())
        .is_chief(index == 0)
        .hook(optimizer.hook(index == 0))
        .log_step_count_steps(0)
        .start()?;
    println!("ready");
    session.run_until_stop(|session| {
        if batches == 0 {
            session.request_stop();
            return Ok(());
        }
        batches -= 1;
        session.run(&train)?;
        println!("step {}", session.raw()?.run(&step)?);
        Ok(())
    })
}

/// More than anybody does in these tests.
const ENDLESS: usize = 1 << 40;

#[test]
fn a_worker_that_is_killed_holds_nobody_up_and_counts_again_when_it_is_back() {
    let asked: Option<usize> = std::env::var(KILLS).ok().map(|kills| kills.parse().unwrap());
    let (kills, limit) = (asked.unwrap_or(10), Duration::from_secs(if asked.is_some() { 3 } else { 20 }));
    let training = Training::start(2, LostWorker::Shrink);
    let mut chief = training.worker(0, ENDLESS);
    let mut worst = Duration::ZERO;
    for kill in 0..kills {
        let mut other = training.worker(1, ENDLESS);
        if kill % 3 == 0 {
            other.wait_for("step"); // otherwise it may die before it has begun
        }
        let point = Duration::from_millis((kill as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 55); // up to half a second
        other.listen(point);
        other.kill();
        chief.listen(Duration::ZERO);
        let since = Instant::now();
        // What the killed one gave before may make one more step.
        (0..3).for_each(|_| drop(chief.wait_for("step")));
        worst = worst.max(since.elapsed());
        assert!(since.elapsed() < limit, "kill {kill}: {:?}", since.elapsed());
    }
    println!("after each of {kills} kills the other worker went on, at the latest after {worst:?}");
}

#[test]
fn a_lost_worker_is_named_in_an_error_if_that_is_wanted() {
    let training = Training::start(2, LostWorker::Fail);
    let (mut chief, mut other) = (training.worker(0, ENDLESS), training.worker(1, ENDLESS));
    for worker in [&mut chief, &mut other] {
        (0..3).for_each(|_| drop(worker.wait_for("step")));
    }
    other.kill();
    let said = chief.fail().join("\n");
    assert!(said.contains("/job:worker/replica:0/task:1 was lost"), "{said}");
}

#[test]
fn whoever_has_less_to_do_ends_earlier_and_all_end_well() {
    // Of the first the chief has most to do, and of the second least: then the others have nobody to go on with.
    for batches in [&[100, 90, 80, 10][..], &[5, 100, 100]] {
        let training = Training::start(batches.len(), LostWorker::Shrink);
        let workers: Vec<_> = batches.iter().enumerate().map(|(i, &count)| training.worker(i, count)).collect();
        for worker in workers {
            let said = worker.finish();
            assert!(said.iter().any(|line| line.contains("done")), "{batches:?}: {}", said.join("\n"));
        }
        drop(training.ps);
    }
}

//! Workers of synchronous training that are killed, or done before others: each task is a process of its own.

use crate::programs::{Program, free_addresses};
use ferroflow::prelude::*;
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
    policy: &'static str,
    /// Whether the servers of the workers are processes of their own.
    is_apart: bool,
    servers: Vec<Program>,
}

/// What a policy is called with which workers do not step together.
const ALONE: &str = "alone";

impl Training {
    fn start(workers: usize, policy: &'static str) -> Training {
        Training::with_servers(workers, policy, false)
    }

    /// Workers that are clients of servers which run already.
    fn on_existing_servers(workers: usize, policy: &'static str) -> Training {
        Training::with_servers(workers, policy, true)
    }

    fn with_servers(workers: usize, policy: &'static str, is_apart: bool) -> Training {
        let addresses = free_addresses(workers + 1);
        let cluster = format!("ps|{},worker|{}", addresses[0], addresses[1..].join(";"));
        let mut training = Training { cluster, workers, policy, is_apart, servers: Vec::new() };
        training.servers.push(training.task("serve", "ps", 0, 0));
        let apart = if is_apart { 0..workers } else { 0..0 };
        training.servers.extend(apart.map(|index| training.task("serve", "worker", index, 0)).collect::<Vec<_>>());
        training.servers.iter_mut().for_each(|server| drop(server.wait_for("serving")));
        training
    }

    /// A worker with this much to do; the first is the chief.
    fn worker(&self, index: usize, batches: usize) -> Program {
        self.task(if self.is_apart { "use" } else { "train" }, "worker", index, batches)
    }

    /// This program once more, as a task.
    fn task(&self, what: &str, job: &str, index: usize, batches: usize) -> Program {
        let Training { cluster, workers, policy, .. } = self;
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["liveness::a_task", "--exact", "--ignored", "--nocapture"]);
        command.env(ROLE, format!("{what} {cluster} {job} {index} {workers} {policy} {batches}"));
        Program::run(&format!("{job} {index} of {policy}"), command)
    }
}

#[test]
#[ignore = "a process that the tests of this file start"]
fn a_task() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let words: Vec<&str> = role.split(' ').collect();
    let [what, cluster, job, index, workers, policy, batches] = words[..] else { panic!("{role}") };
    let (cluster, index): (ClusterSpec, u32) = (cluster.parse().unwrap(), index.parse().unwrap());
    let server = (what != "use").then(|| Server::start(&cluster, job, index).unwrap());
    println!("serving");
    if what == "serve" {
        return server.unwrap().join().unwrap();
    }
    let target = format!("grpc://{}", cluster.task_address(job, index).unwrap());
    let together = (policy != ALONE).then(|| {
        SyncReplicas::new(GradientDescent::new(0.01))
            .replicas_to_aggregate(workers.parse().unwrap())
            .total_num_replicas(workers.parse().unwrap())
            .when_a_worker_dies(policy.parse().unwrap())
    });
    if let Err(error) = train(&target, &cluster, index, together, batches.parse().unwrap()) {
        eprintln!("{error}");
        std::process::exit(1);
    }
    println!("done");
}

fn train(
    target: &str,
    cluster: &ClusterSpec,
    index: u32,
    together: Option<SyncReplicas>,
    mut batches: usize,
) -> Result<()> {
    let g = Graph::new();
    let place = format!("/job:worker/task:{index}");
    let (step, train) = g.device(replica_device_setter(cluster).worker_device(place), || {
        let step = g.global_step();
        let (w, b) = (g.variable("w", [4.0f32, -2.0]), g.variable("b", 1.0f32));
        let loss = w.square().sum() + b.square();
        let train = match &together {
            Some(together) => together.minimize(&loss).increment(&step),
            None => GradientDescent::new(0.01).minimize(&loss).increment(&step),
        };
        (step, train)
    });
    let mut session = MonitoredTrainingSession::new(&g).master(target).is_chief(index == 0).log_step_count_steps(0);
    if let Some(together) = &together {
        session = session.hook(together.hook(index == 0));
    }
    let mut session = session.start()?;
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

/// Kills workers at random points, each time the one that is drawn: the others go on.
fn kill_again_and_again(training: &Training) {
    let asked: Option<usize> = std::env::var(KILLS).ok().map(|kills| kills.parse().unwrap());
    let (kills, limit) = (asked.unwrap_or(8), Duration::from_secs(if asked.is_some() { 3 } else { 30 }));
    let mut workers: Vec<Program> = (0..training.workers).map(|index| training.worker(index, ENDLESS)).collect();
    workers.iter_mut().for_each(|worker| drop(worker.wait_for("step")));
    let mut worst = Duration::ZERO;
    for kill in 0..kills {
        let drawn = (kill as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let victim = (drawn >> 33) as usize % training.workers;
        // Otherwise it may die before it has begun.
        let waits = (0..training.workers).filter(|&index| index != victim || kill % 3 == 0);
        waits.for_each(|index| drop(workers[index].wait_for("step")));
        workers[victim].listen(Duration::from_millis(drawn >> 55)); // up to half a second
        workers[victim].kill();
        workers.iter_mut().for_each(|worker| worker.listen(Duration::ZERO));
        let since = Instant::now();
        for index in (0..training.workers).filter(|&index| index != victim) {
            // What the killed one gave before may make one more step.
            (0..3).for_each(|_| drop(workers[index].wait_for("step")));
        }
        worst = worst.max(since.elapsed());
        assert!(since.elapsed() < limit, "kill {kill}, of worker {victim}: {:?}", since.elapsed());
        workers[victim] = training.worker(victim, ENDLESS);
    }
    println!(
        "after each of {kills} kills of one of {} workers the others went on, at the latest after {worst:?}",
        training.workers
    );
}

#[test]
fn whichever_of_two_workers_is_killed_the_other_goes_on_and_it_counts_again_when_it_is_back() {
    kill_again_and_again(&Training::start(2, "shrink"));
}

#[test]
fn whichever_of_three_workers_is_killed_the_others_go_on() {
    kill_again_and_again(&Training::start(3, "shrink"));
}

#[test]
fn whichever_client_of_servers_that_live_is_killed_the_other_goes_on() {
    kill_again_and_again(&Training::on_existing_servers(2, "shrink"));
}

#[test]
fn a_chief_that_is_killed_holds_nobody_up_who_trains_alone() {
    kill_again_and_again(&Training::start(2, ALONE));
}

#[test]
fn a_lost_worker_is_named_in_an_error_if_that_is_wanted_and_so_is_a_lost_chief() {
    for (is_apart, victim) in [(false, 1), (false, 0), (true, 1), (true, 0)] {
        let training = Training::with_servers(2, "fail", is_apart);
        let mut workers = [training.worker(0, ENDLESS), training.worker(1, ENDLESS)];
        workers.iter_mut().for_each(|worker| (0..3).for_each(|_| drop(worker.wait_for("step"))));
        workers[victim].kill();
        let [chief, other] = workers;
        let said = if victim == 0 { other } else { chief }.fail().join("\n");
        assert!(said.contains(&format!("/job:worker/replica:0/task:{victim} was lost")), "{said}");
    }
}

#[test]
fn whoever_has_less_to_do_ends_earlier_and_all_end_well() {
    // Of the first the chief has most to do, and of the second least: then the others have nobody to go on with.
    for batches in [&[100, 90, 80, 10][..], &[5, 100, 100]] {
        let training = Training::start(batches.len(), "shrink");
        let workers: Vec<_> = batches.iter().enumerate().map(|(i, &count)| training.worker(i, count)).collect();
        for worker in workers {
            let said = worker.finish();
            assert!(said.iter().any(|line| line.contains("done")), "{batches:?}: {}", said.join("\n"));
        }
    }
}

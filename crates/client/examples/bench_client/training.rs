//! Training the guide's network for handwritten digits, in each way of sharing the work.

use crate::measure::{Bench, PS, print};
use ferroflow::SessionOptions;
use ferroflow::data::mnist::{self, MnistOptions};
use ferroflow::prelude::*;
use ferroflow::train::average_gradients;
use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

const BATCH: usize = 100;
const BATCHES: usize = 20;
const WORKERS: usize = 2;
/// Steps before it is measured.
const WARM_UP: i64 = 20;

/// Two workers, each with a client of its own, which step as they like or together.
pub fn replicas(bench: &Bench, together: bool) -> Result<()> {
    let seen: Arc<[AtomicI64; WORKERS]> = Arc::default();
    let initialized = Arc::new(Barrier::new(WORKERS));
    for index in 0..WORKERS {
        let replica = Replica::build(&bench.cluster, index as u32, together)?;
        let (target, seen, initialized) = (bench.target(index as u32)?, seen.clone(), initialized.clone());
        std::thread::spawn(move || {
            let wait = || _ = initialized.wait();
            let failed = replica.train(&target, wait, |step| seen[index].store(step, Relaxed));
            eprintln!("worker {index}: {}", failed.expect_err("it trains until the program ends"));
            std::process::exit(1);
        });
    }
    let steps = || Ok(seen.each_ref().map(|step| step.load(Relaxed)));
    measure(bench, &format!("MNIST replica, {}", how(together)), steps)
}

/// The same, each worker and its client being one process, as in the guide's program.
pub fn own_workers(bench: &Bench, together: bool) -> Result<()> {
    let mut chief = OwnWorker::spawn(bench, 0, together)?;
    chief.step()?; // it answers when the variables are initialized, and with them the other one can begin
    let mut workers = [chief, OwnWorker::spawn(bench, 1, together)?];
    let pids = workers.iter().map(|worker| worker.process.id()).chain(bench.pids.iter().copied()).collect();
    let bench = Bench { cluster: bench.cluster.clone(), pids, seconds: bench.seconds };
    let name = format!("MNIST replica, client in the worker, {}", how(together));
    measure(&bench, &name, || {
        let [chief, other] = &mut workers;
        Ok([chief.step()?, other.step()?])
    })
}

/// What `own_workers` starts: a worker that trains, and tells its global step for every line it reads.
pub fn own_worker(bench: &Bench, index: u32, together: bool) -> Result<()> {
    let server = Server::start(&bench.cluster, "worker", index)?;
    let replica = Replica::build(&bench.cluster, index, together)?;
    let seen = Arc::new(AtomicI64::new(0));
    let answer = || {
        let seen = seen.clone();
        std::thread::spawn(move || {
            std::io::stdin().lines().map_while(Result::ok).for_each(|_| println!("{}", seen.load(Relaxed)));
            std::process::exit(0);
        });
    };
    replica.train(server.target(), answer, |step| seen.store(step, Relaxed))
}

/// A process that runs `own_worker`, and ends with this one.
struct OwnWorker {
    process: Child,
    asked: ChildStdin,
    told: Lines<BufReader<ChildStdout>>,
}

impl OwnWorker {
    fn spawn(bench: &Bench, index: usize, together: bool) -> Result<OwnWorker> {
        let hosts = |job| Ok::<_, Error>(bench.cluster.tasks_of(job)?.values().cloned().collect::<Vec<_>>().join(","));
        let mut process = Command::new(std::env::current_exe()?)
            .args([if together { "own_worker_sync" } else { "own_worker" }, "--task_index", &index.to_string()])
            .args([format!("--ps_hosts={}", hosts("ps")?), format!("--worker_hosts={}", hosts("worker")?)])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let piped = "its input and output are pipes";
        let (asked, told) = (process.stdin.take().expect(piped), process.stdout.take().expect(piped));
        Ok(OwnWorker { process, asked, told: BufReader::new(told).lines() })
    }

    /// The global step that it has seen last.
    fn step(&mut self) -> Result<i64> {
        let ended = || Error::new(Code::Aborted, "a worker of the benchmark has ended; what it said last stands above");
        self.asked.write_all(b"\n").map_err(|_| ended())?;
        let line = self.told.next().ok_or_else(ended)??;
        line.parse().map_err(|_| Error::new(Code::Internal, format!("a worker of the benchmark says '{line}'")))
    }
}

fn how(together: bool) -> &'static str {
    if together { "synchronous" } else { "asynchronous" }
}

/// Prints how fast the global step grows once training is warm, and what it costs the servers. The workers tell the last
/// step that each has seen.
fn measure(bench: &Bench, name: &str, mut seen: impl FnMut() -> Result<[i64; WORKERS]>) -> Result<()> {
    while seen()?.into_iter().any(|step| step < WARM_UP) {
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut global_step = || Ok::<_, Error>(seen()?.into_iter().max().unwrap_or_default() as f64);
    let (before, cpu, begin) = (global_step()?, bench.server_cpu(), Instant::now());
    std::thread::sleep(2 * bench.seconds);
    let (steps, wall, cpu) = (global_step()? - before, begin.elapsed().as_secs_f64(), bench.server_cpu() - cpu);
    print(&format!("{name}, 1 ps and 2 workers"), steps / wall, "steps/s");
    print(&format!("{name}: server CPU"), cpu / steps * 1e6, "µs/step");
    Ok(())
}

/// A worker's copy of the network.
struct Replica {
    graph: Graph,
    index: u32,
    batches: Vec<Feeds>,
    step: Variable,
    train: Operation,
    init: Operation,
    together: Option<SyncReplicas>,
}

impl Replica {
    fn build(cluster: &ClusterSpec, index: u32, together: bool) -> Result<Replica> {
        let g = Graph::new();
        let place = replica_device_setter(cluster).worker_device(format!("/job:worker/task:{index}"));
        g.device(place, || {
            let options = VariableOptions { trainable: false, ..Default::default() };
            let step = g.variable_with("global_step", 0i64, options);
            let (images, labels) = digits(&g);
            let loss = Network::new(&g).guide_loss(&images, &labels);
            let adam = Adam::new(0.01);
            let (train, together) = if together {
                let together = SyncReplicas::new(adam).replicas_to_aggregate(2).total_num_replicas(2);
                (together.minimize(&loss).increment(&step), Some(together))
            } else {
                (adam.minimize(&loss).increment(&step), None)
            };
            let batches = batches(&images, &labels, index)?;
            let init = g.initialize_all();
            Ok(Replica { graph: g.clone(), index, batches, step, train, init, together })
        })
    }

    /// Trains for ever, telling each global step.
    fn train(&self, target: &str, initialized: impl Fn(), tell: impl Fn(i64)) -> Result<()> {
        let is_chief = self.index == 0;
        let init_tokens = match &self.together {
            Some(together) if is_chief => Some(together.get_init_tokens_op(None)?),
            _ => None,
        };
        let device_filters = vec!["/job:ps".into(), format!("/job:worker/task:{}", self.index)];
        let options = SessionOptions { device_filters, ..Default::default() };
        let session = Session::connect_with(target, &self.graph, options)?;
        if is_chief {
            session.run(&self.init)?;
        }
        initialized();
        let coordinator = Coordinator::new();
        if let Some(together) = &self.together {
            session.run(if is_chief { together.chief_init_op()? } else { together.local_step_init_op()? })?;
            if let Some(init_tokens) = init_tokens {
                together.get_chief_queue_runner()?.start(&session, &coordinator)?;
                session.run(&init_tokens)?;
            }
        }
        loop {
            for feeds in &self.batches {
                let ((), step) = session.run_with((&self.train, &*self.step), feeds.clone())?;
                tell(step.item()?);
            }
        }
    }
}

/// One ps and a program that is its own worker, against the same network in one process.
pub fn one_process(bench: &Bench) -> Result<()> {
    let local = {
        let g = Graph::new();
        let (images, labels) = digits(&g);
        let train = Adam::new(0.01).minimize(&Network::new(&g).guide_loss(&images, &labels));
        let init = g.initialize_all();
        let session = Session::new(&g)?;
        session.run(&init)?;
        let batches = batches(&images, &labels, 0)?;
        let mut feeds = batches.iter().cloned().cycle();
        1.0 / bench.median(|| session.run_with(&train, feeds.next().expect("it begins again")))?
    };
    print("MNIST, one process", local, "steps/s");
    let server = Server::start(&bench.cluster, "worker", 0)?;
    let replica = Replica::build(&bench.cluster, 0, false)?;
    let session = Session::connect(server.target(), &replica.graph)?;
    session.run(&replica.init)?;
    let mut feeds = replica.batches.iter().cloned().cycle();
    let remote = 1.0 / bench.median(|| session.run_with(&replica.train, feeds.next().expect("it begins again")))?;
    print("MNIST, 1 ps and 1 worker", remote, "steps/s");
    print("MNIST, 1 ps and 1 worker: part of one process", remote / local, "×");
    Ok(())
}

/// A copy of the network on each of four workers, in one graph; fed, or with input of the workers' own.
pub fn towers(bench: &Bench) -> Result<()> {
    for fed in [true, false] {
        let g = Graph::new();
        let network = g.device(PS, || Network::new(&g));
        let adam = Adam::new(0.01);
        let mut feeds = Feeds::new();
        let mut towers = Vec::new();
        for worker in 0..bench.cluster.num_tasks("worker")? as u32 {
            let (images, labels) = g.device(format!("/job:worker/task:{worker}"), || {
                let (images, labels) = if fed { digits(&g) } else { random_digits(&g) };
                let loss = network.logits(&images).softmax_cross_entropy(&labels).mean();
                towers.push(adam.compute_gradients(&loss, &network.variables()));
                (images, labels)
            });
            if fed {
                let (some_images, some_labels) = random_batch(worker)?;
                feeds = feeds.with(images, some_images).with(labels, some_labels);
            }
        }
        let train = g.device(PS, || adam.apply_gradients(&average_gradients(&towers), None));
        let session = bench.session(&g)?;
        let rate = 1.0 / bench.median(|| session.run_with(&train, feeds.clone()))?;
        let input = if fed { "fed by the client" } else { "input made on the workers" };
        print(&format!("in-graph, {} towers, {input}", towers.len()), rate, "steps/s");
    }
    Ok(())
}

/// The parameters of a network with one hidden layer.
struct Network {
    hidden_w: Variable,
    hidden_b: Variable,
    out_w: Variable,
    out_b: Variable,
}

impl Network {
    fn new(g: &Graph) -> Network {
        use initializers::{truncated_normal, zeros};
        Network {
            hidden_w: g.variable("hid_w", truncated_normal(0.0, 1.0 / 28.0, [784, 100])),
            hidden_b: g.variable("hid_b", zeros([100])),
            out_w: g.variable("sm_w", truncated_normal(0.0, 0.1, [100, 10])),
            out_b: g.variable("sm_b", zeros([10])),
        }
    }

    fn variables(&self) -> [Variable; 4] {
        [&self.hidden_w, &self.hidden_b, &self.out_w, &self.out_b].map(Variable::clone)
    }

    fn logits(&self, images: &Output) -> Output {
        let hidden = images.matmul(&self.hidden_w).bias_add(&self.hidden_b).relu();
        hidden.matmul(&self.out_w).bias_add(&self.out_b)
    }

    /// The loss as the guide's program computes it.
    fn guide_loss(&self, images: &Output, labels: &Output) -> Output {
        -(labels * self.logits(images).softmax().clip_by_value(1e-10, 1.0).log()).sum()
    }
}

/// Where images and labels are fed.
fn digits(g: &Graph) -> (Output, Output) {
    (g.placeholder::<f32>([None, Some(784)]), g.placeholder::<f32>([None, Some(10)]))
}

fn random_digits(g: &Graph) -> (Output, Output) {
    let labels = g.random_uniform([BATCH], 0.0, 10.0).cast::<i32>().one_hot::<f32>(10);
    (g.random_uniform([BATCH, 784], 0.0, 1.0), labels)
}

/// Digits to feed, as the guide's program draws them; a few batches, so that drawing them takes no time.
fn batches(images: &Output, labels: &Output, seed: u32) -> Result<Vec<Feeds>> {
    let options = MnistOptions { one_hot: true, seed: Some(seed.into()), ..Default::default() };
    let mut digits = mnist::embedded(&options)?;
    let batch = |_| {
        let (some_images, some_labels) = digits.train.next_batch(BATCH);
        feed! { images => some_images, labels => some_labels }
    };
    Ok((0..BATCHES).map(batch).collect())
}

/// Noise, of which hardly a pixel is zero.
fn random_batch(seed: u32) -> Result<(Tensor, Tensor)> {
    let shade = |i: usize| ((i * 7919 + seed as usize * 31) % 255) as f32 / 255.0;
    let label = |i: usize| if i % 10 == (i / 10 * 7 + seed as usize) % 10 { 1.0f32 } else { 0.0 };
    let images = Tensor::from_vec([BATCH, 784], (0..BATCH * 784).map(shade).collect())?;
    Ok((images, Tensor::from_vec([BATCH, 10], (0..BATCH * 10).map(label).collect())?))
}

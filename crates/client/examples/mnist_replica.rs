//! MNIST by several workers: the program of the guide, with its flags.
//!
//! Each worker has a copy of the network, the parameters are on the parameter servers. Without `--sync_replicas` every
//! worker applies its gradients as soon as it has them; with it, the gradients of several make one step.
//!
//! ```sh
//! mnist_replica --ps_hosts=localhost:2222 --worker_hosts=localhost:2223,localhost:2224 --job_name=ps
//! mnist_replica --ps_hosts=localhost:2222 --worker_hosts=localhost:2223,localhost:2224 --job_name=worker --task_index=0
//! mnist_replica --ps_hosts=localhost:2222 --worker_hosts=localhost:2223,localhost:2224 --job_name=worker --task_index=1
//! ```

use clap::Parser;
use clap::builder::BoolishValueParser;
use ferroflow::SessionOptions;
use ferroflow::data::mnist::{self, DataSets, MnistOptions};
use ferroflow::prelude::*;
use ferroflow::train::ClusterTask;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Trains a network with one hidden layer to tell handwritten digits, on a cluster
#[derive(Parser)]
struct Flags {
    #[command(flatten)]
    cluster: ClusterFlags,
    /// Where the MNIST files are; the smaller set that is compiled in if not given
    #[arg(long = "data_dir", value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Downloading is not this program's business: refused
    #[arg(long = "download_only", num_args = 0..=1, require_equals = true, default_missing_value = "true",
          default_value = "false", value_parser = BoolishValueParser::new())]
    download_only: bool,
    /// GPUs of each machine; 0 is the CPU alone. Where a GPU does not exist, the CPU does its work
    #[arg(long = "num_gpus", value_name = "COUNT", default_value_t = 0)]
    num_gpus: u32,
    /// Gradients that make a step with --sync_replicas; as many as there are workers if not given
    #[arg(long = "replicas_to_aggregate", value_name = "COUNT")]
    replicas_to_aggregate: Option<u32>,
    /// Units of the hidden layer
    #[arg(long = "hidden_units", value_name = "COUNT", default_value_t = 100)]
    hidden_units: usize,
    /// Global steps to train for
    #[arg(long = "train_steps", value_name = "COUNT", default_value_t = 200)]
    train_steps: i64,
    /// Digits in a batch
    #[arg(long = "batch_size", value_name = "COUNT", default_value_t = 100)]
    batch_size: usize,
    /// Learning rate
    #[arg(long = "learning_rate", value_name = "RATE", default_value_t = 0.01)]
    learning_rate: f64,
    /// Whether workers step together
    #[arg(long = "sync_replicas", num_args = 0..=1, require_equals = true, default_missing_value = "true",
          default_value = "false", value_parser = BoolishValueParser::new())]
    sync_replicas: bool,
    /// Whether servers run already at the addresses of the workers; none is started then
    #[arg(long = "existing_servers", num_args = 0..=1, require_equals = true, default_missing_value = "true",
          default_value = "false", value_parser = BoolishValueParser::new())]
    existing_servers: bool,
    /// Where the chief keeps checkpoints and summaries; nothing is kept if not given
    #[arg(long = "checkpoint_dir", value_name = "DIR")]
    checkpoint_dir: Option<PathBuf>,
}

fn main() -> Result<()> {
    let flags = Flags::parse();
    if flags.download_only {
        let message = "--download_only: this program downloads nothing; put the four files of MNIST into --data_dir";
        return Err(Error::new(Code::Unimplemented, message));
    }
    let task = flags.cluster.task()?;
    println!("job name = {}", task.job);
    println!("task index = {}", task.index);
    if flags.existing_servers {
        let target = format!("grpc://{}", task.cluster.task_address(&task.job, task.index)?);
        println!("Using existing server at: {target}");
        return train(&flags, &task, &target);
    }
    let server = Server::start(&task.cluster, &task.job, task.index)?;
    match task.job.as_str() {
        "ps" => server.join(),
        _ => {
            train(&flags, &task, server.target())?;
            server.done(); // the parameter servers end when the last worker has said so
            Ok(())
        }
    }
}

/// What is run of the graph.
struct Model {
    images: Output,
    labels: Output,
    step: Variable,
    cross_entropy: Output,
    accuracy: Output,
    train: Operation,
    /// With `--sync_replicas`.
    together: Option<SyncReplicas>,
}

fn train(flags: &Flags, task: &ClusterTask, target: &str) -> Result<()> {
    let mut digits = read_digits(flags)?;
    let g = Graph::new();
    let model = build(&g, flags, task)?;
    let is_chief = task.index == 0;
    let worker = task.index;
    match is_chief {
        true => println!("Worker {worker}: Initializing session..."),
        false => println!("Worker {worker}: Waiting for session to be initialized..."),
    }
    let mut session = MonitoredTrainingSession::new(&g)
        .master(target)
        .is_chief(is_chief)
        .hook(StopAtStep::last(flags.train_steps))
        .stop_grace_period(Duration::from_secs(10))
        .config(SessionOptions {
            allow_soft_placement: true,
            device_filters: vec!["/job:ps".into(), task.device()],
            ..Default::default()
        });
    if let Some(dir) = &flags.checkpoint_dir {
        session = session.checkpoint_dir(dir);
    }
    if let Some(together) = &model.together {
        session = session.hook(together.hook(is_chief));
    }
    let mut session = session.start()?;
    println!("Worker {worker}: Session initialization complete.");

    let begin = Instant::now();
    let mut local_step = 0;
    let mut tested = None;
    while !session.should_stop() {
        let (images, labels) = digits.train.next_batch(flags.batch_size);
        let feeds = feed! { model.images => images, model.labels => labels };
        let ((), step) = session.run_with((&model.train, &*model.step), feeds)?;
        local_step += 1;
        let step = step.item::<i32>()?;
        println!("{:?}: Worker {worker}: training step {local_step} done (global step: {step})", begin.elapsed());
        if session.should_stop() {
            tested = Some(test(&session, &model, &digits)?);
        }
    }
    println!("Training elapsed time: {:?}", begin.elapsed());
    session.close()?;
    if let Some((cross_entropy, accuracy)) = tested {
        println!("After {} training step(s), validation cross entropy = {cross_entropy}", flags.train_steps);
        println!("validation accuracy = {accuracy}");
    }
    Ok(())
}

/// How well the digits that were not trained on are told: cross entropy, and the part that is right.
fn test(session: &MonitoredSession, model: &Model, digits: &DataSets) -> Result<(f32, f32)> {
    let (images, labels) = (digits.validation.images(), digits.validation.labels());
    let feeds = feed! { model.images => images, model.labels => labels };
    let (entropy, accuracy) = session.raw()?.run_with((&model.cross_entropy, &model.accuracy), feeds)?;
    Ok((entropy.item()?, accuracy.item()?))
}

fn read_digits(flags: &Flags) -> Result<DataSets> {
    let options = MnistOptions { one_hot: true, ..Default::default() };
    match &flags.data_dir {
        Some(dir) => mnist::read_data_sets(dir, &options),
        None => mnist::embedded(&MnistOptions { validation_size: 2000, ..options }),
    }
}

fn build(g: &Graph, flags: &Flags, task: &ClusterTask) -> Result<Model> {
    let worker_device = match flags.num_gpus {
        0 => format!("{}/cpu:0", task.device()),
        gpus => format!("{}/gpu:{}", task.device(), task.index % gpus),
    };
    let setter = replica_device_setter(&task.cluster).worker_device(worker_device).ps_device("/job:ps/cpu:0");
    let workers = u32::try_from(task.cluster.num_tasks("worker")?).unwrap_or(u32::MAX);
    let model = g.device(setter, || {
        const PIXELS: usize = 28;
        let hidden = flags.hidden_units;
        // An int32, as the guide's own program has it: a worker in Python may take part.
        let options = VariableOptions { trainable: false, ..Default::default() };
        let step = g.variable_with("global_step", 0i32, options);
        let spread = 1.0 / PIXELS as f64;
        let hid_w = g.variable("hid_w", initializers::truncated_normal(0.0, spread, [PIXELS * PIXELS, hidden]));
        let hid_b = g.variable("hid_b", initializers::zeros([hidden]));
        let spread = 1.0 / (hidden as f64).sqrt();
        let sm_w = g.variable("sm_w", initializers::truncated_normal(0.0, spread, [hidden, 10]));
        let sm_b = g.variable("sm_b", initializers::zeros([10]));
        let images = g.placeholder::<f32>([None, Some(PIXELS * PIXELS)]);
        let labels = g.placeholder::<f32>([None, Some(10)]);

        let layer = images.matmul(&hid_w).bias_add(&hid_b).relu();
        let y = layer.matmul(&sm_w).bias_add(&sm_b).softmax();
        let cross_entropy = -(&labels * y.clip_by_value(1e-10, 1.0).log()).sum();
        let accuracy = y.argmax(1).equal(labels.argmax(1)).cast::<f32>().mean();
        let adam = Adam::new(flags.learning_rate);
        let (train, together) = if flags.sync_replicas {
            let together = SyncReplicas::new(adam)
                .replicas_to_aggregate(flags.replicas_to_aggregate.unwrap_or(workers))
                .total_num_replicas(workers)
                .name("mnist_sync_replicas");
            (together.minimize(&cross_entropy).increment(&step), Some(together))
        } else {
            (adam.minimize(&cross_entropy).increment(&step), None)
        };
        Model { images, labels, step, cross_entropy, accuracy, train, together }
    });
    g.check()?;
    Ok(model)
}

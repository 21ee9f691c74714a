//! One task of the demonstration, a process of its own: the MNIST program of the guide.
//!
//! Lines on standard output that begin with `@` are reports for the process that shows the progress.

use super::Model;
use clap::Args;
use ferroflow::data::mnist::{self, DataSets, MnistOptions};
use ferroflow::prelude::*;
use ferroflow::train::hooks::StopAtStep;
use ferroflow::train::{ClusterFlags, ClusterTask, MonitoredTrainingSession, SyncReplicas, replica_device_setter};
use serde_json::json;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How often a worker reports, and how often the chief looks how good the model is.
const REPORT: Duration = Duration::from_millis(100);
const EVALUATE: Duration = Duration::from_millis(500);

/// A task of the demonstration.
#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    place: ClusterFlags,
    #[command(flatten)]
    model: Model,
    #[arg(long)]
    sync: bool,
    #[arg(long = "train_dir")]
    train_dir: PathBuf,
}

/// The digits to train on.
pub fn digits(model: &Model) -> Result<DataSets> {
    let options = MnistOptions { one_hot: true, ..MnistOptions::default() };
    match &model.data_dir {
        Some(dir) => mnist::read_data_sets(dir, &options),
        // The first 2,000 of them are a fair sample.
        None => mnist::embedded(&MnistOptions { validation_size: 2000, ..options }),
    }
}

/// Serves, or trains to the end.
pub fn run(arguments: Arguments) -> Result<()> {
    let task = arguments.place.task()?;
    let server = Server::start(&task.cluster, &task.job, task.index)?;
    report(json!({"up": true}));
    if task.job == "ps" {
        return server.join();
    }
    train(&arguments, &task, server.target())?;
    server.done();
    Ok(())
}

/// The nodes of the graph that a worker runs.
struct Network {
    images: Output,
    labels: Output,
    loss: Output,
    accuracy: Output,
    step: Variable,
    train: Operation,
}

fn train(arguments: &Arguments, task: &ClusterTask, target: &str) -> Result<()> {
    let (model, is_chief) = (&arguments.model, task.index == 0);
    let mut digits = digits(model)?;
    let workers = task.cluster.num_tasks("worker")? as u32;
    let g = Graph::new();
    let mut together = None;
    let net = g.device(replica_device_setter(&task.cluster).worker_device(task.device()), || {
        build(&g, model, |loss, step| {
            let adam = Adam::new(schedules::exponential_decay(model.learning_rate, step, model.steps.into(), 0.05));
            if !arguments.sync {
                return adam.minimize(loss).increment(step);
            }
            let adam = SyncReplicas::new(adam).replicas_to_aggregate(workers).total_num_replicas(workers);
            together.insert(adam).minimize(loss).increment(step)
        })
    });
    let mut session = MonitoredTrainingSession::new(&g)
        .master(target)
        .is_chief(is_chief)
        .checkpoint_dir(&arguments.train_dir)
        .save_summaries_steps(20)
        .hook(StopAtStep::last(i64::from(model.steps)));
    if let Some(optimizer) = &together {
        session = session.hook(optimizer.hook(is_chief));
    }
    let mut session = session.start()?;

    let events = is_chief.then(|| FileWriter::create(&arguments.train_dir)).transpose()?;
    let (mut reported, mut evaluated, mut last) = (Instant::now(), Instant::now(), None);
    let mut stale = Mean::default();
    while !session.should_stop() {
        let (images, labels) = digits.train.next_batch(model.batch_size as usize);
        let feeds = feed! { net.images => images, net.labels => labels };
        let (loss, step, ()) = session.run_with((&net.loss, &net.step, &net.train), feeds)?;
        let (loss, step) = (loss.item::<f32>()?, step.to_i64()?);
        stale.add(last.map_or(0, |last: i64| (step - last - 1).max(0)) as f64);
        last = Some(step);
        if reported.elapsed() >= REPORT || session.should_stop() {
            report(json!({"step": step, "loss": loss, "staleness": if arguments.sync { 0.0 } else { stale.take() }}));
            reported = Instant::now();
        }
        if let Some(events) = events.as_ref().filter(|_| evaluated.elapsed() >= EVALUATE && !session.should_stop()) {
            let feeds = feed! { net.images => digits.validation.images(), net.labels => digits.validation.labels() };
            let accuracy = session.raw()?.run_with(&net.accuracy, feeds)?.item::<f32>()?;
            events.add_scalar("validation accuracy", accuracy, step)?;
            report(json!({"accuracy": accuracy}));
            evaluated = Instant::now();
        }
    }
    if let Some(events) = events {
        let feeds = feed! { net.images => digits.test.images(), net.labels => digits.test.labels() };
        let accuracy = session.raw()?.run_with(&net.accuracy, feeds)?.item::<f32>()?;
        events.add_scalar("test accuracy", accuracy, i64::from(model.steps))?;
        events.close()?;
        report(json!({"test_accuracy": accuracy, "test_digits": digits.test.num_examples()}));
    }
    session.close()
}

/// One hidden layer, as in the guide.
fn build(g: &Graph, model: &Model, minimize: impl FnOnce(&Output, &Variable) -> Operation) -> Network {
    let hidden = model.hidden_units as usize;
    let deviation = 1.0 / (hidden as f64).sqrt();
    let step = g.global_step();
    let hid_w = g.variable("hid_w", initializers::truncated_normal(0.0, 1.0 / 28.0, [784, hidden]).seed(1));
    let hid_b = g.variable("hid_b", initializers::zeros([hidden]));
    let sm_w = g.variable("sm_w", initializers::truncated_normal(0.0, deviation, [hidden, 10]).seed(2));
    let sm_b = g.variable("sm_b", initializers::zeros([10]));
    let images = g.placeholder::<f32>([None, Some(784)]);
    let labels = g.placeholder::<f32>([None, Some(10)]);
    let layer = images.matmul(&hid_w).bias_add(&hid_b).relu();
    let y = layer.matmul(&sm_w).bias_add(&sm_b).softmax();
    let loss = -(&labels * y.clip_by_value(1e-10, 1.0).log()).sum();
    let accuracy = y.argmax(1).equal(labels.argmax(1)).cast::<f32>().mean();
    let train = minimize(&loss, &step);
    let loss = loss / model.batch_size as f32;
    g.scalar_summary("loss", &loss);
    Network { images, labels, loss, accuracy, step, train }
}

/// A mean that begins anew when it is taken.
#[derive(Default)]
struct Mean {
    sum: f64,
    count: u32,
}

impl Mean {
    fn add(&mut self, value: f64) {
        self.sum += value;
        self.count += 1;
    }

    fn take(&mut self) -> f64 {
        let Mean { sum, count } = std::mem::take(self);
        sum / f64::from(count.max(1))
    }
}

fn report(what: serde_json::Value) {
    println!("@{what}");
}

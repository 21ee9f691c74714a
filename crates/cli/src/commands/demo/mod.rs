//! `ferroflow demo`: a training job to look at, on a cluster of real processes on this machine.

mod download;
mod progress;
pub mod task;

use super::launch::places::Places;
use super::launch::program;
use crate::processes::{self, Notice, Policy, TaskProcess};
use clap::{Args, Subcommand, ValueHint};
use ferroflow::{Code, Error, Result, TaskName};
use progress::{Progress, Setup};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Which demonstration.
#[derive(Subcommand)]
pub enum Command {
    /// Train a network to read handwritten digits: 1 ps and 2 workers, to 97 of 100 and more
    #[command(after_help = "\
Examples:
  ferroflow demo mnist
  ferroflow demo mnist --sync --ps 2 --workers 4
  ferroflow demo mnist --data_dir ~/mnist --download --steps 4000")]
    Mnist(Mnist),
}

/// The flags of the MNIST program of the guide, and how many tasks there are.
#[derive(Args)]
pub struct Mnist {
    /// How many parameter servers
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    ps: u32,
    /// How many workers
    #[arg(long, value_name = "COUNT", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    workers: u32,
    /// Workers step together: a step is made of the gradients of all
    #[arg(long, alias = "sync_replicas")]
    sync: bool,
    #[command(flatten)]
    model: Model,
    /// Where checkpoints and event files go; training goes on from what is there [default: a new directory]
    #[arg(long = "train_dir", alias = "train-dir", value_name = "DIR", value_hint = ValueHint::DirPath)]
    train_dir: Option<PathBuf>,
    /// Fetch the full set of digits into --data_dir first, from this address unless another is given
    #[arg(long, value_name = "URL", requires = "data_dir", num_args = 0..=1, default_missing_value = download::SOURCE)]
    download: Option<String>,
}

/// What is trained, and on what: passed on to every task.
#[derive(Args, Clone)]
pub struct Model {
    /// How many steps all workers take together
    #[arg(long, alias = "train_steps", value_name = "COUNT", default_value_t = 2000, value_parser = clap::value_parser!(u32).range(1..))]
    steps: u32,
    /// How many digits a worker looks at in a step
    #[arg(long = "batch_size", alias = "batch-size", value_name = "COUNT", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    batch_size: u32,
    /// The learning rate of Adam at the beginning; at the end it is a twentieth of that
    #[arg(
        long = "learning_rate",
        alias = "learning-rate",
        value_name = "RATE",
        default_value_t = 0.005,
        allow_negative_numbers = true
    )]
    learning_rate: f64,
    /// How many units the hidden layer has
    #[arg(long = "hidden_units", alias = "hidden-units", value_name = "COUNT", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    hidden_units: u32,
    /// A directory with the four files of MNIST, used instead of the smaller set that is compiled in
    #[arg(long = "data_dir", alias = "data-dir", value_name = "DIR", value_hint = ValueHint::DirPath)]
    data_dir: Option<PathBuf>,
}

/// Runs the demonstration.
pub fn run(command: Command) -> Result<ExitCode> {
    let Command::Mnist(mnist) = command;
    if !(mnist.model.learning_rate.is_finite() && mnist.model.learning_rate > 0.0) {
        let message =
            format!("--learning_rate is {}, wanted a number above 0, such as 0.005", mnist.model.learning_rate);
        return Err(Error::new(Code::InvalidArgument, message));
    }
    if let (Some(source), Some(dir)) = (&mnist.download, &mnist.model.data_dir) {
        download::fetch(source, dir)?;
    }
    // A mistake about the files is said once, by us, rather than by every task.
    task::digits(&mnist.model)?;
    let train_dir = mnist.train_dir.clone().unwrap_or_else(|| new_dir(&std::env::temp_dir()));
    std::fs::create_dir_all(&train_dir).map_err(|e| {
        Error::new(Code::InvalidArgument, format!("--train_dir {} cannot be made: {e}", train_dir.display()))
    })?;

    let places = Places::here(mnist.ps, mnist.workers)?;
    let tasks = places.cluster.tasks().map(|(task, _)| mnist.process(&places, task, &train_dir));
    let tasks = tasks.collect::<Result<Vec<TaskProcess>>>()?;
    let names = tasks.iter().map(|task| task.task.clone()).collect();
    let address = places.cluster.task_address("ps", 0)?.to_string();
    let setup = Setup { tasks: names, address, steps: mnist.model.steps, sync: mnist.sync, train_dir };
    let mut progress = Progress::new(setup);
    let policy = Policy { restarts: 0, grace: Duration::from_secs(5), linger: Some(Duration::from_secs(10)) };
    let code = processes::run(tasks, policy, &mut |notice: Notice<'_>| progress.show(notice))?;
    progress.finish(code)?;
    Ok(ExitCode::from(code))
}

impl Mnist {
    fn process(&self, places: &Places, task: TaskName, train_dir: &Path) -> Result<TaskProcess> {
        let own = std::env::current_exe()?.to_string_lossy().into_owned();
        let mut line = vec![own, "--log=warn".into(), "demo-task".into(), program::FLAGS.into()];
        line.push(format!("--train_dir={}", train_dir.display()));
        line.push(format!("--steps={}", self.model.steps));
        line.push(format!("--batch_size={}", self.model.batch_size));
        line.push(format!("--learning_rate={}", self.model.learning_rate));
        line.push(format!("--hidden_units={}", self.model.hidden_units));
        line.extend(self.model.data_dir.iter().map(|dir| format!("--data_dir={}", dir.display())));
        line.extend(self.sync.then(|| "--sync".to_string()));
        let is_work = task.job == "worker";
        Ok(TaskProcess { program: program::of_task(&line, &places.cluster, &task)?, task, is_work })
    }
}

/// A directory that is not there yet.
fn new_dir(parent: &Path) -> PathBuf {
    let name = |i: u32| parent.join(format!("ferroflow-mnist-{i}"));
    (1..).map(name).find(|path| !path.exists()).expect("there are more numbers than directories")
}

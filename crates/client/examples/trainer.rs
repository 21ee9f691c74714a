//! The trainer of the guide: parameter servers hold the model, workers train it asynchronously, the first of them is the
//! chief. Any task may be killed and started again; training goes on by itself.
//!
//! ```sh
//! trainer                                                                                  # one process
//! trainer --ps_hosts=a:2222 --worker_hosts=b:2222,c:2222 --job_name=ps                     # the tasks of a cluster
//! trainer --ps_hosts=a:2222 --worker_hosts=b:2222,c:2222 --job_name=worker --task_index=0
//! trainer --ps_hosts=a:2222 --worker_hosts=b:2222,c:2222 --job_name=worker --task_index=1
//! ```

use clap::Parser;
use ferroflow::prelude::*;
use std::path::PathBuf;

/// Trains a model on parameter servers and workers
#[derive(Parser)]
struct Flags {
    #[command(flatten)]
    cluster: ClusterFlags,
    /// Where checkpoints and summaries are written
    #[arg(long = "checkpoint_dir", value_name = "DIR", default_value = "train_logs")]
    checkpoint_dir: PathBuf,
    /// How often the model is saved
    #[arg(long = "save_checkpoint_secs", value_name = "SECONDS", default_value_t = 600.0)]
    save_checkpoint_secs: f64,
    /// The global step at which training ends
    #[arg(long = "last_step", value_name = "STEP", default_value_t = 1_000_000)]
    last_step: i64,
}

fn main() -> Result<()> {
    let flags = Flags::parse();
    if !flags.cluster.is_given() {
        let servers = Server::create_cluster([("ps", 1), ("worker", 1)])?;
        return train(&servers[1], servers[1].cluster(), 0, &flags);
    }
    let task = flags.cluster.task()?;
    let server = Server::start(&task.cluster, &task.job, task.index)?;
    if task.job == "ps" {
        return server.join();
    }
    train(&server, &task.cluster, task.index, &flags)?;
    server.done(); // the parameter servers end when the last worker has said so
    Ok(())
}

fn train(server: &Server, cluster: &ClusterSpec, index: u32, flags: &Flags) -> Result<()> {
    let g = Graph::new();
    let setter = replica_device_setter(cluster).worker_device(format!("/job:worker/task:{index}"));
    let (train, step, loss) = g.device(setter, || {
        let step = g.global_step();
        let loss = model(&g);
        g.scalar_summary("loss", &loss);
        (Adagrad::new(0.01).minimize(&loss).increment(&step), step, loss)
    });

    let mut session = MonitoredTrainingSession::new(&g)
        .master(server.target())
        .is_chief(index == 0)
        .checkpoint_dir(&flags.checkpoint_dir)
        .save_checkpoint_secs(flags.save_checkpoint_secs)
        .log_step_count_steps(10_000)
        .hook(StopAtStep::last(flags.last_step))
        .hook(LoggingTensor::new(Every::secs(0.5)).tensor("step", &step).tensor("loss", &loss))
        .start()?;
    while !session.should_stop() {
        session.run(&train)?; // a preempted ps is survived here
    }
    session.close()
}

/// How far a linear model is from a line through random points.
fn model(g: &Graph) -> Output {
    let truth: Vec<f32> = (0..8).map(|i| i as f32 - 3.5).collect();
    let truth = Tensor::from_vec([8, 1], truth).expect("eight values");
    let (w, b) = (g.variable("w", initializers::zeros([8, 1])), g.variable("b", initializers::zeros([1])));
    let x = g.random_uniform([32, 8], -1.0, 1.0);
    let target = x.matmul(&g.constant(truth)) + 1.0;
    (x.matmul(&w) + &b - target).square().mean()
}

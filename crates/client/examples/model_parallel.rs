//! Model parallelism: one network whose layers live on different workers, parameters and computation alike.
//!
//! A step's values go from worker to worker, and its gradients the way back; no worker ever holds another's parameters.
//!
//! ```sh
//! model_parallel                                              # a cluster in this process
//! model_parallel --worker_hosts=a:2222,b:2222 --job_name=worker --task_index=1    # the tasks of a real one
//! model_parallel --worker_hosts=a:2222,b:2222 --job_name=worker --task_index=0    # this one is the client too
//! ```

use clap::Parser;
use ferroflow::data::mnist::{self, MnistOptions};
use ferroflow::prelude::*;

/// Trains one network whose layers are on different workers
#[derive(Parser)]
struct Flags {
    #[command(flatten)]
    cluster: ClusterFlags,
    /// Steps to train for
    #[arg(long, value_name = "COUNT", default_value_t = 100)]
    steps: usize,
}

fn main() -> Result<()> {
    let flags = Flags::parse();
    if !flags.cluster.is_given() {
        let servers = Server::create_cluster([("worker", 3)])?;
        return train(servers[0].target(), 3, flags.steps).map(|_| ());
    }
    let task = flags.cluster.task()?;
    let server = Server::start(&task.cluster, &task.job, task.index)?;
    if task.index > 0 {
        return server.join();
    }
    train(server.target(), task.cluster.num_tasks("worker")?, flags.steps).map(|_| ())
}

/// The loss of each step.
pub fn train(target: &str, num_workers: usize, steps: usize) -> Result<Vec<f32>> {
    const SIZES: [usize; 5] = [784, 64, 48, 32, 10];
    const BATCH: usize = 100;
    let mut digits = mnist::embedded(&MnistOptions { validation_size: 2000, seed: Some(1), ..Default::default() })?;
    let g = Graph::new();
    let images = g.placeholder::<f32>([None, Some(784)]);
    let labels = g.placeholder::<i64>([None]);
    let layers = SIZES.len() - 1;
    let worker_of = |layer: usize| format!("/job:worker/task:{}", layer * num_workers / layers);

    let mut x = images.clone();
    for layer in 0..layers {
        let [inputs, outputs] = [SIZES[layer], SIZES[layer + 1]];
        x = g.device(worker_of(layer), || {
            g.name_scope(&format!("layer{layer}"), || {
                let spread = (2.0 / inputs as f64).sqrt();
                let w =
                    g.variable("w", initializers::truncated_normal(0.0, spread, [inputs, outputs]).seed(layer as i64));
                let b = g.variable("b", initializers::zeros([outputs]));
                let y = x.matmul(&w) + &b;
                if layer + 1 < layers { y.relu() } else { y }
            })
        });
    }
    let loss = g.device(worker_of(layers - 1), || x.sparse_softmax_cross_entropy(&labels).mean());
    let train = Momentum::new(0.05, 0.9).minimize(&loss);
    let init = g.initialize_all();

    let session = Session::connect(target, &g)?;
    session.run(&init)?;
    let mut losses = Vec::new();
    for step in 0..steps {
        let (batch, answers) = digits.train.next_batch(BATCH);
        let (value, ()) = session.run_with((&loss, &*train), feed! { images => batch, labels => answers })?;
        losses.push(value.item()?);
        if step % 10 == 0 || step + 1 == steps {
            println!("step {step:4}   loss {:.4}   {layers} layers on {num_workers} workers", losses[step]);
        }
    }
    Ok(losses)
}

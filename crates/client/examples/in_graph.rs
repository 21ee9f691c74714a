//! In-graph replication: one client, a copy of the network on each worker, the mean of their gradients applied once.
//!
//! ```sh
//! in_graph                                                    # a cluster in this process
//! in_graph --ps_hosts=a:2222 --worker_hosts=b:2222,c:2222 --job_name=ps                    # the tasks of a real one
//! in_graph --ps_hosts=a:2222 --worker_hosts=b:2222,c:2222 --job_name=worker --task_index=1
//! in_graph --ps_hosts=a:2222 --worker_hosts=b:2222,c:2222 --job_name=worker --task_index=0 # this one is the client too
//! ```

use clap::Parser;
use ferroflow::data::mnist::{self, MnistOptions};
use ferroflow::prelude::*;
use ferroflow::train::average_gradients;

/// Trains one copy of a network on each worker, together
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
        let servers = Server::create_cluster([("ps", 1), ("worker", 2)])?;
        return train(servers[1].target(), 2, flags.steps).map(|_| ());
    }
    let task = flags.cluster.task()?;
    let server = Server::start(&task.cluster, &task.job, task.index)?;
    if task.name() != ferroflow::TaskName::new("worker", 0) {
        return server.join();
    }
    train(server.target(), task.cluster.num_tasks("worker")?, flags.steps).map(|_| ())
}

/// The mean loss of each step.
pub fn train(target: &str, num_workers: usize, steps: usize) -> Result<Vec<f32>> {
    const BATCH: usize = 50; // for each worker
    let mut digits = mnist::embedded(&MnistOptions { validation_size: 2000, seed: Some(1), ..Default::default() })?;
    let g = Graph::new();
    let variables = g.device("/job:ps/task:0", || {
        vec![
            g.variable("w1", initializers::truncated_normal(0.0, 0.05, [784, 32]).seed(1)),
            g.variable("b1", initializers::zeros([32])),
            g.variable("w2", initializers::truncated_normal(0.0, 0.2, [32, 10]).seed(2)),
            g.variable("b2", initializers::zeros([10])),
        ]
    });
    let images = g.placeholder::<f32>([Some(num_workers * BATCH), Some(784)]);
    let labels = g.placeholder::<i64>([Some(num_workers * BATCH)]);
    let optimizer = Momentum::new(0.05, 0.9);

    let towers = (0..num_workers).map(|worker| {
        g.device(format!("/job:worker/task:{worker}"), || {
            g.name_scope(&format!("tower{worker}"), || {
                let first = (worker * BATCH) as i32;
                let images = images.slice(&[first, 0], &[BATCH as i32, -1]);
                let labels = labels.slice(&[first], &[BATCH as i32]);
                let [w1, b1, w2, b2] = &variables[..] else { unreachable!("four variables were made") };
                let logits = (images.matmul(w1) + b1).relu().matmul(w2) + b2;
                let loss = logits.sparse_softmax_cross_entropy(&labels).mean();
                let gradients = optimizer.compute_gradients(&loss, &variables);
                (loss, gradients)
            })
        })
    });
    let (losses, gradients): (Vec<Output>, Vec<_>) = towers.unzip();
    let (loss, train) = g.device("/job:ps/task:0", || {
        let losses: Vec<&Output> = losses.iter().collect();
        (stack(&losses, 0).mean(), optimizer.apply_gradients(&average_gradients(&gradients), None))
    });
    let init = g.initialize_all();

    let session = Session::connect(target, &g)?;
    session.run(&init)?;
    let mut means = Vec::new();
    for step in 0..steps {
        let (batch, answers) = digits.train.next_batch(num_workers * BATCH);
        let (mean, ()) = session.run_with((&loss, &train), feed! { images => batch, labels => answers })?;
        means.push(mean.item()?);
        if step % 10 == 0 || step + 1 == steps {
            println!("step {step:4}   mean loss of {num_workers} towers {:.4}", means[step]);
        }
    }
    Ok(means)
}

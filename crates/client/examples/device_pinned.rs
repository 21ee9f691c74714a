//! Variables on parameter servers, the work on a worker: a network pinned by hand, as in the guide.
//!
//! ```sh
//! run="cargo run --release --example device_pinned -p ferroflow --"
//! $run                                                                          # a cluster in this process
//! hosts="--ps_hosts=localhost:2222,localhost:2223 --worker_hosts=localhost:2224"
//! $run $hosts --job_name=ps --task_index=0 &                                    # or a process for each task
//! $run $hosts --job_name=ps --task_index=1 &
//! $run $hosts --job_name=worker
//! $run $hosts --existing_servers                                                # or servers that run already
//! ```

use clap::Parser;
use ferroflow::prelude::*;

#[derive(Parser)]
struct Flags {
    #[command(flatten)]
    cluster: ClusterFlags,
    /// Whether the tasks run already, and this program only uses them
    #[arg(long = "existing_servers")]
    existing_servers: bool,
}

fn main() -> Result<()> {
    let flags = Flags::parse();
    let losses = if flags.existing_servers {
        let cluster = flags.cluster.cluster()?;
        let target = format!("grpc://{}", cluster.task_address("worker", 0)?);
        train(&target, cluster.num_tasks("ps")?, 20)?
    } else if flags.cluster.job_name.is_some() {
        let task = flags.cluster.task()?;
        let server = Server::start(&task.cluster, &task.job, task.index)?;
        if task.job == "ps" {
            return server.join();
        }
        train(server.target(), task.cluster.num_tasks("ps")?, 20)?
    } else {
        let servers = Server::create_cluster([("ps", 2), ("worker", 1)])?;
        train(servers[2].target(), 2, 20)?
    };
    for (step, loss) in losses.iter().enumerate() {
        println!("step {step:3}   loss {loss:.5}");
    }
    Ok(())
}

/// The losses of some steps.
fn train(target: &str, num_ps: usize, steps: usize) -> Result<Vec<f32>> {
    let g = Graph::new();
    let ps = |layer: usize| format!("/job:ps/task:{}", layer % num_ps.max(1));
    let (w1, b1) = g.device(ps(0), || (g.variable("w1", pattern(8, 16)), g.variable("b1", initializers::zeros([16]))));
    let (w2, b2) = g.device(ps(1), || (g.variable("w2", pattern(16, 3)), g.variable("b2", initializers::zeros([3]))));
    let x = g.placeholder::<f32>([None, Some(8)]);
    let labels = g.placeholder::<f32>([None, Some(3)]);
    let (loss, train) = g.device("/job:worker/task:0", || {
        let hidden = (x.matmul(&w1) + &b1).relu();
        let logits = hidden.matmul(&w2) + &b2;
        let loss = logits.softmax_cross_entropy(&labels).mean();
        let train = GradientDescent::new(0.5).minimize(&loss);
        (loss, train)
    });
    let init = g.initialize_all();

    let session = Session::connect(target, &g)?;
    session.run(&init)?;
    let (images, digits) = examples(32)?;
    let step = |_| {
        let ((), loss) = session.run_with((&train, &loss), feed! { x => images.clone(), labels => digits.clone() })?;
        loss.item::<f32>()
    };
    (0..steps).map(step).collect()
}

/// Numbers that look random and are the same everywhere.
fn pattern(rows: usize, columns: usize) -> Tensor {
    let values = (0..rows * columns).map(|i| ((i * 2_654_435_761) % 1000) as f32 / 1000.0 - 0.5).collect();
    Tensor::from_vec([rows, columns], values).expect("as many values as the shape has places")
}

/// Points, and the class of each.
fn examples(count: usize) -> Result<(Tensor, Tensor)> {
    let mut labels = vec![0.0f32; count * 3];
    (0..count).for_each(|i| labels[i * 3 + i * i % 3] = 1.0);
    Ok((pattern(count, 8), Tensor::from_vec([count, 3], labels)?))
}

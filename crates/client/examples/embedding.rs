//! A table too large for one task: it is cut into a part for each parameter server, and a step fetches and changes only the
//! rows it needs.
//!
//! Words of two kinds are to be told apart by their vectors: those of a kind shall point the same way. A checkpoint that
//! was written with two parameter servers can be gone on from with three.
//!
//! ```sh
//! cargo run --release --example embedding -p ferroflow                     # a cluster in this process
//! HOSTS="--ps_hosts localhost:2222,localhost:2223 --worker_hosts localhost:2224"
//! cargo run --release --example embedding -p ferroflow -- $HOSTS --job_name ps --task_index 0 &
//! cargo run --release --example embedding -p ferroflow -- $HOSTS --job_name ps --task_index 1 &
//! cargo run --release --example embedding -p ferroflow -- $HOSTS --job_name worker --checkpoint_dir /tmp/embedding
//! ```

use clap::Parser;
use ferroflow::prelude::*;
use ferroflow::train::latest_checkpoint;
use ferroflow::{PartitionedVariable, fixed_size_partitioner};
use std::collections::HashSet;
use std::path::PathBuf;

#[derive(Parser)]
struct Flags {
    #[command(flatten)]
    cluster: ClusterFlags,
    /// How many words there are
    #[arg(long, default_value_t = 20_000)]
    words: usize,
    /// How many numbers a word's vector has
    #[arg(long, default_value_t = 8)]
    size: usize,
    /// How many steps to train
    #[arg(long, default_value_t = 200)]
    steps: usize,
    /// Where checkpoints are written, and looked for in the beginning
    #[arg(long = "checkpoint_dir")]
    checkpoint_dir: Option<PathBuf>,
}

/// How many pairs of words a step looks at.
const BATCH: usize = 128;

fn main() -> Result<()> {
    let flags = Flags::parse();
    if !flags.cluster.is_given() {
        let servers = Server::create_cluster([("ps", 2), ("worker", 1)])?;
        return train(&flags, servers[0].cluster(), servers[2].target());
    }
    let task = flags.cluster.task()?;
    let server = Server::start(&task.cluster, &task.job, task.index)?;
    match task.job.as_str() {
        "ps" => server.join(),
        _ => train(&flags, &task.cluster, server.target()),
    }
}

struct Model {
    graph: Graph,
    table: PartitionedVariable,
    /// Two words in a row of each.
    pairs: Output,
    /// 1 if they are of a kind, -1 if not.
    alike: Output,
    loss: Output,
    train: Operation,
    init: Operation,
    step: Variable,
    saver: Saver,
}

fn build(flags: &Flags, cluster: &ClusterSpec) -> Result<Model> {
    let g = Graph::new();
    g.set_seed(1);
    let parts = fixed_size_partitioner(cluster.num_tasks("ps")?);
    let place = replica_device_setter(cluster).worker_device("/job:worker/task:0");
    g.device(place, || {
        let initial = initializers::random_uniform(-0.3, 0.3, [flags.words, flags.size]);
        let table = g.partitioned_variable("table", initial, &parts);
        let step = g.global_step();
        let pairs = g.placeholder::<i64>([None, Some(2)]);
        let alike = g.placeholder::<f32>([None]);
        let vectors = table.embedding_lookup(&pairs);
        let [first, second] = [0, 1].map(|side| vectors.slice(&[0, side, 0], &[-1, 1, -1]).squeeze(&[1]));
        let score = (first * second).sum_axes(&[1], false);
        let loss = (score - &alike).square().mean();
        let train = Adagrad::new(2.0).minimize(&loss).increment(&step);
        let init = g.initialize_all();
        // Each parameter server writes its own rows.
        let saver = Saver::builder(&g).sharded(true).build();
        Ok(Model { graph: g.clone(), table, pairs, alike, loss, train, init, step, saver })
    })
}

fn train(flags: &Flags, cluster: &ClusterSpec, target: &str) -> Result<()> {
    let model = build(flags, cluster)?;
    let whole = model.table.value();
    for part in model.table.parts() {
        println!("{part:?} on {}", part.place().device());
    }
    let session = Session::connect(target, &model.graph)?;
    let latest = flags.checkpoint_dir.as_ref().map(latest_checkpoint).transpose()?.flatten();
    match &latest {
        Some(path) => {
            model.saver.restore(&session, path)?;
            println!("restored {}", path.display());
        }
        None => session.run(&model.init)?,
    }

    let before = session.run(&whole)?;
    let mut looked_up = HashSet::new();
    let first = session.run(&model.step)?.item::<i64>()?;
    for number in 0..flags.steps {
        let (pairs, alike) = batch(first as usize + number, flags.words)?;
        looked_up.extend(pairs.as_slice::<i64>()?.iter().copied());
        let feeds = feed! { model.pairs => pairs, model.alike => alike };
        let (loss, ()) = session.run_with((&model.loss, &model.train), feeds)?;
        if number % 50 == 0 || number + 1 == flags.steps {
            println!("step {:4}   loss {:.4}", first as usize + number, loss.item::<f32>()?);
        }
    }
    let changed = changed_rows(&before, &session.run(&whole)?)?;
    println!("{} rows of {} were looked up, {changed} changed", looked_up.len(), flags.words);

    if let Some(folder) = &flags.checkpoint_dir {
        let step = session.run(&model.step)?.item::<i64>()?;
        println!("saved {}", model.saver.save(&session, folder.join("embedding"), Some(step))?.display());
    }
    Ok(())
}

/// Pairs of words, few of them common as in any language, and whether they are of a kind.
fn batch(number: usize, words: usize) -> Result<(Tensor, Tensor)> {
    let mut state = number as u64 ^ 0x5DEE_CE66;
    let mut draw = || {
        // Steele's splitmix.
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        let part = ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1u64 << 53) as f64;
        (words as f64).powf(part) as i64 - 1
    };
    let pairs: Vec<i64> = (0..2 * BATCH).map(|_| draw()).collect();
    let alike = pairs.chunks(2).map(|pair| if pair[0] % 2 == pair[1] % 2 { 1.0f32 } else { -1.0 }).collect();
    Ok((Tensor::from_vec([BATCH, 2], pairs)?, Tensor::from_vec([BATCH], alike)?))
}

fn changed_rows(before: &Tensor, after: &Tensor) -> Result<usize> {
    let size = before.shape().last_dim()?;
    let rows = before.as_slice::<f32>()?.chunks(size).zip(after.as_slice::<f32>()?.chunks(size));
    Ok(rows.filter(|(before, after)| before != after).count())
}

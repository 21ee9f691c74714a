//! Writes a small training program for another program to run, and what it computes here.
//!
//! ```text
//! cargo run -p ferroflow --example export_training -- DIRECTORY
//! ```
//!
//! It is written twice: in `resource` with resource variables, in `reference` with reference variables. In each folder
//! `graph.pb` is the graph; `run.txt` names what to run (`init`, `train`, `loss`, `weights`, `x`, `labels`), then gives the loss of
//! each step and the final weights, one number a line. Step `i` is fed `x[r][c] = sin(i + r + 2c)` and the label `r % 2`.

use ferroflow::prelude::*;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

const STEPS: usize = 10;
const ROWS: usize = 6;

fn main() -> Result<()> {
    let Some(folder) = std::env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!("usage: export_training DIRECTORY");
        std::process::exit(2);
    };
    for (kind, is_resource) in [("resource", true), ("reference", false)] {
        let folder = folder.join(kind);
        std::fs::create_dir_all(&folder)?;
        export(&folder, is_resource)?;
    }
    Ok(())
}

fn export(folder: &Path, is_resource: bool) -> Result<()> {
    let g = Graph::new();
    g.use_resource_variables(is_resource);
    let hidden_w = g.variable("hidden_w", initializers::truncated_normal(0.0, 0.5, [4, 5]).seed(1));
    let hidden_b = g.variable("hidden_b", initializers::zeros([5]));
    let out_w = g.variable("out_w", initializers::truncated_normal(0.0, 0.5, [5, 2]).seed(2));
    let x = g.placeholder::<f32>([None, Some(4)]);
    let labels = g.placeholder::<f32>([None, Some(2)]);
    let y = x.matmul(&hidden_w).bias_add(&hidden_b).relu().matmul(&out_w).softmax();
    let loss = -(&labels * y.clip_by_value(1e-10, 1.0).log()).sum();
    let train = Adam::new(0.05).minimize(&loss);
    let init = g.initialize_all();

    let mut text = String::new();
    let weights = out_w.read();
    for (what, name) in [
        ("init", init.name()),
        ("train", train.name()),
        ("loss", loss.name()),
        ("weights", weights.name()),
        ("x", x.name()),
        ("labels", labels.name()),
    ] {
        let _ = writeln!(text, "{what} {name}");
    }
    let session = Session::new(&g)?;
    session.run(&init)?;
    for step in 0..STEPS {
        let (xs, answers) = batch(step)?;
        let (value, ()) = session.run_with((&loss, &*train), feed! { x => xs, labels => answers })?;
        let _ = writeln!(text, "{}", value.item::<f32>()?);
    }
    for weight in session.run(&weights)?.as_slice::<f32>()? {
        let _ = writeln!(text, "{weight}");
    }
    g.write(folder.join("graph.pb"))?;
    std::fs::write(folder.join("run.txt"), text)?;
    Ok(())
}

fn batch(step: usize) -> Result<(Tensor, Tensor)> {
    let mut xs = Vec::new();
    let mut answers = Vec::new();
    for row in 0..ROWS {
        xs.extend((0..4).map(|column| ((step + row + 2 * column) as f32).sin()));
        answers.extend((0..2).map(|class| if row % 2 == class { 1.0f32 } else { 0.0 }));
    }
    Ok((Tensor::from_vec([ROWS, 4], xs)?, Tensor::from_vec([ROWS, 2], answers)?))
}

//! Writes checkpoints for TensorFlow to read, and reads those that it wrote: tests/interop/run.py compares.
//!
//! ```sh
//! cargo run --example exchange_checkpoints -p ferroflow -- FOLDER
//! ```
//!
//! What was found in `FOLDER/theirs` must be what is written to `FOLDER/ours`: a variable of every element type, and a
//! table in parts.

use ferroflow::prelude::*;
use ferroflow::train::import_meta_graph;
use ferroflow::{SessionOptions, fixed_size_partitioner};
use std::path::{Path, PathBuf};
use tensor::{Complex, Element, bf16, f16};

fn main() -> Result<()> {
    let folder = std::env::args().nth(1).map(PathBuf::from);
    let folder = folder.ok_or_else(|| Error::new(Code::InvalidArgument, "wanted the folder to read and write"))?;
    for resource in [false, true] {
        for sharded in [false, true] {
            let kind = if resource { "resource" } else { "reference" };
            let name = format!("{}_{kind}", if sharded { "sharded" } else { "whole" });
            // Some are saved over what was saved before.
            let times = if resource { 2 } else { 1 };
            Model::new(resource, 2)?.save(&folder.join("ours").join(&name), sharded, times)?;
            let theirs = folder.join("theirs").join(&name);
            for parts in [1, 2, 3] {
                Model::new(!resource, parts)?.check(&theirs)?;
            }
            check_imported(&theirs)?;
        }
    }
    Ok(())
}

struct Model {
    /// A cluster of its own: variables outlive sessions.
    servers: Vec<Server>,
    graph: Graph,
    init: Operation,
    values: Vec<(String, Output, Tensor)>,
}

impl Model {
    fn new(resource: bool, parts: usize) -> Result<Model> {
        let servers = Server::create_cluster([("ps", 2), ("worker", 1)])?;
        let g = Graph::new();
        g.use_resource_variables(resource);
        g.device(replica_device_setter(servers[0].cluster()), || {
            let mut values = Vec::new();
            for (name, value) in contents()? {
                let output = match name {
                    "table" => g.partitioned_variable(name, value.clone(), &fixed_size_partitioner(parts)).value(),
                    _ => Output::from(&g.variable_with(name, value.clone(), VariableOptions::default())),
                };
                values.push((name.to_string(), output, value));
            }
            Ok(Model { servers, init: g.initialize_all(), graph: g.clone(), values })
        })
    }

    fn save(&self, prefix: &Path, sharded: bool, times: usize) -> Result<()> {
        let saver = Saver::builder(&self.graph).sharded(sharded).build();
        let session = Session::connect(self.servers[2].target(), &self.graph)?;
        session.run(&self.init)?;
        (0..times).try_for_each(|_| saver.save(&session, prefix, None).map(drop))
    }

    /// Restores a checkpoint, and nothing else, and compares.
    fn check(&self, prefix: &Path) -> Result<()> {
        let saver = Saver::new(&self.graph);
        let session = Session::connect(self.servers[2].target(), &self.graph)?;
        saver.restore(&session, prefix)?;
        let outputs: Vec<&Output> = self.values.iter().map(|(_, output, _)| output).collect();
        for ((name, _, wanted), found) in self.values.iter().zip(session.run(outputs)?) {
            compare(prefix, name, &found, wanted)?;
        }
        Ok(())
    }
}

/// Lets the saver that came with TensorFlow's graph restore that graph's own variables.
fn check_imported(prefix: &Path) -> Result<()> {
    let (graph, saver) = import_meta_graph(prefix.with_extension("meta"))?;
    let saver = saver.ok_or_else(|| Error::new(Code::NotFound, "the graph came without a saver"))?;
    let session =
        Session::connect_with("", &graph, SessionOptions { allow_soft_placement: true, ..Default::default() })?;
    saver.restore(&session, prefix)?;
    let contents = contents()?;
    for variable in graph.global_variables() {
        let found = session.run(&variable)?;
        if let Some((name, wanted)) = contents.iter().find(|(name, _)| *name == variable.name()) {
            compare(prefix, name, &found, wanted)?;
        }
    }
    Ok(())
}

fn compare(prefix: &Path, name: &str, found: &Tensor, wanted: &Tensor) -> Result<()> {
    if found == wanted {
        return Ok(());
    }
    let text = format!("{}: {name}: wanted {wanted}, found {found}", prefix.display());
    Err(Error::new(Code::DataLoss, text))
}

/// The numbers 0 to 5 in every element type, and some shapes that make a difference.
fn contents() -> Result<Vec<(&'static str, Tensor)>> {
    fn numbers<T: Element>(of: impl Fn(u8) -> T) -> Result<Tensor> {
        Tensor::from_vec([2, 3], (0..6).map(of).collect())
    }
    let table = (0..7u8).flat_map(|row| [0, 1].map(|column| f32::from(10 * row + column))).collect();
    Ok(vec![
        ("bf16", numbers(|i| bf16::from_f32(i.into()))?),
        ("bool", numbers(|i| i % 2 == 1)?),
        ("c128", numbers(|i| Complex::new(f64::from(i), 1.0 - f64::from(i)))?),
        ("c64", numbers(|i| Complex::new(f32::from(i), 1.0 - f32::from(i)))?),
        ("empty", Tensor::from_vec([0, 4], Vec::<f32>::new())?),
        ("f16", numbers(|i| f16::from_f32(i.into()))?),
        ("f32", numbers(f32::from)?),
        ("f64", numbers(f64::from)?),
        ("i16", numbers(i16::from)?),
        ("i32", numbers(i32::from)?),
        ("i64", numbers(i64::from)?),
        ("i8", numbers(|i| i as i8)?),
        ("scalar", Tensor::from(1_234_567_890_123i64)),
        ("table", Tensor::from_vec([7, 2], table)?),
        ("text", Tensor::from_strings([2, 3], (0..6).map(|i| format!("word {i}").into()).collect())?),
        ("u16", numbers(u16::from)?),
        ("u32", numbers(u32::from)?),
        ("u64", numbers(u64::from)?),
        ("u8", numbers(|i| i)?),
    ])
}

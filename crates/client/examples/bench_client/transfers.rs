//! Parameters on their way: one large one, a thousand small ones, some rows of a table.

use crate::measure::{Bench, PS, WORKER, print};
use ferroflow::initializers::{ones, random_uniform, zeros};
use ferroflow::prelude::*;

/// Bytes, of a text such as `64MB`.
pub fn parse_size(text: &str) -> Option<usize> {
    let units = [("KB", 10), ("MB", 20), ("GB", 30)];
    let (number, shift) = units.iter().find_map(|(unit, shift)| Some((text.strip_suffix(unit)?, shift)))?;
    number.parse::<usize>().ok()?.checked_mul(1 << shift)
}

fn show_size(bytes: usize) -> String {
    match bytes {
        1_073_741_824.. => format!("{} GB", bytes >> 30),
        1_048_576.. => format!("{} MB", bytes >> 20),
        _ => format!("{} KB", bytes >> 10),
    }
}

/// A variable that the workers keep for themselves.
fn kept(g: &Graph, name: &str, shape: impl Into<Shape>) -> Variable {
    g.variable_with(name, ones(shape), VariableOptions { trainable: false, ..Default::default() })
}

/// A variable of this many bytes is pulled from the ps and pushed to it.
pub fn dense(bench: &Bench, bytes: usize) -> Result<()> {
    let count = bytes / 4;
    let g = Graph::new();
    let variable = g.device(PS, || g.variable("v", zeros([count])));
    let (pull, sent) = g.device(WORKER, || {
        let gradient = kept(&g, "g", [count]);
        (variable.slice(&[count as i32 - 1], &[1]), g.op("Identity", [&gradient]))
    });
    let push = g.device(PS, || GradientDescent::new(1e-6).apply_gradients(&[(sent.into(), variable.clone())], None));
    let session = bench.session(&g)?;
    for (name, step) in [("pull", pull.operation()), ("push", push)] {
        let seconds = bench.median(|| session.run(&step))?;
        let name = format!("{name} {}", show_size(bytes));
        match bytes {
            1_048_576.. => print(&name, bytes as f64 / seconds / 1e9, "GB/s"),
            _ => print(&name, seconds * 1e6, "µs"),
        }
    }
    Ok(())
}

/// A thousand variables of a kilobyte are read, and updated.
pub fn many_small(bench: &Bench) -> Result<()> {
    const COUNT: usize = 1000;
    let g = Graph::new();
    let variables: Vec<Variable> =
        g.device(PS, || (0..COUNT).map(|i| g.variable(&format!("v{i}"), zeros([256]))).collect());
    let (total, rows) = g.device(WORKER, || {
        let rows = kept(&g, "g", [COUNT, 256]);
        let outputs = variables.iter().map(|variable| &**variable).collect::<Vec<_>>();
        Ok::<_, Error>((sum(&g, &outputs)?, unpack(&g, &rows, COUNT)?))
    })?;
    let gradients: Vec<_> = rows.into_iter().map(Gradient::from).zip(variables).collect();
    let push = g.device(PS, || GradientDescent::new(1e-3).apply_gradients(&gradients, None));
    let session = bench.session(&g)?;
    for (name, step) in [("read", total), ("push", push)] {
        let seconds = bench.median(|| session.run(&step))?;
        print(&format!("{COUNT} variables of 1 KB, {name}"), 1.0 / seconds, "steps/s");
    }
    Ok(())
}

/// The sum of many, in one node.
fn sum(g: &Graph, outputs: &[&Output]) -> Result<Operation> {
    let inputs = outputs.iter().map(|output| find(g, output)).collect::<Result<Vec<_>>>()?;
    g.scope().node("AddN").name("total").inputs(&inputs).build()?;
    Ok(g.find_operation("total"))
}

/// The rows of a matrix, by one node.
fn unpack(g: &Graph, matrix: &Output, rows: usize) -> Result<Vec<Output>> {
    g.scope().node("Unpack").name("rows").input(find(g, matrix)?).attr("num", rows as i64).build()?;
    Ok((0..rows).map(|i| g.find(&format!("rows:{i}"))).collect())
}

fn find(g: &Graph, output: &Output) -> Result<framework::Output> {
    let name = output.name();
    let found = g.scope().with_graph(|graph| graph.find_output(&name));
    found.ok_or_else(|| Error::new(Code::NotFound, format!("{name} is not in its graph")))
}

/// Rows of a table on the ps are looked up and trained.
pub fn embedding(bench: &Bench) -> Result<()> {
    const ROWS: usize = 1_000_000;
    const BATCH: usize = 4096;
    let g = Graph::new();
    let place = replica_device_setter(&bench.cluster).worker_device(WORKER);
    let steps = g.device(place, || {
        let tables = ["a", "b"].map(|name| g.variable(name, random_uniform(-1.0, 1.0, [ROWS, 64])));
        let ids = g.random_uniform([BATCH], 0.0, ROWS as f32).cast::<i64>();
        let [first, second] = tables.map(|table| table.embedding_lookup(&ids));
        let (sgd, adagrad) = (GradientDescent::new(0.1), Adagrad::new(0.1));
        [
            ("gather", first.slice(&[0, 0], &[1, 1]).operation()),
            ("SGD", sgd.minimize(&first.square().sum()).clone()),
            ("Adagrad", adagrad.minimize(&second.square().sum()).clone()),
        ]
    });
    let session = bench.session(&g)?;
    for (name, step) in steps {
        let seconds = bench.median(|| session.run(&step))?;
        print(&format!("embedding of a million rows, {name}"), BATCH as f64 / seconds, "rows/s");
    }
    Ok(())
}

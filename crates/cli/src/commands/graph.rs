//! `ferroflow graph`: looks into graph files.

use super::print;
use crate::plot::number;
use crate::table::{bytes, table};
use clap::{Args, Subcommand};
use ferroflow::inspect::{self, GraphNode};
use ferroflow::{Graph, Result};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

/// What to do with a graph file.
#[derive(Subcommand)]
pub enum Command {
    /// Print a graph, one line per node: name, op, inputs, attributes that differ from their defaults, device
    #[command(after_help = "\
Examples:
  ferroflow graph show model/graph.pb | grep MatMul
  ferroflow graph show model/graph.pb --sizes
  ferroflow graph show model/graph.pb --dot | dot -Tsvg > graph.svg")]
    Show(Show),
}

/// Which graph, and how.
#[derive(Args)]
pub struct Show {
    /// A serialized GraphDef, as TensorFlow writes it
    file: PathBuf,
    /// Print a table instead: each node's device, shapes, size and cost, and what they come to per device
    #[arg(long, conflicts_with = "dot")]
    sizes: bool,
    /// Print a drawing in the language of Graphviz instead, nodes in boxes by device
    #[arg(long)]
    dot: bool,
}

/// Runs the command.
pub fn run(command: Command) -> Result<()> {
    let Command::Show(show) = command;
    let graph = Graph::read(&show.file)?;
    print(&match (show.sizes, show.dot) {
        (true, _) => sizes(&inspect::nodes(&graph)),
        (_, true) => dot(&inspect::nodes(&graph)),
        _ => graph.to_string(),
    })
}

fn sizes(nodes: &[GraphNode]) -> String {
    let unknown = || "?".to_string();
    let rows = nodes.iter().map(|node| {
        let shapes: Vec<String> =
            node.outputs.iter().map(|output| format!("{} {}", output.dtype, output.shape)).collect();
        [
            node.name.clone(),
            node.op.clone(),
            place(node).to_string(),
            shapes.join(", "),
            node_bytes(node).map_or_else(unknown, bytes),
            node.flops.map_or_else(unknown, |flops| number(flops as f64)),
        ]
    });
    let all = table(["NODE", "OP", "DEVICE", "OUTPUTS", "SIZE", "FLOPS"], rows);
    let mut devices: BTreeMap<&str, (usize, u64, u64)> = BTreeMap::new();
    for node in nodes {
        let sum = devices.entry(place(node)).or_default();
        *sum = (sum.0 + 1, sum.1 + node_bytes(node).unwrap_or(0), sum.2 + node.flops.unwrap_or(0));
    }
    let rows = devices.into_iter().map(|(device, (count, size, flops))| {
        [device.to_string(), count.to_string(), bytes(size), number(flops as f64)]
    });
    format!("{all}\n{}", table(["DEVICE", "NODES", "SIZE", "FLOPS"], rows))
}

/// The device asked for.
fn place(node: &GraphNode) -> &str {
    if node.device.is_empty() { "any" } else { &node.device }
}

/// The size of all its outputs, if known.
fn node_bytes(node: &GraphNode) -> Option<u64> {
    node.outputs.iter().map(|output| output.bytes).sum()
}

fn dot(nodes: &[GraphNode]) -> String {
    let mut out =
        String::from("digraph graph_of_ops {\n  rankdir=LR; node [shape=box, style=rounded, fontname=Helvetica];\n");
    let mut devices: BTreeMap<&str, Vec<&GraphNode>> = BTreeMap::new();
    nodes.iter().for_each(|node| devices.entry(place(node)).or_default().push(node));
    for (i, (device, nodes)) in devices.iter().enumerate() {
        let _ = writeln!(out, "  subgraph cluster_{i} {{\n    label={};", quote(device));
        for node in nodes {
            let _ =
                writeln!(out, "    {} [label={}];", quote(&node.name), quote(&format!("{}\n{}", node.name, node.op)));
        }
        out.push_str("  }\n");
    }
    for node in nodes {
        for input in &node.inputs {
            let _ = writeln!(out, "  {} -> {};", quote(input), quote(&node.name));
        }
        for input in &node.control_inputs {
            let _ = writeln!(out, "  {} -> {} [style=dashed];", quote(input), quote(&node.name));
        }
    }
    out.push_str("}\n");
    out
}

/// A text as Graphviz reads it back.
fn quote(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph() -> Graph {
        let g = Graph::new();
        let x = g.placeholder::<f32>([None, Some(20)]);
        let w = g.device("/job:ps", || g.variable("w", vec![0.0f32; 60]));
        let _y = x.matmul(&w.reshape(&[20, 3]));
        g
    }

    #[test]
    fn sizes_are_summed_by_device() {
        let text = sizes(&inspect::nodes(&graph()));
        expect_test::expect![[r#"
            NODE             OP           DEVICE   OUTPUTS       SIZE   FLOPS
            Placeholder      Placeholder  any      float [?,20]  ?      ?
            w/initial_value  Const        /job:ps  float [60]    240 B  0
            w                VariableV2   /job:ps  float [60]    240 B  0
            w/Assign         Assign       /job:ps  float [60]    240 B  60
            w/read           Identity     /job:ps  float [60]    240 B  0
            Reshape/shape    Const        any      int32 [2]     8 B    0
            Reshape          Reshape      any      float [20,3]  240 B  0
            MatMul           MatMul       any      float [?,3]   ?      ?

            DEVICE   NODES  SIZE   FLOPS
            /job:ps  4      960 B  60
            any      4      248 B  0
        "#]]
        .assert_eq(&text);
    }

    #[test]
    fn a_drawing_has_boxes_by_device() {
        let text = dot(&inspect::nodes(&graph()));
        assert!(text.contains("label=\"/job:ps\";") && text.contains("\"Reshape\" -> \"MatMul\";"), "{text}");
    }
}

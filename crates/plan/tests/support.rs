//! Graphs in the text notation, placed on one CPU.

use framework::graph::text;
use framework::{DeviceName, Graph, Registry};
use plan::place::Choice;
use plan::{ClientEnd, PlacedGraph};
use std::sync::{Arc, OnceLock};
use tensor::Result;

pub fn registry() -> Arc<Registry> {
    static REGISTRY: OnceLock<Arc<Registry>> = OnceLock::new();
    REGISTRY.get_or_init(|| Arc::new(ops::registry())).clone()
}

#[track_caller]
pub fn graph(notation: &str) -> Graph {
    text::parse(notation, &registry()).unwrap()
}

/// The two devices there are; the first is the client's end.
pub fn devices() -> Vec<DeviceName> {
    vec![DeviceName::cpu("worker", 0, 0), DeviceName::cpu("ps", 0, 0)]
}

pub fn place(notation: &str, allow_soft_placement: bool) -> Result<PlacedGraph> {
    let choice = Choice { devices: &devices(), allow_soft_placement };
    plan::place(graph(notation), &PlacedGraph::default(), &choice)
}

pub fn client() -> ClientEnd {
    ClientEnd { device: devices()[0].to_string(), incarnation: 1 }
}

/// One line per node, without what every line would repeat: devices, and the attributes of sends and receives.
pub fn print(graph: &Graph) -> String {
    let lines = graph.nodes().map(|(_, node)| {
        let line = text::print_node(graph, node);
        let line = line.split(" @ ").next().unwrap_or_default();
        match (node.op.name.as_str(), line.split_once(" {")) {
            ("_Send" | "_Recv", Some((start, _))) => {
                format!("{start} as {}\n", node.attr::<String>("tensor_name").unwrap())
            }
            _ => format!("{line}\n"),
        }
    });
    lines.collect()
}

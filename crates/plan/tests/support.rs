//! Graphs in the text notation, placed on two tasks of two jobs each, with two CPUs each.

use framework::graph::text;
use framework::interpret::Interpreter;
use framework::{CpuDevice, DeviceName, Graph, Pool, Registry, SystemEnv};
use plan::place::Choice;
use plan::{ClientEnd, PlacedGraph};
use std::sync::{Arc, OnceLock};
use tensor::Result;

pub fn registry() -> Arc<Registry> {
    static REGISTRY: OnceLock<Arc<Registry>> = OnceLock::new();
    REGISTRY.get_or_init(|| Arc::new(ops::registry())).clone()
}

pub fn interpreter() -> Interpreter {
    let device = CpuDevice::new(DeviceName::cpu("worker", 0, 0), 1, Pool::inline());
    Interpreter::new(Arc::new(device), Arc::new(SystemEnv::default()))
}

#[track_caller]
pub fn graph(notation: &str) -> Graph {
    text::parse(notation, &registry()).unwrap()
}

/// All devices there are, in no useful order.
pub fn devices() -> Vec<DeviceName> {
    let jobs = ["worker", "ps"];
    let tasks = jobs.iter().flat_map(|job| [(job, 1), (job, 0)]);
    tasks.flat_map(|(job, task)| [DeviceName::cpu(job, task, 1), DeviceName::cpu(job, task, 0)]).collect()
}

/// The master's task.
pub const MASTER: &str = "/job:worker/replica:0/task:1";

pub fn place(notation: &str, allow_soft_placement: bool) -> Result<PlacedGraph> {
    place_more(graph(notation), &PlacedGraph::default(), allow_soft_placement)
}

pub fn place_more(graph: Graph, before: &PlacedGraph, allow_soft_placement: bool) -> Result<PlacedGraph> {
    let choice = Choice { devices: &devices(), master: MASTER, default_device: None, allow_soft_placement };
    plan::place(graph, before, &choice, &registry())
}

pub fn client() -> ClientEnd {
    ClientEnd { device: format!("{MASTER}/device:CPU:0"), incarnation: 1 }
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

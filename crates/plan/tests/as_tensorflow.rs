//! Graphs placed and cut by TensorFlow 2.21, and by us: the same nodes on the same devices with the same edges.
//!
//! Names that the master or a worker made up differ, so that a node of theirs is called by what it does: a `_Recv` by
//! what it receives, a node of a control loop by its op.

use crate::support::{client, place_more, registry};
use framework::graph::{export, import};
use framework::{DeviceName, Graph};
use plan::{EdgeNames, PlacedGraph, RunSignature};
use prost::Message;
use std::collections::HashMap;

fn load<M: Message + Default>(file: &str) -> M {
    let file = format!("{}/../../testdata/partitions/{file}", env!("CARGO_MANIFEST_DIR"));
    M::decode(std::fs::read(file).unwrap().as_slice()).unwrap()
}

/// One graph per device, as cut by the master by task and by each worker by device.
fn ours(message: &proto::GraphDef) -> Vec<proto::GraphDef> {
    let graph = import::import(message, &registry()).unwrap();
    let named = |start: &str| -> Vec<String> {
        graph.nodes().map(|(_, n)| n.name.clone()).filter(|name| name.starts_with(start)).collect()
    };
    let signature =
        RunSignature::new(vec![], named("fetch_").into_iter().map(|name| name + ":0").collect(), named("target_"));
    let placed = place_more(graph.clone(), &PlacedGraph::default(), false).unwrap();
    let pruned = plan::prune(&placed, &signature.unwrap(), &client(), &registry()).unwrap().graph;
    let cut = |graph: &Graph, group_of: &dyn Fn(&DeviceName) -> String| {
        plan::partition(graph, &registry(), group_of, &|_| Ok(1), &mut EdgeNames::default()).unwrap()
    };
    let tasks = cut(&pruned, &DeviceName::task_name);
    let devices = tasks.iter().flat_map(|task| cut(&task.graph, &DeviceName::to_string));
    devices.map(|part| export::export(&part.graph)).collect()
}

/// Names of nodes by what they do.
struct Names<'a> {
    nodes: HashMap<&'a str, &'a proto::NodeDef>,
    /// What is sent, by the name of the edge.
    sent: HashMap<String, &'a str>,
}

impl<'a> Names<'a> {
    fn new(parts: &'a [proto::GraphDef]) -> Names<'a> {
        let nodes: HashMap<&str, &proto::NodeDef> =
            parts.iter().flat_map(|p| &p.node).map(|n| (n.name.as_str(), n)).collect();
        let sends = nodes.values().filter(|n| n.op.ends_with("Send"));
        let sent = sends.map(|n| (attr(n, "tensor_name") + &attr(n, "recv_device"), n.input[0].as_str())).collect();
        Names { nodes, sent }
    }

    fn input(&self, input: &str) -> String {
        match input.split_once(':') {
            Some((node, index)) => format!("{}:{index}", self.node(node)),
            None => self.node(input),
        }
    }

    fn node(&self, name: &str) -> String {
        let Some(node) = self.nodes.get(name) else { return format!("?{name}") };
        if name.starts_with("_cloop") {
            return format!("<loop {}>", node.op);
        }
        let name = name.split("/replicate/").next().unwrap_or(name);
        let is_ours = name
            .rsplit_once(['S', 'G'])
            .is_some_and(|(start, number)| start.ends_with('_') && number.bytes().all(|b| b.is_ascii_digit()));
        if !is_ours {
            return name.to_string();
        }
        let data = node.input.iter().filter(|i| !i.starts_with('^')).map(|i| self.input(i));
        match node.op.as_str() {
            "_Recv" | "_HostRecv" => {
                let sent = self.sent[&(attr(node, "tensor_name") + &attr(node, "recv_device"))];
                format!("<received {}>", self.input(sent))
            }
            "_Send" | "_HostSend" => {
                let to = attr(node, "recv_device");
                format!("<send {} to {to}>", self.input(&node.input[0]))
            }
            "Const" if !node.input.is_empty() => {
                format!("<after {}>", self.node(node.input[0].trim_start_matches('^')))
            }
            "Const" if is_empty(node) => "<nothing>".to_string(),
            // A copy of a constant is called like the constant.
            "Const" => name.rsplit_once('_').map_or("", |(start, _)| start).to_string(),
            op => format!("<{op} {}>", data.collect::<Vec<_>>().join(", ")),
        }
    }

    /// A line for each node: device, name, op, inputs, and what it waits for.
    fn lines(&self) -> Vec<String> {
        let line = |node: &&proto::NodeDef| {
            let data = node.input.iter().filter(|i| !i.starts_with('^')).map(|i| self.input(i));
            let mut controls: Vec<String> =
                node.input.iter().filter_map(|i| i.strip_prefix('^')).map(|c| format!("^{}", self.node(c))).collect();
            if !node.op.ends_with("Recv") {
                controls.retain(|c| c != "^<loop Merge>"); // what waits for a receive need not wait for its trigger
            }
            controls.sort();
            let inputs: Vec<String> = data.chain(controls).collect();
            let op = node.op.replace("_Host", "_");
            format!("{} {} = {op}({})", node.device, self.node(&node.name), inputs.join(", "))
        };
        let mut lines: Vec<String> = self.nodes.values().map(line).collect();
        lines.sort();
        lines
    }
}

fn is_empty(constant: &proto::NodeDef) -> bool {
    match constant.attr.get("value").and_then(|a| a.value.as_ref()) {
        Some(proto::attr_value::Value::Tensor(value)) => {
            value.tensor_shape.as_ref().is_some_and(|shape| shape.dim.iter().any(|d| d.size == 0))
        }
        _ => false,
    }
}

fn attr(node: &proto::NodeDef, name: &str) -> String {
    match node.attr.get(name).and_then(|a| a.value.as_ref()) {
        Some(proto::attr_value::Value::S(text)) => String::from_utf8_lossy(text).into_owned(),
        _ => String::new(),
    }
}

#[track_caller]
fn check(name: &str) {
    let ours = ours(&load(&format!("{name}.graph.pb")));
    let theirs = load::<proto::RunMetadata>(&format!("{name}.parts.pb")).partition_graphs;
    let (ours, theirs) = (Names::new(&ours).lines(), Names::new(&theirs).lines());
    let only = |a: &[String], b: &[String]| a.iter().filter(|l| !b.contains(l)).cloned().collect::<Vec<_>>().join("\n");
    assert!(ours == theirs, "only ours:\n{}\nonly theirs:\n{}", only(&ours, &theirs), only(&theirs, &ours));
    assert!(!ours.is_empty());
}

#[test]
fn a_training_step_with_reference_variables() {
    check("training_reference");
}

#[test]
fn a_training_step_with_resource_variables() {
    check("training_resource");
}

#[test]
fn constants_and_shapes_go_where_they_are_used() {
    check("constants_and_shapes");
}

#[test]
fn signals_between_tasks_and_devices() {
    check("signals");
}

#[test]
fn handles_hold_their_users() {
    check("handles");
}

#[test]
fn a_branch_over_three_tasks() {
    check("branch");
}

#[test]
fn a_loop_over_two_tasks() {
    check("loop_over_tasks");
}

#[test]
fn a_loop_over_two_devices_of_a_task() {
    check("loop_over_devices");
}

#[test]
fn a_loop_within_a_loop_over_two_tasks() {
    check("nested_loop");
}

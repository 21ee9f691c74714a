//! Times of nodes as the message that trace viewers read.

use framework::step::NodeTimes;
use plan::Part;
use std::collections::{BTreeMap, HashSet};
use tensor::Tensor;

/// The times of a step that began at this time, in microseconds, on these parts.
pub(super) fn step_stats(mut times: Vec<NodeTimes>, parts: &[Part], began: u64) -> proto::StepStats {
    add_constants(&mut times, parts, began);
    let mut by_device: BTreeMap<String, Vec<proto::NodeExecStats>> = BTreeMap::new();
    for node in times {
        let outputs = node.output_bytes.iter().enumerate().map(|(slot, &bytes)| proto::NodeOutput {
            slot: slot as i32,
            tensor_description: Some(proto::TensorDescription {
                allocation_description: Some(proto::AllocationDescription {
                    requested_bytes: bytes as i64,
                    allocator_name: "cpu".into(),
                    ..Default::default()
                }),
                ..Default::default()
            }),
        });
        let stats = proto::NodeExecStats {
            node_name: node.node.clone(),
            all_start_micros: node.scheduled as i64,
            op_end_rel_micros: (node.end - node.start) as i64,
            all_end_rel_micros: (node.end - node.scheduled) as i64,
            output: outputs.collect(),
            timeline_label: format!("{} = {}", node.node, node.op),
            thread_id: node.thread,
            ..Default::default()
        };
        by_device.entry(node.device).or_default().push(stats);
    }
    let devices = by_device.into_iter().map(|(device, node_stats)| proto::DeviceStepStats {
        device,
        node_stats,
        ..Default::default()
    });
    proto::StepStats { dev_stats: devices.collect() }
}

/// Constants are known to who uses them and take no time; TensorFlow's traces show them, and its tests look for them.
fn add_constants(times: &mut Vec<NodeTimes>, parts: &[Part], began: u64) {
    let noted: HashSet<String> = times.iter().map(|node| node.node.clone()).collect();
    for part in parts {
        let nodes = part.graph.nodes().map(|(_, node)| node);
        let unnoted = nodes.filter(|n| n.op.name == "Const" && n.control_inputs.is_empty() && !noted.contains(&n.name));
        times.extend(unnoted.map(|node| NodeTimes {
            node: node.name.clone(),
            op: node.op.name.to_string(),
            device: part.name.clone(),
            thread: 0,
            scheduled: began,
            start: began,
            end: began,
            output_bytes: node.attr::<Tensor>("value").iter().map(|value| value.num_bytes() as u64).collect(),
        }));
    }
}

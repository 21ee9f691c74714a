//! Times of nodes as the message that trace viewers read.

use framework::step::NodeTimes;
use std::collections::BTreeMap;

pub(super) fn step_stats(times: Vec<NodeTimes>) -> proto::StepStats {
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

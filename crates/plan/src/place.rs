//! Gives every node a device.
//!
//! Placed before pruning: two runs that prune differently must still agree on where a variable lives.

use framework::{DeviceName, DeviceSpec, Graph};
use tensor::{Result, invalid};

/// A graph whose every node has a device.
#[derive(Clone, Debug, Default)]
pub struct PlacedGraph {
    /// The nodes.
    pub graph: Graph,
    devices: Vec<DeviceName>,
}

impl PlacedGraph {
    /// Where a node goes.
    pub fn device(&self, node: framework::NodeId) -> &DeviceName {
        &self.devices[node.index()]
    }
}

/// What there is to choose from, and how freely.
pub struct Choice<'a> {
    /// The devices, the preferred ones first.
    pub devices: &'a [DeviceName],
    /// Whether a device of another type or number will do where the one asked for does not exist.
    pub allow_soft_placement: bool,
}

/// Places the nodes of `graph`; those that `before` has placed already stay where they are.
pub fn place(graph: Graph, before: &PlacedGraph, choice: &Choice<'_>) -> Result<PlacedGraph> {
    let mut devices = before.devices.clone();
    for (_, node) in graph.nodes().skip(devices.len()) {
        let spec: DeviceSpec = node.device.parse().map_err(|_| {
            invalid!(
                "Malformed device specification '{}' in node: {}\n\t [[{{{{node {}}}}}]]",
                node.device,
                node.name,
                node.name
            )
        })?;
        let fits = |spec: &DeviceSpec| choice.devices.iter().find(|d| spec.matches(d)).cloned();
        let found = fits(&spec).or_else(|| {
            let soft = DeviceSpec { kind: None, index: None, ..spec.clone() };
            choice.allow_soft_placement.then(|| fits(&soft)).flatten()
        });
        devices.push(found.ok_or_else(|| {
            let mut known: Vec<String> = choice.devices.iter().map(|d| d.to_string()).collect();
            known.sort();
            let gpu = if spec.kind.as_deref() == Some("GPU") { " The requested device appears to be a GPU, but there is none; allow_soft_placement runs the node on a CPU instead." } else { "" };
            invalid!(
                "Cannot assign a device for operation {0}: {{{{node {0}}}}} was explicitly assigned to {1} but available devices are [ {2} ]. Make sure the device specification refers to a valid device.{gpu}\n\t [[{{{{node {0}}}}}]]",
                node.name, spec, known.join(", ")
            )
        })?);
    }
    Ok(PlacedGraph { graph, devices })
}

//! Gives every node a device.
//!
//! Placed before pruning: two runs that prune differently must still agree on where a variable lives. For the same
//! reason a node with state stays where it was placed first, however the graph grows; others are placed anew.
//!
//! Which nodes must stay together is the business of [`Groups`](crate::colocate::Groups); here a group's wish is
//! matched with the devices there are.

use crate::colocate::Groups;
use framework::{DeviceName, DeviceSpec, Graph, Node, NodeId, Registry};
use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::sync::Arc;
use tensor::{Error, Result, invalid};

/// A graph whose every node has a device.
#[derive(Clone, Debug, Default)]
pub struct PlacedGraph {
    /// The nodes.
    pub graph: Graph,
    devices: Vec<Arc<DeviceName>>,
}

impl PlacedGraph {
    /// Where a node goes.
    pub fn device(&self, node: NodeId) -> &DeviceName {
        &self.devices[node.index()]
    }

    pub(crate) fn shared_device(&self, node: NodeId) -> &Arc<DeviceName> {
        &self.devices[node.index()]
    }

    /// A line for each node: `name: (Op): device`.
    pub fn log(&self) -> String {
        let mut log = String::new();
        for (id, node) in self.graph.nodes() {
            let _ = writeln!(log, "{}: ({}): {}", node.name, node.op.name, self.device(id));
        }
        log
    }
}

/// What there is to choose from, and how freely.
pub struct Choice<'a> {
    /// All devices of the session, in any order.
    pub devices: &'a [DeviceName],
    /// The master's own task, such as `/job:worker/replica:0/task:0`: its devices are preferred.
    pub master: &'a str,
    /// Devices to prefer to all others, if any.
    pub default_device: Option<&'a DeviceSpec>,
    /// Whether a device of another type or number will do where the one asked for does not exist, and whether a wish
    /// to be colocated that cannot be granted is ignored.
    pub allow_soft_placement: bool,
}

/// Places the nodes of `graph`; those with state that `before` has placed already, found by name, stay where they are.
pub fn place(graph: Graph, before: &PlacedGraph, choice: &Choice<'_>, registry: &Registry) -> Result<PlacedGraph> {
    let groups = Groups::new(&graph, before, choice.allow_soft_placement)?;
    let mut placer = Placer {
        graph: &graph,
        groups,
        consumers: graph.consumers(),
        devices: Devices::new(choice),
        found: vec![None; graph.len()],
        choice,
    };
    let mut sources = Vec::new();
    for (id, node) in graph.nodes() {
        check_kernel(node, registry)?;
        if is_source(node) && placer.groups.assigned(id).is_none() {
            sources.push(id);
        } else {
            placer.place_node(id)?;
        }
    }
    placer.place_sources(&sources)?;
    let devices = placer.found.into_iter().flatten().collect();
    Ok(PlacedGraph { graph, devices })
}

/// A function's signature is an op without kernel too, but not a registered one.
fn check_kernel(node: &Node, registry: &Registry) -> Result<()> {
    if registry.get(&node.op.name).is_some_and(|op| op.kernel.is_none()) {
        let attrs: Vec<String> = node.attrs.iter().map(|(name, value)| format!("{name}={value}")).collect();
        return Err(invalid!(
            "Cannot assign a device for operation {0}: No OpKernel was registered to support Op '{1}' used by {{{{node {0}}}}} with these attrs: [{2}]\n\t [[{0}]]",
            node.name,
            node.op.name,
            attrs.join(", ")
        ));
    }
    Ok(())
}

/// Constants and the like: they go where they are used, so they wait until that is known.
fn is_source(node: &Node) -> bool {
    node.inputs.is_empty() && node.outputs.len() == 1 && !node.outputs[0].is_ref
}

/// Ops that look at the shape of a value and not at the value: they go where it is.
fn looks_at_shape_only(node: &Node) -> bool {
    matches!(node.op.name.as_str(), "Shape" | "Size" | "Rank")
}

struct Placer<'a> {
    graph: &'a Graph,
    groups: Groups<'a>,
    consumers: Vec<Vec<NodeId>>,
    devices: Devices,
    found: Vec<Option<Arc<DeviceName>>>,
    choice: &'a Choice<'a>,
}

impl Placer<'_> {
    fn place_node(&mut self, id: NodeId) -> Result<()> {
        let node = self.graph.node(id);
        let beside = match node.inputs.first() {
            Some(input) if looks_at_shape_only(node) || self.is_link(id) => self.found[input.node.index()].clone(),
            _ => None,
        };
        self.assign(id, beside)
    }

    /// Whether a node merely passes a value from one node to another that asks for the same device, and asks for none
    /// itself: it stays with the first.
    fn is_link(&self, id: NodeId) -> bool {
        let node = self.graph.node(id);
        let to = match self.consumers[id.index()].as_slice() {
            [] => "",
            [one] => &self.graph.node(*one).device,
            _ => return false,
        };
        node.op.name == "Identity"
            && node.device.is_empty()
            && node.control_inputs.is_empty()
            && self.graph.node(node.inputs[0].node).device == to
    }

    /// Places nodes without inputs with those that use them, if these are all in one place.
    fn place_sources(&mut self, sources: &[NodeId]) -> Result<()> {
        for &id in sources {
            let mut places = self.consumers[id.index()].iter().map(|c| &self.found[c.index()]);
            let first = places.next().cloned().flatten();
            let beside = first.filter(|first| places.all(|place| place.as_ref() == Some(first)));
            self.assign(id, beside)?;
        }
        Ok(())
    }

    /// Puts a node beside another one if its group may be there, and on the best device for it otherwise.
    fn assign(&mut self, id: NodeId, beside: Option<Arc<DeviceName>>) -> Result<()> {
        let device = match self.groups.assigned(id) {
            Some(device) => device.clone(),
            None => {
                let candidates = self.candidates(id)?;
                let device = match beside.filter(|device| candidates.contains(device)) {
                    Some(device) => device,
                    None => candidates[0].clone(),
                };
                self.groups.assign(id, device.clone());
                device
            }
        };
        self.found[id.index()] = Some(device);
        Ok(())
    }

    /// The devices a node may be placed on, the best first; at least one.
    fn candidates(&mut self, id: NodeId) -> Result<Arc<[Arc<DeviceName>]>> {
        let wish = self.groups.wish(id).clone();
        let mut found = self.devices.matching(&wish);
        if found.is_empty() && self.choice.allow_soft_placement {
            found = self.devices.matching(&DeviceSpec { index: None, ..wish.clone() });
            if found.is_empty() {
                found = self.devices.matching(&DeviceSpec { kind: None, index: None, ..wish.clone() });
            }
        }
        if found.is_empty() { Err(self.nowhere(id, &wish)) } else { Ok(found) }
    }

    fn nowhere(&mut self, id: NodeId, wish: &DeviceSpec) -> Error {
        let node = self.graph.node(id);
        let (name, known) = (&node.name, self.devices.names().join(", "));
        let own: DeviceSpec = node.device.parse().unwrap_or_default();
        if self.devices.matching(&own).is_empty() {
            let gpu = match own.kind.as_deref() {
                Some("GPU") => " The requested device appears to be a GPU, but CUDA is not enabled.",
                _ => "",
            };
            return invalid!(
                "Cannot assign a device for operation {name}: {{{{node {name}}}}} was explicitly assigned to {own} but available devices are [ {known} ]. Make sure the device specification refers to a valid device.{gpu}\n\t [[{name}]]"
            );
        }
        let members: Vec<String> = self
            .groups
            .members(id)
            .map(|m| self.graph.node(m))
            .map(|m| format!("\n  {} ({}) {}", m.name, m.op.name, m.device))
            .collect();
        invalid!(
            "Cannot assign a device for operation {name}: Could not satisfy explicit device specification '{}' because the node {{{{colocation_node {name}}}}} was colocated with a group of nodes that required incompatible device '{wish}'. All available devices [{known}]. \nThe group, with the devices asked for:{}\n\t [[{{{{node {name}}}}}]]",
            node.device,
            members.concat()
        )
    }
}

/// The devices of a session, the preferred ones first.
struct Devices {
    sorted: Vec<Arc<DeviceName>>,
    matching: HashMap<DeviceSpec, Arc<[Arc<DeviceName>]>>,
}

impl Devices {
    fn new(choice: &Choice<'_>) -> Devices {
        let mut sorted: Vec<(bool, bool, String, &DeviceName)> = choice
            .devices
            .iter()
            .map(|d| {
                let preferred = choice.default_device.is_some_and(|spec| spec.matches(d));
                (!preferred, d.task_name() != choice.master, d.to_string(), d)
            })
            .collect();
        sorted.sort();
        Devices { sorted: sorted.into_iter().map(|d| Arc::new(d.3.clone())).collect(), matching: HashMap::new() }
    }

    /// The devices that fit. Kernels are for CPUs: another type of device must be asked for.
    fn matching(&mut self, spec: &DeviceSpec) -> Arc<[Arc<DeviceName>]> {
        if let Some(known) = self.matching.get(spec) {
            return known.clone();
        }
        let fits = |d: &&Arc<DeviceName>| spec.matches(d) && (spec.kind.is_some() || d.kind == "CPU");
        let found: Arc<[Arc<DeviceName>]> = self.sorted.iter().filter(fits).cloned().collect();
        self.matching.insert(spec.clone(), found.clone());
        found
    }

    fn names(&self) -> Vec<String> {
        let names: HashSet<String> = self.sorted.iter().map(|d| d.to_string()).collect();
        let mut names: Vec<String> = names.into_iter().collect();
        names.sort();
        names
    }
}

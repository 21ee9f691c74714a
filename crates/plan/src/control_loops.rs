//! Keeps a loop whose body lies on several devices in step on all of them.
//!
//! A `_Recv` has no inputs, so that within a loop nothing would make it run once in each iteration. Therefore every
//! device that receives values within a loop gets a small loop of its own, which goes round as often as the real one
//! because it receives the real one's predicate: `Enter` → `Merge` → `Switch` → `NextIteration` → back. Whoever receives
//! waits for its `Merge`. The names of such control loops begin with `_cloop`; by this a task recognises, when it cuts
//! its part into devices, that the loops are there already and which receive waits for which.

use crate::partition::EdgeNames;
use framework::graph::{Frames, NewNode, sources};
use framework::{Attrs, ControlFlow, Graph, Node, NodeId, Output, Registry};
use std::collections::HashMap;
use tensor::{DType, Result, Tensor, invalid};

/// How the names of control loops begin, here and in TensorFlow.
const PREFIX: &str = "_cloop";

/// What starts, in each iteration, the receives of a node within a loop.
pub(crate) fn trigger(graph: &Graph, node: &Node) -> Option<NodeId> {
    let is_trigger = |id: &NodeId| {
        let source = graph.node(*id);
        source.op.control_flow == ControlFlow::Merge && source.name.starts_with(PREFIX)
    };
    node.control_inputs.iter().copied().find(is_trigger)
}

/// The graph with branches and loops ready to be cut at any edge between devices; nothing if it is so already.
pub(crate) fn prepare(graph: &Graph, registry: &Registry, names: &mut EdgeNames) -> Result<Option<Graph>> {
    if graph.nodes().all(|(_, node)| node.op.control_flow == ControlFlow::None || is_end(node)) {
        return Ok(None);
    }
    let first = graph.nodes().next().map(|(_, node)| &node.device);
    if graph.nodes().all(|(_, node)| Some(&node.device) == first) {
        return Ok(None);
    }
    let mut graph = graph.clone();
    move_to_data(&mut graph)?;
    if graph.nodes().any(|(_, node)| node.op.control_flow == ControlFlow::Enter) {
        let frames = Frames::find(&graph)?;
        Builder { loop_conds: loop_conds(&graph, &frames), graph, frames, loops: HashMap::new(), registry, names }
            .build()
            .map(Some)
    } else {
        Ok(Some(graph))
    }
}

fn is_end(node: &Node) -> bool {
    matches!(node.op.control_flow, ControlFlow::Send | ControlFlow::ControlTrigger)
}

/// Puts the nodes that only pass values on where these come from or go to, so that a loop is crossed as seldom as
/// possible: an invariant once and not in every iteration, a result once and not every intermediate one.
fn move_to_data(graph: &mut Graph) -> Result<()> {
    for id in graph.in_topological_order()? {
        let node = graph.node(id);
        if let (ControlFlow::Switch | ControlFlow::Exit, Some(input)) = (node.op.control_flow, node.inputs.first()) {
            let device = graph.node(input.node).device.clone();
            graph.set_device(id, device);
        }
    }
    let mut first_user: Vec<Option<NodeId>> = vec![None; graph.len()];
    for (id, node) in graph.nodes() {
        for input in &node.inputs {
            first_user[input.node.index()].get_or_insert(id);
        }
    }
    for (index, user) in first_user.into_iter().enumerate() {
        let (id, Some(user)) = (NodeId(index as u32), user) else { continue };
        let node = graph.node(id);
        let passes_in = matches!(node.op.control_flow, ControlFlow::Enter | ControlFlow::NextIteration);
        if passes_in && !node.op.has_reference_output() {
            let device = graph.node(user).device.clone();
            graph.set_device(id, device);
        }
    }
    Ok(())
}

/// The predicate of each loop.
fn loop_conds(graph: &Graph, frames: &Frames) -> HashMap<u32, NodeId> {
    let conds = graph.nodes().filter(|(_, node)| node.op.name == "LoopCond");
    conds.map(|(id, _)| (frames.runs_in[id.index()], id)).collect()
}

struct Builder<'a> {
    graph: Graph,
    frames: Frames,
    loop_conds: HashMap<u32, NodeId>,
    /// The `Merge` of the control loop of a frame on a device.
    loops: HashMap<(u32, String), NodeId>,
    registry: &'a Registry,
    names: &'a mut EdgeNames,
}

impl Builder<'_> {
    fn build(mut self) -> Result<Graph> {
        let crossings: Vec<(NodeId, u32)> =
            self.graph.nodes().filter_map(|(id, node)| Some((id, self.frame_received_in(node)?))).collect();
        for (user, frame) in crossings {
            let node = self.graph.node(user);
            if trigger(&self.graph, node).is_none() {
                let (name, device) = (node.name.clone(), node.device.clone());
                let merge = self.control_loop(frame, &device, &name)?;
                self.graph.add_control(merge, user);
            }
        }
        Ok(self.graph)
    }

    /// The loop in which a node uses something from another device, if it does.
    fn frame_received_in(&self, node: &Node) -> Option<u32> {
        let is_elsewhere = |source: &NodeId| self.graph.node(*source).device != node.device;
        let frame = self.frames.leads_to[sources(node).find(is_elsewhere)?.index()];
        (frame != 0).then_some(frame)
    }

    /// The `Merge` of the control loop of a frame on a device, made now if there is none. Within a loop, it starts anew
    /// in each iteration of the control loop around it.
    fn control_loop(&mut self, frame: u32, device: &str, user: &str) -> Result<NodeId> {
        if let Some(&known) = self.loops.get(&(frame, device.to_string())) {
            return Ok(known);
        }
        let description = self.frames.frames[frame as usize].clone();
        let cond = *self
            .loop_conds
            .get(&frame)
            .ok_or_else(|| invalid!("A cross-device loop must have a pivot predicate: {}", description.name))?;
        let start = match description.parent {
            0 => self.empty_constant(device, user)?,
            parent => self.control_loop(parent, device, user)?,
        };
        let mut attrs = Attrs::new();
        attrs.insert("frame_name".into(), description.name.into());
        attrs.insert("parallel_iterations".into(), description.parallel_iterations.into());
        let enter = self.add("Enter", attrs, vec![start.into()], device, user)?;
        let merge = self.add("Merge", Attrs::new(), vec![enter.into(), enter.into()], device, user)?;
        let switch = self.add("Switch", Attrs::new(), vec![merge.into(), cond.into()], device, user)?;
        let next = Output { node: switch, index: 1 };
        let next = self.add("NextIteration", Attrs::new(), vec![next], device, user)?;
        self.graph.set_input(merge, 1, next.into())?;
        if self.graph.node(cond).device != device {
            self.graph.add_control(merge, switch);
        }
        self.loops.insert((frame, device.to_string()), merge);
        Ok(merge)
    }

    fn empty_constant(&mut self, device: &str, user: &str) -> Result<NodeId> {
        let mut attrs = Attrs::new();
        attrs.insert("dtype".into(), DType::F32.into());
        attrs.insert("value".into(), Tensor::from_vec([0], Vec::<f32>::new())?.into());
        let name = self.names.node(&self.graph, user);
        let op = self.registry.lookup("Const")?.clone();
        let (inputs, control_inputs) = (Vec::new(), Vec::new());
        self.graph.add(NewNode { name, op, attrs, inputs, control_inputs, device: device.to_string() })
    }

    fn add(&mut self, op: &str, attrs: Attrs, inputs: Vec<Output>, device: &str, user: &str) -> Result<NodeId> {
        let op = self.registry.lookup(op)?.clone();
        let name = self.names.node(&self.graph, &format!("{PREFIX}{user}"));
        self.graph.add(NewNode { name, op, attrs, inputs, control_inputs: Vec::new(), device: device.to_string() })
    }
}

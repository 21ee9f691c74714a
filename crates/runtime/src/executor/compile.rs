//! From a graph to a plan: kernels made, edges turned into slot numbers, frames found.

use super::hurry::Pace;
use crate::function::LibraryFunctions;
use framework::graph::Frames;
use framework::interpret::build_kernel;
use framework::{Attrs, BuiltKernel, ControlFlow, Device, Env, Functions, Graph, Node, NodeId, Output, RendezvousKey};
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use tensor::{Result, Tensor, invalid};

/// Kernels of stateful nodes, by node name: one instance for all executors of a session.
#[derive(Default)]
pub struct KernelCache {
    kernels: Mutex<HashMap<String, Kept>>,
}

/// A kernel, and what it was made from: plans may give the same name to different nodes of their own, as they do to the
/// receive of an output that is fed under two spellings.
struct Kept {
    op: String,
    attrs: Attrs,
    kernel: BuiltKernel,
}

impl Kept {
    fn fits(&self, node: &Node) -> bool {
        self.op == node.op.name && self.attrs == node.attrs
    }
}

impl KernelCache {
    /// The kernel of a node: kept if the op is stateful, fresh otherwise.
    fn get(
        &self,
        node: &Node,
        device: &Arc<dyn Device>,
        env: &Arc<dyn Env>,
        functions: &Arc<dyn Functions>,
    ) -> Result<BuiltKernel> {
        let keeps = node.op.is_stateful || node.op.has_reference_output();
        if !keeps {
            return build_kernel(node, device, env, functions);
        }
        if let Some(kept) = self.kernels.lock().get(&node.name)
            && kept.fits(node)
        {
            return Ok(kept.kernel.clone());
        }
        let kernel = build_kernel(node, device, env, functions)?;
        let mut kernels = self.kernels.lock();
        let made = || Kept { op: node.op.name.clone(), attrs: node.attrs.clone(), kernel: kernel.clone() };
        let kept = kernels.entry(node.name.clone()).or_insert_with(made);
        Ok(if kept.fits(node) { kept.kernel.clone() } else { kernel })
    }
}

/// What the executor does for a node.
pub(super) enum Work {
    Kernel(BuiltKernel),
    /// Gives the same values in every step.
    Constant(Box<[Tensor]>),
    Switch,
    /// Data inputs that arrive in iteration 0, and those that arrive in later ones.
    Merge {
        first: u32,
        later: u32,
    },
    /// Into the frame with this number in the plan.
    Enter {
        frame: u32,
        is_constant: bool,
    },
    Exit,
    NextIteration,
}

/// Where one output goes, with all that handing it over needs to know of the consumer. The last edge of an output may
/// take the value instead of copying the reference.
pub(super) struct Edge {
    pub output: u32,
    pub slot: u32,
    pub is_last: bool,
    pub to: Consumer,
}

/// Who waits for a value or an end.
#[derive(Clone, Copy)]
pub(super) struct Consumer {
    pub node: u32,
    pub counter: u32,
    pub arrival: Arrival,
    pub is_costly: bool,
}

/// What an arrival at a node does.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Arrival {
    /// Makes it ready: it has no other input.
    Only,
    /// Makes it ready if it is alive, and is forgotten otherwise: it has no other input, and does nothing when dead.
    OnlyAlive,
    /// Counts it down.
    Counts,
    /// Is up to the merge.
    Merges,
    /// Is up to the merge, which nothing but a value makes ready.
    MergesAlone,
}

/// How an input that comes from a variable is treated.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Reading {
    /// Not a reference.
    Value,
    /// A reference where the op wants the value.
    Read,
    /// A reference that must have a value.
    CheckInitialized,
    /// A reference as it is.
    Pass,
}

/// Nodes that receive from one task.
pub(super) struct Receives {
    pub keys: Arc<[RendezvousKey]>,
    /// The node that receives each of them.
    pub nodes: Box<[u32]>,
}

pub(super) struct PlanNode {
    pub node: Box<Node>,
    pub work: Work,
    /// The frame it runs in.
    pub frame: u32,
    /// Its place among the counters of that frame.
    pub counter: u32,
    /// Its first input's slot in that frame; the others follow.
    pub first_slot: u32,
    pub num_inputs: u32,
    pub num_outputs: u32,
    /// What its counter starts at.
    pub start: u32,
    pub edges: Box<[Edge]>,
    pub controls: Box<[Consumer]>,
    /// Inputs that are the same in every step: nobody delivers them.
    pub constants: Box<[(u32, Tensor)]>,
    /// How each input is read; empty if none comes from a variable.
    pub readings: Box<[Reading]>,
    pub control_flow: ControlFlow,
    /// Whether something that is sent away waits for it.
    pub leads_out: bool,
    /// How long it takes, as far as is known.
    pub pace: Pace,
}

pub(super) struct FramePlan {
    /// Counters at the start of an iteration.
    pub counters: Box<[u32]>,
    pub num_slots: u32,
    /// How many values enter.
    pub num_enters: u32,
    pub parallel_iterations: u64,
    pub name: String,
}

pub(super) struct Plan {
    pub nodes: Box<[PlanNode]>,
    pub frames: Box<[FramePlan]>,
    /// Nodes without inputs.
    pub roots: Box<[u32]>,
    /// The other nodes that are ready from the start: those that receive, by sender.
    pub receives: Box<[Receives]>,
    pub device: Arc<dyn Device>,
}

impl Plan {
    pub(super) fn compile(
        graph: &Graph,
        device: &Arc<dyn Device>,
        env: &Arc<dyn Env>,
        kernels: &KernelCache,
    ) -> Result<Plan> {
        let library = graph.library.clone();
        let functions: Arc<dyn Functions> =
            Arc::new(LibraryFunctions { library, device: device.clone(), env: env.clone() });
        let Frames { frames, runs_in, leads_to } = Frames::find(graph)?;
        let mut drafts: Vec<FrameDraft> = frames.iter().map(|_| FrameDraft::default()).collect();
        let waits = Waits::of_all(graph);
        let mut nodes: Vec<PlanNode> = Vec::with_capacity(graph.len());
        for (id, node) in graph.nodes() {
            let (runs_in, leads_to) = (runs_in[id.index()], leads_to[id.index()]);
            let frame = &mut drafts[runs_in as usize];
            let wait = &waits[id.index()];
            let kernel = || kernels.get(node, device, env, &functions);
            let planned = plan_node(graph, node, wait, runs_in, leads_to, frame, kernel)?;
            frame.counters.push(planned.start);
            frame.num_slots += planned.num_inputs;
            nodes.push(planned);
        }
        find_what_leads_out(&waits, &mut nodes);
        connect(&waits, &mut nodes);
        let is_root = |n: &PlanNode, wait: &Waits| n.start == 0 && !wait.never_runs;
        let roots = (0..).zip(nodes.iter().zip(&waits)).filter(|(_, (n, wait))| is_root(n, wait)).map(|(i, _)| i);
        let mut roots: Vec<u32> = roots.collect();
        roots.sort_by_key(|root| !nodes[*root as usize].leads_out);
        let (roots, receives) = group_receives(&nodes, roots);
        let frames = frames.into_iter().zip(drafts).map(|(frame, draft)| FramePlan {
            counters: draft.counters.into(),
            num_slots: draft.num_slots,
            num_enters: frame.num_enters,
            parallel_iterations: frame.parallel_iterations as u64,
            name: frame.name,
        });
        Ok(Plan { nodes: nodes.into(), frames: frames.collect(), roots, receives, device: device.clone() })
    }
}

/// What must arrive at a node before it runs.
#[derive(Default)]
struct Waits {
    /// Inputs, and what they come from.
    data: Vec<(u32, Output)>,
    controls: Vec<NodeId>,
    /// Inputs that need not arrive, because they are constants.
    constants: Vec<(u32, Tensor)>,
    /// It is a constant that all its consumers know already.
    never_runs: bool,
}

impl Waits {
    fn of_all(graph: &Graph) -> Vec<Waits> {
        // Consumers take over what a constant waits for. From one that waits for much they would take over too much.
        let known = |node: &Node| if node.control_inputs.len() <= 1 { constant(node) } else { None };
        let constants: Vec<Option<Box<[Tensor]>>> = graph.nodes().map(|(_, node)| known(node)).collect();
        let mut waits: Vec<Waits> = graph.nodes().map(|(_, node)| Waits::of(graph, node, &constants)).collect();
        let mut is_awaited = vec![false; graph.len()];
        for wait in &waits {
            let sources = wait.data.iter().map(|(_, output)| output.node).chain(wait.controls.iter().copied());
            sources.for_each(|source| is_awaited[source.index()] = true);
        }
        for (i, wait) in waits.iter_mut().enumerate() {
            if constants[i].is_some() && !is_awaited[i] {
                *wait = Waits { never_runs: true, ..Waits::default() };
            }
        }
        waits
    }

    /// A constant is not waited for, but what it waits for is: in a branch or loop that is how it comes to be dead.
    fn of(graph: &Graph, node: &Node, constants: &[Option<Box<[Tensor]>>]) -> Waits {
        let mut waits = Waits { controls: node.control_inputs.clone(), ..Waits::default() };
        let known = |input: &Output| match &constants[input.node.index()] {
            Some(values) if node.op.control_flow == ControlFlow::None => values.get(input.index as usize),
            _ => None,
        };
        for (i, input) in (0..).zip(&node.inputs) {
            match known(input) {
                Some(value) => waits.constants.push((i, value.clone())),
                None => waits.data.push((i, *input)),
            }
        }
        // The end of a node is known by any of its outputs.
        let mut awaited: HashSet<NodeId> = waits.data.iter().map(|(_, from)| from.node).collect();
        awaited.extend(&waits.controls);
        for (i, _) in &waits.constants {
            let constant = graph.node(node.inputs[*i as usize].node);
            waits.controls.extend(constant.control_inputs.iter().filter(|c| awaited.insert(**c)));
        }
        waits
    }
}

/// What the nodes of a frame need in each iteration.
#[derive(Default)]
struct FrameDraft {
    counters: Vec<u32>,
    num_slots: u32,
}

fn plan_node(
    graph: &Graph,
    node: &Node,
    waits: &Waits,
    runs_in: u32,
    leads_to: u32,
    frame: &FrameDraft,
    kernel: impl FnOnce() -> Result<BuiltKernel>,
) -> Result<PlanNode> {
    let is_back = |i: &&Output| graph.node(i.node).op.control_flow == ControlFlow::NextIteration;
    let later = node.inputs.iter().filter(is_back).count() as u32;
    let work = match node.op.control_flow {
        ControlFlow::Switch => Work::Switch,
        ControlFlow::Merge => Work::Merge { first: node.inputs.len() as u32 - later, later },
        ControlFlow::Enter => Work::Enter { frame: leads_to, is_constant: node.attr("is_constant")? },
        ControlFlow::Exit => Work::Exit,
        ControlFlow::NextIteration => Work::NextIteration,
        ControlFlow::None if let Some(values) = constant(node) => Work::Constant(values),
        ControlFlow::None | ControlFlow::ControlTrigger | ControlFlow::Send => Work::Kernel(kernel()?),
    };
    let (data, controls) = (waits.data.len() as u32, waits.controls.len() as u32);
    if data + controls >= super::step::MERGE_DEAD_ONE {
        return Err(invalid!("node '{}' has {} inputs, more than can be counted", node.name, data + controls));
    }
    let start = if matches!(work, Work::Merge { .. }) { controls + 1 } else { data + controls };
    Ok(PlanNode {
        readings: readings(graph, node)?,
        control_flow: node.op.control_flow,
        leads_out: false,
        pace: Pace::new(node.op.is_costly),
        frame: runs_in,
        counter: frame.counters.len() as u32,
        first_slot: frame.num_slots,
        num_inputs: node.inputs.len() as u32,
        num_outputs: node.outputs.len() as u32,
        start,
        edges: Box::default(),
        controls: Box::default(),
        constants: waits.constants.as_slice().into(),
        node: Box::new(node.clone()),
        work,
    })
}

/// The values of a node that has no inputs and whose outputs were known while the graph was built.
fn constant(node: &Node) -> Option<Box<[Tensor]>> {
    if !node.inputs.is_empty() || node.outputs.is_empty() || node.op.is_stateful {
        return None;
    }
    node.outputs.iter().map(|o| o.value.clone()).collect()
}

fn readings(graph: &Graph, node: &Node) -> Result<Box<[Reading]>> {
    let mut readings = Vec::with_capacity(node.inputs.len());
    for (input, (_, wants_ref)) in node.inputs.iter().zip(node.input_types()?) {
        let passes = matches!(
            node.op.control_flow,
            ControlFlow::Switch
                | ControlFlow::Merge
                | ControlFlow::Enter
                | ControlFlow::Exit
                | ControlFlow::NextIteration
        );
        readings.push(match (carries_reference(graph, *input)?, wants_ref) {
            (false, _) => Reading::Value,
            (true, false) if node.op.passes_references => Reading::CheckInitialized,
            (true, false) => Reading::Read,
            (true, true) if passes || node.op.allows_uninitialized_input => Reading::Pass,
            (true, true) => Reading::CheckInitialized,
        });
    }
    if readings.iter().all(|r| *r == Reading::Value) {
        readings.clear();
    }
    Ok(readings.into())
}

/// Whether a reference flows here: as the types say, or through nodes that pass it on all the same.
fn carries_reference(graph: &Graph, output: Output) -> Result<bool> {
    let mut source = output;
    for _ in 0..graph.len() {
        let node = graph.node(source.node);
        match node.inputs.first() {
            _ if graph.info(source)?.is_ref => return Ok(true),
            Some(input) if node.op.passes_references => source = *input,
            _ => return Ok(false),
        }
    }
    Ok(false)
}

/// Finds the nodes that something waits for which is sent away. They go first, for others wait for what is sent.
fn find_what_leads_out(waits: &[Waits], nodes: &mut [PlanNode]) {
    let is_sent = |node: &PlanNode| node.control_flow == ControlFlow::Send;
    let mut found: Vec<usize> = (0..nodes.len()).filter(|&i| is_sent(&nodes[i])).collect();
    while let Some(i) = found.pop() {
        if !std::mem::replace(&mut nodes[i].leads_out, true) {
            found.extend(waits[i].data.iter().map(|(_, from)| from.node.index()));
            found.extend(waits[i].controls.iter().map(|from| from.index()));
        }
    }
}

/// Fills in where each node's outputs and its end are awaited: last by those that lead out, since a thread runs first what
/// became ready last.
fn connect(waits: &[Waits], nodes: &mut [PlanNode]) {
    let leads_out: Vec<bool> = nodes.iter().map(|node| node.leads_out).collect();
    let mut edges: Vec<Vec<Edge>> = nodes.iter().map(|_| Vec::new()).collect();
    let mut controls: Vec<Vec<Consumer>> = nodes.iter().map(|_| Vec::new()).collect();
    for (id, (planned, waits)) in (0..).zip(nodes.iter().zip(waits)) {
        let is_costly = planned.node.op.is_costly;
        let to = Consumer { node: id, counter: planned.counter, arrival: arrival(planned), is_costly };
        for (i, input) in &waits.data {
            let slot = planned.first_slot + i;
            edges[input.node.index()].push(Edge { output: input.index, slot, is_last: false, to });
        }
        for control in &waits.controls {
            controls[control.index()].push(to);
        }
    }
    for ((node, mut edges), mut controls) in nodes.iter_mut().zip(edges).zip(controls) {
        edges.sort_by_key(|edge| (leads_out[edge.to.node as usize], edge.output));
        controls.sort_by_key(|to| leads_out[to.node as usize]);
        let mut seen = vec![false; node.num_outputs as usize];
        for edge in edges.iter_mut().rev() {
            edge.is_last = !std::mem::replace(&mut seen[edge.output as usize], true);
        }
        (node.edges, node.controls) = (edges.into(), controls.into());
    }
}

/// What an arrival at a node does.
fn arrival(node: &PlanNode) -> Arrival {
    match (&node.work, node.start) {
        (Work::Merge { .. }, 1) => Arrival::MergesAlone,
        (Work::Merge { .. }, _) => Arrival::Merges,
        (Work::Exit | Work::NextIteration, 1) => Arrival::OnlyAlive,
        (_, 1) => Arrival::Only,
        _ => Arrival::Counts,
    }
}

/// Takes out of the roots those that do nothing but receive, and puts together what comes from the same task.
fn group_receives(nodes: &[PlanNode], roots: Vec<u32>) -> (Box<[u32]>, Box<[Receives]>) {
    let mut groups: Vec<(Vec<RendezvousKey>, Vec<u32>)> = Vec::new();
    let mut by_sender: HashMap<(&str, u32), usize> = HashMap::new();
    let mut rest = Vec::new();
    for root in roots {
        let key = match &nodes[root as usize].work {
            Work::Kernel(BuiltKernel::Async(kernel)) => kernel.receives(),
            _ => None,
        };
        let Some((key, sender)) = key.and_then(|key| Some((key, key.source_task()?))) else {
            rest.push(root);
            continue;
        };
        let group = *by_sender.entry(sender).or_insert_with(|| {
            groups.push(Default::default());
            groups.len() - 1
        });
        groups[group].0.push(key.clone());
        groups[group].1.push(root);
    }
    let receives = groups.into_iter().map(|(keys, nodes)| Receives { keys: keys.into(), nodes: nodes.into() });
    (rest.into(), receives.collect())
}

//! Keeps what one run needs, and gives feeds and fetches their nodes.
//!
//! A fed output is replaced by a `_Recv` that the client's value is sent to; a fetched one gets a `_Send` that the
//! client's answer is taken from.

use crate::copy::{copy_nodes, without_nodes};
use crate::place::PlacedGraph;
use framework::graph::NewNode;
use framework::{Attrs, Graph, NodeId, Output, Registry, RendezvousKey};
use std::collections::HashMap;
use tensor::{Result, invalid, not_found};

/// What a run feeds, fetches and targets, by name, sorted and without repetition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct RunSignature {
    /// Outputs the client supplies.
    pub feeds: Vec<String>,
    /// Outputs the client wants.
    pub fetches: Vec<String>,
    /// Nodes that only have to run.
    pub targets: Vec<String>,
}

impl RunSignature {
    /// Sorted; the same output fed twice is an error, fetched twice is fetched once.
    pub fn new(mut feeds: Vec<String>, mut fetches: Vec<String>, mut targets: Vec<String>) -> Result<RunSignature> {
        feeds.sort();
        if let Some(twice) = feeds.windows(2).find(|w| w[0] == w[1]) {
            return Err(invalid!("Duplicated feeds: {}", twice[0]));
        }
        for list in [&mut fetches, &mut targets] {
            list.sort();
            list.dedup();
        }
        if fetches.is_empty() && targets.is_empty() {
            return Err(invalid!("Must specify at least one target to fetch or execute."));
        }
        Ok(RunSignature { feeds, fetches, targets })
    }
}

/// The device that feeds and fetches pass through.
#[derive(Clone, Debug)]
pub struct ClientEnd {
    /// Its complete name.
    pub device: String,
    /// Its incarnation.
    pub incarnation: u64,
}

impl ClientEnd {
    /// The key of a feed or fetch.
    pub fn key(&self, tensor: &str) -> RendezvousKey {
        RendezvousKey::new(&self.device, self.incarnation, &self.device, tensor)
    }
}

/// What one run needs.
#[derive(Debug)]
pub struct Pruned {
    /// The nodes.
    pub graph: Graph,
    /// What may be fed: name, element type, shape.
    pub feeds: Vec<Feed>,
}

/// Something the client supplies.
#[derive(Clone, Debug)]
pub struct Feed {
    /// As the client calls it.
    pub name: String,
    /// The element type it must have.
    pub dtype: tensor::DType,
    /// The shape it must fit.
    pub shape: tensor::PartialShape,
}

/// The part of a graph that a run needs.
pub fn prune(
    placed: &PlacedGraph,
    signature: &RunSignature,
    client: &ClientEnd,
    registry: &Registry,
) -> Result<Pruned> {
    let graph = &placed.graph;
    let feeds = signature.feeds.iter().map(|name| resolve_feed(graph, name)).collect::<Result<Vec<_>>>()?;
    let fetches = signature.fetches.iter().map(|name| resolve_fetch(graph, name)).collect::<Result<Vec<_>>>()?;
    let targets = resolve_targets(graph, &signature.targets)?;
    let mut fed: HashMap<Output, usize> = HashMap::with_capacity(feeds.len());
    for (i, (feed, name)) in feeds.iter().zip(&signature.feeds).enumerate() {
        if let Some(first) = fed.insert(*feed, i) {
            return Err(invalid!("Duplicated feeds: {} and {name} are the same", signature.feeds[first]));
        }
    }
    for (fetch, name) in fetches.iter().zip(&signature.fetches) {
        if fed.contains_key(fetch) {
            return Err(invalid!("{name} is both fed and fetched."));
        }
    }
    let keep = needed(graph, &fed, fetches.iter().map(|f| f.node).chain(targets.iter().copied()));

    let (mut out, map) = copy_with_feeds(placed, &keep, &fed, signature, client, registry)?;
    for (name, fetch) in signature.fetches.iter().zip(&fetches) {
        let source = Output { node: map[fetch.node.index()].expect("a fetched node is kept"), index: fetch.index };
        add_send(&mut out, name, source, client, registry)?;
    }
    let feeds = signature.feeds.iter().zip(&feeds).map(|(name, output)| {
        let info = graph.info(*output)?;
        Ok(Feed { name: name.clone(), dtype: info.dtype, shape: info.shape.clone() })
    });
    Ok(Pruned { graph: out, feeds: feeds.collect::<Result<_>>()? })
}

fn resolve_feed(graph: &Graph, name: &str) -> Result<Output> {
    let unknown = || not_found!("FeedInputs: unable to find feed output {name}");
    let output = graph.find_output(name).ok_or_else(unknown)?;
    graph.info(output).map_err(|_| unknown())?;
    Ok(output)
}

fn resolve_fetch(graph: &Graph, name: &str) -> Result<Output> {
    let output = graph.find_output(name).ok_or_else(|| not_found!("FetchOutputs node {name}: not found"))?;
    let count = graph.node(output.node).outputs.len();
    if count == 0 {
        return Err(invalid!(
            "Tried to fetch data for '{name}', which produces no output. To run to a node but not fetch any data, pass '{name}' as an argument to the 'target_node_names' argument of the Session::Run API."
        ));
    }
    if output.index as usize >= count {
        return Err(invalid!("FetchOutputs {name}: output index too large, must be < {count}"));
    }
    Ok(output)
}

fn resolve_targets(graph: &Graph, names: &[String]) -> Result<Vec<NodeId>> {
    let mut missing = String::new();
    let mut targets = Vec::with_capacity(names.len());
    for name in names {
        match graph.find(name).or_else(|| graph.find_output(name).map(|o| o.node)) {
            Some(node) => targets.push(node),
            None => missing += &format!("{name} "),
        }
    }
    if missing.is_empty() {
        Ok(targets)
    } else {
        Err(not_found!("PruneForTargets: Some target nodes not found: {missing}"))
    }
}

/// Everything that must run, looking backwards from what is wanted and stopping at what is fed.
fn needed(graph: &Graph, fed: &HashMap<Output, usize>, wanted: impl Iterator<Item = NodeId>) -> Vec<bool> {
    let mut keep = vec![false; graph.len()];
    let mut todo: Vec<NodeId> = wanted.collect();
    while let Some(id) = todo.pop() {
        if !std::mem::replace(&mut keep[id.index()], true) {
            let node = graph.node(id);
            todo.extend(node.inputs.iter().filter(|i| !fed.contains_key(i)).map(|i| i.node));
            todo.extend(node.control_inputs.iter().filter(|c| !is_stood_in_for(graph, fed, **c)));
        }
    }
    keep
}

/// Whether a feed takes the place of a node, so that to wait for the node is to wait for the feed: a placeholder is
/// nothing but its value.
fn is_stood_in_for(graph: &Graph, fed: &HashMap<Output, usize>, node: NodeId) -> bool {
    let op = graph.node(node).op.name.as_str();
    matches!(op, "Placeholder" | "PlaceholderV2" | "PlaceholderWithDefault") && fed.contains_key(&node.into())
}

/// A copy of the kept nodes, with a `_Recv` before them for each feed.
fn copy_with_feeds(
    placed: &PlacedGraph,
    keep: &[bool],
    fed: &HashMap<Output, usize>,
    signature: &RunSignature,
    client: &ClientEnd,
    registry: &Registry,
) -> Result<(Graph, Vec<Option<NodeId>>)> {
    let graph = &placed.graph;
    let mut out = without_nodes(graph);
    let mut receives: HashMap<Output, Output> = HashMap::with_capacity(fed.len());
    for name in &signature.feeds {
        let output = resolve_feed(graph, name)?;
        receives.insert(output, add_recv(&mut out, graph, name, output, client, registry)?.into());
    }
    let map = copy_nodes(graph, keep, &mut out, &receives, |id, node| {
        node.device = placed.device(id).to_string();
        Ok(())
    })?;
    Ok((out, map))
}

fn end_attrs(client: &ClientEnd, tensor: &str) -> Attrs {
    let mut attrs = Attrs::new();
    attrs.insert("tensor_name".into(), tensor.into());
    attrs.insert("send_device".into(), client.device.as_str().into());
    attrs.insert("recv_device".into(), client.device.as_str().into());
    attrs.insert("send_device_incarnation".into(), (client.incarnation as i64).into());
    attrs.insert("client_terminated".into(), true.into());
    attrs
}

fn add_recv(
    out: &mut Graph,
    graph: &Graph,
    name: &str,
    output: Output,
    client: &ClientEnd,
    registry: &Registry,
) -> Result<NodeId> {
    let info = graph.info(output)?;
    let mut attrs = end_attrs(client, name);
    attrs.insert("tensor_type".into(), info.dtype.into());
    let node_name = format!("_recv_{}_{}", graph.node(output.node).name, output.index);
    let id = out.add(NewNode {
        name: node_name,
        op: registry.lookup("_Recv")?.clone(),
        attrs,
        inputs: Vec::new(),
        control_inputs: Vec::new(),
        device: client.device.clone(),
    })?;
    out.set_shape(id.into(), &info.shape)?;
    Ok(id)
}

fn add_send(out: &mut Graph, name: &str, source: Output, client: &ClientEnd, registry: &Registry) -> Result<()> {
    let node_name = format!("_send_{}_{}", out.node(source.node).name, source.index);
    let node = NewNode {
        name: if out.find(&node_name).is_some() { format!("{node_name}_{}", out.len()) } else { node_name },
        op: registry.lookup("_Send")?.clone(),
        attrs: end_attrs(client, name),
        inputs: vec![source],
        control_inputs: Vec::new(),
        device: client.device.clone(),
    };
    out.add(node).map(|_| ())
}

//! GraphDef to Graph: every node checked, loops included.

use super::{FunctionLibrary, Graph, Node, NodeId, Output, OutputInfo, infer, types};
use crate::attr::{Attr, Attrs};
use crate::op::{ControlFlow, Op};
use crate::registry::Registry;
use std::collections::HashMap;
use std::sync::Arc;
use tensor::{DType, PartialShape, Result, invalid};

/// The graph in a message.
pub fn import(message: &proto::GraphDef, registry: &Registry) -> Result<Graph> {
    let mut graph = Graph::new();
    extend(&mut graph, message, registry)?;
    Ok(graph)
}

/// Adds the nodes of a message to a graph. On error the graph is as before.
pub fn extend(graph: &mut Graph, message: &proto::GraphDef, registry: &Registry) -> Result<()> {
    let mut library = graph.library.clone();
    if let Some(more) = &message.library {
        library.extend(&FunctionLibrary::from_proto(more)?)?;
        library.set_registry(registry);
    }
    let pending = read_nodes(graph, message, registry, &library)?;
    let order = resolve_order(graph, &pending)?;
    let added = check_all(graph, &pending, &order)?;
    graph.library = library;
    if message.versions.is_some() {
        graph.versions = message.versions.clone();
    }
    for node in added {
        graph.push(node);
    }
    Ok(())
}

/// A node as the message has it, with names resolved to numbers.
struct Pending {
    name: String,
    op: Arc<Op>,
    attrs: Attrs,
    inputs: Vec<Output>,
    controls: Vec<NodeId>,
    device: String,
}

/// Node numbers: existing nodes first, then those of the message in its order.
fn read_nodes(
    graph: &Graph,
    message: &proto::GraphDef,
    registry: &Registry,
    library: &FunctionLibrary,
) -> Result<Vec<Pending>> {
    let mut numbers: HashMap<&str, NodeId> = HashMap::new();
    for (i, node) in message.node.iter().enumerate() {
        types::check_name(&node.name)?;
        if graph.find(&node.name).is_some() {
            return Err(invalid!(
                "GraphDef argument to Extend includes node '{}', which was created by a previous call to Create or Extend in this session.",
                node.name
            ));
        }
        if numbers.insert(&node.name, NodeId((graph.len() + i) as u32)).is_some() {
            return Err(invalid!("Node '{}' is not unique", node.name));
        }
    }
    let find = |node: &str, name: &str| {
        let found = numbers.get(name).copied().or_else(|| graph.find(name));
        found.ok_or_else(|| invalid!("Node '{node}': Unknown input node '{name}'"))
    };
    message.node.iter().map(|node| read_node(node, registry, library, &find)).collect()
}

fn read_node(
    node: &proto::NodeDef,
    registry: &Registry,
    library: &FunctionLibrary,
    find: &dyn Fn(&str, &str) -> Result<NodeId>,
) -> Result<Pending> {
    let here = |e: tensor::Error| e.context(format_args!("[[{{{{node {}}}}} = {}]]", node.name, node.op));
    // A node may call a function of the graph's own library by its name.
    let op = match library.op(&node.op) {
        Some(op) => op.clone(),
        None => registry.lookup(&node.op).map_err(here)?.clone(),
    };
    let attrs = node.attr.iter().filter_map(|(name, value)| match Attr::from_proto(value) {
        Ok(attr) => Some(Ok((name.clone(), attr))),
        // A note that somebody has made for himself: TensorFlow's optimizer gives sizes that it does not know numbers
        // below -1, so that it can tell which are the same.
        Err(_) if name.starts_with('_') && !op.attrs.iter().any(|attr| attr.name == *name) => None,
        Err(e) => Some(Err(tensor::Error { message: format!("attribute '{name}': {}", e.message), ..e })),
    });
    let attrs: Attrs = attrs.collect::<Result<_>>().map_err(here)?;
    let (mut inputs, mut controls) = (Vec::new(), Vec::new());
    for text in &node.input {
        if let Some(control) = text.strip_prefix('^') {
            let id = find(&node.name, control)?;
            if !controls.contains(&id) {
                controls.push(id);
            }
        } else if !controls.is_empty() {
            return Err(invalid!("Node '{}': data input '{text}' comes after a control input", node.name));
        } else {
            let (name, index) = match text.rsplit_once(':') {
                Some((name, index)) => {
                    (name, index.parse().map_err(|_| invalid!("Node '{}': malformed input '{text}'", node.name))?)
                }
                None => (text.as_str(), 0),
            };
            inputs.push(Output { node: find(&node.name, name)?, index });
        }
    }
    Ok(Pending { name: node.name.clone(), op, attrs, inputs, controls, device: node.device.clone() })
}

/// The new nodes so that each comes after all it depends on; a loop's way back does not count.
fn resolve_order(graph: &Graph, pending: &[Pending]) -> Result<Vec<usize>> {
    let base = graph.len();
    let local = |id: NodeId| id.index().checked_sub(base);
    let is_back = |from: usize, to: &Pending| {
        pending[from].op.control_flow == ControlFlow::NextIteration && to.op.control_flow == ControlFlow::Merge
    };
    let mut waiting = vec![0usize; pending.len()];
    let mut consumers: Vec<Vec<usize>> = vec![Vec::new(); pending.len()];
    for (i, node) in pending.iter().enumerate() {
        for source in node.inputs.iter().map(|o| o.node).chain(node.controls.iter().copied()).filter_map(local) {
            if !is_back(source, node) {
                waiting[i] += 1;
                consumers[source].push(i);
            }
        }
    }
    let mut order: Vec<usize> = (0..pending.len()).filter(|&i| waiting[i] == 0).collect();
    let mut next = 0;
    while next < order.len() {
        for &c in &consumers[order[next]] {
            waiting[c] -= 1;
            if waiting[c] == 0 {
                order.push(c);
            }
        }
        next += 1;
    }
    if order.len() < pending.len() {
        let stuck = (0..pending.len()).find(|&i| waiting[i] > 0).map_or("?", |i| pending[i].name.as_str());
        return Err(invalid!(
            "The graph couldn't be sorted in topological order: there is a cycle through node '{stuck}' ({} nodes wait \
             for each other); only a NextIteration may lead back, into a Merge",
            pending.len() - order.len()
        ));
    }
    Ok(order)
}

/// Checks every new node in dependency order and infers its outputs.
fn check_all(graph: &Graph, pending: &[Pending], order: &[usize]) -> Result<Vec<Node>> {
    let base = graph.len();
    let mut done: Vec<Option<Node>> = pending.iter().map(|_| None).collect();
    for &i in order {
        let node = &pending[i];
        let here = |e: tensor::Error| e.context(format_args!("[[{{{{node {}}}}} = {}]]", node.name, node.op.name));
        let mut infos: Vec<Option<OutputInfo>> = Vec::with_capacity(node.inputs.len());
        for input in &node.inputs {
            let known = match input.node.index().checked_sub(base) {
                None => Some(graph.node(input.node)),
                Some(local) => done[local].as_ref(),
            };
            let info = known.map(|source| {
                source.outputs.get(input.index as usize).cloned().ok_or_else(|| {
                    invalid!(
                        "Node '{}': Connecting to invalid output {} of source node {} which has {} outputs.",
                        node.name,
                        input.index,
                        source.name,
                        source.outputs.len()
                    )
                })
            });
            infos.push(info.transpose()?);
        }
        done[i] = Some(check_one(node, infos).map_err(here)?);
    }
    check_back_edges(graph, &done)?;
    Ok(done.into_iter().flatten().collect())
}

/// `None` among the inputs is a loop's way back, whose source is not known yet.
fn check_one(node: &Pending, infos: Vec<Option<OutputInfo>>) -> Result<Node> {
    let is_loop = infos.iter().any(Option::is_none);
    // The way back has the type of the way in; its shape may differ in later iterations.
    let entry = infos.iter().flatten().next().map(|i| (i.dtype, i.is_ref)).unwrap_or((DType::F32, false));
    let infos: Vec<OutputInfo> = infos
        .into_iter()
        .map(|i| {
            i.unwrap_or(OutputInfo { dtype: entry.0, is_ref: entry.1, shape: PartialShape::unknown(), value: None })
        })
        .collect();
    let found: Vec<(DType, bool)> = infos.iter().map(|i| (i.dtype, i.is_ref)).collect();
    let attrs = types::complete_attrs(&node.op, &node.attrs, &found)?;
    types::check_inputs(&node.op, &attrs, &found)?;
    let mut outputs = infer(&node.op, &attrs, &infos.iter().collect::<Vec<_>>())?;
    if is_loop && let Some(first) = outputs.first_mut() {
        (first.shape, first.value) = (PartialShape::unknown(), None);
    }
    Ok(Node {
        name: node.name.clone(),
        op: node.op.clone(),
        attrs,
        inputs: node.inputs.clone(),
        control_inputs: node.controls.clone(),
        device: node.device.clone(),
        outputs,
    })
}

/// Now that all sources are known, the types on the ways back are checked too.
fn check_back_edges(graph: &Graph, done: &[Option<Node>]) -> Result<()> {
    let base = graph.len();
    for node in done.iter().flatten().filter(|n| n.op.control_flow == ControlFlow::Merge) {
        let wanted = node.input_types()?;
        for (input, (want, _)) in node.inputs.iter().zip(wanted) {
            let source = match input.node.index().checked_sub(base) {
                None => Some(graph.node(input.node)),
                Some(local) => done[local].as_ref(),
            };
            let found = source.and_then(|s| s.outputs.get(input.index as usize));
            let found = found.ok_or_else(|| invalid!("Node '{}': an input has no such output", node.name))?;
            if found.dtype != want {
                return Err(invalid!("Node '{}': an input should be {want}, found {}", node.name, found.dtype));
            }
        }
    }
    Ok(())
}

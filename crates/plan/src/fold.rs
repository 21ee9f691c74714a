//! Computes while planning what does not depend on anything that changes between steps.

use framework::graph::NewNode;
use framework::interpret::Interpreter;
use framework::{Attrs, ControlFlow, Graph, Node, NodeId, Output, Registry};
use std::collections::{BTreeSet, HashMap};
use tensor::{Result, Tensor};

/// A folded value larger than this stays a computation: plans are kept, and sent to tasks.
const MAX_BYTES: usize = 1 << 20;

/// The graph with constants in place of nodes that only depend on constants.
pub fn fold(graph: Graph, interpreter: &Interpreter, registry: &Registry) -> Result<Graph> {
    let order = graph.in_topological_order()?;
    let mut values: HashMap<Output, Tensor> = HashMap::new();
    for id in order {
        let node = graph.node(id);
        let constant = |input: &Output| match values.get(input) {
            Some(value) => Some(value.clone()),
            None => constant_value(graph.node(input.node)),
        };
        if !may_fold(&graph, node) {
            continue;
        }
        let Some(inputs) = node.inputs.iter().map(constant).collect::<Option<Vec<Tensor>>>() else { continue };
        // What fails here fails again when it runs, with the step to report it to.
        let Ok(results) = interpreter.evaluate(node, inputs) else { continue };
        if results.iter().map(Tensor::num_bytes).sum::<usize>() <= MAX_BYTES {
            let outputs = (0..results.len() as u32).map(|index| Output { node: id, index });
            values.extend(outputs.zip(results));
        }
    }
    if values.is_empty() {
        return Ok(graph);
    }
    replace(graph, &values, registry)
}

fn constant_value(node: &Node) -> Option<Tensor> {
    (node.op.name == "Const" && node.control_inputs.is_empty()).then(|| node.attr("value").ok()).flatten()
}

fn may_fold(graph: &Graph, node: &Node) -> bool {
    let plain =
        |n: &Node| n.outputs.iter().all(|o| !o.is_ref && (o.dtype.is_plain() || o.dtype == tensor::DType::String));
    !node.op.is_stateful
        && node.op.control_flow == ControlFlow::None
        && node.control_inputs.is_empty()
        && !node.inputs.is_empty()
        && !node.outputs.is_empty()
        && node.op.kernel.is_some()
        && plain(node)
        && node.inputs.iter().all(|i| plain(graph.node(i.node)))
}

/// Constants for the values that a node which stays still uses.
fn replace(graph: Graph, values: &HashMap<Output, Tensor>, registry: &Registry) -> Result<Graph> {
    let is_folded = |id: NodeId| values.contains_key(&Output { node: id, index: 0 });
    let mut out = Graph::new();
    out.library = graph.library.clone();
    out.versions = graph.versions.clone();
    let mut constants: HashMap<Output, NodeId> = HashMap::new();
    let kept = graph.nodes().filter(|(id, _)| !is_folded(*id));
    let wanted: BTreeSet<Output> =
        kept.flat_map(|(_, n)| n.inputs.iter().copied()).filter(|i| is_folded(i.node)).collect();
    for output in wanted {
        let (source, value) = (graph.node(output.node), values[&output].clone());
        let mut attrs = Attrs::new();
        attrs.insert("dtype".into(), value.dtype().into());
        attrs.insert("value".into(), value.into());
        let name =
            if output.index == 0 { source.name.clone() } else { format!("{}/folded_{}", source.name, output.index) };
        let op = registry.lookup("Const")?.clone();
        let new = NewNode { name, op, attrs, inputs: vec![], control_inputs: vec![], device: source.device.clone() };
        constants.insert(output, out.add(new)?);
    }
    let mut map: Vec<Option<NodeId>> = vec![None; graph.len()];
    for (number, (id, _)) in graph.nodes().filter(|(id, _)| !is_folded(*id)).enumerate() {
        map[id.index()] = Some(NodeId((out.len() + number) as u32));
    }
    for (_, node) in graph.nodes().filter(|(id, _)| !is_folded(*id)) {
        let mut copy = node.clone();
        for input in &mut copy.inputs {
            *input = match constants.get(input) {
                Some(&constant) => constant.into(),
                None => Output { node: map[input.node.index()].expect("not folded, so kept"), index: input.index },
            };
        }
        // What only waited for a folded node need not wait.
        copy.control_inputs = node.control_inputs.iter().filter_map(|c| map[c.index()]).collect();
        out.adopt(copy)?;
    }
    Ok(out)
}

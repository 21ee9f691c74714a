//! Computes while planning what does not depend on anything that changes between steps.

use crate::copy::{copy_nodes, without_nodes};
use framework::graph::NewNode;
use framework::interpret::Interpreter;
use framework::{Attrs, ControlFlow, Graph, Node, Output, Registry};
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
    let keep: Vec<bool> = graph.nodes().map(|(id, _)| !values.contains_key(&Output { node: id, index: 0 })).collect();
    let kept = graph.nodes().filter(|(id, _)| keep[id.index()]);
    let wanted: BTreeSet<Output> =
        kept.flat_map(|(_, n)| n.inputs.iter().copied()).filter(|i| !keep[i.node.index()]).collect();
    let mut out = without_nodes(&graph);
    let mut constants: HashMap<Output, Output> = HashMap::new();
    for output in wanted {
        let value = values[&output].clone();
        let mut attrs = Attrs::new();
        attrs.insert("dtype".into(), value.dtype().into());
        attrs.insert("value".into(), value.into());
        let name = constant_name(&graph, output, &out);
        let op = registry.lookup("Const")?.clone();
        let device = graph.node(output.node).device.clone();
        let new = NewNode { name, op, attrs, inputs: vec![], control_inputs: vec![], device };
        constants.insert(output, out.add(new)?.into());
    }
    copy_nodes(&graph, &keep, &mut out, &constants, |_, node| {
        // What only waited for a folded node need not wait.
        node.control_inputs.retain(|c| keep[c.index()]);
        Ok(())
    })?;
    Ok(out)
}

/// The first output keeps the name of its node, which is gone; the others get names that nobody has.
fn constant_name(graph: &Graph, output: Output, out: &Graph) -> String {
    let node = &graph.node(output.node).name;
    if output.index == 0 {
        return node.clone();
    }
    let name = format!("{node}/folded_{}", output.index);
    let is_free = |name: &String| graph.find(name).is_none() && out.find(name).is_none();
    std::iter::once(name.clone()).chain((1..).map(|n| format!("{name}_{n}"))).find(is_free).expect("numbers go on")
}

//! Branches and loops made of functions, as branches and loops that the executor knows.
//!
//! A branch: every input passes a `Switch`, each function is copied behind one side of it, and the results meet in a
//! `Merge`. A loop: every variable enters a frame, the condition decides in a `Switch` whether it leaves the frame or
//! passes the body into the next iteration.

use crate::inline::{Body, Draft, Site};
use framework::graph::NameAttrList;
use framework::{Attr, Attrs, Graph, Node, NodeId, Output};
use std::sync::Arc;
use tensor::{DType, Result, Tensor, invalid};

/// `If`: two branches.
pub(crate) fn lower_if(draft: &mut Draft<'_>, id: NodeId) -> Result<()> {
    let node = draft.node(id).clone();
    let functions = [node.attr("else_branch")?, node.attr("then_branch")?];
    let Some(branches) = bodies(draft, id, &functions) else { return Ok(()) };
    // What another type than bool means is known to the kernel.
    if draft.info(node.inputs[0])?.dtype != DType::Bool {
        return Ok(());
    }
    // Whatever the branch waits for, its condition waits for; and all else waits for the condition.
    let chosen = draft.pass_on(&node, "cond", node.inputs[0], node.control_inputs.clone())?.into();
    let inputs = &node.inputs[1..];
    let fork = Fork::new(draft, &node, chosen, inputs, "")?;
    let otherwise = copy_branch(draft, id, "else", &functions[0].name, &branches[0], fork.side(0))?;
    let then = copy_branch(draft, id, "then", &functions[1].name, &branches[1], fork.side(1))?;
    join(draft, id, vec![otherwise, then])
}

/// `Case`: many branches, tried one after the other; any number that is not one of theirs means the last.
pub(crate) fn lower_case(draft: &mut Draft<'_>, id: NodeId) -> Result<()> {
    let node = draft.node(id).clone();
    let functions: Vec<NameAttrList> = node.attr("branches")?;
    let Some(branches) = bodies(draft, id, &functions) else { return Ok(()) };
    let mut index: Output = draft.pass_on(&node, "index", node.inputs[0], node.control_inputs.clone())?.into();
    let mut inputs = node.inputs[1..].to_vec();
    let mut start = index.node;
    let mut done = Vec::with_capacity(branches.len());
    for (number, (function, body)) in functions.iter().zip(&branches).enumerate() {
        let name = format!("branch_{number}");
        if number + 1 == branches.len() {
            done.push(copy_branch(draft, id, &name, &function.name, body, Side { start, arguments: inputs.clone() })?);
            break;
        }
        let mut attrs = Attrs::new();
        attrs.insert("dtype".into(), DType::I32.into());
        attrs.insert("value".into(), Tensor::scalar(number as i32).into());
        let this = draft.add_with("Const", &node, &format!("{name}/number"), vec![], vec![start], attrs)?;
        let is_this = draft.add("Equal", &node, &format!("{name}/is_this"), vec![index, this.into()], vec![])?;
        let with_index: Vec<Output> = [index].into_iter().chain(inputs.iter().copied()).collect();
        let fork = Fork::new(draft, &node, is_this.into(), &with_index, &format!("{name}/"))?;
        let mut side = fork.side(1);
        side.arguments.remove(0);
        done.push(copy_branch(draft, id, &name, &function.name, body, side)?);
        let other = fork.side(0);
        (index, start, inputs) = (other.arguments[0], other.start, other.arguments[1..].to_vec());
    }
    join(draft, id, done)
}

/// The bodies of the functions a node calls; nothing if one of them is not to be inlined.
fn bodies(draft: &mut Draft<'_>, id: NodeId, functions: &[NameAttrList]) -> Option<Vec<Arc<Graph>>> {
    functions.iter().map(|function| draft.body(id, function)).collect()
}

/// Inputs that go one of two ways.
struct Fork {
    pivots: [NodeId; 2],
    switches: Vec<NodeId>,
}

/// What one way gives a branch.
struct Side {
    /// Dead if the branch is not taken.
    start: NodeId,
    arguments: Vec<Output>,
}

impl Fork {
    fn new(draft: &mut Draft<'_>, node: &Node, chosen: Output, inputs: &[Output], name: &str) -> Result<Fork> {
        let switch = draft.add("Switch", node, &format!("{name}switch"), vec![chosen, chosen], vec![])?;
        let side = |index| Output { node: switch, index };
        let pivots = [
            draft.pass_on(node, &format!("{name}pivot_f"), side(0), vec![])?,
            draft.pass_on(node, &format!("{name}pivot_t"), side(1), vec![])?,
        ];
        let switches = inputs.iter().enumerate().map(|(index, &input)| {
            draft.add("Switch", node, &format!("{name}switch_{index}"), vec![input, chosen], vec![])
        });
        Ok(Fork { pivots, switches: switches.collect::<Result<_>>()? })
    }

    fn side(&self, index: u32) -> Side {
        let arguments = self.switches.iter().map(|&node| Output { node, index }).collect();
        Side { start: self.pivots[index as usize], arguments }
    }
}

/// The results of a branch, after all its effects; of one without results, something that says it is over.
fn copy_branch(
    draft: &mut Draft<'_>,
    id: NodeId,
    name: &str,
    function: &str,
    body: &Graph,
    side: Side,
) -> Result<Vec<Output>> {
    let node = draft.node(id).clone();
    let prefix = format!("{}/{name}", node.name);
    let site = Site { call: id, prefix: &prefix, start: Some(side.start), is_guarded: true };
    let Body { mut results, effects } = draft.copy(body, function, &side.arguments, &site)?;
    if results.is_empty() {
        results.push(side.start.into());
    }
    after_effects(draft, &node, name, results, effects)
}

/// Values that are there only when all effects of a body have happened.
fn after_effects(
    draft: &mut Draft<'_>,
    node: &Node,
    name: &str,
    values: Vec<Output>,
    effects: Vec<NodeId>,
) -> Result<Vec<Output>> {
    if effects.is_empty() {
        return Ok(values);
    }
    let pass =
        |(index, value)| Ok(draft.pass_on(node, &format!("{name}/output_{index}"), value, effects.clone())?.into());
    values.into_iter().enumerate().map(pass).collect()
}

/// Lets the branches meet.
fn join(draft: &mut Draft<'_>, id: NodeId, branches: Vec<Vec<Output>>) -> Result<()> {
    let node = draft.node(id).clone();
    let count = branches.iter().map(Vec::len).min().unwrap_or(0);
    let mut merged: Vec<Output> = Vec::with_capacity(count);
    for index in 0..count {
        let values: Vec<Output> = branches.iter().map(|branch| branch[index]).collect();
        merged.push(draft.add("Merge", &node, &format!("merge_{index}"), values, vec![])?.into());
    }
    let body = match node.outputs.is_empty() {
        true => Body { results: vec![], effects: merged.iter().map(|m| m.node).collect() },
        false => Body { results: merged, effects: vec![] },
    };
    draft.replace(id, body)
}

/// `While`: a condition and a body.
pub(crate) fn lower_while(draft: &mut Draft<'_>, id: NodeId) -> Result<()> {
    let node = draft.node(id).clone();
    let functions = [node.attr("cond")?, node.attr("body")?];
    let Some(graphs) = bodies(draft, id, &functions) else { return Ok(()) };
    let [condition, body] = [&graphs[0], &graphs[1]];
    let is_handle: Vec<bool> = node.outputs.iter().map(|o| o.dtype == DType::Resource).collect();
    let Some(first) = is_handle.iter().position(|is_handle| !is_handle) else { return Ok(()) };
    if !gives_bool(condition) {
        return Ok(());
    }
    // A handle is the same in all iterations; so it is entered once, and stays outside of what goes round.
    let mut entered: Vec<NodeId> = Vec::with_capacity(node.inputs.len());
    for (index, &input) in node.inputs.iter().enumerate() {
        let mut attrs = Attrs::new();
        attrs.insert("frame_name".into(), node.name.as_str().into());
        attrs.insert("is_constant".into(), is_handle[index].into());
        attrs.insert("parallel_iterations".into(), Attr::Int(node.attr("parallel_iterations")?));
        let name = format!("enter_{index}");
        entered.push(draft.add_with("Enter", &node, &name, vec![input], node.control_inputs.clone(), attrs)?);
    }
    let mut variables = Vec::with_capacity(entered.len());
    for (index, &enter) in entered.iter().enumerate() {
        variables.push(match is_handle[index] {
            true => enter,
            false => draft.add("Merge", &node, &format!("merge_{index}"), vec![enter.into(), enter.into()], vec![])?,
        });
    }
    let pivot = variables[first];
    let goes_on = copy_condition(draft, id, &functions[0].name, condition, &variables, pivot)?;
    let mut switches: Vec<Option<NodeId>> = Vec::with_capacity(entered.len());
    for (index, &variable) in variables.iter().enumerate() {
        let inputs = vec![variable.into(), goes_on.into()];
        let switch = || draft.add("Switch", &node, &format!("switch_{index}"), inputs, vec![]);
        switches.push((!is_handle[index]).then(switch).transpose()?);
    }
    let turned = Round { entered: &entered, switches: &switches, first };
    let results = copy_round(draft, id, &functions[1].name, body, &turned)?;
    let mut exits: Vec<Option<NodeId>> = Vec::with_capacity(entered.len());
    for (index, switch) in switches.iter().enumerate() {
        let Some(switch) = *switch else {
            exits.push(None);
            continue;
        };
        let result = *results.get(index).ok_or_else(|| {
            invalid!("the body of '{}' has {} results, wanted {}", node.name, results.len(), entered.len())
        })?;
        let next = draft.add("NextIteration", &node, &format!("next_{index}"), vec![result], vec![])?;
        draft.close_loop(variables[index], next);
        exits.push(Some(draft.add("Exit", &node, &format!("exit_{index}"), vec![switch.into()], vec![])?));
    }
    // Who uses a handle behind the loop does so when the loop is over.
    let over = exits[first].into_iter().collect::<Vec<_>>();
    let mut left = Vec::with_capacity(entered.len());
    for (index, exit) in exits.iter().enumerate() {
        left.push(match exit {
            Some(exit) => (*exit).into(),
            None => draft.pass_on(&node, &format!("exit_{index}"), node.inputs[index], over.clone())?.into(),
        });
    }
    draft.replace(id, Body { results: left, effects: vec![] })
}

fn gives_bool(condition: &Graph) -> bool {
    let mut results = condition.nodes().filter(|(_, node)| node.op.name == "_Retval");
    let first = results.next().and_then(|(_, node)| node.attr::<DType>("T").ok());
    first == Some(DType::Bool) && results.next().is_none()
}

/// The `LoopCond`.
fn copy_condition(
    draft: &mut Draft<'_>,
    id: NodeId,
    function: &str,
    body: &Graph,
    variables: &[NodeId],
    start: NodeId,
) -> Result<NodeId> {
    let node = draft.node(id).clone();
    let prefix = format!("{}/cond", node.name);
    let site = Site { call: id, prefix: &prefix, start: Some(start), is_guarded: true };
    let arguments: Vec<Output> = variables.iter().map(|&v| v.into()).collect();
    let condition = draft.copy(body, function, &arguments, &site)?;
    draft.add("LoopCond", &node, "loop_cond", condition.results, condition.effects)
}

/// A loop's variables as an iteration begins.
struct Round<'a> {
    entered: &'a [NodeId],
    switches: &'a [Option<NodeId>],
    /// The first that is not a handle.
    first: usize,
}

/// What the body makes of the variables.
fn copy_round(
    draft: &mut Draft<'_>,
    id: NodeId,
    function: &str,
    body: &Graph,
    round: &Round<'_>,
) -> Result<Vec<Output>> {
    let node = draft.node(id).clone();
    let taken = |switch: NodeId| Output { node: switch, index: 1 };
    let first = round.switches[round.first].expect("the first that is not a handle passes a switch");
    let pivot = draft.pass_on(&node, "pivot", taken(first), vec![])?;
    let mut arguments = Vec::with_capacity(round.entered.len());
    for (index, switch) in round.switches.iter().enumerate() {
        arguments.push(match switch {
            Some(switch) => taken(*switch),
            // Dead once the loop is over, as the others are.
            None => draft.pass_on(&node, &format!("handle_{index}"), round.entered[index].into(), vec![pivot])?.into(),
        });
    }
    let prefix = format!("{}/body", node.name);
    let site = Site { call: id, prefix: &prefix, start: Some(pivot), is_guarded: true };
    let Body { results, effects } = draft.copy(body, function, &arguments, &site)?;
    after_effects(draft, &node, "body", results, effects)
}

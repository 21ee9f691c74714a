//! `cond` and `while_loop`: branches and loops out of `Switch`, `Merge` and frames.
//!
//! A closure builds its nodes as if they stood outside; afterwards every edge that leads into them from outside is led
//! through a `Switch` (into a branch) or an `Enter` (into a loop). Nodes that wait for nothing inside wait for the
//! branch or the iteration itself. Nesting needs no care: what an inner closure let in is let in once more by the outer.

use crate::{Graph, Operation, Output};
use framework::{NodeId, Scope};
use std::collections::HashMap;
use std::ops::Range;
use std::panic::Location;
use tensor::{PartialShape, Result, invalid};

/// What branches give and loops carry: an output, several, or something that happens.
pub trait Carried {
    /// The outputs to carry; made inside the branch or loop.
    fn carried(&self) -> Vec<Output>;
    /// The same thing made of what was carried.
    fn rebuilt(&self, outputs: Vec<Output>) -> Self;
}

impl Carried for Output {
    fn carried(&self) -> Vec<Output> {
        vec![self.clone()]
    }
    fn rebuilt(&self, mut outputs: Vec<Output>) -> Output {
        outputs.pop().unwrap_or_else(|| Output::void(self.graph()))
    }
}

impl Carried for Vec<Output> {
    fn carried(&self) -> Vec<Output> {
        self.clone()
    }
    fn rebuilt(&self, outputs: Vec<Output>) -> Vec<Output> {
        outputs
    }
}

impl Carried for Operation {
    fn carried(&self) -> Vec<Output> {
        vec![self.graph().control_dependencies(&[self], || self.graph().constant(true))]
    }
    fn rebuilt(&self, outputs: Vec<Output>) -> Operation {
        outputs.first().map_or_else(|| Operation::void(self.graph()), Output::operation)
    }
}

/// Implements `Carried` for tuples of outputs: a trait cannot be implemented for all lengths at once.
macro_rules! tuples {
    ($($($name:ident)+;)*) => {$(
        impl Carried for ($(tuples!(@ $name),)+) {
            fn carried(&self) -> Vec<Output> {
                let ($($name,)+) = self;
                vec![$($name.clone()),+]
            }
            fn rebuilt(&self, outputs: Vec<Output>) -> Self {
                let mut outputs = outputs.into_iter();
                let ($($name,)+) = self;
                ($(outputs.next().unwrap_or_else(|| Output::void($name.graph())),)+)
            }
        }
    )*};
    (@ $name:ident) => { Output };
}
tuples! {
    a b;
    a b c;
    a b c d;
}

/// What `yes` builds if `pred` is true, what `no` builds if it is not; the other is not computed.
///
/// ```
/// use ferroflow::prelude::*;
///
/// let g = Graph::new();
/// let x = g.placeholder::<f32>(Shape::scalar());
/// let y = cond(&x.greater(0.0), || x.sqrt(), || -&x);
/// let session = Session::new(&g)?;
/// assert_eq!(session.run_with(&y, feed! { x => 9.0f32 })?.item::<f32>()?, 3.0);
/// assert_eq!(session.run_with(&y, feed! { x => -4.0f32 })?.item::<f32>()?, 4.0);
/// # Ok::<(), ferroflow::Error>(())
/// ```
#[track_caller]
pub fn cond<V: Carried>(pred: &Output, yes: impl FnOnce() -> V, no: impl FnOnce() -> V) -> V {
    let caller = Location::caller();
    let graph = pred.graph().clone();
    let s = graph.scope();
    let place = s.unique_name("cond");
    s.with_absolute_name(&place, || {
        let parting = graph.at(caller, || graph.own_one(pred).and_then(|pred| graph.kept(Parting::new(s, pred))));
        let (yes, when_true) = branch(&graph, parting.as_ref(), 1, caller, yes);
        let (_, when_false) = branch(&graph, parting.as_ref(), 0, caller, no);
        if when_true.len() != when_false.len() {
            let (yes, no) = (when_true.len(), when_false.len());
            graph.at(caller, || graph.keep(invalid!("cond: one branch gives {yes} values, the other {no}")));
        }
        let meet = |(no, yes): (&Output, &Output)| graph.output([no, yes], |s, inputs| s.op("Merge", &inputs));
        let merged = graph.at(caller, || when_false.iter().zip(&when_true).map(meet).collect());
        yes.rebuilt(merged)
    })
}

/// Where a condition parts.
struct Parting {
    pred: framework::Output,
    /// What each branch waits for: the first if the condition is false.
    pivots: [NodeId; 2],
}

impl Parting {
    fn new(s: &Scope, pred: framework::Output) -> Result<Parting> {
        let switch = s.node("Switch").inputs(&[pred, pred]).outputs()?;
        let pivot = |name: &str, i: usize| s.node("Identity").name(name).input(switch[i]).build();
        let (when_true, when_false) = (pivot("switch_t", 1)?, pivot("switch_f", 0)?);
        let pred = s.node("Identity").name("pred_id").input(pred).output()?;
        Ok(Parting { pred, pivots: [when_false, when_true] })
    }
}

/// Builds one branch, and leads what it uses from outside through switches.
fn branch<V: Carried>(
    graph: &Graph,
    parting: Option<&Parting>,
    side: usize,
    caller: &'static Location<'static>,
    build: impl FnOnce() -> V,
) -> (V, Vec<Output>) {
    let s = graph.scope();
    let first = s.with_graph(|g| g.len());
    let value = build();
    let outputs: Vec<Output> = graph.at(caller, || value.carried().iter().map(Output::identity).collect());
    if let Some(parting) = parting {
        let nodes = first..s.with_graph(|g| g.len());
        let let_in = |s: &Scope, x: framework::Output, is_ref: bool| {
            let op = if is_ref { "RefSwitch" } else { "Switch" };
            let switch = s.node(op).name("Switch").inputs(&[x, parting.pred]).build()?;
            Ok(framework::Output { node: switch, index: side as u32 })
        };
        graph.at(caller, || graph.kept(enclose(s, nodes, first, parting.pivots[side], Kind::Branch, let_in)));
    }
    (value, outputs)
}

/// How a loop goes: `WhileOptions { parallel_iterations: 1, ..Default::default() }`.
#[derive(Clone, Debug)]
pub struct WhileOptions {
    /// How many iterations may overlap.
    pub parallel_iterations: i64,
    /// What the carried values' shapes stay within; their first shapes, if empty.
    pub shapes: Vec<PartialShape>,
}

impl Default for WhileOptions {
    fn default() -> WhileOptions {
        WhileOptions { parallel_iterations: 10, shapes: Vec::new() }
    }
}

/// Carries values round a loop for as long as `test` holds.
///
/// ```
/// use ferroflow::prelude::*;
///
/// let g = Graph::new();
/// let start = (g.constant(0), g.constant(1));
/// let (_, power) = while_loop(start, |(i, _)| i.less(10), |(i, power)| (i + 1, power * 2));
/// assert_eq!(Session::new(&g)?.run(&power)?.item::<i32>()?, 1024);
/// # Ok::<(), ferroflow::Error>(())
/// ```
#[track_caller]
pub fn while_loop<V: Carried>(start: V, test: impl FnOnce(&V) -> Output, body: impl FnOnce(&V) -> V) -> V {
    while_loop_with(start, WhileOptions::default(), test, body)
}

/// A loop that is not ordinary.
#[track_caller]
pub fn while_loop_with<V: Carried>(
    start: V,
    options: WhileOptions,
    test: impl FnOnce(&V) -> Output,
    body: impl FnOnce(&V) -> V,
) -> V {
    let caller = Location::caller();
    let carried = start.carried();
    let Some(first) = carried.first() else { return start };
    let graph = first.graph().clone();
    let void = || start.rebuilt(vec![Output::void(&graph); carried.len()]);
    let entering: Option<Vec<framework::Output>> =
        graph.at(caller, || carried.iter().map(|output| graph.own_one(output)).collect());
    let Some(entering) = entering else { return void() };
    let s = graph.scope();
    let place = s.unique_name("while");
    let outputs =
        |ids: &[framework::Output]| -> Vec<Output> { ids.iter().map(|&id| Output::new(&graph, Some(id))).collect() };
    s.with_absolute_name(&place, || {
        let frame = Frame { name: format!("{place}/while_context"), options };
        let Some(merges) = graph.at(caller, || graph.kept(frame.enter(s, &entering))) else { return void() };

        let inside = merges[0].node.index();

        let from = s.with_graph(|g| g.len());
        let test = s.without_control(|| test(&start.rebuilt(outputs(&merges))));
        let nodes = from..s.with_graph(|g| g.len());
        let let_in = |s: &Scope, x: framework::Output, is_ref: bool| frame.enter_node(s, x, true, is_ref);
        graph.at(caller, || graph.kept(enclose(s, nodes, inside, merges[0].node, Kind::Loop, let_in)));
        let Some(test) = graph.at(caller, || graph.own_one(&test)) else { return void() };
        let Some((turned, left)) = graph.at(caller, || graph.kept(s.without_control(|| frame.turn(s, &merges, test))))
        else {
            return void();
        };

        let from = s.with_graph(|g| g.len());
        let back: Option<Vec<framework::Output>> = s.without_control(|| {
            let result = body(&start.rebuilt(outputs(&turned)));
            graph.at(caller, || result.carried().iter().map(Output::identity).map(|o| graph.own_one(&o)).collect())
        });
        let nodes = from..s.with_graph(|g| g.len());
        graph.at(caller, || graph.kept(enclose(s, nodes, inside, turned[0].node, Kind::Loop, let_in)));
        let Some(back) = back else { return void() };
        match graph.at(caller, || graph.kept(s.without_control(|| frame.close(s, &merges, &back)))) {
            Some(()) => start.rebuilt(outputs(&left)),
            None => void(),
        }
    })
}

struct Frame {
    name: String,
    options: WhileOptions,
}

impl Frame {
    /// A value entering the loop: once, or as the same value in every iteration.
    fn enter_node(
        &self,
        s: &Scope,
        x: framework::Output,
        is_constant: bool,
        is_ref: bool,
    ) -> Result<framework::Output> {
        let node = s.node(if is_ref { "RefEnter" } else { "Enter" }).name("Enter").input(x);
        let node = node.attr("frame_name", &*self.name).attr("is_constant", is_constant);
        node.attr("parallel_iterations", self.options.parallel_iterations).output()
    }

    /// The carried values as an iteration begins. The way back is not there yet: the way in stands for it.
    fn enter(&self, s: &Scope, values: &[framework::Output]) -> Result<Vec<framework::Output>> {
        if !self.options.shapes.is_empty() && self.options.shapes.len() != values.len() {
            return Err(invalid!(
                "while_loop: {} shapes are given for {} carried values",
                self.options.shapes.len(),
                values.len()
            ));
        }
        let entered: Vec<framework::Output> =
            values.iter().map(|&x| self.enter_node(s, x, false, false)).collect::<Result<_>>()?;
        let merge = |(i, &x): (usize, &framework::Output)| {
            let merge = s.op("Merge", &[x, x])?;
            let shape = match self.options.shapes.get(i) {
                Some(wide) => wide.clone(),
                None => s.shape(x)?,
            };
            s.edit_graph(|g| g.relax_shape(merge, shape));
            Ok(merge)
        };
        // Only what enters waits for what stands outside.
        s.without_control(|| entered.iter().enumerate().map(merge).collect())
    }

    /// Where the loop goes on or ends: the values for the body, and those that leave.
    fn turn(
        &self,
        s: &Scope,
        merges: &[framework::Output],
        test: framework::Output,
    ) -> Result<(Vec<framework::Output>, Vec<framework::Output>)> {
        let goes_on = s.op("LoopCond", &[test])?;
        let mut ways = (Vec::new(), Vec::new());
        for &merge in merges {
            let switch = s.node("Switch").inputs(&[merge, goes_on]).outputs()?;
            ways.1.push(s.op("Exit", &[switch[0]])?);
            ways.0.push(switch[1]);
        }
        for way in &mut ways.0 {
            *way = s.op("Identity", &[*way])?;
        }
        Ok(ways)
    }

    /// Leads the body's results back to the merges.
    fn close(&self, s: &Scope, merges: &[framework::Output], back: &[framework::Output]) -> Result<()> {
        if merges.len() != back.len() {
            return Err(invalid!("while_loop: {} values go in, {} come back", merges.len(), back.len()));
        }
        for (i, (&merge, &value)) in merges.iter().zip(back).enumerate() {
            let (before, after) = (s.shape(merge)?, s.shape(value)?);
            if before.merge(&after).ok().as_ref() != Some(&after) {
                return Err(invalid!(
                    "while_loop: value {i} enters with shape {before} and comes back with shape {after}; \
                     WhileOptions::shapes can say what both stay within"
                ));
            }
            let next = s.op("NextIteration", &[value])?;
            s.edit_graph(|g| g.set_input(merge.node, 1, next))?;
        }
        Ok(())
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Branch,
    Loop,
}

/// Leads every edge that comes from outside into `nodes` through what `let_in` builds, once for each source. What was
/// built from `inside` on is inside.
fn enclose(
    s: &Scope,
    nodes: Range<usize>,
    inside: usize,
    pivot: NodeId,
    kind: Kind,
    let_in: impl Fn(&Scope, framework::Output, bool) -> Result<framework::Output>,
) -> Result<()> {
    let is_inside = |node: NodeId| (inside..nodes.end).contains(&node.index());
    let mut let_in_before: HashMap<framework::Output, framework::Output> = HashMap::new();
    for node in nodes.clone().map(|i| NodeId(i as u32)) {
        let (inputs, controls) = s.with_graph(|g| (g.node(node).inputs.clone(), g.node(node).control_inputs.clone()));
        if kind == Kind::Loop
            && let Some(&outside) = controls.iter().find(|&&c| !is_inside(c))
        {
            return Err(invalid!(
                "'{}' is inside a loop and cannot wait for '{}' outside of it",
                s.node_name(node),
                s.node_name(outside)
            ));
        }
        let mut waits_inside = controls.iter().any(|&c| is_inside(c));
        for (index, &input) in inputs.iter().enumerate() {
            if is_inside(input.node) {
                waits_inside = true;
                continue;
            }
            let wanted = match let_in_before.get(&input) {
                Some(&wanted) => wanted,
                None => {
                    let is_ref = s.info(input)?.is_ref;
                    let wanted = s.without_control(|| let_in(s, input, is_ref))?;
                    let_in_before.insert(input, wanted);
                    wanted
                }
            };
            s.edit_graph(|g| g.set_input(node, index, wanted))?;
            // What comes through a switch is dead with its branch; what enters a loop as a constant never is.
            waits_inside |= kind == Kind::Branch;
        }
        if !waits_inside {
            s.edit_graph(|g| g.add_control(pivot, node));
        }
    }
    Ok(())
}

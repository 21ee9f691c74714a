//! Optimizers: what turns gradients into new values of variables.
//!
//! Each optimizer is a [`Rule`]: which slots a variable carries along, which numbers the update takes, and in which
//! order the update's op wants them. What all have in common stands here: slots, names, sparse gradients, the count of
//! steps.

mod adadelta;
mod adagrad;
mod adagrad_da;
mod adam;
mod ftrl;
mod gradient_descent;
mod momentum;
mod proximal_adagrad;
mod proximal_gradient_descent;
mod rms_prop;

pub use adadelta::Adadelta;
pub use adagrad::Adagrad;
pub use adagrad_da::AdagradDA;
pub use adam::Adam;
pub use ftrl::Ftrl;
pub use gradient_descent::GradientDescent;
pub use momentum::Momentum;
pub use proximal_adagrad::ProximalAdagrad;
pub use proximal_gradient_descent::ProximalGradientDescent;
pub use rms_prop::RMSProp;

use crate::gradients::{gated_gradients, sum_duplicates};
use crate::graph::group;
use crate::initializers::{self, Initializer};
use crate::variable::{VariableOptions, update};
use crate::{Gradient, Graph, IndexedSlices, Operation, Output, Variable};
use framework::{Attr, NodeId, Scope};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;
use tensor::{DType, Result, Tensor, internal, invalid};

/// What changes variables so that a loss becomes smaller.
///
/// ```
/// use ferroflow::prelude::*;
///
/// let g = Graph::new();
/// let w = g.variable("w", [5.0f32, -3.0]);
/// let step = g.global_step();
/// let train = Adam::new(0.5).minimize(&w.square().sum()).increment(&step);
/// let init = g.initialize_all();
///
/// let session = Session::new(&g)?;
/// session.run(&init)?;
/// for _ in 0..100 {
///     session.run(&train)?;
/// }
/// assert_eq!(session.run(&step)?.item::<i64>()?, 100);
/// assert!(session.run(&w.square().sum())?.item::<f32>()? < 0.1);
/// # Ok::<(), ferroflow::Error>(())
/// ```
pub trait Optimizer {
    /// Changes each variable by its gradient, and then adds one to `step`. A void gradient makes the whole void.
    #[track_caller]
    fn apply_gradients(&self, gradients: &[(Gradient, Variable)], step: Option<&Variable>) -> Operation;

    /// The gradient of the loss by each variable; `None` for those it does not depend on.
    #[track_caller]
    fn compute_gradients(&self, loss: &Output, variables: &[Variable]) -> Vec<(Option<Gradient>, Variable)> {
        let xs: Vec<&Output> = variables.iter().map(|v| &**v).collect();
        gated_gradients(loss, &xs).into_iter().zip(variables.iter().cloned()).collect()
    }

    /// Changes the trainable variables of the loss's graph so that it becomes smaller.
    #[track_caller]
    fn minimize(&self, loss: &Output) -> Minimize {
        let variables = loss.graph().trainable_variables();
        self.minimize_over(loss, &variables)
    }

    /// Changes these variables so that the loss becomes smaller.
    #[track_caller]
    fn minimize_over(&self, loss: &Output, variables: &[Variable]) -> Minimize {
        let graph = loss.graph();
        let found = self.compute_gradients(loss, variables).into_iter();
        let found: Vec<(Gradient, Variable)> = found.filter_map(|(grad, v)| grad.map(|grad| (grad, v))).collect();
        if found.is_empty() {
            graph.keep(invalid!(
                "No gradients provided for any variable: {} depends on none of the {} variables it should change",
                loss.name(),
                variables.len()
            ));
            return Minimize { operation: Operation::void(graph), counted: None };
        }
        let step = self.counts_in(graph);
        Minimize { operation: self.apply_gradients(&found, step.as_ref()), counted: step }
    }

    /// The variable in which this optimizer counts steps even if it is not told to; for most there is none.
    #[track_caller]
    fn counts_in(&self, _graph: &Graph) -> Option<Variable> {
        None
    }
}

/// One training step; run it as it is, or let it count: `.increment(&step)`.
pub struct Minimize {
    operation: Operation,
    /// Where it counts already.
    counted: Option<Variable>,
}

impl Minimize {
    /// The same step, which then adds one to `step`.
    #[track_caller]
    pub fn increment(self, step: &Variable) -> Operation {
        let graph = self.operation.graph();
        let Some(id) = self.operation.id() else { return self.operation };
        if let Some(counted) = &self.counted {
            if counted.place().id() != step.place().id() || !step.graph().is_same(graph) {
                let (own, other) = (counted.name(), step.name());
                graph.keep(invalid!(
                    "this optimizer counts its steps in {own}, not in {other}; apply_gradients takes another count"
                ));
            }
            return self.operation;
        }
        graph.operation([step.place()], |s, [place]| increment(s, step, place, id, None))
    }
}

impl Deref for Minimize {
    type Target = Operation;
    fn deref(&self) -> &Operation {
        &self.operation
    }
}

impl crate::Fetch for Minimize {
    type Values = ();
    fn collect(&self, into: &mut crate::FetchList) {
        self.operation.collect(into);
    }
    fn values(&self, _: &mut dyn Iterator<Item = Tensor>) -> Result<()> {
        Ok(())
    }
}

/// A number an optimizer is given: known now, or computed in every step.
#[derive(Clone, Debug)]
pub enum Rate {
    /// Known now.
    Value(f64),
    /// Computed, such as a learning rate that decays.
    Computed(Output),
}

impl From<f64> for Rate {
    fn from(value: f64) -> Rate {
        Rate::Value(value)
    }
}

impl From<f32> for Rate {
    fn from(value: f32) -> Rate {
        Rate::Value(value.into())
    }
}

impl From<&Output> for Rate {
    fn from(output: &Output) -> Rate {
        Rate::Computed(output.clone())
    }
}

impl From<Output> for Rate {
    fn from(output: Output) -> Rate {
        Rate::Computed(output)
    }
}

/// What one optimizer is: everything else is shared.
pub(crate) trait Rule {
    /// What its nodes and slots are called by.
    fn name(&self) -> &'static str;
    /// The numbers it is given, each under the name of its constant.
    fn parameters(&self) -> Vec<(&'static str, &Rate)>;
    /// What each variable carries along: the slot's key, and what its elements start as.
    fn slots(&self) -> Vec<(&'static str, f64)> {
        Vec::new()
    }
    /// The slots made so far.
    fn table(&self) -> &SlotTable;
    /// The op's name behind `Apply`, `SparseApply`, `ResourceApply` and `ResourceSparseApply`.
    fn op(&self) -> &'static str;
    /// What the op takes after the variable, in order.
    fn arguments(&self) -> Vec<Argument>;
    /// The op's attributes.
    fn attrs(&self) -> Vec<(&'static str, Attr)> {
        Vec::new()
    }
    /// Variables that all updates share; made before the slots.
    fn create_shared(&self, _: &Graph, _: &[Variable]) -> Result<()> {
        Ok(())
    }
    /// Values that all updates take beside the parameters.
    fn shared(&self, _: &Scope, _: &[framework::Output]) -> Result<Vec<framework::Output>> {
        Ok(Vec::new())
    }
    /// An update by some rows, which may be named twice.
    fn sparse(&self, update: &Update<'_>, slices: [framework::Output; 2]) -> Result<NodeId> {
        let (values, indices) = sum_duplicates(update.s, slices[0], slices[1])?;
        update.sparse(self.op(), &self.arguments(), &self.attrs(), [values, indices])
    }
    /// What happens after all updates, beside them.
    fn finish(&self, _: &Scope, _: &Graph, _: &[framework::Output], _: &[NodeId]) -> Result<Vec<NodeId>> {
        Ok(Vec::new())
    }
}

/// What an update's op takes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Argument {
    /// A slot of the variable, by its place in [`Rule::slots`].
    Slot(usize),
    /// A number, by its place in [`Rule::parameters`].
    Parameter(usize),
    /// A shared value, by its place in [`Rule::shared`]; a count stays a count.
    Shared(usize),
    /// The gradient; of rows, their numbers too.
    Gradient,
}

/// The update of one variable.
pub(crate) struct Update<'a> {
    pub(crate) s: &'a Scope,
    pub(crate) variable: &'a Variable,
    pub(crate) slots: Vec<Variable>,
    pub(crate) parameters: &'a [framework::Output],
    pub(crate) shared: &'a [framework::Output],
}

impl Update<'_> {
    fn dense(
        &self,
        op: &str,
        arguments: &[Argument],
        attrs: &[(&'static str, Attr)],
        gradient: framework::Output,
    ) -> Result<NodeId> {
        self.node("Apply", op, arguments, attrs, &[gradient])
    }

    pub(crate) fn sparse(
        &self,
        op: &str,
        arguments: &[Argument],
        attrs: &[(&'static str, Attr)],
        slices: [framework::Output; 2],
    ) -> Result<NodeId> {
        self.node("SparseApply", op, arguments, attrs, &slices)
    }

    fn node(
        &self,
        kind: &str,
        op: &str,
        arguments: &[Argument],
        attrs: &[(&'static str, Attr)],
        gradient: &[framework::Output],
    ) -> Result<NodeId> {
        let mut inputs = vec![self.variable.place_id()?];
        for argument in arguments {
            match *argument {
                Argument::Slot(i) => inputs.push(self.slots[i].place_id()?),
                Argument::Parameter(i) => inputs.push(self.cast(self.parameters[i])?),
                Argument::Shared(i) if self.s.dtype(self.shared[i])?.is_floating() => {
                    inputs.push(self.cast(self.shared[i])?);
                }
                Argument::Shared(i) => inputs.push(self.shared[i]),
                Argument::Gradient => inputs.extend_from_slice(gradient),
            }
        }
        let resource = if self.variable.is_resource() { "Resource" } else { "" };
        let node = self.s.node(&format!("{resource}{kind}{op}")).inputs(&inputs);
        attrs.iter().fold(node, |node, (name, value)| node.attr(name, value.clone())).build()
    }

    /// A number in the variable's own type.
    pub(crate) fn cast(&self, number: framework::Output) -> Result<framework::Output> {
        cast(self.s, number, self.variable.dtype())
    }
}

pub(crate) fn cast(s: &Scope, x: framework::Output, dtype: DType) -> Result<framework::Output> {
    if s.dtype(x)? == dtype { Ok(x) } else { s.node("Cast").input(x).attr("DstT", dtype).output() }
}

/// Applies a rule: slots and shared variables are made if they are new, then each variable is updated beside itself.
#[track_caller]
pub(crate) fn apply(rule: &dyn Rule, pairs: &[(Gradient, Variable)], step: Option<&Variable>) -> Operation {
    let Some((_, first)) = pairs.first() else {
        let graph = Graph::new();
        graph.keep(invalid!("No gradients provided for any variable"));
        return Operation::void(&graph);
    };
    let graph = first.graph();
    let is_void = pairs.iter().any(|(grad, v)| grad.values().id().is_none() || v.place().id().is_none());
    if is_void || step.is_some_and(|step| step.place().id().is_none()) {
        return Operation::void(graph);
    }
    graph.operation([], |s, []| build(s, graph, rule, pairs, step))
}

fn build(
    s: &Scope,
    graph: &Graph,
    rule: &dyn Rule,
    pairs: &[(Gradient, Variable)],
    step: Option<&Variable>,
) -> Result<NodeId> {
    let variables: Vec<Variable> = pairs.iter().map(|(_, v)| v.clone()).collect();
    rule.create_shared(graph, &variables)?;
    for variable in &variables {
        for (key, value) in rule.slots() {
            rule.table().get_or_make(graph, variable, key, rule.name(), value)?;
        }
    }
    let name = s.unique_name(rule.name());
    let finished = s.with_absolute_name(&name, || {
        let parameters = rule.parameters().into_iter().map(|(name, rate)| parameter(s, graph, name, rate));
        let parameters: Vec<framework::Output> = parameters.collect::<Result<_>>()?;
        let shared = rule.shared(s, &parameters)?;
        let mut updates = Vec::with_capacity(pairs.len());
        for (gradient, variable) in pairs {
            let slots = rule.slots().into_iter().map(|(key, _)| rule.table().expect(variable, key));
            let slots = slots.collect::<Result<_>>()?;
            let update = Update { s, variable, slots, parameters: &parameters, shared: &shared };
            updates.push(s.with_name(&format!("update_{}", variable.name()), || {
                s.colocated_with(variable.place_id()?.node, || update_one(rule, &update, gradient))
            })?);
        }
        let last = s.with_control(&updates, || rule.finish(s, graph, &parameters, &updates))?;
        updates.extend(last);
        // Alone, the step carries the optimizer's name; otherwise that is the name of what counts it.
        group(s, "update", &updates)
    })?;
    match step {
        Some(step) => increment(s, step, step.place_id()?, finished, Some(&name)),
        None => Ok(finished),
    }
}

fn update_one(rule: &dyn Rule, update: &Update<'_>, gradient: &Gradient) -> Result<NodeId> {
    let id = |output: &Output| output.id().ok_or_else(|| internal!("a gradient that was not built"));
    match gradient {
        Gradient::Dense(gradient) => update.dense(rule.op(), &rule.arguments(), &rule.attrs(), id(gradient)?),
        Gradient::Sparse(IndexedSlices { values, indices, .. }) => rule.sparse(update, [id(values)?, id(indices)?]),
    }
}

/// Adds one to `step` after `update`, under the name of the optimizer.
fn increment(
    s: &Scope,
    step: &Variable,
    place: framework::Output,
    after: NodeId,
    name: Option<&str>,
) -> Result<NodeId> {
    let scope = s.node_name(after);
    let name = name.or(scope.strip_suffix("/update")).unwrap_or(&scope).to_string();
    let name = if s.with_graph(|g| g.find(&name)).is_some() { s.unique_name("increment") } else { name };
    s.with_control(&[after], || {
        s.colocated_with(place.node, || {
            let one = framework::scope::scalar_of(step.dtype(), 1.0)?;
            let one = s.with_absolute_name(&name, || {
                s.node("Const").name("value").attr("dtype", one.dtype()).attr("value", one).output()
            })?;
            let op = if step.is_resource() { "AssignAddVariableOp" } else { "AssignAdd" };
            update(s, op, &format!("{name}/"), [place, one])
        })
    })
}

/// A number as a constant of the optimizer's own scope; computed ones are taken as they are.
fn parameter(s: &Scope, graph: &Graph, name: &str, rate: &Rate) -> Result<framework::Output> {
    match rate {
        Rate::Value(value) => {
            let value = Tensor::from(*value as f32);
            s.node("Const").name(name).attr("dtype", DType::F32).attr("value", value).output()
        }
        Rate::Computed(output) if !output.graph().is_same(graph) => {
            Err(invalid!("the {name} belongs to another graph than the variables"))
        }
        Rate::Computed(output) => output.id().ok_or_else(|| invalid!("the {name} was not built")),
    }
}

/// The slots an optimizer has made; clones of an optimizer share them.
#[derive(Clone, Default)]
pub(crate) struct SlotTable {
    made: Arc<Mutex<HashMap<(String, &'static str), Variable>>>,
}

impl SlotTable {
    /// A slot of a variable, if it was made.
    pub(crate) fn get(&self, variable: &str, key: &'static str) -> Option<Variable> {
        self.made.lock().get(&(variable.to_string(), key)).cloned()
    }

    pub(crate) fn expect(&self, variable: &Variable, key: &'static str) -> Result<Variable> {
        let slot = self.get(&variable.name(), key);
        slot.ok_or_else(|| internal!("{} has no slot '{key}'", variable.name()))
    }

    pub(crate) fn put(&self, variable: &str, key: &'static str, slot: Variable) {
        self.made.lock().insert((variable.to_string(), key), slot);
    }

    fn get_or_make(
        &self,
        graph: &Graph,
        primary: &Variable,
        key: &'static str,
        name: &str,
        value: f64,
    ) -> Result<Variable> {
        if let Some(slot) = self.get(&primary.name(), key)
            && slot.graph().is_same(graph)
        {
            return Ok(slot);
        }
        let shape = primary.shape();
        let shape = shape.known().ok_or_else(|| invalid!("{} has no fixed shape", primary.name()))?;
        let initial = match value {
            0.0 => initializers::zeros(shape),
            1.0 => initializers::ones(shape),
            value => initializers::constant(value, shape),
        };
        let slot = make_slot(graph, primary, name, initial.dtype(primary.dtype()))?;
        self.put(&primary.name(), key, slot.clone());
        Ok(slot)
    }
}

/// A variable that accompanies another one: beside it, of its kind, called `primary/name`.
pub(crate) fn make_slot(graph: &Graph, primary: &Variable, name: &str, initial: Initializer) -> Result<Variable> {
    make_slot_from(graph, primary, name, &initial.into())
}

/// The same, from any initial value.
pub(crate) fn make_slot_from(
    graph: &Graph,
    primary: &Variable,
    name: &str,
    initial: &crate::Initial,
) -> Result<Variable> {
    let s = graph.scope();
    let full = s.with_absolute_name("", || s.unique_name(&format!("{}/{name}", primary.name())));
    let options = VariableOptions { trainable: false, resource: Some(primary.is_resource()), ..Default::default() };
    let slice = primary.save_slice().and_then(|slice| {
        let name = full.strip_prefix(&format!("{}/", primary.name()))?;
        slice.of_slot(name, initial.kind(s, &full).ok()?.1.rank())
    });
    s.colocated_with(primary.place_id()?.node, || graph.make_part(full, initial, options, slice))
}

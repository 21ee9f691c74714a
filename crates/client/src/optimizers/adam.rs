//! Adam: steps from moving averages of the gradients and of their squares, corrected for starting at zero.

use super::{Argument, Optimizer, Rate, Rule, SlotTable, Update, apply, cast};
use crate::variable::{VariableOptions, update};
use crate::{Gradient, Graph, Operation, Variable};
use framework::{NodeId, Scope};
use tensor::{Result, invalid};

/// Adam: `m += (1 - beta1) * (gradient - m); v += (1 - beta2) * (gradient^2 - v); w -= rate_t * m / (sqrt(v) + epsilon)`.
///
/// ```
/// use ferroflow::prelude::*;
///
/// let g = Graph::new();
/// let w = g.variable("w", [5.0f32, -3.0]);
/// let loss = w.square().sum();
/// let train = Adam::new(0.1).beta1(0.8).minimize(&loss);
/// let init = g.initialize_all();
/// let session = Session::new(&g)?;
/// session.run(&init)?;
/// let before = session.run(&loss)?.item::<f32>()?;
/// session.run(&train)?;
/// assert!(session.run(&loss)?.item::<f32>()? < before);
/// # Ok::<(), ferroflow::Error>(())
/// ```
#[derive(Clone)]
pub struct Adam {
    rate: Rate,
    beta1: f64,
    beta2: f64,
    epsilon: Rate,
    /// The betas as rates too, as the update takes them.
    betas: [Rate; 2],
    slots: SlotTable,
}

impl Adam {
    /// With this learning rate.
    pub fn new(rate: impl Into<Rate>) -> Adam {
        let (beta1, beta2) = (0.9, 0.999);
        let betas = [beta1.into(), beta2.into()];
        Adam { rate: rate.into(), beta1, beta2, epsilon: 1e-8.into(), betas, slots: SlotTable::default() }
    }

    /// How slowly the average of the gradients forgets, 0.9 unless said.
    pub fn beta1(mut self, beta1: f64) -> Self {
        (self.beta1, self.betas[0]) = (beta1, beta1.into());
        self
    }

    /// How slowly the average of the squares forgets, 0.999 unless said.
    pub fn beta2(mut self, beta2: f64) -> Self {
        (self.beta2, self.betas[1]) = (beta2, beta2.into());
        self
    }

    /// What keeps the root from zero, 1e-8 unless said.
    pub fn epsilon(mut self, epsilon: impl Into<Rate>) -> Self {
        self.epsilon = epsilon.into();
        self
    }

    fn powers(&self) -> Result<[Variable; 2]> {
        let power = |key| self.slots.get(SHARED, key).ok_or_else(|| invalid!("Adam has no {key} yet"));
        Ok([power("beta1_power")?, power("beta2_power")?])
    }
}

/// Where the powers stand in the table of slots: no variable has an empty name.
const SHARED: &str = "";

impl Optimizer for Adam {
    #[track_caller]
    fn apply_gradients(&self, gradients: &[(Gradient, Variable)], step: Option<&Variable>) -> Operation {
        apply(self, gradients, step)
    }
}

impl Rule for Adam {
    fn name(&self) -> &'static str {
        "Adam"
    }
    fn parameters(&self) -> Vec<(&'static str, &Rate)> {
        vec![
            ("learning_rate", &self.rate),
            ("beta1", &self.betas[0]),
            ("beta2", &self.betas[1]),
            ("epsilon", &self.epsilon),
        ]
    }
    fn slots(&self) -> Vec<(&'static str, f64)> {
        vec![("m", 0.0), ("v", 0.0)]
    }
    fn table(&self) -> &SlotTable {
        &self.slots
    }
    fn op(&self) -> &'static str {
        "Adam"
    }
    fn arguments(&self) -> Vec<Argument> {
        use Argument::{Gradient as G, Parameter, Shared, Slot};
        vec![Slot(0), Slot(1), Shared(0), Shared(1), Parameter(0), Parameter(1), Parameter(2), Parameter(3), G]
    }

    /// The powers of the betas, which tell how far the averages are from their start; beside the first variable.
    fn create_shared(&self, graph: &Graph, variables: &[Variable]) -> Result<()> {
        if self.powers().is_ok_and(|[power, _]| power.graph().is_same(graph)) {
            return Ok(());
        }
        let first = variables.iter().min_by_key(|v| v.name()).ok_or_else(|| invalid!("there are no variables"))?;
        let s = graph.scope();
        let options = VariableOptions { trainable: false, resource: Some(first.is_resource()), ..Default::default() };
        for (key, beta) in [("beta1_power", self.beta1), ("beta2_power", self.beta2)] {
            let full = s.unique_name(key);
            let initial = (beta as f32).into();
            let power = s.colocated_with(first.place_id()?.node, || graph.make_variable(full, &initial, options))?;
            self.slots.put(SHARED, key, power);
        }
        Ok(())
    }

    fn shared(&self, _: &Scope, _: &[framework::Output]) -> Result<Vec<framework::Output>> {
        self.powers()?.iter().map(|power| power.id().ok_or_else(|| invalid!("Adam's powers were not built"))).collect()
    }

    /// Both averages decay everywhere, and all of the variable moves: rows are only a cheaper way to add.
    fn sparse(&self, u: &Update<'_>, [values, indices]: [framework::Output; 2]) -> Result<NodeId> {
        let s = u.s;
        let (values, indices) = crate::gradients::sum_duplicates(s, values, indices)?;
        let one = s.constant_of(u.variable.dtype(), 1.0)?;
        let rest = |x| s.op("Sub", &[one, x]);
        let number = |i: usize| u.cast(u.parameters[i]);
        let [beta1_power, beta2_power] = [u.cast(u.shared[0])?, u.cast(u.shared[1])?];
        let (rate, beta1, beta2, epsilon) = (number(0)?, number(1)?, number(2)?, number(3)?);
        let rate = s.op("Mul", &[rate, s.op("Sqrt", &[rest(beta2_power)?])?])?;
        let rate = s.op("RealDiv", &[rate, rest(beta1_power)?])?;

        let scaled = s.op("Mul", &[values, rest(beta1)?])?;
        let (m, m_added) = decayed_plus_rows(s, &u.slots[0], beta1, indices, scaled)?;
        let squares = s.op("Mul", &[s.op("Mul", &[values, values])?, rest(beta2)?])?;
        let (v, v_added) = decayed_plus_rows(s, &u.slots[1], beta2, indices, squares)?;

        let root = s.op("AddV2", &[s.op("Sqrt", &[v])?, epsilon])?;
        let delta = s.op("RealDiv", &[s.op("Mul", &[rate, m])?, root])?;
        let op = if u.variable.is_resource() { "AssignSubVariableOp" } else { "AssignSub" };
        let moved = update(s, op, "AssignSub", [u.variable.place_id()?, delta])?;
        crate::graph::group(s, "group_deps", &[moved, m_added, v_added])
    }

    fn finish(&self, s: &Scope, _: &Graph, parameters: &[framework::Output], _: &[NodeId]) -> Result<Vec<NodeId>> {
        let powers = self.powers()?;
        s.colocated_with(powers[0].place_id()?.node, || {
            let multiply = |power: &Variable, beta: framework::Output| {
                // Read after all updates, which still take the old power.
                let old = if power.is_resource() {
                    s.node("ReadVariableOp").input(power.place_id()?).attr("dtype", power.dtype()).output()?
                } else {
                    power.id().ok_or_else(|| invalid!("Adam's powers were not built"))?
                };
                let product = s.node("Mul").name("mul").inputs(&[old, cast(s, beta, power.dtype())?]).output()?;
                let op = if power.is_resource() { "AssignVariableOp" } else { "Assign" };
                update(s, op, "Assign", [power.place_id()?, product])
            };
            Ok(vec![multiply(&powers[0], parameters[1])?, multiply(&powers[1], parameters[2])?])
        })
    }
}

/// A slot times `decay`, plus some rows: its value afterwards, and when that has happened.
fn decayed_plus_rows(
    s: &Scope,
    slot: &Variable,
    decay: framework::Output,
    indices: framework::Output,
    rows: framework::Output,
) -> Result<(framework::Output, NodeId)> {
    let place = slot.place_id()?;
    let old = slot.id().ok_or_else(|| invalid!("a slot that was not built"))?;
    let decayed = s.node("Mul").name("mul").inputs(&[old, decay]).output()?;
    let op = if slot.is_resource() { "AssignVariableOp" } else { "Assign" };
    let assigned = update(s, op, "Assign", [place, decayed])?;
    s.with_control(&[assigned], || {
        if !slot.is_resource() {
            let added = s.node("ScatterAdd").inputs(&[place, indices, rows]).output()?;
            return Ok((added, added.node));
        }
        let node = s.node("ResourceScatterAdd").inputs(&[place, indices, rows]).attr("dtype", slot.dtype()).build()?;
        let value = s.node("ReadVariableOp").input(place).attr("dtype", slot.dtype()).control(node).output()?;
        Ok((value, node))
    })
}

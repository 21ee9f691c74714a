//! Adagrad by dual averaging: the sum of all gradients, regularised, gives the variable anew in each step.

use super::{Argument, Optimizer, Rate, Rule, SlotTable, apply};
use crate::{Gradient, Operation, Variable};
use framework::Scope;
use tensor::Result;

/// Adagrad by dual averaging. It must know the count of steps, which it does not change by itself.
///
/// ```
/// use ferroflow::prelude::*;
///
/// let g = Graph::new();
/// let w = g.variable("w", [5.0f32, -3.0]);
/// let loss = w.square().sum();
/// let train = AdagradDA::new(0.1, &g.global_step()).minimize(&loss);
/// let init = g.initialize_all();
/// let session = Session::new(&g)?;
/// session.run(&init)?;
/// let before = session.run(&loss)?.item::<f32>()?;
/// session.run(&train)?;
/// assert!(session.run(&loss)?.item::<f32>()? < before);
/// # Ok::<(), ferroflow::Error>(())
/// ```
#[derive(Clone)]
pub struct AdagradDA {
    rate: Rate,
    step: Variable,
    initial_accumulator_value: f64,
    l1: Rate,
    l2: Rate,
    slots: SlotTable,
}

impl AdagradDA {
    /// With this learning rate and count of steps.
    pub fn new(rate: impl Into<Rate>, step: &Variable) -> AdagradDA {
        AdagradDA {
            rate: rate.into(),
            step: step.clone(),
            initial_accumulator_value: 0.1,
            l1: 0.0.into(),
            l2: 0.0.into(),
            slots: SlotTable::default(),
        }
    }

    /// What the sums of squares start as, 0.1 unless said.
    pub fn initial_accumulator_value(mut self, initial_accumulator_value: f64) -> Self {
        self.initial_accumulator_value = initial_accumulator_value;
        self
    }

    /// The strength of L1, 0 unless said.
    pub fn l1(mut self, l1: impl Into<Rate>) -> Self {
        self.l1 = l1.into();
        self
    }

    /// The strength of L2, 0 unless said.
    pub fn l2(mut self, l2: impl Into<Rate>) -> Self {
        self.l2 = l2.into();
        self
    }
}

impl Optimizer for AdagradDA {
    #[track_caller]
    fn apply_gradients(&self, gradients: &[(Gradient, Variable)], step: Option<&Variable>) -> Operation {
        apply(self, gradients, step)
    }
}

impl Rule for AdagradDA {
    fn name(&self) -> &'static str {
        "AdagradDA"
    }
    fn parameters(&self) -> Vec<(&'static str, &Rate)> {
        vec![
            ("learning_rate", &self.rate),
            ("l1_regularization_strength", &self.l1),
            ("l2_regularization_strength", &self.l2),
        ]
    }
    fn slots(&self) -> Vec<(&'static str, f64)> {
        vec![("gradient_accumulator", 0.0), ("gradient_squared_accumulator", self.initial_accumulator_value)]
    }
    fn table(&self) -> &SlotTable {
        &self.slots
    }
    fn op(&self) -> &'static str {
        "AdagradDA"
    }
    fn arguments(&self) -> Vec<Argument> {
        use Argument::{Gradient as G, Parameter, Shared, Slot};
        vec![Slot(0), Slot(1), G, Parameter(0), Parameter(1), Parameter(2), Shared(0)]
    }

    /// The number of the step being made, counted from one.
    fn shared(&self, s: &Scope, _: &[framework::Output]) -> Result<Vec<framework::Output>> {
        let read = if self.step.is_resource() {
            s.node("ReadVariableOp").input(self.step.place_id()?).attr("dtype", self.step.dtype()).output()?
        } else {
            s.op("Identity", &[self.step.place_id()?])?
        };
        let step = s.op("AddV2", &[read, s.constant(framework::scope::scalar_of(self.step.dtype(), 1.0)?)?])?;
        Ok(vec![super::cast(s, step, tensor::DType::I64)?])
    }
}

//! Adagrad: each element's rate shrinks with the squares of its past gradients.

use super::{Argument, Optimizer, Rate, Rule, SlotTable, apply};
use crate::{Gradient, Operation, Variable};

/// Adagrad: `a += gradient^2; w -= rate * gradient / sqrt(a)`.
///
/// ```
/// use ferroflow::prelude::*;
///
/// let g = Graph::new();
/// let w = g.variable("w", [5.0f32, -3.0]);
/// let loss = w.square().sum();
/// let train = Adagrad::new(0.1).minimize(&loss);
/// let init = g.initialize_all();
/// let session = Session::new(&g)?;
/// session.run(&init)?;
/// let before = session.run(&loss)?.item::<f32>()?;
/// session.run(&train)?;
/// assert!(session.run(&loss)?.item::<f32>()? < before);
/// # Ok::<(), ferroflow::Error>(())
/// ```
#[derive(Clone)]
pub struct Adagrad {
    rate: Rate,
    initial_accumulator_value: f64,
    slots: SlotTable,
}

impl Adagrad {
    /// With this learning rate.
    pub fn new(rate: impl Into<Rate>) -> Adagrad {
        Adagrad { rate: rate.into(), initial_accumulator_value: 0.1, slots: SlotTable::default() }
    }

    /// What the sums of squares start as, 0.1 unless said.
    pub fn initial_accumulator_value(mut self, initial_accumulator_value: f64) -> Self {
        self.initial_accumulator_value = initial_accumulator_value;
        self
    }
}

impl Optimizer for Adagrad {
    #[track_caller]
    fn apply_gradients(&self, gradients: &[(Gradient, Variable)], step: Option<&Variable>) -> Operation {
        apply(self, gradients, step)
    }
}

impl Rule for Adagrad {
    fn name(&self) -> &'static str {
        "Adagrad"
    }
    fn parameters(&self) -> Vec<(&'static str, &Rate)> {
        vec![("learning_rate", &self.rate)]
    }
    fn slots(&self) -> Vec<(&'static str, f64)> {
        vec![("accumulator", self.initial_accumulator_value)]
    }
    fn table(&self) -> &SlotTable {
        &self.slots
    }
    fn op(&self) -> &'static str {
        "Adagrad"
    }
    fn arguments(&self) -> Vec<Argument> {
        use Argument::{Gradient as G, Parameter, Slot};
        vec![Slot(0), Parameter(0), G]
    }
}

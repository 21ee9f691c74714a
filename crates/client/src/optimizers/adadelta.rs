//! Adadelta: steps in the units of the variable, from moving averages of gradients and updates.

use super::{Argument, Optimizer, Rate, Rule, SlotTable, apply};
use crate::{Gradient, Operation, Variable};

/// Adadelta.
///
/// ```
/// use ferroflow::prelude::*;
///
/// let g = Graph::new();
/// let w = g.variable("w", [5.0f32, -3.0]);
/// let loss = w.square().sum();
/// let train = Adadelta::new(1.0).minimize(&loss);
/// let init = g.initialize_all();
/// let session = Session::new(&g)?;
/// session.run(&init)?;
/// let before = session.run(&loss)?.item::<f32>()?;
/// session.run(&train)?;
/// assert!(session.run(&loss)?.item::<f32>()? < before);
/// # Ok::<(), ferroflow::Error>(())
/// ```
#[derive(Clone)]
pub struct Adadelta {
    rate: Rate,
    rho: Rate,
    epsilon: Rate,
    slots: SlotTable,
}

impl Adadelta {
    /// With this learning rate.
    pub fn new(rate: impl Into<Rate>) -> Adadelta {
        Adadelta { rate: rate.into(), rho: 0.95.into(), epsilon: 1e-8.into(), slots: SlotTable::default() }
    }

    /// How slowly the averages forget, 0.95 unless said.
    pub fn rho(mut self, rho: impl Into<Rate>) -> Self {
        self.rho = rho.into();
        self
    }

    /// What keeps the roots from zero, 1e-8 unless said.
    pub fn epsilon(mut self, epsilon: impl Into<Rate>) -> Self {
        self.epsilon = epsilon.into();
        self
    }
}

impl Optimizer for Adadelta {
    #[track_caller]
    fn apply_gradients(&self, gradients: &[(Gradient, Variable)], step: Option<&Variable>) -> Operation {
        apply(self, gradients, step)
    }
}

impl Rule for Adadelta {
    fn name(&self) -> &'static str {
        "Adadelta"
    }
    fn parameters(&self) -> Vec<(&'static str, &Rate)> {
        vec![("lr", &self.rate), ("rho", &self.rho), ("epsilon", &self.epsilon)]
    }
    fn slots(&self) -> Vec<(&'static str, f64)> {
        vec![("accum", 0.0), ("accum_update", 0.0)]
    }
    fn table(&self) -> &SlotTable {
        &self.slots
    }
    fn op(&self) -> &'static str {
        "Adadelta"
    }
    fn arguments(&self) -> Vec<Argument> {
        use Argument::{Gradient as G, Parameter, Slot};
        vec![Slot(0), Slot(1), Parameter(0), Parameter(1), Parameter(2), G]
    }
}

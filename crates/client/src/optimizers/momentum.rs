//! Momentum: a decaying sum of gradients moves each variable; Nesterov's form looks ahead.

use super::{Argument, Optimizer, Rate, Rule, SlotTable, apply};
use crate::{Gradient, Operation, Variable};
use framework::Attr;

/// Gradient descent with momentum: `m = momentum * m + gradient; w -= rate * m`.
///
/// ```
/// use ferroflow::prelude::*;
///
/// let g = Graph::new();
/// let w = g.variable("w", [5.0f32, -3.0]);
/// let loss = w.square().sum();
/// let train = Momentum::new(0.1, 0.9).nesterov().minimize(&loss);
/// let init = g.initialize_all();
/// let session = Session::new(&g)?;
/// session.run(&init)?;
/// let before = session.run(&loss)?.item::<f32>()?;
/// session.run(&train)?;
/// assert!(session.run(&loss)?.item::<f32>()? < before);
/// # Ok::<(), ferroflow::Error>(())
/// ```
#[derive(Clone)]
pub struct Momentum {
    rate: Rate,
    momentum: Rate,
    nesterov: bool,
    slots: SlotTable,
}

impl Momentum {
    /// With this learning rate and momentum.
    pub fn new(rate: impl Into<Rate>, momentum: impl Into<Rate>) -> Momentum {
        Momentum { rate: rate.into(), momentum: momentum.into(), nesterov: false, slots: SlotTable::default() }
    }

    /// Takes the gradient where the momentum leads, as Nesterov does.
    pub fn nesterov(mut self) -> Self {
        self.nesterov = true;
        self
    }
}

impl Optimizer for Momentum {
    #[track_caller]
    fn apply_gradients(&self, gradients: &[(Gradient, Variable)], step: Option<&Variable>) -> Operation {
        apply(self, gradients, step)
    }
}

impl Rule for Momentum {
    fn name(&self) -> &'static str {
        "Momentum"
    }
    fn parameters(&self) -> Vec<(&'static str, &Rate)> {
        vec![("learning_rate", &self.rate), ("momentum", &self.momentum)]
    }
    fn slots(&self) -> Vec<(&'static str, f64)> {
        vec![("momentum", 0.0)]
    }
    fn table(&self) -> &SlotTable {
        &self.slots
    }
    fn op(&self) -> &'static str {
        "Momentum"
    }
    fn arguments(&self) -> Vec<Argument> {
        use Argument::{Gradient as G, Parameter, Slot};
        vec![Slot(0), Parameter(0), G, Parameter(1)]
    }
    fn attrs(&self) -> Vec<(&'static str, Attr)> {
        vec![("use_nesterov", self.nesterov.into())]
    }
}

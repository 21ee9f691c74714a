//! Proximal gradient descent: gradient descent, then a step toward zero for L1 and L2.

use super::{Argument, Optimizer, Rate, Rule, SlotTable, apply};
use crate::{Gradient, Operation, Variable};

/// Gradient descent with L1 and L2 applied exactly.
///
/// ```
/// use ferroflow::prelude::*;
///
/// let g = Graph::new();
/// let w = g.variable("w", [5.0f32, -3.0]);
/// let loss = w.square().sum();
/// let train = ProximalGradientDescent::new(0.1).l1(0.01).minimize(&loss);
/// let init = g.initialize_all();
/// let session = Session::new(&g)?;
/// session.run(&init)?;
/// let before = session.run(&loss)?.item::<f32>()?;
/// session.run(&train)?;
/// assert!(session.run(&loss)?.item::<f32>()? < before);
/// # Ok::<(), ferroflow::Error>(())
/// ```
#[derive(Clone)]
pub struct ProximalGradientDescent {
    rate: Rate,
    l1: Rate,
    l2: Rate,
    slots: SlotTable,
}

impl ProximalGradientDescent {
    /// With this learning rate.
    pub fn new(rate: impl Into<Rate>) -> ProximalGradientDescent {
        ProximalGradientDescent { rate: rate.into(), l1: 0.0.into(), l2: 0.0.into(), slots: SlotTable::default() }
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

impl Optimizer for ProximalGradientDescent {
    #[track_caller]
    fn apply_gradients(&self, gradients: &[(Gradient, Variable)], step: Option<&Variable>) -> Operation {
        apply(self, gradients, step)
    }
}

impl Rule for ProximalGradientDescent {
    fn name(&self) -> &'static str {
        "ProximalGradientDescent"
    }
    fn parameters(&self) -> Vec<(&'static str, &Rate)> {
        vec![
            ("learning_rate", &self.rate),
            ("l1_regularization_strength", &self.l1),
            ("l2_regularization_strength", &self.l2),
        ]
    }
    fn slots(&self) -> Vec<(&'static str, f64)> {
        Vec::new()
    }
    fn table(&self) -> &SlotTable {
        &self.slots
    }
    fn op(&self) -> &'static str {
        "ProximalGradientDescent"
    }
    fn arguments(&self) -> Vec<Argument> {
        use Argument::{Gradient as G, Parameter};
        vec![Parameter(0), Parameter(1), Parameter(2), G]
    }
}

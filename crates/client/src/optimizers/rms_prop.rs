//! RMSProp: gradients divided by the root of a moving average of their squares.

use super::{Argument, Optimizer, Rate, Rule, SlotTable, apply};
use crate::{Gradient, Operation, Variable};

/// RMSProp: `s += (1 - decay) * (gradient^2 - s); m = momentum * m + rate * gradient / sqrt(s + epsilon); w -= m`.
///
/// ```
/// use ferroflow::prelude::*;
///
/// let g = Graph::new();
/// let w = g.variable("w", [5.0f32, -3.0]);
/// let loss = w.square().sum();
/// let train = RMSProp::new(0.1).centered().minimize(&loss);
/// let init = g.initialize_all();
/// let session = Session::new(&g)?;
/// session.run(&init)?;
/// let before = session.run(&loss)?.item::<f32>()?;
/// session.run(&train)?;
/// assert!(session.run(&loss)?.item::<f32>()? < before);
/// # Ok::<(), ferroflow::Error>(())
/// ```
#[derive(Clone)]
pub struct RMSProp {
    rate: Rate,
    decay: Rate,
    momentum: Rate,
    epsilon: Rate,
    centered: bool,
    slots: SlotTable,
}

impl RMSProp {
    /// With this learning rate.
    pub fn new(rate: impl Into<Rate>) -> RMSProp {
        RMSProp {
            rate: rate.into(),
            decay: 0.9.into(),
            momentum: 0.0.into(),
            epsilon: 1e-10.into(),
            centered: false,
            slots: SlotTable::default(),
        }
    }

    /// How slowly the averages forget, 0.9 unless said.
    pub fn decay(mut self, decay: impl Into<Rate>) -> Self {
        self.decay = decay.into();
        self
    }

    /// The momentum, 0 unless said.
    pub fn momentum(mut self, momentum: impl Into<Rate>) -> Self {
        self.momentum = momentum.into();
        self
    }

    /// What keeps the root from zero, 1e-10 unless said.
    pub fn epsilon(mut self, epsilon: impl Into<Rate>) -> Self {
        self.epsilon = epsilon.into();
        self
    }

    /// Divides by the variance of the gradients, rather than by the mean of their squares.
    pub fn centered(mut self) -> Self {
        self.centered = true;
        self
    }
}

impl Optimizer for RMSProp {
    #[track_caller]
    fn apply_gradients(&self, gradients: &[(Gradient, Variable)], step: Option<&Variable>) -> Operation {
        apply(self, gradients, step)
    }
}

impl Rule for RMSProp {
    fn name(&self) -> &'static str {
        "RMSProp"
    }
    fn parameters(&self) -> Vec<(&'static str, &Rate)> {
        vec![
            ("learning_rate", &self.rate),
            ("decay", &self.decay),
            ("momentum", &self.momentum),
            ("epsilon", &self.epsilon),
        ]
    }
    fn slots(&self) -> Vec<(&'static str, f64)> {
        if self.centered {
            vec![("rms", 1.0), ("mg", 0.0), ("momentum", 0.0)]
        } else {
            vec![("rms", 1.0), ("momentum", 0.0)]
        }
    }
    fn table(&self) -> &SlotTable {
        &self.slots
    }
    fn op(&self) -> &'static str {
        if self.centered { "CenteredRMSProp" } else { "RMSProp" }
    }
    fn arguments(&self) -> Vec<Argument> {
        use Argument::{Gradient as G, Parameter, Slot};
        let mut arguments = if self.centered { vec![Slot(1), Slot(0), Slot(2)] } else { vec![Slot(0), Slot(1)] };
        arguments.extend([Parameter(0), Parameter(1), Parameter(2), Parameter(3), G]);
        arguments
    }
}

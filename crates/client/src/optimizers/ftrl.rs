//! FTRL-proximal: follows the regularised leader; made for sparse models.

use super::{Argument, Optimizer, Rate, Rule, SlotTable, apply};
use crate::{Gradient, Operation, Variable};

/// FTRL-proximal, with L1, L2 and shrinkage.
///
/// ```
/// use ferroflow::prelude::*;
///
/// let g = Graph::new();
/// let w = g.variable("w", [5.0f32, -3.0]);
/// let loss = w.square().sum();
/// let train = Ftrl::new(0.5).l1(0.01).minimize(&loss);
/// let init = g.initialize_all();
/// let session = Session::new(&g)?;
/// session.run(&init)?;
/// let before = session.run(&loss)?.item::<f32>()?;
/// session.run(&train)?;
/// assert!(session.run(&loss)?.item::<f32>()? < before);
/// # Ok::<(), ferroflow::Error>(())
/// ```
#[derive(Clone)]
pub struct Ftrl {
    rate: Rate,
    rate_power: Rate,
    initial_accumulator_value: f64,
    l1: Rate,
    l2: Rate,
    l2_shrinkage: Option<Rate>,
    slots: SlotTable,
}

impl Ftrl {
    /// With this learning rate.
    pub fn new(rate: impl Into<Rate>) -> Ftrl {
        Ftrl {
            rate: rate.into(),
            rate_power: (-0.5).into(),
            initial_accumulator_value: 0.1,
            l1: 0.0.into(),
            l2: 0.0.into(),
            l2_shrinkage: None,
            slots: SlotTable::default(),
        }
    }

    /// How the rate falls with the steps; at most 0, -0.5 unless said.
    pub fn rate_power(mut self, rate_power: impl Into<Rate>) -> Self {
        self.rate_power = rate_power.into();
        self
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

    /// An L2 that penalises the size of the weights rather than stabilises them.
    pub fn l2_shrinkage(mut self, l2_shrinkage: impl Into<Rate>) -> Self {
        self.l2_shrinkage = Some(l2_shrinkage.into());
        self
    }
}

impl Optimizer for Ftrl {
    #[track_caller]
    fn apply_gradients(&self, gradients: &[(Gradient, Variable)], step: Option<&Variable>) -> Operation {
        apply(self, gradients, step)
    }
}

impl Rule for Ftrl {
    fn name(&self) -> &'static str {
        "Ftrl"
    }
    fn parameters(&self) -> Vec<(&'static str, &Rate)> {
        let shrinkage = self.l2_shrinkage.as_ref().map(|l2| ("l2_shrinkage_regularization_strength", l2));
        let first = [
            ("learning_rate", &self.rate),
            ("l1_regularization_strength", &self.l1),
            ("adjusted_l2_regularization_strength", &self.l2),
        ];
        first.into_iter().chain(shrinkage).chain([("learning_rate_power", &self.rate_power)]).collect()
    }
    fn slots(&self) -> Vec<(&'static str, f64)> {
        vec![("accum", self.initial_accumulator_value), ("linear", 0.0)]
    }
    fn table(&self) -> &SlotTable {
        &self.slots
    }
    fn op(&self) -> &'static str {
        if self.l2_shrinkage.is_some() { "FtrlV2" } else { "Ftrl" }
    }
    fn arguments(&self) -> Vec<Argument> {
        use Argument::{Gradient as G, Parameter, Slot};
        let mut arguments = vec![Slot(0), Slot(1), G];
        arguments.extend((0..self.parameters().len()).map(Parameter));
        arguments
    }
}

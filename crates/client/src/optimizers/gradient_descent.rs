//! Gradient descent: each variable minus its gradient times the learning rate.

use super::{Argument, Optimizer, Rate, Rule, SlotTable, Update, apply};
use crate::{Gradient, Operation, Variable};
use framework::NodeId;
use tensor::Result;

/// Gradient descent: `w -= rate * gradient`.
///
/// ```
/// use ferroflow::prelude::*;
///
/// let g = Graph::new();
/// let w = g.variable("w", 10.0f32);
/// let train = GradientDescent::new(0.25).minimize(&w.square());
/// let init = g.initialize_all();
/// let session = Session::new(&g)?;
/// session.run(&init)?;
/// session.run(&train)?;
/// assert_eq!(session.run(&w)?.item::<f32>()?, 5.0);
/// # Ok::<(), ferroflow::Error>(())
/// ```
#[derive(Clone)]
pub struct GradientDescent {
    rate: Rate,
    slots: SlotTable,
}

impl GradientDescent {
    /// With this learning rate.
    pub fn new(rate: impl Into<Rate>) -> GradientDescent {
        GradientDescent { rate: rate.into(), slots: SlotTable::default() }
    }
}

impl Optimizer for GradientDescent {
    #[track_caller]
    fn apply_gradients(&self, gradients: &[(Gradient, Variable)], step: Option<&Variable>) -> Operation {
        apply(self, gradients, step)
    }
}

impl Rule for GradientDescent {
    fn name(&self) -> &'static str {
        "GradientDescent"
    }
    fn parameters(&self) -> Vec<(&'static str, &Rate)> {
        vec![("learning_rate", &self.rate)]
    }
    fn table(&self) -> &SlotTable {
        &self.slots
    }
    fn op(&self) -> &'static str {
        "GradientDescent"
    }
    fn arguments(&self) -> Vec<Argument> {
        vec![Argument::Parameter(0), Argument::Gradient]
    }

    /// Rows named twice are subtracted twice, which is their sum: nothing need be summed before.
    fn sparse(&self, update: &Update<'_>, [values, indices]: [framework::Output; 2]) -> Result<NodeId> {
        let (s, place, rate) = (update.s, update.variable.place_id()?, update.cast(update.parameters[0])?);
        if update.variable.is_resource() {
            let delta = s.op("Mul", &[s.op("Neg", &[values])?, rate])?;
            let node = s.node("ResourceScatterAdd").inputs(&[place, indices, delta]);
            return node.attr("dtype", update.variable.dtype()).build();
        }
        let delta = s.node("Mul").name("mul").inputs(&[values, rate]).output()?;
        s.node("ScatterSub").inputs(&[place, indices, delta]).build()
    }
}

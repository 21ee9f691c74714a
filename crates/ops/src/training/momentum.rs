//! Momentum, plain and Nesterov's.

use super::apply::{FieldOptimizer, Optimizer, Work, field_ops};
use framework::{Field, Float, KernelBuild, Op};
use linalg::optim;
use tensor::Result;

pub fn ops() -> Vec<Op> {
    field_ops::<Momentum, 2, 2>()
}

struct Momentum {
    nesterov: bool,
}

impl Optimizer<2, 2> for Momentum {
    const NAME: &'static str = "Momentum";
    const SLOTS: &'static [&'static str] = &["accum"];
    const INPUTS: &'static [&'static str] = &["lr", "grad", "momentum"];
    const ATTRS: &'static [&'static str] = &["use_nesterov: bool = false"];

    fn new(b: &KernelBuild<'_>) -> Result<Momentum> {
        Ok(Momentum { nesterov: b.attr("use_nesterov")? })
    }

    fn step<T: Float>(&self, [lr, momentum]: [T; 2], work: Work<'_, T, 2>) {
        let step = optim::Momentum { lr, momentum, nesterov: self.nesterov };
        work.each(|[var, accum], grad| step.apply_row(var, accum, grad));
    }
}

impl FieldOptimizer<2, 2> for Momentum {
    fn step_by_element<T: Field>(&self, [lr, momentum]: [T; 2], work: Work<'_, T, 2>) {
        work.each_element(|[var, accum], grad| {
            *accum = accum.mul(momentum).add(grad);
            let direction = if self.nesterov { grad.mul(lr).add(accum.mul(momentum).mul(lr)) } else { accum.mul(lr) };
            *var = var.sub(direction);
        });
    }
}

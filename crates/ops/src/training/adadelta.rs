//! Adadelta: steps in the units of past steps.

use super::apply::{FieldOptimizer, Optimizer, Work, field_ops};
use framework::{Field, Float, KernelBuild, Op};
use linalg::optim;
use tensor::Result;

pub fn ops() -> Vec<Op> {
    field_ops::<Adadelta, 3, 3>()
}

struct Adadelta;

impl Optimizer<3, 3> for Adadelta {
    const NAME: &'static str = "Adadelta";
    const SLOTS: &'static [&'static str] = &["accum", "accum_update"];
    const INPUTS: &'static [&'static str] = &["lr", "rho", "epsilon", "grad"];

    fn new(_: &KernelBuild<'_>) -> Result<Adadelta> {
        Ok(Adadelta)
    }

    fn step<T: Float>(&self, [lr, rho, epsilon]: [T; 3], work: Work<'_, T, 3>) {
        let step = optim::Adadelta { lr, rho, epsilon };
        work.each(|[var, accum, accum_update], grad| step.apply_row(var, accum, accum_update, grad));
    }
}

impl FieldOptimizer<3, 3> for Adadelta {
    fn step_by_element<T: Field>(&self, [lr, rho, epsilon]: [T; 3], work: Work<'_, T, 3>) {
        let rest = T::ONE.sub(rho);
        work.each_element(|[var, accum, accum_update], grad| {
            *accum = accum.mul(rho).add(grad.square().mul(rest));
            let update = accum_update.add(epsilon).sqrt().mul(accum.add(epsilon).rsqrt()).mul(grad);
            *var = var.sub(update.mul(lr));
            *accum_update = accum_update.mul(rho).add(update.square().mul(rest));
        });
    }
}

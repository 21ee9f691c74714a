//! Adam: steps scaled by the decaying moments of the gradient. Its sparse form is made of other ops.

use super::apply::{FieldOptimizer, Optimizer, Work, field_ops};
use framework::{Field, Float, KernelBuild, Op};
use linalg::optim;
use tensor::Result;

pub fn ops() -> Vec<Op> {
    let mut ops = field_ops::<Adam, 3, 6>();
    ops.retain(|op| !op.name.contains("Sparse"));
    ops
}

struct Adam {
    nesterov: bool,
}

impl Optimizer<3, 6> for Adam {
    const NAME: &'static str = "Adam";
    const SLOTS: &'static [&'static str] = &["m", "v"];
    const INPUTS: &'static [&'static str] = &["beta1_power", "beta2_power", "lr", "beta1", "beta2", "epsilon", "grad"];
    const ATTRS: &'static [&'static str] = &["use_nesterov: bool = false"];

    fn new(b: &KernelBuild<'_>) -> Result<Adam> {
        Ok(Adam { nesterov: b.attr("use_nesterov")? })
    }

    fn step<T: Float>(&self, [beta1_power, beta2_power, lr, beta1, beta2, epsilon]: [T; 6], work: Work<'_, T, 3>) {
        let step = optim::Adam { lr, beta1, beta2, beta1_power, beta2_power, epsilon, nesterov: self.nesterov };
        work.each(|[var, m, v], grad| step.apply_row(var, m, v, grad));
    }
}

impl FieldOptimizer<3, 6> for Adam {
    fn step_by_element<T: Field>(
        &self,
        [beta1_power, beta2_power, lr, beta1, beta2, epsilon]: [T; 6],
        work: Work<'_, T, 3>,
    ) {
        let rate = lr.mul(T::ONE.sub(beta2_power).sqrt()).div(T::ONE.sub(beta1_power));
        let (rest1, rest2) = (T::ONE.sub(beta1), T::ONE.sub(beta2));
        work.each_element(|[var, m, v], grad| {
            *m = m.add(grad.sub(*m).mul(rest1));
            *v = v.add(grad.square().sub(*v).mul(rest2));
            let direction = if self.nesterov { grad.mul(rest1).add(beta1.mul(*m)) } else { *m };
            *var = var.sub(direction.mul(rate).div(v.sqrt().add(epsilon)));
        });
    }
}

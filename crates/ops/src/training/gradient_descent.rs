//! Gradient descent: the plainest step. Its sparse form is `ScatterSub`.

use super::apply::{FieldOptimizer, Optimizer, Work, field_ops};
use framework::{Field, Float, KernelBuild, Op};
use linalg::optim;
use tensor::Result;

pub fn ops() -> Vec<Op> {
    let mut ops = field_ops::<GradientDescent, 1, 1>();
    ops.retain(|op| !op.name.contains("Sparse"));
    ops
}

struct GradientDescent;

impl Optimizer<1, 1> for GradientDescent {
    const NAME: &'static str = "GradientDescent";
    const SLOTS: &'static [&'static str] = &[];
    const INPUTS: &'static [&'static str] = &["alpha", "delta"];

    fn new(_: &KernelBuild<'_>) -> Result<GradientDescent> {
        Ok(GradientDescent)
    }

    fn step<T: Float>(&self, [lr]: [T; 1], work: Work<'_, T, 1>) {
        let step = optim::GradientDescent { lr };
        work.each(|[var], grad| step.apply_row(var, grad));
    }
}

impl FieldOptimizer<1, 1> for GradientDescent {
    fn step_by_element<T: Field>(&self, [lr]: [T; 1], work: Work<'_, T, 1>) {
        work.each_element(|[var], grad| *var = var.sub(grad.mul(lr)));
    }
}

//! Gradient descent, and then the shrinkage that penalties on magnitudes and squares ask for.

use super::apply::{Optimizer, Work, ops as ops_of};
use framework::{Float, KernelBuild, Op};
use linalg::optim;
use tensor::Result;

pub fn ops() -> Vec<Op> {
    ops_of::<ProximalGradientDescent, 1, 3>()
}

struct ProximalGradientDescent;

impl Optimizer<1, 3> for ProximalGradientDescent {
    const NAME: &'static str = "ProximalGradientDescent";
    const SLOTS: &'static [&'static str] = &[];
    const INPUTS: &'static [&'static str] = &["alpha", "l1", "l2", "delta"];

    fn new(_: &KernelBuild<'_>) -> Result<ProximalGradientDescent> {
        Ok(ProximalGradientDescent)
    }

    fn step<T: Float>(&self, [lr, l1, l2]: [T; 3], work: Work<'_, T, 1>) {
        let step = optim::ProximalGradientDescent { lr, l1, l2 };
        work.each(|[var], grad| step.apply_row(var, grad));
    }
}

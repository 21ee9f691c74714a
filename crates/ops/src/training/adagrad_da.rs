//! Adagrad in its dual-averaging form: the variable follows from the sums of all gradients and of their squares.

use super::apply::{Optimizer, Work, ops as ops_of};
use framework::{Float, KernelBuild, Op};
use linalg::optim;
use tensor::Result;

pub fn ops() -> Vec<Op> {
    ops_of::<AdagradDa, 3, 4>()
}

struct AdagradDa;

impl Optimizer<3, 4> for AdagradDa {
    const NAME: &'static str = "AdagradDA";
    const SLOTS: &'static [&'static str] = &["gradient_accumulator", "gradient_squared_accumulator"];
    const INPUTS: &'static [&'static str] = &["grad", "lr", "l1", "l2", "global_step"];

    fn new(_: &KernelBuild<'_>) -> Result<AdagradDa> {
        Ok(AdagradDa)
    }

    fn step<T: Float>(&self, [lr, l1, l2, step]: [T; 4], work: Work<'_, T, 3>) {
        let step = optim::AdagradDa { lr, l1, l2, step };
        work.each(|[var, sum, squares], grad| step.apply_row(var, sum, squares, grad));
    }
}

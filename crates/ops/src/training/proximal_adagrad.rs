//! Adagrad, and then the shrinkage that penalties on magnitudes and squares ask for.

use super::apply::{Optimizer, Work, ops as ops_of};
use framework::{Float, KernelBuild, Op};
use linalg::optim;
use tensor::{Result, invalid};

pub fn ops() -> Vec<Op> {
    ops_of::<ProximalAdagrad, 2, 3>()
}

struct ProximalAdagrad;

impl Optimizer<2, 3> for ProximalAdagrad {
    const NAME: &'static str = "ProximalAdagrad";
    const SLOTS: &'static [&'static str] = &["accum"];
    const INPUTS: &'static [&'static str] = &["lr", "l1", "l2", "grad"];

    fn new(_: &KernelBuild<'_>) -> Result<ProximalAdagrad> {
        Ok(ProximalAdagrad)
    }

    fn check(&self, [lr, l1, l2]: [f64; 3], _: bool) -> Result<()> {
        if lr <= 0.0 || lr.is_nan() {
            return Err(invalid!("lr is not a positive scalar: {lr}"));
        }
        for (name, value) in [("l1", l1), ("l2", l2)] {
            if value < 0.0 || value.is_nan() {
                return Err(invalid!("{name} regularization strength is not a non-negative scalar: {value}"));
            }
        }
        Ok(())
    }

    fn step<T: Float>(&self, [lr, l1, l2]: [T; 3], work: Work<'_, T, 2>) {
        let step = optim::ProximalAdagrad { lr, l1, l2 };
        work.each(|[var, accum], grad| step.apply_row(var, accum, grad));
    }
}

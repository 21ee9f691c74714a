//! RMSProp: steps divided by the root of a decaying mean of squared gradients; centered, by that of their variance.

use super::apply::{FieldOptimizer, Optimizer, Work, ordered_field_ops};
use framework::{Field, Float, KernelBuild, Op};
use linalg::optim;
use tensor::Result;

pub fn ops() -> Vec<Op> {
    // The sparse variance, a difference of near equals, shows the order of rounding after some steps.
    [ordered_field_ops::<RmsProp, 3, 4>(), ordered_field_ops::<CenteredRmsProp, 4, 4>()].concat()
}

/// The decaying mean. TensorFlow's dense and sparse kernels round it differently.
fn decayed<T: Field>(mean: T, rho: T, value: T, is_sparse: bool) -> T {
    let rest = T::ONE.sub(rho);
    if is_sparse { mean.mul(rho).add(value.mul(rest)) } else { mean.add(value.sub(mean).mul(rest)) }
}

/// The step against the gradient, likewise.
fn scaled<T: Field>(grad: T, lr: T, square: T, is_sparse: bool) -> T {
    if is_sparse { T::ONE.div(square.sqrt()).mul(lr).mul(grad) } else { grad.mul(lr).div(square.sqrt()) }
}

const INPUTS: &[&str] = &["lr", "rho", "momentum", "epsilon", "grad"];

struct RmsProp;

impl Optimizer<3, 4> for RmsProp {
    const NAME: &'static str = "RMSProp";
    const SLOTS: &'static [&'static str] = &["ms", "mom"];
    const INPUTS: &'static [&'static str] = INPUTS;

    fn new(_: &KernelBuild<'_>) -> Result<RmsProp> {
        Ok(RmsProp)
    }

    fn step<T: Float>(&self, [lr, rho, momentum, epsilon]: [T; 4], work: Work<'_, T, 3>) {
        let step = optim::RmsProp { lr, rho, momentum, epsilon };
        work.each(|[var, ms, mom], grad| step.apply_row(var, ms, mom, grad));
    }
}

impl FieldOptimizer<3, 4> for RmsProp {
    fn step_by_element<T: Field>(&self, [lr, rho, momentum, epsilon]: [T; 4], work: Work<'_, T, 3>) {
        let is_sparse = work.is_sparse();
        work.each_element(|[var, ms, mom], grad| {
            *ms = decayed(*ms, rho, grad.square(), is_sparse);
            *mom = mom.mul(momentum).add(scaled(grad, lr, ms.add(epsilon), is_sparse));
            *var = var.sub(*mom);
        });
    }
}

struct CenteredRmsProp;

impl Optimizer<4, 4> for CenteredRmsProp {
    const NAME: &'static str = "CenteredRMSProp";
    const SLOTS: &'static [&'static str] = &["mg", "ms", "mom"];
    const INPUTS: &'static [&'static str] = INPUTS;

    fn new(_: &KernelBuild<'_>) -> Result<CenteredRmsProp> {
        Ok(CenteredRmsProp)
    }

    fn step<T: Float>(&self, [lr, rho, momentum, epsilon]: [T; 4], work: Work<'_, T, 4>) {
        let step = optim::CenteredRmsProp { lr, rho, momentum, epsilon };
        work.each(|[var, mg, ms, mom], grad| step.apply_row(var, mg, ms, mom, grad));
    }
}

impl FieldOptimizer<4, 4> for CenteredRmsProp {
    fn step_by_element<T: Field>(&self, [lr, rho, momentum, epsilon]: [T; 4], work: Work<'_, T, 4>) {
        let is_sparse = work.is_sparse();
        work.each_element(|[var, mg, ms, mom], grad| {
            *ms = decayed(*ms, rho, grad.square(), is_sparse);
            *mg = decayed(*mg, rho, grad, is_sparse);
            let variance = ms.sub(mg.square()).add(epsilon);
            *mom = mom.mul(momentum).add(scaled(grad, lr, variance, is_sparse));
            *var = var.sub(*mom);
        });
    }
}

//! RMSProp: steps divided by the root of a decaying mean of squared gradients; centered, by that of their variance.

use super::apply::{ComplexOptimizer, Optimizer, Work, complex_ops};
use framework::{Field, Float, KernelBuild, Op};
use linalg::optim;
use tensor::Result;

pub fn ops() -> Vec<Op> {
    [complex_ops::<RmsProp, 3, 4>(), complex_ops::<CenteredRmsProp, 4, 4>()].concat()
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

impl ComplexOptimizer<3, 4> for RmsProp {
    fn complex_step<T: Field>(&self, [lr, rho, momentum, epsilon]: [T; 4], work: Work<'_, T, 3>) {
        let rest = T::ONE.sub(rho);
        work.each_element(|[var, ms, mom], grad| {
            *ms = ms.add(grad.square().sub(*ms).mul(rest));
            *mom = mom.mul(momentum).add(grad.mul(lr).mul(ms.add(epsilon).rsqrt()));
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

impl ComplexOptimizer<4, 4> for CenteredRmsProp {
    fn complex_step<T: Field>(&self, [lr, rho, momentum, epsilon]: [T; 4], work: Work<'_, T, 4>) {
        let rest = T::ONE.sub(rho);
        work.each_element(|[var, mg, ms, mom], grad| {
            *ms = ms.add(grad.square().sub(*ms).mul(rest));
            *mg = mg.add(grad.sub(*mg).mul(rest));
            let variance = ms.sub(mg.square()).add(epsilon);
            *mom = mom.mul(momentum).add(grad.mul(lr).mul(variance.rsqrt()));
            *var = var.sub(*mom);
        });
    }
}

//! Ftrl: follow the regularised leader; the second version has one more penalty.

use super::apply::{Optimizer, Work, ops as ops_of};
use framework::{Float, KernelBuild, Op};
use linalg::optim;
use tensor::{Result, invalid};

pub fn ops() -> Vec<Op> {
    [ops_of::<Ftrl, 3, 4>(), ops_of::<FtrlV2, 3, 5>()].concat()
}

struct Ftrl {
    multiply_linear_by_lr: bool,
}

impl Ftrl {
    /// The dense ops take any settings.
    fn check_sparse(&self, [lr, l1, l2, lr_power]: [f64; 4]) -> Result<()> {
        if !(lr > 0.0 || (self.multiply_linear_by_lr && lr >= 0.0)) {
            return Err(invalid!("lr is not a positive scalar (or zero if multiply_linear_by_lr is set): {lr}"));
        }
        for (name, value) in [("l1", l1), ("l2", l2)] {
            if value < 0.0 || value.is_nan() {
                return Err(invalid!("{name} regularization strength is not a non-negative scalar: {value}"));
            }
        }
        if lr_power > 0.0 || lr_power.is_nan() {
            return Err(invalid!("lr_power is not a non-positive scalar: {lr_power}"));
        }
        Ok(())
    }
}

impl Optimizer<3, 4> for Ftrl {
    const NAME: &'static str = "Ftrl";
    const SLOTS: &'static [&'static str] = &["accum", "linear"];
    const INPUTS: &'static [&'static str] = &["grad", "lr", "l1", "l2", "lr_power"];
    const ATTRS: &'static [&'static str] = &["multiply_linear_by_lr: bool = false"];

    fn new(b: &KernelBuild<'_>) -> Result<Ftrl> {
        Ok(Ftrl { multiply_linear_by_lr: b.attr("multiply_linear_by_lr")? })
    }

    fn check(&self, settings: [f64; 4], is_sparse: bool) -> Result<()> {
        if is_sparse { self.check_sparse(settings) } else { Ok(()) }
    }

    fn step<T: Float>(&self, [lr, l1, l2, lr_power]: [T; 4], work: Work<'_, T, 3>) {
        let multiply_linear_by_lr = self.multiply_linear_by_lr;
        let step = optim::Ftrl { lr, l1, l2, l2_shrinkage: T::ZERO, lr_power, multiply_linear_by_lr };
        work.each(|[var, accum, linear], grad| step.apply_row(var, accum, linear, grad));
    }
}

struct FtrlV2(Ftrl);

impl Optimizer<3, 5> for FtrlV2 {
    const NAME: &'static str = "FtrlV2";
    const SLOTS: &'static [&'static str] = &["accum", "linear"];
    const INPUTS: &'static [&'static str] = &["grad", "lr", "l1", "l2", "l2_shrinkage", "lr_power"];
    const ATTRS: &'static [&'static str] = &["multiply_linear_by_lr: bool = false"];

    fn new(b: &KernelBuild<'_>) -> Result<FtrlV2> {
        Ftrl::new(b).map(FtrlV2)
    }

    fn check(&self, [lr, l1, l2, l2_shrinkage, lr_power]: [f64; 5], is_sparse: bool) -> Result<()> {
        if !is_sparse {
            return Ok(());
        }
        self.0.check_sparse([lr, l1, l2, lr_power])?;
        if l2_shrinkage < 0.0 || l2_shrinkage.is_nan() {
            return Err(invalid!("l2 shrinkage regularization strength is not a non-negative scalar: {l2_shrinkage}"));
        }
        Ok(())
    }

    fn step<T: Float>(&self, [lr, l1, l2, l2_shrinkage, lr_power]: [T; 5], work: Work<'_, T, 3>) {
        let multiply_linear_by_lr = self.0.multiply_linear_by_lr;
        let step = optim::Ftrl { lr, l1, l2, l2_shrinkage, lr_power, multiply_linear_by_lr };
        work.each(|[var, accum, linear], grad| step.apply_row(var, accum, linear, grad));
    }
}

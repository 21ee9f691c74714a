//! Optimizers: one step on a variable and its slots, dense or row by row, on reference and resource variables.
//!
//! `apply.rs` makes the four ops of an optimizer; each of the other files is one optimizer.

mod adadelta;
mod adagrad;
mod adagrad_da;
mod adam;
mod apply;
mod ftrl;
mod gradient_descent;
mod momentum;
mod proximal_adagrad;
mod proximal_gradient_descent;
mod rms_prop;
#[cfg(test)]
mod ten_steps;

use framework::Op;

/// All ops of the family.
pub fn ops() -> Vec<Op> {
    [
        gradient_descent::ops(),
        momentum::ops(),
        adagrad::ops(),
        adagrad_da::ops(),
        adam::ops(),
        rms_prop::ops(),
        ftrl::ops(),
        adadelta::ops(),
        proximal_gradient_descent::ops(),
        proximal_adagrad::ops(),
    ]
    .concat()
}

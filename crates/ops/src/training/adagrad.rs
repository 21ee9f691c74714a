//! Adagrad: steps divided by the root of the sum of squared gradients; the second version adds an epsilon to the root.

use super::apply::{FieldOptimizer, Optimizer, Work, field_ops};
use framework::{Field, Float, KernelBuild, Op};
use linalg::optim;
use tensor::Result;

pub fn ops() -> Vec<Op> {
    [field_ops::<Adagrad, 2, 1>(), field_ops::<AdagradV2, 2, 2>()].concat()
}

struct Adagrad {
    update_slots: bool,
}

impl Adagrad {
    fn complex<T: Field>(&self, lr: T, epsilon: T, work: Work<'_, T, 2>) {
        work.each_element(|[var, accum], grad| {
            if self.update_slots {
                *accum = accum.add(grad.square());
            }
            *var = var.sub(grad.mul(lr).div(accum.sqrt().add(epsilon)));
        });
    }
}

impl Optimizer<2, 1> for Adagrad {
    const NAME: &'static str = "Adagrad";
    const SLOTS: &'static [&'static str] = &["accum"];
    const INPUTS: &'static [&'static str] = &["lr", "grad"];
    const ATTRS: &'static [&'static str] = &["update_slots: bool = true"];

    fn new(b: &KernelBuild<'_>) -> Result<Adagrad> {
        Ok(Adagrad { update_slots: b.attr("update_slots")? })
    }

    fn step<T: Float>(&self, [lr]: [T; 1], work: Work<'_, T, 2>) {
        let step = optim::Adagrad { lr, epsilon: T::ZERO, update_slots: self.update_slots };
        work.each(|[var, accum], grad| step.apply_row(var, accum, grad));
    }
}

impl FieldOptimizer<2, 1> for Adagrad {
    fn step_by_element<T: Field>(&self, [lr]: [T; 1], work: Work<'_, T, 2>) {
        self.complex(lr, T::ZERO, work);
    }
}

struct AdagradV2(Adagrad);

impl Optimizer<2, 2> for AdagradV2 {
    const NAME: &'static str = "AdagradV2";
    const SLOTS: &'static [&'static str] = &["accum"];
    const INPUTS: &'static [&'static str] = &["lr", "epsilon", "grad"];
    const ATTRS: &'static [&'static str] = &["update_slots: bool = true"];

    fn new(b: &KernelBuild<'_>) -> Result<AdagradV2> {
        Adagrad::new(b).map(AdagradV2)
    }

    fn step<T: Float>(&self, [lr, epsilon]: [T; 2], work: Work<'_, T, 2>) {
        let step = optim::Adagrad { lr, epsilon, update_slots: self.0.update_slots };
        work.each(|[var, accum], grad| step.apply_row(var, accum, grad));
    }
}

impl FieldOptimizer<2, 2> for AdagradV2 {
    fn step_by_element<T: Field>(&self, [lr, epsilon]: [T; 2], work: Work<'_, T, 2>) {
        self.0.complex(lr, epsilon, work);
    }
}

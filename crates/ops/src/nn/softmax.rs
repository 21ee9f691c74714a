//! `Softmax` and `LogSoftmax`, along the last dimension.

use framework::typed::{FloatKernel, floats};
use framework::{Float, Grad, GradValue, InferenceContext, KernelContext, Op, Output, Scope};
use tensor::{PartialShape, Result, invalid};

/// All ops of this file.
pub fn ops() -> Vec<Op> {
    let op = |name: &str, output: &str| {
        Op::new(name).input("logits: T").output(output).attr("T: {half, bfloat16, float, double}").shape(shape)
    };
    vec![
        op("Softmax", "softmax: T").gradient(softmax_gradient).kernel(floats(|_| Ok(Softmax))),
        op("LogSoftmax", "logsoftmax: T").gradient(log_softmax_gradient).kernel(floats(|_| Ok(LogSoftmax))),
    ]
}

/// `e^x / Σ e^x` along the last dimension.
pub fn softmax(s: &Scope, logits: Output) -> Result<Output> {
    s.op("Softmax", &[logits])
}

/// `x - log Σ e^x` along the last dimension.
pub fn log_softmax(s: &Scope, logits: Output) -> Result<Output> {
    s.op("LogSoftmax", &[logits])
}

fn sum_last(s: &Scope, x: Output) -> Result<Output> {
    s.node("Sum").inputs(&[x, s.constant(-1i32)?]).attr("keep_dims", true).output()
}

/// (dy - Σ dy·y)·y.
fn softmax_gradient(s: &Scope, g: &Grad<'_>) -> Result<Vec<Option<GradValue>>> {
    let (dy, y) = (g.dy[0], g.outputs[0]);
    let sum = sum_last(s, s.op("Mul", &[dy, y])?)?;
    Ok(vec![Some(s.op("Mul", &[s.op("Sub", &[dy, sum])?, y])?.into())])
}

/// dy - Σ dy · e^y.
fn log_softmax_gradient(s: &Scope, g: &Grad<'_>) -> Result<Vec<Option<GradValue>>> {
    let (dy, y) = (g.dy[0], g.outputs[0]);
    let part = s.op("Mul", &[sum_last(s, dy)?, s.op("Exp", &[y])?])?;
    Ok(vec![Some(s.op("Sub", &[dy, part])?.into())])
}

fn shape(c: &InferenceContext<'_>) -> Result<Vec<PartialShape>> {
    c.input(0).with_rank_at_least(1)?;
    Ok(vec![c.input(0).clone()])
}

/// The size of the last dimension.
fn classes(ctx: &KernelContext<'_>) -> Result<usize> {
    let shape = ctx.input(0).shape();
    shape.last_dim().map_err(|_| invalid!("logits must have >= 1 dimension, got {shape}"))
}

struct Softmax;

impl FloatKernel for Softmax {
    fn compute<T: Float>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let classes = classes(ctx)?;
        let logits = ctx.input(0);
        let mut y = ctx.allocate::<T>(logits.shape().clone())?;
        linalg::softmax::softmax(ctx.pool(), classes, logits.as_slice::<T>()?, &mut y);
        ctx.set_output(0, y)
    }
}

struct LogSoftmax;

impl FloatKernel for LogSoftmax {
    fn compute<T: Float>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let classes = classes(ctx)?;
        let logits = ctx.input(0);
        let mut y = ctx.allocate::<T>(logits.shape().clone())?;
        linalg::softmax::log_softmax(ctx.pool(), classes, logits.as_slice::<T>()?, &mut y);
        ctx.set_output(0, y)
    }
}

#[cfg(test)]
mod tests {
    use crate::nn::testing::{check, f32s, refuses};

    #[test]
    fn rows_become_probabilities() {
        let x = f32s([2, 3], &[1.0, 2.0, 3.0, 1000.0, 0.0, 1000.0]);
        let y = f32s([2, 3], &[0.09003057, 0.24472848, 0.66524094, 0.5, 0.0, 0.5]);
        check("Softmax", &[], &[x], &[y]);
        let x = f32s([3], &[1.0, 2.0, 3.0]);
        check("LogSoftmax", &[], &[x], &[f32s([3], &[-2.407606, -1.4076059, -0.40760595])]);
        check("Softmax", &[], &[f32s([2, 0], &[])], &[f32s([2, 0], &[])]);
    }

    #[test]
    fn a_scalar_has_no_classes() {
        refuses("Softmax", &[], &[f32s([], &[1.0])], "");
    }
}

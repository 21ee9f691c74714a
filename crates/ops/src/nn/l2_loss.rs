//! `L2Loss`: half the sum of squares.

use framework::typed::{FloatKernel, floats};
use framework::{Float, KernelContext, Op, Output, Scope, shapes};
use linalg::number::Number as _;
use linalg::reduce::{ReducePlan, SumOfSquares, reduce};
use tensor::{Result, Tensor};

/// All ops of this file.
pub fn ops() -> Vec<Op> {
    vec![
        Op::new("L2Loss")
            .input("t: T")
            .output("output: T")
            .attr("T: {half, bfloat16, float, double}")
            .shape(shapes::scalar)
            .gradient(|s, g| Ok(vec![Some(s.op("Mul", &[g.inputs[0], g.dy[0]])?.into())]))
            .kernel(floats(|_| Ok(L2Loss))),
    ]
}

/// Half the sum of the squares of all elements.
pub fn l2_loss(s: &Scope, t: Output) -> Result<Output> {
    s.op("L2Loss", &[t])
}

struct L2Loss;

impl FloatKernel for L2Loss {
    fn compute<T: Float>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let values = ctx.input(0).as_slice::<T>()?;
        let mut sum = [T::ZERO];
        reduce::<SumOfSquares<T>>(ctx.pool(), &ReducePlan::new(&[values.len()], &[true]), values, &mut sum);
        let half = sum[0].to_acc().mul(T::Acc::from_f64(0.5));
        ctx.set_output(0, Tensor::scalar(T::from_acc(half)))
    }
}

#[cfg(test)]
mod tests {
    use crate::nn::testing::{check, f32s};

    #[test]
    fn it_is_half_the_sum_of_squares() {
        check("L2Loss", &[], &[f32s([2, 2], &[1.0, -2.0, 3.0, 4.0])], &[f32s([], &[15.0])]);
        check("L2Loss", &[], &[f32s([0], &[])], &[f32s([], &[0.0])]);
    }
}

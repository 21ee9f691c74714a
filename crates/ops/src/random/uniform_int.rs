//! `RandomUniformInt`: whole numbers, all equally likely.

use super::{Stream, described_shape};
use framework::kernel::kernel;
use framework::{InferenceContext, Kernel, KernelBuild, KernelContext, Op, Output, Scope};
use linalg::random::{fill_uniform_i32, fill_uniform_i64};
use tensor::{DType, Element, PartialShape, Result, invalid};

/// All ops of this file.
pub fn ops() -> Vec<Op> {
    vec![
        Op::new("RandomUniformInt")
            .input("shape: T")
            .input("minval: Tout")
            .input("maxval: Tout")
            .output("output: Tout")
            .attr("seed: int = 0")
            .attr("seed2: int = 0")
            .attr("Tout: indextype")
            .attr("T: indextype")
            .stateful()
            .shape(shape)
            .kernel(kernel(RandomUniformInt::new)),
    ]
}

/// Whole numbers from `low` up to, not including, `high`.
pub fn random_uniform_int(s: &Scope, shape: Output, low: Output, high: Output, seed: Option<i64>) -> Result<Output> {
    let (seed, seed2) = s.seeds(seed);
    s.node("RandomUniformInt").inputs(&[shape, low, high]).attr("seed", seed).attr("seed2", seed2).output()
}

fn shape(c: &InferenceContext<'_>) -> Result<Vec<PartialShape>> {
    c.require_scalar(1)?;
    c.require_scalar(2)?;
    Ok(vec![c.shape_from_input(0)?])
}

struct RandomUniformInt {
    stream: Stream,
}

impl RandomUniformInt {
    fn new(b: &KernelBuild<'_>) -> Result<RandomUniformInt> {
        Ok(RandomUniformInt { stream: Stream::new(b)? })
    }
}

impl Kernel for RandomUniformInt {
    fn compute(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let shape = described_shape(ctx.input(0))?;
        if ctx.input(1).dtype() == DType::I32 {
            let mut out = ctx.allocate::<i32>(shape)?;
            let (low, high) = bounds::<i32>(ctx, out.len())?;
            if low < high {
                fill_uniform_i32(ctx.pool(), self.stream.for_outputs(out.len()), low, high, &mut out);
            }
            ctx.set_output(0, out)
        } else {
            let mut out = ctx.allocate::<i64>(shape)?;
            let (low, high) = bounds::<i64>(ctx, out.len())?;
            if low < high {
                fill_uniform_i64(ctx.pool(), self.stream.for_outputs(out.len()), low, high, &mut out);
            }
            ctx.set_output(0, out)
        }
    }
}

/// The bounds; an empty range is only an error if a number is to be drawn from it.
fn bounds<T: Element + PartialOrd + std::fmt::Display>(ctx: &KernelContext<'_>, count: usize) -> Result<(T, T)> {
    for (index, name) in [(1, "minval"), (2, "maxval")] {
        if ctx.input(index).shape().rank() != 0 {
            return Err(invalid!("{name} must be 0-D, got shape {}", ctx.input(index).shape()));
        }
    }
    let (low, high) = (ctx.input(1).item::<T>()?, ctx.input(2).item::<T>()?);
    if count > 0 && low >= high {
        return Err(invalid!("Need minval < maxval, got {low} >= {high}"));
    }
    Ok((low, high))
}

#[cfg(test)]
mod tests {
    use crate::nn::testing::{check, refuses};
    use framework::Attr;
    use tensor::Tensor;

    #[test]
    fn seeds_give_tensorflows_numbers() {
        // tf.set_random_seed(42); tf.random_uniform([6], 0, 100, tf.int32, seed=4)
        let seeds = [("seed", Attr::Int(42)), ("seed2", Attr::Int(4))];
        let inputs = [Tensor::from_slice([1], &[6i32]).unwrap(), Tensor::scalar(0i32), Tensor::scalar(100i32)];
        check("RandomUniformInt", &seeds, &inputs, &[Tensor::from_slice([6], &[93i32, 63, 23, 93, 62, 31]).unwrap()]);
    }

    #[test]
    fn an_empty_range_is_refused() {
        let inputs = [Tensor::from_slice([1], &[6i32]).unwrap(), Tensor::scalar(5i64), Tensor::scalar(5i64)];
        refuses("RandomUniformInt", &[], &inputs, "Need minval < maxval, got 5 >= 5");
    }
}

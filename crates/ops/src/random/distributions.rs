//! `RandomUniform`, `RandomStandardNormal`, `TruncatedNormal`: a tensor of floats from a distribution.

use super::{Stream, described_shape};
use framework::typed::no_kernel;
use framework::{BuiltKernel, Kernel, KernelBuild, KernelContext, Op, Output, Scope};
use linalg::parallel::Pool;
use linalg::random::{Philox, RandomFloat, fill_normal, fill_truncated_normal, fill_uniform};
use std::sync::Arc;
use tensor::{DType, Element, Result, bf16, f16};

/// All ops of this file.
pub fn ops() -> Vec<Op> {
    vec![
        op("RandomUniform", Distribution::Uniform),
        op("RandomStandardNormal", Distribution::Normal),
        op("TruncatedNormal", Distribution::TruncatedNormal),
    ]
}

/// Numbers from 0 up to, not including, 1.
pub fn random_uniform(s: &Scope, shape: Output, dtype: DType, seed: Option<i64>) -> Result<Output> {
    build(s, "RandomUniform", shape, dtype, seed)
}

/// Numbers of the normal distribution with mean 0 and deviation 1.
pub fn random_standard_normal(s: &Scope, shape: Output, dtype: DType, seed: Option<i64>) -> Result<Output> {
    build(s, "RandomStandardNormal", shape, dtype, seed)
}

/// Numbers of the standard normal distribution, those beyond two deviations drawn again.
pub fn truncated_normal(s: &Scope, shape: Output, dtype: DType, seed: Option<i64>) -> Result<Output> {
    build(s, "TruncatedNormal", shape, dtype, seed)
}

fn build(s: &Scope, op: &str, shape: Output, dtype: DType, seed: Option<i64>) -> Result<Output> {
    let (seed, seed2) = s.seeds(seed);
    s.node(op).input(shape).attr("dtype", dtype).attr("seed", seed).attr("seed2", seed2).output()
}

#[derive(Clone, Copy)]
pub(super) enum Distribution {
    Uniform,
    Normal,
    TruncatedNormal,
}

fn op(name: &str, distribution: Distribution) -> Op {
    Op::new(name)
        .input("shape: T")
        .output("output: dtype")
        .attr("seed: int = 0")
        .attr("seed2: int = 0")
        .attr("dtype: {half, bfloat16, float, double}")
        .attr("T: indextype")
        .stateful()
        .shape(|c| Ok(vec![c.shape_from_input(0)?]))
        .not_differentiable()
        .kernel(Arc::new(move |b| match b.dtype("dtype")? {
            DType::F16 => draw::<f16>(b, distribution),
            DType::BF16 => draw::<bf16>(b, distribution),
            DType::F32 => draw::<f32>(b, distribution),
            DType::F64 => draw::<f64>(b, distribution),
            other => Err(no_kernel(b, other)),
        }))
}

fn draw<T: Element + RandomFloat>(b: &KernelBuild<'_>, distribution: Distribution) -> Result<BuiltKernel> {
    Ok(BuiltKernel::new(Draw { stream: Stream::new(b)?, fill: fill_by::<T>(distribution) }))
}

/// What fills a slice from a stream by a distribution.
pub(super) fn fill_by<T: RandomFloat>(distribution: Distribution) -> fn(&Pool, Philox, &mut [T]) {
    match distribution {
        Distribution::Uniform => fill_uniform::<T>,
        Distribution::Normal => fill_normal::<T>,
        Distribution::TruncatedNormal => fill_truncated_normal::<T>,
    }
}

struct Draw<T> {
    stream: Stream,
    fill: fn(&Pool, Philox, &mut [T]),
}

impl<T: Element> Kernel for Draw<T> {
    fn compute(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let mut out = ctx.allocate::<T>(described_shape(ctx.input(0))?)?;
        (self.fill)(ctx.pool(), self.stream.for_outputs(out.len()), &mut out);
        ctx.set_output(0, out)
    }
}

#[cfg(test)]
mod tests {
    use crate::nn::testing::{f32s, interpreter, refuses, scope};
    use framework::{Attr, Output};
    use std::collections::HashMap;
    use tensor::{DType, PartialShape, Tensor};

    #[test]
    fn seeds_give_tensorflows_numbers_run_after_run() {
        // tf.set_random_seed(42); tf.random_uniform([6], seed=1), run twice.
        let s = scope();
        let shape =
            s.node("TestInput").attr("dtype", DType::I32).attr("shape", PartialShape::from([1])).output().unwrap();
        let y = s.node("RandomUniform").input(shape).attr("dtype", DType::F32).attr("seed", 42i64).attr("seed2", 1i64);
        let y: Output = y.output().unwrap();
        let interpreter = interpreter();
        let feeds = HashMap::from([(shape, Tensor::from_slice([1], &[6i32]).unwrap())]);
        let run = || s.with_graph(|g| interpreter.run(g, &feeds, &[y], &[])).unwrap().remove(0);
        let first = [0.15012848, 0.63992536, 0.81787777, 0.34572172, 0.99661934, 0.64152765];
        assert_eq!(run(), f32s([6], &first));
        let second = [0.011772156, 0.025296569, 0.060124755, 0.5448892, 0.3730942, 0.6073855];
        assert_eq!(run(), f32s([6], &second));
    }

    #[test]
    fn a_shape_from_outside_is_checked() {
        let dtype = [("dtype", Attr::Type(DType::F32))];
        refuses("RandomUniform", &dtype, &[Tensor::from_slice([1], &[-2i32]).unwrap()], "");
        refuses("RandomUniform", &dtype, &[Tensor::scalar(3i32)], "");
        refuses("RandomUniform", &dtype, &[Tensor::from_slice([2], &[i64::MAX, 4]).unwrap()], "");
    }
}

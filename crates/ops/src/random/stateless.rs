//! Random numbers without a state: the same seed, or key and counter, always gives the same numbers.

use super::described_shape;
use super::distributions::{Distribution, fill_by};
use framework::kernel::function;
use framework::typed::no_kernel;
use framework::{BuiltKernel, InferenceContext, Kernel, KernelBuild, KernelContext, Op};
use linalg::parallel::Pool;
use linalg::random::{Philox, RandomFloat};
use std::sync::Arc;
use tensor::{DType, Element, PartialShape, Result, Tensor, bf16, f16, invalid};

/// The ops of this file.
pub fn ops() -> Vec<Op> {
    let mut ops = vec![
        Op::new("StatelessRandomGetKeyCounter")
            .input("seed: Tseed")
            .output("key: uint64")
            .output("counter: uint64")
            .attr("Tseed: indextype = int64")
            .shape(|c| {
                seed_shape(c, 0)?;
                Ok(vec![PartialShape::from([1]), PartialShape::from([2])])
            })
            .kernel(function(key_and_counter)),
        Op::new("StatelessRandomGetAlg")
            .output("alg: int32")
            .stateful()
            .shape(framework::shapes::scalar)
            .kernel(function(|ctx| ctx.set_output(0, Tensor::scalar(PHILOX)))),
    ];
    for (name, distribution) in [
        ("StatelessRandomUniform", Distribution::Uniform),
        ("StatelessRandomNormal", Distribution::Normal),
        ("StatelessTruncatedNormal", Distribution::TruncatedNormal),
    ] {
        ops.push(
            Op::new(name)
                .input("shape: T")
                .input("seed: Tseed")
                .output("output: dtype")
                .attr("dtype: {half, bfloat16, float, double} = float")
                .attr("T: indextype = int32")
                .attr("Tseed: indextype = int64")
                .shape(|c| {
                    seed_shape(c, 1)?;
                    Ok(vec![c.shape_from_input(0)?])
                })
                .not_differentiable()
                .kernel(draw(distribution, seeded)),
        );
        ops.push(
            Op::new(format!("{name}V2"))
                .input("shape: Tshape")
                .input("key: uint64")
                .input("counter: uint64")
                .input("alg: int32")
                .output("output: dtype")
                .attr("dtype: {half, bfloat16, float, double} = float")
                .attr("Tshape: indextype = int32")
                .shape(|c| {
                    c.require_rank(1, 1)?;
                    c.require_rank(2, 1)?;
                    c.require_scalar(3)?;
                    Ok(vec![c.shape_from_input(0)?])
                })
                .not_differentiable()
                .kernel(draw(distribution, placed)),
        );
    }
    ops
}

/// What nodes call the generator used here.
const PHILOX: i32 = 1;
/// What nodes call "the best for the device", which is Philox here as on TensorFlow's CPU.
const AUTO_SELECT: i32 = 3;

fn seed_shape(c: &InferenceContext<'_>, index: usize) -> Result<()> {
    c.require_rank(index, 1)?;
    match c.input(index).dim(0) {
        Some(count) if count != 2 => Err(invalid!("seed must have shape [2], not [{count}]")),
        _ => Ok(()),
    }
}

/// The stream of the pair of seeds in an input.
pub(super) fn seeded_by(ctx: &KernelContext<'_>, index: usize) -> Result<Philox> {
    match (ctx.input(index).dims(), ctx.input(index).to_i64s()?.as_slice()) {
        ([2], &[first, second]) => Ok(Philox::stateless([first, second])),
        _ => Err(invalid!("seed must have shape [2], not {}", ctx.input(index).shape())),
    }
}

fn seeded(ctx: &KernelContext<'_>) -> Result<Philox> {
    seeded_by(ctx, 1)
}

/// The stream at the key and counter of inputs 1 and 2.
fn placed(ctx: &KernelContext<'_>) -> Result<Philox> {
    let (key, counter, algorithm) = (ctx.input(1), ctx.input(2), ctx.input(3));
    let algorithm = match algorithm.shape().is_scalar() {
        true => algorithm.item::<i32>()?,
        false => return Err(invalid!("algorithm must be of shape [], not {}", algorithm.shape())),
    };
    if algorithm != PHILOX && algorithm != AUTO_SELECT {
        return Err(invalid!("Unsupported algorithm id: {algorithm}"));
    }
    let &[key] = key.as_slice::<u64>()? else {
        return Err(invalid!("key must have shape [1], not {}", key.shape()));
    };
    let &[low, high, ..] = counter.as_slice::<u64>()? else {
        return Err(invalid!("counter must be a vector with length at least 2, not {}", counter.shape()));
    };
    let words = |x: u64| [x as u32, (x >> 32) as u32];
    let ([a, b], [c, d]) = (words(low), words(high));
    Ok(Philox::from_parts(words(key), [a, b, c, d]))
}

fn key_and_counter(ctx: &mut KernelContext<'_>) -> Result<()> {
    let ([k0, k1], [a, b, c, d]) = seeded_by(ctx, 0)?.parts();
    let join = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
    ctx.set_output(0, Tensor::from_slice([1], &[join(k0, k1)])?)?;
    ctx.set_output(1, Tensor::from_slice([2], &[join(a, b), join(c, d)])?)
}

/// Finds the stream that a node's inputs name.
type Place = fn(&KernelContext<'_>) -> Result<Philox>;

fn draw(distribution: Distribution, place: Place) -> framework::op::KernelFn {
    fn typed<T: Element + RandomFloat>(distribution: Distribution, place: Place) -> BuiltKernel {
        BuiltKernel::new(Draw { place, fill: fill_by::<T>(distribution) })
    }
    Arc::new(move |b: &KernelBuild<'_>| {
        Ok(match b.dtype("dtype")? {
            DType::F16 => typed::<f16>(distribution, place),
            DType::BF16 => typed::<bf16>(distribution, place),
            DType::F32 => typed::<f32>(distribution, place),
            DType::F64 => typed::<f64>(distribution, place),
            other => return Err(no_kernel(b, other)),
        })
    })
}

struct Draw<T> {
    place: Place,
    fill: fn(&Pool, Philox, &mut [T]),
}

impl<T: Element> Kernel for Draw<T> {
    fn compute(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let mut out = ctx.allocate::<T>(described_shape(ctx.input(0))?)?;
        (self.fill)(ctx.pool(), (self.place)(ctx)?, &mut out);
        ctx.set_output(0, out)
    }
}

//! `Multinomial` and `StatelessMultinomial`: classes drawn by the logarithms of their probabilities.

use super::Stream;
use super::stateless::seeded_by;
use framework::typed::{FloatKernel, wide_floats};
use framework::{Float, InferenceContext, KernelContext, Op};
use linalg::random::{Philox, Words};
use tensor::{DType, PartialShape, Result, Shape, invalid};

/// The ops of this file.
pub fn ops() -> Vec<Op> {
    vec![
        Op::new("Multinomial")
            .input("logits: T")
            .input("num_samples: int32")
            .output("output: output_dtype")
            .attr("seed: int = 0")
            .attr("seed2: int = 0")
            .attr("T: realnumbertype")
            .attr("output_dtype: indextype = int64")
            .stateful()
            .shape(shape)
            .not_differentiable()
            .kernel(wide_floats(|b| {
                Ok(Multinomial { source: Source::Stream(Stream::new(b)?), output: b.dtype("output_dtype")? })
            })),
        Op::new("StatelessMultinomial")
            .input("logits: T")
            .input("num_samples: int32")
            .input("seed: Tseed")
            .output("output: output_dtype")
            .attr("T: realnumbertype")
            .attr("Tseed: indextype = int64")
            .attr("output_dtype: indextype = int64")
            .shape(shape)
            .not_differentiable()
            .kernel(wide_floats(|b| Ok(Multinomial { source: Source::Seed, output: b.dtype("output_dtype")? }))),
    ]
}

fn shape(c: &InferenceContext<'_>) -> Result<Vec<PartialShape>> {
    let logits = c.require_rank(0, 2)?;
    c.require_scalar(1)?;
    let samples = match c.input_i64(1) {
        Some(count) => {
            Some(usize::try_from(count).map_err(|_| invalid!("num_samples should be nonnegative, got {count}"))?)
        }
        None => None,
    };
    Ok(vec![[logits.dim(0), samples].into()])
}

/// Where the numbers come from.
enum Source {
    /// The kernel's own stream.
    Stream(Stream),
    /// The pair of seeds in input 2.
    Seed,
}

struct Multinomial {
    source: Source,
    output: DType,
}

impl Multinomial {
    fn place(&self, ctx: &KernelContext<'_>, batch: usize, samples: usize) -> Result<Philox> {
        match &self.source {
            // Each sample uses two words, and each row's samples are counted in blocks of four.
            Source::Stream(stream) => Ok(stream.for_outputs(batch * samples.next_multiple_of(4) * 2)),
            Source::Seed => seeded_by(ctx, 2),
        }
    }
}

impl FloatKernel for Multinomial {
    fn compute<T: Float>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let (logits, count) = (ctx.input(0), ctx.input(1));
        let &[batch, classes] = logits.dims() else {
            return Err(invalid!("logits should be a matrix, got shape {}", logits.shape()));
        };
        if !count.shape().is_scalar() {
            return Err(invalid!("num_samples should be a scalar, got shape {}", count.shape()));
        }
        let count = count.item::<i32>()?;
        let samples = usize::try_from(count).map_err(|_| invalid!("num_samples should be nonnegative, got {count}"))?;
        if classes == 0 {
            return Err(invalid!("num_classes should be positive, got {classes}"));
        }
        let shape = Shape::checked([batch as i64, samples as i64])?;
        let logits = logits.as_slice::<T>()?;
        let mut drawn = ctx.allocate::<i64>(shape.clone())?;
        if !drawn.is_empty() {
            let mut words = self.place(ctx, batch, samples)?.words();
            for (row, out) in logits.chunks_exact(classes).zip(drawn.chunks_exact_mut(samples)) {
                draw_row(row, &mut words, out);
            }
        }
        if self.output == DType::I64 {
            return ctx.set_output(0, drawn);
        }
        let mut narrow = ctx.allocate::<i32>(shape)?;
        for (to, &from) in narrow.iter_mut().zip(drawn.iter()) {
            *to = from as i32; // a tensor has fewer than 2^31 classes along one dimension, or its memory would not fit
        }
        ctx.set_output(0, narrow)
    }
}

/// Draws from one distribution. A logit that is not finite is a class without probability.
fn draw_row<T: Float>(logits: &[T], words: &mut Words, out: &mut [i64]) {
    let finite = logits.iter().map(|x| x.to_f64()).filter(|x| x.is_finite());
    let largest = finite.fold(f64::MIN, f64::max);
    let mut total = 0.0;
    let sums: Vec<f64> = logits
        .iter()
        .map(|x| {
            let x = x.to_f64();
            if x.is_finite() {
                total += (x - largest).exp();
            }
            total
        })
        .collect();
    for class in out {
        let place = words.next_f64() * total;
        *class = sums.partition_point(|&sum| sum <= place) as i64;
    }
}

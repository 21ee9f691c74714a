//! `FusedBatchNormV3` and its gradient: each channel brought to mean 0 and variance 1, then scaled and moved.
//!
//! All is computed in `f32`, whatever the images are stored in.

use framework::typed::{FloatKernel, floats_by};
use framework::{
    BuiltKernel, Float, Grad, GradValue, InferenceContext, KernelBuild, KernelContext, Op, Output, Scope, gradients,
};
use linalg::broadcast::{self, BroadcastPlan};
use linalg::elementwise;
use linalg::parallel::Pool;
use linalg::reduce::{ReducePlan, Sum, SumOfSquares, reduce};
use std::sync::Arc;
use tensor::{OwnedTensor, PartialShape, Result, Shape, Tensor, invalid};

/// All ops of this file.
pub fn ops() -> Vec<Op> {
    const FORMATS: &str = "data_format: {'NHWC', 'NCHW', 'NDHWC', 'NCDHW'} = 'NHWC'";
    vec![
        Op::new("FusedBatchNormV3")
            .input("x: T")
            .input("scale: U")
            .input("offset: U")
            .input("mean: U")
            .input("variance: U")
            .output("y: T")
            .output("batch_mean: U")
            .output("batch_variance: U")
            .output("reserve_space_1: U")
            .output("reserve_space_2: U")
            .output("reserve_space_3: U")
            .attr("T: {half, bfloat16, float}")
            .attr("U: {bfloat16, float}")
            .attr("epsilon: float = 0.0001")
            .attr("exponential_avg_factor: float = 1.0")
            .attr(FORMATS)
            .attr("is_training: bool = true")
            .shape(forward_shape)
            .gradient(forward_gradient)
            .costly()
            .kernel(Arc::new(|b| typed(b, Forward::new(b)?))),
        Op::new("FusedBatchNormGradV3")
            .input("y_backprop: T")
            .input("x: T")
            .input("scale: float")
            .input("reserve_space_1: U")
            .input("reserve_space_2: U")
            .input("reserve_space_3: U")
            .output("x_backprop: T")
            .output("scale_backprop: U")
            .output("offset_backprop: U")
            .output("reserve_space_4: U")
            .output("reserve_space_5: U")
            .attr("T: {half, bfloat16, float}")
            .attr("U: {float}")
            .attr("epsilon: float = 0.0001")
            .attr(FORMATS)
            .attr("is_training: bool = true")
            .shape(backward_shape)
            .gradient(backward_gradient)
            .costly()
            .kernel(Arc::new(|b| typed(b, Backward::new(b)?))),
    ]
}

/// What batch normalisation is asked for; images in NHWC.
#[derive(Clone, Copy, Debug)]
pub struct BatchNormOptions {
    /// Added to the variance, so that nothing is divided by zero.
    pub epsilon: f32,
    /// Whether mean and variance are those of the batch; else those given.
    pub is_training: bool,
}

/// The images normalised, the mean and the variance used; `inputs` are images, scale, offset, mean and variance.
pub fn fused_batch_norm(s: &Scope, inputs: [Output; 5], options: BatchNormOptions) -> Result<[Output; 3]> {
    let node = s
        .node("FusedBatchNormV3")
        .inputs(&inputs)
        .attr("epsilon", options.epsilon)
        .attr("is_training", options.is_training)
        .build()?;
    Ok([0, 1, 2].map(|index| Output { node, index }))
}

fn forward_gradient(s: &Scope, g: &Grad<'_>) -> Result<Vec<Option<GradValue>>> {
    let format: String = g.attr(s, "data_format")?;
    let is_training: bool = g.attr(s, "is_training")?;
    let epsilon: f32 = g.attr(s, "epsilon")?;
    let backward = |format: &str, dy, x, moments: [Output; 2]| {
        s.node("FusedBatchNormGradV3")
            .inputs(&[dy, x, g.inputs[1], moments[0], moments[1], g.outputs[5]])
            .attr("epsilon", epsilon)
            .attr("data_format", format)
            .attr("is_training", is_training)
            .build()
    };
    let at = |node, index| Some(Output { node, index }.into());
    if is_training {
        let node = backward(&format, g.dy[0], g.inputs[0], [g.outputs[3], g.outputs[4]])?;
        return Ok(vec![at(node, 0), at(node, 1), at(node, 2), None, None]);
    }
    // With given moments the gradient is only computed with the channels last.
    let moments = [g.inputs[3], g.inputs[4]];
    let (channels_last, to_last, back): (&str, Vec<i32>, Vec<i32>) = match format.as_str() {
        "NCHW" => ("NHWC", vec![0, 2, 3, 1], vec![0, 3, 1, 2]),
        "NCDHW" => ("NDHWC", vec![0, 2, 3, 4, 1], vec![0, 4, 1, 2, 3]),
        _ => {
            let node = backward(&format, g.dy[0], g.inputs[0], moments)?;
            return Ok(vec![at(node, 0), at(node, 1), at(node, 2), None, None]);
        }
    };
    let to_last = s.constant(to_last)?;
    let transposed = |x| s.op("Transpose", &[x, to_last]);
    let node = backward(channels_last, transposed(g.dy[0])?, transposed(g.inputs[0])?, moments)?;
    let dx = s.op("Transpose", &[Output { node, index: 0 }, s.constant(back)?])?;
    Ok(vec![Some(dx.into()), at(node, 1), at(node, 2), None, None])
}

/// The gradient written out in plain ops, and differentiated.
fn backward_gradient(s: &Scope, g: &Grad<'_>) -> Result<Vec<Option<GradValue>>> {
    let format: String = g.attr(s, "data_format")?;
    let is_training: bool = g.attr(s, "is_training")?;
    let epsilon: f32 = g.attr(s, "epsilon")?;
    let dtype = s.dtype(g.inputs[1])?;
    let float = tensor::DType::F32;
    let cast = |x: Output, to| if dtype == float { Ok(x) } else { s.node("Cast").input(x).attr("DstT", to).output() };

    // Copies, so that only what is written here is differentiated, and not how one input came from another.
    let copies: Vec<Output> = (0..3).map(|i| s.op("Identity", &[g.inputs[i]])).collect::<Result<_>>()?;
    let (dy, x) = (cast(copies[0], float)?, cast(copies[1], float)?);
    let rank = if format.len() == 5 { 5 } else { 4i32 };
    let channels_last = format.ends_with('C');
    let axes: Vec<i32> = (0..rank).filter(|a| *a != if channels_last { rank - 1 } else { 1 }).collect();
    let axes = s.constant(axes)?;
    let fold = |op: &str, x: Output| s.node(op).inputs(&[x, axes]).attr("keep_dims", true).output();
    let mut spread: Vec<i32> = vec![1; rank as usize];
    spread[if channels_last { rank as usize - 1 } else { 1 }] = -1;
    let spread = s.constant(spread)?;
    let wide = |x: Output| s.op("Reshape", &[x, spread]);
    let flat = s.constant([-1i32])?;
    let narrow = |x: Output| s.op("Reshape", &[x, flat]);
    let (mul, sub) = (|a, b| s.op("Mul", &[a, b]), |a, b| s.op("Sub", &[a, b]));

    let scale = wide(copies[2])?;
    let (mean, variance) = if is_training {
        let mean = fold("Mean", x)?;
        (mean, fold("Mean", s.op("Square", &[sub(x, mean)?])?)?)
    } else {
        (wide(g.inputs[3])?, wide(g.inputs[4])?)
    };
    let variance = s.op("AddV2", &[variance, s.constant(epsilon)?])?;
    let factor = s.op("Rsqrt", &[variance])?;
    let centered = sub(x, mean)?;
    let product = mul(dy, centered)?;
    let scaled = mul(scale, factor)?;
    let dx = if is_training {
        let slope = mul(s.op("RealDiv", &[fold("Mean", product)?, variance])?, centered)?;
        mul(scaled, sub(sub(dy, fold("Mean", dy)?)?, slope)?)?
    } else {
        mul(scaled, dy)?
    };
    let dscale = narrow(mul(factor, fold("Sum", product)?)?)?;
    let doffset = narrow(fold("Sum", dy)?)?;
    let ys = [cast(dx, dtype)?, dscale, doffset];
    let given: Vec<Option<Output>> = g.dy[..3].iter().map(|dy| Some(*dy)).collect();
    let mut grads = gradients(s, &ys, &copies, &given, &[])?;
    grads.resize(6, None);
    Ok(grads)
}

/// The rank that a format is of, and which dimension is that of channels.
fn parse_format(format: &str) -> (usize, usize) {
    match format {
        "NCHW" => (4, 1),
        "NDHWC" => (5, 4),
        "NCDHW" => (5, 1),
        _ => (4, 3),
    }
}

/// Merges the channels of `x` with the lengths of vectors.
fn channels(c: &InferenceContext<'_>, x: &PartialShape, vectors: &[usize]) -> Result<(PartialShape, PartialShape)> {
    let (rank, at) = parse_format(&c.attr::<String>("data_format")?);
    let x = x.with_rank(rank).map_err(|_| invalid!("x must be of rank {rank}, found {x}"))?;
    let mut channels = PartialShape::new([x.dim(at)]);
    for &vector in vectors {
        channels = channels.merge(&c.require_rank(vector, 1)?).map_err(|_| {
            invalid!("input {vector} must have one element for each channel of x {x}, found {}", c.input(vector))
        })?;
    }
    let dims = (0..rank).map(|d| if d == at { channels.dim(0) } else { x.dim(d) });
    Ok((PartialShape::new(dims), channels))
}

pub(super) fn forward_shape(c: &InferenceContext<'_>) -> Result<Vec<PartialShape>> {
    let is_training: bool = c.attr("is_training")?;
    let vectors: &[usize] = if is_training { &[1, 2] } else { &[1, 2, 3, 4] };
    let (x, channels) = channels(c, c.input(0), vectors)?;
    Ok(vec![x, channels.clone(), channels.clone(), channels.clone(), channels, PartialShape::scalar()])
}

fn backward_shape(c: &InferenceContext<'_>) -> Result<Vec<PartialShape>> {
    let x = c.input(0).merge(c.input(1))?;
    let (x, channels) = channels(c, &x, &[2, 3, 4])?;
    let empty = PartialShape::new([Some(0)]);
    Ok(vec![x, channels.clone(), channels, empty.clone(), empty])
}

/// The kernel for the element type of the images.
fn typed<K: FloatKernel>(b: &KernelBuild<'_>, kernel: K) -> Result<BuiltKernel> {
    if b.dtype("U")? != tensor::DType::F32 {
        return Err(framework::typed::no_kernel(b, b.dtype("U")?));
    }
    floats_by(b, "T", kernel)
}

/// What both kernels know.
struct Attributes {
    epsilon: f32,
    is_training: bool,
    format: String,
}

/// Images seen as blocks of channels, and loops over them.
struct Images<'p> {
    /// What is outside, the channels, what is inside.
    dims: [usize; 3],
    plan: BroadcastPlan,
    fold: ReducePlan,
    pool: &'p Pool,
}

impl Attributes {
    fn new(b: &KernelBuild<'_>) -> Result<Attributes> {
        Ok(Attributes {
            epsilon: b.attr("epsilon")?,
            is_training: b.attr("is_training")?,
            format: b.attr("data_format")?,
        })
    }

    fn images<'p>(&self, pool: &'p Pool, shape: &Shape) -> Result<Images<'p>> {
        let (rank, at) = parse_format(&self.format);
        if shape.rank() != rank {
            return Err(invalid!("x must be {rank}-dimensional, found {shape}"));
        }
        let dims = [shape.dims()[..at].iter().product(), shape.dims()[at], shape.dims()[at + 1..].iter().product()];
        let plan = BroadcastPlan::new(&dims, &[dims[1], 1]).ok_or_else(|| invalid!("x {shape} has no channels"))?;
        Ok(Images { dims, plan, fold: ReducePlan::new(&dims, &[true, false, true]), pool })
    }
}

impl Images<'_> {
    fn channels(&self) -> usize {
        self.dims[1]
    }

    /// Elements of each channel.
    fn count(&self) -> usize {
        self.dims[0] * self.dims[2]
    }

    /// The elements of an input that has one for each channel.
    fn vector<'t>(&self, name: &str, tensor: &'t Tensor) -> Result<&'t [f32]> {
        if tensor.dims() != [self.channels()] {
            return Err(invalid!(
                "{name} must have the same number of elements as the channels of x, got {} and {}",
                tensor.shape(),
                self.channels()
            ));
        }
        tensor.as_slice::<f32>()
    }

    fn sum(&self, x: &[f32]) -> Result<OwnedTensor<f32>> {
        let mut sums = OwnedTensor::new([self.channels()])?;
        reduce::<Sum<f32>>(self.pool, &self.fold, x, &mut sums);
        Ok(sums)
    }

    fn mean(&self, x: &[f32]) -> Result<OwnedTensor<f32>> {
        let mut sums = self.sum(x)?;
        sums.iter_mut().for_each(|s| *s /= self.count() as f32);
        Ok(sums)
    }

    fn mean_of_squares(&self, x: &[f32]) -> Result<OwnedTensor<f32>> {
        let mut sums = OwnedTensor::new([self.channels()])?;
        reduce::<SumOfSquares<f32>>(self.pool, &self.fold, x, &mut sums);
        sums.iter_mut().for_each(|s| *s /= self.count() as f32);
        Ok(sums)
    }

    /// `out = f(x, by)` where `by` has an element for each channel.
    fn zip(&self, x: &[f32], by: &[f32], out: &mut [f32], f: impl Fn(f32, f32) -> f32 + Sync) {
        broadcast::binary(self.pool, &self.plan, x, by, out, f);
    }

    /// `x = f(x, by)` where `by` has an element for each channel.
    fn update<B: Copy + Sync>(&self, x: &mut [f32], by: &[B], f: impl Fn(f32, B) -> f32 + Sync) {
        broadcast::update(self.pool, &self.plan, x, by, f);
    }
}

/// The elements as `f32`, in a tensor of their own only if they are something else.
fn to_f32<T: Float>(pool: &Pool, tensor: &Tensor) -> Result<Tensor> {
    if tensor.dtype() == tensor::DType::F32 {
        return Ok(tensor.clone());
    }
    let mut wide = OwnedTensor::<f32>::new(tensor.shape().clone())?;
    elementwise::map(pool, tensor.as_slice::<T>()?, &mut wide, T::to_f32);
    Ok(wide.into())
}

/// The elements as `T`.
fn from_f32<T: Float>(pool: &Pool, tensor: OwnedTensor<f32>) -> Result<Tensor> {
    if T::DTYPE == tensor::DType::F32 {
        return Ok(tensor.into());
    }
    let mut narrow = OwnedTensor::<T>::new(tensor.shape().clone())?;
    elementwise::map(pool, &tensor, &mut narrow, T::from_f32);
    Ok(narrow.into())
}

pub(super) struct Forward {
    attributes: Attributes,
    /// How much of the batch's moments goes into the moments given out.
    average: f32,
}

impl Forward {
    pub(super) fn new(b: &KernelBuild<'_>) -> Result<Forward> {
        Ok(Forward { attributes: Attributes::new(b)?, average: b.attr("exponential_avg_factor")? })
    }
}

impl FloatKernel for Forward {
    fn compute<T: Float>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let pool = ctx.pool();
        let images = self.attributes.images(pool, ctx.input(0).shape())?;
        let scale = images.vector("scale", ctx.input(1))?;
        let offset = images.vector("offset", ctx.input(2))?;
        let x = to_f32::<T>(pool, ctx.input(0))?;
        let x = x.as_slice::<f32>()?;
        let mut y = ctx.allocate::<f32>(ctx.input(0).shape().clone())?;

        let [mean, variance, batch_mean, batch_variance]: [Tensor; 4];
        if self.attributes.is_training {
            let average = images.mean(x)?;
            images.zip(x, &average, &mut y, |x, mean| x - mean);
            let spread = images.mean_of_squares(&y)?;
            // The variance of the whole is estimated by one degree of freedom less.
            let unbiased = images.count() as f32 / images.count().saturating_sub(1).max(1) as f32;
            batch_mean = self.blend("mean", &images, ctx.input(3), &average, 1.0)?;
            batch_variance = self.blend("variance", &images, ctx.input(4), &spread, unbiased)?;
            (mean, variance) = (average.into(), spread.into());
        } else {
            images.zip(x, images.vector("mean", ctx.input(3))?, &mut y, |x, mean| x - mean);
            images.vector("variance", ctx.input(4))?;
            (mean, variance) = (ctx.input(3).clone(), ctx.input(4).clone());
            (batch_mean, batch_variance) = (mean.clone(), variance.clone());
        }
        let variances = variance.as_slice::<f32>()?.iter();
        let factors = variances.zip(scale).map(|(v, scale)| scale / (v + self.attributes.epsilon).sqrt());
        let factors: Vec<(f32, f32)> = factors.zip(offset.iter().copied()).collect();
        images.update(&mut y, &factors, |y, (factor, offset)| y * factor + offset);

        let y = from_f32::<T>(pool, y)?;
        ctx.set_output(0, y)?;
        ctx.set_output(1, batch_mean)?;
        ctx.set_output(2, batch_variance)?;
        ctx.set_output(3, mean)?;
        ctx.set_output(4, variance)?;
        ctx.set_output(5, Tensor::scalar(0.0f32))
    }
}

impl Forward {
    /// The batch's moment, moved towards from the one given if the op keeps an average.
    fn blend(&self, name: &str, images: &Images<'_>, old: &Tensor, new: &[f32], correction: f32) -> Result<Tensor> {
        let mut blended = OwnedTensor::new([new.len()])?;
        if self.average == 1.0 {
            blended.iter_mut().zip(new).for_each(|(b, new)| *b = new * correction);
        } else {
            let old = images.vector(name, old)?;
            for ((b, old), new) in blended.iter_mut().zip(old).zip(new) {
                *b = (1.0 - self.average) * old + self.average * (new * correction);
            }
        }
        Ok(blended.into())
    }
}

struct Backward(Attributes);

impl Backward {
    fn new(b: &KernelBuild<'_>) -> Result<Backward> {
        let attributes = Attributes::new(b)?;
        if !attributes.is_training && !attributes.format.ends_with('C') {
            return Err(invalid!(
                "The implementation of FusedBatchNormGrad with is_training=False only support NHWC tensor format for now."
            ));
        }
        Ok(Backward(attributes))
    }
}

impl FloatKernel for Backward {
    fn compute<T: Float>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let pool = ctx.pool();
        if ctx.input(0).shape() != ctx.input(1).shape() {
            return Err(invalid!(
                "x and y_backprop must have same shape, but x has shape {} and y_backprop has shape {}",
                ctx.input(1).shape(),
                ctx.input(0).shape()
            ));
        }
        let images = self.0.images(pool, ctx.input(0).shape())?;
        let scale = images.vector("scale", ctx.input(2))?;
        let mean = images.vector("reserve_space_1", ctx.input(3))?;
        let variance = images.vector("reserve_space_2", ctx.input(4))?;
        let (dy, x) = (to_f32::<T>(pool, ctx.input(0))?, to_f32::<T>(pool, ctx.input(1))?);
        let (dy, x) = (dy.as_slice::<f32>()?, x.as_slice::<f32>()?);
        let mut dx = ctx.allocate::<f32>(ctx.input(1).shape().clone())?;

        let factors: Vec<f32> = variance.iter().map(|v| 1.0 / (v + self.0.epsilon).sqrt()).collect();
        let doffset = images.sum(dy)?;
        images.zip(x, mean, &mut dx, |x, mean| x - mean);
        let mut product = ctx.allocate::<f32>(ctx.input(1).shape().clone())?;
        elementwise::zip(pool, dy, &dx, &mut product, |dy, x| dy * x);
        let sums = images.sum(&product)?;
        drop(product);
        let mut dscale = ctx.allocate::<f32>([images.channels()])?;
        for ((dscale, sum), factor) in dscale.iter_mut().zip(sums.iter()).zip(&factors) {
            *dscale = sum * factor;
        }
        if self.0.is_training {
            let count = images.count() as f32;
            // dx = scale·factor·(dy - mean(dy) - (x - mean)·slope)
            let parts = sums.iter().zip(doffset.iter()).zip(&factors);
            let parts = parts.map(|((sum, total), factor)| (sum / count * factor * factor, total / count));
            let parts: Vec<(f32, f32)> = parts.collect();
            images.update(&mut dx, &parts, |x, (slope, mean)| -(x * slope) - mean);
            elementwise::zip_in_place(pool, &mut dx, dy, |x, dy| x + dy);
        } else {
            dx.copy_from_slice(dy);
        }
        let factors: Vec<f32> = factors.iter().zip(scale).map(|(factor, scale)| factor * scale).collect();
        images.update(&mut dx, &factors, |x, factor| x * factor);

        let dx = from_f32::<T>(pool, dx)?;
        ctx.set_output(0, dx)?;
        ctx.set_output(1, dscale)?;
        ctx.set_output(2, doffset)?;
        ctx.set_output(3, OwnedTensor::<f32>::new([0])?)?;
        ctx.set_output(4, OwnedTensor::<f32>::new([0])?)
    }
}

#[cfg(test)]
mod tests {
    use crate::nn::testing::{assert_close, f32s, refuses, run};
    use framework::Attr;

    #[test]
    fn a_channel_gets_mean_and_variance_of_its_offset_and_scale() {
        let x = f32s([2, 1, 1, 2], &[1.0, 10.0, 3.0, 30.0]);
        let (scale, offset, none) = (f32s([2], &[2.0, 1.0]), f32s([2], &[0.5, 0.0]), f32s([0], &[]));
        let attrs = [("epsilon", Attr::Float(0.0))];
        let found = run("FusedBatchNormV3", &attrs, &[x, scale, offset, none.clone(), none]).unwrap();
        assert_close("y", &found[0], &f32s([2, 1, 1, 2], &[-1.5, -1.0, 2.5, 1.0]));
        assert_close("mean", &found[1], &f32s([2], &[2.0, 20.0]));
        assert_close("variance", &found[2], &f32s([2], &[2.0, 200.0]));
        assert_close("kept variance", &found[4], &f32s([2], &[1.0, 100.0]));
    }

    #[test]
    fn layouts_agree() {
        let values: Vec<f32> = (0..12).map(|i| ((i * 7) % 11) as f32).collect();
        let (scale, offset, none) = (f32s([2], &[2.0, 1.0]), f32s([2], &[0.5, 0.0]), f32s([0], &[]));
        let last = f32s([1, 2, 3, 2], &values);
        let first: Vec<f32> = values.iter().step_by(2).chain(values.iter().skip(1).step_by(2)).copied().collect();
        let inputs = |x| [x, scale.clone(), offset.clone(), none.clone(), none.clone()];
        let nhwc = run("FusedBatchNormV3", &[], &inputs(last)).unwrap();
        let nchw = [("data_format", Attr::from("NCHW"))];
        let nchw = run("FusedBatchNormV3", &nchw, &inputs(f32s([1, 2, 2, 3], &first))).unwrap();
        assert_close("mean", &nchw[1], &nhwc[1]);
        assert_close("variance", &nchw[2], &nhwc[2]);
    }

    #[test]
    fn a_scale_of_another_size_is_refused() {
        let (one, none) = (f32s([1], &[1.0]), f32s([0], &[]));
        let inputs = [f32s([1, 1, 1, 2], &[1.0, 2.0]), one.clone(), one, none.clone(), none];
        refuses("FusedBatchNormV3", &[], &inputs, "");
    }
}

//! `MaxPool`, `AvgPool` and their gradients: the largest element, or the mean, of windows that slide over images.

use super::sliding::{Attributes, Padding, Sliding, four, four_dims, four_partial};
use framework::typed::{FloatKernel, RealKernel, floats, stepwise_reals, wide_reals};
use framework::{
    Float, Grad, GradValue, InferenceContext, KernelBuild, KernelContext, Op, Output, Real, Scope, shapes,
};
use linalg::pooling::{Windows, avg_pool, avg_pool_grad, max_pool, max_pool_grad, max_pool_with_argmax};
use tensor::{PartialShape, Result, Shape, invalid, unsupported};

/// All ops of this file.
pub fn ops() -> Vec<Op> {
    const ANY_PADDING: &str = "padding: {'SAME', 'VALID', 'EXPLICIT'}";
    const NO_EXPLICIT: &str = "padding: {'SAME', 'VALID'}";
    let window = |op: Op, padding: &str| op.attr("ksize: list(int) >= 4").attr("strides: list(int) >= 4").attr(padding);
    let formats = "data_format: {'NHWC', 'NCHW'} = 'NHWC'";
    let max_gradient = |name: &str| Op::new(name).input("orig_input: T").input("orig_output: T").input("grad: T");
    vec![
        window(
            Op::new("MaxPool")
                .input("input: T")
                .output("output: T")
                .attr("T: {half, bfloat16, float, double, int32, int64, uint8, int16, int8, uint16, qint8} = float"),
            ANY_PADDING,
        )
        .attr("explicit_paddings: list(int) = []")
        .attr("data_format: {'NHWC', 'NCHW', 'NCHW_VECT_C'} = 'NHWC'")
        .shape(pool_shape)
        .gradient(max_pool_gradient)
        .costly()
        .kernel(wide_reals(MaxPool::new)),
        window(max_gradient("MaxPoolGrad").output("output: T"), ANY_PADDING)
            .attr("explicit_paddings: list(int) = []")
            .attr(formats)
            .attr("T: realnumbertype = float")
            .shape(shapes::unchanged)
            .gradient(max_pool_grad_gradient)
            .costly()
            .kernel(stepwise_reals(|b| Ok(MaxPoolGrad(Pooling::new(b, "MaxPoolingGrad")?)))),
        window(max_gradient("MaxPoolGradGrad").output("output: T"), NO_EXPLICIT)
            .attr(formats)
            .attr("T: realnumbertype")
            .shape(|c| Ok(vec![c.input(1).clone()]))
            .gradient(max_pool_grad_grad_gradient)
            .costly()
            .kernel(wide_reals(|b| Ok(MaxPoolGradGrad(Pooling::new(b, "MaxPoolingGradGrad")?)))),
        window(Op::new("AvgPool").input("value: T").output("output: T"), NO_EXPLICIT)
            .attr(formats)
            .attr("T: {half, bfloat16, float, double}")
            .shape(pool_shape)
            .gradient(avg_pool_gradient)
            .costly()
            .kernel(floats(|b| Ok(AvgPool(Pooling::new(b, "AvgPooling")?)))),
        window(
            Op::new("AvgPoolGrad").input("orig_input_shape: int32").input("grad: T").output("output: T"),
            NO_EXPLICIT,
        )
        .attr(formats)
        .attr("T: {half, bfloat16, float, double}")
        .shape(avg_pool_grad_shape)
        .gradient(avg_pool_grad_gradient)
        .costly()
        .kernel(floats(|b| Ok(AvgPoolGrad(Pooling::new(b, "AvgPoolingGrad")?)))),
    ]
}

/// The size of pooling windows and how they slide: sizes and strides in height and width, images in NHWC.
#[derive(Clone, Copy, Debug)]
pub struct PoolOptions {
    /// The size of a window.
    pub window: [i64; 2],
    /// From a window to the next.
    pub strides: [i64; 2],
    /// Whether the image is padded so that there is a window for every stride.
    pub same: bool,
}

/// The largest element of each window.
pub fn max_pool_2d(s: &Scope, input: Output, options: PoolOptions) -> Result<Output> {
    build(s, "MaxPool", input, options)
}

/// The mean of each window, padding not counted.
pub fn avg_pool_2d(s: &Scope, input: Output, options: PoolOptions) -> Result<Output> {
    build(s, "AvgPool", input, options)
}

fn build(s: &Scope, op: &str, input: Output, options: PoolOptions) -> Result<Output> {
    let four = |[h, w]: [i64; 2]| vec![1, h, w, 1];
    s.node(op)
        .input(input)
        .attr("ksize", four(options.window))
        .attr("strides", four(options.strides))
        .attr("padding", if options.same { "SAME" } else { "VALID" })
        .output()
}

/// A node over these inputs with the windows of the node being differentiated.
fn alike(s: &Scope, g: &Grad<'_>, op: &str, inputs: &[Output]) -> Result<Output> {
    let mut node = s.node(op).inputs(inputs);
    for name in ["ksize", "strides"] {
        node = node.attr(name, g.attr::<Vec<i64>>(s, name)?);
    }
    for name in ["padding", "data_format"] {
        node = node.attr(name, g.attr::<String>(s, name)?);
    }
    if s.registry().lookup(op)?.attr_def("explicit_paddings").is_some()
        && let Ok(paddings) = g.attr::<Vec<i64>>(s, "explicit_paddings")
    {
        node = node.attr("explicit_paddings", paddings);
    }
    node.output()
}

fn max_pool_gradient(s: &Scope, g: &Grad<'_>) -> Result<Vec<Option<GradValue>>> {
    let dx = alike(s, g, "MaxPoolGrad", &[g.inputs[0], g.outputs[0], g.dy[0]])?;
    Ok(vec![Some(dx.into())])
}

/// Where the largest elements are does not change a little: only the gradient that passes through has a gradient.
fn max_pool_grad_gradient(s: &Scope, g: &Grad<'_>) -> Result<Vec<Option<GradValue>>> {
    by_last(s, g, "MaxPoolGradGrad")
}

fn max_pool_grad_grad_gradient(s: &Scope, g: &Grad<'_>) -> Result<Vec<Option<GradValue>>> {
    by_last(s, g, "MaxPoolGrad")
}

fn by_last(s: &Scope, g: &Grad<'_>, op: &str) -> Result<Vec<Option<GradValue>>> {
    let zeros = |i: usize| -> Result<Option<GradValue>> {
        Ok(if g.wanted[i] { Some(s.op("ZerosLike", &[g.inputs[i]])?.into()) } else { None })
    };
    let last = alike(s, g, op, &[g.inputs[0], g.inputs[1], g.dy[0]])?;
    Ok(vec![zeros(0)?, zeros(1)?, Some(last.into())])
}

fn avg_pool_gradient(s: &Scope, g: &Grad<'_>) -> Result<Vec<Option<GradValue>>> {
    let shape = s.op("Shape", &[g.inputs[0]])?;
    Ok(vec![Some(alike(s, g, "AvgPoolGrad", &[shape, g.dy[0]])?.into())])
}

fn avg_pool_grad_gradient(s: &Scope, g: &Grad<'_>) -> Result<Vec<Option<GradValue>>> {
    Ok(vec![None, Some(alike(s, g, "AvgPool", &[g.dy[0]])?.into())])
}

fn pool_shape(c: &InferenceContext<'_>) -> Result<Vec<PartialShape>> {
    if c.attr::<String>("data_format")? == "NCHW_VECT_C" {
        return Ok(vec![PartialShape::of_rank(5)]);
    }
    let sliding = Sliding::read(c)?;
    let ksize = four("ksize", c.attr("ksize")?)?;
    let dims = four_partial(c.input(0))?;
    let [height, width] = sliding.layout.spatial();
    let window = |dim: usize| {
        let size = usize::try_from(ksize[dim]).ok().filter(|k| *k > 0);
        size.ok_or_else(|| invalid!("Sliding window ksize for dimension {dim} was {}, must be positive", ksize[dim]))
    };
    let spatial = [
        sliding.known_windows(0, dims[height], Some(window(height)?))?,
        sliding.known_windows(1, dims[width], Some(window(width)?))?,
    ];
    let at = sliding.layout.channels();
    // Pooling along the channels takes them in groups that do not overlap.
    let channels = dims[at].map(|c| c / window(at).unwrap_or(1));
    Ok(vec![PartialShape::new(sliding.layout.shape(dims[0], spatial, channels))])
}

fn avg_pool_grad_shape(c: &InferenceContext<'_>) -> Result<Vec<PartialShape>> {
    let shape = c.shape_from_input(0)?;
    Ok(vec![shape.with_rank(4).map_err(|_| invalid!("the input's shape must be of rank 4, found {shape}"))?])
}

/// What the attributes say, for kernels.
struct Pooling {
    sliding: Sliding,
    ksize: [usize; 4],
    /// What errors call it.
    name: &'static str,
}

impl Pooling {
    fn new(b: &KernelBuild<'_>, name: &'static str) -> Result<Pooling> {
        let pooling = Pooling::with_channels(b, name)?;
        if pooling.ksize[3] != 1 || pooling.sliding.channel_stride() != 1 {
            return Err(unsupported!("{name} is not yet supported on the depth dimension."));
        }
        Ok(pooling)
    }

    /// The same, where windows along the channels are fine.
    fn with_channels(b: &KernelBuild<'_>, name: &'static str) -> Result<Pooling> {
        if Attributes::get::<String>(b, "data_format")? != "NHWC" {
            return Err(invalid!("Default {name}Op only supports NHWC on device type CPU"));
        }
        let sliding = Sliding::read(b)?;
        let mut ksize = [0; 4];
        for (dim, size) in four("ksize", b.attr("ksize")?)?.into_iter().enumerate() {
            ksize[dim] = usize::try_from(size)
                .ok()
                .filter(|k| *k > 0)
                .ok_or_else(|| invalid!("Sliding window ksize for dimension {dim} was {size}, must be positive"))?;
        }
        if ksize[0] != 1 || sliding.batch_stride() != 1 {
            return Err(unsupported!("Pooling is not yet supported on the batch dimension."));
        }
        if let Padding::Explicit(pads) = sliding.padding {
            for (pads, window) in pads.into_iter().zip([ksize[1], ksize[2]]) {
                if let Some(pad) = pads.into_iter().find(|pad| *pad >= window) {
                    return Err(invalid!("padding {pad} needs to be smaller than the window size {window}"));
                }
            }
        }
        Ok(Pooling { sliding, ksize, name })
    }

    /// How the windows slide over images of this shape.
    fn windows(&self, shape: &Shape) -> Result<Windows> {
        let [batch, in_height, in_width, channels] = four_dims("tensor_in", shape)?;
        let height = self.sliding.extent(0, in_height, self.ksize[1])?;
        let width = self.sliding.extent(1, in_width, self.ksize[2])?;
        // The work for a row of windows must be a number.
        Shape::checked([width.windows, channels, self.ksize[1], self.ksize[2]].map(|d| d as i64))?;
        Ok(Windows {
            batch,
            in_height,
            in_width,
            channels,
            height: self.ksize[1],
            width: self.ksize[2],
            stride_height: self.sliding.strides[0],
            stride_width: self.sliding.strides[1],
            pad_top: height.pad_before,
            pad_left: width.pad_before,
            out_height: height.windows,
            out_width: width.windows,
        })
    }

    /// An error unless a tensor has the shape of the pooled images.
    fn check_pooled(&self, what: &str, shape: &Shape, windows: &Windows) -> Result<()> {
        if shape.dims() != pooled(windows) {
            return Err(invalid!(
                "{}: expected {what} shape to be {}, but got {shape}",
                self.name,
                Shape::from(pooled(windows))
            ));
        }
        Ok(())
    }
}

fn pooled(windows: &Windows) -> [usize; 4] {
    [windows.batch, windows.out_height, windows.out_width, windows.channels]
}

struct MaxPool(Pooling);

impl MaxPool {
    fn new(b: &KernelBuild<'_>) -> Result<MaxPool> {
        let pooling = Pooling::with_channels(b, "MaxPooling")?;
        let [_, height, width, depth] = pooling.ksize;
        if depth != 1 || pooling.sliding.channel_stride() != 1 {
            if height != 1 || width != 1 {
                return Err(unsupported!(
                    "MaxPooling supports exactly one of pooling across depth or pooling across width/height."
                ));
            }
            if depth as i64 != pooling.sliding.channel_stride() {
                return Err(unsupported!("Depthwise max pooling requires the depth window to equal the depth stride."));
            }
        }
        Ok(MaxPool(pooling))
    }

    /// The largest of each group of channels.
    fn along_channels<T: Real>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let depth = self.0.ksize[3];
        let x = ctx.input(0);
        let [batch, height, width, channels] = four_dims("tensor_in", x.shape())?;
        if channels % depth != 0 {
            return Err(unsupported!(
                "Depthwise max pooling requires the depth window to evenly divide the input depth: {channels}, {depth}"
            ));
        }
        let mut y = ctx.allocate::<T>([batch, height, width, channels / depth])?;
        for (y, group) in y.iter_mut().zip(x.as_slice::<T>()?.chunks_exact(depth)) {
            *y = group.iter().copied().fold(T::MIN, T::max);
        }
        ctx.set_output(0, y)
    }
}

impl RealKernel for MaxPool {
    fn compute<T: Real>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        if self.0.ksize[3] != 1 {
            return self.along_channels::<T>(ctx);
        }
        let windows = self.0.windows(ctx.input(0).shape())?;
        let mut y = ctx.allocate::<T>(Shape::checked(pooled(&windows).map(|d| d as i64))?)?;
        max_pool(ctx.pool(), &windows, ctx.input(0).as_slice::<T>()?, &mut y);
        ctx.set_output(0, y)
    }
}

struct MaxPoolGrad(Pooling);

impl RealKernel for MaxPoolGrad {
    fn compute<T: Real>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let (x, y, dy) = (ctx.input(0), ctx.input(1), ctx.input(2));
        let windows = self.0.windows(x.shape())?;
        self.0.check_pooled("orig_output", y.shape(), &windows)?;
        self.0.check_pooled("grad", dy.shape(), &windows)?;

        let mut dx = ctx.allocate::<T>(x.shape().clone())?;

        max_pool_grad(ctx.pool(), &windows, x.as_slice::<T>()?, dy.as_slice::<T>()?, &mut dx);
        ctx.set_output(0, dx)
    }
}

struct MaxPoolGradGrad(Pooling);

impl RealKernel for MaxPoolGradGrad {
    fn compute<T: Real>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let (x, y, grad) = (ctx.input(0), ctx.input(1), ctx.input(2));
        let windows = self.0.windows(x.shape())?;
        self.0.check_pooled("orig_output", y.shape(), &windows)?;
        if grad.shape() != x.shape() {
            return Err(invalid!("expected grad shape to be {}, but got {}", x.shape(), grad.shape()));
        }

        let mut out = ctx.allocate::<T>(y.shape().clone())?;
        let mut places = vec![0i64; out.len()];

        max_pool_with_argmax(ctx.pool(), &windows, true, x.as_slice::<T>()?, &mut out, &mut places);
        let grad = grad.as_slice::<T>()?;
        for (out, place) in out.iter_mut().zip(places) {
            *out = usize::try_from(place).ok().and_then(|p| grad.get(p)).copied().unwrap_or(T::ZERO);
        }
        ctx.set_output(0, out)
    }
}

struct AvgPool(Pooling);

impl FloatKernel for AvgPool {
    fn compute<T: Float>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let windows = self.0.windows(ctx.input(0).shape())?;
        let mut y = ctx.allocate::<T>(Shape::checked(pooled(&windows).map(|d| d as i64))?)?;
        let x = ctx.input(0).as_slice::<T>()?;
        if T::DTYPE.size() == 2 {
            avg_pool_rounding(&windows, x, &mut y);
        } else {
            avg_pool(ctx.pool(), &windows, x, &mut y);
        }
        ctx.set_output(0, y)
    }
}

/// Means of halves as TensorFlow's kernel makes them: the sum is rounded after every addition.
fn avg_pool_rounding<T: Float>(windows: &Windows, x: &[T], y: &mut [T]) {
    let Windows { in_height, in_width, out_height, out_width, channels, .. } = *windows;
    let covered = |at: usize, stride: usize, pad: usize, window: usize, len: usize| {
        let start = at * stride;
        start.saturating_sub(pad).min(len)..(start + window).saturating_sub(pad).min(len)
    };
    for (i, y) in y.chunks_exact_mut(channels.max(1)).enumerate() {
        let (column, row, image) = (i % out_width, i / out_width % out_height, i / out_width / out_height);
        let rows = covered(row, windows.stride_height, windows.pad_top, windows.height, in_height);
        let columns = covered(column, windows.stride_width, windows.pad_left, windows.width, in_width);
        let count = T::from_i64((rows.len() * columns.len()) as i64);
        y.fill(T::ZERO);
        for at in rows.flat_map(|row| columns.clone().map(move |column| row * in_width + column)) {
            let pixel = &x[(image * in_height * in_width + at) * channels..][..channels];
            y.iter_mut().zip(pixel).for_each(|(y, x)| *y = y.add(*x));
        }
        y.iter_mut().for_each(|y| *y = y.div(count));
    }
}

struct AvgPoolGrad(Pooling);

impl FloatKernel for AvgPoolGrad {
    fn compute<T: Float>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let (shape, dy) = (ctx.input(0), ctx.input(1));
        if shape.dims() != [4] {
            return Err(invalid!("orig_input_shape must be a vector of 4 sizes, found shape {}", shape.shape()));
        }
        let shape = Shape::checked(shape.to_i64s()?)?;
        let windows = self.0.windows(&shape)?;
        self.0.check_pooled("grad", dy.shape(), &windows)?;

        let mut dx = ctx.allocate::<T>(shape)?;

        avg_pool_grad(ctx.pool(), &windows, dy.as_slice::<T>()?, &mut dx);
        ctx.set_output(0, dx)
    }
}

#[cfg(test)]
mod tests {
    use crate::nn::testing::{check, f32s, refuses, run};
    use framework::Attr;
    use tensor::{Code, Tensor};

    fn attrs(ksize: [i64; 4], strides: [i64; 4], padding: &str) -> Vec<(&'static str, Attr)> {
        vec![
            ("ksize", Attr::Ints(ksize.to_vec())),
            ("strides", Attr::Ints(strides.to_vec())),
            ("padding", Attr::from(padding)),
        ]
    }

    #[test]
    fn windows_are_reduced_to_their_largest_or_their_mean() {
        let x = f32s([1, 3, 3, 1], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]);
        let same = attrs([1, 2, 2, 1], [1, 2, 2, 1], "SAME");
        check("MaxPool", &same, std::slice::from_ref(&x), &[f32s([1, 2, 2, 1], &[5.0, 6.0, 8.0, 9.0])]);
        check("AvgPool", &same, std::slice::from_ref(&x), &[f32s([1, 2, 2, 1], &[3.0, 4.5, 7.5, 9.0])]);
        let dy = f32s([1, 2, 2, 1], &[4.0, 2.0, 6.0, 1.0]);
        let dx = f32s([1, 3, 3, 1], &[0.0, 0.0, 0.0, 0.0, 4.0, 2.0, 0.0, 6.0, 1.0]);
        let y = f32s([1, 2, 2, 1], &[5.0, 6.0, 8.0, 9.0]);
        check("MaxPoolGrad", &same, &[x.clone(), y.clone(), dy.clone()], std::slice::from_ref(&dx));
        check("MaxPoolGradGrad", &same, &[x, y, dx], std::slice::from_ref(&dy));
        let shape = Tensor::from(vec![1i32, 3, 3, 1]);
        let dx = f32s([1, 3, 3, 1], &[1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 3.0, 3.0, 1.0]);
        check("AvgPoolGrad", &same, &[shape, dy], &[dx]);
    }

    #[test]
    fn channels_are_pooled_in_groups() {
        let x = f32s([1, 1, 1, 4], &[1.0, 2.0, 4.0, 3.0]);
        check("MaxPool", &attrs([1, 1, 1, 2], [1, 1, 1, 2], "SAME"), &[x], &[f32s([1, 1, 1, 2], &[2.0, 4.0])]);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let x = f32s([1, 2, 2, 1], &[0.0; 4]);
        refuses("MaxPool", &attrs([1, 4, 4, 1], [1, 1, 1, 1], "VALID"), std::slice::from_ref(&x), "Negative dimension");
        refuses("MaxPool", &attrs([1, 0, 3, 1], [1, 1, 1, 1], "SAME"), std::slice::from_ref(&x), "must be positive");
        refuses("AvgPool", &attrs([1, 1, 1, 1], [1, 0, 1, 1], "SAME"), std::slice::from_ref(&x), "Stride must be > 0");
        let error = run("MaxPool", &attrs([2, 1, 1, 1], [2, 1, 1, 1], "SAME"), &[x]).unwrap_err();
        assert_eq!(error.code, Code::Unimplemented);
    }
}

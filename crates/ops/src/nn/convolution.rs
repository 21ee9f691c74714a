//! `Conv2D`, `DepthwiseConv2dNative` and their gradients: filters that slide over images.
//!
//! A filter of `Conv2D` sees all channels of its group at once, one of `DepthwiseConv2dNative` a single channel.

use super::sliding::{Layout, Sliding, four_dims, four_partial};
use framework::op::KernelFn;
use framework::typed::{FloatKernel, floats_by};
use framework::{
    BuiltKernel, Float, Grad, GradValue, InferenceContext, Kernel, KernelBuild, KernelContext, Op, Output, Scope,
};
use linalg::conv::{self, Conv2d};
use std::sync::Arc;
use tensor::{DType, PartialShape, Result, Shape, Tensor, invalid, unsupported};

/// All ops of this file.
pub fn ops() -> Vec<Op> {
    const FLOATS: &str = "T: {half, bfloat16, float, double}";
    const FLOATS_AND_INT: &str = "T: {half, bfloat16, float, double, int32}";
    let [forward, by_input, by_filter] = [Pass::Forward, Pass::ByInput, Pass::ByFilter];
    vec![
        attributes(signature("Conv2D", forward), FLOATS_AND_INT, Kind::Full)
            .shape(conv2d_shape)
            .gradient(|s, g| forward_gradient(s, g, Kind::Full))
            .kernel(kernel(Kind::Full, forward)),
        attributes(signature("Conv2DBackpropInput", by_input), FLOATS_AND_INT, Kind::Full)
            .shape(by_input_shape)
            .gradient(|s, g| by_input_gradient(s, g, Kind::Full))
            .kernel(kernel(Kind::Full, by_input)),
        attributes(signature("Conv2DBackpropFilter", by_filter), FLOATS, Kind::Full)
            .shape(by_filter_shape)
            .gradient(|s, g| by_filter_gradient(s, g, Kind::Full))
            .kernel(kernel(Kind::Full, by_filter)),
        attributes(signature("DepthwiseConv2dNative", forward), FLOATS, Kind::Depthwise)
            .shape(|c| forward_shape(c, Kind::Depthwise))
            .gradient(|s, g| forward_gradient(s, g, Kind::Depthwise))
            .kernel(kernel(Kind::Depthwise, forward)),
        attributes(signature("DepthwiseConv2dNativeBackpropInput", by_input), FLOATS, Kind::Depthwise)
            .shape(by_input_shape)
            .gradient(|s, g| by_input_gradient(s, g, Kind::Depthwise))
            .kernel(kernel(Kind::Depthwise, by_input)),
        attributes(signature("DepthwiseConv2dNativeBackpropFilter", by_filter), FLOATS, Kind::Depthwise)
            .shape(by_filter_shape)
            .gradient(|s, g| by_filter_gradient(s, g, Kind::Depthwise))
            .kernel(kernel(Kind::Depthwise, by_filter)),
    ]
}

/// How filters slide over images in NHWC: strides and dilations in height and width.
#[derive(Clone, Copy, Debug)]
pub struct ConvOptions {
    /// From a place of the filter to the next.
    pub strides: [i64; 2],
    /// From an element of the filter to the next.
    pub dilations: [i64; 2],
    /// Whether the image is padded so that there is a place for every stride.
    pub same: bool,
}

impl Default for ConvOptions {
    fn default() -> ConvOptions {
        ConvOptions { strides: [1, 1], dilations: [1, 1], same: true }
    }
}

/// Images (batch, height, width, channels) under filters (height, width, channels in, channels out).
pub fn conv2d(s: &Scope, input: Output, filter: Output, options: ConvOptions) -> Result<Output> {
    build(s, "Conv2D", input, filter, options)
}

/// Every channel of images under filters of its own (height, width, channels, filters for each).
pub fn depthwise_conv2d(s: &Scope, input: Output, filter: Output, options: ConvOptions) -> Result<Output> {
    build(s, "DepthwiseConv2dNative", input, filter, options)
}

fn build(s: &Scope, op: &str, input: Output, filter: Output, options: ConvOptions) -> Result<Output> {
    let four = |[h, w]: [i64; 2]| vec![1, h, w, 1];
    s.node(op)
        .inputs(&[input, filter])
        .attr("strides", four(options.strides))
        .attr("dilations", four(options.dilations))
        .attr("padding", if options.same { "SAME" } else { "VALID" })
        .output()
}

/// Which convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Full,
    Depthwise,
}

/// What is computed of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pass {
    /// The convolution.
    Forward,
    /// Its gradient by the images.
    ByInput,
    /// Its gradient by the filter.
    ByFilter,
}

impl Kind {
    fn op(self, pass: Pass) -> &'static str {
        match (self, pass) {
            (Kind::Full, Pass::Forward) => "Conv2D",
            (Kind::Full, Pass::ByInput) => "Conv2DBackpropInput",
            (Kind::Full, Pass::ByFilter) => "Conv2DBackpropFilter",
            (Kind::Depthwise, Pass::Forward) => "DepthwiseConv2dNative",
            (Kind::Depthwise, Pass::ByInput) => "DepthwiseConv2dNativeBackpropInput",
            (Kind::Depthwise, Pass::ByFilter) => "DepthwiseConv2dNativeBackpropFilter",
        }
    }
}

fn signature(name: &str, pass: Pass) -> Op {
    let op = match pass {
        Pass::Forward => Op::new(name).input("input: T").input("filter: T"),
        Pass::ByInput => Op::new(name).input("input_sizes: int32").input("filter: T").input("out_backprop: T"),
        Pass::ByFilter => Op::new(name).input("input: T").input("filter_sizes: int32").input("out_backprop: T"),
    };
    op.output("output: T").costly()
}

fn attributes(op: Op, types: &str, kind: Kind) -> Op {
    let op = op.attr(types).attr("strides: list(int)");
    let op = if kind == Kind::Full { op.attr("use_cudnn_on_gpu: bool = true") } else { op };
    op.attr("padding: {'SAME', 'VALID', 'EXPLICIT'}")
        .attr("explicit_paddings: list(int) = []")
        .attr("data_format: {'NHWC', 'NCHW'} = 'NHWC'")
        .attr("dilations: list(int) = [1, 1, 1, 1]")
}

/// Another pass of the convolution whose node is being differentiated.
fn pass(s: &Scope, g: &Grad<'_>, kind: Kind, pass: Pass, inputs: &[Output]) -> Result<Option<GradValue>> {
    let mut node = s.node(kind.op(pass)).inputs(inputs);
    for name in ["strides", "explicit_paddings", "dilations"] {
        node = node.attr(name, g.attr::<Vec<i64>>(s, name)?);
    }
    for name in ["padding", "data_format"] {
        node = node.attr(name, g.attr::<String>(s, name)?);
    }
    Ok(Some(node.output()?.into()))
}

fn forward_gradient(s: &Scope, g: &Grad<'_>, kind: Kind) -> Result<Vec<Option<GradValue>>> {
    let (x, filter, dy) = (g.inputs[0], g.inputs[1], g.dy[0]);
    let mut grads = vec![None, None];
    if g.wanted[0] {
        grads[0] = pass(s, g, kind, Pass::ByInput, &[s.op("Shape", &[x])?, filter, dy])?;
    }
    if g.wanted[1] {
        grads[1] = pass(s, g, kind, Pass::ByFilter, &[x, s.op("Shape", &[filter])?, dy])?;
    }
    Ok(grads)
}

/// The gradient by the images is linear in filter and gradient, so its own gradients are the other two passes.
fn by_input_gradient(s: &Scope, g: &Grad<'_>, kind: Kind) -> Result<Vec<Option<GradValue>>> {
    let (filter, dy, ddx) = (g.inputs[1], g.inputs[2], g.dy[0]);
    let mut grads = vec![None, None, None];
    if g.wanted[1] {
        grads[1] = pass(s, g, kind, Pass::ByFilter, &[ddx, s.op("Shape", &[filter])?, dy])?;
    }
    if g.wanted[2] {
        grads[2] = pass(s, g, kind, Pass::Forward, &[ddx, filter])?;
    }
    Ok(grads)
}

/// The same for the gradient by the filter, which is linear in images and gradient.
fn by_filter_gradient(s: &Scope, g: &Grad<'_>, kind: Kind) -> Result<Vec<Option<GradValue>>> {
    let (x, dy, ddf) = (g.inputs[0], g.inputs[2], g.dy[0]);
    let mut grads = vec![None, None, None];
    if g.wanted[0] {
        grads[0] = pass(s, g, kind, Pass::ByInput, &[s.op("Shape", &[x])?, ddf, dy])?;
    }
    if g.wanted[2] {
        grads[2] = pass(s, g, kind, Pass::Forward, &[x, ddf])?;
    }
    Ok(grads)
}

pub(super) fn conv2d_shape(c: &InferenceContext<'_>) -> Result<Vec<PartialShape>> {
    forward_shape(c, Kind::Full)
}

fn forward_shape(c: &InferenceContext<'_>, kind: Kind) -> Result<Vec<PartialShape>> {
    let sliding = Sliding::read(c)?;
    let (x, filter) = (four_partial(c.input(0))?, four_partial(c.input(1))?);
    let depth = x[sliding.layout.channels()];
    let out_channels = match kind {
        Kind::Full => {
            if let (Some(depth), Some(seen)) = (depth, filter[2]) {
                groups(depth, seen, filter[3].unwrap_or(0))?;
            }
            filter[3]
        }
        Kind::Depthwise => {
            if let (Some(depth), Some(seen)) = (depth, filter[2])
                && depth != seen
            {
                return Err(depths_differ(depth, seen));
            }
            depth.or(filter[2]).zip(filter[3]).and_then(|(channels, each)| channels.checked_mul(each))
        }
    };
    let [height, width] = sliding.layout.spatial();
    let spatial = [sliding.known_windows(0, x[height], filter[0])?, sliding.known_windows(1, x[width], filter[1])?];
    Ok(vec![PartialShape::new(sliding.layout.shape(x[0], spatial, out_channels))])
}

fn by_input_shape(c: &InferenceContext<'_>) -> Result<Vec<PartialShape>> {
    let sliding = Sliding::read(c)?;
    let (filter, dy) = (four_partial(c.input(1))?, four_partial(c.input(2))?);
    let sizes = c.shape_from_input(0)?;
    // Two sizes are those of height and width; batch and channels are then read off gradient and filter.
    if let Some([height, width]) = sizes.dims() {
        return Ok(vec![PartialShape::new(sliding.layout.shape(dy[0], [*height, *width], filter[2]))]);
    }
    Ok(vec![sizes.with_rank(4).map_err(|_| invalid!("input_sizes must have 4 or 2 elements, found {sizes}"))?])
}

fn by_filter_shape(c: &InferenceContext<'_>) -> Result<Vec<PartialShape>> {
    Sliding::read(c)?;
    four_partial(c.input(0))?;
    four_partial(c.input(2))?;
    let sizes = c.shape_from_input(1)?;
    Ok(vec![sizes.with_rank(4).map_err(|_| invalid!("filter_sizes must have 4 elements, found {sizes}"))?])
}

/// The number of groups that a filter which sees some of the channels divides them into.
fn groups(depth: usize, seen: usize, out_channels: usize) -> Result<usize> {
    if seen == 0 {
        return Err(invalid!("filter must not have zero elements (i.e. all dimensions must be non-zero)"));
    }
    if !depth.is_multiple_of(seen) {
        return Err(invalid!(
            "input depth must be evenly divisible by filter depth: Depth of input ({depth}) is not a multiple of input \
             depth of filter ({seen})"
        ));
    }
    let groups = (depth / seen).max(1);
    if !out_channels.is_multiple_of(groups) {
        return Err(invalid!("Depth of output ({out_channels}) is not a multiple of the number of groups ({groups})"));
    }
    Ok(groups)
}

fn depths_differ(depth: usize, seen: usize) -> tensor::Error {
    invalid!("input and filter must have the same depth: {depth} vs {seen}")
}

fn kernel(kind: Kind, pass: Pass) -> KernelFn {
    Arc::new(move |b| {
        let kernel = Convolution::new(b, kind, pass)?;
        match b.dtype("T")? {
            DType::I32 => Ok(BuiltKernel::new(Integers(kernel))),
            _ => floats_by(b, "T", kernel),
        }
    })
}

pub(super) struct Convolution {
    sliding: Sliding,
    kind: Kind,
    pass: Pass,
}

impl Convolution {
    pub(super) fn new(b: &KernelBuild<'_>, kind: Kind, pass: Pass) -> Result<Convolution> {
        let sliding = Sliding::read(b)?;
        let name = kind.op(pass);
        if sliding.layout != Layout::Nhwc {
            return Err(match (kind, pass) {
                (Kind::Full, Pass::ByInput | Pass::ByFilter) => invalid!("{name} only supports NHWC on the CPU"),
                _ => unsupported!(
                    "The {name} op currently only supports the NHWC tensor format on the CPU. The op was given the \
                     format: NCHW"
                ),
            });
        }
        sliding.check_spatial_only()?;
        if kind == Kind::Depthwise && sliding.strides[0] != sliding.strides[1] {
            return Err(invalid!(
                "Current implementation only supports equal length strides in the row and column dimensions."
            ));
        }
        Ok(Convolution { sliding, kind, pass })
    }

    /// The shapes of images and filter, whichever of them are inputs.
    fn shapes(&self, ctx: &KernelContext<'_>) -> Result<(Shape, Shape)> {
        match self.pass {
            Pass::Forward => Ok((ctx.input(0).shape().clone(), ctx.input(1).shape().clone())),
            Pass::ByInput => {
                let filter = ctx.input(1).shape().clone();
                let sizes = described("input_sizes", ctx.input(0))?;
                let shape = match sizes[..] {
                    // Height and width only.
                    [height, width] => {
                        let [batch, ..] = four_dims("out_backprop", ctx.input(2).shape())?;
                        let depth = four_dims("filter", &filter)?[2];
                        Shape::checked([batch as i64, height, width, depth as i64])?
                    }
                    _ => Shape::checked(sizes)?,
                };
                Ok((shape, filter))
            }
            Pass::ByFilter => {
                let sizes = described("filter_sizes", ctx.input(1))?;
                Ok((ctx.input(0).shape().clone(), Shape::checked(sizes)?))
            }
        }
    }

    /// All sizes of the convolution, checked against each other and against the gradient where there is one; and the
    /// shape of what this pass computes.
    fn plan(&self, ctx: &KernelContext<'_>) -> Result<(Conv2d, Shape)> {
        let (x, filter) = self.shapes(ctx)?;
        let [batch, in_height, in_width, in_channels] = four_dims("input", &x)?;
        let [filter_height, filter_width, seen, last] = four_dims("filter", &filter)?;
        let (out_channels, groups) = match self.kind {
            Kind::Full => (last, groups(in_channels, seen, last)?),
            Kind::Depthwise if seen != in_channels => return Err(depths_differ(in_channels, seen)),
            Kind::Depthwise => (Shape::checked([seen as i64, last as i64])?.num_elements(), in_channels),
        };
        let height = self.sliding.extent(0, in_height, filter_height)?;
        let width = self.sliding.extent(1, in_width, filter_width)?;
        let plan = Conv2d {
            batch,
            in_height,
            in_width,
            in_channels,
            filter_height,
            filter_width,
            out_channels,
            groups,
            stride_height: self.sliding.strides[0],
            stride_width: self.sliding.strides[1],
            dilation_height: self.sliding.dilations[0],
            dilation_width: self.sliding.dilations[1],
            pad_top: height.pad_before,
            pad_left: width.pad_before,
            out_height: height.windows,
            out_width: width.windows,
        };
        let out = [batch, height.windows, width.windows, out_channels];
        let out = Shape::checked(out.map(|d| d as i64))?;
        if self.pass != Pass::Forward && ctx.input(2).shape() != &out {
            return Err(invalid!(
                "{}: Size of out_backprop doesn't match computed: actual = {}, computed = {out} for input {x} and \
                 filter {filter}",
                self.kind.op(self.pass),
                ctx.input(2).shape()
            ));
        }
        let result = match self.pass {
            Pass::Forward => out,
            Pass::ByInput => x,
            Pass::ByFilter => filter,
        };
        Ok((plan, result))
    }

    /// The inputs that hold elements, in order.
    fn operands(&self) -> [usize; 2] {
        match self.pass {
            Pass::Forward => [0, 1],
            Pass::ByInput => [1, 2],
            Pass::ByFilter => [0, 2],
        }
    }
}

/// The sizes in a vector of them.
fn described(name: &str, sizes: &Tensor) -> Result<Vec<i64>> {
    if sizes.shape().rank() != 1 {
        return Err(invalid!("{name} input must be 1-dim, not {}", sizes.shape().rank()));
    }
    sizes.to_i64s()
}

impl FloatKernel for Convolution {
    fn compute<T: Float>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let (plan, shape) = self.plan(ctx)?;
        let [a, b] = self.operands().map(|i| ctx.input(i).as_slice::<T>());
        let (a, b) = (a?, b?);
        let mut out = ctx.allocate::<T>(shape)?;

        // Nothing to multiply: the sums are zero.
        if a.is_empty() || b.is_empty() || out.is_empty() {
            out.fill(T::ZERO);
            return ctx.set_output(0, out);
        }
        if T::DTYPE.size() == 2 && (self.kind, self.pass) == (Kind::Depthwise, Pass::ByInput) {
            depthwise_input_rounding(&plan, a, b, &mut out);
            return ctx.set_output(0, out);
        }
        let run = match (self.kind, self.pass) {
            (Kind::Full, Pass::Forward) => conv::conv2d::<T>,
            (Kind::Full, Pass::ByInput) => conv::conv2d_backprop_input::<T>,
            (Kind::Full, Pass::ByFilter) => conv::conv2d_backprop_filter::<T>,
            (Kind::Depthwise, Pass::Forward) => conv::depthwise_conv2d::<T>,
            (Kind::Depthwise, Pass::ByInput) => conv::depthwise_conv2d_backprop_input::<T>,
            (Kind::Depthwise, Pass::ByFilter) => conv::depthwise_conv2d_backprop_filter::<T>,
        };
        run(ctx.pool(), &plan, a, b, &mut out);
        ctx.set_output(0, out)
    }
}

/// The gradient by the images for halves, as TensorFlow's kernel makes it: a sum for each output channel, rounded after
/// every product, and then the sum of those of each input channel.
fn depthwise_input_rounding<T: Float>(plan: &Conv2d, filter: &[T], dy: &[T], dx: &mut [T]) {
    let each = plan.out_channels / plan.in_channels;
    let mut sums = vec![T::ZERO; plan.out_channels];
    // The place whose filter element `tap` covers an element of the image, if there is one.
    let place = |at: usize, pad: usize, tap: usize, dilation: usize, stride: usize, places: usize| {
        let start = (at + pad).checked_sub(tap * dilation)?;
        (start % stride == 0 && start / stride < places).then_some(start / stride)
    };
    for (i, dx) in dx.chunks_exact_mut(plan.in_channels).enumerate() {
        let (x, y) = (i % plan.in_width, i / plan.in_width % plan.in_height);
        let image = i / plan.in_width / plan.in_height;
        sums.fill(T::ZERO);
        for tap in 0..plan.filter_height * plan.filter_width {
            let (row_tap, column_tap) = (tap / plan.filter_width, tap % plan.filter_width);
            let row = place(y, plan.pad_top, row_tap, plan.dilation_height, plan.stride_height, plan.out_height);
            let column = place(x, plan.pad_left, column_tap, plan.dilation_width, plan.stride_width, plan.out_width);
            let (Some(row), Some(column)) = (row, column) else { continue };
            let from = ((image * plan.out_height + row) * plan.out_width + column) * plan.out_channels;
            let (dy, filter) = (&dy[from..][..sums.len()], &filter[tap * sums.len()..][..sums.len()]);
            for ((sum, dy), filter) in sums.iter_mut().zip(dy).zip(filter) {
                *sum = T::from_f32(sum.to_f32() + dy.to_f32() * filter.to_f32());
            }
        }
        for (dx, sums) in dx.iter_mut().zip(sums.chunks_exact(each)) {
            *dx = sums.iter().fold(T::ZERO, |total, sum| total.add(*sum));
        }
    }
}

/// Convolutions of whole numbers, the plain way.
struct Integers(Convolution);

impl Kernel for Integers {
    fn compute(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let (plan, shape) = self.0.plan(ctx)?;
        let [a, b] = self.0.operands().map(|i| ctx.input(i).as_slice::<i32>());
        let (a, b) = (a?, b?);
        let mut out = ctx.allocate::<i32>(shape)?;

        out.fill(0);
        match self.0.pass {
            Pass::Forward => for_each_product(&plan, |x, filter, y| {
                out[y] = out[y].wrapping_add(a[x].wrapping_mul(b[filter]));
            }),
            Pass::ByInput => for_each_product(&plan, |x, filter, y| {
                out[x] = out[x].wrapping_add(a[filter].wrapping_mul(b[y]));
            }),
            Pass::ByFilter => for_each_product(&plan, |x, filter, y| {
                out[filter] = out[filter].wrapping_add(a[x].wrapping_mul(b[y]));
            }),
        }
        ctx.set_output(0, out)
    }
}

/// Calls `body` with the places in images, filter and result of every product of a convolution.
fn for_each_product(plan: &Conv2d, mut body: impl FnMut(usize, usize, usize)) {
    let (seen, made) = (plan.in_channels / plan.groups.max(1), plan.out_channels / plan.groups.max(1));
    let inside = |at: usize, stride: usize, tap: usize, dilation: usize, pad: usize, len: usize| {
        (at * stride + tap * dilation).checked_sub(pad).filter(|i| *i < len)
    };
    let steps = |len: usize, inner: usize| (0..len * inner).map(move |i| (i / inner, i % inner));
    for (image, row) in steps(plan.batch, plan.out_height.max(1)).filter(|_| plan.out_height > 0) {
        for (column, row_tap) in steps(plan.out_width, plan.filter_height.max(1)).filter(|_| plan.filter_height > 0) {
            let (stride, dilation) = (plan.stride_height, plan.dilation_height);
            let Some(y) = inside(row, stride, row_tap, dilation, plan.pad_top, plan.in_height) else { continue };
            for column_tap in 0..plan.filter_width {
                let (stride, dilation) = (plan.stride_width, plan.dilation_width);
                let Some(x) = inside(column, stride, column_tap, dilation, plan.pad_left, plan.in_width) else {
                    continue;
                };
                let from = ((image * plan.in_height + y) * plan.in_width + x) * plan.in_channels;
                let tap = (row_tap * plan.filter_width + column_tap) * seen;
                let to = ((image * plan.out_height + row) * plan.out_width + column) * plan.out_channels;
                for (channel, out) in steps(seen, plan.out_channels.max(1)).filter(|_| plan.out_channels > 0) {
                    let group = out / made;
                    body(from + group * seen + channel, (tap + channel) * plan.out_channels + out, to + out);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::nn::testing::{check, f32s, refuses, run};
    use framework::Attr;
    use tensor::{Code, Tensor};

    fn attrs(padding: &str) -> Vec<(&'static str, Attr)> {
        vec![("strides", Attr::Ints(vec![1; 4])), ("padding", Attr::from(padding))]
    }

    fn image() -> Tensor {
        f32s([1, 3, 3, 1], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0])
    }

    #[test]
    fn a_filter_slides_over_an_image_and_back() {
        let filter = f32s([2, 2, 1, 1], &[1.0, 0.0, 0.0, -1.0]);
        let y = f32s([1, 2, 2, 1], &[-4.0; 4]);
        for op in ["Conv2D", "DepthwiseConv2dNative"] {
            check(op, &attrs("VALID"), &[image(), filter.clone()], std::slice::from_ref(&y));
        }
        let dy = f32s([1, 2, 2, 1], &[1.0, 2.0, 3.0, 4.0]);
        let sizes = Tensor::from(vec![1i32, 3, 3, 1]);
        let dx = f32s([1, 3, 3, 1], &[1.0, 2.0, 0.0, 3.0, 3.0, -2.0, 0.0, -3.0, -4.0]);
        let df = f32s([2, 2, 1, 1], &[37.0, 47.0, 67.0, 77.0]);
        for prefix in ["Conv2D", "DepthwiseConv2dNative"] {
            let inputs = [sizes.clone(), filter.clone(), dy.clone()];
            check(&format!("{prefix}BackpropInput"), &attrs("VALID"), &inputs, std::slice::from_ref(&dx));
            let inputs = [image(), Tensor::from(vec![2i32, 2, 1, 1]), dy.clone()];
            check(&format!("{prefix}BackpropFilter"), &attrs("VALID"), &inputs, std::slice::from_ref(&df));
        }
    }

    #[test]
    fn whole_numbers_agree_with_floats() {
        let mut attrs = attrs("SAME");
        attrs[0].1 = Attr::Ints(vec![1, 2, 2, 1]);
        let numbers = |count: i32, step: i32| (0..count).map(|i| (i * step) % 7 - 3).collect::<Vec<i32>>();
        let (x, filter) = (numbers(2 * 5 * 4 * 4, 3), numbers(3 * 2 * 2 * 6, 5));
        let float = |v: &[i32]| v.iter().map(|i| *i as f32).collect::<Vec<f32>>();
        let inputs = [f32s([2, 5, 4, 4], &float(&x)), f32s([3, 2, 2, 6], &float(&filter))];
        let wanted = run("Conv2D", &attrs, &inputs).unwrap().remove(0);
        let inputs = [Tensor::from_vec([2, 5, 4, 4], x).unwrap(), Tensor::from_vec([3, 2, 2, 6], filter).unwrap()];
        let found = run("Conv2D", &attrs, &inputs).unwrap().remove(0);
        let found = f32s([2, 3, 2, 6], &float(found.as_slice::<i32>().unwrap()));
        assert_eq!(found, wanted);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let filter = |depth: usize| f32s([2, 2, depth, 1], &vec![0.0; 4 * depth]);
        refuses("Conv2D", &attrs("VALID"), &[image(), filter(2)], "not a multiple of input depth of filter (2)");
        refuses("DepthwiseConv2dNative", &attrs("VALID"), &[image(), filter(2)], "same depth: 1 vs 2");
        refuses("Conv2D", &attrs("VALID"), &[f32s([3, 3], &[0.0; 9]), filter(1)], "rank 4");
        let nchw: Vec<_> = attrs("SAME").into_iter().chain([("data_format", Attr::from("NCHW"))]).collect();
        let inputs = [f32s([1, 1, 3, 3], &[0.0; 9]), filter(1)];
        assert_eq!(run("Conv2D", &nchw, &inputs).unwrap_err().code, Code::Unimplemented);
        let sizes = Tensor::from(vec![1i32, i32::MAX, i32::MAX, i32::MAX]);
        refuses("Conv2DBackpropInput", &attrs("SAME"), &[sizes, filter(1), image()], "");
    }
}

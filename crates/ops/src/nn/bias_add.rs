//! `BiasAdd` and `BiasAddGrad`: one number for each channel.

use framework::typed::{NumberKernel, wide_numbers};
use framework::{Grad, GradValue, InferenceContext, KernelBuild, KernelContext, Number, Op, Output, Scope};
use linalg::broadcast::{self, BroadcastPlan};
use linalg::reduce::{ReducePlan, Sum, reduce};
use tensor::{PartialShape, Result, Shape, invalid};

/// All ops of this file.
pub fn ops() -> Vec<Op> {
    vec![
        Op::new("BiasAdd")
            .input("value: T")
            .input("bias: T")
            .output("output: T")
            .attr("T: numbertype")
            .attr("data_format: {'NHWC', 'NCHW'} = 'NHWC'")
            .shape(bias_add_shape)
            .gradient(bias_add_gradient)
            .row_gradient(bias_add_row_gradient)
            .kernel(wide_numbers(|b| Ok(BiasAdd(channels_first(b)?)))),
        Op::new("BiasAddGrad")
            .input("out_backprop: T")
            .output("output: T")
            .attr("T: numbertype")
            .attr("data_format: {'NHWC', 'NCHW'} = 'NHWC'")
            .shape(bias_add_grad_shape)
            .gradient(spread_gradient)
            .kernel(wide_numbers(|b| Ok(BiasAddGrad(channels_first(b)?)))),
    ]
}

/// Adds `bias` to every row of the last dimension.
pub fn bias_add(s: &Scope, value: Output, bias: Output) -> Result<Output> {
    s.op("BiasAdd", &[value, bias])
}

/// Adds `bias` along dimension 1.
pub fn bias_add_nchw(s: &Scope, value: Output, bias: Output) -> Result<Output> {
    s.node("BiasAdd").inputs(&[value, bias]).attr("data_format", "NCHW").output()
}

fn bias_add_gradient(s: &Scope, g: &Grad<'_>) -> Result<Vec<Option<GradValue>>> {
    let format: String = g.attr(s, "data_format")?;
    let db = match g.wanted[1] {
        true => Some(s.node("BiasAddGrad").input(g.dy[0]).attr("data_format", format).output()?.into()),
        false => None,
    };
    Ok(vec![Some(g.dy[0].into()), db])
}

/// The value's gradient stays rows; the bias was added to all rows, and has the sum of these.
fn bias_add_row_gradient(
    s: &Scope,
    g: &Grad<'_>,
    totals: &[Option<GradValue>],
) -> Result<Option<Vec<Option<GradValue>>>> {
    let [Some(total)] = totals else { return Ok(None) };
    let db = if g.wanted[1] { bias_add_gradient(s, &Grad { dy: &[total.dense(s)?], ..*g })?.remove(1) } else { None };
    Ok(Some(vec![Some(*total), db]))
}

/// Every element that a channel's sum was made of has the sum's gradient.
fn spread_gradient(s: &Scope, g: &Grad<'_>) -> Result<Vec<Option<GradValue>>> {
    let shape = s.op("Shape", &[g.inputs[0]])?;
    let format: String = g.attr(s, "data_format")?;
    let mut dy = g.dy[0];
    if format == "NCHW" {
        // The channels, and a one for each dimension behind them.
        let (two, one) = (s.constant([2i32])?, s.constant([1i32])?);
        let behind = s.node("StridedSlice").inputs(&[shape, two, two, one]).attr("end_mask", 1i64).output()?;
        let ones = s.op("Fill", &[s.op("Shape", &[behind])?, s.constant(1i32)?])?;
        let column = s.op("ConcatV2", &[s.constant([-1i32])?, ones, s.constant(0i32)?])?;
        dy = s.op("Reshape", &[dy, column])?;
    }
    Ok(vec![Some(s.op("BroadcastTo", &[dy, shape])?.into())])
}

fn is_channels_first(c: &InferenceContext<'_>) -> Result<bool> {
    Ok(c.attr::<String>("data_format")? == "NCHW")
}

fn channels_first(b: &KernelBuild<'_>) -> Result<bool> {
    Ok(b.attr::<String>("data_format")? == "NCHW")
}

fn bias_add_shape(c: &InferenceContext<'_>) -> Result<Vec<PartialShape>> {
    let value = c.input(0);
    value.with_rank_at_least(2)?;
    let bias = c.require_rank(1, 1)?;
    let Some(dims) = value.dims() else { return Ok(vec![value.clone()]) };
    let mut dims = dims.to_vec();
    let at = if is_channels_first(c)? { 1 } else { dims.len() - 1 };
    match (dims[at], bias.dim(0)) {
        (Some(channels), Some(biases)) if channels != biases => {
            return Err(invalid!(
                "Dimensions must be equal, but are {channels} and {biases}: {biases} biases for an input of {value}"
            ));
        }
        (channels, biases) => dims[at] = channels.or(biases),
    }
    Ok(vec![PartialShape::new(dims)])
}

fn bias_add_grad_shape(c: &InferenceContext<'_>) -> Result<Vec<PartialShape>> {
    c.input(0).with_rank_at_least(2)?;
    let first = is_channels_first(c)?;
    let channels = c.input(0).dims().and_then(|d| if first { d[1] } else { d[d.len() - 1] });
    Ok(vec![PartialShape::new([channels])])
}

/// The input as images, channels and what lies below them.
fn split(shape: &Shape, channels_first: bool) -> Result<[usize; 3]> {
    let dims = shape.dims();
    match dims {
        [images, channels, inner @ ..] if channels_first => Ok([*images, *channels, inner.iter().product()]),
        [outer @ .., channels] if dims.len() >= 2 => Ok([outer.iter().product(), *channels, 1]),
        _ => Err(invalid!("Input tensor must be at least 2D: {shape}")),
    }
}

struct BiasAdd(bool);

impl NumberKernel for BiasAdd {
    fn compute<T: Number>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let [outer, channels, inner] = split(ctx.input(0).shape(), self.0)?;
        let bias = ctx.take(1);
        if bias.shape().rank() != 1 {
            return Err(invalid!("Biases must be 1D: {}", bias.shape()));
        }
        if bias.num_elements() != channels {
            return Err(invalid!(
                "Must provide as many biases as the {} dimension of the input tensor: {} vs. {}",
                if self.0 { "channel" } else { "last" },
                bias.shape(),
                ctx.input(0).shape()
            ));
        }

        let plan = BroadcastPlan::new(&[outer, channels, inner], &[channels, 1])
            .ok_or_else(|| invalid!("the biases do not fit the input"))?;
        let mut x = ctx.take(0);
        if x.is_unique() {
            let mut y = x.into_owned::<T>()?;
            broadcast::update(ctx.pool(), &plan, &mut y, bias.as_slice::<T>()?, T::add);
            return ctx.set_output(0, y);
        }
        let mut y = ctx.allocate::<T>(x.shape().clone())?;
        broadcast::binary(ctx.pool(), &plan, x.as_slice::<T>()?, bias.as_slice::<T>()?, &mut y, T::add);
        ctx.set_output(0, y)
    }
}

struct BiasAddGrad(bool);

impl NumberKernel for BiasAddGrad {
    fn compute<T: Number>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let dims = split(ctx.input(0).shape(), self.0)?;
        let mut sums = ctx.allocate::<T>([dims[1]])?;
        let plan = ReducePlan::new(&dims, &[true, false, true]);
        reduce::<Sum<T>>(ctx.pool(), &plan, ctx.input(0).as_slice::<T>()?, &mut sums);
        ctx.set_output(0, sums)
    }
}

#[cfg(test)]
mod tests {
    use crate::nn::testing::{check, f32s, refuses};
    use framework::Attr;

    #[test]
    fn a_bias_is_added_to_every_row_or_channel() {
        let (x, b) = (f32s([2, 2], &[1.0, 2.0, 3.0, 4.0]), f32s([2], &[10.0, 20.0]));
        check("BiasAdd", &[], &[x, b.clone()], &[f32s([2, 2], &[11.0, 22.0, 13.0, 24.0])]);
        let nchw = [("data_format", Attr::from("NCHW"))];
        let x = f32s([1, 2, 1, 2], &[1.0, 2.0, 3.0, 4.0]);
        check("BiasAdd", &nchw, &[x.clone(), b], &[f32s([1, 2, 1, 2], &[11.0, 12.0, 23.0, 24.0])]);
        check("BiasAddGrad", &nchw, std::slice::from_ref(&x), &[f32s([2], &[3.0, 7.0])]);
        check("BiasAddGrad", &[], &[x], &[f32s([2], &[4.0, 6.0])]);
    }

    #[test]
    fn sizes_that_do_not_fit_are_refused() {
        let x = f32s([2, 2], &[1.0, 2.0, 3.0, 4.0]);
        refuses("BiasAdd", &[], &[x, f32s([3], &[1.0; 3])], "but are 2 and 3");
        refuses("BiasAddGrad", &[], &[f32s([3], &[1.0; 3])], "");
    }
}

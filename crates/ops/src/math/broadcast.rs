//! `BroadcastGradientArgs`: along which axes each of two shapes was repeated to fit the other.
//!
//! [`sum_to_inputs`] is what gradients of broadcasting ops end with.

use framework::gradient::GradValue;
use framework::kernel::function;
use framework::{Grad, InferenceContext, KernelContext, Op, Output, Scope};
use tensor::{DType, PartialShape, Result, Shape, Tensor, invalid};

/// The ops of this file.
pub fn ops() -> Vec<Op> {
    vec![
        Op::new("BroadcastGradientArgs")
            .input("s0: T")
            .input("s1: T")
            .output("r0: T")
            .output("r1: T")
            .attr("T: indextype = int32")
            .shape(shape)
            .value(value)
            .kernel(function(compute))
            .not_differentiable(),
    ]
}

/// The gradients of an op's two inputs, each summed over the axes along which that input was repeated.
pub fn sum_to_inputs(s: &Scope, g: &Grad<'_>, grads: [Option<Output>; 2]) -> Result<Vec<Option<GradValue>>> {
    let known = [s.shape(g.inputs[0])?.known(), s.shape(g.inputs[1])?.known()];
    if let [Some(a), Some(b)] = known {
        let (axes_a, axes_b) = repeated_axes(&a.to_i64s(), &b.to_i64s())?;
        return Ok(vec![
            grads[0].map(|grad| sum_known(s, grad, &a, &axes_a)).transpose()?,
            grads[1].map(|grad| sum_known(s, grad, &b, &axes_b)).transpose()?,
        ]);
    }
    let sizes = [s.op("Shape", &[g.inputs[0]])?, s.op("Shape", &[g.inputs[1]])?];
    let axes = s.node("BroadcastGradientArgs").inputs(&sizes).outputs()?;
    let sum = |i: usize| grads[i].map(|grad| sum_dynamic(s, grad, axes[i], sizes[i])).transpose();
    Ok(vec![sum(0)?, sum(1)?])
}

/// A gradient summed over the axes along which `x` was repeated to get its shape.
pub fn sum_to(s: &Scope, grad: Output, x: Output) -> Result<GradValue> {
    if let (Some(small), Some(large)) = (s.shape(x)?.known(), s.shape(grad)?.known()) {
        let (axes, _) = repeated_axes(&small.to_i64s(), &large.to_i64s())?;
        return sum_known(s, grad, &small, &axes);
    }
    let sizes = s.op("Shape", &[x])?;
    let axes = s.node("BroadcastGradientArgs").input(sizes).input(s.op("Shape", &[grad])?).output()?;
    sum_dynamic(s, grad, axes, sizes)
}

fn sum_dynamic(s: &Scope, grad: Output, axes: Output, sizes: Output) -> Result<GradValue> {
    let sum = s.op("Sum", &[grad, axes])?;
    Ok(s.op("Reshape", &[sum, sizes])?.into())
}

fn sum_known(s: &Scope, grad: Output, shape: &Shape, axes: &[i64]) -> Result<GradValue> {
    if axes.is_empty() || s.shape(grad)?.known().as_ref() == Some(shape) {
        return Ok(grad.into());
    }
    let axes: Vec<i32> = axes.iter().map(|&axis| axis as i32).collect();
    let sum = s.op("Sum", &[grad, s.constant(axes)?])?;
    if s.shape(sum)?.known().as_ref() == Some(shape) {
        return Ok(sum.into());
    }
    Ok(s.op("Reshape", &[sum, s.constant(shape.to_i64s())?])?.into())
}

/// The axes of the common shape along which `a`, and along which `b`, has to be repeated or is missing. An axis of
/// size one on both sides counts for both, unless the shapes are the same.
fn repeated_axes(a: &[i64], b: &[i64]) -> Result<(Vec<i64>, Vec<i64>)> {
    if a == b {
        return Ok((Vec::new(), Vec::new()));
    }
    let rank = a.len().max(b.len());
    let at = |shape: &[i64], axis: usize| (axis + shape.len()).checked_sub(rank).map(|i| shape[i]);
    let (mut axes_a, mut axes_b) = (Vec::new(), Vec::new());
    for axis in 0..rank {
        let (x, y) = (at(a, axis), at(b, axis));
        let (size_x, size_y) = (x.unwrap_or(1), y.unwrap_or(1));
        if size_x != size_y && size_x != 1 && size_y != 1 {
            return Err(invalid!("Incompatible shapes: {a:?} vs. {b:?}"));
        }
        if x.is_none() || size_x == 1 {
            axes_a.push(axis as i64);
        }
        if y.is_none() || size_y == 1 {
            axes_b.push(axis as i64);
        }
    }
    Ok((axes_a, axes_b))
}

fn shape(c: &InferenceContext<'_>) -> Result<Vec<PartialShape>> {
    c.require_rank(0, 1)?;
    c.require_rank(1, 1)?;
    Ok(vec![PartialShape::of_rank(1); 2])
}

fn value(c: &InferenceContext<'_>) -> Option<Vec<Option<Tensor>>> {
    let (a, b) = repeated_axes(&c.input_i64s(0)?, &c.input_i64s(1)?).ok()?;
    Some(vec![Some(axes_tensor(c.input_dtype(0), &a)), Some(axes_tensor(c.input_dtype(0), &b))])
}

fn axes_tensor(dtype: DType, axes: &[i64]) -> Tensor {
    if dtype == DType::I32 {
        Tensor::from(axes.iter().map(|&axis| axis as i32).collect::<Vec<_>>())
    } else {
        Tensor::from(axes.to_vec())
    }
}

fn compute(ctx: &mut KernelContext<'_>) -> Result<()> {
    for i in 0..2 {
        if ctx.input(i).shape().rank() != 1 {
            return Err(invalid!("In[{i}] must be a vector, found shape {}", ctx.input(i).shape()));
        }
    }
    let dtype = ctx.input(0).dtype();
    let (a, b) = repeated_axes(&ctx.input(0).to_i64s()?, &ctx.input(1).to_i64s()?)?;
    ctx.set_output(0, axes_tensor(dtype, &a))?;
    ctx.set_output(1, axes_tensor(dtype, &b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_of_one_are_summed_and_missing_ones_too() {
        let cases: &[(&[i64], &[i64], &[i64], &[i64])] = &[
            (&[4, 5], &[4, 5], &[], &[]),
            (&[2, 3], &[3], &[], &[0]),
            (&[], &[2], &[0], &[]),
            (&[2, 1, 3], &[4, 1], &[1], &[0, 2]),
        ];
        for (a, b, want_a, want_b) in cases {
            assert_eq!(repeated_axes(a, b).unwrap(), (want_a.to_vec(), want_b.to_vec()), "{a:?} {b:?}");
        }
        assert!(repeated_axes(&[2], &[3]).is_err());
    }
}

//! `BroadcastGradientArgs`: along which axes each of two shapes was repeated to fit the other.
//!
//! [`sum_to_inputs`] is what gradients of broadcasting ops end with.

use framework::gradient::GradValue;
use framework::kernel::function;
use framework::{Grad, InferenceContext, KernelContext, Op, Output, Scope};
use tensor::{DType, PartialShape, Result, Tensor, invalid};

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
    let (a, b) = (s.shape(g.inputs[0])?, s.shape(g.inputs[1])?);
    if let Some((axes_a, axes_b)) = axes_known_early(&a, &b) {
        return Ok(vec![
            grads[0].map(|grad| sum_over(s, grad, g.inputs[0], &axes_a)).transpose()?,
            grads[1].map(|grad| sum_over(s, grad, g.inputs[1], &axes_b)).transpose()?,
        ]);
    }
    let sizes = [s.op("Shape", &[g.inputs[0]])?, s.op("Shape", &[g.inputs[1]])?];
    let axes = s.node("BroadcastGradientArgs").inputs(&sizes).outputs()?;
    let sum = |i: usize| grads[i].map(|grad| sum_dynamic(s, grad, axes[i], sizes[i])).transpose();
    Ok(vec![sum(0)?, sum(1)?])
}

/// A gradient summed over the axes along which `x` was repeated to get its shape.
pub fn sum_to(s: &Scope, grad: Output, x: Output) -> Result<GradValue> {
    if let Some((axes, _)) = axes_known_early(&s.shape(x)?, &s.shape(grad)?) {
        return sum_over(s, grad, x, &axes);
    }
    let sizes = s.op("Shape", &[x])?;
    let axes = s.node("BroadcastGradientArgs").input(sizes).input(s.op("Shape", &[grad])?).output()?;
    sum_dynamic(s, grad, axes, sizes)
}

fn sum_dynamic(s: &Scope, grad: Output, axes: Output, sizes: Output) -> Result<GradValue> {
    let sum = s.op("Sum", &[grad, axes])?;
    Ok(s.op("Reshape", &[sum, sizes])?.into())
}

fn sum_over(s: &Scope, grad: Output, x: Output, axes: &[i32]) -> Result<GradValue> {
    if axes.is_empty() {
        return Ok(grad.into());
    }
    let sum = s.op("Sum", &[grad, s.constant(axes.to_vec())?])?;
    let (have, want) = (s.shape(sum)?, s.shape(x)?);
    if have.rank().is_some() && have.rank() == want.rank() {
        return Ok(sum.into());
    }
    Ok(s.op("Reshape", &[sum, s.sizes(x)?.output()?])?.into())
}

/// The axes of the common shape over which the gradients of `a` and `b` are to be summed, where that can be told
/// from what is known while the graph is built.
fn axes_known_early(a: &PartialShape, b: &PartialShape) -> Option<(Vec<i32>, Vec<i32>)> {
    let (a, b) = (a.dims()?, b.dims()?);
    let rank = a.len().max(b.len());
    let (mut axes_a, mut axes_b) = (Vec::new(), Vec::new());
    for axis in 0..rank {
        let at = |dims: &[Option<usize>]| (axis + dims.len()).checked_sub(rank).map(|i| dims[i]);
        // An axis that is missing is always summed. One of size 1 is, unless it is so on both sides: then the sum
        // would change nothing. If the size of the other side is unknown the sum is right whatever it turns out to be.
        match (at(a), at(b)) {
            (None, _) => axes_a.push(axis as i32),
            (_, None) => axes_b.push(axis as i32),
            (Some(Some(x)), Some(Some(y))) if x == y => {}
            (Some(Some(1)), _) => axes_a.push(axis as i32),
            (_, Some(Some(1))) => axes_b.push(axis as i32),
            _ => return None,
        }
    }
    Some((axes_a, axes_b))
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
        let check = |a: &[i64], b: &[i64], want_a: &[i64], want_b: &[i64]| {
            assert_eq!(repeated_axes(a, b).unwrap(), (want_a.to_vec(), want_b.to_vec()), "{a:?} {b:?}");
        };
        check(&[4, 5], &[4, 5], &[], &[]);
        check(&[2, 3], &[3], &[], &[0]);
        check(&[], &[2], &[0], &[]);
        check(&[2, 1, 3], &[4, 1], &[1], &[0, 2]);
        assert!(repeated_axes(&[2], &[3]).is_err());
    }

    #[test]
    fn a_bias_is_summed_over_an_unknown_batch() {
        let batch = PartialShape::new([None, Some(10)]);
        assert_eq!(axes_known_early(&batch, &[10].into()), Some((vec![], vec![0])));
        assert_eq!(axes_known_early(&batch, &PartialShape::scalar()), Some((vec![], vec![0, 1])));
        assert_eq!(axes_known_early(&[1, 10].into(), &batch), Some((vec![0], vec![])));
        assert_eq!(axes_known_early(&batch, &batch), None, "either may turn out to be 1");
        assert_eq!(axes_known_early(&batch, &[7, 10].into()), None);
    }
}

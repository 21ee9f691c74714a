//! `Split` and `SplitV`: a tensor cut into pieces along an axis.

use super::{axis_in, build, index, indices};
use framework::kernel::KernelContext;
use framework::typed::{Item, MoveKernel, moves};
use framework::{Grad, InferenceContext, Op, Output, Scope};
use tensor::{Error, PartialShape, Result, Shape, Tensor, invalid};

pub fn ops() -> Vec<Op> {
    vec![
        Op::new("Split")
            .input("split_dim: int32")
            .input("value: T")
            .output("output: num_split*T")
            .attr("num_split: int >= 1")
            .attr("T: type")
            .shape(split_shape)
            .gradient(|s, g| Ok(vec![None, Some(joined(s, g, g.inputs[0])?.into())]))
            .kernel(moves(|b| Ok(Split { count: b.node.outputs.len() }))),
        Op::new("SplitV")
            .input("value: T")
            .input("size_splits: Tlen")
            .input("split_dim: int32")
            .output("output: num_split*T")
            .attr("num_split: int >= 1")
            .attr("T: type")
            .attr("Tlen: {int8, int32, int64} = int64")
            .shape(split_v_shape)
            .gradient(|s, g| Ok(vec![Some(joined(s, g, g.inputs[2])?.into()), None, None]))
            .kernel(moves(|_| Ok(SplitV))),
    ]
}

/// Equal pieces along an axis.
pub fn split(s: &Scope, axis: i32, value: Output, count: usize) -> Result<Vec<Output>> {
    s.node("Split").inputs(&[s.constant(axis)?, value]).attr("num_split", count as i64).outputs()
}

fn joined(s: &Scope, g: &Grad<'_>, axis: Output) -> Result<Output> {
    match g.dy {
        [one] => Ok(*one),
        parts => s.node("ConcatV2").inputs(parts).input(axis).output(),
    }
}

fn bad_axis(axis: i64, rank: usize) -> Error {
    invalid!("-input rank(-{rank}) <= split_dim < input rank ({rank}), but got {axis}")
}

fn uneven(axis: usize, size: usize, count: usize) -> Error {
    invalid!(
        "Number of ways to split should evenly divide the split dimension, but got split_dim {axis} (size = {size}) and \
         num_split {count}"
    )
}

fn split_shape(c: &InferenceContext<'_>) -> Result<Vec<PartialShape>> {
    c.require_scalar(0)?;
    let count = c.num_outputs();
    let (Some(dims), axis) = (c.input(1).dims(), c.input_i64(0)) else {
        return Ok(vec![PartialShape::unknown(); count]);
    };
    let Some(axis) = axis else { return Ok(vec![PartialShape::of_rank(dims.len()); count]) };
    let axis = axis_in(axis, dims.len()).ok_or_else(|| bad_axis(axis, dims.len()))?;
    let mut dims = dims.to_vec();
    if let Some(size) = dims[axis] {
        if size % count != 0 {
            return Err(uneven(axis, size, count));
        }
        dims[axis] = Some(size / count);
    }
    Ok(vec![PartialShape::new(dims); count])
}

fn split_v_shape(c: &InferenceContext<'_>) -> Result<Vec<PartialShape>> {
    c.require_rank(1, 1)?;
    c.require_scalar(2)?;
    let count = c.num_outputs();
    let Some(dims) = c.input(0).dims() else { return Ok(vec![PartialShape::unknown(); count]) };
    let Some(axis) = c.input_i64(2) else { return Ok(vec![PartialShape::of_rank(dims.len()); count]) };
    let axis = axis_in(axis, dims.len()).ok_or_else(|| bad_axis(axis, dims.len()))?;
    let sizes: Vec<Option<usize>> = match (c.input_i64s(1), dims[axis]) {
        (Some(sizes), Some(whole)) => split_sizes(&sizes, whole, count)?.into_iter().map(Some).collect(),
        (Some(sizes), None) if sizes.len() == count => sizes.iter().map(|&s| usize::try_from(s).ok()).collect(),
        _ => vec![None; count],
    };
    let piece = |size: Option<usize>| {
        let mut dims = dims.to_vec();
        dims[axis] = size;
        PartialShape::new(dims)
    };
    Ok(sizes.into_iter().map(piece).collect())
}

/// The sizes of the pieces, with -1 replaced by what is left over.
fn split_sizes(sizes: &[i64], whole: usize, count: usize) -> Result<Vec<usize>> {
    if sizes.len() != count {
        return Err(invalid!(
            "size of the split_tensor must be 1-D and have the same elements as outputs got {} elements for {count} outputs",
            sizes.len()
        ));
    }
    let mut rest = None;
    let mut sum = 0usize;
    for (i, &size) in sizes.iter().enumerate() {
        match size {
            -1 if rest.is_some() => {
                return Err(invalid!("Only one dimensions can have a value of -1. Second one found at dimension {i}"));
            }
            -1 => rest = Some(i),
            0.. => sum = sum.saturating_add(size as usize),
            _ => return Err(invalid!("Split size at index {i} must be >= 0. Got: {size}")),
        }
    }
    if sum > whole || (rest.is_none() && sum != whole) {
        return Err(invalid!(
            "Determined shape must either match input shape along split_dim exactly if fully specified, or be less than \
             the size of the input along split_dim if not fully specified.  Got: {sum}"
        ));
    }
    Ok((0..count).map(|i| if rest == Some(i) { whole - sum } else { sizes[i] as usize }).collect())
}

struct Split {
    count: usize,
}

impl MoveKernel for Split {
    fn compute<I: Item>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let (axis, value) = (ctx.input(0), ctx.input(1));
        if !axis.shape().is_scalar() {
            return Err(invalid!("split_dim must be a scalar but has rank {}", axis.shape().rank()));
        }
        let (axis, rank) = (index(axis, "split_dim")?, value.shape().rank());
        let axis = axis_in(axis, rank).ok_or_else(|| bad_axis(axis, rank))?;
        let size = value.dims()[axis];
        if size % self.count != 0 {
            return Err(uneven(axis, size, self.count));
        }
        let sizes = vec![size / self.count; self.count];
        cut::<I>(ctx, 1, axis, &sizes)
    }
}

struct SplitV;

impl MoveKernel for SplitV {
    fn compute<I: Item>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let (value, sizes, axis) = (ctx.input(0), ctx.input(1), index(ctx.input(2), "split_dim")?);
        let rank = value.shape().rank();
        let axis = axis_in(axis, rank).ok_or_else(|| bad_axis(axis, rank))?;
        if sizes.shape().rank() != 1 {
            return Err(invalid!("size of the split_tensor must be 1-D, found shape {}", sizes.shape()));
        }
        let sizes = split_sizes(&indices(sizes)?, value.dims()[axis], ctx.num_outputs())?;
        cut::<I>(ctx, 0, axis, &sizes)
    }
}

fn cut<I: Item>(ctx: &mut KernelContext<'_>, input: usize, axis: usize, sizes: &[usize]) -> Result<()> {
    if sizes.len() == 1 {
        let value = ctx.take(input);
        return ctx.set_output(0, value);
    }
    let value = ctx.input(input);
    let (before, after) = (&value.dims()[..axis], &value.dims()[axis + 1..]);
    let row: usize = after.iter().product();
    let shape = |size: usize| -> Shape { before.iter().copied().chain([size]).chain(after.iter().copied()).collect() };
    let parts = sizes.iter().map(|&size| (shape(size), size * row)).collect();
    let parts = cut_rows::<I>(value, before.iter().product(), parts)?;
    for (i, part) in parts.into_iter().enumerate() {
        ctx.set_output(i, part)?;
    }
    Ok(())
}

/// Pieces of each of the tensor's rows, one after the other; each piece has a shape and a length within a row.
pub(super) fn cut_rows<I: Item>(value: &Tensor, rows: usize, parts: Vec<(Shape, usize)>) -> Result<Vec<Tensor>> {
    let items = I::items(value)?;
    let whole: usize = parts.iter().map(|p| p.1).sum();
    let mut start = 0;
    let cut = parts.into_iter().map(|(shape, len)| {
        let from = start;
        start += len;
        build::<I>(value.dtype(), shape, |out| {
            if len > 0 {
                for (row, to) in out.chunks_exact_mut(len).enumerate().take(rows) {
                    to.clone_from_slice(&items[row * whole + from..][..len]);
                }
            }
            Ok(())
        })
    });
    cut.collect()
}

#[cfg(test)]
mod tests {
    use crate::array::testing::eval;
    use tensor::Tensor;

    #[test]
    fn pieces_are_cut_in_order() {
        let x = Tensor::from([[1i32, 2, 3, 4], [5, 6, 7, 8]]);
        let cut = eval("Split", &[Tensor::scalar(1i32), x.clone()], &[("num_split", 2i64.into())]).unwrap();
        assert_eq!(cut, [Tensor::from([[1i32, 2], [5, 6]]), Tensor::from([[3i32, 4], [7, 8]])]);
        assert!(eval("Split", &[Tensor::scalar(1i32), x.clone()], &[("num_split", 3i64.into())]).is_err());
        assert!(eval("Split", &[Tensor::scalar(2i32), x.clone()], &[("num_split", 2i64.into())]).is_err());
        let by = |sizes: Vec<i64>| {
            let count = sizes.len() as i64;
            eval("SplitV", &[x.clone(), Tensor::from(sizes), Tensor::scalar(-1i32)], &[("num_split", count.into())])
        };
        assert_eq!(by(vec![1, -1]).unwrap(), [Tensor::from([[1i32], [5]]), Tensor::from([[2i32, 3, 4], [6, 7, 8]])]);
        assert!(by(vec![-1, -1]).is_err());
        assert!(by(vec![1, 1]).is_err());
        assert!(by(vec![9, -1]).is_err());
        assert!(by(vec![-2, 6]).is_err());
    }
}

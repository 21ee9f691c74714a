//! `Slice`: a block of a tensor.

use super::{Indices, indices, moved_value, small, strided_tensor};
use framework::kernel::KernelContext;
use framework::typed::{Item, MoveKernel, moves};
use framework::{Grad, GradValue, InferenceContext, Op, Output, Pool, Scope};
use linalg::transpose::Strided;
use tensor::{PartialShape, Result, Shape, Tensor, invalid};

pub fn ops() -> Vec<Op> {
    vec![
        Op::new("Slice")
            .input("input: T")
            .input("begin: Index")
            .input("size: Index")
            .output("output: T")
            .attr("T: type")
            .attr("Index: indextype")
            .shape(slice_shape)
            .value(|c| {
                let (x, begin, size) = (c.input_value(0)?, c.input_i64s(1)?, c.input_i64s(2)?);
                let shape = block(x.dims(), &begin, &size).ok()?;
                let pool = Pool::inline();
                Some(vec![moved_value!(x.dtype(), cut(&pool, x, &begin, shape)).and_then(small)])
            })
            .gradient(slice_gradient)
            .kernel(moves(|_| Ok(Slice))),
    ]
}

/// The block of this size that begins there; a size of -1 reaches to the end.
pub fn slice(s: &Scope, x: Output, begin: Output, size: Output) -> Result<Output> {
    s.op("Slice", &[x, begin, size])
}

/// The gradient in its place, zeros around it.
fn slice_gradient(s: &Scope, g: &Grad<'_>) -> Result<Vec<Option<GradValue>>> {
    let (x, before) = (g.inputs[0], g.inputs[1]);
    let index_type = s.dtype(before)?;
    let shape_of = |of: Output| s.node("Shape").input(of).attr("out_type", index_type).output();
    let around = s.op("Sub", &[shape_of(x)?, shape_of(g.outputs[0])?])?;
    let after = s.op("Sub", &[around, before])?;
    let paddings = super::pack(s, &[before, after], 1)?;
    Ok(vec![Some(s.op("Pad", &[g.dy[0], paddings])?.into()), None, None])
}

fn slice_shape(c: &InferenceContext<'_>) -> Result<Vec<PartialShape>> {
    c.require_rank(1, 1)?;
    c.require_rank(2, 1)?;
    let counts = [c.input(0).rank(), c.input(1).dim(0), c.input(2).dim(0)];
    let Some(rank) = counts.into_iter().flatten().next() else { return Ok(vec![PartialShape::unknown()]) };
    if let Some(other) = counts.into_iter().flatten().find(|&n| n != rank) {
        return Err(invalid!("Slice: the input has {rank} dimensions, begin and size must too, found {other}"));
    }
    let (begin, size) = (c.input_i64s(1), c.input_i64s(2));
    if let (Some(shape), Some(begin), Some(size)) = (c.input(0).known(), &begin, &size) {
        return Ok(vec![block(shape.dims(), begin, size)?.into()]);
    }
    let Some(size) = size else { return Ok(vec![PartialShape::of_rank(rank)]) };
    let dims = (0..rank).map(|i| match (size[i], &begin) {
        (-1, Some(begin)) => c.input(0).dim(i)?.checked_sub(usize::try_from(begin[i]).ok()?),
        (size, _) => usize::try_from(size).ok(),
    });
    Ok(vec![PartialShape::new(dims)])
}

/// The shape of the block, after checking that it lies within the tensor.
fn block(dims: &[usize], begin: &[i64], size: &[i64]) -> Result<Shape> {
    if begin.len() != dims.len() || size.len() != dims.len() {
        return Err(invalid!(
            "Expected begin and size arguments to be 1-D tensors of size {}, but got sizes {} and {} instead.",
            dims.len(),
            begin.len(),
            size.len()
        ));
    }
    let mut shape = Indices::with_capacity(dims.len());
    for (i, &dim) in dims.iter().enumerate() {
        let dim = dim as i64;
        if !(0..=dim).contains(&begin[i]) {
            return Err(invalid!("Expected begin[{i}] in [0, {dim}], but got {}", begin[i]));
        }
        let left = dim - begin[i];
        match size[i] {
            -1 => shape.push(left),
            size if (0..=left).contains(&size) => shape.push(size),
            size => return Err(invalid!("Expected size[{i}] in [0, {left}], but got {size}")),
        }
    }
    Shape::checked(shape)
}

struct Slice;

impl MoveKernel for Slice {
    fn compute<I: Item>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let (x, begin, size) = (ctx.input(0), ctx.input(1), ctx.input(2));
        if begin.shape().rank() != 1 || size.shape().rank() != 1 {
            return Err(invalid!(
                "Expected begin and size arguments to be 1-D tensors of size {}, but got shapes {} and {} instead.",
                x.shape().rank(),
                begin.shape(),
                size.shape()
            ));
        }
        let begin = indices(begin)?;
        let shape = block(x.dims(), &begin, &indices(size)?)?;
        if shape == *x.shape() {
            let x = ctx.take(0);
            return ctx.set_output(0, x);
        }
        let y = cut::<I>(ctx.pool(), x, &begin, shape)?;
        ctx.set_output(0, y)
    }
}

fn cut<I: Item>(pool: &Pool, x: &Tensor, begin: &[i64], shape: Shape) -> Result<Tensor> {
    let mut from = Strided::dense(x.dims());
    from.start = begin.iter().zip(&from.strides).map(|(&b, &stride)| b as usize * stride as usize).sum();
    strided_tensor::<I>(pool, x, shape, &from)
}

#[cfg(test)]
mod tests {
    use crate::array::testing::eval;
    use tensor::Tensor;

    #[test]
    fn a_block_is_cut_out() {
        let x = Tensor::from([[1i32, 2, 3], [4, 5, 6]]);
        let cut = |begin: Vec<i32>, size: Vec<i32>| eval("Slice", &[x.clone(), begin.into(), size.into()], &[]);
        assert_eq!(cut(vec![0, 1], vec![-1, 2]).unwrap(), [Tensor::from([[2i32, 3], [5, 6]])]);
        assert!(cut(vec![0, 0], vec![2, 3]).unwrap()[0] == x);
        assert_eq!(cut(vec![2, 3], vec![0, -1]).unwrap()[0].dims(), [0, 0]);
        assert!(cut(vec![0, 1], vec![1, 3]).unwrap_err().message.contains("Expected size[1] in [0, 2], but got 3"));
        assert!(cut(vec![-1, 1], vec![1, 1]).is_err());
        assert!(cut(vec![0], vec![1]).is_err());
        assert!(cut(vec![0, 1], vec![-2, 1]).is_err());
    }
}

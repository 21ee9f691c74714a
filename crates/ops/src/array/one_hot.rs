//! `OneHot`: each index as a vector that is "on" at that place and "off" everywhere else.

use super::{axis_in, build, index};
use framework::kernel::KernelContext;
use framework::typed::{Item, MoveKernel, moves};
use framework::{InferenceContext, Op, Output, Scope};
use tensor::{Error, PartialShape, Result, Shape, invalid};

pub fn ops() -> Vec<Op> {
    vec![
        Op::new("OneHot")
            .input("indices: TI")
            .input("depth: int32")
            .input("on_value: T")
            .input("off_value: T")
            .output("output: T")
            .attr("axis: int = -1")
            .attr("T: type")
            .attr("TI: {uint8, int8, int32, int64} = int64")
            .shape(one_hot_shape)
            .not_differentiable()
            .kernel(moves(|b| Ok(OneHot { axis: b.attr("axis")? }))),
    ]
}

/// Each index as a vector of length `depth`, along a new last axis.
pub fn one_hot(s: &Scope, indices: Output, depth: i32, on: Output, off: Output) -> Result<Output> {
    s.op("OneHot", &[indices, s.constant(depth)?, on, off])
}

/// Only -1 counts from the end.
fn new_axis(axis: i64, rank: usize) -> Result<usize> {
    let found = if axis < -1 { None } else { axis_in(axis, rank + 1) };
    found.ok_or_else(|| invalid!("Expected axis to be -1 or between [0, {}).  But received: {axis}", rank + 1))
}

fn negative(depth: i64) -> Error {
    invalid!("depth must be non-negative, got: {depth}")
}

fn one_hot_shape(c: &InferenceContext<'_>) -> Result<Vec<PartialShape>> {
    for input in 1..4 {
        c.require_scalar(input)?;
    }
    let Some(dims) = c.input(0).dims() else { return Ok(vec![PartialShape::unknown()]) };
    let depth = c.input_i64(1).map(|d| usize::try_from(d).map_err(|_| negative(d))).transpose()?;
    let mut dims = dims.to_vec();
    dims.insert(new_axis(c.attr("axis")?, dims.len())?, depth);
    Ok(vec![PartialShape::new(dims)])
}

struct OneHot {
    axis: i64,
}

impl MoveKernel for OneHot {
    fn compute<I: Item>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let (indices, depth, on, off) = (ctx.input(0), ctx.input(1), ctx.input(2), ctx.input(3));
        for (name, value) in [("depth", depth), ("on_value", on), ("off_value", off)] {
            if !value.shape().is_scalar() {
                return Err(invalid!("{name} must be a scalar, but got: {}", value.shape()));
            }
        }
        let depth = index(depth, "depth")?;
        let depth = usize::try_from(depth).map_err(|_| negative(depth))?;
        let axis = new_axis(self.axis, indices.shape().rank())?;
        let (before, after) = indices.dims().split_at(axis);
        let sizes = before.iter().copied().chain([depth]).chain(after.iter().copied());
        let shape = Shape::checked(sizes.map(|d| d as i64))?;

        let numbers = indices.to_i64s()?;
        let columns: usize = after.iter().product();
        let (on, off) = (&I::items(on)?[0], &I::items(off)?[0]);
        let y = build::<I>(ctx.input(2).dtype(), shape, |out| {
            let block = depth * columns;
            ctx.pool().for_each_row(out, block, (1usize << 14).div_ceil(block.max(1)), &|first, part| {
                part.fill(off.clone());
                for (row, out) in part.chunks_exact_mut(block).enumerate() {
                    for (column, &number) in numbers[(first + row) * columns..][..columns].iter().enumerate() {
                        if let Some(at) = usize::try_from(number).ok().filter(|&at| at < depth) {
                            out[at * columns + column] = on.clone();
                        }
                    }
                }
            });
            Ok(())
        })?;
        ctx.set_output(0, y)
    }
}

#[cfg(test)]
mod tests {
    use crate::array::testing::eval;
    use tensor::Tensor;

    #[test]
    fn indices_become_vectors() {
        let hot = |indices: Tensor, depth: i32, axis: i64| {
            let inputs = [indices, Tensor::scalar(depth), Tensor::scalar(1i32), Tensor::scalar(0i32)];
            eval("OneHot", &inputs, &[("axis", axis.into())])
        };
        let indices = Tensor::from([1i64, -1, 7, 0]);
        let want = Tensor::from([[0i32, 1], [0, 0], [0, 0], [1, 0]]);
        assert_eq!(hot(indices.clone(), 2, -1).unwrap(), [want]);
        assert_eq!(hot(indices.clone(), 2, 0).unwrap(), [Tensor::from([[0i32, 0, 0, 1], [1, 0, 0, 0]])]);
        assert_eq!(hot(indices.clone(), 0, -1).unwrap()[0].dims(), [4, 0]);
        assert_eq!(hot(Tensor::scalar(2u8), 3, -1).unwrap(), [Tensor::from([0i32, 0, 1])]);
        assert!(hot(indices.clone(), -1, -1).is_err());
        assert!(hot(indices.clone(), 2, 2).is_err());
        assert!(hot(indices, 2, -2).is_err());
    }
}

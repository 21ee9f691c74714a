//! `Pack` and `Unpack`: tensors stacked along a new axis, and taken apart again.

use super::concat::join_rows;
use super::split::cut_rows;
use super::{axis_in, build, moved_value, small};
use framework::gradient::dense;
use framework::kernel::KernelContext;
use framework::typed::{Item, MoveKernel, moves};
use framework::{InferenceContext, Op, Output, Pool, Scope};
use smallvec::SmallVec;
use tensor::{Error, PartialShape, Result, Shape, Tensor, invalid};

pub fn ops() -> Vec<Op> {
    vec![
        Op::new("Pack")
            .input("values: N*T")
            .output("output: T")
            .attr("N: int >= 1")
            .attr("T: type")
            .attr("axis: int = 0")
            .shape(pack_shape)
            .value(|c| {
                let parts: Vec<&Tensor> = (0..c.num_inputs()).map(|i| c.input_value(i)).collect::<Option<_>>()?;
                let (pool, axis): (Pool, i64) = (Pool::inline(), c.attr("axis").ok()?);
                Some(vec![moved_value!(parts[0].dtype(), packed(&pool, &parts, axis)).and_then(small)])
            })
            .gradient(|s, g| {
                let axis: i64 = g.attr(s, "axis")?;
                dense(unpack(s, g.dy[0], g.inputs.len(), axis)?)
            })
            .kernel(moves(|b| Ok(Pack { axis: b.attr("axis")? }))),
        Op::new("Unpack")
            .input("value: T")
            .output("output: num*T")
            .attr("num: int >= 0")
            .attr("T: type")
            .attr("axis: int = 0")
            .shape(unpack_shape)
            .gradient(|s, g| dense([pack(s, g.dy, g.attr(s, "axis")?)?]))
            .kernel(moves(|b| Ok(Unpack { axis: b.attr("axis")?, num: b.node.outputs.len() }))),
    ]
}

/// These tensors stacked along a new axis.
pub fn pack(s: &Scope, values: &[Output], axis: i64) -> Result<Output> {
    s.node("Pack").inputs(values).attr("axis", axis).output()
}

/// The tensors that are stacked along an axis of length `num`.
pub fn unpack(s: &Scope, value: Output, num: usize, axis: i64) -> Result<Vec<Output>> {
    s.node("Unpack").input(value).attr("num", num as i64).attr("axis", axis).outputs()
}

fn bad_axis(axis: i64, rank: usize) -> Error {
    invalid!("axis = {axis} not in [{}, {rank})", -(rank as i64))
}

fn pack_shape(c: &InferenceContext<'_>) -> Result<Vec<PartialShape>> {
    let mut shape = c.input(0).clone();
    for i in 1..c.num_inputs() {
        shape = shape.merge(c.input(i)).map_err(|_| {
            invalid!(
                "Shapes of all inputs must match: values[0].shape = {} != values[{i}].shape = {}",
                c.input(0),
                c.input(i)
            )
        })?;
    }
    let Some(dims) = shape.dims() else { return Ok(vec![PartialShape::unknown()]) };
    let axis: i64 = c.attr("axis")?;
    let mut dims = dims.to_vec();
    let axis = axis_in(axis, dims.len() + 1).ok_or_else(|| bad_axis(axis, dims.len() + 1))?;
    dims.insert(axis, Some(c.num_inputs()));
    Ok(vec![PartialShape::new(dims)])
}

fn unpack_shape(c: &InferenceContext<'_>) -> Result<Vec<PartialShape>> {
    let Some(dims) = c.input(0).dims() else { return Ok(vec![PartialShape::unknown(); c.num_outputs()]) };
    let axis: i64 = c.attr("axis")?;
    let mut dims = dims.to_vec();
    let axis = axis_in(axis, dims.len()).ok_or_else(|| bad_axis(axis, dims.len()))?;
    if dims.remove(axis).is_some_and(|d| d != c.num_outputs()) {
        return Err(bad_num(axis, c.num_outputs(), c.input(0)));
    }
    Ok(vec![PartialShape::new(dims); c.num_outputs()])
}

fn bad_num(axis: usize, num: usize, shape: impl std::fmt::Display) -> Error {
    invalid!("Input shape axis {axis} must equal {num}, got shape {shape}")
}

struct Pack {
    axis: i64,
}

impl MoveKernel for Pack {
    fn compute<I: Item>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let parts: SmallVec<[&Tensor; 8]> = ctx.input_list(0..ctx.num_inputs()).collect();
        let y = packed::<I>(ctx.pool(), &parts, self.axis)?;
        drop(parts);
        ctx.set_output(0, y)
    }
}

fn packed<I: Item>(pool: &Pool, parts: &[&Tensor], axis: i64) -> Result<Tensor> {
    let first = parts[0].shape();
    if let Some(i) = parts.iter().position(|p| p.shape() != first) {
        return Err(invalid!(
            "Shapes of all inputs must match: values[0].shape = {first} != values[{i}].shape = {}",
            parts[i].shape()
        ));
    }
    let rank = first.rank() + 1;
    let axis = axis_in(axis, rank).ok_or_else(|| bad_axis(axis, rank))?;
    let (before, after) = first.dims().split_at(axis);
    let sizes = before.iter().copied().chain([parts.len()]).chain(after.iter().copied());
    let shape = Shape::checked(sizes.map(|d| d as i64))?;

    if let [one] = parts {
        return (*one).clone().reshaped(shape);
    }
    let slices: SmallVec<[&[I]; 8]> = parts.iter().map(|p| I::items(p)).collect::<Result<_>>()?;
    build::<I>(parts[0].dtype(), shape, |out| {
        join_rows(pool, &slices, before.iter().product(), out);
        Ok(())
    })
}

struct Unpack {
    axis: i64,
    num: usize,
}

impl MoveKernel for Unpack {
    fn compute<I: Item>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let value = ctx.input(0);
        let rank = value.shape().rank();
        let axis = axis_in(self.axis, rank).ok_or_else(|| bad_axis(self.axis, rank))?;
        if value.dims()[axis] != self.num {
            return Err(bad_num(axis, self.num, value.shape()));
        }
        let (before, after) = (&value.dims()[..axis], &value.dims()[axis + 1..]);
        let shape: Shape = before.iter().chain(after).copied().collect();
        let (rows, row) = (before.iter().product(), after.iter().product());

        let parts = vec![(shape, row); self.num];
        let parts = cut_rows::<I>(value, rows, parts)?;
        for (i, part) in parts.into_iter().enumerate() {
            ctx.set_output(i, part)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::array::testing::eval;
    use tensor::Tensor;

    #[test]
    fn stacking_and_taking_apart_are_opposites() {
        let parts = [Tensor::from([1i32, 2, 3]), Tensor::from([4i32, 5, 6])];
        for (axis, want) in
            [(0i64, Tensor::from([[1i32, 2, 3], [4, 5, 6]])), (-1, Tensor::from([[1i32, 4], [2, 5], [3, 6]]))]
        {
            let stacked = eval("Pack", &parts, &[("axis", axis.into())]).unwrap();
            assert_eq!(stacked, [want]);
            let apart = eval("Unpack", &stacked, &[("num", 2i64.into()), ("axis", axis.into())]).unwrap();
            assert_eq!(apart, parts);
        }
        assert!(eval("Pack", &parts, &[("axis", 2i64.into())]).is_err());
        assert!(eval("Pack", &[Tensor::from([1i32]), Tensor::scalar(1i32)], &[]).is_err());
        assert!(eval("Unpack", &parts[..1], &[("num", 2i64.into())]).is_err());
        assert!(eval("Unpack", &[Tensor::scalar(1i32)], &[("num", 1i64.into())]).is_err());
    }

    #[test]
    fn scalars_become_a_vector() {
        let words = eval("Pack", &[Tensor::from("a"), Tensor::from("b")], &[]).unwrap();
        assert_eq!(words, [Tensor::from(["a", "b"])]);
        assert_eq!(eval("Pack", &[Tensor::from("a")], &[]).unwrap(), [Tensor::from(["a"])]);
    }
}

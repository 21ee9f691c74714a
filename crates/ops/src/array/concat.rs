//! `ConcatV2` and `ConcatOffset`: tensors joined along an axis, and where each of them begins.

use super::{Indices, axis_in, build, index, indices, moved_value, small};
use framework::kernel::kernel;
use framework::typed::{Item, MoveKernel, moves};
use framework::{Grad, GradValue, IndexedSlices, InferenceContext, Kernel, KernelContext, Op, Output, Pool, Scope};
use smallvec::SmallVec;
use tensor::{DType, Error, PartialShape, Result, Shape, Tensor, invalid};

pub fn ops() -> Vec<Op> {
    vec![
        Op::new("ConcatV2")
            .input("values: N*T")
            .input("axis: Tidx")
            .output("output: T")
            .attr("N: int >= 2")
            .attr("T: type")
            .attr("Tidx: indextype = int32")
            .shape(concat_shape)
            .value(|c| {
                let parts: Vec<&Tensor> = (0..c.num_inputs() - 1).map(|i| c.input_value(i)).collect::<Option<_>>()?;
                let (pool, axis) = (Pool::inline(), c.input_i64(c.num_inputs() - 1)?);
                Some(vec![moved_value!(parts[0].dtype(), joined(&pool, &parts, axis)).and_then(small)])
            })
            .gradient(concat_gradient)
            .row_gradient(concat_row_gradient)
            .kernel(moves(|_| Ok(Concat))),
        Op::new("ConcatOffset")
            .input("concat_dim: int32")
            .input("shape: N*shape_type")
            .output("offset: N*shape_type")
            .attr("N: int >= 2")
            .attr("shape_type: indextype = int32")
            .shape(|c| Ok((1..c.num_inputs()).map(|i| c.input(i).clone()).collect()))
            .not_differentiable()
            .kernel(kernel(|b| Ok(ConcatOffset(b.dtype("shape_type")?)))),
    ]
}

/// These tensors joined along an axis; a single one is itself.
pub fn concat(s: &Scope, parts: &[Output], axis: i32) -> Result<Output> {
    match parts {
        [one] => Ok(*one),
        _ => s.node("ConcatV2").inputs(parts).input(s.constant(axis)?).output(),
    }
}

fn concat_shape(c: &InferenceContext<'_>) -> Result<Vec<PartialShape>> {
    let count = c.num_inputs() - 1;
    let known_rank = (0..count).find_map(|i| c.input(i).rank());
    let Some(rank) = known_rank else { return Ok(vec![PartialShape::unknown()]) };
    let mut parts = Vec::with_capacity(count);
    for i in 0..count {
        parts.push(c.input(i).with_rank(rank).map_err(|_| {
            invalid!("ConcatOp : Ranks of all input tensors should match: found ranks {rank} and shape {}", c.input(i))
        })?);
    }
    let Some(axis) = c.input_i64(count) else { return Ok(vec![PartialShape::of_rank(rank)]) };
    let axis = axis_in(axis, rank).ok_or_else(|| bad_axis(axis, rank))?;
    let mut shape: Vec<Option<usize>> = vec![None; rank];
    shape[axis] = parts.iter().try_fold(0usize, |sum, p| sum.checked_add(p.dim(axis)?));
    for (d, size) in shape.iter_mut().enumerate().filter(|(d, _)| *d != axis) {
        for part in &parts {
            match (*size, part.dim(d)) {
                (Some(a), Some(b)) if a != b => {
                    return Err(invalid!("Dimension {d} in both shapes must be equal, but are {a} and {b}: {part}"));
                }
                (a, b) => *size = a.or(b),
            }
        }
    }
    Ok(vec![PartialShape::new(shape)])
}

fn bad_axis(axis: i64, rank: usize) -> Error {
    invalid!("ConcatOp : Expected concatenating dimensions in the range [{}, {rank}), but got {axis}", -(rank as i64))
}

/// Each input gets the piece of the gradient where it stood.
fn concat_gradient(s: &Scope, g: &Grad<'_>) -> Result<Vec<Option<GradValue>>> {
    let count = g.inputs.len() - 1;
    let (parts, mut axis) = (&g.inputs[..count], g.inputs[count]);
    if s.dtype(axis)? != DType::I32 {
        axis = s.node("Cast").input(axis).attr("DstT", DType::I32).output()?;
    }
    let shapes = s.node("ShapeN").inputs(parts).outputs()?;
    let offsets = s.node("ConcatOffset").input(axis).inputs(&shapes).outputs()?;
    let mut grads = vec![None; count + 1];
    for i in (0..count).filter(|&i| g.wanted[i]) {
        grads[i] = Some(s.op("Slice", &[g.dy[0], offsets[i], shapes[i]])?.into());
    }
    Ok(grads)
}

/// Along the first axis each input gets the rows that were its own; along another, its part of every row.
fn concat_row_gradient(
    s: &Scope,
    g: &Grad<'_>,
    totals: &[Option<GradValue>],
) -> Result<Option<Vec<Option<GradValue>>>> {
    let [Some(GradValue::Sparse(rows))] = totals else { return Ok(None) };
    let count = g.inputs.len() - 1;
    let axis = s.info(g.inputs[count])?.value.and_then(|v| v.to_i64().ok());
    let axis = axis.zip(s.shape(g.outputs[0])?.rank()).and_then(|(axis, rank)| axis_in(axis, rank));
    let Some(axis) = axis else { return Ok(None) };
    let shapes = s.node("ShapeN").inputs(&g.inputs[..count]).outputs()?;
    let offsets = s.node("ConcatOffset").input(s.constant(axis as i32)?).inputs(&shapes).outputs()?;
    let mut grads = vec![None; count + 1];
    for i in (0..count).filter(|&i| g.wanted[i]) {
        let part = if axis == 0 {
            own_rows(s, rows, offsets[i], shapes[i])?
        } else {
            part_of_rows(s, rows, offsets[i], shapes[i])?
        };
        grads[i] = Some(GradValue::Sparse(IndexedSlices { dense_shape: Some(shapes[i]), ..part }));
    }
    Ok(Some(grads))
}

/// Those rows that stand between an offset and the end of a shape put there, numbered from the offset.
fn own_rows(s: &Scope, rows: &IndexedSlices, offset: Output, shape: Output) -> Result<IndexedSlices> {
    let (zero, one) = (s.constant([0i32])?, s.constant([1i32])?);
    let first = |sizes: Output| -> Result<Output> {
        let first = s.node("StridedSlice").inputs(&[sizes, zero, one, one]).attr("shrink_axis_mask", 1i64).output()?;
        s.node("Cast").input(first).attr("DstT", s.dtype(rows.indices)?).output()
    };
    let begin = first(offset)?;
    let end = s.op("AddV2", &[begin, first(shape)?])?;
    let is_own =
        s.op("LogicalAnd", &[s.op("GreaterEqual", &[rows.indices, begin])?, s.op("Less", &[rows.indices, end])?])?;
    let positions = s.node("Squeeze").input(s.op("Where", &[is_own])?).attr("squeeze_dims", vec![1i64]).output()?;
    let own = |x: Output| s.op("GatherV2", &[x, positions, s.constant(0i32)?]);
    let indices = s.op("Sub", &[own(rows.indices)?, begin])?;
    Ok(IndexedSlices { values: own(rows.values)?, indices, dense_shape: None })
}

/// A piece of each row.
fn part_of_rows(s: &Scope, rows: &IndexedSlices, offset: Output, shape: Output) -> Result<IndexedSlices> {
    let one = s.constant([1i32])?;
    let row = s.node("StridedSlice").inputs(&[shape, one, one, one]).attr("end_mask", 1i64).output()?;
    let size = concat(s, &[s.constant([-1i32])?, row], 0)?;
    Ok(IndexedSlices { values: s.op("Slice", &[rows.values, offset, size])?, ..*rows })
}

struct Concat;

impl MoveKernel for Concat {
    fn compute<I: Item>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let count = ctx.num_inputs() - 1;
        let axis = index(ctx.input(count), "ConcatOp : Expected the axis, which")?;
        let parts: SmallVec<[&Tensor; 8]> = ctx.input_list(0..count).collect();
        let y = joined::<I>(ctx.pool(), &parts, axis)?;
        drop(parts);
        ctx.set_output(0, y)
    }
}

fn joined<I: Item>(pool: &Pool, parts: &[&Tensor], axis: i64) -> Result<Tensor> {
    let first = parts[0].shape();
    let rank = first.rank();
    let axis = axis_in(axis, rank).ok_or_else(|| bad_axis(axis, rank))?;
    let mut length = 0i64;
    for (i, part) in parts.iter().enumerate() {
        let dims = part.dims();
        if dims.len() != rank {
            return Err(invalid!(
                "ConcatOp : Ranks of all input tensors should match: shape[0] = {first} vs. shape[{i}] = {}",
                part.shape()
            ));
        }
        if let Some(d) = (0..rank).find(|&d| d != axis && dims[d] != first.dims()[d]) {
            return Err(invalid!(
                "ConcatOp : Dimension {d} in both shapes must be equal: shape[0] = {first} vs. shape[{i}] = {}",
                part.shape()
            ));
        }
        length += dims[axis] as i64;
    }
    let mut dims: Indices = first.dims().iter().map(|&d| d as i64).collect();
    dims[axis] = length;
    let shape = Shape::checked(dims)?;

    let rows: usize = first.dims()[..axis].iter().product();
    let slices: SmallVec<[&[I]; 8]> = parts.iter().map(|p| I::items(p)).collect::<Result<_>>()?;
    build::<I>(parts[0].dtype(), shape, |out| {
        join_rows(pool, &slices, rows, out);
        Ok(())
    })
}

/// Each row of the result is a row of the first part, then one of the second, and so on.
pub(super) fn join_rows<I: Item>(pool: &Pool, parts: &[&[I]], rows: usize, out: &mut [I]) {
    if out.is_empty() {
        return;
    }
    let row = out.len() / rows;
    pool.for_each_row(out, row, (1usize << 15).div_ceil(row), &|first, piece| {
        for (i, mut to) in piece.chunks_exact_mut(row).enumerate() {
            for part in parts {
                let len = part.len() / rows;
                let (here, rest) = to.split_at_mut(len);
                here.clone_from_slice(&part[(first + i) * len..][..len]);
                to = rest;
            }
        }
    });
}

struct ConcatOffset(DType);

impl Kernel for ConcatOffset {
    fn compute(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let axis = index(ctx.input(0), "Concat dim tensor")?;
        let count = ctx.num_inputs() - 1;
        let first = indices(ctx.input(1))?;
        let rank = first.len();
        let axis =
            axis_in(axis, rank).ok_or_else(|| invalid!("Concat dim is out of range: {axis} vs. {rank} dimensions"))?;
        let mut offset = 0i64;
        let mut offsets: SmallVec<[i64; 8]> = SmallVec::new();
        for i in 0..count {
            let shape = ctx.input(i + 1);
            let dims = indices(shape)?;
            if shape.shape().rank() != 1 || dims.len() != rank {
                return Err(invalid!(
                    "input {i} should be a vector of {rank} elements, but found shape {}",
                    shape.shape()
                ));
            }
            if (0..rank).any(|d| d != axis && dims[d] != first[d]) {
                return Err(invalid!(
                    "All dimensions except {axis} must match. Input {i} has shape {:?} and doesn't match input 0 with \
                     shape {:?}.",
                    &dims[..],
                    &first[..]
                ));
            }
            offsets.push(offset);
            offset = offset
                .checked_add(dims[axis])
                .ok_or_else(|| invalid!("the shapes to be joined are larger than can be addressed"))?;
        }
        for (i, &offset) in offsets.iter().enumerate() {
            let mut values: Indices = SmallVec::from_elem(0, rank);
            values[axis] = offset;
            let tensor = super::index_tensor(self.0, [rank], &values)?;
            ctx.set_output(i, tensor)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::array::testing::eval;
    use tensor::Tensor;

    #[test]
    fn parts_are_joined_along_the_axis() {
        let (a, b) = (Tensor::from([[1i32, 2], [3, 4]]), Tensor::from([[5i32], [6]]));
        let joined = eval("ConcatV2", &[a.clone(), b.clone(), Tensor::scalar(-1i32)], &[]).unwrap();
        assert_eq!(joined, [Tensor::from([[1i32, 2, 5], [3, 4, 6]])]);
        let error = eval("ConcatV2", &[a.clone(), b, Tensor::scalar(0i32)], &[]).unwrap_err();
        assert!(error.message.contains("shape[0] = [2,2] vs. shape[1] = [2,1]"), "{error}");
        assert!(eval("ConcatV2", &[a.clone(), a, Tensor::scalar(2i32)], &[]).is_err());
        let words = eval("ConcatV2", &[Tensor::from(["a"]), Tensor::from(["b", "c"]), Tensor::scalar(0i32)], &[]);
        assert_eq!(words.unwrap(), [Tensor::from(["a", "b", "c"])]);
    }

    #[test]
    fn offsets_are_where_the_parts_begin() {
        let shapes = [Tensor::scalar(1i32), Tensor::from([2i32, 3]), Tensor::from([2i32, 4]), Tensor::from([2i32, 0])];
        let offsets = eval("ConcatOffset", &shapes, &[]).unwrap();
        assert_eq!(offsets, [Tensor::from([0i32, 0]), Tensor::from([0i32, 3]), Tensor::from([0i32, 7])]);
        let shapes = [Tensor::scalar(1i32), Tensor::from([2i32, 3]), Tensor::from([1i32, 4])];
        assert!(eval("ConcatOffset", &shapes, &[]).is_err());
    }
}

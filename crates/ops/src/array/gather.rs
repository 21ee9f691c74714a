//! `GatherV2` and `Gather`: slices of a tensor, chosen by index along an axis.

use super::{axis_in, build, index};
use framework::kernel::KernelContext;
use framework::typed::{Int, Item, MoveKernel, moves};
use framework::{Grad, GradValue, IndexedSlices, InferenceContext, Op, Output, Pool, Scope};
use tensor::{DType, Error, PartialShape, Result, Shape, Tensor, invalid};

pub fn ops() -> Vec<Op> {
    vec![
        Op::new("GatherV2")
            .input("params: Tparams")
            .input("indices: Tindices")
            .input("axis: Taxis")
            .output("output: Tparams")
            .attr("batch_dims: int = 0")
            .attr("Tparams: type")
            .attr("Tindices: {int16, int32, int64}")
            .attr("Taxis: indextype")
            .shape(gather_v2_shape)
            .gradient(gather_v2_gradient)
            .kernel(moves(|b| Ok(Gather { batch_dims: b.attr("batch_dims")?, has_axis: true }))),
        Op::new("Gather")
            .input("params: Tparams")
            .input("indices: Tindices")
            .output("output: Tparams")
            .attr("validate_indices: bool = true")
            .attr("Tparams: type")
            .attr("Tindices: indextype")
            .shape(|c| {
                c.input(0).with_rank_at_least(1)?;
                Ok(vec![gathered_shape(c, 0, 0)])
            })
            .gradient(|s, g| Ok(vec![Some(rows_gradient(s, g)?), None]))
            .kernel(moves(|_| Ok(Gather { batch_dims: 0, has_axis: false }))),
    ]
}

/// The slices of `params` along `axis` that the indices name.
pub fn gather(s: &Scope, params: Output, indices: Output, axis: i32) -> Result<Output> {
    s.op("GatherV2", &[params, indices, s.constant(axis)?])
}

/// What is known of the result, for a non-negative axis and number of batch dimensions.
fn gathered_shape(c: &InferenceContext<'_>, axis: usize, batch_dims: usize) -> PartialShape {
    let (Some(params), Some(indices)) = (c.input(0).dims(), c.input(1).dims()) else {
        return PartialShape::unknown();
    };
    let rest = indices.get(batch_dims..).unwrap_or_default();
    PartialShape::new(params[..axis].iter().chain(rest).chain(&params[axis + 1..]).copied())
}

fn gather_v2_shape(c: &InferenceContext<'_>) -> Result<Vec<PartialShape>> {
    c.require_scalar(2)?;
    c.input(0).with_rank_at_least(1)?;
    let batch_dims: i64 = c.attr("batch_dims")?;
    let (Some(params), Some(indices)) = (c.input(0).rank(), c.input(1).rank()) else {
        return Ok(vec![PartialShape::unknown()]);
    };
    let Some(axis) = c.input_i64(2) else {
        let rank = (params - 1 + indices).checked_sub(usize::try_from(batch_dims).unwrap_or(0));
        return Ok(vec![rank.filter(|_| batch_dims >= 0).map_or(PartialShape::unknown(), PartialShape::of_rank)]);
    };
    let (axis, batch_dims) = resolve(axis, batch_dims, params, indices)?;
    for i in 0..batch_dims {
        if let (Some(a), Some(b)) = (c.input(0).dim(i), c.input(1).dim(i))
            && a != b
        {
            return Err(invalid!("params.shape[{i}]: {a} should be equal to indices.shape[{i}]: {b}"));
        }
    }
    Ok(vec![gathered_shape(c, axis, batch_dims)])
}

/// Axis and number of batch dimensions, counted from the front and checked.
fn resolve(axis: i64, batch_dims: i64, params: usize, indices: usize) -> Result<(usize, usize)> {
    let rank = params as i64;
    let axis = axis_in(axis, params)
        .ok_or_else(|| invalid!("Expected axis in the range [-{rank}, {rank}), but got {axis}"))?;
    let count = if batch_dims < 0 { batch_dims + indices as i64 } else { batch_dims };
    if count < 0 || count > indices as i64 {
        return Err(invalid!("Expected batch_dims in the range [-{indices}, {indices}], but got {batch_dims}"));
    }
    if count >= rank {
        return Err(invalid!("batch_dims ({count}) must be less than rank(params) ({rank})."));
    }
    if count > axis as i64 {
        return Err(invalid!("batch_dims ({count}) must be less than or equal to axis ({axis})."));
    }
    Ok((axis, count as usize))
}

fn gather_v2_gradient(s: &Scope, g: &Grad<'_>) -> Result<Vec<Option<GradValue>>> {
    let batch_dims: i64 = g.attr(s, "batch_dims")?;
    let axis = s.info(g.inputs[2])?.value.and_then(|v| v.to_i64().ok());
    let grad = match (axis, batch_dims) {
        (Some(0), 0) => rows_gradient(s, g)?,
        _ => slices_gradient(s, g, batch_dims)?.into(),
    };
    Ok(vec![Some(grad), None, None])
}

/// Along the first axis only the rows that were gathered have a gradient.
fn rows_gradient(s: &Scope, g: &Grad<'_>) -> Result<GradValue> {
    let (params, indices) = (g.inputs[0], g.inputs[1]);
    let dense_shape = s.op("Shape", &[params])?;
    let flat = s.constant([-1i32])?;
    let count = s.op("Reshape", &[s.op("Size", &[indices])?, s.constant([1i32])?])?;
    let one = s.constant([1i32])?;
    let row = s.node("StridedSlice").inputs(&[dense_shape, one, s.constant([0i32])?, one]).attr("end_mask", 1i64);
    let shape = super::concat(s, &[count, row.output()?], 0)?;
    Ok(GradValue::Sparse(IndexedSlices {
        values: s.op("Reshape", &[g.dy[0], shape])?,
        indices: s.op("Reshape", &[indices, flat])?,
        dense_shape: Some(dense_shape),
    }))
}

/// Along any other axis: the slices are summed as rows, batch by batch, and put back in place.
fn slices_gradient(s: &Scope, g: &Grad<'_>, batch_dims: i64) -> Result<Output> {
    let (params, indices) = (g.inputs[0], g.inputs[1]);
    let number = |value: i32| s.constant(value);
    let vector = |x: Output| s.op("Reshape", &[x, s.constant([1i32])?]);
    let shape = s.op("Shape", &[params])?;
    let mut axis = g.inputs[2];
    if s.dtype(axis)? != DType::I32 {
        axis = s.node("Cast").input(axis).attr("DstT", DType::I32).output()?;
    }
    let axis = vector(s.op("FloorMod", &[axis, s.op("Rank", &[params])?])?)?;
    let indices_shape = s.op("Shape", &[indices])?;
    let batch_dims = match batch_dims {
        0.. => s.constant([batch_dims as i32])?,
        _ => vector(s.op("Add", &[s.op("Rank", &[indices])?, number(batch_dims as i32)?])?)?,
    };

    // The sizes: params is [batch, outer, limit, inner], the gradient [batch, outer, count, inner].
    let product =
        |begin: Output, len: Output, of: Output| s.op("Prod", &[s.op("Slice", &[of, begin, len])?, number(0)?]);
    let (zero, all) = (s.constant([0i32])?, s.constant([-1i32])?);
    let batch = product(zero, batch_dims, shape)?;
    let outer = product(batch_dims, s.op("Sub", &[axis, batch_dims])?, shape)?;
    let limit = product(axis, s.constant([1i32])?, shape)?;
    let inner = product(s.op("Add", &[axis, s.constant([1i32])?])?, all, shape)?;
    let count = product(batch_dims, all, indices_shape)?;

    // Rows of all batches in one table: the indices of each batch are moved to its own part.
    let wide = |x: Output| s.node("Cast").input(x).attr("DstT", DType::I64).output();
    let starts = s.op("Range", &[number(0)?, batch, number(1)?])?;
    let starts = s.op("Mul", &[super::expand_dims(s, starts, 1)?, limit])?;
    let own = s.op("Reshape", &[indices, super::pack(s, &[batch, count], 0)?])?;
    let rows = s.op("Reshape", &[s.op("Add", &[wide(own)?, wide(starts)?])?, all])?;

    let dy = s.op("Reshape", &[g.dy[0], super::pack(s, &[batch, outer, count, inner], 0)?])?;
    let dy = super::transpose(s, dy, &[0, 2, 1, 3])?;
    let total = s.op("Mul", &[batch, count])?;
    let dy = s.op("Reshape", &[dy, super::pack(s, &[total, outer, inner], 0)?])?;
    let sums = s.op("UnsortedSegmentSum", &[dy, rows, s.op("Mul", &[batch, limit])?])?;
    let sums = s.op("Reshape", &[sums, super::pack(s, &[batch, limit, outer, inner], 0)?])?;
    s.op("Reshape", &[super::transpose(s, sums, &[0, 2, 1, 3])?, shape])
}

struct Gather {
    batch_dims: i64,
    has_axis: bool,
}

impl MoveKernel for Gather {
    fn compute<I: Item>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let (params, indices) = (ctx.input(0), ctx.input(1));
        if params.shape().rank() == 0 {
            return Err(invalid!("params must be at least 1 dimensional"));
        }
        let axis = if self.has_axis { index(ctx.input(2), "axis")? } else { 0 };
        let (axis, batch_dims) = resolve(axis, self.batch_dims, params.shape().rank(), indices.shape().rank())?;
        let (from, by) = (params.dims(), indices.dims());
        if let Some(i) = (0..batch_dims).find(|&i| from[i] != by[i]) {
            return Err(invalid!("params.shape[{i}]: {} should be equal to indices.shape[{i}]: {}", from[i], by[i]));
        }
        let sizes = from[..axis].iter().chain(&by[batch_dims..]).chain(&from[axis + 1..]);
        let shape = Shape::checked(sizes.map(|&d| d as i64))?;
        let table = Table {
            batch: from[..batch_dims].iter().product(),
            outer: from[batch_dims..axis].iter().product(),
            limit: from[axis],
            row: from[axis + 1..].iter().product(),
        };

        let y = build::<I>(params.dtype(), shape, |out| {
            let items = I::items(params)?;
            match indices.dtype() {
                DType::I16 => table.gather::<I, i16>(ctx.pool(), items, indices, out),
                DType::I32 => table.gather::<I, i32>(ctx.pool(), items, indices, out),
                _ => table.gather::<I, i64>(ctx.pool(), items, indices, out),
            }
        })?;
        ctx.set_output(0, y)
    }
}

/// How a tensor looks to the axis that is gathered along.
struct Table {
    batch: usize,
    outer: usize,
    limit: usize,
    row: usize,
}

impl Table {
    fn gather<I: Item, N: Int>(&self, pool: &Pool, items: &[I], indices: &Tensor, out: &mut [I]) -> Result<()> {
        let numbers = indices.as_slice::<N>()?;
        let outside = |at: usize| outside(indices.dims(), at, numbers[at], self.limit);
        if self.batch == 0 || items.is_empty() {
            // Nothing is copied, but an index is still an index.
            return linalg::gather::check(numbers, self.limit).map_err(outside);
        }
        let (count, block) = (numbers.len() / self.batch, items.len() / self.batch);
        if count == 0 {
            return Ok(());
        }
        let piece = out.len() / self.batch;
        for (b, own) in numbers.chunks_exact(count).enumerate() {
            let (from, to) = (&items[b * block..][..block], &mut out[b * piece..][..piece]);
            linalg::gather::gather(pool, from, self.outer, self.limit, self.row, own, to)
                .map_err(|at| outside(b * count + at))?;
        }
        Ok(())
    }
}

/// The error for an index outside its axis, with its place among the indices.
pub(crate) fn outside(dims: &[usize], flat: usize, value: impl std::fmt::Display, limit: usize) -> Error {
    invalid!("indices{} = {value} is not in [0, {limit})", place(dims, flat))
}

/// `[1,2]`: where an element stands in a tensor of these sizes; nothing for a scalar.
pub(crate) fn place(dims: &[usize], mut flat: usize) -> String {
    let mut coordinates: Vec<String> = Vec::new();
    for &dim in dims.iter().rev() {
        coordinates.push((flat % dim.max(1)).to_string());
        flat /= dim.max(1);
    }
    coordinates.reverse();
    if dims.is_empty() { String::new() } else { format!("[{}]", coordinates.join(",")) }
}

#[cfg(test)]
mod tests {
    use crate::array::testing::eval;
    use tensor::{Code, Tensor};

    #[test]
    fn slices_are_chosen_by_index() {
        let x = Tensor::from([[1i32, 2, 3], [4, 5, 6]]);
        let along = |axis: i32, indices: Tensor| eval("GatherV2", &[x.clone(), indices, Tensor::scalar(axis)], &[]);
        assert_eq!(along(0, Tensor::from([1i64, 0, 1])).unwrap(), [Tensor::from([[4i32, 5, 6], [1, 2, 3], [4, 5, 6]])]);
        assert_eq!(along(-1, Tensor::from([2i16])).unwrap(), [Tensor::from([[3i32], [6]])]);
        assert_eq!(along(1, Tensor::scalar(0i32)).unwrap(), [Tensor::from([1i32, 4])]);
        let batched = eval(
            "GatherV2",
            &[x.clone(), Tensor::from([[0i32, 0], [2, 1]]), Tensor::scalar(1i32)],
            &[("batch_dims", 1i64.into())],
        );
        assert_eq!(batched.unwrap(), [Tensor::from([[1i32, 1], [6, 5]])]);
        assert!(along(2, Tensor::scalar(0i32)).is_err());
    }

    #[test]
    fn an_index_outside_is_named() {
        let x = Tensor::from(["a", "b", "c", "d", "e"]);
        let error = eval("Gather", &[x.clone(), Tensor::from([[0i32, 7]])], &[]).unwrap_err();
        assert_eq!(error.code, Code::InvalidArgument);
        assert!(error.message.starts_with("indices[0,1] = 7 is not in [0, 5)"), "{error}");
        let error = eval("Gather", &[x, Tensor::scalar(-1i64)], &[]).unwrap_err();
        assert!(error.message.starts_with("indices = -1 is not in [0, 5)"), "{error}");
        let none = Tensor::zeros(tensor::DType::F32, [0, 3]).unwrap();
        assert!(eval("Gather", &[none.clone(), Tensor::from([0i32])], &[]).is_err());
        assert_eq!(eval("Gather", &[none, Tensor::from([0i32; 0])], &[]).unwrap()[0].dims(), [0, 3]);
    }
}

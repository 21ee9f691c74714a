//! `SegmentSum` and `UnsortedSegmentSum`: rows added up by the segment each belongs to.

use framework::gradient::GradValue;
use framework::typed::{NumberKernel, stepwise_numbers};
use framework::{Grad, InferenceContext, KernelContext, Number, Op, Output, Scope};
use linalg::elementwise::add_assign;
use linalg::gather::{segment_in_place, unsorted_segment};
use tensor::{PartialShape, Result, Shape, Tensor, invalid};

/// The ops of this file.
pub fn ops() -> Vec<Op> {
    vec![
        Op::new("SegmentSum")
            .input("data: T")
            .input("segment_ids: Tindices")
            .output("output: T")
            .attr("T: numbertype")
            .attr("Tindices: indextype")
            .shape(shape)
            .kernel(stepwise_numbers(|_| Ok(SegmentSum)))
            .gradient(gradient),
        Op::new("UnsortedSegmentSum")
            .input("data: T")
            .input("segment_ids: Tindices")
            .input("num_segments: Tnumsegments")
            .output("output: T")
            .attr("T: numbertype")
            .attr("Tindices: {int16, int32, int64}")
            .attr("Tnumsegments: indextype = int32")
            .shape(unsorted_shape)
            .kernel(stepwise_numbers(|_| Ok(UnsortedSegmentSum)))
            .gradient(unsorted_gradient),
    ]
}

/// The rows of each segment added up; the ids of the rows' segments never decrease.
pub fn segment_sum(s: &Scope, data: Output, ids: Output) -> Result<Output> {
    s.op("SegmentSum", &[data, ids])
}

/// The rows of each segment added up; rows of negative ids are left out.
pub fn unsorted_segment_sum(s: &Scope, data: Output, ids: Output, count: Output) -> Result<Output> {
    s.op("UnsortedSegmentSum", &[data, ids, count])
}

pub(super) fn shape(c: &InferenceContext<'_>) -> Result<Vec<PartialShape>> {
    c.require_rank(1, 1)?;
    c.input(0).with_rank_at_least(1)?;
    let Some(dims) = c.input(0).dims() else { return Ok(vec![PartialShape::unknown()]) };
    Ok(vec![PartialShape::new([None].into_iter().chain(dims[1..].iter().copied()))])
}

pub(super) fn unsorted_shape(c: &InferenceContext<'_>) -> Result<Vec<PartialShape>> {
    c.require_scalar(2)?;
    let count = match c.input_i64(2) {
        Some(count) => Some(usize::try_from(count).map_err(|_| invalid!("num_segments must be >= 0, found {count}"))?),
        None => None,
    };
    let (Some(data), Some(ids)) = (c.input(0).dims(), c.input(1).dims()) else {
        return Ok(vec![PartialShape::unknown()]);
    };
    let fits = ids.len() <= data.len() && ids.iter().zip(data).all(|(a, b)| a.is_none() || b.is_none() || a == b);
    if !fits {
        return Err(prefix_error(c.input(0), c.input(1)));
    }
    Ok(vec![PartialShape::new([count].into_iter().chain(data[ids.len()..].iter().copied()))])
}

fn prefix_error(data: impl std::fmt::Display, ids: impl std::fmt::Display) -> tensor::Error {
    invalid!("data.shape = {data} does not start with segment_ids.shape = {ids}")
}

fn gradient(s: &Scope, g: &Grad<'_>) -> Result<Vec<Option<GradValue>>> {
    let rows = s.op("GatherV2", &[g.dy[0], g.inputs[1], s.constant(0i32)?])?;
    Ok(vec![Some(rows.into()), None])
}

/// Rows that were left out have no part in the result.
fn unsorted_gradient(s: &Scope, g: &Grad<'_>) -> Result<Vec<Option<GradValue>>> {
    let ids = g.inputs[1];
    let zero = s.constant_of(s.dtype(ids)?, 0.0)?;
    let index = s.op("Maximum", &[ids, zero])?;
    // Indices of 16 bits choose rows as 32-bit ones.
    let index =
        if s.dtype(ids)? == tensor::DType::I16 { super::cast::cast(s, index, tensor::DType::I32)? } else { index };
    let rows = s.op("GatherV2", &[g.dy[0], index, s.constant(0i32)?])?;
    let part = s.op("GreaterEqual", &[ids, zero])?;
    let extra = s.op("Sub", &[s.op("Rank", &[rows])?, s.op("Rank", &[part])?])?;
    let extra = s.op("ExpandDims", &[extra, s.constant(0i32)?])?;
    let ones = s.op("Fill", &[extra, s.constant(1i32)?])?;
    let sizes = s.op("ConcatV2", &[s.op("Shape", &[part])?, ones, s.constant(0i32)?])?;
    let part = s.op("Reshape", &[part, sizes])?;
    Ok(vec![Some(s.op("SelectV2", &[part, rows, s.op("ZerosLike", &[rows])?])?.into()), None, None])
}

/// The number of segments that sorted ids name; an error if they are not sorted or negative.
pub(crate) fn sorted_segments(ids: &[i64]) -> Result<usize> {
    if let Some(first) = ids.first()
        && *first < 0
    {
        return Err(invalid!("segment ids must be >= 0, found segment_ids[0] = {first}"));
    }
    if let Some(at) = ids.windows(2).position(|pair| pair[1] < pair[0]) {
        return Err(invalid!("segment ids are not increasing: {} follows {} at {}", ids[at + 1], ids[at], at + 1));
    }
    match ids.last() {
        Some(&last) => usize::try_from(last)
            .ok()
            .and_then(|last| last.checked_add(1))
            .ok_or_else(|| invalid!("segment id {last} is too large")),
        None => Ok(0),
    }
}

/// The segment of each row, in ascending order, and the shape of what is made of them.
pub(crate) fn sorted_ids(data: &Tensor, ids: &Tensor) -> Result<(Vec<i64>, Shape)> {
    if ids.shape().rank() != 1 {
        return Err(invalid!("segment_ids should be a vector, found shape {}", ids.shape()));
    }
    if data.shape().rank() == 0 || data.dims()[0] != ids.num_elements() {
        return Err(invalid!(
            "segment_ids should be the same size as dimension 0 of input: {} and {}",
            ids.shape(),
            data.shape()
        ));
    }
    let ids = ids.to_i64s()?;
    let shape = with_rows(data, sorted_segments(&ids)?)?;
    Ok((ids, shape))
}

/// The shape of `rows` rows like those of `data`.
pub(crate) fn with_rows(data: &Tensor, rows: usize) -> Result<Shape> {
    let dims = data.dims().get(1..).unwrap_or_default();
    Shape::checked([rows as i64].into_iter().chain(dims.iter().map(|&d| d as i64)))
}

struct SegmentSum;
impl NumberKernel for SegmentSum {
    fn compute<T: Number>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let data = ctx.input(0);
        let (ids, shape) = sorted_ids(data, ctx.input(1))?;
        let row: usize = shape.dims()[1..].iter().product();
        let mut sums = ctx.allocate::<T>(shape)?;

        sums.fill(T::ZERO);
        if row > 0 {
            for (&id, from) in ids.iter().zip(data.as_slice::<T>()?.chunks_exact(row)) {
                let at = id as usize * row;
                add_assign(&mut sums[at..at + row], from);
            }
        }
        ctx.set_output(0, sums)
    }
}

struct UnsortedSegmentSum;
impl NumberKernel for UnsortedSegmentSum {
    fn compute<T: Number>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let (data, ids, count) = (ctx.input(0), ctx.input(1), ctx.input(2));
        if !data.dims().starts_with(ids.dims()) {
            return Err(prefix_error(data.shape(), ids.shape()));
        }
        if count.num_elements() != 1 || !count.shape().is_scalar() {
            return Err(invalid!("num_segments should be a scalar, not shape {}", count.shape()));
        }
        let count = count.to_i64()?;
        if count < 0 {
            return Err(invalid!("Input num_segments == {count} must not be negative."));
        }
        let tail = &data.dims()[ids.shape().rank()..];
        let shape = Shape::checked([count].into_iter().chain(tail.iter().map(|&d| d as i64)))?;
        let row: usize = tail.iter().product();
        let ids = ids.to_i64s()?;

        let mut data = ctx.take(0);
        // Few of the rows that an optimizer is given belong together; and what is left of half of them or more holds on to at
        // most twice its memory.
        if count as usize >= ids.len().div_ceil(2) && data.is_unique() {
            let mut rows = data.into_owned::<T>()?;
            if segment_in_place(&mut rows, row, &ids, count as usize, &add_assign) {
                return ctx.set_output(0, rows.shortened(shape)?);
            }
            data = rows.into_tensor();
        }
        let mut sums = ctx.allocate::<T>(shape)?;
        linalg::elementwise::fill(ctx.pool(), &mut sums, T::ZERO);
        if let Some(at) = ids.iter().position(|&id| id >= count) {
            return Err(invalid!("segment_ids[{at}] = {} is out of range [0, {count})", ids[at]));
        }
        let sum = unsorted_segment(ctx.pool(), &mut sums, row, &ids, data.as_slice::<T>()?, &add_assign);
        sum.map_err(|at| invalid!("segment_ids[{at}] = {} is out of range [0, {count})", ids[at]))?;
        ctx.set_output(0, sums)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nn::testing::{interpreter, scope};

    /// The sums, where the rows are held by nobody else, and where somebody does.
    fn sums(rows: &Tensor, ids: &Tensor, count: i32) -> [Result<Tensor>; 2] {
        let s = scope();
        let inputs = [rows, ids, &Tensor::scalar(count)].map(|input| {
            let fed = s.node("TestInput").attr("dtype", input.dtype()).attr("shape", PartialShape::unknown());
            fed.output().unwrap()
        });
        let node = s.op("UnsortedSegmentSum", &inputs).unwrap().node;
        let evaluate = |rows: Tensor| {
            let inputs = vec![rows, ids.clone(), Tensor::scalar(count)];
            s.with_graph(|graph| interpreter().evaluate(graph.node(node), inputs)).map(|mut outputs| outputs.remove(0))
        };
        let own = Tensor::from_slice(rows.shape().clone(), rows.as_slice::<f32>().unwrap()).unwrap();
        [evaluate(own), evaluate(rows.clone())]
    }

    #[test]
    fn rows_are_summed_up_in_place_as_elsewhere() {
        let rows: Vec<f32> = (1..=24).map(|i| i as f32).collect();
        let rows = Tensor::from_vec([6, 4], rows).unwrap();
        let cases: [(&[i32], i32); 8] = [
            (&[0, 1, 2, 3, 4, 5], 6),
            (&[0, 1, 1, 2, 0, 3], 4),
            (&[0, 0, 0, 1, 2, 2], 3),
            (&[0, 0, 0, 0, 1, 1], 2), // so few that they are made elsewhere
            (&[0, 1, 2, 3, 4, 0], 6),
            (&[5, 4, 3, 2, 1, 0], 6),
            (&[0, -1, 1, 2, 3, 4], 5),
            (&[0, 1, 2, 3, 4, 4], 9),
        ];
        for (ids, count) in cases {
            let mut want = vec![0.0f32; count as usize * 4];
            for (&id, row) in ids.iter().zip(rows.as_slice::<f32>().unwrap().chunks(4)).filter(|(id, _)| **id >= 0) {
                want[id as usize * 4..][..4].iter_mut().zip(row).for_each(|(to, from)| *to += from);
            }
            let want = Tensor::from_vec([count as usize, 4], want).unwrap();
            for found in sums(&rows, &Tensor::from(ids.to_vec()), count) {
                assert_eq!(found.unwrap(), want, "{ids:?}");
            }
        }
        let square = Tensor::from_vec([2, 3], vec![0, 1, 1, 2, 3, 4]).unwrap();
        for found in sums(&rows.clone().reshaped([2, 3, 4]).unwrap(), &square, 5) {
            assert_eq!(found.unwrap().as_slice::<f32>().unwrap()[4..8], [14.0, 16.0, 18.0, 20.0]);
        }
        for found in sums(&rows, &Tensor::from(vec![0, 1, 2, 3, 4, 5]), 5) {
            assert_eq!(found.unwrap_err().message, "segment_ids[5] = 5 is out of range [0, 5)");
        }
    }
}

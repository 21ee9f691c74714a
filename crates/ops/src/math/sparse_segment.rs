//! `SparseSegmentSum`, `-Mean`, `-SqrtN` and their gradients: chosen rows added up by segment, in one step.

use super::segment::{sorted_segments, with_rows};
use framework::gradient::GradValue;
use framework::typed::{FloatKernel, RealKernel, floats_by, wide_floats_by, wide_reals_by};
use framework::{
    BuiltKernel, Float, Grad, IndexedSlices, InferenceContext, KernelBuild, KernelContext, Op, Output, Real, Scope,
};
use linalg::number::Number;
use std::sync::Arc;
use tensor::{DType, PartialShape, Result, Tensor, invalid};

/// The ops of this file.
pub fn ops() -> Vec<Op> {
    let floats = "T: {bfloat16, half, float, double}";
    let mut ops = vec![
        forward("SparseSegmentSum", "T: realnumbertype", Scale::Sum),
        forward("SparseSegmentMean", floats, Scale::Mean),
        forward("SparseSegmentSqrtN", floats, Scale::SqrtN),
    ];
    for (name, scale) in [("Sum", Scale::Sum), ("Mean", Scale::Mean), ("SqrtN", Scale::SqrtN)] {
        let backward = |name: String, rows: &str| {
            Op::new(name)
                .input("grad: T")
                .input("indices: Tidx")
                .input("segment_ids: Tsegmentids")
                .input(&format!("{rows}: int32"))
                .output("output: T")
                .attr(floats)
                .attr("Tidx: indextype = int32")
                .attr("Tsegmentids: indextype = int32")
        };
        ops.push(
            backward(format!("SparseSegment{name}Grad"), "output_dim0")
                .shape(backward_shape)
                .kernel(Arc::new(move |b| floats_by(b, "T", Backward(scale)))),
        );
        ops.push(
            backward(format!("SparseSegment{name}GradV2"), "dense_output_dim0")
                .output("sorted_unique_indices: Tidx")
                .shape(unique_shape)
                .kernel(Arc::new(move |b| floats_by(b, "T", UniqueBackward(scale)))),
        );
    }
    ops
}

fn forward(name: &str, types: &str, scale: Scale) -> Op {
    Op::new(name)
        .input("data: T")
        .input("indices: Tidx")
        .input("segment_ids: Tsegmentids")
        .output("output: T")
        .attr(types)
        .attr("Tidx: indextype = int32")
        .attr("Tsegmentids: indextype = int32")
        .attr("sparse_gradient: bool = false")
        .shape(shape)
        .kernel(Arc::new(move |b| forward_kernel(b, scale)))
        .gradient(gradient)
}

/// What the sum of a segment is divided by.
#[derive(Clone, Copy, PartialEq)]
enum Scale {
    /// Nothing.
    Sum,
    /// The number of its rows.
    Mean,
    /// The root of that.
    SqrtN,
}

impl Scale {
    fn of(self, count: usize) -> f64 {
        match self {
            Scale::Sum => 1.0,
            Scale::Mean => 1.0 / count.max(1) as f64,
            Scale::SqrtN => 1.0 / (count.max(1) as f64).sqrt(),
        }
    }
}

fn shape(c: &InferenceContext<'_>) -> Result<Vec<PartialShape>> {
    c.input(0).with_rank_at_least(1)?;
    c.require_rank(1, 1)?.merge(&c.require_rank(2, 1)?)?;
    let Some(dims) = c.input(0).dims() else { return Ok(vec![PartialShape::unknown()]) };
    Ok(vec![PartialShape::new([None].into_iter().chain(dims[1..].iter().copied()))])
}

fn backward_rows(c: &InferenceContext<'_>, rows: Option<usize>) -> Result<PartialShape> {
    c.input(0).with_rank_at_least(1)?;
    c.require_rank(1, 1)?.merge(&c.require_rank(2, 1)?)?;
    c.require_scalar(3)?;
    let Some(dims) = c.input(0).dims() else { return Ok(PartialShape::unknown()) };
    Ok(PartialShape::new([rows].into_iter().chain(dims[1..].iter().copied())))
}

fn backward_shape(c: &InferenceContext<'_>) -> Result<Vec<PartialShape>> {
    let rows = c.input_i64(3).map(|rows| usize::try_from(rows).map_err(|_| invalid!("output_dim0 is {rows}")));
    Ok(vec![backward_rows(c, rows.transpose()?)?])
}

fn unique_shape(c: &InferenceContext<'_>) -> Result<Vec<PartialShape>> {
    Ok(vec![backward_rows(c, None)?, PartialShape::of_rank(1)])
}

fn gradient(s: &Scope, g: &Grad<'_>) -> Result<Vec<Option<GradValue>>> {
    let op = s.with_graph(|graph| graph.node(g.node).op.name.clone());
    let (data, indices, segments) = (g.inputs[0], g.inputs[1], g.inputs[2]);
    let sizes = s.op("Shape", &[data])?;
    let rows =
        s.node("StridedSlice").input(sizes).inputs(&[s.constant([0i32])?, s.constant([1i32])?, s.constant([1i32])?]);
    let rows = rows.attr("shrink_axis_mask", 1i64).output()?;
    let inputs: [Output; 4] = [g.dy[0], indices, segments, rows];
    if g.attr(s, "sparse_gradient")? {
        let outputs = s.node(&format!("{op}GradV2")).inputs(&inputs).outputs()?;
        let slices = IndexedSlices { values: outputs[0], indices: outputs[1], dense_shape: Some(sizes) };
        return Ok(vec![Some(GradValue::Sparse(slices)), None, None]);
    }
    Ok(vec![Some(s.op(&format!("{op}Grad"), &inputs)?.into()), None, None])
}

fn forward_kernel(b: &KernelBuild<'_>, scale: Scale) -> Result<BuiltKernel> {
    if scale == Scale::Sum { wide_reals_by(b, "T", Sum) } else { wide_floats_by(b, "T", Scaled(scale)) }
}

/// The indices and segments of a node, of one length.
fn pairs(ctx: &KernelContext<'_>) -> Result<(Vec<i64>, Vec<i64>)> {
    let (indices, segments) = (ctx.input(1), ctx.input(2));
    if indices.shape().rank() != 1 || segments.shape() != indices.shape() {
        return Err(invalid!(
            "segment_ids and indices should be vectors of the same size, found {} and {}",
            segments.shape(),
            indices.shape()
        ));
    }
    if ctx.input(0).shape().rank() == 0 {
        return Err(invalid!("the rows have no dimensions: wanted at least a vector"));
    }
    Ok((indices.to_i64s()?, segments.to_i64s()?))
}

fn check_range(values: &[i64], limit: usize, what: &str) -> Result<()> {
    match values.iter().position(|&v| v < 0 || v as u64 >= limit as u64) {
        Some(at) => Err(invalid!("{what}[{at}] == {} out of range [0, {limit})", values[at])),
        None => Ok(()),
    }
}

struct Sum;
impl RealKernel for Sum {
    fn compute<T: Real>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        reduce::<T>(ctx, |sum, _| sum)
    }
}

struct Scaled(Scale);
impl FloatKernel for Scaled {
    fn compute<T: Float>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let scale = self.0;
        reduce::<T>(ctx, |sum, count| sum.mul(Number::from_f64(scale.of(count))))
    }
}

/// Adds up each segment's rows, and finishes each sum with the number of rows in it.
fn reduce<T: Real>(ctx: &mut KernelContext<'_>, finish: impl Fn(T::Sum, usize) -> T::Sum) -> Result<()> {
    let (indices, segments) = pairs(ctx)?;
    let data = ctx.input(0);
    check_range(&indices, data.dims()[0], "indices")?;
    let shape = with_rows(data, sorted_segments(&segments)?)?;
    let row: usize = shape.dims()[1..].iter().product();
    let (mut y, data) = (ctx.allocate::<T>(shape)?, data.as_slice::<T>()?);

    y.fill(T::ZERO);
    // Without a row to add there is none in memory either, whatever the shape says.
    let mut sums = vec![<T::Sum as Number>::ZERO; if segments.is_empty() { 0 } else { row }];
    let mut start = 0;
    for group in segments.chunk_by(|a, b| a == b) {
        sums.fill(<T::Sum as Number>::ZERO);
        for &index in &indices[start..start + group.len()] {
            let from = index as usize * row;
            for (sum, x) in sums.iter_mut().zip(&data[from..from + row]) {
                *sum = sum.add(x.to_sum());
            }
        }
        let at = group[0] as usize * row;
        for (to, &sum) in y[at..at + row].iter_mut().zip(&sums) {
            *to = T::from_sum(finish(sum, group.len()));
        }
        start += group.len();
    }
    ctx.set_output(0, y)
}

struct Backward(Scale);
impl FloatKernel for Backward {
    fn compute<T: Float>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let (indices, segments) = pairs(ctx)?;
        let rows = dense_rows(ctx)?;
        check_range(&indices, rows, "Index")?;
        let y = scatter::<T>(ctx, self.0, &indices, &segments, rows)?;
        ctx.set_output(0, y)
    }
}

struct UniqueBackward(Scale);
impl FloatKernel for UniqueBackward {
    fn compute<T: Float>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let (indices, segments) = pairs(ctx)?;
        check_range(&indices, dense_rows(ctx)?, "Index")?;
        let mut unique = indices.clone();
        unique.sort_unstable();
        unique.dedup();
        let slots: Vec<i64> = indices.iter().map(|i| unique.partition_point(|u| u < i) as i64).collect();
        let y = scatter::<T>(ctx, self.0, &slots, &segments, unique.len())?;
        let wide = ctx.input(1).dtype() == DType::I64;
        ctx.set_output(0, y)?;
        ctx.set_output(
            1,
            if wide {
                Tensor::from(unique)
            } else {
                Tensor::from(unique.into_iter().map(|u| u as i32).collect::<Vec<_>>())
            },
        )
    }
}

fn dense_rows(ctx: &KernelContext<'_>) -> Result<usize> {
    let rows = ctx.input(3);
    if !rows.shape().is_scalar() {
        return Err(invalid!("output_dim0 should be a scalar, found shape {}", rows.shape()));
    }
    let rows = rows.to_i64()?;
    usize::try_from(rows).map_err(|_| invalid!("output_dim0 must be >= 0, found {rows}"))
}

/// Adds each segment's scaled gradient to the rows that were summed into it.
fn scatter<T: Float>(
    ctx: &KernelContext<'_>,
    scale: Scale,
    to: &[i64],
    segments: &[i64],
    rows: usize,
) -> Result<Tensor> {
    let grad = ctx.input(0);
    let found = sorted_segments(segments)?;
    check_range(segments, grad.dims()[0].max(usize::from(found == 0)), "Segment id")?;
    let shape = with_rows(grad, rows)?;
    let row: usize = shape.dims()[1..].iter().product();
    let (mut sums, grad) = (ctx.allocate::<T>(shape)?, grad.as_slice::<T>()?);

    sums.fill(T::ZERO);
    let mut start = 0;
    for group in segments.chunk_by(|a, b| a == b) {
        let factor = <T::Acc as Number>::from_f64(scale.of(group.len()));
        let from = &grad[group[0] as usize * row..][..row];
        for &at in &to[start..start + group.len()] {
            for (sum, x) in sums[at as usize * row..][..row].iter_mut().zip(from) {
                *sum = T::from_acc(sum.to_acc().add(x.to_acc().mul(factor)));
            }
        }
        start += group.len();
    }
    Ok(sums.into_tensor())
}

#[cfg(test)]
mod tests {
    use crate::array::testing::eval;
    use tensor::{Code, Tensor};

    #[test]
    fn chosen_rows_are_averaged_by_segment() {
        let inputs = [[[1.0f32], [2.0], [4.0]].into(), [2i32, 0, 1].into(), [0i32, 0, 2].into()];
        let mean = eval("SparseSegmentMean", &inputs, &[]).unwrap().remove(0);
        assert_eq!(mean, Tensor::from([[2.5f32], [0.0], [2.0]]));
    }

    #[test]
    fn a_row_beyond_the_end_is_an_error() {
        let inputs = [[[1.0f64]].into(), [5i32].into(), [0i32].into(), 3i32.into()];
        assert_eq!(eval("SparseSegmentSumGrad", &inputs, &[]).unwrap_err().code, Code::InvalidArgument);
    }
}

//! `SegmentMax`, `SegmentMin`, `SegmentProd`, `SegmentMean` and the unsorted ones: rows brought together by the segment
//! each belongs to.

use super::reduction::bounds;
use super::segment::{shape, sorted_ids, unsorted_shape};
use framework::typed::{NumberKernel, RealKernel, numbers_by, wide_reals_by};
use framework::{KernelContext, Number, Op, Real};
use std::sync::Arc;
use tensor::{Result, Shape, Tensor, invalid};

/// The ops of this file.
pub fn ops() -> Vec<Op> {
    let sorted = |name: &str, types: &str| {
        Op::new(name)
            .input("data: T")
            .input("segment_ids: Tindices")
            .output("output: T")
            .attr(&format!("T: {types}"))
            .attr("Tindices: indextype")
            .shape(shape)
    };
    let unsorted = |name: &str, types: &str| {
        Op::new(name)
            .input("data: T")
            .input("segment_ids: Tindices")
            .input("num_segments: Tnumsegments")
            .output("output: T")
            .attr(&format!("T: {types}"))
            .attr("Tindices: indextype")
            .attr("Tnumsegments: indextype = int32")
            .shape(unsorted_shape)
    };
    let real = |op: Op, kind: Extreme| op.kernel(Arc::new(move |b| wide_reals_by(b, "T", kind)));
    let number = |op: Op, kind: Product| op.kernel(Arc::new(move |b| numbers_by(b, "T", kind)));
    vec![
        real(sorted("SegmentMax", "realnumbertype"), Extreme::Max),
        real(sorted("SegmentMin", "realnumbertype"), Extreme::Min),
        number(sorted("SegmentProd", "numbertype"), Product::Product),
        number(sorted("SegmentMean", "numbertype"), Product::Mean),
        real(unsorted("UnsortedSegmentMax", "realnumbertype"), Extreme::Max),
        real(unsorted("UnsortedSegmentMin", "realnumbertype"), Extreme::Min),
        number(unsorted("UnsortedSegmentProd", "numbertype"), Product::Product),
    ]
}

/// Where each row of the data goes.
struct Plan {
    shape: Shape,
    row: usize,
    /// `None` for a row that is left out.
    segments: Vec<Option<usize>>,
    is_sorted: bool,
}

impl Plan {
    fn new(ctx: &KernelContext<'_>) -> Result<Plan> {
        if ctx.num_inputs() == 2 { Plan::sorted(ctx.input(0), ctx.input(1)) } else { Plan::unsorted(ctx) }
    }

    fn sorted(data: &Tensor, ids: &Tensor) -> Result<Plan> {
        let (ids, shape) = sorted_ids(data, ids)?;
        let row = shape.dims()[1..].iter().product();
        Ok(Plan { shape, row, segments: ids.into_iter().map(|id| Some(id as usize)).collect(), is_sorted: true })
    }

    fn unsorted(ctx: &KernelContext<'_>) -> Result<Plan> {
        let (data, ids, count) = (ctx.input(0), ctx.input(1), ctx.input(2));
        if !count.shape().is_scalar() {
            return Err(invalid!("num_segments should be a scalar, not shape {}", count.shape()));
        }
        let count = count.to_i64()?;
        let count =
            usize::try_from(count).map_err(|_| invalid!("Input num_segments == {count} must not be negative."))?;
        if !data.dims().starts_with(ids.dims()) {
            return Err(invalid!(
                "data.shape = {} does not start with segment_ids.shape = {}",
                data.shape(),
                ids.shape()
            ));
        }
        let behind = &data.dims()[ids.dims().len()..];
        let shape = Shape::checked(std::iter::once(count).chain(behind.iter().copied()).map(|d| d as i64))?;
        let mut segments = Vec::with_capacity(ids.num_elements());
        for (i, id) in ids.to_i64s()?.into_iter().enumerate() {
            if id >= count as i64 {
                return Err(invalid!("segment_ids[{i}] = {id} is out of range [0, {count})"));
            }
            segments.push(usize::try_from(id).ok());
        }
        Ok(Plan { shape, row: behind.iter().product(), segments, is_sorted: false })
    }

    /// Segments without rows keep `empty`; the others are folded from `start`.
    fn fold<T: Copy>(&self, data: &[T], out: &mut [T], start: T, empty: T, fold: fn(T, T) -> T) -> Vec<usize> {
        let mut counts = vec![0; self.shape.dims()[0]];
        out.fill(start);
        if self.row > 0 {
            for (from, segment) in data.chunks_exact(self.row).zip(&self.segments) {
                let Some(segment) = segment else { continue };
                counts[*segment] += 1;
                for (to, from) in out[segment * self.row..][..self.row].iter_mut().zip(from) {
                    *to = fold(*to, *from);
                }
            }
            for (out, _) in out.chunks_exact_mut(self.row).zip(&counts).filter(|(_, count)| **count == 0) {
                out.fill(empty);
            }
        }
        counts
    }
}

#[derive(Clone, Copy)]
enum Extreme {
    Max,
    Min,
}

impl RealKernel for Extreme {
    fn compute<T: Real>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let plan = Plan::new(ctx)?;
        let mut out = ctx.allocate::<T>(plan.shape.clone())?;
        let (lowest, highest) = bounds::<T>(ctx.node().outputs[0].dtype);
        let (start, fold): (T, fn(T, T) -> T) = match self {
            Extreme::Max => (lowest, T::max),
            Extreme::Min => (highest, T::min),
        };
        // A segment without rows: zero where segments follow each other, else what nothing is beyond.
        let empty = if plan.is_sorted { T::ZERO } else { start };
        plan.fold(ctx.input(0).as_slice::<T>()?, &mut out, start, empty, fold);
        ctx.set_output(0, out)
    }
}

#[derive(Clone, Copy)]
enum Product {
    Product,
    Mean,
}

impl NumberKernel for Product {
    fn compute<T: Number>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let plan = Plan::new(ctx)?;
        let mut out = ctx.allocate::<T>(plan.shape.clone())?;
        let data = ctx.input(0).as_slice::<T>()?;
        match self {
            Product::Product => {
                plan.fold(data, &mut out, T::ONE, T::ONE, T::mul);
            }
            Product::Mean => {
                let counts = plan.fold(data, &mut out, T::ZERO, T::ZERO, T::add);
                for (out, count) in out.chunks_exact_mut(plan.row.max(1)).zip(counts).filter(|(_, c)| *c > 0) {
                    out.iter_mut().for_each(|x| *x = x.div(T::from_i64(count as i64)));
                }
            }
        }
        ctx.set_output(0, out)
    }
}

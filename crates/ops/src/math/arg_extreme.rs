//! `ArgMax` and `ArgMin`: where along an axis the extreme lies; the first one wins.

use framework::typed::{Real, RealKernel, wide_reals_by};
use framework::{BuiltKernel, InferenceContext, Kernel, KernelBuild, KernelContext, Op, Output, Scope};
use linalg::reduce::{argmax, argmin};
use std::sync::Arc;
use tensor::{DType, PartialShape, Result, Shape, Tensor, invalid};

/// The ops of this file.
pub fn ops() -> Vec<Op> {
    vec![
        op("ArgMax")
            .attr("Tidx: {int16, int32, int64} = int32")
            .attr("output_type: {int16, uint16, int32, int64} = int64")
            .kernel(Arc::new(|b| kernel(b, true))),
        op("ArgMin")
            .attr("Tidx: indextype = int32")
            .attr("output_type: indextype = int64")
            .kernel(Arc::new(|b| kernel(b, false))),
    ]
}

fn op(name: &str) -> Op {
    Op::new(name)
        .input("input: T")
        .input("dimension: Tidx")
        .output("output: output_type")
        .attr(
            "T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64, qint8, \
             quint8, qint32, qint16, quint16, bool}",
        )
        .shape(shape)
        .gradient(|_, _| Ok(vec![None, None]))
}

/// Along an axis, the index of the first largest element.
pub fn arg_max(s: &Scope, x: Output, axis: i32) -> Result<Output> {
    s.op("ArgMax", &[x, s.constant(axis)?])
}

/// Along an axis, the index of the first smallest element.
pub fn arg_min(s: &Scope, x: Output, axis: i32) -> Result<Output> {
    s.op("ArgMin", &[x, s.constant(axis)?])
}

fn shape(c: &InferenceContext<'_>) -> Result<Vec<PartialShape>> {
    c.require_scalar(1)?;
    let Some(dims) = c.input(0).dims() else { return Ok(vec![PartialShape::unknown()]) };
    if dims.len() <= 1 {
        return Ok(vec![PartialShape::scalar()]);
    }
    Ok(vec![match c.axis(1, dims.len())? {
        Some(axis) => PartialShape::new(dims.iter().enumerate().filter(|(i, _)| *i != axis).map(|(_, d)| *d)),
        None => PartialShape::of_rank(dims.len() - 1),
    }])
}

fn kernel(b: &KernelBuild<'_>, largest: bool) -> Result<BuiltKernel> {
    let kernel = ArgExtreme { largest, output: b.dtype("output_type")? };
    if b.dtype("T")? == DType::Bool {
        return Ok(BuiltKernel::new(Bools(kernel)));
    }
    wide_reals_by(b, "T", kernel)
}

struct ArgExtreme {
    largest: bool,
    output: DType,
}

impl ArgExtreme {
    fn find<T: Real>(&self, ctx: &mut KernelContext<'_>, values: &[T]) -> Result<()> {
        let shape = ctx.input(0).shape();
        let dimension = ctx.input(1);
        if !dimension.shape().is_scalar() {
            return Err(invalid!("dim must be a scalar, but received tensor of shape: {}", dimension.shape()));
        }
        let (axis, rank) = (dimension.to_i64()?, shape.rank() as i64);
        let axis = shape
            .axis(axis)
            .map_err(|_| invalid!("Expected dimension in the range [{}, {rank}), but got {axis}", -rank))?;
        let (len, inner): (usize, usize) = (shape.dims()[axis], shape.dims()[axis + 1..].iter().product());
        if len == 0 {
            return Err(invalid!("Reduction axis {axis} is empty in shape {shape}"));
        }
        let kept = shape.dims().iter().enumerate().filter(|(i, _)| *i != axis).map(|(_, &d)| d);
        let mut found = ctx.allocate::<i64>(kept.collect::<Shape>())?;

        if !found.is_empty() {
            let search = if self.largest { argmax::<T, i64> } else { argmin::<T, i64> };
            search(ctx.pool(), len, inner, values, &mut found);
        }
        let shape = found.shape().clone();
        let narrow = match self.output {
            DType::I64 => found.into_tensor(),
            DType::I32 => Tensor::from_vec(shape, found.iter().map(|&i| i as i32).collect())?,
            DType::I16 => Tensor::from_vec(shape, found.iter().map(|&i| i as i16).collect())?,
            DType::U16 => Tensor::from_vec(shape, found.iter().map(|&i| i as u16).collect())?,
            other => return Err(tensor::internal!("positions of type {other}")),
        };
        ctx.set_output(0, narrow)
    }
}

impl RealKernel for ArgExtreme {
    fn compute<T: Real>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let x = ctx.input(0).clone();
        self.find(ctx, x.as_slice::<T>()?)
    }
}

/// False is less than true.
struct Bools(ArgExtreme);
impl Kernel for Bools {
    fn compute(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let x = ctx.input(0).clone();
        self.0.find(ctx, x.as_words::<u8>()?)
    }
}

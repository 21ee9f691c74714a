//! `AddN`: the sum of several tensors of one shape.

use super::pairs::map_pairs;
use crate::data_flow::TensorList;
use framework::gradient::{GradValue, by_rows};
use framework::kernel::FnKernel;
use framework::shapes::merged;
use framework::typed::{NumberKernel, stepwise_numbers_by};
use framework::{BuiltKernel, Grad, KernelContext, Number, Op, Output, Scope};
use linalg::elementwise::{add_assign, add_n as sum_slices};
use smallvec::SmallVec;
use std::sync::Arc;
use tensor::{Complex, DType, Result, Tensor, Variant, bf16, f16, invalid};

/// The ops of this file.
pub fn ops() -> Vec<Op> {
    vec![
        Op::new("AddN")
            .input("inputs: N*T")
            .output("sum: T")
            .attr("N: int >= 1")
            .attr(
                "T: {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, \
                 qint16, quint16, uint16, complex128, half, uint32, uint64, variant}",
            )
            .commutative()
            .aggregate()
            .shape(merged)
            .kernel(Arc::new(|b| match b.dtype("T")? {
                DType::Variant => Ok(BuiltKernel::new(FnKernel(add_lists))),
                _ => stepwise_numbers_by(b, "T", AddN),
            }))
            .gradient(gradient)
            .row_gradient(by_rows),
    ]
}

/// The sum of tensors of one shape.
pub fn add_n(s: &Scope, inputs: &[Output]) -> Result<Output> {
    s.op("AddN", inputs)
}

fn gradient(_: &Scope, g: &Grad<'_>) -> Result<Vec<Option<GradValue>>> {
    Ok(vec![Some(g.dy[0].into()); g.inputs.len()])
}

/// Lists of tensors are added element by element.
fn add_lists(ctx: &mut KernelContext<'_>) -> Result<()> {
    let mut sums: Vec<Variant> = ctx.take(0).into_variants()?;
    for i in 1..ctx.num_inputs() {
        let others = ctx.take(i).into_variants()?;
        if others.len() != sums.len() {
            return Err(invalid!("input 0 has {} variants, input {i} {}", sums.len(), others.len()));
        }
        let pairs = sums.into_iter().zip(others);
        let added = pairs.map(|(a, b)| TensorList::of(a)?.plus(TensorList::of(b)?, add_pair).map(Variant::new));
        sums = added.collect::<Result<_>>()?;
    }
    match sums.len() {
        1 => ctx.set_output(0, Tensor::from_variants([], sums)?),
        count => Err(invalid!("wanted scalars of variant, found {count} elements")),
    }
}

fn add_pair(a: Tensor, b: Tensor) -> Result<Tensor> {
    fn add<T: Number>(a: Tensor, b: &Tensor) -> Result<Tensor> {
        let mut sum = a.into_owned::<T>()?;
        add_assign(&mut sum, b.as_slice::<T>()?);
        Ok(sum.into())
    }
    if a.dtype() != b.dtype() || a.shape() != b.shape() {
        return Err(invalid!("elements of shapes {} and {} cannot be added", a.shape(), b.shape()));
    }
    match a.dtype() {
        DType::F16 => add::<f16>(a, &b),
        DType::BF16 => add::<bf16>(a, &b),
        DType::F32 => add::<f32>(a, &b),
        DType::F64 => add::<f64>(a, &b),
        DType::I8 => add::<i8>(a, &b),
        DType::I16 => add::<i16>(a, &b),
        DType::I32 => add::<i32>(a, &b),
        DType::I64 => add::<i64>(a, &b),
        DType::U8 => add::<u8>(a, &b),
        DType::U16 => add::<u16>(a, &b),
        DType::U32 => add::<u32>(a, &b),
        DType::U64 => add::<u64>(a, &b),
        DType::C64 => add::<Complex<f32>>(a, &b),
        DType::C128 => add::<Complex<f64>>(a, &b),
        other => Err(invalid!("Trying to add unsupported dtype {other}")),
    }
}

fn check_shapes(ctx: &KernelContext<'_>) -> Result<()> {
    for i in 1..ctx.num_inputs() {
        let (first, other) = (ctx.input(0).shape(), ctx.input(i).shape());
        if first != other {
            return Err(invalid!(
                "Inputs to operation must have the same size and shape: input 0 has shape {first}, input {i} {other}"
            ));
        }
    }
    Ok(())
}

struct AddN;
impl NumberKernel for AddN {
    fn compute<T: Number>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let count = ctx.num_inputs();
        check_shapes(ctx)?;
        if count == 1 {
            let only = ctx.take(0);
            return ctx.set_output(0, only);
        }
        if count == 2 {
            return map_pairs(ctx, T::add);
        }
        let mut sum = ctx.allocate::<T>(ctx.input(0).shape().clone())?;
        let sources: SmallVec<[&[T]; 8]> = (0..count).map(|i| ctx.input(i).as_slice::<T>()).collect::<Result<_>>()?;
        sum_slices(ctx.pool(), &sources, &mut sum);
        drop(sources);
        ctx.set_output(0, sum)
    }
}

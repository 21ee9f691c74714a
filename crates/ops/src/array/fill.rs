//! `Fill`, `ZerosLike` and `OnesLike`: tensors of one value.

use super::{build, indices};
use crate::data_flow::TensorList;
use framework::kernel::function;
use framework::shapes::unchanged;
use framework::typed::{Item, MoveKernel, Number, NumberKernel, moves, wide_numbers_by};
use framework::{BuiltKernel, InferenceContext, Kernel, KernelBuild, KernelContext, Op, Output, Scope};
use std::sync::Arc;
use tensor::{DType, OwnedTensor, PartialShape, Result, Shape, Tensor, Variant, invalid};

pub fn ops() -> Vec<Op> {
    vec![
        Op::new("Fill")
            .input("dims: index_type")
            .input("value: T")
            .output("output: T")
            .attr("T: type")
            .attr("index_type: indextype = int32")
            .shape(fill_shape)
            .value(fill_value)
            .gradient(|s, g| {
                let axes = s.op("Range", &[s.constant(0i32)?, s.op("Rank", &[g.dy[0]])?, s.constant(1i32)?])?;
                Ok(vec![None, Some(s.op("Sum", &[g.dy[0], axes])?.into())])
            })
            .kernel(moves(|_| Ok(Fill))),
        Op::new("ZerosLike")
            .input("x: T")
            .output("y: T")
            .attr("T: type")
            .shape(unchanged)
            .value(|c| {
                let shape = c.input(0).known().filter(|s| s.num_elements() <= super::VALUE_MAX)?;
                if c.input_dtype(0) == DType::Variant {
                    return None; // zeros like a list depend on what it holds
                }
                Some(vec![Tensor::zeros(c.input_dtype(0), shape).ok()])
            })
            .not_differentiable()
            .kernel(function(|ctx| {
                if ctx.input(0).dtype() == DType::Variant {
                    return zero_lists(ctx);
                }
                let zeros = Tensor::zeros(ctx.input(0).dtype(), ctx.input(0).shape().clone())?;
                ctx.set_output(0, zeros)
            })),
        Op::new("OnesLike")
            .input("x: T")
            .output("y: T")
            .attr(
                "T: {bfloat16, half, float, double, int8, uint8, int16, uint16, int32, uint32, int64, uint64, \
                 complex64, complex128, bool}",
            )
            .shape(unchanged)
            .not_differentiable()
            .kernel(Arc::new(ones_kernel)),
    ]
}

/// A tensor of these sizes with every element `value`.
pub fn fill(s: &Scope, dims: Output, value: Output) -> Result<Output> {
    s.op("Fill", &[dims, value])
}

/// Zeros of the same type and shape.
pub fn zeros_like(s: &Scope, x: Output) -> Result<Output> {
    s.op("ZerosLike", &[x])
}

/// Ones of the same type and shape.
pub fn ones_like(s: &Scope, x: Output) -> Result<Output> {
    s.op("OnesLike", &[x])
}

fn zero_lists(ctx: &mut KernelContext<'_>) -> Result<()> {
    let lists = ctx.take(0);
    let shape = lists.shape().clone();
    let zeros = lists.into_variants()?.into_iter().map(|list| TensorList::of(list)?.zeros_like().map(Variant::new));
    let zeros = zeros.collect::<Result<_>>()?;
    ctx.set_output(0, Tensor::from_variants(shape, zeros)?)
}

fn fill_shape(c: &InferenceContext<'_>) -> Result<Vec<PartialShape>> {
    c.require_scalar(1)?;
    if c.input(0).rank() == Some(0) {
        return Ok(vec![PartialShape::new([c.input_i64(0).and_then(|d| usize::try_from(d).ok())])]);
    }
    Ok(vec![c.shape_from_input(0)?])
}

fn fill_value(c: &InferenceContext<'_>) -> Option<Vec<Option<Tensor>>> {
    let shape = Shape::checked(c.input_i64s(0)?).ok().filter(|s| s.num_elements() <= super::VALUE_MAX)?;
    let value = c.input_value(1)?;
    match value.dtype() {
        DType::I32 => Some(vec![Some(OwnedTensor::filled(shape, value.item::<i32>().ok()?).ok()?.into())]),
        DType::I64 => Some(vec![Some(OwnedTensor::filled(shape, value.item::<i64>().ok()?).ok()?.into())]),
        _ => None,
    }
}

struct Fill;

impl MoveKernel for Fill {
    fn compute<I: Item>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let (dims, value) = (ctx.input(0), ctx.input(1));
        if dims.shape().rank() > 1 {
            return Err(invalid!("dims must be a vector, got shape {}", dims.shape()));
        }
        let [item] = I::items(value)? else {
            return Err(invalid!("value must be a scalar, got shape {}", value.shape()));
        };
        if !value.shape().is_scalar() && value.shape().rank() > 1 {
            return Err(invalid!("value must be a scalar, got shape {}", value.shape()));
        }
        let shape = Shape::checked(indices(dims)?)?;

        let filled = build::<I>(value.dtype(), shape, |out| {
            ctx.pool().for_each_mut(out, 1 << 16, &|_, part| part.fill(item.clone()));
            Ok(())
        })?;
        ctx.set_output(0, filled)
    }
}

/// Ones of a numeric type, and true.
fn ones_kernel(b: &KernelBuild<'_>) -> Result<BuiltKernel> {
    match b.dtype("T")? {
        DType::Bool => Ok(BuiltKernel::new(Trues)),
        _ => wide_numbers_by(b, "T", Ones),
    }
}

struct Ones;

impl NumberKernel for Ones {
    fn compute<T: Number>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let mut y = ctx.reuse_input::<T>(0)?;
        y.fill(T::ONE);
        ctx.set_output(0, y)
    }
}

struct Trues;

impl Kernel for Trues {
    fn compute(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let mut y = ctx.reuse_input::<bool>(0)?;
        y.fill(true);
        ctx.set_output(0, y)
    }
}

#[cfg(test)]
mod tests {
    use crate::array::testing::eval;
    use tensor::Tensor;

    #[test]
    fn tensors_are_filled() {
        let filled = eval("Fill", &[Tensor::from([2i32, 2]), Tensor::from("x")], &[]).unwrap();
        assert_eq!(filled, [Tensor::from_strings([2, 2], vec!["x".into(); 4]).unwrap()]);
        let filled = eval("Fill", &[Tensor::from([0i64; 0]), Tensor::from(true)], &[]).unwrap();
        assert_eq!(filled, [Tensor::scalar(true)]);
        assert!(eval("Fill", &[Tensor::from([-2i32]), Tensor::from(1.0f32)], &[]).is_err());
        assert!(eval("Fill", &[Tensor::from([1i64 << 50]), Tensor::from(1.0f32)], &[]).is_err());
        assert!(eval("Fill", &[Tensor::from([1i64 << 50]), Tensor::from("x")], &[]).is_err());
        assert!(eval("Fill", &[Tensor::from([1i32]), Tensor::from([1.0f32, 2.0])], &[]).is_err());
    }

    #[test]
    fn zeros_and_ones_have_the_inputs_shape() {
        let x = [Tensor::from([[2.0f64], [3.0]])];
        assert_eq!(eval("ZerosLike", &x, &[]).unwrap(), [Tensor::from([[0.0f64], [0.0]])]);
        assert_eq!(eval("OnesLike", &x, &[]).unwrap(), [Tensor::from([[1.0f64], [1.0]])]);
        assert_eq!(eval("OnesLike", &[Tensor::from([false])], &[]).unwrap(), [Tensor::from([true])]);
        assert_eq!(eval("ZerosLike", &[Tensor::from(["a"])], &[]).unwrap(), [Tensor::from([""])]);
    }
}

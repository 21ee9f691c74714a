//! Comparisons of two tensors, broadcasting, and the logic of booleans.

use super::arithmetic::REALS;
use super::pairs::{compare_pairs, map_each, map_pairs, positions};
use framework::kernel::function;
use framework::op::KernelFn;
use framework::shapes::{broadcast, unchanged};
use framework::typed::{MoveKernel, NumberKernel, RealKernel, moves_of, wide_numbers_by, wide_reals};
use framework::{
    BuiltKernel, InferenceContext, Item, Kernel, KernelBuild, KernelContext, Number, Op, Output, Real, Scope,
};
use std::sync::Arc;
use tensor::{DType, PartialShape, Result, Tensor, broadcast as broadcast_shapes};

/// The ops of this file.
pub fn ops() -> Vec<Op> {
    vec![
        equality("Equal", true),
        equality("NotEqual", false),
        order("Greater").kernel(wide_reals(|_| Ok(Greater))),
        order("GreaterEqual").kernel(wide_reals(|_| Ok(GreaterEqual))),
        order("Less").kernel(wide_reals(|_| Ok(Less))),
        order("LessEqual").kernel(wide_reals(|_| Ok(LessEqual))),
        logic("LogicalAnd").kernel(function(|ctx| map_pairs::<bool>(ctx, |a, b| a & b))),
        logic("LogicalOr").kernel(function(|ctx| map_pairs::<bool>(ctx, |a, b| a | b))),
        Op::new("LogicalNot")
            .input("x: bool")
            .output("y: bool")
            .shape(unchanged)
            .kernel(function(|ctx| map_each(ctx, |x: bool| !x)))
            .not_differentiable(),
    ]
}

fn equality(name: &str, wanted: bool) -> Op {
    Op::new(name)
        .input("x: T")
        .input("y: T")
        .output("z: bool")
        .attr("T: type")
        .attr("incompatible_shape_error: bool = true")
        .commutative()
        .shape(equality_shape)
        .kernel(equality_kernel(wanted))
        .not_differentiable()
}

fn order(name: &str) -> Op {
    Op::new(name)
        .input("x: T")
        .input("y: T")
        .output("z: bool")
        .attr(&format!("T: {{{REALS}}}"))
        .shape(broadcast)
        .not_differentiable()
}

fn logic(name: &str) -> Op {
    Op::new(name)
        .input("x: bool")
        .input("y: bool")
        .output("z: bool")
        .commutative()
        .shape(broadcast)
        .not_differentiable()
}

/// Whether the elements are equal.
pub fn equal(s: &Scope, x: Output, y: Output) -> Result<Output> {
    s.op("Equal", &[x, y])
}

/// Whether the elements differ.
pub fn not_equal(s: &Scope, x: Output, y: Output) -> Result<Output> {
    s.op("NotEqual", &[x, y])
}

/// Whether `x > y`.
pub fn greater(s: &Scope, x: Output, y: Output) -> Result<Output> {
    s.op("Greater", &[x, y])
}

/// Whether `x >= y`.
pub fn greater_equal(s: &Scope, x: Output, y: Output) -> Result<Output> {
    s.op("GreaterEqual", &[x, y])
}

/// Whether `x < y`.
pub fn less(s: &Scope, x: Output, y: Output) -> Result<Output> {
    s.op("Less", &[x, y])
}

/// Whether `x <= y`.
pub fn less_equal(s: &Scope, x: Output, y: Output) -> Result<Output> {
    s.op("LessEqual", &[x, y])
}

/// Whether both hold.
pub fn logical_and(s: &Scope, x: Output, y: Output) -> Result<Output> {
    s.op("LogicalAnd", &[x, y])
}

/// Whether either holds.
pub fn logical_or(s: &Scope, x: Output, y: Output) -> Result<Output> {
    s.op("LogicalOr", &[x, y])
}

/// Whether it does not hold.
pub fn logical_not(s: &Scope, x: Output) -> Result<Output> {
    s.op("LogicalNot", &[x])
}

fn equality_shape(c: &InferenceContext<'_>) -> Result<Vec<PartialShape>> {
    if c.attr("incompatible_shape_error")? {
        return broadcast(c);
    }
    // Shapes that do not fit give a single answer, so nothing is known until all sizes are.
    let (Some(a), Some(b)) = (c.input(0).known(), c.input(1).known()) else { return Ok(vec![PartialShape::unknown()]) };
    Ok(vec![broadcast_shapes(&a, &b).map_or(PartialShape::scalar(), PartialShape::from)])
}

fn equality_kernel(wanted: bool) -> KernelFn {
    Arc::new(move |b: &KernelBuild<'_>| {
        let dtype = b.dtype("T")?;
        let BuiltKernel::Sync(compare) = (match dtype {
            DType::Bool => Ok(BuiltKernel::new(BoolEquality(wanted))),
            _ if dtype.is_floating() || dtype.is_integer() || dtype.is_complex() => {
                wide_numbers_by(b, "T", NumberEquality(wanted))
            }
            _ => moves_of(dtype, ItemEquality(wanted)),
        })?
        else {
            return Err(tensor::internal!("comparisons never wait"));
        };
        Ok(BuiltKernel::new(Equality { must_fit: b.attr("incompatible_shape_error")?, otherwise: !wanted, compare }))
    })
}

/// Answers for tensors whose shapes do not fit, where that is not an error.
struct Equality {
    must_fit: bool,
    otherwise: bool,
    compare: Arc<dyn Kernel>,
}
impl Kernel for Equality {
    fn compute(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        if !self.must_fit && broadcast_shapes(ctx.input(0).shape(), ctx.input(1).shape()).is_err() {
            return ctx.set_output(0, self.otherwise);
        }
        self.compare.compute(ctx)
    }
}

struct NumberEquality(bool);
impl NumberKernel for NumberEquality {
    fn compute<T: Number>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        if self.0 { compare_pairs::<T>(ctx, |a, b| a == b) } else { compare_pairs::<T>(ctx, |a, b| a != b) }
    }
}

struct BoolEquality(bool);
impl Kernel for BoolEquality {
    fn compute(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let wanted = self.0;
        map_pairs::<bool>(ctx, move |a, b| (a == b) == wanted)
    }
}

/// For strings and other elements that are only equal or not.
struct ItemEquality(bool);
impl MoveKernel for ItemEquality {
    fn compute<I: Item>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let (shape, pairs) = positions(ctx.input(0), ctx.input(1))?;
        let (a, b) = (I::items(ctx.input(0))?, I::items(ctx.input(1))?);
        let same: Vec<bool> = pairs.into_iter().map(|(i, j)| (a[i] == b[j]) == self.0).collect();
        ctx.set_output(0, Tensor::from_vec(shape, same)?)
    }
}

/// Kernels that compare pairs of elements.
macro_rules! comparisons {
    ($($name:ident: $f:expr;)*) => {$(
        struct $name;
        impl RealKernel for $name {
            fn compute<T: Real>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
                compare_pairs::<T>(ctx, $f)
            }
        }
    )*};
}
comparisons! {
    Greater: |a, b| a > b;
    GreaterEqual: |a, b| a >= b;
    Less: |a, b| a < b;
    LessEqual: |a, b| a <= b;
}

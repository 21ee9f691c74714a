//! Reductions: sums, means, products, extremes, and whether all or any hold, over some axes.

use super::arithmetic::{div, mul};
use framework::gradient::GradValue;
use framework::kernel::kernel;
use framework::shapes::reduction;
use framework::typed::{NumberKernel, RealKernel, wide_numbers, wide_reals};
use framework::{Grad, InferenceContext, Kernel, KernelContext, Number, Op, Output, Real, Scope};
use linalg::reduce::{All, Any, Max, Mean, Min, Prod, ReducePlan, Reducer, Sum, reduce};
use smallvec::SmallVec;
use std::marker::PhantomData;
use tensor::{DType, Element, Result, Shape, Tensor, bf16, f16, invalid};

/// The ops of this file.
pub fn ops() -> Vec<Op> {
    vec![
        op("Sum", "T: numbertype").kernel(wide_numbers(|b| Ok(SumKernel(b.attr("keep_dims")?)))).gradient(sum_gradient),
        op("Mean", "T: numbertype")
            .kernel(wide_numbers(|b| Ok(MeanKernel(b.attr("keep_dims")?))))
            .gradient(mean_gradient),
        op("Prod", "T: numbertype")
            .value(known_product)
            .kernel(wide_numbers(|b| Ok(ProdKernel(b.attr("keep_dims")?))))
            .gradient(prod_gradient),
        op("Max", REALS).kernel(wide_reals(|b| Ok(MaxKernel(b.attr("keep_dims")?)))).gradient(extreme_gradient),
        op("Min", REALS).kernel(wide_reals(|b| Ok(MinKernel(b.attr("keep_dims")?)))).gradient(extreme_gradient),
        bool_op("All").kernel(kernel(|b| Ok(AllKernel(b.attr("keep_dims")?)))),
        bool_op("Any").kernel(kernel(|b| Ok(AnyKernel(b.attr("keep_dims")?)))),
    ]
}

const REALS: &str = "T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64, \
                     qint8, quint8, qint32, qint16, quint16}";

fn op(name: &str, types: &str) -> Op {
    Op::new(name)
        .input("input: T")
        .input("reduction_indices: Tidx")
        .output("output: T")
        .attr("keep_dims: bool = false")
        .attr(types)
        .attr("Tidx: indextype = int32")
        .shape(reduction)
}

fn bool_op(name: &str) -> Op {
    Op::new(name)
        .input("input: bool")
        .input("reduction_indices: Tidx")
        .output("output: bool")
        .attr("keep_dims: bool = false")
        .attr("Tidx: indextype = int32")
        .shape(reduction)
}

/// The sum over some axes.
pub fn sum(s: &Scope, x: Output, axes: Output) -> Result<Output> {
    s.op("Sum", &[x, axes])
}

/// The mean over some axes.
pub fn mean(s: &Scope, x: Output, axes: Output) -> Result<Output> {
    s.op("Mean", &[x, axes])
}

/// The product of small integers that are known while the graph is built: the size of a shape.
fn known_product(c: &InferenceContext<'_>) -> Option<Vec<Option<Tensor>>> {
    const SMALL: usize = 64;
    let (values, axes) = (c.input_i64s(0)?, c.input_i64s(1)?);
    let whole = c.input(0).rank() == Some(1) && matches!(axes[..], [0] | [-1]) && values.len() <= SMALL;
    if !whole || c.attr::<bool>("keep_dims").ok()? {
        return None;
    }
    let product = values.iter().try_fold(1i64, |product, &value| product.checked_mul(value))?;
    Some(vec![match c.input_dtype(0) {
        DType::I64 => Some(Tensor::scalar(product)),
        DType::I32 => Some(Tensor::scalar(i32::try_from(product).ok()?)),
        _ => None,
    }])
}

/// How a reduction's gradient or output gets the reduced axes back as 1, so that it broadcasts against the input.
enum Kept {
    /// It has them.
    Already,
    /// By this shape.
    Reshape(Output),
    /// One after the other, in ascending order.
    Expand(Vec<i32>),
}

impl Kept {
    fn new(s: &Scope, g: &Grad<'_>) -> Result<Kept> {
        if g.attr::<bool>(s, "keep_dims")? {
            return Ok(Kept::Already);
        }
        let (x, axes) = (g.inputs[0], g.inputs[1]);
        let (shape, axes_value) = (s.shape(x)?, s.info(axes)?.value.and_then(|v| v.to_i64s().ok()));
        if let (Some(dims), Some(axes)) = (shape.dims(), axes_value) {
            let rank = dims.len() as i64;
            let mut dims: Vec<Option<i64>> = dims.iter().map(|dim| dim.map(|d| d as i64)).collect();
            let mut axes: Vec<usize> = axes.iter().map(|axis| axis.rem_euclid(rank.max(1)) as usize).collect();
            for &axis in &axes {
                if let Some(dim) = dims.get_mut(axis) {
                    *dim = Some(1);
                }
            }
            if let Some(dims) = dims.into_iter().collect::<Option<Vec<i64>>>() {
                return Ok(Kept::Reshape(s.constant(dims)?));
            }
            axes.sort_unstable();
            return Ok(Kept::Expand(axes.into_iter().map(|axis| axis as i32).collect()));
        }
        // The input's sizes, with ones put over those of the reduced axes.
        let (sizes, rank) = (s.op("Shape", &[x])?, s.op("Rank", &[x])?);
        let axes = s.node("Cast").input(axes).attr("DstT", DType::I32).output()?;
        let axes = s.op("FloorMod", &[s.op("AddV2", &[axes, rank])?, rank])?;
        let all = s.op("Range", &[s.constant(0i32)?, rank, s.constant(1i32)?])?;
        let ones = s.op("Fill", &[s.op("Shape", &[axes])?, s.constant(1i32)?])?;
        let stitch = s.node("DynamicStitch").inputs(&[all, axes, sizes, ones]).attr("N", 2i64).output()?;
        Ok(Kept::Reshape(stitch))
    }

    fn of(&self, s: &Scope, x: Output) -> Result<Output> {
        match self {
            Kept::Already => Ok(x),
            Kept::Reshape(shape) => s.op("Reshape", &[x, *shape]),
            Kept::Expand(axes) => axes.iter().try_fold(x, |x, &axis| s.op("ExpandDims", &[x, s.constant(axis)?])),
        }
    }
}

/// A tensor repeated to the shape of a reduction's input.
fn spread(s: &Scope, g: &Grad<'_>, kept: Output) -> Result<Output> {
    s.op("BroadcastTo", &[kept, s.sizes(g.inputs[0])?.output()?])
}

fn sum_gradient(s: &Scope, g: &Grad<'_>) -> Result<Vec<Option<GradValue>>> {
    let dy = Kept::new(s, g)?.of(s, g.dy[0])?;
    Ok(vec![Some(spread(s, g, dy)?.into()), None])
}

fn mean_gradient(s: &Scope, g: &Grad<'_>) -> Result<Vec<Option<GradValue>>> {
    let dtype = s.dtype(g.dy[0])?;
    let size = |x: Output| -> Result<_> { Ok(s.shape(x)?.num_elements()) };
    let count = match (size(g.inputs[0])?, size(g.outputs[0])?) {
        (Some(all), Some(kept)) => s.constant_of(dtype, (all / kept.max(1)) as f64)?,
        _ => {
            let one = s.constant(1i32)?;
            let (all, kept) = (s.op("Size", &[g.inputs[0]])?, s.op("Size", &[g.outputs[0]])?);
            let count = s.op("FloorDiv", &[all, s.op("Maximum", &[kept, one])?])?;
            s.node("Cast").input(count).attr("DstT", dtype).output()?
        }
    };
    let dy = Kept::new(s, g)?.of(s, div(s, g.dy[0], count)?)?;
    Ok(vec![Some(spread(s, g, dy)?.into()), None])
}

/// The derivative by an element is the product of the others: the whole product over the element, unless there are
/// zeros. With one zero only its own derivative is left, with more there is none.
fn prod_gradient(s: &Scope, g: &Grad<'_>) -> Result<Vec<Option<GradValue>>> {
    let (x, axes, dtype) = (g.inputs[0], g.inputs[1], s.dtype(g.inputs[0])?);
    let (zero, one) = (s.constant_of(dtype, 0.0)?, s.constant_of(dtype, 1.0)?);
    let keep = |op: &str, x: Output| s.node(op).inputs(&[x, axes]).attr("keep_dims", true).output();
    let is_zero = s.op("Equal", &[x, zero])?;
    let zeros = keep("Sum", s.node("Cast").input(is_zero).attr("DstT", dtype).output()?)?;
    let safe = s.op("SelectV2", &[is_zero, one, x])?;
    let product = keep("Prod", safe)?;
    let without_zeros = s.op("SelectV2", &[s.op("Equal", &[zeros, zero])?, product, zero])?;
    let with_one_zero = s.op("SelectV2", &[s.op("Equal", &[zeros, one])?, product, zero])?;
    let others = s.op("SelectV2", &[is_zero, with_one_zero, div(s, without_zeros, safe)?])?;
    let dy = Kept::new(s, g)?.of(s, g.dy[0])?;
    Ok(vec![Some(mul(s, others, dy)?.into()), None])
}

/// Elements that equal the extreme share its gradient.
fn extreme_gradient(s: &Scope, g: &Grad<'_>) -> Result<Vec<Option<GradValue>>> {
    let kept = Kept::new(s, g)?;
    let (y, dy) = (kept.of(s, g.outputs[0])?, kept.of(s, g.dy[0])?);
    let hits = s.op("Equal", &[y, g.inputs[0]])?;
    let hits = s.node("Cast").input(hits).attr("DstT", s.dtype(g.dy[0])?).output()?;
    let count = s.node("Sum").inputs(&[hits, g.inputs[1]]).attr("keep_dims", true).output()?;
    Ok(vec![Some(mul(s, div(s, hits, count)?, dy)?.into()), None])
}

/// Kernels that fold with one of `linalg`'s reducers; their field says whether reduced axes are kept.
macro_rules! reductions {
    ($($name:ident: $kernel:ident, $bound:ident, $reducer:ident;)*) => {$(
        struct $name(bool);
        impl $kernel for $name {
            fn compute<T: $bound>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
                fold::<T, $reducer<T>>(ctx, self.0)
            }
        }
    )*};
}
reductions! {
    SumKernel: NumberKernel, Number, Sum;
    ProdKernel: NumberKernel, Number, Prod;
}

struct MaxKernel(bool);
impl RealKernel for MaxKernel {
    fn compute<T: Real>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let lowest = if T::DTYPE.is_integer() { bounds::<T>(ctx.node().outputs[0].dtype).0 } else { T::MIN };
        fold_or::<T, Max<T>>(ctx, self.0, lowest)
    }
}

struct MinKernel(bool);
impl RealKernel for MinKernel {
    fn compute<T: Real>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let highest = if T::DTYPE.is_integer() { bounds::<T>(ctx.node().outputs[0].dtype).1 } else { T::MAX };
        fold_or::<T, Min<T>>(ctx, self.0, highest)
    }
}

/// The lowest and highest finite values of a node's type, which may be narrower than the one it is computed in.
pub(super) fn bounds<T: Real>(dtype: DType) -> (T, T) {
    let (lowest, highest) = match dtype {
        DType::F16 => (f16::MIN.to_f64(), f16::MAX.to_f64()),
        DType::BF16 => (bf16::MIN.to_f64(), bf16::MAX.to_f64()),
        DType::I8 => (i8::MIN.into(), i8::MAX.into()),
        DType::I16 => (i16::MIN.into(), i16::MAX.into()),
        DType::U8 => (0.0, u8::MAX.into()),
        DType::U16 => (0.0, u16::MAX.into()),
        DType::U32 => (0.0, u32::MAX.into()),
        _ => return (T::LOWEST, T::HIGHEST),
    };
    (T::from_f64(lowest), T::from_f64(highest))
}

struct MeanKernel(bool);
impl NumberKernel for MeanKernel {
    fn compute<T: Number>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        use DType::{I8, I16, I32, U8, U16, U32};
        if const { matches!(T::DTYPE, I8 | I16 | I32 | U8 | U16 | U32) } {
            fold::<T, WideMean<T>>(ctx, self.0)
        } else {
            fold::<T, Mean<T>>(ctx, self.0)
        }
    }
}

/// The mean of narrow integers, summed in 64 bits.
struct WideMean<T>(PhantomData<fn() -> T>);
impl<T: Number> Reducer for WideMean<T> {
    type In = T;
    type Acc = i64;
    type Out = T;
    const START: i64 = 0;
    fn push(acc: i64, x: T) -> i64 {
        acc.wrapping_add(x.to_i64())
    }
    fn merge(a: i64, b: i64) -> i64 {
        a.wrapping_add(b)
    }
    fn finish(acc: i64, count: usize) -> T {
        T::from_i64(acc.checked_div(count as i64).unwrap_or(0))
    }
}

struct AllKernel(bool);
impl Kernel for AllKernel {
    fn compute(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        fold::<bool, All>(ctx, self.0)
    }
}

struct AnyKernel(bool);
impl Kernel for AnyKernel {
    fn compute(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        fold::<bool, Any>(ctx, self.0)
    }
}

fn fold<T: Element, R: Reducer<In = T, Out = T>>(ctx: &mut KernelContext<'_>, keep_dims: bool) -> Result<()> {
    fold_or::<T, R>(ctx, keep_dims, R::finish(R::START, 0))
}

/// Folds some axes; what no elements are folded into is `nothing`.
fn fold_or<T: Element, R: Reducer<In = T, Out = T>>(
    ctx: &mut KernelContext<'_>,
    keep_dims: bool,
    nothing: T,
) -> Result<()> {
    let Some((x, shape, plan)) = prepared(ctx, keep_dims)? else { return Ok(()) };
    let mut y = ctx.allocate::<T>(shape)?;
    if x.num_elements() == 0 {
        y.fill(nothing);
    } else {
        reduce::<R>(ctx.pool(), &plan, x.as_slice::<T>()?, &mut y);
    }
    ctx.set_output(0, y)
}

/// What is folded, the shape of the result, and how; none if there is nothing to fold, and the output is the input.
fn prepared(ctx: &mut KernelContext<'_>, keep_dims: bool) -> Result<Option<(Tensor, Shape, ReducePlan)>> {
    let folded = folded_axes(ctx.input(0).shape(), ctx.input(1))?;
    let x = ctx.take(0);
    if !folded.contains(&true) {
        ctx.set_output(0, x)?;
        return Ok(None);
    }
    let dims = x.dims().iter().zip(&folded).filter_map(|(&dim, &gone)| match (gone, keep_dims) {
        (false, _) => Some(dim),
        (true, true) => Some(1),
        (true, false) => None,
    });
    let (shape, plan) = (dims.collect(), ReducePlan::new(x.dims(), &folded));
    Ok(Some((x, shape, plan)))
}

/// A mark for each axis to fold.
pub(crate) fn folded_axes(shape: &Shape, axes: &Tensor) -> Result<SmallVec<[bool; 6]>> {
    let rank = shape.rank() as i64;
    let mut folded: SmallVec<[bool; 6]> = SmallVec::from_elem(false, shape.rank());
    for axis in axes.to_i64s()? {
        if axis < -rank || axis >= rank {
            return Err(invalid!("Invalid reduction dimension ({axis} for input with {rank} dimension(s)"));
        }
        let axis = axis.rem_euclid(rank) as usize;
        if std::mem::replace(&mut folded[axis], true) {
            return Err(invalid!("Invalid reduction arguments: Axes contains duplicate dimension: {axis}"));
        }
    }
    Ok(folded)
}

#[cfg(test)]
mod tests {
    use crate::array::testing::eval;
    use tensor::{Code, Tensor, f16};

    #[test]
    fn narrow_integers_are_averaged_beyond_their_range() {
        let mean = eval("Mean", &[[100i8, 100, 100].into(), 0i32.into()], &[]).unwrap().remove(0);
        assert_eq!(mean, Tensor::scalar(100i8));
        let none = Tensor::from(Vec::<i32>::new());
        assert_eq!(eval("Mean", &[none, 0i32.into()], &[]).unwrap()[0], Tensor::scalar(0i32));
    }

    #[test]
    fn the_extreme_of_nothing_is_that_of_the_type() {
        for (none, least, most) in [
            (Tensor::from(Vec::<i8>::new()), i8::MIN.into(), i8::MAX.into()),
            (Tensor::from(Vec::<u16>::new()), Tensor::scalar(0u16), u16::MAX.into()),
            (Tensor::from(Vec::<u32>::new()), Tensor::scalar(0u32), u32::MAX.into()),
            (Tensor::from(Vec::<i32>::new()), i32::MIN.into(), i32::MAX.into()),
            (Tensor::from(Vec::<f16>::new()), f16::NEG_INFINITY.into(), f16::INFINITY.into()),
        ] {
            assert_eq!(eval("Max", &[none.clone(), 0i32.into()], &[]).unwrap(), [least]);
            assert_eq!(eval("Min", &[none, 0i32.into()], &[]).unwrap(), [most]);
        }
    }

    #[test]
    fn axes_are_checked() {
        let sum = |axes: Tensor| eval("Sum", &[[[1.0f32, 2.0], [3.0, 4.0]].into(), axes], &[]);
        assert_eq!(sum([-1i32].into()).unwrap()[0], Tensor::from([3.0f32, 7.0]));
        assert_eq!(sum([2i32].into()).unwrap_err().code, Code::InvalidArgument);
        assert_eq!(sum([0i64, -2].into()).unwrap_err().code, Code::InvalidArgument);
    }
}

//! Kernels of two inputs that broadcast: the loops that arithmetic and comparisons share.
//!
//! Equal shapes come first and cost nothing to recognise; only what is left pays for a plan. The
//! result takes the memory of an input that nobody else holds.

use framework::KernelContext;
use linalg::broadcast::{BroadcastPlan, binary, update};
use linalg::elementwise::{zip, zip_in_place};
use linalg::parallel::Pool;
use tensor::{DType, Element, OwnedTensor, Result, Shape, Tensor, broadcast, exhausted};

/// Output 0 is `f` of inputs 0 and 1, element by element.
pub(crate) fn map_pairs<T: Element>(
    ctx: &mut KernelContext<'_>,
    f: impl Fn(T, T) -> T + Sync + Send + Copy,
) -> Result<()> {
    let (a, b) = (ctx.take(0), ctx.take(1));
    if a.num_elements() == 1 && b.num_elements() == 1 && a.shape().rank() >= b.shape().rank() {
        let right = b.item::<T>()?;
        let mut y = a.into_owned::<T>()?;
        y[0] = f(y[0], right);
        return ctx.set_output(0, y);
    }
    let y = arithmetic(ctx.pool(), a, b, f)?;
    ctx.set_output(0, y)
}

/// Output 0 is `f` of inputs 0 and 1, as many elements in each, in the order they are in memory; it has the shape of
/// input 0, as TensorFlow's gradients of functions do.
pub(crate) fn map_in_order<T: Element>(
    ctx: &mut KernelContext<'_>,
    f: impl Fn(T, T) -> T + Sync + Send + Copy,
) -> Result<()> {
    let (a, b) = (ctx.take(0), ctx.take(1));
    let b = in_order(&a, b)?;
    let y = arithmetic(ctx.pool(), a, b, f)?;
    ctx.set_output(0, y)
}

/// `b` in the shape of `a`, which must have as many elements.
pub(crate) fn in_order(a: &Tensor, b: Tensor) -> Result<Tensor> {
    let (left, right) = (a.num_elements(), b.num_elements());
    if left != right {
        return Err(tensor::invalid!(
            "The two arguments to a cwise op must have same number of elements, got {left} and {right}"
        ));
    }
    b.reshaped(a.shape())
}

/// Output 0 is whether `f` holds for inputs 0 and 1, element by element.
pub(crate) fn compare_pairs<T: Element>(
    ctx: &mut KernelContext<'_>,
    f: impl Fn(T, T) -> bool + Sync + Send + Copy,
) -> Result<()> {
    let (a, b) = (ctx.take(0), ctx.take(1));
    let (left, right) = (a.as_slice::<T>()?, b.as_slice::<T>()?);
    if a.shape().is_scalar() && b.shape().is_scalar() {
        return ctx.set_output(0, f(left[0], right[0]));
    }
    let pool = ctx.pool();
    let mut y: OwnedTensor<bool> = OwnedTensor::new(broadcast(a.shape(), b.shape())?)?;
    if is_hot::<T>() && a.dims() == b.dims() {
        zip(pool, left, right, &mut y, f);
    } else {
        binary(pool, &plan(&a, &b)?, left, right, &mut y, f);
    }
    ctx.set_output(0, y)
}

/// For each element of the broadcast result, the positions it comes from: for elements that are not plain memory.
pub(crate) fn positions(a: &Tensor, b: &Tensor) -> Result<(Shape, Vec<(usize, usize)>)> {
    let shape = broadcast(a.shape(), b.shape())?;
    let (left, right): (Vec<usize>, Vec<usize>) = ((0..a.num_elements()).collect(), (0..b.num_elements()).collect());
    let mut pairs = Vec::new();
    let count = shape.num_elements();
    pairs.try_reserve_exact(count).map_err(|_| exhausted!("no memory left for {count} elements of shape {shape}"))?;
    pairs.resize(count, (0, 0));
    binary(&Pool::inline(), &plan(a, b)?, &left, &right, &mut pairs, |i, j| (i, j));
    Ok((shape, pairs))
}

/// Whether the type is worth loops of its own for the usual special cases.
const fn is_hot<T: Element>() -> bool {
    matches!(T::DTYPE, DType::F32 | DType::F64)
}

fn arithmetic<T: Element>(
    pool: &Pool,
    mut a: Tensor,
    mut b: Tensor,
    f: impl Fn(T, T) -> T + Sync + Send + Copy,
) -> Result<Tensor> {
    if a.dims() == b.dims() && a.is_unique() {
        let mut y = a.into_owned::<T>()?;
        zip_in_place(pool, &mut y, b.as_slice::<T>()?, f);
        return Ok(y.into());
    }
    if const { is_hot::<T>() } && a.dims() == b.dims() {
        if b.is_unique() {
            let mut y = b.into_owned::<T>()?;
            zip_in_place(pool, &mut y, a.as_slice::<T>()?, |b, a| f(a, b));
            return Ok(y.into());
        }
        let mut y = OwnedTensor::<T>::new(a.shape())?;
        zip(pool, a.as_slice::<T>()?, b.as_slice::<T>()?, &mut y, f);
        return Ok(y.into());
    }
    let shape = broadcast(a.shape(), b.shape())?;
    let plan = plan(&a, &b)?;
    if *a.shape() == shape && a.is_unique() {
        let mut y = a.into_owned::<T>()?;
        update(pool, &plan, &mut y, b.as_slice::<T>()?, f);
        return Ok(y.into());
    }
    if const { is_hot::<T>() } && *b.shape() == shape && b.is_unique() {
        let mut y = b.into_owned::<T>()?;
        update(pool, &plan.swapped(), &mut y, a.as_slice::<T>()?, |b, a| f(a, b));
        return Ok(y.into());
    }
    let mut y = OwnedTensor::<T>::new(shape)?;
    binary(pool, &plan, a.as_slice::<T>()?, b.as_slice::<T>()?, &mut y, f);
    Ok(y.into())
}

fn plan(a: &Tensor, b: &Tensor) -> Result<BroadcastPlan> {
    let plan = BroadcastPlan::new(a.dims(), b.dims());
    plan.ok_or_else(|| tensor::invalid!("Incompatible shapes: {} vs. {}", a.shape(), b.shape()))
}

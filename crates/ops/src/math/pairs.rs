//! Kernels of one input, and of two that broadcast: the loops that functions, arithmetic and comparisons share.
//!
//! Equal shapes come first and cost nothing to recognise; only what is left pays for a plan. The
//! result takes the memory of an input that nobody else holds. All of this is compiled once for each type; what is
//! compiled for each function are the loops over stretches of elements.

use framework::KernelContext;
use linalg::broadcast::{BroadcastPlan, Stretch, binary, binary_by_stretches, update_by_stretches};
use linalg::elementwise::{GRAIN_CHEAP, map_slice, update_slice, zip_slice, zip_update_slice};
use linalg::parallel::Pool;
use tensor::{Element, OwnedTensor, Result, Shape, Tensor, broadcast, exhausted};

/// Output 0 is `f` of input 0, element by element, in its memory where nobody else holds it.
pub(crate) fn map_each<T: Element>(ctx: &mut KernelContext<'_>, f: impl Fn(T) -> T + Sync) -> Result<()> {
    function(ctx, &f)
}

fn function<T: Element>(ctx: &mut KernelContext<'_>, each: &dyn Each<T>) -> Result<()> {
    let mut x = ctx.take(0);
    let y = if x.is_unique() {
        let mut y = x.into_owned::<T>()?;
        ctx.pool().for_each_mut(&mut y, GRAIN_CHEAP, &|_, y| each.change(y));
        y
    } else {
        let (mut y, x) = (OwnedTensor::<T>::new(x.shape())?, x.as_slice::<T>()?);
        ctx.pool().for_each_mut(&mut y, GRAIN_CHEAP, &|at, y| each.fill(&x[at..at + y.len()], y));
        y
    };
    ctx.set_output(0, y)
}

/// Output 0 is `f` of inputs 0 and 1, element by element.
pub(crate) fn map_pairs<T: Element>(ctx: &mut KernelContext<'_>, f: impl Fn(T, T) -> T + Sync) -> Result<()> {
    let b = ctx.take(1);
    paired(ctx, b, &f)
}

/// Output 0 is `f` of inputs 0 and 1, as many elements in each, in the order they are in memory; it has the shape of
/// input 0, as TensorFlow's gradients of functions do.
pub(crate) fn map_in_order<T: Element>(ctx: &mut KernelContext<'_>, f: impl Fn(T, T) -> T + Sync) -> Result<()> {
    let b = ctx.take(1);
    let b = in_order(ctx.input(0), b)?;
    paired(ctx, b, &f)
}

fn paired<T: Element>(ctx: &mut KernelContext<'_>, b: Tensor, pairs: &dyn Pairs<T>) -> Result<()> {
    let a = ctx.take(0);
    let y = arithmetic(ctx.pool(), a, b, pairs)?;
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
pub(crate) fn compare_pairs<T: Element>(ctx: &mut KernelContext<'_>, f: impl Fn(T, T) -> bool + Sync) -> Result<()> {
    compare_stretches::<T>(ctx, &|a: &[T], b: &[T], y: &mut [bool]| zip_slice(a, b, y, &f))
}

fn compare_stretches<T: Element>(ctx: &mut KernelContext<'_>, holds: &dyn Stretch<T, T, bool>) -> Result<()> {
    let (a, b) = (ctx.take(0), ctx.take(1));
    let (left, right) = (a.as_slice::<T>()?, b.as_slice::<T>()?);
    let mut y: OwnedTensor<bool> = OwnedTensor::new(broadcast(a.shape(), b.shape())?)?;
    if a.dims() == b.dims() {
        fill(ctx.pool(), left, right, &mut y, &|a, b, y| holds.fill(a, b, y));
    } else {
        binary_by_stretches(ctx.pool(), &plan(&a, &b)?, left, right, &mut y, holds);
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

/// A function of an element, over stretches.
trait Each<T>: Sync {
    /// `y = f(x)`.
    fn fill(&self, x: &[T], y: &mut [T]);
    /// `y = f(y)`.
    fn change(&self, y: &mut [T]);
}

impl<T: Element, F: Fn(T) -> T + Sync> Each<T> for F {
    fn fill(&self, x: &[T], y: &mut [T]) {
        map_slice(x, y, self);
    }
    fn change(&self, y: &mut [T]) {
        update_slice(y, self);
    }
}

/// A function of two elements, over stretches of one length.
trait Pairs<T>: Sync {
    /// `y = f(a, b)`.
    fn fill(&self, a: &[T], b: &[T], y: &mut [T]);
    /// `y = f(y, b)`.
    fn change_left(&self, y: &mut [T], b: &[T]);
    /// `y = f(a, y)`.
    fn change_right(&self, a: &[T], y: &mut [T]);
}

impl<T: Element, F: Fn(T, T) -> T + Sync> Pairs<T> for F {
    fn fill(&self, a: &[T], b: &[T], y: &mut [T]) {
        zip_slice(a, b, y, self);
    }
    fn change_left(&self, y: &mut [T], b: &[T]) {
        zip_update_slice(y, b, self);
    }
    fn change_right(&self, a: &[T], y: &mut [T]) {
        zip_update_slice(y, a, |y, a| self(a, y));
    }
}

fn arithmetic<T: Element>(pool: &Pool, mut a: Tensor, mut b: Tensor, pairs: &dyn Pairs<T>) -> Result<Tensor> {
    if a.dims() == b.dims() {
        if a.is_unique() {
            let (mut y, b) = (a.into_owned::<T>()?, b.as_slice::<T>()?);
            pool.for_each_mut(&mut y, GRAIN_CHEAP, &|at, y| pairs.change_left(y, &b[at..at + y.len()]));
            return Ok(y.into());
        }
        if b.is_unique() {
            let (mut y, a) = (b.into_owned::<T>()?, a.as_slice::<T>()?);
            pool.for_each_mut(&mut y, GRAIN_CHEAP, &|at, y| pairs.change_right(&a[at..at + y.len()], y));
            return Ok(y.into());
        }
        let mut y = OwnedTensor::<T>::new(a.shape())?;
        fill(pool, a.as_slice()?, b.as_slice()?, &mut y, &|a, b, y| pairs.fill(a, b, y));
        return Ok(y.into());
    }
    let shape = broadcast(a.shape(), b.shape())?;
    let plan = plan(&a, &b)?;
    if *a.shape() == shape && a.is_unique() {
        let mut y = a.into_owned::<T>()?;
        let change = |y: &mut [T], b: &[T]| pairs.change_left(y, b);
        update_by_stretches(pool, &plan, &mut y, b.as_slice::<T>()?, &change);
        return Ok(y.into());
    }
    if *b.shape() == shape && b.is_unique() {
        let mut y = b.into_owned::<T>()?;
        let change = |y: &mut [T], a: &[T]| pairs.change_right(a, y);
        update_by_stretches(pool, &plan.swapped(), &mut y, a.as_slice::<T>()?, &change);
        return Ok(y.into());
    }
    let mut y = OwnedTensor::<T>::new(shape)?;
    let fill = |a: &[T], b: &[T], y: &mut [T]| pairs.fill(a, b, y);
    binary_by_stretches(pool, &plan, a.as_slice()?, b.as_slice()?, &mut y, &fill);
    Ok(y.into())
}

/// Fills `y` from inputs of its length, in parallel.
fn fill<T: Element, U: Element>(
    pool: &Pool,
    a: &[T],
    b: &[T],
    y: &mut [U],
    stretch: &(impl Fn(&[T], &[T], &mut [U]) + Sync),
) {
    pool.for_each_mut(y, GRAIN_CHEAP, &|at, y| stretch(&a[at..at + y.len()], &b[at..at + y.len()], y));
}

fn plan(a: &Tensor, b: &Tensor) -> Result<BroadcastPlan> {
    let plan = BroadcastPlan::new(a.dims(), b.dims());
    plan.ok_or_else(|| tensor::invalid!("Incompatible shapes: {} vs. {}", a.shape(), b.shape()))
}

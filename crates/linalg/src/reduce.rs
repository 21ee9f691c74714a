//! Sums, extremes and the like over some axes of an array, and the position of an extreme.
//!
//! Sums are taken in many lanes and in blocks, so their error does not grow with the number of elements; the way
//! they are cut depends on the shape alone, so a result does not depend on the number of threads.

use crate::number::{Number, Real};
use crate::parallel::{Pool, SharedMut};
use crate::simd::vectorized;
use std::marker::PhantomData;

/// A way to fold many elements into one.
pub trait Reducer: Sync {
    /// What is folded.
    type In: Copy + Send + Sync;
    /// What is kept while folding.
    type Acc: Copy + Send + Sync;
    /// What comes out.
    type Out: Copy + Send;
    /// The value of nothing.
    const START: Self::Acc;
    /// Folds one more element in.
    fn push(acc: Self::Acc, x: Self::In) -> Self::Acc;
    /// Folds two parts into one.
    fn merge(a: Self::Acc, b: Self::Acc) -> Self::Acc;
    /// The result, of `count` elements.
    fn finish(acc: Self::Acc, count: usize) -> Self::Out;
}

/// The sum.
pub struct Sum<T>(PhantomData<fn() -> T>);
/// The sum over the number of elements; integers truncate.
pub struct Mean<T>(PhantomData<fn() -> T>);
/// The product.
pub struct Prod<T>(PhantomData<fn() -> T>);
/// The largest; NaN if any is.
pub struct Max<T>(PhantomData<fn() -> T>);
/// The smallest; NaN if any is.
pub struct Min<T>(PhantomData<fn() -> T>);
/// The sum of squares.
pub struct SumOfSquares<T>(PhantomData<fn() -> T>);
/// Whether all are true.
pub struct All;
/// Whether any is true.
pub struct Any;

macro_rules! reducer {
    ($($name:ident<$t:ident: $bound:path>, $acc:ty, $start:expr, $push:expr, $merge:expr, $finish:expr;)*) => {$(
        impl<$t: $bound> Reducer for $name<$t> {
            type In = $t;
            type Acc = $acc;
            type Out = $t;
            const START: $acc = $start;
            #[inline(always)]
            fn push(acc: $acc, x: $t) -> $acc { $push(acc, x) }
            #[inline(always)]
            fn merge(a: $acc, b: $acc) -> $acc { $merge(a, b) }
            #[inline(always)]
            fn finish(acc: $acc, count: usize) -> $t { $finish(acc, count) }
        }
    )*};
}

reducer! {
    Sum<T: Number>, T::Sum, T::Sum::ZERO, |acc: T::Sum, x: T| acc.add(x.to_sum()), T::Sum::add,
        |acc, _| T::from_sum(acc);
    Mean<T: Number>, T::Sum, T::Sum::ZERO, |acc: T::Sum, x: T| acc.add(x.to_sum()), T::Sum::add,
        |acc: T::Sum, count| T::from_sum(acc.div(T::Sum::from_i64(count as i64)));
    Prod<T: Number>, T::Sum, T::Sum::ONE, |acc: T::Sum, x: T| acc.mul(x.to_sum()), T::Sum::mul,
        |acc, _| T::from_sum(acc);
    SumOfSquares<T: Number>, T::Sum, T::Sum::ZERO, |acc: T::Sum, x: T| acc.add(x.to_sum().square()), T::Sum::add,
        |acc, _| T::from_sum(acc);
    Max<T: Real>, T, T::MIN, T::max, T::max, |acc, _| acc;
    Min<T: Real>, T, T::MAX, T::min, T::min, |acc, _| acc;
}

impl Reducer for All {
    type In = bool;
    type Acc = bool;
    type Out = bool;
    const START: bool = true;
    #[inline(always)]
    fn push(acc: bool, x: bool) -> bool {
        acc & x
    }
    #[inline(always)]
    fn merge(a: bool, b: bool) -> bool {
        a & b
    }
    #[inline(always)]
    fn finish(acc: bool, _: usize) -> bool {
        acc
    }
}

impl Reducer for Any {
    type In = bool;
    type Acc = bool;
    type Out = bool;
    const START: bool = false;
    #[inline(always)]
    fn push(acc: bool, x: bool) -> bool {
        acc | x
    }
    #[inline(always)]
    fn merge(a: bool, b: bool) -> bool {
        a | b
    }
    #[inline(always)]
    fn finish(acc: bool, _: usize) -> bool {
        acc
    }
}

/// How an array is walked when some of its axes are folded; made once per shape and set of axes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReducePlan {
    /// Kept dimensions but the innermost run, outermost first: length and stride.
    kept: Vec<(usize, usize)>,
    /// Folded dimensions but the innermost run, outermost first: length and stride.
    folded: Vec<(usize, usize)>,
    /// The innermost run: its length, and whether it is folded.
    inner: (usize, bool),
    outputs: usize,
    inputs: usize,
}

impl ReducePlan {
    /// The plan to fold the marked axes of a shape; panics unless there is a mark for each axis.
    pub fn new(shape: &[usize], folded: &[bool]) -> ReducePlan {
        assert_eq!(shape.len(), folded.len(), "one mark per axis");
        let mut runs: Vec<(usize, bool)> = Vec::new();
        for (&len, &fold) in shape.iter().zip(folded).filter(|(len, _)| **len != 1) {
            match runs.last_mut() {
                Some(last) if last.1 == fold => last.0 *= len,
                _ => runs.push((len, fold)),
            }
        }
        let inputs: usize = runs.iter().map(|run| run.0).product();
        let outputs = runs.iter().filter(|run| !run.1).map(|run| run.0).product();
        let inner = runs.pop().unwrap_or((1, false));
        let (mut kept, mut inner_folded) = (Vec::new(), Vec::new());
        let mut stride = inner.0;
        for (len, fold) in runs.into_iter().rev() {
            if fold { &mut inner_folded } else { &mut kept }.push((len, stride));
            stride *= len;
        }
        kept.reverse();
        inner_folded.reverse();
        ReducePlan { kept, folded: inner_folded, inner, outputs, inputs }
    }

    /// How many results there are.
    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// How many elements are folded into each result.
    pub fn count(&self) -> usize {
        self.folded.iter().map(|dim| dim.0).product::<usize>() * if self.inner.1 { self.inner.0 } else { 1 }
    }
}

/// The offset of the index-th combination of some dimensions.
fn offset(dims: &[(usize, usize)], mut index: usize) -> usize {
    let mut at = 0;
    for &(len, stride) in dims.iter().rev() {
        at += index % len * stride;
        index /= len;
    }
    at
}

/// Elements per block of a long sum, and per piece of work for a thread.
const BLOCK: usize = 1 << 15;

/// Folds `src` into `dst` as planned, in parallel.
pub fn reduce<R: Reducer>(pool: &Pool, plan: &ReducePlan, src: &[R::In], dst: &mut [R::Out]) {
    walk(pool, plan, src, dst, &Loops::<R>(PhantomData));
}

/// The loops of a reducer over stretches of elements: what is compiled for each. The walk over an array is compiled for
/// each combination of types.
trait Folds<In, Acc, Out>: Sync {
    /// The value of nothing.
    fn start(&self) -> Acc;
    /// The elements of a run, folded.
    fn run(&self, run: &[In]) -> Acc;
    /// The results of runs that lie side by side, `len` elements each.
    fn runs(&self, src: &[In], len: usize, out: &mut [Out]);
    /// Folds `rows` rows, `stride` apart, into the accumulators.
    fn rows(&self, accs: &mut [Acc], src: &[In], stride: usize, rows: usize);
    /// Folds two parts into one.
    fn merge(&self, a: Acc, b: Acc) -> Acc;
    /// Folds other parts into the accumulators.
    fn merge_all(&self, accs: &mut [Acc], parts: &[Acc]);
    /// The results, each of `count` elements.
    fn finish(&self, accs: &[Acc], out: &mut [Out], count: usize);
}

struct Loops<R>(PhantomData<fn() -> R>);

impl<R: Reducer> Folds<R::In, R::Acc, R::Out> for Loops<R> {
    fn start(&self) -> R::Acc {
        R::START
    }
    fn run(&self, run: &[R::In]) -> R::Acc {
        fold_run::<R>(run)
    }
    fn runs(&self, src: &[R::In], len: usize, out: &mut [R::Out]) {
        for (run, out) in src.chunks_exact(len).zip(out) {
            let blocks = run.chunks(BLOCK).map(fold_run::<R>);
            *out = R::finish(blocks.fold(R::START, R::merge), len);
        }
    }
    fn rows(&self, accs: &mut [R::Acc], src: &[R::In], stride: usize, rows: usize) {
        fold_rows::<R>(accs, src, stride, rows);
    }
    fn merge(&self, a: R::Acc, b: R::Acc) -> R::Acc {
        R::merge(a, b)
    }
    fn merge_all(&self, accs: &mut [R::Acc], parts: &[R::Acc]) {
        accs.iter_mut().zip(parts).for_each(|(acc, &part)| *acc = R::merge(*acc, part));
    }
    fn finish(&self, accs: &[R::Acc], out: &mut [R::Out], count: usize) {
        out.iter_mut().zip(accs).for_each(|(out, &acc)| *out = R::finish(acc, count));
    }
}

fn walk<In: Copy + Sync, Acc: Copy + Send + Sync, Out: Copy + Send>(
    pool: &Pool,
    plan: &ReducePlan,
    src: &[In],
    dst: &mut [Out],
    folds: &dyn Folds<In, Acc, Out>,
) {
    assert_eq!(src.len(), plan.inputs, "the input has another size than planned");
    assert_eq!(dst.len(), plan.outputs, "the result has another size than planned");
    if src.is_empty() {
        let count = plan.count();
        return dst.iter_mut().for_each(|out| folds.finish(&[folds.start()], std::slice::from_mut(out), count));
    }
    if plan.inner.1 { walk_runs(pool, plan, src, dst, folds) } else { walk_rows(pool, plan, src, dst, folds) }
}

/// The innermost run is folded: each result folds contiguous pieces.
fn walk_runs<In: Copy + Sync, Acc: Copy + Send + Sync, Out: Copy + Send>(
    pool: &Pool,
    plan: &ReducePlan,
    src: &[In],
    dst: &mut [Out],
    folds: &dyn Folds<In, Acc, Out>,
) {
    let (inner, count) = (plan.inner.0, plan.count());
    let runs: usize = plan.folded.iter().map(|dim| dim.0).product();
    if dst.len() == 1 && runs == 1 {
        // All into one: blocks in parallel, then the blocks' results in order.
        let mut parts = vec![folds.start(); inner.div_ceil(BLOCK)];
        pool.for_each_mut(&mut parts, 2, &|first, parts| {
            for (i, part) in parts.iter_mut().enumerate() {
                let start = (first + i) * BLOCK;
                *part = folds.run(&src[start..(start + BLOCK).min(inner)]);
            }
        });
        let all = parts.into_iter().fold(folds.start(), |a, b| folds.merge(a, b));
        return folds.finish(&[all], dst, count);
    }
    pool.for_each_mut(dst, (BLOCK / count.max(1)).max(1), &|first, part| {
        if plan.folded.is_empty() {
            return folds.runs(&src[first * inner..], inner, part);
        }
        for (i, out) in part.iter_mut().enumerate() {
            let base = offset(&plan.kept, first + i);
            let mut acc = folds.start();
            for run in 0..runs {
                let start = base + offset(&plan.folded, run);
                for block in src[start..start + inner].chunks(BLOCK) {
                    acc = folds.merge(acc, folds.run(block));
                }
            }
            folds.finish(&[acc], std::slice::from_mut(out), count);
        }
    });
}

/// The innermost run is kept: rows of results fold rows of elements.
fn walk_rows<In: Copy + Sync, Acc: Copy + Send + Sync, Out: Copy + Send>(
    pool: &Pool,
    plan: &ReducePlan,
    src: &[In],
    dst: &mut [Out],
    folds: &dyn Folds<In, Acc, Out>,
) {
    let (inner, count) = (plan.inner.0, plan.count());
    let kept: usize = plan.kept.iter().map(|dim| dim.0).product();
    // Columns and folded rows are cut into tiles; each tile of a result row folds on its own, then they merge.
    let width = inner.min(COLUMNS);
    let depth = (BLOCK * 2 / width).max(16).min(count);
    let (wide, deep) = (inner.div_ceil(width), count.div_ceil(depth));
    let mut parts = vec![folds.start(); if deep > 1 { kept * deep * inner } else { 0 }];
    let parts_shared = SharedMut::new(&mut parts);
    let dst_shared = SharedMut::new(dst);
    let tiles = kept * deep * wide;
    pool.for_each(tiles, (BLOCK / (width * depth)).max(1), &|range| {
        for tile in range {
            let (column, rest) = (tile % wide * width, tile / wide);
            let (slab, row) = (rest % deep, rest / deep);
            let columns = width.min(inner - column);
            let base = offset(&plan.kept, row) + column;
            let mut accs = [folds.start(); COLUMNS];
            let accs = &mut accs[..columns];
            let last = ((slab + 1) * depth).min(count);
            if plan.folded.len() <= 1 {
                let stride = plan.folded.first().map_or(0, |dim| dim.1);
                let start = base + slab * depth * stride;
                folds.rows(accs, &src[start..], stride, last - slab * depth);
            } else {
                for index in slab * depth..last {
                    folds.rows(accs, &src[base + offset(&plan.folded, index)..], 0, 1);
                }
            }
            if deep > 1 {
                let at = (row * deep + slab) * inner + column;
                // SAFETY: each tile has its own range of the parts.
                unsafe { parts_shared.slice(at..at + columns) }.copy_from_slice(accs);
            } else {
                let at = row * inner + column;
                // SAFETY: each tile has its own range of the result.
                folds.finish(accs, unsafe { dst_shared.slice(at..at + columns) }, count);
            }
        }
    });
    if deep > 1 {
        for (out, parts) in dst.chunks_exact_mut(inner).zip(parts.chunks_exact_mut(deep * inner)) {
            // The parts of a row of results in order, from the value of nothing.
            let mut accs = vec![folds.start(); inner];
            parts.chunks_exact(inner).for_each(|part| folds.merge_all(&mut accs, part));
            folds.finish(&accs, out, count);
        }
    }
}

/// Columns of a tile: their accumulators stay in the first cache, and a row of them is a good stretch of memory.
const COLUMNS: usize = 256;
/// Accumulators that a run is folded into side by side, for the vector units and for precision.
const LANES: usize = 32;

vectorized! {
    fn fold_run[R][R: Reducer](run: &[R::In]) -> R::Acc = fold_run_body or fold_run_through;
}
vectorized! {
    /// Folds `rows` rows, `stride` apart, into the accumulators.
    fn fold_rows[R][R: Reducer](accs: &mut [R::Acc], src: &[R::In], stride: usize, rows: usize) = fold_rows_body or fold_rows_through;
}

#[inline(always)]
fn fold_run_body<R: Reducer, const FMA: bool>(run: &[R::In]) -> R::Acc {
    fold_in_lanes(run, R::START, R::push, R::merge)
}

#[inline(always)]
fn fold_rows_body<R: Reducer, const FMA: bool>(accs: &mut [R::Acc], src: &[R::In], stride: usize, rows: usize) {
    fold_four_at_a_time(accs, src, stride, rows, R::push);
}

// Compiled for each combination of types and not for each reducer, which is called for every element.

fn fold_run_through<R: Reducer>(run: &[R::In]) -> R::Acc {
    #[inline(never)]
    fn each<In: Copy, Acc: Copy>(run: &[In], start: Acc, push: fn(Acc, In) -> Acc, merge: fn(Acc, Acc) -> Acc) -> Acc {
        fold_in_lanes(run, start, push, merge)
    }
    each(run, R::START, R::push, R::merge)
}

fn fold_rows_through<R: Reducer>(accs: &mut [R::Acc], src: &[R::In], stride: usize, rows: usize) {
    #[inline(never)]
    fn each<In: Copy, Acc: Copy>(accs: &mut [Acc], src: &[In], stride: usize, rows: usize, push: fn(Acc, In) -> Acc) {
        fold_four_at_a_time(accs, src, stride, rows, push);
    }
    each(accs, src, stride, rows, R::push);
}

#[inline(always)]
fn fold_in_lanes<In: Copy, Acc: Copy>(
    run: &[In],
    start: Acc,
    push: impl Fn(Acc, In) -> Acc,
    merge: impl Fn(Acc, Acc) -> Acc,
) -> Acc {
    let mut total = start;
    // Within a stretch every lane folds a bounded number of elements; stretches merge pairwise enough by blocks.
    for stretch in run.chunks(LANES * 64) {
        let mut lanes = [start; LANES];
        let (whole, rest) = stretch.as_chunks::<LANES>();
        for chunk in whole {
            for (lane, &x) in lanes.iter_mut().zip(chunk) {
                *lane = push(*lane, x);
            }
        }
        for (lane, &x) in lanes.iter_mut().zip(rest) {
            *lane = push(*lane, x);
        }
        let mut width = LANES / 2;
        while width > 0 {
            for lane in 0..width {
                lanes[lane] = merge(lanes[lane], lanes[lane + width]);
            }
            width /= 2;
        }
        total = merge(total, lanes[0]);
    }
    total
}

#[inline(always)]
fn fold_four_at_a_time<In: Copy, Acc: Copy>(
    accs: &mut [Acc],
    src: &[In],
    stride: usize,
    rows: usize,
    push: impl Fn(Acc, In) -> Acc,
) {
    let columns = accs.len();
    let mut row = 0;
    // Four rows at a time: the accumulators are loaded and stored a quarter as often.
    while row + 4 <= rows {
        let at = |row: usize| &src[row * stride..row * stride + columns];
        let (r0, r1, r2, r3) = (at(row), at(row + 1), at(row + 2), at(row + 3));
        for i in 0..columns {
            let low = push(push(accs[i], r0[i]), r1[i]);
            accs[i] = push(push(low, r2[i]), r3[i]);
        }
        row += 4;
    }
    while row < rows {
        let from = &src[row * stride..row * stride + columns];
        for (acc, &x) in accs.iter_mut().zip(from) {
            *acc = push(*acc, x);
        }
        row += 1;
    }
}

/// For an array seen as outer × len × inner, the index along the middle of the first largest element; NaN never wins.
pub fn argmax<T: Real, I: Number>(pool: &Pool, len: usize, inner: usize, src: &[T], dst: &mut [I]) {
    extreme(pool, len, inner, src, dst, T::MIN, |x, best| x > best);
}

/// For an array seen as outer × len × inner, the index along the middle of the first smallest element; NaN never wins.
pub fn argmin<T: Real, I: Number>(pool: &Pool, len: usize, inner: usize, src: &[T], dst: &mut [I]) {
    extreme(pool, len, inner, src, dst, T::MAX, |x, best| x < best);
}

fn extreme<T: Real, I: Number>(
    pool: &Pool,
    len: usize,
    inner: usize,
    src: &[T],
    dst: &mut [I],
    start: T,
    wins: impl Fn(T, T) -> bool + Sync,
) {
    assert_eq!(src.len(), dst.len() * len, "the sizes do not fit");
    if inner == 1 {
        pool.for_each_mut(dst, (BLOCK / len.max(1)).max(1), &|first, part| {
            for (out, row) in part.iter_mut().zip(src[first * len..].chunks_exact(len.max(1))) {
                let (mut best, mut index) = (start, 0);
                for (i, &x) in row.iter().enumerate() {
                    if wins(x, best) {
                        (best, index) = (x, i);
                    }
                }
                *out = I::from_i64(index as i64);
            }
        });
        return;
    }
    pool.for_each_row(dst, inner, (BLOCK / (len * inner).max(1)).max(1), &|first, part| {
        let mut best = vec![start; inner];
        for (outer, out) in part.chunks_exact_mut(inner).enumerate() {
            best.fill(start);
            out.fill(I::ZERO);
            for i in 0..len {
                let at = ((first + outer) * len + i) * inner;
                let index = I::from_i64(i as i64);
                for ((out, best), &x) in out.iter_mut().zip(&mut best).zip(&src[at..at + inner]) {
                    if wins(x, *best) {
                        (*best, *out) = (x, index);
                    }
                }
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Numbers, seeds};
    use half::f16;

    fn slow<T: Copy>(shape: &[usize], folded: &[bool], src: &[T], outputs: usize) -> Vec<Vec<T>> {
        let mut groups = vec![Vec::new(); outputs];
        for (flat, &x) in src.iter().enumerate() {
            let (mut rest, mut at, mut stride) = (flat, 0, 1);
            for dim in (0..shape.len()).rev() {
                let index = rest % shape[dim];
                rest /= shape[dim];
                if !folded[dim] {
                    at += index * stride;
                    stride *= shape[dim];
                }
            }
            groups[at].push(x);
        }
        groups
    }

    #[test]
    fn folds_agree_with_index_arithmetic() {
        let pool = Pool::new(3);
        for seed in seeds().take(200) {
            let mut numbers = Numbers::new(seed);
            let rank = numbers.below(5);
            let sizes = [0, 1, 2, 3, 5, 17, 300];
            let shape: Vec<usize> =
                (0..rank).map(|_| sizes[numbers.below(30).min(if rank > 3 { 5 } else { 6 })]).collect();
            let folded: Vec<bool> = (0..rank).map(|_| numbers.below(2) == 0).collect();
            if shape.iter().product::<usize>() > 3_000_000 {
                continue;
            }
            let src: Vec<i64> = numbers.vec(shape.iter().product());
            let plan = ReducePlan::new(&shape, &folded);
            let groups = slow(&shape, &folded, &src, plan.outputs());
            let mut out = vec![-7i64; plan.outputs()];
            reduce::<Sum<i64>>(&pool, &plan, &src, &mut out);
            let want: Vec<i64> = groups.iter().map(|group| group.iter().sum()).collect();
            assert_eq!(out, want, "sum of {shape:?} over {folded:?}, seed {seed}");
            reduce::<Max<i64>>(&pool, &plan, &src, &mut out);
            let want: Vec<i64> = groups.iter().map(|group| group.iter().copied().max().unwrap_or(i64::MIN)).collect();
            assert_eq!(out, want, "max of {shape:?} over {folded:?}, seed {seed}");
            reduce::<Prod<i64>>(&pool, &plan, &src, &mut out);
            let want: Vec<i64> =
                groups.iter().map(|group| group.iter().fold(1i64, |a, b| a.wrapping_mul(*b))).collect();
            assert_eq!(out, want, "product of {shape:?} over {folded:?}, seed {seed}");
        }
    }

    #[test]
    fn sums_and_means_keep_their_precision() {
        let pool = Pool::new(2);
        for (seed, (shape, folded)) in seeds().zip([
            (vec![1_000_003], vec![true]),
            (vec![100_000, 10], vec![true, false]),
            (vec![10, 100_000], vec![false, true]),
            (vec![33, 1000, 33], vec![true, false, true]),
            (vec![1024, 1024], vec![true, false]),
        ]) {
            let mut numbers = Numbers::new(seed);
            let src: Vec<f32> = numbers.vec::<f32>(shape.iter().product()).iter().map(|x| x + 1.1).collect();
            let plan = ReducePlan::new(&shape, &folded);
            let mut sums = vec![0.0f32; plan.outputs()];
            let mut means = sums.clone();
            reduce::<Sum<f32>>(&pool, &plan, &src, &mut sums);
            reduce::<Mean<f32>>(&pool, &plan, &src, &mut means);
            for (i, group) in slow(&shape, &folded, &src, plan.outputs()).iter().enumerate() {
                let truth: f64 = group.iter().map(|&x| x as f64).sum();
                assert!((sums[i] as f64 / truth - 1.0).abs() < 1e-6, "{shape:?} seed {seed}: {} for {truth}", sums[i]);
                let truth = truth / group.len() as f64;
                assert!(
                    (means[i] as f64 / truth - 1.0).abs() < 1e-6,
                    "{shape:?} seed {seed}: {} for {truth}",
                    means[i]
                );
            }
        }
    }

    #[test]
    fn halves_are_summed_in_single_precision_and_nan_is_contagious() {
        let pool = Pool::inline();
        let plan = ReducePlan::new(&[5000], &[true]);
        let mut out = [f16::ZERO];
        reduce::<Mean<f16>>(&pool, &plan, &vec![f16::from_f32(1.5); 5000], &mut out);
        assert_eq!(out[0].to_f32(), 1.5);
        for at in [0, 1, 2499, 4999] {
            let mut src = vec![1.0f32; 5000];
            src[at] = f32::NAN;
            let mut out = [0.0f32];
            reduce::<Max<f32>>(&pool, &plan, &src, &mut out);
            assert!(out[0].is_nan(), "NaN at {at}");
            reduce::<Min<f32>>(&pool, &plan, &src, &mut out);
            assert!(out[0].is_nan(), "NaN at {at}");
        }
    }

    #[test]
    fn truth_is_folded() {
        let pool = Pool::inline();
        let plan = ReducePlan::new(&[2, 3], &[false, true]);
        let src = [true, true, true, true, false, true];
        let mut out = [false; 2];
        reduce::<All>(&pool, &plan, &src, &mut out);
        assert_eq!(out, [true, false]);
        reduce::<Any>(&pool, &plan, &src, &mut out);
        assert_eq!(out, [true, true]);
    }

    #[test]
    fn the_first_extreme_wins_and_nan_never() {
        let pool = Pool::new(2);
        // As TensorFlow's ArgMax and ArgMin answer.
        let nan = f32::NAN;
        for (src, most, least) in [
            (vec![nan, 1.0, 2.0], 2, 1),
            (vec![1.0, nan, 2.0], 2, 0),
            (vec![1.0, 2.0, nan], 1, 0),
            (vec![nan; 3], 0, 0),
            (vec![f32::NEG_INFINITY; 3], 0, 0),
            (vec![3.0, 5.0, 5.0], 1, 0),
        ] {
            let mut out = [0i64];
            argmax(&pool, 3, 1, &src, &mut out);
            assert_eq!(out[0], most, "{src:?}");
            argmin(&pool, 3, 1, &src, &mut out);
            assert_eq!(out[0], least, "{src:?}");
        }
        for seed in seeds().take(20) {
            let mut numbers = Numbers::new(seed);
            let (outer, len, inner) = (1 + numbers.below(5), 1 + numbers.below(50), 1 + numbers.below(20));
            let src: Vec<i32> = numbers.vec(outer * len * inner);
            let mut out = vec![0i32; outer * inner];
            argmax(&pool, len, inner, &src, &mut out);
            for o in 0..outer {
                for i in 0..inner {
                    let column: Vec<i32> = (0..len).map(|l| src[(o * len + l) * inner + i]).collect();
                    let most = *column.iter().max().unwrap();
                    let want = column.iter().position(|&x| x == most).unwrap();
                    assert_eq!(out[o * inner + i] as usize, want, "seed {seed}");
                }
            }
        }
    }
}

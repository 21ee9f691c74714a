//! Operations on two arrays of different shapes, the smaller one repeated.

use crate::elementwise::{GRAIN_CHEAP, zip_slice, zip_update_slice};
use crate::parallel::Pool;
use smallvec::{SmallVec, smallvec};
use std::mem::MaybeUninit;

/// How two shapes are walked together; made once per pair of shapes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BroadcastPlan {
    shape: SmallVec<[usize; 6]>,
    /// Outermost first, neighbours that are walked alike joined, sizes of one left out; never empty.
    dims: SmallVec<[Dim; 4]>,
    len: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Dim {
    len: usize,
    a: usize,
    b: usize,
}

impl BroadcastPlan {
    /// The plan for two shapes, aligned at their last dimensions; none if they do not fit.
    pub fn new(a: &[usize], b: &[usize]) -> Option<BroadcastPlan> {
        let rank = a.len().max(b.len());
        let at = |shape: &[usize], dim: usize| (dim + shape.len()).checked_sub(rank).map_or(1, |i| shape[i]);
        let mut shape = SmallVec::with_capacity(rank);
        for dim in 0..rank {
            shape.push(match (at(a, dim), at(b, dim)) {
                (x, y) if x == y => x,
                (1, y) => y,
                (x, 1) => x,
                _ => return None,
            });
        }
        let mut dims: SmallVec<[Dim; 4]> = SmallVec::new();
        let (mut a_stride, mut b_stride) = (1, 1);
        for dim in (0..rank).rev() {
            let (a_len, b_len, len) = (at(a, dim), at(b, dim), shape[dim]);
            if len != 1 {
                let next =
                    Dim { len, a: if a_len == 1 { 0 } else { a_stride }, b: if b_len == 1 { 0 } else { b_stride } };
                match dims.last_mut() {
                    Some(inner) if next.a == inner.a * inner.len && next.b == inner.b * inner.len => inner.len *= len,
                    _ => dims.push(next),
                }
            }
            a_stride *= a_len;
            b_stride *= b_len;
        }
        if dims.is_empty() {
            dims.push(Dim { len: 1, a: 1, b: 1 });
        }
        dims.reverse();
        let len = shape.iter().product();
        Some(BroadcastPlan { shape, dims, len })
    }

    /// The shape of the result.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The number of elements of the result.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the result has no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether neither side is repeated.
    pub fn is_same_shape(&self) -> bool {
        self.dims.len() == 1 && self.dims[0].a == 1 && self.dims[0].b == 1
    }

    /// The plan with the sides exchanged.
    pub fn swapped(&self) -> BroadcastPlan {
        let dims = self.dims.iter().map(|dim| Dim { len: dim.len, a: dim.b, b: dim.a }).collect();
        BroadcastPlan { shape: self.shape.clone(), dims, len: self.len }
    }

    /// If b is one row repeated (and a is not repeated), the row's length; a single element is a row of one.
    pub fn b_is_row(&self) -> Option<usize> {
        match self.dims[..] {
            [Dim { a: 1, b: 0, .. }] => Some(1),
            [Dim { b: 0, .. }, Dim { len, a: 1, b: 1 }] => Some(len),
            _ => None,
        }
    }

    fn elements(&self, side: fn(&Dim) -> usize) -> usize {
        if self.len == 0 {
            return 0;
        }
        1 + self.dims.iter().map(|dim| (dim.len - 1) * side(dim)).sum::<usize>()
    }

    /// Calls `row` for the pieces of innermost rows that make up the range: offsets in a, b and the range, length.
    fn walk(&self, start: usize, len: usize, row: &mut dyn FnMut(usize, usize, usize, usize)) {
        let (inner, outer) = self.dims.split_last().expect("a plan has a dimension");
        let mut index: SmallVec<[usize; 4]> = smallvec![0; outer.len()];
        let mut rest = start / inner.len;
        for (index, dim) in index.iter_mut().zip(outer).rev() {
            *index = rest % dim.len;
            rest /= dim.len;
        }
        let mut a: usize = index.iter().zip(outer).map(|(index, dim)| index * dim.a).sum();
        let mut b: usize = index.iter().zip(outer).map(|(index, dim)| index * dim.b).sum();
        let (mut at, mut skip) = (0, start % inner.len);
        while at < len {
            let piece = (inner.len - skip).min(len - at);
            row(a + skip * inner.a, b + skip * inner.b, at, piece);
            at += piece;
            skip = 0;
            for (index, dim) in index.iter_mut().zip(outer).rev() {
                *index += 1;
                a += dim.a;
                b += dim.b;
                if *index < dim.len {
                    break;
                }
                a -= dim.a * dim.len;
                b -= dim.b * dim.len;
                *index = 0;
            }
        }
    }
}

/// `out = f(a, b)` with repetition as planned, in parallel.
pub fn binary<A, B, U, F>(pool: &Pool, plan: &BroadcastPlan, a: &[A], b: &[B], out: &mut [U], f: F)
where
    A: Copy + Sync,
    B: Copy + Sync,
    U: Send,
    F: Fn(A, B) -> U + Sync,
{
    binary_by_stretches(pool, plan, a, b, out, &|a: &[A], b: &[B], to: &mut [U]| zip_slice(a, b, to, &f));
}

/// `a = f(a, b)` where only b is repeated, in parallel; panics if the plan repeats a.
pub fn update<A, B, F>(pool: &Pool, plan: &BroadcastPlan, a: &mut [A], b: &[B], f: F)
where
    A: Copy + Send,
    B: Copy + Sync,
    F: Fn(A, B) -> A + Sync,
{
    update_by_stretches(pool, plan, a, b, &|a: &mut [A], b: &[B]| zip_update_slice(a, b, &f));
}

// The walk is the same for every function of two elements, and so compiled once for each type and not for each function:
// what is called for a stretch gets slices of equal length. Elements that are repeated, and rows that are short, are laid
// out in blocks first, which stay in the first cache.

/// What is done to stretches of two inputs and the result, all of one length.
pub trait Stretch<A, B, U>: Sync {
    /// Fills the stretch of the result.
    fn fill(&self, a: &[A], b: &[B], out: &mut [U]);
}

impl<A, B, U, F: Fn(&[A], &[B], &mut [U]) + Sync> Stretch<A, B, U> for F {
    fn fill(&self, a: &[A], b: &[B], out: &mut [U]) {
        self(a, b, out);
    }
}

/// What is done to a stretch of one array with one of another, both of one length.
pub trait StretchUpdate<A, B>: Sync {
    /// Changes the stretch of the first.
    fn change(&self, a: &mut [A], b: &[B]);
}

impl<A, B, F: Fn(&mut [A], &[B]) + Sync> StretchUpdate<A, B> for F {
    fn change(&self, a: &mut [A], b: &[B]) {
        self(a, b);
    }
}

/// Elements of a block.
const BLOCK: usize = 256;
/// Rows shorter than this are laid out one after the other, so that a stretch is worth a call.
const SHORT: usize = 64;

/// `binary` with a function of stretches.
pub fn binary_by_stretches<A: Copy + Sync, B: Copy + Sync, U: Send>(
    pool: &Pool,
    plan: &BroadcastPlan,
    a: &[A],
    b: &[B],
    out: &mut [U],
    stretch: &dyn Stretch<A, B, U>,
) {
    assert_eq!(out.len(), plan.len, "the result has another size than planned");
    assert!(a.len() >= plan.elements(|dim| dim.a) && b.len() >= plan.elements(|dim| dim.b), "an input is too short");
    let inner = *plan.dims.last().expect("a plan has a dimension");
    pool.for_each_mut(out, GRAIN_CHEAP, &|start, part| {
        let (mut left, mut right) = (Block::new(), Block::new());
        if inner.len < SHORT {
            let mut rest = &mut *part;
            plan.walk(start, rest.len(), &mut |at_a, at_b, _, len| {
                if left.len() + len > BLOCK {
                    let (to, after) = std::mem::take(&mut rest).split_at_mut(left.len());
                    stretch.fill(left.take(), right.take(), to);
                    rest = after;
                }
                left.push(a, at_a, inner.a, len);
                right.push(b, at_b, inner.b, len);
            });
            return stretch.fill(left.take(), right.take(), rest);
        }
        plan.walk(start, part.len(), &mut |at_a, at_b, at, len| {
            let to = &mut part[at..at + len];
            match (inner.a, inner.b) {
                (1, 1) => stretch.fill(&a[at_a..at_a + len], &b[at_b..at_b + len], to),
                (1, _) => {
                    let block = right.repeat(b[at_b], len);
                    let pieces = a[at_a..at_a + len].chunks(BLOCK).zip(to.chunks_mut(BLOCK));
                    pieces.for_each(|(a, to)| stretch.fill(a, &block[..to.len()], to));
                }
                _ => {
                    let block = left.repeat(a[at_a], len);
                    let pieces = b[at_b..at_b + len].chunks(BLOCK).zip(to.chunks_mut(BLOCK));
                    pieces.for_each(|(b, to)| stretch.fill(&block[..to.len()], b, to));
                }
            }
        });
    });
}

/// `update` with a function of stretches.
pub fn update_by_stretches<A: Copy + Send, B: Copy + Sync>(
    pool: &Pool,
    plan: &BroadcastPlan,
    a: &mut [A],
    b: &[B],
    stretch: &dyn StretchUpdate<A, B>,
) {
    assert!(a.len() == plan.len && plan.elements(|dim| dim.a) == plan.len, "the updated side must not be repeated");
    assert!(b.len() >= plan.elements(|dim| dim.b), "an input is too short");
    let inner = *plan.dims.last().expect("a plan has a dimension");
    pool.for_each_mut(a, GRAIN_CHEAP, &|start, part| {
        let mut right = Block::new();
        if inner.len < SHORT {
            let mut rest = &mut *part;
            plan.walk(start, rest.len(), &mut |_, at_b, _, len| {
                if right.len() + len > BLOCK {
                    let (to, after) = std::mem::take(&mut rest).split_at_mut(right.len());
                    stretch.change(to, right.take());
                    rest = after;
                }
                right.push(b, at_b, inner.b, len);
            });
            return stretch.change(rest, right.take());
        }
        plan.walk(start, part.len(), &mut |_, at_b, at, len| {
            let to = &mut part[at..at + len];
            if inner.b == 0 {
                let block = right.repeat(b[at_b], len);
                to.chunks_mut(BLOCK).for_each(|to| stretch.change(to, &block[..to.len()]));
            } else {
                stretch.change(to, &b[at_b..at_b + len]);
            }
        });
    });
}

/// Elements side by side as a stretch wants them.
struct Block<T>([MaybeUninit<T>; BLOCK], usize);

impl<T: Copy> Block<T> {
    fn new() -> Block<T> {
        Block([const { MaybeUninit::uninit() }; BLOCK], 0)
    }

    fn len(&self) -> usize {
        self.1
    }

    /// One element as often as a row of this length can use it at once.
    fn repeat(&mut self, value: T, len: usize) -> &[T] {
        self.1 = len.min(BLOCK);
        self.0[..self.1].fill(MaybeUninit::new(value));
        self.written()
    }

    /// A row of `len` elements that begins at `at`, or one element that often if `step` is 0; it must fit.
    fn push(&mut self, from: &[T], at: usize, step: usize, len: usize) {
        let to = &mut self.0[self.1..self.1 + len];
        if step == 0 {
            to.fill(MaybeUninit::new(from[at]));
        } else {
            to.iter_mut().zip(&from[at..at + len]).for_each(|(to, &from)| *to = MaybeUninit::new(from));
        }
        self.1 += len;
    }

    /// What was pushed; the next element comes first again.
    fn take(&mut self) -> &[T] {
        let len = std::mem::take(&mut self.1);
        // SAFETY: as in `written`, before the length was forgotten.
        unsafe { &*(std::ptr::from_ref(&self.0[..len]) as *const [T]) }
    }

    fn written(&self) -> &[T] {
        // SAFETY: the length counts elements that were written.
        unsafe { &*(std::ptr::from_ref(&self.0[..self.1]) as *const [T]) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Numbers, seeds};

    fn slow(shape: &[usize], side: &[usize], data: &[i64]) -> Vec<i64> {
        let len = shape.iter().product::<usize>();
        (0..len)
            .map(|flat| {
                let (mut rest, mut at, mut stride) = (flat, 0, 1);
                for dim in (0..shape.len()).rev() {
                    let index = rest % shape[dim];
                    rest /= shape[dim];
                    if let Some(own) = (dim + side.len()).checked_sub(shape.len()) {
                        at += if side[own] == 1 { 0 } else { index * stride };
                        stride *= side[own];
                    }
                }
                data[at]
            })
            .collect()
    }

    #[test]
    fn repetition_agrees_with_index_arithmetic() {
        let pool = Pool::new(3);
        for seed in seeds().take(300) {
            let mut numbers = Numbers::new(seed);
            let rank = numbers.below(5);
            let full: Vec<usize> = (0..rank).map(|_| [0, 1, 2, 3, 7, 40][numbers.below(60).min(5)]).collect();
            let side = |numbers: &mut Numbers| {
                let skip = numbers.below(rank + 1);
                let dims = full[skip..].iter();
                dims.map(|&len| if numbers.below(3) == 0 { 1 } else { len }).collect::<Vec<usize>>()
            };
            let (a_shape, b_shape) = (side(&mut numbers), side(&mut numbers));
            let plan = BroadcastPlan::new(&a_shape, &b_shape).expect("the shapes were made to fit");
            let a: Vec<i64> = numbers.vec(a_shape.iter().product());
            let b: Vec<i64> = numbers.vec(b_shape.iter().product());
            let (wide_a, wide_b) = (slow(plan.shape(), &a_shape, &a), slow(plan.shape(), &b_shape, &b));
            let want: Vec<i64> = wide_a.iter().zip(&wide_b).map(|(a, b)| a * 1000 - b).collect();
            let mut out = vec![0; plan.len()];
            binary(&pool, &plan, &a, &b, &mut out, |a, b| a * 1000 - b);
            assert_eq!(out, want, "{a_shape:?} and {b_shape:?}, seed {seed}");
            if a.len() == plan.len() {
                let mut a = a.clone();
                update(&pool, &plan, &mut a, &b, |a, b| a * 1000 - b);
                assert_eq!(a, want, "update {a_shape:?} by {b_shape:?}, seed {seed}");
            }
            let mut out = vec![0; plan.len()];
            binary(&pool, &plan.swapped(), &b, &a, &mut out, |b, a| a * 1000 - b);
            assert_eq!(out, want, "swapped {a_shape:?} and {b_shape:?}, seed {seed}");
        }
    }

    #[test]
    fn shapes_that_do_not_fit_have_no_plan() {
        assert!(BroadcastPlan::new(&[2, 3], &[4]).is_none());
        assert!(BroadcastPlan::new(&[2], &[3, 5]).is_none());
        assert!(BroadcastPlan::new(&[0], &[3]).is_none());
    }

    #[test]
    fn a_bias_is_seen_as_a_row() {
        assert_eq!(BroadcastPlan::new(&[4, 5, 6], &[6]).unwrap().b_is_row(), Some(6));
        assert_eq!(BroadcastPlan::new(&[4, 5, 6], &[5, 6]).unwrap().b_is_row(), Some(30));
        assert_eq!(BroadcastPlan::new(&[4, 5], &[]).unwrap().b_is_row(), Some(1));
        assert_eq!(BroadcastPlan::new(&[4, 5], &[4, 1]).unwrap().b_is_row(), None);
    }
}

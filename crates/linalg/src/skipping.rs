//! Products whose left matrix is mostly zeros, as images and one-hot codes are: the zeros are skipped.
//!
//! A row of the result is the sum of those rows of the right matrix whose number on the left is not zero. The left
//! matrix is looked through in squares whose rows are bit masks; a square's rows of the right matrix stay in the first
//! cache while all of its masks are gone through.

use crate::matmul::GemmShape;
use crate::parallel::{Pool, SharedMut};
use crate::simd::vectorized;
use crate::tile::{PICKED_COLUMNS, Picks, Target, by_picks, nonzero};
use std::ops::Range;

/// As many rows, and steps of the sums, as a mask has bits.
const SIDE: usize = 64;
/// Rows that a thread does at once: few, so that one that is held up does not hold up the others.
const ROWS: usize = 32;
/// Fewer columns are not worth it.
const COLUMNS_MIN: usize = 32;
/// Nor are fewer multiplications.
const WORK_MIN: usize = 1 << 18;
/// To guess how many are zero, so many stretches of so many numbers are looked at.
const STRETCHES: usize = 256;
const STRETCH: usize = 8;
/// With a larger part than this other than zero, the dense product is as fast where the right matrix is wide.
const FULL_MAX: usize = STRETCHES * STRETCH * 3 / 10;
/// With AVX-512 the dense product gains more.
const FULL_MAX_AVX512: usize = STRETCHES * STRETCH * 3 / 20;

/// Whether zeros are worth skipping, and skipping them changes nothing: zero times infinity is not zero.
pub(crate) fn is_better(shape: &GemmShape, a: &[f32], b: &[f32]) -> bool {
    let GemmShape { m, n, k, transpose_b, .. } = *shape;
    !transpose_b && n >= COLUMNS_MIN && m * n * k >= WORK_MIN && has_many_zeros(a, full_max(n)) && all_finite(b)
}

/// How many of the numbers looked at may be other than zero.
fn full_max(n: usize) -> usize {
    if n > *PICKED_COLUMNS.end() && crate::simd::has_avx512() { FULL_MAX_AVX512 } else { FULL_MAX }
}

/// A guess from a few stretches all over.
fn has_many_zeros(a: &[f32], full_max: usize) -> bool {
    let Some(places) = a.len().checked_sub(STRETCH) else { return false };
    let mut full = 0;
    (0..STRETCHES as u64).all(|stretch| {
        // Multiples of the golden ratio: no width of a matrix keeps step with them.
        let part = stretch.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let at = ((part as u128 * places as u128) >> 32) as usize;
        full += a[at..at + STRETCH].iter().filter(|x| **x != 0.0).count();
        full <= full_max
    })
}

/// `c = a · b` or `c += a · b`, `b` as it stands.
pub(crate) fn gemm(pool: &Pool, shape: &GemmShape, a: &[f32], b: &[f32], c: &mut [f32]) {
    let GemmShape { m, k, .. } = *shape;
    // From front to back first, since the squares are too narrow for the processor to see what is needed next.
    let width = if shape.transpose_a { m } else { k };
    let words = width.div_ceil(SIDE);
    let mut bits = vec![0; a.len() / width * words];
    pool.for_each_row(&mut bits, words, (1 << 15) / width, &|first, rows| {
        for (bits, numbers) in rows.chunks_exact_mut(words).zip(a[first * width..].chunks_exact(width)) {
            nonzero(numbers, bits);
        }
    });
    let product = Product { shape, a, b, bits: &bits, words, c: SharedMut::new(c) };
    // The columns of a word are turned together.
    let rows = if shape.transpose_a { SIDE } else { m.div_ceil(m.div_ceil(ROWS).next_multiple_of(pool.threads())) };
    pool.for_each(m.div_ceil(rows), 1, &|blocks| {
        blocks.for_each(|block| product.rows(block * rows..((block + 1) * rows).min(m)));
    });
}

struct Product<'a> {
    shape: &'a GemmShape,
    a: &'a [f32],
    b: &'a [f32],
    /// What is not zero in `a`; so many words are a row of it, as it is stored.
    bits: &'a [u64],
    words: usize,
    c: SharedMut<f32>,
}

impl Product<'_> {
    /// Up to `SIDE` rows of the result; those of one word, where `a` is stored as its transpose.
    fn rows(&self, rows: Range<usize>) {
        let GemmShape { k, transpose_a, .. } = *self.shape;
        let bits = |row: usize, column: usize| self.bits[row * self.words + column / SIDE];
        for start in (0..k).step_by(SIDE) {
            let steps = start..(start + SIDE).min(k);
            let mut masks = [0; SIDE];
            if transpose_a {
                masks.iter_mut().zip(steps.clone()).for_each(|(mask, step)| *mask = bits(step, rows.start));
                turn(&mut masks);
            } else {
                masks.iter_mut().zip(rows.clone()).for_each(|(mask, row)| *mask = bits(row, start));
            }
            self.square(rows.clone(), steps, &masks[..rows.len()]);
        }
    }

    /// Some steps of the sums of some rows, which each have a mask of the steps that are not zero.
    fn square(&self, rows: Range<usize>, steps: Range<usize>, masks: &[u64]) {
        let GemmShape { n, accumulate, .. } = *self.shape;
        let (row_stride, step_stride) = self.shape.strides_a();
        let at = |row: usize, step: usize| row * row_stride + step * step_stride;
        let left = self.a[at(rows.start, steps.start)..=at(rows.end - 1, steps.end - 1)].as_ptr();
        let add = steps.start > 0 || accumulate;
        for columns in stripes(n) {
            let right = self.b[steps.start * n + columns.start..(steps.end - 1) * n + columns.end].as_ptr();
            let start = self.c.pointer(rows.start * n + columns.start..(rows.end - 1) * n + columns.end);
            let picks = Picks { masks, left, row_stride, step_stride, right, right_stride: n };
            let target = Target { start, stride: n, columns: columns.len(), add, in_turns: false };
            // SAFETY: each row has a mask, with bits for these steps alone, whose numbers lie in `a` and whose columns in `b`;
            // these rows of the result are written by this call alone.
            unsafe { by_picks(picks, target) };
        }
    }
}

/// All columns, in stripes of which none is much narrower than the others; each begins where a vector does.
fn stripes(n: usize) -> impl Iterator<Item = Range<usize>> {
    const MOST: usize = *PICKED_COLUMNS.end();
    let count = if n <= MOST { 1 } else { n.div_ceil(MOST - 7) };
    let start = move |stripe: usize| if stripe == count { n } else { stripe * n / count / 8 * 8 };
    (0..count).map(move |stripe| start(stripe)..start(stripe + 1))
}

vectorized! {
    /// Makes rows of bits columns: by halves, quarters and so on, whose corners change places.
    fn turn[][](bits: &mut [u64; SIDE]) = turn_body;
}

#[inline(always)]
fn turn_body<const FMA: bool>(bits: &mut [u64; SIDE]) {
    swap_corners::<32>(bits);
    swap_corners::<16>(bits);
    swap_corners::<8>(bits);
    swap_corners::<4>(bits);
    swap_corners::<2>(bits);
    swap_corners::<1>(bits);
}

#[inline(always)]
fn swap_corners<const HALF: usize>(bits: &mut [u64; SIDE]) {
    // As many ones as zeros in turn: all of 64 divided by 2^HALF + 1.
    let mask = u64::MAX / ((1 << HALF) + 1);
    for pair in bits.chunks_exact_mut(2 * HALF) {
        let (low, high) = pair.split_at_mut(HALF);
        for (low, high) in low.iter_mut().zip(high) {
            let swap = (*low >> HALF ^ *high) & mask;
            *low ^= swap << HALF;
            *high ^= swap;
        }
    }
}

vectorized! {
    /// Whether there is neither an infinity nor a NaN.
    fn all_finite[][](numbers: &[f32]) -> bool = all_finite_body;
}

#[inline(always)]
fn all_finite_body<const FMA: bool>(numbers: &[f32]) -> bool {
    const EXPONENT: u32 = f32::INFINITY.to_bits();
    numbers.chunks(1024).all(|part| part.iter().fold(0, |most, x| most.max(x.to_bits() & EXPONENT)) < EXPONENT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matmul::Gemm;
    use crate::testing::{Numbers, seeds};

    /// About one number in eight is left; some of the zeros are negative.
    fn mostly_zeros(numbers: &mut Numbers, len: usize) -> Vec<f32> {
        let number = |numbers: &mut Numbers| match numbers.below(16) {
            0 | 1 => numbers.number(),
            2 => -0.0,
            _ => 0.0,
        };
        (0..len).map(|_| number(numbers)).collect()
    }

    fn slow(shape: &GemmShape, a: &[f32], b: &[f32], c: &[f32]) -> Vec<f32> {
        let (row, step) = shape.strides_a();
        let sum = |i: usize, j: usize| (0..shape.k).map(|p| a[i * row + p * step] * b[p * shape.n + j]).sum::<f32>();
        let before = |at: usize| if shape.accumulate { c[at] } else { 0.0 };
        (0..shape.m * shape.n).map(|at| before(at) + sum(at / shape.n, at % shape.n)).collect()
    }

    #[test]
    fn skipping_zeros_changes_no_product() {
        let pool = Pool::new(3);
        let sizes = [(100, 100, 784), (784, 100, 100), (33, 105, 129), (70, 32, 200), (200, 1049, 65), (1300, 40, 7)];
        for (seed, (m, n, k)) in seeds().zip(sizes) {
            let mut numbers = Numbers::new(seed);
            for (transpose_a, accumulate) in [(false, false), (false, true), (true, false), (true, true)] {
                let shape = GemmShape { transpose_a, accumulate, ..GemmShape::new(m, n, k) };
                let (a, b): (_, Vec<f32>) = (mostly_zeros(&mut numbers, m * k), numbers.vec(k * n));
                assert!(is_better(&shape, &a, &b), "{shape:?} seed {seed}: zeros would not be skipped");
                let mut c: Vec<f32> = numbers.vec(m * n);
                let want = slow(&shape, &a, &b, &c);
                f32::gemm(&pool, &shape, &a, &b, &mut c);
                for (got, want) in c.iter().zip(&want) {
                    assert!((got - want).abs() < 2e-5, "{shape:?} seed {seed}: {got} is not {want}");
                }
            }
        }
    }

    #[test]
    fn zero_times_infinity_is_not_skipped() {
        let (m, n, k) = (100, 40, 100);
        let mut numbers = Numbers::new(1);
        for bad in [f32::INFINITY, f32::NEG_INFINITY, f32::NAN] {
            let (a, mut b) = (mostly_zeros(&mut numbers, m * k), numbers.vec::<f32>(k * n));
            b[17 * n + 3] = bad;
            let mut c = vec![0.0; m * n];
            f32::gemm(&Pool::inline(), &GemmShape::new(m, n, k), &a, &b, &mut c);
            for row in 0..m {
                assert!(!c[row * n + 3].is_finite(), "{bad} was skipped in row {row}");
                assert!(c[row * n + 4].is_finite(), "{bad} is in another column of row {row}");
            }
        }
    }

    #[test]
    fn what_is_not_a_number_counts_as_full() {
        let mut a = vec![0.0; 100 * 784];
        a[500] = f32::NAN;
        let (b, mut c) = (vec![1.0; 784 * 100], vec![0.0; 100 * 100]);
        f32::gemm(&Pool::inline(), &GemmShape::new(100, 100, 784), &a, &b, &mut c);
        assert!(c[..100].iter().all(|x| x.is_nan()) && c[100..].iter().all(|x| *x == 0.0));
    }

    #[test]
    fn rows_of_bits_become_columns() {
        let mut numbers = Numbers::new(3);
        let bits: [u64; 64] = std::array::from_fn(|_| numbers.bits());
        let mut turned = bits;
        turn(&mut turned);
        for (i, j) in (0..64).flat_map(|i| (0..64).map(move |j| (i, j))) {
            assert_eq!(turned[i] >> j & 1, bits[j] >> i & 1, "row {i}, column {j}");
        }
    }

    #[test]
    fn stripes_have_similar_widths_and_leave_nothing_out() {
        let most = *PICKED_COLUMNS.end();
        for n in COLUMNS_MIN..1500 {
            let mut next = 0;
            for stripe in stripes(n) {
                assert_eq!((stripe.start, stripe.start % 8), (next, 0), "{n} columns");
                assert!((most / 3..=most).contains(&stripe.len()) || stripe.len() == n, "{n} has a stripe {stripe:?}");
                assert!(PICKED_COLUMNS.contains(&stripe.len()), "{n} has a stripe {stripe:?}");
                next = stripe.end;
            }
            assert_eq!(next, n);
        }
    }
}

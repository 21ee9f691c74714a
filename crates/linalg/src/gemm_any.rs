//! Products of matrices of any number type but the one that matters most (see `gemm32`).
//!
//! The right matrix is packed in panels of a few columns; a tile of the result is kept in registers as far as the
//! type's vectors allow.

use crate::matmul::GemmShape;
use crate::number::Number;
use crate::parallel::{Pool, SharedMut};
use crate::simd::vectorized;
use num_complex::Complex;
use std::ops::Range;

/// A number with the one step of a product.
pub(crate) trait MulAdd: Number {
    /// `self * b + c`; in one rounding if the machine has the instruction.
    #[inline(always)]
    fn mul_add<const FMA: bool>(self, b: Self, c: Self) -> Self {
        self.mul(b).add(c)
    }
}

macro_rules! plain {
    ($($t:ty),*) => {$(impl MulAdd for $t {})*};
}

plain!(i8, i16, i32, i64, u8, u16, u32, u64, Complex<f32>, Complex<f64>);

impl MulAdd for f64 {
    #[inline(always)]
    fn mul_add<const FMA: bool>(self, b: f64, c: f64) -> f64 {
        if FMA { f64::mul_add(self, b, c) } else { self * b + c }
    }
}

/// Rows and columns of a tile.
const ROWS: usize = 4;
const COLUMNS: usize = 8;
/// The longest stretch of the sums done at once: a panel of it stays in the first cache.
const DEPTH: usize = 256;
/// Rows that are worth a thread's while together.
const BLOCK_ROWS: usize = 8 * ROWS;
/// Below this many multiplications one thread is faster than two.
const ALONE: usize = 1 << 17;

/// `c = a · b` or `c += a · b`; the slices have the sizes of the shape.
pub(crate) fn gemm<T: MulAdd>(pool: &Pool, shape: &GemmShape, a: &[T], b: &[T], c: &mut [T]) {
    let GemmShape { m, n, k, .. } = *shape;
    if m == 0 || n == 0 {
        return;
    }
    if k == 0 {
        if !shape.accumulate {
            c.fill(T::ZERO);
        }
        return;
    }
    let inline = Pool::inline();
    let pool = if m * n * k <= ALONE { &inline } else { pool };
    let panels = n.div_ceil(COLUMNS);
    let (b_row, b_column) = shape.strides_b();
    let mut packed = vec![T::ZERO; panels * k * COLUMNS];
    pool.for_each_row(&mut packed, k * COLUMNS, ((1 << 13) / (k * COLUMNS)).max(1), &|first, part| {
        for (panel, out) in (first..).zip(part.chunks_exact_mut(k * COLUMNS)) {
            let columns = COLUMNS.min(n - panel * COLUMNS);
            for (p, out) in out.chunks_exact_mut(COLUMNS).enumerate() {
                for (j, out) in out[..columns].iter_mut().enumerate() {
                    *out = b[p * b_row + (panel * COLUMNS + j) * b_column];
                }
            }
        }
    });
    let c = SharedMut::new(c);
    pool.for_each(m.div_ceil(BLOCK_ROWS), 1, &|range| {
        for block in range {
            let rows = block * BLOCK_ROWS..((block + 1) * BLOCK_ROWS).min(m);
            // SAFETY: blocks have disjoint rows.
            let c = unsafe { c.slice(rows.start * n..rows.end * n) };
            multiply_block(shape, a, &packed, rows, c);
        }
    });
}

/// Some rows of the result.
fn multiply_block<T: MulAdd>(shape: &GemmShape, a: &[T], packed: &[T], rows: Range<usize>, c: &mut [T]) {
    let GemmShape { n, k, .. } = *shape;
    let (a_row, a_column) = shape.strides_a();
    for depth in (0..k).step_by(DEPTH) {
        let steps = DEPTH.min(k - depth);
        let add = shape.accumulate || depth > 0;
        for (panel, right) in packed.chunks_exact(k * COLUMNS).enumerate() {
            let right = &right[depth * COLUMNS..][..steps * COLUMNS];
            let columns = panel * COLUMNS..((panel + 1) * COLUMNS).min(n);
            for row in (0..rows.len()).step_by(ROWS) {
                let count = ROWS.min(rows.len() - row);
                // Rows that do not exist are computed as the last that does, and left out.
                let starts =
                    [0, 1, 2, 3].map(|i: usize| (rows.start + row + i.min(count - 1)) * a_row + depth * a_column);
                let mut sums = [[T::ZERO; COLUMNS]; ROWS];
                tile::<T>(a, starts, a_column, right, &mut sums);
                for (i, sums) in sums[..count].iter().enumerate() {
                    let to = &mut c[(row + i) * n..][columns.clone()];
                    for (to, sum) in to.iter_mut().zip(sums) {
                        *to = if add { to.add(*sum) } else { *sum };
                    }
                }
            }
        }
    }
}

vectorized! {
    /// A tile's sums: left numbers from each start on, `stride` apart; right ones `COLUMNS` for every step.
    fn tile[T][T: MulAdd](a: &[T], starts: [usize; ROWS], stride: usize, right: &[T], out: &mut [[T; COLUMNS]; ROWS]) = tile_body;
}

#[inline(always)]
fn tile_body<T: MulAdd, const FMA: bool>(
    a: &[T],
    starts: [usize; ROWS],
    stride: usize,
    right: &[T],
    out: &mut [[T; COLUMNS]; ROWS],
) {
    // Not `out` itself: what others can see is not kept in registers.
    let mut sums = [[T::ZERO; COLUMNS]; ROWS];
    for (p, right) in right.as_chunks::<COLUMNS>().0.iter().enumerate() {
        for row in 0..ROWS {
            let left = a[starts[row] + p * stride];
            for column in 0..COLUMNS {
                sums[row][column] = left.mul_add::<FMA>(right[column], sums[row][column]);
            }
        }
    }
    *out = sums;
}

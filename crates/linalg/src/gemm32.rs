//! Products of single-precision matrices.
//!
//! The right matrix is packed in panels of `COLUMNS` columns and blocks of `DEPTH` rows, so that a panel of a block
//! stays in the first cache, unless few rows of the result read it; the left one in blocks that stay in the second. Where
//! the result has many rows, the threads share one packed right matrix and divide the rows; where it has few, they divide
//! the columns; where it is small and its sums are long, they divide the sums. What a thread packs for itself alone need
//! not travel to another.
//! How sums are cut depends on the sizes only, so the result does not depend on the number of threads.

use crate::matmul::GemmShape;
use crate::parallel::{Pool, SharedMut};
use crate::scratch::Scratch;
use crate::simd::vectorized;
use crate::skipping;
use crate::tile::{COLUMNS, ROWS, Runs, Side, Target, Walk, by_columns, by_rows, fetch, groups};
use std::ops::Range;

/// The longest stretch of the sums done at once: a panel of this depth takes 20 of the first cache's 32 kB.
const DEPTH: usize = 320;
/// Rows of a left block; with `DEPTH` they take a third of the second cache.
const BLOCK_ROWS: usize = 20 * ROWS;
/// Columns of a right block where the left matrix is long too.
const BLOCK_COLUMNS: usize = 32 * COLUMNS;
/// Panels that are packed together, so that whole stretches of a row are read.
const PANELS: usize = 8;
/// Up to this many rows, the threads divide the columns.
const FEW_ROWS: usize = 256;
/// Up to this many elements, a result with long sums is made in parts; so many at most.
const SMALL: usize = 1 << 14;
const PARTS: usize = 8;
/// Below this many multiplications one thread is faster than two, the second awake or not.
const ALONE: usize = 1 << 19;
const ALONE_ASLEEP: usize = 1 << 22;
/// Up to this many rows of the result, and columns of it, the right matrix is not packed where there is AVX-512. With more
/// columns it would depend on the number of threads whether they are divided, and so how sums are cut.
const IN_PLACE_ROWS: usize = 128;
const IN_PLACE_COLUMNS: usize = PANELS * COLUMNS - 1;
/// The longest stretch of the sums that is then done at once. The first cache does not hold it, but it is read in order.
const IN_PLACE_DEPTH: usize = 512;
/// The most that a packed right matrix takes at once, in elements.
const PACKED_MAX: usize = 16 << 20;

/// `c = a · b` or `c += a · b`; the slices have the sizes of the shape.
pub(crate) fn gemm(pool: &Pool, shape: &GemmShape, a: &[f32], b: &[f32], c: &mut [f32]) {
    let GemmShape { m, n, k, .. } = *shape;
    if m == 0 || n == 0 {
        return;
    }
    if k == 0 {
        if !shape.accumulate {
            c.fill(0.0);
        }
        return;
    }
    if m == 1 {
        return vector_times_matrix(pool, shape.accumulate, a, b, n, shape.transpose_b, c);
    }
    if n == 1 {
        return vector_times_matrix(pool, shape.accumulate, b, a, m, !shape.transpose_a, c);
    }
    let inline = Pool::inline();
    let alone = if pool.is_awake() { ALONE } else { ALONE_ASLEEP };
    let skip_zeros = skipping::is_better(shape, a, b);
    // What is left when zeros are skipped, more or less.
    let work = if skip_zeros { m * n * k / 4 } else { m * n * k };
    let pool = if work <= alone { &inline } else { pool };
    if skip_zeros {
        return skipping::gemm(pool, shape, a, b, c);
    }
    let product = Product { shape, a, b };
    if m * n <= SMALL && k >= 4 * m.max(n) && k >= 2 * DEPTH {
        product.by_parts_of_sums(pool, c);
    } else if m <= FEW_ROWS && n >= PANELS * COLUMNS * pool.threads() {
        product.by_column_blocks(pool, PANELS, c);
    } else if pool.threads() > 1 && n >= 2 * PANELS * COLUMNS * pool.threads() && 2 * n >= m {
        // As many blocks for each thread.
        let rounds = n.div_ceil(pool.threads() * BLOCK_COLUMNS);
        product.by_column_blocks(pool, n.div_ceil(pool.threads() * rounds).div_ceil(COLUMNS), c);
    } else {
        product.by_row_blocks(pool, &Depths::new(0..k), shape.accumulate, &SharedMut::new(c));
    }
}

/// How a part of the sums is cut.
struct Depths {
    whole: Range<usize>,
    block: usize,
}

impl Depths {
    fn new(whole: Range<usize>) -> Depths {
        Depths::of_most(DEPTH, whole)
    }

    fn of_most(depth: usize, whole: Range<usize>) -> Depths {
        let block = whole.len().div_ceil(whole.len().div_ceil(depth));
        Depths { whole, block }
    }

    fn count(&self) -> usize {
        self.whole.len().div_ceil(self.block)
    }

    fn range(&self, index: usize) -> Range<usize> {
        let start = self.whole.start + index * self.block;
        start..(start + self.block).min(self.whole.end)
    }

    fn ranges(&self) -> impl Iterator<Item = Range<usize>> {
        (0..self.count()).map(|index| self.range(index))
    }
}

struct Product<'a> {
    shape: &'a GemmShape,
    a: &'a [f32],
    b: &'a [f32],
}

impl Product<'_> {
    /// Long sums cut into parts, each on one thread, and the parts added.
    fn by_parts_of_sums(&self, pool: &Pool, c: &mut [f32]) {
        let GemmShape { k, accumulate, .. } = *self.shape;
        let (parts, len) = ((k / (2 * DEPTH)).clamp(2, PARTS), c.len());
        let mut sums = Scratch::take((parts - 1) * len);
        let (first, rest) = (SharedMut::new(c), SharedMut::new(&mut sums));
        let inline = Pool::inline();
        pool.for_each(parts, 1, &|range| {
            for part in range {
                let depths = Depths::new(part * k / parts..(part + 1) * k / parts);
                match part.checked_sub(1) {
                    None => self.by_row_blocks(&inline, &depths, accumulate, &first),
                    Some(at) => {
                        // SAFETY: every part has a range of its own.
                        let sums = unsafe { rest.slice(at * len..(at + 1) * len) };
                        self.by_row_blocks(&inline, &depths, false, &SharedMut::new(sums));
                    }
                }
            }
        });
        for part in sums.chunks_exact(len) {
            crate::elementwise::add_assign(c, part);
        }
    }

    /// Some of the sums, the rows of the result divided among the threads.
    fn by_row_blocks(&self, pool: &Pool, depths: &Depths, accumulate: bool, c: &SharedMut<f32>) {
        let width = (PACKED_MAX / depths.whole.len() / COLUMNS).max(1) * COLUMNS;
        for start in (0..self.shape.n).step_by(width) {
            self.rows_of_columns(pool, depths, start..(start + width).min(self.shape.n), accumulate, c);
        }
    }

    /// Some columns of the result, its rows divided among the threads.
    fn rows_of_columns(
        &self,
        pool: &Pool,
        depths: &Depths,
        columns: Range<usize>,
        accumulate: bool,
        c: &SharedMut<f32>,
    ) {
        if self.reads_right_in_place(&columns) {
            return self.rows_in_place(pool, depths.whole.clone(), accumulate, c);
        }
        let (m, n) = (self.shape.m, self.shape.n);
        let panels = columns.len().div_ceil(COLUMNS);
        let mut packed = Scratch::take(depths.whole.len() * panels * COLUMNS);
        let packed_start = |depth: &Range<usize>, panel: usize| {
            ((depth.start - depths.whole.start) * panels + panel * depth.len()) * COLUMNS
        };
        {
            let shared = SharedMut::new(&mut packed);
            // Small matrices are cut finer, so that no thread waits long for another.
            let together = (depths.count() * panels / (8 * pool.threads())).clamp(1, PANELS);
            let groups = panels.div_ceil(together);
            pool.for_each(depths.count() * groups, (1 << 12) / (depths.block * COLUMNS * together), &|range| {
                for index in range {
                    let (depth, panel) = (depths.range(index / groups), index % groups * together);
                    let count = together.min(panels - panel);
                    let at = packed_start(&depth, panel);
                    let first = columns.start + panel * COLUMNS;
                    // SAFETY: every panel of every block has a range of its own.
                    let out = unsafe { shared.slice(at..at + depth.len() * COLUMNS * count) };
                    self.pack_right(depth, first..(first + COLUMNS * count).min(columns.end), out);
                }
            });
        }
        // As many blocks for each thread.
        let rounds = m.div_ceil(pool.threads() * BLOCK_ROWS);
        let rows = m.div_ceil(pool.threads() * rounds).next_multiple_of(ROWS);
        pool.for_each(m.div_ceil(rows), 1, &|range| {
            for block in range {
                let rows = block * rows..((block + 1) * rows).min(m);
                for depth in depths.ranges() {
                    let left = self.pack_left(rows.clone(), depth.clone());
                    let add = depth.start > depths.whole.start || accumulate;
                    // The next block follows at once.
                    let right = &packed[packed_start(&depth, 0)..];
                    left.multiply_all(right, &Stripe { rows: rows.clone(), columns: columns.clone() }, n, add, c);
                }
            }
        });
    }

    /// Whether packing the right matrix would take longer than it saves: few rows of the result read it.
    fn reads_right_in_place(&self, columns: &Range<usize>) -> bool {
        let GemmShape { m, n, transpose_a, transpose_b, .. } = *self.shape;
        let is_small = m <= IN_PLACE_ROWS && (COLUMNS..=IN_PLACE_COLUMNS).contains(&n) && columns.len() == n;
        is_small && !transpose_a && !transpose_b && crate::simd::has_avx512()
    }

    /// Some of the sums, the rows of the result divided among the threads; of the right matrix only the last columns are
    /// packed, if they are no whole panel.
    fn rows_in_place(&self, pool: &Pool, depths: Range<usize>, accumulate: bool, c: &SharedMut<f32>) {
        let (m, n) = (self.shape.m, self.shape.n);
        let depths = Depths::of_most(IN_PLACE_DEPTH, depths);
        let (whole, rest) = (n / COLUMNS * COLUMNS, n % COLUMNS);
        let mut packed = Scratch::take(if rest > 0 { depths.whole.len() * COLUMNS } else { 0 });
        if rest > 0 {
            pack_straight(&self.b[depths.whole.start * n + whole..], n, rest, depths.whole.len(), &mut packed);
        }
        let share = m.div_ceil(pool.threads()).next_multiple_of(ROWS);
        pool.for_each(m.div_ceil(share), 1, &|range| {
            let rows = range.start * share..(range.end * share).min(m);
            for depth in depths.ranges() {
                let add = depth.start > depths.whole.start || accumulate;
                let left = self.pack_left(rows.clone(), depth.clone());
                for panels in groups(whole / COLUMNS) {
                    let columns = panels.start * COLUMNS..panels.end * COLUMNS;
                    let numbers = &self.b[depth.start * n + columns.start..(depth.end - 1) * n + columns.end];
                    let right = Right { numbers, next: &[], stride: n, apart: COLUMNS };
                    left.multiply(right, &Stripe { rows: rows.clone(), columns }, n, add, c);
                }
                if rest > 0 {
                    let numbers = &packed[(depth.start - depths.whole.start) * COLUMNS..][..depth.len() * COLUMNS];
                    let right = Right::packed(numbers, &[], depth.len());
                    left.multiply(right, &Stripe { rows: rows.clone(), columns: whole..n }, n, add, c);
                }
            }
        });
    }

    /// The columns of the result divided among the threads, `together` panels at a time; each packs what it needs.
    fn by_column_blocks(&self, pool: &Pool, together: usize, c: &mut [f32]) {
        let GemmShape { m, n, k, .. } = *self.shape;
        let (panels, depths) = (n.div_ceil(COLUMNS), Depths::new(0..k));
        let block_rows = if m <= FEW_ROWS { m } else { BLOCK_ROWS };
        let c = SharedMut::new(c);
        pool.for_each(panels.div_ceil(together), (ALONE / (m * k * COLUMNS * together)).max(1), &|range| {
            let mut packed = Scratch::take(depths.block * COLUMNS * together);
            for first in range.map(|index| index * together) {
                let count = together.min(panels - first);
                for depth in depths.ranges() {
                    let add = depth.start > 0 || self.shape.accumulate;
                    let len = depth.len() * COLUMNS;
                    for panel in (first..first + count).step_by(PANELS) {
                        let end = (panel + PANELS).min(first + count);
                        let out = &mut packed[(panel - first) * len..(end - first) * len];
                        self.pack_right(depth.clone(), panel * COLUMNS..(end * COLUMNS).min(n), out);
                    }
                    let right = &packed[..len * count];
                    for row in (0..m).step_by(block_rows) {
                        let rows = row..(row + block_rows).min(m);
                        let left = self.pack_left(rows.clone(), depth.clone());
                        let columns = first * COLUMNS..((first + count) * COLUMNS).min(n);
                        left.multiply_all(right, &Stripe { rows, columns }, n, add, &c);
                    }
                }
            }
        });
    }

    /// Packs some columns, panel after panel.
    fn pack_right(&self, depth: Range<usize>, columns: Range<usize>, out: &mut [f32]) {
        let GemmShape { n, k, .. } = *self.shape;
        if self.shape.transpose_b {
            for (first, out) in columns.clone().step_by(COLUMNS).zip(out.chunks_exact_mut(depth.len() * COLUMNS)) {
                let count = COLUMNS.min(columns.end - first);
                pack_turned(&self.b[first * k + depth.start..], k, count, depth.len(), out);
            }
        } else {
            pack_straight(&self.b[depth.start * n + columns.start..], n, columns.len(), depth.len(), out);
        }
    }

    fn pack_left(&self, rows: Range<usize>, depth: Range<usize>) -> Left<'_> {
        let GemmShape { m, k, .. } = *self.shape;
        let len = depth.len();
        if self.shape.transpose_a {
            // Read twice at the most, the numbers stay where they are.
            if groups(self.shape.n.div_ceil(COLUMNS)).count() <= 2 && !m.is_multiple_of(1024) {
                let numbers = &self.a[depth.start * m + rows.start..(depth.end - 1) * m + rows.end];
                let numbers = Numbers::InPlace(numbers);
                return Left { numbers, stride: m, group: ROWS, len, side_by_side: true };
            }
            let groups = rows.len().div_ceil(ROWS);
            let mut packed = Scratch::take(groups * ROWS * len);
            for (group, out) in packed.chunks_exact_mut(ROWS * len).enumerate() {
                let first = rows.start + group * ROWS;
                let count = ROWS.min(rows.end - first);
                for (p, out) in depth.clone().zip(out.as_chunks_mut::<ROWS>().0) {
                    let from = &self.a[p * m + first..];
                    match from.first_chunk::<ROWS>() {
                        Some(from) if count == ROWS => *out = *from,
                        _ => out[..count].copy_from_slice(&from[..count]),
                    }
                }
            }
            return Left { numbers: Numbers::Packed(packed), stride: ROWS, group: ROWS * len, len, side_by_side: true };
        }
        if !k.is_multiple_of(1024) {
            let numbers = &self.a[rows.start * k + depth.start..(rows.end - 1) * k + depth.end];
            return Left { numbers: Numbers::InPlace(numbers), stride: k, group: ROWS * k, len, side_by_side: false };
        }
        // Rows that lie a large power of two apart compete for the same places in the caches: here they are copied to
        // lie an odd number of lines apart.
        let stride = len.next_multiple_of(32) + 16;
        let mut packed = Scratch::take(rows.len() * stride);
        for (row, out) in rows.zip(packed.chunks_exact_mut(stride)) {
            out[..len].copy_from_slice(&self.a[row * k + depth.start..][..len]);
        }
        Left { numbers: Numbers::Packed(packed), stride, group: ROWS * stride, len, side_by_side: false }
    }
}

/// Some rows and columns of the result.
struct Stripe {
    rows: Range<usize>,
    columns: Range<usize>,
}

/// Panels of a block of the right matrix.
struct Right<'a> {
    /// From the first panel's first step to the last one's last.
    numbers: &'a [f32],
    /// What is needed next, and fetched meanwhile.
    next: &'a [f32],
    /// The distance between steps.
    stride: usize,
    /// The distance between panels.
    apart: usize,
}

impl<'a> Right<'a> {
    /// So many steps of panels that follow one another.
    fn packed(numbers: &'a [f32], next: &'a [f32], len: usize) -> Right<'a> {
        Right { numbers, next, stride: COLUMNS, apart: len * COLUMNS }
    }
}

/// A block of the left matrix.
struct Left<'a> {
    numbers: Numbers<'a>,
    /// The distance between rows, or between steps if the rows lie side by side.
    stride: usize,
    /// The distance between groups of `ROWS` rows.
    group: usize,
    /// How many steps there are.
    len: usize,
    side_by_side: bool,
}

enum Numbers<'a> {
    Packed(Scratch),
    InPlace(&'a [f32]),
}

impl Left<'_> {
    /// A stripe of the result from this block and the packed panels of its columns, with which `right` begins.
    fn multiply_all(&self, right: &[f32], stripe: &Stripe, n: usize, add: bool, c: &SharedMut<f32>) {
        for panels in groups(stripe.columns.len().div_ceil(COLUMNS)) {
            let right = &right[panels.start * self.len * COLUMNS..];
            let (right, next) = right.split_at(panels.len() * self.len * COLUMNS);
            let right = Right::packed(right, &next[..next.len().min(right.len())], self.len);
            let column = |panel: usize| (stripe.columns.start + panel * COLUMNS).min(stripe.columns.end);
            let columns = column(panels.start)..column(panels.end);
            self.multiply(right, &Stripe { rows: stripe.rows.clone(), columns }, n, add, c);
        }
    }

    /// A stripe of the result from this block and few panels of the right matrix.
    fn multiply(&self, right: Right<'_>, stripe: &Stripe, n: usize, add: bool, c: &SharedMut<f32>) {
        let Right { numbers: panels, next, stride, apart } = right;
        let last = (stripe.columns.len().div_ceil(COLUMNS) - 1) * apart + (self.len - 1) * stride;
        assert!(panels.len() >= last + COLUMNS, "a panel must have a row for every step");
        let numbers = match &self.numbers {
            Numbers::Packed(packed) => &packed[..],
            Numbers::InPlace(numbers) => numbers,
        };
        let mut row = 0;
        let share = (next.len() * ROWS).div_ceil(stripe.rows.len()).max(1);
        let mut next = next.chunks(share);
        while row < stripe.rows.len() {
            if let Some(next) = next.next() {
                fetch(next);
            }
            let count = ROWS.min(stripe.rows.len() - row);
            let at = (stripe.rows.start + row) * n + stripe.columns.start;
            let columns = stripe.columns.len();
            let start = c.pointer(at..at + (count - 1) * n + columns);
            let target = Target { start, stride: n, columns, add, in_turns: n <= COLUMNS };
            if self.side_by_side {
                let group = &numbers[row / ROWS * self.group..][..(self.len - 1) * self.stride + count];
                let left = Walk { start: group.as_ptr(), stride: self.stride, outer_stride: 0 };
                let right = Walk { start: panels.as_ptr(), stride, outer_stride: 0 };
                // SAFETY: a group holds `count` numbers for each of `len` steps, the panel `COLUMNS`; the tile lies
                // within the result and belongs to this stripe alone.
                unsafe { by_columns(count, left, right, apart, (self.len, 1), target) };
            } else {
                let first = &numbers[row / ROWS * self.group..][..(count - 1) * self.stride + self.len];
                let mut rows = [first.as_ptr(); ROWS];
                for (i, row) in rows.iter_mut().enumerate().take(count) {
                    *row = first.as_ptr().wrapping_add(i * self.stride);
                }
                let runs = Runs { offsets: &[0], len: self.len };
                let right = Side { start: panels.as_ptr(), stride, apart };
                // SAFETY: each of `count` rows holds `len` numbers, the panel `COLUMNS` for each; the tile lies within
                // the result and belongs to this stripe alone.
                unsafe { by_rows(&rows[..count], runs, right, target) };
            }
            row += count;
        }
    }
}

/// Packs `columns` columns of a matrix with the given row stride, `depth` rows of it, panel after panel; zeros fill the
/// last panel.
pub(crate) fn pack_straight(src: &[f32], stride: usize, columns: usize, depth: usize, out: &mut [f32]) {
    let (whole, rest) = (columns / COLUMNS, columns % COLUMNS);
    let mask: [u32; COLUMNS] = std::array::from_fn(|column| if column < rest { u32::MAX } else { 0 });
    for p in 0..depth {
        let (from, from_rest) = src[p * stride..][..columns].as_chunks::<COLUMNS>();
        for (panel, from) in from.iter().enumerate() {
            out[(panel * depth + p) * COLUMNS..][..COLUMNS].copy_from_slice(from);
        }
        if rest > 0 {
            let out = &mut out[(whole * depth + p) * COLUMNS..][..COLUMNS];
            // Few numbers are copied faster together with some of the next row, which are then taken away.
            if let Some(from) = src[p * stride + whole * COLUMNS..].first_chunk::<COLUMNS>() {
                let kept = |(x, mask): (&f32, &u32)| f32::from_bits(x.to_bits() & mask);
                out.iter_mut().zip(from.iter().zip(&mask)).for_each(|(out, pair)| *out = kept(pair));
            } else {
                out[..rest].copy_from_slice(from_rest);
                out[rest..].fill(0.0);
            }
        }
    }
}

/// Packs `columns` columns that are stored as rows with the given stride.
pub(crate) fn pack_turned(src: &[f32], stride: usize, columns: usize, depth: usize, out: &mut [f32]) {
    let mut p = 0;
    if columns == COLUMNS {
        while p + 8 <= depth {
            for half in [0, 8] {
                let from = &src[half * stride + p..][..7 * stride + 8];
                crate::transpose::turn_8x8(from, stride, &mut out[p * COLUMNS + half..][..7 * COLUMNS + 8], COLUMNS);
            }
            p += 8;
        }
    }
    for p in p..depth {
        let out = &mut out[p * COLUMNS..(p + 1) * COLUMNS];
        for (column, out) in out.iter_mut().enumerate() {
            *out = if column < columns { src[column * stride + p] } else { 0.0 };
        }
    }
}

/// `c = v · matrix` or `c += v · matrix`; the matrix is k×n, or n×k if transposed.
fn vector_times_matrix(
    pool: &Pool,
    accumulate: bool,
    v: &[f32],
    matrix: &[f32],
    n: usize,
    transposed: bool,
    c: &mut [f32],
) {
    let k = v.len();
    pool.for_each_mut(c, ((1 << 15) / k).max(16), &|first, part| {
        if !accumulate {
            part.fill(0.0);
        }
        if transposed {
            for (i, out) in part.iter_mut().enumerate() {
                *out += dot(v, &matrix[(first + i) * k..][..k]);
            }
        } else {
            // Stretches of the result that stay in the first cache.
            for (stretch, out) in part.chunks_mut(2048).enumerate() {
                add_rows(out, v, &matrix[first + stretch * 2048..], n);
            }
        }
    });
}

vectorized! {
    fn dot[][](a: &[f32], b: &[f32]) -> f32 = dot_body;
}
vectorized! {
    /// `out += Σ v[p] · (row p of the matrix)`.
    fn add_rows[][](out: &mut [f32], v: &[f32], matrix: &[f32], stride: usize) = add_rows_body;
}

#[inline(always)]
fn dot_body<const FMA: bool>(a: &[f32], b: &[f32]) -> f32 {
    let mut lanes = [0.0f32; 32];
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<32>(), b.as_chunks::<32>());
    for (a, b) in a.iter().zip(b) {
        for i in 0..32 {
            lanes[i] = crate::simd::fma::<FMA>(a[i], b[i], lanes[i]);
        }
    }
    let rest: f32 = a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum();
    let mut width = 16;
    while width > 0 {
        for i in 0..width {
            lanes[i] += lanes[i + width];
        }
        width /= 2;
    }
    lanes[0] + rest
}

#[inline(always)]
fn add_rows_body<const FMA: bool>(out: &mut [f32], v: &[f32], matrix: &[f32], stride: usize) {
    let len = out.len();
    let mut p = 0;
    while p + 4 <= v.len() {
        let row = |p: usize| &matrix[p * stride..][..len];
        let (r0, r1, r2, r3) = (row(p), row(p + 1), row(p + 2), row(p + 3));
        for i in 0..len {
            let sum = crate::simd::fma::<FMA>(v[p], r0[i], out[i]);
            let sum = crate::simd::fma::<FMA>(v[p + 1], r1[i], sum);
            let sum = crate::simd::fma::<FMA>(v[p + 2], r2[i], sum);
            out[i] = crate::simd::fma::<FMA>(v[p + 3], r3[i], sum);
        }
        p += 4;
    }
    for p in p..v.len() {
        for (out, x) in out.iter_mut().zip(&matrix[p * stride..][..len]) {
            *out = crate::simd::fma::<FMA>(v[p], *x, *out);
        }
    }
}

//! The innermost loops of matrix products and convolutions: one small tile of the result, kept in registers.
//!
//! A tile has up to `ROWS` rows and `COLUMNS` columns. Its right side is read `COLUMNS` numbers at a time (packed, or
//! with a stride); its left side one number per row at a time, in one of two layouts: `by_rows` follows a pointer per
//! row, `by_columns` finds the rows' numbers side by side. With AVX-512, where a vector is as wide as a tile, several
//! tiles that lie side by side are done together.

use std::ops::{Range, RangeInclusive};

/// Rows of a tile: with two vectors per row, twelve accumulators hide the latency of the multiplications.
pub(crate) const ROWS: usize = 6;
/// Columns of a tile.
pub(crate) const COLUMNS: usize = 16;
/// The most tiles side by side that are done together: with a vector per row and tile, 24 accumulators of 32 registers.
const TOGETHER: usize = 4;

/// So many tiles that lie side by side, in groups that are best done together here.
#[inline]
pub(crate) fn groups(tiles: usize) -> impl Iterator<Item = Range<usize>> {
    let most = if crate::simd::has_avx512() { TOGETHER } else { 1 };
    let each = tiles.div_ceil(tiles.div_ceil(most).max(1)).max(1);
    (0..tiles).step_by(each).map(move |first| first..(first + each).min(tiles))
}

/// How many of the tiles of so many columns are worth a vector of AVX-512, if there is one: the last is not if half of one
/// holds it. Processors that do a vector in halves would take as long for a few columns as for all.
#[inline]
fn wide_tiles(columns: usize) -> usize {
    if crate::simd::has_avx512() { (columns + 7) / COLUMNS } else { 0 }
}

/// Where a tile goes.
#[derive(Clone, Copy)]
pub(crate) struct Target {
    /// The tile's first element.
    pub(crate) start: *mut f32,
    /// The distance between its rows.
    pub(crate) stride: usize,
    /// How many of its columns exist; more than `COLUMNS` if it is several tiles.
    pub(crate) columns: usize,
    /// Whether the tile is added to what is there.
    pub(crate) add: bool,
    /// Whether the steps of a tile that is done alone may be added in turns to two sums, for one would wait for itself. Only
    /// if it is done alone on any number of threads, since the result is rounded differently.
    pub(crate) in_turns: bool,
}

impl Target {
    /// The first so many of several tiles side by side.
    fn first(self, tiles: usize) -> Target {
        Target { columns: self.columns.min(tiles * COLUMNS), ..self }
    }

    /// One of several tiles side by side.
    fn tile(self, index: usize) -> Target {
        let before = index * COLUMNS;
        Target { start: self.start.wrapping_add(before), columns: COLUMNS.min(self.columns - before), ..self }
    }
}

/// A left side that follows a pointer per row: `len` numbers from each of several offsets on.
#[derive(Clone, Copy)]
pub(crate) struct Runs<'a> {
    /// Where each run begins, relative to the row's pointer.
    pub(crate) offsets: &'a [usize],
    /// The length of every run.
    pub(crate) len: usize,
}

/// A side whose numbers for one step lie side by side: `inner` steps `stride` apart, `outer` times `outer_stride`.
#[derive(Clone, Copy)]
pub(crate) struct Walk {
    /// The first step's numbers.
    pub(crate) start: *const f32,
    /// The distance between steps.
    pub(crate) stride: usize,
    /// The distance between rounds of steps.
    pub(crate) outer_stride: usize,
}

/// A right side whose `COLUMNS` numbers for one step lie side by side, those of several tiles `apart`.
#[derive(Clone, Copy)]
pub(crate) struct Side {
    /// The first step's numbers.
    pub(crate) start: *const f32,
    /// The distance between steps: `COLUMNS` if it is packed.
    pub(crate) stride: usize,
    /// The distance between tiles.
    pub(crate) apart: usize,
}

impl Side {
    /// A packed one.
    pub(crate) fn packed(start: *const f32, apart: usize) -> Side {
        Side { start, stride: COLUMNS, apart }
    }
}

/// Rows of the left side, of which only some steps count.
#[derive(Clone, Copy)]
pub(crate) struct Picks<'a> {
    /// The steps that count in each row, a bit for each.
    pub(crate) masks: &'a [u64],
    /// The first row's number for the first step, and the distances between rows and between steps.
    pub(crate) left: *const f32,
    pub(crate) row_stride: usize,
    pub(crate) step_stride: usize,
    /// The first step's row of the right side, and the distance between rows.
    pub(crate) right: *const f32,
    pub(crate) right_stride: usize,
}

/// How many columns rows of picked steps may have.
pub(crate) const PICKED_COLUMNS: RangeInclusive<usize> = 3 * 8 + 1..=13 * 8;

/// Computes rows from picked steps.
///
/// # Safety
/// The picked numbers on the left, the target's columns of the picked rows on the right, and the target can be accessed.
#[inline]
pub(crate) unsafe fn by_picks(picks: Picks<'_>, target: Target) {
    let columns = target.columns;
    assert!(PICKED_COLUMNS.contains(&columns), "a row of picked steps cannot have {columns} columns");
    #[cfg(target_arch = "x86_64")]
    if crate::simd::has_avx512() {
        // SAFETY: passed on; AVX-512 is checked.
        return unsafe {
            match columns.div_ceil(16) {
                7 => avx512::by_picks::<7>(picks, target),
                6 => avx512::by_picks::<6>(picks, target),
                5 => avx512::by_picks::<5>(picks, target),
                4 => avx512::by_picks::<4>(picks, target),
                3 => avx512::by_picks::<3>(picks, target),
                _ => avx512::by_picks::<2>(picks, target),
            }
        };
    }
    // SAFETY: passed on.
    unsafe { narrow_by_picks(picks, target) }
}

/// # Safety
/// As `by_picks`.
#[inline]
unsafe fn narrow_by_picks(picks: Picks<'_>, target: Target) {
    // SAFETY: passed on; AVX2 is checked.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        if crate::simd::has_avx2() {
            return match target.columns.div_ceil(8) {
                13 => avx2::by_picks::<13>(picks, target),
                12 => avx2::by_picks::<12>(picks, target),
                11 => avx2::by_picks::<11>(picks, target),
                10 => avx2::by_picks::<10>(picks, target),
                9 => avx2::by_picks::<9>(picks, target),
                8 => avx2::by_picks::<8>(picks, target),
                7 => avx2::by_picks::<7>(picks, target),
                6 => avx2::by_picks::<6>(picks, target),
                5 => avx2::by_picks::<5>(picks, target),
                _ => avx2::by_picks::<4>(picks, target),
            };
        }
        portable::by_picks(picks, target);
    }
}

/// Notes which numbers are not zero, a bit for each.
#[inline]
pub(crate) fn nonzero(numbers: &[f32], bits: &mut [u64]) {
    assert_eq!(numbers.len().div_ceil(64), bits.len(), "there must be a bit for each number");
    #[cfg(target_arch = "x86_64")]
    if crate::simd::has_avx2() {
        // SAFETY: the machine has AVX2.
        return unsafe { avx2::nonzero(numbers, bits) };
    }
    portable::nonzero(numbers, bits);
}

/// Computes a tile whose left rows follow the pointers. The right side is packed, unless all tiles are whole and there is
/// AVX-512.
///
/// # Safety
/// Every row's runs, for each tile `COLUMNS` numbers of the right side for each of `offsets.len() * len` steps, and the target
/// can be accessed.
#[inline]
pub(crate) unsafe fn by_rows(rows: &[*const f32], runs: Runs<'_>, right: Side, target: Target) {
    let wide = wide_tiles(target.columns);
    #[cfg(target_arch = "x86_64")]
    if wide > 0 {
        // SAFETY: passed on; AVX-512 is checked.
        unsafe { avx512::by_rows(rows, runs, right, target.first(wide)) };
    }
    for tile in wide..target.columns.div_ceil(COLUMNS) {
        assert_eq!(right.stride, COLUMNS, "the right side of a narrow tile must be packed");
        // SAFETY: passed on.
        unsafe { tile_by_rows(rows, runs, right.start.add(tile * right.apart), target.tile(tile)) };
    }
}

/// # Safety
/// As `by_rows`, for one tile.
#[inline]
unsafe fn tile_by_rows(rows: &[*const f32], runs: Runs<'_>, right: *const f32, target: Target) {
    // SAFETY: passed on; AVX2 is checked.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        if crate::simd::has_avx2() {
            return match *rows {
                [a, b, c, d, e, f] => avx2::by_rows([a, b, c, d, e, f], runs, right, target),
                [a, b, c, d, e] => avx2::by_rows([a, b, c, d, e], runs, right, target),
                [a, b, c, d] => avx2::by_rows([a, b, c, d], runs, right, target),
                [a, b, c] => avx2::by_rows([a, b, c], runs, right, target),
                [a, b] => avx2::by_rows([a, b], runs, right, target),
                [a] => avx2::by_rows([a], runs, right, target),
                _ => {}
            };
        }
        portable::by_rows(rows, runs, right, target);
    }
}

/// Computes a tile whose left numbers lie side by side, `count` rows of them. The right sides of several tiles lie `apart`.
///
/// # Safety
/// `inner * outer` steps of both walks (`count` numbers left, for each tile `COLUMNS` right) and the target can be accessed.
#[inline]
pub(crate) unsafe fn by_columns(
    count: usize,
    left: Walk,
    right: Walk,
    apart: usize,
    (inner, outer): (usize, usize),
    target: Target,
) {
    let wide = wide_tiles(target.columns);
    #[cfg(target_arch = "x86_64")]
    if wide > 0 {
        // SAFETY: passed on; AVX-512 is checked.
        unsafe { avx512::by_columns(count, left, right, apart, (inner, outer), target.first(wide)) };
    }
    for tile in wide..target.columns.div_ceil(COLUMNS) {
        let right = Walk { start: right.start.wrapping_add(tile * apart), ..right };
        // SAFETY: passed on.
        unsafe { tile_by_columns(count, left, right, inner, outer, target.tile(tile)) };
    }
}

/// # Safety
/// As `by_columns`, for one tile.
#[inline]
unsafe fn tile_by_columns(count: usize, left: Walk, right: Walk, inner: usize, outer: usize, target: Target) {
    // SAFETY: passed on; AVX2 is checked.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        if crate::simd::has_avx2() {
            return match count {
                6 => avx2::by_columns::<6>(left, right, inner, outer, target),
                5 => avx2::by_columns::<5>(left, right, inner, outer, target),
                4 => avx2::by_columns::<4>(left, right, inner, outer, target),
                3 => avx2::by_columns::<3>(left, right, inner, outer, target),
                2 => avx2::by_columns::<2>(left, right, inner, outer, target),
                1 => avx2::by_columns::<1>(left, right, inner, outer, target),
                _ => {}
            };
        }
        portable::by_columns(count, left, right, inner, outer, target);
    }
}

/// Asks for some numbers to be brought into the second cache.
#[inline(always)]
pub(crate) fn fetch(numbers: &[f32]) {
    #[cfg(target_arch = "x86_64")]
    for line in numbers.chunks(16) {
        // SAFETY: prefetching has no effect but on the cache.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T1>(line.as_ptr().cast());
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = numbers;
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use super::{COLUMNS, Picks, Runs, Target, Walk};
    use std::arch::x86_64::*;

    /// Asks for the target's lines, so that they are there when the sums are done.
    macro_rules! fetch {
        ($rows:ident, $target:ident) => {
            for row in 0..$rows {
                let to = $target.start.wrapping_add(row * $target.stride);
                _mm_prefetch::<_MM_HINT_T0>(to.cast());
                _mm_prefetch::<_MM_HINT_T0>(to.wrapping_add($target.columns - 1).cast());
            }
        };
    }

    /// Writes the sums out; a macro, because a call would keep the sums in memory from the first step on.
    macro_rules! store {
        ($sums:ident, $target:ident) => {
            for (row, [mut low, mut high]) in $sums.into_iter().enumerate() {
                // SAFETY: within the target's rows and existing columns.
                unsafe {
                    let to = $target.start.add(row * $target.stride);
                    if $target.columns == COLUMNS {
                        if $target.add {
                            low = _mm256_add_ps(low, _mm256_loadu_ps(to));
                            high = _mm256_add_ps(high, _mm256_loadu_ps(to.add(8)));
                        }
                        _mm256_storeu_ps(to, low);
                        _mm256_storeu_ps(to.add(8), high);
                    } else {
                        let index = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
                        let columns = $target.columns as i32;
                        let low_mask = _mm256_cmpgt_epi32(_mm256_set1_epi32(columns), index);
                        let high_mask = _mm256_cmpgt_epi32(_mm256_set1_epi32(columns - 8), index);
                        let beyond = to.wrapping_add(8);
                        if $target.add {
                            low = _mm256_add_ps(low, _mm256_maskload_ps(to, low_mask));
                            high = _mm256_add_ps(high, _mm256_maskload_ps(beyond, high_mask));
                        }
                        _mm256_maskstore_ps(to, low_mask, low);
                        _mm256_maskstore_ps(beyond, high_mask, high);
                    }
                }
            }
        };
    }

    /// # Safety
    /// As `super::by_rows`, on a machine with AVX2 and FMA.
    #[target_feature(enable = "avx2,fma")]
    pub(super) unsafe fn by_rows<const N: usize>(
        rows: [*const f32; N],
        runs: Runs<'_>,
        mut right: *const f32,
        target: Target,
    ) {
        fetch!(N, target);
        if target.columns <= 8 {
            // SAFETY: passed on.
            return unsafe { narrow_by_rows(rows, runs, right, target) };
        }
        let mut sums = [[_mm256_setzero_ps(); 2]; N];
        for &offset in runs.offsets {
            let from = rows.map(|row| row.wrapping_add(offset));
            for i in 0..runs.len {
                // SAFETY: step `i` of this run, which the caller vouches for.
                unsafe {
                    let (low, high) = (_mm256_loadu_ps(right), _mm256_loadu_ps(right.add(8)));
                    for row in 0..N {
                        let left = _mm256_broadcast_ss(&*from[row].add(i));
                        sums[row][0] = _mm256_fmadd_ps(left, low, sums[row][0]);
                        sums[row][1] = _mm256_fmadd_ps(left, high, sums[row][1]);
                    }
                    right = right.add(COLUMNS);
                }
            }
        }
        store!(sums, target);
    }

    /// The first two numbers of both halves, after one another.
    #[target_feature(enable = "avx2")]
    fn first_two(halves: __m256) -> __m256 {
        let four = _mm_movelh_ps(_mm256_castps256_ps128(halves), _mm256_extractf128_ps::<1>(halves));
        _mm256_zextps128_ps256(four)
    }

    /// Up to four columns: a vector holds those of two steps, so that there are half as many multiplications.
    ///
    /// # Safety
    /// As `narrow_by_rows`, with one run of `len` steps.
    #[target_feature(enable = "avx2,fma")]
    unsafe fn thin_by_rows<const N: usize>(rows: [*const f32; N], len: usize, right: *const f32, target: Target) {
        let mut sums = [_mm256_setzero_ps(); N];
        for i in (0..len / 2).map(|pair| 2 * pair) {
            // SAFETY: steps `i` and `i + 1`, which the caller vouches for.
            unsafe {
                let (even, odd) = (_mm_loadu_ps(right.add(i * COLUMNS)), _mm_loadu_ps(right.add((i + 1) * COLUMNS)));
                let both = _mm256_set_m128(_mm_unpackhi_ps(even, odd), _mm_unpacklo_ps(even, odd));
                for row in 0..N {
                    let left = _mm256_castpd_ps(_mm256_set1_pd(rows[row].add(i).cast::<f64>().read_unaligned()));
                    sums[row] = _mm256_fmadd_ps(left, both, sums[row]);
                }
            }
        }
        if !len.is_multiple_of(2) {
            // SAFETY: the last step.
            unsafe {
                let last = _mm_loadu_ps(right.add((len - 1) * COLUMNS));
                let (zero, zeros) = (_mm_setzero_ps(), _mm256_setzero_ps());
                let both = _mm256_set_m128(_mm_unpackhi_ps(last, zero), _mm_unpacklo_ps(last, zero));
                for row in 0..N {
                    // Zero times zero: an infinity on the left would make something of a zero on the right.
                    let left = _mm256_blend_ps::<0b1010_1010>(_mm256_broadcast_ss(&*rows[row].add(len - 1)), zeros);
                    sums[row] = _mm256_fmadd_ps(left, both, sums[row]);
                }
            }
        }
        let sums = sums.map(|sum| [first_two(_mm256_hadd_ps(sum, sum)), _mm256_setzero_ps()]);
        store!(sums, target);
    }

    /// Up to four columns of an even number of rows: a vector holds those of two rows.
    ///
    /// # Safety
    /// As `narrow_by_columns`, with one round of `steps`.
    #[target_feature(enable = "avx2,fma")]
    unsafe fn thin_by_columns<const N: usize>(left: Walk, right: Walk, steps: usize, target: Target) {
        let mut halves = [[_mm256_setzero_ps(); 2]; N];
        // Steps take turns at two accumulators, for one alone would wait for itself.
        macro_rules! step {
            ($step:expr, $turn:literal) => {
                // SAFETY: a step of both walks, which the caller vouches for.
                unsafe {
                    let (a, four) = (left.start.add($step * left.stride), right.start.add($step * right.stride));
                    let four = _mm_loadu_ps(four);
                    let twice = _mm256_set_m128(_mm_unpackhi_ps(four, four), _mm_unpacklo_ps(four, four));
                    for pair in 0..N / 2 {
                        let left = _mm256_castpd_ps(_mm256_set1_pd(a.add(2 * pair).cast::<f64>().read_unaligned()));
                        halves[pair][$turn] = _mm256_fmadd_ps(left, twice, halves[pair][$turn]);
                    }
                }
            };
        }
        for pair in 0..steps / 2 {
            step!(2 * pair, 0);
            step!(2 * pair + 1, 1);
        }
        if !steps.is_multiple_of(2) {
            step!(steps - 1, 0);
        }
        let mut sums = [[_mm256_setzero_ps(); 2]; N];
        for pair in 0..N / 2 {
            let both = _mm256_add_ps(halves[pair][0], halves[pair][1]);
            sums[2 * pair][0] = first_two(_mm256_permute_ps::<0b10_00_10_00>(both));
            sums[2 * pair + 1][0] = first_two(_mm256_permute_ps::<0b11_01_11_01>(both));
        }
        store!(sums, target);
    }

    /// Half a tile: the steps take turns at two accumulators per row, for one alone would wait for itself.
    ///
    /// # Safety
    /// As `super::by_rows`, on a machine with AVX2 and FMA.
    #[target_feature(enable = "avx2,fma")]
    #[inline(never)]
    unsafe fn narrow_by_rows<const N: usize>(
        rows: [*const f32; N],
        runs: Runs<'_>,
        mut right: *const f32,
        target: Target,
    ) {
        if target.columns <= 4
            && let [offset] = *runs.offsets
        {
            // SAFETY: passed on.
            return unsafe { thin_by_rows(rows.map(|row| row.wrapping_add(offset)), runs.len, right, target) };
        }
        let mut sums = [[_mm256_setzero_ps(); 2]; N];
        for &offset in runs.offsets {
            let from = rows.map(|row| row.wrapping_add(offset));
            let mut i = 0;
            while i + 2 <= runs.len {
                // SAFETY: steps `i` and `i + 1` of this run, which the caller vouches for.
                unsafe {
                    let (even, odd) = (_mm256_loadu_ps(right), _mm256_loadu_ps(right.add(COLUMNS)));
                    for row in 0..N {
                        let left =
                            (_mm256_broadcast_ss(&*from[row].add(i)), _mm256_broadcast_ss(&*from[row].add(i + 1)));
                        sums[row][0] = _mm256_fmadd_ps(left.0, even, sums[row][0]);
                        sums[row][1] = _mm256_fmadd_ps(left.1, odd, sums[row][1]);
                    }
                    right = right.add(2 * COLUMNS);
                }
                i += 2;
            }
            if i < runs.len {
                // SAFETY: the last step of this run.
                unsafe {
                    let even = _mm256_loadu_ps(right);
                    for row in 0..N {
                        sums[row][0] = _mm256_fmadd_ps(_mm256_broadcast_ss(&*from[row].add(i)), even, sums[row][0]);
                    }
                    right = right.add(COLUMNS);
                }
            }
        }
        for row in 0..N {
            sums[row] = [_mm256_add_ps(sums[row][0], sums[row][1]), _mm256_setzero_ps()];
        }
        store!(sums, target);
    }

    /// # Safety
    /// As `super::by_columns`, on a machine with AVX2 and FMA.
    #[target_feature(enable = "avx2,fma")]
    pub(super) unsafe fn by_columns<const N: usize>(
        left: Walk,
        right: Walk,
        inner: usize,
        outer: usize,
        target: Target,
    ) {
        fetch!(N, target);
        if target.columns <= 8 {
            // SAFETY: passed on.
            return unsafe { narrow_by_columns::<N>(left, right, inner, outer, target) };
        }
        let mut sums = [[_mm256_setzero_ps(); 2]; N];
        let (mut left_round, mut right_round) = (left.start, right.start);
        for _ in 0..outer {
            let (mut a, mut b) = (left_round, right_round);
            for _ in 0..inner {
                // SAFETY: a step of both walks, which the caller vouches for.
                unsafe {
                    let (low, high) = (_mm256_loadu_ps(b), _mm256_loadu_ps(b.add(8)));
                    for row in 0..N {
                        let left = _mm256_broadcast_ss(&*a.add(row));
                        sums[row][0] = _mm256_fmadd_ps(left, low, sums[row][0]);
                        sums[row][1] = _mm256_fmadd_ps(left, high, sums[row][1]);
                    }
                }
                (a, b) = (a.wrapping_add(left.stride), b.wrapping_add(right.stride));
            }
            left_round = left_round.wrapping_add(left.outer_stride);
            right_round = right_round.wrapping_add(right.outer_stride);
        }
        store!(sums, target);
    }

    /// Half a tile, as `narrow_by_rows`.
    ///
    /// # Safety
    /// As `super::by_columns`, on a machine with AVX2 and FMA.
    #[target_feature(enable = "avx2,fma")]
    #[inline(never)]
    unsafe fn narrow_by_columns<const N: usize>(left: Walk, right: Walk, inner: usize, outer: usize, target: Target) {
        if target.columns <= 4 && outer == 1 && N.is_multiple_of(2) {
            // SAFETY: passed on.
            return unsafe { thin_by_columns::<N>(left, right, inner, target) };
        }
        let mut sums = [[_mm256_setzero_ps(); 2]; N];
        let (mut left_round, mut right_round) = (left.start, right.start);
        for _ in 0..outer {
            let (mut a, mut b) = (left_round, right_round);
            for _ in 0..inner / 2 {
                // SAFETY: two steps of both walks, which the caller vouches for.
                unsafe {
                    let (even, odd) = (_mm256_loadu_ps(b), _mm256_loadu_ps(b.add(right.stride)));
                    for row in 0..N {
                        let left = (a.add(row), a.add(left.stride + row));
                        sums[row][0] = _mm256_fmadd_ps(_mm256_broadcast_ss(&*left.0), even, sums[row][0]);
                        sums[row][1] = _mm256_fmadd_ps(_mm256_broadcast_ss(&*left.1), odd, sums[row][1]);
                    }
                }
                (a, b) = (a.wrapping_add(2 * left.stride), b.wrapping_add(2 * right.stride));
            }
            if inner % 2 == 1 {
                // SAFETY: the last step of this round.
                unsafe {
                    let even = _mm256_loadu_ps(b);
                    for row in 0..N {
                        sums[row][0] = _mm256_fmadd_ps(_mm256_broadcast_ss(&*a.add(row)), even, sums[row][0]);
                    }
                }
            }
            left_round = left_round.wrapping_add(left.outer_stride);
            right_round = right_round.wrapping_add(right.outer_stride);
        }
        for row in 0..N {
            sums[row] = [_mm256_add_ps(sums[row][0], sums[row][1]), _mm256_setzero_ps()];
        }
        store!(sums, target);
    }

    /// The last of `N` vectors ends with the last column, and may share some with the one before.
    ///
    /// # Safety
    /// As `super::by_picks`, on a machine with AVX2 and FMA (all of which have BMI1); the columns take `N` vectors.
    #[target_feature(enable = "avx2,fma,bmi1")]
    pub(super) unsafe fn by_picks<const N: usize>(picks: Picks<'_>, target: Target) {
        let at = |i: usize| if i + 1 == N { target.columns - 8 } else { 8 * i };
        let (mut left, mut to) = (picks.left, target.start);
        for &mask in picks.masks {
            if mask != 0 || !target.add {
                let mut sums = [_mm256_setzero_ps(); N];
                if target.add {
                    for i in 0..N {
                        // SAFETY: within the target.
                        sums[i] = unsafe { _mm256_loadu_ps(to.add(at(i))) };
                    }
                }
                let mut mask = mask;
                while mask != 0 {
                    let step = mask.trailing_zeros() as usize;
                    mask &= mask - 1;
                    // SAFETY: a picked number and its row.
                    unsafe {
                        let left = _mm256_broadcast_ss(&*left.add(step * picks.step_stride));
                        let row = picks.right.add(step * picks.right_stride);
                        for i in 0..N {
                            sums[i] = _mm256_fmadd_ps(left, _mm256_loadu_ps(row.add(at(i))), sums[i]);
                        }
                    }
                }
                for i in 0..N {
                    // SAFETY: within the target.
                    unsafe { _mm256_storeu_ps(to.add(at(i)), sums[i]) };
                }
            }
            (left, to) = (left.wrapping_add(picks.row_stride), to.wrapping_add(target.stride));
        }
    }

    #[target_feature(enable = "avx2")]
    pub(super) fn nonzero(numbers: &[f32], bits: &mut [u64]) {
        /// # Safety
        /// There are eight numbers. Each becomes all ones, or all zeros.
        #[target_feature(enable = "avx2")]
        unsafe fn full(numbers: *const f32) -> __m256i {
            // SAFETY: the caller's promise.
            let numbers = unsafe { _mm256_loadu_ps(numbers) };
            _mm256_castps_si256(_mm256_cmp_ps::<_CMP_NEQ_UQ>(numbers, _mm256_setzero_ps()))
        }

        /// # Safety
        /// There are 32 numbers.
        #[target_feature(enable = "avx2")]
        unsafe fn mask(numbers: *const f32) -> u64 {
            // Vectors are packed by halves; the order is mended at the end.
            let order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
            // SAFETY: the caller's promise.
            let packed = unsafe {
                let low = _mm256_packs_epi32(full(numbers), full(numbers.add(8)));
                let high = _mm256_packs_epi32(full(numbers.add(16)), full(numbers.add(24)));
                _mm256_packs_epi16(low, high)
            };
            _mm256_movemask_epi8(_mm256_permutevar8x32_epi32(packed, order)) as u32 as u64
        }

        let (whole, rest) = numbers.as_chunks::<64>();
        for (bits, numbers) in bits.iter_mut().zip(whole) {
            // SAFETY: twice 32 numbers.
            *bits = unsafe { mask(numbers.as_ptr()) | mask(numbers[32..].as_ptr()) << 32 };
        }
        super::portable::nonzero(rest, &mut bits[whole.len()..]);
    }
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    use super::{COLUMNS, Picks, ROWS, Runs, Side, TOGETHER, Target, Walk};
    use std::arch::x86_64::*;

    /// Both sides of a tile: where the numbers of its rows and of its right sides are, and how far it is to those of the next
    /// step. Rows that do not exist are any of the others.
    #[derive(Clone, Copy)]
    struct Sides {
        rows: [*const f32; ROWS],
        count: usize,
        left_stride: usize,
        right: *const f32,
        apart: usize,
        right_stride: usize,
    }

    /// # Safety
    /// As `super::by_rows`, on a machine with AVX-512.
    pub(super) unsafe fn by_rows(rows: &[*const f32], runs: Runs<'_>, right: Side, target: Target) {
        let mut all = [rows[0]; ROWS];
        all[..rows.len()].copy_from_slice(rows);
        let Side { start, stride, apart } = right;
        let sides = Sides { rows: all, count: rows.len(), left_stride: 1, right: start, apart, right_stride: stride };
        let rounds = runs.offsets.iter().enumerate().map(|(run, &offset)| (offset, run * runs.len * stride));
        // SAFETY: passed on.
        unsafe { tiles(sides, runs.len, rounds, target) };
    }

    /// # Safety
    /// As `super::by_columns`, on a machine with AVX-512.
    pub(super) unsafe fn by_columns(
        count: usize,
        left: Walk,
        right: Walk,
        apart: usize,
        (inner, outer): (usize, usize),
        target: Target,
    ) {
        let rows = std::array::from_fn(|row| left.start.wrapping_add(row.min(count - 1)));
        let (left_stride, right_stride) = (left.stride, right.stride);
        let sides = Sides { rows, count, left_stride, right: right.start, apart, right_stride };
        let rounds = (0..outer).map(|round| (round * left.outer_stride, round * right.outer_stride));
        // SAFETY: passed on.
        unsafe { tiles(sides, inner, rounds, target) };
    }

    /// # Safety
    /// As `tile`.
    unsafe fn tiles(sides: Sides, steps: usize, rounds: impl Iterator<Item = (usize, usize)>, target: Target) {
        // SAFETY: passed on.
        unsafe {
            match target.columns.div_ceil(COLUMNS) {
                1 => tile::<1>(sides, steps, rounds, target),
                2 => tile::<2>(sides, steps, rounds, target),
                3 => tile::<3>(sides, steps, rounds, target),
                TOGETHER => tile::<TOGETHER>(sides, steps, rounds, target),
                count => unreachable!("{count} tiles are not done together"),
            }
        }
    }

    /// `N` tiles side by side. Each of the `rounds` is so many `steps`, from these places on in the left and right sides.
    ///
    /// # Safety
    /// All steps of both sides (`count` numbers left, `COLUMNS` right for each tile) and the target can be accessed, on a
    /// machine with AVX-512.
    #[target_feature(enable = "avx512f")]
    unsafe fn tile<const N: usize>(
        sides: Sides,
        steps: usize,
        rounds: impl Iterator<Item = (usize, usize)>,
        target: Target,
    ) {
        for row in 0..sides.count {
            for tile in 0..N {
                let to = target.start.wrapping_add(row * target.stride + tile * COLUMNS);
                _mm_prefetch::<_MM_HINT_T0>(to.cast());
            }
        }
        let in_turns = N == 1 && target.in_turns;
        let mut sums = [[[_mm512_setzero_ps(); N]; ROWS]; 2];
        for (left_at, right_at) in rounds {
            let (rows, right) = (sides.rows.map(|row| row.wrapping_add(left_at)), sides.right.wrapping_add(right_at));
            macro_rules! step {
                ($step:expr, $turn:literal) => {
                    // SAFETY: a step of both sides, which the caller vouches for.
                    unsafe {
                        let from = right.add($step * sides.right_stride);
                        let mut vectors = [_mm512_setzero_ps(); N];
                        for tile in 0..N {
                            vectors[tile] = _mm512_loadu_ps(from.add(tile * sides.apart));
                        }
                        for row in 0..ROWS {
                            let left = _mm512_set1_ps(*rows[row].add($step * sides.left_stride));
                            for tile in 0..N {
                                sums[$turn][row][tile] = _mm512_fmadd_ps(left, vectors[tile], sums[$turn][row][tile]);
                            }
                        }
                    }
                };
            }
            let paired = if in_turns { steps / 2 * 2 } else { 0 };
            for step in (0..paired).step_by(2) {
                step!(step, 0);
                step!(step + 1, 1);
            }
            for step in paired..steps {
                step!(step, 0);
            }
        }
        for row in 0..ROWS {
            if row == sides.count {
                break;
            }
            for tile in 0..N {
                let mut sum = sums[0][row][tile];
                if in_turns {
                    sum = _mm512_add_ps(sum, sums[1][row][tile]);
                }
                let columns = (target.columns - tile * COLUMNS).min(COLUMNS);
                let mask = (u32::MAX >> (32 - columns)) as u16;
                // SAFETY: within the target's rows and existing columns.
                unsafe {
                    let to = target.start.add(row * target.stride + tile * COLUMNS);
                    if target.add {
                        sum = _mm512_add_ps(sum, _mm512_maskz_loadu_ps(mask, to));
                    }
                    _mm512_mask_storeu_ps(to, mask, sum);
                }
            }
        }
    }

    /// The last of `N` vectors ends with the last column, and may share some with the one before.
    ///
    /// # Safety
    /// As `super::by_picks`, on a machine with AVX-512 (all of which have BMI1); the columns take `N` vectors.
    #[target_feature(enable = "avx512f,bmi1")]
    pub(super) unsafe fn by_picks<const N: usize>(picks: Picks<'_>, target: Target) {
        let at = |i: usize| if i + 1 == N { target.columns - 16 } else { 16 * i };
        let (mut left, mut to) = (picks.left, target.start);
        for &mask in picks.masks {
            if mask != 0 || !target.add {
                let mut sums = [_mm512_setzero_ps(); N];
                if target.add {
                    for i in 0..N {
                        // SAFETY: within the target.
                        sums[i] = unsafe { _mm512_loadu_ps(to.add(at(i))) };
                    }
                }
                let mut mask = mask;
                while mask != 0 {
                    let step = mask.trailing_zeros() as usize;
                    mask &= mask - 1;
                    // SAFETY: a picked number and its row.
                    unsafe {
                        let left = _mm512_set1_ps(*left.add(step * picks.step_stride));
                        let row = picks.right.add(step * picks.right_stride);
                        for i in 0..N {
                            sums[i] = _mm512_fmadd_ps(left, _mm512_loadu_ps(row.add(at(i))), sums[i]);
                        }
                    }
                }
                for i in 0..N {
                    // SAFETY: within the target.
                    unsafe { _mm512_storeu_ps(to.add(at(i)), sums[i]) };
                }
            }
            (left, to) = (left.wrapping_add(picks.row_stride), to.wrapping_add(target.stride));
        }
    }
}

mod portable {
    use super::{COLUMNS, Picks, ROWS, Runs, Target, Walk};

    pub(super) fn nonzero(numbers: &[f32], bits: &mut [u64]) {
        for (bits, numbers) in bits.iter_mut().zip(numbers.chunks(64)) {
            *bits = numbers.iter().enumerate().fold(0, |mask, (i, &x)| mask | ((x != 0.0) as u64) << i);
        }
    }

    /// # Safety
    /// As `super::by_picks`.
    pub(super) unsafe fn by_picks(picks: Picks<'_>, target: Target) {
        for (row, &mask) in picks.masks.iter().enumerate() {
            // SAFETY: the target, the picked numbers and their rows can be accessed.
            unsafe {
                let sums = std::slice::from_raw_parts_mut(target.start.add(row * target.stride), target.columns);
                if !target.add {
                    sums.fill(0.0);
                }
                let mut mask = mask;
                while mask != 0 {
                    let step = mask.trailing_zeros() as usize;
                    mask &= mask - 1;
                    let left = *picks.left.add(row * picks.row_stride + step * picks.step_stride);
                    let right = std::slice::from_raw_parts(picks.right.add(step * picks.right_stride), sums.len());
                    for (sum, x) in sums.iter_mut().zip(right) {
                        *sum += left * x;
                    }
                }
            }
        }
    }

    /// # Safety
    /// As `super::by_rows`.
    pub(super) unsafe fn by_rows(rows: &[*const f32], runs: Runs<'_>, mut right: *const f32, target: Target) {
        let mut sums = [[0.0f32; COLUMNS]; ROWS];
        for &offset in runs.offsets {
            for i in 0..runs.len {
                // SAFETY: step `i` of this run, which the caller vouches for.
                unsafe {
                    let step = &*right.cast::<[f32; COLUMNS]>();
                    for (sums, row) in sums.iter_mut().zip(rows) {
                        let left = *row.add(offset + i);
                        for (sum, x) in sums.iter_mut().zip(step) {
                            *sum += left * x;
                        }
                    }
                    right = right.add(COLUMNS);
                }
            }
        }
        // SAFETY: passed on.
        unsafe { store(&sums[..rows.len()], target) };
    }

    /// # Safety
    /// As `super::by_columns`.
    pub(super) unsafe fn by_columns(count: usize, left: Walk, right: Walk, inner: usize, outer: usize, target: Target) {
        let mut sums = [[0.0f32; COLUMNS]; ROWS];
        for round in 0..outer {
            for i in 0..inner {
                // SAFETY: a step of both walks, which the caller vouches for.
                unsafe {
                    let a = left.start.add(round * left.outer_stride + i * left.stride);
                    let b = &*right.start.add(round * right.outer_stride + i * right.stride).cast::<[f32; COLUMNS]>();
                    for (row, sums) in sums[..count].iter_mut().enumerate() {
                        let left = *a.add(row);
                        for (sum, x) in sums.iter_mut().zip(b) {
                            *sum += left * x;
                        }
                    }
                }
            }
        }
        // SAFETY: passed on.
        unsafe { store(&sums[..count], target) };
    }

    /// # Safety
    /// The target can be written (and read, if the tile is added).
    unsafe fn store(sums: &[[f32; COLUMNS]], target: Target) {
        for (row, sums) in sums.iter().enumerate() {
            for (column, sum) in sums[..target.columns].iter().enumerate() {
                // SAFETY: within the target's rows and existing columns.
                unsafe {
                    let to = target.start.add(row * target.stride + column);
                    *to = if target.add { *to + sum } else { *sum };
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Numbers, seeds};

    /// Every size of a tile and of several side by side, stored and added, by this machine's loops and by the portable ones.
    #[test]
    fn tiles_agree_with_the_plain_sum() {
        let sizes = (1..=ROWS).flat_map(|count| (1..=TOGETHER * COLUMNS).map(move |columns| (count, columns)));
        for (seed, (count, columns)) in seeds().zip(sizes) {
            let mut numbers = Numbers::new(seed);
            let (len, stride) = (1 + numbers.below(9), TOGETHER * COLUMNS + 4);
            let offsets = [0, 11, 25];
            let depth = offsets.len() * len;
            let apart = depth * COLUMNS;
            let (left, right): (Vec<f32>, Vec<f32>) = (numbers.vec(40 * ROWS), numbers.vec(TOGETHER * apart));
            let before: Vec<f32> = numbers.vec(ROWS * stride);
            let rows: Vec<*const f32> = (0..count).map(|row| left[row * 40..].as_ptr()).collect();
            let side_by_side: Vec<f32> =
                (0..depth * ROWS).map(|i| left[i % ROWS * 40 + offsets[i / ROWS / len] + i / ROWS % len]).collect();
            let right_at = |p: usize, column: usize| right[column / COLUMNS * apart + p * COLUMNS + column % COLUMNS];
            for add in [false, true] {
                let mut want = before.clone();
                for row in 0..count {
                    for column in 0..columns {
                        let products = (0..depth).map(|p| side_by_side[p * ROWS + row] * right_at(p, column));
                        want[row * stride + column] =
                            products.sum::<f32>() + if add { before[row * stride + column] } else { 0.0 };
                    }
                }
                let runs = Runs { offsets: &offsets, len };
                let a = Walk { start: side_by_side.as_ptr(), stride: ROWS, outer_stride: len * ROWS };
                let b = Walk { start: right.as_ptr(), stride: COLUMNS, outer_stride: len * COLUMNS };
                let ways = if columns <= COLUMNS { 0..6 } else { 0..2 };
                for (way, in_turns) in ways.flat_map(|way| [(way, false), (way, true)]) {
                    let mut got = before.clone();
                    let target = Target { start: got.as_mut_ptr(), stride, columns, add, in_turns };
                    // SAFETY: the runs end within each row's 40 numbers, the walks within their slices, and the tile
                    // within the target's rows.
                    unsafe {
                        match way {
                            0 => by_rows(&rows, runs, Side::packed(right.as_ptr(), apart), target),
                            1 => by_columns(count, a, b, apart, (len, offsets.len()), target),
                            2 => tile_by_rows(&rows, runs, right.as_ptr(), target),
                            3 => tile_by_columns(count, a, b, len, offsets.len(), target),
                            4 => portable::by_rows(&rows, runs, right.as_ptr(), target),
                            _ => portable::by_columns(count, a, b, len, offsets.len(), target),
                        }
                    }
                    for (got, want) in got.iter().zip(&want) {
                        assert!((got - want).abs() < 1e-5, "way {way}, {count}×{columns}, add {add}, seed {seed}");
                    }
                }
            }
        }
    }

    #[test]
    fn groups_of_tiles_are_all_tiles_in_order() {
        for tiles in 0..40 {
            let groups: Vec<_> = groups(tiles).collect();
            assert!(groups.iter().all(|group| (1..=TOGETHER).contains(&group.len())), "{groups:?}");
            assert!(groups.into_iter().flatten().eq(0..tiles));
        }
    }

    /// Every width of rows of picked steps, by this machine's loops and by the portable ones.
    #[test]
    fn picked_rows_agree_with_the_plain_sum() {
        for (seed, columns) in seeds().zip(PICKED_COLUMNS) {
            let mut numbers = Numbers::new(seed);
            let (rows, steps) = (1 + numbers.below(5), 1 + seed as usize % 64);
            // As a matrix is stored, or its transpose.
            let (row_stride, step_stride) = if numbers.below(2) == 0 { (70, 1) } else { (1, 9) };
            let (right_stride, stride) = (columns + numbers.below(5), columns + numbers.below(9));
            let mut left: Vec<f32> = numbers.vec(rows * row_stride + steps * step_stride);
            left.iter_mut().filter(|_| numbers.below(2) == 0).for_each(|x| *x = 0.0);
            let (right, before): (Vec<f32>, Vec<f32>) = (numbers.vec(64 * right_stride), numbers.vec(rows * stride));
            let at = |row: usize, step: usize| left[row * row_stride + step * step_stride];
            let mut masks = vec![0; rows];
            for (row, mask) in masks.iter_mut().enumerate().skip(1) {
                // All steps of the first row are left out.
                nonzero(&(0..steps).map(|step| at(row, step)).collect::<Vec<f32>>(), std::slice::from_mut(mask));
            }
            let (left, right) = (left.as_ptr(), &right);
            let picks = Picks { masks: &masks, left, row_stride, step_stride, right: right.as_ptr(), right_stride };
            for (add, way) in [false, true].into_iter().flat_map(|add| (0..3).map(move |way| (add, way))) {
                let mut got = before.clone();
                let target = Target { start: got.as_mut_ptr(), stride, columns, add, in_turns: false };
                // SAFETY: 64 steps of the right side exist, the left one's last number too, and the target has the rows.
                unsafe {
                    match way {
                        0 => by_picks(picks, target),
                        1 => narrow_by_picks(picks, target),
                        _ => portable::by_picks(picks, target),
                    }
                }
                for (i, got) in got.iter().enumerate() {
                    let (row, column) = (i / stride, i % stride);
                    let product = |step: usize| at(row, step) * right[step * right_stride + column];
                    let sum = || if row == 0 { 0.0 } else { (0..steps).map(product).sum::<f32>() };
                    let want = match (column < columns, add) {
                        (false, _) => before[i],
                        (true, false) => sum(),
                        (true, true) => sum() + before[i],
                    };
                    assert!((got - want).abs() < 1e-5, "way {way}, {columns} columns, add {add}, seed {seed}");
                }
            }
        }
    }

    #[test]
    fn numbers_that_are_not_zero_are_noted() {
        for (seed, len) in seeds().zip(0..200usize) {
            let mut numbers = Numbers::new(seed);
            let values = [0.0, -0.0, 1.0, f32::NAN, f32::MIN_POSITIVE / 2.0, f32::NEG_INFINITY];
            let row: Vec<f32> = (0..len).map(|_| values[numbers.below(values.len())]).collect();
            for find in [nonzero, portable::nonzero] {
                let mut bits = vec![u64::MAX; len.div_ceil(64)];
                find(&row, &mut bits);
                for i in 0..64 * bits.len() {
                    let is_full = row.get(i).is_some_and(|x| *x != 0.0);
                    assert_eq!(bits[i / 64] >> (i % 64) & 1 == 1, is_full, "number {i} of {len}, seed {seed}");
                }
            }
        }
    }
}

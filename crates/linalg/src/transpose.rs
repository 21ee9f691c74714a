//! Reordering the axes of an array, and copying between arrays of any strides.

use crate::parallel::{Pool, SharedMut};

/// Elements worth a thread.
const GRAIN: usize = 1 << 14;
/// The side of the square tiles that are turned in the cache.
const TILE: usize = 16;

/// `dst = src` with its axes reordered: axis `i` of the result is axis `order[i]` of the source. In parallel.
///
/// Panics unless `order` is a permutation and the slices have the size of the shape.
pub fn transpose<T: Copy + Send + Sync>(pool: &Pool, shape: &[usize], order: &[usize], src: &[T], dst: &mut [T]) {
    let len: usize = shape.iter().product();
    assert!(src.len() == len && dst.len() == len, "source and destination must have the size of the shape");
    let mut seen = vec![false; shape.len()];
    assert!(
        order.len() == shape.len() && order.iter().all(|&axis| !std::mem::replace(&mut seen[axis], true)),
        "the order must be a permutation of the axes"
    );
    if len == 0 {
        return;
    }
    let dims = collapse(shape, order);
    let Some((&last, outer)) = dims.split_last() else {
        dst[0] = src[0];
        return;
    };
    if last.from == 1 {
        return copy_rows(pool, outer, last.len, src, dst);
    }
    turn(pool, &dims, src, dst);
}

/// A dimension of the result: its length, and the distances in the source and in the result.
#[derive(Clone, Copy, Debug)]
struct Dim {
    len: usize,
    from: usize,
    to: usize,
}

/// The result's dimensions, outermost first, joined where they are neighbours in both arrays.
fn collapse(shape: &[usize], order: &[usize]) -> Vec<Dim> {
    let mut strides = vec![1; shape.len()];
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = strides[axis] * shape[axis];
    }
    let mut dims: Vec<Dim> = Vec::new();
    for &axis in order.iter().filter(|&&axis| shape[axis] != 1) {
        let (len, from) = (shape[axis], strides[axis]);
        match dims.last_mut() {
            Some(outer) if outer.from == from * len => {
                outer.len *= len;
                outer.from = from;
            }
            _ => dims.push(Dim { len, from, to: 0 }),
        }
    }
    let mut to = 1;
    for dim in dims.iter_mut().rev() {
        dim.to = to;
        to *= dim.len;
    }
    dims
}

/// Walks the combinations of some dimensions: offsets in the source and in the result.
fn offsets(dims: &[Dim], mut index: usize) -> (usize, usize) {
    let (mut from, mut to) = (0, 0);
    for dim in dims.iter().rev() {
        from += index % dim.len * dim.from;
        to += index % dim.len * dim.to;
        index /= dim.len;
    }
    (from, to)
}

/// The innermost dimension stays innermost: whole rows are copied.
fn copy_rows<T: Copy + Send + Sync>(pool: &Pool, outer: &[Dim], row: usize, src: &[T], dst: &mut [T]) {
    pool.for_each_row(dst, row, (GRAIN / row).max(1), &|first, part| {
        for (i, to) in part.chunks_exact_mut(row).enumerate() {
            let (from, _) = offsets(outer, first + i);
            to.copy_from_slice(&src[from..from + row]);
        }
    });
}

/// The innermost dimension changes: planes of the two innermost ones (of source and of result) are turned by tiles.
fn turn<T: Copy + Send + Sync>(pool: &Pool, dims: &[Dim], src: &[T], dst: &mut [T]) {
    let (&across, rest) = dims.split_last().expect("a turned array has two dimensions");
    let along = rest.iter().position(|dim| dim.from == 1).expect("some dimension is the source's innermost");
    let plane = Plane { rows: rest[along].len, row_to: rest[along].to, columns: across.len, column_from: across.from };
    let outer: Vec<Dim> = rest.iter().enumerate().filter(|(i, _)| *i != along).map(|(_, dim)| *dim).collect();
    let planes: usize = outer.iter().map(|dim| dim.len).product();
    let strips = plane.rows.div_ceil(TILE);
    let dst = SharedMut::new(dst);
    pool.for_each(planes * strips, (GRAIN / (TILE * plane.columns)).max(1), &|range| {
        for index in range {
            let (from, to) = offsets(&outer, index / strips);
            let first = index % strips * TILE;
            turn_strip(&plane, first, &src[from..], &dst, to);
        }
    });
}

/// A plane whose rows in the result are columns in the source.
struct Plane {
    rows: usize,
    row_to: usize,
    columns: usize,
    column_from: usize,
}

/// Writes up to `TILE` rows of the plane that begins at `start` of the result, from the row `first` on.
fn turn_strip<T: Copy>(plane: &Plane, first: usize, src: &[T], dst: &SharedMut<T>, start: usize) {
    let rows = TILE.min(plane.rows - first);
    let mut column = 0;
    #[cfg(target_arch = "x86_64")]
    if size_of::<T>() == 4 && rows == TILE && crate::simd::has_avx2() {
        while column + 8 <= plane.columns {
            let from = column * plane.column_from + first;
            assert!(from + 7 * plane.column_from + TILE <= src.len(), "a tile must lie within the source");
            let to = start + first * plane.row_to + column;
            let dst = dst.pointer(to..to + (TILE - 1) * plane.row_to + 8).cast::<f32>();
            // SAFETY: AVX2 is there, elements have four bytes, both tiles lie within their slices, and the tile of the
            // result belongs to this strip alone.
            unsafe {
                let src = src.as_ptr().cast::<f32>().add(from);
                avx2::turn_8x8(src, plane.column_from, dst, plane.row_to);
                avx2::turn_8x8(src.add(8), plane.column_from, dst.add(8 * plane.row_to), plane.row_to);
            }
            column += 8;
        }
    }
    while column < plane.columns {
        let columns = TILE.min(plane.columns - column);
        for row in first..first + rows {
            let to = start + row * plane.row_to + column;
            // SAFETY: this stretch of a row belongs to this strip alone.
            let to = unsafe { dst.slice(to..to + columns) };
            let from = &src[column * plane.column_from + row..];
            for (i, to) in to.iter_mut().enumerate() {
                *to = from[i * plane.column_from];
            }
        }
        column += columns;
    }
}

/// Turns 8 rows of 8 elements; the slices reach exactly from the first to the last element.
#[inline]
pub(crate) fn turn_8x8(src: &[f32], src_stride: usize, dst: &mut [f32], dst_stride: usize) {
    assert!(src.len() >= 7 * src_stride + 8 && dst.len() >= 7 * dst_stride + 8, "a tile must lie within its slice");
    #[cfg(target_arch = "x86_64")]
    if crate::simd::has_avx2() {
        // SAFETY: AVX2 is there, and the slices are long enough.
        return unsafe { avx2::turn_8x8(src.as_ptr(), src_stride, dst.as_mut_ptr(), dst_stride) };
    }
    for i in 0..8 {
        for j in 0..8 {
            dst[i * dst_stride + j] = src[j * src_stride + i];
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::*;

    /// Turns 8 rows of 8 four-byte elements.
    ///
    /// # Safety
    /// The machine has AVX2; 8 rows of 8 elements at the given distances can be read and written.
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn turn_8x8(src: *const f32, src_stride: usize, dst: *mut f32, dst_stride: usize) {
        // SAFETY: within the rows that the caller vouches for.
        let row = |i: usize| unsafe { _mm256_loadu_ps(src.add(i * src_stride)) };
        let (r0, r1, r2, r3) = (row(0), row(1), row(2), row(3));
        let (r4, r5, r6, r7) = (row(4), row(5), row(6), row(7));
        let (a0, a1) = (_mm256_unpacklo_ps(r0, r1), _mm256_unpackhi_ps(r0, r1));
        let (a2, a3) = (_mm256_unpacklo_ps(r2, r3), _mm256_unpackhi_ps(r2, r3));
        let (a4, a5) = (_mm256_unpacklo_ps(r4, r5), _mm256_unpackhi_ps(r4, r5));
        let (a6, a7) = (_mm256_unpacklo_ps(r6, r7), _mm256_unpackhi_ps(r6, r7));
        let (b0, b1) = (_mm256_shuffle_ps::<0x44>(a0, a2), _mm256_shuffle_ps::<0xee>(a0, a2));
        let (b2, b3) = (_mm256_shuffle_ps::<0x44>(a1, a3), _mm256_shuffle_ps::<0xee>(a1, a3));
        let (b4, b5) = (_mm256_shuffle_ps::<0x44>(a4, a6), _mm256_shuffle_ps::<0xee>(a4, a6));
        let (b6, b7) = (_mm256_shuffle_ps::<0x44>(a5, a7), _mm256_shuffle_ps::<0xee>(a5, a7));
        let turned = [
            _mm256_permute2f128_ps::<0x20>(b0, b4),
            _mm256_permute2f128_ps::<0x20>(b1, b5),
            _mm256_permute2f128_ps::<0x20>(b2, b6),
            _mm256_permute2f128_ps::<0x20>(b3, b7),
            _mm256_permute2f128_ps::<0x31>(b0, b4),
            _mm256_permute2f128_ps::<0x31>(b1, b5),
            _mm256_permute2f128_ps::<0x31>(b2, b6),
            _mm256_permute2f128_ps::<0x31>(b3, b7),
        ];
        for (i, row) in turned.into_iter().enumerate() {
            // SAFETY: within the rows that the caller vouches for.
            unsafe { _mm256_storeu_ps(dst.add(i * dst_stride), row) };
        }
    }
}

/// An array of any strides within a slice: where its first element is, and the distance along each axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Strided {
    /// The index of the element whose coordinates are all zero.
    pub start: usize,
    /// The distance to the next element along each axis; zero repeats, negative goes backwards.
    pub strides: Vec<isize>,
}

impl Strided {
    /// The layout of a dense array of this shape, from the slice's beginning.
    pub fn dense(shape: &[usize]) -> Strided {
        let mut strides = vec![1isize; shape.len()];
        for axis in (1..shape.len()).rev() {
            strides[axis - 1] = strides[axis] * shape[axis] as isize;
        }
        Strided { start: 0, strides }
    }

    /// The least and the greatest index that an array of this shape touches.
    fn bounds(&self, shape: &[usize]) -> (isize, isize) {
        let (mut low, mut high) = (self.start as isize, self.start as isize);
        for (&len, &stride) in shape.iter().zip(&self.strides) {
            let reach = (len as isize - 1) * stride;
            if reach < 0 { low += reach } else { high += reach }
        }
        (low, high)
    }
}

/// Copies an array of this shape from one layout to another: slices, reversals, repetitions, paddings.
///
/// Panics if either layout leaves its slice. Runs on the caller's thread.
pub fn copy_strided<T: Clone>(shape: &[usize], src: &[T], from: &Strided, dst: &mut [T], to: &Strided) {
    assert!(from.strides.len() == shape.len() && to.strides.len() == shape.len(), "one stride per axis");
    if shape.contains(&0) {
        return;
    }
    for (layout, len) in [(from, src.len()), (to, dst.len())] {
        let (low, high) = layout.bounds(shape);
        assert!(low >= 0 && high < len as isize, "a layout must lie within its slice");
    }
    let mut dims: Vec<(usize, isize, isize)> = Vec::new();
    for axis in (0..shape.len()).rev().filter(|&axis| shape[axis] != 1) {
        let (len, f, t) = (shape[axis], from.strides[axis], to.strides[axis]);
        match dims.last_mut() {
            Some(inner) if f == inner.1 * inner.0 as isize && t == inner.2 * inner.0 as isize => inner.0 *= len,
            _ => dims.push((len, f, t)),
        }
    }
    let Some((&(len, f, t), outer)) = dims.split_first() else {
        dst[to.start] = src[from.start].clone();
        return;
    };
    let rows: usize = outer.iter().map(|dim| dim.0).product();
    let (mut at_from, mut at_to) = (from.start as isize, to.start as isize);
    let mut index = vec![0; outer.len()];
    for _ in 0..rows {
        match (f, t) {
            (1, 1) => dst[at_to as usize..][..len].clone_from_slice(&src[at_from as usize..][..len]),
            (0, 1) => dst[at_to as usize..][..len].fill(src[at_from as usize].clone()),
            _ => {
                let (mut i, mut j) = (at_from, at_to);
                for _ in 0..len {
                    dst[j as usize] = src[i as usize].clone();
                    (i, j) = (i + f, j + t);
                }
            }
        }
        for (index, &(len, f, t)) in index.iter_mut().zip(outer) {
            *index += 1;
            (at_from, at_to) = (at_from + f, at_to + t);
            if *index < len {
                break;
            }
            (at_from, at_to) = (at_from - f * len as isize, at_to - t * len as isize);
            *index = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Numbers, seeds};

    fn slow<T: Copy>(shape: &[usize], order: &[usize], src: &[T]) -> Vec<T> {
        let strides = Strided::dense(shape).strides;
        let turned: Vec<usize> = order.iter().map(|&axis| shape[axis]).collect();
        (0..src.len())
            .map(|flat| {
                let (mut rest, mut at) = (flat, 0);
                for axis in (0..turned.len()).rev() {
                    at += rest % turned[axis] * strides[order[axis]] as usize;
                    rest /= turned[axis];
                }
                src[at]
            })
            .collect()
    }

    fn check<T: Copy + Send + Sync + PartialEq + std::fmt::Debug>(convert: fn(u64) -> T) {
        let pool = Pool::new(3);
        for seed in seeds().take(200) {
            let mut numbers = Numbers::new(seed);
            let rank = numbers.below(6);
            let shape: Vec<usize> = (0..rank)
                .map(|_| [1, 2, 3, 8, 17, 40, 0][numbers.below(if rank > 4 { 40 } else { 61 }) / 10])
                .collect();
            let mut order: Vec<usize> = (0..rank).collect();
            (1..rank).for_each(|i| order.swap(i, numbers.below(i + 1)));
            let src: Vec<T> = (0..shape.iter().product()).map(|_| convert(numbers.bits())).collect();
            let mut dst = src.clone();
            transpose(&pool, &shape, &order, &src, &mut dst);
            assert_eq!(dst, slow(&shape, &order, &src), "{shape:?} by {order:?}, seed {seed}");
        }
    }

    #[test]
    fn transposes_agree_with_index_arithmetic() {
        check::<u8>(|bits| bits as u8);
        check::<u32>(|bits| bits as u32);
        check::<u64>(|bits| bits);
        check::<(u64, u64)>(|bits| (bits, !bits));
    }

    #[test]
    fn strided_copies_slice_reverse_repeat_and_pad() {
        let src: Vec<i32> = (0..12).collect(); // 3 × 4
        let mut out = vec![-1; 4];
        // Every other column of the first two rows, columns reversed.
        let from = Strided { start: 3, strides: vec![4, -2] };
        copy_strided(&[2, 2], &src, &from, &mut out, &Strided::dense(&[2, 2]));
        assert_eq!(out, [3, 1, 7, 5]);
        let mut out = vec![-1; 6];
        copy_strided(&[2, 3], &src, &Strided { start: 1, strides: vec![0, 1] }, &mut out, &Strided::dense(&[2, 3]));
        assert_eq!(out, [1, 2, 3, 1, 2, 3]);
        let mut out = vec![0; 12];
        copy_strided(
            &[1, 2],
            &src,
            &Strided { start: 8, strides: vec![4, 1] },
            &mut out,
            &Strided { start: 5, strides: vec![4, 1] },
        );
        assert_eq!(out, [0, 0, 0, 0, 0, 8, 9, 0, 0, 0, 0, 0]);
        let mut words = vec![String::new(); 2];
        copy_strided(
            &[2],
            &["a".to_string()],
            &Strided { start: 0, strides: vec![0] },
            &mut words,
            &Strided::dense(&[2]),
        );
        assert_eq!(words, ["a", "a"]);
    }
}

//! Rows chosen by index: gathered from a table, scattered into one.

use crate::number::Int;
use crate::parallel::{Pool, SharedMut};

/// Elements worth a thread; rows lie anywhere, so each costs a trip to memory.
const GRAIN: usize = 1 << 13;
/// How many rows ahead are asked for while one is copied or changed.
pub const AHEAD: usize = 8;

/// Copies rows out of a table, in parallel.
///
/// The table is seen as `outer` blocks of `limit` rows of `row` elements, the result as `outer` blocks of one row for
/// each index. The error is the position of the first index outside `0..limit`; then nothing was copied.
pub fn gather<T, I>(
    pool: &Pool,
    table: &[T],
    outer: usize,
    limit: usize,
    row: usize,
    indices: &[I],
    out: &mut [T],
) -> Result<(), usize>
where
    T: Clone + Send + Sync,
    I: Int,
{
    assert!(table.len() == outer * limit * row && out.len() == outer * indices.len() * row, "the sizes do not fit");
    check(indices, limit)?;
    let at = |index: I| index.to_i64() as usize;
    if row == 0 || indices.is_empty() {
        return Ok(());
    }
    pool.for_each_row(out, row, (GRAIN / row).max(1), &|first, part| {
        for (i, to) in part.chunks_exact_mut(row).enumerate() {
            let (block, position) = ((first + i) / indices.len(), (first + i) % indices.len());
            if let Some(&ahead) = indices.get(position + AHEAD) {
                prefetch(&table[(block * limit + at(ahead)) * row..][..row]);
            }
            let from = (block * limit + at(indices[position])) * row;
            to.clone_from_slice(&table[from..from + row]);
        }
    });
    Ok(())
}

/// The position of the first index outside `0..limit`, as an error.
pub fn check<I: Int>(indices: &[I], limit: usize) -> Result<(), usize> {
    let limit = limit as i128;
    match indices.iter().position(|index| !(0..limit).contains(&index.to_i128())) {
        Some(position) => Err(position),
        None => Ok(()),
    }
}

/// Folds rows of updates into the rows of a table that the indices name, in order, in parallel.
///
/// `f` is given the table's row and the update's. The error is the position of the first index outside the table;
/// then nothing was changed.
pub fn scatter<T, U, I>(
    pool: &Pool,
    table: &mut [T],
    row: usize,
    indices: &[I],
    updates: &[U],
    f: &(dyn Fn(&mut [T], &[U]) + Sync),
) -> Result<(), usize>
where
    T: Send,
    U: Sync,
    I: Int,
{
    assert_eq!(updates.len(), indices.len() * row, "one row of updates per index");
    if row == 0 {
        return Ok(());
    }
    let limit = table.len() / row;
    check(indices, limit)?;
    // Each piece of the work owns a range of the table's rows and looks for their indices, so the updates of a row
    // happen in order and on one thread. To list its own indices first makes sums 20 % faster with two threads of a Zen 5,
    // but 15 % slower with one, and Adagrad's two tables a quarter to a half slower.
    let owners = pool.threads().min(indices.len() * row / GRAIN).max(1);
    let share = limit.div_ceil(owners).max(1);
    let shared = SharedMut::new(table);
    pool.for_each(owners, 1, &|range| {
        for owner in range {
            let rows = (owner * share).min(limit)..((owner + 1) * share).min(limit);
            // SAFETY: owners have disjoint ranges of rows.
            let own = unsafe { shared.slice(rows.start * row..rows.end * row) };
            for (i, (index, update)) in indices.iter().zip(updates.chunks_exact(row)).enumerate() {
                if let Some(ahead) = indices.get(i + AHEAD).map(|index| index.to_i64() as usize)
                    && rows.contains(&ahead)
                {
                    prefetch(&own[(ahead - rows.start) * row..][..row]);
                }
                let at = index.to_i64() as usize;
                if rows.contains(&at) {
                    f(&mut own[(at - rows.start) * row..][..row], update);
                }
            }
        }
    });
    Ok(())
}

/// Adds rows of `src` into the rows of `sums` that the segment ids name; negative ids are left out.
///
/// The error is the position of the first id beyond the sums; then nothing was changed.
pub fn unsorted_segment<T, I>(
    pool: &Pool,
    sums: &mut [T],
    row: usize,
    ids: &[I],
    src: &[T],
    f: &(dyn Fn(&mut [T], &[T]) + Sync),
) -> Result<(), usize>
where
    T: Copy + Send + Sync,
    I: Int,
{
    assert_eq!(src.len(), ids.len() * row, "one row per id");
    if row == 0 {
        return Ok(());
    }
    let limit = (sums.len() / row) as i128;
    if let Some(position) = ids.iter().position(|id| id.to_i128() >= limit) {
        return Err(position);
    }
    // Columns are independent of each other: every thread folds all rows, for columns of its own.
    let columns = row.div_ceil(pool.threads()).max(64);
    let shared = SharedMut::new(sums);
    let strips = row.div_ceil(columns);
    let grain = if src.len() < GRAIN { strips } else { 1 };
    pool.for_each(strips, grain, &|range| {
        let (start, end) = (range.start * columns, (range.end * columns).min(row));
        for (id, from) in ids.iter().zip(src.chunks_exact(row)) {
            if *id < I::ZERO {
                continue;
            }
            let at = id.to_i64() as usize * row;
            // SAFETY: strips have disjoint columns.
            f(unsafe { shared.slice(at + start..at + end) }, &from[start..end]);
        }
    });
    Ok(())
}

/// Adds up rows in their own memory: the `count` sums come first, and what is behind them is arbitrary.
///
/// Row `i` belongs to sum `ids[i]`. The sums must be numbered in the order in which their first rows come: no row is then
/// written to before it was read, and none at all is touched until one belongs to the sum of another. False if they are not,
/// or are not as many; then nothing was changed. The sum of a single row is that row, with its negative zeros.
pub fn segment_in_place<T: Copy>(
    rows: &mut [T],
    row: usize,
    ids: &[i64],
    count: usize,
    f: &dyn Fn(&mut [T], &[T]),
) -> bool {
    assert_eq!(rows.len(), ids.len() * row, "one row per id");
    let after = |next: i64, id: i64| (0..=next).contains(&id).then_some(next.max(id + 1));
    if ids.iter().try_fold(0, |next, &id| after(next, id)) != Some(count as i64) {
        return false;
    }
    let mut next = 0;
    for (i, &id) in ids.iter().enumerate() {
        let (id, at) = (id as usize, i * row);
        if id == next {
            next += 1;
            if id < i {
                rows.copy_within(at..at + row, id * row);
            }
        } else {
            let (sums, rest) = rows.split_at_mut(at);
            f(&mut sums[id * row..][..row], &rest[..row]);
        }
    }
    true
}

/// Asks the memory for a row that is needed soon.
#[inline(always)]
pub fn prefetch<T>(row: &[T]) {
    #[cfg(target_arch = "x86_64")]
    for line in (0..size_of_val(row).min(512)).step_by(64) {
        // SAFETY: prefetching has no effect but on the cache, and the address lies within the row.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(row.as_ptr().cast::<i8>().add(line));
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = row;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elementwise::add_assign;
    use crate::testing::{Numbers, seeds};

    #[test]
    fn gathered_rows_are_the_tables() {
        let pool = Pool::new(3);
        for seed in seeds().take(50) {
            let mut numbers = Numbers::new(seed);
            let (outer, limit, row) = (1 + numbers.below(3), 1 + numbers.below(100), numbers.below(40));
            let table: Vec<i32> = (0..(outer * limit * row) as i32).collect();
            let indices: Vec<i64> = (0..numbers.below(900)).map(|_| numbers.below(limit) as i64).collect();
            let mut out = vec![0; outer * indices.len() * row];
            gather(&pool, &table, outer, limit, row, &indices, &mut out).unwrap();
            let mut want = Vec::new();
            for block in 0..outer {
                for &index in &indices {
                    want.extend_from_slice(&table[(block * limit + index as usize) * row..][..row]);
                }
            }
            assert_eq!(out, want, "seed {seed}");
        }
    }

    #[test]
    fn an_index_outside_is_an_error_that_names_its_position() {
        let pool = Pool::inline();
        let mut out = [7; 3];
        assert_eq!(gather(&pool, &[1, 2], 1, 2, 1, &[0i32, 2, -1], &mut out), Err(1));
        assert_eq!(gather(&pool, &[1, 2], 1, 2, 1, &[0i32, 1, -1], &mut out), Err(2));
        assert_eq!(out, [7; 3]);
        let mut table = [1, 2];
        assert_eq!(scatter(&pool, &mut table, 1, &[0u8, 2], &[5, 5], &|a, b| a.copy_from_slice(b)), Err(1));
        assert_eq!(table, [1, 2]);
    }

    #[test]
    fn rows_whose_sums_are_numbered_in_another_order_are_left_as_they_are() {
        let add = |to: &mut [i32], from: &[i32]| add_assign(to, from);
        for (ids, count) in [([1, 0, 0], 2), ([0, 2, 1], 3), ([0, -1, 0], 1), ([0, 1, 1], 3), ([0, 1, 1], 1)] {
            let mut rows = [1, 2, 3];
            assert!(!segment_in_place(&mut rows, 1, &ids, count, &add), "{ids:?}");
            assert_eq!(rows, [1, 2, 3]);
        }
        assert!(segment_in_place(&mut [0i32; 0], 0, &[0, 1, 0], 2, &add));
        assert!(segment_in_place(&mut [0i32; 0], 2, &[], 0, &add));
    }

    #[test]
    fn repeated_indices_are_folded_in_order() {
        let pool = Pool::new(3);
        for seed in seeds().take(30) {
            let mut numbers = Numbers::new(seed);
            let (limit, row, count) = (1 + numbers.below(50), 1 + numbers.below(100), numbers.below(2000));
            let indices: Vec<i32> = (0..count).map(|_| numbers.below(limit) as i32).collect();
            let updates: Vec<f32> = numbers.vec(count * row);
            let start: Vec<f32> = numbers.vec(limit * row);
            let (mut sums, mut last) = (start.clone(), start.clone());
            for (i, &index) in indices.iter().enumerate() {
                for j in 0..row {
                    sums[index as usize * row + j] += updates[i * row + j];
                    last[index as usize * row + j] = updates[i * row + j];
                }
            }
            let mut table = start.clone();
            scatter(&pool, &mut table, row, &indices, &updates, &|to, from| add_assign(to, from)).unwrap();
            assert_eq!(table, sums, "seed {seed}");
            let mut table = start.clone();
            unsorted_segment(&pool, &mut table, row, &indices, &updates, &|to, from| add_assign(to, from)).unwrap();
            assert_eq!(table, sums, "seed {seed}");
            // Numbered as they come, each is summed up where it is.
            let mut numbers = Vec::new();
            let number = |index: &i32| match numbers.iter().position(|n| n == index) {
                Some(number) => number as i64,
                None => {
                    numbers.push(*index);
                    numbers.len() as i64 - 1
                }
            };
            let ids: Vec<i64> = indices.iter().map(number).collect();
            let mut want = vec![0.0; numbers.len() * row];
            unsorted_segment(&pool, &mut want, row, &ids, &updates, &|to, from| add_assign(to, from)).unwrap();
            let mut rows = updates.clone();
            assert!(segment_in_place(&mut rows, row, &ids, numbers.len(), &|to, from| add_assign(to, from)));
            assert_eq!(rows[..want.len()], want, "seed {seed}");
            let mut table = start;
            scatter(&pool, &mut table, row, &indices, &updates, &|to, from| to.copy_from_slice(from)).unwrap();
            assert_eq!(table, last, "seed {seed}");
        }
    }
}

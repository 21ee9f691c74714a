//! Maxima and means over windows that slide over images, and their gradients.
//!
//! Images are stored batch, height, width, channels. Padding never wins a maximum and never counts in a mean.

use crate::number::{Float, Number, Real};
use crate::parallel::{Pool, SharedMut};
use crate::simd::vectorized;
use std::ops::Range;

/// How windows slide over a batch of images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Windows {
    /// Images.
    pub batch: usize,
    /// Rows of an image.
    pub in_height: usize,
    /// Columns of an image.
    pub in_width: usize,
    /// Channels of a pixel.
    pub channels: usize,
    /// Rows of a window.
    pub height: usize,
    /// Columns of a window.
    pub width: usize,
    /// Rows from a window to the next.
    pub stride_height: usize,
    /// Columns from a window to the next.
    pub stride_width: usize,
    /// Rows of padding above an image.
    pub pad_top: usize,
    /// Columns of padding left of an image.
    pub pad_left: usize,
    /// Rows of windows.
    pub out_height: usize,
    /// Columns of windows.
    pub out_width: usize,
}

impl Windows {
    fn inputs(&self) -> usize {
        self.batch * self.in_height * self.in_width * self.channels
    }

    fn outputs(&self) -> usize {
        self.batch * self.out_height * self.out_width * self.channels
    }

    /// The rows of an image that a row of windows covers.
    #[inline(always)]
    fn rows(&self, out_row: usize) -> Range<usize> {
        clip(out_row * self.stride_height, self.pad_top, self.height, self.in_height)
    }

    /// The columns of an image that a column of windows covers.
    #[inline(always)]
    fn columns(&self, out_column: usize) -> Range<usize> {
        clip(out_column * self.stride_width, self.pad_left, self.width, self.in_width)
    }

    /// Rows of windows worth a thread.
    fn grain(&self) -> usize {
        let row = self.out_width * self.channels * self.height * self.width;
        ((1 << 15) / row.max(1)).max(1)
    }
}

/// The part of a window from `start - pad` on that lies within the image.
#[inline(always)]
fn clip(start: usize, pad: usize, window: usize, len: usize) -> Range<usize> {
    start.saturating_sub(pad).min(len)..(start + window).saturating_sub(pad).min(len)
}

/// The largest element of every window, channel by channel, in parallel.
pub fn max_pool<T: Real>(pool: &Pool, windows: &Windows, x: &[T], y: &mut [T]) {
    assert!(x.len() == windows.inputs() && y.len() == windows.outputs(), "the sizes do not fit");
    pool.for_each_row(y, windows.out_width * windows.channels, windows.grain(), &|first, part| {
        max_rows(windows, x, first, part);
    });
}

/// The gradient of `max_pool`: each element of `dy` goes to the first largest element of its window. In parallel.
pub fn max_pool_grad<T: Real>(pool: &Pool, windows: &Windows, x: &[T], dy: &[T], dx: &mut [T]) {
    assert!(x.len() == windows.inputs() && dy.len() == windows.outputs(), "the sizes do not fit");
    assert_eq!(dx.len(), windows.inputs(), "the sizes do not fit");
    scatter_rows(pool, windows, dx, &|first, rows, dx| max_grad_rows(windows, x, dy, first, rows, dx));
}

/// `max_pool`, and for every result where its element was: its place in its image, `(row * width + column) * channels
/// + channel`, counted through the whole batch if `in_batch`. In parallel.
pub fn max_pool_with_argmax<T: Real, I: Number>(
    pool: &Pool,
    windows: &Windows,
    in_batch: bool,
    x: &[T],
    y: &mut [T],
    places: &mut [I],
) {
    assert!(x.len() == windows.inputs() && y.len() == windows.outputs(), "the sizes do not fit");
    assert_eq!(places.len(), y.len(), "one place per result");
    let image = windows.in_height * windows.in_width * windows.channels;
    let places = SharedMut::new(places);
    pool.for_each_mut(y, windows.grain() * windows.out_width * windows.channels, &|start, part| {
        // SAFETY: the same disjoint ranges as those of `y`.
        let places = unsafe { places.slice(start..start + part.len()) };
        for (i, (y, place)) in part.iter_mut().zip(places).enumerate() {
            let at = start + i;
            let (pixel, channel) = (at / windows.channels, at % windows.channels);
            let (line, out_column) = (pixel / windows.out_width, pixel % windows.out_width);
            let (n, out_row) = (line / windows.out_height, line % windows.out_height);
            let (mut best, mut found) = (T::MIN, None);
            for row in windows.rows(out_row) {
                for column in windows.columns(out_column) {
                    let place = (row * windows.in_width + column) * windows.channels + channel;
                    let value = x[n * image + place];
                    if found.is_none() || value > best {
                        (best, found) = (value, Some(place));
                    }
                }
            }
            *y = best;
            *place = I::from_i64((found.unwrap_or(0) + if in_batch { n * image } else { 0 }) as i64);
        }
    });
}

/// The mean of every window, channel by channel, in parallel.
pub fn avg_pool<T: Float>(pool: &Pool, windows: &Windows, x: &[T], y: &mut [T]) {
    assert!(x.len() == windows.inputs() && y.len() == windows.outputs(), "the sizes do not fit");
    pool.for_each_row(y, windows.out_width * windows.channels, windows.grain(), &|first, part| {
        avg_rows(windows, x, first, part);
    });
}

/// The gradient of `avg_pool`: each element of `dy` is shared out evenly over its window. In parallel.
pub fn avg_pool_grad<T: Float>(pool: &Pool, windows: &Windows, dy: &[T], dx: &mut [T]) {
    assert!(dx.len() == windows.inputs() && dy.len() == windows.outputs(), "the sizes do not fit");
    scatter_rows(pool, windows, dx, &|first, rows, dx| avg_grad_rows(windows, dy, first, rows, dx));
}

/// Calls `body` with bands of rows of windows, numbered through the batch, and the rows of `dx` that they alone touch.
fn scatter_rows<T: Number>(
    pool: &Pool,
    windows: &Windows,
    dx: &mut [T],
    body: &(dyn Fn(usize, usize, &mut [T]) + Sync),
) {
    let line = windows.in_width * windows.channels;
    let image = windows.in_height * line;
    if windows.stride_height < windows.height || windows.out_height == 0 {
        // Rows of windows overlap: an image is the smallest piece that is nobody else's.
        pool.for_each_row(dx, image, 1, &|first, part| {
            part.fill(T::ZERO);
            for (i, dx) in part.chunks_exact_mut(image).enumerate() {
                body((first + i) * windows.out_height, windows.out_height, dx);
            }
        });
        return;
    }
    let dx = SharedMut::new(dx);
    pool.for_each(windows.batch * windows.out_height, windows.grain(), &|range| {
        for index in range {
            let (n, out_row) = (index / windows.out_height, index % windows.out_height);
            // A row of windows owns the image's rows from where it begins to where the next begins.
            let start = |out_row: usize| match out_row {
                0 => 0,
                row if row == windows.out_height => windows.in_height,
                row => (row * windows.stride_height).saturating_sub(windows.pad_top).min(windows.in_height),
            };
            let own = n * image + start(out_row) * line..n * image + start(out_row + 1) * line;
            // SAFETY: rows of windows do not overlap here, so neither do the rows of the image that they own.
            let dx = unsafe { dx.slice(own) };
            dx.fill(T::ZERO);
            body(index, 1, dx);
        }
    });
}

vectorized! {
    fn max_rows[T][T: Real](windows: &Windows, x: &[T], first: usize, y: &mut [T]) = max_rows_body;
}
vectorized! {
    fn max_grad_rows[T][T: Real](windows: &Windows, x: &[T], dy: &[T], first: usize, rows: usize, dx: &mut [T]) = max_grad_rows_body;
}
vectorized! {
    fn avg_rows[T][T: Float](windows: &Windows, x: &[T], first: usize, y: &mut [T]) = avg_rows_body;
}
vectorized! {
    fn avg_grad_rows[T][T: Float](windows: &Windows, dy: &[T], first: usize, rows: usize, dx: &mut [T]) = avg_grad_rows_body;
}

/// Channels whose maxima are kept in registers.
const LANES: usize = 32;

#[inline(always)]
fn max_rows_body<T: Real, const FMA: bool>(windows: &Windows, x: &[T], first: usize, y: &mut [T]) {
    let channels = windows.channels;
    for (i, line) in y.chunks_exact_mut(windows.out_width * channels).enumerate() {
        let (n, out_row) = ((first + i) / windows.out_height, (first + i) % windows.out_height);
        let rows = windows.rows(out_row);
        for (out_column, y) in line.chunks_exact_mut(channels).enumerate() {
            let columns = windows.columns(out_column);
            // The beginnings of the window's rows within the images.
            let starts = || {
                rows.clone().map(|row| ((n * windows.in_height + row) * windows.in_width + columns.start) * channels)
            };
            let (whole, rest) = y.as_chunks_mut::<LANES>();
            for (block, y) in whole.iter_mut().enumerate() {
                let mut most = [T::MIN; LANES];
                for start in starts() {
                    for pixel in 0..columns.len() {
                        let x = x[start + pixel * channels + block * LANES..].first_chunk::<LANES>();
                        let x = x.expect("a pixel has all its channels");
                        for i in 0..LANES {
                            // NaN never wins, as in TensorFlow.
                            most[i] = if x[i] > most[i] { x[i] } else { most[i] };
                        }
                    }
                }
                *y = most;
            }
            let from = channels - rest.len();
            rest.fill(T::MIN);
            for start in starts() {
                for pixel in 0..columns.len() {
                    for (y, &x) in rest.iter_mut().zip(&x[start + pixel * channels + from..]) {
                        *y = if x > *y { x } else { *y };
                    }
                }
            }
        }
    }
}

/// Channels that the gradient of the maximum handles at once.
const CHANNELS: usize = 64;

#[inline(always)]
fn max_grad_rows_body<T: Real, const FMA: bool>(
    windows: &Windows,
    x: &[T],
    dy: &[T],
    first: usize,
    rows: usize,
    dx: &mut [T],
) {
    let channels = windows.channels;
    let base = (first / windows.out_height * windows.in_height + top(windows, first)) * windows.in_width * channels;
    for index in first..first + rows {
        let (n, out_row) = (index / windows.out_height, index % windows.out_height);
        for out_column in 0..windows.out_width {
            let from_dy = (index * windows.out_width + out_column) * channels;
            for channel in (0..channels).step_by(CHANNELS) {
                let count = CHANNELS.min(channels - channel);
                let dy = &dy[from_dy + channel..from_dy + channel + count];
                let (mut best, mut place) = ([T::MIN; CHANNELS], [0u32; CHANNELS]);
                let at = |row: usize, column: usize| {
                    ((n * windows.in_height + row) * windows.in_width + column) * channels + channel
                };
                let mut number = 0u32;
                for row in windows.rows(out_row) {
                    for column in windows.columns(out_column) {
                        let x = &x[at(row, column)..][..count];
                        for i in 0..count {
                            // Only a larger element takes the place of an earlier one.
                            let wins = number == 0 || x[i] > best[i];
                            best[i] = if wins { x[i] } else { best[i] };
                            place[i] = if wins { number } else { place[i] };
                        }
                        number += 1;
                    }
                }
                let mut number = 0u32;
                for row in windows.rows(out_row) {
                    for column in windows.columns(out_column) {
                        let dx = &mut dx[at(row, column) - base..][..count];
                        for i in 0..count {
                            dx[i] = dx[i].add(if place[i] == number { dy[i] } else { T::ZERO });
                        }
                        number += 1;
                    }
                }
            }
        }
    }
}

/// The image row at which the slice handed to a band of window rows begins.
#[inline(always)]
fn top(windows: &Windows, index: usize) -> usize {
    match index % windows.out_height {
        0 => 0,
        row => (row * windows.stride_height).saturating_sub(windows.pad_top).min(windows.in_height),
    }
}

#[inline(always)]
fn avg_rows_body<T: Float, const FMA: bool>(windows: &Windows, x: &[T], first: usize, y: &mut [T]) {
    let channels = windows.channels;
    let mut sums = vec![T::Acc::ZERO; channels];
    for (i, line) in y.chunks_exact_mut(windows.out_width * channels).enumerate() {
        let (n, out_row) = ((first + i) / windows.out_height, (first + i) % windows.out_height);
        let rows = windows.rows(out_row);
        for (out_column, y) in line.chunks_exact_mut(channels).enumerate() {
            let columns = windows.columns(out_column);
            sums.fill(T::Acc::ZERO);
            for row in rows.clone() {
                let from = ((n * windows.in_height + row) * windows.in_width + columns.start) * channels;
                for pixel in x[from..from + columns.len() * channels].chunks_exact(channels) {
                    for (sum, x) in sums.iter_mut().zip(pixel) {
                        *sum = sum.add(x.to_acc());
                    }
                }
            }
            let count = T::Acc::from_i64((rows.len() * columns.len()) as i64);
            for (y, sum) in y.iter_mut().zip(&sums) {
                *y = T::from_acc(sum.div(count));
            }
        }
    }
}

#[inline(always)]
fn avg_grad_rows_body<T: Float, const FMA: bool>(windows: &Windows, dy: &[T], first: usize, rows: usize, dx: &mut [T]) {
    let channels = windows.channels;
    let base = (first / windows.out_height * windows.in_height + top(windows, first)) * windows.in_width * channels;
    for index in first..first + rows {
        let (n, out_row) = (index / windows.out_height, index % windows.out_height);
        for out_column in 0..windows.out_width {
            let from = (index * windows.out_width + out_column) * channels;
            let dy = &dy[from..from + channels];
            let (rows, columns) = (windows.rows(out_row), windows.columns(out_column));
            let share = T::ONE.div(T::from_i64((rows.len() * columns.len()) as i64));
            for row in rows {
                let to = ((n * windows.in_height + row) * windows.in_width + columns.start) * channels - base;
                for pixel in dx[to..to + columns.len() * channels].chunks_exact_mut(channels) {
                    for (dx, dy) in pixel.iter_mut().zip(dy) {
                        *dx = dx.add(dy.mul(share));
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Numbers, seeds};

    fn random_windows(numbers: &mut Numbers) -> Windows {
        let mut w = Windows {
            batch: 1 + numbers.below(3),
            in_height: 1 + numbers.below(12),
            in_width: 1 + numbers.below(12),
            channels: [1, 3, 8, 65, 130][numbers.below(5)],
            height: 1 + numbers.below(4),
            width: 1 + numbers.below(4),
            stride_height: 1 + numbers.below(4),
            stride_width: 1 + numbers.below(4),
            pad_top: 0,
            pad_left: 0,
            out_height: 0,
            out_width: 0,
        };
        (w.height, w.width) = (w.height.min(w.in_height), w.width.min(w.in_width));
        let side = |len: usize, window: usize, stride: usize, same: bool| {
            if same {
                let out = len.div_ceil(stride);
                (out, ((out - 1) * stride + window).saturating_sub(len) / 2)
            } else {
                ((len - window) / stride + 1, 0)
            }
        };
        let same = numbers.below(2) == 0;
        (w.out_height, w.pad_top) = side(w.in_height, w.height, w.stride_height, same);
        (w.out_width, w.pad_left) = side(w.in_width, w.width, w.stride_width, same);
        w
    }

    /// Calls `each` with the index of every result and the indices of the elements in its window.
    fn slow(w: &Windows, mut each: impl FnMut(usize, Vec<usize>)) {
        for at in 0..w.outputs() {
            let (channel, pixel) = (at % w.channels, at / w.channels);
            let (out_column, line) = (pixel % w.out_width, pixel / w.out_width);
            let (out_row, n) = (line % w.out_height, line / w.out_height);
            let mut members = Vec::new();
            for i in 0..w.height {
                for j in 0..w.width {
                    let row = (out_row * w.stride_height + i) as isize - w.pad_top as isize;
                    let column = (out_column * w.stride_width + j) as isize - w.pad_left as isize;
                    if (0..w.in_height as isize).contains(&row) && (0..w.in_width as isize).contains(&column) {
                        members.push(
                            ((n * w.in_height + row as usize) * w.in_width + column as usize) * w.channels + channel,
                        );
                    }
                }
            }
            each(at, members);
        }
    }

    #[test]
    fn pooling_agrees_with_the_plain_loops() {
        let pool = Pool::new(3);
        for seed in seeds().take(300) {
            let mut numbers = Numbers::new(seed);
            let w = random_windows(&mut numbers);
            // Few different values, so that there are ties.
            let x: Vec<f64> = (0..w.inputs()).map(|_| numbers.below(5) as f64 - 2.0).collect();
            let dy: Vec<f64> = (0..w.outputs()).map(|_| numbers.below(100) as f64).collect();
            let (mut most, mut mean) = (vec![0.0; w.outputs()], vec![0.0; w.outputs()]);
            let (mut most_grad, mut mean_grad) = (vec![0.0; w.inputs()], vec![0.0; w.inputs()]);
            let mut places = vec![0i64; w.outputs()];
            slow(&w, |at, members| {
                let mut best = members[0];
                members.iter().for_each(|&i| {
                    if x[i] > x[best] {
                        best = i
                    }
                });
                most[at] = x[best];
                places[at] = best as i64;
                most_grad[best] += dy[at];
                mean[at] = members.iter().map(|&i| x[i]).sum::<f64>() / members.len() as f64;
                members.iter().for_each(|&i| mean_grad[i] += dy[at] / members.len() as f64);
            });
            let (mut y, mut dx) = (vec![9.0; w.outputs()], vec![9.0; w.inputs()]);
            max_pool(&pool, &w, &x, &mut y);
            assert_eq!(y, most, "max {w:?} seed {seed}");
            max_pool_grad(&pool, &w, &x, &dy, &mut dx);
            assert_eq!(dx, most_grad, "max gradient {w:?} seed {seed}");
            let mut found = vec![0i64; w.outputs()];
            max_pool_with_argmax(&pool, &w, true, &x, &mut y, &mut found);
            assert_eq!((y.clone(), found), (most, places), "argmax {w:?} seed {seed}");
            avg_pool(&pool, &w, &x, &mut y);
            assert_eq!(y, mean, "mean {w:?} seed {seed}");
            avg_pool_grad(&pool, &w, &dy, &mut dx);
            for (got, want) in dx.iter().zip(&mean_grad) {
                assert!((got - want).abs() < 1e-9, "mean gradient {w:?} seed {seed}: {got} is not {want}");
            }
        }
    }
}

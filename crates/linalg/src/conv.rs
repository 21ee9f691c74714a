//! Convolutions over images and their gradients.
//!
//! Images are stored batch, height, width, channels; filters height, width, input channels, output channels. In single
//! precision a band of an image is copied with its padding, after which a row of a filter meets one contiguous run of
//! numbers, and a convolution is a matrix product that reads its left side straight from the image.

use crate::matmul::{Gemm, GemmShape};
use crate::number::Float;
use crate::parallel::{Pool, SharedMut};
use crate::scratch::Scratch;
use crate::simd::{same, same_mut, vectorized};
use crate::tile::{COLUMNS, ROWS, Runs, Side, Target, Walk, by_columns, by_rows, groups};
use std::ops::Range;

/// The sizes of a convolution; padding below and to the right follows from them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conv2d {
    /// Images.
    pub batch: usize,
    /// Rows of an image.
    pub in_height: usize,
    /// Columns of an image.
    pub in_width: usize,
    /// Channels of an input pixel.
    pub in_channels: usize,
    /// Rows of the filter.
    pub filter_height: usize,
    /// Columns of the filter.
    pub filter_width: usize,
    /// Channels of an output pixel.
    pub out_channels: usize,
    /// Groups that the channels fall into; a filter sees the input channels of its own group.
    pub groups: usize,
    /// Rows from a place of the filter to the next.
    pub stride_height: usize,
    /// Columns from a place of the filter to the next.
    pub stride_width: usize,
    /// Rows from an element of the filter to the next.
    pub dilation_height: usize,
    /// Columns from an element of the filter to the next.
    pub dilation_width: usize,
    /// Rows of zeros above an image.
    pub pad_top: usize,
    /// Columns of zeros left of an image.
    pub pad_left: usize,
    /// Rows of the result.
    pub out_height: usize,
    /// Columns of the result.
    pub out_width: usize,
}

impl Conv2d {
    fn inputs(&self) -> usize {
        self.batch * self.in_height * self.in_width * self.in_channels
    }

    fn outputs(&self) -> usize {
        self.batch * self.out_height * self.out_width * self.out_channels
    }

    fn filter_len(&self) -> usize {
        self.depth() * self.out_channels
    }

    /// Products in the sum of one output.
    fn depth(&self) -> usize {
        self.filter_height * self.filter_width * (self.in_channels / self.groups.max(1))
    }

    fn check(&self, x: usize, filter: usize, y: usize) {
        assert!(
            self.groups > 0
                && self.in_channels.is_multiple_of(self.groups)
                && self.out_channels.is_multiple_of(self.groups),
            "the groups must divide the channels"
        );
        assert_eq!(x, self.inputs(), "the input has another size than {self:?}");
        assert_eq!(filter, self.filter_len(), "the filter has another size than {self:?}");
        assert_eq!(y, self.outputs(), "the output has another size than {self:?}");
    }

    fn is_empty(&self) -> bool {
        self.inputs() == 0 || self.outputs() == 0 || self.filter_len() == 0
    }

    /// One group of it, as a convolution of its own.
    fn one_group(&self) -> Conv2d {
        Conv2d {
            in_channels: self.in_channels / self.groups,
            out_channels: self.out_channels / self.groups,
            groups: 1,
            ..*self
        }
    }
}

/// The convolution of a batch of images with a filter, in parallel.
pub fn conv2d<T: Float>(pool: &Pool, conv: &Conv2d, x: &[T], filter: &[T], y: &mut [T]) {
    conv.check(x.len(), filter.len(), y.len());
    if conv.is_empty() {
        return y.fill(T::ZERO);
    }
    in_groups(conv, [x, filter], y, [Part::Input, Part::Filter, Part::Output], &|conv, [x, filter], y| {
        in_single([x, filter], y, &|[x, filter], y| forward(pool, conv, x, filter, y), &|[x, filter], y| {
            slow_forward(pool, conv, x, filter, y)
        });
    });
}

/// The gradient of `conv2d` with respect to its images, in parallel.
pub fn conv2d_backprop_input<T: Float>(pool: &Pool, conv: &Conv2d, filter: &[T], dy: &[T], dx: &mut [T]) {
    conv.check(dx.len(), filter.len(), dy.len());
    if conv.is_empty() {
        return dx.fill(T::ZERO);
    }
    in_groups(conv, [filter, dy], dx, [Part::Filter, Part::Output, Part::Input], &|conv, [filter, dy], dx| {
        in_single(
            [filter, dy],
            dx,
            &|[filter, dy], dx| {
                if conv.stride_height == 1 && conv.stride_width == 1 {
                    backward_by_forward(pool, conv, filter, dy, dx);
                } else {
                    backward_by_columns(pool, conv, filter, dy, dx);
                }
            },
            &|[filter, dy], dx| slow_backward(pool, conv, filter, dy, dx),
        );
    });
}

/// The gradient of `conv2d` with respect to its filter, in parallel.
pub fn conv2d_backprop_filter<T: Float>(pool: &Pool, conv: &Conv2d, x: &[T], dy: &[T], dfilter: &mut [T]) {
    conv.check(x.len(), dfilter.len(), dy.len());
    if conv.is_empty() {
        return dfilter.fill(T::ZERO);
    }
    in_groups(conv, [x, dy], dfilter, [Part::Input, Part::Output, Part::Filter], &|conv, [x, dy], dfilter| {
        in_single(
            [x, dy],
            dfilter,
            &|[x, dy], dfilter| filter_gradient(pool, conv, x, dy, dfilter),
            &|[x, dy], dfilter| slow_filter_gradient(pool, conv, x, dy, dfilter),
        );
    });
}

/// What an array of a convolution is, to cut it into groups.
#[derive(Clone, Copy)]
enum Part {
    Input,
    Filter,
    Output,
}

impl Part {
    /// The length of the array's rows, and of one group's part of a row.
    fn row(self, conv: &Conv2d) -> (usize, usize) {
        let row = match self {
            Part::Input => conv.in_channels,
            Part::Filter | Part::Output => conv.out_channels,
        };
        (row, row / conv.groups)
    }
}

/// Runs `body` on each group's arrays, copied out and back if there is more than one group.
fn in_groups<T: Float>(
    conv: &Conv2d,
    from: [&[T]; 2],
    to: &mut [T],
    parts: [Part; 3],
    body: &dyn Fn(&Conv2d, [&[T]; 2], &mut [T]),
) {
    if conv.groups == 1 {
        return body(conv, from, to);
    }
    let one = conv.one_group();
    for group in 0..conv.groups {
        let cut = |array: &[T], part: Part| {
            let (row, own) = part.row(conv);
            array.chunks_exact(row).flat_map(|row| &row[group * own..(group + 1) * own]).copied().collect::<Vec<T>>()
        };
        let (a, b) = (cut(from[0], parts[0]), cut(from[1], parts[1]));
        let (row, own) = parts[2].row(conv);
        let mut result = vec![T::ZERO; to.len() / conv.groups];
        body(&one, [&a, &b], &mut result);
        for (to, from) in to.chunks_exact_mut(row).zip(result.chunks_exact(own)) {
            to[group * own..(group + 1) * own].copy_from_slice(from);
        }
    }
}

/// Runs `single` for `f32`, and for halves through copies; `other` for wider types.
fn in_single<T: Float>(
    from: [&[T]; 2],
    to: &mut [T],
    single: &dyn Fn([&[f32]; 2], &mut [f32]),
    other: &dyn Fn([&[T]; 2], &mut [T]),
) {
    if let (Some(a), Some(b)) = (same::<T, f32>(from[0]), same::<T, f32>(from[1])) {
        single([a, b], same_mut::<T, f32>(to).expect("all three have one type"));
    } else if size_of::<T>() == 2 {
        let widen = |slice: &[T]| slice.iter().map(|x| x.to_f32()).collect::<Vec<f32>>();
        let mut wide = vec![0.0; to.len()];
        single([&widen(from[0]), &widen(from[1])], &mut wide);
        for (to, from) in to.iter_mut().zip(wide) {
            *to = T::from_f32(from);
        }
    } else {
        other(from, to);
    }
}

/// A slice of images as the tiles read it: bands of rows with the padding in place.
///
/// Padding may be negative: then rows and columns of the image are left out.
struct Banded<'a> {
    images: &'a [f32],
    height: usize,
    width: usize,
    channels: usize,
    pad_top: isize,
    pad_left: isize,
    stride_height: usize,
    /// Columns of a padded row.
    padded_width: usize,
    /// Rows that one row of the result needs.
    reach: usize,
}

impl Banded<'_> {
    fn padded_row(&self) -> usize {
        self.padded_width * self.channels
    }

    /// Elements of a band for this many rows of the result; some more, for tiles that read past the last column.
    fn len(&self, out_rows: usize) -> usize {
        ((out_rows - 1) * self.stride_height + self.reach) * self.padded_row() + COLUMNS
    }

    /// Copies what some rows of the result of an image need.
    fn copy(&self, image: usize, out_rows: Range<usize>, band: &mut [f32]) {
        let first = (out_rows.start * self.stride_height) as isize - self.pad_top;
        let row_len = self.width * self.channels;
        let image = &self.images[image * self.height * row_len..][..self.height * row_len];
        // Columns of a padded row that come from the image.
        let start = self.pad_left.clamp(0, self.padded_width as isize) as usize;
        let skip = (-self.pad_left).clamp(0, self.width as isize) as usize;
        let count = (self.width - skip).min(self.padded_width - start);
        let (start, skip, count) = (start * self.channels, skip * self.channels, count * self.channels);
        let rows = (out_rows.len() - 1) * self.stride_height + self.reach;
        for (i, to) in band.chunks_exact_mut(self.padded_row()).take(rows).enumerate() {
            let row = first + i as isize;
            if (0..self.height as isize).contains(&row) {
                to[..start].fill(0.0);
                to[start..start + count].copy_from_slice(&image[row as usize * row_len + skip..][..count]);
                to[start + count..].fill(0.0);
            } else {
                to.fill(0.0);
            }
        }
        band[rows * self.padded_row()..].fill(0.0);
    }
}

/// A convolution with one group, ready to run over bands.
struct Plan<'a> {
    banded: Banded<'a>,
    /// Where the runs of one output begin in a band, relative to its first number; and their length.
    offsets: Vec<usize>,
    run: usize,
    batch: usize,
    out_height: usize,
    out_width: usize,
    step_width: usize,
    /// Rows of the result that make a band.
    band_rows: usize,
}

/// The most that a band should take, in elements: a third of the second cache.
const BAND: usize = 40_000;
/// Multiplications worth a thread.
const GRAIN: usize = 1 << 20;
/// The longest stretch of a sum done at once: with `COLUMNS` columns of the filter it takes 20 kB of the first cache.
const DEPTH: usize = 320;

impl Plan<'_> {
    fn new<'a>(conv: &Conv2d, images: &'a [f32], pad_top: isize, pad_left: isize) -> Plan<'a> {
        let banded = Banded {
            images,
            height: conv.in_height,
            width: conv.in_width,
            channels: conv.in_channels,
            pad_top,
            pad_left,
            stride_height: conv.stride_height,
            padded_width: (conv.out_width - 1) * conv.stride_width + (conv.filter_width - 1) * conv.dilation_width + 1,
            reach: (conv.filter_height - 1) * conv.dilation_height + 1,
        };
        let rows = (0..conv.filter_height).map(|row| row * conv.dilation_height * banded.padded_row());
        let (offsets, run) = if conv.dilation_width == 1 {
            (rows.collect(), conv.filter_width * conv.in_channels)
        } else {
            let columns = |row| (0..conv.filter_width).map(move |c| row + c * conv.dilation_width * conv.in_channels);
            (rows.flat_map(columns).collect(), conv.in_channels)
        };
        // Bands of equal size, as large as the cache allows.
        let most = (BAND / banded.padded_row()).saturating_sub(banded.reach) / conv.stride_height + 1;
        let bands = conv.out_height.div_ceil(most.clamp(1, conv.out_height));
        Plan {
            offsets,
            run,
            batch: conv.batch,
            out_height: conv.out_height,
            out_width: conv.out_width,
            step_width: conv.stride_width * conv.in_channels,
            band_rows: conv.out_height.div_ceil(bands),
            banded,
        }
    }

    fn bands(&self) -> usize {
        self.out_height.div_ceil(self.band_rows)
    }

    /// The image and the rows of the result that a number below `batch * bands` stands for.
    fn unit(&self, index: usize) -> (usize, Range<usize>) {
        let (image, band) = (index / self.bands(), index % self.bands());
        (image, band * self.band_rows..((band + 1) * self.band_rows).min(self.out_height))
    }

    fn depth(&self) -> usize {
        self.offsets.len() * self.run
    }
}

/// Runs whose filter rows stay in the first cache together.
struct Chunk {
    offsets: Vec<usize>,
    len: usize,
    /// The first of its rows in the filter.
    start: usize,
}

fn chunks(plan: &Plan<'_>) -> Vec<Chunk> {
    let mut chunks = Vec::new();
    if plan.run > DEPTH {
        let piece = plan.run.div_ceil(plan.run.div_ceil(DEPTH));
        for (index, offset) in plan.offsets.iter().enumerate() {
            for at in (0..plan.run).step_by(piece) {
                let len = piece.min(plan.run - at);
                chunks.push(Chunk { offsets: vec![offset + at], len, start: index * plan.run + at });
            }
        }
        return chunks;
    }
    let count = plan.depth().div_ceil(DEPTH);
    let each = plan.offsets.len().div_ceil(count);
    for (index, offsets) in plan.offsets.chunks(each).enumerate() {
        chunks.push(Chunk { offsets: offsets.to_vec(), len: plan.run, start: index * each * plan.run });
    }
    chunks
}

fn forward(pool: &Pool, conv: &Conv2d, x: &[f32], filter: &[f32], y: &mut [f32]) {
    let plan = Plan::new(conv, x, conv.pad_top as isize, conv.pad_left as isize);
    run_forward(pool, &plan, filter, conv.out_channels, y);
}

/// The gradient of the images at stride one is the convolution of the result's gradient with the filter turned round.
fn backward_by_forward(pool: &Pool, conv: &Conv2d, filter: &[f32], dy: &[f32], dx: &mut [f32]) {
    let turned = Conv2d {
        in_height: conv.out_height,
        in_width: conv.out_width,
        in_channels: conv.out_channels,
        out_height: conv.in_height,
        out_width: conv.in_width,
        out_channels: conv.in_channels,
        ..*conv
    };
    let (ci, co) = (conv.in_channels, conv.out_channels);
    let taps = conv.filter_height * conv.filter_width;
    let mut turned_filter = Scratch::take(filter.len());
    for (tap, to) in turned_filter.chunks_exact_mut(ci * co).enumerate() {
        let from = &filter[(taps - 1 - tap) * ci * co..][..ci * co];
        crate::transpose::transpose(&Pool::inline(), &[ci, co], &[1, 0], from, to);
    }
    let pad = |filter: usize, dilation: usize, pad: usize| ((filter - 1) * dilation) as isize - pad as isize;
    let pad_top = pad(conv.filter_height, conv.dilation_height, conv.pad_top);
    let pad_left = pad(conv.filter_width, conv.dilation_width, conv.pad_left);
    run_forward(pool, &Plan::new(&turned, dy, pad_top, pad_left), &turned_filter, ci, dx);
}

fn run_forward(pool: &Pool, plan: &Plan<'_>, filter: &[f32], out_channels: usize, y: &mut [f32]) {
    let chunks = chunks(plan);
    let panels = out_channels.div_ceil(COLUMNS);
    let mut packed = Scratch::take(plan.depth() * panels * COLUMNS);
    let place = |chunk: &Chunk, panel: usize| {
        let depth = chunk.offsets.len() * chunk.len;
        let at = (chunk.start * panels + panel * depth) * COLUMNS;
        at..at + depth * COLUMNS
    };
    for chunk in &chunks {
        for panel in 0..panels {
            let from = &filter[chunk.start * out_channels + panel * COLUMNS..];
            let columns = COLUMNS.min(out_channels - panel * COLUMNS);
            let depth = chunk.offsets.len() * chunk.len;
            crate::gemm32::pack_straight(from, out_channels, columns, depth, &mut packed[place(chunk, panel)]);
        }
    }
    let packed = &packed[..];
    let work = plan.band_rows * plan.out_width * plan.depth() * out_channels;
    let y = SharedMut::new(y);
    pool.for_each(plan.batch * plan.bands(), (GRAIN / work).max(1), &|units| {
        let mut band = Scratch::take(plan.banded.len(plan.band_rows));
        for unit in units {
            let (image, rows) = plan.unit(unit);
            let band = &mut band[..plan.banded.len(rows.len())];
            plan.banded.copy(image, rows.clone(), band);
            let pixels = rows.len() * plan.out_width;
            let first = (image * plan.out_height + rows.start) * plan.out_width;
            for chunk in &chunks {
                let last = chunk.offsets.last().expect("a chunk has a run") + chunk.len;
                for panels in groups(panels) {
                    let first_panel = place(chunk, panels.start);
                    let (right, apart) =
                        (&packed[first_panel.start..place(chunk, panels.end).start], first_panel.len());
                    let first_column = panels.start * COLUMNS;
                    let columns = (panels.len() * COLUMNS).min(out_channels - first_column);
                    let mut pixel = 0;
                    while pixel < pixels {
                        let count = ROWS.min(pixels - pixel);
                        let mut left = [band.as_ptr(); ROWS];
                        for (i, left) in left.iter_mut().enumerate().take(count) {
                            let (row, column) = ((pixel + i) / plan.out_width, (pixel + i) % plan.out_width);
                            let at =
                                row * plan.banded.stride_height * plan.banded.padded_row() + column * plan.step_width;
                            *left = band[at..at + last].as_ptr();
                        }
                        let at = (first + pixel) * out_channels + first_column;
                        let start = y.pointer(at..at + (count - 1) * out_channels + columns);
                        let target =
                            Target { start, stride: out_channels, columns, add: chunk.start > 0, in_turns: true };
                        let runs = Runs { offsets: &chunk.offsets, len: chunk.len };
                        // SAFETY: each pointer begins a part of the band that holds the last run; each panel holds
                        // `COLUMNS` numbers for each step; the pixels of the result belong to this unit alone.
                        unsafe { by_rows(&left[..count], runs, Side::packed(right.as_ptr(), apart), target) };
                        pixel += count;
                    }
                }
            }
        }
    });
}

/// The gradient of the images: products of the result's gradient with the filter, added where they came from.
fn backward_by_columns(pool: &Pool, conv: &Conv2d, filter: &[f32], dy: &[f32], dx: &mut [f32]) {
    let depth = conv.depth();
    let image = conv.in_height * conv.in_width * conv.in_channels;
    let out_row = conv.out_width * conv.out_channels;
    let rows_at_once = ((1 << 17) / (conv.out_width * depth)).clamp(1, conv.out_height);
    let inline = Pool::inline();
    pool.for_each_row(dx, image, 1, &|first, part| {
        let mut columns = Scratch::take(rows_at_once * conv.out_width * depth);
        part.fill(0.0);
        for (i, dx) in part.chunks_exact_mut(image).enumerate() {
            for start in (0..conv.out_height).step_by(rows_at_once) {
                let rows = rows_at_once.min(conv.out_height - start);
                let from = ((first + i) * conv.out_height + start) * out_row;
                let columns = &mut columns[..rows * conv.out_width * depth];
                let shape =
                    GemmShape { transpose_b: true, ..GemmShape::new(rows * conv.out_width, depth, conv.out_channels) };
                f32::gemm(&inline, &shape, &dy[from..from + rows * out_row], filter, columns);
                for (pixel, column) in columns.chunks_exact(depth).enumerate() {
                    add_column(conv, start + pixel / conv.out_width, pixel % conv.out_width, column, dx);
                }
            }
        }
    });
}

/// Adds what one output pixel gives to the input pixels it was made from.
fn add_column(conv: &Conv2d, out_row: usize, out_column: usize, column: &[f32], dx: &mut [f32]) {
    for (tap, from) in column.chunks_exact(conv.in_channels).enumerate() {
        let (i, j) = (tap / conv.filter_width, tap % conv.filter_width);
        let row = (out_row * conv.stride_height + i * conv.dilation_height).checked_sub(conv.pad_top);
        let column = (out_column * conv.stride_width + j * conv.dilation_width).checked_sub(conv.pad_left);
        if let (Some(row), Some(column)) = (row, column)
            && row < conv.in_height
            && column < conv.in_width
        {
            let at = (row * conv.in_width + column) * conv.in_channels;
            crate::elementwise::add_assign(&mut dx[at..at + conv.in_channels], from);
        }
    }
}

/// How many parts of a filter's gradient are summed apart; fixed, so that the sum does not depend on the threads.
const PARTS: usize = 8;

fn filter_gradient(pool: &Pool, conv: &Conv2d, x: &[f32], dy: &[f32], dfilter: &mut [f32]) {
    let plan = Plan::new(conv, x, conv.pad_top as isize, conv.pad_left as isize);
    let (depth, channels) = (conv.depth(), conv.out_channels);
    // The vectors run along whichever side fills them better; the other side is taken six at a time.
    let fill = |len: usize, step: usize| len as f64 / len.next_multiple_of(step) as f64;
    let along_runs = fill(plan.run, COLUMNS) * fill(channels, ROWS) >= fill(plan.run, ROWS) * fill(channels, COLUMNS);
    let units = conv.batch * plan.bands();
    let work = plan.band_rows * plan.out_width * depth * channels;
    let parts =
        (units * work / GRAIN).clamp(1, if depth * channels > 1 << 18 { pool.threads() } else { PARTS }).min(units);
    let mut sums = Scratch::take(parts * depth * channels);
    let shared = SharedMut::new(&mut sums);
    pool.for_each(parts, 1, &|range| {
        for part in range {
            // SAFETY: every part has a range of its own.
            let sums = unsafe { shared.slice(part * depth * channels..(part + 1) * depth * channels) };
            sums.fill(0.0);
            for unit in part * units / parts..(part + 1) * units / parts {
                if along_runs {
                    gradient_along_runs(&plan, unit, dy, channels, sums);
                } else {
                    gradient_along_channels(&plan, unit, dy, channels, sums);
                }
            }
        }
    });
    let sums = &sums[..];
    pool.for_each_row(dfilter, channels, ((1 << 14) / channels).max(1), &|first, rows| {
        for (row, to) in rows.chunks_exact_mut(channels).enumerate() {
            let row = first + row;
            for (channel, to) in to.iter_mut().enumerate() {
                let at = if along_runs { channel * depth + row } else { row * channels + channel };
                *to = (0..parts).map(|part| sums[part * depth * channels + at]).sum();
            }
        }
    });
}

/// Copies a unit's part of the gradient in groups of `width` channels, zeros where there are none.
fn pack_channels(plan: &Plan<'_>, unit: usize, dy: &[f32], channels: usize, width: usize) -> (Scratch, usize) {
    let (image, rows) = plan.unit(unit);
    let pixels = rows.len() * plan.out_width;
    let from = &dy[(image * plan.out_height + rows.start) * plan.out_width * channels..][..pixels * channels];
    let mut packed = Scratch::take(channels.div_ceil(width) * pixels * width);
    for (group, to) in packed.chunks_exact_mut(pixels * width).enumerate() {
        let first = group * width;
        let count = width.min(channels - first);
        for (to, from) in to.chunks_exact_mut(width).zip(from.chunks_exact(channels)) {
            to[..count].copy_from_slice(&from[first..first + count]);
            to[count..].fill(0.0);
        }
    }
    (packed, pixels)
}

/// Adds a unit's share to the gradient, stored channel by channel.
fn gradient_along_runs(plan: &Plan<'_>, unit: usize, dy: &[f32], channels: usize, sums: &mut [f32]) {
    let (image, rows) = plan.unit(unit);
    let mut band = Scratch::take(plan.banded.len(rows.len()));
    plan.banded.copy(image, rows.clone(), &mut band);
    let (packed, pixels) = pack_channels(plan, unit, dy, channels, ROWS);
    let depth = plan.depth();
    let steps = (rows.len() - 1) * plan.banded.stride_height * plan.banded.padded_row()
        + (plan.out_width - 1) * plan.step_width;
    for (group, left) in packed.chunks_exact(pixels * ROWS).enumerate() {
        let count = ROWS.min(channels - group * ROWS);
        for (run, offset) in plan.offsets.iter().enumerate() {
            for tiles in groups(plan.run.div_ceil(COLUMNS)) {
                let at = tiles.start * COLUMNS;
                let columns = (tiles.len() * COLUMNS).min(plan.run - at);
                let right = &band[offset + at..][..steps + tiles.len() * COLUMNS];
                let to = &mut sums[group * ROWS * depth + run * plan.run + at..][..(count - 1) * depth + columns];
                let left = Walk { start: left.as_ptr(), stride: ROWS, outer_stride: plan.out_width * ROWS };
                let right = Walk {
                    start: right.as_ptr(),
                    stride: plan.step_width,
                    outer_stride: plan.banded.stride_height * plan.banded.padded_row(),
                };
                let target = Target { start: to.as_mut_ptr(), stride: depth, columns, add: true, in_turns: true };
                // SAFETY: the packed group holds `ROWS` numbers for every pixel, the band `COLUMNS` for each tile beyond the
                // last step, and the sums every row of the tiles.
                unsafe { by_columns(count, left, right, COLUMNS, (plan.out_width, rows.len()), target) };
            }
        }
    }
}

/// Adds a unit's share to the gradient, stored as filters are.
fn gradient_along_channels(plan: &Plan<'_>, unit: usize, dy: &[f32], channels: usize, sums: &mut [f32]) {
    let (image, rows) = plan.unit(unit);
    let mut band = Scratch::take(plan.banded.len(rows.len()));
    plan.banded.copy(image, rows.clone(), &mut band);
    let (packed, pixels) = pack_channels(plan, unit, dy, channels, COLUMNS);
    let steps = (rows.len() - 1) * plan.banded.stride_height * plan.banded.padded_row()
        + (plan.out_width - 1) * plan.step_width;
    let apart = pixels * COLUMNS;
    for panels in groups(channels.div_ceil(COLUMNS)) {
        let right = &packed[panels.start * apart..panels.end * apart];
        let first_column = panels.start * COLUMNS;
        let columns = (panels.len() * COLUMNS).min(channels - first_column);
        for (run, offset) in plan.offsets.iter().enumerate() {
            for at in (0..plan.run).step_by(ROWS) {
                let count = ROWS.min(plan.run - at);
                let left = &band[offset + at..][..steps + count];
                let to =
                    &mut sums[(run * plan.run + at) * channels + first_column..][..(count - 1) * channels + columns];
                let left = Walk {
                    start: left.as_ptr(),
                    stride: plan.step_width,
                    outer_stride: plan.banded.stride_height * plan.banded.padded_row(),
                };
                let right = Walk { start: right.as_ptr(), stride: COLUMNS, outer_stride: plan.out_width * COLUMNS };
                let target = Target { start: to.as_mut_ptr(), stride: channels, columns, add: true, in_turns: true };
                // SAFETY: the band holds `count` numbers at every step, each packed panel `COLUMNS` for every pixel, and the
                // sums every row of the tiles.
                unsafe { by_columns(count, left, right, apart, (plan.out_width, rows.len()), target) };
            }
        }
    }
}

/// Calls `each` with the places in input, filter and output of every tap that lies within its image: the input pixel,
/// the tap, the output pixel.
fn for_each_tap(conv: &Conv2d, image: usize, mut each: impl FnMut(usize, usize, usize)) {
    for out_row in 0..conv.out_height {
        for i in 0..conv.filter_height {
            let row = (out_row * conv.stride_height + i * conv.dilation_height).checked_sub(conv.pad_top);
            let Some(row) = row.filter(|&row| row < conv.in_height) else { continue };
            for out_column in 0..conv.out_width {
                for j in 0..conv.filter_width {
                    let column = (out_column * conv.stride_width + j * conv.dilation_width).checked_sub(conv.pad_left);
                    let Some(column) = column.filter(|&column| column < conv.in_width) else { continue };
                    each(
                        (image * conv.in_height + row) * conv.in_width + column,
                        i * conv.filter_width + j,
                        (image * conv.out_height + out_row) * conv.out_width + out_column,
                    );
                }
            }
        }
    }
}

fn slow_forward<T: Float>(pool: &Pool, conv: &Conv2d, x: &[T], filter: &[T], y: &mut [T]) {
    let (ci, co) = (conv.in_channels, conv.out_channels);
    let image = conv.out_height * conv.out_width * co;
    pool.for_each_row(y, image, 1, &|first, part| {
        part.fill(T::ZERO);
        for n in 0..part.len() / image {
            for_each_tap(conv, first + n, |from, tap, to| {
                let to = to * co - first * image;
                for (c, &x) in x[from * ci..(from + 1) * ci].iter().enumerate() {
                    add_scaled(&mut part[to..to + co], x, &filter[(tap * ci + c) * co..][..co]);
                }
            });
        }
    });
}

fn slow_backward<T: Float>(pool: &Pool, conv: &Conv2d, filter: &[T], dy: &[T], dx: &mut [T]) {
    let (ci, co) = (conv.in_channels, conv.out_channels);
    let image = conv.in_height * conv.in_width * ci;
    pool.for_each_row(dx, image, 1, &|first, part| {
        part.fill(T::ZERO);
        for n in 0..part.len() / image {
            for_each_tap(conv, first + n, |to, tap, from| {
                let to = to * ci - first * image;
                let dy = &dy[from * co..(from + 1) * co];
                for (c, dx) in part[to..to + ci].iter_mut().enumerate() {
                    let filter = &filter[(tap * ci + c) * co..][..co];
                    *dx = dy.iter().zip(filter).fold(*dx, |sum, (dy, f)| sum.add(dy.mul(*f)));
                }
            });
        }
    });
}

fn slow_filter_gradient<T: Float>(pool: &Pool, conv: &Conv2d, x: &[T], dy: &[T], dfilter: &mut [T]) {
    let (ci, co) = (conv.in_channels, conv.out_channels);
    // Each thread owns some rows of the filter's gradient and goes through all images.
    pool.for_each_row(dfilter, co, ((1 << 14) / co).max(1), &|first, part| {
        part.fill(T::ZERO);
        let rows = first..first + part.len() / co;
        for image in 0..conv.batch {
            for_each_tap(conv, image, |from, tap, to| {
                for row in (tap * ci).max(rows.start)..((tap + 1) * ci).min(rows.end) {
                    let x = x[from * ci + row - tap * ci];
                    add_scaled(&mut part[(row - first) * co..][..co], x, &dy[to * co..][..co]);
                }
            });
        }
    });
}

vectorized! {
    /// `to += factor * from`.
    fn add_scaled[T][T: Float](to: &mut [T], factor: T, from: &[T]) = add_scaled_body;
}
vectorized! {
    /// `to += a * b`.
    fn add_product[T][T: Float](to: &mut [T], a: &[T], b: &[T]) = add_product_body;
}

#[inline(always)]
fn add_scaled_body<T: Float, const FMA: bool>(to: &mut [T], factor: T, from: &[T]) {
    for (to, x) in to.iter_mut().zip(from) {
        *to = to.add(factor.mul(*x));
    }
}

#[inline(always)]
fn add_product_body<T: Float, const FMA: bool>(to: &mut [T], a: &[T], b: &[T]) {
    for ((to, a), b) in to.iter_mut().zip(a).zip(b) {
        *to = to.add(a.mul(*b));
    }
}

/// The multiplier of a depthwise convolution: output channels per input channel.
fn multiplier(conv: &Conv2d) -> usize {
    assert!(
        conv.in_channels > 0 && conv.groups == conv.in_channels && conv.out_channels.is_multiple_of(conv.in_channels),
        "a depthwise convolution has a group for every channel"
    );
    conv.out_channels / conv.in_channels
}

/// The convolution of every channel with filters of its own, in parallel; `groups` is the number of input channels.
///
/// Output channel `c * multiplier + q` is channel `c` under its filter `q`.
pub fn depthwise_conv2d<T: Float>(pool: &Pool, conv: &Conv2d, x: &[T], filter: &[T], y: &mut [T]) {
    conv.check(x.len(), filter.len(), y.len());
    if conv.is_empty() {
        return y.fill(T::ZERO);
    }
    let (ci, co, multiplier) = (conv.in_channels, conv.out_channels, multiplier(conv));
    let image = conv.out_height * conv.out_width * co;
    pool.for_each_row(y, image, 1, &|first, part| {
        part.fill(T::ZERO);
        let mut wide = vec![T::ZERO; if multiplier > 1 { co } else { 0 }];
        for n in 0..part.len() / image {
            for_each_tap(conv, first + n, |from, tap, to| {
                let to = to * co - first * image;
                let x = spread(&x[from * ci..(from + 1) * ci], multiplier, &mut wide);
                add_product(&mut part[to..to + co], x, &filter[tap * co..(tap + 1) * co]);
            });
        }
    });
}

/// Every number repeated `multiplier` times.
fn spread<'a, T: Copy>(x: &'a [T], multiplier: usize, wide: &'a mut [T]) -> &'a [T] {
    if multiplier == 1 {
        return x;
    }
    for (to, x) in wide.chunks_exact_mut(multiplier).zip(x) {
        to.fill(*x);
    }
    wide
}

/// The gradient of `depthwise_conv2d` with respect to its images, in parallel.
pub fn depthwise_conv2d_backprop_input<T: Float>(pool: &Pool, conv: &Conv2d, filter: &[T], dy: &[T], dx: &mut [T]) {
    conv.check(dx.len(), filter.len(), dy.len());
    if conv.is_empty() {
        return dx.fill(T::ZERO);
    }
    let (ci, co, multiplier) = (conv.in_channels, conv.out_channels, multiplier(conv));
    let image = conv.in_height * conv.in_width * ci;
    pool.for_each_row(dx, image, 1, &|first, part| {
        part.fill(T::ZERO);
        for n in 0..part.len() / image {
            for_each_tap(conv, first + n, |to, tap, from| {
                let to = to * ci - first * image;
                let (dy, filter) = (&dy[from * co..(from + 1) * co], &filter[tap * co..(tap + 1) * co]);
                if multiplier == 1 {
                    return add_product(&mut part[to..to + ci], dy, filter);
                }
                let products = dy.chunks_exact(multiplier).zip(filter.chunks_exact(multiplier));
                for (dx, (dy, filter)) in part[to..to + ci].iter_mut().zip(products) {
                    *dx = dy.iter().zip(filter).fold(*dx, |sum, (dy, f)| sum.add(dy.mul(*f)));
                }
            });
        }
    });
}

/// The gradient of `depthwise_conv2d` with respect to its filter, in parallel.
pub fn depthwise_conv2d_backprop_filter<T: Float>(pool: &Pool, conv: &Conv2d, x: &[T], dy: &[T], dfilter: &mut [T]) {
    conv.check(x.len(), dfilter.len(), dy.len());
    if conv.is_empty() {
        return dfilter.fill(T::ZERO);
    }
    let (ci, co, multiplier) = (conv.in_channels, conv.out_channels, multiplier(conv));
    let parts = conv.batch.min(PARTS);
    let mut sums = vec![T::ZERO; parts * dfilter.len()];
    pool.for_each_row(&mut sums, dfilter.len(), 1, &|first, sums| {
        let mut wide = vec![T::ZERO; if multiplier > 1 { co } else { 0 }];
        for (i, sums) in sums.chunks_exact_mut(conv.filter_height * conv.filter_width * co).enumerate() {
            let part = first + i;
            for image in part * conv.batch / parts..(part + 1) * conv.batch / parts {
                for_each_tap(conv, image, |from, tap, to| {
                    let x = spread(&x[from * ci..(from + 1) * ci], multiplier, &mut wide);
                    add_product(&mut sums[tap * co..(tap + 1) * co], x, &dy[to * co..(to + 1) * co]);
                });
            }
        }
    });
    let len = dfilter.len();
    for (i, to) in dfilter.iter_mut().enumerate() {
        *to = (0..parts).fold(T::ZERO, |sum, part| sum.add(sums[part * len + i]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Numbers, seeds};
    use half::f16;

    fn random_conv(numbers: &mut Numbers) -> Conv2d {
        loop {
            let groups = [1, 1, 1, 2, 3][numbers.below(5)];
            let mut conv = Conv2d {
                batch: 1 + numbers.below(3),
                in_height: 1 + numbers.below(14),
                in_width: 1 + numbers.below(14),
                in_channels: groups * [1, 2, 3, 8, 17, 40][numbers.below(6)],
                filter_height: 1 + numbers.below(5),
                filter_width: 1 + numbers.below(5),
                out_channels: groups * [1, 3, 6, 16, 20, 33][numbers.below(6)],
                groups,
                stride_height: [1, 1, 2, 3][numbers.below(4)],
                stride_width: [1, 1, 2, 3][numbers.below(4)],
                dilation_height: [1, 1, 2][numbers.below(3)],
                dilation_width: [1, 1, 2][numbers.below(3)],
                pad_top: numbers.below(4),
                pad_left: numbers.below(4),
                out_height: 0,
                out_width: 0,
            };
            let (bottom, right) = (numbers.below(4), numbers.below(4));
            let side = |len: usize, pad: usize, filter: usize, dilation: usize, stride: usize| {
                (len + pad).checked_sub((filter - 1) * dilation + 1).map(|room| room / stride + 1)
            };
            let height = side(
                conv.in_height,
                conv.pad_top + bottom,
                conv.filter_height,
                conv.dilation_height,
                conv.stride_height,
            );
            let width =
                side(conv.in_width, conv.pad_left + right, conv.filter_width, conv.dilation_width, conv.stride_width);
            if let (Some(height), Some(width)) = (height, width) {
                (conv.out_height, conv.out_width) = (height, width);
                return conv;
            }
        }
    }

    /// Calls `each` with the indices of every product: input, filter, output.
    fn slow(conv: &Conv2d, mut each: impl FnMut(usize, usize, usize)) {
        let (ci, co) = (conv.in_channels / conv.groups, conv.out_channels / conv.groups);
        for image in 0..conv.batch {
            for_each_tap(conv, image, |from, tap, to| {
                for out in 0..conv.out_channels {
                    for c in 0..ci {
                        let input = from * conv.in_channels + out / co * ci + c;
                        each(input, (tap * ci + c) * conv.out_channels + out, to * conv.out_channels + out);
                    }
                }
            });
        }
    }

    #[track_caller]
    fn close<T: Float>(got: &[T], want: &[f64], tolerance: f64, what: &str) {
        for (i, (got, want)) in got.iter().zip(want).enumerate() {
            assert!(
                (got.to_f64() - want).abs() <= tolerance * (1.0 + want.abs()),
                "{what}: {got} is not {want} at {i}"
            );
        }
    }

    fn check<T: Float>(cases: usize, tolerance: f64) {
        let pool = Pool::new(3);
        for seed in seeds().take(cases) {
            let mut numbers = Numbers::new(seed);
            let conv = random_conv(&mut numbers);
            let (x, filter): (Vec<T>, Vec<T>) = (numbers.vec(conv.inputs()), numbers.vec(conv.filter_len()));
            let dy: Vec<T> = numbers.vec(conv.outputs());
            let (mut y, mut dx, mut df) = (vec![0.0; dy.len()], vec![0.0; x.len()], vec![0.0; filter.len()]);
            slow(&conv, |i, f, o| {
                y[o] += x[i].to_f64() * filter[f].to_f64();
                dx[i] += filter[f].to_f64() * dy[o].to_f64();
                df[f] += x[i].to_f64() * dy[o].to_f64();
            });
            let mut out = vec![T::ONE; y.len()];
            conv2d(&pool, &conv, &x, &filter, &mut out);
            close(&out, &y, tolerance, &format!("forward, {conv:?}, seed {seed}"));
            let mut out = vec![T::ONE; dx.len()];
            conv2d_backprop_input(&pool, &conv, &filter, &dy, &mut out);
            close(&out, &dx, tolerance, &format!("input gradient, {conv:?}, seed {seed}"));
            let mut out = vec![T::ONE; df.len()];
            conv2d_backprop_filter(&pool, &conv, &x, &dy, &mut out);
            close(&out, &df, tolerance, &format!("filter gradient, {conv:?}, seed {seed}"));
        }
    }

    #[test]
    fn convolutions_agree_with_the_plain_loops() {
        check::<f32>(150, 2e-5);
        check::<f64>(40, 1e-12);
        check::<f16>(10, 2e-2);
    }

    #[test]
    fn long_sums_and_many_bands_agree_too() {
        let pool = Pool::new(2);
        let conv = Conv2d {
            batch: 2,
            in_height: 40,
            in_width: 37,
            in_channels: 130,
            filter_height: 3,
            filter_width: 3,
            out_channels: 20,
            groups: 1,
            stride_height: 1,
            stride_width: 1,
            dilation_height: 1,
            dilation_width: 1,
            pad_top: 1,
            pad_left: 1,
            out_height: 40,
            out_width: 37,
        };
        let mut numbers = Numbers::new(99);
        let (x, filter): (Vec<f32>, Vec<f32>) = (numbers.vec(conv.inputs()), numbers.vec(conv.filter_len()));
        let dy: Vec<f32> = numbers.vec(conv.outputs());
        let (mut y, mut dx, mut df) = (vec![0.0f32; dy.len()], vec![0.0f32; x.len()], vec![0.0f32; filter.len()]);
        conv2d(&pool, &conv, &x, &filter, &mut y);
        conv2d_backprop_input(&pool, &conv, &filter, &dy, &mut dx);
        conv2d_backprop_filter(&pool, &conv, &x, &dy, &mut df);
        let (mut want_y, mut want_dx, mut want_df) = (vec![0.0; dy.len()], vec![0.0; x.len()], vec![0.0; filter.len()]);
        slow(&conv, |i, f, o| {
            want_y[o] += x[i] as f64 * filter[f] as f64;
            want_dx[i] += filter[f] as f64 * dy[o] as f64;
            want_df[f] += x[i] as f64 * dy[o] as f64;
        });
        close(&y, &want_y, 2e-5, "forward");
        close(&dx, &want_dx, 2e-5, "input gradient");
        close(&df, &want_df, 2e-5, "filter gradient");
    }

    #[test]
    fn depthwise_convolutions_agree_with_the_plain_loops() {
        let pool = Pool::new(3);
        for seed in seeds().take(60) {
            let mut numbers = Numbers::new(seed);
            let mut conv = random_conv(&mut numbers);
            let multiplier = 1 + numbers.below(3);
            conv.groups = conv.in_channels;
            conv.out_channels = conv.in_channels * multiplier;
            let (x, filter): (Vec<f32>, Vec<f32>) = (numbers.vec(conv.inputs()), numbers.vec(conv.filter_len()));
            let dy: Vec<f32> = numbers.vec(conv.outputs());
            let (mut y, mut dx, mut df) = (vec![0.0; dy.len()], vec![0.0; x.len()], vec![0.0; filter.len()]);
            slow(&conv, |i, f, o| {
                y[o] += x[i] as f64 * filter[f] as f64;
                dx[i] += filter[f] as f64 * dy[o] as f64;
                df[f] += x[i] as f64 * dy[o] as f64;
            });
            let mut out = vec![1.0f32; y.len()];
            depthwise_conv2d(&pool, &conv, &x, &filter, &mut out);
            close(&out, &y, 1e-5, &format!("forward, {conv:?}, seed {seed}"));
            let mut out = vec![1.0f32; dx.len()];
            depthwise_conv2d_backprop_input(&pool, &conv, &filter, &dy, &mut out);
            close(&out, &dx, 1e-5, &format!("input gradient, {conv:?}, seed {seed}"));
            let mut out = vec![1.0f32; df.len()];
            depthwise_conv2d_backprop_filter(&pool, &conv, &x, &dy, &mut out);
            close(&out, &df, 1e-5, &format!("filter gradient, {conv:?}, seed {seed}"));
        }
    }
}

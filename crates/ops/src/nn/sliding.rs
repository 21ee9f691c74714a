//! How windows slide over images: what the attributes of convolutions and pooling say, checked, and the sizes they give.

use framework::FromAttr;
use tensor::{Error, PartialShape, Result, Shape, invalid, unsupported};

/// Where the dimensions of a batch of images are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// Batch, height, width, channels.
    Nhwc,
    /// Batch, channels, height, width.
    Nchw,
}

impl Layout {
    pub(super) fn parse(name: &str) -> Result<Layout> {
        match name {
            "NHWC" => Ok(Layout::Nhwc),
            "NCHW" => Ok(Layout::Nchw),
            other => Err(invalid!("data format {other} is not known here")),
        }
    }

    /// Which dimensions are height and width.
    pub(super) fn spatial(self) -> [usize; 2] {
        match self {
            Layout::Nhwc => [1, 2],
            Layout::Nchw => [2, 3],
        }
    }

    /// Which dimension is that of channels.
    pub(super) fn channels(self) -> usize {
        match self {
            Layout::Nhwc => 3,
            Layout::Nchw => 1,
        }
    }

    /// A shape of these sizes in this layout.
    pub(super) fn shape<T: Copy>(self, batch: T, spatial: [T; 2], channels: T) -> [T; 4] {
        match self {
            Layout::Nhwc => [batch, spatial[0], spatial[1], channels],
            Layout::Nchw => [batch, channels, spatial[0], spatial[1]],
        }
    }
}

/// What is outside the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Padding {
    /// As much as it takes to have a window for every stride.
    Same,
    /// Nothing: windows lie within the image.
    Valid,
    /// This much before and after, in height and width.
    Explicit([[usize; 2]; 2]),
}

/// What the attributes of a convolution or a pooling op say.
#[derive(Clone, Debug)]
pub(super) struct Sliding {
    pub(super) layout: Layout,
    /// In height and width.
    pub(super) strides: [usize; 2],
    /// In height and width.
    pub(super) dilations: [usize; 2],
    pub(super) padding: Padding,
    /// All four strides and dilations as given, for what kernels must refuse.
    all_strides: [i64; 4],
    all_dilations: [i64; 4],
}

/// The number of windows along one dimension, and the padding before the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) windows: usize,
    pub(super) pad_before: usize,
}

/// Reads attributes, from a node being added or from a node whose kernel is made.
pub(super) trait Attributes {
    fn get<T: FromAttr>(&self, name: &str) -> Result<T>;
    fn has(&self, name: &str) -> bool;
}

impl Attributes for framework::InferenceContext<'_> {
    fn get<T: FromAttr>(&self, name: &str) -> Result<T> {
        self.attr(name)
    }
    fn has(&self, name: &str) -> bool {
        self.attr::<Vec<i64>>(name).is_ok()
    }
}

impl Attributes for framework::KernelBuild<'_> {
    fn get<T: FromAttr>(&self, name: &str) -> Result<T> {
        self.attr(name)
    }
    fn has(&self, name: &str) -> bool {
        self.attr::<Vec<i64>>(name).is_ok()
    }
}

impl Sliding {
    /// Reads and checks `strides`, `padding`, `data_format`, and `dilations` and `explicit_paddings` where there are.
    pub(super) fn read(attributes: &impl Attributes) -> Result<Sliding> {
        let layout = Layout::parse(&attributes.get::<String>("data_format")?)?;
        let all_strides = four("strides", attributes.get("strides")?)?;
        let all_dilations =
            if attributes.has("dilations") { four("dilations", attributes.get("dilations")?)? } else { [1; 4] };
        let at = |values: &[i64; 4], what: &str, least: &str| -> Result<[usize; 2]> {
            let [h, w] = layout.spatial().map(|d| values[d]);
            match (usize::try_from(h), usize::try_from(w)) {
                (Ok(h), Ok(w)) if h > 0 && w > 0 => Ok([h, w]),
                _ => Err(invalid!("{what} must be {least}, but got {}", if h < 1 { h } else { w })),
            }
        };
        let strides = at(&all_strides, "Stride", "> 0")?;
        let dilations = at(&all_dilations, "Dilation rate", ">= 1")?;
        let explicit: Vec<i64> =
            if attributes.has("explicit_paddings") { attributes.get("explicit_paddings")? } else { Vec::new() };
        let padding = read_padding(&attributes.get::<String>("padding")?, &explicit, layout)?;
        Ok(Sliding { layout, strides, dilations, padding, all_strides, all_dilations })
    }

    /// An error if windows also slide along the batch or the channels.
    pub(super) fn check_spatial_only(&self) -> Result<()> {
        let channels = self.layout.channels();
        if self.all_strides[0] != 1 || self.all_strides[channels] != 1 {
            return Err(unsupported!(
                "Current implementation does not yet support strides in the batch and depth dimensions."
            ));
        }
        if self.all_dilations[0] != 1 || self.all_dilations[channels] != 1 {
            return Err(unsupported!(
                "Current implementation does not yet support dilations in the batch and depth dimensions."
            ));
        }
        Ok(())
    }

    /// The stride along the channels.
    pub(super) fn channel_stride(&self) -> i64 {
        self.all_strides[self.layout.channels()]
    }

    /// The stride along the batch.
    pub(super) fn batch_stride(&self) -> i64 {
        self.all_strides[0]
    }

    /// How windows of this size lie along height (0) or width (1) of an image of this size.
    pub(super) fn extent(&self, axis: usize, input: usize, window: usize) -> Result<Extent> {
        let (stride, dilation) = (self.strides[axis], self.dilations[axis]);
        let too_large = || invalid!("a window of {window} with dilation {dilation} is too large");
        let effective = match window {
            0 => 0,
            window => (window - 1).checked_mul(dilation).and_then(|w| w.checked_add(1)).ok_or_else(too_large)?,
        };
        match self.padding {
            Padding::Same => {
                let windows = input.div_ceil(stride);
                let covered = windows.saturating_sub(1).checked_mul(stride).and_then(|c| c.checked_add(effective));
                let missing = covered.ok_or_else(too_large)?.saturating_sub(input);
                Ok(Extent { windows, pad_before: missing / 2 })
            }
            Padding::Valid => Ok(Extent { windows: windows(input, effective, stride)?, pad_before: 0 }),
            Padding::Explicit(pads) => {
                let [before, after] = pads[axis];
                let padded = input.checked_add(before).and_then(|p| p.checked_add(after)).ok_or_else(too_large)?;
                Ok(Extent { windows: windows(padded, effective, stride)?, pad_before: before })
            }
        }
    }

    /// The number of windows where the sizes are known while building.
    pub(super) fn known_windows(
        &self,
        axis: usize,
        input: Option<usize>,
        window: Option<usize>,
    ) -> Result<Option<usize>> {
        match (input, window, self.padding) {
            (Some(input), Some(window), _) => Ok(Some(self.extent(axis, input, window)?.windows)),
            (Some(input), None, Padding::Same) => Ok(Some(input.div_ceil(self.strides[axis]))),
            _ => Ok(None),
        }
    }
}

/// The number of places of a window; an image too small by less than a stride has none.
fn windows(input: usize, window: usize, stride: usize) -> Result<usize> {
    match input.saturating_add(stride).checked_sub(window) {
        Some(rest) => Ok(rest / stride),
        None => Err(invalid!(
            "Negative dimension size caused by subtracting {window} from {input}: the window is larger than the image"
        )),
    }
}

fn read_padding(padding: &str, explicit: &[i64], layout: Layout) -> Result<Padding> {
    if padding != "EXPLICIT" {
        if !explicit.is_empty() {
            return Err(invalid!("explicit_paddings attribute must be empty if the padding attribute is not EXPLICIT"));
        }
        return Ok(if padding == "SAME" { Padding::Same } else { Padding::Valid });
    }
    if explicit.len() != 8 {
        return Err(invalid!("explicit_paddings attribute must contain 8 values, but got: {}", explicit.len()));
    }
    let size = |i: usize| {
        usize::try_from(explicit[i]).map_err(|_| invalid!("All elements of explicit_paddings must be nonnegative"))
    };
    let pair = |dim: usize| -> Result<[usize; 2]> { Ok([size(2 * dim)?, size(2 * dim + 1)?]) };
    if pair(0)? != [0, 0] || pair(layout.channels())? != [0, 0] {
        return Err(invalid!("Nonzero explicit padding in the batch or depth dimensions is not supported"));
    }
    let [height, width] = layout.spatial();
    Ok(Padding::Explicit([pair(height)?, pair(width)?]))
}

/// The four values of an attribute, one for each dimension.
pub(super) fn four(name: &str, values: Vec<i64>) -> Result<[i64; 4]> {
    let count = values.len();
    values.try_into().map_err(|_| invalid!("the {name} attribute must contain 4 values, but got: {count}"))
}

/// The sizes of a batch of images.
pub(super) fn four_dims(what: &str, shape: &Shape) -> Result<[usize; 4]> {
    shape.dims().try_into().map_err(|_| not_four(what, shape))
}

fn not_four(what: &str, shape: &Shape) -> Error {
    invalid!("{what} must be 4-dimensional, found {shape}")
}

/// The same for what is known while building.
pub(super) fn four_partial(shape: &PartialShape) -> Result<[Option<usize>; 4]> {
    let shape = shape
        .with_rank(4)
        .map_err(|_| invalid!("Shape must be rank 4 but is rank {}: {shape}", shape.rank().unwrap_or_default()))?;
    Ok(std::array::from_fn(|i| shape.dim(i)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sliding(stride: usize, dilation: usize, padding: Padding) -> Sliding {
        Sliding {
            layout: Layout::Nhwc,
            strides: [stride; 2],
            dilations: [dilation; 2],
            padding,
            all_strides: [1; 4],
            all_dilations: [1; 4],
        }
    }

    #[test]
    fn windows_are_counted_as_tensorflow_counts_them() {
        let explicit = Padding::Explicit([[1, 2]; 2]);
        for (input, window, stride, dilation, padding, windows, pad_before) in [
            (5, 3, 1, 1, Padding::Same, 5, 1),
            (5, 3, 2, 1, Padding::Same, 3, 1),
            (4, 3, 2, 1, Padding::Same, 2, 0),
            (5, 2, 1, 2, Padding::Same, 5, 1),
            (5, 3, 2, 1, Padding::Valid, 2, 0),
            (5, 3, 1, 2, Padding::Valid, 1, 0),
            (4, 5, 1, 1, Padding::Valid, 0, 0),
            (5, 3, 2, 1, explicit, 3, 1),
            (0, 3, 2, 1, Padding::Same, 0, 1),
        ] {
            let extent = sliding(stride, dilation, padding).extent(0, input, window).unwrap();
            assert_eq!(extent, Extent { windows, pad_before }, "{input} {window} {stride} {dilation} {padding:?}");
        }
    }

    #[test]
    fn a_window_that_does_not_fit_is_refused() {
        assert!(sliding(1, 2, Padding::Valid).extent(0, 3, 3).is_err());
        assert!(sliding(1, usize::MAX, Padding::Same).extent(0, 4, 3).is_err());
    }
}

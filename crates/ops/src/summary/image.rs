//! `ImageSummary`: the images of a batch as PNG files.
//!
//! Bytes are shown as they are. Floats are stretched over the range of a byte, each image by itself; where there are
//! negative ones, zero is in the middle. A pixel that holds NaN or an infinity is painted in `bad_color`.

use super::{serialized, single_tag};
use bytes::Bytes;
use framework::typed::{FloatKernel, floats_by};
use framework::{Attr, BuiltKernel, Float, Kernel, KernelBuild, KernelContext, Op, shapes};
use proto::summary;
use std::sync::Arc;
use tensor::{DType, Result, Tensor, internal, invalid};

/// The ops of this file.
pub fn ops() -> Vec<Op> {
    let mut op = Op::new("ImageSummary")
        .input("tag: string")
        .input("tensor: T")
        .output("summary: string")
        .attr("max_images: int >= 1 = 3")
        .attr("T: {uint8, float, half, double} = float")
        .attr("bad_color: tensor")
        .shape(shapes::scalar)
        .costly()
        .not_differentiable()
        .kernel(Arc::new(|b| match b.dtype("T")? {
            DType::U8 => Ok(BuiltKernel::new(ImageSummary::new(b)?)),
            _ => floats_by(b, "T", ImageSummary::new(b)?),
        }));
    for attr in op.attrs.iter_mut().filter(|a| a.name == "bad_color") {
        attr.default = Some(Attr::Tensor(Tensor::from([255u8, 0, 0, 255])));
    }
    vec![op]
}

struct ImageSummary {
    max_images: usize,
    bad_color: Vec<u8>,
}

impl ImageSummary {
    fn new(b: &KernelBuild<'_>) -> Result<ImageSummary> {
        let bad_color: Tensor = b.attr("bad_color")?;
        if bad_color.dtype() != DType::U8 || bad_color.shape().rank() != 1 {
            return Err(invalid!(
                "bad_color must be a vector of uint8, found {} of shape {}",
                bad_color.dtype(),
                bad_color.shape()
            ));
        }
        let max_images = usize::try_from(b.attr::<i64>("max_images")?).unwrap_or(usize::MAX);
        Ok(ImageSummary { max_images, bad_color: bad_color.into_vec()? })
    }

    /// The summary of images whose bytes `pixels` makes of the image of a given number.
    fn summary(
        &self,
        ctx: &KernelContext<'_>,
        mut pixels: impl FnMut(std::ops::Range<usize>, usize) -> Result<Vec<u8>>,
    ) -> Result<Tensor> {
        let tag = single_tag(ctx.input(0))?;
        let &[batch, height, width, depth @ (1 | 3 | 4)] = ctx.input(1).dims() else {
            return Err(invalid!("Tensor must be 4-D with last dim 1, 3, or 4, not {}", ctx.input(1).shape()));
        };
        if self.bad_color.len() < depth {
            return Err(invalid!(
                "expected depth <= bad_color.size, got depth = {depth}, bad_color.size = {}",
                self.bad_color.len()
            ));
        }
        let too_large = |_| invalid!("images of shape {} are too large", ctx.input(1).shape());
        let (h, w) = (i32::try_from(height).map_err(too_large)?, i32::try_from(width).map_err(too_large)?);
        let size = height * width * depth;
        let values = (0..batch.min(self.max_images)).map(|i| {
            let bytes = pixels(i * size..(i + 1) * size, depth)?;
            let image = summary::Image {
                height: h,
                width: w,
                colorspace: depth as i32,
                encoded_image_string: png(&bytes, h as u32, w as u32, depth)?,
            };
            // A single image needs no number.
            let tag = if self.max_images > 1 { format!("{tag}/image/{i}") } else { format!("{tag}/image") };
            Ok(summary::Value { tag, value: Some(summary::value::Value::Image(image)), ..Default::default() })
        });
        Ok(serialized(values.collect::<Result<_>>()?))
    }
}

impl Kernel for ImageSummary {
    fn compute(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let bytes = ctx.input(1).as_slice::<u8>()?;
        let summary = self.summary(ctx, |range, _| Ok(bytes[range].to_vec()))?;
        ctx.set_output(0, summary)
    }
}

impl FloatKernel for ImageSummary {
    fn compute<T: Float>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let values = ctx.input(1).as_slice::<T>()?;
        let summary = self.summary(ctx, |range, depth| Ok(stretched(&values[range], depth, &self.bad_color)))?;
        ctx.set_output(0, summary)
    }
}

/// An image's floats as bytes. The scale is a float, the rest is computed in the type itself: TensorFlow's
/// pixels of doubles show it.
fn stretched<T: Float>(values: &[T], depth: usize, bad_color: &[u8]) -> Vec<u8> {
    let is_good = |pixel: &&[T]| pixel.iter().all(|v| v.is_finite());
    let (mut low, mut high) = (f32::INFINITY, f32::NEG_INFINITY);
    for value in values.chunks_exact(depth).filter(is_good).flatten() {
        (low, high) = (low.min(value.to_f32()), high.max(value.to_f32()));
    }
    let (range, largest, offset) = match low < 0.0 {
        true => (127.0, low.abs().max(high.abs()), T::from_f64(128.0)),
        false => (255.0, high, T::from_f64(0.0)),
    };
    /// An image whose values are all smaller is shown as zeros.
    const THRESHOLD: f32 = 1e-6;
    let scale = match largest < THRESHOLD {
        true => T::from_f64(0.0),
        false => T::from_f32(range / largest),
    };
    let mut bytes = Vec::with_capacity(values.len());
    for pixel in values.chunks_exact(depth) {
        if is_good(&pixel) {
            bytes.extend(pixel.iter().map(|v| v.mul(scale).add(offset).to_f64() as u8));
        } else {
            bytes.extend_from_slice(&bad_color[..depth]);
        }
    }
    bytes
}

fn png(pixels: &[u8], height: u32, width: u32, depth: usize) -> Result<Bytes> {
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, width, height);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.set_color(match depth {
        1 => png::ColorType::Grayscale,
        3 => png::ColorType::Rgb,
        _ => png::ColorType::Rgba,
    });
    let failed = |e: png::EncodingError| match e {
        png::EncodingError::Parameter(_) | png::EncodingError::Format(_) => invalid!("no PNG can be made: {e}"),
        other => internal!("a PNG could not be written: {other}"),
    };
    let mut writer = encoder.write_header().map_err(failed)?;
    writer.write_image_data(pixels).map_err(failed)?;
    writer.finish().map_err(failed)?;
    Ok(file.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_stretched_over_a_byte() {
        assert_eq!(stretched(&[0.0f32, 0.5, 1.0], 1, &[255]), [0, 127, 255]);
        assert_eq!(stretched(&[-1.0f32, 0.0, 1.0], 1, &[255]), [1, 128, 255]);
        assert_eq!(stretched(&[0.0f32, f32::NAN, 2.0], 1, &[7]), [0, 7, 255]);
        assert_eq!(stretched(&[1e-9f32, 0.0], 1, &[255]), [0, 0], "nothing to see");
        assert_eq!(stretched::<f32>(&[], 1, &[255]), [0u8; 0]);
    }

    #[test]
    fn what_is_encoded_can_be_decoded() {
        let pixels = [10, 20, 30, 40, 50, 60];
        let file = png(&pixels, 1, 2, 3).unwrap();
        let mut reader = png::Decoder::new(std::io::Cursor::new(&file[..])).read_info().unwrap();
        let mut decoded = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut decoded).unwrap();
        assert_eq!((info.width, info.height, info.color_type), (2, 1, png::ColorType::Rgb));
        assert_eq!(decoded, pixels);
    }
}

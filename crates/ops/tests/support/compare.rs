//! Comparing a tensor with the one TensorFlow gave.

use super::json::small_float;
use prost::Message;
use tensor::{Complex, DType, Element, Tensor, bf16, f16};

/// How far floats may be apart.
#[derive(Clone, Copy)]
pub enum Closeness {
    /// Not at all: for ops that only carry elements about.
    Exact,
    /// As their type allows.
    ByType,
    /// Relative, as the case says.
    Within(f64),
}

/// The first difference, in words.
pub fn difference(found: &Tensor, wanted: &Tensor, closeness: Closeness) -> Option<String> {
    if (found.dtype(), found.shape()) != (wanted.dtype(), wanted.shape()) {
        return Some(format!("wanted {wanted:?}, found {found:?}"));
    }
    let at = match wanted.dtype() {
        DType::F32 => reals::<f32>(found, wanted, closeness, 1e-5, |x| x as f64),
        DType::F64 => reals::<f64>(found, wanted, closeness, 1e-9, |x| x),
        DType::F16 => reals::<f16>(found, wanted, closeness, 2e-3, f16::to_f64),
        DType::BF16 => reals::<bf16>(found, wanted, closeness, 1e-2, bf16::to_f64),
        DType::C64 => complexes::<Complex<f32>>(found, wanted, closeness, 1e-5, |c| (c.re as f64, c.im as f64)),
        DType::C128 => complexes::<Complex<f64>>(found, wanted, closeness, 1e-9, |c| (c.re, c.im)),
        DType::String => {
            mismatch(found.as_strings().ok()?, wanted.as_strings().ok()?, |a, b| a == b || show_the_same(a, b))
        }
        DType::Resource | DType::Variant => None,
        dtype @ (DType::F8E5M2 | DType::F8E4M3FN | DType::F4E2M1FN) => {
            let same = |a: &u8, b: &u8| a == b || small_float(dtype, *a).is_nan() && small_float(dtype, *b).is_nan();
            mismatch(found.as_bytes().ok()?, wanted.as_bytes().ok()?, same)
        }
        dtype => mismatch(found.as_bytes().ok()?, wanted.as_bytes().ok()?, |a, b| a == b).map(|i| i / dtype.size()),
    }?;
    Some(format!("element {at} differs: wanted {wanted:?}, found {found:?}"))
}

/// Whether both are summaries that differ in nothing but how their images are compressed.
fn show_the_same(a: &[u8], b: &[u8]) -> bool {
    match (with_pixels(a), with_pixels(b)) {
        (Some(a), Some(b)) => a == b,
        _ => false,
    }
}

/// A summary with its PNG files replaced by the pixels in them; none if there are no such files.
fn with_pixels(bytes: &[u8]) -> Option<proto::Summary> {
    let mut summary = proto::Summary::decode(bytes).ok()?;
    for value in &mut summary.value {
        let Some(proto::summary::value::Value::Image(image)) = &mut value.value else { return None };
        let file = std::io::Cursor::new(&image.encoded_image_string[..]);
        let mut reader = png::Decoder::new(file).read_info().ok()?;
        let mut pixels = vec![0; reader.output_buffer_size()?];
        let info = reader.next_frame(&mut pixels).ok()?;
        pixels.extend(format!("{:?} {:?}", info.color_type, info.bit_depth).bytes());
        image.encoded_image_string = pixels.into();
    }
    (!summary.value.is_empty()).then_some(summary)
}

fn mismatch<T>(found: &[T], wanted: &[T], same: impl Fn(&T, &T) -> bool) -> Option<usize> {
    found.iter().zip(wanted).position(|(a, b)| !same(a, b))
}

fn reals<T: Element>(
    found: &Tensor,
    wanted: &Tensor,
    closeness: Closeness,
    by_type: f64,
    to: fn(T) -> f64,
) -> Option<usize> {
    let (found, wanted) = (found.as_slice::<T>().ok()?, wanted.as_slice::<T>().ok()?);
    let relative = relative(closeness, by_type);
    let scale = wanted.iter().map(|&x| to(x).abs()).filter(|x| x.is_finite()).fold(0.0, f64::max);
    mismatch(found, wanted, |&a, &b| near(to(a), to(b), relative, scale))
}

fn complexes<T: Element>(
    found: &Tensor,
    wanted: &Tensor,
    closeness: Closeness,
    by_type: f64,
    to: fn(T) -> (f64, f64),
) -> Option<usize> {
    let (found, wanted) = (found.as_slice::<T>().ok()?, wanted.as_slice::<T>().ok()?);
    let relative = relative(closeness, by_type);
    mismatch(found, wanted, |&a, &b| {
        let ((a, c), (b, d)) = (to(a), to(b));
        // Rounding moves a complex number by a part of its length, not of its smaller half.
        let length = if b.is_finite() && d.is_finite() { b.hypot(d) * 10.0 } else { 0.0 };
        near(a, b, relative, length) && near(c, d, relative, length)
    })
}

fn relative(closeness: Closeness, by_type: f64) -> f64 {
    match closeness {
        Closeness::Exact => 0.0,
        Closeness::ByType => by_type,
        Closeness::Within(relative) => relative,
    }
}

fn near(a: f64, b: f64, relative: f64, scale: f64) -> bool {
    if a.is_nan() || b.is_nan() {
        return a.is_nan() && b.is_nan();
    }
    a == b || (a.is_finite() && b.is_finite() && (a - b).abs() <= relative * (b.abs() + 0.1 * scale))
}

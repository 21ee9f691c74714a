//! `Cast`: the same numbers as another element type.
//!
//! A float becomes an integer by dropping its fraction, a wide integer a narrow one by dropping its upper bits, a
//! complex number a real one by dropping its imaginary part; anything but zero is true.

use framework::gradient::{GradValue, by_rows};
use framework::shapes::unchanged;
use framework::{BuiltKernel, Grad, InferenceContext, Kernel, KernelBuild, KernelContext, Op, Output, Scope, kernel};
use linalg::elementwise::map;
use std::marker::PhantomData;
use std::sync::Arc;
use tensor::{Complex, DType, Element, Result, Tensor, bf16, f16, unsupported};

/// The ops of this file.
pub fn ops() -> Vec<Op> {
    vec![
        Op::new("Cast")
            .input("x: SrcT")
            .output("y: DstT")
            .attr("SrcT: type")
            .attr("DstT: type")
            .attr("Truncate: bool = false")
            .shape(unchanged)
            .value(value)
            .kernel(Arc::new(build))
            .gradient(gradient)
            .row_gradient(by_rows),
    ]
}

/// The same numbers as another element type; without a node if they are of it already.
pub fn cast(s: &Scope, x: Output, dtype: DType) -> Result<Output> {
    if s.dtype(x)? == dtype {
        return Ok(x);
    }
    s.node("Cast").input(x).attr("DstT", dtype).output()
}

fn value(c: &InferenceContext<'_>) -> Option<Vec<Option<Tensor>>> {
    const SMALL: usize = 64;
    let x = c.input_value(0).filter(|x| x.num_elements() <= SMALL)?;
    let narrow = |values: Vec<i64>| values.into_iter().map(|v| v as i32).collect::<Vec<i32>>();
    Some(vec![match (x.dtype(), c.attr::<DType>("DstT").ok()?) {
        (from, to) if from == to => Some(x.clone()),
        (DType::I32, DType::I64) => Tensor::from_vec(x.shape(), x.to_i64s().ok()?).ok(),
        (DType::I64, DType::I32) => Tensor::from_vec(x.shape(), narrow(x.to_i64s().ok()?)).ok(),
        _ => None,
    }])
}

fn gradient(s: &Scope, g: &Grad<'_>) -> Result<Vec<Option<GradValue>>> {
    let (from, to) = (s.dtype(g.inputs[0])?, s.dtype(g.outputs[0])?);
    let differentiable = |dtype: DType| dtype.is_floating() || dtype.is_complex();
    if !differentiable(from) || !differentiable(to) {
        return Ok(vec![None]);
    }
    Ok(vec![Some(cast(s, g.dy[0], from)?.into())])
}

/// Runs `$then` with `$t` standing for the Rust type of an element type.
macro_rules! with_type {
    ($dtype:expr, $t:ident => $then:expr, else $otherwise:expr) => {
        match $dtype {
            DType::F16 => {
                type $t = f16;
                $then
            }
            DType::BF16 => {
                type $t = bf16;
                $then
            }
            DType::F32 => {
                type $t = f32;
                $then
            }
            DType::F64 => {
                type $t = f64;
                $then
            }
            DType::I8 => {
                type $t = i8;
                $then
            }
            DType::I16 => {
                type $t = i16;
                $then
            }
            DType::I32 => {
                type $t = i32;
                $then
            }
            DType::I64 => {
                type $t = i64;
                $then
            }
            DType::U8 => {
                type $t = u8;
                $then
            }
            DType::U16 => {
                type $t = u16;
                $then
            }
            DType::U32 => {
                type $t = u32;
                $then
            }
            DType::U64 => {
                type $t = u64;
                $then
            }
            DType::Bool => {
                type $t = bool;
                $then
            }
            DType::C64 => {
                type $t = Complex<f32>;
                $then
            }
            DType::C128 => {
                type $t = Complex<f64>;
                $then
            }
            _ => $otherwise,
        }
    };
}

fn build(b: &KernelBuild<'_>) -> Result<BuiltKernel> {
    let (from, to): (DType, DType) = (b.attr("SrcT")?, b.attr("DstT")?);
    let truncate: bool = b.attr("Truncate")?;
    let unknown = || unsupported!("Cast {from} to {to} is not supported");
    if from == to {
        return Ok(BuiltKernel::new(kernel::FnKernel(|ctx: &mut KernelContext<'_>| {
            let x = ctx.take(0);
            ctx.set_output(0, x)
        })));
    }
    match (from, to, truncate) {
        (DType::F32, DType::F16, true) => return mapped::<f32, f16>(|x| f16::from_f32(without_low_bits(x, 13))),
        (DType::F32, DType::BF16, true) => return mapped::<f32, bf16>(|x| bf16::from_f32(without_low_bits(x, 16))),
        (DType::F64, DType::F32, true) => return mapped::<f64, f32>(|x| without_low_bits_of_double(x, 29) as f32),
        (DType::F64, DType::F16, true) => {
            return mapped::<f64, f16>(|x| f16::from_f32(without_low_bits_of_double(x, 42) as f32));
        }
        (DType::F32, DType::F8E5M2 | DType::F8E4M3FN, _) => return Ok(BuiltKernel::new(ToByteFloat(to))),
        (DType::F8E5M2 | DType::F8E4M3FN, DType::F32, _) => return Ok(BuiltKernel::new(FromByteFloat(from))),
        _ => {}
    }
    with_type!(from, S => with_type!(to, D => mapped::<S, D>(<S as Source>::to::<D>), else Err(unknown())),
        else Err(unknown()))
}

fn mapped<S: Element, D: Element>(convert: impl Fn(S) -> D + Send + Sync + 'static) -> Result<BuiltKernel> {
    struct Map<S, D, F>(F, PhantomData<fn(S) -> D>);
    impl<S: Element, D: Element, F: Fn(S) -> D + Send + Sync> Kernel for Map<S, D, F> {
        fn compute(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
            let x = ctx.input(0);
            let mut y = ctx.allocate::<D>(x.shape())?;
            map(ctx.pool(), x.as_slice::<S>()?, &mut y, &self.0);
            ctx.set_output(0, y)
        }
    }
    Ok(BuiltKernel::new(Map(convert, PhantomData)))
}

/// A number from which others are made.
trait Source: Element {
    fn to<D: Target>(self) -> D;
}

/// A number made from others.
trait Target: Element {
    fn from_f32(x: f32) -> Self;
    fn from_f64(x: f64) -> Self;
    fn from_i64(x: i64) -> Self;
    fn from_u64(x: u64) -> Self;
    fn from_complex(re: f64, _im: f64) -> Self {
        Self::from_f64(re)
    }
}

/// Integers of up to 64 bits pass through the 64-bit ones unharmed.
macro_rules! sources {
    ($($t:ty, $x:ident => $to:expr;)*) => {$(
        impl Source for $t {
            #[inline(always)]
            fn to<D: Target>(self) -> D {
                let $x = self;
                $to
            }
        }
    )*};
}
sources! {
    f16, x => D::from_f32(x.to_f32());
    bf16, x => D::from_f32(x.to_f32());
    f32, x => D::from_f32(x);
    f64, x => D::from_f64(x);
    i8, x => D::from_i64(x.into());
    i16, x => D::from_i64(x.into());
    i32, x => D::from_i64(x.into());
    i64, x => D::from_i64(x);
    u8, x => D::from_u64(x.into());
    u16, x => D::from_u64(x.into());
    u32, x => D::from_u64(x.into());
    u64, x => D::from_u64(x);
    bool, x => D::from_u64(x.into());
    Complex<f32>, x => D::from_complex(x.re.into(), x.im.into());
    Complex<f64>, x => D::from_complex(x.re, x.im);
}

macro_rules! integer_targets {
    ($($t:ty, $through:ty;)*) => {$(
        impl Target for $t {
            // Narrow integers take the low bits of a wider one, as the machine's conversion leaves them.
            #[inline(always)]
            fn from_f32(x: f32) -> $t { x as $through as $t }
            #[inline(always)]
            fn from_f64(x: f64) -> $t { x as $through as $t }
            #[inline(always)]
            fn from_i64(x: i64) -> $t { x as $t }
            #[inline(always)]
            fn from_u64(x: u64) -> $t { x as $t }
        }
    )*};
}
integer_targets! {
    i8, i32; i16, i32; i32, i32; i64, i64; u8, i32; u16, i32; u32, i64; u64, u64;
}

macro_rules! float_targets {
    ($($t:ty;)*) => {$(
        impl Target for $t {
            #[inline(always)]
            fn from_f32(x: f32) -> $t { x as $t }
            #[inline(always)]
            fn from_f64(x: f64) -> $t { x as $t }
            #[inline(always)]
            fn from_i64(x: i64) -> $t { x as $t }
            #[inline(always)]
            fn from_u64(x: u64) -> $t { x as $t }
        }
        impl Target for Complex<$t> {
            #[inline(always)]
            fn from_f32(x: f32) -> Self { Complex::new(x as $t, 0.0) }
            #[inline(always)]
            fn from_f64(x: f64) -> Self { Complex::new(x as $t, 0.0) }
            #[inline(always)]
            fn from_i64(x: i64) -> Self { Complex::new(x as $t, 0.0) }
            #[inline(always)]
            fn from_u64(x: u64) -> Self { Complex::new(x as $t, 0.0) }
            #[inline(always)]
            fn from_complex(re: f64, im: f64) -> Self { Complex::new(re as $t, im as $t) }
        }
    )*};
}
float_targets! { f32; f64; }

macro_rules! half_targets {
    ($($t:ident)*) => {$(
        impl Target for $t {
            #[inline(always)]
            fn from_f32(x: f32) -> $t { $t::from_f32(x) }
            #[inline(always)]
            fn from_f64(x: f64) -> $t { $t::from_f32(x as f32) }
            #[inline(always)]
            fn from_i64(x: i64) -> $t { $t::from_f32(x as f32) }
            #[inline(always)]
            fn from_u64(x: u64) -> $t { $t::from_f32(x as f32) }
        }
    )*};
}
half_targets! { f16 bf16 }

impl Target for bool {
    #[inline(always)]
    fn from_f32(x: f32) -> bool {
        x != 0.0
    }
    #[inline(always)]
    fn from_f64(x: f64) -> bool {
        x != 0.0
    }
    #[inline(always)]
    fn from_i64(x: i64) -> bool {
        x != 0
    }
    #[inline(always)]
    fn from_u64(x: u64) -> bool {
        x != 0
    }
}

/// A float with its lowest mantissa bits zero: rounded towards zero.
fn without_low_bits(x: f32, count: u32) -> f32 {
    if x.is_nan() { x } else { f32::from_bits(x.to_bits() >> count << count) }
}

fn without_low_bits_of_double(x: f64, count: u32) -> f64 {
    if x.is_nan() { x } else { f64::from_bits(x.to_bits() >> count << count) }
}

/// What a byte of one of the two 8-bit float types stands for.
fn byte_float(dtype: DType, code: u8) -> f32 {
    if dtype == DType::F8E5M2 {
        return f16::from_bits(u16::from(code) << 8).to_f32();
    }
    let (exponent, mantissa) = (i32::from(code >> 3 & 15), f32::from(code & 7) / 8.0);
    let magnitude = match (exponent, code & 0x7f) {
        (_, 0x7f) => f32::NAN,
        (0, _) => mantissa * 2f32.powi(-6),
        _ => (1.0 + mantissa) * 2f32.powi(exponent - 7),
    };
    if code & 0x80 != 0 { -magnitude } else { magnitude }
}

struct FromByteFloat(DType);
impl Kernel for FromByteFloat {
    fn compute(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let x = ctx.input(0);
        let mut y = ctx.allocate::<f32>(x.shape())?;
        map(ctx.pool(), x.as_bytes()?, &mut y, |code| byte_float(self.0, code));
        ctx.set_output(0, y)
    }
}

struct ToByteFloat(DType);
impl Kernel for ToByteFloat {
    fn compute(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let x = ctx.input(0);
        let values = x.as_slice::<f32>()?;
        let y = Tensor::from_filled(self.0, x.shape(), |codes| {
            map(ctx.pool(), values, codes, |x| nearest_byte_float(self.0, x));
            Ok(())
        })?;
        ctx.set_output(0, y)
    }
}

/// The code nearest to a number, of two equally near the even one. Beyond the largest one type has infinity, the
/// other NaN.
fn nearest_byte_float(dtype: DType, x: f32) -> u8 {
    let (last, beyond, nan) = if dtype == DType::F8E5M2 { (0x7b, 0x7c, 0x7e) } else { (0x7e, 0x7f, 0x7f) };
    let sign = if x.is_sign_negative() { 0x80 } else { 0 };
    let size = x.abs();
    if size.is_nan() {
        return sign | nan;
    }
    // Codes of positive numbers are in the order of what they stand for.
    let (mut low, mut high) = (0u8, last);
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if byte_float(dtype, middle) <= size { low = middle } else { high = middle - 1 }
    }
    let below = byte_float(dtype, low);
    // The next code, even past the end, where it tells from which point on a number is too large.
    let above = if low < last { byte_float(dtype, low + 1) } else { below + (below - byte_float(dtype, low - 1)) };
    let up = size - below > above - size || (size - below == above - size && low & 1 == 1);
    let code = match (up, low == last) {
        (false, _) => low,
        (true, false) => low + 1,
        (true, true) => beyond,
    };
    sign | code
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_float_comes_back() {
        for dtype in [DType::F8E5M2, DType::F8E4M3FN] {
            for code in 0..=255u8 {
                let x = byte_float(dtype, code);
                if x.is_finite() {
                    assert_eq!(nearest_byte_float(dtype, x), code, "{dtype} {x}");
                }
            }
        }
        assert_eq!(nearest_byte_float(DType::F8E5M2, f32::INFINITY), 0x7c);
        assert_eq!(nearest_byte_float(DType::F8E4M3FN, 1e9), 0x7f);
    }
}

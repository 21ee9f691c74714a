//! `Cast`: the same numbers as another element type.
//!
//! A float becomes an integer by dropping its fraction, a wide integer a narrow one by dropping its upper bits, a
//! complex number a real one by dropping its imaginary part; anything but zero is true.

use framework::gradient::{GradValue, by_rows};
use framework::shapes::unchanged;
use framework::{BuiltKernel, Grad, InferenceContext, Kernel, KernelBuild, KernelContext, Op, Output, Scope, kernel};
use linalg::elementwise::{GRAIN_CHEAP, map, map_slice};
use std::marker::PhantomData;
use std::sync::Arc;
use tensor::{Complex, DType, Element, Result, Tensor, bf16, f16, invalid, unsupported};

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
        (DType::F32, DType::F16, true) => return Ok(mapped(|x| f16::from_f32(without_low_bits(x, 13)))),
        (DType::F32, DType::BF16, true) => return Ok(mapped(|x| bf16::from_f32(without_low_bits(x, 16)))),
        (DType::F64, DType::F32, true) => return Ok(mapped(|x| without_low_bits_of_double(x, 29) as f32)),
        (DType::F64, DType::F16, true) => {
            return Ok(mapped(|x| f16::from_f32(without_low_bits_of_double(x, 42) as f32)));
        }
        (DType::F32, DType::F8E5M2 | DType::F8E4M3FN, _) => return Ok(BuiltKernel::new(ToByteFloat(to))),
        (DType::F8E5M2 | DType::F8E4M3FN, DType::F32, _) => return Ok(BuiltKernel::new(FromByteFloat(from))),
        _ => {}
    }
    match direct(from, to) {
        Some(kernel) => Ok(kernel),
        None => {
            let passing = with_type!(from, S => passes::<S>(from, to), else None);
            passing.ok_or_else(unknown)
        }
    }
}

/// The kernels of pairs of types that are met often, and of two complex ones.
fn direct(from: DType, to: DType) -> Option<BuiltKernel> {
    use DType::{BF16, Bool, C64, C128, F16, F32, F64, I32, I64, U8};
    Some(match (from, to) {
        (F32, F64) => mapped(|x: f32| f64::from(x)),
        (F32, I32) => mapped(|x: f32| x as i32),
        (F32, I64) => mapped(|x: f32| x as i64),
        (F32, F16) => mapped(f16::from_f32),
        (F32, BF16) => mapped(bf16::from_f32),
        (F16, F32) => mapped(f16::to_f32),
        (BF16, F32) => mapped(bf16::to_f32),
        (F64, F32) => mapped(|x: f64| x as f32),
        (F64, I32) => mapped(|x: f64| x as i32),
        (F64, I64) => mapped(|x: f64| x as i64),
        (I32, F32) => mapped(|x: i32| x as f32),
        (I32, F64) => mapped(|x: i32| f64::from(x)),
        (I32, I64) => mapped(|x: i32| i64::from(x)),
        (I64, F32) => mapped(|x: i64| x as f32),
        (I64, F64) => mapped(|x: i64| x as f64),
        (I64, I32) => mapped(|x: i64| x as i32),
        (U8, F32) => mapped(|x: u8| f32::from(x)),
        (Bool, F32) => mapped(|x: bool| f32::from(x)),
        (Bool, I32) => mapped(|x: bool| i32::from(x)),
        (Bool, I64) => mapped(|x: bool| i64::from(x)),
        (C64, C128) => mapped(|x: Complex<f32>| Complex::new(f64::from(x.re), f64::from(x.im))),
        (C128, C64) => mapped(|x: Complex<f64>| Complex::new(x.re as f32, x.im as f32)),
        _ => return None,
    })
}

fn mapped<S: Element, D: Element>(convert: impl Fn(S) -> D + Send + Sync + 'static) -> BuiltKernel {
    struct Map<S, D, F>(F, PhantomData<fn(S) -> D>);
    impl<S: Element, D: Element, F: Fn(S) -> D + Send + Sync> Kernel for Map<S, D, F> {
        fn compute(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
            let x = ctx.input(0);
            let mut y = ctx.allocate::<D>(x.shape())?;
            map(ctx.pool(), x.as_slice::<S>()?, &mut y, &self.0);
            ctx.set_output(0, y)
        }
    }
    BuiltKernel::new(Map(convert, PhantomData))
}

/// The other pairs go in blocks through a type between them: there is code for each type and not for each pair.
struct Passing<B, D> {
    from: DType,
    load: Load<B>,
    to: PhantomData<fn() -> D>,
}

/// The kernel from one type to another; none if that is not a type of numbers.
fn passes<S: Source>(from: DType, to: DType) -> Option<BuiltKernel> {
    <S::Between as Between>::passes(from, to, load::<S>)
}

/// Fills a block with the elements of a tensor from an index on.
type Load<B> = fn(&Tensor, usize, &mut [B]);

fn load<S: Source>(x: &Tensor, start: usize, block: &mut [S::Between]) {
    let from = x.as_slice::<S>().expect("the kernel has compared the types");
    map_slice(&from[start..start + block.len()], block, S::between);
}

impl<B: Between, D: Target> Kernel for Passing<B, D> {
    fn compute(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        /// Elements of a block, which stays in the first cache.
        const BLOCK: usize = 512;
        let x = ctx.input(0);
        if x.dtype() != self.from {
            return Err(invalid!("wanted a tensor of {}, found {}", self.from, x.dtype()));
        }
        let mut y = ctx.allocate::<D>(x.shape())?;
        ctx.pool().for_each_mut(&mut y, GRAIN_CHEAP, &|mut start, part| {
            let mut block = [B::default(); BLOCK];
            for part in part.chunks_mut(BLOCK) {
                let block = &mut block[..part.len()];
                (self.load)(x, start, block);
                map_slice(block, part, B::to::<D>);
                start += part.len();
            }
        });
        ctx.set_output(0, y)
    }
}

/// A number from which others are made.
trait Source: Element {
    /// A type that holds all its values; of a complex number only the real part.
    type Between: Between;
    fn between(self) -> Self::Between;
}

/// A type that numbers pass through on their way to another.
trait Between: Copy + Default + Send + Sync + 'static {
    fn to<D: Target>(self) -> D;

    /// The kernel from the type that is loaded to another; none if that is not a type of numbers.
    fn passes(from: DType, to: DType, load: Load<Self>) -> Option<BuiltKernel> {
        with_type!(to, D => Some(BuiltKernel::new(Passing::<Self, D> { from, load, to: PhantomData })), else None)
    }
}

impl Between for f64 {
    #[inline(always)]
    fn to<D: Target>(self) -> D {
        D::from_f64(self)
    }
}

impl Between for i64 {
    #[inline(always)]
    fn to<D: Target>(self) -> D {
        D::from_i64(self)
    }
}

impl Between for u64 {
    #[inline(always)]
    fn to<D: Target>(self) -> D {
        D::from_u64(self)
    }
}

/// A number made from others.
trait Target: Element {
    fn from_f64(x: f64) -> Self;
    fn from_i64(x: i64) -> Self;
    fn from_u64(x: u64) -> Self;
}

macro_rules! sources {
    ($($t:ty, $between:ty, $x:ident => $to:expr;)*) => {$(
        impl Source for $t {
            type Between = $between;
            #[inline(always)]
            fn between(self) -> $between {
                let $x = self;
                $to
            }
        }
    )*};
}
sources! {
    f16, f64, x => x.to_f64();
    bf16, f64, x => x.to_f64();
    f32, f64, x => x.into();
    f64, f64, x => x;
    i8, i64, x => x.into();
    i16, i64, x => x.into();
    i32, i64, x => x.into();
    i64, i64, x => x;
    u8, u64, x => x.into();
    u16, u64, x => x.into();
    u32, u64, x => x.into();
    u64, u64, x => x;
    bool, u64, x => x.into();
    Complex<f32>, f64, x => x.re.into();
    Complex<f64>, f64, x => x.re;
}

macro_rules! integer_targets {
    ($($t:ty, $through:ty;)*) => {$(
        impl Target for $t {
            // Narrow integers take the low bits of a wider one, as the machine's conversion leaves them.
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
            fn from_f64(x: f64) -> $t { x as $t }
            #[inline(always)]
            fn from_i64(x: i64) -> $t { x as $t }
            #[inline(always)]
            fn from_u64(x: u64) -> $t { x as $t }
        }
        impl Target for Complex<$t> {
            #[inline(always)]
            fn from_f64(x: f64) -> Self { Complex::new(x as $t, 0.0) }
            #[inline(always)]
            fn from_i64(x: i64) -> Self { Complex::new(x as $t, 0.0) }
            #[inline(always)]
            fn from_u64(x: u64) -> Self { Complex::new(x as $t, 0.0) }
        }
    )*};
}
float_targets! { f32; f64; }

macro_rules! half_targets {
    ($($t:ident)*) => {$(
        impl Target for $t {
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

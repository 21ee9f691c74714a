//! Functions of one element, and pairs of elements, over whole slices.
//!
//! Single-precision functions are vectorised and within a few units in the last place; other types go element by
//! element through the traits of `number`.

use crate::number::{Field, Number};
use crate::parallel::{Pool, SharedMut};
use crate::simd::{fma, same, same_mut, vectorized};

/// A function of one element of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FieldFunction {
    /// e to the power of x.
    Exp,
    /// e to the power of x, less one.
    Expm1,
    /// The natural logarithm.
    Log,
    /// The natural logarithm of one plus x.
    Log1p,
    /// The square root.
    Sqrt,
    /// One over the square root.
    Rsqrt,
    /// One over x.
    Recip,
    /// The sine.
    Sin,
    /// The cosine.
    Cos,
    /// The tangent.
    Tan,
    /// The inverse sine.
    Asin,
    /// The inverse cosine.
    Acos,
    /// The inverse tangent.
    Atan,
    /// The hyperbolic sine.
    Sinh,
    /// The hyperbolic cosine.
    Cosh,
    /// The hyperbolic tangent.
    Tanh,
    /// The inverse hyperbolic sine.
    Asinh,
    /// The inverse hyperbolic cosine.
    Acosh,
    /// The inverse hyperbolic tangent.
    Atanh,
    /// 1 / (1 + e^-x).
    Sigmoid,
}

/// Applies the function to every element of `src`, in parallel.
pub fn apply<T: Field>(pool: &Pool, function: FieldFunction, src: &[T], dst: &mut [T]) {
    assert_eq!(src.len(), dst.len(), "source and destination differ in length");
    pool.for_each_mut(dst, GRAIN_COSTLY, &|start, part| apply_slice(function, &src[start..start + part.len()], part));
}

/// Applies the function to every element in place, in parallel.
pub fn apply_in_place<T: Field>(pool: &Pool, function: FieldFunction, data: &mut [T]) {
    pool.for_each_mut(data, GRAIN_COSTLY, &|_, part| {
        // Block by block through a copy: the vectorised functions read one slice and write another.
        let mut block = [T::ZERO; 256];
        for piece in part.chunks_mut(block.len()) {
            let block = &mut block[..piece.len()];
            block.copy_from_slice(piece);
            apply_slice(function, block, piece);
        }
    });
}

/// Elements worth a thread when each costs many instructions.
pub(crate) const GRAIN_COSTLY: usize = 1 << 13;
/// Elements worth a thread when each costs about one memory access.
pub const GRAIN_CHEAP: usize = 1 << 15;

fn apply_slice<T: Field>(function: FieldFunction, src: &[T], dst: &mut [T]) {
    if let (Some(src), Some(dst)) = (same::<T, f32>(src), same_mut::<T, f32>(dst)) {
        let fast: Option<fn(&[f32], &mut [f32])> = match function {
            FieldFunction::Exp => Some(exp),
            FieldFunction::Expm1 => Some(expm1),
            FieldFunction::Log => Some(log),
            FieldFunction::Log1p => Some(log1p),
            FieldFunction::Sqrt => Some(sqrt),
            FieldFunction::Rsqrt => Some(rsqrt),
            FieldFunction::Recip => Some(recip),
            FieldFunction::Tanh => Some(tanh),
            FieldFunction::Sigmoid => Some(sigmoid),
            _ => None,
        };
        if let Some(fast) = fast {
            return fast(src, dst);
        }
    }
    match function {
        FieldFunction::Exp => map_slice(src, dst, T::exp),
        FieldFunction::Expm1 => map_slice(src, dst, T::expm1),
        FieldFunction::Log => map_slice(src, dst, T::log),
        FieldFunction::Log1p => map_slice(src, dst, T::log1p),
        FieldFunction::Sqrt => map_slice(src, dst, T::sqrt),
        FieldFunction::Rsqrt => map_slice(src, dst, T::rsqrt),
        FieldFunction::Recip => map_slice(src, dst, T::recip),
        FieldFunction::Sin => map_slice(src, dst, T::sin),
        FieldFunction::Cos => map_slice(src, dst, T::cos),
        FieldFunction::Tan => map_slice(src, dst, T::tan),
        FieldFunction::Asin => map_slice(src, dst, T::asin),
        FieldFunction::Acos => map_slice(src, dst, T::acos),
        FieldFunction::Atan => map_slice(src, dst, T::atan),
        FieldFunction::Sinh => map_slice(src, dst, T::sinh),
        FieldFunction::Cosh => map_slice(src, dst, T::cosh),
        FieldFunction::Tanh => map_slice(src, dst, T::tanh),
        FieldFunction::Asinh => map_slice(src, dst, T::asinh),
        FieldFunction::Acosh => map_slice(src, dst, T::acosh),
        FieldFunction::Atanh => map_slice(src, dst, T::atanh),
        FieldFunction::Sigmoid => map_slice(src, dst, T::sigmoid),
    }
}

/// `dst[i] = f(src[i])`, in parallel.
pub fn map<T, U, F>(pool: &Pool, src: &[T], dst: &mut [U], f: F)
where
    T: Copy + Sync,
    U: Send,
    F: Fn(T) -> U + Sync,
{
    assert_eq!(src.len(), dst.len(), "source and destination differ in length");
    pool.for_each_mut(dst, GRAIN_CHEAP, &|start, part| map_slice(&src[start..start + part.len()], part, &f));
}

/// `data[i] = f(data[i])`, in parallel.
pub fn map_in_place<T, F>(pool: &Pool, data: &mut [T], f: F)
where
    T: Copy + Send,
    F: Fn(T) -> T + Sync,
{
    pool.for_each_mut(data, GRAIN_CHEAP, &|_, part| update_slice(part, &f));
}

/// `dst[i] = f(a[i], b[i])`, in parallel.
pub fn zip<A, B, U, F>(pool: &Pool, a: &[A], b: &[B], dst: &mut [U], f: F)
where
    A: Copy + Sync,
    B: Copy + Sync,
    U: Send,
    F: Fn(A, B) -> U + Sync,
{
    assert!(a.len() == dst.len() && b.len() == dst.len(), "sources and destination differ in length");
    pool.for_each_mut(dst, GRAIN_CHEAP, &|start, part| {
        zip_slice(&a[start..start + part.len()], &b[start..start + part.len()], part, &f);
    });
}

/// `a[i] = f(a[i], b[i])`, in parallel.
pub fn zip_in_place<A, B, F>(pool: &Pool, a: &mut [A], b: &[B], f: F)
where
    A: Copy + Send,
    B: Copy + Sync,
    F: Fn(A, B) -> A + Sync,
{
    assert_eq!(a.len(), b.len(), "the slices differ in length");
    pool.for_each_mut(a, GRAIN_CHEAP, &|start, part| zip_update_slice(part, &b[start..start + part.len()], &f));
}

/// `dst[i] += src[i]`, on the caller's thread.
pub fn add_assign<T: Number>(dst: &mut [T], src: &[T]) {
    zip_update_slice(dst, src, T::add);
}

/// Sums several slices into `dst`, element by element, in parallel.
pub fn add_n<T: Number>(pool: &Pool, sources: &[&[T]], dst: &mut [T]) {
    assert!(sources.iter().all(|source| source.len() == dst.len()), "sources and destination differ in length");
    let Some((first, rest)) = sources.split_first() else {
        return dst.fill(T::ZERO);
    };
    pool.for_each_mut(dst, GRAIN_CHEAP, &|start, part| {
        let mut at = start;
        // Blocks small enough to stay in the first cache while every source is added.
        for block in part.chunks_mut(2048) {
            block.copy_from_slice(&first[at..at + block.len()]);
            for source in rest {
                add_assign(block, &source[at..at + block.len()]);
            }
            at += block.len();
        }
    });
}

/// Fills with one value, in parallel.
pub fn fill<T: Copy + Send + Sync>(pool: &Pool, dst: &mut [T], value: T) {
    pool.for_each_mut(dst, GRAIN_CHEAP, &|_, part| part.fill(value));
}

/// Copies, in parallel.
pub fn copy<T: Copy + Send + Sync>(pool: &Pool, src: &[T], dst: &mut [T]) {
    assert_eq!(src.len(), dst.len(), "source and destination differ in length");
    pool.for_each_mut(dst, 1 << 16, &|start, part| part.copy_from_slice(&src[start..start + part.len()]));
}

/// `dst[i] = if condition[i] { a[i] } else { b[i] }`, in parallel.
pub fn select<T: Copy + Send + Sync>(pool: &Pool, condition: &[bool], a: &[T], b: &[T], dst: &mut [T]) {
    let len = dst.len();
    assert!(condition.len() == len && a.len() == len && b.len() == len, "the slices differ in length");
    pool.for_each_mut(dst, GRAIN_CHEAP, &|start, part| {
        let end = start + part.len();
        for (((to, &condition), &a), &b) in
            part.iter_mut().zip(&condition[start..end]).zip(&a[start..end]).zip(&b[start..end])
        {
            *to = if condition { a } else { b };
        }
    });
}

/// Runs `body` on matching pieces of two outputs, in parallel: for functions with two results.
pub fn for_each_pair<T: Send, U: Send, F: Fn(usize, &mut [T], &mut [U]) + Sync>(
    pool: &Pool,
    a: &mut [T],
    b: &mut [U],
    grain: usize,
    body: &F,
) {
    assert_eq!(a.len(), b.len(), "the slices differ in length");
    let (len, a, b) = (a.len(), SharedMut::new(a), SharedMut::new(b));
    pool.for_each(len, grain, &|range| {
        // SAFETY: `for_each` hands out disjoint ranges within `0..len`.
        let (a, b) = unsafe { (a.slice(range.clone()), b.slice(range.clone())) };
        body(range.start, a, b);
    });
}

vectorized! {
    /// `dst[i] = f(src[i])`, on the caller's thread.
    pub fn map_slice[T, U, F][T: Copy, U, F: Fn(T) -> U](src: &[T], dst: &mut [U], f: F) = map_body or map_through;
}
vectorized! {
    /// `data[i] = f(data[i])`, on the caller's thread.
    pub fn update_slice[T, F][T: Copy, F: Fn(T) -> T](data: &mut [T], f: F) = update_body or update_through;
}
vectorized! {
    /// `dst[i] = f(a[i], b[i])`, on the caller's thread.
    pub fn zip_slice[A, B, U, F][A: Copy, B: Copy, U, F: Fn(A, B) -> U](a: &[A], b: &[B], dst: &mut [U], f: F) = zip_body or zip_through;
}
vectorized! {
    /// `a[i] = f(a[i], b[i])`, on the caller's thread.
    pub fn zip_update_slice[A, B, F][A: Copy, B: Copy, F: Fn(A, B) -> A](a: &mut [A], b: &[B], f: F) = zip_update_body or zip_update_through;
}

#[inline(always)]
fn map_body<T: Copy, U, F: Fn(T) -> U, const FMA: bool>(src: &[T], dst: &mut [U], f: F) {
    for (to, &from) in dst.iter_mut().zip(src) {
        *to = f(from);
    }
}

#[inline(always)]
fn update_body<T: Copy, F: Fn(T) -> T, const FMA: bool>(data: &mut [T], f: F) {
    for value in data {
        *value = f(*value);
    }
}

#[inline(always)]
fn zip_body<A: Copy, B: Copy, U, F: Fn(A, B) -> U, const FMA: bool>(a: &[A], b: &[B], dst: &mut [U], f: F) {
    for ((to, &a), &b) in dst.iter_mut().zip(a).zip(b) {
        *to = f(a, b);
    }
}

#[inline(always)]
fn zip_update_body<A: Copy, B: Copy, F: Fn(A, B) -> A, const FMA: bool>(a: &mut [A], b: &[B], f: F) {
    for (a, &b) in a.iter_mut().zip(b) {
        *a = f(*a, b);
    }
}

// Compiled for each type and not for each function, which is called for every element.

fn map_through<T: Copy, U, F: Fn(T) -> U>(src: &[T], dst: &mut [U], f: F) {
    #[inline(never)]
    fn each<T: Copy, U>(src: &[T], dst: &mut [U], f: &dyn Fn(T) -> U) {
        map_body::<T, U, _, false>(src, dst, f);
    }
    each(src, dst, &f);
}

fn update_through<T: Copy, F: Fn(T) -> T>(data: &mut [T], f: F) {
    #[inline(never)]
    fn each<T: Copy>(data: &mut [T], f: &dyn Fn(T) -> T) {
        update_body::<T, _, false>(data, f);
    }
    each(data, &f);
}

fn zip_through<A: Copy, B: Copy, U, F: Fn(A, B) -> U>(a: &[A], b: &[B], dst: &mut [U], f: F) {
    #[inline(never)]
    fn each<A: Copy, B: Copy, U>(a: &[A], b: &[B], dst: &mut [U], f: &dyn Fn(A, B) -> U) {
        zip_body::<A, B, U, _, false>(a, b, dst, f);
    }
    each(a, b, dst, &f);
}

fn zip_update_through<A: Copy, B: Copy, F: Fn(A, B) -> A>(a: &mut [A], b: &[B], f: F) {
    #[inline(never)]
    fn each<A: Copy, B: Copy>(a: &mut [A], b: &[B], f: &dyn Fn(A, B) -> A) {
        zip_update_body::<A, B, _, false>(a, b, f);
    }
    each(a, b, &f);
}

macro_rules! single {
    ($($(#[$doc:meta])* $name:ident, $body:ident, $one:ident;)*) => {$(
        vectorized! {
            $(#[$doc])*
            pub fn $name[][](src: &[f32], dst: &mut [f32]) = $body;
        }
        #[inline(always)]
        fn $body<const FMA: bool>(src: &[f32], dst: &mut [f32]) {
            for (to, &from) in dst.iter_mut().zip(src) {
                *to = $one::<FMA>(from);
            }
        }
    )*};
}

single! {
    /// e to the power of every element.
    exp, exp_body, exp_one;
    /// e to the power of every element, less one.
    expm1, expm1_body, expm1_one;
    /// The natural logarithm of every element.
    log, log_body, log_one;
    /// The natural logarithm of one plus every element.
    log1p, log1p_body, log1p_one;
    /// The square root of every element.
    sqrt, sqrt_body, sqrt_one;
    /// One over the square root of every element.
    rsqrt, rsqrt_body, rsqrt_one;
    /// One over every element.
    recip, recip_body, recip_one;
    /// The hyperbolic tangent of every element.
    tanh, tanh_body, tanh_one;
    /// 1 / (1 + e^-x) of every element.
    sigmoid, sigmoid_body, sigmoid_one;
    /// The larger of zero and every element; NaN stays.
    relu, relu_body, relu_one;
    /// log(1 + e^x) of every element.
    softplus, softplus_body, softplus_one;
    /// x if positive, else e^x - 1, of every element.
    elu, elu_body, elu_one;
}

/// Adding it rounds to a whole number, whose bits are then the low bits of the sum.
const ROUND: f32 = 12_582_912.0; // 1.5 * 2^23

#[inline(always)]
pub(crate) fn exp_one<const FMA: bool>(x: f32) -> f32 {
    // Beyond these bounds the result is zero or infinite; the comparisons let NaN through.
    let x = if x < -105.0 { -105.0 } else { x };
    let x = if x > 89.0 { 89.0 } else { x };
    let shifted = fma::<FMA>(x, std::f32::consts::LOG2_E, ROUND);
    let n = shifted - ROUND;
    // ln 2 in two parts, the first with few bits, so that n times it is exact.
    let r = fma::<FMA>(n, -0.693_359_375, x);
    let r = fma::<FMA>(n, 2.121_944_4e-4, r);
    // The Taylor coefficients from the third on, adjusted to spread the error over |r| <= ln(2)/2.
    let p = fma::<FMA>(r, 1.987_569_2e-4, 1.398_199_9e-3);
    let p = fma::<FMA>(p, r, 8.333_452e-3);
    let p = fma::<FMA>(p, r, 4.166_579_6e-2);
    let p = fma::<FMA>(p, r, 1.666_666_5e-1);
    let p = fma::<FMA>(p, r, 0.5);
    let p = fma::<FMA>(p * r, r, r) + 1.0;
    // 2^n in two factors: one alone would overflow for results near either end of the range.
    let n = (shifted.to_bits() as i32).wrapping_sub(ROUND.to_bits() as i32);
    let half = n >> 1;
    p * power_of_two(half) * power_of_two(n.wrapping_sub(half))
}

#[inline(always)]
fn power_of_two(n: i32) -> f32 {
    f32::from_bits((n.wrapping_add(127) as u32) << 23)
}

#[inline(always)]
pub(crate) fn log_one<const FMA: bool>(x: f32) -> f32 {
    let tiny = x < f32::MIN_POSITIVE;
    let scaled = if tiny { x * 8_388_608.0 } else { x };
    let bits = scaled.to_bits() as i32;
    // The exponent such that the mantissa lies between sqrt(1/2) and sqrt(2).
    let offset = bits.wrapping_sub(0x3f35_04f3);
    let exponent = (offset >> 23) as f32 - if tiny { 23.0 } else { 0.0 };
    let mantissa = f32::from_bits((offset & 0x007f_ffff).wrapping_add(0x3f35_04f3) as u32);
    let f = mantissa - 1.0;
    let f2 = f * f;
    let p = fma::<FMA>(f, 7.037_683_6e-2, -1.151_461e-1);
    let p = fma::<FMA>(p, f, 1.167_699_8e-1);
    let p = fma::<FMA>(p, f, -1.242_014_1e-1);
    let p = fma::<FMA>(p, f, 1.424_932_3e-1);
    let p = fma::<FMA>(p, f, -1.666_805_8e-1);
    let p = fma::<FMA>(p, f, 2.000_071_5e-1);
    let p = fma::<FMA>(p, f, -2.499_999_4e-1);
    let p = fma::<FMA>(p, f, 3.333_333_1e-1);
    let y = p * f * f2;
    let y = fma::<FMA>(exponent, -2.121_944_4e-4, y);
    let y = fma::<FMA>(f2, -0.5, y);
    let result = fma::<FMA>(exponent, 0.693_359_375, f + y);
    let result = if x == f32::INFINITY { x } else { result };
    let result = if x == 0.0 { f32::NEG_INFINITY } else { result };
    let result = if x < 0.0 { f32::NAN } else { result };
    if x.is_nan() { x } else { result }
}

#[inline(always)]
pub(crate) fn expm1_one<const FMA: bool>(x: f32) -> f32 {
    let e = exp_one::<FMA>(x);
    // (e - 1) lost the digits that log(e) lost too: their quotient with x is right.
    let near = (e - 1.0) * (x / log_one::<FMA>(e));
    let far = e - 1.0;
    let result = if x.abs() < 1.0 { near } else { far };
    if e == 1.0 { x } else { result }
}

#[inline(always)]
pub(crate) fn log1p_one<const FMA: bool>(x: f32) -> f32 {
    let one_more = 1.0 + x;
    let log = log_one::<FMA>(one_more);
    // The sum rounded x; the logarithm is nearly linear, so the ratio of what went in to what was meant repairs it.
    let repaired = log * (x / (one_more - 1.0));
    let result = if one_more == 1.0 { x } else { repaired };
    if x == f32::INFINITY || x <= -1.0 { log } else { result }
}

#[inline(always)]
pub(crate) fn sqrt_one<const FMA: bool>(x: f32) -> f32 {
    x.sqrt()
}

#[inline(always)]
pub(crate) fn rsqrt_one<const FMA: bool>(x: f32) -> f32 {
    1.0 / x.sqrt()
}

#[inline(always)]
pub(crate) fn recip_one<const FMA: bool>(x: f32) -> f32 {
    1.0 / x
}

#[inline(always)]
pub(crate) fn tanh_one<const FMA: bool>(x: f32) -> f32 {
    // A quotient of polynomials in x², fitted for the least relative error up to where the result rounds to one.
    let limit = 9.02;
    let x = if x > limit { limit } else { x };
    let x = if x < -limit { -limit } else { x };
    let z = x * x;
    let p = fma::<FMA>(z, 1.331_907_7e-8, 2.058_349_1e-5);
    let p = fma::<FMA>(p, z, 3.494_035_5e-3);
    let p = fma::<FMA>(p, z, 0.133_797_19);
    let p = fma::<FMA>(p, z, 1.0);
    let q = fma::<FMA>(z, 7.762_023e-7, 3.283_094e-4);
    let q = fma::<FMA>(q, z, 2.587_107_7e-2);
    let q = fma::<FMA>(q, z, 0.467_130_34);
    let q = fma::<FMA>(q, z, 1.0);
    let y = x * p / q;
    let y = if y > 1.0 { 1.0 } else { y };
    if y < -1.0 { -1.0 } else { y }
}

#[inline(always)]
pub(crate) fn sigmoid_one<const FMA: bool>(x: f32) -> f32 {
    1.0 / (1.0 + exp_one::<FMA>(-x))
}

#[inline(always)]
pub(crate) fn relu_one<const FMA: bool>(x: f32) -> f32 {
    if x < 0.0 { 0.0 } else { x }
}

#[inline(always)]
pub(crate) fn softplus_one<const FMA: bool>(x: f32) -> f32 {
    let positive = if x > 0.0 { x } else { 0.0 };
    let result = positive + log1p_one::<FMA>(exp_one::<FMA>(-x.abs()));
    if x.is_nan() { x } else { result }
}

#[inline(always)]
pub(crate) fn elu_one<const FMA: bool>(x: f32) -> f32 {
    if x < 0.0 { expm1_one::<FMA>(x) } else { x }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Numbers;

    /// Compares with the `f64` truth on a sweep of bit patterns within the bounds, and on chosen values.
    #[track_caller]
    fn check(fast: fn(&[f32], &mut [f32]), truth: fn(f64) -> f64, low: f32, high: f32, chosen: &[f32]) {
        let mut src: Vec<f32> = chosen.to_vec();
        for bits in (0..=u32::MAX).step_by(9973) {
            let x = f32::from_bits(bits);
            if x >= low && x <= high {
                src.push(x);
            }
        }
        let mut numbers = Numbers::new(5);
        src.extend((0..100_000).map(|_| low.max(-100.0) + (numbers.number::<f32>() * 0.5 + 0.5) * high.min(100.0)));
        let mut dst = vec![0.0; src.len()];
        fast(&src, &mut dst);
        for (x, y) in src.iter().zip(&dst) {
            let want = truth(*x as f64);
            // A result too small for a normal f32 may be rounded, or flushed to zero.
            let close = (*y as f64 - want).abs() <= 2e-6 * want.abs() + 1.2e-38;
            assert!(close || *y == want as f32 || (y.is_nan() && want.is_nan()), "f({x}) = {y}, not {want}");
        }
    }

    const SPECIAL: [f32; 9] =
        [0.0, -0.0, 1.0, -1.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, f32::MIN_POSITIVE, 1e-42];

    #[test]
    fn single_precision_functions_are_close_to_the_truth() {
        check(exp, f64::exp, -120.0, 100.0, &SPECIAL);
        check(expm1, f64::exp_m1, -120.0, 100.0, &SPECIAL);
        check(log, f64::ln, 0.0, f32::INFINITY, &SPECIAL);
        check(log1p, f64::ln_1p, -1.0, f32::INFINITY, &SPECIAL);
        check(sqrt, f64::sqrt, 0.0, f32::INFINITY, &SPECIAL);
        check(rsqrt, |x| 1.0 / x.sqrt(), 0.0, f32::INFINITY, &SPECIAL);
        check(recip, |x| 1.0 / x, f32::NEG_INFINITY, f32::INFINITY, &SPECIAL);
        check(tanh, f64::tanh, f32::NEG_INFINITY, f32::INFINITY, &SPECIAL);
        check(sigmoid, |x| 1.0 / (1.0 + (-x).exp()), f32::NEG_INFINITY, f32::INFINITY, &SPECIAL);
        check(relu, |x| if x > 0.0 || x.is_nan() { x } else { 0.0 }, f32::NEG_INFINITY, f32::INFINITY, &SPECIAL);
        check(softplus, |x| if x > 700.0 { x } else { x.exp().ln_1p() }, -80.0, f32::INFINITY, &SPECIAL);
        check(elu, |x| if x < 0.0 { x.exp_m1() } else { x }, f32::NEG_INFINITY, f32::INFINITY, &SPECIAL);
    }

    #[test]
    fn the_portable_bodies_are_as_precise() {
        check(exp_body::<false>, f64::exp, -120.0, 100.0, &SPECIAL);
        check(log_body::<false>, f64::ln, 0.0, f32::INFINITY, &SPECIAL);
        check(tanh_body::<false>, f64::tanh, f32::NEG_INFINITY, f32::INFINITY, &SPECIAL);
        check(expm1_body::<false>, f64::exp_m1, -120.0, 100.0, &SPECIAL);
        check(log1p_body::<false>, f64::ln_1p, -1.0, f32::INFINITY, &SPECIAL);
    }

    #[test]
    fn every_function_is_applied_to_every_type_as_the_traits_say() {
        use FieldFunction::*;
        let pool = Pool::new(2);
        let functions = [
            (Exp, f64::exp as fn(f64) -> f64),
            (Expm1, f64::exp_m1),
            (Log, f64::ln),
            (Log1p, f64::ln_1p),
            (Sqrt, f64::sqrt),
            (Rsqrt, |x| 1.0 / x.sqrt()),
            (Recip, f64::recip),
            (Sin, f64::sin),
            (Cos, f64::cos),
            (Tan, f64::tan),
            (Asin, f64::asin),
            (Acos, f64::acos),
            (Atan, f64::atan),
            (Sinh, f64::sinh),
            (Cosh, f64::cosh),
            (Tanh, f64::tanh),
            (Asinh, f64::asinh),
            (Atanh, f64::atanh),
            (Acosh, f64::acosh),
            (Sigmoid, |x| 1.0 / (1.0 + (-x).exp())),
        ];
        for (function, truth) in functions {
            let base = if function == Acosh { 1.5 } else { 0.25 };
            let src: Vec<f64> = (0..20_000).map(|i| base + i as f64 * 3e-5).collect();
            let mut wide = vec![0.0f64; src.len()];
            apply(&pool, function, &src, &mut wide);
            let narrow: Vec<f32> = src.iter().map(|&x| x as f32).collect();
            let mut single = vec![0.0f32; src.len()];
            apply(&pool, function, &narrow, &mut single);
            let mut in_place = narrow.clone();
            apply_in_place(&pool, function, &mut in_place);
            for i in 0..src.len() {
                assert!((wide[i] - truth(src[i])).abs() <= 1e-12, "{function:?}({})", src[i]);
                let want = truth(narrow[i] as f64);
                assert!((single[i] as f64 - want).abs() <= 2e-6 * (1.0 + want.abs()), "{function:?}({})", narrow[i]);
                assert_eq!(single[i], in_place[i], "{function:?} in place");
            }
        }
    }

    #[test]
    fn sums_of_slices_are_sums_of_elements() {
        let pool = Pool::new(2);
        let mut numbers = Numbers::new(3);
        let (a, b, c): (Vec<f32>, Vec<f32>, Vec<f32>) = (numbers.vec(70_001), numbers.vec(70_001), numbers.vec(70_001));
        let mut sum = vec![0.0; a.len()];
        add_n(&pool, &[&a, &b, &c], &mut sum);
        assert!((0..a.len()).all(|i| sum[i] == a[i] + b[i] + c[i]));
        add_n(&pool, &[], &mut sum);
        assert!(sum.iter().all(|&x| x == 0.0));
    }

    #[test]
    fn old_processors_get_the_same_results() {
        let (x, y): (Vec<i32>, Vec<i32>) = ((0..37).collect(), (0..37).map(|i| i * i).collect());
        let (mut one, mut two) = (vec![0; 37], vec![0; 37]);
        map_through(&x, &mut one, |x| x * 3);
        zip_through(&x, &y, &mut two, |x, y| x - y);
        update_through(&mut one, |x| x + 1);
        zip_update_through(&mut two, &y, |x, y| x * 2 + y);
        assert!((0..37).all(|i| one[i as usize] == i * 3 + 1 && two[i as usize] == (i - i * i) * 2 + i * i));
    }
}

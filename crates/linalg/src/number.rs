//! What an element can do: the traits that loops over slices are generic over.
//!
//! `Number` is every numeric element, `Real` those that are ordered, `Field` those with transcendental functions,
//! `Float` and `Int` the two kinds of real numbers. Halves compute through `f32` and round once per operation.
//! Nothing here panics: integers wrap, and an integer divided by zero is zero (callers check first).

use crate::matmul::Gemm;
use crate::special;
use half::{bf16, f16};
use num_complex::Complex;
use std::fmt::{Debug, Display};

/// Any numeric element, complex ones included.
pub trait Number: Copy + Default + PartialEq + Debug + Display + Send + Sync + 'static + Gemm {
    /// What long sums are kept in: `f32` for halves, else the type itself.
    type Sum: Number;
    /// The neutral element of addition.
    const ZERO: Self;
    /// The neutral element of multiplication.
    const ONE: Self;
    /// The sum; integers wrap.
    fn add(self, other: Self) -> Self;
    /// The difference; integers wrap.
    fn sub(self, other: Self) -> Self;
    /// The product; integers wrap.
    fn mul(self, other: Self) -> Self;
    /// The quotient; integers truncate, wrap, and give zero for a zero divisor.
    fn div(self, other: Self) -> Self;
    /// The opposite; integers wrap.
    fn neg(self) -> Self;
    /// The nearest value to an integer; narrow integers wrap.
    fn from_i64(value: i64) -> Self;
    /// The nearest value to a float; integers truncate and saturate.
    fn from_f64(value: f64) -> Self;
    /// The value as `f64`; the real part of a complex number.
    fn to_f64(self) -> f64;
    /// The value as `i64`, truncated and saturated; the real part of a complex number.
    fn to_i64(self) -> i64;
    /// The magnitude, as an element of the same type.
    fn abs(self) -> Self;
    /// -1, 0 or 1 (or NaN); for complex numbers the unit vector in the same direction.
    fn sign(self) -> Self;
    /// Neither infinite nor NaN.
    fn is_finite(self) -> bool;
    /// Whether any part is NaN.
    fn is_nan(self) -> bool;
    /// The complex conjugate; a real number is its own.
    fn conj(self) -> Self;
    /// The value in the type its sums are kept in.
    fn to_sum(self) -> Self::Sum;
    /// The nearest value to a sum.
    fn from_sum(sum: Self::Sum) -> Self;
    /// The value times itself.
    #[inline]
    fn square(self) -> Self {
        self.mul(self)
    }
    /// The value to a non-negative integer power, by repeated squaring; integers wrap.
    #[inline]
    fn powu(self, mut exponent: u64) -> Self {
        let (mut base, mut result) = (self, Self::ONE);
        while exponent > 0 {
            if exponent & 1 == 1 {
                result = result.mul(base);
            }
            exponent >>= 1;
            if exponent > 0 {
                base = base.square();
            }
        }
        result
    }
}

/// An ordered number: integers and floats.
pub trait Real: Number + PartialOrd {
    /// The lowest value: the start of a maximum. Negative infinity for floats.
    const MIN: Self;
    /// The highest value: the start of a minimum. Infinity for floats.
    const MAX: Self;
    /// The lowest finite value.
    const LOWEST: Self;
    /// The highest finite value.
    const HIGHEST: Self;
    /// The larger; NaN if either is NaN.
    fn max(self, other: Self) -> Self;
    /// The smaller; NaN if either is NaN.
    fn min(self, other: Self) -> Self;
    /// The quotient rounded towards negative infinity; integers give zero for a zero divisor.
    fn floor_div(self, other: Self) -> Self;
    /// The remainder of `floor_div`, with the sign of the divisor; integers give zero for a zero divisor.
    fn floor_mod(self, other: Self) -> Self;
    /// The quotient rounded towards zero; integers give zero for a zero divisor.
    fn trunc_div(self, other: Self) -> Self;
    /// The remainder of `trunc_div`, with the sign of the dividend; integers give zero for a zero divisor.
    fn trunc_mod(self, other: Self) -> Self;
    /// The largest whole number not above.
    fn floor(self) -> Self;
    /// The smallest whole number not below.
    fn ceil(self) -> Self;
    /// The nearest whole number, halves to the even one.
    fn round(self) -> Self;
    /// The whole part.
    fn trunc(self) -> Self;
}

/// A number with transcendental functions: floats and complex numbers.
pub trait Field: Number {
    /// e to this power.
    fn exp(self) -> Self;
    /// e to this power, less one, precise near zero.
    fn expm1(self) -> Self;
    /// The natural logarithm.
    fn log(self) -> Self;
    /// The natural logarithm of one plus this, precise near zero.
    fn log1p(self) -> Self;
    /// The square root.
    fn sqrt(self) -> Self;
    /// One over the square root.
    fn rsqrt(self) -> Self;
    /// One over this.
    fn recip(self) -> Self;
    /// The sine.
    fn sin(self) -> Self;
    /// The cosine.
    fn cos(self) -> Self;
    /// The tangent.
    fn tan(self) -> Self;
    /// The inverse sine.
    fn asin(self) -> Self;
    /// The inverse cosine.
    fn acos(self) -> Self;
    /// The inverse tangent.
    fn atan(self) -> Self;
    /// The hyperbolic sine.
    fn sinh(self) -> Self;
    /// The hyperbolic cosine.
    fn cosh(self) -> Self;
    /// The hyperbolic tangent.
    fn tanh(self) -> Self;
    /// The inverse hyperbolic sine.
    fn asinh(self) -> Self;
    /// The inverse hyperbolic cosine.
    fn acosh(self) -> Self;
    /// The inverse hyperbolic tangent.
    fn atanh(self) -> Self;
    /// This to the power of another.
    fn pow(self, other: Self) -> Self;
    /// 1 / (1 + e^-x).
    fn sigmoid(self) -> Self;
}

/// A floating-point number of any width.
pub trait Float: Real + Field {
    /// What sums of this type are kept in: `f32` for halves, else the type itself.
    type Acc: Float;
    /// The distance from one to the next larger value.
    const EPSILON: Self;
    /// The smallest positive normal value.
    const MIN_POSITIVE: Self;
    /// Not a number.
    const NAN: Self;
    /// The value as `f32`.
    fn to_f32(self) -> f32;
    /// The nearest value to an `f32`.
    fn from_f32(value: f32) -> Self;
    /// The value in the type its sums are kept in.
    fn to_acc(self) -> Self::Acc;
    /// The nearest value to a sum.
    fn from_acc(value: Self::Acc) -> Self;
    /// Whether the value is infinite.
    fn is_infinite(self) -> bool;
    /// The angle of the point (other, self).
    fn atan2(self, other: Self) -> Self;
    /// The error function.
    fn erf(self) -> Self;
    /// One less the error function.
    fn erfc(self) -> Self;
    /// The logarithm of the magnitude of the gamma function.
    fn lgamma(self) -> Self;
    /// The derivative of `lgamma`.
    fn digamma(self) -> Self;
    /// log(1 + e^x), without overflow.
    #[inline]
    fn softplus(self) -> Self {
        // Past these bounds the exact result rounds to x and to e^x.
        let threshold = Self::EPSILON.log().add(Self::from_f64(2.0));
        if self > threshold.neg() {
            self
        } else if self < threshold {
            self.exp()
        } else {
            self.exp().log1p()
        }
    }
    /// x / (1 + |x|).
    #[inline]
    fn softsign(self) -> Self {
        self.div(Self::ONE.add(self.abs()))
    }
    /// x if positive, else e^x - 1.
    #[inline]
    fn elu(self) -> Self {
        if self < Self::ZERO { self.expm1() } else { self }
    }
}

/// A whole number of any width and sign.
pub trait Int: Real + Eq + Ord {
    /// The width in bits.
    const BITS: u32;
    /// Whether negative values exist.
    const SIGNED: bool;
    /// Bitwise and.
    fn bitand(self, other: Self) -> Self;
    /// Bitwise or.
    fn bitor(self, other: Self) -> Self;
    /// Bitwise exclusive or.
    fn bitxor(self, other: Self) -> Self;
    /// Bitwise complement.
    fn bitnot(self) -> Self;
    /// Shifted left; the count is clamped to the width less one.
    fn shl(self, count: Self) -> Self;
    /// Shifted right, keeping the sign; the count is clamped to the width less one.
    fn shr(self, count: Self) -> Self;
    /// The number of one bits.
    fn count_ones(self) -> u32;
    /// The value as `i128`, exact for every width.
    fn to_i128(self) -> i128;
    /// This to an integer power, wrapping; a negative power gives what 1/x^n truncates to.
    fn pow_int(self, exponent: Self) -> Self {
        if exponent < Self::ZERO {
            return if self == Self::ONE {
                Self::ONE
            } else if self == Self::ONE.neg() {
                if exponent.bitand(Self::ONE) == Self::ONE { self } else { Self::ONE }
            } else {
                Self::ZERO
            };
        }
        self.powu(exponent.to_i64() as u64)
    }
}

macro_rules! int {
    ($($t:ty, $signed:expr, $abs:expr;)*) => {$(
        impl Number for $t {
            type Sum = Self;
            const ZERO: Self = 0;
            const ONE: Self = 1;
            #[inline(always)]
            fn add(self, other: Self) -> Self { self.wrapping_add(other) }
            #[inline(always)]
            fn sub(self, other: Self) -> Self { self.wrapping_sub(other) }
            #[inline(always)]
            fn mul(self, other: Self) -> Self { self.wrapping_mul(other) }
            #[inline(always)]
            fn div(self, other: Self) -> Self { if other == 0 { 0 } else { self.wrapping_div(other) } }
            #[inline(always)]
            fn neg(self) -> Self { self.wrapping_neg() }
            #[inline(always)]
            fn from_i64(value: i64) -> Self { value as $t }
            #[inline(always)]
            fn from_f64(value: f64) -> Self { value as $t }
            #[inline(always)]
            fn to_f64(self) -> f64 { self as f64 }
            #[inline(always)]
            fn to_i64(self) -> i64 { i64::try_from(self).unwrap_or(i64::MAX) }
            #[inline(always)]
            fn abs(self) -> Self { $abs(self) }
            #[inline(always)]
            #[allow(clippy::unnecessary_cast, unused_comparisons)]
            fn sign(self) -> Self { (self > 0) as $t - (if $signed && self < 0 { 1 } else { 0 }) }
            #[inline(always)]
            fn is_finite(self) -> bool { true }
            #[inline(always)]
            fn is_nan(self) -> bool { false }
            #[inline(always)]
            fn to_sum(self) -> Self { self }
            #[inline(always)]
            fn from_sum(sum: Self) -> Self { sum }
            #[inline(always)]
            fn conj(self) -> Self { self }
        }
        impl Real for $t {
            const MIN: Self = <$t>::MIN;
            const MAX: Self = <$t>::MAX;
            const LOWEST: Self = <$t>::MIN;
            const HIGHEST: Self = <$t>::MAX;
            #[inline(always)]
            fn max(self, other: Self) -> Self { if self < other { other } else { self } }
            #[inline(always)]
            fn min(self, other: Self) -> Self { if other < self { other } else { self } }
            #[inline(always)]
            #[allow(unused_comparisons)]
            fn floor_div(self, other: Self) -> Self {
                if other == 0 { return 0; }
                let (quotient, rest) = (self.wrapping_div(other), self.wrapping_rem(other));
                if rest != 0 && ((rest < 0) != (other < 0)) { quotient.wrapping_sub(1) } else { quotient }
            }
            #[inline(always)]
            #[allow(unused_comparisons)]
            fn floor_mod(self, other: Self) -> Self {
                if other == 0 { return 0; }
                let rest = self.wrapping_rem(other);
                if rest != 0 && ((rest < 0) != (other < 0)) { rest.wrapping_add(other) } else { rest }
            }
            #[inline(always)]
            fn trunc_div(self, other: Self) -> Self { Number::div(self, other) }
            #[inline(always)]
            fn trunc_mod(self, other: Self) -> Self { if other == 0 { 0 } else { self.wrapping_rem(other) } }
            #[inline(always)]
            fn floor(self) -> Self { self }
            #[inline(always)]
            fn ceil(self) -> Self { self }
            #[inline(always)]
            fn round(self) -> Self { self }
            #[inline(always)]
            fn trunc(self) -> Self { self }
        }
        impl Int for $t {
            const BITS: u32 = <$t>::BITS;
            const SIGNED: bool = $signed;
            #[inline(always)]
            fn bitand(self, other: Self) -> Self { self & other }
            #[inline(always)]
            fn bitor(self, other: Self) -> Self { self | other }
            #[inline(always)]
            fn bitxor(self, other: Self) -> Self { self ^ other }
            #[inline(always)]
            fn bitnot(self) -> Self { !self }
            #[inline(always)]
            #[allow(clippy::manual_clamp)]
            fn shl(self, count: Self) -> Self { self << Ord::min(Ord::max(count, 0), (<$t>::BITS - 1) as $t) }
            #[inline(always)]
            #[allow(clippy::manual_clamp)]
            fn shr(self, count: Self) -> Self { self >> Ord::min(Ord::max(count, 0), (<$t>::BITS - 1) as $t) }
            #[inline(always)]
            fn count_ones(self) -> u32 { <$t>::count_ones(self) }
            #[inline(always)]
            fn to_i128(self) -> i128 { self as i128 }
        }
    )*};
}

int! {
    i8, true, i8::wrapping_abs;
    i16, true, i16::wrapping_abs;
    i32, true, i32::wrapping_abs;
    i64, true, i64::wrapping_abs;
    u8, false, std::convert::identity;
    u16, false, std::convert::identity;
    u32, false, std::convert::identity;
    u64, false, std::convert::identity;
}

macro_rules! float {
    ($($t:ident),*) => {$(
        impl Number for $t {
            type Sum = Self;
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            #[inline(always)]
            fn add(self, other: Self) -> Self { self + other }
            #[inline(always)]
            fn sub(self, other: Self) -> Self { self - other }
            #[inline(always)]
            fn mul(self, other: Self) -> Self { self * other }
            #[inline(always)]
            fn div(self, other: Self) -> Self { self / other }
            #[inline(always)]
            fn neg(self) -> Self { -self }
            #[inline(always)]
            fn from_i64(value: i64) -> Self { value as $t }
            #[inline(always)]
            fn from_f64(value: f64) -> Self { value as $t }
            #[inline(always)]
            fn to_f64(self) -> f64 { self as f64 }
            #[inline(always)]
            fn to_i64(self) -> i64 { self as i64 }
            #[inline(always)]
            fn abs(self) -> Self { <$t>::abs(self) }
            #[inline(always)]
            fn sign(self) -> Self {
                if self > 0.0 { 1.0 } else if self < 0.0 { -1.0 } else if self == 0.0 { 0.0 } else { self }
            }
            #[inline(always)]
            fn is_finite(self) -> bool { <$t>::is_finite(self) }
            #[inline(always)]
            fn is_nan(self) -> bool { <$t>::is_nan(self) }
            #[inline(always)]
            fn to_sum(self) -> Self { self }
            #[inline(always)]
            fn from_sum(sum: Self) -> Self { sum }
            #[inline(always)]
            fn conj(self) -> Self { self }
        }
        impl Real for $t {
            const MIN: Self = <$t>::NEG_INFINITY;
            const MAX: Self = <$t>::INFINITY;
            const LOWEST: Self = <$t>::MIN;
            const HIGHEST: Self = <$t>::MAX;
            #[inline(always)]
            fn max(self, other: Self) -> Self { if self > other || self.is_nan() { self } else { other } }
            #[inline(always)]
            fn min(self, other: Self) -> Self { if self < other || self.is_nan() { self } else { other } }
            #[inline(always)]
            fn floor_div(self, other: Self) -> Self { <$t>::floor(self / other) }
            #[inline(always)]
            fn floor_mod(self, other: Self) -> Self {
                let rest = self % other;
                if rest != 0.0 && ((rest < 0.0) != (other < 0.0)) { rest + other } else { rest }
            }
            #[inline(always)]
            fn trunc_div(self, other: Self) -> Self { <$t>::trunc(self / other) }
            #[inline(always)]
            fn trunc_mod(self, other: Self) -> Self { self % other }
            #[inline(always)]
            fn floor(self) -> Self { <$t>::floor(self) }
            #[inline(always)]
            fn ceil(self) -> Self { <$t>::ceil(self) }
            #[inline(always)]
            fn round(self) -> Self { <$t>::round_ties_even(self) }
            #[inline(always)]
            fn trunc(self) -> Self { <$t>::trunc(self) }
        }
        impl Field for $t {
            #[inline(always)]
            fn exp(self) -> Self { <$t>::exp(self) }
            #[inline(always)]
            fn expm1(self) -> Self { <$t>::exp_m1(self) }
            #[inline(always)]
            fn log(self) -> Self { <$t>::ln(self) }
            #[inline(always)]
            fn log1p(self) -> Self { <$t>::ln_1p(self) }
            #[inline(always)]
            fn sqrt(self) -> Self { <$t>::sqrt(self) }
            #[inline(always)]
            fn rsqrt(self) -> Self { 1.0 / <$t>::sqrt(self) }
            #[inline(always)]
            fn recip(self) -> Self { 1.0 / self }
            #[inline(always)]
            fn sin(self) -> Self { <$t>::sin(self) }
            #[inline(always)]
            fn cos(self) -> Self { <$t>::cos(self) }
            #[inline(always)]
            fn tan(self) -> Self { <$t>::tan(self) }
            #[inline(always)]
            fn asin(self) -> Self { <$t>::asin(self) }
            #[inline(always)]
            fn acos(self) -> Self { <$t>::acos(self) }
            #[inline(always)]
            fn atan(self) -> Self { <$t>::atan(self) }
            #[inline(always)]
            fn sinh(self) -> Self { <$t>::sinh(self) }
            #[inline(always)]
            fn cosh(self) -> Self { <$t>::cosh(self) }
            #[inline(always)]
            fn tanh(self) -> Self { <$t>::tanh(self) }
            #[inline(always)]
            fn asinh(self) -> Self { <$t>::asinh(self) }
            #[inline(always)]
            fn acosh(self) -> Self { <$t>::acosh(self) }
            #[inline(always)]
            fn atanh(self) -> Self { <$t>::atanh(self) }
            #[inline(always)]
            fn pow(self, other: Self) -> Self {
                // To a kernel it is zero, but the library takes it apart by its bits.
                let base = if self.is_subnormal() { <$t>::copysign(0.0, self) } else { self };
                base.powf(other)
            }
            #[inline(always)]
            fn sigmoid(self) -> Self { 1.0 / (1.0 + <$t>::exp(-self)) }
        }
        impl Float for $t {
            type Acc = $t;
            const EPSILON: Self = <$t>::EPSILON;
            const MIN_POSITIVE: Self = <$t>::MIN_POSITIVE;
            const NAN: Self = <$t>::NAN;
            #[inline(always)]
            fn to_f32(self) -> f32 { self as f32 }
            #[inline(always)]
            fn from_f32(value: f32) -> Self { value as $t }
            #[inline(always)]
            fn to_acc(self) -> $t { self }
            #[inline(always)]
            fn from_acc(value: $t) -> Self { value }
            #[inline(always)]
            fn is_infinite(self) -> bool { <$t>::is_infinite(self) }
            #[inline(always)]
            fn atan2(self, other: Self) -> Self { <$t>::atan2(self, other) }
            #[inline]
            fn erf(self) -> Self { special::erf(self as f64) as $t }
            #[inline]
            fn erfc(self) -> Self { special::erfc(self as f64) as $t }
            #[inline]
            fn lgamma(self) -> Self { special::lgamma(self as f64) as $t }
            #[inline]
            fn digamma(self) -> Self { special::digamma(self as f64) as $t }
        }
    )*};
}

float!(f32, f64);

macro_rules! half {
    ($($t:ident),*) => {$(
        impl Number for $t {
            type Sum = f32;
            const ZERO: Self = $t::ZERO;
            const ONE: Self = $t::ONE;
            #[inline(always)]
            fn add(self, other: Self) -> Self { $t::from_f32($t::to_f32(self) + $t::to_f32(other)) }
            #[inline(always)]
            fn sub(self, other: Self) -> Self { $t::from_f32($t::to_f32(self) - $t::to_f32(other)) }
            #[inline(always)]
            fn mul(self, other: Self) -> Self { $t::from_f32($t::to_f32(self) * $t::to_f32(other)) }
            #[inline(always)]
            fn div(self, other: Self) -> Self { $t::from_f32($t::to_f32(self) / $t::to_f32(other)) }
            #[inline(always)]
            fn neg(self) -> Self { $t::from_bits(self.to_bits() ^ 0x8000) }
            #[inline(always)]
            fn from_i64(value: i64) -> Self { $t::from_f32(value as f32) }
            #[inline(always)]
            fn from_f64(value: f64) -> Self { $t::from_f64(value) }
            #[inline(always)]
            fn to_f64(self) -> f64 { $t::to_f32(self) as f64 }
            #[inline(always)]
            fn to_i64(self) -> i64 { $t::to_f32(self) as i64 }
            #[inline(always)]
            fn abs(self) -> Self { $t::from_bits(self.to_bits() & 0x7fff) }
            #[inline(always)]
            fn sign(self) -> Self { $t::from_f32(Number::sign($t::to_f32(self))) }
            #[inline(always)]
            fn is_finite(self) -> bool { $t::is_finite(self) }
            #[inline(always)]
            fn is_nan(self) -> bool { $t::is_nan(self) }
            #[inline(always)]
            fn to_sum(self) -> f32 { $t::to_f32(self) }
            #[inline(always)]
            fn from_sum(sum: f32) -> Self { $t::from_f32(sum) }
            #[inline(always)]
            fn conj(self) -> Self { self }
        }
        impl Real for $t {
            const MIN: Self = $t::NEG_INFINITY;
            const MAX: Self = $t::INFINITY;
            const LOWEST: Self = $t::MIN;
            const HIGHEST: Self = $t::MAX;
            #[inline(always)]
            fn max(self, other: Self) -> Self { if self > other || self.is_nan() { self } else { other } }
            #[inline(always)]
            fn min(self, other: Self) -> Self { if self < other || self.is_nan() { self } else { other } }
            // Each step rounds to the half: a quotient of 2.9998 that rounds to 3 floors to 3.
            #[inline(always)]
            fn floor_div(self, other: Self) -> Self { Real::floor(Number::div(self, other)) }
            #[inline(always)]
            fn floor_mod(self, other: Self) -> Self {
                $t::from_f32(Real::floor_mod($t::to_f32(self), $t::to_f32(other)))
            }
            #[inline(always)]
            fn trunc_div(self, other: Self) -> Self { Real::trunc(Number::div(self, other)) }
            #[inline(always)]
            fn trunc_mod(self, other: Self) -> Self { $t::from_f32($t::to_f32(self) % $t::to_f32(other)) }
            #[inline(always)]
            fn floor(self) -> Self { $t::from_f32($t::to_f32(self).floor()) }
            #[inline(always)]
            fn ceil(self) -> Self { $t::from_f32($t::to_f32(self).ceil()) }
            #[inline(always)]
            fn round(self) -> Self { $t::from_f32($t::to_f32(self).round_ties_even()) }
            #[inline(always)]
            fn trunc(self) -> Self { $t::from_f32($t::to_f32(self).trunc()) }
        }
        half!(@field $t: exp expm1 log log1p sqrt rsqrt recip sin cos tan asin acos atan sinh cosh tanh asinh acosh
            atanh sigmoid);
        impl Float for $t {
            type Acc = f32;
            const EPSILON: Self = $t::EPSILON;
            const MIN_POSITIVE: Self = $t::MIN_POSITIVE;
            const NAN: Self = $t::NAN;
            #[inline(always)]
            fn to_f32(self) -> f32 { $t::to_f32(self) }
            #[inline(always)]
            fn from_f32(value: f32) -> Self { $t::from_f32(value) }
            #[inline(always)]
            fn to_acc(self) -> f32 { $t::to_f32(self) }
            #[inline(always)]
            fn from_acc(value: f32) -> Self { $t::from_f32(value) }
            #[inline(always)]
            fn is_infinite(self) -> bool { $t::is_infinite(self) }
            #[inline(always)]
            fn atan2(self, other: Self) -> Self { $t::from_f32($t::to_f32(self).atan2($t::to_f32(other))) }
            #[inline]
            fn erf(self) -> Self { $t::from_f32(Float::erf($t::to_f32(self))) }
            #[inline]
            fn erfc(self) -> Self { $t::from_f32(Float::erfc($t::to_f32(self))) }
            #[inline]
            fn lgamma(self) -> Self { $t::from_f32(Float::lgamma($t::to_f32(self))) }
            #[inline]
            fn digamma(self) -> Self { $t::from_f32(Float::digamma($t::to_f32(self))) }
            #[inline]
            fn softplus(self) -> Self { $t::from_f32(Float::softplus($t::to_f32(self))) }
            #[inline]
            fn softsign(self) -> Self { $t::from_f32(Float::softsign($t::to_f32(self))) }
            #[inline]
            fn elu(self) -> Self { $t::from_f32(Float::elu($t::to_f32(self))) }
        }
    )*};
    (@field $t:ident: $($f:ident)*) => {
        impl Field for $t {
            $(#[inline(always)]
            fn $f(self) -> Self { $t::from_f32(Field::$f($t::to_f32(self))) })*
            #[inline(always)]
            fn pow(self, other: Self) -> Self { $t::from_f32(Field::pow($t::to_f32(self), $t::to_f32(other))) }
        }
    };
}

half!(f16, bf16);

macro_rules! complex {
    ($($t:ident),*) => {$(
        impl Number for Complex<$t> {
            type Sum = Self;
            const ZERO: Self = Complex::new(0.0, 0.0);
            const ONE: Self = Complex::new(1.0, 0.0);
            #[inline(always)]
            fn add(self, other: Self) -> Self { self + other }
            #[inline(always)]
            fn sub(self, other: Self) -> Self { self - other }
            #[inline(always)]
            fn mul(self, other: Self) -> Self { self * other }
            #[inline(always)]
            fn div(self, other: Self) -> Self { self / other }
            #[inline(always)]
            fn neg(self) -> Self { -self }
            #[inline(always)]
            fn from_i64(value: i64) -> Self { Complex::new(value as $t, 0.0) }
            #[inline(always)]
            fn from_f64(value: f64) -> Self { Complex::new(value as $t, 0.0) }
            #[inline(always)]
            fn to_f64(self) -> f64 { self.re as f64 }
            #[inline(always)]
            fn to_i64(self) -> i64 { self.re as i64 }
            #[inline(always)]
            fn abs(self) -> Self { Complex::new(self.re.hypot(self.im), 0.0) }
            #[inline(always)]
            fn sign(self) -> Self {
                let norm = self.re.hypot(self.im);
                if norm == 0.0 { Complex::new(0.0, 0.0) } else { Complex::new(self.re / norm, self.im / norm) }
            }
            #[inline(always)]
            fn is_finite(self) -> bool { self.re.is_finite() && self.im.is_finite() }
            #[inline(always)]
            fn is_nan(self) -> bool { self.re.is_nan() || self.im.is_nan() }
            #[inline(always)]
            fn to_sum(self) -> Self { self }
            #[inline(always)]
            fn from_sum(sum: Self) -> Self { sum }
            #[inline(always)]
            fn conj(self) -> Self { Complex::new(self.re, -self.im) }
        }
        impl Field for Complex<$t> {
            #[inline(always)]
            fn exp(self) -> Self { Complex::exp(self) }
            fn expm1(self) -> Self {
                // e^a cos b - 1 = expm1(a) cos b - 2 sin²(b/2), which keeps its digits near zero.
                let half_sine = (self.im * 0.5).sin();
                let real = self.re.exp_m1() * self.im.cos() - 2.0 * half_sine * half_sine;
                Complex::new(real, self.re.exp() * self.im.sin())
            }
            #[inline(always)]
            fn log(self) -> Self { Complex::ln(self) }
            fn log1p(self) -> Self {
                // |1+z|² - 1 = a(2 + a) + b², so small z do not drown in the one.
                let (a, b) = (self.re, self.im);
                let real = if a.abs() < 0.5 && b.abs() < 0.5 {
                    0.5 * (a * (2.0 + a) + b * b).ln_1p()
                } else {
                    (1.0 + a).hypot(b).ln()
                };
                Complex::new(real, b.atan2(1.0 + a))
            }
            #[inline(always)]
            fn sqrt(self) -> Self { Complex::sqrt(self) }
            #[inline(always)]
            fn rsqrt(self) -> Self { Complex::new(1.0, 0.0) / Complex::sqrt(self) }
            #[inline(always)]
            fn recip(self) -> Self { Complex::new(1.0, 0.0) / self }
            #[inline(always)]
            fn sin(self) -> Self { Complex::sin(self) }
            #[inline(always)]
            fn cos(self) -> Self { Complex::cos(self) }
            #[inline(always)]
            fn tan(self) -> Self { Complex::tan(self) }
            #[inline(always)]
            fn asin(self) -> Self { Complex::asin(self) }
            #[inline(always)]
            fn acos(self) -> Self { Complex::acos(self) }
            #[inline(always)]
            fn atan(self) -> Self { Complex::atan(self) }
            #[inline(always)]
            fn sinh(self) -> Self { Complex::sinh(self) }
            #[inline(always)]
            fn cosh(self) -> Self { Complex::cosh(self) }
            #[inline(always)]
            fn tanh(self) -> Self {
                // Past 20 the exact value rounds to ±1, and the quotient of exponentials would overflow.
                if self.re.abs() > 20.0 { return Complex::new((1.0 as $t).copysign(self.re), 0.0); }
                Complex::tanh(self)
            }
            #[inline(always)]
            fn asinh(self) -> Self { Complex::asinh(self) }
            #[inline(always)]
            fn acosh(self) -> Self { Complex::acosh(self) }
            #[inline(always)]
            fn atanh(self) -> Self { Complex::atanh(self) }
            #[inline]
            fn pow(self, other: Self) -> Self {
                if other == Self::ZERO { return Self::ONE; }
                if self == Self::ZERO { return Self::ZERO; }
                Complex::powc(self, other)
            }
            #[inline(always)]
            fn sigmoid(self) -> Self { Self::ONE / (Self::ONE + Complex::exp(-self)) }
        }
    )*};
}

complex!(f32, f64);

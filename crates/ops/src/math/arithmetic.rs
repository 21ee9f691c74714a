//! Arithmetic of two numbers, broadcasting: sums, products, quotients, remainders, powers, extremes.

use super::broadcast::sum_to_inputs;
use super::functions::conj;
use super::pairs::{map_pairs, positions};
use bytes::{BufMut, Bytes, BytesMut};
use framework::gradient::{GradValue, by_rows_unstretched};
use framework::op::KernelFn;
use framework::shapes::broadcast as broadcast_shape;
use framework::typed::{
    FieldKernel, IntKernel, NumberKernel, RealKernel, stepwise_numbers, stepwise_reals, wide_fields, wide_fields_by,
    wide_ints_by, wide_numbers, wide_numbers_by, wide_reals,
};
use framework::{
    BuiltKernel, Field, Grad, InferenceContext, Int, Kernel, KernelBuild, KernelContext, Number, Op, Output, Real,
    Scope,
};
use std::sync::Arc;
use tensor::{DType, Result, Tensor, invalid};

/// The ops of this file.
pub fn ops() -> Vec<Op> {
    let reals_and_complex = "bfloat16, half, float, double, uint8, int8, uint16, int16, int32, uint32, uint64, int64, \
                             complex64, complex128";
    vec![
        op("AddV2", reals_and_complex)
            .commutative()
            .aggregate()
            .value(|c| known(c, i64::checked_add))
            .kernel(wide_numbers(|_| Ok(AddKernel)))
            .gradient(add_gradient)
            .row_gradient(by_rows_unstretched),
        op("Add", "bfloat16, half, float, double, uint8, int8, int16, int32, int64, complex64, complex128, string")
            .value(|c| known(c, i64::checked_add))
            .kernel(numbers_or_strings())
            .gradient(add_gradient)
            .row_gradient(by_rows_unstretched),
        op("Sub", reals_and_complex)
            .value(|c| known(c, i64::checked_sub))
            .kernel(wide_numbers(|_| Ok(SubKernel)))
            .gradient(sub_gradient)
            .row_gradient(by_rows_unstretched),
        op("Mul", reals_and_complex)
            .commutative()
            .value(|c| known(c, i64::checked_mul))
            .kernel(wide_numbers(|_| Ok(MulKernel)))
            .gradient(mul_gradient),
        op("Div", reals_and_complex)
            .value(|c| known(c, i64::checked_div))
            .kernel(wide_numbers(|_| Ok(DivKernel)))
            .gradient(|s, g| div_gradient(s, g, "Div")),
        op("RealDiv", reals_and_complex)
            .kernel(wide_fields(|_| Ok(RealDivKernel)))
            .gradient(|s, g| div_gradient(s, g, "RealDiv")),
        op("DivNoNan", "half, float, bfloat16, double, complex64, complex128")
            .kernel(wide_fields(|_| Ok(DivNoNanKernel)))
            .gradient(|s, g| div_gradient(s, g, "DivNoNan")),
        op("FloorDiv", reals_and_complex)
            .value(|c| {
                known(c, |a, b| (b != 0 && (a, b) != (i64::MIN, -1)).then(|| linalg::number::Real::floor_div(a, b)))
            })
            .kernel(stepwise_reals(|_| Ok(FloorDivKernel)))
            .gradient(|_, _| Ok(vec![None, None])),
        op("FloorMod", REALS)
            .value(|c| known(c, |a, b| (b != 0).then(|| linalg::number::Real::floor_mod(a, b))))
            .kernel(wide_reals(|_| Ok(FloorModKernel)))
            .gradient(floor_mod_gradient),
        op("Maximum", REALS)
            .value(|c| known(c, |a, b| Some(Ord::max(a, b))))
            .kernel(wide_reals(|_| Ok(MaximumKernel)))
            .gradient(|s, g| extreme_gradient(s, g, "GreaterEqual")),
        op("Minimum", REALS)
            .value(|c| known(c, |a, b| Some(Ord::min(a, b))))
            .kernel(wide_reals(|_| Ok(MinimumKernel)))
            .gradient(|s, g| extreme_gradient(s, g, "LessEqual")),
        op("Pow", "bfloat16, float, half, double, int8, int16, int32, int64, complex64, complex128")
            .kernel(Arc::new(pow_kernel))
            .gradient(pow_gradient),
        op("SquaredDifference", "bfloat16, half, float, double, int32, int64, complex64, complex128")
            .commutative()
            .kernel(stepwise_numbers(|_| Ok(SquaredDifferenceKernel)))
            .gradient(squared_difference_gradient),
    ]
}

/// The types with an order.
pub(crate) const REALS: &str =
    "float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64";

fn op(name: &str, types: &str) -> Op {
    Op::new(name).input("x: T").input("y: T").output("z: T").attr(&format!("T: {{{types}}}")).shape(broadcast_shape)
}

/// `x + y`.
pub fn add(s: &Scope, x: Output, y: Output) -> Result<Output> {
    s.op("AddV2", &[x, y])
}

/// `x - y`.
pub fn sub(s: &Scope, x: Output, y: Output) -> Result<Output> {
    s.op("Sub", &[x, y])
}

/// `x * y`.
pub fn mul(s: &Scope, x: Output, y: Output) -> Result<Output> {
    s.op("Mul", &[x, y])
}

/// `x / y`.
pub fn div(s: &Scope, x: Output, y: Output) -> Result<Output> {
    s.op("RealDiv", &[x, y])
}

/// `x * factor`, the factor a constant of x's type.
pub fn scale(s: &Scope, x: Output, factor: f64) -> Result<Output> {
    mul(s, x, s.constant_of(s.dtype(x)?, factor)?)
}

/// The larger of the two.
pub fn maximum(s: &Scope, x: Output, y: Output) -> Result<Output> {
    s.op("Maximum", &[x, y])
}

/// The smaller of the two.
pub fn minimum(s: &Scope, x: Output, y: Output) -> Result<Output> {
    s.op("Minimum", &[x, y])
}

/// `x` to the power of `y`.
pub fn pow(s: &Scope, x: Output, y: Output) -> Result<Output> {
    s.op("Pow", &[x, y])
}

/// `(x - y)²`.
pub fn squared_difference(s: &Scope, x: Output, y: Output) -> Result<Output> {
    s.op("SquaredDifference", &[x, y])
}

/// The value of an op on small integers that are known while the graph is built.
fn known(c: &InferenceContext<'_>, f: fn(i64, i64) -> Option<i64>) -> Option<Vec<Option<Tensor>>> {
    const SMALL: usize = 64;
    let (a, b) = (c.input_value(0)?, c.input_value(1)?);
    let shape = match (a.num_elements(), b.num_elements()) {
        (_, 1) if a.shape().rank() >= b.shape().rank() => a.shape(),
        (1, _) if a.shape().rank() <= b.shape().rank() => b.shape(),
        _ if a.shape() == b.shape() => a.shape(),
        _ => return None,
    };
    if shape.num_elements() > SMALL || !matches!(a.dtype(), DType::I32 | DType::I64) {
        return None;
    }
    let (x, y) = (c.input_i64s(0)?, c.input_i64s(1)?);
    let values = (0..shape.num_elements()).map(|i| f(x[i.min(x.len() - 1)], y[i.min(y.len() - 1)]));
    let values: Vec<i64> = values.collect::<Option<_>>()?;
    let tensor = if a.dtype() == DType::I64 {
        Tensor::from_vec(shape, values)
    } else {
        let narrow = values.into_iter().map(i32::try_from).collect::<Result<Vec<i32>, _>>().ok()?;
        Tensor::from_vec(shape, narrow)
    };
    Some(vec![tensor.ok()])
}

fn add_gradient(s: &Scope, g: &Grad<'_>) -> Result<Vec<Option<GradValue>>> {
    sum_to_inputs(s, g, [g.wanted[0].then_some(g.dy[0]), g.wanted[1].then_some(g.dy[0])])
}

fn sub_gradient(s: &Scope, g: &Grad<'_>) -> Result<Vec<Option<GradValue>>> {
    let right = if g.wanted[1] { Some(s.op("Neg", &[g.dy[0]])?) } else { None };
    sum_to_inputs(s, g, [g.wanted[0].then_some(g.dy[0]), right])
}

fn mul_gradient(s: &Scope, g: &Grad<'_>) -> Result<Vec<Option<GradValue>>> {
    let times = |i: usize| if g.wanted[1 - i] { mul(s, g.dy[0], conj(s, g.inputs[i])?).map(Some) } else { Ok(None) };
    sum_to_inputs(s, g, [times(1)?, times(0)?])
}

fn div_gradient(s: &Scope, g: &Grad<'_>, op: &str) -> Result<Vec<Option<GradValue>>> {
    let (x, y) = (conj(s, g.inputs[0])?, conj(s, g.inputs[1])?);
    let left = if g.wanted[0] { Some(s.op(op, &[g.dy[0], y])?) } else { None };
    let right = if g.wanted[1] {
        let quotient = s.op(op, &[s.op("Neg", &[x])?, y])?;
        Some(mul(s, g.dy[0], s.op(op, &[quotient, y])?)?)
    } else {
        None
    };
    sum_to_inputs(s, g, [left, right])
}

fn floor_mod_gradient(s: &Scope, g: &Grad<'_>) -> Result<Vec<Option<GradValue>>> {
    let right = if g.wanted[1] {
        let quotient = s.op("FloorDiv", &[g.inputs[0], g.inputs[1]])?;
        Some(mul(s, g.dy[0], s.op("Neg", &[quotient])?)?)
    } else {
        None
    };
    sum_to_inputs(s, g, [g.wanted[0].then_some(g.dy[0]), right])
}

/// The gradient goes to whichever input won; to the first when they are equal.
fn extreme_gradient(s: &Scope, g: &Grad<'_>, first_wins: &str) -> Result<Vec<Option<GradValue>>> {
    let zeros = s.op("ZerosLike", &[g.dy[0]])?;
    let first = s.op(first_wins, &[g.inputs[0], g.inputs[1]])?;
    let left = if g.wanted[0] { Some(s.op("SelectV2", &[first, g.dy[0], zeros])?) } else { None };
    let right = if g.wanted[1] { Some(s.op("SelectV2", &[first, zeros, g.dy[0]])?) } else { None };
    sum_to_inputs(s, g, [left, right])
}

fn pow_gradient(s: &Scope, g: &Grad<'_>) -> Result<Vec<Option<GradValue>>> {
    let (x, y, z) = (conj(s, g.inputs[0])?, conj(s, g.inputs[1])?, conj(s, g.outputs[0])?);
    let dtype = s.dtype(x)?;
    let left = if g.wanted[0] {
        let power = pow(s, x, sub(s, y, s.constant_of(dtype, 1.0)?)?)?;
        Some(mul(s, mul(s, g.dy[0], y)?, power)?)
    } else {
        None
    };
    let right = if g.wanted[1] {
        // The logarithm is only taken where it exists; elsewhere the gradient is zero.
        let zero = s.constant_of(dtype, 0.0)?;
        let exists = s.op(if dtype.is_complex() { "NotEqual" } else { "Greater" }, &[x, zero])?;
        let safe = s.op("SelectV2", &[exists, x, s.op("OnesLike", &[x])?])?;
        let log = s.op("SelectV2", &[exists, s.op("Log", &[safe])?, s.op("ZerosLike", &[x])?])?;
        Some(mul(s, mul(s, g.dy[0], z)?, log)?)
    } else {
        None
    };
    sum_to_inputs(s, g, [left, right])
}

fn squared_difference_gradient(s: &Scope, g: &Grad<'_>) -> Result<Vec<Option<GradValue>>> {
    let left = mul(s, scale(s, g.dy[0], 2.0)?, sub(s, g.inputs[0], g.inputs[1])?)?;
    let right = if g.wanted[1] { Some(s.op("Neg", &[left])?) } else { None };
    sum_to_inputs(s, g, [g.wanted[0].then_some(left), right])
}

/// Kernels that apply one function to pairs of elements.
macro_rules! pairs {
    ($($name:ident: $kernel:ident, $bound:ident, $f:expr;)*) => {$(
        struct $name;
        impl $kernel for $name {
            fn compute<T: $bound>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
                map_pairs::<T>(ctx, $f)
            }
        }
    )*};
}
pairs! {
    AddKernel: NumberKernel, Number, T::add;
    SubKernel: NumberKernel, Number, T::sub;
    MulKernel: NumberKernel, Number, T::mul;
    RealDivKernel: FieldKernel, Field, T::div;
    DivNoNanKernel: FieldKernel, Field, |a: T, b: T| if b == T::ZERO { T::ZERO } else { a.div(b) };
    MaximumKernel: RealKernel, Real, T::max;
    MinimumKernel: RealKernel, Real, T::min;
    FieldPowKernel: FieldKernel, Field, T::pow;
    SquaredDifferenceKernel: NumberKernel, Number, |a: T, b: T| {
        let difference = a.sub(b);
        difference.mul(difference.conj())
    };
}

struct DivKernel;
impl NumberKernel for DivKernel {
    fn compute<T: Number>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        refuse_zero_divisors::<T>(ctx)?;
        map_pairs::<T>(ctx, T::div)
    }
}

struct FloorDivKernel;
impl RealKernel for FloorDivKernel {
    fn compute<T: Real>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        refuse_zero_divisors::<T>(ctx)?;
        map_pairs::<T>(ctx, T::floor_div)
    }
}

struct FloorModKernel;
impl RealKernel for FloorModKernel {
    fn compute<T: Real>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        refuse_zero_divisors::<T>(ctx)?;
        map_pairs::<T>(ctx, T::floor_mod)
    }
}

/// An integer divided by zero is an error, where there is anything to divide.
fn refuse_zero_divisors<T: Number>(ctx: &KernelContext<'_>) -> Result<()> {
    let divides = T::DTYPE.is_integer() && ctx.input(0).num_elements() > 0;
    if divides && ctx.input(1).as_slice::<T>()?.contains(&T::ZERO) {
        return Err(invalid!("Integer division by zero"));
    }
    Ok(())
}

fn pow_kernel(b: &KernelBuild<'_>) -> Result<BuiltKernel> {
    if b.dtype("T")?.is_integer() { wide_ints_by(b, "T", IntPowKernel) } else { wide_fields_by(b, "T", FieldPowKernel) }
}

struct IntPowKernel;
impl IntKernel for IntPowKernel {
    fn compute<T: Int>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let any = ctx.input(0).num_elements() > 0;
        if any && ctx.input(1).as_slice::<T>()?.iter().any(|&exponent| exponent < T::ZERO) {
            return Err(invalid!("Integers to negative integer powers are not allowed"));
        }
        map_pairs::<T>(ctx, T::pow_int)
    }
}

fn numbers_or_strings() -> KernelFn {
    Arc::new(|b| {
        if b.dtype("T")? == DType::String { Ok(BuiltKernel::new(Join)) } else { wide_numbers_by(b, "T", AddKernel) }
    })
}

/// The sum of two strings is one after the other.
struct Join;
impl Kernel for Join {
    fn compute(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let (shape, pairs) = positions(ctx.input(0), ctx.input(1))?;
        let (a, b) = (ctx.input(0).as_strings()?, ctx.input(1).as_strings()?);
        let joined = pairs.into_iter().map(|(i, j)| {
            let mut bytes = BytesMut::with_capacity(a[i].len() + b[j].len());
            bytes.put_slice(&a[i]);
            bytes.put_slice(&b[j]);
            bytes.freeze()
        });
        let joined: Vec<Bytes> = joined.collect();
        ctx.set_output(0, Tensor::from_strings(shape, joined)?)
    }
}

#[cfg(test)]
mod tests {
    use crate::array::testing::{eval, run};
    use tensor::{Code, Tensor, f16};

    #[test]
    fn an_integer_is_not_divided_by_zero() {
        for op in ["Div", "FloorDiv", "FloorMod"] {
            let error = eval(op, &[[7i32, 8].into(), [2i32, 0].into()], &[]).unwrap_err();
            assert_eq!(error.code, Code::InvalidArgument);
            assert!(error.message.contains("Integer division by zero"), "{op}: {error}");
            let nothing = Tensor::from(Vec::<i32>::new());
            assert_eq!(eval(op, &[nothing.clone(), Tensor::scalar(0i32)], &[]).unwrap()[0], nothing);
        }
    }

    #[test]
    fn a_negative_power_of_an_integer_is_refused() {
        let error = eval("Pow", &[2i32.into(), (-1i32).into()], &[]).unwrap_err();
        assert!(error.message.contains("negative integer powers"), "{error}");
        assert_eq!(eval("Pow", &[(-2i64).into(), 3i64.into()], &[]).unwrap()[0], Tensor::scalar(-8i64));
    }

    #[test]
    fn narrow_types_are_cut_off_and_rounded_as_in_tensorflow() {
        let halves = |values: [f32; 2]| Tensor::from(values.map(f16::from_f32));
        for (op, x, y, want) in [
            ("AddV2", Tensor::from([100i8, -100]), Tensor::from([100i8, -100]), Tensor::from([-56i8, 56])),
            ("Div", Tensor::from([-128i8, 100]), Tensor::from([-1i8, 7]), Tensor::from([-128i8, 14])),
            ("FloorMod", Tensor::from([-7i8, 100]), Tensor::from([4i8, -30]), Tensor::from([1i8, -20])),
            ("FloorDiv", Tensor::from([-7i8, 100]), Tensor::from([4i8, -30]), Tensor::from([-2i8, -4])),
            ("Sub", Tensor::from([3u8, 200]), Tensor::from([5u8, 100]), Tensor::from([254u8, 100])),
            ("Maximum", Tensor::from([250u8, 1]), Tensor::from([3u8, 2]), Tensor::from([250u8, 2])),
            ("Less", Tensor::from([250u8, 1]), Tensor::from([3u8, 2]), Tensor::from([false, true])),
            ("Mul", Tensor::from([-200i16, 300]), Tensor::from([200i16, 300]), Tensor::from([25536i16, 24464])),
            ("Mul", Tensor::from([300u16, 7]), Tensor::from([300u16, 9]), Tensor::from([24464u16, 63])),
            ("Sub", Tensor::from([1u32, 5]), Tensor::from([2u32, 3]), Tensor::from([u32::MAX, 2])),
            ("AddV2", halves([1000.0, 0.1]), halves([0.3, 0.2]), halves([1000.5, 0.2998])),
        ] {
            assert_eq!(eval(op, &[x, y], &[]).unwrap(), [want], "{op}");
        }
    }

    #[test]
    fn a_value_used_twice_is_not_overwritten() {
        let results = run(|s| {
            let x = s.op("Neg", &[s.constant([1.0f32, -2.0])?])?;
            let y = super::add(s, x, x)?;
            let z = super::mul(s, x, y)?;
            Ok(vec![x, y, z])
        });
        let wanted = [[-1.0f32, 2.0], [-2.0, 4.0], [2.0, 8.0]].map(Tensor::from);
        assert_eq!(results.unwrap(), wanted);
    }

    #[test]
    fn a_row_of_ones_gives_its_rank_to_the_result() {
        let [wide, narrow] = [Tensor::from([[2i32]]), Tensor::from([1i32, 2, 3])];
        assert_eq!(eval("Mul", &[wide, narrow], &[]).unwrap()[0], Tensor::from([[2i32, 4, 6]]));
    }
}

//! Functions of one number, and the functions their gradients need.

use super::arithmetic::{add, mul, scale, sub};
use super::pairs::{map_each, map_in_order};
use framework::gradient::{GradValue, by_rows, dense};
use framework::shapes::unchanged;
use framework::typed::{
    FieldKernel, FloatKernel, NumberKernel, RealKernel, complexes, fields_by, wide_fields_by, wide_numbers, wide_reals,
};
use framework::{Field, Float, Grad, KernelContext, Number, Op, Output, Real, Scope};
use linalg::elementwise::{FieldFunction, apply, apply_in_place};
use std::sync::Arc;
use tensor::{OwnedTensor, Result};

/// The ops of this file.
pub fn ops() -> Vec<Op> {
    let floats = "bfloat16, half, float, double";
    let signed = "bfloat16, half, float, double, int8, int16, int32, int64";
    let signed_and_complex = "bfloat16, half, float, double, int8, int16, int32, int64, complex64, complex128";
    let all = "bfloat16, half, float, double, int8, int16, int32, int64, uint8, uint16, uint32, uint64, complex64, \
               complex128";
    vec![
        op("Abs", signed).kernel(wide_numbers(|_| Ok(AbsKernel))).gradient(|s, g| times(s, g, sign(s, g.inputs[0])?)),
        op("Neg", signed_and_complex)
            .kernel(wide_numbers(|_| Ok(NegKernel)))
            .gradient(|s, g| dense([neg(s, g.dy[0])?]))
            .row_gradient(by_rows),
        op("Sign", signed_and_complex)
            .kernel(wide_numbers(|_| Ok(SignKernel)))
            .gradient(|s, g| dense([s.op("ZerosLike", &[g.inputs[0]])?])),
        op("Square", all)
            .kernel(wide_numbers(|_| Ok(SquareKernel)))
            .gradient(|s, g| times(s, g, scale(s, conj(s, g.inputs[0])?, 2.0)?)),
        op("Floor", floats).kernel(wide_reals(|_| Ok(FloorKernel))).gradient(|_, _| Ok(vec![None])),
        op("Ceil", floats).kernel(wide_reals(|_| Ok(CeilKernel))).gradient(|_, _| Ok(vec![None])),
        op("Round", signed_and_complex).kernel(wide_reals(|_| Ok(RoundKernel))).gradient(|_, _| Ok(vec![None])),
        function("Exp", FIELDS, FieldFunction::Exp).gradient(|s, g| times(s, g, conj(s, g.outputs[0])?)),
        function("Expm1", FIELDS, FieldFunction::Expm1).gradient(|s, g| times(s, g, exp(s, conj(s, g.inputs[0])?)?)),
        function("Log", FIELDS, FieldFunction::Log).gradient(|s, g| times(s, g, reciprocal(s, conj(s, g.inputs[0])?)?)),
        function("Log1p", FIELDS, FieldFunction::Log1p).gradient(|s, g| {
            let x = conj(s, g.inputs[0])?;
            times(s, g, reciprocal(s, add(s, s.constant_of(s.dtype(x)?, 1.0)?, x)?)?)
        }),
        function("Sqrt", FIELDS, FieldFunction::Sqrt).gradient(|s, g| from_output(s, g, "SqrtGrad")),
        function("Rsqrt", FIELDS, FieldFunction::Rsqrt).gradient(|s, g| from_output(s, g, "RsqrtGrad")),
        function("Reciprocal", signed_and_complex, FieldFunction::Recip)
            .gradient(|s, g| from_output(s, g, "ReciprocalGrad")),
        function("Sin", FIELDS, FieldFunction::Sin)
            .gradient(|s, g| times(s, g, s.op("Cos", &[conj(s, g.inputs[0])?])?)),
        function("Cos", FIELDS, FieldFunction::Cos)
            .gradient(|s, g| times(s, g, neg(s, s.op("Sin", &[conj(s, g.inputs[0])?])?)?)),
        function("Tan", FIELDS, FieldFunction::Tan).gradient(|s, g| {
            let cos = s.op("Cos", &[conj(s, g.inputs[0])?])?;
            times(s, g, square(s, reciprocal(s, cos)?)?)
        }),
        function("Asin", FIELDS, FieldFunction::Asin).gradient(|s, g| times(s, g, rsqrt(s, less_square(s, g)?)?)),
        function("Acos", FIELDS, FieldFunction::Acos)
            .gradient(|s, g| times(s, g, neg(s, rsqrt(s, less_square(s, g)?)?)?)),
        function("Atan", FIELDS, FieldFunction::Atan).gradient(|s, g| {
            let x = conj(s, g.inputs[0])?;
            times(s, g, reciprocal(s, add(s, s.constant_of(s.dtype(x)?, 1.0)?, square(s, x)?)?)?)
        }),
        function("Sinh", FIELDS, FieldFunction::Sinh)
            .gradient(|s, g| times(s, g, s.op("Cosh", &[conj(s, g.inputs[0])?])?)),
        function("Cosh", FIELDS, FieldFunction::Cosh)
            .gradient(|s, g| times(s, g, s.op("Sinh", &[conj(s, g.inputs[0])?])?)),
        function("Asinh", FIELDS, FieldFunction::Asinh)
            .gradient(|s, g| times(s, g, reciprocal(s, s.op("Cosh", &[conj(s, g.outputs[0])?])?)?)),
        function("Acosh", FIELDS, FieldFunction::Acosh)
            .gradient(|s, g| times(s, g, reciprocal(s, s.op("Sinh", &[conj(s, g.outputs[0])?])?)?)),
        function("Atanh", FIELDS, FieldFunction::Atanh)
            .gradient(|s, g| times(s, g, reciprocal(s, less_square(s, g)?)?)),
        op("Erf", floats).kernel(framework::typed::wide_floats(|_| Ok(ErfKernel))).gradient(|s, g| bell(s, g, 1.0)),
        op("Erfc", floats).kernel(framework::typed::wide_floats(|_| Ok(ErfcKernel))).gradient(|s, g| bell(s, g, -1.0)),
        op("Rint", floats).kernel(wide_reals(|_| Ok(RoundKernel))).gradient(|_, _| Ok(vec![None])),
        function("Tanh", FIELDS, FieldFunction::Tanh).gradient(|s, g| from_conjugate(s, g, "TanhGrad")),
        function("Sigmoid", FIELDS, FieldFunction::Sigmoid).gradient(|s, g| from_conjugate(s, g, "SigmoidGrad")),
        Op::new("Conj")
            .input("input: T")
            .output("output: T")
            .attr("T: {complex64, complex128, variant} = complex64")
            .shape(unchanged)
            .kernel(complexes(|_| Ok(ConjKernel)))
            .gradient(|s, g| dense([s.op("Conj", &[g.dy[0]])?])),
        backward("TanhGrad", TanhGradKernel).gradient(tanh_grad_gradient),
        backward("SigmoidGrad", SigmoidGradKernel).gradient(sigmoid_grad_gradient),
        backward("SqrtGrad", SqrtGradKernel).gradient(sqrt_grad_gradient),
        backward("RsqrtGrad", RsqrtGradKernel).gradient(rsqrt_grad_gradient),
        backward("ReciprocalGrad", ReciprocalGradKernel).gradient(reciprocal_grad_gradient),
    ]
}

const FIELDS: &str = "bfloat16, half, float, double, complex64, complex128";

fn op(name: &str, types: &str) -> Op {
    Op::new(name).input("x: T").output("y: T").attr(&format!("T: {{{types}}}")).shape(unchanged)
}

fn function(name: &str, types: &str, function: FieldFunction) -> Op {
    op(name, types).kernel(Arc::new(move |b| wide_fields_by(b, "T", FunctionKernel(function))))
}

/// The gradient of a function as an op of its own, from the function's output and the output's gradient.
fn backward<K: FieldKernel + Copy>(name: &str, kernel: K) -> Op {
    Op::new(name)
        .input("y: T")
        .input("dy: T")
        .output("z: T")
        .attr(&format!("T: {{{FIELDS}}}"))
        .shape(unchanged)
        .kernel(Arc::new(move |b| fields_by(b, "T", kernel)))
}

/// The magnitude.
pub fn abs(s: &Scope, x: Output) -> Result<Output> {
    s.op("Abs", &[x])
}

/// The opposite.
pub fn neg(s: &Scope, x: Output) -> Result<Output> {
    s.op("Neg", &[x])
}

/// -1, 0 or 1.
pub fn sign(s: &Scope, x: Output) -> Result<Output> {
    s.op("Sign", &[x])
}

/// The value times itself.
pub fn square(s: &Scope, x: Output) -> Result<Output> {
    s.op("Square", &[x])
}

/// e to this power.
pub fn exp(s: &Scope, x: Output) -> Result<Output> {
    s.op("Exp", &[x])
}

/// The natural logarithm.
pub fn log(s: &Scope, x: Output) -> Result<Output> {
    s.op("Log", &[x])
}

/// The square root.
pub fn sqrt(s: &Scope, x: Output) -> Result<Output> {
    s.op("Sqrt", &[x])
}

/// One over the square root.
pub fn rsqrt(s: &Scope, x: Output) -> Result<Output> {
    s.op("Rsqrt", &[x])
}

/// One over the value.
pub fn reciprocal(s: &Scope, x: Output) -> Result<Output> {
    s.op("Reciprocal", &[x])
}

/// The hyperbolic tangent.
pub fn tanh(s: &Scope, x: Output) -> Result<Output> {
    s.op("Tanh", &[x])
}

/// 1 / (1 + e^-x).
pub fn sigmoid(s: &Scope, x: Output) -> Result<Output> {
    s.op("Sigmoid", &[x])
}

/// The complex conjugate; a real tensor is its own, without a node.
pub fn conj(s: &Scope, x: Output) -> Result<Output> {
    if s.dtype(x)?.is_complex() { s.op("Conj", &[x]) } else { Ok(x) }
}

fn times(s: &Scope, g: &Grad<'_>, slope: Output) -> Result<Vec<Option<GradValue>>> {
    dense([mul(s, g.dy[0], slope)?])
}

/// One less the square of the input.
fn less_square(s: &Scope, g: &Grad<'_>) -> Result<Output> {
    let x = conj(s, g.inputs[0])?;
    sub(s, s.constant_of(s.dtype(x)?, 1.0)?, square(s, x)?)
}

/// The gradient of the error function: the bell curve of which it is the area.
fn bell(s: &Scope, g: &Grad<'_>, sign: f64) -> Result<Vec<Option<GradValue>>> {
    let curve = exp(s, neg(s, square(s, g.inputs[0])?)?)?;
    times(s, g, scale(s, curve, sign * std::f64::consts::FRAC_2_SQRT_PI)?)
}

fn from_output(s: &Scope, g: &Grad<'_>, op: &str) -> Result<Vec<Option<GradValue>>> {
    dense([s.op(op, &[g.outputs[0], g.dy[0]])?])
}

fn from_conjugate(s: &Scope, g: &Grad<'_>, op: &str) -> Result<Vec<Option<GradValue>>> {
    dense([s.op(op, &[conj(s, g.outputs[0])?, g.dy[0]])?])
}

fn tanh_grad_gradient(s: &Scope, g: &Grad<'_>) -> Result<Vec<Option<GradValue>>> {
    let (a, b) = (conj(s, g.inputs[0])?, conj(s, g.inputs[1])?);
    let first = mul(s, mul(s, scale(s, g.dy[0], -2.0)?, b)?, a)?;
    dense([first, s.op("TanhGrad", &[a, g.dy[0]])?])
}

fn sigmoid_grad_gradient(s: &Scope, g: &Grad<'_>) -> Result<Vec<Option<GradValue>>> {
    let (a, b) = (conj(s, g.inputs[0])?, conj(s, g.inputs[1])?);
    let product = mul(s, g.dy[0], b)?;
    let first = sub(s, product, mul(s, scale(s, product, 2.0)?, a)?)?;
    dense([first, s.op("SigmoidGrad", &[a, g.dy[0]])?])
}

fn sqrt_grad_gradient(s: &Scope, g: &Grad<'_>) -> Result<Vec<Option<GradValue>>> {
    let quotient = s.op("RealDiv", &[g.dy[0], g.inputs[0]])?;
    let first = mul(s, neg(s, conj(s, quotient)?)?, g.outputs[0])?;
    dense([first, scale(s, quotient, 0.5)?])
}

fn rsqrt_grad_gradient(s: &Scope, g: &Grad<'_>) -> Result<Vec<Option<GradValue>>> {
    let (a, grad) = (conj(s, g.inputs[0])?, conj(s, g.dy[0])?);
    let first = mul(s, mul(s, scale(s, grad, -1.5)?, g.inputs[1])?, square(s, a)?)?;
    dense([first, s.op("RsqrtGrad", &[a, g.dy[0]])?])
}

fn reciprocal_grad_gradient(s: &Scope, g: &Grad<'_>) -> Result<Vec<Option<GradValue>>> {
    let (a, grad) = (conj(s, g.inputs[0])?, conj(s, g.dy[0])?);
    let first = mul(s, mul(s, scale(s, grad, -2.0)?, g.inputs[1])?, a)?;
    dense([first, s.op("ReciprocalGrad", &[a, g.dy[0]])?])
}

/// Kernels that map each element by itself.
macro_rules! maps {
    ($($name:ident: $kernel:ident, $bound:ident, $f:expr;)*) => {$(
        struct $name;
        impl $kernel for $name {
            fn compute<T: $bound>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
                map_each::<T>(ctx, $f)
            }
        }
    )*};
}
maps! {
    AbsKernel: NumberKernel, Number, T::abs;
    NegKernel: NumberKernel, Number, T::neg;
    SignKernel: NumberKernel, Number, T::sign;
    SquareKernel: NumberKernel, Number, T::square;
    ConjKernel: FieldKernel, Field, T::conj;
    FloorKernel: RealKernel, Real, T::floor;
    CeilKernel: RealKernel, Real, T::ceil;
    RoundKernel: RealKernel, Real, T::round;
    ErfKernel: FloatKernel, Float, T::erf;
    ErfcKernel: FloatKernel, Float, T::erfc;
}

struct FunctionKernel(FieldFunction);
impl FieldKernel for FunctionKernel {
    fn compute<T: Field>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let mut x = ctx.take(0);
        if x.num_elements() > 1 && x.is_unique() {
            let mut y = x.into_owned::<T>()?;
            apply_in_place(ctx.pool(), self.0, &mut y);
            return ctx.set_output(0, y);
        }
        let mut y = OwnedTensor::<T>::new(x.shape())?;
        apply(ctx.pool(), self.0, x.as_slice::<T>()?, &mut y);
        ctx.set_output(0, y)
    }
}

/// Kernels of an output and its gradient.
macro_rules! backwards {
    ($($name:ident: $f:expr;)*) => {$(
        #[derive(Clone, Copy)]
        struct $name;
        impl FieldKernel for $name {
            fn compute<T: Field>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
                map_in_order::<T>(ctx, $f)
            }
        }
    )*};
}
backwards! {
    TanhGradKernel: |y: T, dy: T| dy.mul(T::ONE.sub(y.mul(y)));
    SigmoidGradKernel: |y: T, dy: T| dy.mul(y).mul(T::ONE.sub(y));
    SqrtGradKernel: |y: T, dy: T| dy.mul(T::from_f64(0.5)).div(y.conj());
    RsqrtGradKernel: |y: T, dy: T| {
        let y = y.conj();
        dy.mul(T::from_f64(-0.5)).mul(y).mul(y.mul(y))
    };
    ReciprocalGradKernel: |y: T, dy: T| {
        let y = y.conj();
        dy.neg().mul(y).mul(y)
    };
}

#[cfg(test)]
mod tests {
    use crate::array::testing::eval;
    use tensor::{Code, Tensor};

    #[test]
    fn halves_round_to_even_and_integers_to_themselves() {
        let x = Tensor::from([0.5f32, 1.5, -2.5, 2.6]);
        assert_eq!(eval("Round", &[x], &[]).unwrap()[0], Tensor::from([0.0f32, 2.0, -2.0, 3.0]));
        let x = Tensor::from([-3i32, 0, 7]);
        assert_eq!(eval("Round", std::slice::from_ref(&x), &[]).unwrap()[0], x);
    }

    #[test]
    fn the_gradient_of_a_function_wants_as_many_elements_and_has_the_first_shape() {
        // TensorFlow's TanhGrad of 0..6 as [2,3] and 0..6 as [3,2].
        let y = Tensor::from([[0.0f32, 1.0, 2.0], [3.0, 4.0, 5.0]]);
        let dy = Tensor::from([[0.0f32, 1.0], [2.0, 3.0], [4.0, 5.0]]);
        let want = Tensor::from([[0.0f32, 0.0, -6.0], [-24.0, -60.0, -120.0]]);
        assert_eq!(eval("TanhGrad", &[y, dy], &[]).unwrap()[0], want);
        let (one, three) = (Tensor::from([2.0f32]), Tensor::from([1.0f32, 2.0, 3.0]));
        for op in ["TanhGrad", "SigmoidGrad", "SqrtGrad", "RsqrtGrad", "ReciprocalGrad"] {
            for (a, b, counts) in [(&one, &three, "got 1 and 3"), (&three, &one, "got 3 and 1")] {
                let refused = eval(op, &[a.clone(), b.clone()], &[]).unwrap_err();
                assert_eq!(refused.code, Code::InvalidArgument);
                assert!(refused.message.contains(counts), "{op}: {refused}");
            }
            let y = eval(op, &[one.clone(), Tensor::scalar(3.0f32)], &[]).unwrap().remove(0);
            assert_eq!(y.dims(), [1], "{op}");
        }
    }
}

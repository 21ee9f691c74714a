//! `+ - * /` between outputs, variables and plain numbers.

use crate::{Graph, Output, Variable};
use std::ops::{Add, Div, Mul, Neg, Sub};
use tensor::{DType, Result, Tensor, invalid};

/// What may stand beside an `Output`: another one, a variable, a tensor, or a number that takes the other's type.
pub trait Operand {
    /// As an output to combine with `other`; a constant made for it is called `name`.
    fn output_like(&self, other: &Output, name: &str) -> Output;
}

impl Operand for Output {
    fn output_like(&self, _: &Output, _: &str) -> Output {
        self.clone()
    }
}

impl Operand for Variable {
    fn output_like(&self, _: &Output, _: &str) -> Output {
        Output::clone(self)
    }
}

impl Operand for Tensor {
    #[track_caller]
    fn output_like(&self, other: &Output, name: &str) -> Output {
        constant(other.graph(), name, Ok(self.clone()))
    }
}

impl<T: Operand + ?Sized> Operand for &T {
    #[track_caller]
    fn output_like(&self, other: &Output, name: &str) -> Output {
        T::output_like(self, other, name)
    }
}

#[track_caller]
fn constant(graph: &Graph, name: &str, value: Result<Tensor>) -> Output {
    graph.output([], |s, []| {
        let value = value?;
        s.node("Const").name(name).attr("dtype", value.dtype()).attr("value", value).output()
    })
}

/// Builds `op` over both, called `name` as TensorFlow's operators are, a constant made for it inside `name/`.
#[track_caller]
fn binary(op: &str, name: &str, graph: &Graph, x: impl FnOnce() -> Output, y: impl FnOnce() -> Output) -> Output {
    let s = graph.scope();
    let full = s.unique_name(name);
    let (x, y) = graph.here(|| s.with_absolute_name(&full, || (x(), y())));
    graph.output([&x, &y], |s, inputs| s.node(op).name(full + "/").inputs(&inputs).output())
}

/// The op that divides: integers round down to zero in `Div`, everything else is divided as real numbers.
fn division(dtype: DType) -> &'static str {
    if dtype.is_integer() { "Div" } else { "RealDiv" }
}

/// Implements one operator for outputs and variables on the left.
macro_rules! operator {
    ($Trait:ident, $method:ident, $name:literal, $op:expr) => {
        operator!($Trait, $method, $name, $op, Output);
        operator!($Trait, $method, $name, $op, &Output);
        operator!($Trait, $method, $name, $op, Variable);
        operator!($Trait, $method, $name, $op, &Variable);
    };
    ($Trait:ident, $method:ident, $name:literal, $op:expr, $Left:ty) => {
        impl<R: Operand> $Trait<R> for $Left {
            type Output = Output;
            #[track_caller]
            fn $method(self, right: R) -> Output {
                let op: fn(DType) -> &'static str = $op;
                let (graph, left) = (self.graph().clone(), Output::from(&self));
                binary(op(left.dtype()), $name, &graph, || left.clone(), || right.output_like(&left, "y"))
            }
        }
    };
}
operator!(Add, add, "add", |_| "AddV2");
operator!(Sub, sub, "sub", |_| "Sub");
operator!(Mul, mul, "mul", |_| "Mul");
operator!(Div, div, "truediv", division);

impl From<&&Output> for Output {
    fn from(output: &&Output) -> Output {
        (*output).clone()
    }
}

impl From<&&Variable> for Output {
    fn from(variable: &&Variable) -> Output {
        Output::clone(variable)
    }
}

/// Implements operands and left-hand sides for plain numbers.
macro_rules! numbers {
    ($($T:ty)*) => {$(
        impl Operand for $T {
            #[track_caller]
            fn output_like(&self, other: &Output, name: &str) -> Output {
                let whole = self.fract_is_zero();
                let value = match other.dtype() {
                    dtype if dtype.is_integer() && !whole => {
                        Err(invalid!("{self} is no {dtype}, which {} is made of", other.name()))
                    }
                    dtype => framework::scope::scalar_of(dtype, *self as f64),
                };
                constant(other.graph(), name, value)
            }
        }
    )*};
}
numbers!(f32 f64 i32 i64);

/// Implements the operators for numbers on the left. One floating and one whole type, so that the compiler knows at
/// once what `2.0 * &x` is; on the right, any number will do.
macro_rules! left {
    ($($T:ty)*) => {$(
        left!($T, Add, add, "add", |_| "AddV2");
        left!($T, Sub, sub, "sub", |_| "Sub");
        left!($T, Mul, mul, "mul", |_| "Mul");
        left!($T, Div, div, "truediv", division);
    )*};
    ($T:ty, $Trait:ident, $method:ident, $name:literal, $op:expr) => {
        left!($T, $Trait, $method, $name, $op, Output);
        left!($T, $Trait, $method, $name, $op, &Output);
        left!($T, $Trait, $method, $name, $op, &Variable);
    };
    ($T:ty, $Trait:ident, $method:ident, $name:literal, $op:expr, $Right:ty) => {
        impl $Trait<$Right> for $T {
            type Output = Output;
            #[track_caller]
            fn $method(self, right: $Right) -> Output {
                let op: fn(DType) -> &'static str = $op;
                let right = Output::from(&right);
                let graph = right.graph().clone();
                binary(op(right.dtype()), $name, &graph, || self.output_like(&right, "x"), || right.clone())
            }
        }
    };
}
left!(f64 i32);

/// Whether a number may stand beside integers.
trait Whole {
    fn fract_is_zero(&self) -> bool;
}
impl Whole for f32 {
    fn fract_is_zero(&self) -> bool {
        self.fract() == 0.0
    }
}
impl Whole for f64 {
    fn fract_is_zero(&self) -> bool {
        self.fract() == 0.0
    }
}
impl Whole for i32 {
    fn fract_is_zero(&self) -> bool {
        true
    }
}
impl Whole for i64 {
    fn fract_is_zero(&self) -> bool {
        true
    }
}

impl Neg for &Output {
    type Output = Output;
    #[track_caller]
    fn neg(self) -> Output {
        self.unary("Neg")
    }
}

impl Neg for Output {
    type Output = Output;
    #[track_caller]
    fn neg(self) -> Output {
        self.unary("Neg")
    }
}

impl Neg for &Variable {
    type Output = Output;
    #[track_caller]
    fn neg(self) -> Output {
        self.unary("Neg")
    }
}

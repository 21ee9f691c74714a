//! `_UnaryOpsComposition`: functions of one number applied one after the other, as TensorFlow's optimizer joins them.

use super::pairs::map_each;
use framework::shapes::unchanged;
use framework::typed::{FloatKernel, floats};
use framework::{Float, KernelBuild, KernelContext, Op};
use tensor::{Result, unsupported};

/// The ops of this file.
pub fn ops() -> Vec<Op> {
    vec![
        Op::new("_UnaryOpsComposition")
            .input("x: T")
            .output("y: T")
            .attr("T: {float, half, double}")
            .attr("op_names: list(string)")
            .shape(unchanged)
            .kernel(floats(Composition::new)),
    ]
}

struct Composition {
    names: Vec<String>,
}

impl Composition {
    fn new(b: &KernelBuild<'_>) -> Result<Composition> {
        let names: Vec<String> = b.attr("op_names")?;
        match names.iter().find(|name| by_name::<f32>(name).is_none()) {
            Some(unknown) => Err(unsupported!("Unknown unary op in composition: {unknown}")),
            None => Ok(Composition { names }),
        }
    }
}

impl FloatKernel for Composition {
    fn compute<T: Float>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let functions: Vec<fn(T) -> T> = self.names.iter().filter_map(|name| by_name::<T>(name)).collect();
        map_each(ctx, |x: T| functions.iter().fold(x, |x, f| f(x)))
    }
}

/// The function that an op of this name computes.
fn by_name<T: Float>(name: &str) -> Option<fn(T) -> T> {
    Some(match name {
        "Abs" => T::abs,
        "Acos" => T::acos,
        "Acosh" => T::acosh,
        "Asin" => T::asin,
        "Asinh" => T::asinh,
        "Atan" => T::atan,
        "Atanh" => T::atanh,
        "Ceil" => T::ceil,
        "Cos" => T::cos,
        "Cosh" => T::cosh,
        "Elu" => T::elu,
        "Erf" => T::erf,
        "Exp" => T::exp,
        "Expm1" => T::expm1,
        "Floor" => T::floor,
        "Inv" | "Reciprocal" => T::recip,
        "Log" => T::log,
        "Log1p" => T::log1p,
        "Neg" => T::neg,
        "Relu" => |x| T::max(x, T::ZERO),
        "Relu6" => |x| T::min(T::max(x, T::ZERO), T::from_f64(6.0)),
        "Rint" | "Round" => T::round,
        "Rsqrt" => T::rsqrt,
        "Selu" => |x| {
            let (alpha, scale) = (T::from_f64(1.673_263_242_354_377_2), T::from_f64(1.050_700_987_355_480_5));
            if x > T::ZERO { scale.mul(x) } else { scale.mul(alpha).mul(x.expm1()) }
        },
        "Sigmoid" => T::sigmoid,
        "Sign" => T::sign,
        "Sin" => T::sin,
        "Sinh" => T::sinh,
        "Softplus" => T::softplus,
        "Softsign" => T::softsign,
        "Sqrt" => T::sqrt,
        "Square" => T::square,
        "Tan" => T::tan,
        "Tanh" => T::tanh,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use crate::array::testing::eval;
    use framework::Attr;
    use tensor::{Code, Tensor};

    #[test]
    fn functions_are_applied_in_their_order() {
        let names =
            |names: &[&str]| [("op_names", Attr::Strings(names.iter().map(|n| (*n).to_string().into()).collect()))];
        let x = Tensor::from([4.0f32, 9.0]);
        let y = eval("_UnaryOpsComposition", std::slice::from_ref(&x), &names(&["Sqrt", "Neg", "Square"])).unwrap();
        assert_eq!(y[0], x);
        let error = eval("_UnaryOpsComposition", &[x], &names(&["Sqrt", "Nothing"])).unwrap_err();
        assert_eq!(error.code, Code::Unimplemented);
    }
}

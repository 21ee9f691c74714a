//! `CheckNumerics`: passes a tensor on if every element is finite.

use framework::gradient::GradValue;
use framework::shapes::unchanged;
use framework::typed::{FloatKernel, wide_floats};
use framework::{Float, Grad, KernelContext, Op, Output, Scope};
use tensor::{Result, invalid};

/// The ops of this file.
pub fn ops() -> Vec<Op> {
    vec![
        Op::new("CheckNumerics")
            .input("tensor: T")
            .output("output: T")
            .attr("T: {bfloat16, half, float, double}")
            .attr("message: string")
            .stateful()
            .shape(unchanged)
            .kernel(wide_floats(|b| Ok(CheckNumerics { message: b.attr("message")? })))
            .gradient(gradient),
    ]
}

/// The tensor itself; an error that starts with `message` when it runs and finds NaN or infinity.
pub fn check_numerics(s: &Scope, x: Output, message: &str) -> Result<Output> {
    s.node("CheckNumerics").input(x).attr("message", message).output()
}

fn gradient(s: &Scope, g: &Grad<'_>) -> Result<Vec<Option<GradValue>>> {
    let message: String = g.attr(s, "message")?;
    let message = format!("Not a number (NaN) or infinity (Inf) values detected in gradient. {message}");
    Ok(vec![Some(check_numerics(s, g.dy[0], &message)?.into())])
}

struct CheckNumerics {
    message: String,
}

impl FloatKernel for CheckNumerics {
    fn compute<T: Float>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let values = ctx.input(0).as_slice::<T>()?;
        if !values.iter().all(|x| x.is_finite()) {
            let (nan, inf) = (values.iter().any(|x| x.is_nan()), values.iter().any(|x| x.is_infinite()));
            let found = match (nan, inf) {
                (true, true) => "Inf and NaN",
                (true, false) => "NaN",
                _ => "Inf",
            };
            return Err(invalid!("{} : Tensor had {found} values", self.message));
        }
        let x = ctx.take(0);
        ctx.set_output(0, x)
    }
}

#[cfg(test)]
mod tests {
    use crate::array::testing::eval;
    use tensor::{Code, Tensor};

    #[test]
    fn the_error_says_what_was_found() {
        let check = |x: Tensor| eval("CheckNumerics", &[x], &[("message", "loss".into())]);
        assert!(check([1.0f32, 2.0].into()).is_ok());
        let error = check([1.0f32, f32::NAN].into()).unwrap_err();
        assert_eq!(error.code, Code::InvalidArgument);
        assert!(error.message.contains("loss : Tensor had NaN values"), "{error}");
        assert!(check([f64::INFINITY].into()).unwrap_err().message.contains("had Inf values"));
    }
}

//! `StringToNumber`: the number that each string spells.

use framework::typed::{RealKernel, reals_by};
use framework::{KernelContext, Op, Real, shapes};
use std::any::Any;
use std::str::FromStr;
use std::sync::Arc;
use tensor::{Result, invalid};

/// The ops of this file.
pub fn ops() -> Vec<Op> {
    vec![
        Op::new("StringToNumber")
            .input("string_tensor: string")
            .output("output: out_type")
            .attr("out_type: {float, double, int32, int64, uint32, uint64} = float")
            .shape(shapes::unchanged)
            .not_differentiable()
            .kernel(Arc::new(|b| reals_by(b, "out_type", ToNumber))),
    ]
}

struct ToNumber;

impl RealKernel for ToNumber {
    fn compute<T: Real>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let mut output = ctx.allocate::<T>(ctx.input(0).shape())?;
        for (o, text) in output.iter_mut().zip(ctx.input(0).as_strings()?) {
            let spelled = std::str::from_utf8(text).ok().and_then(|t| number::<T>(t.trim()));
            *o = spelled.ok_or_else(|| {
                invalid!("StringToNumberOp could not correctly convert string: {}", String::from_utf8_lossy(text))
            })?;
        }
        ctx.set_output(0, output)
    }
}

/// A number as C's functions read it.
fn number<T: Real>(text: &str) -> Option<T> {
    fn parse<P: FromStr + Any, T: Any + Copy>(text: &str) -> Option<Option<T>> {
        let is_wanted = std::any::TypeId::of::<P>() == std::any::TypeId::of::<T>();
        is_wanted.then(|| text.parse::<P>().ok().and_then(|p| (&p as &dyn Any).downcast_ref::<T>().copied()))
    }
    let integer = text.strip_prefix('+').unwrap_or(text);
    parse::<f32, T>(text)
        .or_else(|| parse::<f64, T>(text))
        .or_else(|| parse::<i32, T>(integer))
        .or_else(|| parse::<i64, T>(integer))
        .or_else(|| parse::<u32, T>(integer))
        .or_else(|| parse::<u64, T>(integer))
        .flatten()
}

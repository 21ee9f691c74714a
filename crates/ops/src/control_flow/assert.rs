//! `Assert`: ends the step when something does not hold.

use framework::kernel::kernel;
use framework::shapes::no_outputs;
use framework::{Kernel, KernelBuild, KernelContext, NodeId, Op, Output, Scope};
use std::fmt::{Display, LowerExp, Write as _};
use tensor::{DType, Element, Result, Tensor, bf16, f16, invalid};

pub fn ops() -> Vec<Op> {
    vec![
        Op::new("Assert")
            .input("condition: bool")
            .input("data: T")
            .attr("T: list(type) >= 1")
            .attr("summarize: int = 3")
            .stateful()
            .shape(no_outputs)
            .not_differentiable()
            .kernel(kernel(Assert::new)),
    ]
}

/// A node that fails, showing `data`, unless the condition holds.
pub fn assert(s: &Scope, condition: Output, data: &[Output]) -> Result<NodeId> {
    s.node("Assert").input(condition).inputs(data).build()
}

struct Assert {
    summarize: i64,
}

impl Assert {
    fn new(b: &KernelBuild<'_>) -> Result<Assert> {
        Ok(Assert { summarize: b.attr("summarize")? })
    }
}

impl Kernel for Assert {
    fn compute(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let condition = ctx.input(0);
        if !condition.shape().is_scalar() {
            return Err(invalid!("In[0] should be a scalar: {}", condition.shape()));
        }
        if condition.item::<bool>()? {
            return Ok(());
        }
        let limit = usize::try_from(self.summarize).unwrap_or(usize::MAX);
        let data: Vec<String> = (1..ctx.num_inputs()).map(|i| format!("[{}]", summary(ctx.input(i), limit))).collect();
        Err(invalid!("assertion failed: {}", data.join(" ")))
    }
}

/// The first `limit` elements, with brackets around all dimensions but the first.
pub(super) fn summary(tensor: &Tensor, limit: usize) -> String {
    let mut text = String::new();
    if tensor.num_elements() > 0 {
        write_dims(&mut text, tensor, tensor.dims(), true, limit, &mut 0);
    }
    if tensor.num_elements() > limit {
        text.push_str("...");
    }
    text
}

fn write_dims(text: &mut String, tensor: &Tensor, dims: &[usize], is_first: bool, limit: usize, shown: &mut usize) {
    let (count, inner) = dims.split_first().map_or((1, &[][..]), |(&count, inner)| (count, inner));
    for i in 0..count {
        if *shown >= limit {
            if inner.is_empty() && !is_first {
                text.push_str("...");
            }
            return;
        }
        if inner.is_empty() {
            if i > 0 {
                text.push(' ');
            }
            write_element(text, tensor, *shown);
            *shown += 1;
        } else {
            text.push('[');
            write_dims(text, tensor, inner, false, limit, shown);
            text.push(']');
        }
    }
}

fn write_element(text: &mut String, t: &Tensor, i: usize) {
    fn at<T: Element>(t: &Tensor, i: usize) -> T {
        t.as_slice::<T>().map_or(T::default(), |s| s[i])
    }
    fn show(text: &mut String, value: impl Display) {
        let _ = write!(text, "{value}");
    }
    match t.dtype() {
        DType::F32 => text.push_str(&shortest_f32(at(t, i))),
        DType::F16 => text.push_str(&shortest_f32(at::<f16>(t, i).to_f32())),
        DType::BF16 => text.push_str(&shortest_f32(at::<bf16>(t, i).to_f32())),
        DType::F64 => text.push_str(&shortest_f64(at(t, i))),
        DType::I8 => show(text, at::<i8>(t, i)),
        DType::I16 => show(text, at::<i16>(t, i)),
        DType::I32 => show(text, at::<i32>(t, i)),
        DType::I64 => show(text, at::<i64>(t, i)),
        DType::U8 => show(text, at::<u8>(t, i)),
        DType::U16 => show(text, at::<u16>(t, i)),
        DType::U32 => show(text, at::<u32>(t, i)),
        DType::U64 => show(text, at::<u64>(t, i)),
        DType::Bool => show(text, u8::from(at::<bool>(t, i))),
        DType::String => show(text, t.as_strings().map_or(String::new(), |s| escaped(&s[i]))),
        _ => text.push('?'),
    }
}

/// Control characters, quotes and backslashes as in C; everything else as it is.
fn escaped(bytes: &[u8]) -> String {
    let mut text = String::new();
    for c in String::from_utf8_lossy(bytes).chars() {
        match c {
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            '\'' | '"' | '\\' => text.extend(['\\', c]),
            c if c.is_ascii_control() => {
                let _ = write!(text, "\\{:03o}", c as u32);
            }
            c => text.push(c),
        }
    }
    text
}

/// Six digits if they tell the value, nine otherwise.
fn shortest_f32(value: f32) -> String {
    let short = general(value, 6);
    if short.parse::<f32>() == Ok(value) { short } else { general(value, 9) }
}

/// Fifteen digits if they tell the value, seventeen otherwise.
fn shortest_f64(value: f64) -> String {
    let short = general(value, 15);
    if short.parse::<f64>() == Ok(value) { short } else { general(value, 17) }
}

/// As C's `%.*g`: so many significant digits, without trailing zeros, with an exponent where that is shorter.
fn general(value: impl LowerExp + Display + Into<f64> + Copy, digits: usize) -> String {
    if !value.into().is_finite() {
        return value.to_string().to_ascii_lowercase();
    }
    let scientific = format!("{value:.*e}", digits - 1);
    let Some((mantissa, exponent)) = scientific.split_once('e') else { return scientific };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let trim =
        |s: &str| if s.contains('.') { s.trim_end_matches('0').trim_end_matches('.').to_string() } else { s.into() };
    if exponent < -4 || exponent >= digits as i32 {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", trim(mantissa), exponent.abs());
    }
    trim(&format!("{value:.*}", (digits as i32 - 1 - exponent).max(0) as usize))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::testing::eval;
    use tensor::Code;

    #[track_caller]
    fn fails(data: Tensor, limit: i64, want: &str) {
        let inputs = [Tensor::scalar(false), data];
        let error = eval("Assert", &inputs, &[("summarize", limit.into())]).unwrap_err();
        assert_eq!(error.code, Code::InvalidArgument);
        let line = error.message.lines().next().unwrap_or_default();
        assert_eq!(line, format!("assertion failed: {want}"));
    }

    /// The texts are those of TensorFlow 2.21 for the same data.
    #[test]
    fn a_failed_assertion_shows_its_data() {
        let x = Tensor::from((0..12).collect::<Vec<i64>>()).reshaped([2, 3, 2]).unwrap();
        fails(x.clone(), 3, "[[[0 1][2...]]...]");
        fails(x.clone(), 7, "[[[0 1][2 3][4 5]][[6...]]...]");
        fails(x.clone(), 0, "[...]");
        fails(x, -1, "[[[0 1][2 3][4 5]][[6 7][8 9][10 11]]]");
        fails(Tensor::from(["a", "b'\"\n", "c", "d"]), 3, "[a b\\'\\\"\\n c...]");
        fails(Tensor::from([1e20f32, f32::NAN, f32::INFINITY, 0.1]), 3, "[1e+20 nan inf...]");
        fails(Tensor::from([1.1f32, 100000.0, 1234567.0, 1e10, 1e21]), 9, "[1.1 100000 1234567 1e+10 1e+21]");
        fails(Tensor::from([1.0f64 / 3.0, 2.5]), 9, "[0.33333333333333331 2.5]");
        fails(Tensor::from([true, false]), 3, "[1 0]");
        fails(Tensor::zeros(DType::F64, [0, 3]).unwrap(), -1, "[]");
    }

    #[test]
    fn what_holds_passes() {
        assert!(eval("Assert", &[Tensor::scalar(true), Tensor::from("no")], &[]).unwrap().is_empty());
        assert!(eval("Assert", &[Tensor::from([true, true]), Tensor::from("no")], &[]).is_err());
    }
}

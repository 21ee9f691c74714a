//! `StringLength`: how long each string is, in bytes or in characters.

use framework::kernel::kernel;
use framework::{Kernel, KernelBuild, KernelContext, Op, shapes};
use tensor::Result;

/// The ops of this file.
pub fn ops() -> Vec<Op> {
    vec![
        Op::new("StringLength")
            .input("input: string")
            .output("output: int32")
            .attr("unit: {'BYTE', 'UTF8_CHAR'} = 'BYTE'")
            .shape(shapes::unchanged)
            .kernel(kernel(Length::new)),
    ]
}

struct Length {
    counts_characters: bool,
}

impl Length {
    fn new(b: &KernelBuild<'_>) -> Result<Length> {
        Ok(Length { counts_characters: b.attr::<String>("unit")? == "UTF8_CHAR" })
    }
}

impl Kernel for Length {
    fn compute(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let mut output = ctx.allocate::<i32>(ctx.input(0).shape())?;
        for (o, text) in output.iter_mut().zip(ctx.input(0).as_strings()?) {
            let length = match self.counts_characters {
                // Whatever is not a continuation starts a character, in broken text too.
                true => text.iter().filter(|&&b| b & 0xc0 != 0x80).count(),
                false => text.len(),
            };
            *o = i32::try_from(length).unwrap_or(i32::MAX);
        }
        ctx.set_output(0, output)
    }
}

#[cfg(test)]
mod tests {
    use crate::array::testing::eval;
    use tensor::Tensor;

    #[test]
    fn bytes_and_characters_are_counted() {
        let x = Tensor::from(["", "abc", "häß€"]);
        for (unit, want) in [("BYTE", [0i32, 3, 8]), ("UTF8_CHAR", [0, 3, 4])] {
            let y = eval("StringLength", std::slice::from_ref(&x), &[("unit", unit.into())]).unwrap();
            assert_eq!(y[0], Tensor::from(want), "{unit}");
        }
    }
}

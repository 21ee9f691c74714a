//! `Substr`: a piece of each string, by its place and length.

use crate::math::pairs::positions;
use bytes::Bytes;
use framework::kernel::kernel;
use framework::{InferenceContext, Kernel, KernelBuild, KernelContext, Op};
use tensor::{PartialShape, Result, Tensor, broadcast_partial, invalid};

/// The ops of this file.
pub fn ops() -> Vec<Op> {
    vec![
        Op::new("Substr")
            .input("input: string")
            .input("pos: T")
            .input("len: T")
            .output("output: string")
            .attr("T: indextype")
            .attr("unit: {'BYTE', 'UTF8_CHAR'} = 'BYTE'")
            .shape(shape)
            .kernel(kernel(Substr::new)),
    ]
}

fn shape(c: &InferenceContext<'_>) -> Result<Vec<PartialShape>> {
    let place = c.input(1).merge(c.input(2))?;
    Ok(vec![broadcast_partial(c.input(0), &place)?])
}

struct Substr {
    counts_characters: bool,
}

impl Substr {
    fn new(b: &KernelBuild<'_>) -> Result<Substr> {
        Ok(Substr { counts_characters: b.attr::<String>("unit")? == "UTF8_CHAR" })
    }

    /// The piece of a string; a negative position counts from the end, and what is beyond the end is left out.
    fn piece(&self, text: &Bytes, position: i64, length: i64) -> Result<Bytes> {
        // Where units start, the end included.
        let starts: Vec<usize> = match self.counts_characters {
            true => (0..text.len()).filter(|&i| text[i] & 0xc0 != 0x80).chain([text.len()]).collect(),
            false => Vec::new(),
        };
        let units = if self.counts_characters { starts.len() - 1 } else { text.len() } as i64;
        let from = if position < 0 { position + units } else { position };
        if !(0..=units).contains(&from) {
            let shown = String::from_utf8_lossy(text);
            return Err(invalid!("pos {position} out of range for string b'{shown}' at index 0"));
        }
        let to = from.saturating_add(length.max(0)).min(units);
        let at = |unit: i64| if self.counts_characters { starts[unit as usize] } else { unit as usize };
        Ok(text.slice(at(from)..at(to)))
    }
}

impl Kernel for Substr {
    fn compute(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let (text, position, length) = (ctx.input(0), ctx.input(1), ctx.input(2));
        if position.shape() != length.shape() {
            return Err(invalid!(
                "pos and len should have the same shape, got: {} vs. {}",
                position.shape(),
                length.shape()
            ));
        }
        let (shape, pairs) = positions(text, position)?;
        let (strings, places, lengths) = (text.as_strings()?, position.to_i64s()?, length.to_i64s()?);
        let pieces = pairs.into_iter().map(|(i, j)| self.piece(&strings[i], places[j], lengths[j]));
        let output = Tensor::from_strings(shape, pieces.collect::<Result<_>>()?)?;
        ctx.set_output(0, output)
    }
}

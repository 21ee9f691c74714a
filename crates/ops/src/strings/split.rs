//! `StringSplit` and `StringSplitV2`: the parts of strings between separators, as a sparse matrix.

use bytes::Bytes;
use framework::kernel::kernel;
use framework::{Kernel, KernelContext, Op};
use tensor::{PartialShape, Result, Tensor, invalid};

/// The ops of this file.
pub fn ops() -> Vec<Op> {
    let op = |name: &str, separator: &str| {
        Op::new(name)
            .input("input: string")
            .input(&format!("{separator}: string"))
            .output("indices: int64")
            .output("values: string")
            .output("shape: int64")
            .shape(|c| {
                c.require_rank(0, 1)?;
                c.require_scalar(1)?;
                Ok(vec![[None, Some(2)].into(), PartialShape::of_rank(1), [2].into()])
            })
    };
    vec![
        op("StringSplit", "delimiter")
            .attr("skip_empty: bool = true")
            .not_differentiable()
            .kernel(kernel(|b| Ok(Split::AtAny { skips_empty: b.attr("skip_empty")? }))),
        op("StringSplitV2", "sep")
            .attr("maxsplit: int = -1")
            .kernel(kernel(|b| Ok(Split::At { most: b.attr("maxsplit")? }))),
    ]
}

/// What separates.
enum Split {
    /// Any of the bytes of the delimiter; without one, every byte is a part.
    AtAny { skips_empty: bool },
    /// The separator as a whole, so often at most; without one, any blanks.
    At { most: i64 },
}

impl Split {
    fn parts(&self, text: &Bytes, by: &[u8]) -> Vec<Bytes> {
        match self {
            Split::AtAny { .. } if text.is_empty() => Vec::new(),
            Split::AtAny { .. } if by.is_empty() => (0..text.len()).map(|i| text.slice(i..i + 1)).collect(),
            Split::AtAny { skips_empty } => {
                let parts = text.split(|b| by.contains(b)).filter(|part| !(*skips_empty && part.is_empty()));
                parts.map(|part| text.slice_ref(part)).collect()
            }
            Split::At { most } if by.is_empty() => at_blanks(text, *most),
            Split::At { most } => at_separator(text, by, *most),
        }
    }
}

/// What follows the last split allowed is a part of its own, even if nothing does.
fn at_blanks(text: &Bytes, most: i64) -> Vec<Bytes> {
    let mut parts = Vec::new();
    let mut rest = text.trim_ascii_start();
    while !rest.is_empty() {
        let end = rest.iter().position(u8::is_ascii_whitespace).unwrap_or(rest.len());
        parts.push(text.slice_ref(&rest[..end]));
        rest = rest[end..].trim_ascii_start();
        if most > 0 && parts.len() as i64 == most {
            parts.push(if rest.is_empty() { Bytes::new() } else { text.slice_ref(rest) });
            break;
        }
    }
    parts
}

fn at_separator(text: &Bytes, by: &[u8], most: i64) -> Vec<Bytes> {
    let (mut parts, mut start, mut at) = (Vec::new(), 0, 0);
    while at + by.len() <= text.len() && (most < 0 || (parts.len() as i64) < most) {
        if text[at..].starts_with(by) {
            parts.push(text.slice(start..at));
            at += by.len();
            start = at;
        } else {
            at += 1;
        }
    }
    parts.push(text.slice(start..));
    parts
}

impl Kernel for Split {
    fn compute(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let (input, by) = (ctx.input(0), ctx.input(1));
        if input.shape().rank() != 1 {
            return Err(invalid!("input must be a vector, got shape: {}", input.shape()));
        }
        if !by.shape().is_scalar() {
            return Err(invalid!("delimiter must be a scalar, got shape: {}", by.shape()));
        }
        let by = by.string_item()?.clone();
        let (mut indices, mut values, mut width) = (Vec::new(), Vec::new(), 0);
        for (row, text) in input.as_strings()?.iter().enumerate() {
            let parts = self.parts(text, &by);
            width = width.max(parts.len() as i64);
            indices.extend((0..parts.len()).flat_map(|column| [row as i64, column as i64]));
            values.extend(parts);
        }
        let rows = input.num_elements() as i64;
        ctx.set_output(0, Tensor::from_vec([values.len(), 2], indices)?)?;
        ctx.set_output(1, Tensor::from_strings([values.len()], values)?)?;
        ctx.set_output(2, Tensor::from([rows, width]))
    }
}

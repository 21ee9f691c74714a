//! `StringLower`, `StringUpper`, `StringStrip`: each string changed by itself.

use bytes::Bytes;
use framework::kernel::kernel;
use framework::{Kernel, KernelBuild, KernelContext, Op, shapes};
use tensor::{Result, Tensor, invalid};

/// The ops of this file.
pub fn ops() -> Vec<Op> {
    let op = |name: &str| Op::new(name).input("input: string").output("output: string").shape(shapes::unchanged);
    vec![
        op("StringLower").attr("encoding: string = ''").kernel(kernel(|b| Change::new(b, lower, str::to_lowercase))),
        op("StringUpper").attr("encoding: string = ''").kernel(kernel(|b| Change::new(b, upper, str::to_uppercase))),
        op("StringStrip").kernel(kernel(|_| Ok(Change { bytes: strip, text: None }))),
    ]
}

struct Change {
    bytes: fn(&[u8]) -> Vec<u8>,
    /// What is done instead where the bytes are read as UTF-8.
    text: Option<fn(&str) -> String>,
}

impl Change {
    fn new(b: &KernelBuild<'_>, bytes: fn(&[u8]) -> Vec<u8>, text: fn(&str) -> String) -> Result<Change> {
        match b.attr::<String>("encoding")?.as_str() {
            "" => Ok(Change { bytes, text: None }),
            "utf-8" => Ok(Change { bytes, text: Some(text) }),
            other => Err(invalid!("only utf-8 or '' (no encoding) is supported, found encoding '{other}'")),
        }
    }
}

fn lower(text: &[u8]) -> Vec<u8> {
    text.to_ascii_lowercase()
}

fn upper(text: &[u8]) -> Vec<u8> {
    text.to_ascii_uppercase()
}

/// Without the blanks of C at both ends.
fn strip(text: &[u8]) -> Vec<u8> {
    let is_blank = |b: &u8| matches!(b, b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c);
    let start = text.iter().position(|b| !is_blank(b)).unwrap_or(text.len());
    let end = text.iter().rposition(|b| !is_blank(b)).map_or(start, |last| last + 1);
    text[start..end].to_vec()
}

impl Kernel for Change {
    fn compute(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let input = ctx.input(0);
        let change = |text: &Bytes| match self.text {
            Some(change) => Bytes::from(change(&String::from_utf8_lossy(text))),
            None => Bytes::from((self.bytes)(text)),
        };
        let changed = input.as_strings()?.iter().map(change).collect();
        let output = Tensor::from_strings(input.shape().clone(), changed)?;
        ctx.set_output(0, output)
    }
}

//! `EncodeBase64` and `DecodeBase64`: bytes as letters that are safe in names and addresses, and back.

use bytes::Bytes;
use framework::kernel::{function, kernel};
use framework::{Kernel, KernelContext, Op, shapes};
use tensor::{Result, Tensor, invalid};

/// The ops of this file.
pub fn ops() -> Vec<Op> {
    let op = |name: &str| {
        Op::new(name).input("input: string").output("output: string").not_differentiable().shape(shapes::unchanged)
    };
    vec![
        op("EncodeBase64").attr("pad: bool = false").kernel(kernel(|b| Ok(Encode { pads: b.attr("pad")? }))),
        op("DecodeBase64").kernel(function(|ctx| {
            let input = ctx.input(0);
            let decoded = input.as_strings()?.iter().map(|text| decode(text).map(Bytes::from));
            let output = Tensor::from_strings(input.shape().clone(), decoded.collect::<Result<_>>()?)?;
            ctx.set_output(0, output)
        })),
    ]
}

/// The letters, with those that need no escaping in addresses.
const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

struct Encode {
    pads: bool,
}

impl Kernel for Encode {
    fn compute(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let input = ctx.input(0);
        let encoded = input.as_strings()?.iter().map(|bytes| Bytes::from(encode(bytes, self.pads))).collect();
        let output = Tensor::from_strings(input.shape().clone(), encoded)?;
        ctx.set_output(0, output)
    }
}

fn encode(bytes: &[u8], pads: bool) -> Vec<u8> {
    let mut letters = Vec::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let byte = |i: usize| u32::from(group.get(i).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        let letter = |i: usize| LETTERS[(bits >> (18 - 6 * i)) as usize & 63];
        letters.extend((0..=group.len()).map(letter));
        if pads {
            letters.extend(std::iter::repeat_n(b'=', 3 - group.len()));
        }
    }
    letters
}

fn decode(text: &[u8]) -> Result<Vec<u8>> {
    let end = text.iter().rposition(|&b| b != b'=').map_or(0, |last| last + 1);
    if text.len() - end > 2 || end % 4 == 1 || (end < text.len() && !text.len().is_multiple_of(4)) {
        return Err(invalid!("Base64 string length ({}) is not valid", text.len()));
    }
    let mut bytes = Vec::with_capacity(end * 3 / 4);
    let (mut bits, mut count) = (0u32, 0);
    for &letter in &text[..end] {
        let value = LETTERS.iter().position(|&l| l == letter);
        let value = value.ok_or_else(|| invalid!("Invalid character found in base64."))?;
        bits = bits << 6 | value as u32;
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
            bits &= (1 << count) - 1;
        }
    }
    Ok(bytes)
}

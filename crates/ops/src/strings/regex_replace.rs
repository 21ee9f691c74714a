//! `StaticRegexReplace` and `RegexReplace`: what matches a pattern, written anew.

use bytes::Bytes;
use framework::kernel::kernel;
use framework::{Kernel, KernelBuild, KernelContext, Op, shapes};
use regex::bytes::Regex;
use std::borrow::Cow;
use tensor::{Result, Tensor, invalid};

/// The ops of this file.
pub fn ops() -> Vec<Op> {
    vec![
        Op::new("StaticRegexReplace")
            .input("input: string")
            .output("output: string")
            .attr("pattern: string")
            .attr("rewrite: string")
            .attr("replace_global: bool = true")
            .shape(shapes::unchanged)
            .kernel(kernel(|b: &KernelBuild<'_>| {
                let (pattern, rewrite): (String, Bytes) = (b.attr("pattern")?, b.attr("rewrite")?);
                Ok(Replace { fixed: Some(Rewrite::new(&pattern, &rewrite)?), everywhere: b.attr("replace_global")? })
            })),
        Op::new("RegexReplace")
            .input("input: string")
            .input("pattern: string")
            .input("rewrite: string")
            .output("output: string")
            .attr("replace_global: bool = true")
            .shape(|c| {
                c.require_scalar(1)?;
                c.require_scalar(2)?;
                shapes::unchanged(c)
            })
            .kernel(kernel(|b| Ok(Replace { fixed: None, everywhere: b.attr("replace_global")? }))),
    ]
}

/// A pattern and what replaces it.
struct Rewrite {
    pattern: Regex,
    /// In this crate's notation.
    by: Vec<u8>,
}

impl Rewrite {
    fn new(pattern: &str, rewrite: &[u8]) -> Result<Rewrite> {
        let compiled = Regex::new(pattern).map_err(|e| invalid!("Invalid pattern: {pattern}, error: {e}"))?;
        Ok(Rewrite { pattern: compiled, by: translated(rewrite)? })
    }

    fn apply(&self, text: &Bytes, everywhere: bool) -> Bytes {
        let limit = if everywhere { 0 } else { 1 };
        match self.pattern.replacen(text, limit, self.by.as_slice()) {
            Cow::Borrowed(_) => text.clone(),
            Cow::Owned(new) => new.into(),
        }
    }
}

/// From RE2's notation, in which `\1` is the first group, to the one in which it is `${1}`.
fn translated(rewrite: &[u8]) -> Result<Vec<u8>> {
    let mut by = Vec::new();
    let mut bytes = rewrite.iter();
    while let Some(&b) = bytes.next() {
        match b {
            b'\\' => match bytes.next() {
                Some(digit) if digit.is_ascii_digit() => by.extend([b'$', b'{', *digit, b'}']),
                Some(b'\\') => by.push(b'\\'),
                _ => return Err(invalid!("Invalid rewrite: a backslash is followed by neither a digit nor another")),
            },
            b'$' => by.extend(b"$$"),
            other => by.push(other),
        }
    }
    Ok(by)
}

struct Replace {
    /// Else inputs 1 and 2 say it.
    fixed: Option<Rewrite>,
    everywhere: bool,
}

impl Kernel for Replace {
    fn compute(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let given;
        let rewrite = match &self.fixed {
            Some(rewrite) => rewrite,
            None => {
                let pattern = std::str::from_utf8(ctx.input(1).string_item()?);
                let pattern = pattern.map_err(|_| invalid!("a pattern is not UTF-8"))?;
                given = Rewrite::new(pattern, ctx.input(2).string_item()?)?;
                &given
            }
        };
        let input = ctx.input(0);
        let strings = input.as_strings()?.iter().map(|text| rewrite.apply(text, self.everywhere)).collect();
        let output = Tensor::from_strings(input.shape().clone(), strings)?;
        ctx.set_output(0, output)
    }
}

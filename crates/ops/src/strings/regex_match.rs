//! `StaticRegexFullMatch`: whether each string as a whole matches a pattern that the node holds.
//!
//! Patterns are RE2's; the syntax of the `regex` crate is nearly the same, and what differs is refused as a bad
//! pattern rather than matched otherwise.

use framework::kernel::kernel;
use framework::{Kernel, KernelBuild, KernelContext, Op, shapes};
use regex::bytes::Regex;
use tensor::{Result, invalid};

/// The ops of this file.
pub fn ops() -> Vec<Op> {
    vec![
        Op::new("StaticRegexFullMatch")
            .input("input: string")
            .output("output: bool")
            .attr("pattern: string")
            .shape(shapes::unchanged)
            .kernel(kernel(FullMatch::new)),
    ]
}

struct FullMatch(Regex);

impl FullMatch {
    fn new(b: &KernelBuild<'_>) -> Result<FullMatch> {
        let pattern: String = b.attr("pattern")?;
        // Compiled alone first: a pattern must not close the group that is put around it.
        let compiled = Regex::new(&pattern).and_then(|_| Regex::new(&format!(r"\A(?:{pattern})\z")));
        Ok(FullMatch(compiled.map_err(|e| invalid!("Invalid pattern: {pattern}, error: {e}"))?))
    }
}

impl Kernel for FullMatch {
    fn compute(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let mut output = ctx.allocate::<bool>(ctx.input(0).shape())?;
        for (o, text) in output.iter_mut().zip(ctx.input(0).as_strings()?) {
            *o = self.0.is_match(text);
        }
        ctx.set_output(0, output)
    }
}

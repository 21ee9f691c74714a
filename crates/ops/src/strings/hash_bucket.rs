//! `StringToHashBucketFast`: which of a number of buckets each string falls into.

use super::fingerprint::fingerprint64;
use framework::kernel::kernel;
use framework::{Kernel, KernelContext, Op, shapes};
use tensor::Result;

/// The ops of this file.
pub fn ops() -> Vec<Op> {
    vec![
        Op::new("StringToHashBucketFast")
            .input("input: string")
            .output("output: int64")
            .attr("num_buckets: int >= 1")
            .shape(shapes::unchanged)
            .not_differentiable()
            .kernel(kernel(|b| Ok(HashBucketFast { num_buckets: b.attr::<i64>("num_buckets")? as u64 }))),
    ]
}

struct HashBucketFast {
    num_buckets: u64,
}

impl Kernel for HashBucketFast {
    fn compute(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let mut output = ctx.allocate::<i64>(ctx.input(0).shape())?;
        for (o, text) in output.iter_mut().zip(ctx.input(0).as_strings()?) {
            *o = (fingerprint64(text) % self.num_buckets.max(1)) as i64;
        }
        ctx.set_output(0, output)
    }
}

//! `StringToHashBucketFast` and `StringToHashBucketStrong`: which of a number of buckets each string falls into.

use super::fingerprint::fingerprint64;
use framework::kernel::kernel;
use framework::{Kernel, KernelBuild, KernelContext, Op, shapes};
use std::hash::Hasher;
use tensor::{Result, invalid};

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
        Op::new("StringToHashBucketStrong")
            .input("input: string")
            .output("output: int64")
            .attr("num_buckets: int >= 1")
            .attr("key: list(int)")
            .shape(shapes::unchanged)
            .not_differentiable()
            .kernel(kernel(HashBucketStrong::new)),
    ]
}

/// Buckets that nobody can aim at who does not know the key: SipHash.
struct HashBucketStrong {
    num_buckets: u64,
    key: [u64; 2],
}

impl HashBucketStrong {
    fn new(b: &KernelBuild<'_>) -> Result<HashBucketStrong> {
        let key: Vec<i64> = b.attr("key")?;
        let &[first, second] = key.as_slice() else {
            return Err(invalid!("Key must have 2 elements, found {}", key.len()));
        };
        let num_buckets = b.attr::<i64>("num_buckets")?.max(1) as u64;
        Ok(HashBucketStrong { num_buckets, key: [first as u64, second as u64] })
    }
}

impl Kernel for HashBucketStrong {
    #[allow(deprecated)] // std's SipHasher is the one with a given key
    fn compute(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let mut output = ctx.allocate::<i64>(ctx.input(0).shape())?;
        for (o, text) in output.iter_mut().zip(ctx.input(0).as_strings()?) {
            let mut hasher = std::hash::SipHasher::new_with_keys(self.key[0], self.key[1]);
            hasher.write(text);
            *o = (hasher.finish() % self.num_buckets) as i64;
        }
        ctx.set_output(0, output)
    }
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

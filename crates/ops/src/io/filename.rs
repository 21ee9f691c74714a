//! `ShardedFilename` and `ShardedFilespec`: the names of files that are written in parts.

use framework::kernel::function;
use framework::{InferenceContext, KernelContext, Op, shapes};
use tensor::{PartialShape, Result, Tensor};

/// The ops of this file.
pub fn ops() -> Vec<Op> {
    vec![
        Op::new("ShardedFilename")
            .input("basename: string")
            .input("shard: int32")
            .input("num_shards: int32")
            .output("filename: string")
            .shape(all_scalars)
            .kernel(function(filename)),
        Op::new("ShardedFilespec")
            .input("basename: string")
            .input("num_shards: int32")
            .output("filename: string")
            .shape(all_scalars)
            .kernel(function(filespec)),
    ]
}

fn all_scalars(c: &InferenceContext<'_>) -> Result<Vec<PartialShape>> {
    (0..c.num_inputs()).try_for_each(|i| c.require_scalar(i))?;
    shapes::scalar(c)
}

fn filename(ctx: &mut KernelContext<'_>) -> Result<()> {
    let (shard, count) = (ctx.input(1).item::<i32>()?, ctx.input(2).item::<i32>()?);
    let suffix = format!("-{shard:05}-of-{count:05}");
    let name = [&ctx.input(0).string_item()?[..], suffix.as_bytes()].concat();
    ctx.set_output(0, Tensor::string(name))
}

fn filespec(ctx: &mut KernelContext<'_>) -> Result<()> {
    let suffix = format!("-?????-of-{:05}", ctx.input(1).item::<i32>()?);
    let name = [&ctx.input(0).string_item()?[..], suffix.as_bytes()].concat();
    ctx.set_output(0, Tensor::string(name))
}

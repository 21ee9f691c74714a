//! `TensorSummaryV2`: a tensor under a tag, with a note of which dashboard understands it.

use super::{serialized, single_tag};
use framework::kernel::function;
use framework::{KernelContext, Op, shapes};
use prost::Message;
use proto::{SummaryMetadata, summary};
use tensor::{Result, invalid};

/// The ops of this file.
pub fn ops() -> Vec<Op> {
    vec![
        Op::new("TensorSummaryV2")
            .input("tag: string")
            .input("tensor: T")
            .input("serialized_summary_metadata: string")
            .output("summary: string")
            .attr("T: type")
            .shape(shapes::scalar)
            .not_differentiable()
            .kernel(function(tensor_summary)),
    ]
}

fn tensor_summary(ctx: &mut KernelContext<'_>) -> Result<()> {
    let tag = single_tag(ctx.input(0))?;
    let metadata = SummaryMetadata::decode(ctx.input(2).string_item()?.clone())
        .map_err(|e| invalid!("serialized_summary_metadata is not a SummaryMetadata message: {e}"))?;
    let value = summary::Value {
        tag,
        metadata: Some(metadata),
        value: Some(summary::value::Value::Tensor(ctx.input(1).to_proto())),
        ..Default::default()
    };
    ctx.set_output(0, serialized(vec![value]))
}

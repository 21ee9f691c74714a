//! `MergeSummary`: the values of several summaries in one.

use super::serialized;
use framework::kernel::function;
use framework::{KernelContext, Op, shapes};
use prost::Message;
use proto::Summary;
use std::collections::HashSet;
use tensor::{Result, invalid};

/// The ops of this file.
pub fn ops() -> Vec<Op> {
    vec![
        Op::new("MergeSummary")
            .input("inputs: N*string")
            .output("summary: string")
            .attr("N: int >= 1")
            .shape(shapes::scalar)
            .not_differentiable()
            .kernel(function(merge)),
    ]
}

fn merge(ctx: &mut KernelContext<'_>) -> Result<()> {
    let mut values = Vec::new();
    let mut tags = HashSet::new();
    for input in ctx.input_list(0..ctx.num_inputs()) {
        for bytes in input.as_strings()? {
            let summary = Summary::decode(bytes.clone())
                .map_err(|e| invalid!("Could not parse one of the summary inputs: {e}"))?;
            for value in summary.value {
                if !value.tag.is_empty() && !tags.insert(value.tag.clone()) {
                    return Err(invalid!("Duplicate tag {} found in summary inputs", value.tag));
                }
                values.push(value);
            }
        }
    }
    ctx.set_output(0, serialized(values))
}

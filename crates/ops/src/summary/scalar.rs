//! `ScalarSummary`: numbers under tags.

use super::{serialized, tag_text};
use framework::typed::{RealKernel, wide_reals};
use framework::{KernelContext, Op, Real, shapes};
use proto::summary;
use tensor::{Result, invalid};

/// The ops of this file.
pub fn ops() -> Vec<Op> {
    vec![
        Op::new("ScalarSummary")
            .input("tags: string")
            .input("values: T")
            .output("summary: string")
            .attr("T: realnumbertype")
            .shape(shapes::scalar)
            .not_differentiable()
            .kernel(wide_reals(|_| Ok(ScalarSummary))),
    ]
}

struct ScalarSummary;

impl RealKernel for ScalarSummary {
    fn compute<T: Real>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let (tags, values) = (ctx.input(0), ctx.input(1));
        let both_single = tags.num_elements() == 1 && values.num_elements() == 1;
        if tags.shape() != values.shape() && !both_single {
            return Err(invalid!(
                "tags and values are not the same shape: {} != {} (tag {:?})",
                tags.shape(),
                values.shape(),
                tags.as_strings()?.first().map(|t| String::from_utf8_lossy(t))
            ));
        }
        let values = tags.as_strings()?.iter().zip(values.as_slice::<T>()?).map(|(tag, value)| {
            Ok(summary::Value {
                tag: tag_text(tag)?,
                value: Some(summary::value::Value::SimpleValue(value.to_f64() as f32)),
                ..Default::default()
            })
        });
        let values = values.collect::<Result<_>>()?;
        ctx.set_output(0, serialized(values))
    }
}

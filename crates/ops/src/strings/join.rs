//! `StringJoin`: strings put together element by element, with a separator between them.

use bytes::Bytes;
use framework::kernel::kernel;
use framework::{InferenceContext, Kernel, KernelContext, Op, Output, Scope};
use tensor::{PartialShape, Result, Shape, Tensor, invalid};

/// The ops of this file.
pub fn ops() -> Vec<Op> {
    vec![
        Op::new("StringJoin")
            .input("inputs: N*string")
            .output("output: string")
            .attr("N: int >= 0")
            .attr("separator: string = ''")
            .shape(shape)
            .not_differentiable()
            .kernel(kernel(|b| Ok(StringJoin { separator: b.attr("separator")? }))),
    ]
}

/// Strings put together element by element; scalars go with every element.
pub fn string_join(s: &Scope, inputs: &[Output], separator: &str) -> Result<Output> {
    s.node("StringJoin").inputs(inputs).attr("N", inputs.len() as i64).attr("separator", separator).output()
}

fn shape(c: &InferenceContext<'_>) -> Result<Vec<PartialShape>> {
    let mut shape = PartialShape::scalar();
    for i in 0..c.num_inputs() {
        let input = c.input(i);
        match (shape.rank(), input.rank()) {
            (_, Some(0)) => {}
            (Some(0), _) => shape = input.clone(),
            _ => shape = shape.merge(input)?,
        }
    }
    // A shape that is not known at all may still turn out to be a scalar's.
    let is_open = (0..c.num_inputs()).any(|i| c.input(i).rank().is_none());
    Ok(vec![if is_open && shape.rank() == Some(0) { PartialShape::unknown() } else { shape }])
}

struct StringJoin {
    separator: Bytes,
}

impl Kernel for StringJoin {
    fn compute(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let mut shape: Option<&Shape> = None;
        for input in ctx.input_list(0..ctx.num_inputs()).filter(|i| !i.shape().is_scalar()) {
            match shape {
                Some(shape) if shape != input.shape() => {
                    return Err(invalid!("Input shapes do not match: {shape} vs. {}", input.shape()));
                }
                _ => shape = Some(input.shape()),
            }
        }
        let shape = shape.cloned().unwrap_or_default();
        let inputs: Vec<&[Bytes]> =
            ctx.input_list(0..ctx.num_inputs()).map(Tensor::as_strings).collect::<Result<_>>()?;

        let joined = (0..shape.num_elements()).map(|i| {
            let parts: Vec<&[u8]> =
                inputs.iter().map(|input| &input[if input.len() == 1 { 0 } else { i }][..]).collect();
            Bytes::from(parts.join(&self.separator[..]))
        });
        let joined = joined.collect();
        ctx.set_output(0, Tensor::from_strings(shape, joined)?)
    }
}

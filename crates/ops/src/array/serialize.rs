//! `SerializeTensor`, `ParseTensor` and `Bitcast`: tensors as bytes, and bytes as other tensors.

use framework::kernel::{function, kernel};
use framework::{Kernel, KernelBuild, KernelContext, Op, shapes};
use prost::Message;
use tensor::{DType, PartialShape, Result, Shape, Tensor, invalid};

pub fn ops() -> Vec<Op> {
    vec![
        Op::new("SerializeTensor")
            .input("tensor: T")
            .output("serialized: string")
            .attr("T: type")
            .not_differentiable()
            .shape(shapes::scalar)
            .kernel(function(|ctx| {
                let message = ctx.input(0).to_proto().encode_to_vec();
                ctx.set_output(0, Tensor::string(message))
            })),
        Op::new("ParseTensor")
            .input("serialized: string")
            .output("output: out_type")
            .attr("out_type: type")
            .not_differentiable()
            .shape(shapes::unknown)
            .kernel(kernel(|b| Ok(Parse { dtype: b.attr("out_type")? }))),
        Op::new("Bitcast")
            .input("input: T")
            .output("output: type")
            .attr("T: numbertype")
            .attr("type: numbertype")
            .shape(|c| {
                let (from, to): (DType, DType) = (c.attr("T")?, c.attr("type")?);
                let Some(dims) = c.input(0).dims() else { return shapes::unknown(c) };
                Ok(vec![match (from.size(), to.size()) {
                    (a, b) if a == b => c.input(0).clone(),
                    (a, b) if a > b => PartialShape::new(dims.iter().copied().chain([Some(a / b)])),
                    _ => PartialShape::new(dims[..dims.len().saturating_sub(1)].iter().copied()),
                }])
            })
            .kernel(kernel(|b: &KernelBuild<'_>| Ok(Bitcast { to: b.attr("type")? }))),
    ]
}

struct Parse {
    dtype: DType,
}

impl Kernel for Parse {
    fn compute(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let serialized = ctx.input(0);
        if !serialized.shape().is_scalar() {
            return Err(invalid!("Expected `serialized` to be a scalar, got shape: {}", serialized.shape()));
        }
        let message = proto::TensorProto::decode(serialized.string_item()?.clone());
        let message = message.map_err(|_| invalid!("Could not parse `serialized` as TensorProto"))?;
        let tensor = Tensor::from_proto(&message)?;
        if tensor.dtype() != self.dtype {
            return Err(invalid!(
                "Type mismatch between parsed tensor ({}) and dtype ({})",
                tensor.dtype(),
                self.dtype
            ));
        }
        ctx.set_output(0, tensor)
    }
}

struct Bitcast {
    to: DType,
}

impl Kernel for Bitcast {
    fn compute(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let x = ctx.take(0);
        let (from, to) = (x.dtype().size(), self.to.size());
        if from == to {
            return ctx.set_output(0, x.bitcast(self.to)?);
        }
        let dims = x.dims();
        let shape: Shape = if from > to {
            dims.iter().copied().chain([from / to]).collect()
        } else {
            match dims.split_last() {
                Some((&last, outer)) if last == to / from => outer.iter().copied().collect(),
                _ => {
                    return Err(invalid!(
                        "Cannot bitcast from {} to {}: the last dimension of {} must be {}",
                        x.dtype(),
                        self.to,
                        x.shape(),
                        to / from
                    ));
                }
            }
        };
        let y = Tensor::from_bytes(self.to, shape, x.as_bytes()?)?;
        ctx.set_output(0, y)
    }
}

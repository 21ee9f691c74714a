//! `ReduceJoin`: strings put together along axes.

use crate::array::axis_in;
use bytes::Bytes;
use framework::kernel::kernel;
use framework::shapes::reduction;
use framework::{Kernel, KernelBuild, KernelContext, Op};
use tensor::{Result, Shape, Tensor, invalid, out_of_range};

/// The ops of this file.
pub fn ops() -> Vec<Op> {
    vec![
        Op::new("ReduceJoin")
            .input("inputs: string")
            .input("reduction_indices: int32")
            .output("output: string")
            .attr("keep_dims: bool = false")
            .attr("separator: string = ''")
            .not_differentiable()
            .shape(reduction)
            .kernel(kernel(|b: &KernelBuild<'_>| {
                Ok(ReduceJoin { keeps: b.attr("keep_dims")?, separator: b.attr("separator")? })
            })),
    ]
}

struct ReduceJoin {
    keeps: bool,
    separator: Bytes,
}

impl Kernel for ReduceJoin {
    fn compute(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let (input, axes) = (ctx.input(0), ctx.input(1).to_i64s()?);
        let (dims, rank) = (input.dims(), input.shape().rank());
        let mut joined_axes = Vec::with_capacity(axes.len());
        for axis in axes {
            let at = axis_in(axis, rank).ok_or_else(|| {
                out_of_range!("Invalid reduction dimension {axis} for input with {rank} dimension(s)")
            })?;
            if joined_axes.contains(&at) {
                return Err(invalid!("Duplicate reduction dimension {axis}."));
            }
            joined_axes.push(at);
        }
        if joined_axes.is_empty() {
            let same = ctx.take(0);
            return ctx.set_output(0, same);
        }
        let kept: Vec<usize> = (0..rank).filter(|axis| !joined_axes.contains(axis)).collect();
        let stride = |axis: usize| dims[axis + 1..].iter().product::<usize>();
        let offsets = |axes: &[usize]| {
            axes.iter().fold(vec![0usize], |offsets, &axis| {
                offsets.iter().flat_map(|o| (0..dims[axis]).map(move |i| o + i * stride(axis))).collect()
            })
        };
        let strings = input.as_strings()?;
        // The axis named first is gone through first.
        joined_axes.reverse();
        let within = offsets(&joined_axes);
        let joined = offsets(&kept).into_iter().map(|start| {
            let parts: Vec<&[u8]> = within.iter().map(|offset| &strings[start + offset][..]).collect();
            Bytes::from(parts.join(&self.separator[..]))
        });
        let joined: Vec<Bytes> = joined.collect();
        let shape: Shape = match self.keeps {
            true => (0..rank).map(|axis| if joined_axes.contains(&axis) { 1 } else { dims[axis] }).collect(),
            false => kept.iter().map(|&axis| dims[axis]).collect(),
        };
        ctx.set_output(0, Tensor::from_strings(shape, joined)?)
    }
}

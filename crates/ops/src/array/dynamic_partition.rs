//! `DynamicPartition`: the slices of a tensor dealt out to as many tensors as there are partitions.

use super::build;
use super::gather::place;
use framework::kernel::KernelContext;
use framework::typed::{Item, MoveKernel, moves};
use framework::{Grad, GradValue, InferenceContext, Op, Output, Scope};
use tensor::{PartialShape, Result, Shape, invalid};

pub fn ops() -> Vec<Op> {
    vec![
        Op::new("DynamicPartition")
            .input("data: T")
            .input("partitions: int32")
            .output("outputs: num_partitions*T")
            .attr("num_partitions: int >= 1")
            .attr("T: type")
            .shape(partition_shape)
            .gradient(partition_gradient)
            .kernel(moves(|_| Ok(DynamicPartition))),
    ]
}

/// The slices of `data` with each of the partition numbers.
pub fn dynamic_partition(s: &Scope, data: Output, partitions: Output, count: usize) -> Result<Vec<Output>> {
    s.node("DynamicPartition").inputs(&[data, partitions]).attr("num_partitions", count as i64).outputs()
}

/// The gradients are stitched together in the order in which the slices stood.
fn partition_gradient(s: &Scope, g: &Grad<'_>) -> Result<Vec<Option<GradValue>>> {
    let (data, partitions) = (g.inputs[0], g.inputs[1]);
    let shape = s.op("Shape", &[partitions])?;
    let all = s.op("Range", &[s.constant(0i32)?, s.op("Size", &[partitions])?, s.constant(1i32)?])?;
    let places = dynamic_partition(s, s.op("Reshape", &[all, shape])?, partitions, g.dy.len())?;
    let stitched = s.node("ParallelDynamicStitch").inputs(&places).inputs(g.dy).output()?;
    let dx = s.op("Reshape", &[stitched, s.op("Shape", &[data])?])?;
    Ok(vec![Some(dx.into()), None])
}

fn partition_shape(c: &InferenceContext<'_>) -> Result<Vec<PartialShape>> {
    let (Some(data), Some(by)) = (c.input(0).dims(), c.input(1).dims()) else {
        return Ok(vec![PartialShape::unknown(); c.num_outputs()]);
    };
    let fits = data.len() >= by.len() && data.iter().zip(by).all(|(a, b)| a.is_none() || b.is_none() || a == b);
    if !fits {
        return Err(mismatch(c.input(0), c.input(1)));
    }
    let part = PartialShape::new([None].into_iter().chain(data[by.len()..].iter().copied()));
    Ok(vec![part; c.num_outputs()])
}

fn mismatch(data: impl std::fmt::Display, by: impl std::fmt::Display) -> tensor::Error {
    invalid!("data.shape must start with partitions.shape, got data.shape = {data}, partitions.shape = {by}")
}

struct DynamicPartition;

impl MoveKernel for DynamicPartition {
    fn compute<I: Item>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let (data, by) = (ctx.input(0), ctx.input(1));
        let count = ctx.num_outputs();
        if !data.dims().starts_with(by.dims()) {
            return Err(mismatch(data.shape(), by.shape()));
        }
        let rest = &data.dims()[by.dims().len()..];
        let row: usize = rest.iter().product();
        let numbers = by.as_slice::<i32>()?;
        let mut sizes = vec![0usize; count];
        for (i, &number) in numbers.iter().enumerate() {
            let size = usize::try_from(number).ok().and_then(|n| sizes.get_mut(n));
            let size =
                size.ok_or_else(|| invalid!("partitions{} = {number} is not in [0, {count})", place(by.dims(), i)))?;
            *size += 1;
        }

        let items = I::items(data)?;
        let mut parts = Vec::with_capacity(count);
        for (number, &size) in sizes.iter().enumerate() {
            let shape: Shape = [size].into_iter().chain(rest.iter().copied()).collect();
            parts.push(build::<I>(data.dtype(), shape, |out| {
                if row > 0 {
                    let own = numbers.iter().enumerate().filter(|(_, n)| **n as usize == number);
                    for (out, (i, _)) in out.chunks_exact_mut(row).zip(own) {
                        out.clone_from_slice(&items[i * row..][..row]);
                    }
                }
                Ok(())
            })?);
        }
        for (i, part) in parts.into_iter().enumerate() {
            ctx.set_output(i, part)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::array::testing::eval;
    use tensor::Tensor;

    #[test]
    fn slices_are_dealt_out() {
        let by = |partitions: Tensor| {
            let data = Tensor::from([[1i32, 2], [3, 4], [5, 6]]);
            eval("DynamicPartition", &[data, partitions], &[("num_partitions", 2i64.into())])
        };
        let parts = by(Tensor::from([1i32, 0, 1])).unwrap();
        assert_eq!(parts, [Tensor::from([[3i32, 4]]), Tensor::from([[1i32, 2], [5, 6]])]);
        let error = by(Tensor::from([0i32, 2, 0])).unwrap_err();
        assert!(error.message.contains("partitions[1] = 2 is not in [0, 2)"), "{error}");
        assert!(by(Tensor::from([0i32, 1])).is_err());
    }
}

//! `DynamicStitch` and `ParallelDynamicStitch`: slices of several tensors, put together by their indices.

use super::{build, moved_value, small};
use framework::kernel::KernelContext;
use framework::typed::{Item, MoveKernel, moves};
use framework::{Grad, GradValue, InferenceContext, Op, Output, Scope};
use smallvec::SmallVec;
use tensor::{PartialShape, Result, Shape, Tensor, invalid};

pub fn ops() -> Vec<Op> {
    ["DynamicStitch", "ParallelDynamicStitch"].map(stitch).to_vec()
}

fn stitch(name: &str) -> Op {
    Op::new(name)
        .input("indices: N*int32")
        .input("data: N*T")
        .output("merged: T")
        .attr("N: int >= 1")
        .attr("T: type")
        .shape(stitch_shape)
        .value(|c| {
            let inputs: Vec<&Tensor> = (0..c.num_inputs()).map(|i| c.input_value(i)).collect::<Option<_>>()?;
            Some(vec![moved_value!(c.input_dtype(c.num_inputs() / 2), stitched(&inputs)).and_then(small)])
        })
        .gradient(stitch_gradient)
        .kernel(moves(|_| Ok(Stitch)))
}

/// One tensor of all slices: `data[m][i]` becomes slice `indices[m][i]`.
pub fn dynamic_stitch(s: &Scope, indices: &[Output], data: &[Output]) -> Result<Output> {
    s.node("DynamicStitch").inputs(indices).inputs(data).output()
}

/// Each slice gets its own gradient back.
fn stitch_gradient(s: &Scope, g: &Grad<'_>) -> Result<Vec<Option<GradValue>>> {
    let count = g.inputs.len() / 2;
    let mut grads = vec![None; g.inputs.len()];
    for i in (0..count).filter(|i| g.wanted[count + i]) {
        grads[count + i] = Some(super::gather(s, g.dy[0], g.inputs[i], 0)?.into());
    }
    Ok(grads)
}

fn stitch_shape(c: &InferenceContext<'_>) -> Result<Vec<PartialShape>> {
    let count = c.num_inputs() / 2;
    let mut rest = PartialShape::unknown();
    let mut length = Some(0usize);
    for i in 0..count {
        let (by, data) = (c.input(i), c.input(count + i));
        if let (Some(by), Some(data)) = (by.dims(), data.dims()) {
            let fits = data.len() >= by.len() && data.iter().zip(by).all(|(a, b)| a.is_none() || b.is_none() || a == b);
            if !fits {
                let (by, data) = (c.input(i), c.input(count + i));
                return Err(invalid!("data[{i}].shape = {data} does not start with indices[{i}].shape = {by}"));
            }
            rest = rest.merge(&PartialShape::new(data[by.len()..].iter().copied()))?;
        }
        let largest = c.input_i64s(i).map(|v| v.into_iter().max().map_or(0, |m| m.saturating_add(1).max(0) as usize));
        length = length.zip(largest).map(|(a, b)| a.max(b));
    }
    Ok(vec![
        rest.dims().map_or(PartialShape::unknown(), |rest| {
            PartialShape::new([length].into_iter().chain(rest.iter().copied()))
        }),
    ])
}

struct Stitch;

impl MoveKernel for Stitch {
    fn compute<I: Item>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let inputs: SmallVec<[&Tensor; 8]> = ctx.input_list(0..ctx.num_inputs()).collect();
        let merged = stitched::<I>(&inputs)?;
        drop(inputs);
        ctx.set_output(0, merged)
    }
}

/// The first half of the inputs are indices, the second half data. Of slices for one place the last one stays.
fn stitched<I: Item>(inputs: &[&Tensor]) -> Result<Tensor> {
    let (indices, data) = inputs.split_at(inputs.len() / 2);
    let rest = data[0].dims().get(indices[0].dims().len()..).unwrap_or_default();
    let mut length = 0i64;
    for (m, (by, data)) in indices.iter().zip(data).enumerate() {
        if !data.dims().starts_with(by.dims()) {
            return Err(invalid!(
                "data[{m}].shape = {} does not start with indices[{m}].shape = {}",
                data.shape(),
                by.shape()
            ));
        }
        if data.dims()[by.dims().len()..] != *rest {
            return Err(invalid!(
                "Need data[0].shape[{}:] = data[{m}].shape[{}:], got data[0].shape = {}, data[{m}].shape = {}",
                indices[0].dims().len(),
                by.dims().len(),
                inputs[inputs.len() / 2].shape(),
                data.shape()
            ));
        }
        for &at in by.as_slice::<i32>()? {
            if at < 0 {
                return Err(invalid!("indices[{m}] is out of range: {at}"));
            }
            length = length.max(i64::from(at) + 1);
        }
    }
    let shape = Shape::checked([length].into_iter().chain(rest.iter().map(|&d| d as i64)))?;

    let row: usize = rest.iter().product();
    build::<I>(data[0].dtype(), shape, |out| {
        let given: usize = indices.iter().map(|by| by.num_elements()).sum();
        if (given as i64) < length {
            out.fill(I::zero());
        }
        for (by, data) in indices.iter().zip(data) {
            let items = I::items(data)?;
            for (i, &at) in by.as_slice::<i32>()?.iter().enumerate() {
                out[at as usize * row..][..row].clone_from_slice(&items[i * row..][..row]);
            }
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use crate::array::testing::eval;
    use tensor::Tensor;

    #[test]
    fn slices_are_put_together() {
        for op in ["DynamicStitch", "ParallelDynamicStitch"] {
            let inputs = [
                Tensor::scalar(2i32),
                Tensor::from([0i32, 1]),
                Tensor::from([5i32, 6]),
                Tensor::from([[1i32, 2], [3, 4]]),
            ];
            assert_eq!(eval(op, &inputs, &[]).unwrap(), [Tensor::from([[1i32, 2], [3, 4], [5, 6]])], "{op}");
            let again = [Tensor::from([0i32, 0]), Tensor::from(["a", "b"])];
            assert_eq!(eval(op, &again, &[]).unwrap(), [Tensor::from(["b"])], "{op}");
            assert!(eval(op, &[Tensor::from([-1i32]), Tensor::from([1i32])], &[]).is_err(), "{op}");
            assert!(eval(op, &[Tensor::from([1i32]), Tensor::from([1i32, 2])], &[]).is_err(), "{op}");
        }
    }
}

//! `ReverseV2` and `ReverseSequence`: elements in the opposite order, along whole axes or within sequences.

use super::{axis_in, build, indices, strided_tensor};
use framework::gradient::{GradValue, dense};
use framework::shapes::unchanged;
use framework::typed::{Item, MoveKernel, moves};
use framework::{Grad, InferenceContext, KernelBuild, KernelContext, Op, Output, Scope};
use linalg::transpose::Strided;
use tensor::{PartialShape, Result, invalid};

/// The ops of this file.
pub fn ops() -> Vec<Op> {
    vec![
        Op::new("ReverseV2")
            .input("tensor: T")
            .input("axis: Tidx")
            .output("output: T")
            .attr("Tidx: indextype = int32")
            .attr(
                "T: {uint8, int8, uint16, int16, int32, uint32, int64, uint64, bool, bfloat16, half, float, double, \
                 complex64, complex128, string}",
            )
            .shape(|c| {
                c.require_rank(1, 1)?;
                unchanged(c)
            })
            .gradient(|s, g| Ok(vec![Some(reverse(s, g.dy[0], g.inputs[1])?.into()), None]))
            .kernel(std::sync::Arc::new(|b| framework::typed::moves_by(b, "T", Reverse))),
        Op::new("ReverseSequence")
            .input("input: T")
            .input("seq_lengths: Tlen")
            .output("output: T")
            .attr("seq_dim: int")
            .attr("batch_dim: int = 0")
            .attr("T: type")
            .attr("Tlen: indextype = int64")
            .shape(sequence_shape)
            .gradient(sequence_gradient)
            .kernel(moves(ReverseSequence::new)),
    ]
}

/// The elements in the opposite order along the axes that a vector lists.
pub fn reverse(s: &Scope, x: Output, axes: Output) -> Result<Output> {
    s.op("ReverseV2", &[x, axes])
}

fn sequence_shape(c: &InferenceContext<'_>) -> Result<Vec<PartialShape>> {
    let lengths = c.require_rank(1, 1)?;
    let (batch_dim, seq_dim): (i64, i64) = (c.attr("batch_dim")?, c.attr("seq_dim")?);
    let Some(rank) = c.input(0).rank() else { return unchanged(c) };
    for (name, dim) in [("batch_dim", batch_dim), ("seq_dim", seq_dim)] {
        if dim >= rank as i64 {
            return Err(invalid!("{name} must be < input rank: {dim} vs. {rank}"));
        }
    }
    if let (Some(batch), Some(given)) = (axis_in(batch_dim, rank).and_then(|d| c.input(0).dim(d)), lengths.dim(0))
        && batch != given
    {
        return Err(invalid!("there are {batch} sequences along batch_dim {batch_dim}, but {given} lengths"));
    }
    unchanged(c)
}

fn sequence_gradient(s: &Scope, g: &Grad<'_>) -> Result<Vec<Option<GradValue>>> {
    let (batch_dim, seq_dim): (i64, i64) = (g.attr(s, "batch_dim")?, g.attr(s, "seq_dim")?);
    let node = s.node("ReverseSequence").inputs(&[g.dy[0], g.inputs[1]]);
    let back = node.attr("seq_dim", seq_dim).attr("batch_dim", batch_dim).output()?;
    Ok(vec![dense([back])?.remove(0), None])
}

struct Reverse;

impl MoveKernel for Reverse {
    fn compute<I: Item>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        /// More dimensions than this TensorFlow does not reverse either.
        const RANK_MAX: usize = 8;
        let axes = ctx.input(1);
        if axes.shape().rank() != 1 {
            return Err(invalid!("'dims' must be 1-dimension, not {}", axes.shape().rank()));
        }
        let axes = indices(axes)?;
        let x = ctx.input(0);
        let rank = x.shape().rank();
        let mut reversed = vec![false; rank];
        for (i, &axis) in axes.iter().enumerate() {
            let axis = axis_in(axis, rank).ok_or_else(|| {
                invalid!("'axis'[{i}] = {axis} is out of valid range [0, {}].", rank.saturating_sub(1))
            })?;
            if std::mem::replace(&mut reversed[axis], true) {
                return Err(invalid!("axis {axis} specified more than once."));
            }
        }
        if rank > RANK_MAX {
            return Err(tensor::unsupported!("reverse is not implemented for tensors of rank > {RANK_MAX}."));
        }
        if x.num_elements() == 0 || axes.is_empty() {
            let x = ctx.take(0);
            return ctx.set_output(0, x);
        }

        let mut from = Strided::dense(x.dims());
        for (axis, &dim) in x.dims().iter().enumerate().filter(|(axis, _)| reversed[*axis]) {
            from.start += (dim - 1) * from.strides[axis] as usize;
            from.strides[axis] = -from.strides[axis];
        }
        let y = strided_tensor::<I>(ctx.pool(), x, x.shape().clone(), &from)?;
        ctx.set_output(0, y)
    }
}

struct ReverseSequence {
    batch_dim: i64,
    seq_dim: i64,
}

impl ReverseSequence {
    fn new(b: &KernelBuild<'_>) -> Result<ReverseSequence> {
        Ok(ReverseSequence { batch_dim: b.attr("batch_dim")?, seq_dim: b.attr("seq_dim")? })
    }

    /// Both dimensions, and how much of each sequence is turned.
    fn check(&self, ctx: &KernelContext<'_>) -> Result<(usize, usize, Vec<usize>)> {
        let (x, lengths) = (ctx.input(0), ctx.input(1));
        let rank = x.shape().rank();
        if lengths.shape().rank() != 1 {
            return Err(invalid!("seq_lens must be 1-dim, not {}", lengths.shape().rank()));
        }
        if self.batch_dim == self.seq_dim {
            return Err(invalid!("batch_dim == seq_dim == {}", self.seq_dim));
        }
        let wrong = |name: &str, dim: i64| invalid!("{name} must be < input rank ( {dim} vs. {rank})");
        let seq = axis_in(self.seq_dim, rank).ok_or_else(|| wrong("seq_dim", self.seq_dim))?;
        let batch = axis_in(self.batch_dim, rank).ok_or_else(|| wrong("batch_dim", self.batch_dim))?;
        let lengths = indices(lengths)?;
        if lengths.len() != x.dims()[batch] {
            return Err(invalid!(
                "Length of seq_lens != input.dims({batch}), ({} vs. {})",
                lengths.len(),
                x.dims()[batch]
            ));
        }
        let most = x.dims()[seq];
        let checked = lengths.iter().enumerate().map(|(i, &length)| match usize::try_from(length) {
            Err(_) => Err(invalid!("seq_lens({i}) < 0")),
            Ok(length) if length > most => Err(invalid!("seq_lens({i}) > input.dims({seq})")),
            Ok(length) => Ok(length),
        });
        Ok((batch, seq, checked.collect::<Result<_>>()?))
    }
}

impl MoveKernel for ReverseSequence {
    fn compute<I: Item>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let (batch, seq, lengths) = self.check(ctx)?;
        let x = ctx.input(0);
        let (dims, items) = (x.dims(), I::items(x)?);
        let stride = |dim: usize| dims[dim + 1..].iter().product::<usize>();
        let (batch_stride, seq_stride) = (stride(batch), stride(seq));
        // What lies behind both dimensions moves together.
        let run = batch_stride.min(seq_stride).max(1);
        let y = build::<I>(x.dtype(), x.shape().clone(), |out| {
            for (i, part) in out.chunks_mut(run).enumerate() {
                let at = i * run;
                let (place, length) = (at / seq_stride % dims[seq], lengths[at / batch_stride % dims[batch]]);
                let from =
                    if place < length { at - place * seq_stride + (length - 1 - place) * seq_stride } else { at };
                part.clone_from_slice(&items[from..from + part.len()]);
            }
            Ok(())
        })?;
        ctx.set_output(0, y)
    }
}

#[cfg(test)]
mod tests {
    use crate::array::testing::eval;
    use tensor::Tensor;

    #[test]
    fn axes_are_reversed() {
        let x = Tensor::from([[1i32, 2, 3], [4, 5, 6]]);
        for (axes, want) in [
            (vec![0i32], [[4, 5, 6], [1, 2, 3]]),
            (vec![-1], [[3, 2, 1], [6, 5, 4]]),
            (vec![0, 1], [[6, 5, 4], [3, 2, 1]]),
            (vec![], [[1, 2, 3], [4, 5, 6]]),
        ] {
            let y = eval("ReverseV2", &[x.clone(), Tensor::from(axes.clone())], &[]).unwrap();
            assert_eq!(y[0], Tensor::from(want), "{axes:?}");
        }
        assert!(eval("ReverseV2", &[x.clone(), Tensor::from(vec![2i32])], &[]).is_err());
        assert!(eval("ReverseV2", &[x, Tensor::from(vec![1i32, -1])], &[]).is_err());
    }

    #[test]
    fn only_the_length_of_a_sequence_is_reversed() {
        let x = Tensor::from([[1i32, 2, 3], [4, 5, 6]]);
        let attrs = [("seq_dim", 1i64.into()), ("batch_dim", 0i64.into())];
        let y = eval("ReverseSequence", &[x.clone(), Tensor::from([2i64, 3])], &attrs).unwrap();
        assert_eq!(y[0], Tensor::from([[2i32, 1, 3], [6, 5, 4]]));
        let error = eval("ReverseSequence", &[x, Tensor::from([2i64, 4])], &attrs).unwrap_err();
        assert!(error.message.contains("seq_lens(1) > input.dims(1)"), "{error}");
    }
}

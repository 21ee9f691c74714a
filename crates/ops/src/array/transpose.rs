//! `Transpose` and `InvertPermutation`: the axes of a tensor in another order.

use super::{indices, strided_tensor};
use framework::kernel::KernelContext;
use framework::typed::{Int, IntKernel, Item, MoveKernel, index_ints, moves_of};
use framework::{BuiltKernel, GradValue, InferenceContext, Kernel, KernelBuild, Op, Output, Scope};
use linalg::transpose::Strided;
use smallvec::SmallVec;
use std::sync::Arc;
use tensor::{PartialShape, Result, Shape, Tensor, Word, invalid};

pub fn ops() -> Vec<Op> {
    vec![
        Op::new("Transpose")
            .input("x: T")
            .input("perm: Tperm")
            .output("y: T")
            .attr("T: type")
            .attr("Tperm: indextype = int32")
            .shape(transpose_shape)
            .gradient(|s, g| {
                let back = s.op("InvertPermutation", &[g.inputs[1]])?;
                Ok(vec![Some(GradValue::Dense(s.op("Transpose", &[g.dy[0], back])?)), None])
            })
            .kernel(Arc::new(transpose_kernel)),
        Op::new("InvertPermutation")
            .input("x: T")
            .output("y: T")
            .attr("T: indextype = int32")
            .shape(|c| Ok(vec![c.require_rank(0, 1)?]))
            .not_differentiable()
            .kernel(index_ints(|_| Ok(InvertPermutation))),
    ]
}

/// The axes in another order: axis `i` of the result is axis `order[i]` of `x`.
pub fn transpose(s: &Scope, x: Output, order: &[i32]) -> Result<Output> {
    s.op("Transpose", &[x, s.constant(order.to_vec())?])
}

fn transpose_shape(c: &InferenceContext<'_>) -> Result<Vec<PartialShape>> {
    c.require_rank(1, 1)?;
    let Some(rank) = c.input(0).rank().or(c.input(1).dim(0)) else { return Ok(vec![PartialShape::unknown()]) };
    let x = c.input(0).with_rank(rank)?;
    let Some(perm) = c.input_i64s(1) else {
        c.input(1).merge(&PartialShape::from([rank]))?;
        return Ok(vec![PartialShape::of_rank(rank)]);
    };
    Ok(vec![PartialShape::new(order_of(&perm, rank)?.iter().map(|&axis| x.dim(axis)))])
}

/// The permutation as axes, checked.
fn order_of(perm: &[i64], rank: usize) -> Result<SmallVec<[usize; 8]>> {
    if perm.len() != rank {
        return Err(invalid!(
            "transpose expects a vector of size {rank}. But input(1) is a vector of size {}",
            perm.len()
        ));
    }
    let mut seen: SmallVec<[bool; 8]> = SmallVec::from_elem(false, rank);
    let mut order = SmallVec::with_capacity(rank);
    for &axis in perm {
        let axis = super::axis_in(axis, rank).ok_or_else(|| invalid!("{axis} is out of range [0 .. {rank})"))?;
        seen[axis] = true;
        order.push(axis);
    }
    match seen.iter().position(|s| !s) {
        Some(missing) => Err(invalid!("{missing} is missing from {perm:?}.")),
        None => Ok(order),
    }
}

fn transpose_kernel(b: &KernelBuild<'_>) -> Result<BuiltKernel> {
    let dtype = b.dtype("T")?;
    if dtype.is_plain() { Ok(BuiltKernel::new(TransposeWords)) } else { moves_of(dtype, TransposeObjects) }
}

/// The result's shape and the order of the axes; or the result itself, if no element moves.
fn plan(ctx: &mut KernelContext<'_>) -> Result<Option<(Shape, SmallVec<[usize; 8]>)>> {
    if ctx.input(1).shape().rank() != 1 {
        return Err(invalid!("perm must be rank 1, got shape {}", ctx.input(1).shape()));
    }
    let dims = ctx.input(0).dims();
    let order = order_of(&indices(ctx.input(1))?, dims.len())?;
    let shape: Shape = order.iter().map(|&axis| dims[axis]).collect();
    let moving = order.iter().filter(|&&axis| dims[axis] != 1);
    if moving.is_sorted() || ctx.input(0).num_elements() == 0 {
        let y = ctx.take(0).reshaped(shape)?;
        ctx.set_output(0, y)?;
        return Ok(None);
    }
    Ok(Some((shape, order)))
}

struct TransposeWords;

impl Kernel for TransposeWords {
    fn compute(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let Some((shape, order)) = plan(ctx)? else { return Ok(()) };
        let x = ctx.input(0);
        let mut y = Tensor::from_filled(x.dtype(), shape, |_| Ok(()))?;
        match x.dtype().size() {
            1 => turn::<u8>(ctx, x, &order, &mut y)?,
            2 => turn::<u16>(ctx, x, &order, &mut y)?,
            4 => turn::<u32>(ctx, x, &order, &mut y)?,
            8 => turn::<u64>(ctx, x, &order, &mut y)?,
            _ => turn::<u128>(ctx, x, &order, &mut y)?,
        }
        ctx.set_output(0, y)
    }
}

fn turn<W: Word>(ctx: &KernelContext<'_>, x: &Tensor, order: &[usize], y: &mut Tensor) -> Result<()> {
    linalg::transpose::transpose(ctx.pool(), x.dims(), order, x.as_words::<W>()?, y.as_mut_words()?);
    Ok(())
}

struct TransposeObjects;

impl MoveKernel for TransposeObjects {
    fn compute<I: Item>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let Some((shape, order)) = plan(ctx)? else { return Ok(()) };
        let x = ctx.input(0);
        let dense = Strided::dense(x.dims()).strides;
        let from = Strided { start: 0, strides: order.iter().map(|&axis| dense[axis]).collect() };
        let y = strided_tensor::<I>(ctx.pool(), x, shape, &from)?;
        ctx.set_output(0, y)
    }
}

struct InvertPermutation;

impl IntKernel for InvertPermutation {
    fn compute<T: Int>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let x = ctx.input(0);
        if x.shape().rank() != 1 {
            return Err(invalid!("invert_permutation expects a 1D vector."));
        }
        let len = x.num_elements();
        let mut seen = vec![false; len];
        let mut y = ctx.allocate::<T>([len])?;
        for (i, &to) in x.as_slice::<T>()?.iter().enumerate() {
            let at = usize::try_from(to.to_i64()).ok().filter(|&at| at < len);
            let at = at.ok_or_else(|| invalid!("{to} is not between 0 and {}", len as i64 - 1))?;
            if std::mem::replace(&mut seen[at], true) {
                return Err(invalid!("{at} is duplicated in the input."));
            }
            y[at] = T::from_i64(i as i64);
        }
        ctx.set_output(0, y)
    }
}

#[cfg(test)]
mod tests {
    use crate::array::testing::eval;
    use tensor::Tensor;

    #[test]
    fn axes_change_places() {
        let x = Tensor::from([[1i16, 2, 3], [4, 5, 6]]);
        let turned = Tensor::from([[1i16, 4], [2, 5], [3, 6]]);
        assert_eq!(eval("Transpose", &[x.clone(), Tensor::from([1i32, 0])], &[]).unwrap(), [turned]);
        assert!(eval("Transpose", &[x.clone(), Tensor::from([0i64, 1])], &[]).unwrap()[0] == x);
        let words = Tensor::from(["a", "b", "c", "d"]).reshaped([2, 2]).unwrap();
        let turned = Tensor::from(["a", "c", "b", "d"]).reshaped([2, 2]).unwrap();
        assert_eq!(eval("Transpose", &[words, Tensor::from([1i32, 0])], &[]).unwrap(), [turned]);
        for bad in [vec![0i32], vec![0, 0], vec![0, 2], vec![0, -3]] {
            assert!(eval("Transpose", &[x.clone(), bad.into()], &[]).is_err());
        }
    }

    #[test]
    fn permutations_are_inverted() {
        let inverse = eval("InvertPermutation", &[Tensor::from([2i32, 0, 1])], &[]).unwrap();
        assert_eq!(inverse, [Tensor::from([1i32, 2, 0])]);
        for bad in [[0i64, 0], [0, 2], [-1, 0]] {
            assert!(eval("InvertPermutation", &[bad.into()], &[]).is_err());
        }
    }
}

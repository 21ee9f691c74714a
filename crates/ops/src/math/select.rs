//! `Select` and `SelectV2`: each element from one of two tensors, as a third says.

use super::broadcast::sum_to;
use framework::gradient::GradValue;
use framework::typed::{MoveKernel, moves};
use framework::{Grad, InferenceContext, Item, KernelContext, Op, Output, Scope};
use linalg::parallel::Pool;
use smallvec::SmallVec;
use tensor::{PartialShape, Result, Shape, Tensor, broadcast, broadcast_partial, invalid};

/// The ops of this file.
pub fn ops() -> Vec<Op> {
    vec![
        op("Select").shape(shape).kernel(moves(|_| Ok(Select))).gradient(gradient),
        op("SelectV2").shape(shape_v2).kernel(moves(|_| Ok(SelectV2))).gradient(gradient_v2),
    ]
}

fn op(name: &str) -> Op {
    Op::new(name).input("condition: bool").input("t: T").input("e: T").output("output: T").attr("T: type")
}

/// Elements of `t` where the condition holds, of `e` elsewhere; all three broadcast.
pub fn select(s: &Scope, condition: Output, t: Output, e: Output) -> Result<Output> {
    s.op("SelectV2", &[condition, t, e])
}

fn shape(c: &InferenceContext<'_>) -> Result<Vec<PartialShape>> {
    let merged = c.input(1).merge(c.input(2))?;
    let (condition, branches) = (c.input(0), merged.rank());
    match (condition.rank(), branches) {
        (Some(0), _) | (None, _) | (_, None) => Ok(vec![merged]),
        (Some(1), Some(rank)) if rank > 0 => {
            let (rows, wanted) = (condition.dim(0), merged.dim(0));
            if rows.is_some() && wanted.is_some() && rows != wanted {
                return Err(invalid!("a condition of shape {condition} cannot choose rows of shape {merged}"));
            }
            Ok(vec![merged])
        }
        _ => Ok(vec![merged.merge(condition)?]),
    }
}

fn shape_v2(c: &InferenceContext<'_>) -> Result<Vec<PartialShape>> {
    Ok(vec![broadcast_partial(c.input(0), &broadcast_partial(c.input(1), c.input(2))?)?])
}

fn gradient(s: &Scope, g: &Grad<'_>) -> Result<Vec<Option<GradValue>>> {
    let zeros = s.op("ZerosLike", &[g.inputs[1]])?;
    Ok(vec![
        None,
        Some(s.op("Select", &[g.inputs[0], g.dy[0], zeros])?.into()),
        Some(s.op("Select", &[g.inputs[0], zeros, g.dy[0]])?.into()),
    ])
}

fn gradient_v2(s: &Scope, g: &Grad<'_>) -> Result<Vec<Option<GradValue>>> {
    let (condition, dy) = (g.inputs[0], g.dy[0]);
    let zero = s.constant_of(s.dtype(dy)?, 0.0)?;
    let t = if g.wanted[1] { Some(sum_to(s, select(s, condition, dy, zero)?, g.inputs[1])?) } else { None };
    let e = if g.wanted[2] { Some(sum_to(s, select(s, condition, zero, dy)?, g.inputs[2])?) } else { None };
    Ok(vec![None, t, e])
}

struct Select;
impl MoveKernel for Select {
    fn compute<I: Item>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let (condition, t, e) = (ctx.take(0), ctx.take(1), ctx.take(2));
        if t.shape() != e.shape() {
            return Err(invalid!("'t' and 'e' must have the same size, found {} and {}", t.shape(), e.shape()));
        }
        let flags = condition.as_slice::<bool>()?;
        if condition.shape().is_scalar() {
            return ctx.set_output(0, if flags[0] { t } else { e });
        }
        let rows = condition.shape().rank() == 1 && t.shape().rank() >= 1 && t.dims()[0] == flags.len();
        let row = match t.shape() == condition.shape() {
            true => 1,
            false if rows => t.dims()[1..].iter().product(),
            false => {
                let (c, t) = (condition.shape(), t.shape());
                return Err(invalid!("'cond' must be a scalar, a vector of as many rows or of shape {t}, found {c}"));
            }
        };
        let y = choose::<I>(ctx.pool(), flags, row, &t, &e)?;
        ctx.set_output(0, y)
    }
}

struct SelectV2;
impl MoveKernel for SelectV2 {
    fn compute<I: Item>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let (condition, t, e) = (ctx.take(0), ctx.take(1), ctx.take(2));
        let flags = condition.as_slice::<bool>()?;
        if t.shape() == e.shape() && condition.shape() == t.shape() {
            let y = choose::<I>(ctx.pool(), flags, 1, &t, &e)?;
            return ctx.set_output(0, y);
        }
        let shape = broadcast(condition.shape(), &broadcast(t.shape(), e.shape())?)?;
        if condition.shape().is_scalar() && [&t, &e][usize::from(!flags[0])].shape() == &shape {
            return ctx.set_output(0, if flags[0] { t } else { e });
        }
        let (then, otherwise) = (I::items(&t)?, I::items(&e)?);
        let mut walk = Walk::new(&shape, [condition.shape(), t.shape(), e.shape()]);
        let y = I::build(t.dtype(), shape, &mut |out| {
            for to in out {
                let [at, at_t, at_e] = walk.at;
                *to = if flags[at] { then[at_t].clone() } else { otherwise[at_e].clone() };
                walk.step();
            }
            Ok(())
        })?;
        ctx.set_output(0, y)
    }
}

/// Tensors of one shape, chosen between row by row.
fn choose<I: Item>(pool: &Pool, flags: &[bool], row: usize, t: &Tensor, e: &Tensor) -> Result<Tensor> {
    const GRAIN: usize = 1 << 15;
    let (then, otherwise) = (I::items(t)?, I::items(e)?);
    I::build(t.dtype(), t.shape().clone(), &mut |out| {
        if row == 1 {
            pool.for_each_mut(out, GRAIN, &|start, part| {
                let range = start..start + part.len();
                let sources = then[range.clone()].iter().zip(&otherwise[range.clone()]);
                for ((to, (t, e)), flag) in part.iter_mut().zip(sources).zip(&flags[range]) {
                    to.clone_from(if *flag { t } else { e });
                }
            });
        } else {
            pool.for_each_row(out, row, GRAIN / row.max(1) + 1, &|first, part| {
                for (i, to) in part.chunks_exact_mut(row).enumerate() {
                    let range = (first + i) * row..(first + i + 1) * row;
                    to.clone_from_slice(if flags[first + i] { &then[range] } else { &otherwise[range] });
                }
            });
        }
        Ok(())
    })
}

/// Walks the elements of a shape in order, with the positions they come from in three smaller ones.
struct Walk {
    dims: SmallVec<[usize; 6]>,
    strides: SmallVec<[[usize; 3]; 6]>,
    index: SmallVec<[usize; 6]>,
    at: [usize; 3],
}

impl Walk {
    fn new(shape: &Shape, sources: [&Shape; 3]) -> Walk {
        let rank = shape.rank();
        let mut strides: SmallVec<[[usize; 3]; 6]> = SmallVec::from_elem([0; 3], rank);
        for (k, source) in sources.into_iter().enumerate() {
            let missing = rank - source.rank();
            for (axis, (&stride, &dim)) in source.strides().iter().zip(source.dims()).enumerate() {
                strides[missing + axis][k] = if dim == 1 { 0 } else { stride };
            }
        }
        Walk { dims: shape.dims().into(), strides, index: SmallVec::from_elem(0, rank), at: [0; 3] }
    }

    fn step(&mut self) {
        for axis in (0..self.dims.len()).rev() {
            self.index[axis] += 1;
            let done = self.index[axis] == self.dims[axis];
            for k in 0..3 {
                self.at[k] += self.strides[axis][k];
                if done {
                    self.at[k] -= self.strides[axis][k] * self.dims[axis];
                }
            }
            if !done {
                return;
            }
            self.index[axis] = 0;
        }
    }
}

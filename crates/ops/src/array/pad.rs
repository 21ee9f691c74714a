//! `Pad`: a tensor with zeros around it.

use super::{Indices, build, indices};
use framework::kernel::KernelContext;
use framework::typed::{Item, MoveKernel, moves};
use framework::{Grad, GradValue, InferenceContext, Op, Output, Scope};
use linalg::transpose::{Strided, copy_strided};
use tensor::{PartialShape, Result, Shape, invalid};

pub fn ops() -> Vec<Op> {
    vec![
        Op::new("Pad")
            .input("input: T")
            .input("paddings: Tpaddings")
            .output("output: T")
            .attr("T: type")
            .attr("Tpaddings: indextype = int32")
            .shape(pad_shape)
            .gradient(pad_gradient)
            .kernel(moves(|_| Ok(Pad))),
    ]
}

/// `x` with so many zeros before and after it along each axis: a row of two numbers each.
pub fn pad(s: &Scope, x: Output, paddings: Output) -> Result<Output> {
    s.op("Pad", &[x, paddings])
}

/// The gradient without what surrounds it.
fn pad_gradient(s: &Scope, g: &Grad<'_>) -> Result<Vec<Option<GradValue>>> {
    let paddings = g.inputs[1];
    let size = s.node("Shape").input(g.inputs[0]).attr("out_type", s.dtype(paddings)?).output()?;
    let (zeros, column) = (s.constant([0i32, 0])?, s.constant([-1i32, 1])?);
    let begin = s.op("Reshape", &[s.op("Slice", &[paddings, zeros, column])?, s.constant([-1i32])?])?;
    Ok(vec![Some(s.op("Slice", &[g.dy[0], begin, size])?.into()), None])
}

fn pad_shape(c: &InferenceContext<'_>) -> Result<Vec<PartialShape>> {
    let paddings = c.require_rank(1, 2)?.merge(&PartialShape::new([c.input(0).rank(), Some(2)])).map_err(|_| {
        invalid!("paddings must have a row of 2 for each dimension of {}, found shape {}", c.input(0), c.input(1))
    })?;
    let Some(rank) = paddings.dim(0) else { return Ok(vec![PartialShape::unknown()]) };
    let Some(around) = c.input_i64s(1) else { return Ok(vec![PartialShape::of_rank(rank)]) };
    check_sign(&around)?;
    let dims = around
        .chunks_exact(2)
        .enumerate()
        .map(|(i, p)| c.input(0).dim(i)?.checked_add(p[0] as usize)?.checked_add(p[1] as usize));
    Ok(vec![PartialShape::new(dims)])
}

fn check_sign(around: &[i64]) -> Result<()> {
    match around.chunks_exact(2).find(|p| p[0] < 0 || p[1] < 0) {
        Some(p) => Err(invalid!("Paddings must be non-negative: {} {}", p[0], p[1])),
        None => Ok(()),
    }
}

struct Pad;

impl MoveKernel for Pad {
    fn compute<I: Item>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let (x, paddings) = (ctx.input(0), ctx.input(1));
        let [rows, 2] = paddings.dims() else {
            return Err(invalid!("paddings must be a matrix with 2 columns: {}", paddings.shape()));
        };
        if *rows != x.shape().rank() {
            return Err(invalid!(
                "The first dimension of paddings must be the rank of inputs{} {}",
                paddings.shape(),
                x.shape()
            ));
        }
        let around = indices(paddings)?;
        check_sign(&around)?;
        if around.iter().all(|&p| p == 0) {
            let x = ctx.take(0);
            return ctx.set_output(0, x);
        }
        let too_large =
            || invalid!("{} padded by {:?} has more elements than can be addressed", x.shape(), &around[..]);
        let size = |(&d, p): (&usize, &[i64])| (d as i64).checked_add(p[0])?.checked_add(p[1]);
        let sizes = x.dims().iter().zip(around.chunks_exact(2)).map(|dim| size(dim).ok_or_else(too_large));
        let shape = Shape::checked(sizes.collect::<Result<Indices>>()?)?;

        let mut to = Strided::dense(shape.dims());
        if x.num_elements() > 0 {
            to.start = around.iter().step_by(2).zip(&to.strides).map(|(&p, &s)| p as usize * s as usize).sum();
        }
        let y = build::<I>(x.dtype(), shape, |out| {
            ctx.pool().for_each_mut(out, 1 << 16, &|_, part| part.fill(I::zero()));
            copy_strided(x.dims(), I::items(x)?, &Strided::dense(x.dims()), out, &to);
            Ok(())
        })?;
        ctx.set_output(0, y)
    }
}

#[cfg(test)]
mod tests {
    use crate::array::testing::eval;
    use tensor::{Complex, ResourceHandle, Tensor};

    #[test]
    fn elements_that_are_carried_by_number_arrive() {
        let [a, b, zero] = [(1.0, 2.0), (3.0, -4.0), (0.0, 0.0)].map(|(re, im)| Complex::<f64>::new(re, im));
        let padded = eval("Pad", &[Tensor::from([a, b]), Tensor::from([[1i32, 1]])], &[]).unwrap();
        assert_eq!(padded, [Tensor::from([zero, a, b, zero])]);

        let named = |name: &str| ResourceHandle { name: name.to_string(), ..ResourceHandle::default() };
        let handles = |names: &[&str]| {
            let handles = names.iter().map(|name| named(name)).collect();
            Tensor::from_handles([names.len()], handles).unwrap()
        };
        let joined = eval("ConcatV2", &[handles(&["x", "y"]), handles(&["z"]), 0i32.into()], &[("N", 2i64.into())]);
        assert_eq!(joined.unwrap(), [handles(&["x", "y", "z"])]);
        let picked = eval("Gather", &[handles(&["x", "y"]), Tensor::from([1i32, 1, 0])], &[]).unwrap();
        assert_eq!(picked, [handles(&["y", "y", "x"])]);
        assert!(eval("Gather", &[handles(&["x", "y"]), Tensor::from([2i32])], &[]).is_err());
    }

    #[test]
    fn zeros_stand_around() {
        let x = Tensor::from([[1i32, 2]]);
        let padded = eval("Pad", &[x.clone(), Tensor::from([[1i32, 0], [0, 2]])], &[]).unwrap();
        assert_eq!(padded, [Tensor::from([[0i32, 0, 0, 0], [1, 2, 0, 0]])]);
        assert!(eval("Pad", &[x.clone(), Tensor::from([[1i32, 0]])], &[]).is_err());
        assert!(eval("Pad", &[x.clone(), Tensor::from([[1i32, 0], [-1, 0]])], &[]).is_err());
        assert!(eval("Pad", &[x, Tensor::from([[i64::MAX, i64::MAX], [0, 0]])], &[]).is_err());
    }
}

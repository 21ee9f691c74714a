//! `Diag` and `DiagPart`: a tensor on the diagonal of a larger one, and taken from there.

use super::build;
use framework::gradient::dense;
use framework::kernel::KernelContext;
use framework::typed::{Item, MoveKernel, moves};
use framework::{InferenceContext, Op, Output, Scope};
use tensor::{PartialShape, Result, Shape, invalid};

const TYPES: &str = "T: {bfloat16, half, float, double, int32, int64, complex64, complex128}";

pub fn ops() -> Vec<Op> {
    vec![
        Op::new("Diag")
            .input("diagonal: T")
            .output("output: T")
            .attr(TYPES)
            .shape(|c| {
                c.input(0).with_rank_at_least(1)?;
                let twice = c.input(0).dims().map(|dims| PartialShape::new(dims.iter().chain(dims).copied()));
                Ok(vec![twice.unwrap_or_default()])
            })
            .gradient(|s, g| dense([s.op("DiagPart", &[g.dy[0]])?]))
            .kernel(moves(|_| Ok(Diag))),
        Op::new("DiagPart")
            .input("input: T")
            .output("diagonal: T")
            .attr(TYPES)
            .shape(part_shape)
            .gradient(|s, g| dense([s.op("Diag", &[g.dy[0]])?]))
            .kernel(moves(|_| Ok(DiagPart))),
    ]
}

/// A tensor of twice the rank with `diagonal` on its diagonal and zeros elsewhere.
pub fn diag(s: &Scope, diagonal: Output) -> Result<Output> {
    s.op("Diag", &[diagonal])
}

/// The diagonal of a tensor whose two halves of dimensions are alike.
pub fn diag_part(s: &Scope, x: Output) -> Result<Output> {
    s.op("DiagPart", &[x])
}

fn part_shape(c: &InferenceContext<'_>) -> Result<Vec<PartialShape>> {
    let Some(dims) = c.input(0).dims() else { return Ok(vec![PartialShape::unknown()]) };
    if dims.is_empty() || dims.len() % 2 == 1 {
        return Err(odd(c.input(0)));
    }
    let half = |part: &[Option<usize>]| PartialShape::new(part.iter().copied());
    let (rows, columns) = dims.split_at(dims.len() / 2);
    Ok(vec![half(rows).merge(&half(columns))?])
}

fn odd(shape: impl std::fmt::Display) -> tensor::Error {
    invalid!("The rank of the tensor should be even and positive, got shape {shape}")
}

struct Diag;

impl MoveKernel for Diag {
    fn compute<I: Item>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let x = ctx.input(0);
        if x.shape().rank() == 0 {
            return Err(invalid!("Input must be at least rank 1, got 0"));
        }
        let shape = Shape::checked(x.dims().iter().chain(x.dims()).map(|&d| d as i64))?;
        let items = I::items(x)?;
        let y = build::<I>(x.dtype(), shape, |out| {
            out.fill(I::zero());
            for (i, item) in items.iter().enumerate() {
                out[i * (items.len() + 1)] = item.clone();
            }
            Ok(())
        })?;
        ctx.set_output(0, y)
    }
}

struct DiagPart;

impl MoveKernel for DiagPart {
    fn compute<I: Item>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let x = ctx.input(0);
        let rank = x.shape().rank();
        if rank == 0 || rank % 2 == 1 {
            return Err(odd(x.shape()));
        }
        let (rows, columns) = x.dims().split_at(rank / 2);
        if let Some(i) = (0..rank / 2).find(|&i| rows[i] != columns[i]) {
            let j = i + rank / 2;
            return Err(invalid!("Invalid shape {}: dimensions {i} and {j} do not match.", x.shape()));
        }
        let items = I::items(x)?;
        let y = build::<I>(x.dtype(), rows.into(), |out| {
            let step = out.len() + 1;
            for (i, out) in out.iter_mut().enumerate() {
                *out = items[i * step].clone();
            }
            Ok(())
        })?;
        ctx.set_output(0, y)
    }
}

#[cfg(test)]
mod tests {
    use crate::array::testing::eval;
    use tensor::{DType, Tensor};

    #[test]
    fn diagonals_go_in_and_come_out() {
        let x = Tensor::from([1.0f32, 2.0]);
        let whole = eval("Diag", std::slice::from_ref(&x), &[]).unwrap();
        assert_eq!(whole, [Tensor::from([[1.0f32, 0.0], [0.0, 2.0]])]);
        assert!(eval("DiagPart", &whole, &[]).unwrap()[0] == x);
        let square = Tensor::from([[1i32, 2], [3, 4]]);
        let whole = eval("Diag", std::slice::from_ref(&square), &[]).unwrap();
        assert_eq!(whole[0].dims(), [2, 2, 2, 2]);
        assert!(eval("DiagPart", &whole, &[]).unwrap()[0] == square);
        assert!(eval("DiagPart", &[x], &[]).is_err());
        assert!(eval("DiagPart", &[Tensor::zeros(DType::I32, [2, 3]).unwrap()], &[]).is_err());
        assert!(eval("Diag", &[Tensor::scalar(1i32)], &[]).is_err());
    }
}

//! `Tile`: a tensor repeated along its axes.

use super::{Indices, indices, strided_tensor};
use framework::kernel::KernelContext;
use framework::typed::{Item, MoveKernel, moves};
use framework::{Grad, GradValue, InferenceContext, Op, Output, Scope};
use linalg::transpose::Strided;
use tensor::{PartialShape, Result, Shape, invalid};

pub fn ops() -> Vec<Op> {
    vec![
        Op::new("Tile")
            .input("input: T")
            .input("multiples: Tmultiples")
            .output("output: T")
            .attr("T: type")
            .attr("Tmultiples: indextype = int32")
            .shape(tile_shape)
            .gradient(tile_gradient)
            .kernel(moves(|_| Ok(Tile))),
    ]
}

/// `x` repeated so many times along each axis.
pub fn tile(s: &Scope, x: Output, multiples: Output) -> Result<Output> {
    s.op("Tile", &[x, multiples])
}

/// The gradients of all copies, summed: each axis is seen as two, the copies and what is copied.
fn tile_gradient(s: &Scope, g: &Grad<'_>) -> Result<Vec<Option<GradValue>>> {
    let multiples = g.inputs[1];
    let shape = s.node("Shape").input(g.inputs[0]).attr("out_type", s.dtype(multiples)?).output()?;
    let pairs = s.op("Reshape", &[super::pack(s, &[multiples, shape], 1)?, s.constant([-1i32])?])?;
    let axes = s.op("Range", &[s.constant(0i32)?, s.op("Size", &[pairs])?, s.constant(2i32)?])?;
    let sum = s.op("Sum", &[s.op("Reshape", &[g.dy[0], pairs])?, axes])?;
    Ok(vec![Some(s.op("Reshape", &[sum, shape])?.into()), None])
}

fn tile_shape(c: &InferenceContext<'_>) -> Result<Vec<PartialShape>> {
    c.require_rank(1, 1)?;
    let Some(rank) = c.input(0).rank().or(c.input(1).dim(0)) else { return Ok(vec![PartialShape::unknown()]) };
    let x = c.input(0).with_rank(rank)?;
    c.input(1).merge(&PartialShape::from([rank])).map_err(|_| bad_length(rank, c.input(1).dim(0).unwrap_or(0)))?;
    let Some(multiples) = c.input_i64s(1) else { return Ok(vec![PartialShape::of_rank(rank)]) };
    check_sign(&multiples)?;
    let dims = multiples.iter().enumerate().map(|(i, &m)| match (x.dim(i), m as usize) {
        (_, 0) => Some(0),
        (dim, m) => dim.and_then(|d| d.checked_mul(m)),
    });
    Ok(vec![PartialShape::new(dims)])
}

fn bad_length(rank: usize, found: usize) -> tensor::Error {
    invalid!("Expected multiples argument to be a vector of length {rank} but got length {found}")
}

fn check_sign(multiples: &[i64]) -> Result<()> {
    match multiples.iter().position(|&m| m < 0) {
        Some(i) => Err(invalid!("Expected multiples[{i}] >= 0, but got {}", multiples[i])),
        None => Ok(()),
    }
}

struct Tile;

impl MoveKernel for Tile {
    fn compute<I: Item>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let (x, multiples) = (ctx.input(0), ctx.input(1));
        let rank = x.shape().rank();
        if multiples.shape().dims() != [rank] {
            return Err(bad_length(rank, multiples.num_elements()));
        }
        let multiples = indices(multiples)?;
        check_sign(&multiples)?;
        if multiples.iter().all(|&m| m == 1) {
            let x = ctx.take(0);
            return ctx.set_output(0, x);
        }
        let too_large =
            || invalid!("{} tiled by {:?} has more elements than can be addressed", x.shape(), &multiples[..]);
        let sizes = x.dims().iter().zip(&multiples).map(|(&d, &m)| (d as i64).checked_mul(m).ok_or_else(too_large));
        let shape = Shape::checked(sizes.collect::<Result<Indices>>()?)?;

        // Each axis becomes two: the copies, which stand still in the source, and what is copied.
        let dense = Strided::dense(x.dims()).strides;
        let pairs: Shape = x.dims().iter().zip(&multiples).flat_map(|(&d, &m)| [m as usize, d]).collect();
        let from = Strided { start: 0, strides: dense.iter().flat_map(|&stride| [0, stride]).collect() };
        let y = strided_tensor::<I>(ctx.pool(), x, pairs, &from)?.reshaped(shape)?;
        ctx.set_output(0, y)
    }
}

#[cfg(test)]
mod tests {
    use crate::array::testing::eval;
    use tensor::Tensor;

    #[test]
    fn copies_stand_side_by_side() {
        let x = Tensor::from([[1i32, 2], [3, 4]]);
        let tiled = |multiples: Vec<i64>| eval("Tile", &[x.clone(), multiples.into()], &[]);
        let want = Tensor::from([[1i32, 2, 1, 2, 1, 2], [3, 4, 3, 4, 3, 4]]);
        assert_eq!(tiled(vec![1, 3]).unwrap(), [want]);
        assert_eq!(tiled(vec![2, 1]).unwrap(), [Tensor::from([[1i32, 2], [3, 4], [1, 2], [3, 4]])]);
        assert_eq!(tiled(vec![0, 1]).unwrap()[0].dims(), [0, 2]);
        assert!(tiled(vec![1]).is_err());
        assert!(tiled(vec![1, -1]).is_err());
        assert!(tiled(vec![1 << 40, 1 << 40]).is_err());
    }
}

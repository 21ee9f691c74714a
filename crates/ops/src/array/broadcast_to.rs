//! `BroadcastTo`: a tensor stretched to a shape.

use super::{indices, strided_tensor};
use framework::kernel::KernelContext;
use framework::typed::{Item, MoveKernel, moves};
use framework::{Grad, GradValue, InferenceContext, Op, Output, Scope};
use linalg::transpose::Strided;
use tensor::{PartialShape, Result, Shape, broadcast, invalid};

pub fn ops() -> Vec<Op> {
    vec![
        Op::new("BroadcastTo")
            .input("input: T")
            .input("shape: Tidx")
            .output("output: T")
            .attr("T: type")
            .attr("Tidx: indextype = int32")
            .shape(stretched_shape)
            .gradient(broadcast_gradient)
            .kernel(moves(|_| Ok(BroadcastTo))),
    ]
}

/// `x` stretched to a shape.
pub fn broadcast_to(s: &Scope, x: Output, shape: Output) -> Result<Output> {
    s.op("BroadcastTo", &[x, shape])
}

/// The sum over all dimensions that were stretched.
fn broadcast_gradient(s: &Scope, g: &Grad<'_>) -> Result<Vec<Option<GradValue>>> {
    let target = g.inputs[1];
    let shape = s.node("Shape").input(g.inputs[0]).attr("out_type", s.dtype(target)?).output()?;
    let axes = s.node("BroadcastGradientArgs").inputs(&[shape, target]).output()?;
    let sum = s.node("Sum").inputs(&[g.dy[0], axes]).attr("keep_dims", true).output()?;
    Ok(vec![Some(s.op("Reshape", &[sum, shape])?.into()), None])
}

fn stretched_shape(c: &InferenceContext<'_>) -> Result<Vec<PartialShape>> {
    let target = c.shape_from_input(1)?;
    if let (Some(from), Some(to)) = (c.input(0).known(), target.known()) {
        check(&from, &to)?;
    }
    Ok(vec![target])
}

fn check(from: &Shape, to: &Shape) -> Result<()> {
    if from.rank() > to.rank() {
        return Err(invalid!(
            "Rank of input ({}) must be no greater than rank of output shape ({}).",
            from.rank(),
            to.rank()
        ));
    }
    if broadcast(from, to).ok().as_ref() != Some(to) {
        return Err(invalid!("Incompatible shapes: {from} vs. {to}"));
    }
    Ok(())
}

struct BroadcastTo;

impl MoveKernel for BroadcastTo {
    fn compute<I: Item>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let (x, target) = (ctx.input(0), ctx.input(1));
        if target.shape().rank() != 1 {
            return Err(invalid!("the shape to broadcast to must be a vector, found shape {}", target.shape()));
        }
        let shape = Shape::checked(indices(target)?)?;
        check(x.shape(), &shape)?;
        if shape == *x.shape() {
            let x = ctx.take(0);
            return ctx.set_output(0, x);
        }
        let dense = Strided::dense(x.dims()).strides;
        let new = shape.rank() - x.shape().rank();
        let stride = |i: usize| if x.dims()[i] == 1 { 0 } else { dense[i] };
        let strides = (0..shape.rank()).map(|i| i.checked_sub(new).map_or(0, stride)).collect();
        let y = strided_tensor::<I>(ctx.pool(), x, shape, &Strided { start: 0, strides })?;
        ctx.set_output(0, y)
    }
}

#[cfg(test)]
mod tests {
    use crate::array::testing::eval;
    use tensor::Tensor;

    #[test]
    fn dimensions_of_one_are_stretched() {
        let to = |x: Tensor, shape: Vec<i32>| eval("BroadcastTo", &[x, shape.into()], &[]);
        assert_eq!(to(Tensor::from([[1i32], [2]]), vec![2, 3]).unwrap(), [Tensor::from([[1i32, 1, 1], [2, 2, 2]])]);
        assert_eq!(to(Tensor::from("a"), vec![2]).unwrap(), [Tensor::from(["a", "a"])]);
        assert_eq!(to(Tensor::from([1i32]), vec![0]).unwrap()[0].dims(), [0]);
        assert!(to(Tensor::from([1i32, 2]), vec![3]).is_err());
        assert!(to(Tensor::from([1i32, 2]), vec![]).is_err());
        assert!(to(Tensor::from([1i32, 2]), vec![1]).is_err());
    }
}

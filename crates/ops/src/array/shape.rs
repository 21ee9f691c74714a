//! `Shape`, `ShapeN`, `Size` and `Rank`: a tensor's measures as tensors.

use super::{index_tensor, small};
use framework::kernel::{function, kernel};
use framework::shapes::scalar;
use framework::{InferenceContext, Kernel, KernelBuild, KernelContext, Op, Output, Scope};
use tensor::{DType, PartialShape, Result, Shape, Tensor, invalid};

pub fn ops() -> Vec<Op> {
    vec![
        Op::new("Shape")
            .input("input: T")
            .output("output: out_type")
            .attr("T: type")
            .attr("out_type: indextype = int32")
            .shape(lengths)
            .value(values)
            .not_differentiable()
            .kernel(kernel(ShapeOf::new)),
        Op::new("ShapeN")
            .input("input: N*T")
            .output("output: N*out_type")
            .attr("N: int >= 1")
            .attr("T: type")
            .attr("out_type: indextype = int32")
            .shape(lengths)
            .value(values)
            .not_differentiable()
            .kernel(kernel(ShapeOf::new)),
        Op::new("Size")
            .input("input: T")
            .output("output: out_type")
            .attr("T: type")
            .attr("out_type: indextype = int32")
            .shape(scalar)
            .value(|c| {
                let size = c.input(0).num_elements()?;
                Some(vec![size_tensor(c.attr("out_type").ok()?, size).ok()])
            })
            .not_differentiable()
            .kernel(kernel(|b| Ok(Size(b.dtype("out_type")?)))),
        Op::new("Rank")
            .input("input: T")
            .output("output: int32")
            .attr("T: type")
            .shape(scalar)
            .value(|c| Some(vec![c.input(0).rank().map(|r| Tensor::scalar(r as i32))]))
            .not_differentiable()
            .kernel(function(|ctx| {
                let rank = ctx.input(0).shape().rank() as i32;
                ctx.set_output(0, rank)
            })),
    ]
}

/// The sizes of the dimensions, as int32.
pub fn shape(s: &Scope, x: Output) -> Result<Output> {
    s.op("Shape", &[x])
}

/// The number of elements, as int32.
pub fn size(s: &Scope, x: Output) -> Result<Output> {
    s.op("Size", &[x])
}

/// The number of dimensions, as int32.
pub fn rank(s: &Scope, x: Output) -> Result<Output> {
    s.op("Rank", &[x])
}

fn lengths(c: &InferenceContext<'_>) -> Result<Vec<PartialShape>> {
    Ok((0..c.num_inputs()).map(|i| PartialShape::new([c.input(i).rank()])).collect())
}

fn values(c: &InferenceContext<'_>) -> Option<Vec<Option<Tensor>>> {
    let dtype: DType = c.attr("out_type").ok()?;
    let value = |i: usize| small(shape_tensor(dtype, &c.input(i).known()?).ok()?);
    Some((0..c.num_inputs()).map(value).collect())
}

fn shape_tensor(dtype: DType, shape: &Shape) -> Result<Tensor> {
    let dims: super::Indices = shape.dims().iter().map(|&d| d as i64).collect();
    let error = |_| invalid!("Shape output type is 32-bit but a dimension of {shape} is larger");
    index_tensor(dtype, [dims.len()], &dims).map_err(error)
}

fn size_tensor(dtype: DType, size: usize) -> Result<Tensor> {
    let error = |_| invalid!("Number of elements was larger than representable by 32-bit output type: {size}");
    index_tensor(dtype, Shape::scalar(), &[size as i64]).map_err(error)
}

struct ShapeOf(DType);

impl ShapeOf {
    fn new(b: &KernelBuild<'_>) -> Result<ShapeOf> {
        Ok(ShapeOf(b.dtype("out_type")?))
    }
}

impl Kernel for ShapeOf {
    fn compute(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        for i in 0..ctx.num_inputs() {
            let shape = shape_tensor(self.0, ctx.input(i).shape())?;
            ctx.set_output(i, shape)?;
        }
        Ok(())
    }
}

struct Size(DType);

impl Kernel for Size {
    fn compute(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let size = size_tensor(self.0, ctx.input(0).num_elements())?;
        ctx.set_output(0, size)
    }
}

#[cfg(test)]
mod tests {
    use crate::array::testing::eval;
    use tensor::{DType, Tensor};

    #[test]
    fn tensors_are_measured() {
        let x = Tensor::from([[1.0f32, 2.0, 3.0], [4.0, 5.0, 6.0]]);
        let x = std::slice::from_ref(&x);
        let wide = [("out_type", DType::I64.into())];
        assert_eq!(eval("Shape", x, &[]).unwrap(), [Tensor::from([2i32, 3])]);
        assert_eq!(eval("Shape", x, &wide).unwrap(), [Tensor::from([2i64, 3])]);
        assert_eq!(eval("Size", x, &wide).unwrap(), [Tensor::scalar(6i64)]);
        assert_eq!(eval("Rank", x, &[]).unwrap(), [Tensor::scalar(2i32)]);
        let two = [x[0].clone(), Tensor::scalar(1.0f32)];
        assert_eq!(eval("ShapeN", &two, &[]).unwrap(), [Tensor::from([2i32, 3]), Tensor::from([0i32; 0])]);
    }
}

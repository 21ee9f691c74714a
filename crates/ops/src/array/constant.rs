//! `Const`: a value that stands in the graph itself.

use super::small;
use framework::kernel::kernel;
use framework::{InferenceContext, Kernel, KernelBuild, KernelContext, Op};
use tensor::{DType, PartialShape, Result, Tensor, invalid};

pub fn ops() -> Vec<Op> {
    vec![
        Op::new("Const")
            .output("output: dtype")
            .attr("value: tensor")
            .attr("dtype: type")
            .shape(|c| Ok(vec![PartialShape::from(value_of(c)?.shape())]))
            .value(|c| Some(vec![value_of(c).ok().and_then(small)]))
            .not_differentiable()
            .kernel(kernel(Const::new)),
    ]
}

fn value_of(c: &InferenceContext<'_>) -> Result<Tensor> {
    let (value, dtype): (Tensor, DType) = (c.attr("value")?, c.attr("dtype")?);
    checked(value, dtype)
}

fn checked(value: Tensor, dtype: DType) -> Result<Tensor> {
    if value.dtype() != dtype {
        return Err(invalid!("Inconsistent values for attr 'dtype' {dtype} vs. {} of the value", value.dtype()));
    }
    Ok(value)
}

struct Const(Tensor);

impl Const {
    fn new(b: &KernelBuild<'_>) -> Result<Const> {
        checked(b.attr("value")?, b.dtype("dtype")?).map(Const)
    }
}

impl Kernel for Const {
    fn compute(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        ctx.set_output(0, self.0.clone())
    }
}

#[cfg(test)]
mod tests {
    use crate::array::testing::eval;
    use tensor::{DType, Tensor};

    #[test]
    fn a_constant_is_its_value() {
        let value = Tensor::from([2.0f32, 3.0]);
        let found = eval("Const", &[], &[("value", value.clone().into()), ("dtype", DType::F32.into())]).unwrap();
        assert!(found[0] == value);
        assert!(eval("Const", &[], &[("value", value.into()), ("dtype", DType::I32.into())]).is_err());
    }
}

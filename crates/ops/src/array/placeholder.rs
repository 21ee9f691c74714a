//! `Placeholder` and `PlaceholderWithDefault`: where a run's values are fed.

use framework::gradient::{by_rows, dense};
use framework::kernel::kernel;
use framework::shapes::from_shape_attr;
use framework::{Kernel, KernelBuild, KernelContext, Op, Output, Scope};
use tensor::{DType, Error, PartialShape, Result, invalid};

pub fn ops() -> Vec<Op> {
    vec![
        Op::new("Placeholder")
            .output("output: dtype")
            .attr("dtype: type")
            .attr("shape: shape = <unknown>")
            .shape(from_shape_attr)
            .kernel(kernel(Unfed::new)),
        Op::new("PlaceholderWithDefault")
            .input("input: dtype")
            .output("output: dtype")
            .attr("dtype: type")
            .attr("shape: shape")
            .shape(|c| {
                // What is fed may be less precise than the default, so only the attribute counts.
                let shape: PartialShape = c.attr("shape")?;
                shape.merge(c.input(0))?;
                Ok(vec![shape])
            })
            .gradient(|_, g| dense([g.dy[0]]))
            .row_gradient(by_rows)
            .kernel(kernel(|b| Ok(Default { shape: b.attr("shape")? }))),
    ]
}

/// A tensor that every run must feed.
pub fn placeholder(s: &Scope, dtype: DType, shape: impl Into<PartialShape>) -> Result<Output> {
    s.node("Placeholder").attr("dtype", dtype).attr("shape", shape.into()).output()
}

/// A placeholder that is run at all was not fed.
struct Unfed(Error);

impl Unfed {
    fn new(b: &KernelBuild<'_>) -> Result<Unfed> {
        let (dtype, shape): (DType, PartialShape) = (b.dtype("dtype")?, b.attr("shape")?);
        let shape = if shape.rank().is_some_and(|r| r > 0) { format!(" and shape {shape}") } else { String::new() };
        let name = &b.node.name;
        Ok(Unfed(invalid!("You must feed a value for placeholder tensor '{name}' with dtype {dtype}{shape}")))
    }
}

impl Kernel for Unfed {
    fn compute(&self, _: &mut KernelContext<'_>) -> Result<()> {
        Err(self.0.clone())
    }
}

/// Passes the default on; what was inferred from the attribute must hold for it too.
struct Default {
    shape: PartialShape,
}

impl Kernel for Default {
    fn compute(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let value = ctx.take(0);
        if !self.shape.accepts(value.shape()) {
            return Err(invalid!("the default has shape {}, the placeholder {}", value.shape(), self.shape));
        }
        ctx.set_output(0, value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::testing::{eval, run};
    use tensor::{Code, Tensor};

    #[test]
    fn an_unfed_placeholder_says_what_it_wants() {
        let error = run(|s| Ok(vec![placeholder(s, DType::F32, [None, Some(2)])?])).unwrap_err();
        assert_eq!(error.code, Code::InvalidArgument);
        let want = "You must feed a value for placeholder tensor 'Placeholder' with dtype float and shape [?,2]";
        assert!(error.message.starts_with(want), "{error}");
    }

    #[test]
    fn a_default_is_used_when_nothing_is_fed() {
        let x = Tensor::from([1i32, 2]);
        let attr = [("shape", PartialShape::of_rank(1).into())];
        assert!(eval("PlaceholderWithDefault", std::slice::from_ref(&x), &attr).unwrap()[0] == x);
        let wrong = run(|s| {
            let x = s.constant(x)?;
            let node = s.node("PlaceholderWithDefault").input(x).attr("shape", PartialShape::scalar());
            Ok(vec![node.output()?])
        });
        assert!(wrong.is_err());
        let late =
            eval("PlaceholderWithDefault", &[Tensor::from([1i32, 2])], &[("shape", PartialShape::scalar().into())]);
        assert_eq!(late.unwrap_err().code, Code::InvalidArgument);
    }
}

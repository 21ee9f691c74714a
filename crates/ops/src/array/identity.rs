//! `Identity` and its kin: the same value under another name, with or without a gradient.

use framework::gradient::{by_rows, dense};
use framework::kernel::{function, kernel};
use framework::shapes::unchanged;
use framework::{GradValue, Kernel, KernelBuild, KernelContext, Op, Output, Scope};
use tensor::{PartialShape, Result, invalid};

pub fn ops() -> Vec<Op> {
    vec![
        same("Identity")
            .passes_references()
            .value(|c| Some(vec![c.input_value(0).cloned()]))
            .gradient(|_, g| dense([g.dy[0]]))
            .row_gradient(by_rows),
        same("Snapshot").gradient(|_, g| dense([g.dy[0]])).row_gradient(by_rows),
        same("EnsureShape")
            .attr("shape: shape")
            .shape(|c| {
                let wanted: PartialShape = c.attr("shape")?;
                let merged = c.input(0).merge(&wanted);
                Ok(vec![merged.map_err(|_| not_of(c.input(0), &wanted))?])
            })
            .gradient(|_, g| dense([g.dy[0]]))
            .kernel(kernel(|b: &KernelBuild<'_>| Ok(EnsureShape(b.attr("shape")?)))),
        Op::new("RefIdentity")
            .input("input: Ref(T)")
            .output("output: Ref(T)")
            .attr("T: type")
            .allows_uninitialized_input()
            .shape(unchanged)
            .gradient(|_, g| dense([g.dy[0]]))
            .row_gradient(by_rows)
            .kernel(function(|ctx| {
                let reference = ctx.input_value(0).clone();
                ctx.set_value(0, reference)
            })),
        same("StopGradient").value(|c| Some(vec![c.input_value(0).cloned()])).not_differentiable(),
        same("PreventGradient").attr("message: string = ''").gradient(|s, g| {
            let message: String = g.attr(s, "message")?;
            Err(invalid!("Gradient explicitly disabled. Reason: {message}"))
        }),
        Op::new("IdentityN")
            .input("input: T")
            .output("output: T")
            .attr("T: list(type) >= 1")
            .shape(|c| Ok((0..c.num_inputs()).map(|i| c.input(i).clone()).collect::<Vec<PartialShape>>()))
            .gradient(|s, g| {
                let has_gradient = |&y: &Output| s.dtype(y).is_ok_and(|d| d.is_floating() || d.is_complex());
                Ok(g.dy.iter().map(|dy| has_gradient(dy).then_some(GradValue::Dense(*dy))).collect())
            })
            .kernel(function(pass_on)),
    ]
}

/// The same value.
pub fn identity(s: &Scope, x: Output) -> Result<Output> {
    s.op("Identity", &[x])
}

/// The same value; gradients end here.
pub fn stop_gradient(s: &Scope, x: Output) -> Result<Output> {
    s.op("StopGradient", &[x])
}

fn not_of(found: impl std::fmt::Display, wanted: &PartialShape) -> tensor::Error {
    invalid!("Shape of tensor {found} is not compatible with expected shape {wanted}.")
}

struct EnsureShape(PartialShape);

impl Kernel for EnsureShape {
    fn compute(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        if !self.0.accepts(ctx.input(0).shape()) {
            return Err(not_of(ctx.input(0).shape(), &self.0));
        }
        pass_on(ctx)
    }
}

fn same(name: &str) -> Op {
    Op::new(name).input("input: T").output("output: T").attr("T: type").shape(unchanged).kernel(function(pass_on))
}

fn pass_on(ctx: &mut KernelContext<'_>) -> Result<()> {
    for i in 0..ctx.num_inputs() {
        let value = ctx.take_value(i);
        ctx.set_value(i, value)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::array::testing::eval;
    use tensor::Tensor;

    #[test]
    fn values_pass_unchanged() {
        let x = Tensor::from(["a", "b"]);
        for op in ["Identity", "Snapshot", "StopGradient", "PreventGradient"] {
            let y = eval(op, std::slice::from_ref(&x), &[]).unwrap();
            assert!(y[0] == x, "{op}");
        }
        let both = [x, Tensor::scalar(1.5f64)];
        assert_eq!(eval("IdentityN", &both, &[]).unwrap(), both);
    }
}

//! `Enter`, `Exit`, `NextIteration` and `LoopCond`: how values enter a loop, go round and leave it.
//!
//! The executor keeps the frames; here is only what the nodes are.

use framework::kernel::function;
use framework::shapes::{scalar, unchanged};
use framework::{ControlFlow, KernelContext, Op};
use tensor::{Result, invalid, unsupported};

pub fn ops() -> Vec<Op> {
    let mut ops = Vec::new();
    for (prefix, value) in [("", "T"), ("Ref", "Ref(T)")] {
        let pass = |name: &str, kind: ControlFlow| {
            Op::new(format!("{prefix}{name}"))
                .input(&format!("data: {value}"))
                .output(&format!("output: {value}"))
                .attr("T: type")
                .control_flow(kind)
                .shape(unchanged)
                .gradient(|_, _| Err(unsupported!("loops are not differentiated yet")))
                .kernel(function(pass_on))
        };
        let enter = pass("Enter", ControlFlow::Enter)
            .attr("frame_name: string")
            .attr("is_constant: bool = false")
            .attr("parallel_iterations: int = 10");
        ops.extend([enter, pass("Exit", ControlFlow::Exit), pass("NextIteration", ControlFlow::NextIteration)]);
    }
    ops.push(
        Op::new("LoopCond")
            .input("input: bool")
            .output("output: bool")
            .shape(|c| {
                c.require_scalar(0)?;
                scalar(c)
            })
            .not_differentiable()
            .kernel(function(loop_cond)),
    );
    ops
}

fn loop_cond(ctx: &mut KernelContext<'_>) -> Result<()> {
    let value = ctx.take(0);
    if !value.shape().is_scalar() {
        return Err(invalid!("The condition of a loop must be a scalar, but it has shape {}", value.shape()));
    }
    ctx.set_output(0, value)
}

/// Values and references alike.
fn pass_on(ctx: &mut KernelContext<'_>) -> Result<()> {
    let value = ctx.input_value(0).clone();
    ctx.set_value(0, value)
}

#[cfg(test)]
mod tests {
    use crate::array::testing::eval;
    use tensor::{Code, Tensor};

    #[test]
    fn the_condition_of_a_loop_is_a_scalar() {
        assert_eq!(eval("LoopCond", &[Tensor::scalar(true)], &[]).unwrap()[0], Tensor::scalar(true));
        let refused = eval("LoopCond", &[Tensor::from([true])], &[]).unwrap_err();
        assert_eq!(refused.code, Code::InvalidArgument);
    }
}

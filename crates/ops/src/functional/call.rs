//! `PartitionedCall` and `StatefulPartitionedCall`: a function as a node; `_Arg` and `_Retval`: its two ends.

use framework::call::Call;
use framework::kernel::{async_kernel, kernel};
use framework::shapes::{no_outputs, unknown};
use framework::step::CallFrame;
use framework::{Kernel, KernelBuild, KernelContext, Op};
use tensor::{PartialShape, Result, Shape, Tensor, failed_precondition};

/// The ops of this file.
pub fn ops() -> Vec<Op> {
    let call = |name: &str| {
        Op::new(name)
            .input("args: Tin")
            .output("output: Tout")
            .attr("Tin: list(type) >= 0")
            .attr("Tout: list(type) >= 0")
            .attr("f: func")
            .attr("config: string = ''")
            .attr("config_proto: string = ''")
            .attr("executor_type: string = ''")
            .shape(unknown)
            .kernel(async_kernel(|b| Ok(Call(b.function("f")?))))
    };
    vec![
        call("PartitionedCall"),
        call("StatefulPartitionedCall").stateful(),
        Op::new("_Arg")
            .output("output: T")
            .attr("T: type")
            .attr("index: int >= 0")
            .stateful()
            .shape(unknown)
            .kernel(kernel(|b| Ok(Arg { index: index(b)? }))),
        Op::new("_Retval")
            .input("input: T")
            .attr("T: type")
            .attr("index: int >= 0")
            .stateful()
            .shape(no_outputs)
            .kernel(kernel(|b| Ok(Retval { index: index(b)? }))),
        Op::new("FakeParam")
            .output("output: dtype")
            .attr("dtype: type")
            .attr("shape: shape")
            .shape(|c| Ok(vec![c.attr("shape")?]))
            .kernel(kernel(FakeParam::new)),
    ]
}

fn index(b: &KernelBuild<'_>) -> Result<usize> {
    let index: i64 = b.attr("index")?;
    usize::try_from(index).map_err(|_| tensor::invalid!("index {index} is negative"))
}

fn frame<'a>(ctx: &KernelContext<'a>) -> Result<&'a CallFrame> {
    ctx.step().call.as_ref().ok_or_else(|| failed_precondition!("{} outside of a function", ctx.node().op.name))
}

struct Arg {
    index: usize,
}

impl Kernel for Arg {
    fn compute(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let value = frame(ctx)?.argument(self.index)?;
        ctx.set_output(0, value)
    }
}

struct Retval {
    index: usize,
}

impl Kernel for Retval {
    fn compute(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let value = ctx.take(0);
        frame(ctx)?.set_result(self.index, value)
    }
}

/// Stands for a value that nobody looks at: an intermediate value of the branch that was not taken.
struct FakeParam(Tensor);

impl FakeParam {
    fn new(b: &KernelBuild<'_>) -> Result<FakeParam> {
        let shape: PartialShape = b.attr("shape")?;
        let dims = shape.dims().unwrap_or_default().iter().map(|d| d.unwrap_or(0) as i64);
        Ok(FakeParam(Tensor::zeros(b.dtype("dtype")?, Shape::checked(dims)?)?))
    }
}

impl Kernel for FakeParam {
    fn compute(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        ctx.set_output(0, self.0.clone())
    }
}

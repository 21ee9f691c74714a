//! `While`: a function called again and again, as long as another says so.

use super::branch::{declared, is_true};
use crate::pace::Pace;
use framework::kernel::async_kernel;
use framework::{AsyncContext, AsyncKernel, BoxFuture, Function, KernelBuild, Op, Outputs, Value};
use std::sync::Arc;
use tensor::{Result, Tensor, invalid};

/// The ops of this file.
pub fn ops() -> Vec<Op> {
    let op = |name: &str| {
        Op::new(name)
            .input("input: T")
            .output("output: T")
            .attr("T: list(type) >= 0")
            .attr("cond: func")
            .attr("body: func")
            .attr("output_shapes: list(shape) = []")
            .attr("parallel_iterations: int = 10")
            .shape(declared)
            .kernel(async_kernel(While::new))
    };
    vec![op("While").stateful(), op("StatelessWhile")]
}

#[derive(Clone)]
struct While {
    condition: Arc<Function>,
    body: Arc<Function>,
}

impl While {
    fn new(b: &KernelBuild<'_>) -> Result<While> {
        Ok(While { condition: Arc::new(b.function("cond")?), body: Arc::new(b.function("body")?) })
    }

    async fn run(self, ctx: AsyncContext) -> Result<Outputs> {
        let step = ctx.step;
        let mut values: Vec<Tensor> = ctx.inputs.iter().map(Value::tensor).collect::<Result<_>>()?;
        drop(ctx.inputs);
        let mut pace = Pace::new();
        loop {
            let goes_on = self.condition.call(&step, values.clone()).await?;
            let [goes_on] = goes_on.as_slice() else {
                return Err(invalid!("the condition of a While has {} results, wanted one", goes_on.len()));
            };
            if !is_true(goes_on)? {
                return Ok(values.into_iter().map(Value::Tensor).collect());
            }
            values = self.body.call(&step, values).await?;
            pace.turn(&step).await?;
        }
    }
}

impl AsyncKernel for While {
    fn compute(&self, ctx: AsyncContext) -> BoxFuture<Result<Outputs>> {
        Box::pin(self.clone().run(ctx))
    }
}

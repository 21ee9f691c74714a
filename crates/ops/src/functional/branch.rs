//! `If` and `Case`: which function is called depends on a value.

use framework::kernel::async_kernel;
use framework::{AsyncContext, AsyncKernel, BoxFuture, Function, InferenceContext, KernelBuild, Op, Outputs, Value};
use tensor::{DType, PartialShape, Result, Tensor, invalid};

/// The ops of this file.
pub fn ops() -> Vec<Op> {
    let branch_if = |name: &str| {
        Op::new(name)
            .input("cond: Tcond")
            .input("input: Tin")
            .output("output: Tout")
            .attr("Tcond: type")
            .attr("Tin: list(type) >= 0")
            .attr("Tout: list(type) >= 0")
            .attr("then_branch: func")
            .attr("else_branch: func")
            .attr("output_shapes: list(shape) = []")
            .shape(declared)
            .kernel(async_kernel(Branch::new_if))
    };
    let case = |name: &str| {
        Op::new(name)
            .input("branch_index: int32")
            .input("input: Tin")
            .output("output: Tout")
            .attr("Tin: list(type) >= 0")
            .attr("Tout: list(type) >= 0")
            .attr("branches: list(func) >= 1")
            .attr("output_shapes: list(shape) = []")
            .shape(declared)
            .kernel(async_kernel(Branch::new_case))
    };
    vec![branch_if("If").stateful(), branch_if("StatelessIf"), case("Case").stateful(), case("StatelessCase")]
}

/// The shapes that the node says its outputs have.
pub(super) fn declared(c: &InferenceContext<'_>) -> Result<Vec<PartialShape>> {
    let shapes: Vec<PartialShape> = c.attr("output_shapes")?;
    if shapes.is_empty() {
        return framework::shapes::unknown(c);
    }
    if shapes.len() != c.num_outputs() {
        return Err(invalid!("output_shapes has {} shapes for {} outputs", shapes.len(), c.num_outputs()));
    }
    Ok(shapes)
}

struct Branch {
    choose: fn(&Tensor, usize) -> Result<usize>,
    branches: Vec<Function>,
}

impl Branch {
    fn new_if(b: &KernelBuild<'_>) -> Result<Branch> {
        let branches = vec![b.function("then_branch")?, b.function("else_branch")?];
        Ok(Branch { choose: |condition, _| Ok(usize::from(!is_true(condition)?)), branches })
    }

    fn new_case(b: &KernelBuild<'_>) -> Result<Branch> {
        Ok(Branch { choose: by_index, branches: b.function_list("branches")? })
    }

    fn call(&self, ctx: AsyncContext) -> Result<BoxFuture<Result<Vec<Tensor>>>> {
        let chosen = (self.choose)(&ctx.input(0)?, self.branches.len())?;
        let branch = self.branches.get(chosen).ok_or_else(|| invalid!("there is no branch {chosen}"))?;
        let arguments: Vec<Tensor> = ctx.inputs[1..].iter().map(Value::tensor).collect::<Result<_>>()?;
        drop(ctx.inputs); // the function may write to what nobody else holds
        Ok(branch.call(&ctx.step, arguments))
    }
}

impl AsyncKernel for Branch {
    fn compute(&self, ctx: AsyncContext) -> BoxFuture<Result<Outputs>> {
        let call = self.call(ctx);
        Box::pin(async move { Ok(call?.await?.into_iter().map(Value::Tensor).collect()) })
    }
}

/// An index beyond the branches means the last of them.
fn by_index(index: &Tensor, count: usize) -> Result<usize> {
    if !index.shape().is_scalar() {
        return Err(invalid!("branch_index should be a scalar, found shape {}", index.shape()));
    }
    Ok(usize::try_from(index.item::<i32>()?).unwrap_or(usize::MAX).min(count.saturating_sub(1)))
}

/// What counts as true: a scalar that is not zero or empty, or a tensor that has elements.
pub(super) fn is_true(condition: &Tensor) -> Result<bool> {
    if !condition.shape().is_scalar() {
        return Ok(condition.num_elements() > 0);
    }
    match condition.dtype() {
        DType::Bool => condition.item::<bool>(),
        DType::String => Ok(!condition.string_item()?.is_empty()),
        DType::F32 => Ok(condition.item::<f32>()? != 0.0),
        DType::F64 => Ok(condition.item::<f64>()? != 0.0),
        dtype if dtype.is_integer() => Ok(condition.as_bytes()?.iter().any(|&b| b != 0)),
        other => Err(invalid!("{other} cannot be used as a condition")),
    }
}

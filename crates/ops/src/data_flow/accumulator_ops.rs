//! The accumulator ops: declare, apply a gradient, take the mean, look. `accumulator.rs` has the accumulator itself.
//!
//! Dense accumulators exist with a resource handle (`Resource…`) and, as old graphs have it, with a reference to two
//! strings; sparse ones only with the latter.

use super::accumulator::{Accumulator, AccumulatorSpec, Arithmetic, Gradient, Reduction, Rows};
use super::declared::{Declared, resolve};
use super::members::{chosen_policy, servers_policy};
use framework::kernel::{AsyncContext, AsyncKernel, BoxFuture, Outputs, async_kernel, function, kernel};
use framework::op::KernelFn;
use framework::typed::{FloatKernel, floats};
use framework::{Float, Kernel, KernelBuild, KernelContext, LostWorker, Op, Resources, Value, shapes};
use std::sync::Arc;
use tensor::{DType, PartialShape, Result, Tensor, invalid};

/// The ops of this file.
pub fn ops() -> Vec<Op> {
    let mut ops = vec![
        declares("ConditionalAccumulator", "Ref(string)", floats(|b| Declare::new(b, false))),
        declares("ResourceConditionalAccumulator", "resource", floats(|b| Declare::new(b, false))),
        declares("SparseConditionalAccumulator", "Ref(string)", floats(|b| Declare::new(b, true))),
        Op::new("SparseAccumulatorApplyGradient")
            .input("handle: Ref(string)")
            .input("local_step: int64")
            .input("gradient_indices: int64")
            .input("gradient_values: dtype")
            .input("gradient_shape: int64")
            .attr("dtype: numbertype")
            .attr("has_known_shape: bool")
            .shape(|c| {
                c.require_scalar(1)?;
                Ok(Vec::new())
            })
            .kernel(kernel(|b| Ok(ApplySparse { has_known_shape: b.attr("has_known_shape")? }))),
        Op::new("SparseAccumulatorTakeGradient")
            .input("handle: Ref(string)")
            .input("num_required: int32")
            .output("indices: int64")
            .output("values: dtype")
            .output("shape: int64")
            .attr("dtype: numbertype")
            .shape(|c| {
                c.require_scalar(1)?;
                Ok(vec![PartialShape::of_rank(1), PartialShape::unknown(), PartialShape::of_rank(1)])
            })
            .kernel(async_kernel(Take::new)),
    ];
    for (prefix, handle) in [("", "handle: Ref(string)"), ("Resource", "handle: resource")] {
        let op = |name: &str| {
            let op = Op::new(format!("{prefix}{name}")).input(handle);
            if prefix.is_empty() { op } else { op.stateful() }
        };
        ops.extend([
            op("AccumulatorApplyGradient")
                .input("local_step: int64")
                .input("gradient: dtype")
                .attr("dtype: numbertype")
                .shape(|c| {
                    c.require_scalar(1)?;
                    Ok(Vec::new())
                })
                .kernel(function(apply)),
            op("AccumulatorNumAccumulated")
                .output("num_accumulated: int32")
                .shape(shapes::scalar)
                .kernel(function(count)),
            op("AccumulatorSetGlobalStep")
                .input("new_global_step: int64")
                .shape(|c| {
                    c.require_scalar(1)?;
                    Ok(Vec::new())
                })
                .kernel(function(set_global_step)),
            op("AccumulatorTakeGradient")
                .input("num_required: int32")
                .output("average: dtype")
                .attr("dtype: numbertype")
                .shape(|c| {
                    c.require_scalar(1)?;
                    shapes::unknown(c)
                })
                .kernel(async_kernel(Take::new)),
        ]);
    }
    ops
}

fn declares(name: &str, handle: &str, kernel: KernelFn) -> Op {
    let op = Op::new(name).output(&format!("handle: {handle}")).attr("dtype: numbertype").attr("shape: shape");
    let op = op.attr("container: string = ''").attr("shared_name: string = ''");
    let op = op.attr("reduction_type: {'MEAN', 'SUM'} = 'MEAN'").stateful().kernel(kernel);
    if handle == "resource" { op.shape(shapes::scalar) } else { op.shape(|_| Ok(vec![PartialShape::from([2])])) }
}

/// Makes an accumulator, or finds one of its shared name.
struct Declare {
    declared: Declared<Accumulator>,
    spec: AccumulatorSpec,
    /// What to do about lost workers; as the server says, unless the node does.
    policy: Option<LostWorker>,
}

impl Declare {
    fn new(b: &KernelBuild<'_>, is_sparse: bool) -> Result<Declare> {
        let reduction = if b.attr::<String>("reduction_type")? == "SUM" { Reduction::Sum } else { Reduction::Mean };
        let spec = AccumulatorSpec { dtype: b.attr("dtype")?, shape: b.attr("shape")?, reduction, is_sparse };
        Ok(Declare { declared: Declared::new(b)?, spec, policy: chosen_policy(b)? })
    }
}

impl FloatKernel for Declare {
    fn compute<T: Float>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let policy = self.policy.unwrap_or_else(|| servers_policy(ctx.step()));
        self.declared.output(
            ctx,
            |_| Ok(Accumulator::new(self.spec.clone(), Arithmetic::of::<T>(), policy)),
            |found, name| match *found.spec() == self.spec {
                true => Ok(()),
                false => Err(invalid!(
                    "Shared conditional accumulator '{name}' was declared as {:?}, now as {:?}",
                    found.spec(),
                    self.spec
                )),
            },
        )
    }
}

fn accumulator(ctx: &KernelContext<'_>) -> Result<Arc<Accumulator>> {
    resolve(ctx.resources(), ctx.input_value(0))
}

fn apply(ctx: &mut KernelContext<'_>) -> Result<()> {
    let local_step = ctx.input(1).item::<i64>()?;
    let gradient = ctx.take(2);
    accumulator(ctx)?.apply(local_step, Gradient::Dense(gradient), ctx.step().participant.as_ref())
}

fn count(ctx: &mut KernelContext<'_>) -> Result<()> {
    let count = accumulator(ctx)?.count();
    ctx.set_output(0, Tensor::scalar(count as i32))
}

fn set_global_step(ctx: &mut KernelContext<'_>) -> Result<()> {
    let step = ctx.input(1).item::<i64>()?;
    accumulator(ctx)?.set_global_step(step);
    Ok(())
}

struct ApplySparse {
    has_known_shape: bool,
}

impl Kernel for ApplySparse {
    fn compute(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let accumulator = accumulator(ctx)?;
        let local_step = ctx.input(1).item::<i64>()?;
        let indices = ctx.input(2);
        if indices.shape().rank() != 1 {
            return Err(invalid!("Input indices should be vector but received shape: {}", indices.shape()));
        }
        let indices = indices.as_slice::<i64>()?.to_vec();
        if self.has_known_shape {
            check_dense_shape(&accumulator.spec().shape, ctx.input(4))?;
        }
        let rows = Rows { counts: vec![1; indices.len()], indices, values: ctx.take(3) };
        accumulator.apply(local_step, Gradient::Sparse(rows), ctx.step().participant.as_ref())
    }
}

fn check_dense_shape(declared: &PartialShape, found: &Tensor) -> Result<()> {
    if found.shape().rank() != 1 {
        return Err(invalid!("Input shape should be vector but received shape: {}", found.shape()));
    }
    let found = found.as_slice::<i64>()?;
    let Some(wanted) = declared.dims() else { return Ok(()) };
    for (i, (want, &have)) in wanted.iter().zip(found).enumerate() {
        if let Some(want) = want.filter(|&w| w as i64 != have) {
            return Err(invalid!("Shape mismatch: expected shape dim {i} to be {want}, got {have}"));
        }
    }
    Ok(())
}

/// Waits for enough gradients.
struct Take {
    dtype: DType,
}

impl Take {
    fn new(b: &KernelBuild<'_>) -> Result<Take> {
        Ok(Take { dtype: b.attr("dtype")? })
    }

    fn prepare(&self, resources: &Resources, inputs: [&Value; 2]) -> Result<(Arc<Accumulator>, usize)> {
        let accumulator = resolve::<Accumulator>(resources, inputs[0])?;
        let required = inputs[1].tensor()?.item::<i32>()?;
        if required <= 0 {
            return Err(invalid!("Argument num_required must be positive, but was {required}"));
        }
        if accumulator.spec().dtype != self.dtype {
            let has = accumulator.spec().dtype;
            return Err(invalid!("the accumulator holds {has}, a gradient of {} was asked for", self.dtype));
        }
        Ok((accumulator, required as usize))
    }
}

fn outputs(accumulator: &Accumulator, gradient: Gradient) -> Result<Outputs> {
    Ok(match gradient {
        Gradient::Dense(tensor) => [Value::Tensor(tensor)].into_iter().collect(),
        Gradient::Sparse(rows) => {
            let shape = accumulator.dense_shape(&rows);
            let tensors = [Tensor::from(rows.indices), rows.values, Tensor::from(shape)];
            tensors.into_iter().map(Value::Tensor).collect()
        }
    })
}

impl AsyncKernel for Take {
    fn try_compute(&self, ctx: &mut KernelContext<'_>) -> Option<Result<()>> {
        let taken = match self.prepare(ctx.resources(), [ctx.input_value(0), ctx.input_value(1)]) {
            Ok((accumulator, required)) => accumulator.try_take(required)?.and_then(|g| outputs(&accumulator, g)),
            Err(e) => return Some(Err(e)),
        };
        Some(taken.and_then(|o| o.into_iter().enumerate().try_for_each(|(i, value)| ctx.set_value(i, value))))
    }

    fn compute(&self, ctx: AsyncContext) -> BoxFuture<Result<Outputs>> {
        let prepared = self.prepare(ctx.device.resources(), [&ctx.inputs[0], &ctx.inputs[1]]);
        let taker = ctx.step.participant.clone();
        Box::pin(async move {
            let (accumulator, required) = prepared?;
            let gradient = accumulator.take(required, taker).await?;
            outputs(&accumulator, gradient)
        })
    }
}

//! `StackV2` and its family: values pushed and popped within one step, as the gradients of loops do.

use framework::kernel::{function, kernel};
use framework::{Kernel, KernelBuild, KernelContext, Op, Resource, shapes};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tensor::{DType, Result, Tensor, invalid};

/// The ops of this file.
pub fn ops() -> Vec<Op> {
    vec![
        Op::new("StackV2")
            .input("max_size: int32")
            .output("handle: resource")
            .attr("elem_type: type")
            .attr("stack_name: string = ''")
            .stateful()
            .shape(shapes::scalar)
            .kernel(kernel(Make::new)),
        Op::new("StackPushV2")
            .input("handle: resource")
            .input("elem: T")
            .output("output: T")
            .attr("T: type")
            .attr("swap_memory: bool = false")
            .stateful()
            .shape(|c| Ok(vec![c.input(1).clone()]))
            .kernel(function(push)),
        Op::new("StackPopV2")
            .input("handle: resource")
            .output("elem: elem_type")
            .attr("elem_type: type")
            .stateful()
            .shape(shapes::unknown)
            .kernel(kernel(|b| Ok(Pop { dtype: b.attr("elem_type")? }))),
        Op::new("StackCloseV2").input("handle: resource").stateful().shape(shapes::no_outputs).kernel(function(close)),
    ]
}

struct Stack {
    name: String,
    dtype: DType,
    /// No limit if `None`.
    max_size: Option<usize>,
    /// `None` once it is closed.
    values: Mutex<Option<Vec<Tensor>>>,
}

impl Resource for Stack {
    const TYPE_NAME: &'static str = "N10tensorflow5StackE";
}

impl Stack {
    fn with<R>(&self, change: impl FnOnce(&mut Vec<Tensor>) -> Result<R>) -> Result<R> {
        match self.values.lock().as_mut() {
            Some(values) => change(values),
            None => Err(invalid!("Stack[{}] has already been closed.", self.name)),
        }
    }
}

/// Numbers the stacks of a step.
#[derive(Default)]
struct Counter(AtomicU64);

impl Resource for Counter {
    const TYPE_NAME: &'static str = "StackCounter";
}

struct Make {
    dtype: DType,
    name: String,
}

impl Make {
    fn new(b: &KernelBuild<'_>) -> Result<Make> {
        let name: String = b.attr("stack_name")?;
        Ok(Make { dtype: b.attr("elem_type")?, name: if name.is_empty() { b.node.name.clone() } else { name } })
    }
}

impl Kernel for Make {
    fn compute(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        if !ctx.input(0).shape().is_scalar() {
            return Err(invalid!("Stack size must be a scalar, but had shape: {}", ctx.input(0).shape()));
        }
        let max_size = usize::try_from(ctx.input(0).item::<i32>()?).ok();
        let resources = &ctx.step().resources;
        let counter = resources.lookup_or_create("", "stacks", || Ok(Counter::default()))?;
        let name = format!("{}_{}", self.name, counter.0.fetch_add(1, Ordering::Relaxed));
        let made = resources.lookup_or_create("", &name, || {
            let values = Mutex::new(Some(Vec::new()));
            Ok(Stack { name: name.clone(), dtype: self.dtype, max_size, values })
        })?;
        let device = ctx.device().name().to_string();
        let handle = resources.handle(&device, "", &name, Some(&made));
        ctx.set_output(0, Tensor::from_handles([], vec![handle])?)
    }
}

fn stack(ctx: &KernelContext<'_>) -> Result<Arc<Stack>> {
    match ctx.input(0).as_handles()? {
        [handle] => ctx.step().resources.resolve(handle),
        other => Err(invalid!("wanted the handle of a stack, found {} handles", other.len())),
    }
}

fn push(ctx: &mut KernelContext<'_>) -> Result<()> {
    let stack = stack(ctx)?;
    let value = ctx.take(1);
    if value.dtype() != stack.dtype {
        return Err(invalid!("Must have type {} but got {}", stack.dtype, value.dtype()));
    }
    stack.with(|values| {
        if stack.max_size.is_some_and(|max| values.len() >= max) {
            return Err(invalid!("Stack[{}] overflowed its max_size ({})", stack.name, values.len()));
        }
        values.push(value.clone());
        Ok(())
    })?;
    ctx.set_output(0, value)
}

struct Pop {
    dtype: DType,
}

impl Kernel for Pop {
    fn compute(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let stack = stack(ctx)?;
        if self.dtype != stack.dtype {
            return Err(invalid!("Must have type {} but got {}", stack.dtype, self.dtype));
        }
        let top = stack.with(|values| {
            values.pop().ok_or_else(|| invalid!("Stack[{}] is empty when calling Pop().", stack.name))
        })?;
        ctx.set_output(0, top)
    }
}

fn close(ctx: &mut KernelContext<'_>) -> Result<()> {
    let values = stack(ctx)?.values.lock().take();
    drop(values); // after the lock is released
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::data_flow::testing::Session;
    use tensor::{DType, Tensor};

    #[test]
    fn a_stack_gives_back_what_came_last_and_no_more() {
        let session = Session::new();
        let s = &session.s;
        let limit = s.constant(1i32).unwrap();
        let handle = s.node("StackV2").input(limit).attr("elem_type", DType::F32).output().unwrap();
        let push = |x: f32| s.op("StackPushV2", &[handle, s.constant(x).unwrap()]).unwrap();
        let (first, second) = (push(1.5), push(2.5));
        let pop = |after| s.node("StackPopV2").input(handle).control(after).attr("elem_type", DType::F32).output();
        let top = pop(first.node).unwrap();
        assert_eq!(session.fetch(&[top]).unwrap(), [Tensor::scalar(1.5f32)]);
        let empty = pop(top.node).unwrap();
        let error = session.fetch(&[empty]).unwrap_err();
        assert!(error.message.contains("is empty when calling Pop()"), "{error}");
        let error = session.fetch(&[first, second]).unwrap_err();
        assert!(error.message.contains("overflowed its max_size (1)"), "{error}");
    }
}

//! `GetSessionHandleV2` and its kin: a value kept on the server between runs, known to the client by a handle.

use framework::kernel::{function, kernel};
use framework::{Kernel, KernelBuild, KernelContext, Op, Resource, shapes};
use parking_lot::Mutex;
use std::collections::HashMap;
use tensor::{DType, Result, Tensor, invalid};

pub fn ops() -> Vec<Op> {
    let make = |name: &str, handle: &str| {
        Op::new(name)
            .input("value: T")
            .output(&format!("handle: {handle}"))
            .attr("T: type")
            .stateful()
            .not_differentiable()
            .shape(shapes::scalar)
            .kernel(function(keep))
    };
    vec![
        make("GetSessionHandle", "string"),
        make("GetSessionHandleV2", "resource"),
        Op::new("GetSessionTensor")
            .input("handle: string")
            .output("value: dtype")
            .attr("dtype: type")
            .stateful()
            .not_differentiable()
            .shape(shapes::unknown)
            .kernel(kernel(|b: &KernelBuild<'_>| Ok(Get { dtype: b.attr("dtype")? }))),
        Op::new("DeleteSessionTensor")
            .input("handle: string")
            .stateful()
            .not_differentiable()
            .shape(shapes::no_outputs)
            .kernel(function(delete)),
    ]
}

/// The values kept on a device.
#[derive(Default)]
struct Kept(Mutex<(u64, HashMap<String, Tensor>)>);

impl Resource for Kept {
    const TYPE_NAME: &'static str = "SessionTensors";
}

fn kept(ctx: &KernelContext<'_>) -> Result<std::sync::Arc<Kept>> {
    ctx.resources().lookup_or_create("", "session_tensors", || Ok(Kept::default()))
}

/// The name has the form that TensorFlow's client takes apart: node, number and device.
fn keep(ctx: &mut KernelContext<'_>) -> Result<()> {
    let value = ctx.take(0);
    let device = ctx.device().name().to_string();
    let kept = kept(ctx)?;
    let name = {
        let mut values = kept.0.lock();
        values.0 += 1;
        let name = format!("{};{};{device}", ctx.node().name, values.0);
        values.1.insert(name.clone(), value);
        name
    };
    if ctx.node().op.name == "GetSessionHandle" {
        return ctx.set_output(0, Tensor::string(name));
    }
    let mut handle = ctx.resources().handle::<Kept>(&device, "session", &name, None);
    handle.type_name = name;
    ctx.set_output(0, Tensor::from_handles([], vec![handle])?)
}

fn name(ctx: &KernelContext<'_>) -> Result<String> {
    if !ctx.input(0).shape().is_scalar() {
        return Err(invalid!("the handle of a session tensor is a scalar, found shape {}", ctx.input(0).shape()));
    }
    Ok(String::from_utf8_lossy(ctx.input(0).string_item()?).into_owned())
}

struct Get {
    dtype: DType,
}

impl Kernel for Get {
    fn compute(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let name = name(ctx)?;
        let found = kept(ctx)?.0.lock().1.get(&name).cloned();
        let found = found.ok_or_else(|| invalid!("The tensor with handle '{name}' is not in the session store."))?;
        if found.dtype() != self.dtype {
            return Err(invalid!("the tensor with handle '{name}' is {}, wanted {}", found.dtype(), self.dtype));
        }
        ctx.set_output(0, found)
    }
}

fn delete(ctx: &mut KernelContext<'_>) -> Result<()> {
    let name = name(ctx)?;
    let removed = kept(ctx)?.0.lock().1.remove(&name);
    removed.map(drop).ok_or_else(|| invalid!("The tensor with handle '{name}' is not in the session store."))
}

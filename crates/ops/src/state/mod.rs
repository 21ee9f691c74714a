//! Variables: made, read, assigned, counted, gathered from and scattered into.
//!
//! A reference variable (`VariableV2`) is an edge that carries the variable itself; a resource variable
//! (`VarHandleOp`) is named by a handle. Both are one [`framework::Variable`] underneath, and ops that change one
//! share a kernel.

mod assign;
mod count_up_to;
mod gather;
mod resource_variable;
mod scatter;
mod scatter_nd;
mod session_tensor;
mod variable;

pub use assign::{assign, assign_add, assign_add_variable, assign_sub, assign_sub_variable, assign_variable};
pub use gather::resource_gather;
pub use resource_variable::{read_variable, var_handle, var_is_initialized};
pub use scatter::{resource_scatter_add, resource_scatter_sub, scatter_add, scatter_sub};
pub use variable::{is_variable_initialized, variable};

use framework::{InferenceContext, KernelContext, Op, Value, Variable};
use std::sync::Arc;
use tensor::{DType, PartialShape, ResourceHandle, Result, Shape, Tensor, invalid};

/// All ops of the family.
pub fn ops() -> Vec<Op> {
    [
        variable::ops(),
        resource_variable::ops(),
        assign::ops(),
        count_up_to::ops(),
        gather::ops(),
        scatter::ops(),
        scatter_nd::ops(),
        session_tensor::ops(),
    ]
    .concat()
}

/// The declared shape of the variable that an input refers to or names; unknown if the handle comes from afar.
pub(crate) fn variable_shape(c: &InferenceContext<'_>, index: usize) -> PartialShape {
    if c.input_dtype(index) != DType::Resource {
        return c.input(index).clone();
    }
    let handle = c.input_value(index).and_then(|t| t.as_handles().ok()?.first());
    handle.and_then(|h| h.holds.first()).map_or_else(PartialShape::unknown, |(_, shape)| shape.clone())
}

/// The handle that an input holds.
fn handle<'a>(ctx: &'a KernelContext<'_>, index: usize) -> Result<&'a ResourceHandle> {
    match ctx.input(index).as_handles()? {
        [handle] => Ok(handle),
        other => Err(invalid!("input {index} holds {} resource handles, wanted one", other.len())),
    }
}

/// The variable that an input refers to or names.
///
/// One that does not exist is `NotFound` to the ops that update or look at a variable, as in TensorFlow; only reading
/// it whole is a failed precondition.
pub(crate) fn existing_variable(ctx: &KernelContext<'_>, index: usize) -> Result<Arc<Variable>> {
    match ctx.input_value(index) {
        Value::Ref(variable) => Ok(variable.clone()),
        _ => ctx.resource(index).map_err(|mut e| {
            if let Ok(handle) = handle(ctx, index) {
                e.message.push_str(&format!(" (Could not find resource: {}/{})", handle.container, handle.name));
            }
            e
        }),
    }
}

/// TensorFlow's sentence for an index outside a table: names its place in the tensor of indices.
fn index_error(indices: &Tensor, position: usize, limit: usize) -> tensor::Error {
    let value = indices.to_i64s().ok().and_then(|v| v.get(position).copied()).unwrap_or(-1);
    invalid!("indices{} = {value} is not in [0, {limit})", place(indices.shape(), position))
}

/// The coordinates of an element: `[1,2]`.
fn place(shape: &Shape, position: usize) -> String {
    let coordinates: Vec<String> = shape
        .strides()
        .iter()
        .zip(shape.dims())
        .map(|(&stride, &dim)| (position / stride.max(1) % dim.max(1)).to_string())
        .collect();
    if coordinates.is_empty() { String::new() } else { format!("[{}]", coordinates.join(",")) }
}

#[cfg(test)]
pub(crate) mod testing {
    //! A graph, and a device to run it on: what the tests of variables share.

    use framework::interpret::Interpreter;
    use framework::{CpuDevice, Device, DeviceName, NodeId, Output, Pool, Registry, Scope, SystemEnv};
    use std::collections::HashMap;
    use std::sync::{Arc, OnceLock};
    use tensor::{Result, Tensor};

    pub(crate) struct Bench {
        pub s: Scope,
        pub device: Arc<dyn Device>,
        interpreter: Interpreter,
    }

    impl Bench {
        pub(crate) fn new() -> Bench {
            Bench::with_threads(Pool::inline())
        }

        pub(crate) fn with_threads(pool: Pool) -> Bench {
            let device: Arc<dyn Device> = Arc::new(CpuDevice::new(DeviceName::cpu("localhost", 0, 0), 1, pool));
            static REGISTRY: OnceLock<Arc<Registry>> = OnceLock::new();
            let registry = REGISTRY.get_or_init(|| Arc::new(crate::registry())).clone();
            let interpreter = Interpreter::new(device.clone(), Arc::new(SystemEnv::default()));
            Bench { s: Scope::new(registry), device, interpreter }
        }

        pub(crate) fn fetch(&self, output: Output) -> Result<Tensor> {
            self.fetch_fed(output, &[])
        }

        pub(crate) fn fetch_fed(&self, output: Output, feeds: &[(Output, Tensor)]) -> Result<Tensor> {
            let feeds: HashMap<Output, Tensor> = feeds.iter().cloned().collect();
            self.s.with_graph(|g| self.interpreter.run(g, &feeds, &[output], &[])).map(|mut v| v.remove(0))
        }

        pub(crate) fn run(&self, target: NodeId) -> Result<()> {
            self.run_fed(target, &[])
        }

        pub(crate) fn run_fed(&self, target: NodeId, feeds: &[(Output, Tensor)]) -> Result<()> {
            let feeds: HashMap<Output, Tensor> = feeds.iter().cloned().collect();
            self.s.with_graph(|g| self.interpreter.run(g, &feeds, &[], &[target])).map(|_| ())
        }
    }
}

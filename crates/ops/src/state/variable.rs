//! `VariableV2`: a variable as TF1 knows it, an edge that carries a reference; and whether it has a value.

use super::variable_shape;
use framework::kernel::{function, kernel};
use framework::{
    InferenceContext, Kernel, KernelBuild, KernelContext, Op, Output, ReferenceVariable, Scope, Value, Variable, shapes,
};
use parking_lot::RwLock;
use std::sync::{Arc, Weak};
use tensor::{DType, PartialShape, Result, Tensor, internal, invalid};

pub fn ops() -> Vec<Op> {
    let variable = |name: &str| {
        Op::new(name)
            .output("ref: Ref(dtype)")
            .attr("shape: shape")
            .attr("dtype: type")
            .attr("container: string = ''")
            .attr("shared_name: string = ''")
            .stateful()
            .kernel(kernel(VariableKernel::new))
    };
    vec![
        variable("VariableV2").shape(shapes::from_shape_attr),
        variable("Variable").shape(old_shape),
        Op::new("IsVariableInitialized")
            .input("ref: Ref(dtype)")
            .output("is_initialized: bool")
            .attr("dtype: type")
            .allows_uninitialized_input()
            .shape(shapes::scalar)
            .kernel(function(|ctx| {
                let is_initialized = ctx.variable(0)?.is_initialized();
                ctx.set_output(0, is_initialized)
            })),
    ]
}

/// A reference variable of this name, element type and shape, without a value until it is assigned one.
pub fn variable(s: &Scope, name: &str, dtype: DType, shape: impl Into<PartialShape>) -> Result<Output> {
    s.node("VariableV2").name(name).attr("dtype", dtype).attr("shape", shape.into()).output()
}

/// Whether a reference variable has a value.
pub fn is_variable_initialized(s: &Scope, variable: Output) -> Result<Output> {
    s.op("IsVariableInitialized", &[variable])
}

/// The first version of the op could not tell "scalar" from "unknown".
fn old_shape(c: &InferenceContext<'_>) -> Result<Vec<PartialShape>> {
    let shape: PartialShape = c.attr("shape")?;
    Ok(vec![if shape.rank() == Some(0) { PartialShape::unknown() } else { shape }])
}

/// Where a variable lives: its container, and its name there.
pub(super) struct Place {
    pub container: String,
    pub name: String,
}

impl Place {
    /// What a node says: `shared_name`, or else its own name.
    pub(super) fn of(b: &KernelBuild<'_>) -> Result<Place> {
        let (container, shared): (String, String) = (b.attr("container")?, b.attr("shared_name")?);
        if shared.starts_with('_') {
            return Err(invalid!("shared_name cannot start with '_':{shared}"));
        }
        Ok(Place { container, name: if shared.is_empty() { b.node.name.clone() } else { shared } })
    }
}

/// Finds the variable once. What it keeps does not hold the variable alive, so that clearing the container ends it
/// and the next step makes a new one.
struct VariableKernel {
    place: Place,
    dtype: DType,
    shape: PartialShape,
    found: RwLock<Weak<Variable>>,
}

impl VariableKernel {
    fn new(b: &KernelBuild<'_>) -> Result<VariableKernel> {
        let (dtype, shape): (DType, PartialShape) = (b.dtype("dtype")?, b.attr("shape")?);
        if shape.rank().is_some() && shape.known().is_none() {
            return Err(invalid!("Shape {shape} is not fully defined"));
        }
        Ok(VariableKernel { place: Place::of(b)?, dtype, shape, found: RwLock::new(Weak::new()) })
    }

    fn find(&self, ctx: &KernelContext<'_>) -> Result<Arc<Variable>> {
        let Place { container, name } = &self.place;
        let found = ctx.resources().lookup_or_create(container, name, || {
            let made = Variable::new(name, self.dtype, self.shape.clone());
            // Nothing is missing from a variable without elements.
            if let Some(empty) = self.shape.known().filter(|s| s.num_elements() == 0) {
                made.assign(Tensor::zeros(self.dtype, empty)?)?;
            }
            Ok(ReferenceVariable(Arc::new(made)))
        })?;
        let variable = found.0.clone();
        if variable.dtype() != self.dtype {
            return Err(internal!("variable {name} holds {}, another node says {}", variable.dtype(), self.dtype));
        }
        *self.found.write() = Arc::downgrade(&variable);
        Ok(variable)
    }
}

impl Kernel for VariableKernel {
    fn compute(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let found = self.found.read().upgrade();
        let variable = match found {
            Some(variable) => variable,
            None => self.find(ctx)?,
        };
        ctx.set_value(0, Value::Ref(variable))
    }
}

/// The shape of a reference output: that of the variable it comes from.
pub(super) fn same_reference(c: &InferenceContext<'_>) -> Result<Vec<PartialShape>> {
    Ok(vec![variable_shape(c, 0); c.num_outputs()])
}

#[cfg(test)]
mod tests {
    use super::super::testing::Bench;
    use super::*;
    use crate::state::assign;
    use tensor::Code;

    #[test]
    fn a_variable_must_be_assigned_before_it_is_read() {
        let b = Bench::new();
        let v = variable(&b.s, "v", DType::F32, [2]).unwrap();
        let known = is_variable_initialized(&b.s, v).unwrap();
        let error = b.fetch(v).unwrap_err();
        assert_eq!(error.code, Code::FailedPrecondition);
        assert!(error.message.starts_with("Attempting to use uninitialized value v"), "{error}");
        assert_eq!(b.fetch(known).unwrap(), false.into());
        let init = assign(&b.s, v, b.s.constant([1.0f32, 2.0]).unwrap()).unwrap();
        assert_eq!(b.fetch(init).unwrap(), [1.0f32, 2.0].into());
        assert_eq!(b.fetch(v).unwrap(), [1.0f32, 2.0].into());
        assert_eq!(b.fetch(known).unwrap(), true.into());
    }

    #[test]
    fn clearing_the_container_ends_the_variable() {
        let b = Bench::new();
        let v = variable(&b.s, "v", DType::F32, [1]).unwrap();
        let init = assign(&b.s, v, b.s.constant([1.0f32]).unwrap()).unwrap();
        b.fetch(init).unwrap();
        b.device.resources().clear("localhost");
        assert_eq!(b.fetch(v).unwrap_err().code, Code::FailedPrecondition);
        b.fetch(init).unwrap();
        assert_eq!(b.fetch(v).unwrap(), [1.0f32].into());
    }

    #[test]
    fn nodes_of_one_shared_name_are_one_variable() {
        let b = Bench::new();
        let node = |dtype: DType, shape: &[usize]| {
            b.s.node("VariableV2")
                .attr("dtype", dtype)
                .attr("shape", PartialShape::new(shape.iter().map(|&d| Some(d))))
                .attr("shared_name", "w")
                .output()
                .unwrap()
        };
        let (first, second) = (node(DType::F32, &[1]), node(DType::F32, &[1]));
        let init = assign(&b.s, first, b.s.constant([3.0f32]).unwrap()).unwrap();
        b.fetch(init).unwrap();
        assert_eq!(b.fetch(second).unwrap(), [3.0f32].into());
        assert_eq!(b.fetch(node(DType::I32, &[1])).unwrap_err().code, Code::Internal);
    }

    #[test]
    fn a_resource_variable_of_the_same_name_is_another_one() {
        let b = Bench::new();
        let of_type = |op: &str| b.s.node(op).attr("dtype", DType::F32).attr("shape", PartialShape::scalar());
        let reference = of_type("VariableV2").attr("shared_name", "v").output().unwrap();
        let handle = of_type("VarHandleOp").attr("shared_name", "v").output().unwrap();
        let (one, two) = (b.s.constant(1.0f32).unwrap(), b.s.constant(2.0f32).unwrap());
        b.run(b.s.node("AssignVariableOp").inputs(&[handle, one]).build().unwrap()).unwrap();
        assert_eq!(b.fetch(is_variable_initialized(&b.s, reference).unwrap()).unwrap(), false.into());
        b.fetch(assign(&b.s, reference, two).unwrap()).unwrap();
        let read = b.s.node("ReadVariableOp").input(handle).attr("dtype", DType::F32).output().unwrap();
        assert_eq!((b.fetch(reference).unwrap(), b.fetch(read).unwrap()), (2.0f32.into(), 1.0f32.into()));
        let destroy = b.s.node("DestroyResourceOp").input(handle).attr("ignore_lookup_error", false).build().unwrap();
        b.run(destroy).unwrap();
        assert_eq!(b.fetch(read).unwrap_err().code, Code::FailedPrecondition);
        assert_eq!(b.run(destroy).unwrap_err().code, Code::NotFound);
        assert_eq!(b.fetch(reference).unwrap(), 2.0f32.into());
    }

    #[test]
    fn a_handle_of_a_queue_is_none_of_a_variable() {
        let b = Bench::new();
        let queue = b.s.node("FIFOQueueV2").attr("component_types", vec![DType::F32]).attr("shared_name", "v");
        let queue = queue.output().unwrap();
        let handle = b.s.node("VarHandleOp").attr("dtype", DType::F32).attr("shape", PartialShape::scalar());
        let handle = handle.attr("shared_name", "v").output().unwrap();
        let one = b.s.constant(1.0f32).unwrap();
        b.run(b.s.node("AssignVariableOp").inputs(&[handle, one]).build().unwrap()).unwrap();
        let read = b.s.node("ReadVariableOp").input(queue).attr("dtype", DType::F32).output().unwrap();
        let refused = b.fetch(read).unwrap_err();
        assert_eq!(refused.code, Code::FailedPrecondition);
        assert!(refused.message.contains("wrong type"), "{refused}");
        let size = b.s.op("QueueSizeV2", &[handle]).unwrap();
        assert_eq!(b.fetch(size).unwrap_err().code, Code::InvalidArgument);
        b.run(b.s.node("DestroyResourceOp").input(queue).build().unwrap()).unwrap();
        let read = b.s.node("ReadVariableOp").input(handle).attr("dtype", DType::F32).output().unwrap();
        assert_eq!(b.fetch(read).unwrap(), 1.0f32.into());
    }

    #[test]
    fn a_variable_without_elements_has_its_value() {
        let b = Bench::new();
        let v = variable(&b.s, "v", DType::F32, [0]).unwrap();
        assert_eq!(b.fetch(v).unwrap(), Tensor::from_vec([0], Vec::<f32>::new()).unwrap());
    }

    #[test]
    fn a_shared_name_with_an_underscore_is_refused() {
        let b = Bench::new();
        let v = b.s.node("VariableV2").attr("dtype", DType::F32).attr("shape", PartialShape::scalar());
        let v = v.attr("shared_name", "_v").output().unwrap();
        assert!(b.fetch(v).unwrap_err().message.contains("shared_name cannot start with '_':_v"));
    }
}

//! `VarHandleOp` and its readers: variables named by a handle.
//!
//! The handle exists before the variable does; the first `AssignVariableOp` makes it.

use super::variable::Place;
use super::{existing_variable, handle, variable_shape};
use framework::kernel::{function, kernel};
use framework::{
    Grad, GradValue, InferenceContext, Kernel, KernelBuild, KernelContext, Op, Output, Scope, Variable, shapes,
};
use parking_lot::RwLock;
use tensor::{DType, PartialShape, ResourceHandle, Result, Shape, Tensor, invalid, not_found};

pub fn ops() -> Vec<Op> {
    vec![
        Op::new("VarHandleOp")
            .output("resource: resource")
            .attr("container: string = ''")
            .attr("shared_name: string = ''")
            .attr("debug_name: string = ''")
            .attr("dtype: type")
            .attr("shape: shape")
            .attr("allowed_devices: list(string) = []")
            .stateful()
            .shape(shapes::scalar)
            .value(declared)
            .kernel(kernel(VarHandle::new)),
        Op::new("ReadVariableOp")
            .input("resource: resource")
            .output("value: dtype")
            .attr("dtype: type")
            .stateful()
            .shape(|c| Ok(vec![variable_shape(c, 0)]))
            .gradient(read_grad)
            .kernel(kernel(|b| Ok(Read { dtype: b.dtype("dtype")? }))),
        Op::new("VarIsInitializedOp")
            .input("resource: resource")
            .output("is_initialized: bool")
            .stateful()
            .shape(shapes::scalar)
            .not_differentiable()
            .kernel(function(|ctx| {
                let found = ctx.resources().resolve::<Variable>(handle(ctx, 0)?);
                ctx.set_output(0, found.is_ok_and(|v| v.is_initialized()))
            })),
        Op::new("VariableShape")
            .input("input: resource")
            .output("output: out_type")
            .attr("out_type: indextype = int32")
            .stateful()
            .shape(|c| {
                let rank = variable_shape(c, 0).rank();
                Ok(vec![PartialShape::new([rank])])
            })
            .value(known_shape)
            .not_differentiable()
            .kernel(kernel(|b| Ok(VariableShape { out_type: b.dtype("out_type")? }))),
        Op::new("DestroyResourceOp")
            .input("resource: resource")
            .attr("ignore_lookup_error: bool = true")
            .stateful()
            .shape(shapes::no_outputs)
            .kernel(kernel(|b| Ok(Destroy { ignore_missing: b.attr("ignore_lookup_error")? }))),
        Op::new("DisableCopyOnRead")
            .input("resource: resource")
            .stateful()
            .shape(shapes::no_outputs)
            // Reading never copies: what was read and what is updated part ways at the update.
            .kernel(function(|ctx| existing_variable(ctx, 0).map(|_| ()))),
    ]
}

/// A handle on a resource variable of this name, element type and shape.
pub fn var_handle(s: &Scope, name: &str, dtype: DType, shape: impl Into<PartialShape>) -> Result<Output> {
    let full = s.unique_name(name);
    s.node("VarHandleOp")
        .name(format!("{full}/"))
        .attr("dtype", dtype)
        .attr("shape", shape.into())
        .attr("shared_name", full.as_str())
        .output()
}

/// The value of a resource variable.
pub fn read_variable(s: &Scope, resource: Output, dtype: DType) -> Result<Output> {
    s.node("ReadVariableOp").input(resource).attr("dtype", dtype).output()
}

/// Whether a resource variable has a value.
pub fn var_is_initialized(s: &Scope, resource: Output) -> Result<Output> {
    s.op("VarIsInitializedOp", &[resource])
}

/// While building, a handle says what the variable holds, so that its readers' shapes are known.
fn declared(c: &InferenceContext<'_>) -> Option<Vec<Option<Tensor>>> {
    let holds = vec![(c.attr("dtype").ok()?, c.attr("shape").ok()?)];
    let handle = ResourceHandle { holds, ..ResourceHandle::default() };
    Some(vec![Some(Tensor::from_handles(Shape::scalar(), vec![handle]).ok()?)])
}

fn known_shape(c: &InferenceContext<'_>) -> Option<Vec<Option<Tensor>>> {
    let shape = variable_shape(c, 0).known()?;
    Some(vec![Some(shape_tensor(&shape, c.attr("out_type").ok()?).ok()?)])
}

fn shape_tensor(shape: &Shape, out_type: DType) -> Result<Tensor> {
    let dims = shape.to_i64s();
    if out_type == DType::I64 {
        return Ok(dims.into());
    }
    let narrow = dims.into_iter().map(|d| {
        i32::try_from(d).map_err(|_| invalid!("a dimension of {d} does not fit int32; ask for out_type int64"))
    });
    Ok(narrow.collect::<Result<Vec<i32>>>()?.into())
}

fn read_grad(_: &Scope, g: &Grad<'_>) -> Result<Vec<Option<GradValue>>> {
    Ok(vec![Some(g.dy[0].into())])
}

/// Makes the handle once, with a short cut to the variable as soon as there is one; makes it again when that
/// variable is gone.
struct VarHandle {
    place: Place,
    holds: Vec<(DType, PartialShape)>,
    made: RwLock<Option<Tensor>>,
}

impl VarHandle {
    fn new(b: &KernelBuild<'_>) -> Result<VarHandle> {
        let holds = vec![(b.dtype("dtype")?, b.attr("shape")?)];
        Ok(VarHandle { place: Place::of(b)?, holds, made: RwLock::new(None) })
    }

    fn make(&self, ctx: &KernelContext<'_>) -> Result<Tensor> {
        let Place { container, name } = &self.place;
        let found = ctx.resources().get::<Variable>(container, name);
        let device = ctx.device().name().to_string();
        let mut handle = ctx.resources().handle::<Variable>(&device, container, name, found.as_ref());
        handle.holds = self.holds.clone();
        let made = Tensor::from_handles(Shape::scalar(), vec![handle])?;
        *self.made.write() = found.map(|_| made.clone());
        Ok(made)
    }
}

impl Kernel for VarHandle {
    fn compute(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let lives = |t: &Tensor| {
            let short_cut = t.as_handles().ok().and_then(|h| h.first()?.resource.as_ref());
            short_cut.is_some_and(|weak| weak.strong_count() > 0)
        };
        let made = self.made.read().clone().filter(lives);
        let tensor = match made {
            Some(tensor) => tensor,
            None => self.make(ctx)?,
        };
        ctx.set_output(0, tensor)
    }
}

struct Read {
    dtype: DType,
}

impl Kernel for Read {
    fn compute(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let value = ctx.any_variable(0)?.read()?;
        if value.dtype() != self.dtype {
            return Err(invalid!(
                "Trying to read variable with wrong dtype. Expected {} got {}",
                self.dtype,
                value.dtype()
            ));
        }
        ctx.set_output(0, value)
    }
}

struct VariableShape {
    out_type: DType,
}

impl Kernel for VariableShape {
    fn compute(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let shape = existing_variable(ctx, 0)?.update(|value| Ok(value.shape().clone()))?;
        ctx.set_output(0, shape_tensor(&shape, self.out_type)?)
    }
}

struct Destroy {
    ignore_missing: bool,
}

impl Kernel for Destroy {
    fn compute(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let handle = handle(ctx, 0)?;
        if !ctx.resources().remove_named(handle) && !self.ignore_missing {
            return Err(not_found!(
                "Resource {}/{}/{} does not exist.",
                handle.container,
                handle.name,
                handle.type_name
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::Bench;
    use super::*;
    use crate::state::assign_variable;
    use tensor::Code;

    #[test]
    fn a_handle_exists_before_its_variable() {
        let b = Bench::new();
        let w = var_handle(&b.s, "w", DType::F32, [2]).unwrap();
        let read = read_variable(&b.s, w, DType::F32).unwrap();
        let known = var_is_initialized(&b.s, w).unwrap();
        assert_eq!(b.s.shape(read).unwrap(), [2].into());
        let error = b.fetch(read).unwrap_err();
        assert_eq!(error.code, Code::FailedPrecondition);
        assert!(
            error.message.starts_with(
                "Could not find variable w. This could mean that the variable has been deleted. In TF1, it can also \
                 mean the variable is uninitialized. Debug info: container=localhost, status error message=Resource \
                 localhost/w/N10tensorflow3VarE does not exist."
            ),
            "{error}"
        );
        assert_eq!(b.fetch(known).unwrap(), false.into());
        let init = assign_variable(&b.s, w, b.s.constant([1.0f32, 2.0]).unwrap()).unwrap();
        b.run(init).unwrap();
        assert_eq!(b.fetch(known).unwrap(), true.into());
        assert_eq!(b.fetch(read).unwrap(), [1.0f32, 2.0].into());
    }

    #[test]
    fn a_destroyed_variable_can_be_made_again() {
        let b = Bench::new();
        let w = var_handle(&b.s, "w", DType::F32, [1]).unwrap();
        let read = read_variable(&b.s, w, DType::F32).unwrap();
        let init = assign_variable(&b.s, w, b.s.constant([1.0f32]).unwrap()).unwrap();
        let destroy = b.s.node("DestroyResourceOp").input(w).attr("ignore_lookup_error", false).build().unwrap();
        b.run(init).unwrap();
        b.fetch(read).unwrap();
        b.run(destroy).unwrap();
        assert_eq!(b.run(destroy).unwrap_err().code, Code::NotFound);
        assert_eq!(b.fetch(read).unwrap_err().code, Code::FailedPrecondition);
        b.run(init).unwrap();
        assert_eq!(b.fetch(read).unwrap(), [1.0f32].into());
    }

    #[test]
    fn a_reader_of_another_type_is_told_so() {
        let b = Bench::new();
        let w = var_handle(&b.s, "w", DType::F32, [1]).unwrap();
        let init = assign_variable(&b.s, w, b.s.constant([1.0f32]).unwrap()).unwrap();
        b.run(init).unwrap();
        let read = read_variable(&b.s, w, DType::I32).unwrap();
        let error = b.fetch(read).unwrap_err();
        assert_eq!(error.code, Code::InvalidArgument);
        assert!(error.message.contains("wrong dtype. Expected int32 got float"), "{error}");
    }

    #[test]
    fn the_shape_is_that_of_the_value() {
        let b = Bench::new();
        let w = var_handle(&b.s, "w", DType::F32, PartialShape::unknown()).unwrap();
        let shape = b.s.op("VariableShape", &[w]).unwrap();
        let init = assign_variable(&b.s, w, b.s.constant([[1.0f32, 2.0, 3.0]]).unwrap()).unwrap();
        b.run(init).unwrap();
        assert_eq!(b.fetch(shape).unwrap(), [1i32, 3].into());
    }
}

//! Assigning to variables: a new value, or more or less of the old one.

use super::variable::same_reference;
use super::{existing_variable, handle, variable_shape};
use framework::kernel::kernel;
use framework::typed::{NumberKernel, numbers};
use framework::{InferenceContext, Kernel, KernelContext, NodeId, Number, Op, Output, Scope, Value, Variable, shapes};
use std::sync::Arc;
use tensor::{Code, PartialShape, Result, Shape, invalid};

pub fn ops() -> Vec<Op> {
    let update = |name: &str, kernel: Update| {
        let by = |name: &str| Op::new(name).kernel(kernel.builder());
        [
            by(name)
                .input("ref: Ref(T)")
                .input("value: T")
                .output("output_ref: Ref(T)")
                .attr("T: numbertype")
                .attr("use_locking: bool = false")
                .shape(merged)
                .not_differentiable(),
            by(&format!("{name}VariableOp"))
                .input("resource: resource")
                .input("value: dtype")
                .attr("dtype: type")
                .stateful()
                .shape(merged),
        ]
    };
    let [assign_add, assign_add_variable] = update("AssignAdd", Update::Add);
    let [assign_sub, assign_sub_variable] = update("AssignSub", Update::Sub);
    vec![
        Op::new("Assign")
            .input("ref: Ref(T)")
            .input("value: T")
            .output("output_ref: Ref(T)")
            .attr("T: type")
            .attr("validate_shape: bool = true")
            .attr("use_locking: bool = true")
            .allows_uninitialized_input()
            .shape(assigned)
            .not_differentiable()
            .kernel(kernel(|b| Ok(Assign { validate_shape: b.attr("validate_shape")? }))),
        Op::new("AssignVariableOp")
            .input("resource: resource")
            .input("value: dtype")
            .attr("dtype: type")
            .attr("validate_shape: bool = false")
            .stateful()
            .shape(shapes::no_outputs)
            .kernel(kernel(|b| Ok(AssignVariable { validate_shape: b.attr("validate_shape")? }))),
        assign_add,
        assign_sub,
        assign_add_variable,
        assign_sub_variable,
    ]
}

/// Gives a reference variable a value; the variable, for who reads it next.
pub fn assign(s: &Scope, variable: Output, value: Output) -> Result<Output> {
    s.op("Assign", &[variable, value])
}

/// Adds to a reference variable.
pub fn assign_add(s: &Scope, variable: Output, value: Output) -> Result<Output> {
    s.op("AssignAdd", &[variable, value])
}

/// Subtracts from a reference variable.
pub fn assign_sub(s: &Scope, variable: Output, value: Output) -> Result<Output> {
    s.op("AssignSub", &[variable, value])
}

/// Gives a resource variable a value.
pub fn assign_variable(s: &Scope, resource: Output, value: Output) -> Result<NodeId> {
    s.node("AssignVariableOp").inputs(&[resource, value]).build()
}

/// Adds to a resource variable.
pub fn assign_add_variable(s: &Scope, resource: Output, value: Output) -> Result<NodeId> {
    s.node("AssignAddVariableOp").inputs(&[resource, value]).build()
}

/// Subtracts from a resource variable.
pub fn assign_sub_variable(s: &Scope, resource: Output, value: Output) -> Result<NodeId> {
    s.node("AssignSubVariableOp").inputs(&[resource, value]).build()
}

/// Validated, the shapes must agree; else the variable takes the value's.
fn assigned(c: &InferenceContext<'_>) -> Result<Vec<PartialShape>> {
    if c.attr("validate_shape")? { merged(c) } else { Ok(vec![c.input(1).clone()]) }
}

fn merged(c: &InferenceContext<'_>) -> Result<Vec<PartialShape>> {
    variable_shape(c, 0).merge(c.input(1))?;
    same_reference(c)
}

struct Assign {
    validate_shape: bool,
}

impl Kernel for Assign {
    fn compute(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let variable = ctx.variable(0)?.clone();
        let value = ctx.take(1);
        if self.validate_shape {
            let wanted = held_shape(&variable)?.unwrap_or_else(Shape::scalar);
            if &wanted != value.shape() {
                return Err(invalid!(
                    "Assign requires shapes of both tensors to match. lhs shape= {wanted} rhs shape= {}",
                    value.shape()
                ));
            }
        }
        variable.assign(value)?;
        ctx.set_value(0, Value::Ref(variable))
    }
}

/// The shape of a variable's value; of a variable without one, the declared shape if that is known.
fn held_shape(variable: &Variable) -> Result<Option<Shape>> {
    variable.with(|value| Ok(value.as_ref().map(|t| t.shape().clone()).or_else(|| variable.shape().known())))
}

struct AssignVariable {
    validate_shape: bool,
}

impl Kernel for AssignVariable {
    fn compute(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let value = ctx.take(1);
        let variable = find_or_make(ctx, value.dtype())?;
        if variable.dtype() != value.dtype() {
            return Err(invalid!(
                "Trying to assign variable with wrong dtype. Expected {} got {}",
                variable.dtype(),
                value.dtype()
            ));
        }
        if self.validate_shape
            && let Some(wanted) = held_shape(&variable)?
            && &wanted != value.shape()
        {
            return Err(invalid!(
                "Trying to assign to variable with tensor with wrong shape. Expected {wanted} got {}",
                value.shape()
            ));
        }
        variable.assign(value)
    }
}

fn find_or_make(ctx: &KernelContext<'_>, dtype: tensor::DType) -> Result<Arc<Variable>> {
    let handle = handle(ctx, 0)?;
    match ctx.resources().resolve(handle) {
        Err(e) if e.code == Code::NotFound => {}
        found => return found,
    }
    ctx.resources().lookup_or_create(&handle.container, &handle.name, || {
        let shape = handle.holds.first().map_or_else(PartialShape::unknown, |(_, shape)| shape.clone());
        Ok(Variable::new(&handle.name, dtype, shape))
    })
}

/// Adding to a variable, or subtracting from it, of either sort.
#[derive(Clone, Copy)]
enum Update {
    Add,
    Sub,
}

impl Update {
    fn builder(self) -> framework::op::KernelFn {
        match self {
            Update::Add => numbers(|_| Ok(Update::Add)),
            Update::Sub => numbers(|_| Ok(Update::Sub)),
        }
    }
}

impl NumberKernel for Update {
    fn compute<T: Number>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let variable = existing_variable(ctx, 0)?;
        let (value, pool, is_ref) = (ctx.input(1), ctx.pool(), ctx.num_outputs() == 1);
        variable.update(|current| {
            if current.shape() != value.shape() {
                return Err(if is_ref {
                    invalid!("Parameters and update must be the same size: {} and {}", current.shape(), value.shape())
                } else {
                    invalid!(
                        "Cannot update variable with shape {} using a Tensor with shape {}, shapes must be equal.",
                        current.shape(),
                        value.shape()
                    )
                });
            }
            let (current, value) = (current.as_mut_slice::<T>()?, value.as_slice::<T>()?);
            match self {
                Update::Add => linalg::elementwise::zip_in_place(pool, current, value, |a: T, b: T| a.add(b)),
                Update::Sub => linalg::elementwise::zip_in_place(pool, current, value, |a: T, b: T| a.sub(b)),
            }
            Ok(())
        })?;
        if is_ref {
            ctx.set_value(0, Value::Ref(variable))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::Bench;
    use super::*;
    use crate::state::{read_variable, var_handle, variable};
    use tensor::{Code, DType, Tensor};

    #[test]
    fn additions_are_seen_by_later_readers_only() {
        let b = Bench::new();
        let v = variable(&b.s, "v", DType::I64, [2]).unwrap();
        let init = assign(&b.s, v, b.s.constant([1i64, 2]).unwrap()).unwrap();
        let more = assign_add(&b.s, v, b.s.constant([10i64, 20]).unwrap()).unwrap();
        let less = assign_sub(&b.s, v, b.s.constant([1i64, 1]).unwrap()).unwrap();
        let before = b.fetch(init).unwrap();
        assert_eq!(b.fetch(more).unwrap(), [11i64, 22].into());
        assert_eq!(b.fetch(less).unwrap(), [10i64, 21].into());
        assert_eq!(before, [1i64, 2].into());
    }

    #[test]
    fn a_value_of_another_shape_is_refused_unless_asked_for() {
        let b = Bench::new();
        let v = variable(&b.s, "v", DType::F32, [2]).unwrap();
        let x = b.s.node("Placeholder").attr("dtype", DType::F32).output().unwrap();
        let strict = assign(&b.s, v, x).unwrap();
        let free = b.s.node("Assign").inputs(&[v, x]).attr("validate_shape", false).output().unwrap();
        let three: Tensor = [1.0f32, 2.0, 3.0].into();
        let error = b.fetch_fed(strict, &[(x, three.clone())]).unwrap_err();
        assert_eq!(error.code, Code::InvalidArgument);
        assert!(error.message.contains("lhs shape= [2] rhs shape= [3]"), "{error}");
        assert_eq!(b.fetch_fed(free, &[(x, three.clone())]).unwrap(), three);
        assert_eq!(b.fetch_fed(strict, &[(x, three.clone())]).unwrap(), three);
        let more = assign_add(&b.s, v, x).unwrap();
        let error = b.fetch_fed(more, &[(x, [1.0f32].into())]).unwrap_err();
        assert!(error.message.contains("must be the same size"), "{error}");
    }

    #[test]
    fn shapes_that_cannot_fit_are_seen_while_building() {
        let b = Bench::new();
        let v = variable(&b.s, "v", DType::F32, [2]).unwrap();
        assert!(assign(&b.s, v, b.s.constant([1.0f32]).unwrap()).is_err());
        let w = var_handle(&b.s, "w", DType::F32, [2]).unwrap();
        assert!(assign_add_variable(&b.s, w, b.s.constant([1.0f32]).unwrap()).is_err());
    }

    #[test]
    fn resource_variables_are_updated_alike() {
        let b = Bench::new();
        let w = var_handle(&b.s, "w", DType::F32, [2]).unwrap();
        let read = read_variable(&b.s, w, DType::F32).unwrap();
        let more = assign_add_variable(&b.s, w, b.s.constant([1.0f32, 1.0]).unwrap()).unwrap();
        let less = assign_sub_variable(&b.s, w, b.s.constant([0.0f32, 5.0]).unwrap()).unwrap();
        assert_eq!(b.run(more).unwrap_err().code, Code::NotFound);
        let init = assign_variable(&b.s, w, b.s.constant([1.0f32, 2.0]).unwrap()).unwrap();
        for target in [init, more, less] {
            b.run(target).unwrap();
        }
        assert_eq!(b.fetch(read).unwrap(), [2.0f32, -2.0].into());
        let wrong = assign_variable(&b.s, w, b.s.constant([1i32]).unwrap()).unwrap();
        assert!(b.run(wrong).unwrap_err().message.contains("Expected float got int32"));
    }
}

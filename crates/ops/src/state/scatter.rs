//! Rows scattered into a variable: added, subtracted, put in place; only the rows named are touched.

use super::variable::same_reference;
use super::{existing_variable, index_error, variable_shape};
use framework::op::KernelFn;
use framework::typed::{MoveKernel, NumberKernel, RealKernel, moves_of, numbers, reals};
use framework::{InferenceContext, Int, Item, KernelContext, NodeId, Number, Op, Output, Real, Scope, Value};
use linalg::elementwise::zip_update_slice;
use linalg::parallel::Pool;
use std::sync::Arc;
use tensor::{DType, PartialShape, Result, Tensor, invalid};

/// The types that can be compared in place.
const EXTREMES: &str = "T: {half, bfloat16, float, double, int32, int64}";

pub fn ops() -> Vec<Op> {
    let reference = |name: &str, types: &str, use_locking: bool| {
        Op::new(name)
            .input("ref: Ref(T)")
            .input("indices: Tindices")
            .input("updates: T")
            .output("output_ref: Ref(T)")
            .attr(types)
            .attr("Tindices: indextype")
            .attr(&format!("use_locking: bool = {use_locking}"))
            .shape(shape)
    };
    let resource = |name: &str, types: &str| {
        Op::new(name)
            .input("resource: resource")
            .input("indices: Tindices")
            .input("updates: dtype")
            .attr(types)
            .attr("Tindices: indextype")
            .stateful()
            .shape(shape)
    };
    vec![
        reference("ScatterAdd", "T: numbertype", false).not_differentiable().kernel(numbers(|_| Ok(Fold::Add))),
        reference("ScatterSub", "T: numbertype", false).not_differentiable().kernel(numbers(|_| Ok(Fold::Sub))),
        reference("ScatterUpdate", "T: type", true).kernel(put()),
        reference("ScatterMul", "T: numbertype", false).not_differentiable().kernel(numbers(|_| Ok(Fold::Mul))),
        reference("ScatterDiv", "T: numbertype", false).not_differentiable().kernel(numbers(|_| Ok(Fold::Div))),
        reference("ScatterMin", EXTREMES, false).kernel(reals(|_| Ok(Extreme::Min))),
        reference("ScatterMax", EXTREMES, false).kernel(reals(|_| Ok(Extreme::Max))),
        resource("ResourceScatterMul", "dtype: numbertype").kernel(numbers(|_| Ok(Fold::Mul))),
        resource("ResourceScatterDiv", "dtype: numbertype").kernel(numbers(|_| Ok(Fold::Div))),
        resource("ResourceScatterMin", "dtype: numbertype").kernel(reals(|_| Ok(Extreme::Min))),
        resource("ResourceScatterMax", "dtype: numbertype").kernel(reals(|_| Ok(Extreme::Max))),
        resource("ResourceScatterAdd", "dtype: numbertype").kernel(numbers(|_| Ok(Fold::Add))),
        resource("ResourceScatterSub", "dtype: numbertype").kernel(numbers(|_| Ok(Fold::Sub))),
        resource("ResourceScatterUpdate", "dtype: type").kernel(put()),
    ]
}

/// Adds rows to the rows of a reference variable that the indices name.
pub fn scatter_add(s: &Scope, variable: Output, indices: Output, updates: Output) -> Result<Output> {
    s.op("ScatterAdd", &[variable, indices, updates])
}

/// Subtracts rows from the rows of a reference variable that the indices name.
pub fn scatter_sub(s: &Scope, variable: Output, indices: Output, updates: Output) -> Result<Output> {
    s.op("ScatterSub", &[variable, indices, updates])
}

/// Adds rows to the rows of a resource variable that the indices name.
pub fn resource_scatter_add(s: &Scope, resource: Output, indices: Output, updates: Output) -> Result<NodeId> {
    s.node("ResourceScatterAdd").inputs(&[resource, indices, updates]).build()
}

/// Subtracts rows from the rows of a resource variable that the indices name.
pub fn resource_scatter_sub(s: &Scope, resource: Output, indices: Output, updates: Output) -> Result<NodeId> {
    s.node("ResourceScatterSub").inputs(&[resource, indices, updates]).build()
}

/// Updates are a scalar, or one row for each index.
fn shape(c: &InferenceContext<'_>) -> Result<Vec<PartialShape>> {
    let (params, indices, updates) = (variable_shape(c, 0), c.input(1), c.input(2));
    params.with_rank_at_least(1)?;
    if let (Some(params), Some(indices)) = (params.dims(), indices.dims())
        && updates.rank() != Some(0)
    {
        PartialShape::new([indices, &params[1..]].concat()).merge(updates)?;
    }
    same_reference(c)
}

/// How a row of updates changes the row it belongs to.
#[derive(Clone, Copy)]
enum Fold {
    Add,
    Sub,
    Mul,
    Div,
}

impl NumberKernel for Fold {
    fn compute<T: Number>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        update(ctx, &mut |pool, params, indices, updates| {
            let size = table_size(params);
            let (table, updates) = (params.as_mut_slice::<T>()?, updates.as_slice::<T>()?);
            scatter(pool, table, size, indices, updates, &|to, from| match self {
                Fold::Add => zip_update_slice(to, from, T::add),
                Fold::Sub => zip_update_slice(to, from, T::sub),
                Fold::Mul => zip_update_slice(to, from, T::mul),
                Fold::Div => zip_update_slice(to, from, T::div),
            })
        })
    }
}

/// Which of two elements stays.
#[derive(Clone, Copy)]
enum Extreme {
    Min,
    Max,
}

impl RealKernel for Extreme {
    fn compute<T: Real>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let fold = if matches!(self, Extreme::Min) { T::min } else { T::max };
        update(ctx, &mut |pool, params, indices, updates| {
            let size = table_size(params);
            let (table, updates) = (params.as_mut_slice::<T>()?, updates.as_slice::<T>()?);
            let fold_row =
                |to: &mut [T], from: &[T]| to.iter_mut().zip(from).for_each(|(to, from)| *to = fold(*to, *from));
            scatter(pool, table, size, indices, updates, &fold_row)
        })
    }
}

/// Rows put in place of others.
struct Put;

/// The variable is of the type of the updates, which stand at 2.
fn put() -> KernelFn {
    Arc::new(|b| moves_of(b.node.input_types()?[2].0, Put))
}

impl MoveKernel for Put {
    fn compute<I: Item>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        update(ctx, &mut |pool, params, indices, updates| {
            let size = table_size(params);
            let put = |to: &mut [I], from: &[I]| to.clone_from_slice(from);
            if matches!(params.dtype(), DType::Resource | DType::Variant) {
                let mut table = I::items(params)?.to_vec();
                scatter(pool, &mut table, size, indices, I::items(updates)?, &put)?;
                *params = I::build(params.dtype(), params.shape().clone(), &mut |new| {
                    new.clone_from_slice(&table);
                    Ok(())
                })?;
                return Ok(());
            }
            scatter(pool, I::items_mut(params)?, size, indices, I::items(updates)?, &put)
        })
    }
}

/// The number of rows, and of elements in each, of a tensor of rank one or more.
fn table_size(params: &Tensor) -> (usize, usize) {
    (params.dims()[0], params.dims()[1..].iter().product())
}

/// Checks the shapes, and changes the variable under its lock.
fn update(
    ctx: &mut KernelContext<'_>,
    change: &mut dyn FnMut(&Pool, &mut Tensor, &Tensor, &Tensor) -> Result<()>,
) -> Result<()> {
    let variable = existing_variable(ctx, 0)?;
    let (indices, updates, pool) = (ctx.input(1), ctx.input(2), ctx.pool());
    variable.update(|params| {
        if params.dtype() != updates.dtype() {
            return Err(invalid!("the variable holds {}, the updates are {}", params.dtype(), updates.dtype()));
        }
        if params.dims().is_empty() {
            return Err(invalid!("params must be at least 1-D, got shape {}", params.shape()));
        }
        let fits = updates.dims().iter().eq(indices.dims().iter().chain(&params.dims()[1..]));
        if !fits && !updates.dims().is_empty() {
            return Err(invalid!(
                "Must have updates.shape = indices.shape + params.shape[1:] or updates.shape = [], got updates.shape \
                 {}, indices.shape {}, params.shape {}",
                updates.shape(),
                indices.shape(),
                params.shape()
            ));
        }
        change(pool, params, indices, updates)
    })?;
    if ctx.num_outputs() == 1 {
        ctx.set_value(0, Value::Ref(variable))?;
    }
    Ok(())
}

/// How a row of the table changes by a row of updates.
type FoldRow<'a, T> = &'a (dyn Fn(&mut [T], &[T]) + Sync);

/// Folds updates into the rows that the indices name; a single update goes to every element of every row.
fn scatter<T: Clone + Send + Sync>(
    pool: &Pool,
    table: &mut [T],
    (limit, row): (usize, usize),
    indices: &Tensor,
    updates: &[T],
    fold: FoldRow<'_, T>,
) -> Result<()> {
    match indices.dtype() {
        DType::I32 => scatter_by(pool, table, (limit, row), indices.as_slice::<i32>()?, updates, fold),
        _ => scatter_by(pool, table, (limit, row), indices.as_slice::<i64>()?, updates, fold),
    }
    .map_err(|position| index_error(indices, position, limit))
}

/// The error is the position of the first index outside the table; then nothing was changed.
fn scatter_by<T: Clone + Send + Sync, N: Int>(
    pool: &Pool,
    table: &mut [T],
    (limit, row): (usize, usize),
    indices: &[N],
    updates: &[T],
    fold: FoldRow<'_, T>,
) -> Result<(), usize> {
    // Where rows are empty nothing else looks at the indices.
    linalg::gather::check(indices, limit)?;
    if updates.len() == indices.len() * row {
        return linalg::gather::scatter(pool, table, row, indices, updates, fold);
    }
    if let [update] = updates {
        let update = vec![update.clone(); row];
        for index in indices {
            fold(&mut table[index.to_i64() as usize * row..][..row], &update);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::testing::Bench;
    use super::*;
    use crate::state::{assign, assign_variable, read_variable, var_handle, variable};
    use tensor::Code;

    #[test]
    fn rows_named_twice_are_changed_twice() {
        let b = Bench::new();
        let v = variable(&b.s, "v", DType::F32, [3, 2]).unwrap();
        let init = assign(&b.s, v, b.s.constant([[1.0f32, 2.0], [3.0, 4.0], [5.0, 6.0]]).unwrap()).unwrap();
        b.fetch(init).unwrap();
        let indices = b.s.constant([2i32, 0, 2]).unwrap();
        let rows = b.s.constant([[1.0f32, 1.0], [10.0, 10.0], [0.5, 0.5]]).unwrap();
        let more = scatter_add(&b.s, v, indices, rows).unwrap();
        assert_eq!(b.fetch(more).unwrap(), [[11.0f32, 12.0], [3.0, 4.0], [6.5, 7.5]].into());
        let less = scatter_sub(&b.s, v, indices, rows).unwrap();
        assert_eq!(b.fetch(less).unwrap(), [[1.0f32, 2.0], [3.0, 4.0], [5.0, 6.0]].into());
        let put = b.s.op("ScatterUpdate", &[v, indices, b.s.constant(7.0f32).unwrap()]).unwrap();
        assert_eq!(b.fetch(put).unwrap(), [[7.0f32, 7.0], [3.0, 4.0], [7.0, 7.0]].into());
    }

    #[test]
    fn strings_are_put_in_place() {
        let b = Bench::new();
        let w = var_handle(&b.s, "w", DType::String, [2]).unwrap();
        let init = assign_variable(&b.s, w, b.s.constant(["a", "b"]).unwrap()).unwrap();
        let put =
            b.s.node("ResourceScatterUpdate").inputs(&[w, b.s.constant([1i64]).unwrap(), b.s.constant(["c"]).unwrap()]);
        let put = put.build().unwrap();
        b.run(init).unwrap();
        b.run(put).unwrap();
        let read = read_variable(&b.s, w, DType::String).unwrap();
        assert_eq!(b.fetch(read).unwrap(), ["a", "c"].into());
    }

    #[test]
    fn a_bad_index_changes_nothing() {
        let b = Bench::new();
        let w = var_handle(&b.s, "w", DType::I32, [2]).unwrap();
        let init = assign_variable(&b.s, w, b.s.constant([1i32, 2]).unwrap()).unwrap();
        b.run(init).unwrap();
        let (indices, updates) = (b.s.constant([0i32, -1]).unwrap(), b.s.constant([5i32, 5]).unwrap());
        let error = b.run(resource_scatter_add(&b.s, w, indices, updates).unwrap()).unwrap_err();
        assert_eq!(error.code, Code::InvalidArgument);
        assert!(error.message.starts_with("indices[1] = -1 is not in [0, 2)"), "{error}");
        let read = read_variable(&b.s, w, DType::I32).unwrap();
        assert_eq!(b.fetch(read).unwrap(), [1i32, 2].into());
    }

    #[test]
    fn updates_that_do_not_fit_are_refused() {
        let b = Bench::new();
        let w = var_handle(&b.s, "w", DType::F32, PartialShape::unknown()).unwrap();
        let init = assign_variable(&b.s, w, b.s.constant([1.0f32, 2.0]).unwrap()).unwrap();
        b.run(init).unwrap();
        let (indices, updates) = (b.s.constant([0i32]).unwrap(), b.s.constant([[5.0f32, 1.0]]).unwrap());
        let error = b.run(resource_scatter_sub(&b.s, w, indices, updates).unwrap()).unwrap_err();
        assert!(error.message.contains("got updates.shape [1,2], indices.shape [1], params.shape [2]"), "{error}");
    }
}

//! `ResourceGather`: rows of a resource variable, without reading all of it.

use super::{existing_variable, index_error, variable_shape};
use framework::typed::{MoveKernel, moves_of};
use framework::{Grad, GradValue, IndexedSlices, InferenceContext, Int, Item, KernelContext, Op, Output, Scope};
use linalg::parallel::Pool;
use std::sync::Arc;
use tensor::{DType, PartialShape, Result, Shape, Tensor, invalid};

pub fn ops() -> Vec<Op> {
    vec![
        Op::new("ResourceGather")
            .input("resource: resource")
            .input("indices: Tindices")
            .output("output: dtype")
            .attr("batch_dims: int = 0")
            .attr("validate_indices: bool = true")
            .attr("dtype: type")
            .attr("Tindices: indextype")
            .stateful()
            .shape(shape)
            .gradient(grad)
            .kernel(Arc::new(|b| {
                let dtype = b.dtype("dtype")?;
                moves_of(dtype, ResourceGather { dtype, batch_dims: b.attr("batch_dims")? })
            })),
    ]
}

/// The rows of a resource variable that the indices name.
pub fn resource_gather(s: &Scope, resource: Output, indices: Output, dtype: DType) -> Result<Output> {
    s.node("ResourceGather").inputs(&[resource, indices]).attr("dtype", dtype).output()
}

fn shape(c: &InferenceContext<'_>) -> Result<Vec<PartialShape>> {
    let (params, indices, batch_dims) = (variable_shape(c, 0), c.input(1), c.attr::<i64>("batch_dims")?);
    if params.rank() == Some(0) {
        return Err(invalid!("Shape must be at least rank 1 but is rank 0 for the variable of ResourceGather"));
    }
    let (Some(params), Some(indices)) = (params.dims(), indices.dims()) else {
        return Ok(vec![PartialShape::unknown()]);
    };
    let batch = batch_axes(batch_dims, params.len(), indices.len())?;
    Ok(vec![PartialShape::new([&indices[..batch], &indices[batch..], &params[batch + 1..]].concat())])
}

/// The number of leading axes that variable and indices have in common.
fn batch_axes(batch_dims: i64, params_rank: usize, indices_rank: usize) -> Result<usize> {
    let batch = if batch_dims < 0 { batch_dims + indices_rank as i64 } else { batch_dims };
    usize::try_from(batch).ok().filter(|&b| b <= indices_rank && b < params_rank).ok_or_else(|| {
        invalid!(
            "batch_dims {batch_dims} does not fit a variable of rank {params_rank} and indices of rank {indices_rank}"
        )
    })
}

/// The rows' gradients, where the rows came from; with batches, the gradient of the whole variable.
fn grad(s: &Scope, g: &Grad<'_>) -> Result<Vec<Option<GradValue>>> {
    let (resource, indices) = (g.inputs[0], g.inputs[1]);
    let shape = s.op("VariableShape", &[resource])?;
    let batch_dims: i64 = g.attr(s, "batch_dims")?;
    if batch_dims != 0 {
        return Ok(vec![Some(batch_grad(s, g.dy[0], shape, indices, batch_dims)?.into()), None]);
    }
    let (count, row) = (count(s, indices)?, slice(s, shape, 1, None)?);
    let values = s.op("Reshape", &[g.dy[0], concat(s, &[count, row])?])?;
    let indices = s.op("Reshape", &[indices, count])?;
    Ok(vec![Some(GradValue::Sparse(IndexedSlices { values, indices, dense_shape: Some(shape) })), None])
}

/// All batches are seen as one table: row `i` of batch `b` is row `b * limit + i` of it.
fn batch_grad(s: &Scope, dy: Output, shape: Output, indices: Output, batch_dims: i64) -> Result<Output> {
    let rank = s.shape(indices)?.rank();
    let rank = rank.ok_or_else(|| invalid!("the gradient of a batched gather needs indices of known rank"))?;
    let batch = batch_axes(batch_dims, usize::MAX, rank)?;
    let (outer, limit) = (slice(s, shape, 0, Some(batch))?, slice(s, shape, batch, Some(batch + 1))?);
    let limit = s.op("Reshape", &[limit, s.constant(Vec::<i32>::new())?])?;
    let batches = s.op("Prod", &[outer, s.constant([0i32])?])?;
    let numbers = s.op("Range", &[s.constant(0i32)?, batches, s.constant(1i32)?])?;
    let starts = s.op("Mul", &[numbers, limit])?;
    let starts = s.node("Cast").input(starts).attr("DstT", s.dtype(indices)?).output()?;
    let starts = s.op("Reshape", &[starts, concat(s, &[outer, s.constant(vec![1i32; rank - batch])?])?])?;
    let count = count(s, indices)?;
    let rows = s.op("Reshape", &[s.op("AddV2", &[indices, starts])?, count])?;
    let values = s.op("Reshape", &[dy, concat(s, &[count, slice(s, shape, batch + 1, None)?])?])?;
    let sums = s.op("UnsortedSegmentSum", &[values, rows, s.op("Mul", &[batches, limit])?])?;
    s.op("Reshape", &[sums, shape])
}

/// The number of elements, as a vector of one.
fn count(s: &Scope, x: Output) -> Result<Output> {
    s.op("ExpandDims", &[s.op("Size", &[x])?, s.constant(0i32)?])
}

fn concat(s: &Scope, parts: &[Output]) -> Result<Output> {
    s.node("ConcatV2").inputs(parts).input(s.constant(0i32)?).output()
}

/// Part of a vector.
fn slice(s: &Scope, x: Output, begin: usize, end: Option<usize>) -> Result<Output> {
    let bounds = [begin, end.unwrap_or(0), 1].map(|n| s.constant([n as i32]));
    let [begin, stop, step] = bounds;
    let node = s.node("StridedSlice").inputs(&[x, begin?, stop?, step?]);
    node.attr("end_mask", i64::from(end.is_none())).output()
}

struct ResourceGather {
    dtype: DType,
    batch_dims: i64,
}

impl MoveKernel for ResourceGather {
    fn compute<I: Item>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let variable = existing_variable(ctx, 0)?;
        let (indices, pool) = (ctx.input(1), ctx.pool());
        // Under the variable's lock: a snapshot would make an update meanwhile copy the whole table.
        let output = variable.update(|params| {
            if params.dtype() != self.dtype {
                return Err(invalid!("ResourceGather wants {}, the variable holds {}", self.dtype, params.dtype()));
            }
            match indices.dtype() {
                DType::I32 => self.gather::<I, i32>(pool, params, indices),
                _ => self.gather::<I, i64>(pool, params, indices),
            }
        })?;
        ctx.set_output(0, output)
    }
}

impl ResourceGather {
    fn gather<I: Item, N: Int>(&self, pool: &Pool, params: &Tensor, indices: &Tensor) -> Result<Tensor> {
        let (table_dims, index_dims) = (params.dims(), indices.dims());
        if table_dims.is_empty() {
            return Err(invalid!("params must be at least 1 dimensional"));
        }
        let batch = batch_axes(self.batch_dims, table_dims.len(), index_dims.len())?;
        if table_dims[..batch] != index_dims[..batch] {
            return Err(invalid!(
                "params.shape {} and indices.shape {} must agree in the first {batch} dimensions",
                params.shape(),
                indices.shape()
            ));
        }
        let (limit, row) = (table_dims[batch], table_dims[batch + 1..].iter().product::<usize>());
        let per_batch: usize = index_dims[batch..].iter().product();
        let dims = index_dims.iter().chain(&table_dims[batch + 1..]).map(|&d| d as i64);
        let shape = Shape::checked(dims)?;

        I::build(self.dtype, shape, &mut |out| {
            let (table, numbers) = (I::items(params)?, indices.as_slice::<N>()?);
            linalg::gather::check(numbers, limit).map_err(|at| index_error(indices, at, limit))?;
            if out.is_empty() {
                return Ok(());
            }
            for (b, out) in out.chunks_exact_mut(per_batch * row).enumerate() {
                let (table, numbers) =
                    (&table[b * limit * row..][..limit * row], &numbers[b * per_batch..][..per_batch]);
                linalg::gather::gather(pool, table, 1, limit, row, numbers, out)
                    .map_err(|at| index_error(indices, b * per_batch + at, limit))?;
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::Bench;
    use super::*;
    use crate::state::{assign_variable, var_handle};
    use tensor::Code;

    #[test]
    fn rows_are_gathered_and_indices_checked() {
        let b = Bench::new();
        let w = var_handle(&b.s, "w", DType::F32, [3, 2]).unwrap();
        let init = assign_variable(&b.s, w, b.s.constant([[1.0f32, 2.0], [3.0, 4.0], [5.0, 6.0]]).unwrap()).unwrap();
        b.run(init).unwrap();
        let indices = b.s.constant([2i32, 0, 2]).unwrap();
        let rows = resource_gather(&b.s, w, indices, DType::F32).unwrap();
        assert_eq!(b.s.shape(rows).unwrap(), [3, 2].into());
        assert_eq!(b.fetch(rows).unwrap(), [[5.0f32, 6.0], [1.0, 2.0], [5.0, 6.0]].into());
        let wrong = resource_gather(&b.s, w, b.s.constant([[0i64, 1], [0, 7]]).unwrap(), DType::F32).unwrap();
        let error = b.fetch(wrong).unwrap_err();
        assert_eq!(error.code, Code::InvalidArgument);
        assert!(error.message.starts_with("indices[1,1] = 7 is not in [0, 3)"), "{error}");
    }

    #[test]
    fn batches_have_rows_of_their_own() {
        let b = Bench::new();
        let w = var_handle(&b.s, "w", DType::I32, [2, 3]).unwrap();
        let init = assign_variable(&b.s, w, b.s.constant([[1i32, 2, 3], [4, 5, 6]]).unwrap()).unwrap();
        b.run(init).unwrap();
        let node = b.s.node("ResourceGather").input(w).input(b.s.constant([[2i32, 0], [1, 1]]).unwrap());
        let rows = node.attr("dtype", DType::I32).attr("batch_dims", 1i64).output().unwrap();
        assert_eq!(b.fetch(rows).unwrap(), [[3i32, 1], [5, 5]].into());
    }

    /// By hand: each row's gradient is the sum of what its readers give back, 1 for the first, 2 for the second, ….
    #[test]
    fn batches_have_gradients_of_their_own() {
        let b = Bench::new();
        let w = var_handle(&b.s, "w", DType::F32, [2, 3, 1]).unwrap();
        let init = b.s.constant(Tensor::zeros(DType::F32, [2, 3, 1]).unwrap()).unwrap();
        b.run(assign_variable(&b.s, w, init).unwrap()).unwrap();
        let node = b.s.node("ResourceGather").input(w).input(b.s.constant([[2i64, 0], [1, 1]]).unwrap());
        let rows = node.attr("dtype", DType::F32).attr("batch_dims", 1i64).output().unwrap();
        let dy = Tensor::from_vec([2, 2, 1], vec![1.0f32, 2.0, 3.0, 4.0]).unwrap();
        let dy = b.s.constant(dy).unwrap();
        let grads = framework::gradients(&b.s, &[rows], &[w], &[Some(dy)], &[]).unwrap();
        let Some(GradValue::Dense(dw)) = grads[0] else { panic!("wanted a dense gradient, found {grads:?}") };
        let want = Tensor::from_vec([2, 3, 1], vec![2.0f32, 0.0, 1.0, 0.0, 7.0, 0.0]).unwrap();
        assert_eq!(b.fetch(dw).unwrap(), want);
    }

    #[test]
    fn the_gradient_names_the_rows_it_is_of() {
        let b = Bench::new();
        let w = var_handle(&b.s, "w", DType::F32, [3, 2]).unwrap();
        let init = b.s.constant(Tensor::zeros(DType::F32, [3, 2]).unwrap()).unwrap();
        b.run(assign_variable(&b.s, w, init).unwrap()).unwrap();
        let rows = resource_gather(&b.s, w, b.s.constant([2i32, 0]).unwrap(), DType::F32).unwrap();
        let dy = b.s.constant([[1.0f32, 2.0], [3.0, 4.0]]).unwrap();
        let grads = framework::gradients(&b.s, &[rows], &[w], &[Some(dy)], &[]).unwrap();
        let Some(GradValue::Sparse(slices)) = grads[0] else { panic!("wanted rows, found {grads:?}") };
        assert_eq!(b.fetch(slices.indices).unwrap(), [2i32, 0].into());
        assert_eq!(b.fetch(slices.values).unwrap(), [[1.0f32, 2.0], [3.0, 4.0]].into());
        assert_eq!(b.fetch(slices.dense_shape.unwrap()).unwrap(), [3i32, 2].into());
    }
}

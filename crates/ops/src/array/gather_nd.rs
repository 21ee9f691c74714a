//! `GatherNd` and `ScatterNd`: slices read from, or summed into, places that index vectors name.

use super::gather::place;
use super::{build, indices};
use framework::kernel::KernelContext;
use framework::typed::{Int, Item, MoveKernel, Number, NumberKernel, moves, stepwise_numbers_by};
use framework::{
    BuiltKernel, Grad, GradValue, IndexedSlices, InferenceContext, Kernel, KernelBuild, Op, Output, Scope,
};
use std::sync::Arc;
use tensor::{Bytes, DType, OwnedTensor, PartialShape, Result, Shape, Tensor, invalid};

pub fn ops() -> Vec<Op> {
    vec![
        Op::new("GatherNd")
            .input("params: Tparams")
            .input("indices: Tindices")
            .output("output: Tparams")
            .attr("Tparams: type")
            .attr("Tindices: {int16, int32, int64}")
            .attr("bad_indices_policy: string = ''")
            .shape(gather_shape)
            .gradient(gather_gradient)
            .kernel(moves(|b| Ok(GatherNd(BadIndices::of(b)?)))),
        Op::new("ScatterNd")
            .input("indices: Tindices")
            .input("updates: T")
            .input("shape: Tindices")
            .output("output: T")
            .attr("T: type")
            .attr("Tindices: {int16, int32, int64}")
            .attr("bad_indices_policy: string = ''")
            .shape(scatter_shape)
            .gradient(|s, g| Ok(vec![None, Some(gather_nd(s, g.dy[0], g.inputs[0])?.into()), None]))
            .kernel(Arc::new(scatter_kernel)),
    ]
}

/// The elements or slices of `params` at the places that the rows of `indices` name.
pub fn gather_nd(s: &Scope, params: Output, indices: Output) -> Result<Output> {
    s.op("GatherNd", &[params, indices])
}

/// A tensor of this shape in which the updates are summed at the places that the rows of `indices` name.
pub fn scatter_nd(s: &Scope, indices: Output, updates: Output, shape: Output) -> Result<Output> {
    s.op("ScatterNd", &[indices, updates, shape])
}

fn gather_gradient(s: &Scope, g: &Grad<'_>) -> Result<Vec<Option<GradValue>>> {
    let (params, indices) = (g.inputs[0], g.inputs[1]);
    let index_type = s.dtype(indices)?;
    let out_type = if index_type == DType::I16 { DType::I32 } else { index_type };
    let shape = s.node("Shape").input(params).attr("out_type", out_type).output()?;
    let by = s.shape(indices)?;
    if by.rank() == Some(2) && by.dim(1) == Some(1) {
        let rows = s.node("Squeeze").input(indices).attr("squeeze_dims", vec![-1i64]).output()?;
        let slices = IndexedSlices { values: g.dy[0], indices: rows, dense_shape: Some(shape) };
        return Ok(vec![Some(GradValue::Sparse(slices)), None]);
    }
    let indices = match index_type == out_type {
        true => indices,
        false => s.node("Cast").input(indices).attr("DstT", out_type).output()?,
    };
    Ok(vec![Some(scatter_nd(s, indices, g.dy[0], shape)?.into()), None])
}

fn gather_shape(c: &InferenceContext<'_>) -> Result<Vec<PartialShape>> {
    c.input(1).with_rank_at_least(1)?;
    let (Some(params), Some(by)) = (c.input(0).dims(), c.input(1).dims()) else {
        return Ok(vec![PartialShape::unknown()]);
    };
    let Some((Some(depth), rows)) = by.split_last() else { return Ok(vec![PartialShape::unknown()]) };
    if *depth > params.len() {
        return Err(too_deep(*depth, params.len()));
    }
    Ok(vec![PartialShape::new(rows.iter().chain(&params[*depth..]).copied())])
}

fn too_deep(depth: usize, rank: usize) -> tensor::Error {
    invalid!("index innermost dimension length must be <= params rank; saw: {depth} vs. {rank}")
}

fn scatter_shape(c: &InferenceContext<'_>) -> Result<Vec<PartialShape>> {
    let shape = c.shape_from_input(2)?;
    if let (Some(by), Some(updates), Some(dims)) = (c.input(0).known(), c.input(1).known(), shape.known()) {
        check_scatter(&by, &updates, &dims)?;
    }
    Ok(vec![shape])
}

/// What happens to an index vector that leads outside.
#[derive(Clone, Copy, PartialEq)]
enum BadIndices {
    Fail,
    Ignore,
}

impl BadIndices {
    fn of(b: &KernelBuild<'_>) -> Result<BadIndices> {
        BadIndices::parse(&b.attr::<String>("bad_indices_policy")?)
    }

    fn parse(policy: &str) -> Result<BadIndices> {
        match policy {
            "" | "DEFAULT" | "ERROR" => Ok(BadIndices::Fail),
            "IGNORE" => Ok(BadIndices::Ignore),
            other => Err(invalid!("bad_indices_policy must be '', DEFAULT, ERROR or IGNORE, found '{other}'")),
        }
    }
}

/// For each row of `indices`, which of the slices of a tensor it names; `None` for one that leads outside.
fn slices_named(indices: &Tensor, dims: &[usize], depth: usize, policy: BadIndices) -> Result<Vec<Option<usize>>> {
    match indices.dtype() {
        DType::I16 => named::<i16>(indices, dims, depth, policy),
        DType::I32 => named::<i32>(indices, dims, depth, policy),
        _ => named::<i64>(indices, dims, depth, policy),
    }
}

fn named<N: Int>(indices: &Tensor, dims: &[usize], depth: usize, policy: BadIndices) -> Result<Vec<Option<usize>>> {
    let (outer, numbers) = (&indices.dims()[..indices.dims().len().saturating_sub(1)], indices.as_slice::<N>()?);
    let rows: usize = outer.iter().product();
    let mut slices = Vec::with_capacity(rows);
    for row in 0..rows {
        let vector = &numbers[row * depth..][..depth];
        let slice = vector.iter().zip(dims).try_fold(0usize, |flat, (&at, &dim)| {
            let at = usize::try_from(at.to_i64()).ok().filter(|&at| at < dim)?;
            Some(flat * dim + at)
        });
        if slice.is_none() && policy == BadIndices::Fail {
            let vector: Vec<String> = vector.iter().map(|v| v.to_string()).collect();
            let (place, shape) = (place(outer, row), Shape::from(dims));
            return Err(invalid!("indices{place} = [{}] does not index into shape {shape}", vector.join(", ")));
        }
        slices.push(slice);
    }
    Ok(slices)
}

struct GatherNd(BadIndices);

impl MoveKernel for GatherNd {
    fn compute<I: Item>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let (params, by) = (ctx.input(0), ctx.input(1));
        if params.shape().rank() == 0 {
            return Err(invalid!("params must be at least a vector"));
        }
        let Some((&depth, rows)) = by.dims().split_last() else {
            return Err(invalid!("indices must be at least a vector"));
        };
        if depth > params.shape().rank() {
            return Err(too_deep(depth, params.shape().rank()));
        }
        let rest = &params.dims()[depth..];
        let shape = Shape::checked(rows.iter().chain(rest).map(|&d| d as i64))?;
        if shape.num_elements() > 0 && params.num_elements() == 0 {
            return Err(invalid!(
                "Requested more than 0 entries, but params is empty.  Params shape: {}",
                params.shape()
            ));
        }
        let slices = slices_named(by, params.dims(), depth, self.0).map_err(params_error)?;

        let row: usize = rest.iter().product();
        let y = build::<I>(params.dtype(), shape, |out| {
            let items = I::items(params)?;
            ctx.pool().for_each_row(out, row, (1usize << 14).div_ceil(row.max(1)), &|first, part| {
                for (to, slice) in part.chunks_exact_mut(row).zip(&slices[first..]) {
                    match slice {
                        Some(slice) => to.clone_from_slice(&items[slice * row..][..row]),
                        None => to.fill(I::zero()),
                    }
                }
            });
            Ok(())
        })?;
        ctx.set_output(0, y)
    }
}

/// Reading names the tensor that is read.
fn params_error(mut error: tensor::Error) -> tensor::Error {
    error.message = error.message.replace("does not index into shape", "does not index into param shape");
    error
}

/// The sizes of indices, updates and result must fit together; how many numbers make an index vector.
fn check_scatter(by: &Shape, updates: &Shape, result: &Shape) -> Result<usize> {
    if result.rank() == 0 && updates.num_elements() > 0 && by.rank() == 0 {
        return Err(invalid!("Output must be at least 1-D, got shape: {result}"));
    }
    let (depth, rows) = match by.dims().split_last() {
        Some((&depth, rows)) if by.rank() > 1 => (depth, rows),
        // A vector of indices names one slice by each of its elements.
        _ => (1, by.dims()),
    };
    if depth > result.rank() {
        return Err(invalid!(
            "index innermost dimension length must be <= output rank; saw: {depth} vs. {}",
            result.rank()
        ));
    }
    let wanted: Shape = rows.iter().chain(&result.dims()[depth..]).copied().collect();
    if *updates != wanted {
        return Err(invalid!(
            "Dimensions [0,{}) of indices[shape={by}] must match dimensions [0,{}) of updates[shape={updates}], and the \
             rest of updates must match the output's shape {result}: updates of shape {wanted} were wanted",
            rows.len(),
            rows.len()
        ));
    }
    if by.num_elements() > 0 && result.num_elements() == 0 {
        return Err(invalid!(
            "Indices and updates specified for empty output. indices shape: {by}, output shape: {result}"
        ));
    }
    Ok(depth)
}

fn scatter_kernel(b: &KernelBuild<'_>) -> Result<BuiltKernel> {
    let policy = BadIndices::of(b)?;
    match b.dtype("T")? {
        DType::Bool => Ok(BuiltKernel::new(ScatterBools(policy))),
        DType::String => Ok(BuiltKernel::new(ScatterStrings(policy))),
        _ => stepwise_numbers_by(b, "T", ScatterNd(policy)),
    }
}

/// For updates of a tensor of shape `result`: the length of a slice, and which slice each row of updates belongs to.
pub(crate) fn scatter_places(
    by: &Tensor,
    updates: &Shape,
    result: &Shape,
    policy: &str,
) -> Result<(usize, Vec<Option<usize>>)> {
    let depth = check_scatter(by.shape(), updates, result)?;
    let vectors = if by.shape().rank() > 1 { by.clone() } else { by.clone().reshaped([by.num_elements(), 1])? };
    let slices = slices_named(&vectors, result.dims(), depth, BadIndices::parse(policy)?)?;
    Ok((result.dims()[depth..].iter().product(), slices))
}

/// The result's shape, the length of a slice, and which slice each row of updates belongs to.
fn scatter_plan(ctx: &KernelContext<'_>, policy: BadIndices) -> Result<(Shape, usize, Vec<Option<usize>>)> {
    let (by, updates, shape) = (ctx.input(0), ctx.input(1), ctx.input(2));
    if shape.shape().rank() != 1 {
        return Err(invalid!("Shape must be a vector, found shape {}", shape.shape()));
    }
    let shape = Shape::checked(indices(shape)?)?;
    let depth = check_scatter(by.shape(), updates.shape(), &shape)?;
    let vectors = if by.shape().rank() > 1 { by.clone() } else { by.clone().reshaped([by.num_elements(), 1])? };
    let slices = slices_named(&vectors, shape.dims(), depth, policy)?;
    let row = shape.dims()[depth..].iter().product();
    Ok((shape, row, slices))
}

struct ScatterNd(BadIndices);

impl NumberKernel for ScatterNd {
    fn compute<T: Number>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let (shape, row, slices) = scatter_plan(ctx, self.0)?;
        let mut y = OwnedTensor::<T>::filled(shape, T::ZERO)?;
        let updates = ctx.input(1).as_slice::<T>()?;
        for (i, slice) in slices.iter().enumerate() {
            let Some(slice) = slice else { continue };
            for (y, &x) in y[slice * row..][..row].iter_mut().zip(&updates[i * row..][..row]) {
                *y = y.add(x);
            }
        }
        ctx.set_output(0, y)
    }
}

struct ScatterBools(BadIndices);

impl Kernel for ScatterBools {
    fn compute(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let (shape, row, slices) = scatter_plan(ctx, self.0)?;
        let mut y = OwnedTensor::<bool>::filled(shape, false)?;
        let updates = ctx.input(1).as_slice::<bool>()?;
        for (i, slice) in slices.iter().enumerate() {
            let Some(slice) = slice else { continue };
            for (y, &x) in y[slice * row..][..row].iter_mut().zip(&updates[i * row..][..row]) {
                *y |= x;
            }
        }
        ctx.set_output(0, y)
    }
}

struct ScatterStrings(BadIndices);

impl Kernel for ScatterStrings {
    fn compute(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let (shape, row, slices) = scatter_plan(ctx, self.0)?;
        let updates = ctx.input(1).as_strings()?;
        let y = build::<Bytes>(DType::String, shape, |out| {
            for (i, slice) in slices.iter().enumerate() {
                let Some(slice) = slice else { continue };
                for (y, x) in out[slice * row..][..row].iter_mut().zip(&updates[i * row..][..row]) {
                    // The sum of two strings is one after the other.
                    *y = if y.is_empty() { x.clone() } else { [&y[..], &x[..]].concat().into() };
                }
            }
            Ok(())
        })?;
        ctx.set_output(0, y)
    }
}

#[cfg(test)]
mod tests {
    use crate::array::testing::eval;
    use tensor::Tensor;

    #[test]
    fn index_vectors_name_elements_or_slices() {
        let x = Tensor::from([[1i32, 2], [3, 4]]);
        let at = |indices: Tensor| eval("GatherNd", &[x.clone(), indices], &[]);
        assert_eq!(at(Tensor::from([[0i32, 0], [1, 1]])).unwrap(), [Tensor::from([1i32, 4])]);
        assert_eq!(at(Tensor::from([[1i64], [0]])).unwrap(), [Tensor::from([[3i32, 4], [1, 2]])]);
        let error = at(Tensor::from([[0i32, 0], [2, 1]])).unwrap_err();
        assert!(error.message.starts_with("indices[1] = [2, 1] does not index into param shape [2,2]"), "{error}");
        assert!(at(Tensor::from([[0i32, 0, 0]])).is_err());
        let skipped = eval(
            "GatherNd",
            &[x.clone(), Tensor::from([[0i32, 1], [2, 1]])],
            &[("bad_indices_policy", "IGNORE".into())],
        );
        assert_eq!(skipped.unwrap(), [Tensor::from([2i32, 0])]);
    }

    #[test]
    fn updates_add_up() {
        let scatter = |indices: Tensor, updates: Tensor, shape: Vec<i32>| {
            eval("ScatterNd", &[indices, updates, shape.into()], &[])
        };
        let y = scatter(Tensor::from([[1i32], [3], [1]]), Tensor::from([5.0f32, 6.0, 7.0]), vec![4]).unwrap();
        assert_eq!(y, [Tensor::from([0.0f32, 12.0, 0.0, 6.0])]);
        let y = scatter(Tensor::from([[0i32], [0]]), Tensor::from(["a", "b"]), vec![1]).unwrap();
        assert_eq!(y, [Tensor::from(["ab"])]);
        assert!(scatter(Tensor::from([[4i32]]), Tensor::from([5.0f32]), vec![4]).is_err());
        assert!(scatter(Tensor::from([[1i32]]), Tensor::from([5.0f32, 6.0]), vec![4]).is_err());
        assert!(scatter(Tensor::from([[1i32]]), Tensor::from([5.0f32]), vec![-4]).is_err());
    }
}

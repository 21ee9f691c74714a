//! `Reshape`, `ExpandDims` and `Squeeze`: the same elements under another shape.

use super::{Indices, index, indices, reshaped_value};
use framework::gradient::dense;
use framework::kernel::{function, kernel};
use framework::{Grad, GradValue, InferenceContext, Kernel, KernelContext, Op, Output, Scope};
use smallvec::SmallVec;
use tensor::{PartialShape, Result, Shape, invalid};

pub fn ops() -> Vec<Op> {
    vec![
        Op::new("Reshape")
            .input("tensor: T")
            .input("shape: Tshape")
            .output("output: T")
            .attr("T: type")
            .attr("Tshape: indextype = int32")
            .shape(reshape_shape)
            .value(|c| reshaped_value(c, reshape_shape))
            .gradient(|s, g| with_none(s, g, 2))
            .kernel(function(|ctx| {
                if ctx.input(1).shape().rank() > 1 {
                    return Err(invalid!("sizes input must be 1-D, not {}", ctx.input(1).shape()));
                }
                let shape = resolve(&indices(ctx.input(1))?, ctx.input(0).shape())?;
                let y = ctx.take(0).reshaped(shape)?;
                ctx.set_output(0, y)
            })),
        Op::new("ExpandDims")
            .input("input: T")
            .input("dim: Tdim")
            .output("output: T")
            .attr("T: type")
            .attr("Tdim: indextype = int32")
            .shape(expand_shape)
            .value(|c| reshaped_value(c, expand_shape))
            .gradient(|s, g| with_none(s, g, 2))
            .kernel(function(|ctx| {
                let x = ctx.input(0).shape();
                let at = expanded_axis(index(ctx.input(1), "dim input")?, x.rank())?;
                let shape: Shape =
                    x.dims()[..at].iter().copied().chain([1]).chain(x.dims()[at..].iter().copied()).collect();
                let y = ctx.take(0).reshaped(shape)?;
                ctx.set_output(0, y)
            })),
        Op::new("Squeeze")
            .input("input: T")
            .output("output: T")
            .attr("T: type")
            .attr("squeeze_dims: list(int) >= 0 = []")
            .shape(squeeze_shape)
            .value(|c| reshaped_value(c, squeeze_shape))
            .gradient(|s, g| with_none(s, g, 1))
            .kernel(kernel(|b| Ok(Squeeze(b.attr("squeeze_dims")?)))),
    ]
}

/// The same elements under another shape; one size may be -1.
pub fn reshape(s: &Scope, x: Output, shape: Output) -> Result<Output> {
    s.op("Reshape", &[x, shape])
}

/// The same elements with a dimension of size 1 put in at `axis`.
pub fn expand_dims(s: &Scope, x: Output, axis: i32) -> Result<Output> {
    s.op("ExpandDims", &[x, s.constant(axis)?])
}

/// The same elements without dimensions of size 1: those given, or all.
pub fn squeeze(s: &Scope, x: Output, axes: &[i64]) -> Result<Output> {
    s.node("Squeeze").input(x).attr("squeeze_dims", axes.to_vec()).output()
}

/// The gradient under the first input's shape; nothing for the others.
fn with_none(s: &Scope, g: &Grad<'_>, inputs: usize) -> Result<Vec<Option<GradValue>>> {
    let shape = s.op("Shape", &[g.inputs[0]])?;
    let mut grads = dense([s.op("Reshape", &[g.dy[0], shape])?])?;
    grads.resize(inputs, None);
    Ok(grads)
}

/// The shape asked for, with -1 replaced by what makes the number of elements come out right.
fn resolve(wanted: &[i64], from: &Shape) -> Result<Shape> {
    let count = from.num_elements();
    let mut unknown = None;
    let mut known = 1usize;
    let mut dims: Indices = SmallVec::with_capacity(wanted.len());
    for (i, &size) in wanted.iter().enumerate() {
        match size {
            -1 => {
                if let Some(first) = unknown.replace(i) {
                    return Err(invalid!("Only one input size may be -1, not both {first} and {i}"));
                }
                dims.push(1);
            }
            0.. => {
                known = known
                    .checked_mul(size as usize)
                    .ok_or_else(|| invalid!("the requested shape has more elements than can be addressed"))?;
                dims.push(size);
            }
            _ => return Err(invalid!("Size {i} must be non-negative, not {size}")),
        }
    }
    if let Some(i) = unknown {
        if known == 0 {
            // Nothing tells the missing size of an empty tensor; what the other sizes leave over is kept.
            let others = Shape::checked(dims.iter().copied())?;
            let rest = |shape: &Shape| shape.dims().iter().filter(|&&d| d != 0).product::<usize>();
            dims[i] = (rest(from) / rest(&others)) as i64;
        } else if !count.is_multiple_of(known) {
            return Err(invalid!(
                "Input to reshape is a tensor with {count} values, but the requested shape requires a multiple of {known}"
            ));
        } else {
            dims[i] = (count / known) as i64;
            known = count;
        }
    }
    if known != count {
        return Err(invalid!("Input to reshape is a tensor with {count} values, but the requested shape has {known}"));
    }
    Shape::checked(dims)
}

fn reshape_shape(c: &InferenceContext<'_>) -> Result<Vec<PartialShape>> {
    if c.input(1).rank().is_some_and(|r| r > 1) {
        return Err(invalid!("the shape to reshape to must be a vector, found shape {}", c.input(1)));
    }
    let Some(wanted) = c.input_i64s(1) else {
        let rank = if c.input(1).rank() == Some(0) { Some(1) } else { c.input(1).dim(0) };
        return Ok(vec![rank.map_or(PartialShape::unknown(), PartialShape::of_rank)]);
    };
    if let Some(from) = c.input(0).known() {
        return Ok(vec![resolve(&wanted, &from)?.into()]);
    }
    let dims = wanted.iter().map(|&d| match d {
        -1 => Ok(None),
        d => usize::try_from(d).map(Some).map_err(|_| invalid!("Size must be non-negative, not {d}")),
    });
    let dims: Vec<Option<usize>> = dims.collect::<Result<_>>()?;
    if dims.iter().filter(|d| d.is_none()).count() > 1 {
        return Err(invalid!("Only one input size may be -1, found {wanted:?}"));
    }
    Shape::checked(dims.iter().map(|d| d.unwrap_or(1) as i64))?;
    Ok(vec![PartialShape::new(dims)])
}

fn expanded_axis(axis: i64, rank: usize) -> Result<usize> {
    let limit = rank as i64;
    if axis < -limit - 1 || axis > limit {
        return Err(invalid!("Tried to expand dim index {axis} for tensor with {rank} dimensions."));
    }
    Ok(if axis < 0 { axis + limit + 1 } else { axis } as usize)
}

fn expand_shape(c: &InferenceContext<'_>) -> Result<Vec<PartialShape>> {
    let Some(dims) = c.input(0).dims() else { return Ok(vec![PartialShape::unknown()]) };
    if let Some(count) = c.input(1).num_elements()
        && count != 1
    {
        return Err(invalid!("dim input must be a tensor with a single value, found shape {}", c.input(1)));
    }
    let Some(axis) = c.input_i64(1) else { return Ok(vec![PartialShape::of_rank(dims.len() + 1)]) };
    let mut dims = dims.to_vec();
    dims.insert(expanded_axis(axis, dims.len())?, Some(1));
    Ok(vec![PartialShape::new(dims)])
}

/// Which dimensions go: those named, or all of size 1.
fn squeezed(axes: &[i64], rank: usize) -> Result<SmallVec<[bool; 8]>> {
    let mut gone: SmallVec<[bool; 8]> = SmallVec::from_elem(axes.is_empty(), rank);
    let limit = rank as i64;
    for &axis in axes {
        if axis < -limit || axis >= limit {
            return Err(invalid!("Tried to squeeze dim index {axis} for tensor with {rank} dimensions."));
        }
        gone[if axis < 0 { axis + limit } else { axis } as usize] = true;
    }
    Ok(gone)
}

fn squeeze_shape(c: &InferenceContext<'_>) -> Result<Vec<PartialShape>> {
    let axes: Vec<i64> = c.attr("squeeze_dims")?;
    let Some(dims) = c.input(0).dims() else { return Ok(vec![PartialShape::unknown()]) };
    let gone = squeezed(&axes, dims.len())?;
    if axes.is_empty() {
        // Whether an unknown dimension goes is unknown too.
        let Some(known) = c.input(0).known() else { return Ok(vec![PartialShape::unknown()]) };
        return Ok(vec![PartialShape::new(known.dims().iter().filter(|&&d| d != 1).map(|&d| Some(d)))]);
    }
    if let Some(i) = (0..dims.len()).find(|&i| gone[i] && dims[i].is_some_and(|d| d != 1)) {
        return Err(not_one(i, dims[i].unwrap_or(0)));
    }
    Ok(vec![PartialShape::new((0..dims.len()).filter(|&i| !gone[i]).map(|i| dims[i]))])
}

fn not_one(axis: usize, size: usize) -> tensor::Error {
    invalid!("Can not squeeze dim[{axis}], expected a dimension of 1, got {size}")
}

struct Squeeze(Vec<i64>);

impl Kernel for Squeeze {
    fn compute(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let dims = ctx.input(0).dims();
        let gone = squeezed(&self.0, dims.len())?;
        if !self.0.is_empty()
            && let Some(i) = (0..dims.len()).find(|&i| gone[i] && dims[i] != 1)
        {
            return Err(not_one(i, dims[i]));
        }
        let shape: Shape = (0..dims.len()).filter(|&i| !(gone[i] && dims[i] == 1)).map(|i| dims[i]).collect();
        let y = ctx.take(0).reshaped(shape)?;
        ctx.set_output(0, y)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::testing::{eval, run};
    use tensor::{DType, Tensor};

    fn shape_after(
        op: &str,
        x: &[usize],
        second: Option<Tensor>,
        attrs: &[(&str, framework::Attr)],
    ) -> Option<Vec<usize>> {
        let x = Tensor::zeros(DType::F32, x).unwrap();
        let inputs: Vec<Tensor> = [Some(x), second].into_iter().flatten().collect();
        eval(op, &inputs, attrs).ok().map(|y| y[0].dims().to_vec())
    }

    #[test]
    fn shapes_are_resolved() {
        let reshape = |x: &[usize], to: Vec<i32>| shape_after("Reshape", x, Some(Tensor::from(to)), &[]);
        assert_eq!(reshape(&[2, 3], vec![6]), Some(vec![6]));
        assert_eq!(reshape(&[2, 3], vec![-1, 2]), Some(vec![3, 2]));
        assert_eq!(reshape(&[1], vec![]), Some(vec![]));
        assert_eq!(reshape(&[0, 3], vec![-1, 3]), Some(vec![0, 3]));
        assert_eq!(reshape(&[0, 7], vec![-1, 0, 2]), Some(vec![3, 0, 2]));
        assert_eq!(reshape(&[2, 3], vec![-1, 0]), None);
        assert_eq!(reshape(&[0], vec![0, -1, i32::MAX, i32::MAX, i32::MAX]), None);
        assert_eq!(reshape(&[2, 3], vec![-1, -1]), None);
        assert_eq!(reshape(&[2, 3], vec![4]), None);
        assert_eq!(reshape(&[2, 3], vec![-1, 4]), None);
        assert_eq!(reshape(&[2, 3], vec![-2, -3]), None);
        assert_eq!(reshape(&[2, 3], vec![i32::MAX, i32::MAX, i32::MAX, i32::MAX]), None);
    }

    #[test]
    fn dimensions_of_one_come_and_go() {
        let expand = |at: i64| shape_after("ExpandDims", &[2, 3], Some(Tensor::scalar(at)), &[]);
        assert_eq!(expand(0), Some(vec![1, 2, 3]));
        assert_eq!(expand(-1), Some(vec![2, 3, 1]));
        assert_eq!(expand(2), Some(vec![2, 3, 1]));
        assert_eq!(expand(3), None);
        assert_eq!(expand(-4), None);
        let squeeze = |axes: Vec<i64>| shape_after("Squeeze", &[1, 2, 1], None, &[("squeeze_dims", axes.into())]);
        assert_eq!(squeeze(vec![]), Some(vec![2]));
        assert_eq!(squeeze(vec![-1]), Some(vec![1, 2]));
        assert_eq!(squeeze(vec![1]), None);
        assert_eq!(squeeze(vec![3]), None);
    }

    #[test]
    fn shapes_partly_known_stay_partly_known() {
        let shapes = std::cell::RefCell::new(Vec::new());
        let _ = run(|s| {
            let x = super::super::placeholder(s, DType::F32, [None, Some(3)])?;
            let y = reshape(s, x, s.constant([-1i32, 1, 3])?)?;
            for y in [y, expand_dims(s, x, 1)?, squeeze(s, y, &[1])?, squeeze(s, y, &[])?] {
                shapes.borrow_mut().push(s.shape(y)?.to_string());
            }
            Ok(vec![])
        });
        assert_eq!(*shapes.borrow(), ["[?,1,3]", "[?,1,3]", "[?,3]", "<unknown>"]);
    }
}

//! Moving elements about: shapes, slices, concatenation, lookup.

use crate::{Graph, Output};
use framework::Scope;
use tensor::{Element, Result, Tensor, invalid};

/// A constant vector of indices inside a node's name scope.
fn part(s: &Scope, scope: &str, name: &str, value: impl Into<Tensor>) -> Result<framework::Output> {
    let value = value.into();
    s.with_absolute_name(scope, || {
        s.node("Const").name(name).attr("dtype", value.dtype()).attr("value", value).output()
    })
}

impl Output {
    /// The same value under this name, by which it can be found again.
    #[track_caller]
    pub fn named(&self, name: &str) -> Output {
        self.graph().output([self], |s, [x]| s.node("Identity").name(name).input(x).output())
    }

    /// The same elements under another shape; one size may be -1.
    #[track_caller]
    pub fn reshape(&self, shape: &[i32]) -> Output {
        self.with_part("Reshape", "shape", shape.to_vec())
    }

    /// The same elements under a shape that is computed.
    #[track_caller]
    pub fn reshape_to(&self, shape: &Output) -> Output {
        self.graph().op("Reshape", [self, shape])
    }

    /// The dimensions in reverse: a matrix transposed.
    #[track_caller]
    pub fn transpose(&self) -> Output {
        self.graph().output([self], |s, [x]| {
            let rank = s.shape(x)?.rank();
            let rank = rank.ok_or_else(|| invalid!("transpose: the number of dimensions is not known"))?;
            transpose(s, x, (0..rank as i32).rev().collect())
        })
    }

    /// The dimensions in another order.
    #[track_caller]
    pub fn permute(&self, order: &[i32]) -> Output {
        self.graph().output([self], |s, [x]| transpose(s, x, order.to_vec()))
    }

    /// Some of its rows, by number.
    #[track_caller]
    pub fn gather(&self, indices: &Output) -> Output {
        self.gather_along(indices, 0)
    }

    /// Some of its slices along a dimension, by number.
    #[track_caller]
    pub fn gather_along(&self, indices: &Output, axis: i32) -> Output {
        self.graph().output([self, indices], |s, [x, indices]| {
            let name = s.unique_name("GatherV2");
            let axis = part(s, &name, "axis", axis)?;
            s.node("GatherV2").name(name + "/").inputs(&[x, indices, axis]).output()
        })
    }

    /// A block: where it begins in each dimension, and its sizes; -1 is all that is left.
    #[track_caller]
    pub fn slice(&self, begin: &[i32], size: &[i32]) -> Output {
        self.graph().output([self], |s, [x]| {
            let name = s.unique_name("Slice");
            let begin = part(s, &name, "begin", begin.to_vec())?;
            let size = part(s, &name, "size", size.to_vec())?;
            s.node("Slice").name(name + "/").inputs(&[x, begin, size]).output()
        })
    }

    /// One slice along the first dimension, which is dropped.
    #[track_caller]
    pub fn row(&self, index: i32) -> Output {
        self.graph().output([self], |s, [x]| {
            let name = s.unique_name("strided_slice");
            // Behind -1 stands the end, which has no number of its own.
            let (end, end_mask) = if index == -1 { (0, 1i64) } else { (index + 1, 0) };
            let begin = part(s, &name, "stack", [index])?;
            let end = part(s, &name, "stack_1", [end])?;
            let stride = part(s, &name, "stack_2", [1i32])?;
            let node = s.node("StridedSlice").name(name + "/").inputs(&[x, begin, end, stride]);
            node.attr("shrink_axis_mask", 1i64).attr("end_mask", end_mask).output()
        })
    }

    /// The same elements with a dimension of size 1 put in.
    #[track_caller]
    pub fn expand_dims(&self, axis: i32) -> Output {
        self.with_part("ExpandDims", "dim", axis)
    }

    /// The same elements without some dimensions of size 1, or without all if none is named.
    #[track_caller]
    pub fn squeeze(&self, axes: &[i64]) -> Output {
        self.graph().output([self], |s, [x]| s.node("Squeeze").input(x).attr("squeeze_dims", axes.to_vec()).output())
    }

    /// The tensor repeated along each dimension.
    #[track_caller]
    pub fn tile(&self, multiples: &[i32]) -> Output {
        self.with_part("Tile", "multiples", multiples.to_vec())
    }

    /// Zeros put before and after each dimension.
    #[track_caller]
    pub fn pad(&self, paddings: &[[i32; 2]]) -> Output {
        self.graph().output([self], |s, [x]| {
            let name = s.unique_name("Pad");
            let paddings = Tensor::from_slice([paddings.len(), 2], paddings.as_flattened())?;
            let paddings = part(s, &name, "paddings", paddings)?;
            s.node("Pad").name(name + "/").inputs(&[x, paddings]).output()
        })
    }

    /// A one at each number's place, zeros elsewhere: `labels.one_hot::<f32>(10)`.
    #[track_caller]
    pub fn one_hot<T: Element>(&self, depth: i32) -> Output {
        self.graph().output([self], |s, [x]| {
            let name = s.unique_name("one_hot");
            let on = part(s, &name, "Const", framework::scope::scalar_of(T::DTYPE, 1.0)?)?;
            let off = part(s, &name, "Const", framework::scope::scalar_of(T::DTYPE, 0.0)?)?;
            let depth = part(s, &name, "depth", depth)?;
            s.node("OneHot").name(name + "/").inputs(&[x, depth, on, off]).output()
        })
    }

    /// The sizes of the dimensions, as an int32 vector that is computed.
    #[track_caller]
    pub fn shape_output(&self) -> Output {
        self.unary("Shape")
    }

    /// The number of elements, computed.
    #[track_caller]
    pub fn size(&self) -> Output {
        self.unary("Size")
    }

    #[track_caller]
    fn with_part(&self, op: &str, name: &str, value: impl Into<Tensor>) -> Output {
        self.graph().output([self], |s, [x]| {
            let full = s.unique_name(op);
            let part = part(s, &full, name, value)?;
            s.node(op).name(full + "/").inputs(&[x, part]).output()
        })
    }
}

fn transpose(s: &Scope, x: framework::Output, order: Vec<i32>) -> Result<framework::Output> {
    let name = s.unique_name("transpose");
    let order = part(s, &name, "perm", order)?;
    s.node("Transpose").name(name + "/").inputs(&[x, order]).output()
}

/// Tensors joined along a dimension they have.
#[track_caller]
pub fn concat(parts: &[&Output], axis: i32) -> Output {
    joined(parts, |s, ids| {
        let name = s.unique_name("concat");
        let axis = part(s, &name, "axis", axis)?;
        s.node("ConcatV2").name(name + "/").inputs(ids).input(axis).output()
    })
}

/// Tensors of one shape joined along a new dimension.
#[track_caller]
pub fn stack(parts: &[&Output], axis: i64) -> Output {
    joined(parts, |s, ids| s.node("Pack").name("stack").inputs(ids).attr("axis", axis).output())
}

#[track_caller]
fn joined(parts: &[&Output], build: impl FnOnce(&Scope, &[framework::Output]) -> Result<framework::Output>) -> Output {
    let Some(first) = parts.first() else {
        let graph = Graph::new();
        graph.keep(invalid!("there is nothing to join"));
        return Output::void(&graph);
    };
    let graph = first.graph();
    let ids: Option<Vec<framework::Output>> = graph.here(|| parts.iter().map(|part| graph.own_one(part)).collect());
    match ids {
        Some(ids) => graph.output([], |s, []| build(s, &ids)),
        None => Output::void(graph),
    }
}

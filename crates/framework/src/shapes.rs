//! What a shape function sees, and the shape functions that many ops share.

use crate::attr::{Attrs, FromAttr};
use crate::graph::OutputInfo;
use crate::op::Op;
use tensor::{DType, PartialShape, Result, Shape, Tensor, broadcast_partial, invalid};

/// A node being added: its op, its attributes, and what is known of its inputs.
pub struct InferenceContext<'a> {
    op: &'a Op,
    attrs: &'a Attrs,
    inputs: &'a [&'a OutputInfo],
    num_outputs: usize,
}

impl<'a> InferenceContext<'a> {
    /// For the graph, and for tests of shape functions.
    pub fn new(op: &'a Op, attrs: &'a Attrs, inputs: &'a [&'a OutputInfo], num_outputs: usize) -> InferenceContext<'a> {
        InferenceContext { op, attrs, inputs, num_outputs }
    }

    /// An attribute as a Rust value.
    pub fn attr<T: FromAttr>(&self, name: &str) -> Result<T> {
        let found = self.attrs.get(name).and_then(T::from_attr);
        found.ok_or_else(|| invalid!("attribute '{name}' of {} is missing or of another kind", self.op.name))
    }

    /// The number of inputs.
    pub fn num_inputs(&self) -> usize {
        self.inputs.len()
    }

    /// The number of outputs.
    pub fn num_outputs(&self) -> usize {
        self.num_outputs
    }

    /// What is known of an input's shape.
    pub fn input(&self, index: usize) -> &'a PartialShape {
        &self.inputs[index].shape
    }

    /// An input's element type.
    pub fn input_dtype(&self, index: usize) -> DType {
        self.inputs[index].dtype
    }

    /// An input's value, where it is known already.
    pub fn input_value(&self, index: usize) -> Option<&'a Tensor> {
        self.inputs[index].value.as_ref()
    }

    /// An integer input's values, where known already.
    pub fn input_i64s(&self, index: usize) -> Option<Vec<i64>> {
        self.input_value(index).and_then(|t| t.to_i64s().ok())
    }

    /// A scalar integer input's value, where known already.
    pub fn input_i64(&self, index: usize) -> Option<i64> {
        self.input_value(index).and_then(|t| t.to_i64().ok())
    }

    /// The shape that an input's value describes (-1 is unknown); of known rank if at least its length is known.
    pub fn shape_from_input(&self, index: usize) -> Result<PartialShape> {
        self.input(index).with_rank(1)?;
        if let Some(dims) = self.input_i64s(index) {
            let dims: Vec<Option<usize>> = dims
                .iter()
                .map(|&d| match d {
                    -1 => Ok(None),
                    d => usize::try_from(d).map(Some).map_err(|_| invalid!("a shape has a dimension of size {d}")),
                })
                .collect::<Result<_>>()?;
            Shape::checked(dims.iter().map(|d| d.unwrap_or(1) as i64))?;
            return Ok(PartialShape::new(dims));
        }
        Ok(self.input(index).dim(0).map_or(PartialShape::unknown(), PartialShape::of_rank))
    }

    /// An error unless the input can be of this rank.
    pub fn require_rank(&self, index: usize, rank: usize) -> Result<PartialShape> {
        self.input(index).with_rank(rank).map_err(|_| {
            invalid!(
                "Shape must be rank {rank} but is rank {} for input {index} of {}: shape {}",
                self.input(index).rank().unwrap_or(0),
                self.op.name,
                self.input(index)
            )
        })
    }

    /// An error unless the input can be a scalar.
    pub fn require_scalar(&self, index: usize) -> Result<()> {
        self.require_rank(index, 0).map(|_| ())
    }

    /// The axis that a known scalar input names, for a shape of known rank.
    pub fn axis(&self, index: usize, rank: usize) -> Result<Option<usize>> {
        let Some(axis) = self.input_i64(index) else { return Ok(None) };
        let rank = rank as i64;
        if axis < -rank || axis >= rank {
            return Err(invalid!("axis {axis} is not in [{}, {rank})", -rank));
        }
        Ok(Some(if axis < 0 { axis + rank } else { axis } as usize))
    }
}

/// Every output has the shape of the first input.
pub fn unchanged(c: &InferenceContext<'_>) -> Result<Vec<PartialShape>> {
    Ok(vec![c.input(0).clone(); c.num_outputs()])
}

/// Every output is a scalar.
pub fn scalar(c: &InferenceContext<'_>) -> Result<Vec<PartialShape>> {
    Ok(vec![PartialShape::scalar(); c.num_outputs()])
}

/// Nothing is known of the outputs.
pub fn unknown(c: &InferenceContext<'_>) -> Result<Vec<PartialShape>> {
    Ok(vec![PartialShape::unknown(); c.num_outputs()])
}

/// There are no outputs.
pub fn no_outputs(_: &InferenceContext<'_>) -> Result<Vec<PartialShape>> {
    Ok(Vec::new())
}

/// The first two inputs broadcast together.
pub fn broadcast(c: &InferenceContext<'_>) -> Result<Vec<PartialShape>> {
    Ok(vec![broadcast_partial(c.input(0), c.input(1))?])
}

/// All inputs have one shape, and so has the output.
pub fn merged(c: &InferenceContext<'_>) -> Result<Vec<PartialShape>> {
    let mut shape = c.input(0).clone();
    for i in 1..c.num_inputs() {
        shape = shape.merge(c.input(i))?;
    }
    Ok(vec![shape; c.num_outputs()])
}

/// The output has the shape that the `shape` attribute says.
pub fn from_shape_attr(c: &InferenceContext<'_>) -> Result<Vec<PartialShape>> {
    Ok(vec![c.attr("shape")?; c.num_outputs()])
}

/// Reductions: input 1 lists the axes, `keep_dims` keeps them as 1.
pub fn reduction(c: &InferenceContext<'_>) -> Result<Vec<PartialShape>> {
    let keep: bool = c.attr("keep_dims")?;
    let Some(dims) = c.input(0).dims() else {
        let reduces_all = c.input(1).num_elements() == Some(0);
        return Ok(vec![if reduces_all { c.input(0).clone() } else { PartialShape::unknown() }]);
    };
    let Some(axes) = c.input_i64s(1) else {
        return Ok(vec![if keep { PartialShape::of_rank(dims.len()) } else { PartialShape::unknown() }]);
    };
    let rank = dims.len() as i64;
    let mut reduced = vec![false; dims.len()];
    for axis in axes {
        if axis < -rank || axis >= rank {
            return Err(invalid!("Invalid reduction dimension {axis} for input with {rank} dimension(s)"));
        }
        reduced[if axis < 0 { axis + rank } else { axis } as usize] = true;
    }
    let kept = dims.iter().zip(&reduced).filter_map(|(&dim, &gone)| match (gone, keep) {
        (false, _) => Some(dim),
        (true, true) => Some(Some(1)),
        (true, false) => None,
    });
    Ok(vec![PartialShape::new(kept)])
}

//! `SparseToDense`: values put at their coordinates, a default everywhere else.

use super::vector_text;
use crate::array::{build, indices as numbers};
use framework::kernel::KernelContext;
use framework::typed::{Item, MoveKernel, moves};
use framework::{Grad, GradValue, InferenceContext, Op, Output, Scope};
use tensor::{PartialShape, Result, Shape, invalid};

pub fn ops() -> Vec<Op> {
    vec![
        Op::new("SparseToDense")
            .input("sparse_indices: Tindices")
            .input("output_shape: Tindices")
            .input("sparse_values: T")
            .input("default_value: T")
            .output("dense: T")
            .attr("validate_indices: bool = true")
            .attr("T: type")
            .attr("Tindices: indextype")
            .shape(dense_shape)
            .gradient(gradient)
            .kernel(moves(|b| Ok(SparseToDense { is_strict: b.attr("validate_indices")? }))),
    ]
}

/// A tensor of this shape with the values at their coordinates, and the default everywhere else.
pub fn sparse_to_dense(s: &Scope, indices: Output, shape: Output, values: Output, default: Output) -> Result<Output> {
    s.op("SparseToDense", &[indices, shape, values, default])
}

/// The values get the gradient at their places, the default all the rest.
fn gradient(s: &Scope, g: &Grad<'_>) -> Result<Vec<Option<GradValue>>> {
    let dy = g.dy[0];
    let indices = match s.shape(g.inputs[0])?.rank() {
        Some(1) => crate::array::expand_dims(s, g.inputs[0], 1)?,
        _ => g.inputs[0],
    };
    let values = crate::array::gather_nd(s, dy, indices)?;
    let sum = |x: Output| {
        let axes = s.op("Range", &[s.constant(0i32)?, s.op("Rank", &[x])?, s.constant(1i32)?])?;
        s.op("Sum", &[x, axes])
    };
    let rest = s.op("Sub", &[sum(dy)?, sum(values)?])?;
    let values = if s.shape(g.inputs[2])?.rank() == Some(0) { sum(values)? } else { values };
    Ok(vec![None, None, Some(values.into()), Some(rest.into())])
}

fn dense_shape(c: &InferenceContext<'_>) -> Result<Vec<PartialShape>> {
    c.require_scalar(3)?;
    Ok(vec![c.shape_from_input(1)?])
}

struct SparseToDense {
    is_strict: bool,
}

impl MoveKernel for SparseToDense {
    fn compute<I: Item>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let (indices, shape, values, default) = (ctx.input(0), ctx.input(1), ctx.input(2), ctx.input(3));
        let (count, depth) = match *indices.dims() {
            [] => (1, 1),
            [count] => (count, 1),
            [count, depth] => (count, depth),
            _ => {
                let found = indices.shape();
                return Err(invalid!("sparse_indices should be a scalar, vector, or matrix, got shape {found}"));
            }
        };
        if shape.shape().rank() != 1 {
            return Err(invalid!("output_shape must be rank 1, got shape {}", shape.shape()));
        }
        if shape.num_elements() != depth {
            return Err(invalid!(
                "output_shape has incorrect number of elements: {} should be: {depth}",
                shape.num_elements()
            ));
        }
        if !values.shape().is_scalar() && values.dims() != [count] {
            return Err(invalid!("sparse_values has incorrect shape {}, should be [] or [{count}]", values.shape()));
        }
        if !default.shape().is_scalar() {
            return Err(invalid!("default_value should be a scalar."));
        }
        let shape = Shape::checked(numbers(shape)?)?;
        let places = self.places(&numbers(indices)?, depth, &shape)?;

        let (items, default_item) = (I::items(values)?, &I::items(default)?[0]);
        let dense = build::<I>(values.dtype(), shape, |out| {
            ctx.pool().for_each_mut(out, 1 << 16, &|_, part| part.fill(default_item.clone()));
            for (i, &place) in places.iter().enumerate() {
                out[place] = items[if values.shape().is_scalar() { 0 } else { i }].clone();
            }
            Ok(())
        })?;
        ctx.set_output(0, dense)
    }
}

impl SparseToDense {
    /// Where each value goes; indices must be inside, and in strict order if asked for.
    fn places(&self, indices: &[i64], depth: usize, shape: &Shape) -> Result<Vec<usize>> {
        if depth == 0 {
            return Ok(Vec::new());
        }
        let mut places = Vec::with_capacity(indices.len() / depth);
        let mut last: Option<&[i64]> = None;
        for (i, index) in indices.chunks_exact(depth).enumerate() {
            let place = index.iter().zip(shape.dims()).try_fold(0usize, |flat, (&at, &size)| {
                let at = usize::try_from(at).ok().filter(|&at| at < size)?;
                Some(flat * size + at)
            });
            let text = || vector_text(index);
            let place = place
                .ok_or_else(|| invalid!("indices[{i}] = {} is out of bounds: need 0 <= index < {shape}", text()))?;
            match last {
                Some(last) if self.is_strict && last == index => {
                    return Err(invalid!("indices[{i}] = {} is repeated", text()));
                }
                Some(last) if self.is_strict && last > index => {
                    return Err(invalid!(
                        "indices[{i}] = {} is out of order. Many sparse ops require sorted indices.",
                        text()
                    ));
                }
                _ => last = Some(index),
            }
            places.push(place);
        }
        Ok(places)
    }
}

#[cfg(test)]
mod tests {
    use crate::array::testing::eval;
    use tensor::{Result, Tensor};

    fn dense(indices: Tensor, shape: Vec<i32>, values: Tensor, strict: bool) -> Result<Tensor> {
        let attrs = [("validate_indices", strict.into())];
        Ok(eval("SparseToDense", &[indices, shape.into(), values, Tensor::scalar(-1i64)], &attrs)?.remove(0))
    }

    #[test]
    fn values_go_to_their_places() {
        let at = Tensor::from([[0i32, 1], [1, 0]]);
        let y = dense(at.clone(), vec![2, 2], Tensor::from([5i64, 6]), true).unwrap();
        assert_eq!(y, Tensor::from([[-1i64, 5], [6, -1]]));
        assert_eq!(dense(at, vec![2, 2], Tensor::scalar(5i64), true).unwrap(), Tensor::from([[-1i64, 5], [5, -1]]));
        assert_eq!(
            dense(Tensor::scalar(1i32), vec![3], Tensor::scalar(5i64), true).unwrap(),
            Tensor::from([-1i64, 5, -1])
        );
    }

    #[test]
    fn disorder_is_refused_if_asked_for() {
        let twice = Tensor::from([1i32, 0, 1]);
        let values = Tensor::from([5i64, 6, 7]);
        assert_eq!(dense(twice.clone(), vec![2], values.clone(), false).unwrap(), Tensor::from([6i64, 7]));
        assert!(
            dense(twice, vec![2], values.clone(), true)
                .unwrap_err()
                .message
                .contains("indices[1] = [0] is out of order")
        );
        assert!(
            dense(Tensor::from([0i32, 1, 1]), vec![2], values.clone(), true).unwrap_err().message.contains("repeated")
        );
        assert!(dense(Tensor::from([0i32, 1, 2]), vec![2], values.clone(), false).is_err());
        assert!(dense(Tensor::from([0i32, 1]), vec![2], values.clone(), true).is_err());
        assert!(dense(Tensor::from([0i32, 1, 2]), vec![3, 3], values, true).is_err());
    }
}

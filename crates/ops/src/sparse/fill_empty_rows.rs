//! `SparseFillEmptyRows` and its gradient: every row of a sparse tensor gets at least a default value.

use crate::array::build;
use framework::kernel::KernelContext;
use framework::typed::{Item, MoveKernel, Number, NumberKernel, moves, wide_numbers};
use framework::{Grad, GradValue, InferenceContext, Op, Scope};
use tensor::{PartialShape, Result, Shape, Tensor, invalid};

pub fn ops() -> Vec<Op> {
    vec![
        Op::new("SparseFillEmptyRows")
            .input("indices: int64")
            .input("values: T")
            .input("dense_shape: int64")
            .input("default_value: T")
            .output("output_indices: int64")
            .output("output_values: T")
            .output("empty_row_indicator: bool")
            .output("reverse_index_map: int64")
            .attr("T: type")
            .shape(fill_shape)
            .gradient(gradient)
            .kernel(moves(|_| Ok(SparseFillEmptyRows))),
        Op::new("SparseFillEmptyRowsGrad")
            .input("reverse_index_map: int64")
            .input("grad_values: T")
            .output("d_values: T")
            .output("d_default_value: T")
            .attr("T: type")
            .shape(|c| Ok(vec![c.require_rank(0, 1)?, PartialShape::scalar()]))
            .kernel(wide_numbers(|_| Ok(SparseFillEmptyRowsGrad))),
    ]
}

fn gradient(s: &Scope, g: &Grad<'_>) -> Result<Vec<Option<GradValue>>> {
    let grads = s.node("SparseFillEmptyRowsGrad").inputs(&[g.outputs[3], g.dy[1]]).outputs()?;
    Ok(vec![None, Some(grads[0].into()), None, Some(grads[1].into())])
}

fn fill_shape(c: &InferenceContext<'_>) -> Result<Vec<PartialShape>> {
    let indices = c.require_rank(0, 2)?;
    let values = c.require_rank(1, 1)?;
    let shape = c.require_rank(2, 1)?;
    c.require_scalar(3)?;
    let count = PartialShape::new([indices.dim(0)]).merge(&values)?;
    let columns = PartialShape::new([indices.dim(1)]).merge(&shape)?;
    let rows = c.input_i64s(2).and_then(|d| usize::try_from(*d.first()?).ok());
    Ok(vec![PartialShape::new([None, columns.dim(0)]), PartialShape::of_rank(1), PartialShape::new([rows]), count])
}

struct SparseFillEmptyRows;

impl MoveKernel for SparseFillEmptyRows {
    fn compute<I: Item>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let (indices, values, shape, default) = (ctx.input(0), ctx.input(1), ctx.input(2), ctx.input(3));
        let [count, rank] = *indices.dims() else {
            return Err(invalid!("indices must be a matrix, saw: {}", indices.shape()));
        };
        if shape.shape().rank() != 1 || shape.num_elements() == 0 {
            return Err(invalid!("dense_shape must be a vector of at least one size, saw: {}", shape.shape()));
        }
        if values.dims() != [count] {
            return Err(invalid!("values must be a vector of {count} elements, saw: {}", values.shape()));
        }
        if shape.num_elements() != rank {
            return Err(invalid!("dense_shape has {} sizes for indices of {rank} columns", shape.num_elements()));
        }
        if !default.shape().is_scalar() {
            return Err(invalid!("default_value must be a scalar, saw: {}", default.shape()));
        }
        let rows = Shape::checked(shape.as_slice::<i64>()?[..1].iter().copied())?.num_elements();
        if rows == 0 && count > 0 {
            return Err(invalid!("Received SparseTensor with dense_shape[0] = 0 but indices.shape[0] = {count}"));
        }
        let mut empty = ctx.allocate::<bool>([rows])?;
        let indices = indices.as_slice::<i64>()?;

        // Rows in order, those without values as if they had one; each row's values keep their order.
        let mut next = ctx.allocate::<u64>([rows])?;
        next.fill(0);
        for i in 0..count {
            let row = indices[i * rank];
            if row < 0 {
                return Err(invalid!("indices({i}, 0) is invalid: {row} < 0"));
            }
            let counter = usize::try_from(row).ok().and_then(|row| next.get_mut(row));
            *counter.ok_or_else(|| invalid!("indices({i}, 0) is invalid: {row} >= {rows}"))? += 1;
        }
        let mut total = 0usize;
        for (next, empty) in next.iter_mut().zip(empty.iter_mut()) {
            *empty = *next == 0;
            let first = total;
            total += (*next).max(1) as usize;
            *next = first as u64;
        }
        let mut out_indices = ctx.allocate::<i64>([total, rank])?;
        let mut map = ctx.allocate::<i64>([count])?;
        for row in (0..rows).filter(|&row| empty[row]) {
            let out = &mut out_indices[next[row] as usize * rank..][..rank];
            out.fill(0);
            out[0] = row as i64;
        }
        for i in 0..count {
            let index = &indices[i * rank..][..rank];
            let to = &mut next[index[0] as usize];
            out_indices[*to as usize * rank..][..rank].copy_from_slice(index);
            map[i] = *to as i64;
            *to += 1;
        }
        let (items, default_item) = (I::items(values)?, &I::items(default)?[0]);
        let out_values = build::<I>(values.dtype(), [total].into(), |out| {
            out.fill(default_item.clone());
            for (item, &to) in items.iter().zip(map.iter()) {
                out[to as usize] = item.clone();
            }
            Ok(())
        })?;

        ctx.set_output(0, out_indices)?;
        ctx.set_output(1, out_values)?;
        ctx.set_output(2, empty)?;
        ctx.set_output(3, map)
    }
}

struct SparseFillEmptyRowsGrad;

impl NumberKernel for SparseFillEmptyRowsGrad {
    fn compute<T: Number>(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let (map, grads) = (ctx.input(0), ctx.input(1));
        if map.shape().rank() != 1 {
            return Err(invalid!("reverse_index_map must be a vector, saw: {}", map.shape()));
        }
        if grads.shape().rank() != 1 {
            return Err(invalid!("grad_values must be a vector, saw: {}", grads.shape()));
        }
        let (map, grads) = (map.as_slice::<i64>()?, grads.as_slice::<T>()?);
        let mut is_own = vec![false; grads.len()];
        let mut values = ctx.allocate::<T>([map.len()])?;
        for (value, &from) in values.iter_mut().zip(map) {
            let at = usize::try_from(from).ok().filter(|&at| at < grads.len());
            let at =
                at.ok_or_else(|| invalid!("Elements in reverse index must be in [0, {}) but got {from}", grads.len()))?;
            *value = grads[at];
            is_own[at] = true;
        }
        let rest = grads.iter().zip(&is_own).filter(|(_, own)| !**own);
        let default = rest.fold(T::Sum::default(), |sum, (grad, _)| linalg::number::Number::add(sum, grad.to_sum()));
        ctx.set_output(0, values)?;
        ctx.set_output(1, Tensor::scalar(T::from_sum(default)))
    }
}

#[cfg(test)]
mod tests {
    use crate::array::testing::eval;
    use tensor::Tensor;

    #[test]
    fn empty_rows_get_the_default() {
        let inputs = [
            Tensor::from([[0i64, 1], [3, 0], [2, 2]]),
            Tensor::from(["a", "d", "c"]),
            Tensor::from([5i64, 3]),
            Tensor::from("-"),
        ];
        let filled = eval("SparseFillEmptyRows", &inputs, &[]).unwrap();
        assert_eq!(filled[0], Tensor::from([[0i64, 1], [1, 0], [2, 2], [3, 0], [4, 0]]));
        assert_eq!(filled[1], Tensor::from(["a", "-", "c", "d", "-"]));
        assert_eq!(filled[2], Tensor::from([false, true, false, false, true]));
        assert_eq!(filled[3], Tensor::from([0i64, 3, 2]));
        let grads = [filled[3].clone(), Tensor::from([1.0f32, 2.0, 4.0, 8.0, 16.0])];
        let back = eval("SparseFillEmptyRowsGrad", &grads, &[]).unwrap();
        assert_eq!(back, [Tensor::from([1.0f32, 8.0, 4.0]), Tensor::scalar(18.0f32)]);
    }

    #[test]
    fn rows_outside_are_refused() {
        for row in [-1i64, 5] {
            let inputs =
                [Tensor::from([[row, 1]]), Tensor::from([1i32]), Tensor::from([5i64, 3]), Tensor::scalar(0i32)];
            assert!(eval("SparseFillEmptyRows", &inputs, &[]).is_err());
        }
    }
}

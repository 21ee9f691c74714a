//! `SparseReshape`: the coordinates of a sparse tensor under another dense shape.

use super::vector_text;
use framework::kernel::function;
use framework::{InferenceContext, KernelContext, Op};
use tensor::{PartialShape, Result, Tensor, invalid};

pub fn ops() -> Vec<Op> {
    vec![
        Op::new("SparseReshape")
            .input("input_indices: int64")
            .input("input_shape: int64")
            .input("new_shape: int64")
            .output("output_indices: int64")
            .output("output_shape: int64")
            .shape(reshape_shape)
            .kernel(function(reshape)),
    ]
}

fn reshape_shape(c: &InferenceContext<'_>) -> Result<Vec<PartialShape>> {
    let indices = c.require_rank(0, 2)?;
    c.require_rank(1, 1)?;
    let shape = c.require_rank(2, 1)?;
    Ok(vec![PartialShape::new([indices.dim(0), shape.dim(0)]), shape])
}

fn reshape(ctx: &mut KernelContext<'_>) -> Result<()> {
    let (indices, from, to) = (ctx.input(0), ctx.input(1), ctx.input(2));
    let [count, rank] = *indices.dims() else {
        return Err(invalid!("Input indices should be a matrix but received shape {}", indices.shape()));
    };
    if from.shape().rank() != 1 {
        return Err(invalid!("Input shape should be a vector but received shape {}", from.shape()));
    }
    if to.shape().rank() != 1 {
        return Err(invalid!("Target shape should be a vector but received shape {}", to.shape()));
    }
    let (from, to) = (from.as_slice::<i64>()?, resolve(from.as_slice()?, to.as_slice()?)?);
    if rank != from.len() {
        return Err(invalid!(
            "Input tensor rank must match input shape length, found indices of {rank} columns and {} sizes",
            from.len()
        ));
    }

    let mut out = ctx.allocate::<i64>([count, to.len()])?;
    if rank > 0 && !to.is_empty() {
        for (index, out) in indices.as_slice::<i64>()?.chunks_exact(rank).zip(out.chunks_exact_mut(to.len())) {
            if index.iter().zip(from).any(|(&i, &d)| !(0..d).contains(&i)) {
                return Err(invalid!("index {} is not inside shape {}", vector_text(index), vector_text(from)));
            }
            let mut flat = index.iter().zip(from).fold(0i64, |flat, (&i, &d)| flat * d + i);
            for (out, &size) in out.iter_mut().zip(&to).rev() {
                let size = size.max(1);
                *out = flat % size;
                flat /= size;
            }
        }
    }
    ctx.set_output(0, out)?;
    ctx.set_output(1, Tensor::from(to))
}

/// The shape asked for, with -1 replaced by what makes the number of elements come out right.
fn resolve(from: &[i64], to: &[i64]) -> Result<Vec<i64>> {
    let product = |sizes: &[i64]| {
        let product = sizes.iter().try_fold(1i64, |n, &d| n.checked_mul(d));
        product.ok_or_else(|| invalid!("shape {} has more elements than can be counted", vector_text(sizes)))
    };
    if let Some(&size) = from.iter().find(|&&d| d < 0) {
        return Err(invalid!("the input shape {} has a negative size, {size}", vector_text(from)));
    }
    let dense = product(from)?;
    let mut shape = to.to_vec();
    let mut unknown = None;
    for (i, &size) in to.iter().enumerate() {
        match size {
            -1 => {
                if let Some(first) = unknown.replace(i) {
                    return Err(invalid!("only one output dimension may be -1, not both {first} and {i}"));
                }
                shape[i] = 1;
            }
            0.. => {}
            _ => return Err(invalid!("size {i} must be non-negative, not {size}")),
        }
    }
    let known = product(&shape)?;
    let (input, output) = (vector_text(from), vector_text(to));
    if let Some(i) = unknown {
        if known == 0 {
            return Err(invalid!(
                "reshape cannot infer the missing input size for an empty tensor unless all specified input sizes are \
                 non-zero"
            ));
        }
        if dense % known != 0 {
            return Err(invalid!(
                "Input to reshape is a SparseTensor with {dense} dense values, but the requested shape requires a \
                 multiple of {known}. input_shape={input} output_shape={output}"
            ));
        }
        shape[i] = dense / known;
    } else if known != dense {
        return Err(invalid!(
            "Input to reshape is a tensor with {dense} dense values, but the requested shape has {known}. \
             input_shape={input} output_shape={output}"
        ));
    }
    Ok(shape)
}

#[cfg(test)]
mod tests {
    use crate::array::testing::eval;
    use tensor::Tensor;

    #[test]
    fn coordinates_follow_the_shape() {
        let indices = Tensor::from([[0i64, 0], [1, 2]]);
        let to =
            |shape: Vec<i64>| eval("SparseReshape", &[indices.clone(), Tensor::from([2i64, 3]), shape.into()], &[]);
        let reshaped = to(vec![3, -1]).unwrap();
        assert_eq!(reshaped, [Tensor::from([[0i64, 0], [2, 1]]), Tensor::from([3i64, 2])]);
        for bad in [vec![-1, -1], vec![4], vec![4, -1], vec![-2], vec![0, -1], vec![i64::MAX, i64::MAX]] {
            assert!(to(bad).is_err());
        }
        let outside = [Tensor::from([[5i64, 0]]), Tensor::from([2i64, 3]), Tensor::from([6i64])];
        assert!(eval("SparseReshape", &outside, &[]).is_err());
    }
}

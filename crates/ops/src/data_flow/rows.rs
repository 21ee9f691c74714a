//! Tensors cut into rows along their first dimension, and put together from rows.

use bytes::Bytes;
use framework::Item;
use tensor::{DType, ResourceHandle, Result, Shape, Tensor, Variant, invalid};

/// The shape with a dimension put before all others.
pub(crate) fn prepended(count: usize, row: &Shape) -> Result<Shape> {
    Shape::checked(std::iter::once(count as i64).chain(row.to_i64s()))
}

/// The rows of a tensor of at least one dimension, each a tensor of its own.
pub(crate) fn split(tensor: &Tensor) -> Result<Vec<Tensor>> {
    let count = *tensor.dims().first().ok_or_else(|| invalid!("a scalar cannot be cut into rows"))?;
    pieces(tensor, &vec![1; count])?.into_iter().map(|p| p.reshaped(&tensor.dims()[1..])).collect()
}

/// The tensor cut along its first dimension into pieces of these lengths, which must not exceed it.
pub(crate) fn pieces(tensor: &Tensor, lengths: &[usize]) -> Result<Vec<Tensor>> {
    match tensor.dtype() {
        DType::String => pieces_of::<Bytes>(tensor, lengths),
        DType::Resource => pieces_of::<ResourceHandle>(tensor, lengths),
        DType::Variant => pieces_of::<Variant>(tensor, lengths),
        dtype => {
            let row_shape = Shape::from(&tensor.dims()[1..]);
            let row = row_shape.num_elements() * dtype.size();
            let mut bytes = tensor.as_bytes()?;
            let cut = lengths.iter().map(|&length| {
                let (front, rest) = bytes.split_at_checked(length * row).ok_or_else(too_long)?;
                bytes = rest;
                Tensor::from_bytes(dtype, prepended(length, &row_shape)?, front)
            });
            cut.collect()
        }
    }
}

fn pieces_of<I: Item>(tensor: &Tensor, lengths: &[usize]) -> Result<Vec<Tensor>> {
    let row_shape = Shape::from(&tensor.dims()[1..]);
    let row = row_shape.num_elements();
    let mut items = I::items(tensor)?;
    let cut = lengths.iter().map(|&length| {
        let (front, rest) = items.split_at_checked(length * row).ok_or_else(too_long)?;
        items = rest;
        I::build(tensor.dtype(), prepended(length, &row_shape)?, &mut |into| {
            into.clone_from_slice(front);
            Ok(())
        })
    });
    cut.collect()
}

fn too_long() -> tensor::Error {
    invalid!("the pieces are longer than the tensor")
}

/// One tensor of all elements of these tensors, one after the other.
pub(crate) fn joined<'a>(
    dtype: DType,
    shape: Shape,
    parts: impl ExactSizeIterator<Item = &'a Tensor> + Clone,
) -> Result<Tensor> {
    let found: usize = parts.clone().map(Tensor::num_elements).sum();
    if found != shape.num_elements() || parts.clone().any(|p| p.dtype() != dtype) {
        return Err(invalid!("{} tensors with {found} elements do not make one of {dtype} {shape}", parts.len()));
    }
    match dtype {
        DType::String => joined_of::<Bytes>(dtype, shape, parts),
        DType::Resource => joined_of::<ResourceHandle>(dtype, shape, parts),
        DType::Variant => joined_of::<Variant>(dtype, shape, parts),
        _ => Tensor::from_filled(dtype, shape, |mut into| {
            for part in parts {
                let (front, rest) = into.split_at_mut(part.as_bytes()?.len());
                front.copy_from_slice(part.as_bytes()?);
                into = rest;
            }
            Ok(())
        }),
    }
}

fn joined_of<'a, I: Item>(dtype: DType, shape: Shape, mut parts: impl Iterator<Item = &'a Tensor>) -> Result<Tensor> {
    I::build(dtype, shape, &mut |mut into| {
        for part in parts.by_ref() {
            let (front, rest) = into.split_at_mut(part.num_elements());
            front.clone_from_slice(I::items(part)?);
            into = rest;
        }
        Ok(())
    })
}

/// These tensors of one shape, one row each.
pub(crate) fn stacked<'a>(
    dtype: DType,
    row: &Shape,
    rows: impl ExactSizeIterator<Item = &'a Tensor> + Clone,
) -> Result<Tensor> {
    if let Some(other) = rows.clone().find(|r| r.shape() != row) {
        return Err(invalid!("rows of shape {row} and {} cannot be put into one tensor", other.shape()));
    }
    joined(dtype, prepended(rows.len(), row)?, rows)
}

/// These tensors of one rank, one row each, with zeros where one is smaller than the largest.
pub(crate) fn padded(dtype: DType, rank: usize, rows: &[&Tensor]) -> Result<Tensor> {
    let mut largest = vec![0; rank];
    for row in rows {
        if row.shape().rank() != rank {
            return Err(invalid!("wanted a tensor of rank {rank}, found shape {}", row.shape()));
        }
        largest.iter_mut().zip(row.dims()).for_each(|(l, &d)| *l = (*l).max(d));
    }
    let largest = Shape::from(largest);
    if rows.iter().all(|r| *r.shape() == largest) {
        return stacked(dtype, &largest, rows.iter().copied());
    }
    match (dtype, dtype.size()) {
        (DType::String, _) => padded_of::<Bytes>(dtype, &largest, rows),
        (DType::Resource, _) => padded_of::<ResourceHandle>(dtype, &largest, rows),
        (DType::Variant, _) => padded_of::<Variant>(dtype, &largest, rows),
        (_, 1) => padded_of::<u8>(dtype, &largest, rows),
        (_, 2) => padded_of::<u16>(dtype, &largest, rows),
        (_, 4) => padded_of::<u32>(dtype, &largest, rows),
        (_, 8) => padded_of::<u64>(dtype, &largest, rows),
        _ => padded_of::<u128>(dtype, &largest, rows),
    }
}

fn padded_of<I: Item>(dtype: DType, largest: &Shape, rows: &[&Tensor]) -> Result<Tensor> {
    I::build(dtype, prepended(rows.len(), largest)?, &mut |into| {
        into.fill(I::zero());
        for (into, row) in into.chunks_exact_mut(largest.num_elements().max(1)).zip(rows) {
            place(I::items(row)?, row.dims(), into, largest.dims());
        }
        Ok(())
    })
}

/// Copies a block into the corner of a larger one of the same rank.
fn place<I: Clone>(from: &[I], from_dims: &[usize], into: &mut [I], into_dims: &[usize]) {
    match (from_dims, into_dims) {
        _ if from.is_empty() => {}
        ([], _) | (_, []) => into[..from.len()].clone_from_slice(from),
        ([n, inner @ ..], [_, into_inner @ ..]) => {
            let (step, into_step) = (from.len() / n, into_inner.iter().product::<usize>());
            for (part, into) in from.chunks_exact(step).zip(into.chunks_exact_mut(into_step)) {
                place(part, inner, into, into_inner);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_apart_and_together() {
        let t = Tensor::from([[1i32, 2], [3, 4], [5, 6]]);
        let rows = split(&t).unwrap();
        assert_eq!(rows[1], Tensor::from([3i32, 4]));
        assert_eq!(stacked(DType::I32, &Shape::from([2]), rows.iter()).unwrap(), t);
        let strings = Tensor::from(["a", "b"]);
        assert_eq!(split(&strings).unwrap()[1], Tensor::from("b"));
        assert!(pieces(&t, &[2, 2]).is_err());
    }

    #[test]
    fn smaller_rows_are_padded_with_zeros() {
        let rows = [Tensor::from([[1i32, 2]]), Tensor::from([[3i32], [4]])];
        let got = padded(DType::I32, 2, &[&rows[0], &rows[1]]).unwrap();
        assert_eq!(got, Tensor::from_vec([2, 2, 2], vec![1, 2, 0, 0, 3, 0, 4, 0]).unwrap());
        let empty = Tensor::zeros(DType::I32, [0, 3]).unwrap();
        let got = padded(DType::I32, 2, &[&rows[0], &empty]).unwrap();
        assert_eq!(got, Tensor::from_vec([2, 1, 3], vec![1, 2, 0, 0, 0, 0]).unwrap());
    }
}

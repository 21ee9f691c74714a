//! Ops that make, measure, cut and move tensors without computing on their elements.

mod band_part;
mod broadcast_to;
mod concat;
mod constant;
mod diag;
mod dynamic_partition;
mod dynamic_stitch;
mod fill;
mod gather;
mod gather_nd;
mod identity;
mod non_zero;
mod one_hot;
mod pack;
mod pad;
mod placeholder;
mod reshape;
mod reverse;
mod roll;
mod serialize;
mod shape;
mod slice;
mod split;
mod strided_slice;
#[cfg(test)]
pub(crate) mod testing;
mod tile;
mod top_k;
mod transpose;
mod unique;

pub use broadcast_to::broadcast_to;
pub use concat::concat;
pub use diag::{diag, diag_part};
pub use dynamic_partition::dynamic_partition;
pub use dynamic_stitch::dynamic_stitch;
pub use fill::{fill, ones_like, zeros_like};
pub use gather::gather;
pub(crate) use gather_nd::scatter_places;
pub use gather_nd::{gather_nd, scatter_nd};
pub use identity::{identity, stop_gradient};
pub use non_zero::non_zero;
pub use one_hot::one_hot;
pub use pack::{pack, unpack};
pub use pad::pad;
pub use placeholder::placeholder;
pub use reshape::{expand_dims, reshape, squeeze};
pub use reverse::reverse;
pub use shape::{rank, shape, size};
pub use slice::slice;
pub use split::split;
pub use tile::tile;
pub use top_k::top_k;
pub use transpose::transpose;

use framework::typed::Item;
use framework::{InferenceContext, Op, Pool};
use linalg::transpose::{Strided, copy_strided};
use smallvec::SmallVec;
use tensor::{DType, Result, Shape, Tensor, exhausted, invalid};

/// All ops of the family.
pub fn ops() -> Vec<Op> {
    [
        band_part::ops(),
        broadcast_to::ops(),
        concat::ops(),
        constant::ops(),
        diag::ops(),
        dynamic_partition::ops(),
        dynamic_stitch::ops(),
        fill::ops(),
        gather::ops(),
        gather_nd::ops(),
        identity::ops(),
        non_zero::ops(),
        one_hot::ops(),
        pack::ops(),
        pad::ops(),
        placeholder::ops(),
        reshape::ops(),
        reverse::ops(),
        roll::ops(),
        serialize::ops(),
        shape::ops(),
        slice::ops(),
        split::ops(),
        strided_slice::ops(),
        tile::ops(),
        top_k::ops(),
        transpose::ops(),
        unique::ops(),
    ]
    .concat()
}

/// Values with more elements than this are not carried along while a graph is built.
const VALUE_MAX: usize = 64;

/// A value known while building, if it is small enough to be carried along.
pub(crate) fn small(tensor: Tensor) -> Option<Tensor> {
    (tensor.num_elements() <= VALUE_MAX).then_some(tensor)
}

/// The first input's value under the shape that inference found for the first output.
pub(crate) fn reshaped_value(
    c: &InferenceContext<'_>,
    shapes: fn(&InferenceContext<'_>) -> Result<Vec<tensor::PartialShape>>,
) -> Option<Vec<Option<Tensor>>> {
    let value = c.input_value(0)?.clone();
    let shape = shapes(c).ok()?.first()?.known()?;
    Some(vec![value.reshaped(shape).ok()])
}

/// Indices or sizes, few enough to need no allocation of their own.
pub(crate) type Indices = SmallVec<[i64; 8]>;

/// The elements of an index tensor.
pub(crate) fn indices(tensor: &Tensor) -> Result<Indices> {
    Ok(match tensor.dtype() {
        DType::I32 => tensor.as_slice::<i32>()?.iter().map(|&v| i64::from(v)).collect(),
        DType::I64 => SmallVec::from_slice(tensor.as_slice::<i64>()?),
        _ => SmallVec::from_vec(tensor.to_i64s()?),
    })
}

/// The one element of an index tensor.
pub(crate) fn index(tensor: &Tensor, what: &str) -> Result<i64> {
    match indices(tensor)?.as_slice() {
        [value] => Ok(*value),
        _ => Err(invalid!("{what} must be a scalar, but found shape {}", tensor.shape())),
    }
}

/// An index tensor of this type; refused if a number does not fit.
pub(crate) fn index_tensor(dtype: DType, shape: impl Into<Shape>, values: &[i64]) -> Result<Tensor> {
    let too_large = |v: i64| invalid!("{v} does not fit in {dtype}");
    match dtype {
        DType::I16 => {
            let narrow = values.iter().map(|&v| i16::try_from(v).map_err(|_| too_large(v)));
            Tensor::from_vec(shape, narrow.collect::<Result<Vec<_>>>()?)
        }
        DType::I32 => {
            let narrow = values.iter().map(|&v| i32::try_from(v).map_err(|_| too_large(v)));
            Tensor::from_slice(shape, &narrow.collect::<Result<SmallVec<[i32; 16]>>>()?)
        }
        DType::I64 => Tensor::from_slice(shape, values),
        other => Err(invalid!("wanted an index type, found {other}")),
    }
}

/// A new tensor whose elements `fill` writes; they start as zeros or arbitrary.
pub(crate) fn build<I: Item>(
    dtype: DType,
    shape: Shape,
    mut fill: impl FnMut(&mut [I]) -> Result<()>,
) -> Result<Tensor> {
    /// Strings and handles are larger than what they are made from, and their memory is not asked for in advance.
    const OBJECTS_MAX: usize = 1 << 28;
    if !dtype.is_plain() && shape.num_elements() > OBJECTS_MAX {
        return Err(exhausted!("a tensor of {dtype} and shape {shape} is more than this machine can hold"));
    }
    I::build(dtype, shape, &mut fill)
}

/// The dimension an axis means in a tensor of this rank, if there is such a one.
pub(crate) fn axis_in(axis: i64, rank: usize) -> Option<usize> {
    let rank = rank as i64;
    (-rank..rank).contains(&axis).then_some(if axis < 0 { axis + rank } else { axis } as usize)
}

/// Copies an array of any strides into a dense one, in parallel if it is large.
pub(crate) fn read_strided<I: Item>(pool: &Pool, dims: &[usize], src: &[I], from: &Strided, out: &mut [I]) {
    /// Elements worth a thread.
    const GRAIN: usize = 1 << 15;
    let row: usize = dims.iter().skip(1).product();
    if out.len() <= GRAIN || dims.first().is_none_or(|&d| d < 2) || row == 0 {
        return copy_strided(dims, src, from, out, &Strided::dense(dims));
    }
    pool.for_each_row(out, row, GRAIN.div_ceil(row), &|first, part| {
        let mut dims = dims.to_vec();
        dims[0] = part.len() / row;
        let start = from.start as isize + first as isize * from.strides[0];
        let from = Strided { start: start as usize, strides: from.strides.clone() };
        copy_strided(&dims, src, &from, part, &Strided::dense(&dims));
    });
}

/// A tensor that is an array of any strides within another.
pub(crate) fn strided_tensor<I: Item>(pool: &Pool, x: &Tensor, shape: Shape, from: &Strided) -> Result<Tensor> {
    let dims = shape.clone();
    build::<I>(x.dtype(), shape, |out| {
        read_strided(pool, dims.dims(), I::items(x)?, from, out);
        Ok(())
    })
}

/// The value of an op that only moves elements, where its inputs' values are known numbers: `compute` on words.
macro_rules! moved_value {
    ($dtype:expr, $compute:ident ( $($arg:expr),* )) => {
        match $dtype.size() {
            1 => $compute::<u8>($($arg),*).ok(),
            2 => $compute::<u16>($($arg),*).ok(),
            4 => $compute::<u32>($($arg),*).ok(),
            8 => $compute::<u64>($($arg),*).ok(),
            _ => None,
        }
    };
}
pub(crate) use moved_value;

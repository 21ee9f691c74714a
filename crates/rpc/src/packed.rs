//! Small tensors side by side: for each its type, its rank and its sizes as numbers of variable length, then its elements.
//!
//! How many bytes the elements take follows from that, so that nothing is said twice. Only tasks of our own kind read this.

use crate::fields::{byte_count, varint};
use crate::lent::Loan;
use crate::pieces::{Pieces, SHARE_MIN, Writer};
use bytes::Buf;
use framework::{Arrived, Delivery};
use proto::LentTensor;
use tensor::{ArrivingTensor, DType, Result, Shape, Tensor, invalid};

/// The field of what comes with the answer to RunGraph.
pub(crate) const BROUGHT_VALUES: u32 = 1003;

/// Values by their places, as an answer tells them.
#[derive(Default)]
pub(crate) struct Sorted {
    /// The places of the tensors.
    pub ready: Vec<u32>,
    pub tensors: Vec<Tensor>,
    /// Values of branches that were not taken.
    pub dead: Vec<u32>,
    /// Values to be asked for one by one.
    pub large: Vec<u32>,
}

impl Sorted {
    pub(crate) fn new(values: impl IntoIterator<Item = (u32, Arrived)>) -> Sorted {
        let mut sorted = Sorted::default();
        for (place, arrived) in values {
            match arrived {
                Arrived::Alone => sorted.large.push(place),
                Arrived::Value(Delivery::Dead) => sorted.dead.push(place),
                Arrived::Value(Delivery::Tensor(tensor)) => {
                    sorted.ready.push(place);
                    sorted.tensors.push(tensor);
                }
            }
        }
        sorted
    }

    /// Takes out those tensors that had better be lent, and says where they stand.
    pub(crate) fn lend(&mut self) -> (Vec<LentTensor>, Vec<Loan>) {
        let (mut lent, mut loans) = (Vec::new(), Vec::new());
        let values = std::mem::take(&mut self.ready).into_iter().zip(std::mem::take(&mut self.tensors));
        for (place, tensor) in values {
            match Loan::of(&tensor) {
                Some((loan, described)) => {
                    lent.push(LentTensor { place, ..described });
                    loans.push(loan);
                }
                None => {
                    self.ready.push(place);
                    self.tensors.push(tensor);
                }
            }
        }
        (lent, loans)
    }
}

/// The values that a message told so.
pub(crate) fn read(ready: &[u32], dead: &[u32], large: &[u32], mut packed: Pieces) -> Result<Vec<(u32, Arrived)>> {
    let mut values = Vec::with_capacity(ready.len() + dead.len() + large.len());
    for &place in ready {
        values.push((place, Arrived::Value(Delivery::Tensor(take(&mut packed)?))));
    }
    if !packed.is_empty() {
        return Err(invalid!("a message holds {} bytes after its values", packed.len()));
    }
    values.extend(dead.iter().map(|&place| (place, Arrived::Value(Delivery::Dead))));
    values.extend(large.iter().map(|&place| (place, Arrived::Alone)));
    Ok(values)
}

const WHAT: &str = "a small value";

/// More than any shape has.
const RANK_MAX: u64 = 254;

/// Adds a field with these tensors, which are of plain types.
pub(crate) fn put(writer: &mut Writer, field: u32, tensors: &[Tensor]) {
    let (mut copied, mut shared) = (0, 0);
    for tensor in tensors {
        let len = tensor.num_bytes();
        *if len < SHARE_MIN { &mut copied } else { &mut shared } += len;
        copied += head(tensor).map(prost::length_delimiter_len).sum::<usize>();
    }
    writer.put_key(field, copied + shared);
    writer.reserve(copied);
    for tensor in tensors {
        head(tensor).for_each(|number| writer.put_varint(number));
        match tensor.as_bytes() {
            Ok(bytes) if bytes.len() < SHARE_MIN => writer.put_slice(bytes),
            _ => writer.share(tensor.content()),
        }
    }
}

fn head(tensor: &Tensor) -> impl Iterator<Item = usize> {
    let dims = tensor.dims();
    [tensor.dtype().number() as usize, dims.len()].into_iter().chain(dims.iter().copied())
}

/// Reads the next of them.
fn take(message: &mut Pieces) -> Result<Tensor> {
    let number = varint(message, WHAT)?;
    let dtype = i32::try_from(number).ok().and_then(DType::from_number).filter(|dtype| dtype.is_plain());
    let dtype = dtype.ok_or_else(|| invalid!("{WHAT} does not parse: {number} is no plain type"))?;
    let rank = varint(message, WHAT)?;
    if rank > RANK_MAX {
        return Err(invalid!("{WHAT} does not parse: it has {rank} dimensions"));
    }
    // What is no number is no size either.
    let shape = Shape::checked((0..rank).map(|_| varint(message, WHAT).map_or(-1, |size| size as i64)))?;
    if byte_count(dtype, &shape).is_none_or(|len| len > message.len()) {
        return Err(invalid!("a tensor of {dtype} and shape {shape} does not fit in {} bytes", message.len()));
    }
    let mut tensor = ArrivingTensor::new(dtype, shape)?;
    while tensor.missing() > 0 {
        let chunk = message.chunk();
        let step = chunk.len().min(tensor.missing());
        tensor.push(&chunk[..step])?;
        message.advance(step);
    }
    tensor.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields;
    use crate::pieces::PREFIX;
    use bytes::Bytes;

    #[derive(Clone, PartialEq, prost::Message)]
    struct Nothing {}

    fn packed(tensors: &[Tensor]) -> Vec<u8> {
        let mut writer = Writer::default();
        put(&mut writer, 1, tensors);
        writer.finish("a test").unwrap().concat()[PREFIX..].to_vec()
    }

    fn unpack(bytes: &[u8], size: usize) -> Vec<Tensor> {
        let mut message = Pieces::default();
        bytes.chunks(size).for_each(|part| message.push(Bytes::copy_from_slice(part)));
        let (_, found) = fields::split::<Nothing>(message, 1, "a test").unwrap();
        let mut found = found.into_iter().next().unwrap();
        let mut tensors = Vec::new();
        while !found.is_empty() {
            tensors.push(take(&mut found).unwrap());
        }
        tensors
    }

    #[test]
    fn what_was_packed_is_unpacked_however_it_is_cut() {
        let tensors = [
            Tensor::scalar(3i64),
            Tensor::from([1.5f32, -2.0]),
            Tensor::from([0f32; 0]),
            Tensor::from_vec([2, 1, 3], vec![true, false, true, true, false, false]).unwrap(),
            Tensor::from_vec([300, 30], vec![7u8; 9000]).unwrap(),
        ];
        let bytes = packed(&tensors);
        for size in [1, 7, 4096, bytes.len()] {
            assert!(unpack(&bytes, size) == tensors, "in parts of {size}");
        }
    }

    #[test]
    fn garbage_is_an_error() {
        let check = |bytes: &[u8], part: &str| {
            let error = take(&mut Pieces::from(Bytes::copy_from_slice(bytes))).unwrap_err();
            assert!(error.message.contains(part), "{bytes:?}: {error}");
        };
        check(&[], "ends within a number");
        check(&[7, 0], "7 is no plain type"); // strings
        check(&[99, 0], "99 is no plain type");
        check(&[1, 255, 1], "255 dimensions");
        check(&[1, 1, 2, 0, 0, 0, 0, 0, 0, 0], "does not fit in 7 bytes");
        check(&[1, 1, 255, 255, 255, 255, 255, 255, 255, 255, 127], "more elements than can be addressed");
        check(&[1, 1, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1], "dimension");
    }
}

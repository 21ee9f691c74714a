//! A tensor whose bytes come bit by bit, as from a socket.

use crate::buffer::Buffer;
use crate::tensor::{Storage, byte_count};
use crate::{DType, Result, Shape, Tensor, invalid};

/// Memory for a tensor of a plain type that is filled from its front.
pub struct ArrivingTensor {
    dtype: DType,
    shape: Shape,
    buffer: Buffer,
    filled: usize,
}

impl ArrivingTensor {
    /// Memory for a tensor of this type and shape. Large memory costs nothing before it is written.
    pub fn new(dtype: DType, shape: impl Into<Shape>) -> Result<ArrivingTensor> {
        let shape = shape.into();
        if !dtype.is_plain() {
            return Err(invalid!("a tensor of {dtype} cannot be made from bytes"));
        }
        let buffer = Buffer::new(byte_count(dtype, &shape)?)?;
        Ok(ArrivingTensor { dtype, shape, buffer, filled: 0 })
    }

    /// How many bytes are still to come.
    pub fn missing(&self) -> usize {
        self.buffer.len() - self.filled
    }

    /// Memory for the bytes still to come, to be written from its front.
    pub fn room(&mut self) -> &mut [u8] {
        &mut self.buffer.as_bytes_mut()[self.filled..]
    }

    /// So many bytes have been written to the room.
    pub fn advance(&mut self, count: usize) {
        assert!(count <= self.missing(), "no more can be written than there is room");
        self.filled += count;
    }

    /// Takes the next bytes.
    pub fn push(&mut self, bytes: &[u8]) -> Result<()> {
        if bytes.len() > self.missing() {
            let (wanted, found) = (self.buffer.len(), self.filled + bytes.len());
            return Err(invalid!("a tensor takes {wanted} bytes, found {found}"));
        }
        self.room()[..bytes.len()].copy_from_slice(bytes);
        self.advance(bytes.len());
        Ok(())
    }

    /// The tensor, if all has come. Booleans are normalised to 0 and 1.
    pub fn finish(mut self) -> Result<Tensor> {
        if self.missing() > 0 {
            return Err(invalid!("a tensor takes {} bytes, found {}", self.buffer.len(), self.filled));
        }
        if self.dtype == DType::Bool {
            self.buffer.as_bytes_mut().iter_mut().for_each(|b| *b = (*b != 0) as u8);
        }
        Ok(Tensor::from_storage(self.dtype, self.shape, Storage::Plain(self.buffer)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tensor_is_put_together() {
        let mut arriving = ArrivingTensor::new(DType::I16, [2]).unwrap();
        arriving.push(&[1]).unwrap();
        arriving.push(&[0, 2]).unwrap();
        assert_eq!(arriving.missing(), 1);
        assert!(arriving.push(&[0, 0]).is_err());
        arriving.room()[0] = 0;
        arriving.advance(1);
        assert!(arriving.room().is_empty());
        assert_eq!(arriving.finish().unwrap(), Tensor::from([1i16, 2]));
        assert!(ArrivingTensor::new(DType::I16, [2]).unwrap().finish().is_err());
        assert!(ArrivingTensor::new(DType::String, [2]).is_err());
        let mut bools = ArrivingTensor::new(DType::Bool, [2]).unwrap();
        bools.push(&[7, 0]).unwrap();
        assert_eq!(bools.finish().unwrap(), Tensor::from([true, false]));
    }
}

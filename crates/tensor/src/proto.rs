//! Tensors and shapes to and from their protobuf messages.
//!
//! Going out, plain elements travel as `tensor_content` that points into the tensor's own memory; strings,
//! handles and variants as the typed fields. Coming in, both encodings are understood: content bytes (for
//! strings, handles and variants: varint lengths, then the bytes), or a typed field that may be shorter than the
//! shape, whose last value then fills the rest.

use crate::dtype::REF_OFFSET;
use crate::tensor::{PlainBytes, Storage};
use crate::{Bytes, DType, Element, PartialShape, ResourceHandle, Result, Shape, Tensor, Variant, exhausted, invalid};
use crate::{bf16, f16};
use ::proto::{ResourceHandleProto, TensorProto, TensorShapeProto, VariantTensorDataProto};
use num_complex::Complex;
use prost::Message;

/// An element type from its number in a message; a reference type gives the type it refers to, and `true`.
pub fn dtype_from_proto(number: i32) -> Result<(DType, bool)> {
    let is_ref = number > REF_OFFSET;
    let found = DType::from_number(if is_ref { number - REF_OFFSET } else { number });
    found.map(|d| (d, is_ref)).ok_or_else(|| invalid!("unknown element type number {number}"))
}

/// A shape as attributes carry it: sizes of -1 and the rank itself may be unknown.
pub fn shape_from_proto(message: &TensorShapeProto) -> Result<PartialShape> {
    if message.unknown_rank {
        return Ok(PartialShape::unknown());
    }
    let dims: Vec<Option<usize>> = message
        .dim
        .iter()
        .map(|d| match d.size {
            -1 => Ok(None),
            size => usize::try_from(size).map(Some).map_err(|_| invalid!("a shape has a dimension of size {size}")),
        })
        .collect::<Result<_>>()?;
    Shape::checked(dims.iter().map(|d| d.unwrap_or(1) as i64))?;
    Ok(PartialShape::new(dims))
}

/// A shape as attributes carry it.
pub fn shape_to_proto(shape: &PartialShape) -> TensorShapeProto {
    let dim = |size: i64| ::proto::tensor_shape_proto::Dim { size, name: String::new() };
    match shape.dims() {
        None => TensorShapeProto { unknown_rank: true, dim: Vec::new() },
        Some(dims) => TensorShapeProto {
            unknown_rank: false,
            dim: dims.iter().map(|d| dim(d.map_or(-1, |d| d as i64))).collect(),
        },
    }
}

impl Tensor {
    /// The message for this tensor. Plain elements are not copied: the message's content points into this memory.
    pub fn to_proto(&self) -> TensorProto {
        let mut message = TensorProto {
            dtype: self.dtype().number(),
            tensor_shape: Some(shape_to_proto(&self.shape().into())),
            ..TensorProto::default()
        };
        match self.dtype() {
            DType::String => message.string_val = self.as_strings().unwrap_or_default().to_vec(),
            DType::Resource => {
                message.resource_handle_val =
                    self.as_handles().unwrap_or_default().iter().map(handle_to_proto).collect();
            }
            DType::Variant => {
                message.variant_val = self.as_variants().unwrap_or_default().iter().map(Variant::to_message).collect();
            }
            _ => message.tensor_content = self.content(),
        }
        message
    }

    /// The elements as `tensor_content` carries them: plain ones point into this memory, the others are laid out as
    /// varint lengths followed by all the bytes.
    pub fn content(&self) -> Bytes {
        match self.dtype() {
            DType::String => join_content(self.as_strings().unwrap_or_default()),
            DType::Resource => {
                let handles = self.as_handles().unwrap_or_default().iter();
                join_content(&handles.map(|h| handle_to_proto(h).encode_to_vec()).collect::<Vec<_>>())
            }
            DType::Variant => {
                let variants = self.as_variants().unwrap_or_default().iter();
                join_content(&variants.map(|v| v.to_message().encode_to_vec()).collect::<Vec<_>>())
            }
            _ => Bytes::from_owner(PlainBytes(self.clone())),
        }
    }

    /// The tensor in this message. Payload bytes are copied once, into aligned memory.
    pub fn from_proto(message: &TensorProto) -> Result<Tensor> {
        let (dtype, is_ref) = dtype_from_proto(message.dtype)?;
        if is_ref {
            return Err(invalid!("a tensor cannot be of the reference type of {dtype}"));
        }
        let empty = TensorShapeProto::default();
        let dims = message.tensor_shape.as_ref().unwrap_or(&empty);
        if dims.unknown_rank {
            return Err(invalid!("a tensor of {dtype} has a shape of unknown rank"));
        }
        let shape = Shape::checked(dims.dim.iter().map(|d| d.size))?;
        match dtype {
            DType::String => strings(message, shape),
            DType::Resource => handles(message, shape),
            DType::Variant => variants(message, shape),
            _ if !message.tensor_content.is_empty() => Tensor::from_bytes(dtype, shape, &message.tensor_content),
            _ => typed(dtype, message, shape),
        }
    }
}

/// Elements from the typed field that belongs to the type.
fn typed(dtype: DType, m: &TensorProto, shape: Shape) -> Result<Tensor> {
    use DType::*;
    match dtype {
        F32 => fill(shape, &m.float_val, |v| v),
        F64 => fill(shape, &m.double_val, |v| v),
        I32 => fill(shape, &m.int_val, |v| v),
        I16 => fill(shape, &m.int_val, |v| v as i16),
        I8 => fill(shape, &m.int_val, |v| v as i8),
        U8 => fill(shape, &m.int_val, |v| v as u8),
        U16 => fill(shape, &m.int_val, |v| v as u16),
        I64 => fill(shape, &m.int64_val, |v| v),
        U32 => fill(shape, &m.uint32_val, |v| v),
        U64 => fill(shape, &m.uint64_val, |v| v),
        Bool => fill(shape, &m.bool_val, |v| v),
        F16 => fill(shape, &m.half_val, |v| f16::from_bits(v as u16)),
        BF16 => fill(shape, &m.half_val, |v| bf16::from_bits(v as u16)),
        C64 => fill(shape, &pairs(&m.scomplex_val)?, |(re, im)| Complex::new(re, im)),
        C128 => fill(shape, &pairs(&m.dcomplex_val)?, |(re, im)| Complex::new(re, im)),
        // The remaining types are stored as integers of their width, or, the small floats, as bytes.
        QI8 | QU8 | I4 | U4 | I2 | U2 => relabel(dtype, fill(shape, &m.int_val, |v| v as u8)?),
        QI16 | QU16 => relabel(dtype, fill(shape, &m.int_val, |v| v as u16)?),
        QI32 => relabel(dtype, fill(shape, &m.int_val, |v| v)?),
        F8E5M2 | F8E4M3FN | F8E4M3FNUZ | F8E4M3B11FNUZ | F8E5M2FNUZ | F4E2M1FN => {
            relabel(dtype, fill(shape, &m.float8_val, |v| v)?)
        }
        String | Resource | Variant => Err(invalid!("a tensor of {dtype} is not plain memory")),
    }
}

fn relabel(dtype: DType, tensor: Tensor) -> Result<Tensor> {
    tensor.bitcast(dtype)
}

/// Fills a tensor from a list that may be shorter than the shape: its last value repeats, no value means zero.
fn fill<P: Copy, T: Element>(shape: Shape, values: &[P], convert: impl Fn(P) -> T) -> Result<Tensor> {
    let mut out = crate::OwnedTensor::<T>::new(shape)?;
    let given = values.len().min(out.len());
    for (slot, &value) in out.iter_mut().zip(values) {
        *slot = convert(value);
    }
    let last = values.last().map_or(T::default(), |&v| convert(v));
    out[given..].fill(last);
    Ok(out.into_tensor())
}

fn pairs<T: Copy>(values: &[T]) -> Result<Vec<(T, T)>> {
    if !values.len().is_multiple_of(2) {
        return Err(invalid!("complex values come in pairs, found {} numbers", values.len()));
    }
    Ok(values.chunks_exact(2).map(|p| (p[0], p[1])).collect())
}

/// The most elements a message may claim by repetition when each is a heap value of its own.
const REPEATED_MAX: usize = 1 << 26;

/// A list of non-plain values stretched to the shape's count by its last value.
fn stretch<T: Clone + Default>(shape: &Shape, mut values: Vec<T>) -> Result<Vec<T>> {
    let count = shape.num_elements();
    if count > REPEATED_MAX.max(values.len()) {
        return Err(exhausted!(
            "a tensor of shape {shape} claims {count} elements, the message holds {}",
            values.len()
        ));
    }
    let last = values.last().cloned().unwrap_or_default();
    values.resize(count, last);
    Ok(values)
}

fn strings(m: &TensorProto, shape: Shape) -> Result<Tensor> {
    let values = if m.tensor_content.is_empty() {
        stretch(&shape, m.string_val.clone())?
    } else {
        split_content(&m.tensor_content, shape.num_elements())?
    };
    Ok(Tensor::from_storage(DType::String, shape, Storage::Strings(values)))
}

fn handles(m: &TensorProto, shape: Shape) -> Result<Tensor> {
    let values = if m.tensor_content.is_empty() {
        m.resource_handle_val.iter().map(handle_from_proto).collect::<Result<Vec<_>>>()?
    } else {
        let parts = split_content(&m.tensor_content, shape.num_elements())?;
        let decode = |part: &Bytes| handle_from_proto(&decode::<ResourceHandleProto>(part)?);
        parts.iter().map(decode).collect::<Result<Vec<_>>>()?
    };
    Ok(Tensor::from_storage(DType::Resource, shape.clone(), Storage::Handles(stretch(&shape, values)?)))
}

fn variants(m: &TensorProto, shape: Shape) -> Result<Tensor> {
    let values: Vec<Variant> = if m.tensor_content.is_empty() {
        m.variant_val.iter().cloned().map(Variant::from).collect()
    } else {
        let parts = split_content(&m.tensor_content, shape.num_elements())?;
        parts.iter().map(|part| decode::<VariantTensorDataProto>(part).map(Variant::from)).collect::<Result<_>>()?
    };
    let count = shape.num_elements();
    if values.len() != count {
        return Err(invalid!("a tensor of {count} variants holds {}", values.len()));
    }
    Ok(Tensor::from_storage(DType::Variant, shape, Storage::Variants(values)))
}

fn decode<M: prost::Message + Default>(bytes: &Bytes) -> Result<M> {
    M::decode(bytes.clone()).map_err(|e| invalid!("an element of a tensor does not parse: {e}"))
}

/// Varint lengths, then all contents.
fn join_content<T: AsRef<[u8]>>(parts: &[T]) -> Bytes {
    let mut content = Vec::with_capacity(parts.iter().map(|p| p.as_ref().len() + 2).sum());
    for part in parts {
        let mut length = part.as_ref().len() as u64;
        while length >= 0x80 {
            content.push(length as u8 | 0x80);
            length >>= 7;
        }
        content.push(length as u8);
    }
    parts.iter().for_each(|part| content.extend_from_slice(part.as_ref()));
    content.into()
}

/// Splits `n` varint lengths followed by all contents.
fn split_content(content: &Bytes, count: usize) -> Result<Vec<Bytes>> {
    let short = || invalid!("a tensor of {count} strings has only {} bytes of content", content.len());
    if count > content.len() {
        return Err(short()); // each length takes a byte at least
    }
    let mut rest = &content[..];
    let mut lengths = Vec::with_capacity(count);
    for _ in 0..count {
        let mut length = 0u64;
        for shift in (0..64).step_by(7) {
            let (&byte, tail) = rest.split_first().ok_or_else(short)?;
            rest = tail;
            length |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                break;
            }
        }
        lengths.push(usize::try_from(length).map_err(|_| short())?);
    }
    let mut at = content.len() - rest.len();
    let mut parts = Vec::with_capacity(count);
    for length in lengths {
        let end = at.checked_add(length).filter(|&end| end <= content.len()).ok_or_else(short)?;
        parts.push(content.slice(at..end));
        at = end;
    }
    if at != content.len() {
        return Err(invalid!("a tensor of {count} strings has {} bytes too many", content.len() - at));
    }
    Ok(parts)
}

fn handle_from_proto(m: &ResourceHandleProto) -> Result<ResourceHandle> {
    let holds = m.dtypes_and_shapes.iter().map(|d| {
        let shape = d.shape.as_ref().map_or(Ok(PartialShape::unknown()), shape_from_proto)?;
        Ok((dtype_from_proto(d.dtype)?.0, shape))
    });
    Ok(ResourceHandle {
        device: m.device.clone(),
        container: m.container.clone(),
        name: m.name.clone(),
        hash_code: m.hash_code,
        type_name: m.maybe_type_name.clone(),
        holds: holds.collect::<Result<_>>()?,
        resource: None,
    })
}

fn handle_to_proto(handle: &ResourceHandle) -> ResourceHandleProto {
    let holds = handle.holds.iter().map(|(dtype, shape)| ::proto::resource_handle_proto::DtypeAndShape {
        dtype: dtype.number(),
        shape: Some(shape_to_proto(shape)),
    });
    ResourceHandleProto {
        device: handle.device.clone(),
        container: handle.container.clone(),
        name: handle.name.clone(),
        hash_code: handle.hash_code,
        maybe_type_name: handle.type_name.clone(),
        dtypes_and_shapes: holds.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(dtype: DType, dims: &[i64]) -> TensorProto {
        let dim = dims.iter().map(|&size| ::proto::tensor_shape_proto::Dim { size, name: String::new() }).collect();
        TensorProto {
            dtype: dtype.number(),
            tensor_shape: Some(TensorShapeProto { dim, unknown_rank: false }),
            ..TensorProto::default()
        }
    }

    fn dims(tensor: &Tensor) -> Vec<i64> {
        tensor.dims().iter().map(|&d| d as i64).collect()
    }

    #[test]
    fn every_type_travels() {
        for &dtype in DType::ALL {
            let tensor = match dtype {
                DType::String => Tensor::from(["ab", ""]),
                DType::Resource => {
                    let handle = ResourceHandle { device: "d".into(), name: "n".into(), ..Default::default() };
                    Tensor::from_handles([1], vec![handle]).unwrap()
                }
                DType::Variant => Tensor::zeros(dtype, [1]).unwrap(),
                _ => Tensor::from_bytes(dtype, [3], &vec![1; 3 * dtype.size()]).unwrap(),
            };
            let message = tensor.to_proto();
            assert!(Tensor::from_proto(&message).unwrap() == tensor, "{dtype}");
            let content = TensorProto { tensor_content: tensor.content(), ..self::message(dtype, &dims(&tensor)) };
            assert!(Tensor::from_proto(&content).unwrap() == tensor, "{dtype}");
        }
    }

    #[test]
    fn plain_elements_go_out_without_a_copy() {
        let t = Tensor::from_vec([100], vec![1.0f32; 100]).unwrap();
        assert_eq!(t.to_proto().tensor_content.as_ptr(), t.as_bytes().unwrap().as_ptr());
    }

    #[test]
    fn a_short_list_repeats_its_last_value() {
        let m = TensorProto { float_val: vec![1.0, 7.0], ..message(DType::F32, &[4]) };
        assert_eq!(Tensor::from_proto(&m).unwrap(), Tensor::from([1.0f32, 7.0, 7.0, 7.0]));
        assert_eq!(Tensor::from_proto(&message(DType::I64, &[2])).unwrap(), Tensor::from([0i64, 0]));
        let long = TensorProto { int_val: vec![1, 2, 3], ..message(DType::I32, &[2]) };
        assert_eq!(Tensor::from_proto(&long).unwrap(), Tensor::from([1i32, 2]));
        let half = TensorProto { half_val: vec![0x3c00], ..message(DType::F16, &[2]) };
        assert_eq!(Tensor::from_proto(&half).unwrap(), Tensor::from([f16::ONE; 2]));
    }

    #[test]
    fn strings_in_content_are_split_by_their_lengths() {
        let content = Bytes::from_static(b"\x02\x03ab\0\xffc");
        let m = TensorProto { tensor_content: content, ..message(DType::String, &[2]) };
        let t = Tensor::from_proto(&m).unwrap();
        assert_eq!(t.as_strings().unwrap(), &[Bytes::from_static(b"ab"), Bytes::from_static(b"\0\xffc")]);
        assert_eq!(t.content(), m.tensor_content);
        let long = Tensor::string(vec![7u8; 300]);
        assert_eq!(long.content()[..3], [0xac, 0x02, 7]);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let short = TensorProto { tensor_content: Bytes::from_static(b"abc"), ..message(DType::I32, &[1]) };
        let cases = [
            short,
            message(DType::F32, &[1 << 38]),
            message(DType::F32, &[1 << 40, 1 << 40]),
            message(DType::String, &[1 << 40]),
            message(DType::F32, &[-1]),
            TensorProto { dtype: 101, ..TensorProto::default() },
            TensorProto { dtype: 77, ..TensorProto::default() },
            TensorProto { tensor_content: Bytes::from_static(b"\xff\xff\xff"), ..message(DType::String, &[2]) },
            TensorProto { tensor_content: Bytes::from_static(b"\x05a"), ..message(DType::String, &[1]) },
        ];
        for m in cases {
            assert!(Tensor::from_proto(&m).is_err(), "{m:?}");
        }
    }
}

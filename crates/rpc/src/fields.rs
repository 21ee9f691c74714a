//! Takes the tensors out of a message before the message is decoded.
//!
//! A general decoder would put a tensor's bytes together only for them to be copied again into aligned memory. Here the
//! fields that hold tensors are split off as pieces, and each tensor is filled from its pieces directly.

use crate::pieces::Pieces;
use bytes::Buf;
use prost::Message;
use std::ops::Range;
use tensor::{ArrivingTensor, DType, Error, Result, Shape, Tensor, invalid};

/// A message whose field `field` holds tensors: the rest of it, and what each occurrence of that field holds.
pub fn split<M: Message + Default>(mut message: Pieces, field: u32, what: &str) -> Result<(M, Vec<Pieces>)> {
    let mut found = Vec::new();
    let mut rest = Pieces::default();
    let mut start = 0;
    for place in places(&message, field, what)? {
        message.split_to(place.key - start).into_iter().for_each(|part| rest.gather(part));
        message.advance(place.value.start - place.key);
        found.push(message.split_to(place.value.len()));
        start = place.value.end;
    }
    message.into_iter().for_each(|part| rest.gather(part));
    Ok((rest.decode(what)?, found))
}

/// Where a field stands in a message: its key begins here, its value covers these bytes.
struct Place {
    key: usize,
    value: Range<usize>,
}

/// Where every occurrence of a length-delimited field stands.
fn places(message: &Pieces, field: u32, what: &str) -> Result<Vec<Place>> {
    let mut found = Vec::new();
    let mut reader = message.reader();
    while reader.has_remaining() {
        let begin = reader.remaining();
        let key = varint(&mut reader, what)?;
        if key & 7 == VARINT {
            varint(&mut reader, what)?;
            continue;
        }
        let len = value_len(&mut reader, key, what)?;
        if key == u64::from(field) << 3 | LENGTH_DELIMITED {
            let start = message.len() - reader.remaining();
            found.push(Place { key: message.len() - begin, value: start..start + len });
        }
        reader.advance(len);
    }
    Ok(found)
}

/// The tensor in a message.
pub fn tensor(message: Pieces) -> Result<Tensor> {
    const CONTENT: u32 = 4;
    let (mut head, contents) = split::<proto::TensorProto>(message, CONTENT, "a tensor")?;
    let Some(content) = contents.into_iter().next_back().filter(|content| !content.is_empty()) else {
        return Tensor::from_proto(&head);
    };
    let Some(dtype) = plain_type(&head) else {
        head.tensor_content = content.contiguous();
        return Tensor::from_proto(&head);
    };
    let shape = shape(&head)?;
    if byte_count(dtype, &shape) != Some(content.len()) {
        return Err(invalid!("a tensor of {dtype} and shape {shape} cannot have {} bytes of content", content.len()));
    }
    let mut tensor = ArrivingTensor::new(dtype, shape)?;
    for part in content {
        tensor.push(&part)?;
    }
    tensor.finish()
}

/// The name and the tensor in a message.
pub fn named_tensor(message: Pieces) -> Result<(String, Tensor)> {
    const TENSOR: u32 = 2;
    let (head, tensors) = split::<proto::NamedTensorProto>(message, TENSOR, "a named tensor")?;
    let found = tensors.into_iter().next_back().ok_or_else(|| invalid!("there is no tensor with '{}'", head.name))?;
    let tensor = tensor(found).map_err(|e| Error { message: format!("'{}': {}", head.name, e.message), ..e })?;
    Ok((head.name, tensor))
}

/// The element type, if elements of it are plain memory.
fn plain_type(head: &proto::TensorProto) -> Option<DType> {
    DType::from_number(head.dtype).filter(|dtype| dtype.is_plain())
}

fn shape(head: &proto::TensorProto) -> Result<Shape> {
    match &head.tensor_shape {
        None => Ok(Shape::from([])),
        Some(shape) if shape.unknown_rank => Err(invalid!("a tensor has a shape of unknown rank")),
        Some(shape) => Shape::checked(shape.dim.iter().map(|dim| dim.size)),
    }
}

/// How many bytes the elements take, if that can be said.
pub(crate) fn byte_count(dtype: DType, shape: &Shape) -> Option<usize> {
    shape.dims().iter().try_fold(dtype.size(), |bytes, &size| bytes.checked_mul(size))
}

/// The start of an answer to RecvTensor, as far as it has come.
pub enum Start {
    /// More is needed to tell.
    Incomplete,
    /// The rest of the message is the content of this tensor, of a plain type and of the right length.
    Content(ArrivingTensor),
    /// Something else, to be decoded when it is there as a whole.
    Other,
}

/// Reads the start of an answer to RecvTensor of `len` bytes; what is left of `message` then is content.
pub fn start_of_recv_tensor(message: &mut Pieces, len: usize) -> Start {
    let before = message.len();
    match recv_tensor_start(message, len, before) {
        Ok(Some(tensor)) => Start::Content(tensor),
        Ok(None) => Start::Other,
        // It ends within a field, because it is not complete, or because it is garbage.
        Err(_) if before < START_MAX => Start::Incomplete,
        Err(_) => Start::Other,
    }
}

/// More than any tensor's type and shape take.
const START_MAX: usize = 16 << 10;

fn recv_tensor_start(message: &mut Pieces, len: usize, before: usize) -> Result<Option<ArrivingTensor>> {
    const WHAT: &str = "an answer to RecvTensor";
    const TENSOR: u64 = 1 << 3 | LENGTH_DELIMITED;
    const SEND_START: u64 = 3 << 3 | VARINT;
    const DTYPE: u64 = 1 << 3 | VARINT;
    const SHAPE: u64 = 2 << 3 | LENGTH_DELIMITED;
    const CONTENT: u64 = 4 << 3 | LENGTH_DELIMITED;
    let left = |message: &Pieces| (len + message.len()).checked_sub(before).map(|left| left as u64);
    let mut head = proto::TensorProto::default();
    let mut in_tensor = false;
    loop {
        match (in_tensor, varint(message, WHAT)?) {
            (false, SEND_START) => drop(varint(message, WHAT)?),
            (false, TENSOR) => {
                in_tensor = true;
                if Some(varint(message, WHAT)?) != left(message) {
                    return Ok(None);
                }
            }
            (true, DTYPE) => head.dtype = varint(message, WHAT)? as i32,
            (true, key @ SHAPE) => {
                let len = value_len(message, key, WHAT)?;
                head.tensor_shape = Some(message.split_to(len).decode(WHAT)?);
            }
            (true, CONTENT) => {
                let count = varint(message, WHAT)?;
                let (Some(dtype), Ok(shape)) = (plain_type(&head), shape(&head)) else { return Ok(None) };
                let fits = Some(count) == left(message) && byte_count(dtype, &shape).map(|n| n as u64) == Some(count);
                return Ok(if fits { ArrivingTensor::new(dtype, shape).ok() } else { None });
            }
            _ => return Ok(None),
        }
    }
}

const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const LENGTH_DELIMITED: u64 = 2;
const FIXED32: u64 = 5;

/// How many bytes the value takes that belongs to a key, and comes next; there are as many. Not for numbers of variable
/// length.
fn value_len(message: &mut impl Buf, key: u64, what: &str) -> Result<usize> {
    let len = match key & 7 {
        FIXED64 => 8,
        FIXED32 => 4,
        LENGTH_DELIMITED => varint(message, what)?,
        other => return Err(invalid!("{what} does not parse: field {} is of the unknown kind {other}", key >> 3)),
    };
    if len > message.remaining() as u64 {
        return Err(invalid!(
            "{what} does not parse: field {} has {len} bytes, only {} are left",
            key >> 3,
            message.remaining()
        ));
    }
    Ok(len as usize)
}

/// Reads a number of variable length.
pub(crate) fn varint(message: &mut impl Buf, what: &str) -> Result<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        if !message.has_remaining() {
            return Err(invalid!("{what} does not parse: it ends within a number"));
        }
        let byte = message.get_u8();
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(invalid!("{what} does not parse: a number takes more than ten bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    /// The message cut into pieces of this size.
    fn cut(bytes: &[u8], size: usize) -> Pieces {
        let mut pieces = Pieces::default();
        bytes.chunks(size).for_each(|part| pieces.push(Bytes::copy_from_slice(part)));
        pieces
    }

    #[test]
    fn tensors_are_taken_out_and_the_rest_is_decoded() {
        let values = [Tensor::from([1.5f32, 2.5]), Tensor::from(["a", ""]), Tensor::from([true, false])];
        let feed = values.iter().enumerate().map(|(i, tensor)| {
            let tensor = proto::TensorProto { tensor_content: tensor.content(), ..tensor.to_proto() };
            proto::NamedTensorProto { name: format!("t{i}"), tensor: Some(tensor) }
        });
        let request = proto::RunStepRequest {
            session_handle: "s".into(),
            feed: feed.collect(),
            fetch: vec!["a:0".into(), "b:0".into()],
            request_id: -5,
            store_errors_in_response_body: true,
            ..Default::default()
        };
        let bytes = request.encode_to_vec();
        for size in [1, 2, 7, 4096] {
            let (rest, feeds) = split::<proto::RunStepRequest>(cut(&bytes, size), 2, "a request").unwrap();
            assert_eq!(rest, proto::RunStepRequest { feed: vec![], ..request.clone() });
            for (i, feed) in feeds.into_iter().enumerate() {
                let (name, tensor) = named_tensor(feed).unwrap();
                assert!(name == format!("t{i}") && tensor == values[i]);
            }
        }
    }

    #[test]
    fn typed_fields_are_understood_too() {
        let message = proto::TensorProto {
            dtype: DType::F32.number(),
            tensor_shape: Some(proto::TensorShapeProto {
                dim: vec![proto::tensor_shape_proto::Dim { size: 3, name: String::new() }],
                unknown_rank: false,
            }),
            float_val: vec![7.0],
            ..Default::default()
        };
        assert_eq!(tensor(cut(&message.encode_to_vec(), 3)).unwrap(), Tensor::from([7.0f32; 3]));
    }

    #[test]
    fn the_start_of_an_answer_is_enough_to_know_the_tensor() {
        let answer = |tensor: &Tensor, head: proto::RecvTensorResponse| {
            let mut writer = crate::pieces::Writer::default().message(&head);
            writer.put_tensor_field(1, "t", tensor);
            writer.finish("a test").unwrap().concat().split_off(crate::pieces::PREFIX)
        };
        let tensor = Tensor::from([1.5f32; 100]);
        let bytes = answer(&tensor, proto::RecvTensorResponse { send_start_micros: 1 << 50, ..Default::default() });
        let first = bytes.len() - 400;
        for end in 0..=bytes.len() {
            let mut message = cut(&bytes[..end], 3);
            match start_of_recv_tensor(&mut message, bytes.len()) {
                Start::Incomplete => assert!(end < first),
                Start::Content(arriving) => assert_eq!((arriving.missing(), message.len()), (400, end - first)),
                Start::Other => panic!("at {end}"),
            }
        }
        let others = [
            answer(&tensor, proto::RecvTensorResponse { is_dead: true, ..Default::default() }),
            answer(&Tensor::from(["a string"]), Default::default()),
            [&bytes[..], b"\x28\x01"].concat(),
            with_another_shape(&bytes),
        ];
        for bytes in others {
            let mut message = cut(&bytes, 1000);
            assert!(matches!(start_of_recv_tensor(&mut message, bytes.len()), Start::Other), "{bytes:?}");
        }
    }

    /// The same answer with a shape that wants more.
    fn with_another_shape(bytes: &[u8]) -> Vec<u8> {
        let mut changed = bytes.to_vec();
        let size = changed.windows(2).position(|pair| pair == [0x08, 100]).unwrap();
        changed[size + 1] = 101;
        changed
    }

    #[test]
    fn garbage_is_an_error() {
        let terabyte = proto::TensorProto {
            dtype: 1,
            tensor_shape: Some(proto::TensorShapeProto {
                dim: vec![proto::tensor_shape_proto::Dim { size: 1 << 38, name: String::new() }],
                unknown_rank: false,
            }),
            tensor_content: Bytes::from_static(b"abcd"),
            ..Default::default()
        };
        let cases: [&[u8]; 8] = [
            b"\x22\xff\xff\xff\xff\x07",                     // a length beyond the end
            b"\xff",                                         // an unfinished number
            b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", // an endless number
            b"\x0b",                                         // a group
            b"\x25\0\0",                                     // an unfinished fixed32
            b"\x22\x03abc",                                  // content without a type
            b"\x08\x01\x22\x03abc",                          // content that does not fit
            &terabyte.encode_to_vec(),
        ];
        for bytes in cases {
            assert!(tensor(cut(bytes, 2)).is_err(), "{bytes:?}");
        }
        assert!(named_tensor(cut(b"\x0a\x01x", 9)).is_err());
    }

    /// Valid messages with a few bytes changed, cut off, and in odd pieces: whatever comes out, it is no panic.
    #[test]
    fn damaged_messages_do_no_harm() {
        let mut state = 7u64;
        let mut random = |below: usize| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) as usize % below
        };
        let named = |name: &str, tensor: Tensor| {
            let tensor = proto::TensorProto { tensor_content: tensor.content(), ..tensor.to_proto() };
            proto::NamedTensorProto { name: name.into(), tensor: Some(tensor) }
        };
        let mut writer = crate::pieces::Writer::default()
            .message(&proto::RecvTensorResponse { send_start_micros: 12345, ..Default::default() });
        writer.put_tensor_field(1, "t", &Tensor::from([[1f32, 2.0], [3.0, 4.0]]));
        let valid = [
            named("a:0", Tensor::from([1i64, 2, 3])).encode_to_vec(),
            named("b", Tensor::from(["x", "", "long enough"])).encode_to_vec(),
            Tensor::scalar(true).to_proto().encode_to_vec(),
            writer.finish("a test").unwrap().concat().split_off(crate::pieces::PREFIX),
        ];
        for _ in 0..50_000 {
            let mut bytes = valid[random(valid.len())].clone();
            for _ in 0..random(4) {
                let at = random(bytes.len());
                bytes[at] = random(256) as u8;
            }
            bytes.truncate(1 + random(bytes.len()));
            let size = 1 + random(bytes.len());
            let _ = tensor(cut(&bytes, size));
            let _ = named_tensor(cut(&bytes, size));
            let _ = split::<proto::RecvTensorResponse>(cut(&bytes, size), 1, "a test");
            let announced = bytes.len() + random(3);
            let _ = start_of_recv_tensor(&mut cut(&bytes, size), announced);
        }
    }
}

//! Bytes in several pieces: messages go to the socket and come from it without being put together.
//!
//! [`Pieces`] is what arrives, read like any buffer. [`Writer`] is what leaves: small things are gathered, the memory
//! of a large tensor is only referred to.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use prost::Message;
use std::collections::{VecDeque, vec_deque};
use std::iter::Chain;
use std::option;
use tensor::{Result, Tensor, exhausted};

/// The largest message gRPC peers of this kind accept: a protobuf's length is a signed 32-bit number to them.
pub const MESSAGE_MAX: usize = i32::MAX as usize;

/// Every message has five bytes before it on the wire: a flag and a length.
pub const PREFIX: usize = 5;

/// What is shorter is copied: a frame of its own would cost more.
pub(crate) const SHARE_MIN: usize = 8 << 10;

/// Pieces shorter than this are put together, up to a length that is worth a copy.
const GATHER_MAX: usize = 512;
const GATHERED_MAX: usize = 4 << 10;

/// A message as it came: in pieces, read from the front.
#[derive(Clone, Debug, Default)]
pub struct Pieces {
    /// Empty only if there is nothing at all. Most messages are one piece, which needs no list.
    first: Bytes,
    more: VecDeque<Bytes>,
    len: usize,
}

impl Pieces {
    /// Adds to the end.
    pub fn push(&mut self, part: Bytes) {
        self.len += part.len();
        if self.first.is_empty() {
            self.first = part;
        } else if !part.is_empty() {
            self.more.push_back(part);
        }
    }

    /// Adds to the end, where short pieces are put together: a message of many tiny frames must not cost more than its
    /// bytes.
    pub fn gather(&mut self, part: Bytes) {
        let last = self.more.back_mut().unwrap_or(&mut self.first);
        if last.is_empty() || part.len() >= GATHER_MAX || last.len() >= GATHERED_MAX {
            return self.push(part);
        }
        let mut joined = std::mem::take(last).try_into_mut().unwrap_or_else(|shared| BytesMut::from(&shared[..]));
        joined.extend_from_slice(&part);
        *last = joined.freeze();
        self.len += part.len();
    }

    /// Takes the first piece.
    pub fn pop(&mut self) -> Option<Bytes> {
        let next = self.more.pop_front().unwrap_or_default();
        let first = std::mem::replace(&mut self.first, next);
        self.len -= first.len();
        Some(first).filter(|first| !first.is_empty())
    }

    /// Everything in one piece, copied so that it holds no more memory than it needs.
    pub fn contiguous(mut self) -> Bytes {
        let mut bytes = BytesMut::with_capacity(self.len);
        bytes.put(&mut self);
        bytes.freeze()
    }

    /// How much is left.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Takes the first `count` bytes, sharing their memory; there must be as many.
    pub fn split_to(&mut self, count: usize) -> Pieces {
        assert!(count <= self.len, "the caller compares with len()");
        let mut front = Pieces::default();
        while front.len < count {
            let missing = count - front.len;
            let part = if self.first.len() > missing { self.first.split_to(missing) } else { self.take_first() };
            front.push(part);
        }
        self.len -= count;
        front
    }

    /// The first piece, whose length the caller sees to.
    fn take_first(&mut self) -> Bytes {
        std::mem::replace(&mut self.first, self.more.pop_front().unwrap_or_default())
    }

    /// Reads without taking anything away.
    pub(crate) fn reader(&self) -> Reader<'_> {
        Reader { chunk: &self.first, more: self.more.iter(), left: self.len }
    }

    /// Reads everything as one message.
    pub fn decode<M: Message + Default>(self, what: &str) -> Result<M> {
        M::decode(self).map_err(|e| tensor::invalid!("{what} does not parse: {e}"))
    }
}

impl From<Bytes> for Pieces {
    fn from(bytes: Bytes) -> Pieces {
        let mut pieces = Pieces::default();
        pieces.push(bytes);
        pieces
    }
}

impl IntoIterator for Pieces {
    type Item = Bytes;
    type IntoIter = Chain<option::IntoIter<Bytes>, vec_deque::IntoIter<Bytes>>;

    fn into_iter(self) -> Self::IntoIter {
        Some(self.first).filter(|first| !first.is_empty()).into_iter().chain(self.more)
    }
}

impl Buf for Pieces {
    fn remaining(&self) -> usize {
        self.len
    }

    fn chunk(&self) -> &[u8] {
        &self.first
    }

    fn advance(&mut self, mut count: usize) {
        assert!(count <= self.len, "cannot advance past the end");
        self.len -= count;
        while count >= self.first.len() && !self.first.is_empty() {
            count -= self.take_first().len();
        }
        self.first.advance(count);
    }

    /// A short value is copied, so that it does not keep a whole frame alive.
    fn copy_to_bytes(&mut self, count: usize) -> Bytes {
        if count >= SHARE_MIN && self.chunk().len() >= count {
            return self.split_to(count).into_iter().next().unwrap_or_default();
        }
        let mut bytes = BytesMut::with_capacity(count);
        bytes.put(self.take(count));
        bytes.freeze()
    }
}

/// A look at [`Pieces`], from front to back.
pub(crate) struct Reader<'a> {
    chunk: &'a [u8],
    more: vec_deque::Iter<'a, Bytes>,
    left: usize,
}

impl Buf for Reader<'_> {
    fn remaining(&self) -> usize {
        self.left
    }

    fn chunk(&self) -> &[u8] {
        self.chunk
    }

    fn advance(&mut self, mut count: usize) {
        assert!(count <= self.left, "cannot advance past the end");
        self.left -= count;
        while count >= self.chunk.len() && !self.chunk.is_empty() {
            count -= self.chunk.len();
            self.chunk = self.more.next().map_or(&[], |part| part);
        }
        self.chunk = &self.chunk[count..];
    }
}

/// A message on its way out.
#[derive(Debug)]
pub struct Writer {
    parts: Vec<Bytes>,
    tail: BytesMut,
    len: usize,
    largest: Option<(String, usize)>,
}

impl Default for Writer {
    fn default() -> Writer {
        let mut tail = BytesMut::with_capacity(256);
        tail.put_bytes(0, PREFIX);
        Writer { parts: Vec::new(), tail, len: 0, largest: None }
    }
}

impl Writer {
    /// A whole message, or some of its fields.
    pub fn message(mut self, message: &impl Message) -> Writer {
        self.put_message(message);
        self
    }

    /// Adds the fields of a message.
    pub fn put_message(&mut self, message: &impl Message) {
        let len = message.encoded_len();
        self.len += len;
        self.tail.reserve(len);
        message.encode(&mut self.tail).expect("the buffer grows as needed");
    }

    /// Adds a field that holds a tensor, as [`put_tensor`](Writer::put_tensor) lays it out.
    pub fn put_tensor_field(&mut self, field: u32, name: &str, tensor: &Tensor) {
        let encoded = EncodedTensor::new(tensor);
        self.put_key(field, encoded.len());
        self.put_tensor(name, encoded);
    }

    /// Adds a field that holds a name and a tensor.
    pub fn put_named_tensor_field(&mut self, field: u32, name: &str, tensor: &Tensor) {
        let encoded = EncodedTensor::new(tensor);
        let inner = key_len(1, name.len()) + name.len() + key_len(2, encoded.len()) + encoded.len();
        self.put_key(field, inner);
        self.put_key(1, name.len());
        self.put_slice(name.as_bytes());
        self.put_key(2, encoded.len());
        self.put_tensor(name, encoded);
    }

    fn put_tensor(&mut self, name: &str, tensor: EncodedTensor) {
        if self.largest.as_ref().is_none_or(|(_, len)| tensor.len() > *len) {
            self.largest = Some((name.to_string(), tensor.len()));
        }
        self.put_slice(&tensor.head);
        self.share(tensor.content);
    }

    /// Begins a field that holds so many bytes.
    pub(crate) fn put_key(&mut self, field: u32, len: usize) {
        let mut key = [0u8; 20];
        let used = write_key(&mut key, field, len);
        self.put_slice(&key[..used]);
    }

    /// Makes room for what is about to be copied.
    pub(crate) fn reserve(&mut self, len: usize) {
        self.tail.reserve(len);
    }

    /// Adds a number, in as many bytes as it needs.
    pub(crate) fn put_varint(&mut self, number: usize) {
        let before = self.tail.len();
        // Fails only where there is no room for more.
        let _ = prost::encode_length_delimiter(number, &mut self.tail);
        self.len += self.tail.len() - before;
    }

    /// Adds bytes.
    pub(crate) fn put_slice(&mut self, bytes: &[u8]) {
        self.len += bytes.len();
        self.tail.put_slice(bytes);
    }

    /// Adds bytes without copying them, if there are many.
    pub(crate) fn share(&mut self, bytes: Bytes) {
        if bytes.len() < SHARE_MIN {
            return self.put_slice(&bytes);
        }
        self.len += bytes.len();
        self.parts.push(self.tail.split().freeze());
        self.parts.push(bytes);
    }

    /// How long the message is so far.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the message is empty so far.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The pieces for the wire, prefix included. A message that no peer would accept is refused here.
    pub fn finish(mut self, what: &str) -> Result<Vec<Bytes>> {
        if self.len > MESSAGE_MAX {
            let culprit = self.largest.map(|(name, len)| format!("; the tensor '{name}' takes {len} of them"));
            return Err(exhausted!(
                "the message of {what} takes {} bytes, which is more than the {MESSAGE_MAX} that gRPC allows{}",
                self.len,
                culprit.unwrap_or_default()
            ));
        }
        let prefix = (self.len as u32).to_be_bytes();
        match self.parts.first_mut() {
            None => self.tail[1..PREFIX].copy_from_slice(&prefix),
            // What stands before the first shared memory is short.
            Some(first) => {
                let mut head = BytesMut::from(std::mem::take(first));
                head[1..PREFIX].copy_from_slice(&prefix);
                *first = head.freeze();
            }
        }
        if !self.tail.is_empty() {
            self.parts.push(self.tail.freeze());
        }
        Ok(self.parts)
    }
}

/// A tensor's message in the layout that receivers have a fast path for: type, shape unless scalar, then content, even
/// if empty.
struct EncodedTensor {
    head: Vec<u8>,
    content: Bytes,
}

impl EncodedTensor {
    fn new(tensor: &Tensor) -> EncodedTensor {
        let dims = tensor.dims().iter();
        let dim = |&size: &usize| proto::tensor_shape_proto::Dim { size: size as i64, name: String::new() };
        let shape = proto::TensorShapeProto { dim: dims.map(dim).collect(), unknown_rank: false };
        let header = proto::TensorProto {
            dtype: tensor.dtype().number(),
            tensor_shape: (!tensor.dims().is_empty()).then_some(shape),
            ..Default::default()
        };
        let content = tensor.content();
        let mut head = header.encode_to_vec();
        let mut key = [0u8; 20];
        let used = write_key(&mut key, 4, content.len());
        head.extend_from_slice(&key[..used]);
        EncodedTensor { head, content }
    }

    fn len(&self) -> usize {
        self.head.len() + self.content.len()
    }
}

/// Writes the key of a length-delimited field and its length; how many bytes that took.
fn write_key(mut out: &mut [u8], field: u32, len: usize) -> usize {
    let room = out.remaining_mut();
    let key = (field as usize) << 3 | 2;
    // Two varints take 20 bytes at most, which is what callers bring.
    let _ = prost::encode_length_delimiter(key, &mut out);
    let _ = prost::encode_length_delimiter(len, &mut out);
    room - out.remaining_mut()
}

fn key_len(field: u32, len: usize) -> usize {
    prost::length_delimiter_len((field as usize) << 3) + prost::length_delimiter_len(len)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(parts: &[&'static [u8]]) -> Pieces {
        let mut pieces = Pieces::default();
        parts.iter().for_each(|part| pieces.push(Bytes::from_static(part)));
        pieces
    }

    #[test]
    fn pieces_read_like_one_buffer() {
        let mut p = pieces(&[b"ab", b"", b"cde", b"f"]);
        assert_eq!((p.len(), p.remaining()), (6, 6));
        let mut front = p.split_to(3);
        assert_eq!(front.copy_to_bytes(3), "abc");
        assert_eq!((p.get_u8(), p.copy_to_bytes(2)), (b'd', Bytes::from_static(b"ef")));
        assert!(p.is_empty() && p.split_to(0).is_empty());
    }

    #[test]
    fn pieces_are_taken_from_the_front() {
        let mut p = pieces(&[b"ab", b"cde"]);
        assert_eq!(p.pop().unwrap(), "ab");
        assert_eq!((p.len(), p.get_u8()), (3, b'c'));
        assert_eq!((p.pop().unwrap(), p.len()), (Bytes::from_static(b"de"), 0));
        assert_eq!(p.pop(), None);
    }

    #[test]
    fn large_pieces_are_shared_and_small_ones_copied() {
        let mut many = Pieces::default();
        (0..100_000).for_each(|i| many.gather(Bytes::copy_from_slice(&[i as u8])));
        assert!(many.len() == 100_000 && many.more.len() < 50, "{}", many.more.len());
        assert!(many.contiguous().iter().enumerate().all(|(i, &b)| b == i as u8));
        let frame = Bytes::from(vec![7u8; 2 * SHARE_MIN]);
        let mut p = Pieces::from(frame.clone());
        assert_eq!(p.copy_to_bytes(SHARE_MIN).as_ptr(), frame.as_ptr());
        assert_ne!(p.copy_to_bytes(10).as_ptr(), frame[SHARE_MIN..].as_ptr());
    }

    #[test]
    fn a_tensor_is_laid_out_as_tensorflow_does() {
        // Bytes that TensorFlow sent for float [1, 2, 3], without the time stamp before it.
        let mut writer = Writer::default();
        writer.put_tensor_field(1, "t", &Tensor::from([1.0f32, 2.0, 3.0]));
        let parts = writer.finish("a test").unwrap();
        let want = b"\0\0\0\0\x18\x0a\x16\x08\x01\x12\x04\x12\x02\x08\x03\x22\x0c\0\0\x80\x3f\0\0\0\x40\0\0\x40\x40";
        assert_eq!(parts.concat(), want);
    }

    #[test]
    fn what_was_written_is_read_back() {
        let large = Tensor::from_vec([SHARE_MIN], vec![5u8; SHARE_MIN]).unwrap();
        for tensor in [Tensor::scalar(3i64), Tensor::from(["ab", ""]), Tensor::from([0f32; 0]), large] {
            let head = proto::RunStepResponse { status_error_message: "x".into(), ..Default::default() };
            let mut writer = Writer::default().message(&head);
            writer.put_named_tensor_field(1, "a:0", &tensor);
            let (len, parts) = (writer.len(), writer.finish("a test").unwrap());
            let bytes = parts.concat();
            assert_eq!(bytes[..PREFIX], [&[0][..], &(len as u32).to_be_bytes()].concat());
            let read = proto::RunStepResponse::decode(&bytes[PREFIX..]).unwrap();
            assert_eq!(read.status_error_message, "x");
            assert_eq!(read.tensor[0].name, "a:0");
            assert!(Tensor::from_proto(read.tensor[0].tensor.as_ref().unwrap()).unwrap() == tensor);
        }
    }

    #[test]
    fn the_memory_of_a_large_tensor_is_not_copied() {
        let tensor = Tensor::from_vec([1 << 20], vec![1u8; 1 << 20]).unwrap();
        let mut writer = Writer::default();
        writer.put_tensor_field(1, "t", &tensor);
        let parts = writer.finish("a test").unwrap();
        assert_eq!(parts[1].as_ptr(), tensor.as_bytes().unwrap().as_ptr());
    }

    #[test]
    fn a_message_that_is_too_long_names_its_largest_tensor() {
        let tensor = Tensor::from_filled(tensor::DType::U8, [1 << 30], |_| Ok(())).unwrap();
        let mut writer = Writer::default();
        writer.put_named_tensor_field(1, "small:0", &Tensor::scalar(1f32));
        writer.put_named_tensor_field(1, "w:0", &tensor);
        writer.put_named_tensor_field(1, "w:0", &tensor);
        let error = writer.finish("RunStep").unwrap_err();
        assert_eq!(error.code, tensor::Code::ResourceExhausted);
        assert!(error.message.contains("'w:0' takes 1073741") && error.message.contains("RunStep"), "{error}");
    }
}

//! How a tensor of strings lies in a data file: all lengths, a checksum of them, then all bytes.
//!
//! The lengths are stored as varints, but both checksums take them as integers of 4 bytes, or of 8 for a string of
//! 4 GB and more.

use bytes::{Buf, Bytes};
use crc32c::crc32c_append;
use prost::encoding::{decode_varint, encode_varint};

use crate::checksum::mask;

/// The bytes that go before the strings' own, and the stored checksum of the whole.
pub(super) fn encode(strings: &[Bytes]) -> (Vec<u8>, u32) {
    let mut front = Vec::new();
    let mut crc = 0;
    for string in strings {
        encode_varint(string.len() as u64, &mut front);
        crc = append_len(crc, string.len() as u64);
    }
    let lengths_checksum = mask(crc).to_le_bytes();
    front.extend(lengths_checksum);
    crc = crc32c_append(crc, &lengths_checksum);
    for string in strings {
        crc = crc32c_append(crc, string);
    }
    (front, mask(crc))
}

/// The strings, which share the memory of `payload`; an error says what is wrong with it.
pub(super) fn decode(mut payload: Bytes, count: usize, checksum: u32) -> Result<Vec<Bytes>, &'static str> {
    let ends = "the strings end too early";
    if count > payload.len() {
        return Err(ends);
    }
    let mut crc = 0;
    let mut lengths = Vec::with_capacity(count);
    for _ in 0..count {
        let len = decode_varint(&mut payload).map_err(|_| "a length of a string is not a number")?;
        crc = append_len(crc, len);
        lengths.push(len);
    }
    let lengths_checksum = payload.try_get_u32_le().map_err(|_| ends)?;
    if lengths_checksum != mask(crc) {
        return Err("the checksum of the strings' lengths does not match");
    }
    crc = crc32c_append(crc, &lengths_checksum.to_le_bytes());
    if mask(crc32c_append(crc, &payload)) != checksum {
        return Err("the checksum does not match");
    }
    let take = |len: u64| {
        let len = usize::try_from(len).ok().filter(|&len| len <= payload.len()).ok_or(ends)?;
        Ok(payload.split_to(len))
    };
    let strings = lengths.into_iter().map(take).collect::<Result<Vec<_>, _>>()?;
    if payload.is_empty() { Ok(strings) } else { Err("there are bytes after the last string") }
}

fn append_len(crc: u32, len: u64) -> u32 {
    match u32::try_from(len) {
        Ok(short) => crc32c_append(crc, &short.to_le_bytes()),
        Err(_) => crc32c_append(crc, &len.to_le_bytes()),
    }
}

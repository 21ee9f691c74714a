//! The checksum of every format here: CRC-32C, masked before it is stored.
//!
//! The mask keeps the checksum of data that itself contains checksums from being weak.

const MASK_DELTA: u32 = 0xa282_ead8;

/// The checksum of some bytes as it is stored.
pub(crate) fn masked(data: &[u8]) -> u32 {
    mask(crc32c::crc32c(data))
}

/// A CRC as it is stored.
pub(crate) fn mask(crc: u32) -> u32 {
    crc.rotate_right(15).wrapping_add(MASK_DELTA)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_those_of_the_published_vectors() {
        // RFC 3720, B.4.
        assert_eq!(crc32c::crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c::crc32c(&[0xff; 32]), 0x62a8_ab43);
        assert_eq!(masked(b""), MASK_DELTA);
        assert_eq!(mask(1), 0x0002_0000 + MASK_DELTA);
    }
}

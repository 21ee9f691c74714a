//! Ops on strings: join, match, hash, decode.

mod base64;
mod change;
mod decode_raw;
mod fingerprint;
mod hash_bucket;
mod join;
mod length;
mod parse_example;
mod reduce_join;
mod regex_match;
mod regex_replace;
mod split;
mod substr;
mod to_number;

use framework::Op;

pub(crate) use fingerprint::fingerprint64;
pub use join::string_join;

/// All ops of the family.
pub fn ops() -> Vec<Op> {
    [
        base64::ops(),
        change::ops(),
        decode_raw::ops(),
        hash_bucket::ops(),
        join::ops(),
        length::ops(),
        parse_example::ops(),
        reduce_join::ops(),
        regex_match::ops(),
        regex_replace::ops(),
        split::ops(),
        substr::ops(),
        to_number::ops(),
    ]
    .concat()
}

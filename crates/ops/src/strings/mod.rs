//! Ops on strings: join, match, hash, decode.

mod decode_raw;
mod fingerprint;
mod hash_bucket;
mod join;
mod length;
mod parse_example;
mod regex_match;

use framework::Op;

pub(crate) use fingerprint::fingerprint64;
pub use join::string_join;

/// All ops of the family.
pub fn ops() -> Vec<Op> {
    [join::ops(), length::ops(), regex_match::ops(), hash_bucket::ops(), decode_raw::ops(), parse_example::ops()]
        .concat()
}

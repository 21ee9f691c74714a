//! Ops that make serialized `Summary` messages, for event files and dashboards.

mod histogram;
mod image;
mod merge;
mod scalar;
mod tensor_summary;

use bytes::Bytes;
use framework::Op;
use prost::Message;
use proto::{Summary, summary};
use tensor::{Result, Tensor, invalid};

/// All ops of the family.
pub fn ops() -> Vec<Op> {
    [scalar::ops(), histogram::ops(), image::ops(), merge::ops(), tensor_summary::ops()].concat()
}

/// The scalar string that holds these values as one message.
fn serialized(value: Vec<summary::Value>) -> Tensor {
    Tensor::string(Summary { value }.encode_to_vec())
}

/// A tag as text: messages hold nothing else.
fn tag_text(tag: &Bytes) -> Result<String> {
    String::from_utf8(tag.to_vec()).map_err(|_| invalid!("the tag {:?} is not UTF-8", String::from_utf8_lossy(tag)))
}

/// The single tag of a summary.
fn single_tag(tag: &Tensor) -> Result<String> {
    if !tag.shape().is_scalar() {
        return Err(invalid!("tag must be scalar, found shape {}", tag.shape()));
    }
    tag_text(tag.string_item()?)
}

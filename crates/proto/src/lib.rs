//! TensorFlow's wire and file messages as plain Rust structs.
//!
//! Everything of the package `tensorflow` stands at the top: [`GraphDef`], [`TensorProto`], [`RunStepRequest`]; our own
//! messages are in [`ferroflow`]. All are generated from the files in `protos` by `cargo xtask codegen`; there is no logic
//! here. Byte strings are [`bytes::Bytes`], so that decoding from one shares its memory, and maps are ordered, so that the
//! same message always encodes to the same bytes.
//!
//! ```
//! use prost::Message;
//!
//! let node = proto::NodeDef { name: "x".into(), op: "Placeholder".into(), ..Default::default() };
//! let graph = proto::GraphDef { node: vec![node], ..Default::default() };
//! assert_eq!(proto::GraphDef::decode(graph.encode_to_vec().as_slice())?, graph);
//! # Ok::<(), prost::DecodeError>(())
//! ```

#[rustfmt::skip]
#[allow(missing_docs, clippy::all)]
mod generated;

pub use generated::*;

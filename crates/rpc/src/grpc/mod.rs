//! gRPC on top of HTTP/2, as far as unary calls need it: statuses, messages, time limits.

pub mod message;
pub mod status;
pub mod timeout;

use http::HeaderName;

/// What requests and responses say they are.
pub const CONTENT_TYPE: &str = "application/grpc";

/// The header by which answers, and requests to those who have given one, say that a task is of our own kind, and which
/// version it is.
pub static OUR_KIND: HeaderName = HeaderName::from_static("ferroflow");

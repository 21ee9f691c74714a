//! Tells a task of our own kind that the client of a session is gone, as far as its master can see.

use crate::channel::{Channel, Lane, Outgoing};
use crate::pieces::Writer;
use std::time::Duration;
use tensor::Result;

const PATH: &str = "/ferroflow.Tensors/LoseSession";

/// How long a task may take to hear of it.
const TIME: Duration = Duration::from_secs(10);

/// Names a session.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct LoseSessionRequest {
    #[prost(string, tag = "1")]
    pub(crate) session_handle: String,
}

/// Says that it was heard.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct LoseSessionResponse {}

/// Tells a peer of our own kind that this session's client is gone.
pub async fn tell(channel: &Channel, session: String) -> Result<()> {
    let body = Writer::default().message(&LoseSessionRequest { session_handle: session }).finish(PATH)?;
    channel.unary(Outgoing { path: PATH, body, limit: Some(TIME), lane: Lane::Control, tries: 1 }).await.map(drop)
}

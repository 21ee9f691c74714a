//! Steps that are over are forgotten together: a peer of our own kind is told of many in one call.
//!
//! Nobody waits for that, and what a step leaves behind is little; a call for each would be a good part of a small step.

use crate::channel::{Channel, Lane, Outgoing};
use crate::pieces::Writer;
use crate::runtime;
use parking_lot::Mutex;
use std::time::Duration;
use tensor::Result;

const PATH: &str = "/ferroflow.Tensors/Forget";

/// How long a step may have to wait for others to be forgotten with.
const TOGETHER: Duration = Duration::from_millis(50);

/// Names steps that are over.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ForgetRequest {
    #[prost(int64, repeated, tag = "1")]
    pub(crate) step_id: Vec<i64>,
}

/// Says that they are forgotten.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ForgetResponse {}

/// The steps that one peer is to forget.
#[derive(Default)]
pub struct EndedSteps {
    steps: Mutex<Vec<i64>>,
}

impl EndedSteps {
    /// Waits for others; the steps to tell the peer of, or none if this one goes along with those of an earlier call.
    pub async fn gather(&self, step: i64) -> Vec<i64> {
        let is_first = {
            let mut steps = self.steps.lock();
            steps.push(step);
            steps.len() == 1
        };
        if !is_first {
            return Vec::new();
        }
        runtime::sleep(TOGETHER).await;
        std::mem::take(&mut *self.steps.lock())
    }
}

/// Tells a peer of our own kind that these steps are over.
pub async fn tell(channel: &Channel, steps: &[i64]) -> Result<()> {
    let body = Writer::default().message(&ForgetRequest { step_id: steps.to_vec() }).finish(PATH)?;
    channel.unary(Outgoing { path: PATH, body, limit: None, lane: Lane::Control, tries: 1 }).await.map(drop)
}

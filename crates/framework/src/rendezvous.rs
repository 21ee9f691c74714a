//! Where the two ends of a cut edge meet.

use crate::kernel::BoxFuture;
use std::fmt;
use std::sync::Arc;
use tensor::{Error, Result, Tensor};

/// Names one value at the rendezvous of a step:
/// `src_device;incarnation in hex;dst_device;edge;frame:iteration`, byte for byte the same on both sides.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RendezvousKey(Arc<str>);

impl RendezvousKey {
    /// The key of an edge outside any loop.
    pub fn new(send_device: &str, incarnation: u64, recv_device: &str, edge: &str) -> RendezvousKey {
        RendezvousKey::in_frame(send_device, incarnation, recv_device, edge, 0, 0)
    }

    /// The key of an edge in one iteration of a loop.
    pub fn in_frame(send: &str, incarnation: u64, recv: &str, edge: &str, frame: u64, iteration: u64) -> RendezvousKey {
        RendezvousKey(format!("{send};{incarnation:016x};{recv};{edge};{frame}:{iteration}").into())
    }

    /// The key as text from outside.
    pub fn from_text(text: &str) -> RendezvousKey {
        RendezvousKey(text.into())
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RendezvousKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What is handed over: a tensor, or the news that the branch was not taken.
#[derive(Clone, Debug)]
pub enum Delivery {
    /// A value.
    Tensor(Tensor),
    /// The sender's branch was not taken.
    Dead,
}

/// The meeting place of one step.
pub trait Rendezvous: Send + Sync {
    /// Leaves a value for whoever asks; never waits.
    fn send(&self, key: &RendezvousKey, value: Delivery) -> Result<()>;
    /// Takes a value that is already there.
    fn try_recv(&self, key: &RendezvousKey) -> Option<Result<Delivery>>;
    /// Takes a value, waiting for it. Dropping the future gives up the place in the queue.
    fn recv(&self, key: &RendezvousKey) -> BoxFuture<Result<Delivery>>;
    /// Ends the step: whoever waits or comes later gets this error.
    fn abort(&self, why: Error);
}

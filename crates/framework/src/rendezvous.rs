//! Where the two ends of a cut edge meet.

use crate::device::DeviceName;
use crate::kernel::BoxFuture;
use std::fmt;
use std::sync::Arc;
use tensor::{Error, Result, Tensor, invalid};

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

    /// Job and number of the task that sends: what decides whether a value is here or must be fetched.
    pub fn source_task(&self) -> Option<(&str, u32)> {
        let (job, rest) = self.0.strip_prefix("/job:")?.split_once("/replica:0/task:")?;
        let (task, _) = rest.split_once('/')?;
        Some((job, task.parse().ok()?))
    }

    /// The parts of a key from outside, checked.
    pub fn parse(&self) -> Result<KeyParts<'_>> {
        self.try_parse().ok_or_else(|| invalid!("Invalid  rendezvous key: {self}"))
    }

    fn try_parse(&self) -> Option<KeyParts<'_>> {
        let mut parts = self.0.split(';');
        let (source, incarnation, target) = (parts.next()?, parts.next()?, parts.next()?);
        let (edge, frame) = (parts.next()?, parts.next()?);
        if parts.next().is_some() || edge.is_empty() || frame.is_empty() {
            return None;
        }
        let incarnation = u64::from_str_radix(incarnation, 16).ok()?;
        Some(KeyParts { source: source.parse().ok()?, incarnation, target: target.parse().ok()?, edge })
    }
}

/// What a key says.
#[derive(Debug)]
pub struct KeyParts<'a> {
    /// The device that sends.
    pub source: DeviceName,
    /// Its incarnation: a restarted device has another one.
    pub incarnation: u64,
    /// The device that receives.
    pub target: DeviceName,
    /// The name of the edge.
    pub edge: &'a str,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_from_outside_are_checked() {
        let (a, b) = ("/job:ps/replica:0/task:3/device:CPU:0", "/job:worker/replica:0/task:0/device:CPU:1");
        let key = RendezvousKey::new(a, 0xfeed, b, "edge_6_d");
        assert_eq!(key.as_str(), format!("{a};000000000000feed;{b};edge_6_d;0:0"));
        assert_eq!(key.source_task(), Some(("ps", 3)));
        let parts = key.parse().unwrap();
        assert_eq!((parts.source.to_string(), parts.incarnation, parts.edge), (a.to_string(), 0xfeed, "edge_6_d"));
        for wrong in
            ["", "a;b", &format!("{a};zz;{b};e;0:0"), &format!("{a};1;{b};;0:0"), &format!("{a};1;{b};e;0:0;x")]
        {
            let message = RendezvousKey::from_text(wrong).parse().unwrap_err().message;
            assert_eq!(message, format!("Invalid  rendezvous key: {wrong}"));
        }
    }
}

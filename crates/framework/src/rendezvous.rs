//! Where the two ends of a cut edge meet.

use crate::device::DeviceName;
use crate::fast;
use crate::kernel::BoxFuture;
use std::any::Any;
use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use tensor::{Error, Result, Tensor, invalid};

/// Names one value at the rendezvous of a step:
/// `src_device;incarnation in hex;dst_device;edge;frame:iteration`, byte for byte the same on both sides.
///
/// Keys are made when a graph is compiled and used in every step: what a step asks of one is worked out beforehand.
#[derive(Clone)]
pub struct RendezvousKey(Arc<Key>);

struct Key {
    text: Box<str>,
    hash: u64,
    edge_hash: u64,
    /// Where the edge's name begins, after both devices.
    edge_start: usize,
    /// The job and the number of the task that sends.
    source: Option<(Range<usize>, u32)>,
    /// Who sends, once somebody has asked.
    sender: OnceLock<Option<Sender>>,
}

impl RendezvousKey {
    /// The key of an edge outside any loop.
    pub fn new(send_device: &str, incarnation: u64, recv_device: &str, edge: &str) -> RendezvousKey {
        RendezvousKey::in_frame(send_device, incarnation, recv_device, edge, 0, 0)
    }

    /// The key of an edge in one iteration of a loop.
    pub fn in_frame(send: &str, incarnation: u64, recv: &str, edge: &str, frame: u64, iteration: u64) -> RendezvousKey {
        RendezvousKey::made(format!("{send};{incarnation:016x};{recv};{edge};{frame}:{iteration}"))
    }

    /// The key as text from outside. The same come in every step: of the last ones, each thread remembers some.
    pub fn from_text(text: &str) -> RendezvousKey {
        const PLACES: usize = 4096;
        const LEN_MAX: usize = 512;
        thread_local! {
            static KNOWN: RefCell<Vec<Option<RendezvousKey>>> = const { RefCell::new(Vec::new()) };
        }
        if text.len() > LEN_MAX {
            return RendezvousKey::made(text.to_string());
        }
        KNOWN.with_borrow_mut(|known| {
            known.resize(PLACES, None);
            let place = &mut known[fast::hash(text) as usize % PLACES];
            if let Some(key) = place.as_ref().filter(|key| key.as_str() == text) {
                return key.clone();
            }
            place.insert(RendezvousKey::made(text.to_string())).clone()
        })
    }

    fn made(text: String) -> RendezvousKey {
        let edge = text.rsplit_once(';').map_or(text.as_str(), |(edge, _)| edge);
        let (hash, edge_hash) = (fast::hash(&text), fast::hash(edge));
        let edge_start = edge.rfind(';').unwrap_or_default();
        let (source, sender) = (source_task(&text), OnceLock::new());
        RendezvousKey(Arc::new(Key { hash, edge_hash, edge_start, source, sender, text: text.into() }))
    }

    /// A number that is the same in every iteration of a loop, and in this process another for every edge, as far as one
    /// can tell.
    pub fn edge_hash(&self) -> u64 {
        self.0.edge_hash
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0.text
    }

    /// From where to where: all that precedes the edge's name.
    pub fn route(&self) -> &str {
        &self.0.text[..self.0.edge_start]
    }

    /// Job and number of the task that sends: what decides whether a value is here or must be fetched.
    pub fn source_task(&self) -> Option<(&str, u32)> {
        let (job, task) = self.0.source.as_ref()?;
        Some((&self.0.text[job.clone()], *task))
    }

    /// Who sends, according to a key from outside: looked for once, for keys come again in every step.
    pub fn sender(&self) -> Result<&Sender> {
        let sender = self.0.sender.get_or_init(|| Sender::read(self.as_str())).as_ref();
        sender.ok_or_else(|| invalid!("Invalid  rendezvous key: {self}"))
    }
}

/// Who sends what a key names.
#[derive(Debug, PartialEq)]
pub struct Sender {
    /// The device.
    pub device: DeviceName,
    /// Its incarnation: a restarted device has another one.
    pub incarnation: u64,
}

impl Sender {
    /// Of a key, if that is one in all its parts.
    fn read(key: &str) -> Option<Sender> {
        let mut parts = key.split(';');
        let (source, incarnation, target) = (parts.next()?, parts.next()?, parts.next()?);
        let (edge, frame) = (parts.next()?, parts.next()?);
        if parts.next().is_some() || edge.is_empty() || frame.is_empty() || target.parse::<DeviceName>().is_err() {
            return None;
        }
        Some(Sender { device: source.parse().ok()?, incarnation: u64::from_str_radix(incarnation, 16).ok()? })
    }
}

impl fmt::Display for RendezvousKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for RendezvousKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl PartialEq for RendezvousKey {
    fn eq(&self, other: &RendezvousKey) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0.hash == other.0.hash && self.0.text == other.0.text
    }
}

impl Eq for RendezvousKey {}

impl Hash for RendezvousKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0.hash);
    }
}

fn source_task(text: &str) -> Option<(Range<usize>, u32)> {
    const JOB: &str = "/job:";
    let (job, rest) = text.strip_prefix(JOB)?.split_once("/replica:0/task:")?;
    let (task, _) = rest.split_once('/')?;
    Some((JOB.len()..JOB.len() + job.len(), task.parse().ok()?))
}

/// Hashes keys by the hash they have.
#[derive(Clone, Copy, Debug, Default)]
pub struct ByOwnHash(u64);

impl Hasher for ByOwnHash {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(byte.into()));
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = self.0.rotate_left(7) ^ hash;
    }
}

/// A map by key.
pub type KeyMap<V> = HashMap<RendezvousKey, V, BuildHasherDefault<ByOwnHash>>;

/// What is handed over: a tensor, or the news that the branch was not taken.
#[derive(Clone, Debug)]
pub enum Delivery {
    /// A value.
    Tensor(Tensor),
    /// The sender's branch was not taken.
    Dead,
}

/// Who takes values that were asked for as a group, each by its place in the group.
pub trait Receiver: Send + Sync {
    /// Some have come, or are to be received one by one after all.
    fn receive(self: Arc<Self>, arrived: Vec<(u32, Arrived)>);
    /// None of the others will come.
    fn fail(self: Arc<Self>, why: Error);
}

/// What came of asking for a value as part of a group.
#[derive(Clone, Debug)]
pub enum Arrived {
    /// The value.
    Value(Delivery),
    /// It does not travel with others, and is to be received by itself.
    Alone,
}

/// A group that was asked for.
pub struct Asked {
    /// The places of values that were left out, and are to be received one by one.
    pub alone: Vec<u32>,
    /// To be dropped when nobody wants the others any more.
    pub interest: Box<dyn Any + Send + Sync>,
}

/// The meeting place of one step.
pub trait Rendezvous: Send + Sync {
    /// Leaves a value for whoever asks; never waits.
    fn send(&self, key: &RendezvousKey, value: Delivery) -> Result<()>;
    /// Takes a value that is already there.
    fn try_recv(&self, key: &RendezvousKey) -> Option<Result<Delivery>>;
    /// Takes a value, waiting for it. Dropping the future gives up the place in the queue.
    fn recv(&self, key: &RendezvousKey) -> BoxFuture<Result<Delivery>>;
    /// Takes values of one sender, which travel together if they can; `None` if they cannot. The receiver may hear of them
    /// before this returns.
    fn receive_group(&self, keys: &Arc<[RendezvousKey]>, receiver: Arc<dyn Receiver>) -> Result<Option<Asked>> {
        let _ = (keys, receiver);
        Ok(None)
    }
    /// A thread has done for now: what it sent need not wait any longer for what else it might have sent.
    fn flush(&self) {}
    /// Ends the step: whoever waits or comes later gets this error.
    fn abort(&self, why: Error);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_come_again_are_found() {
        let text = |i: usize| format!("/job:ps/replica:0/task:0/device:CPU:0;1;/job:worker/replica:0/task:0;{i};0:0");
        let first = RendezvousKey::from_text(&text(0));
        assert!(Arc::ptr_eq(&first.0, &RendezvousKey::from_text(&text(0)).0));
        // More than are remembered: some take the places of others.
        for i in (0..10_000).chain(0..10_000) {
            assert_eq!(RendezvousKey::from_text(&text(i)).as_str(), text(i));
        }
        assert_eq!(RendezvousKey::from_text(&text(0)), first);
        let long = "x".repeat(1000);
        assert_eq!(RendezvousKey::from_text(&long), RendezvousKey::from_text(&long));
    }

    #[test]
    fn keys_from_outside_are_checked() {
        let (a, b) = ("/job:ps/replica:0/task:3/device:CPU:0", "/job:worker/replica:0/task:0/device:CPU:1");
        let key = RendezvousKey::new(a, 0xfeed, b, "edge_6_d");
        assert_eq!(key.as_str(), format!("{a};000000000000feed;{b};edge_6_d;0:0"));
        assert_eq!(key.source_task(), Some(("ps", 3)));
        assert_eq!(key.route(), format!("{a};000000000000feed;{b}"));
        let sender = Sender { device: a.parse().unwrap(), incarnation: 0xfeed };
        assert_eq!(key.sender().unwrap(), &sender);
        for wrong in [
            "",
            "a;b",
            &format!("{a};zz;{b};e;0:0"),
            &format!("{a};1;{b};;0:0"),
            &format!("{a};1;{b};e;0:0;x"),
            &format!("{a};1;b;e;0:0"),
        ] {
            let message = RendezvousKey::from_text(wrong).sender().unwrap_err().message;
            assert_eq!(message, format!("Invalid  rendezvous key: {wrong}"));
        }
    }
}

//! What one task's part of a step sends to others, on its way there.
//!
//! Values that go to one task leave together: when all are there, when the thread that sent them has done for now, or when
//! they have become many. A part has ended when all that it sent has arrived, so that a value that gets lost is an error of
//! the part, and nobody waits for it for ever.

use crate::cluster::{Peers, TaskName};
use crate::interface::{Push, WorkerInterface};
use crate::routes::{Destination, Routes};
use framework::{Arrived, BoxFuture, Delivery, Rendezvous, RendezvousKey};
use futures_util::future::{AbortHandle, Abortable, FutureExt};
use parking_lot::Mutex;
use runtime::{LocalRendezvous, Parcel, brief};
use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use tensor::{Error, Result};

/// Values leave when there is more of them.
const TOGETHER_MAX: usize = 4 << 20;

pub(super) struct Outbox {
    routes: Arc<Routes>,
    local: LocalRendezvous,
    peers: Arc<Peers>,
    session: Arc<str>,
    step: i64,
    /// For each of the destinations.
    heaps: Vec<Mutex<Heap>>,
    /// How many values are in heaps, so that who flushes need not look.
    num_kept: AtomicUsize,
    under_way: Mutex<UnderWay>,
}

/// What is to leave for one task.
#[derive(Default)]
struct Heap {
    mode: Mode,
    values: Vec<(u32, Arrived)>,
    bytes: usize,
    /// How many have been sent.
    count: usize,
    peer: Option<Arc<dyn WorkerInterface>>,
}

#[derive(Clone, Copy, Default, PartialEq)]
enum Mode {
    /// Values leave when it is time.
    #[default]
    Leaving,
    /// They wait where everything does that is sent: they may yet go along with a call.
    Held,
    /// They are fetched by others.
    Fetched,
}

/// What has left and is not known to have arrived.
#[derive(Default)]
struct UnderWay {
    /// Each call with its destination, or nothing once it has ended.
    calls: SmallVec<[Option<(u32, AbortHandle)>; 4]>,
    /// Whether something may yet be let go of.
    is_held: bool,
    failed: Option<Error>,
    waker: Option<Waker>,
}

impl UnderWay {
    fn is_empty(&self) -> bool {
        !self.is_held && self.destinations().next().is_none()
    }

    fn destinations(&self) -> impl Iterator<Item = u32> {
        self.calls.iter().flatten().map(|(index, _)| *index)
    }
}

/// What leaves at a time.
struct Taken {
    values: Vec<(u32, Arrived)>,
    peer: Arc<dyn WorkerInterface>,
}

impl Heap {
    /// Takes what is there.
    fn take(&mut self, num_kept: &AtomicUsize) -> Option<Taken> {
        if self.values.is_empty() {
            return None;
        }
        let values = std::mem::take(&mut self.values);
        self.bytes = 0;
        num_kept.fetch_sub(values.len(), Ordering::Relaxed);
        Some(Taken { values, peer: self.peer.clone()? })
    }
}

impl Outbox {
    /// For one step. What goes to one of the tasks may be fetched by its answer; what goes to all may be held until
    /// [`let_go`](Outbox::let_go).
    pub(super) fn new(
        routes: Arc<Routes>,
        local: LocalRendezvous,
        peers: Arc<Peers>,
        (session, step): (Arc<str>, i64),
        fetched_by: Option<&TaskName>,
        is_held: bool,
    ) -> Outbox {
        let heap = |to: &Destination| {
            let mode = match is_held {
                _ if fetched_by == Some(&to.task) => Mode::Fetched,
                true => Mode::Held,
                false => Mode::Leaving,
            };
            Mutex::new(Heap { mode, ..Heap::default() })
        };
        let heaps = routes.destinations.iter().map(heap).collect();
        let under_way = Mutex::new(UnderWay { is_held, ..UnderWay::default() });
        Outbox { routes, local, peers, session, step, heaps, num_kept: AtomicUsize::new(0), under_way }
    }

    /// Sends a value: to another task's mailbox, or to who asks for it here.
    pub(super) fn send(self: &Arc<Outbox>, key: &RendezvousKey, value: Delivery) -> Result<()> {
        let Some(&(index, place)) = self.routes.sends.get(key) else { return self.local.send(key, value) };
        let mut heap = self.heaps[index as usize].lock();
        heap.count += 1;
        if heap.mode != Mode::Leaving {
            return self.local.send(key, value);
        }
        self.put(index, &mut heap, key, place, value)?;
        if heap.count == self.routes.destinations[index as usize].list.keys.len() || heap.bytes > TOGETHER_MAX {
            self.leave(index, heap.take(&self.num_kept));
        }
        Ok(())
    }

    fn put(&self, index: u32, heap: &mut Heap, key: &RendezvousKey, place: u32, value: Delivery) -> Result<()> {
        let peer = match &heap.peer {
            Some(peer) => peer,
            None => heap.peer.insert(self.peers.worker(&self.routes.destinations[index as usize].task)?),
        };
        let bytes = match &value {
            Delivery::Dead => Some(0),
            Delivery::Tensor(tensor) if tensor.dtype().is_plain() => Some(tensor.num_bytes()),
            Delivery::Tensor(_) => None,
        };
        let arrived = match bytes.filter(|bytes| *bytes <= peer.push_bytes_max()) {
            Some(bytes) => {
                heap.bytes += bytes;
                Arrived::Value(value)
            }
            None => {
                self.local.send(key, value)?;
                Arrived::Alone
            }
        };
        heap.values.push((place, arrived));
        self.num_kept.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// What is held may leave from now on.
    pub(super) fn let_go(self: &Arc<Outbox>) -> Result<()> {
        for (index, to) in (0..).zip(&self.routes.destinations) {
            let mut heap = self.heaps[index as usize].lock();
            if heap.mode != Mode::Held {
                continue;
            }
            heap.mode = Mode::Leaving;
            for (place, value) in self.local.take_present(&to.list.keys)? {
                self.put(index, &mut heap, &to.list.keys[place as usize], place, value)?;
            }
            self.leave(index, heap.take(&self.num_kept));
        }
        let waker = {
            let mut under_way = self.under_way.lock();
            under_way.is_held = false;
            under_way.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
        Ok(())
    }

    /// Lets everything leave that is there.
    pub(super) fn flush(self: &Arc<Outbox>) {
        if self.num_kept.load(Ordering::Relaxed) == 0 {
            return;
        }
        for (index, heap) in (0..).zip(&self.heaps) {
            let taken = heap.lock().take(&self.num_kept);
            self.leave(index, taken);
        }
    }

    fn leave(self: &Arc<Outbox>, index: u32, taken: Option<Taken>) {
        let Some(Taken { values, peer }) = taken else { return };
        let (handle, registration) = AbortHandle::new_pair();
        let number = {
            let mut under_way = self.under_way.lock();
            under_way.calls.push(Some((index, handle)));
            under_way.calls.len() - 1
        };
        let this = self.clone();
        let call = async move {
            let parcel = Parcel { list: this.routes.destinations[index as usize].list.name, values };
            let push = Push { session: this.session.to_string(), step: this.step, parcel };
            let outcome = peer.push(push).await;
            this.arrived(number, outcome);
        };
        let mut call: BoxFuture<()> = Box::pin(Abortable::new(call, registration).map(drop));
        // A network thread sends it along with whatever else it sends, if it can be sent at once.
        if !brief::is_brief() || call.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
            self.peers.network().spawn(call);
        }
    }

    fn arrived(&self, number: usize, outcome: Result<()>) {
        let waker = {
            let mut under_way = self.under_way.lock();
            if let Some(call) = under_way.calls.get_mut(number) {
                *call = None; // unless all have been cancelled
            }
            let is_first_failure = outcome.is_err() && under_way.failed.is_none();
            if let Err(e) = outcome {
                under_way.failed.get_or_insert(e);
            }
            if is_first_failure || under_way.is_empty() { under_way.waker.take() } else { None }
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Ready when all that has left has arrived, or something has not.
    pub(super) fn poll_arrived(&self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let mut under_way = self.under_way.lock();
        if let Some(e) = &under_way.failed {
            return Poll::Ready(Err(e.clone()));
        }
        if under_way.is_empty() {
            return Poll::Ready(Ok(()));
        }
        match &mut under_way.waker {
            Some(known) => known.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
        Poll::Pending
    }

    /// What has not arrived, in words.
    pub(super) fn waiting(&self) -> Vec<String> {
        let words = |index| format!("{} to take what was sent to it", self.routes.destinations[index as usize].task);
        self.under_way.lock().destinations().map(words).collect()
    }

    /// Nobody wants it to arrive any more.
    pub(super) fn cancel(&self) {
        let calls = std::mem::take(&mut self.under_way.lock().calls);
        calls.iter().flatten().for_each(|(_, call)| call.abort());
    }
}

//! What one task's part of a step sends to others, on its way there.
//!
//! Values that go to one task leave together: when all are there, when the thread that sent them has done for now and the
//! part has not ended, or when they have become many. What goes to the master's own task is brought by the part's answer, if
//! the part has ended before it had to leave: that of a ps whose variables are read, or looked up. A part has ended when all
//! that it sent has arrived, so that a value that gets lost is an error of the part, and nobody waits for it for ever.

use crate::cluster::{Peers, TaskName};
use crate::interface::Push;
use crate::routes::{Destination, Routes};
use framework::{Arrived, BoxFuture, Delivery, Rendezvous, RendezvousKey};
use futures_util::future::{AbortHandle, AbortRegistration, Abortable, FutureExt};
use parking_lot::Mutex;
use runtime::{KeyList, LocalRendezvous, Parcel, brief};
use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use tensor::{Error, Result};

/// Values leave when there is more of them.
const TOGETHER_MAX: usize = 4 << 20;
/// What is larger is not small, and does not stand in an answer itself.
const SMALL_MAX: usize = 64 << 10;

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
    values: Vec<(u32, Delivery)>,
    bytes: usize,
    /// How many have been sent.
    count: usize,
}

#[derive(Clone, Copy, Default, PartialEq)]
enum Mode {
    /// Values leave when it is time.
    #[default]
    Leaving,
    /// They wait where everything does that is sent: they may yet go along with a call.
    Held,
    /// They leave when the part has to wait, and are brought by its answer otherwise.
    Brought,
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

/// What leaves at a time, and the number of the call that carries it.
struct Taken {
    values: Vec<(u32, Delivery)>,
    number: usize,
    registration: AbortRegistration,
}

impl Outbox {
    /// For one step. What goes to one of the tasks may be brought by the part's answer; what goes to all may be held until
    /// [`let_go`](Outbox::let_go).
    pub(super) fn new(
        routes: Arc<Routes>,
        local: LocalRendezvous,
        peers: Arc<Peers>,
        (session, step): (Arc<str>, i64),
        brought_to: Option<&TaskName>,
        is_held: bool,
    ) -> Outbox {
        let heap = |to: &Destination| {
            let mode = match is_held {
                _ if brought_to == Some(&to.task) => Mode::Brought,
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
        if heap.mode == Mode::Held {
            return self.local.send(key, value);
        }
        self.put(&mut heap, place, value);
        let is_complete = heap.count == self.routes.destinations[index as usize].list.keys.len();
        if heap.mode == Mode::Leaving && (is_complete || heap.bytes > TOGETHER_MAX) {
            let taken = self.take(index, &mut heap);
            drop(heap);
            self.leave(index, taken)?;
        }
        Ok(())
    }

    fn put(&self, heap: &mut Heap, place: u32, value: Delivery) {
        if let Delivery::Tensor(tensor) = &value {
            heap.bytes += tensor.num_bytes();
        }
        heap.values.push((place, value));
        self.num_kept.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes what is there. It counts as under way from here on.
    fn take(&self, index: u32, heap: &mut Heap) -> Option<Taken> {
        if heap.values.is_empty() {
            return None;
        }
        let (handle, registration) = AbortHandle::new_pair();
        let number = {
            let mut under_way = self.under_way.lock();
            under_way.calls.push(Some((index, handle)));
            under_way.calls.len() - 1
        };
        Some(Taken { values: self.empty(heap), number, registration })
    }

    fn empty(&self, heap: &mut Heap) -> Vec<(u32, Delivery)> {
        heap.bytes = 0;
        let values = std::mem::take(&mut heap.values);
        // Who finds that nothing is kept sees what has become of it.
        self.num_kept.fetch_sub(values.len(), Ordering::Release);
        values
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
                self.put(&mut heap, place, value);
            }
            let taken = self.take(index, &mut heap);
            drop(heap);
            self.leave(index, taken)?;
        }
        self.change(|under_way| {
            under_way.is_held = false;
            true
        });
        Ok(())
    }

    /// Lets everything leave that is there.
    pub(super) fn flush(self: &Arc<Outbox>) {
        self.flush_but(None);
    }

    /// Lets everything leave but for what is brought, now that the part has ended.
    pub(super) fn flush_at_end(self: &Arc<Outbox>) {
        self.flush_but(Some(Mode::Brought));
    }

    fn flush_but(self: &Arc<Outbox>, kept: Option<Mode>) {
        if self.num_kept.load(Ordering::Acquire) == 0 {
            return;
        }
        for (index, heap) in (0..).zip(&self.heaps) {
            let mut heap = heap.lock();
            if Some(heap.mode) == kept {
                continue;
            }
            let taken = self.take(index, &mut heap);
            drop(heap);
            if let Err(e) = self.leave(index, taken) {
                self.fail(e);
            }
        }
    }

    /// Takes what the part's answer brings: what is small, and of the rest so many bytes.
    pub(super) fn bring(&self, large_max: usize) -> Result<Vec<(u32, Arrived)>> {
        let mut brought = Vec::new();
        for (heap, to) in self.heaps.iter().zip(&self.routes.destinations) {
            let mut heap = heap.lock();
            if heap.mode == Mode::Brought {
                brought = self.fit(&to.list, self.empty(&mut heap), SMALL_MAX, large_max)?;
            }
        }
        Ok(brought)
    }

    /// Leaves here, to be asked for, what is larger than it may be, or too much together.
    fn fit(
        &self,
        list: &KeyList,
        values: Vec<(u32, Delivery)>,
        small_max: usize,
        mut large_max: usize,
    ) -> Result<Vec<(u32, Arrived)>> {
        let mut fitted = Vec::with_capacity(values.len());
        for (place, value) in values {
            let bytes = match &value {
                Delivery::Dead => Some(0),
                Delivery::Tensor(tensor) if tensor.dtype().is_plain() => Some(tensor.num_bytes()),
                Delivery::Tensor(_) => None,
            };
            let fits = bytes.is_some_and(|bytes| match bytes <= small_max {
                true => true,
                false => large_max.checked_sub(bytes).map(|left| large_max = left).is_some(),
            });
            let arrived = match fits {
                true => Arrived::Value(value),
                false => {
                    self.local.send(&list.keys[place as usize], value)?;
                    Arrived::Alone
                }
            };
            fitted.push((place, arrived));
        }
        Ok(fitted)
    }

    fn leave(self: &Arc<Outbox>, index: u32, taken: Option<Taken>) -> Result<()> {
        let Some(Taken { values, number, registration }) = taken else { return Ok(()) };
        let Destination { task, list } = &self.routes.destinations[index as usize];
        let peer = self.peers.worker(task)?;
        let values = self.fit(list, values, peer.push_bytes_max(), 0)?;
        let (this, parcel) = (self.clone(), Parcel { list: list.name, values });
        let call = async move {
            let push = Push { session: this.session.to_string(), step: this.step, parcel };
            let outcome = peer.push(push).await;
            this.arrived(number, outcome);
        };
        let mut call: BoxFuture<()> = Box::pin(Abortable::new(call, registration).map(drop));
        // A network thread sends it along with whatever else it sends, if it can be sent at once.
        if !brief::is_brief() || call.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
            self.peers.network().spawn(call);
        }
        Ok(())
    }

    fn fail(&self, why: Error) {
        self.change(|under_way| {
            under_way.failed.get_or_insert(why);
            true
        });
    }

    fn arrived(&self, number: usize, outcome: Result<()>) {
        if let Err(e) = outcome {
            self.fail(e);
        }
        self.change(|under_way| {
            if let Some(call) = under_way.calls.get_mut(number) {
                *call = None; // unless all have been cancelled
            }
            under_way.is_empty()
        });
    }

    /// Changes what is under way, and wakes who waits for it if the change says so.
    fn change(&self, change: impl FnOnce(&mut UnderWay) -> bool) {
        let waker = {
            let mut under_way = self.under_way.lock();
            if change(&mut under_way) { under_way.waker.take() } else { None }
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

//! The meeting place of a step within one process, and the table of steps.

use crate::mailbox::{Mailbox, Parcel, Places};
use framework::rendezvous::KeyMap;
use framework::{BoxFuture, Delivery, FastMap, Rendezvous, RendezvousKey};
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use tensor::{Error, Result, Tensor, exhausted};

/// Values left for whoever asks, and those who ask before there is a value.
#[derive(Clone, Default)]
pub struct LocalRendezvous {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    table: KeyMap<Meeting>,
    aborted: Option<Error>,
    next_waiter: u64,
}

#[derive(Default)]
struct Meeting {
    values: SmallVec<[Delivery; 1]>,
    waiters: SmallVec<[(u64, Waker); 1]>,
}

impl Meeting {
    fn take(&mut self) -> Option<Delivery> {
        (!self.values.is_empty()).then(|| self.values.remove(0))
    }
}

impl State {
    /// Takes a value that is there; an aborted step has none.
    fn take(&mut self, key: &RendezvousKey) -> Option<Result<Delivery>> {
        if let Some(why) = &self.aborted {
            return Some(Err(why.clone().into_derived()));
        }
        let meeting = self.table.get_mut(key)?;
        let value = meeting.take()?;
        if meeting.values.is_empty() && meeting.waiters.is_empty() {
            self.table.remove(key);
        }
        Some(Ok(value))
    }

    fn waiter_id(&mut self, known: &mut Option<u64>) -> u64 {
        *known.get_or_insert_with(|| {
            self.next_waiter += 1;
            self.next_waiter
        })
    }

    fn set_waiter(&mut self, key: &RendezvousKey, id: u64, waker: &Waker) {
        let waiters = &mut self.table.entry(key.clone()).or_default().waiters;
        match waiters.iter_mut().find(|(w, _)| *w == id) {
            Some((_, known)) => known.clone_from(waker),
            None => waiters.push((id, waker.clone())),
        }
    }
}

impl LocalRendezvous {
    /// An empty meeting place.
    pub fn new() -> LocalRendezvous {
        LocalRendezvous::default()
    }

    /// Takes what is there of several small values.
    pub fn take_small(&self, keys: &[RendezvousKey]) -> Result<Found> {
        self.state.lock().take_small(keys)
    }

    /// Takes tensors of plain types that are there and that nobody waits for, as long as they come to no more than this
    /// many bytes, by their places.
    pub fn take_tensors(&self, keys: &[RendezvousKey], mut bytes: usize) -> Vec<(u32, Tensor)> {
        let mut state = self.state.lock();
        let mut taken = Vec::new();
        for (place, key) in (0..).zip(keys) {
            let size = match state.table.get(key) {
                Some(Meeting { values, waiters }) if waiters.is_empty() => match values.first() {
                    Some(Delivery::Tensor(tensor)) if tensor.dtype().is_plain() => Some(tensor.num_bytes()),
                    _ => None,
                },
                _ => None,
            };
            if let Some(left) = size.and_then(|size| bytes.checked_sub(size))
                && let Some(Ok(Delivery::Tensor(tensor))) = state.take(key)
            {
                bytes = left;
                taken.push((place, tensor));
            }
        }
        taken
    }

    /// Takes what is there of several values, by their places.
    pub fn take_present(&self, keys: &[RendezvousKey]) -> Result<Vec<(u32, Delivery)>> {
        let mut state = self.state.lock();
        let present = (0..).zip(keys).filter_map(|(place, key)| Some(state.take(key)?.map(|value| (place, value))));
        present.collect()
    }

    /// Whether nobody else holds on to this place, and so nobody can come any more.
    fn is_left(&mut self) -> bool {
        Arc::get_mut(&mut self.state).is_some()
    }

    /// The keys somebody waits for, for reports on what a step waits for.
    pub fn awaited(&self) -> Vec<RendezvousKey> {
        let state = self.state.lock();
        state.table.iter().filter(|(_, m)| !m.waiters.is_empty()).map(|(k, _)| k.clone()).collect()
    }
}

impl Rendezvous for LocalRendezvous {
    fn send(&self, key: &RendezvousKey, value: Delivery) -> Result<()> {
        let waker = {
            let mut state = self.state.lock();
            if let Some(why) = &state.aborted {
                return Err(why.clone().into_derived());
            }
            let meeting = state.table.entry(key.clone()).or_default();
            meeting.values.push(value);
            meeting.waiters.first().map(|(_, waker)| waker.clone())
        };
        if let Some(waker) = waker {
            waker.wake();
        }
        Ok(())
    }

    fn try_recv(&self, key: &RendezvousKey) -> Option<Result<Delivery>> {
        self.state.lock().take(key)
    }

    fn recv(&self, key: &RendezvousKey) -> BoxFuture<Result<Delivery>> {
        Box::pin(Recv { state: self.state.clone(), key: key.clone(), waiter: None })
    }

    fn abort(&self, why: Error) {
        let wakers: Vec<Waker> = {
            let mut state = self.state.lock();
            if state.aborted.is_some() {
                return;
            }
            state.aborted = Some(why);
            let table = std::mem::take(&mut state.table);
            table.into_values().flat_map(|m| m.waiters).map(|(_, waker)| waker).collect()
        };
        wakers.into_iter().for_each(Waker::wake);
    }
}

/// Waits for one value; leaves the queue when dropped.
struct Recv {
    state: Arc<Mutex<State>>,
    key: RendezvousKey,
    waiter: Option<u64>,
}

impl Future for Recv {
    type Output = Result<Delivery>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<Delivery>> {
        let this = &mut *self;
        let mut state = this.state.lock();
        if let Some(found) = state.take(&this.key) {
            return Poll::Ready(found);
        }
        let id = state.waiter_id(&mut this.waiter);
        state.set_waiter(&this.key, id, cx.waker());
        Poll::Pending
    }
}

impl Drop for Recv {
    fn drop(&mut self) {
        let Some(id) = self.waiter else { return };
        let next = remove_waiter(&mut self.state.lock(), &self.key, id);
        if let Some(waker) = next {
            waker.wake();
        }
    }
}

/// Takes a waiter from its queue. If a value that woke it is still there, the next one must hear of it.
fn remove_waiter(state: &mut State, key: &RendezvousKey, id: u64) -> Option<Waker> {
    let meeting = state.table.get_mut(key)?;
    meeting.waiters.retain(|(w, _)| *w != id);
    if !meeting.values.is_empty() {
        return meeting.waiters.first().map(|(_, waker)| waker.clone());
    }
    if meeting.waiters.is_empty() {
        state.table.remove(key);
    }
    None
}

/// What is there of several values, by their places among the keys asked for.
#[derive(Debug, Default)]
pub struct Found {
    /// Small values, taken.
    pub values: Vec<(u32, Delivery)>,
    /// Those that are not small, and were left where they are.
    pub large: Vec<u32>,
}

/// A larger value is not small.
const SMALL_MAX: usize = 64 << 10;
/// Small values are taken until they come to this much.
const TOGETHER_MAX: usize = 1 << 20;

impl State {
    /// Takes what is there and small.
    fn take_small(&mut self, keys: &[RendezvousKey]) -> Result<Found> {
        if let Some(why) = &self.aborted {
            return Err(why.clone().into_derived());
        }
        let mut found = Found::default();
        let mut bytes = 0;
        for (place, key) in (0..).zip(keys) {
            if bytes > TOGETHER_MAX {
                break;
            }
            let Some(meeting) = self.table.get_mut(key) else { continue };
            match meeting.values.first().map(small_bytes) {
                None => {}
                Some(None) => found.large.push(place),
                Some(Some(size)) => {
                    bytes += size;
                    found.values.extend(meeting.take().map(|value| (place, value)));
                    if meeting.values.is_empty() && meeting.waiters.is_empty() {
                        self.table.remove(key);
                    }
                }
            }
        }
        Ok(found)
    }
}

/// How many bytes a value has, if it is small.
fn small_bytes(value: &Delivery) -> Option<usize> {
    match value {
        Delivery::Dead => Some(0),
        Delivery::Tensor(tensor) if tensor.dtype().is_plain() => Some(tensor.num_bytes()).filter(|&n| n <= SMALL_MAX),
        Delivery::Tensor(_) => None,
    }
}

/// Waits for any of several values; leaves the queues when dropped.
struct RecvSmall<'k> {
    state: Arc<Mutex<State>>,
    keys: &'k [RendezvousKey],
    waiter: Option<u64>,
}

impl Future for RecvSmall<'_> {
    type Output = Result<Found>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<Found>> {
        let this = &mut *self;
        let mut state = this.state.lock();
        let found = state.take_small(this.keys)?;
        if !found.values.is_empty() || !found.large.is_empty() {
            return Poll::Ready(Ok(found));
        }
        let id = state.waiter_id(&mut this.waiter);
        this.keys.iter().for_each(|key| state.set_waiter(key, id, cx.waker()));
        Poll::Pending
    }
}

impl Drop for RecvSmall<'_> {
    fn drop(&mut self) {
        let Some(id) = self.waiter else { return };
        let mut state = self.state.lock();
        let next: Vec<Waker> = self.keys.iter().filter_map(|key| remove_waiter(&mut state, key, id)).collect();
        drop(state);
        next.into_iter().for_each(Waker::wake);
    }
}

/// The meeting places of all steps of a task. Whoever comes first, a step or a peer asking for its values, makes the
/// place.
#[derive(Default)]
pub struct StepTable {
    state: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    steps: FastMap<i64, Entry>,
    /// Steps that ended lately: a peer that asks for their values asks in vain.
    ended: VecDeque<i64>,
    /// What all parcels take that came before their steps.
    early_bytes: usize,
}

#[derive(Default)]
struct Entry {
    rendezvous: LocalRendezvous,
    /// The session whose step this is, once the step has started here or a parcel has come for it.
    session: Option<Arc<str>>,
    /// Where parcels go, once the step has started here.
    mailbox: Option<Arc<Mailbox>>,
    /// What came before.
    early: Vec<Parcel>,
}

impl Table {
    fn take(&mut self, step: i64) -> Option<Entry> {
        if self.ended.len() == ENDED_MAX {
            self.ended.pop_front();
        }
        self.ended.push_back(step);
        let entry = self.steps.remove(&step);
        self.early_bytes -= entry.iter().flat_map(|entry| &entry.early).map(Parcel::num_bytes).sum::<usize>();
        entry
    }

    /// The entry of a step that has not ended; `what` is asked for there, or comes.
    fn meet(&mut self, step: i64, what: &dyn Fn() -> String) -> Result<&mut Entry> {
        if !self.steps.contains_key(&step) && self.ended.contains(&step) {
            return Err(tensor::aborted!("Step {step} has ended, {}", what()).into_derived());
        }
        Ok(self.steps.entry(step).or_default())
    }
}

/// How many ended steps are remembered.
const ENDED_MAX: usize = 1024;
/// How much may come for steps that have not started: they are about to, or their master is gone.
const EARLY_BYTES_MAX: usize = 1 << 30;

impl StepTable {
    /// The meeting place of a step that starts here.
    pub fn start(&self, step: i64, session: &Arc<str>) -> LocalRendezvous {
        let mut table = self.state.lock();
        let entry = table.steps.entry(step).or_default();
        if entry.session.is_none() {
            entry.session = Some(session.clone());
        }
        entry.rendezvous.clone()
    }

    /// Where parcels go that come for a step that has started; those that have come before are there.
    pub fn open_mailbox(&self, step: i64, places: &Arc<Places>) -> Result<Arc<Mailbox>> {
        let (mailbox, early) = {
            let mut table = self.state.lock();
            let entry = table.steps.entry(step).or_default();
            let mailbox = entry.mailbox.get_or_insert_with(|| Mailbox::new(places.clone())).clone();
            let early = std::mem::take(&mut entry.early);
            table.early_bytes -= early.iter().map(Parcel::num_bytes).sum::<usize>();
            (mailbox, early)
        };
        early.into_iter().try_for_each(|parcel| mailbox.open(parcel))?;
        Ok(mailbox)
    }

    /// Takes in values that a peer sends for a step of this session, which may be yet to start.
    pub fn deliver(&self, step: i64, session: &Arc<str>, parcel: Parcel) -> Result<()> {
        let mailbox = {
            let mut table = self.state.lock();
            let Some(mailbox) = table.steps.get(&step).and_then(|entry| entry.mailbox.clone()) else {
                let bytes = table.early_bytes + parcel.num_bytes();
                if bytes > EARLY_BYTES_MAX {
                    return Err(exhausted!(
                        "more than {} MB have come for steps that have not started here; is their master gone?",
                        EARLY_BYTES_MAX >> 20
                    ));
                }
                let entry = table.meet(step, &|| "nobody takes what is sent to it any more".into())?;
                entry.session.get_or_insert_with(|| session.clone());
                entry.early.push(parcel);
                table.early_bytes = bytes;
                return Ok(());
            };
            mailbox
        };
        mailbox.open(parcel)
    }

    /// The meeting place of a step that has one.
    pub fn find(&self, step: i64) -> Option<LocalRendezvous> {
        self.state.lock().steps.get(&step).map(|entry| entry.rendezvous.clone())
    }

    /// Takes a value of a step for a peer, waiting for it; the step may be yet to start.
    pub async fn recv(&self, step: i64, key: &RendezvousKey) -> Result<Delivery> {
        let rendezvous = self.meet(step, key)?;
        let _forget = ForgetIfIdle { table: self, step };
        rendezvous.recv(key).await
    }

    /// Takes what is there of several small values for a peer, waiting for the first; the step may be yet to start.
    pub async fn recv_small(&self, step: i64, keys: &[RendezvousKey]) -> Result<Found> {
        let Some(first) = keys.first() else { return Ok(Found::default()) };
        let rendezvous = self.meet(step, first)?;
        let _forget = ForgetIfIdle { table: self, step };
        RecvSmall { state: rendezvous.state.clone(), keys, waiter: None }.await
    }

    /// The meeting place where a peer asks for a value.
    fn meet(&self, step: i64, key: &RendezvousKey) -> Result<LocalRendezvous> {
        let mut table = self.state.lock();
        Ok(table.meet(step, &|| format!("nobody sends {key} any more"))?.rendezvous.clone())
    }

    /// Forgets a step; whoever still waits there is told.
    pub fn remove(&self, step: i64) {
        let removed = self.state.lock().take(step);
        if let Some(mut entry) = removed
            && !entry.rendezvous.is_left()
        {
            entry.rendezvous.abort(tensor::aborted!("Cleanup {step}"));
        }
    }

    /// Forgets the steps of a session.
    pub fn remove_session(&self, session: &str) {
        let is_of = |e: &Entry| e.session.as_deref() == Some(session);
        let steps: Vec<i64> = self.state.lock().steps.iter().filter(|(_, e)| is_of(e)).map(|(step, _)| *step).collect();
        steps.into_iter().for_each(|step| self.remove(step));
    }

    /// The steps that have a meeting place.
    pub fn steps(&self) -> Vec<i64> {
        self.state.lock().steps.keys().copied().collect()
    }
}

/// A peer that gave up waiting for a step that never started leaves nothing behind.
struct ForgetIfIdle<'a> {
    table: &'a StepTable,
    step: i64,
}

impl Drop for ForgetIfIdle<'_> {
    fn drop(&mut self) {
        let mut table = self.table.state.lock();
        let is_idle = |e: &Entry| e.session.is_none() && e.rendezvous.state.lock().table.is_empty();
        if table.steps.get(&self.step).is_some_and(is_idle) {
            table.steps.remove(&self.step);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block_on;
    use crate::mailbox::KeyList;
    use framework::Arrived;
    use tensor::Tensor;

    fn key(name: &str) -> RendezvousKey {
        RendezvousKey::new("/a", 1, "/b", name)
    }

    #[test]
    fn values_wait_for_receivers_and_receivers_for_values() {
        let rendezvous = LocalRendezvous::new();
        rendezvous.send(&key("x"), Delivery::Tensor(Tensor::scalar(1i32))).unwrap();
        assert!(matches!(rendezvous.try_recv(&key("x")), Some(Ok(Delivery::Tensor(_)))));
        assert!(rendezvous.try_recv(&key("x")).is_none(), "a value is taken once");
        let waiting = rendezvous.recv(&key("y"));
        let sender = rendezvous.clone();
        let thread = std::thread::spawn(move || sender.send(&key("y"), Delivery::Dead));
        assert!(matches!(block_on(waiting, None).unwrap().unwrap(), Delivery::Dead));
        thread.join().unwrap().unwrap();
    }

    #[test]
    fn a_receiver_that_gave_up_takes_nothing() {
        let rendezvous = LocalRendezvous::new();
        let mut gone = rendezvous.recv(&key("x"));
        assert!(gone.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        assert_eq!(rendezvous.awaited(), vec![key("x")]);
        drop(gone);
        assert!(rendezvous.awaited().is_empty());
        rendezvous.send(&key("x"), Delivery::Dead).unwrap();
        assert!(rendezvous.try_recv(&key("x")).is_some());
    }

    #[test]
    fn an_abort_reaches_all() {
        let table = StepTable::default();
        let rendezvous = table.start(7, &"session".into());
        let waiting = rendezvous.recv(&key("x"));
        table.remove(7);
        assert_eq!(block_on(waiting, None).unwrap().unwrap_err().code, tensor::Code::Aborted);
        assert!(rendezvous.send(&key("x"), Delivery::Dead).is_err());
        let late = block_on(table.recv(7, &key("x")), None).unwrap().unwrap_err();
        assert_eq!(late.code, tensor::Code::Aborted, "nobody waits for a step that has ended");
    }

    #[test]
    fn small_values_are_taken_together_and_large_ones_left() {
        let table = StepTable::default();
        let rendezvous = table.start(7, &"session".into());
        let keys: Vec<RendezvousKey> = ["a", "b", "c", "d", "e"].iter().map(|name| key(name)).collect();
        let mut waiting = Box::pin(table.recv_small(7, &keys));
        assert!(waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        rendezvous.send(&keys[1], Delivery::Tensor(Tensor::scalar(1i32))).unwrap();
        rendezvous.send(&keys[2], Delivery::Dead).unwrap();
        rendezvous.send(&keys[3], Delivery::Tensor(Tensor::from(vec![0u8; SMALL_MAX + 1]))).unwrap();
        rendezvous.send(&keys[4], Delivery::Tensor(Tensor::from(["text"]))).unwrap();
        let found = block_on(waiting, None).unwrap().unwrap();
        let places: Vec<u32> = found.values.iter().map(|(place, _)| *place).collect();
        assert_eq!((places, found.large), (vec![1, 2], vec![3, 4]));
        assert!(rendezvous.awaited().is_empty(), "it leaves the queues");
        assert!(rendezvous.try_recv(&keys[1]).is_none() && rendezvous.try_recv(&keys[3]).is_some());
        let waiting = table.recv_small(7, &keys);
        rendezvous.abort(tensor::cancelled!("over"));
        assert_eq!(block_on(waiting, None).unwrap().unwrap_err().code, tensor::Code::Cancelled);
    }

    #[test]
    fn what_travels_together_has_a_limit() {
        let table = StepTable::default();
        let rendezvous = table.start(7, &"session".into());
        let keys: Vec<RendezvousKey> = (0..40).map(|i| key(&i.to_string())).collect();
        for key in &keys {
            rendezvous.send(key, Delivery::Tensor(Tensor::from(vec![0u8; SMALL_MAX]))).unwrap();
        }
        let mut sizes = Vec::new();
        while sizes.iter().sum::<usize>() < keys.len() {
            let left = &keys[sizes.iter().sum()..];
            sizes.push(block_on(table.recv_small(7, left), None).unwrap().unwrap().values.len());
        }
        assert_eq!(sizes, [17, 17, 6]);
    }

    #[test]
    fn parcels_wait_for_their_step_and_end_with_it() {
        let (table, session) = (StepTable::default(), "session".into());
        let list = KeyList::new(vec![key("x"), key("y")]);
        let places = Arc::new(Places::new([&list]));
        let parcel = |place| {
            let value = Arrived::Value(Delivery::Tensor(Tensor::from([1f32; 4])));
            Parcel { list: list.name, values: vec![(place, value)] }
        };
        table.deliver(7, &session, parcel(0)).unwrap();
        table.deliver(8, &session, parcel(0)).unwrap();
        assert_eq!(table.state.lock().early_bytes, 32);
        table.start(7, &session);
        let mailbox = table.open_mailbox(7, &places).unwrap();
        table.deliver(7, &session, parcel(1)).unwrap();
        assert!(mailbox.try_recv(&key("x")).is_some() && mailbox.try_recv(&key("y")).is_some());
        assert_eq!(table.state.lock().early_bytes, 16);
        table.remove_session("session");
        assert!(table.steps().is_empty() && table.state.lock().early_bytes == 0);
        let late = table.deliver(8, &session, parcel(1)).unwrap_err();
        assert!(late.code == tensor::Code::Aborted && late.derived);
        table.state.lock().early_bytes = EARLY_BYTES_MAX - 10;
        assert_eq!(table.deliver(9, &session, parcel(0)).unwrap_err().code, tensor::Code::ResourceExhausted);
        assert!(table.steps().is_empty());
    }

    #[test]
    fn a_peer_may_come_before_the_step_and_may_give_up() {
        let table = StepTable::default();
        let name = key("x");
        let mut gone = Box::pin(table.recv(7, &name));
        assert!(gone.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        assert_eq!(table.steps(), [7]);
        drop(gone);
        assert!(table.steps().is_empty(), "it leaves nothing behind");
        let mut early = Box::pin(table.recv(7, &name));
        assert!(early.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        table.start(7, &"session".into()).send(&name, Delivery::Dead).unwrap();
        assert!(matches!(block_on(early, None).unwrap().unwrap(), Delivery::Dead));
        table.remove_session("session");
        assert!(table.steps().is_empty());
    }
}

//! The meeting place of a step within one process, and the table of steps.

use framework::{BoxFuture, Delivery, Rendezvous, RendezvousKey};
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use tensor::{Error, Result};

/// Values left for whoever asks, and those who ask before there is a value.
#[derive(Clone, Default)]
pub struct LocalRendezvous {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    table: HashMap<RendezvousKey, Meeting>,
    aborted: Option<Error>,
    next_waiter: u64,
}

#[derive(Default)]
struct Meeting {
    values: VecDeque<Delivery>,
    waiters: VecDeque<(u64, Waker)>,
}

impl State {
    /// Takes a value that is there; an aborted step has none.
    fn take(&mut self, key: &RendezvousKey) -> Option<Result<Delivery>> {
        if let Some(why) = &self.aborted {
            return Some(Err(why.clone().into_derived()));
        }
        let meeting = self.table.get_mut(key)?;
        let value = meeting.values.pop_front()?;
        if meeting.values.is_empty() && meeting.waiters.is_empty() {
            self.table.remove(key);
        }
        Some(Ok(value))
    }
}

impl LocalRendezvous {
    /// An empty meeting place.
    pub fn new() -> LocalRendezvous {
        LocalRendezvous::default()
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
            meeting.values.push_back(value);
            meeting.waiters.front().map(|(_, waker)| waker.clone())
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
            if let Some(id) = this.waiter.take() {
                remove_waiter(&mut state, &this.key, id);
            }
            return Poll::Ready(found);
        }
        let id = *this.waiter.get_or_insert_with(|| {
            state.next_waiter += 1;
            state.next_waiter
        });
        let waiters = &mut state.table.entry(this.key.clone()).or_default().waiters;
        match waiters.iter_mut().find(|(w, _)| *w == id) {
            Some((_, waker)) => waker.clone_from(cx.waker()),
            None => waiters.push_back((id, cx.waker().clone())),
        }
        Poll::Pending
    }
}

impl Drop for Recv {
    fn drop(&mut self) {
        let Some(id) = self.waiter else { return };
        let next = {
            let mut state = self.state.lock();
            remove_waiter(&mut state, &self.key, id);
            // A value that woke this waiter is still there: the next one must hear of it.
            state
                .table
                .get(&self.key)
                .filter(|m| !m.values.is_empty())
                .and_then(|m| m.waiters.front())
                .map(|(_, w)| w.clone())
        };
        if let Some(waker) = next {
            waker.wake();
        }
    }
}

fn remove_waiter(state: &mut State, key: &RendezvousKey, id: u64) {
    if let Some(meeting) = state.table.get_mut(key) {
        meeting.waiters.retain(|(w, _)| *w != id);
        if meeting.waiters.is_empty() && meeting.values.is_empty() {
            state.table.remove(key);
        }
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
    steps: HashMap<i64, Entry>,
    /// Steps that ended lately: a peer that asks for their values asks in vain.
    ended: VecDeque<i64>,
}

#[derive(Default)]
struct Entry {
    rendezvous: LocalRendezvous,
    /// The session whose step this is, once the step has started here.
    session: Option<Arc<str>>,
}

impl Table {
    fn take(&mut self, step: i64) -> Option<Entry> {
        if self.ended.len() == ENDED_MAX {
            self.ended.pop_front();
        }
        self.ended.push_back(step);
        self.steps.remove(&step)
    }
}

/// How many ended steps are remembered.
const ENDED_MAX: usize = 1024;

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

    /// Takes a value of a step for a peer, waiting for it; the step may be yet to start.
    pub async fn recv(&self, step: i64, key: &RendezvousKey) -> Result<Delivery> {
        let rendezvous = {
            let mut table = self.state.lock();
            if table.ended.contains(&step) {
                return Err(tensor::aborted!("Step {step} has ended, nobody sends {key} any more").into_derived());
            }
            table.steps.entry(step).or_default().rendezvous.clone()
        };
        let _forget = ForgetIfIdle { table: self, step };
        rendezvous.recv(key).await
    }

    /// Forgets a step; whoever still waits there is told.
    pub fn remove(&self, step: i64) {
        let removed = self.state.lock().take(step);
        if let Some(entry) = removed {
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

//! A future for something that a shared object will decide: a queue, an accumulator.
//!
//! The object keeps the [`Slot`] among its waiting attempts, leaves the outcome there under its own lock, and wakes
//! the future after releasing it. A future that is dropped withdraws its attempt.

use parking_lot::Mutex;
use smallvec::SmallVec;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use tensor::Result;

/// Where an outcome is left for the future that waits for it.
pub(crate) struct Slot<T>(Mutex<Content<T>>);

struct Content<T> {
    outcome: Option<Result<T>>,
    waker: Option<Waker>,
}

impl<T> Slot<T> {
    pub fn new() -> Arc<Slot<T>> {
        Arc::new(Slot(Mutex::new(Content { outcome: None, waker: None })))
    }

    /// Leaves the outcome; whoever waits is to be woken once no lock is held.
    pub fn set(&self, outcome: Result<T>, wakers: &mut Wakers) {
        let mut content = self.0.lock();
        content.outcome = Some(outcome);
        wakers.0.extend(content.waker.take());
    }

    /// Takes the outcome, if it is there.
    pub fn take(&self) -> Option<Result<T>> {
        self.0.lock().outcome.take()
    }
}

/// Futures to wake once no lock is held.
#[derive(Default)]
pub(crate) struct Wakers(SmallVec<[Waker; 4]>);

impl Wakers {
    pub fn wake(self) {
        self.0.into_iter().for_each(Waker::wake);
    }
}

/// What decides outcomes.
pub(crate) trait Decider<T>: Send + Sync {
    /// Forgets the attempt, as if it had never been made. The outcome may have been left already, unread.
    fn withdraw(&self, slot: &Arc<Slot<T>>);
}

/// Waits for an outcome.
pub(crate) struct Waiting<T> {
    slot: Arc<Slot<T>>,
    decider: Arc<dyn Decider<T>>,
    is_over: bool,
}

impl<T> Waiting<T> {
    pub fn new(slot: Arc<Slot<T>>, decider: Arc<dyn Decider<T>>) -> Waiting<T> {
        Waiting { slot, decider, is_over: false }
    }
}

impl<T> Future for Waiting<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        let outcome = {
            let mut content = self.slot.0.lock();
            if content.outcome.is_none() {
                content.waker = Some(context.waker().clone());
            }
            content.outcome.take()
        };
        match outcome {
            Some(outcome) => {
                self.is_over = true;
                Poll::Ready(outcome)
            }
            None => Poll::Pending,
        }
    }
}

impl<T> Drop for Waiting<T> {
    fn drop(&mut self) {
        if !self.is_over {
            self.decider.withdraw(&self.slot);
        }
    }
}

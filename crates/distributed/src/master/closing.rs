//! Tells running steps that their session is being closed.

use framework::FastMap;
use parking_lot::Mutex;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// Open until it is closed, once.
#[derive(Default)]
pub(super) struct Closing {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    is_closed: bool,
    next: u64,
    waiters: FastMap<u64, Waker>,
}

impl Closing {
    pub(super) fn close(&self) {
        let waiters = {
            let mut state = self.state.lock();
            state.is_closed = true;
            std::mem::take(&mut state.waiters)
        };
        waiters.into_values().for_each(Waker::wake);
    }

    pub(super) fn is_closed(&self) -> bool {
        self.state.lock().is_closed
    }

    /// Ends with `None` when closed, with the call's result otherwise, whichever is first.
    pub(super) fn unless_closed<'a, 'f, F: Future>(&'a self, call: Pin<&'f mut F>) -> UnlessClosed<'a, 'f, F> {
        UnlessClosed { closing: self, id: None, call }
    }
}

pub(super) struct UnlessClosed<'a, 'f, F> {
    closing: &'a Closing,
    id: Option<u64>,
    call: Pin<&'f mut F>,
}

impl<F: Future> Future for UnlessClosed<'_, '_, F> {
    type Output = Option<F::Output>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<F::Output>> {
        let this = self.get_mut();
        if let Poll::Ready(output) = this.call.as_mut().poll(cx) {
            return Poll::Ready(Some(output));
        }
        let mut state = this.closing.state.lock();
        if state.is_closed {
            return Poll::Ready(None);
        }
        let key = *this.id.get_or_insert_with(|| {
            state.next += 1;
            state.next
        });
        state.waiters.insert(key, cx.waker().clone());
        Poll::Pending
    }
}

impl<F> Drop for UnlessClosed<'_, '_, F> {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.closing.state.lock().waiters.remove(&id);
        }
    }
}

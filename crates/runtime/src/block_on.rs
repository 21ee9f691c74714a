//! Waiting on the calling thread for a future, up to a deadline.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake};
use std::thread::Thread;
use std::time::Instant;

/// The deadline passed first.
#[derive(Debug, PartialEq)]
pub struct Elapsed;

struct Unpark {
    thread: Thread,
    woken: AtomicBool,
}

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }
    fn wake_by_ref(self: &Arc<Self>) {
        if !self.woken.swap(true, Ordering::Release) {
            self.thread.unpark();
        }
    }
}

/// How often to look before going to sleep: a step that ends within microseconds is not worth a sleep.
const SPINS: u32 = 200;

/// Runs a future on this thread until it is done or the deadline passes; the future is dropped then.
pub fn block_on<F: Future>(future: F, deadline: Option<Instant>) -> Result<F::Output, Elapsed> {
    let mut future = pin!(future);
    let unpark = Arc::new(Unpark { thread: std::thread::current(), woken: AtomicBool::new(false) });
    let waker = unpark.clone().into();
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return Ok(output);
        }
        // A future that wakes itself while it is polled must not outrun the deadline.
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Err(Elapsed);
        }
        let mut spins = 0;
        while !unpark.woken.swap(false, Ordering::Acquire) {
            if spins < SPINS {
                spins += 1;
                std::hint::spin_loop();
                continue;
            }
            match deadline {
                None => std::thread::park(),
                Some(deadline) => match deadline.checked_duration_since(Instant::now()) {
                    Some(left) if !left.is_zero() => std::thread::park_timeout(left),
                    _ => return Err(Elapsed),
                },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_future_that_never_ends_is_given_up_at_the_deadline() {
        let deadline = Instant::now() + Duration::from_millis(10);
        assert_eq!(block_on(std::future::pending::<()>(), Some(deadline)), Err(Elapsed));
        assert_eq!(block_on(async { 7 }, None), Ok(7));
    }

    #[test]
    fn a_future_that_wakes_itself_is_given_up_too() {
        let deadline = Instant::now() + Duration::from_millis(10);
        let restless = std::future::poll_fn(|cx| {
            cx.waker().wake_by_ref();
            Poll::<()>::Pending
        });
        assert_eq!(block_on(restless, Some(deadline)), Err(Elapsed));
    }
}

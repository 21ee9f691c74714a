//! Giving up a future at its deadline, for code that has no thread of its own to wait on.

use crate::Elapsed;
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Instant;

/// Wakes futures at their deadlines. Its one thread starts with the first deadline and ends with the timer.
#[derive(Default)]
pub struct Timer {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Who is to be woken when; the number tells equal deadlines apart.
    alarms: BTreeMap<(Instant, u64), Waker>,
    next: u64,
    is_running: bool,
    is_over: bool,
}

impl Timer {
    /// The future's result, unless the deadline passes first. What is given up is dropped by whoever owns it, and large
    /// ones stay with their owner, pinned: here they would be once more.
    pub async fn at_most<F: Future + Unpin>(
        &self,
        mut future: F,
        deadline: Option<Instant>,
    ) -> Result<F::Output, Elapsed> {
        let Some(deadline) = deadline else { return Ok(future.await) };
        let alarm = Alarm { shared: &self.shared, key: (deadline, self.shared.number()) };
        poll_fn(|cx| {
            if let Poll::Ready(output) = Pin::new(&mut future).poll(cx) {
                return Poll::Ready(Ok(output));
            }
            if Instant::now() >= deadline {
                return Poll::Ready(Err(Elapsed));
            }
            alarm.set(cx.waker());
            Poll::Pending
        })
        .await
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        self.shared.state.lock().is_over = true;
        self.shared.changed.notify_one();
    }
}

impl Shared {
    fn number(&self) -> u64 {
        let mut state = self.state.lock();
        state.next += 1;
        state.next
    }

    /// Wakes whoever is due, then sleeps until the next one is.
    fn run(&self) {
        let mut state = self.state.lock();
        while !state.is_over {
            let later = state.alarms.split_off(&(Instant::now(), u64::MAX));
            let due = std::mem::replace(&mut state.alarms, later);
            if !due.is_empty() {
                drop(state);
                due.into_values().for_each(Waker::wake);
                state = self.state.lock();
                continue;
            }
            match state.alarms.keys().next().map(|(deadline, _)| *deadline) {
                Some(deadline) => drop(self.changed.wait_until(&mut state, deadline)),
                None => self.changed.wait(&mut state),
            }
        }
    }
}

/// One future's entry; it goes when the future does.
struct Alarm<'t> {
    shared: &'t Arc<Shared>,
    key: (Instant, u64),
}

impl Alarm<'_> {
    fn set(&self, waker: &Waker) {
        let mut state = self.shared.state.lock();
        state.alarms.insert(self.key, waker.clone());
        if !state.is_running {
            let shared = self.shared.clone();
            // Without a thread the next alarm tries again.
            state.is_running = std::thread::Builder::new().name("timer".into()).spawn(move || shared.run()).is_ok();
        } else if state.alarms.keys().next() == Some(&self.key) {
            self.shared.changed.notify_one();
        }
    }
}

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        self.shared.state.lock().alarms.remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block_on;
    use std::future::{pending, ready};
    use std::time::Duration;

    /// Longer than any of these tests takes.
    fn patience() -> Option<Instant> {
        Some(Instant::now() + Duration::from_secs(20))
    }

    fn soon(millis: u64) -> Option<Instant> {
        Some(Instant::now() + Duration::from_millis(millis))
    }

    #[test]
    fn a_future_is_given_up_at_its_deadline_and_not_before() {
        let timer = Timer::default();
        let deadline = soon(20);
        assert_eq!(block_on(timer.at_most(pending::<()>(), deadline), patience()), Ok(Err(Elapsed)));
        assert!(Instant::now() >= deadline.unwrap());
        assert_eq!(block_on(timer.at_most(ready(7), patience()), patience()), Ok(Ok(7)));
        assert_eq!(block_on(timer.at_most(ready(7), None), patience()), Ok(Ok(7)));
    }

    #[test]
    fn an_earlier_deadline_set_later_is_met_first() {
        let timer = Timer::default();
        std::thread::scope(|scope| {
            let late = scope.spawn(|| block_on(timer.at_most(pending::<()>(), soon(200)), patience()));
            let early = scope.spawn(|| block_on(timer.at_most(pending::<()>(), soon(10)), patience()));
            assert_eq!(early.join().unwrap(), Ok(Err(Elapsed)));
            assert_eq!(late.join().unwrap(), Ok(Err(Elapsed)));
        });
        assert!(timer.shared.state.lock().alarms.is_empty());
    }

    #[test]
    fn what_ends_in_time_leaves_no_alarm_behind() {
        let timer = Timer::default();
        let mut polls = 0;
        let twice = poll_fn(|cx| {
            polls += 1;
            cx.waker().wake_by_ref();
            if polls < 2 { Poll::Pending } else { Poll::Ready(()) }
        });
        assert_eq!(block_on(timer.at_most(twice, patience()), patience()), Ok(Ok(())));
        assert!(timer.shared.state.lock().alarms.is_empty());
    }
}

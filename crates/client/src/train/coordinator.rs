//! `Coordinator`: threads that stop together, and the first error among them.

use crate::Session;
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tensor::{Code, Error, Result, internal};

/// Lets several threads stop together: any of them may ask for it, and [`join`](Coordinator::join) returns the first
/// error. Clones are handles on the same coordinator.
///
/// ```
/// use ferroflow::train::Coordinator;
/// use std::time::Duration;
///
/// let coordinator = Coordinator::new();
/// for name in ["one", "two"] {
///     coordinator.spawn(name, |c| {
///         while !c.wait_for_stop(Duration::from_millis(1)) {
///             // some work
///         }
///         Ok(())
///     })?;
/// }
/// coordinator.request_stop();
/// coordinator.join(Duration::from_secs(10))?;
/// # Ok::<(), ferroflow::Error>(())
/// ```
#[derive(Clone, Default)]
pub struct Coordinator {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    stop: bool,
    /// Why, unless the stop was asked for without a reason.
    error: Option<Error>,
    /// Threads that have not ended, by number, with their names.
    running: BTreeMap<u64, String>,
    spawned: u64,
}

impl Coordinator {
    /// A coordinator that nobody has asked to stop.
    pub fn new() -> Coordinator {
        Coordinator::default()
    }

    /// Asks all threads to stop.
    pub fn request_stop(&self) {
        self.stop_because(None);
    }

    /// Asks all threads to stop because of an error, which `join` returns if it is the first. `OutOfRange` is the end of
    /// the input, and no error.
    pub fn request_stop_with(&self, error: Error) {
        self.stop_because(Some(error));
    }

    fn stop_because(&self, error: Option<Error>) {
        let mut state = self.shared.state.lock();
        if !state.stop {
            state.stop = true;
            state.error = error.filter(|e| e.code != Code::OutOfRange);
        }
        self.shared.changed.notify_all();
    }

    /// Whether somebody asked to stop.
    pub fn should_stop(&self) -> bool {
        self.shared.state.lock().stop
    }

    /// Waits until somebody asks to stop, at most this long; whether it happened.
    pub fn wait_for_stop(&self, limit: Duration) -> bool {
        self.wait_until(limit, |state| state.stop)
    }

    /// Makes the coordinator as new: nobody has asked to stop, and no error is known.
    pub fn clear_stop(&self) {
        let mut state = self.shared.state.lock();
        state.stop = false;
        state.error = None;
    }

    /// The error that made the threads stop, if it was one.
    pub fn error(&self) -> Option<Error> {
        self.shared.state.lock().error.clone()
    }

    /// Starts a thread; if it returns an error or panics, all are asked to stop.
    pub fn spawn(&self, name: &str, work: impl FnOnce(&Coordinator) -> Result<()> + Send + 'static) -> Result<()> {
        let number = {
            let mut state = self.shared.state.lock();
            state.spawned += 1;
            let number = state.spawned;
            state.running.insert(number, name.to_string());
            number
        };
        let running = Running { coordinator: self.clone(), number, outcome: None };
        let started = std::thread::Builder::new().name(name.to_string()).spawn(move || running.run(work));
        // A thread that cannot start has dropped its `Running`, which took it off the list.
        started.map(drop).map_err(|e| Error::new(Code::ResourceExhausted, format!("cannot start thread '{name}': {e}")))
    }

    /// Starts a thread that does something again and again, at these intervals, until all are asked to stop.
    pub fn repeat(
        &self,
        name: &str,
        interval: Duration,
        mut work: impl FnMut() -> Result<()> + Send + 'static,
    ) -> Result<()> {
        self.spawn(name, move |coordinator| {
            let mut next = Instant::now();
            while !coordinator.wait_for_stop(next.saturating_duration_since(Instant::now())) {
                work()?;
                next = (next + interval).max(Instant::now());
            }
            Ok(())
        })
    }

    /// Waits until all threads have ended, or somebody asks to stop and they end within `grace`; the first error.
    pub fn join(&self, grace: Duration) -> Result<()> {
        let mut state = self.shared.state.lock();
        while !state.running.is_empty() && !state.stop {
            self.shared.changed.wait(&mut state);
        }
        drop(state);
        let ended = self.wait_until(grace, |state| state.running.is_empty());
        let state = self.shared.state.lock();
        if let Some(error) = &state.error {
            return Err(error.clone());
        }
        if !ended {
            let names: Vec<&str> = state.running.values().map(String::as_str).collect();
            return Err(internal!(
                "{} threads still run {grace:?} after they were asked to stop: {}",
                names.len(),
                names.join(", ")
            ));
        }
        Ok(())
    }

    /// Stops the threads that use a session, and closes it; the error that made them stop, if it was one.
    pub(super) fn stop_with(&self, session: &Session, grace: Duration) -> Result<()> {
        /// How long threads have to stop by themselves before what they wait for is cancelled.
        const VOLUNTARY: Duration = Duration::from_millis(500);
        self.request_stop();
        // Those that are late, and a master that is gone, are not worth an error at the end.
        let _ = self.join(VOLUNTARY.min(grace));
        let _ = session.close();
        let _ = self.join(grace);
        self.error().map_or(Ok(()), Err)
    }

    fn wait_until(&self, limit: Duration, holds: impl Fn(&State) -> bool) -> bool {
        let deadline = Instant::now().checked_add(limit);
        let mut state = self.shared.state.lock();
        while !holds(&state) {
            match deadline {
                Some(deadline) if self.shared.changed.wait_until(&mut state, deadline).timed_out() => {
                    return holds(&state);
                }
                Some(_) => {}
                None => self.shared.changed.wait(&mut state),
            }
        }
        true
    }
}

/// A thread that has not ended; when dropped, it has.
struct Running {
    coordinator: Coordinator,
    number: u64,
    /// Nothing, if the thread never started or panicked.
    outcome: Option<Result<()>>,
}

impl Running {
    fn run(mut self, work: impl FnOnce(&Coordinator) -> Result<()>) {
        self.outcome = Some(work(&self.coordinator));
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let name = self.coordinator.shared.state.lock().running.remove(&self.number).unwrap_or_default();
        match self.outcome.take() {
            Some(Ok(())) => {}
            Some(Err(error)) => self.coordinator.request_stop_with(error),
            None if std::thread::panicking() => {
                self.coordinator.request_stop_with(internal!("thread '{name}' panicked"));
            }
            None => {}
        }
        self.coordinator.shared.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tensor::{invalid, out_of_range};

    const LIMIT: Duration = Duration::from_secs(20);

    #[test]
    fn the_first_error_stops_all_and_is_returned() {
        let coordinator = Coordinator::new();
        coordinator.spawn("waits", |c| c.wait_for_stop(LIMIT).then_some(()).ok_or_else(|| internal!("late"))).unwrap();
        coordinator.spawn("fails", |_| Err(invalid!("the first"))).unwrap();
        let error = coordinator.join(LIMIT).unwrap_err();
        assert_eq!((error.code, error.message.as_str()), (Code::InvalidArgument, "the first"));
        coordinator.request_stop_with(invalid!("the second"));
        assert_eq!(coordinator.error().unwrap().message, "the first");
        coordinator.clear_stop();
        assert!(!coordinator.should_stop() && coordinator.join(LIMIT).is_ok());
    }

    #[test]
    fn the_end_of_the_input_is_no_error() {
        let coordinator = Coordinator::new();
        coordinator.spawn("reads", |_| Err(out_of_range!("the queue is closed"))).unwrap();
        coordinator.join(LIMIT).unwrap();
        assert!(coordinator.should_stop());
    }

    #[test]
    fn a_panic_is_an_error_that_names_the_thread() {
        let coordinator = Coordinator::new();
        coordinator.spawn("clumsy", |_| panic!("on purpose")).unwrap();
        assert!(coordinator.join(LIMIT).unwrap_err().message.contains("clumsy"));
    }

    #[test]
    fn threads_that_do_not_end_are_named() {
        let coordinator = Coordinator::new();
        let (release, wait) = std::sync::mpsc::channel::<()>();
        coordinator.spawn("stubborn", move |_| wait.recv().map_err(|e| internal!("{e}"))).unwrap();
        coordinator.request_stop();
        assert!(coordinator.join(Duration::from_millis(1)).unwrap_err().message.contains("stubborn"));
        release.send(()).unwrap();
        coordinator.join(LIMIT).unwrap();
    }

    #[test]
    fn work_is_repeated_until_it_fails() {
        let coordinator = Coordinator::new();
        let mut left = 3;
        let work = move || {
            left -= 1;
            if left == 0 { Err(invalid!("done")) } else { Ok(()) }
        };
        coordinator.repeat("counts", Duration::from_millis(1), work).unwrap();
        assert_eq!(coordinator.join(LIMIT).unwrap_err().message, "done");
    }
}

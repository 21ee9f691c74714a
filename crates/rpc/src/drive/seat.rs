//! Blocking a thread until a future is done, while it drives the connection that the future waits for.

use super::{Drive, Held, Line, Slept, Vain};
use crate::errands;
use linalg::parallel::Helper;
use parking_lot::Mutex;
use std::cell::{Cell, RefCell};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Instant;

/// Runs a future on this thread until it is done, or gives `None` when the deadline passes; the future is dropped then. If it
/// waits for an answer over a connection that callers drive, this thread does.
pub fn block_on<F: Future>(future: F, deadline: Option<Instant>) -> Option<F::Output> {
    let mut waiting = Waiting::begin();
    let waker = Waker::from(waiting.seat.clone());
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        waiting.seat.is_woken.store(false, Ordering::SeqCst);
        HERE.with_borrow_mut(|here| here.wake_at = None);
        if let Poll::Ready(output) = errands::gather(|| future.as_mut().poll(&mut context)) {
            return Some(output);
        }
        if !waiting.wait(deadline) {
            return None;
        }
    }
}

/// How often to look before going to sleep: a step that ends within microseconds is not worth a sleep.
const SPINS: u32 = 200;

/// What the calling thread is at.
#[derive(Default)]
struct Here {
    is_blocked: bool,
    /// The connection that the future it is blocked on waits for.
    drive: Option<Attended>,
    /// Whether that future waits for an answer over a connection that others move.
    awaits_others: bool,
    /// That connection, while it has it in hand.
    held: Option<Held>,
    /// When that future wants to be polled in any case.
    wake_at: Option<Instant>,
    /// Its seat, while nobody sits there.
    seat: Option<Arc<Seat>>,
}

impl Here {
    /// Leaves the connection to others, and what is due there: a call that was broken off is still to be told to the peer.
    fn lay_down(&mut self) {
        self.held = None;
        if let Some(drive) = &self.drive {
            drive.0.leave();
        }
    }
}

fn take_held() -> Option<Held> {
    HERE.with_borrow_mut(|here| here.held.take())
}

/// A connection that a thread is blocked on, and counted there.
struct Attended(Arc<Drive>);

impl Attended {
    fn new(drive: &Arc<Drive>) -> Attended {
        drive.waiting.fetch_add(1, Ordering::Relaxed);
        Attended(drive.clone())
    }

    fn is(&self, drive: &Arc<Drive>) -> bool {
        Arc::ptr_eq(&self.0, drive)
    }
}

impl Drop for Attended {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

thread_local! {
    static HERE: RefCell<Here> = RefCell::default();
    static IN_BACKGROUND: Cell<bool> = const { Cell::new(false) };
}

/// From now on, others move the bytes that the calling thread waits for: nobody waits for it, and its steps take as long as
/// those of others. If it drove a connection that it shares with a thread in a hurry, that one would have to be woken by it.
pub fn stay_in_background() {
    IN_BACKGROUND.set(true);
}

/// To be called in each poll of what waits for an answer over this connection: a blocked thread will drive it.
pub(crate) fn attend(drive: &Arc<Drive>) {
    let former = HERE.with_borrow_mut(|here| match &here.drive {
        _ if !here.is_blocked => None,
        Some(known) if known.is(drive) => None,
        _ => here.drive.replace(Attended::new(drive)),
    });
    if let Some(former) = former {
        former.0.leave();
    }
}

/// To be called in each poll of what waits for an answer that the network's threads bring: a blocked thread stays awake for
/// a while, as one does that drives. Those who work on the answer then wake each other on the core that is left.
pub(crate) fn await_others() {
    HERE.with_borrow_mut(|here| here.awaits_others = here.is_blocked);
}

/// Whether the calling thread is blocked on an answer over this connection, and looks after it.
pub(crate) fn is_attended(drive: &Arc<Drive>) -> bool {
    let is_this = |here: &RefCell<Here>| {
        here.try_borrow().is_ok_and(|here| here.drive.as_ref().is_some_and(|known| known.is(drive)))
    };
    HERE.try_with(is_this).unwrap_or(false)
}

/// Has the calling thread, if it is blocked, poll its future at this time; whether it is. To be called in each poll.
pub(crate) fn wake_at(time: Instant) -> bool {
    HERE.with_borrow_mut(|here| {
        if here.is_blocked {
            here.wake_at = Some(here.wake_at.map_or(time, |other| other.min(time)));
        }
        here.is_blocked
    })
}

/// A thread that is blocked.
struct Waiting {
    seat: Arc<Seat>,
    /// What the thread was at before.
    outer: Here,
    /// Whether others drive, for the rest of the time.
    is_relieved: bool,
}

impl Waiting {
    fn begin() -> Waiting {
        let mut outer =
            HERE.with_borrow_mut(|here| std::mem::replace(here, Here { is_blocked: true, ..Here::default() }));
        outer.lay_down();
        let seat = outer.seat.take().unwrap_or_else(Seat::new);
        Waiting { seat, outer, is_relieved: IN_BACKGROUND.get() }
    }

    /// Waits until the future may have come further. False when the deadline has passed.
    fn wait(&mut self, deadline: Option<Instant>) -> bool {
        let has_passed = |time: Option<Instant>| time.is_some_and(|time| Instant::now() >= time);
        let (alarm, awaits_others) = HERE.with_borrow(|here| (here.wake_at, here.awaits_others));
        let until = alarm.into_iter().chain(deadline).min();
        // First the deadline: a future that wakes itself while it is polled must not outrun it.
        while !has_passed(deadline) {
            if self.seat.is_woken() || has_passed(alarm) {
                return true;
            }
            match HERE.with_borrow(|here| here.drive.as_ref().map(|attended| attended.0.clone())) {
                Some(drive) if !self.is_relieved && !drive.is_crowded() => self.drive(&drive, until),
                drive => {
                    drop(take_held());
                    if let Some(drive) = drive {
                        drive.leave();
                    }
                    if !(awaits_others || IN_BACKGROUND.get()) || !self.seat.look() {
                        self.seat.park(until);
                    }
                }
            }
        }
        false
    }

    fn drive(&mut self, drive: &Arc<Drive>, until: Option<Instant>) {
        let held = take_held().filter(|held| Arc::ptr_eq(&held.drive, drive)).or_else(|| drive.take());
        let Some(mut held) = held else { return self.seat.park(until) };
        if !held.turn() {
            // Whoever waited has been told; the next connection is another.
            drop(HERE.with_borrow_mut(|here| here.drive.take()));
        } else if self.seat.is_woken() || drive.look(&self.seat) {
            HERE.with_borrow_mut(|here| here.held = Some(held));
        } else {
            match held.sleep(&self.seat, until) {
                Slept::Driving(held) => HERE.with_borrow_mut(|here| here.held = Some(held)),
                Slept::Relieved => self.is_relieved = true,
            }
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.outer.seat = Some(self.seat.clone());
        let outer = std::mem::take(&mut self.outer);
        let mut inner = HERE.with_borrow_mut(|here| std::mem::replace(here, outer));
        inner.lay_down();
    }
}

/// Where a blocked thread sleeps.
pub(super) struct Seat {
    thread: Thread,
    is_woken: AtomicBool,
    sleep: Mutex<Sleep>,
    vain: Vain,
}

/// How it sleeps.
enum Sleep {
    Awake,
    Parked,
    On(Arc<Line>),
}

impl Wake for Seat {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.is_woken.swap(true, Ordering::SeqCst) {
            self.rouse();
        }
    }
}

impl Seat {
    fn new() -> Arc<Seat> {
        let (is_woken, sleep) = (AtomicBool::new(false), Mutex::new(Sleep::Awake));
        Arc::new(Seat { thread: std::thread::current(), is_woken, sleep, vain: Vain::default() })
    }

    /// Whether the future may have come further since it was polled.
    pub(super) fn is_woken(&self) -> bool {
        self.is_woken.load(Ordering::SeqCst)
    }

    /// Ends the thread's sleep.
    pub(super) fn rouse(&self) {
        let sleep = std::mem::replace(&mut *self.sleep.lock(), Sleep::Awake);
        match sleep {
            Sleep::Awake => {}
            Sleep::Parked => self.thread.unpark(),
            Sleep::On(line) => line.ring(),
        }
    }

    /// Looks for a short while whether the future may have come further, if that has been worth it. What this thread waits
    /// for, if it is done in this process, is done with its help.
    fn look(&self) -> bool {
        let helper = Helper::here();
        self.vain.look(|| {
            if let Some(helper) = &helper {
                helper.help();
            }
            self.is_woken()
        })
    }

    /// Sleeps on a socket, unless there is something to do.
    pub(super) fn sleep_on(&self, line: &Arc<Line>, until: Option<Instant>, is_due: impl Fn() -> bool) {
        *self.sleep.lock() = Sleep::On(line.clone());
        if !self.is_woken() && !is_due() {
            line.wait(until);
        }
        *self.sleep.lock() = Sleep::Awake;
    }

    /// Sleeps until the future may have come further, or this time.
    fn park(&self, until: Option<Instant>) {
        for _ in 0..SPINS {
            if self.is_woken() {
                return;
            }
            std::hint::spin_loop();
        }
        loop {
            // Each time: who woke this thread before the last poll may rouse it only now, and takes that for the end of its sleep.
            *self.sleep.lock() = Sleep::Parked;
            if self.is_woken() {
                break;
            }
            match until.map(|until| until.saturating_duration_since(Instant::now())) {
                None => std::thread::park(),
                Some(left) if left.is_zero() => break,
                Some(left) => std::thread::park_timeout(left),
            }
        }
        *self.sleep.lock() = Sleep::Awake;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn what_does_not_end_is_given_up_at_the_deadline() {
        let soon = || Some(Instant::now() + Duration::from_millis(10));
        let restless = std::future::poll_fn(|cx| {
            cx.waker().wake_by_ref();
            Poll::<()>::Pending
        });
        assert_eq!(block_on(std::future::pending::<()>(), soon()), None);
        assert_eq!(block_on(restless, soon()), None);
        assert_eq!(block_on(async { 7 }, None), Some(7));
    }

    #[test]
    fn a_thread_in_the_background_leaves_connections_to_others_for_good() {
        let background = std::thread::spawn(|| {
            stay_in_background();
            [Waiting::begin().is_relieved, Waiting::begin().is_relieved]
        });
        assert_eq!(background.join().unwrap(), [true, true]);
        assert!(!Waiting::begin().is_relieved);
    }

    #[test]
    fn a_future_is_polled_when_it_wants_to_be() {
        let time = Instant::now() + Duration::from_millis(10);
        let late = std::future::poll_fn(|_| {
            assert!(wake_at(time + Duration::from_secs(1000)) && wake_at(time));
            if Instant::now() >= time { Poll::Ready(()) } else { Poll::Pending }
        });
        assert_eq!(block_on(late, Some(time + Duration::from_secs(60))), Some(()));
        assert!(!wake_at(time), "nobody is blocked here");
    }

    #[test]
    fn a_thread_that_was_roused_late_is_woken_even_so() {
        let (tell, told) = std::sync::mpsc::channel();
        let sleeper = std::thread::spawn(move || {
            let seat = Seat::new();
            tell.send(seat.clone()).unwrap();
            seat.park(None);
        });
        let seat = told.recv().unwrap();
        let end = Instant::now() + Duration::from_secs(60);
        for _ in 0..3 {
            while !matches!(*seat.sleep.lock(), Sleep::Parked) {
                assert!(Instant::now() < end, "it sleeps where nobody will wake it");
                std::thread::yield_now();
            }
            seat.rouse(); // by somebody whose wake was seen before
        }
        seat.wake_by_ref();
        sleeper.join().unwrap();
    }

    #[test]
    fn a_thread_may_be_blocked_within_what_it_is_blocked_on() {
        let later = |value: u8| {
            let (send, receive) = tokio::sync::oneshot::channel();
            std::thread::spawn(move || send.send(value).unwrap());
            receive
        };
        let both = async {
            let outer = later(1);
            let inner = block_on(later(2), None).unwrap();
            (outer.await, inner)
        };
        assert_eq!(block_on(both, None), Some((Ok(1), Ok(2))));
    }
}

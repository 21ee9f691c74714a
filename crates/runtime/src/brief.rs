//! Polls that must be brief: threads that move bytes begin steps and go on with them, but others wait for these threads.
//!
//! What such a thread wakes is done by it too, right after what it does now, so that a small step passes through one
//! thread from its request to its answer. Whatever takes longer goes to the compute pool, or says that it needs time and is
//! polled elsewhere.

use linalg::parallel::Pool;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::task::Poll;
use std::time::{Duration, Instant};

/// How long a thread in a hurry works on steps before it leaves the rest to the pool.
const BRIEF: Duration = Duration::from_micros(1000);

/// Something to be done.
pub type Job = Box<dyn FnOnce() + Send>;

struct Hurry {
    end: Instant,
    soon: VecDeque<(Pool, Job)>,
    needs_time: bool,
}

thread_local! {
    static HURRY: RefCell<Option<Hurry>> = const { RefCell::new(None) };
}

/// What came of a poll in a hurry.
pub struct Polled<T> {
    /// What the poll returned.
    pub value: T,
    /// Whether something in it asked to be polled where there is time.
    pub needs_time: bool,
}

/// Does this in a hurry, and then what it woke.
pub fn briefly<T>(work: impl FnOnce() -> T) -> Polled<T> {
    if is_brief() {
        return watch(work); // what it wakes waits for the outermost
    }
    HURRY.set(Some(Hurry { end: Instant::now() + BRIEF, soon: VecDeque::new(), needs_time: false }));
    let leave = LeaveOnDrop;
    let polled = watch(work);
    while let Some((pool, job)) = with(|hurry| hurry.soon.pop_front()).flatten() {
        if is_over() {
            pool.spawn(job);
        } else {
            // As on the pool: a panic has been reported by the hook, and its step ends without it.
            drop(catch_unwind(AssertUnwindSafe(job)));
        }
    }
    drop(leave);
    polled
}

/// Does this as the calling thread does things, and tells whether something in it needs more time than there is.
pub fn watch<T>(work: impl FnOnce() -> T) -> Polled<T> {
    let before = with(|hurry| std::mem::take(&mut hurry.needs_time)).unwrap_or_default();
    let value = work();
    let needs_time = with(|hurry| std::mem::replace(&mut hurry.needs_time, before)).unwrap_or_default();
    Polled { value, needs_time }
}

/// A panic that passes through leaves nothing undone: what is left goes to the pool.
struct LeaveOnDrop;

impl Drop for LeaveOnDrop {
    fn drop(&mut self) {
        for (pool, job) in HURRY.take().into_iter().flat_map(|hurry| hurry.soon) {
            pool.spawn(job);
        }
    }
}

fn with<T>(look: impl FnOnce(&mut Hurry) -> T) -> Option<T> {
    HURRY.with_borrow_mut(|hurry| hurry.as_mut().map(look))
}

/// Whether the calling thread is in a hurry.
pub fn is_brief() -> bool {
    HURRY.with_borrow(Option::is_some)
}

/// When the calling thread must be back, if it is in a hurry.
pub fn end() -> Option<Instant> {
    with(|hurry| hurry.end)
}

fn is_over() -> bool {
    end().is_some_and(|end| Instant::now() >= end)
}

/// Does this as if the thread had time: for work that goes to a pool which may have no threads of its own.
pub fn unhurried<T>(work: impl FnOnce() -> T) -> T {
    let hurry = HURRY.take();
    let value = work();
    HURRY.set(hurry);
    value
}

/// Runs a job on the calling thread after what it does now, if it is in a hurry; on the pool otherwise.
pub fn soon(pool: &Pool, job: Job) {
    let mut job = Some(job);
    with(|hurry| hurry.soon.extend(job.take().map(|job| (pool.clone(), job))));
    if let Some(job) = job {
        pool.spawn(job);
    }
}

/// Runs a job on the calling thread: after what it does now, if it is in a hurry; at once otherwise.
pub fn afterwards(job: Job) {
    soon(&Pool::inline(), job);
}

static LATER: OnceLock<fn(Job)> = OnceLock::new();

/// Says how a thread in a hurry puts off a job: until after what it has woken so far, and in a hurry again. The first word
/// counts.
pub fn set_later(put_off: fn(Job)) {
    LATER.get_or_init(|| put_off);
}

/// Runs a job after what the calling thread has woken so far; at once if it cannot be put off.
pub fn later(job: Job) {
    match LATER.get() {
        Some(put_off) => put_off(job),
        None => job(),
    }
}

/// Waits until the calling thread has time: at once, unless it is in a hurry.
pub async fn enough_time() {
    poll_fn(|cx| match with(|hurry| hurry.needs_time = true) {
        None => Poll::Ready(()),
        Some(()) => {
            cx.waker().wake_by_ref();
            Poll::Pending
        }
    })
    .await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::sync::mpsc::channel;
    use std::task::{Context, Waker};
    use std::thread;

    #[test]
    fn what_is_woken_in_a_hurry_runs_afterwards_on_the_same_thread() {
        let pool = Pool::new(1);
        let (send, receive) = channel();
        let tell = |what: &'static str| {
            let send = send.clone();
            Box::new(move || send.send((what, thread::current().id())).unwrap()) as Job
        };
        briefly(|| {
            soon(&pool, tell("later"));
            tell("first")();
        });
        let here = thread::current().id();
        assert_eq!([receive.recv().unwrap(), receive.recv().unwrap()], [("first", here), ("later", here)]);
        soon(&pool, tell("elsewhere"));
        assert_ne!(receive.recv().unwrap().1, here, "without a hurry it is the pool's");
        briefly(|| {
            afterwards(tell("last"));
            tell("first")();
        });
        afterwards(tell("at once"));
        let told = [(); 3].map(|()| receive.recv().unwrap());
        assert_eq!(told, [("first", here), ("last", here), ("at once", here)]);
    }

    #[test]
    fn what_is_left_when_the_time_is_over_goes_to_the_pool() {
        let pool = Pool::new(1);
        let (send, receive) = channel();
        briefly(|| {
            soon(&pool, Box::new(move || send.send(thread::current().id()).unwrap()));
            while !is_over() {}
        });
        assert_ne!(receive.recv().unwrap(), thread::current().id());
        assert!(!is_brief() && !is_over());
    }

    #[test]
    fn a_poll_that_needs_time_says_so_to_the_nearest_who_asks() {
        let mut context = Context::from_waker(Waker::noop());
        let mut work = pin!(enough_time());
        let outer = briefly(|| briefly(|| work.as_mut().poll(&mut context)));
        assert!(outer.value.value.is_pending() && outer.value.needs_time && !outer.needs_time);
        assert!(work.as_mut().poll(&mut context).is_ready());
    }

    #[test]
    fn a_panic_leaves_the_hurry() {
        let pool = Pool::new(1);
        let (send, receive) = channel();
        let caught = catch_unwind(AssertUnwindSafe(|| {
            briefly(|| {
                soon(&pool, Box::new(move || send.send(()).unwrap()));
                panic!("on purpose");
            })
        }));
        assert!(caught.is_err() && !is_brief());
        receive.recv().unwrap();
    }
}

//! Whether more threads of this process want to run than there are cores for them.
//!
//! Several tasks on one machine each have a thread per core. A loop that is spread then waits for threads that wait for a
//! core, and they take it from those who would have done the same work without being woken. The kernel tells how long
//! threads had to wait; where it does not, nothing is ever crowded.

use parking_lot::Mutex;
use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long a judgement holds.
const PERIOD: Duration = Duration::from_millis(250);
/// Looking takes some microseconds for each thread; of a process with more, these stand for all.
const THREADS_MAX: usize = 16;
/// With less work than this part of the time of one core, there is nothing to judge by.
const BUSY: f64 = 0.1;
/// It becomes crowded when threads wait for a core for more than this part of the time they run,
const MANY: f64 = 0.75;
/// and stays so until it is less than this: threads that no longer help each other also wait less.
const FEW: f64 = 0.4;

/// A judgement that is renewed from time to time, by whoever asks for it.
pub(crate) struct Crowd {
    is_crowded: AtomicBool,
    start: Instant,
    /// When to look again, in nanoseconds after the start.
    look_at: AtomicU64,
    last: Mutex<Option<Spent>>,
}

/// What threads have spent so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spent {
    /// On a core.
    pub running: Duration,
    /// Ready to run, while others had the cores.
    pub waiting: Duration,
}

impl Spent {
    /// By the calling thread, if the kernel tells.
    pub fn by_this_thread() -> Option<Spent> {
        parse(&fs::read_to_string("/proc/thread-self/schedstat").ok()?)
    }

    /// What has been spent since; nothing by threads that have ended, which take their times with them.
    pub fn since(self, earlier: Spent) -> Spent {
        Spent {
            running: self.running.saturating_sub(earlier.running),
            waiting: self.waiting.saturating_sub(earlier.waiting),
        }
    }

    /// How long threads waited for each moment on a core; infinitely if they had none.
    pub fn waiting_share(self) -> f64 {
        self.waiting.div_duration_f64(self.running)
    }
}

impl Crowd {
    pub(crate) fn new() -> Crowd {
        Crowd {
            is_crowded: AtomicBool::new(false),
            start: Instant::now(),
            look_at: AtomicU64::new(0),
            last: Mutex::new(None),
        }
    }

    pub(crate) fn is_crowded(&self) -> bool {
        let now = self.start.elapsed().as_nanos() as u64;
        let look_at = self.look_at.load(Ordering::Relaxed);
        if now >= look_at {
            let next = now + PERIOD.as_nanos() as u64;
            // One thread looks; the others go on with what was known.
            if self.look_at.compare_exchange(look_at, next, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                self.look();
            }
        }
        self.is_crowded.load(Ordering::Relaxed)
    }

    #[cold]
    fn look(&self) {
        let spent = spent();
        let last = std::mem::replace(&mut *self.last.lock(), spent);
        let (Some(last), Some(spent)) = (last, spent) else { return };
        let was_crowded = self.is_crowded.load(Ordering::Relaxed);
        self.is_crowded.store(judge(was_crowded, spent.since(last)), Ordering::Relaxed);
    }
}

fn judge(was_crowded: bool, spent: Spent) -> bool {
    spent.running >= PERIOD.mul_f64(BUSY) && spent.waiting_share() > if was_crowded { FEW } else { MANY }
}

/// The times of all threads together, or of the first ones.
fn spent() -> Option<Spent> {
    let mut total = Spent::default();
    for thread in fs::read_dir("/proc/self/task").ok()?.take(THREADS_MAX) {
        // A thread may end while we look.
        let Ok(times) = fs::read_to_string(thread.ok()?.path().join("schedstat")) else { continue };
        let spent = parse(&times)?;
        total.running += spent.running;
        total.waiting += spent.waiting;
    }
    Some(total)
}

/// Nanoseconds on a core, nanoseconds waiting for one, number of times.
fn parse(times: &str) -> Option<Spent> {
    let mut fields = times.split_ascii_whitespace().map(|field| field.parse().ok().map(Duration::from_nanos));
    Some(Spent { running: fields.next()??, waiting: fields.next()?? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spent(running: u64, waiting: u64) -> Spent {
        Spent { running: Duration::from_millis(running), waiting: Duration::from_millis(waiting) }
    }

    #[test]
    fn it_is_crowded_when_threads_wait_as_long_as_they_run_and_until_they_hardly_wait() {
        // Whether it was crowded, the milliseconds run and waited since, and whether it is crowded now.
        let cases = [
            (false, 200, 0, false),
            (false, 200, 100, false),
            (false, 200, 200, true),
            (true, 200, 100, true),
            (true, 200, 60, false),
            (true, 10, 100, false), // hardly any work
            (true, 0, 0, false),
        ];
        let before = spent(1000, 1000);
        for (was_crowded, running, waiting, expected) in cases {
            let now = spent(1000 + running, 1000 + waiting);
            assert_eq!(judge(was_crowded, now.since(before)), expected, "{was_crowded} {running} {waiting}");
        }
        assert!(!judge(true, spent(900, 1100).since(before)), "a thread that ended says nothing");
    }

    #[test]
    fn the_times_of_a_thread_are_understood_or_refused() {
        assert_eq!(
            parse("1500000 2500000 7\n"),
            Some(Spent { running: Duration::from_micros(1500), waiting: Duration::from_micros(2500) })
        );
        for wrong in ["", "12", "a b c", "-1 2 3"] {
            assert_eq!(parse(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_thread_that_works_has_spent_time() {
        let Some(before) = Spent::by_this_thread() else { return }; // not every kernel counts
        let deadline = Instant::now() + Duration::from_secs(60);
        while Spent::by_this_thread().unwrap().since(before).running < Duration::from_millis(5) {
            assert!(Instant::now() < deadline, "it did nothing but work");
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_judgement_holds_for_a_while_and_is_then_renewed() {
        let crowd = Crowd::new();
        assert!(!crowd.is_crowded(), "nothing is known at first");
        let look_at = crowd.look_at.load(Ordering::Relaxed);
        crowd.is_crowded.store(true, Ordering::Relaxed);
        assert!(crowd.is_crowded(), "it holds");
        assert_eq!(crowd.look_at.load(Ordering::Relaxed), look_at);
        // Nobody had to wait since a time at which much more had been spent.
        *crowd.last.lock() = Some(super::spent().map_or(Spent::default(), |s| Spent { running: s.running * 2, ..s }));
        crowd.look_at.store(0, Ordering::Relaxed);
        assert!(!crowd.is_crowded(), "it is renewed");
    }
}

//! Whether a network thread that is woken takes the core from the thread that woke it.
//!
//! Tasks of one machine pass their steps on to each other. While the cores are well used, the kernel looks for none at rest:
//! it wakes a thread on the core of the one that sent to it, and takes that core from it at once. A parameter server that has
//! answered one worker and is about to see to the next then waits until the first worker has computed, and the next worker
//! waits with it. A thread that is patient lets the other one come to an end, which takes well below a millisecond among our
//! own kind: two workers and a parameter server on two cores make a tenth more steps.
//!
//! Behind somebody who computes for long it would wait much longer than the threads it wants to spare. So a thread is patient
//! only while it waits in the measure that a crowd of our kind makes, and loses trust when patience makes it wait for more.

use linalg::crowd::Spent;
use std::cell::RefCell;
use std::ffi::c_int;
use std::io;
use std::time::{Duration, Instant};

/// How often a thread looks at what it has spent.
const PERIOD: Duration = Duration::from_millis(250);
/// With less work than this part of the time, there is nothing to judge by.
const BUSY: f64 = 0.1;
/// It becomes patient when it waits for a core for more than this part of the time it runs (two tasks that take turns: 0.1;
/// three that meet: 0.4 to 0.7; five: 1.0 to 1.2),
const MANY: f64 = 0.3;
/// and stays so until it hardly waits.
const FEW: f64 = 0.04;
/// With more than this, others compute on all cores (1.5 to 2.0, and up to twice that for the patient).
const STRANGERS: f64 = 1.5;
/// How long patience that was of no use is not tried again, at first and at most.
const DISTRUST: (Duration, Duration) = (Duration::from_secs(4), Duration::from_secs(512));

thread_local! {
    static TURNS: RefCell<Turns> = RefCell::new(Turns::new(Instant::now()));
}

/// Has the calling thread look from time to time how it should take its turns. To be called when it has nothing to do.
pub(crate) fn consider() {
    TURNS.with_borrow_mut(|turns| {
        let now = Instant::now();
        if now >= turns.look_at {
            turns.look(now);
        }
    });
}

/// How a thread takes its turns, and by what it judges.
struct Turns {
    is_patient: bool,
    looked_at: Instant,
    look_at: Instant,
    last: Option<Spent>,
    trust_at: Instant,
    distrust: Duration,
}

/// What a thread's times tell.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Finding {
    Calm,
    Crowded,
    Strangers,
}

impl Turns {
    fn new(now: Instant) -> Turns {
        Turns { is_patient: false, looked_at: now, look_at: now, last: None, trust_at: now, distrust: DISTRUST.0 }
    }

    #[cold]
    fn look(&mut self, now: Instant) {
        let spent = Spent::by_this_thread();
        let time = now - std::mem::replace(&mut self.looked_at, now);
        self.look_at = now + PERIOD;
        if let (Some(last), Some(spent)) = (std::mem::replace(&mut self.last, spent), spent) {
            let is_patient = self.decide(find(self.is_patient, spent.since(last), time), now);
            // A system that does not want it is not asked a second time.
            if is_patient != self.is_patient && set_patient(is_patient).is_err() {
                self.trust_at = now + Duration::from_secs(1 << 30);
            } else {
                self.is_patient = is_patient;
            }
        }
    }

    /// Whether to be patient from now on.
    fn decide(&mut self, finding: Finding, now: Instant) -> bool {
        match finding {
            _ if !self.is_patient => {}
            Finding::Strangers => {
                self.trust_at = now + self.distrust;
                self.distrust = (self.distrust * 2).min(DISTRUST.1);
            }
            // Some of it comes back with every look that finds patience in its place.
            Finding::Calm | Finding::Crowded => self.distrust = (self.distrust / 2).max(DISTRUST.0),
        }
        finding == Finding::Crowded && now >= self.trust_at
    }
}

fn find(is_patient: bool, spent: Spent, time: Duration) -> Finding {
    let (share, busy) = (spent.waiting_share(), time.mul_f64(BUSY));
    if spent.running + spent.waiting < busy {
        Finding::Calm
    } else if share > STRANGERS {
        Finding::Strangers
    } else if spent.running >= busy && share > if is_patient { FEW } else { MANY } {
        Finding::Crowded
    } else {
        Finding::Calm
    }
}

/// Threads that the kernel schedules as a batch take no core from others when they are woken.
fn set_patient(is_patient: bool) -> io::Result<()> {
    #[repr(C)]
    struct Parameters {
        priority: c_int,
    }
    unsafe extern "C" {
        fn sched_setscheduler(thread: c_int, policy: c_int, parameters: *const Parameters) -> c_int;
    }
    const NORMAL: c_int = 0;
    const BATCH: c_int = 3;
    let policy = if is_patient { BATCH } else { NORMAL };
    // SAFETY: the calling thread (0) is given a policy that needs no right and has no parameters but a priority of 0.
    match unsafe { sched_setscheduler(0, policy, &Parameters { priority: 0 }) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spent(running: u64, waiting: u64) -> Spent {
        Spent { running: Duration::from_millis(running), waiting: Duration::from_millis(waiting) }
    }

    #[test]
    fn a_crowd_is_told_from_calm_and_from_strangers() {
        use Finding::*;
        // Whether it is patient, the milliseconds of a hundred run and waited, and what that tells.
        let cases = [
            (false, 50, 5, Calm),
            (false, 50, 25, Crowded),
            (false, 50, 50, Crowded),
            (false, 50, 70, Crowded),
            (false, 30, 60, Strangers),
            (false, 5, 4, Calm), // hardly any work
            (false, 8, 8, Calm),
            (false, 0, 0, Calm),
            (true, 50, 5, Crowded),
            (true, 50, 1, Calm),
            (true, 20, 80, Strangers),
            (true, 5, 80, Strangers),
            (true, 0, 80, Strangers),
            (true, 1, 8, Calm),
        ];
        for (is_patient, running, waiting, expected) in cases {
            let found = find(is_patient, spent(running, waiting), Duration::from_millis(100));
            assert_eq!(found, expected, "{is_patient} {running} {waiting}");
        }
    }

    #[test]
    fn patience_that_was_of_no_use_is_tried_again_later_and_later() {
        let start = Instant::now();
        let mut turns = Turns::new(start);
        assert!(!turns.decide(Finding::Strangers, start), "nobody is patient among strangers");
        assert!(turns.decide(Finding::Crowded, start), "who was not patient has nothing to distrust");
        let mut now = start;
        for wait in [4, 8, 16, 32, 64, 128, 256, 512, 512] {
            turns.is_patient = true;
            assert!(!turns.decide(Finding::Strangers, now));
            turns.is_patient = false;
            let again = now + Duration::from_secs(wait);
            assert!(!turns.decide(Finding::Crowded, again - Duration::from_millis(1)), "{wait} s are not over");
            assert!(turns.decide(Finding::Crowded, again), "{wait} s are over");
            now = again;
        }
        turns.is_patient = true;
        for distrust in [256, 128, 64, 32, 16, 8, 4, 4] {
            assert!(turns.decide(Finding::Crowded, now));
            assert_eq!(turns.distrust, Duration::from_secs(distrust), "where it is of use, trust comes back");
        }
    }

    #[test]
    fn a_thread_becomes_patient_and_is_no_longer() {
        unsafe extern "C" {
            fn sched_getscheduler(thread: c_int) -> c_int;
        }
        // SAFETY: it only tells the calling thread's policy.
        let policy = || unsafe { sched_getscheduler(0) };
        for (is_patient, expected) in [(true, 3), (false, 0)] {
            set_patient(is_patient).unwrap();
            assert_eq!(policy(), expected);
        }
    }
}

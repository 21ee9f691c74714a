//! Whether a network thread that is woken takes the core from the thread that woke it.
//!
//! Tasks of one machine pass their steps on to each other. While the cores are well used, the kernel looks for none at rest:
//! it wakes a thread on the core of the one that sent to it, and takes that core from it at once. A parameter server that has
//! answered one worker and is about to see to the next then waits until the first worker has computed, and the next worker
//! waits with it. A thread that is patient lets the other one come to an end, which takes well below a millisecond among our
//! own kind: two workers and a parameter server on two cores make a tenth more steps.
//!
//! Behind somebody who computes for long it would wait much longer than the threads it wants to spare. So a thread becomes
//! patient where it waits much anyway, and loses trust if that makes it wait for more.

use linalg::crowd::Spent;
use std::cell::RefCell;
use std::ffi::c_int;
use std::io;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// How often a thread looks at what it has spent.
const PERIOD: Duration = Duration::from_millis(250);
/// With less work than this part of the time, there is nothing to judge by.
const BUSY: f64 = 0.1;
/// It becomes patient when it waits for a core for more than this part of the time it runs (two tasks that take turns: 0.1;
/// three that meet: 0.4 to 0.7; five: 1.0),
const MANY: f64 = 0.3;
/// and stays so until it hardly waits,
const FEW: f64 = 0.04;
/// or waits for so much more than before (in a crowd it is 0.3 to 1.1 times as much; behind threads that compute, 1.5 to 3).
const MORE: f64 = 1.4;
/// How long patience that was of no use is not tried again, at first and at most.
const DISTRUST: (Duration, Duration) = (Duration::from_secs(4), Duration::from_secs(512));

/// Never, for all that a process lives.
const AGES: Duration = Duration::from_secs(1 << 30);

thread_local! {
    static TURNS: RefCell<Turns> = RefCell::new(Turns::begin(Instant::now()));
}

/// Has the calling thread look from time to time how it should take its turns. To be called when it has nothing to do.
pub(crate) fn consider() {
    TURNS.with_borrow_mut(|turns| {
        let now = Instant::now();
        if now >= turns.looked_at + PERIOD {
            turns.look(now);
        }
    });
}

/// How a thread takes its turns, and by what it judges.
struct Turns {
    /// How much it waited when it became patient, if it is.
    patient_since: Option<f64>,
    looked_at: Instant,
    last: Option<Spent>,
    trust_at: Instant,
    distrust: Duration,
}

/// What a thread's times tell.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Finding {
    Calm,
    /// It waits for this part of the time it runs.
    Crowded(f64),
    /// It waits for more than before it was patient.
    InVain,
}

impl Turns {
    fn new(now: Instant) -> Turns {
        Turns { patient_since: None, looked_at: now, last: None, trust_at: now, distrust: DISTRUST.0 }
    }

    /// Of the calling thread. A thread is born as patient as the one that made it, and begins without. Where whoever started
    /// the process has chosen how it is scheduled, that stays.
    fn begin(now: Instant) -> Turns {
        static AT_FIRST: OnceLock<c_int> = OnceLock::new();
        let mut turns = Turns::new(now);
        if *AT_FIRST.get_or_init(policy) != NORMAL || set_patient(false).is_err() {
            turns.trust_at = now + AGES;
        }
        turns
    }

    #[cold]
    fn look(&mut self, now: Instant) {
        let spent = Spent::by_this_thread();
        let time = now - std::mem::replace(&mut self.looked_at, now);
        if let (Some(last), Some(spent)) = (std::mem::replace(&mut self.last, spent), spent) {
            let was_patient = self.patient_since.is_some();
            self.decide(find(self.patient_since, spent.since(last), time), now);
            let is_patient = self.patient_since.is_some();
            if is_patient != was_patient && set_patient(is_patient).is_err() {
                // A system that does not want it is not asked a second time.
                (self.patient_since, self.trust_at) = (None, now + AGES);
            }
        }
    }

    /// Becomes patient or impatient, or stays what it is.
    fn decide(&mut self, finding: Finding, now: Instant) {
        match (finding, self.patient_since) {
            (Finding::InVain, _) => {
                self.trust_at = now + self.distrust;
                self.distrust = (self.distrust * 2).min(DISTRUST.1);
                self.patient_since = None;
            }
            (Finding::Calm, _) => self.patient_since = None,
            (Finding::Crowded(share), None) => self.patient_since = (now >= self.trust_at).then_some(share),
            // Some trust comes back with every look that finds patience in its place.
            (Finding::Crowded(_), Some(_)) => self.distrust = (self.distrust / 2).max(DISTRUST.0),
        }
    }
}

fn find(patient_since: Option<f64>, spent: Spent, time: Duration) -> Finding {
    let (share, busy) = (spent.waiting_share(), time.mul_f64(BUSY));
    let limit = if patient_since.is_some() { FEW } else { MANY };
    if spent.running + spent.waiting < busy {
        Finding::Calm
    } else if patient_since.is_some_and(|before| share > MORE * before) {
        Finding::InVain
    } else if spent.running >= busy && share > limit {
        Finding::Crowded(share)
    } else {
        Finding::Calm
    }
}

const NORMAL: c_int = 0;
const BATCH: c_int = 3;

/// How the kernel schedules the calling thread.
fn policy() -> c_int {
    unsafe extern "C" {
        fn sched_getscheduler(thread: c_int) -> c_int;
    }
    // SAFETY: it only tells the calling thread's policy.
    unsafe { sched_getscheduler(0) }
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
    fn a_crowd_is_told_from_calm_and_from_waiting_in_vain() {
        use Finding::*;
        // How much it waited before it was patient, the milliseconds of a hundred run and waited, and what that tells.
        let cases = [
            (None, 50, 5, Calm),
            (None, 50, 25, Crowded(0.5)),
            (None, 20, 60, Crowded(3.0)),
            (None, 5, 4, Calm), // hardly any work
            (None, 8, 8, Calm),
            (None, 0, 0, Calm),
            (Some(0.5), 50, 10, Crowded(0.2)),
            (Some(0.5), 80, 50, Crowded(0.625)),
            (Some(0.5), 50, 1, Calm),
            (Some(0.5), 40, 60, InVain),
            (Some(1.5), 40, 60, Crowded(1.5)),
            (Some(1.5), 5, 80, InVain),
            (Some(1.5), 0, 80, InVain),
            (Some(1.5), 1, 8, Calm),
        ];
        for (patient_since, running, waiting, expected) in cases {
            let found = find(patient_since, spent(running, waiting), Duration::from_millis(100));
            assert_eq!(found, expected, "{patient_since:?} {running} {waiting}");
        }
    }

    #[test]
    fn patience_that_was_in_vain_is_tried_again_later_and_later() {
        let mut now = Instant::now();
        let mut turns = Turns::new(now);
        let mut decide = |finding, now| {
            turns.decide(finding, now);
            turns.patient_since
        };
        for wait in [4, 8, 16, 32, 64, 128, 256, 512, 512] {
            assert_eq!(decide(Finding::Crowded(0.7), now), Some(0.7));
            assert_eq!(decide(Finding::InVain, now), None);
            let again = now + Duration::from_secs(wait);
            assert_eq!(decide(Finding::Crowded(0.6), again - Duration::from_millis(1)), None, "{wait} s are not over");
            now = again;
        }
        assert_eq!(decide(Finding::Crowded(0.7), now), Some(0.7));
        // Where it is of use, trust comes back, and what it is measured by stays.
        (0..3).for_each(|_| assert_eq!(decide(Finding::Crowded(0.2), now), Some(0.7)));
        assert_eq!(decide(Finding::InVain, now), None);
        assert_eq!(decide(Finding::Crowded(0.7), now + Duration::from_secs(63)), None);
        assert_eq!(decide(Finding::Crowded(0.7), now + Duration::from_secs(64)), Some(0.7));
        assert_eq!(decide(Finding::Calm, now), None);
    }

    #[test]
    fn a_thread_becomes_patient_and_is_no_longer() {
        for (is_patient, expected) in [(true, 3), (false, 0)] {
            set_patient(is_patient).unwrap();
            assert_eq!(policy(), expected);
        }
    }

    #[test]
    fn a_thread_made_by_a_patient_one_begins_without_patience() {
        consider(); // what the process began with is known
        set_patient(true).unwrap();
        let born = || {
            let before = policy();
            consider();
            (before, policy())
        };
        assert_eq!(std::thread::spawn(born).join().unwrap(), (BATCH, NORMAL));
        set_patient(false).unwrap();
    }
}

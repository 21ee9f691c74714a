//! Who takes part in what several sessions do together, and whether they are still there.
//!
//! Steps of different sessions meet at the accumulators and the token queue of synchronous training. Each session is a
//! [`Participant`] for the task that runs its steps; [`Participants`] are all of one task. What waits for somebody is
//! told when one of them leaves, is lost, or returns.

use parking_lot::Mutex;
use smallvec::SmallVec;
use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use tensor::{Error, Result, invalid};

/// The attribute by which a node chooses a [`LostWorker`] policy; nodes without it get the server's.
pub const ON_LOST_WORKER: &str = "_on_lost_worker";

/// The attribute by which a node that looks how many tokens there are asks something else: whether its session is to lead
/// the steps, which is to take the gradients, apply them and hand out the tokens. Its value is [`AS_CHIEF`] or
/// [`AS_WORKER`]. The answer is [`LEADS`] or [`FOLLOWS`]; whoever knows nothing of this answers with a size.
pub const ASKS_TO_LEAD: &str = "_asks_to_lead";
/// Asks as the one that leads unless another does already.
pub const AS_CHIEF: &str = "chief";
/// Asks as one that leads when who did is lost.
pub const AS_WORKER: &str = "worker";
/// Who asked is to lead.
pub const LEADS: i32 = -1;
/// Another one leads.
pub const FOLLOWS: i32 = -2;

/// How long somebody who was lost is worth waiting for.
pub const GIVEN_UP_AFTER: Duration = Duration::from_secs(60);

/// What synchronous training does when a worker is lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LostWorker {
    /// Goes on with those that are left, and counts the lost one again when it comes back.
    #[default]
    Shrink,
    /// Waits for it, as TensorFlow does, if need be for ever.
    Wait,
    /// Ends with an error that names it.
    Fail,
}

impl FromStr for LostWorker {
    type Err = Error;

    fn from_str(text: &str) -> Result<LostWorker> {
        match text {
            "shrink" => Ok(LostWorker::Shrink),
            "wait" => Ok(LostWorker::Wait),
            "fail" => Ok(LostWorker::Fail),
            other => Err(invalid!("'{other}' is no way to deal with a lost worker: wanted shrink, wait or fail")),
        }
    }
}

impl fmt::Display for LostWorker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LostWorker::Shrink => "shrink",
            LostWorker::Wait => "wait",
            LostWorker::Fail => "fail",
        })
    }
}

/// Whether a participant is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Presence {
    /// It is.
    Here,
    /// It said that it is done. Its program may open another session at once, as it does to recover from an error.
    Left,
    /// It said that it is done, and so is its program.
    Departed,
    /// It vanished; it may return.
    Lost,
    /// It vanished so long ago that nobody should wait for it any more; it may return all the same.
    GivenUp,
}

impl Presence {
    const ALL: [Presence; 5] = [Presence::Here, Presence::Left, Presence::Departed, Presence::Lost, Presence::GivenUp];

    /// Whether it vanished without a word.
    pub fn is_lost(self) -> bool {
        matches!(self, Presence::Lost | Presence::GivenUp)
    }

    /// Whether nothing is to be hoped for.
    pub fn is_final(self) -> bool {
        matches!(self, Presence::Departed | Presence::GivenUp)
    }
}

/// Wants to know when somebody leaves, is lost, or returns.
pub trait Watcher: Send + Sync {
    /// Somebody did.
    fn presence_changed(&self);
}

/// One session, as a task sees it that runs its steps.
pub struct Participant {
    name: String,
    since: Instant,
    presence: AtomicU8,
    gone_at: Mutex<Option<Instant>>,
    connections: Mutex<SmallVec<[Arc<Connection>; 2]>>,
    is_counted_on: AtomicBool,
    all: Arc<Participants>,
}

impl Participant {
    /// The task whose master it has, such as `/job:worker/replica:0/task:1`; empty if that is not known.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// All participants of the same task.
    pub fn all(&self) -> &Arc<Participants> {
        &self.all
    }

    /// Whether it is there.
    pub fn presence(&self) -> Presence {
        Presence::ALL[usize::from(self.presence.load(Ordering::Acquire))]
    }

    /// Whether it is there.
    pub fn is_here(&self) -> bool {
        self.presence() == Presence::Here
    }

    /// Whether this one was already there when the other went.
    pub fn has_seen_leave(&self, other: &Participant) -> bool {
        other.gone_at.lock().is_some_and(|at| self.since < at)
    }

    /// Others wait, or will, for what this one's steps do.
    pub fn count_on(&self) {
        self.is_counted_on.store(true, Ordering::Relaxed);
    }

    /// Whether others wait for what its steps do.
    pub fn is_counted_on(&self) -> bool {
        self.is_counted_on.load(Ordering::Relaxed)
    }

    /// It is done.
    pub fn leave(&self, now: Instant) {
        self.change(|before| match before {
            Presence::Here => Some((Presence::Left, Some(now))),
            _ => None,
        });
    }

    /// It vanished; or its program ended, if it had left before.
    pub fn lose(&self, now: Instant) {
        self.change(|before| match before {
            Presence::Here => Some((Presence::Lost, Some(now))),
            Presence::Left => Some((Presence::Departed, Some(now))),
            _ => None,
        });
    }

    /// It has been gone for long; in vain if it returned.
    pub fn give_up(&self) {
        let at = *self.gone_at.lock();
        self.change(|before| match before {
            Presence::Lost => Some((Presence::GivenUp, at)),
            Presence::Left => Some((Presence::Departed, at)),
            _ => None,
        });
    }

    /// A call of its came over this connection: if it was lost, it is back.
    pub fn heard_over(self: &Arc<Participant>, connection: &Arc<Connection>) {
        if self.presence().is_lost() {
            self.change(|before| before.is_lost().then_some((Presence::Here, None)));
        }
        let mut connections = self.connections.lock();
        if !connections.iter().any(|c| Arc::ptr_eq(c, connection)) && connection.add(self) {
            connections.push(connection.clone());
        }
    }

    fn is_cut_off_without(&self, closed: &Connection) -> bool {
        let mut connections = self.connections.lock();
        connections.retain(|c| !std::ptr::eq(&**c, closed));
        connections.is_empty()
    }

    /// Goes to the state, and the time of leaving, that `next` gives for the present one.
    fn change(&self, next: impl FnOnce(Presence) -> Option<(Presence, Option<Instant>)>) {
        {
            let mut gone_at = self.gone_at.lock();
            let Some((to, at)) = next(self.presence()) else { return };
            *gone_at = at;
            self.presence.store(to as u8, Ordering::Release);
        }
        self.all.notify();
    }
}

impl fmt::Display for Participant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.name.is_empty() { "a session of an unknown task" } else { &self.name })
    }
}

/// A way over which calls come, until it is closed.
pub struct Connection {
    /// Who was heard over it; `None` once it is closed.
    callers: Mutex<Option<Vec<Weak<Participant>>>>,
}

impl Connection {
    /// An open one.
    pub fn open() -> Arc<Connection> {
        Arc::new(Connection { callers: Mutex::new(Some(Vec::new())) })
    }

    /// It is closed for good. Who was heard over it and over no other is lost now: these are returned.
    pub fn close(&self, now: Instant) -> Vec<Weak<Participant>> {
        let callers = self.callers.lock().take().unwrap_or_default();
        let is_lost = |caller: &Weak<Participant>| {
            let cut_off = caller.upgrade().filter(|participant| participant.is_cut_off_without(self));
            cut_off.map(|participant| participant.lose(now)).is_some()
        };
        callers.into_iter().filter(is_lost).collect()
    }

    /// Whether it was still open.
    fn add(&self, caller: &Arc<Participant>) -> bool {
        let mut callers = self.callers.lock();
        let Some(list) = callers.as_mut() else { return false };
        list.retain(|c| c.strong_count() > 0);
        list.push(Arc::downgrade(caller));
        true
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.callers.lock().is_some() { "an open connection" } else { "a closed connection" })
    }
}

/// All sessions that take part in what a task runs.
#[derive(Default)]
pub struct Participants {
    policy: LostWorker,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    list: Vec<Weak<Participant>>,
    watchers: Vec<Weak<dyn Watcher>>,
}

impl Participants {
    /// Nobody yet. The policy is for nodes that do not choose one.
    pub fn new(policy: LostWorker) -> Arc<Participants> {
        Arc::new(Participants { policy, table: Mutex::default() })
    }

    /// What to do about a lost worker where a node does not say.
    pub fn policy(&self) -> LostWorker {
        self.policy
    }

    /// A new participant with this name, from now on.
    pub fn admit(self: &Arc<Participants>, name: impl Into<String>, now: Instant) -> Arc<Participant> {
        let participant = Arc::new(Participant {
            name: name.into(),
            since: now,
            presence: AtomicU8::new(Presence::Here as u8),
            gone_at: Mutex::new(None),
            connections: Mutex::default(),
            is_counted_on: AtomicBool::new(false),
            all: self.clone(),
        });
        let mut table = self.table.lock();
        table.list.retain(|p| p.strong_count() > 0);
        table.list.push(Arc::downgrade(&participant));
        participant
    }

    /// Tells this one from now on whenever somebody leaves, is lost, or returns.
    pub fn watch(&self, watcher: Weak<dyn Watcher>) {
        let mut table = self.table.lock();
        table.watchers.retain(|w| w.strong_count() > 0);
        table.watchers.push(watcher);
    }

    /// Those who vanished and have not returned, nor has another session of their task come since.
    pub fn lost(&self) -> Vec<Arc<Participant>> {
        let list: Vec<_> = self.table.lock().list.iter().filter_map(Weak::upgrade).collect();
        let is_lost = |at: usize| {
            let is_successor = |p: &Arc<Participant>| p.name == list[at].name && !p.presence().is_lost();
            list[at].presence().is_lost() && !list[at + 1..].iter().any(is_successor)
        };
        (0..list.len()).filter(|&at| is_lost(at)).map(|at| list[at].clone()).collect()
    }

    fn notify(&self) {
        let watchers: Vec<_> = self.table.lock().watchers.iter().filter_map(Weak::upgrade).collect();
        watchers.iter().for_each(|w| w.presence_changed());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[derive(Default)]
    struct Count(AtomicUsize);
    impl Watcher for Count {
        fn presence_changed(&self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn who_is_lost_may_return_and_who_left_does_not() {
        let all = Participants::new(LostWorker::Shrink);
        let count = Arc::new(Count::default());
        all.watch(Arc::downgrade(&count) as Weak<dyn Watcher>);
        let told = || count.0.load(Ordering::SeqCst);
        let start = Instant::now();
        let later = start + Duration::from_secs(1);
        let (one, two) = (all.admit("one", start), all.admit("two", start));

        one.give_up();
        assert!(one.is_here(), "only who is gone is given up");
        one.lose(later);
        one.lose(later);
        assert_eq!((one.presence(), told()), (Presence::Lost, 1));
        assert!(two.has_seen_leave(&one) && !all.admit("late", later).has_seen_leave(&one));
        assert_eq!(all.lost().iter().map(|p| p.name()).collect::<Vec<_>>(), ["one"]);
        one.give_up();
        assert_eq!((one.presence(), told()), (Presence::GivenUp, 2));
        one.heard_over(&Connection::open());
        assert_eq!((one.presence(), told()), (Presence::Here, 3));
        assert!(!two.has_seen_leave(&one));

        two.leave(later);
        two.heard_over(&Connection::open());
        assert_eq!((two.presence(), told()), (Presence::Left, 4));
        two.lose(later);
        assert_eq!((two.presence(), told()), (Presence::Departed, 5));
        assert!(all.lost().is_empty());
        one.lose(later);
        drop(one);
        assert!(all.lost().is_empty(), "its session is gone: nobody waits for it");
    }

    #[test]
    fn a_caller_is_lost_when_its_last_connection_is_closed_and_back_with_its_next_call() {
        let (all, now) = (Participants::new(LostWorker::Shrink), Instant::now());
        let worker = all.admit("worker", now);
        let (control, tensors) = (Connection::open(), Connection::open());
        for connection in [&control, &control, &tensors, &control] {
            worker.heard_over(connection);
        }
        assert_eq!(worker.connections.lock().len(), 2);
        assert!(control.close(now).is_empty());
        assert!(worker.is_here(), "one is left");
        let lost = tensors.close(now);
        assert!(lost[0].upgrade().is_some_and(|lost| Arc::ptr_eq(&lost, &worker)));
        assert_eq!(worker.presence(), Presence::Lost);

        let again = Connection::open();
        worker.heard_over(&again);
        assert!(worker.is_here());
        assert!(tensors.close(now).is_empty(), "closed twice is closed once");
        assert_eq!(again.close(now).len(), 1);
    }

    #[test]
    fn policies_are_read_as_they_are_written() {
        for policy in [LostWorker::Shrink, LostWorker::Wait, LostWorker::Fail] {
            assert_eq!(policy.to_string().parse::<LostWorker>().unwrap(), policy);
        }
        let error = "panic".parse::<LostWorker>().unwrap_err();
        assert!(error.message.contains("wanted shrink, wait or fail"), "{error}");
    }
}

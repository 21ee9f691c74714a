//! A client's connection, moved by the thread that waits for an answer.
//!
//! To wake a thread on an idle core takes longer than a small step. So a caller that is blocked anyway writes its request and
//! reads the answer itself, and nobody is woken. One thread at a time *drives*: it has the connection in hand, looks for
//! answers for a short while, and then sleeps on the socket. While it sleeps the connection lies here for others to take.
//! Others that call meanwhile wait to be woken by the driver, which moves their bytes too. One that is done, or finds that
//! many wait, leaves the connection to its keeper: a task on the network's threads, which is woken by what comes from the
//! peer, and by those who do not block.
//!
//! Somebody always watches the socket while the connection lies here: the thread that sleeps on it, or the keeper.

mod line;
mod seat;

pub(crate) use line::{Line, receive, retry};
pub(crate) use seat::{attend, await_others, is_attended, wake_at};
pub use seat::{block_on, stay_in_background};

use crate::channel::Wire;
use distributed::brief;
use line::Watch;
use parking_lot::Mutex;
use seat::Seat;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};
use tensor::Result;
use tokio::io::unix::AsyncFd;

/// How long a driver looks for an answer before it sleeps. That spares being woken; and while it looks, those who work on the
/// answer wake each other on the core that is left, which takes them a fifth of the time of waking an idle one.
const LOOK_TIME: Duration = Duration::from_millis(1);
/// So many that wait are a crowd: most of what comes is for others, and whoever drives would only hold up his own work.
const CROWD: u32 = 3;
/// After so many times in vain it looks only now and then.
const VAIN_MAX: u32 = 3;
const NOW_AND_THEN: u32 = 32;

/// How often in a row looking was in vain.
#[derive(Default)]
struct Vain(AtomicU32);

impl Vain {
    /// Looks until this finds something, or for as long as that is worth it; whether something was found.
    fn look(&self, find: impl Fn() -> bool) -> bool {
        let vain = self.0.load(Ordering::Relaxed);
        let is_worth_it = vain < VAIN_MAX || vain.is_multiple_of(NOW_AND_THEN);
        let end = is_worth_it.then(|| Instant::now() + LOOK_TIME);
        while end.is_some_and(|end| Instant::now() < end) {
            if find() {
                self.0.store(0, Ordering::Relaxed);
                return true;
            }
            std::thread::yield_now(); // whoever wants this core has it
        }
        self.0.store(vain.wrapping_add(1), Ordering::Relaxed);
        false
    }
}

/// A connection, whoever drives it.
pub(crate) struct Drive {
    line: Arc<Line>,
    /// Whether there is something to be done on the connection since it was last polled.
    is_due: AtomicBool,
    state: Mutex<State>,
    vain: Vain,
    /// How many threads are blocked on answers.
    waiting: AtomicU32,
}

struct State {
    /// Not here while somebody has it in hand.
    connection: Option<Wire>,
    /// The thread that sleeps on the socket.
    sleeper: Option<Arc<Seat>>,
    /// Whether somebody else has had the connection since it fell asleep.
    is_disturbed: bool,
    /// Whether the keeper watches the socket.
    is_kept: bool,
    keeper: Option<Waker>,
    end: Option<Result<()>>,
}

impl Drive {
    fn new(connection: Wire, line: Arc<Line>) -> Arc<Drive> {
        let state = State {
            connection: Some(connection),
            sleeper: None,
            is_disturbed: false,
            is_kept: false,
            keeper: None,
            end: None,
        };
        let (is_due, state) = (AtomicBool::new(true), Mutex::new(state));
        Arc::new(Drive { line, is_due, state, vain: Vain::default(), waiting: AtomicU32::new(0) })
    }

    fn is_crowded(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) >= CROWD
    }

    fn is_due(&self) -> bool {
        self.is_due.load(Ordering::SeqCst)
    }

    /// The connection, unless somebody has it in hand; he will then do what is due.
    fn take(self: &Arc<Drive>) -> Option<Held> {
        self.take_from(&mut self.state.lock())
    }

    fn take_from(self: &Arc<Drive>, state: &mut State) -> Option<Held> {
        let connection = state.connection.take()?;
        state.is_disturbed = true;
        if std::mem::take(&mut state.is_kept) {
            self.line.take_from_network();
        }
        Some(Held { drive: self.clone(), connection: Some(connection) })
    }

    /// Leaves what is due to others.
    fn leave(&self) {
        if self.is_due() {
            self.alert();
        }
    }

    /// Has somebody look at what is due.
    fn alert(&self) {
        let state = self.state.lock();
        match (&state.connection, &state.sleeper, &state.keeper) {
            (None, ..) => {} // in hand: looked at before it is laid down
            (_, Some(sleeper), _) => sleeper.rouse(),
            (_, None, Some(keeper)) => keeper.wake_by_ref(),
            (_, None, None) => {} // the keeper begins with a look
        }
    }

    /// Looks for a short while whether there is something to do, if that has been worth it.
    fn look(&self, seat: &Seat) -> bool {
        self.vain.look(|| {
            let has_come = self.line.is_ready();
            if has_come {
                self.line.expect_bytes();
            }
            has_come || seat.is_woken() || self.is_due()
        })
    }
}

/// How a connection says that there is something to be done on it.
impl Wake for Drive {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // A thread that waits for an answer on this connection looks after it itself.
        if !self.is_due.swap(true, Ordering::SeqCst) && !is_attended(self) {
            self.alert();
        }
    }
}

/// The connection in hand. It is laid down when dropped.
struct Held {
    drive: Arc<Drive>,
    connection: Option<Wire>,
}

/// How a driver's sleep ended.
enum Slept {
    /// There was no time for it, or it is over: with the connection in hand.
    Driving(Held),
    /// Somebody else has taken the connection.
    Relieved,
}

impl Held {
    /// Moves what can be moved. False at the connection's end.
    fn turn(&mut self) -> bool {
        // Taken out: one that panics is not laid down again.
        let Some(mut connection) = self.connection.take() else { return false };
        self.drive.is_due.store(false, Ordering::SeqCst);
        let waker = Waker::from(self.drive.clone());
        let Poll::Ready(end) = connection.poll(&mut Context::from_waker(&waker)) else {
            self.connection = Some(connection);
            return true;
        };
        // Those who wait for an answer have been told, or are now.
        drop(connection);
        let mut state = self.drive.state.lock();
        state.end = Some(end);
        if let Some(keeper) = &state.keeper {
            keeper.wake_by_ref();
        }
        false
    }

    /// Lays the connection down and sleeps on the socket.
    fn sleep(mut self, seat: &Arc<Seat>, until: Option<Instant>) -> Slept {
        let drive = self.drive.clone();
        {
            let mut state = drive.state.lock();
            if drive.is_due() {
                return Slept::Driving(self);
            }
            if state.sleeper.is_some() || state.end.is_some() {
                return Slept::Relieved; // he who sleeps on it goes on; or nobody does
            }
            state.connection = self.connection.take();
            state.sleeper = Some(seat.clone());
            state.is_disturbed = false;
        }
        seat.sleep_on(&drive.line, until, || drive.is_due());
        let mut state = drive.state.lock();
        state.sleeper = None;
        let is_disturbed = state.is_disturbed;
        // If nobody has it in hand, nobody watches now.
        let held = drive.take_from(&mut state);
        drop(state);
        match held {
            Some(held) if !is_disturbed => Slept::Driving(held),
            // Others come and go: this is no place to sleep. What has come is moved before it is laid down.
            Some(mut held) => {
                held.turn();
                Slept::Relieved
            }
            None => Slept::Relieved,
        }
    }

    /// Lays the connection down; whether there was nothing left to do.
    fn lay_down(&mut self) -> bool {
        let mut state = self.drive.state.lock();
        if state.end.is_some() {
            return true; // nobody keeps it any more: it goes with this
        }
        let is_due = self.drive.is_due();
        state.connection = self.connection.take();
        // Who sleeps on the socket waits for what comes, but not for room.
        if state.sleeper.is_none() || self.drive.line.is_full() {
            self.drive.line.hand_to_network();
            state.is_kept = true;
        }
        !is_due
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // Others may have put something on while it was in hand: once more for them, and then it is the keeper's.
        if self.drive.is_due() && !std::thread::panicking() {
            self.turn();
        }
        if self.connection.is_some() && !self.lay_down() {
            self.drive.alert();
        }
    }
}

/// Sees to a connection while nobody drives it. To be polled on the network's threads, until the connection's end.
pub(crate) struct Keeper {
    drive: Arc<Drive>,
    watch: AsyncFd<Arc<Watch>>,
}

impl Keeper {
    /// Begins to keep a connection over this line.
    pub(crate) fn new(connection: Wire, line: Arc<Line>) -> io::Result<Keeper> {
        let watch = line.watch().register()?;
        Ok(Keeper { drive: Drive::new(connection, line), watch })
    }

    /// What it keeps.
    pub(crate) fn drive(&self) -> &Arc<Drive> {
        &self.drive
    }

    /// Ready at the connection's end.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let mut has_come = false;
        while let Poll::Ready(Ok(mut told)) = self.watch.poll_read_ready(cx) {
            told.clear_ready();
            self.watch.get_ref().clear();
            has_come = true;
        }
        {
            let mut state = self.drive.state.lock();
            if let Some(end) = state.end.take() {
                return Poll::Ready(end);
            }
            state.keeper = Some(cx.waker().clone());
        }
        let held = (has_come || self.drive.is_due()).then(|| self.drive.take()).flatten();
        let Some(mut held) = held else { return Poll::Pending };
        if has_come {
            self.drive.line.expect_bytes();
        }
        // What an answer wakes goes on right here.
        if brief::briefly(|| held.turn()).value {
            return Poll::Pending;
        }
        self.drive.state.lock().end.take().map_or(Poll::Pending, Poll::Ready)
    }
}

/// A connection that is not kept is closed. It knows this drive as who is to be told of what is due, and would not go by itself.
impl Drop for Keeper {
    fn drop(&mut self) {
        let mut state = self.drive.state.lock();
        state.end.get_or_insert(Ok(()));
        let connection = state.connection.take();
        drop(state);
        drop(connection);
    }
}

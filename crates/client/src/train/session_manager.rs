//! `SessionManager`: opens sessions that are ready for training.
//!
//! The chief initialises or restores the model, the others wait until it has. What live servers hold already is taken
//! over as it is: a worker that comes back, chief or not, loses no step.

use super::checkpoints::{checkpoint_state, latest_checkpoint};
use super::report::{one_line, say};
use super::scaffold::Scaffold;
use crate::{Feeds, Graph, Operation, Output, Session, SessionOptions, Variable, inspect};
use std::fmt;
use std::path::PathBuf;
use std::sync::mpsc::{RecvTimeoutError, Sender, TryRecvError, channel};
use std::time::{Duration, Instant};
use tensor::{Code, Error, Result, deadline_exceeded, failed_precondition};

/// How long to wait for a session unless told.
pub(super) const MAX_WAIT: Duration = Duration::from_secs(7200);

/// Opens sessions that are ready for training.
#[derive(Clone)]
pub struct SessionManager {
    graph: Graph,
    scaffold: Scaffold,
    options: SessionOptions,
    checkpoint_dir: Option<PathBuf>,
    checkpoint_filename: Option<PathBuf>,
    max_wait: Duration,
    recovery_wait: Duration,
    adopts: bool,
}

/// A session that is ready for training.
pub struct Prepared {
    /// The session.
    pub session: Session,
    /// Where the state of the model came from.
    pub origin: Origin,
}

/// Where the state of a model came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// It was there: live servers held it.
    Adopted,
    /// From the checkpoint of this prefix.
    Restored(PathBuf),
    /// It is new.
    Initialized,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Adopted => f.write_str("the servers hold the model"),
            Origin::Restored(prefix) => write!(f, "restored {}", prefix.display()),
            Origin::Initialized => f.write_str("there was no checkpoint, the model is new"),
        }
    }
}

impl SessionManager {
    /// Opens sessions on a graph; the scaffold is finalized now.
    #[track_caller]
    pub fn new(graph: &Graph, scaffold: &Scaffold) -> SessionManager {
        scaffold.finalize(graph);
        SessionManager {
            graph: graph.clone(),
            scaffold: scaffold.clone(),
            options: SessionOptions::default(),
            checkpoint_dir: None,
            checkpoint_filename: None,
            max_wait: MAX_WAIT,
            recovery_wait: Duration::MAX,
            adopts: true,
        }
    }

    /// How the sessions behave.
    pub fn config(mut self, options: SessionOptions) -> SessionManager {
        self.options = options;
        self
    }

    /// Restores the latest checkpoint of this directory.
    pub fn checkpoint_dir(mut self, dir: impl Into<PathBuf>) -> SessionManager {
        self.checkpoint_dir = Some(dir.into());
        self
    }

    /// Restores the checkpoint of this prefix.
    pub fn checkpoint_filename(mut self, prefix: impl Into<PathBuf>) -> SessionManager {
        self.checkpoint_filename = Some(prefix.into());
        self
    }

    /// The longest that opening a session may wait for servers and for the chief.
    pub fn max_wait(mut self, limit: Duration) -> SessionManager {
        self.max_wait = limit;
        self
    }

    /// The longest pause between two looks whether the model is ready, a tenth of a second at most.
    pub fn recovery_wait(mut self, pause: Duration) -> SessionManager {
        self.recovery_wait = pause;
        self
    }

    /// Whether a model that live servers hold is taken over as it is, which it is unless told, or initialised or restored
    /// over.
    pub fn adopt_live_state(mut self, yes: bool) -> SessionManager {
        self.adopts = yes;
        self
    }

    /// The chief's session: the model is taken over if it is there, restored if there is a checkpoint, and initialised
    /// otherwise.
    pub fn prepare_session(&self, master: &str) -> Result<Prepared> {
        self.repeat(master, |session| self.prepare(session))
    }

    /// As [`prepare_session`](SessionManager::prepare_session), but nothing is initialised: `None` if the model is not
    /// there and there is no checkpoint.
    pub fn recover_session(&self, master: &str) -> Result<Option<Prepared>> {
        self.repeat(master, |session| self.recover(session))
    }

    /// Opens sessions until one of them lasts.
    fn repeat<T>(&self, master: &str, work: impl Fn(Session) -> Result<T>) -> Result<T> {
        let mut waiting = self.waiting();
        loop {
            match self.connect(master, waiting.left()).and_then(&work) {
                Err(error) if is_recoverable(&error) => waiting.pause(&error.message)?,
                outcome => return outcome,
            }
        }
    }

    /// Another worker's session: opened as soon as the chief has made the model ready.
    pub fn wait_for_session(&self, master: &str) -> Result<Session> {
        let mut waiting = self.waiting();
        let mut session = None;
        loop {
            match self.look(&mut session, master, waiting.left()) {
                Ok(None) => {}
                Ok(Some(missing)) => {
                    waiting.pause(&missing)?;
                    continue;
                }
                Err(error) if is_recoverable(&error) => {
                    session = None;
                    waiting.pause(&error.message)?;
                    continue;
                }
                Err(error) => return Err(error),
            }
            if let Some(session) = session {
                return Ok(session);
            }
        }
    }

    fn waiting(&self) -> Waiting {
        let waiting = Waiting::new("a session that is ready", self.max_wait);
        Waiting { pause_max: self.recovery_wait.min(waiting.pause_max), ..waiting }
    }

    fn connect(&self, master: &str, limit: Duration) -> Result<Session> {
        // The caller tries again soon, and says so; here a server is only given the time to answer.
        const ATTEMPT: Duration = Duration::from_secs(1);
        let patience = Some(self.options.patience.unwrap_or(ATTEMPT).min(limit));
        let options = SessionOptions { patience, ..self.options.clone() };
        let _telling = tell_who_is_missing(master);
        Session::connect_within(master, &self.graph, options, Some(limit))
    }

    fn prepare(&self, session: Session) -> Result<Prepared> {
        let origin = match self.adopt_or_restore(&session)? {
            Some(origin) => origin,
            None => {
                let parts = self.scaffold.parts();
                run_if_any(&session, parts.init_op, parts.init_feeds)?;
                if let Some(init) = parts.init_fn {
                    init(&session)?;
                }
                Origin::Initialized
            }
        };
        self.finish(session, origin)
    }

    fn recover(&self, session: Session) -> Result<Option<Prepared>> {
        match self.adopt_or_restore(&session)? {
            Some(origin) => self.finish(session, origin).map(Some),
            None => Ok(None),
        }
    }

    fn adopt_or_restore(&self, session: &Session) -> Result<Option<Origin>> {
        let parts = self.scaffold.parts();
        // A graph without variables has nothing that servers could hold.
        let adopts = self.adopts && !self.graph.global_variables().is_empty();
        if adopts && missing(session, parts.ready_for_local_init_op.as_ref())?.is_none() {
            return Ok(Some(Origin::Adopted));
        }
        match (self.find_checkpoint()?, parts.saver) {
            (Some(found), Some(saver)) => {
                saver.restore(session, &found.prefix)?;
                saver.recover_last_checkpoints(&found.all)?;
                Ok(Some(Origin::Restored(found.prefix)))
            }
            _ => Ok(None),
        }
    }

    /// Initialises what the worker keeps for itself; an error if something is missing then.
    fn finish(&self, session: Session, origin: Origin) -> Result<Prepared> {
        match self.initialize_local(&session)? {
            None => Ok(Prepared { session, origin }),
            Some(missing) => Err(failed_precondition!("the model is not ready although it was prepared: {missing}")),
        }
    }

    /// Connects if need be; what is still missing in the model, if anything is.
    fn look(&self, session: &mut Option<Session>, master: &str, limit: Duration) -> Result<Option<String>> {
        let session = match session {
            Some(session) => session,
            None => session.insert(self.connect(master, limit)?),
        };
        self.initialize_local(session)
    }

    fn initialize_local(&self, session: &Session) -> Result<Option<String>> {
        let parts = self.scaffold.parts();
        if let Some(missing) = missing(session, parts.ready_for_local_init_op.as_ref())? {
            return Ok(Some(missing));
        }
        run_if_any(session, parts.local_init_op, parts.local_init_feeds)?;
        missing(session, parts.ready_op.as_ref())
    }

    fn find_checkpoint(&self) -> Result<Option<Found>> {
        if let Some(prefix) = &self.checkpoint_filename {
            return Ok(Some(Found { prefix: prefix.clone(), all: Vec::new() }));
        }
        let Some(dir) = &self.checkpoint_dir else { return Ok(None) };
        let Some(prefix) = latest_checkpoint(dir)? else { return Ok(None) };
        let all = checkpoint_state(dir)?.map_or_else(Vec::new, |state| state.all);
        Ok(Some(Found { prefix, all }))
    }
}

struct Found {
    prefix: PathBuf,
    all: Vec<PathBuf>,
}

/// The step that a model has come to, if steps are counted.
pub(super) fn step_of(session: &Session, step: Option<&Variable>) -> Result<Option<i64>> {
    step.map(|step| session.run(step)?.to_i64()).transpose()
}

/// Whether a session that failed so may work when it is opened anew.
pub(super) fn is_recoverable(error: &Error) -> bool {
    matches!(error.code, Code::Aborted | Code::Unavailable)
}

fn run_if_any(session: &Session, operation: Option<Operation>, feeds: Feeds) -> Result<()> {
    operation.map_or(Ok(()), |operation| session.run_with(&operation, feeds))
}

/// What a list of missing things says, if it is not empty.
fn missing(session: &Session, ready: Option<&Output>) -> Result<Option<String>> {
    let Some(ready) = ready else { return Ok(None) };
    let names = match session.run(ready) {
        Ok(names) => names,
        // A program's own list may depend on what is missing.
        Err(e) if e.code == Code::FailedPrecondition => return Ok(Some(one_line(&e.message))),
        Err(e) => return Err(e),
    };
    let names: Vec<_> = names.as_strings()?.iter().map(|name| String::from_utf8_lossy(name)).collect();
    const SHOWN: usize = 5;
    Ok(match names.len() {
        0 => None,
        n if n > SHOWN => Some(format!("no value yet: {} and {} more", names[..SHOWN].join(", "), n - SHOWN)),
        _ => Some(format!("no value yet: {}", names.join(", "))),
    })
}

/// How long is waited before that is said for the first time.
const QUIET: Duration = Duration::from_secs(2);

/// While a master opens a session it waits for the tasks that the graph needs. Says now and then which of its cluster
/// cannot be reached, as long as what is returned lives.
fn tell_who_is_missing(master: &str) -> Sender<()> {
    let (connecting, ended) = channel();
    let (master, started) = (master.to_string(), Instant::now());
    let tell = move || {
        let mut pause = QUIET;
        while ended.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
            let tasks = inspect::status(&master, QUIET).unwrap_or_default();
            let named = tasks.into_iter().filter_map(|task| Some(format!("{}: {}", task.task, task.problem?)));
            let missing: Vec<String> = named.collect();
            if ended.try_recv() == Err(TryRecvError::Empty) && !missing.is_empty() {
                let seconds = started.elapsed().as_secs_f64();
                say(format_args!("waiting for a session since {seconds:.0} s: {}", missing.join("; ")));
            }
            pause *= 2;
        }
    };
    // Without a thread for it nothing is said.
    let _ = std::thread::Builder::new().name("waiting for a session".into()).spawn(tell);
    connecting
}

/// A wait with pauses that grow, up to a limit; now and then it says what for.
pub(super) struct Waiting {
    what: &'static str,
    started: Instant,
    limit: Duration,
    pause: Duration,
    pause_max: Duration,
    /// When to say it next.
    speaks: Duration,
}

impl Waiting {
    const PAUSE_MIN: Duration = Duration::from_millis(5);
    const PAUSE_MAX: Duration = Duration::from_millis(100);
    /// With less time left, another attempt would only learn that there was too little time.
    const WORTHWHILE: Duration = Duration::from_millis(150);

    pub(super) fn new(what: &'static str, limit: Duration) -> Waiting {
        let speaks = QUIET;
        Waiting {
            what,
            started: Instant::now(),
            limit,
            pause: Waiting::PAUSE_MIN,
            pause_max: Waiting::PAUSE_MAX,
            speaks,
        }
    }

    fn left(&self) -> Duration {
        self.limit.saturating_sub(self.started.elapsed())
    }

    pub(super) fn pause(&mut self, reason: &str) -> Result<()> {
        let waited = self.started.elapsed();
        if waited + self.pause + Waiting::WORTHWHILE >= self.limit {
            let seconds = waited.as_secs_f64();
            return Err(deadline_exceeded!("waited {seconds:.1} s for {}: {reason}", self.what));
        }
        if waited >= self.speaks {
            say(format_args!("waiting for {} since {:.0} s: {reason}", self.what, waited.as_secs_f64()));
            self.speaks = waited * 2;
        }
        std::thread::sleep(self.pause);
        self.pause = (self.pause * 2).min(self.pause_max);
        Ok(())
    }
}

//! `MonitoredSession`: a session that lasts for a whole training, with hooks around its steps.
//!
//! When a task is lost, the session is opened anew and the step repeated. What live servers hold is taken over; only if
//! variables were lost does the chief go back to the last checkpoint, and says so.

use super::hooks::{CheckpointSaver, Every, StepCounter, SummarySaver};
use super::report::say;
use super::session_manager::{MAX_WAIT, is_recoverable, step_of};
use super::{Coordinator, Hook, Origin, RunContext, RunValues, Scaffold, SessionManager, start_queue_runners};
use crate::{Feeds, Fetch, FileWriter, Graph, Output, RunMetadata, RunOptions, Session, SessionOptions, Variable};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tensor::{Code, Error, Result, failed_precondition};

/// How a training session is opened; [`start`](MonitoredTrainingSession::start) does it.
///
/// ```
/// use ferroflow::prelude::*;
/// use ferroflow::train::hooks::StopAtStep;
///
/// let g = Graph::new();
/// let step = g.global_step();
/// let w = g.variable("w", 0.0f32);
/// let train = GradientDescent::new(0.1).minimize(&(&w - 3.0).square()).increment(&step);
///
/// let folder = tempfile::tempdir()?;
/// let mut session = MonitoredTrainingSession::new(&g)
///     .checkpoint_dir(folder.path())
///     .hook(StopAtStep::last(20))
///     .start()?;
/// while !session.should_stop() {
///     session.run(&train)?;
/// }
/// session.close()?;
/// assert!(ferroflow::train::latest_checkpoint(folder.path())?.unwrap().ends_with("model.ckpt-20"));
/// # Ok::<(), ferroflow::Error>(())
/// ```
pub struct MonitoredTrainingSession {
    graph: Graph,
    master: String,
    is_chief: bool,
    scaffold: Scaffold,
    hooks: Vec<Box<dyn Hook>>,
    chief_only_hooks: Vec<Box<dyn Hook>>,
    checkpoint_dir: Option<PathBuf>,
    checkpoint_filename: Option<PathBuf>,
    summary_dir: Option<PathBuf>,
    save_checkpoint: Option<Every>,
    save_summaries: Option<Every>,
    log_step_count: Option<Every>,
    options: SessionOptions,
    stop_grace_period: Duration,
    max_wait: Duration,
    adopts: bool,
}

impl MonitoredTrainingSession {
    /// The session of a chief on a private one-task cluster, unless told otherwise.
    pub fn new(graph: &Graph) -> MonitoredTrainingSession {
        MonitoredTrainingSession {
            graph: graph.clone(),
            master: String::new(),
            is_chief: true,
            scaffold: Scaffold::new(),
            hooks: Vec::new(),
            chief_only_hooks: Vec::new(),
            checkpoint_dir: None,
            checkpoint_filename: None,
            summary_dir: None,
            save_checkpoint: Some(Every::secs(600.0)),
            save_summaries: Some(Every::steps(100)),
            log_step_count: Some(Every::steps(100)),
            options: SessionOptions::default(),
            stop_grace_period: Duration::from_secs(120),
            max_wait: MAX_WAIT,
            adopts: true,
        }
    }

    /// The server it is opened on, as [`Server::target`](crate::Server::target) gives it.
    pub fn master(mut self, target: impl Into<String>) -> Self {
        self.master = target.into();
        self
    }

    /// Whether it makes the model ready, saves it and writes summaries; the others wait for it.
    pub fn is_chief(mut self, yes: bool) -> Self {
        self.is_chief = yes;
        self
    }

    /// Where the chief saves and finds checkpoints, and writes summaries.
    pub fn checkpoint_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.checkpoint_dir = Some(dir.into());
        self
    }

    /// The checkpoint that is restored, rather than the latest of the directory.
    pub fn checkpoint_filename(mut self, prefix: impl Into<PathBuf>) -> Self {
        self.checkpoint_filename = Some(prefix.into());
        self
    }

    /// Where summaries are written, rather than beside the checkpoints.
    pub fn summary_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.summary_dir = Some(dir.into());
        self
    }

    /// What initialises, restores and saves the model.
    pub fn scaffold(mut self, scaffold: &Scaffold) -> Self {
        self.scaffold = scaffold.clone();
        self
    }

    /// One more hook.
    pub fn hook(mut self, hook: impl Hook + 'static) -> Self {
        self.hooks.push(Box::new(hook));
        self
    }

    /// One more hook, if this is the chief.
    pub fn chief_only_hook(mut self, hook: impl Hook + 'static) -> Self {
        self.chief_only_hooks.push(Box::new(hook));
        self
    }

    /// Saves a checkpoint every so many seconds, 600 unless told; 0 is never.
    pub fn save_checkpoint_secs(mut self, secs: f64) -> Self {
        self.save_checkpoint = (secs > 0.0).then(|| Every::secs(secs));
        self
    }

    /// Saves a checkpoint every so many steps; 0 is never.
    pub fn save_checkpoint_steps(mut self, steps: u64) -> Self {
        self.save_checkpoint = (steps > 0).then(|| Every::steps(steps));
        self
    }

    /// Writes summaries every so many seconds; 0 is never.
    pub fn save_summaries_secs(mut self, secs: f64) -> Self {
        self.save_summaries = (secs > 0.0).then(|| Every::secs(secs));
        self
    }

    /// Writes summaries every so many steps, 100 unless told; 0 is never.
    pub fn save_summaries_steps(mut self, steps: u64) -> Self {
        self.save_summaries = (steps > 0).then(|| Every::steps(steps));
        self
    }

    /// Tells every so many steps how many there are in a second, 100 unless told; 0 is never.
    pub fn log_step_count_steps(mut self, steps: u64) -> Self {
        self.log_step_count = (steps > 0).then(|| Every::steps(steps));
        self
    }

    /// How the session behaves.
    pub fn config(mut self, options: SessionOptions) -> Self {
        self.options = options;
        self
    }

    /// How long the threads of a session may take to stop when it is closed, 120 s unless told.
    pub fn stop_grace_period(mut self, limit: Duration) -> Self {
        self.stop_grace_period = limit;
        self
    }

    /// The longest to wait for servers and for the chief, in the beginning and in each recovery; two hours unless told.
    pub fn max_wait(mut self, limit: Duration) -> Self {
        self.max_wait = limit;
        self
    }

    /// Whether a model that live servers hold is taken over as it is, which it is unless told, or initialised or restored
    /// over.
    pub fn adopt_live_state(mut self, yes: bool) -> Self {
        self.adopts = yes;
        self
    }

    /// Opens the session: the chief makes the model ready, the others wait until it has.
    #[track_caller]
    pub fn start(mut self) -> Result<MonitoredSession> {
        let mut hooks = self.make_hooks()?;
        hooks.iter_mut().try_for_each(|hook| hook.begin(&self.graph))?;
        let mut manager = SessionManager::new(&self.graph, &self.scaffold)
            .config(self.options)
            .max_wait(self.max_wait)
            .adopt_live_state(self.adopts);
        if let Some(dir) = self.checkpoint_dir {
            manager = manager.checkpoint_dir(dir);
        }
        if let Some(prefix) = self.checkpoint_filename {
            manager = manager.checkpoint_filename(prefix);
        }
        let global_step = self.graph.known_global_step();
        let mut session = MonitoredSession {
            global_step,
            graph: self.graph,
            manager,
            master: self.master,
            is_chief: self.is_chief,
            hooks,
            stop_grace_period: self.stop_grace_period,
            last_step: None,
            live: None,
            stop: false,
        };
        session.open(None)?;
        Ok(session)
    }

    /// All hooks, those of the chief first.
    fn make_hooks(&mut self) -> Result<Vec<Box<dyn Hook>>> {
        let mut hooks = Vec::new();
        if self.is_chief {
            hooks.append(&mut self.chief_only_hooks);
            self.add_services(&mut hooks)?;
        }
        hooks.append(&mut self.hooks);
        Ok(hooks)
    }

    /// What a chief with a directory does besides training.
    fn add_services(&self, hooks: &mut Vec<Box<dyn Hook>>) -> Result<()> {
        let Some(dir) = self.summary_dir.as_ref().or(self.checkpoint_dir.as_ref()) else { return Ok(()) };
        let writer = FileWriter::create(dir)?;
        writer.add_graph(&self.graph)?;
        if let Some(every) = self.log_step_count {
            hooks.push(Box::new(StepCounter::new(every).writer(&writer)));
        }
        if let Some(every) = self.save_summaries {
            hooks.push(Box::new(SummarySaver::new(every).writer(&writer).scaffold(&self.scaffold)));
        }
        if let (Some(dir), Some(every)) = (&self.checkpoint_dir, self.save_checkpoint) {
            hooks.push(Box::new(CheckpointSaver::new(dir, every).writer(&writer).scaffold(&self.scaffold)));
        }
        Ok(())
    }
}

/// A session that lasts for a whole training: started by [`MonitoredTrainingSession`].
///
/// Dropped without being closed, its hooks do not get to their end: a last checkpoint is not saved.
pub struct MonitoredSession {
    graph: Graph,
    manager: SessionManager,
    master: String,
    is_chief: bool,
    hooks: Vec<Box<dyn Hook>>,
    stop_grace_period: Duration,
    global_step: Option<Variable>,
    /// The latest global step that a run of this session has seen.
    last_step: Option<i64>,
    /// Nothing, if the session is closed.
    live: Option<Live>,
    stop: bool,
}

#[derive(Clone)]
struct Live {
    session: Session,
    coordinator: Coordinator,
}

impl MonitoredSession {
    /// Whether training shall end: a hook or a thread has asked for it, the input has ended, or the session is closed. A task
    /// that a thread has lost is no reason: the next run opens the session anew.
    pub fn should_stop(&self) -> bool {
        let has_ended = |live: &Live| {
            live.coordinator.should_stop() && !live.coordinator.error().is_some_and(|error| is_recoverable(&error))
        };
        self.stop || self.live.as_ref().is_none_or(has_ended)
    }

    /// Makes [`should_stop`](MonitoredSession::should_stop) true.
    pub fn request_stop(&mut self) {
        self.stop = true;
    }

    /// Runs what is needed for `fetch`, with the hooks around it. If a task is lost, it is waited for, the session opened
    /// anew, and the run repeated; any other error closes the session.
    pub fn run<F: Fetch>(&mut self, fetch: F) -> Result<F::Values> {
        self.run_with(fetch, Feeds::new())
    }

    /// The same, with some outputs' values supplied.
    pub fn run_with<F: Fetch>(&mut self, fetch: F, feeds: Feeds) -> Result<F::Values> {
        Ok(self.run_options(fetch, feeds, &RunOptions::default())?.0)
    }

    /// The same, with a time limit or a trace.
    pub fn run_options<F: Fetch>(
        &mut self,
        fetch: F,
        feeds: Feeds,
        options: &RunOptions,
    ) -> Result<(F::Values, RunMetadata)> {
        self.run_step_fn(|step| step.run_options(&fetch, feeds.clone(), options))
    }

    /// Runs a step that the program puts together itself, of runs with and without hooks. The whole of it is repeated if
    /// a task is lost.
    pub fn run_step_fn<R>(&mut self, mut step: impl FnMut(&mut StepContext<'_>) -> Result<R>) -> Result<R> {
        loop {
            let live = self.live()?.clone();
            let coordinator = live.coordinator.clone();
            let outcome = match coordinator.error() {
                Some(error) => Err(error),
                // What a thread failed of comes first: that its queue is closed merely follows.
                None => step(&mut StepContext { monitored: self, live }).map_err(|e| coordinator.error().unwrap_or(e)),
            };
            match outcome {
                Err(error) if is_recoverable(&error) => self.recover(&error)?,
                Err(error) => {
                    self.fail(&error);
                    return Err(error);
                }
                done => return done,
            }
        }
    }

    /// Repeats a step until training shall end, and closes the session. The end of the input is an end like any other.
    pub fn run_until_stop(&mut self, mut step: impl FnMut(&mut MonitoredSession) -> Result<()>) -> Result<()> {
        while !self.should_stop() {
            match step(self) {
                Err(error) if error.code == Code::OutOfRange => break,
                outcome => outcome?,
            }
        }
        self.close()
    }

    /// Ends training: the hooks get to their end, threads are stopped, the session is closed. Further calls do nothing.
    pub fn close(&mut self) -> Result<()> {
        let Some(live) = &self.live else { return Ok(()) };
        let session = live.session.clone();
        let ended = self.hooks.iter_mut().try_for_each(|hook| hook.end(&session));
        let stopped = self.shut_down();
        ended.and(stopped)
    }

    /// The session below: what is run on it is seen by no hook, and not repeated.
    pub fn raw(&self) -> Result<&Session> {
        Ok(&self.live()?.session)
    }

    /// The graph that is trained.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The latest global step that a run of this session has seen.
    pub fn last_step(&self) -> Option<i64> {
        self.last_step
    }

    fn live(&self) -> Result<&Live> {
        self.live.as_ref().ok_or_else(|| failed_precondition!("the training session is closed"))
    }

    /// Opens the session, after this error if it is not the first time.
    fn open(&mut self, after: Option<&Error>) -> Result<()> {
        let started = Instant::now();
        loop {
            let (session, origin) = self.make_session()?;
            let live = Live { session, coordinator: Coordinator::new() };
            match self.begin_session(&live) {
                Ok(step) => {
                    self.live = Some(live);
                    self.tell(origin.as_ref(), step, after, started.elapsed());
                    self.last_step = step;
                    return Ok(());
                }
                Err(error) => {
                    abandon(live);
                    if !is_recoverable(&error) {
                        return Err(error);
                    }
                }
            }
        }
    }

    fn make_session(&self) -> Result<(Session, Option<Origin>)> {
        if !self.is_chief {
            return Ok((self.manager.wait_for_session(&self.master)?, None));
        }
        let prepared = self.manager.prepare_session(&self.master)?;
        Ok((prepared.session, Some(prepared.origin)))
    }

    fn begin_session(&mut self, live: &Live) -> Result<Option<i64>> {
        let step = step_of(&live.session, self.global_step.as_ref())?;
        start_queue_runners(&live.session, &self.graph, &live.coordinator)?;
        self.hooks.iter_mut().try_for_each(|hook| hook.after_create_session(&live.session, &live.coordinator))?;
        Ok(step)
    }

    /// Says in one line where training goes on, unless it just begins.
    fn tell(&self, origin: Option<&Origin>, step: Option<i64>, after: Option<&Error>, took: Duration) {
        let source = match origin {
            Some(Origin::Initialized) | None if after.is_none() => return,
            Some(origin) => origin.to_string(),
            None => "the model is ready".to_string(),
        };
        let at = step.map_or(String::new(), |step| format!(" at global step {step}"));
        let Some(error) = after else {
            say(format_args!("{source}{at}, training goes on from there"));
            return;
        };
        let lost = match (self.last_step, step) {
            (Some(last), Some(now)) if now + 1 == last => format!("1 step was lost, the last one seen was {last}"),
            (Some(last), Some(now)) if now < last => {
                format!("{} steps were lost, the last one seen was {last}", last - now)
            }
            // Other workers may have come further than this one has seen.
            _ if origin != Some(&Origin::Adopted) => "no step that was seen here was lost".to_string(),
            _ => "no step was lost".to_string(),
        };
        let seconds = took.as_secs_f64();
        say(format_args!(
            "training goes on after {seconds:.1} s: {source}{at}, {lost}; it stopped because {}",
            error.message
        ));
    }

    fn recover(&mut self, error: &Error) -> Result<()> {
        if let Some(live) = self.live.take() {
            abandon(live);
        }
        self.open(Some(error))
    }

    /// What an error that nothing can be done about leads to: the end, which is a regular one if it is that of the input.
    fn fail(&mut self, error: &Error) {
        self.stop = true;
        if error.code != Code::OutOfRange
            && let Some(live) = self.live.take()
        {
            abandon(live);
        }
    }

    /// Stops the threads and closes the session.
    fn shut_down(&mut self) -> Result<()> {
        let Some(live) = self.live.take() else { return Ok(()) };
        live.coordinator.stop_with(&live.session, self.stop_grace_period)
    }
}

impl Drop for MonitoredSession {
    fn drop(&mut self) {
        let _ = self.shut_down();
    }
}

/// Lets go of a session that may be broken: nobody waits until its tasks have noticed.
fn abandon(live: Live) {
    live.coordinator.request_stop();
    let closing = std::thread::Builder::new().name("closing a session".into()).spawn(move || live.session.close());
    // Without a thread the session is closed when the last one that uses it ends.
    drop(closing);
}

/// A step that a program puts together itself: see [`MonitoredSession::run_step_fn`].
pub struct StepContext<'a> {
    monitored: &'a mut MonitoredSession,
    live: Live,
}

impl StepContext<'_> {
    /// The session below: what is run on it is seen by no hook.
    pub fn session(&self) -> &Session {
        &self.live.session
    }

    /// Makes this step the last one.
    pub fn request_stop(&mut self) {
        self.monitored.stop = true;
    }

    /// A run with the hooks around it.
    pub fn run_with_hooks<F: Fetch>(&mut self, fetch: F, feeds: Feeds) -> Result<F::Values> {
        Ok(self.run_options(fetch, feeds, &RunOptions::default())?.0)
    }

    fn run_options<F: Fetch>(
        &mut self,
        fetch: F,
        mut feeds: Feeds,
        options: &RunOptions,
    ) -> Result<(F::Values, RunMetadata)> {
        let context = RunContext::new(&self.live.session);
        let (mut asked, mut options) = (Vec::new(), options.clone());
        for hook in &mut self.monitored.hooks {
            let args = hook.before_run(&context)?;
            feeds = feeds.join(args.feeds)?;
            options.trace |= args.options.trace;
            options.timeout = options.timeout.max(args.options.timeout);
            asked.push((args.fetches, args.operations));
        }
        let step: Vec<Output> = self.monitored.global_step.iter().map(|step| Output::clone(step)).collect();
        let ((values, asked, step), metadata) = self.live.session.run_options((fetch, asked, step), feeds, &options)?;
        if let Some(step) = step.first() {
            self.monitored.last_step = self.monitored.last_step.max(Some(step.to_i64()?));
        }
        for (hook, (values, _)) in self.monitored.hooks.iter_mut().zip(asked) {
            hook.after_run(&context, &RunValues { values, metadata: metadata.clone() })?;
        }
        self.monitored.stop |= context.stop_requested();
        Ok((values, metadata))
    }
}

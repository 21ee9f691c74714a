//! `Supervisor`: opens a session for training and keeps what goes beside it running: queues, checkpoints, summaries.
//!
//! The older of the two ways to train for long. Steps are the program's own business; a task that is lost ends them with
//! an error, where [`MonitoredTrainingSession`](super::MonitoredTrainingSession) goes on by itself.

use super::report::say;
use super::session_manager::{MAX_WAIT, is_recoverable, step_of};
use super::{Coordinator, Origin, QueueRunner, Saver, Scaffold, SessionManager};
use crate::{Feeds, FileWriter, Graph, Operation, Output, Session, SessionEvent, SessionOptions, Variable};
use parking_lot::Mutex;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tensor::{Code, Result, failed_precondition};

/// Opens a session for training and keeps what goes beside it running.
///
/// ```
/// use ferroflow::prelude::*;
/// use ferroflow::train::Supervisor;
///
/// let g = Graph::new();
/// let step = g.global_step();
/// let w = g.variable("w", 0.0f32);
/// let train = GradientDescent::new(0.1).minimize(&(&w - 3.0).square()).increment(&step);
///
/// let folder = tempfile::tempdir()?;
/// let supervisor = Supervisor::builder(&g).logdir(folder.path()).build()?;
/// let session = supervisor.prepare_or_wait_for_session("", Default::default())?;
/// while !supervisor.should_stop() && session.run(&step)?.item::<i64>()? < 20 {
///     session.run(&train)?;
/// }
/// supervisor.stop()?;
/// assert!(ferroflow::train::latest_checkpoint(folder.path())?.unwrap().ends_with("model.ckpt-20"));
/// # Ok::<(), ferroflow::Error>(())
/// ```
pub struct Supervisor {
    settings: Settings,
    scaffold: Scaffold,
    manager: SessionManager,
    coordinator: Coordinator,
    /// The chief's, if there is a directory.
    writer: Option<FileWriter>,
    /// The session that is open.
    serving: Mutex<Option<Session>>,
    /// The step of the last checkpoint.
    saved: Arc<Mutex<Option<i64>>>,
}

/// How a supervisor works: made by [`Supervisor::builder`].
pub struct SupervisorBuilder {
    scaffold: Scaffold,
    settings: Settings,
}

#[derive(Clone)]
struct Settings {
    graph: Graph,
    is_chief: bool,
    logdir: Option<PathBuf>,
    global_step: Option<Variable>,
    checkpoint_basename: String,
    save_model_secs: f64,
    save_summaries_secs: f64,
    recovery_wait: Duration,
    stop_grace: Duration,
    max_wait: Duration,
}

impl SupervisorBuilder {
    /// Whether it makes the model ready, saves it and writes summaries, which it does unless told; the others wait for it.
    pub fn is_chief(mut self, yes: bool) -> Self {
        self.settings.is_chief = yes;
        self
    }

    /// Where the chief saves and finds checkpoints, and writes summaries.
    pub fn logdir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.settings.logdir = Some(dir.into());
        self
    }

    /// All parts of the graph that it uses, rather than one by one.
    pub fn scaffold(mut self, scaffold: &Scaffold) -> Self {
        self.scaffold = scaffold.clone();
        self
    }

    /// Gives the model its initial state; unless told, all variables their initial values.
    pub fn init_op(mut self, operation: &Operation) -> Self {
        self.scaffold = self.scaffold.init_op(operation);
        self
    }

    /// Values that the initialisation is fed.
    pub fn init_feeds(mut self, feeds: Feeds) -> Self {
        self.scaffold = self.scaffold.init_feeds(feeds);
        self
    }

    /// Called after the initialisation, if there was nothing to restore.
    pub fn init_fn(mut self, init: impl Fn(&Session) -> Result<()> + Send + Sync + 'static) -> Self {
        self.scaffold = self.scaffold.init_fn(init);
        self
    }

    /// Gives a list of what is not ready for training; unless told, the names of variables without a value.
    pub fn ready_op(mut self, output: &Output) -> Self {
        self.scaffold = self.scaffold.ready_op(output);
        self
    }

    /// Gives a list of what is missing before each worker may initialise what it keeps for itself.
    pub fn ready_for_local_init_op(mut self, output: &Output) -> Self {
        self.scaffold = self.scaffold.ready_for_local_init_op(output);
        self
    }

    /// Initialises what each worker keeps for itself; unless told, the local variables.
    pub fn local_init_op(mut self, operation: &Operation) -> Self {
        self.scaffold = self.scaffold.local_init_op(operation);
        self
    }

    /// The summary that is written; unless told, all of the graph's in one.
    pub fn summary_op(mut self, output: &Output) -> Self {
        self.scaffold = self.scaffold.summary_op(output);
        self
    }

    /// Saves and restores the model; unless told, all variables, each task its own.
    pub fn saver(mut self, saver: &Saver) -> Self {
        self.scaffold = self.scaffold.saver(saver);
        self
    }

    /// What counts the steps; unless told, the graph's global step, if it has one.
    pub fn global_step(mut self, step: &Variable) -> Self {
        self.settings.global_step = Some(step.clone());
        self
    }

    /// What the checkpoints are called, before the step, rather than `model.ckpt`.
    pub fn checkpoint_basename(mut self, name: &str) -> Self {
        self.settings.checkpoint_basename = name.to_string();
        self
    }

    /// Saves a checkpoint every so many seconds, 600 unless told; 0 is never.
    pub fn save_model_secs(mut self, secs: f64) -> Self {
        self.settings.save_model_secs = secs;
        self
    }

    /// Writes summaries and the steps per second every so many seconds, 120 unless told; 0 is never.
    pub fn save_summaries_secs(mut self, secs: f64) -> Self {
        self.settings.save_summaries_secs = secs;
        self
    }

    /// The longest pause between two looks whether the model is ready. However long programs are used to sleep here, a
    /// look is taken every tenth of a second at least.
    pub fn recovery_wait_secs(mut self, secs: f64) -> Self {
        self.settings.recovery_wait = seconds(secs);
        self
    }

    /// How long threads may take to stop, 120 s unless told.
    pub fn stop_grace_secs(mut self, secs: f64) -> Self {
        self.settings.stop_grace = seconds(secs);
        self
    }

    /// The longest to wait for servers and for the chief; two hours unless told.
    pub fn max_wait(mut self, limit: Duration) -> Self {
        self.settings.max_wait = limit;
        self
    }

    /// Adds to the graph what the program did not bring.
    #[track_caller]
    pub fn build(self) -> Result<Supervisor> {
        let SupervisorBuilder { scaffold, mut settings } = self;
        let graph = &settings.graph;
        let known = graph.collections().lock().global_step.clone();
        settings.global_step = settings.global_step.or(known);
        let mut manager =
            SessionManager::new(graph, &scaffold).max_wait(settings.max_wait).recovery_wait(settings.recovery_wait);
        let mut writer = None;
        if let Some(dir) = settings.logdir.as_ref().filter(|_| settings.is_chief) {
            manager = manager.checkpoint_dir(dir);
            let made = FileWriter::create(dir)?;
            made.add_graph(graph)?;
            writer = Some(made);
        }
        let coordinator = Coordinator::new();
        let (serving, saved) = (Mutex::default(), Arc::default());
        Ok(Supervisor { settings, scaffold, manager, coordinator, writer, serving, saved })
    }
}

fn seconds(secs: f64) -> Duration {
    Duration::try_from_secs_f64(secs).unwrap_or(Duration::MAX)
}

impl Supervisor {
    /// A supervisor of a graph, to be told more before it is made.
    pub fn builder(graph: &Graph) -> SupervisorBuilder {
        let settings = Settings {
            graph: graph.clone(),
            is_chief: true,
            logdir: None,
            global_step: None,
            checkpoint_basename: "model.ckpt".into(),
            save_model_secs: 600.0,
            save_summaries_secs: 120.0,
            recovery_wait: Duration::MAX,
            stop_grace: Duration::from_secs(120),
            max_wait: MAX_WAIT,
        };
        SupervisorBuilder { scaffold: Scaffold::new(), settings }
    }

    /// A session that is ready for training: the chief makes the model ready, the others wait until it has. Queue runners
    /// and the chief's services run from then on.
    pub fn prepare_or_wait_for_session(&self, master: &str, options: SessionOptions) -> Result<Session> {
        let session = self.open(master, options)?;
        *self.serving.lock() = Some(session.clone());
        if self.settings.is_chief {
            self.start_standard_services(&session)?;
        }
        self.start_queue_runners(&session, &self.settings.graph.queue_runners())?;
        Ok(session)
    }

    fn open(&self, master: &str, options: SessionOptions) -> Result<Session> {
        self.coordinator.clear_stop();
        let manager = self.manager.clone().config(options);
        if !self.settings.is_chief {
            return manager.wait_for_session(master);
        }
        let prepared = manager.prepare_session(master)?;
        if prepared.origin != Origin::Initialized {
            say(format_args!("{}, training goes on from there", prepared.origin));
        }
        Ok(prepared.session)
    }

    /// Opens a session, lets the program train with it, and stops everything. The end of the input is no error.
    pub fn managed_session<R: Default>(
        &self,
        master: &str,
        options: SessionOptions,
        work: impl FnOnce(&Session) -> Result<R>,
    ) -> Result<R> {
        let session = self.prepare_or_wait_for_session(master, options)?;
        let outcome = match work(&session) {
            Err(error) if error.code == Code::OutOfRange => Ok(R::default()),
            outcome => outcome,
        };
        let stopped = match &outcome {
            Ok(_) => self.stop(),
            Err(error) => {
                self.coordinator.request_stop_with(error.clone());
                self.halt(&session)
            }
        };
        let value = outcome?;
        stopped.map(|()| value)
    }

    /// Starts what the chief does besides training: saving the model, writing summaries, counting steps.
    pub fn start_standard_services(&self, session: &Session) -> Result<()> {
        let Settings { is_chief, logdir, save_model_secs, save_summaries_secs, .. } = &self.settings;
        if !is_chief {
            return Err(failed_precondition!("Only chief supervisor can start standard services."));
        }
        if logdir.is_none() {
            return Ok(());
        }
        if *save_model_secs > 0.0 {
            let (save, session) = (self.save(), session.clone());
            self.repeat(seconds(*save_model_secs), move || match save(&session) {
                // One checkpoint that cannot be written is no reason to stop training.
                Err(error) if !is_recoverable(&error) => {
                    say(format_args!("no checkpoint, training goes on without: {error}"));
                    Ok(())
                }
                outcome => outcome,
            })?;
        }
        let Some(writer) = &self.writer else { return Ok(()) };
        let step = step_of(session, self.settings.global_step.as_ref())?;
        writer.add_session_log(&SessionEvent::Start, step.unwrap_or(0))?;
        if *save_summaries_secs > 0.0 {
            self.write_summaries(session, writer, seconds(*save_summaries_secs))?;
        }
        Ok(())
    }

    fn write_summaries(&self, session: &Session, writer: &FileWriter, every: Duration) -> Result<()> {
        let step = self.settings.global_step.clone();
        if let Some(summary) = self.scaffold.get_summary_op() {
            let (session, writer, step) = (session.clone(), writer.clone(), step.clone());
            self.repeat(every, move || {
                let summary = session.run(&summary)?;
                writer.add_summary(&summary, step_of(&session, step.as_ref())?.unwrap_or(0))
            })?;
        }
        if let Some(step) = step {
            let (session, writer) = (session.clone(), writer.clone());
            let mut last: Option<(i64, Instant)> = None;
            self.repeat(every, move || {
                let now = session.run(&step)?.to_i64()?;
                if let Some((before, time)) = last.replace((now, Instant::now()))
                    && now > before
                {
                    let rate = (now - before) as f64 / time.elapsed().as_secs_f64();
                    writer.add_scalar("global_step/sec", rate as f32, now)?;
                    say(format_args!("global_step/sec: {rate:.6}"));
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// What saves the model once, unless it has not changed since.
    fn save(&self) -> impl Fn(&Session) -> Result<()> + Send + 'static {
        let prefix = self.settings.logdir.clone().unwrap_or_default().join(&self.settings.checkpoint_basename);
        let (saver, step) = (self.scaffold.get_saver(), self.settings.global_step.clone());
        let saved = self.saved.clone();
        move |session: &Session| {
            let Some(saver) = &saver else { return Ok(()) };
            // The step is read by whoever saves next: read before, it could be older by then than what was saved last.
            let mut last = saved.lock();
            let now = step_of(session, step.as_ref())?;
            if now.is_none() || *last != now {
                saver.save(session, &prefix, now)?;
                *last = now;
            }
            Ok(())
        }
    }

    /// Starts these queue runners.
    pub fn start_queue_runners(&self, session: &Session, runners: &[QueueRunner]) -> Result<()> {
        runners.iter().try_for_each(|runner| runner.start(session, &self.coordinator))
    }

    /// Does something again and again, at these intervals, until all are asked to stop; an error stops all.
    pub fn repeat(&self, interval: Duration, work: impl FnMut() -> Result<()> + Send + 'static) -> Result<()> {
        self.coordinator.repeat("supervised", interval, work)
    }

    /// Whether somebody asked to stop.
    pub fn should_stop(&self) -> bool {
        self.coordinator.should_stop()
    }

    /// Asks all threads to stop.
    pub fn request_stop(&self) {
        self.coordinator.request_stop();
    }

    /// Waits until somebody asks to stop, at most this long; whether it happened.
    pub fn wait_for_stop(&self, limit: Duration) -> bool {
        self.coordinator.wait_for_stop(limit)
    }

    /// What the threads stop together by.
    pub fn coordinator(&self) -> &Coordinator {
        &self.coordinator
    }

    /// What saves the model.
    pub fn saver(&self) -> Option<Saver> {
        self.scaffold.get_saver()
    }

    /// What writes summaries, if this is a chief with a directory.
    pub fn summary_writer(&self) -> Option<&FileWriter> {
        self.writer.as_ref()
    }

    /// Writes a summary that the program computed itself, filed under the step that is current.
    pub fn summary_computed(&self, session: &Session, summary: &tensor::Tensor) -> Result<()> {
        let writer = self.writer.as_ref();
        let writer = writer.ok_or_else(|| failed_precondition!("only a chief with a logdir writes summaries"))?;
        writer.add_summary(summary, step_of(session, self.settings.global_step.as_ref())?.unwrap_or(0))
    }

    /// Stops the threads and closes the session, after the chief has saved what was trained since the last checkpoint. The
    /// first error of a thread.
    pub fn stop(&self) -> Result<()> {
        self.coordinator.request_stop();
        let Some(session) = self.serving.lock().take() else { return self.coordinator.join(self.settings.stop_grace) };
        let saves = self.settings.is_chief && self.settings.logdir.is_some() && self.settings.save_model_secs > 0.0;
        let saved = if saves && self.coordinator.error().is_none() { self.save()(&session) } else { Ok(()) };
        self.halt(&session).and(saved)
    }

    /// Stops the threads, whatever they wait for, and closes the session.
    fn halt(&self, session: &Session) -> Result<()> {
        let step = step_of(session, self.settings.global_step.as_ref()).ok().flatten();
        let stopped = self.coordinator.stop_with(session, self.settings.stop_grace);
        *self.serving.lock() = None;
        if let Some(writer) = &self.writer {
            writer.add_session_log(&SessionEvent::Stop, step.unwrap_or(0))?;
            writer.flush()?;
        }
        stopped
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        self.coordinator.request_stop();
        if let Some(session) = self.serving.lock().take() {
            let _ = session.close();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::train::latest_checkpoint;

    #[test]
    fn whoever_saves_last_saves_the_last_step() {
        let g = Graph::new();
        let train = g.global_step().assign_add(1i64);
        let dir = tempfile::tempdir().unwrap();
        let supervisor = Supervisor::builder(&g).logdir(dir.path()).save_model_secs(0.0).build().unwrap();
        let session = supervisor.prepare_or_wait_for_session("", SessionOptions::default()).unwrap();
        for round in 1..=50 {
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        session.run(&train).unwrap();
                        supervisor.save()(&session).unwrap();
                    });
                }
            });
            let saved = latest_checkpoint(dir.path()).unwrap().unwrap();
            assert!(saved.ends_with(format!("model.ckpt-{}", 4 * round)), "{saved:?} in round {round}");
        }
        supervisor.stop().unwrap();
    }
}

//! `CheckpointSaver`: saves the model while training.

use super::every::Timer;
use super::{Every, Hook, RunArgs, RunContext, RunValues, global_step_for, step_in};
use crate::train::report::say;
use crate::train::session_manager::is_recoverable;
use crate::train::{Coordinator, Saver, Scaffold};
use crate::{FileWriter, Graph, Session, SessionEvent, Variable};
use std::path::{Path, PathBuf};
use tensor::{Result, failed_precondition};

/// Something that is done whenever a checkpoint is saved. Every method does nothing unless it is written.
pub trait CheckpointListener: Send {
    /// Before the checkpoint of this step is written.
    fn before_save(&mut self, _session: &Session, _step: i64) -> Result<()> {
        Ok(())
    }

    /// After the checkpoint of this step was written; whether training shall end.
    fn after_save(&mut self, _session: &Session, _step: i64) -> Result<bool> {
        Ok(false)
    }
}

/// Saves a checkpoint when training begins, every so often, and when it ends.
///
/// A checkpoint that cannot be written is no reason to stop training: it is told, and the next one is tried in time. Only
/// that the last one cannot be written is an error.
pub struct CheckpointSaver {
    prefix: PathBuf,
    timer: Timer,
    saver: Option<Saver>,
    scaffold: Option<Scaffold>,
    writer: Option<FileWriter>,
    listeners: Vec<Box<dyn CheckpointListener>>,
    step: Option<Variable>,
    /// The step of the last checkpoint that was written.
    saved: Option<i64>,
}

impl CheckpointSaver {
    /// Saves in this directory, as `model.ckpt-STEP`, so often. What saves is still to be told.
    pub fn new(dir: impl AsRef<Path>, every: Every) -> CheckpointSaver {
        CheckpointSaver {
            prefix: dir.as_ref().join("model.ckpt"),
            timer: Timer::new(every),
            saver: None,
            scaffold: None,
            writer: None,
            listeners: Vec::new(),
            step: None,
            saved: None,
        }
    }

    /// What the checkpoints are called, before the step, rather than `model.ckpt`.
    pub fn basename(mut self, name: &str) -> CheckpointSaver {
        self.prefix.set_file_name(name);
        self
    }

    /// Saves by this.
    pub fn saver(mut self, saver: &Saver) -> CheckpointSaver {
        self.saver = Some(saver.clone());
        self
    }

    /// Saves by what the scaffold has.
    pub fn scaffold(mut self, scaffold: &Scaffold) -> CheckpointSaver {
        self.scaffold = Some(scaffold.clone());
        self
    }

    /// Notes each checkpoint among the events of the run.
    pub fn writer(mut self, writer: &FileWriter) -> CheckpointSaver {
        self.writer = Some(writer.clone());
        self
    }

    /// Tells this one whenever a checkpoint is saved.
    pub fn listener(mut self, listener: impl CheckpointListener + 'static) -> CheckpointSaver {
        self.listeners.push(Box::new(listener));
        self
    }

    fn now(&self, session: &Session) -> Result<i64> {
        let step = self.step.as_ref().ok_or_else(|| failed_precondition!("CheckpointSaver was not begun"))?;
        session.run(step)?.to_i64()
    }

    /// Saves; whether a listener wants training to end.
    fn save(&mut self, session: &Session, step: i64) -> Result<bool> {
        let saver = self.saver.clone().or_else(|| self.scaffold.as_ref().and_then(Scaffold::get_saver));
        let saver = saver.ok_or_else(|| failed_precondition!("CheckpointSaver has neither a saver nor a scaffold"))?;
        self.listeners.iter_mut().try_for_each(|listener| listener.before_save(session, step))?;
        let path = saver.save(session, &self.prefix, Some(step))?;
        self.saved = Some(step);
        if let Some(writer) = &self.writer {
            writer.add_session_log(&SessionEvent::Checkpoint(path), step)?;
        }
        let mut ends = false;
        for listener in &mut self.listeners {
            ends |= listener.after_save(session, step)?;
        }
        Ok(ends)
    }

    /// The same, but an error that only concerns the checkpoint is told and forgotten.
    fn save_or_tell(&mut self, session: &Session, step: i64) -> Result<bool> {
        self.timer.done(step);
        match self.save(session, step) {
            Err(error) if !is_recoverable(&error) => {
                say(format_args!("no checkpoint at global step {step}, training goes on without: {error}"));
                Ok(false)
            }
            outcome => outcome,
        }
    }
}

impl Hook for CheckpointSaver {
    fn begin(&mut self, graph: &Graph) -> Result<()> {
        self.step = Some(global_step_for(graph, "CheckpointSaver")?);
        let dir = self.prefix.parent().unwrap_or(Path::new("."));
        std::fs::create_dir_all(dir).map_err(|e| {
            let e = tensor::Error::from(e);
            tensor::Error { message: format!("cannot make directory {}: {}", dir.display(), e.message), ..e }
        })
    }

    fn after_create_session(&mut self, session: &Session, coordinator: &Coordinator) -> Result<()> {
        let step = self.now(session)?;
        self.timer.done(step);
        if self.saved != Some(step) && self.save_or_tell(session, step)? {
            coordinator.request_stop();
        }
        Ok(())
    }

    fn before_run(&mut self, _: &RunContext<'_>) -> Result<RunArgs> {
        Ok(RunArgs::fetch(self.step.as_deref()))
    }

    fn after_run(&mut self, context: &RunContext<'_>, values: &RunValues) -> Result<()> {
        if !self.timer.is_due(step_in(values)? + 1) {
            return Ok(());
        }
        let step = self.now(context.session())?;
        if self.timer.is_due(step) && self.save_or_tell(context.session(), step)? {
            context.request_stop();
        }
        Ok(())
    }

    fn end(&mut self, session: &Session) -> Result<()> {
        let step = self.now(session)?;
        if self.saved != Some(step) {
            self.save(session, step)?;
        }
        Ok(())
    }
}

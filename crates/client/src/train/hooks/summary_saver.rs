//! `SummarySaver`: writes summaries while training.

use super::every::Timer;
use super::{Every, Hook, RunArgs, RunContext, RunValues, global_step_for, step_in};
use crate::train::Scaffold;
use crate::{FileWriter, Graph, Output, Session, SessionEvent, Variable};
use std::path::PathBuf;
use tensor::{Result, invalid};

/// Writes summaries every so often, computed in the very run whose step they are filed under.
pub struct SummarySaver {
    timer: Timer,
    dir: Option<PathBuf>,
    writer: Option<FileWriter>,
    summary: Option<Output>,
    scaffold: Option<Scaffold>,
    step: Option<Variable>,
    /// The step after the last run, once there was one.
    next: Option<i64>,
    is_asked: bool,
}

impl SummarySaver {
    /// Writes so often; where, and which summary, is still to be told.
    pub fn new(every: Every) -> SummarySaver {
        SummarySaver {
            timer: Timer::new(every),
            dir: None,
            writer: None,
            summary: None,
            scaffold: None,
            step: None,
            next: None,
            is_asked: false,
        }
    }

    /// Writes to a file of its own in this directory.
    pub fn output_dir(mut self, dir: impl Into<PathBuf>) -> SummarySaver {
        self.dir = Some(dir.into());
        self
    }

    /// Writes where others write too.
    pub fn writer(mut self, writer: &FileWriter) -> SummarySaver {
        self.writer = Some(writer.clone());
        self
    }

    /// Writes this summary.
    pub fn summary_op(mut self, summary: &Output) -> SummarySaver {
        self.summary = Some(summary.clone());
        self
    }

    /// Writes the scaffold's summary, if it has one.
    pub fn scaffold(mut self, scaffold: &Scaffold) -> SummarySaver {
        self.scaffold = Some(scaffold.clone());
        self
    }

    fn summary(&self) -> Option<Output> {
        self.summary.clone().or_else(|| self.scaffold.as_ref().and_then(Scaffold::get_summary_op))
    }
}

impl Hook for SummarySaver {
    fn begin(&mut self, graph: &Graph) -> Result<()> {
        self.step = Some(global_step_for(graph, "SummarySaver")?);
        if self.writer.is_none() {
            let dir = self.dir.as_ref();
            let dir = dir.ok_or_else(|| invalid!("SummarySaver wants an output_dir or a writer, and has neither"))?;
            self.writer = Some(FileWriter::create(dir)?);
        }
        Ok(())
    }

    fn before_run(&mut self, _: &RunContext<'_>) -> Result<RunArgs> {
        self.is_asked = self.next.is_none_or(|next| self.timer.is_due(next));
        let mut args = RunArgs::fetch(self.step.as_deref());
        if self.is_asked {
            args.fetches.extend(self.summary());
        }
        Ok(args)
    }

    fn after_run(&mut self, context: &RunContext<'_>, values: &RunValues) -> Result<()> {
        let (Some(variable), Some(writer)) = (&self.step, &self.writer) else { return Ok(()) };
        let mut step = step_in(values)? + 1;
        if self.is_asked {
            step = context.session().run(variable)?.to_i64()?;
            if self.next.is_none() {
                writer.add_session_log(&SessionEvent::Start, step)?;
            }
            self.timer.done(step);
            if let Some(summary) = values.values.get(1) {
                writer.add_summary(summary, step)?;
            }
        }
        self.next = Some(step + 1);
        Ok(())
    }

    fn end(&mut self, _: &Session) -> Result<()> {
        self.writer.as_ref().map_or(Ok(()), FileWriter::flush)
    }
}

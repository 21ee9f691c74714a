//! `Profiler`: traces a run every so often.

use super::every::Timer;
use super::{Every, Hook, RunArgs, RunContext, RunValues, global_step_for, step_in};
use crate::{FileWriter, Graph, RunOptions, Variable};
use std::path::PathBuf;
use tensor::{Error, Result};

/// Traces a run every so often: `timeline-STEP.json` for Chrome's trace viewer, and with a writer the times of each node
/// for TensorBoard.
pub struct Profiler {
    timer: Timer,
    dir: PathBuf,
    writer: Option<FileWriter>,
    step: Option<Variable>,
    next: Option<i64>,
    is_asked: bool,
}

impl Profiler {
    /// Writes traces to this directory, so often.
    pub fn new(dir: impl Into<PathBuf>, every: Every) -> Profiler {
        Profiler { timer: Timer::new(every), dir: dir.into(), writer: None, step: None, next: None, is_asked: false }
    }

    /// Writes them for TensorBoard too.
    pub fn writer(mut self, writer: &FileWriter) -> Profiler {
        self.writer = Some(writer.clone());
        self
    }
}

impl Hook for Profiler {
    fn begin(&mut self, graph: &Graph) -> Result<()> {
        self.step = Some(global_step_for(graph, "Profiler")?);
        std::fs::create_dir_all(&self.dir).map_err(Error::from)
    }

    fn before_run(&mut self, _: &RunContext<'_>) -> Result<RunArgs> {
        self.is_asked = self.next.is_some_and(|next| self.timer.is_due(next));
        let options = RunOptions { trace: self.is_asked, ..RunOptions::default() };
        Ok(RunArgs { options, ..RunArgs::fetch(self.step.as_deref()) })
    }

    fn after_run(&mut self, context: &RunContext<'_>, values: &RunValues) -> Result<()> {
        let Some(variable) = &self.step else { return Ok(()) };
        let mut step = step_in(values)? + 1;
        if self.next.is_none() {
            // The first run plans: its times are those of no other.
            self.timer.done(step);
        }
        if self.is_asked {
            step = context.session().run(variable)?.to_i64()?;
            self.timer.done(step);
            let file = self.dir.join(format!("timeline-{step}.json"));
            std::fs::write(&file, values.metadata.chrome_trace()).map_err(Error::from)?;
            if let Some(writer) = &self.writer {
                writer.add_run_metadata(&values.metadata, &format!("step_{step}"), step)?;
            }
        }
        self.next = Some(step + 1);
        Ok(())
    }
}

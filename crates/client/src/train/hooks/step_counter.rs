//! `StepCounter`: tells how many steps there are in a second.

use super::every::Timer;
use super::{Every, Hook, RunArgs, RunContext, RunValues, global_step_for, step_in};
use crate::train::report::say;
use crate::{FileWriter, Graph, Variable};
use tensor::Result;

/// Tells how many global steps there are in a second: in a line, and as the curve `global_step/sec`.
pub struct StepCounter {
    timer: Timer,
    writer: Option<FileWriter>,
    step: Option<Variable>,
}

impl StepCounter {
    /// Tells it so often.
    pub fn new(every: Every) -> StepCounter {
        StepCounter { timer: Timer::new(every), writer: None, step: None }
    }

    /// Writes the curve too.
    pub fn writer(mut self, writer: &FileWriter) -> StepCounter {
        self.writer = Some(writer.clone());
        self
    }
}

impl Hook for StepCounter {
    fn begin(&mut self, graph: &Graph) -> Result<()> {
        self.step = Some(global_step_for(graph, "StepCounter")?);
        Ok(())
    }

    fn before_run(&mut self, _: &RunContext<'_>) -> Result<RunArgs> {
        Ok(RunArgs::fetch(self.step.as_deref()))
    }

    fn after_run(&mut self, context: &RunContext<'_>, values: &RunValues) -> Result<()> {
        let Some(variable) = &self.step else { return Ok(()) };
        if !self.timer.is_due(step_in(values)? + 1) {
            return Ok(());
        }
        let step = context.session().run(variable)?.to_i64()?;
        if !self.timer.is_due(step) {
            return Ok(());
        }
        if let Some((steps, time)) = self.timer.done(step)
            && steps > 0
        {
            let rate = steps as f64 / time.as_secs_f64();
            if let Some(writer) = &self.writer {
                writer.add_scalar("global_step/sec", rate as f32, step)?;
            }
            say(format_args!("global_step/sec: {rate:.6}"));
        }
        Ok(())
    }
}

//! `StopAtStep`: ends training at a step.

use super::{Hook, RunArgs, RunContext, RunValues, global_step_for, step_in};
use crate::train::Coordinator;
use crate::{Graph, Session, Variable};
use tensor::{Result, failed_precondition};

/// Ends training when the global step has come to a number, or has grown by one.
pub struct StopAtStep {
    end: End,
    step: Option<Variable>,
}

#[derive(Clone, Copy)]
enum End {
    After(i64),
    At(i64),
}

impl StopAtStep {
    /// Ends when the global step is `step`.
    pub fn last(step: i64) -> StopAtStep {
        StopAtStep { end: End::At(step), step: None }
    }

    /// Ends when there were as many steps since the session began.
    pub fn num_steps(steps: i64) -> StopAtStep {
        StopAtStep { end: End::After(steps), step: None }
    }

    fn step(&self) -> Result<&Variable> {
        self.step.as_ref().ok_or_else(|| failed_precondition!("StopAtStep was not begun"))
    }
}

impl Hook for StopAtStep {
    fn begin(&mut self, graph: &Graph) -> Result<()> {
        self.step = Some(global_step_for(graph, "StopAtStep")?);
        Ok(())
    }

    fn after_create_session(&mut self, session: &Session, coordinator: &Coordinator) -> Result<()> {
        let now = session.run(self.step()?)?.to_i64()?;
        let last = match self.end {
            End::At(last) => last,
            End::After(steps) => now.saturating_add(steps),
        };
        self.end = End::At(last);
        if now >= last {
            coordinator.request_stop();
        }
        Ok(())
    }

    fn before_run(&mut self, _: &RunContext<'_>) -> Result<RunArgs> {
        Ok(RunArgs::fetch([&**self.step()?]))
    }

    fn after_run(&mut self, context: &RunContext<'_>, values: &RunValues) -> Result<()> {
        let End::At(last) = self.end else { return Ok(()) };
        // The value may be from before the run's own step, so it is looked at again when it could be the last.
        if step_in(values)? + 1 >= last && context.session().run(self.step()?)?.to_i64()? >= last {
            context.request_stop();
        }
        Ok(())
    }
}

//! `GlobalStepWaiter`: lets a worker begin later than others.

use super::{Hook, RunArgs, RunContext, global_step_for};
use crate::train::session_manager::{MAX_WAIT, Waiting};
use crate::{Graph, Variable};
use std::time::Duration;
use tensor::Result;

/// Holds the first run back until the global step has come to a number, so that workers begin one after the other.
pub struct GlobalStepWaiter {
    until: i64,
    max_wait: Duration,
    step: Option<Variable>,
    is_over: bool,
}

impl GlobalStepWaiter {
    /// Waits until the global step is `step`.
    pub fn new(step: i64) -> GlobalStepWaiter {
        GlobalStepWaiter { until: step, max_wait: MAX_WAIT, step: None, is_over: false }
    }

    /// The longest to wait, two hours unless told; then the run fails with `DeadlineExceeded`.
    pub fn max_wait(mut self, limit: Duration) -> GlobalStepWaiter {
        self.max_wait = limit;
        self
    }
}

impl Hook for GlobalStepWaiter {
    fn begin(&mut self, graph: &Graph) -> Result<()> {
        self.step = Some(global_step_for(graph, "GlobalStepWaiter")?);
        Ok(())
    }

    fn before_run(&mut self, context: &RunContext<'_>) -> Result<RunArgs> {
        let Some(step) = self.step.as_ref().filter(|_| !self.is_over) else { return Ok(RunArgs::default()) };
        let mut waiting = Waiting::new("a turn to begin", self.max_wait);
        loop {
            let now = context.session().run(step)?.to_i64()?;
            if now >= self.until {
                break;
            }
            waiting.pause(&format!("the global step is {now}, this worker begins at {}", self.until))?;
        }
        self.is_over = true;
        Ok(RunArgs::default())
    }
}

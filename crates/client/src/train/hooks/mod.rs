//! Hooks: what is done around the steps of a training session, and what one writes to add one's own.

mod checkpoint_saver;
mod every;
mod feed_fn;
mod final_ops;
mod global_step_waiter;
mod logging_tensor;
mod nan_tensor;
mod profiler;
mod step_counter;
mod stop_at_step;
mod summary_saver;

pub use checkpoint_saver::{CheckpointListener, CheckpointSaver};
pub use every::Every;
pub use feed_fn::FeedFn;
pub use final_ops::FinalOps;
pub use global_step_waiter::GlobalStepWaiter;
pub use logging_tensor::LoggingTensor;
pub use nan_tensor::NanTensor;
pub use profiler::Profiler;
pub use step_counter::StepCounter;
pub use stop_at_step::StopAtStep;
pub use summary_saver::SummarySaver;

use super::Coordinator;
use crate::{Feeds, Graph, Operation, Output, RunMetadata, RunOptions, Session, Variable};
use std::cell::Cell;
use tensor::{Result, Tensor, failed_precondition};

/// Something that is done around the steps of a training session. Every method does nothing unless it is written.
///
/// ```
/// use ferroflow::prelude::*;
/// use ferroflow::train::{Hook, RunArgs, RunContext, RunValues};
///
/// /// Stops when the loss is small enough.
/// struct StopWhenGood(Output);
///
/// impl Hook for StopWhenGood {
///     fn before_run(&mut self, _: &RunContext<'_>) -> Result<RunArgs> {
///         Ok(RunArgs::fetch([&self.0]))
///     }
///     fn after_run(&mut self, context: &RunContext<'_>, values: &RunValues) -> Result<()> {
///         if values.values[0].item::<f32>()? < 0.01 {
///             context.request_stop();
///         }
///         Ok(())
///     }
/// }
/// ```
pub trait Hook: Send {
    /// Once, before there is a session: the last time that nodes may be added to the graph.
    fn begin(&mut self, _graph: &Graph) -> Result<()> {
        Ok(())
    }

    /// When a session is ready to run: in the beginning, and again after each recovery.
    fn after_create_session(&mut self, _session: &Session, _coordinator: &Coordinator) -> Result<()> {
        Ok(())
    }

    /// Before each run: what the run shall compute for the hook, beside what the program asks for.
    fn before_run(&mut self, _context: &RunContext<'_>) -> Result<RunArgs> {
        Ok(RunArgs::default())
    }

    /// After each run that succeeded, with the values that [`before_run`](Hook::before_run) asked for.
    fn after_run(&mut self, _context: &RunContext<'_>, _values: &RunValues) -> Result<()> {
        Ok(())
    }

    /// Once, when training ends without an error; the session may still be used.
    fn end(&mut self, _session: &Session) -> Result<()> {
        Ok(())
    }
}

impl<H: Hook + ?Sized> Hook for Box<H> {
    fn begin(&mut self, graph: &Graph) -> Result<()> {
        (**self).begin(graph)
    }
    fn after_create_session(&mut self, session: &Session, coordinator: &Coordinator) -> Result<()> {
        (**self).after_create_session(session, coordinator)
    }
    fn before_run(&mut self, context: &RunContext<'_>) -> Result<RunArgs> {
        (**self).before_run(context)
    }
    fn after_run(&mut self, context: &RunContext<'_>, values: &RunValues) -> Result<()> {
        (**self).after_run(context, values)
    }
    fn end(&mut self, session: &Session) -> Result<()> {
        (**self).end(session)
    }
}

/// What a hook adds to a run.
#[derive(Debug, Default)]
pub struct RunArgs {
    /// Values that the hook wants to see, in the order in which it will get them.
    pub fetches: Vec<Output>,
    /// What shall happen beside them.
    pub operations: Vec<Operation>,
    /// Values to supply; an output that the program feeds too is a mistake.
    pub feeds: Feeds,
    /// A trace if one hook wants it, and the longest of all time limits.
    pub options: RunOptions,
}

impl RunArgs {
    /// The values of these outputs, and nothing else.
    pub fn fetch<O: AsRef<Output>>(outputs: impl IntoIterator<Item = O>) -> RunArgs {
        let fetches = outputs.into_iter().map(|output| output.as_ref().clone()).collect();
        RunArgs { fetches, ..RunArgs::default() }
    }
}

/// What a run gave a hook.
#[derive(Clone, Debug, Default)]
pub struct RunValues {
    /// The values of the hook's fetches, in its order.
    pub values: Vec<Tensor>,
    /// What the run tells about itself, if it was traced.
    pub metadata: RunMetadata,
}

/// A run, as hooks see it.
pub struct RunContext<'a> {
    session: &'a Session,
    stop: Cell<bool>,
}

impl<'a> RunContext<'a> {
    /// A run on this session that no hook has asked to be the last.
    pub fn new(session: &'a Session) -> RunContext<'a> {
        RunContext { session, stop: Cell::new(false) }
    }

    /// The session below the hooks: what is run on it is seen by no hook.
    pub fn session(&self) -> &'a Session {
        self.session
    }

    /// Makes this run the last one.
    pub fn request_stop(&self) {
        self.stop.set(true);
    }

    /// Whether a hook has made this run the last one.
    pub fn stop_requested(&self) -> bool {
        self.stop.get()
    }
}

/// The count of steps that a hook goes by; an error that names the hook if the graph has none.
fn global_step_for(graph: &Graph, hook: &str) -> Result<Variable> {
    let step = graph.known_global_step();
    step.ok_or_else(|| failed_precondition!("{hook} goes by the global step: Graph::global_step makes it"))
}

/// The step that a run's value shows. Read beside an update, it may be from before or after it.
fn step_in(values: &RunValues) -> Result<i64> {
    values.values.first().map_or(Ok(0), Tensor::to_i64)
}

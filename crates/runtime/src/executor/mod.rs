//! The executor: compiled once from a graph, immutable afterwards, run many times.
//!
//! A node runs when its last input arrives. The thread that made it ready runs it too, unless it is costly and there
//! is more to do: then another thread of the pool gets it. A node that must wait becomes a future, and goes on where
//! its waker says. [`compile`] decides all that can be decided before a step; [`step`] is the hot path; [`frame`]
//! adds loops, [`hurry`] threads that must not stay long, [`receiving`] values that come from other tasks together.

mod compile;
mod counter;
mod frame;
mod hurry;
mod receiving;
mod slots;
mod step;
#[cfg(test)]
mod tests;
mod watch;

pub use compile::KernelCache;
pub use step::StepFuture;
pub use watch::{Wait, Watcher};

use compile::Plan;
use framework::{Device, Env, Graph, StepContext};
use std::sync::Arc;
use tensor::Result;

/// A graph, ready to run on one device.
pub struct Executor {
    plan: Arc<Plan>,
}

impl Executor {
    /// Checks the graph, makes its kernels and lays out its values. Kernels of stateful nodes come from the cache, so
    /// that several executors of one session share them.
    pub fn compile(
        graph: &Graph,
        device: &Arc<dyn Device>,
        env: &Arc<dyn Env>,
        kernels: &KernelCache,
    ) -> Result<Executor> {
        Ok(Executor { plan: Arc::new(Plan::compile(graph, device, env, kernels)?) })
    }

    /// Runs one step. It starts when the future is first polled, on the polling thread; dropping the future ends it.
    pub fn run(&self, context: Arc<StepContext>) -> StepFuture {
        StepFuture::new(self.plan.clone(), context)
    }

    /// How many nodes there are.
    pub fn num_nodes(&self) -> usize {
        self.plan.nodes.len()
    }
}

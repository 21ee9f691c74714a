//! The one place that knows how graphs are run.

use framework::interpret::Interpreter;
use framework::{CpuDevice, DeviceName, Graph, NodeId, Output, Pool, SystemEnv};
use std::collections::HashMap;
use std::sync::Arc;
use tensor::{Result, Tensor};

/// Runs one graph in successive steps; variables and queues live as long as the runner.
pub trait Runner {
    /// The values of `fetches` after `targets` have run.
    fn run(
        &mut self,
        graph: &Graph,
        feeds: &HashMap<Output, Tensor>,
        fetches: &[Output],
        targets: &[NodeId],
    ) -> Result<Vec<Tensor>>;
}

/// A fresh runner for single nodes: the interpreter.
pub fn for_nodes() -> Box<dyn Runner> {
    let device = CpuDevice::new(DeviceName::cpu("localhost", 0, 0), 1, Pool::inline());
    Box::new(Interpreted(Interpreter::new(Arc::new(device), Arc::new(SystemEnv::default()))))
}

/// A fresh runner for graphs that may loop and wait.
pub fn for_graphs() -> Box<dyn Runner> {
    for_nodes()
}

struct Interpreted(Interpreter);

impl Runner for Interpreted {
    fn run(
        &mut self,
        graph: &Graph,
        feeds: &HashMap<Output, Tensor>,
        fetches: &[Output],
        targets: &[NodeId],
    ) -> Result<Vec<Tensor>> {
        self.0.run(graph, feeds, fetches, targets)
    }
}

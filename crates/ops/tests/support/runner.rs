//! The one place that knows how graphs are run.

use distributed::interface::Call;
use distributed::{LocalCluster, MasterInterface, RunStep};
use framework::graph::export::export;
use framework::interpret::Interpreter;
use framework::{CpuDevice, DeviceName, Graph, NodeId, Output, Pool, SystemEnv};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tensor::{Result, Tensor, deadline_exceeded};

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

/// A fresh runner for graphs that may loop and wait: a session on a task of its own.
pub fn for_graphs() -> Box<dyn Runner> {
    let registry = crate::golden::registry();
    let cluster = LocalCluster::new("localhost", 2, registry, Arc::new(SystemEnv::default()));
    Box::new(InSession { cluster, session: None })
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

/// The session is opened on the first graph that is run; later runs are of the same graph.
struct InSession {
    cluster: LocalCluster,
    session: Option<String>,
}

impl Runner for InSession {
    fn run(
        &mut self,
        graph: &Graph,
        feeds: &HashMap<Output, Tensor>,
        fetches: &[Output],
        targets: &[NodeId],
    ) -> Result<Vec<Tensor>> {
        let master = self.cluster.master();
        let session = match &self.session {
            Some(session) => session.clone(),
            None => {
                let graph_def = Some(export(graph));
                wait(master.create_session(proto::CreateSessionRequest { graph_def, ..Default::default() }))?
            }
        };
        self.session = Some(session.clone());
        // As TensorFlow's client does: what is fed is not asked for.
        let asked: Vec<&Output> = fetches.iter().filter(|f| !feeds.contains_key(f)).collect();
        let step = RunStep {
            session,
            feeds: feeds.iter().map(|(output, value)| (graph.output_name(*output), value.clone())).collect(),
            fetches: asked.iter().map(|output| graph.output_name(**output)).collect(),
            targets: targets.iter().map(|node| graph.node(*node).name.clone()).collect(),
            ..RunStep::default()
        };
        let mut answers = match (asked.is_empty(), targets.is_empty()) {
            (true, true) => Vec::new(),
            _ => wait(master.run_step(step))?.fetches,
        }
        .into_iter();
        let value = |fetch: &Output| feeds.get(fetch).cloned().or_else(|| answers.next());
        Ok(fetches.iter().map_while(value).collect())
    }
}

/// Waits for a call, but not for ever.
fn wait<T>(call: Call<'_, T>) -> Result<T> {
    const PATIENCE: Duration = Duration::from_secs(20);
    runtime::block_on(call, Some(Instant::now() + PATIENCE))
        .unwrap_or_else(|_| Err(deadline_exceeded!("the step hangs")))
}

//! What a master and a worker can be asked. Each is implemented by the thing itself and by a stub that asks a remote
//! one; messages that carry tensors are plain structs, so a call within a process copies nothing.

use framework::{Graph, RendezvousKey};
use std::future::Future;
use std::pin::Pin;
use std::time::Instant;
use tensor::{Result, Tensor};

/// A call under way. To cancel it is to drop it.
pub type Call<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

/// Names a session on its master, and on the workers.
pub type SessionHandle = String;
/// Names a registered graph within its session on a worker.
pub type GraphHandle = String;

/// One run, as a client asks for it.
#[derive(Clone, Debug, Default)]
pub struct RunStep {
    /// The session.
    pub session: SessionHandle,
    /// Values the client supplies, by output name.
    pub feeds: Vec<(String, Tensor)>,
    /// Outputs the client wants.
    pub fetches: Vec<String>,
    /// Nodes that only have to run.
    pub targets: Vec<String>,
    /// Trace and time limit.
    pub options: proto::RunOptions,
    /// The partial run this belongs to; empty if none.
    pub partial_run: String,
}

/// The answer to [`RunStep`].
#[derive(Debug, Default)]
pub struct RunStepReply {
    /// The fetched values, in the order they were asked for.
    pub fetches: Vec<Tensor>,
    /// Times and graphs, where asked for.
    pub metadata: proto::RunMetadata,
}

/// One task's part of a step.
#[derive(Clone, Debug, Default)]
pub struct RunGraph {
    /// The session.
    pub session: SessionHandle,
    /// The registered graph.
    pub graph: GraphHandle,
    /// The step's number.
    pub step: i64,
    /// Values to leave at the rendezvous before the graph runs.
    pub send: Vec<(RendezvousKey, Tensor)>,
    /// Values to take from the rendezvous after it ran.
    pub recv: Vec<RendezvousKey>,
    /// Whether to note each node's times.
    pub trace: bool,
    /// When to end the step if it is still under way.
    pub deadline: Option<Instant>,
    /// Whether more feeds and fetches of the same step follow.
    pub partial: Option<Partial>,
}

/// Where a call stands in a partial run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Partial {
    /// More calls follow.
    More,
    /// The last call: wait for everything.
    Last,
}

/// The answer to [`RunGraph`].
#[derive(Debug, Default)]
pub struct RunGraphReply {
    /// The values asked for, in the order they were asked for.
    pub recv: Vec<Tensor>,
    /// Each node's times, where asked for.
    pub step_stats: proto::StepStats,
}

/// What a worker can be asked.
pub trait WorkerInterface: Send + Sync {
    /// Opens a session's share on this task.
    fn create_worker_session(&self, session: SessionHandle) -> Call<'_, ()>;
    /// Drops a session's share on this task.
    fn delete_worker_session(&self, session: SessionHandle) -> Call<'_, ()>;
    /// Compiles a graph for many steps.
    fn register_graph(&self, session: SessionHandle, graph: Graph) -> Call<'_, GraphHandle>;
    /// Executes a registered graph for one step.
    fn run_graph(&self, request: RunGraph) -> Call<'_, RunGraphReply>;
    /// Forgets a step.
    fn cleanup_graph(&self, step: i64) -> Call<'_, ()>;
    /// Clears resource containers; none named means the default one.
    fn cleanup_all(&self, containers: Vec<String>) -> Call<'_, ()>;
}

/// What a master can be asked.
pub trait MasterInterface: Send + Sync {
    /// Opens a session on a graph.
    fn create_session(&self, graph: proto::GraphDef, config: proto::ConfigProto) -> Call<'_, SessionHandle>;
    /// Adds nodes to a session's graph, if it still has the version the client knows; the new version.
    fn extend_session(&self, session: SessionHandle, graph: proto::GraphDef, version: i64) -> Call<'_, i64>;
    /// Runs one step.
    fn run_step(&self, request: RunStep) -> Call<'_, RunStepReply>;
    /// Announces a step whose feeds and fetches come in several calls; the handle to name it by.
    fn partial_run_setup(
        &self,
        session: SessionHandle,
        feeds: Vec<String>,
        fetches: Vec<String>,
        targets: Vec<String>,
    ) -> Call<'_, String>;
    /// Closes a session; running steps end.
    fn close_session(&self, session: SessionHandle) -> Call<'_, ()>;
    /// The devices a session sees.
    fn list_devices(&self, session: SessionHandle) -> Call<'_, Vec<proto::DeviceAttributes>>;
    /// Drops all sessions and clears containers.
    fn reset(&self, containers: Vec<String>) -> Call<'_, ()>;
}

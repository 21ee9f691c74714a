//! What a master and a worker can be asked. Each is implemented by the thing itself and by a stub that asks a remote
//! one; messages that carry tensors are plain structs, so a call within a process copies nothing.

use crate::cluster::TaskName;
use framework::{Arrived, Asked, Connection, Delivery, Graph, Receiver, RendezvousKey};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;
use tensor::{Result, Tensor, unsupported};

pub use runtime::{Found, Parcel};

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

/// The answer to [`RunStep`], and to a callable's run.
#[derive(Debug, Default)]
pub struct RunStepReply {
    /// The fetched values, in the order they were asked for.
    pub fetches: Vec<Tensor>,
    /// Times and graphs, where asked for.
    pub metadata: proto::RunMetadata,
}

/// A graph for a task to keep, and execute when told.
#[derive(Clone, Debug, Default)]
pub struct RegisterGraph {
    /// The session; empty for the one that all masters share who never made one.
    pub session: SessionHandle,
    /// The nodes, each with a complete device name of this task.
    pub graph: Graph,
    /// The session's options.
    pub config: proto::ConfigProto,
    /// The tasks that send each other what goes between them, unasked.
    pub pushing: Vec<TaskName>,
}

/// One task's part of a step.
#[derive(Clone, Debug, Default)]
pub struct RunGraph {
    /// The session; empty for the one that all masters share who never made one.
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
    /// Whether to return the graphs as they are executed.
    pub want_graphs: bool,
    /// When to end the step if it is still under way.
    pub deadline: Option<Instant>,
    /// Whether more feeds and fetches of the same step follow.
    pub partial: Option<Partial>,
    /// Where the call came from, if it came over the network.
    pub connection: Option<Arc<Connection>>,
    /// The task to which what the graph sends goes by way of the answer, if that is soon enough and it is small.
    pub bring_to: Option<TaskName>,
    /// How many bytes of what is not small go there as well.
    pub bring_large: usize,
    /// Whether what the graph sends stays here until the worker is told to let it go: the master may have a faster way.
    pub is_held: bool,
}

/// What one task sends to another in a step.
#[derive(Debug, Default)]
pub struct Push {
    /// The session whose step it is.
    pub session: SessionHandle,
    /// The step.
    pub step: i64,
    /// The values.
    pub parcel: Parcel,
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
    /// The graphs as executed, one for each device, where asked for.
    pub graphs: Vec<proto::GraphDef>,
    /// What is brought, where asked for, by the places in the list of keys.
    pub brought: Vec<(u32, Arrived)>,
}

/// The devices a master knows.
#[derive(Debug, Default)]
pub struct DeviceList {
    /// Those a session may use, or the master's own.
    pub local: Vec<proto::DeviceAttributes>,
    /// Those of other tasks, when no session was named.
    pub remote: Vec<proto::DeviceAttributes>,
}

/// What a worker can be asked.
pub trait WorkerInterface: Send + Sync {
    /// The devices of this task. What the request says of the cluster must agree with what this task knows.
    fn get_status(&self, request: proto::GetStatusRequest) -> Call<'_, Vec<proto::DeviceAttributes>>;
    /// Opens a session's share on this task.
    fn create_worker_session(&self, request: proto::CreateWorkerSessionRequest) -> Call<'_, ()>;
    /// Notes that a session was heard of over a connection, for a worker that cares when a session is lost.
    fn heard(&self, session: &str, connection: &Arc<Connection>) {
        let _ = (session, connection);
    }
    /// Notes that the client of a session is gone, for a worker that cares; the session's next run tells that it is back.
    fn lose_session(&self, _session: SessionHandle) -> Call<'_, ()> {
        Box::pin(std::future::ready(Ok(())))
    }
    /// Drops a session's share on this task.
    fn delete_worker_session(&self, session: SessionHandle) -> Call<'_, ()>;
    /// Compiles a graph for many steps.
    fn register_graph(&self, request: RegisterGraph) -> Call<'_, GraphHandle>;
    /// Forgets a graph.
    fn deregister_graph(&self, session: SessionHandle, graph: GraphHandle) -> Call<'_, ()>;
    /// Executes a registered graph for one step.
    fn run_graph(&self, request: RunGraph) -> Call<'_, RunGraphReply>;
    /// Hands over a value that this task sends in a step, waiting until it is there.
    fn recv_tensor(&self, step: i64, key: RendezvousKey) -> Call<'_, Delivery>;
    /// Whether it knows how to bring what it sends along with its answers, and how to take what it is sent unasked.
    fn can_bring(&self) -> bool {
        false
    }
    /// How large a value may be that is sent to it unasked; of larger ones it is told.
    fn push_bytes_max(&self) -> usize {
        0
    }
    /// Takes in what another task sends to this one in a step.
    fn push(&self, _push: Push) -> Call<'_, ()> {
        Box::pin(std::future::ready(Err(unsupported!("this worker takes only what it has asked for"))))
    }
    /// How many bytes of values may go along with a call to run a graph; others are asked for.
    fn early_bytes_max(&self) -> usize {
        0
    }
    /// Takes values that this task sends in a step, together if it can; `None` if it cannot.
    fn receive_group(&self, _step: i64, _keys: &Arc<[RendezvousKey]>, _receiver: Arc<dyn Receiver>) -> Option<Asked> {
        None
    }
    /// Hands over what is there of several small values that this task sends in a step, waiting until one is. Only tasks of
    /// our own kind can be asked.
    fn recv_small(&self, _step: i64, _keys: Arc<[RendezvousKey]>) -> Call<'_, Found> {
        Box::pin(std::future::ready(Err(unsupported!("this worker hands over one value at a time"))))
    }
    /// Forgets a step.
    fn cleanup_graph(&self, step: i64) -> Call<'_, ()>;
    /// Clears resource containers; none named means the default one.
    fn cleanup_all(&self, containers: Vec<String>) -> Call<'_, ()>;
    /// Starts, stops, or reads the record of tensors this task fetched.
    fn logging(&self, request: proto::LoggingRequest) -> Call<'_, proto::LoggingResponse>;
}

/// What a master can be asked.
pub trait MasterInterface: Send + Sync {
    /// Opens a session on a graph. The target is what the client calls this master.
    fn create_session(&self, request: proto::CreateSessionRequest) -> Call<'_, SessionHandle>;
    /// Notes that a session was heard of over a connection, for a master that cares when a client is gone.
    fn heard(&self, session: &str, connection: &Arc<Connection>) {
        let _ = (session, connection);
    }
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
    /// Prepares a run whose feeds and fetches are known by position; its handle.
    fn make_callable(&self, session: SessionHandle, options: proto::CallableOptions) -> Call<'_, i64>;
    /// Runs a callable: feeds in the order it declares them, fetches likewise.
    fn run_callable(&self, session: SessionHandle, callable: i64, feeds: Vec<Tensor>) -> Call<'_, RunStepReply>;
    /// Forgets a callable.
    fn release_callable(&self, session: SessionHandle, callable: i64) -> Call<'_, ()>;
    /// Closes a session; running steps end.
    fn close_session(&self, session: SessionHandle) -> Call<'_, ()>;
    /// The devices a session sees; with an empty handle, those of the cluster.
    fn list_devices(&self, session: SessionHandle) -> Call<'_, DeviceList>;
    /// Drops all sessions and clears containers on the tasks that the filters select.
    fn reset(&self, containers: Vec<String>, device_filters: Vec<String>) -> Call<'_, ()>;
}

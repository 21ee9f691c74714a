//! `Session`: runs parts of a graph.

use crate::fetch::FetchList;
use crate::{Feeds, Fetch, Graph, server};
use distributed::{MasterInterface, RunStep};
use framework::graph::export;
use parking_lot::Mutex;
use rpc::{RemoteMaster, RemoteOptions};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use tensor::{Result, deadline_exceeded, invalid};

/// Runs parts of a graph on a master. Clones are handles on the same session, which threads may use at once: runs do not
/// wait for each other. The session is closed when the last handle is dropped.
///
/// Nodes added to the graph after the session was opened are sent along with the next run.
///
/// ```
/// use ferroflow::prelude::*;
///
/// let g = Graph::new();
/// let x = g.placeholder::<f32>([None]);
/// let y = x.square();
/// let session = Session::new(&g)?;
/// assert_eq!(session.run_with(&y, feed! { x => [2.0f32, 3.0] })?, Tensor::from([4.0f32, 9.0]));
/// # Ok::<(), ferroflow::Error>(())
/// ```
#[derive(Clone)]
pub struct Session {
    open: Arc<Open>,
}

/// An open session; closed when dropped.
struct Open {
    graph: Graph,
    master: Arc<dyn MasterInterface>,
    handle: String,
    sent: Mutex<Sent>,
    options: SessionOptions,
}

/// A handle on a session that does not keep it open.
pub(crate) struct WeakSession(Weak<Open>);

impl WeakSession {
    /// The session, if somebody else still has it.
    pub(crate) fn upgrade(&self) -> Option<Session> {
        self.0.upgrade().map(|open| Session { open })
    }
}

/// What the master knows of the graph.
struct Sent {
    nodes: usize,
    version: i64,
}

/// How a session behaves.
#[derive(Clone, Debug, Default)]
pub struct SessionOptions {
    /// The longest any run may take, unless the run says otherwise.
    pub operation_timeout: Option<Duration>,
    /// Whether a node pinned to a device that does not exist may run elsewhere on its task.
    pub allow_soft_placement: bool,
    /// Run the graph as it was built: no folding, merging or fusing of nodes.
    pub without_optimizer: bool,
    /// The tasks that take part, such as `/job:ps` and `/job:worker/task:0`; all if there are none. The session does not
    /// see the others, and does not wait for them.
    pub device_filters: Vec<String>,
    /// Whether variables and queues are the session's own rather than shared with all sessions of the cluster.
    pub isolate_session_state: bool,
    /// Whether the master logs where it puts each node.
    pub log_device_placement: bool,
    /// How long to wait for a server that is not up yet; 30 s unless told.
    pub patience: Option<Duration>,
}

/// How one run behaves.
#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    /// The longest it may take; the step is cancelled then.
    pub timeout: Option<Duration>,
    /// Whether to note each node's times.
    pub trace: bool,
}

/// What a run tells about itself.
#[derive(Clone, Debug, Default)]
pub struct RunMetadata {
    /// As TensorFlow's tools read it.
    pub proto: proto::RunMetadata,
}

/// A run whose feeds and fetches come in several steps.
pub struct PartialRun<'s> {
    session: &'s Session,
    handle: String,
}

impl Session {
    /// A session on a private one-task cluster in this process.
    pub fn new(graph: &Graph) -> Result<Session> {
        Session::connect("", graph)
    }

    /// A session on a server, ours or TensorFlow's: its target, such as `grpc://host:port`, or "" for a private one-task
    /// cluster.
    pub fn connect(target: impl AsRef<str>, graph: &Graph) -> Result<Session> {
        Session::connect_with(target, graph, SessionOptions::default())
    }

    /// A session with options.
    pub fn connect_with(target: impl AsRef<str>, graph: &Graph, options: SessionOptions) -> Result<Session> {
        let limit = options.operation_timeout;
        Session::connect_within(target.as_ref(), graph, options, limit)
    }

    /// A session that is opened within this time; the master knows the limit too, and can say what it waited for.
    pub(crate) fn connect_within(
        target: &str,
        graph: &Graph,
        options: SessionOptions,
        limit: Option<Duration>,
    ) -> Result<Session> {
        graph.check()?;
        let master = find_master(target, &options)?;
        let (message, nodes) = graph.scope().with_graph(|g| (export::export(g), g.len()));
        let operation_timeout_in_ms = limit.map_or(0, millis);
        let request = proto::CreateSessionRequest {
            graph_def: Some(message),
            config: Some(proto::ConfigProto { operation_timeout_in_ms, ..config(&options) }),
            target: target.to_string(),
        };
        let handle = wait(master.create_session(request), limit.map(|limit| limit.saturating_add(GRACE)))?;
        let sent = Mutex::new(Sent { nodes, version: 0 });
        Ok(Session { open: Arc::new(Open { graph: graph.clone(), master, handle, sent, options }) })
    }

    /// Runs what is needed for `fetch`: one `Output` gives one `Tensor`, a tuple gives a tuple, an `Operation` gives `()`.
    pub fn run<F: Fetch>(&self, fetch: F) -> Result<F::Values> {
        self.run_with(fetch, Feeds::new())
    }

    /// The same, with some outputs' values supplied: placeholders, or any others.
    pub fn run_with<F: Fetch>(&self, fetch: F, feeds: Feeds) -> Result<F::Values> {
        Ok(self.run_options(fetch, feeds, &RunOptions::default())?.0)
    }

    /// The same, with a time limit or a trace.
    pub fn run_options<F: Fetch>(
        &self,
        fetch: F,
        feeds: Feeds,
        options: &RunOptions,
    ) -> Result<(F::Values, RunMetadata)> {
        let list = FetchList::of(&fetch)?;
        let (fetches, places) = distinct(list.outputs);
        let limit = options.timeout.or(self.open.options.operation_timeout);
        let request = RunStep {
            feeds: feeds.into_named()?,
            fetches,
            targets: distinct(list.targets).0,
            options: proto::RunOptions {
                trace_level: if options.trace { FULL_TRACE } else { 0 },
                timeout_in_ms: limit.map_or(0, millis),
                ..Default::default()
            },
            ..self.request()?
        };
        let reply = wait(self.open.master.run_step(request), limit.map(|l| l.saturating_add(GRACE)))?;
        let found = &reply.fetches;
        let values = fetch.values(&mut places.into_iter().map_while(|place| found.get(place).cloned()))?;
        Ok((values, RunMetadata { proto: reply.metadata }))
    }

    /// Announces a run whose feeds and fetches come in several steps: all that will be fed, and all that will be fetched.
    pub fn partial_run<F: Fetch>(&self, fetch: F, feeds: &[&crate::Output]) -> Result<PartialRun<'_>> {
        let list = FetchList::of(&fetch)?;
        let feeds = feeds.iter().map(|f| f.full_name()).collect::<Result<Vec<_>>>()?;
        self.send_new_nodes()?;
        let call = self.open.master.partial_run_setup(self.open.handle.clone(), feeds, list.outputs, list.targets);
        Ok(PartialRun { session: self, handle: wait(call, self.open.options.operation_timeout)? })
    }

    /// Closes the session: runs of other threads end, later ones are refused. Dropping the last handle closes it too.
    pub fn close(&self) -> Result<()> {
        self.open.close()
    }

    /// The graph that it runs parts of.
    pub fn graph(&self) -> &Graph {
        &self.open.graph
    }

    /// A handle that does not keep it open.
    pub(crate) fn downgrade(&self) -> WeakSession {
        WeakSession(Arc::downgrade(&self.open))
    }

    /// The devices this session can use.
    pub fn list_devices(&self) -> Result<Vec<String>> {
        let devices =
            wait(self.open.master.list_devices(self.open.handle.clone()), self.open.options.operation_timeout)?;
        Ok(devices.local.into_iter().chain(devices.remote).map(|d| d.name).collect())
    }

    fn request(&self) -> Result<RunStep> {
        self.send_new_nodes()?;
        Ok(RunStep { session: self.open.handle.clone(), ..RunStep::default() })
    }

    /// Tells the master of nodes added since the last run.
    fn send_new_nodes(&self) -> Result<()> {
        self.open.graph.check()?;
        let mut sent = self.open.sent.lock();
        let known = sent.nodes;
        let new = self.open.graph.scope().with_graph(|g| {
            (g.len() > known).then(|| {
                let nodes = g.nodes().skip(known).map(|(_, node)| export::export_node(g, node)).collect();
                (
                    proto::GraphDef {
                        node: nodes,
                        library: Some(g.library.to_proto()),
                        versions: g.versions.clone(),
                        ..Default::default()
                    },
                    g.len(),
                )
            })
        });
        if let Some((message, count)) = new {
            let call = self.open.master.extend_session(self.open.handle.clone(), message, sent.version);
            sent.version = wait(call, self.open.options.operation_timeout)?;
            sent.nodes = count;
        }
        Ok(())
    }
}

impl Open {
    fn close(&self) -> Result<()> {
        wait(self.master.close_session(self.handle.clone()), self.options.operation_timeout)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        // A session closed before, or a master that is gone, has nothing left to close.
        let _ = self.close();
    }
}

impl PartialRun<'_> {
    /// One step: some of the announced feeds in, some of the announced fetches out.
    pub fn run_with<F: Fetch>(&self, fetch: F, feeds: Feeds) -> Result<F::Values> {
        let list = FetchList::of(&fetch)?;
        let request = RunStep {
            feeds: feeds.into_named()?,
            fetches: list.outputs,
            targets: list.targets,
            partial_run: self.handle.clone(),
            ..self.session.request()?
        };
        let reply = wait(self.session.open.master.run_step(request), self.session.open.options.operation_timeout)?;
        fetch.values(&mut reply.fetches.into_iter())
    }
}

/// Each name once, and where among them each of the given ones stands: a program and its hooks may want the same.
fn distinct(names: Vec<String>) -> (Vec<String>, Vec<usize>) {
    let (mut found, mut places) = (Vec::with_capacity(names.len()), Vec::with_capacity(names.len()));
    for name in names {
        let place = found.iter().position(|other| *other == name).unwrap_or(found.len());
        if place == found.len() {
            found.push(name);
        }
        places.push(place);
    }
    (found, places)
}

/// The trace level that notes each node's times.
const FULL_TRACE: i32 = 3;

/// The master that a target names: one in this process is called directly.
fn find_master(target: &str, options: &SessionOptions) -> Result<Arc<dyn MasterInterface>> {
    if target.is_empty() {
        return Ok(server::new_cluster().master().clone());
    }
    if !target.starts_with("grpc://") {
        return Err(invalid!(
            "'{target}' is not a target; wanted grpc://HOST:PORT, as Server::target() gives it, or \"\" for a private task"
        ));
    }
    if let Some(master) = server::find(target) {
        return Ok(master);
    }
    let defaults = RemoteOptions::default();
    let options = RemoteOptions {
        patience: options.patience.unwrap_or(defaults.patience),
        operation_timeout: options.operation_timeout,
    };
    Ok(Arc::new(RemoteMaster::new(target, options)))
}

fn config(options: &SessionOptions) -> proto::ConfigProto {
    let rewrite = proto::RewriterConfig { disable_meta_optimizer: options.without_optimizer, ..Default::default() };
    proto::ConfigProto {
        allow_soft_placement: options.allow_soft_placement,
        device_filters: options.device_filters.clone(),
        isolate_session_state: options.isolate_session_state,
        log_device_placement: options.log_device_placement,
        graph_options: Some(proto::GraphOptions { rewrite_options: Some(rewrite), ..Default::default() }),
        ..Default::default()
    }
}

/// How much longer than the master a client waits: the master can tell what a step waited for.
const GRACE: Duration = Duration::from_secs(1);

/// A time limit as it travels: none is 0, so the shortest is 1.
fn millis(limit: Duration) -> i64 {
    i64::try_from(limit.as_micros().div_ceil(1000)).unwrap_or(i64::MAX).max(1)
}

/// Waits for a call, up to a time limit; the call is cancelled then.
fn wait<T>(call: distributed::interface::Call<'_, T>, limit: Option<Duration>) -> Result<T> {
    let deadline = limit.and_then(|l| Instant::now().checked_add(l));
    // On Linux the thread moves the bytes to and from a remote master itself.
    #[cfg(target_os = "linux")]
    let ended = rpc::block_on(call, deadline);
    #[cfg(not(target_os = "linux"))]
    let ended = runtime::block_on(call, deadline).ok();
    ended.unwrap_or_else(|| {
        let limit = limit.unwrap_or_default();
        Err(deadline_exceeded!(
            "the run took longer than its limit of {limit:?} and was cancelled; RunOptions::timeout raises the limit"
        ))
    })
}

/// Has the calling thread's runs, from now on, hold up those of others as little as possible.
pub(crate) fn stay_in_background() {
    #[cfg(target_os = "linux")]
    rpc::stay_in_background();
}

impl RunMetadata {
    /// Each node's times in the format of Chrome's trace viewer (chrome://tracing, Perfetto).
    pub fn chrome_trace(&self) -> String {
        use std::fmt::Write as _;
        let mut events = Vec::new();
        let devices = self.proto.step_stats.iter().flat_map(|s| &s.dev_stats);
        for (pid, device) in devices.enumerate() {
            let mut name = String::new();
            let _ = write!(
                name,
                "{{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":{pid},\"args\":{{\"name\":{}}}}}",
                quote(&device.device)
            );
            events.push(name);
            for node in &device.node_stats {
                let op = node.timeline_label.rsplit(" = ").next().unwrap_or_default();
                events.push(format!(
                    "{{\"name\":{},\"cat\":\"Op\",\"ph\":\"X\",\"pid\":{pid},\"tid\":{},\"ts\":{},\"dur\":{},\"args\":{{\"op\":{},\"node\":{}}}}}",
                    quote(op), node.thread_id, node.all_start_micros, node.all_end_rel_micros.max(1), quote(op), quote(&node.node_name)
                ));
            }
        }
        format!("{{\"traceEvents\":[{}]}}", events.join(",\n"))
    }
}

/// A JSON string. Node and device names hold no control characters.
fn quote(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

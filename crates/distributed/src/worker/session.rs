//! A session's share on a worker: its registered graphs, and the kernels they have in common.

use super::device::SessionDevice;
use crate::cluster::{ClusterSpec, Peers, TaskName};
use crate::interface::{GraphHandle, SessionHandle};
use crate::routes::Routes;
use framework::graph::export;
use framework::{Connection, Device, DeviceName, Env, FastMap, Graph, Participant, Registry};
use parking_lot::Mutex;
use plan::partition::{EdgeNames, Part, partition};
use runtime::{Executor, KernelCache};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use tensor::{Result, aborted, invalid};

pub(super) struct WorkerSession {
    pub(super) handle: Arc<str>,
    /// The task whose master made the session, if it said so.
    pub(super) master: Option<String>,
    /// Who takes part when its graphs run.
    pub(super) participant: Arc<Participant>,
    /// The cluster as this session sees it.
    pub(super) peers: Arc<Peers>,
    devices: Vec<Arc<dyn Device>>,
    kernels: KernelCache,
    graphs: Mutex<FastMap<GraphHandle, Arc<RegisteredGraph>>>,
    edge_names: Mutex<EdgeNames>,
    counter: AtomicU64,
}

/// A graph, ready to run: one executor for each device it uses.
pub(super) struct RegisteredGraph {
    pub(super) executors: Vec<Executor>,
    /// Who takes part when it runs.
    pub(super) participant: Arc<Participant>,
    /// What each of them executes, for who wants to see it.
    pub(super) parts: Vec<Part>,
    /// What goes to other tasks and comes from them unasked.
    pub(super) routes: Option<Arc<Routes>>,
}

impl RegisteredGraph {
    /// A call came to run it, over this connection unless it came from within the process.
    pub(super) fn heard_over(&self, connection: Option<&Arc<Connection>>) {
        if let Some(connection) = connection {
            self.participant.heard_over(connection);
        }
    }

    /// The graphs as they are executed.
    pub(super) fn to_proto(&self) -> Vec<proto::GraphDef> {
        self.parts.iter().map(|part| export::export(&part.graph)).collect()
    }
}

impl WorkerSession {
    /// A session of the task's own cluster, of whom this one asks for it.
    pub(super) fn new(
        handle: SessionHandle,
        devices: Vec<Arc<dyn Device>>,
        peers: Arc<Peers>,
        participant: Arc<Participant>,
    ) -> WorkerSession {
        WorkerSession {
            handle: handle.into(),
            master: None,
            participant,
            peers,
            devices,
            kernels: KernelCache::default(),
            graphs: Mutex::default(),
            edge_names: Mutex::default(),
            counter: AtomicU64::new(0),
        }
    }

    /// The session a master asks for: in the task's own cluster, or in one that the client brought along.
    pub(super) fn open(
        request: &proto::CreateWorkerSessionRequest,
        devices: &[Arc<dyn Device>],
        peers: &Arc<Peers>,
        participant: Arc<Participant>,
    ) -> Result<WorkerSession> {
        let server = request.server_def.as_ref();
        let brought = server.and_then(|s| Some((s, s.cluster.as_ref().filter(|c| !c.job.is_empty())?)));
        let (peers, isolated) = match brought {
            None => (peers.clone(), request.isolate_session_state),
            Some((server, cluster)) => {
                let index = u32::try_from(server.task_index)
                    .map_err(|_| invalid!("task_index is {}, wanted 0 or more", server.task_index))?;
                let own = TaskName::new(server.job_name.clone(), index);
                let cluster = ClusterSpec::from_proto(cluster)?;
                cluster.task_address(&own.job, own.index)?;
                (Arc::new(Peers::new(cluster, own, peers.network().clone())), request.isolate_session_state)
            }
        };
        let is_plain = brought.is_none() && !isolated;
        let devices = devices.iter().map(|device| {
            if is_plain {
                return device.clone();
            }
            let name = DeviceName { job: peers.own().job.clone(), task: peers.own().index, ..device.name().clone() };
            Arc::new(SessionDevice::new(device.clone(), name, isolated)) as Arc<dyn Device>
        });
        let handle = request.session_handle.clone();
        let mut session = WorkerSession::new(handle, devices.collect(), peers.clone(), participant);
        session.master = (!request.master_task.is_empty()).then(|| request.master_task.clone());
        Ok(session)
    }

    /// Cuts a graph by device and compiles the parts. What goes between this task and those that push is not asked for.
    pub(super) fn register(
        &self,
        graph: Graph,
        pushing: &[TaskName],
        registry: &Registry,
        env: &Arc<dyn Env>,
    ) -> Result<GraphHandle> {
        for (_, node) in graph.nodes() {
            if node.device.is_empty() {
                return Err(invalid!("Node '{}' is missing a device specification", node.name));
            }
            self.device(&node.device)?;
        }
        let routes = Routes::new(&graph, self.peers.own(), pushing).map(Arc::new);
        let incarnation = |name: &DeviceName| Ok(self.device(&name.to_string())?.incarnation());
        let mut parts = partition(&graph, registry, &DeviceName::to_string, &incarnation, &mut self.edge_names.lock())?;
        for part in &mut parts {
            part.graph = plan::optimize_for_device(std::mem::take(&mut part.graph), registry)?;
        }
        let executors = parts
            .iter()
            .map(|part| Executor::compile(&part.graph, self.device(&part.name)?, env, &self.kernels))
            .collect::<Result<_>>()?;
        let handle = format!("{:016x}", self.counter.fetch_add(1, Ordering::Relaxed) + 1);
        let participant = self.owner_of_new_graph(env);
        let registered = RegisteredGraph { executors, participant, parts, routes };
        self.graphs.lock().insert(handle.clone(), Arc::new(registered));
        Ok(handle)
    }

    /// Whose graph it is that is registered now. Who shares a session with others is known by the graph alone.
    fn owner_of_new_graph(&self, env: &Arc<dyn Env>) -> Arc<Participant> {
        let is_shared = self.handle.is_empty();
        if is_shared { self.participant.all().admit("", env.now()) } else { self.participant.clone() }
    }

    fn device(&self, name: &str) -> Result<&Arc<dyn Device>> {
        let wanted: DeviceName = name.parse()?;
        self.devices.iter().find(|d| *d.name() == wanted).ok_or_else(|| invalid!("{name} unknown device."))
    }

    pub(super) fn deregister(&self, handle: &str, now: Instant) -> Result<()> {
        let removed =
            self.graphs.lock().remove(handle).ok_or_else(|| {
                aborted!("Graph handle is not found: {handle}. Possibly, this worker just restarted.")
            })?;
        if self.handle.is_empty() {
            removed.participant.leave(now);
        }
        Ok(())
    }

    pub(super) fn num_graphs(&self) -> u32 {
        self.graphs.lock().len() as u32
    }

    pub(super) fn graph(&self, handle: &str) -> Result<Arc<RegisteredGraph>> {
        self.graphs.lock().get(handle).cloned().ok_or_else(|| aborted!("Graph handle is not found: {handle}"))
    }
}

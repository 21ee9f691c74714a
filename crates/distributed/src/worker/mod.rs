//! The worker: executes its part of each step.

mod device;
mod log;
mod outbox;
mod rendezvous;
mod session;
mod stats;
mod status;
mod step;

use crate::cluster::{ClusterSpec, Peers, TaskName};
use crate::interface::{
    Call, Found, GraphHandle, Push, RegisterGraph, RunGraph, RunGraphReply, SessionHandle, WorkerInterface,
};
use framework::graph::import;
use framework::participant::GIVEN_UP_AFTER;
use framework::rendezvous::Sender;
use framework::{
    Connection, Delivery, Device, Env, FastMap, Graph, LostWorker, Participant, Participants, Registry, RendezvousKey,
};
use log::TransferLog;
use outbox::Outbox;
use parking_lot::Mutex;
use runtime::{Parcel, StepTable, Timer};
use session::WorkerSession;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tensor::{Result, Tensor, aborted, failed_precondition, invalid};

pub use status::{RunningStep, WorkerStatus};

/// How long a program may take to open a session again that it closed, as it does to recover from an error.
const REOPENED_MAX: Duration = Duration::from_secs(10);

/// One task's worker: sessions, their graphs, and the steps under way.
pub struct Worker {
    task: TaskName,
    devices: Vec<Arc<dyn Device>>,
    registry: Arc<Registry>,
    env: Arc<dyn Env>,
    peers: Arc<Peers>,
    sessions: Mutex<Sessions>,
    /// For masters that never make a session.
    shared_session: Arc<WorkerSession>,
    /// Whose steps run here.
    participants: Arc<Participants>,
    steps: Arc<StepTable>,
    timer: Arc<Timer>,
    partial_runs: step::PartialRuns,
    running: status::RunningSteps,
    log: Arc<TransferLog>,
    /// What steps send that their master, which is ours, has not let go of.
    held: Mutex<FastMap<i64, Arc<Outbox>>>,
}

#[derive(Default)]
struct Sessions {
    by_handle: FastMap<SessionHandle, Arc<WorkerSession>>,
    /// The incarnation in which each master was last seen.
    masters: HashMap<String, i64>,
}

impl Worker {
    /// A worker on these devices of one task; the first is the one that feeds and fetches pass through.
    pub fn new(devices: Vec<Arc<dyn Device>>, registry: Arc<Registry>, env: Arc<dyn Env>, peers: Arc<Peers>) -> Worker {
        Worker::with_policy(devices, registry, env, peers, LostWorker::default())
    }

    /// A worker that deals like this with lost workers of synchronous training, where a graph does not say.
    pub fn with_policy(
        devices: Vec<Arc<dyn Device>>,
        registry: Arc<Registry>,
        env: Arc<dyn Env>,
        peers: Arc<Peers>,
        policy: LostWorker,
    ) -> Worker {
        let participants = Participants::new(policy);
        let nobody = participants.admit("", env.now());
        let shared_session = Arc::new(WorkerSession::new(String::new(), devices.clone(), peers.clone(), nobody));
        Worker {
            task: peers.own().clone(),
            devices,
            registry,
            env,
            peers,
            sessions: Mutex::default(),
            shared_session,
            participants,
            steps: Arc::default(),
            timer: Arc::default(),
            partial_runs: Default::default(),
            running: Default::default(),
            log: Arc::default(),
            held: Mutex::default(),
        }
    }

    /// The devices, the one that feeds and fetches pass through first.
    pub fn devices(&self) -> &[Arc<dyn Device>] {
        &self.devices
    }

    /// The other tasks of the cluster this one was started in.
    pub fn peers(&self) -> &Arc<Peers> {
        &self.peers
    }

    /// How many steps have left something here.
    pub fn num_steps(&self) -> usize {
        self.steps.steps().len()
    }

    /// A graph from its message, checked against the ops there are.
    pub fn import(&self, message: &proto::GraphDef) -> Result<Graph> {
        let mut graph = Graph::new();
        import::extend(&mut graph, message, &self.registry)?;
        Ok(graph)
    }

    fn session(&self, handle: &str) -> Result<Arc<WorkerSession>> {
        if handle.is_empty() {
            return Ok(self.shared_session.clone());
        }
        self.sessions.lock().by_handle.get(handle).cloned().ok_or_else(|| {
            aborted!("Session handle is not found: {handle}. Possibly this worker (\"{}\") just restarted.", self.task)
        })
    }

    fn attributes(&self) -> Vec<proto::DeviceAttributes> {
        self.devices.iter().map(|device| attributes(&**device)).collect()
    }

    /// Whether the asker means this task, and knows the same cluster.
    fn check_acquaintance(&self, request: &proto::GetStatusRequest) -> Result<()> {
        if !request.task.is_empty() && request.task != self.task.to_string() {
            return Err(failed_precondition!(
                "{} was asked for, but the task that listens here is {}; check the addresses in the cluster definition, \
                 and --job_name and --task_index of this server",
                request.task,
                self.task
            ));
        }
        let Some(theirs) = &request.cluster else { return Ok(()) };
        match differing_entry(self.peers.cluster(), &ClusterSpec::from_proto(theirs)?, &self.task) {
            None => Ok(()),
            Some((task, ours, theirs)) => Err(failed_precondition!(
                "the tasks of this cluster do not agree on it: {task} is at {ours} for {}, and at {theirs} for the task \
                 that asked; start all tasks with the same cluster definition",
                self.task
            )),
        }
    }

    /// Drops the sessions that a former self of a master left behind.
    fn forget_former_master(sessions: &mut Sessions, task: &str, incarnation: i64) -> Vec<Arc<WorkerSession>> {
        if task.is_empty() || sessions.masters.insert(task.to_string(), incarnation).is_none_or(|i| i == incarnation) {
            return Vec::new();
        }
        let left: Vec<SessionHandle> = sessions
            .by_handle
            .iter()
            .filter(|(_, s)| s.master.as_deref() == Some(task))
            .map(|(handle, _)| handle.clone())
            .collect();
        left.iter().filter_map(|handle| sessions.by_handle.remove(handle)).collect()
    }

    fn open_session(&self, request: proto::CreateWorkerSessionRequest) -> Result<()> {
        if request.session_handle.is_empty() {
            return Err(invalid!("Session must be non-empty."));
        }
        let participant = self.participants.admit(request.master_task.clone(), self.env.now());
        let session = WorkerSession::open(&request, &self.devices, &self.peers, participant)?;
        let left = {
            let mut sessions = self.sessions.lock();
            let left = Worker::forget_former_master(&mut sessions, &request.master_task, request.master_incarnation);
            sessions.by_handle.entry(request.session_handle).or_insert_with(|| Arc::new(session));
            left
        };
        for session in left {
            session.participant.lose(self.env.now());
            self.steps.remove_session(&session.handle);
        }
        Ok(())
    }

    /// A session is closed. If others wait for what its steps do, they are told when it has not been opened again for
    /// a while.
    fn part_with(&self, participant: &Arc<Participant>) {
        let now = self.env.now();
        participant.leave(now);
        if participant.is_counted_on() {
            self.give_up_at(participant, now + REOPENED_MAX);
        }
    }

    /// Nobody needs to wait any longer then for one who is gone.
    fn give_up_at(&self, participant: &Arc<Participant>, time: Instant) {
        let (timer, participant) = (self.timer.clone(), Arc::downgrade(participant));
        self.peers.network().spawn(Box::pin(async move {
            let _ = timer.at_most(std::future::pending::<()>(), Some(time)).await;
            if let Some(participant) = participant.upgrade() {
                participant.give_up();
            }
        }));
    }

    /// Takes what has been sent in a step so far under these keys, unless it is more than this: it then goes along with
    /// what its receiver is asked, and need not be asked for.
    pub(crate) fn take_early(&self, step: i64, keys: &[RendezvousKey], bytes: usize) -> Vec<(RendezvousKey, Tensor)> {
        let taken = self.steps.find(step).map(|rendezvous| rendezvous.take_tensors(keys, bytes)).unwrap_or_default();
        taken.into_iter().map(|(place, tensor)| (keys[place as usize].clone(), tensor)).collect()
    }

    /// What a step sends, and was held, may leave for its receivers.
    pub(crate) fn let_go(&self, step: i64) -> Result<()> {
        let held = self.held.lock().remove(&step);
        held.map_or(Ok(()), |outbox| outbox.let_go())
    }

    /// Takes in what came for a step of this session.
    pub(crate) fn deliver(&self, session: &str, step: i64, parcel: Parcel) -> Result<()> {
        self.steps.deliver(step, &self.session(session)?.handle, parcel)
    }

    /// Whether a key's value is ours to send: the device must be one of ours, and not one of a former self.
    fn check_sender(&self, key: &RendezvousKey) -> Result<()> {
        let Sender { device: source, incarnation } = key.sender()?;
        let device = self.devices.iter().find(|d| d.name().kind == source.kind && d.name().index == source.index);
        let device = device.ok_or_else(|| invalid!("/device:{}:{} unknown device.", source.kind, source.index))?;
        if *incarnation != device.incarnation() {
            return Err(aborted!(
                "RecvTensor expects a different device incarnation: {} vs. {}. Your worker job (\"{}\") was probably \
                 restarted. Check your worker job for the reason why it was restarted.",
                incarnation,
                device.incarnation(),
                self.task
            ));
        }
        Ok(())
    }
}

/// An entry that both definitions have, with different addresses. A task may be known to itself by another address.
fn differing_entry(ours: &ClusterSpec, theirs: &ClusterSpec, own: &TaskName) -> Option<(TaskName, String, String)> {
    ours.tasks().find_map(|(task, address)| {
        let other = theirs.task_address(&task.job, task.index).ok()?;
        (task != *own && other != address).then(|| (task, address.to_string(), other.to_string()))
    })
}

/// A device as peers hear of it.
pub(crate) fn attributes(device: &dyn Device) -> proto::DeviceAttributes {
    proto::DeviceAttributes {
        name: device.name().to_string(),
        device_type: device.name().kind.clone(),
        memory_limit: device.memory_limit() as i64,
        locality: Some(proto::DeviceLocality::default()),
        incarnation: device.incarnation(),
        xla_global_id: -1,
        ..Default::default()
    }
}

impl WorkerInterface for Worker {
    fn get_status(&self, request: proto::GetStatusRequest) -> Call<'_, Vec<proto::DeviceAttributes>> {
        Box::pin(async move { self.check_acquaintance(&request).map(|()| self.attributes()) })
    }

    fn create_worker_session(&self, request: proto::CreateWorkerSessionRequest) -> Call<'_, ()> {
        Box::pin(async move { self.open_session(request) })
    }

    fn heard(&self, session: &str, connection: &Arc<Connection>) {
        if let Ok(session) = self.session(session) {
            session.participant.heard_over(connection);
        }
    }

    fn lose_session(&self, session: SessionHandle) -> Call<'_, ()> {
        Box::pin(async move {
            let now = self.env.now();
            let participant = &self.session(&session)?.participant;
            participant.lose(now);
            self.give_up_at(participant, now + GIVEN_UP_AFTER);
            Ok(())
        })
    }

    fn delete_worker_session(&self, session: SessionHandle) -> Call<'_, ()> {
        Box::pin(async move {
            let removed = self.sessions.lock().by_handle.remove(&session);
            self.steps.remove_session(&session);
            if let Some(removed) = removed {
                self.part_with(&removed.participant);
            }
            Ok(())
        })
    }

    fn register_graph(&self, request: RegisterGraph) -> Call<'_, GraphHandle> {
        Box::pin(async move {
            let RegisterGraph { session, graph, pushing, .. } = request;
            self.session(&session)?.register(graph, &pushing, &self.registry, &self.env)
        })
    }

    fn deregister_graph(&self, session: SessionHandle, graph: GraphHandle) -> Call<'_, ()> {
        Box::pin(async move { self.session(&session)?.deregister(&graph, self.env.now()) })
    }

    fn run_graph(&self, request: RunGraph) -> Call<'_, RunGraphReply> {
        match request.partial {
            None => Box::pin(self.execute(request)),
            Some(partial) => Box::pin(self.execute_in_part(request, partial)),
        }
    }

    fn can_bring(&self) -> bool {
        true
    }

    fn push_bytes_max(&self) -> usize {
        usize::MAX
    }

    fn push(&self, push: Push) -> Call<'_, ()> {
        Box::pin(std::future::ready(self.deliver(&push.session, push.step, push.parcel)))
    }

    fn recv_tensor(&self, step: i64, key: RendezvousKey) -> Call<'_, Delivery> {
        Box::pin(async move {
            self.check_sender(&key)?;
            self.steps.recv(step, &key).await
        })
    }

    fn recv_small(&self, step: i64, keys: Arc<[RendezvousKey]>) -> Call<'_, Found> {
        Box::pin(async move {
            let mut checked = "";
            for key in &*keys {
                // Most go the same way. What has no parts is not a key, and is told so.
                if key.route() != checked || checked.is_empty() {
                    self.check_sender(key)?;
                    checked = key.route();
                }
            }
            self.steps.recv_small(step, &keys).await
        })
    }

    fn cleanup_graph(&self, step: i64) -> Call<'_, ()> {
        let partial = self.partial_runs.lock().remove(&step);
        drop(partial); // after the lock is released: its graph ends here if it still runs
        self.held.lock().remove(&step);
        self.steps.remove(step);
        Box::pin(std::future::ready(Ok(())))
    }

    fn cleanup_all(&self, containers: Vec<String>) -> Call<'_, ()> {
        Box::pin(async move {
            let default = [String::new()];
            let containers = if containers.is_empty() { &default } else { containers.as_slice() };
            for device in &self.devices {
                containers.iter().for_each(|container| device.resources().clear(container));
            }
            Ok(())
        })
    }

    fn logging(&self, request: proto::LoggingRequest) -> Call<'_, proto::LoggingResponse> {
        Box::pin(async move { Ok(self.log.answer(&request)) })
    }
}

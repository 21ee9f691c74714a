//! The tasks of a session: what is known of their devices, and how they are met.
//!
//! A task is met when a graph first needs it; until then it is taken to have one CPU. So a session starts although a
//! task it has no use for is down, and waits for those it needs, for a limited time.

use super::Shared;
use crate::cluster::{ClusterSpec, Peers, TaskName};
use crate::interface::WorkerInterface;
use framework::{DeviceName, DeviceSpec};
use futures_util::future::try_join_all;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tensor::{Code, Error, Result, aborted, failed_precondition, internal, invalid};

/// The first pause before a task that did not answer is asked again; it doubles up to [`RETRY_MAX`].
const RETRY_MIN: Duration = Duration::from_millis(20);
/// Short, so that training goes on soon after a task is back.
const RETRY_MAX: Duration = Duration::from_millis(250);
/// How long a task may be away before that is logged, and how often then.
const LOG_EVERY: Duration = Duration::from_secs(10);

/// The tasks of a session.
pub(super) struct Members {
    /// The cluster as the session sees it.
    pub(super) peers: Arc<Peers>,
    own: Arc<dyn WorkerInterface>,
    /// Those the session may use, the master's own first.
    tasks: Vec<TaskName>,
    /// Whether the client brought the cluster: then tasks have other names than they were started with.
    is_brought: bool,
    devices: Mutex<BTreeMap<TaskName, Vec<proto::DeviceAttributes>>>,
    /// How long a task is waited for: no longer than the client says that it waits for anything.
    patience: Duration,
    /// What each task is told of the session.
    greeting: proto::CreateWorkerSessionRequest,
}

impl Members {
    /// The tasks that the session's options select.
    pub(super) fn select(shared: &Shared, handle: &str, request: &proto::CreateSessionRequest) -> Result<Members> {
        let default = proto::ConfigProto::default();
        let config = request.config.as_ref().unwrap_or(&default);
        let brought = config.cluster_def.as_ref().filter(|c| !c.job.is_empty());
        let peers = match brought {
            None => shared.peers.clone(),
            Some(cluster) => {
                let cluster = ClusterSpec::from_proto(cluster)?;
                let own = find_own(&cluster, &request.target, shared.peers.own())?;
                Arc::new(Peers::new(cluster, own, shared.peers.network().clone()))
            }
        };
        let filters = config.device_filters.iter().map(|f| f.parse()).collect::<Result<Vec<DeviceSpec>>>()?;
        let own = peers.own().clone();
        let tasks = std::iter::once(own.clone()).chain(peers.others(&filters)).collect();
        let shares_state =
            config.experimental.as_ref().is_some_and(|e| e.share_session_state_in_clusterspec_propagation);
        let greeting = proto::CreateWorkerSessionRequest {
            session_handle: handle.to_string(),
            server_def: Some(proto::ServerDef {
                cluster: brought.cloned(),
                protocol: "grpc".into(),
                ..Default::default()
            }),
            isolate_session_state: config.isolate_session_state || (brought.is_some() && !shares_state),
            master_task: own.to_string(),
            master_incarnation: shared.worker.devices()[0].incarnation() as i64,
            ..Default::default()
        };
        let worker: Arc<dyn WorkerInterface> = shared.worker.clone();
        let is_brought = brought.is_some();
        let limit = u64::try_from(config.operation_timeout_in_ms).ok().filter(|ms| *ms > 0).map(Duration::from_millis);
        let patience = limit.map_or(shared.patience, |limit| limit.min(shared.patience));
        Ok(Members { peers, own: worker, tasks, is_brought, devices: Mutex::default(), patience, greeting })
    }

    /// The worker of a task.
    pub(super) fn worker(&self, task: &TaskName) -> Result<Arc<dyn WorkerInterface>> {
        if task == self.peers.own() { Ok(self.own.clone()) } else { self.peers.worker(task) }
    }

    /// The devices there are; a task nobody has met yet is taken to have one CPU.
    pub(super) fn device_names(&self) -> Result<Vec<DeviceName>> {
        let known = self.devices.lock();
        let mut names = Vec::new();
        for task in &self.tasks {
            match known.get(task) {
                Some(devices) => {
                    for device in devices {
                        names.push(device.name.parse()?);
                    }
                }
                None => names.push(DeviceName::cpu(&task.job, task.index, 0)),
            }
        }
        Ok(names)
    }

    /// The devices of every task, met now if need be.
    pub(super) async fn all_devices(&self, shared: &Shared) -> Result<Vec<proto::DeviceAttributes>> {
        self.meet(shared, self.tasks.iter().cloned()).await?;
        Ok(self.devices.lock().values().flatten().cloned().collect())
    }

    /// The devices of the other tasks, without opening anything there.
    pub(super) async fn look_around(&self, shared: &Shared) -> Result<Vec<proto::DeviceAttributes>> {
        let calls = self.tasks.iter().skip(1).map(|task| self.wait_for_devices(shared, task));
        Ok(try_join_all(calls).await?.into_iter().flatten().collect())
    }

    /// The incarnation of a device of a task that was met.
    pub(super) fn incarnation(&self, device: &DeviceName) -> Result<u64> {
        let known = self.devices.lock();
        let name = device.to_string();
        let found = known.get(&TaskName::of(device)).and_then(|all| all.iter().find(|d| d.name == name));
        found.map(|d| d.incarnation).ok_or_else(|| internal!("{device} was placed on but never met"))
    }

    /// Those that were met.
    pub(super) fn met(&self) -> Vec<TaskName> {
        self.devices.lock().keys().cloned().collect()
    }

    /// The tasks that nobody has met yet.
    pub(super) fn unmet(&self) -> Vec<TaskName> {
        let known = self.devices.lock();
        self.tasks.iter().filter(|t| !known.contains_key(t)).cloned().collect()
    }

    /// Meets tasks: asks each for its devices, and opens the session's share there. Whether any was new.
    pub(super) async fn meet(&self, shared: &Shared, tasks: impl IntoIterator<Item = TaskName>) -> Result<bool> {
        let unmet: BTreeSet<TaskName> = self.unmet().into_iter().collect();
        let new: BTreeSet<TaskName> = tasks.into_iter().filter(|t| unmet.contains(t)).collect();
        let calls = new.iter().map(|task| async move {
            let devices = self.wait_for_devices(shared, task).await?;
            self.greet(task).await?;
            self.devices.lock().insert(task.clone(), devices);
            Ok::<(), Error>(())
        });
        try_join_all(calls).await?;
        Ok(!new.is_empty())
    }

    async fn greet(&self, task: &TaskName) -> Result<()> {
        let mut greeting = self.greeting.clone();
        if let Some(server) = &mut greeting.server_def {
            (server.job_name, server.task_index) = (task.job.clone(), task.index as i32);
        }
        self.worker(task)?.create_worker_session(greeting).await
    }

    /// Asks until the task answers, or until it has been waited for long enough.
    async fn wait_for_devices(&self, shared: &Shared, task: &TaskName) -> Result<Vec<proto::DeviceAttributes>> {
        let worker = self.worker(task)?;
        let start = shared.env.now();
        let deadline = start + self.patience;
        let (mut pause, mut tries, mut logged) = (RETRY_MIN, 0, start);
        let mut cause = "it does not answer".to_string();
        loop {
            tries += 1;
            let call = shared.timer.at_most(worker.get_status(self.acquaintance(task)), Some(deadline)).await;
            match call {
                Ok(Ok(devices)) => return self.check_names(task, devices),
                Ok(Err(e)) if e.code != Code::Unavailable => return Err(e),
                Ok(Err(e)) => cause = e.message,
                Err(_) => {} // what was heard before says more
            }
            let now = shared.env.now();
            if now + RETRY_MIN >= deadline {
                return Err(self.gave_up(task, now - start, tries, &cause));
            }
            if tries == 1 || now - logged >= LOG_EVERY {
                logged = now;
                tracing::warn!(%task, waited = ?(now - start), cause, "still waiting for a task");
            }
            // The last attempt comes just before the end.
            sleep_until(shared, (now + pause).min(deadline - RETRY_MIN)).await;
            pause = (pause * 2).min(RETRY_MAX);
        }
    }

    /// `Aborted`, not `Unavailable`: TensorFlow's clients try the latter ten times more, and have waited long enough. Its
    /// training sessions start over on either.
    fn gave_up(&self, task: &TaskName, waited: Duration, tries: u32, cause: &str) -> Error {
        let address = self.peers.cluster().task_address(&task.job, task.index).unwrap_or("no address");
        aborted!(
            "the session needs {task} at {address}, which could not be reached for {:.1} s ({tries} tries): {cause}. Is the \
             task started, and is its address right in the cluster definition of {}?",
            waited.as_secs_f64(),
            self.peers.own()
        )
    }

    fn acquaintance(&self, task: &TaskName) -> proto::GetStatusRequest {
        if self.is_brought {
            return proto::GetStatusRequest::default();
        }
        proto::GetStatusRequest { task: task.to_string(), cluster: Some(self.peers.cluster().to_proto()) }
    }

    /// A task must be who it was taken for; in a cluster that the client brought it gets the name it has there.
    fn check_names(
        &self,
        task: &TaskName,
        mut devices: Vec<proto::DeviceAttributes>,
    ) -> Result<Vec<proto::DeviceAttributes>> {
        for device in &mut devices {
            let name: DeviceName = device.name.parse()?;
            if self.is_brought {
                device.name = DeviceName { job: task.job.clone(), task: task.index, ..name }.to_string();
            } else if TaskName::of(&name) != *task {
                return Err(failed_precondition!(
                    "{task} was asked for, but {} listens at {}; check the addresses in the cluster definition",
                    TaskName::of(&name),
                    self.peers.cluster().task_address(&task.job, task.index)?
                ));
            }
        }
        Ok(devices)
    }
}

/// Which task of a cluster the client brought is the one it speaks to.
fn find_own(cluster: &ClusterSpec, target: &str, started_as: &TaskName) -> Result<TaskName> {
    let address = target.strip_prefix("grpc://").unwrap_or(target);
    let mut fitting = cluster.tasks().filter(|(_, a)| *a == address).map(|(task, _)| task);
    let own = fitting.next().ok_or_else(|| {
        invalid!("The target {target} is not an address of the cluster definition that the session brings: {cluster}")
    })?;
    if let Some(other) = fitting.next() {
        return Err(invalid!(
            "Found multiple matching tasks that correspond to to the master. Master target: '{target}'. Matching tasks: {own}, {other}"
        ));
    }
    if own == *started_as {
        return Err(invalid!(
            "The cluster definition that the session brings names the server at {address} {own}, as it was started; it must \
             have another job or index there"
        ));
    }
    Ok(own)
}

/// Ends at that time.
async fn sleep_until(shared: &Shared, time: Instant) {
    let _ = shared.timer.at_most(std::future::pending::<()>(), Some(time)).await;
}

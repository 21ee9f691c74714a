//! The master: a session's target. It keeps the sessions' graphs, plans each new run and asks workers to execute it.

mod callable;
mod client_graph;
mod clients;
mod closing;
mod members;
mod session;
mod step;

use crate::cluster::Peers;
use crate::interface::{Call, DeviceList, MasterInterface, RunStep, RunStepReply, SessionHandle, WorkerInterface};
use crate::worker::Worker;
use clients::Sessions;
use framework::interpret::Interpreter;
use framework::{Connection, DeviceSpec, Env, Registry};
use futures_util::future::join_all;
use members::Members;
use runtime::Timer;
use session::MasterSession;
use std::future::ready;
use std::sync::Arc;
use std::time::Duration;
use tensor::{Result, Tensor, aborted, invalid};

/// How long a session waits for the tasks it needs, unless it is told otherwise.
pub const DEFAULT_PATIENCE: Duration = Duration::from_secs(60);

/// One task's master.
pub struct Master {
    shared: Arc<Shared>,
    sessions: Arc<Sessions>,
}

/// What all sessions of a master use.
struct Shared {
    registry: Arc<Registry>,
    env: Arc<dyn Env>,
    /// The worker of the master's own task; feeds and fetches pass through its first device.
    worker: Arc<Worker>,
    peers: Arc<Peers>,
    /// Folds constants while planning.
    interpreter: Interpreter,
    timer: Timer,
    /// How long to wait for a task.
    patience: Duration,
}

impl Master {
    /// The master of the task that a worker belongs to.
    pub fn new(registry: Arc<Registry>, env: Arc<dyn Env>, worker: Arc<Worker>, patience: Duration) -> Master {
        let interpreter = Interpreter::new(worker.devices()[0].clone(), env.clone());
        let peers = worker.peers().clone();
        let shared = Shared { registry, env, worker, peers, interpreter, timer: Timer::default(), patience };
        Master { shared: Arc::new(shared), sessions: Sessions::new() }
    }

    /// The sessions that are open, each with the number of plans made for it.
    pub fn sessions(&self) -> Vec<(SessionHandle, u32)> {
        self.sessions.by_handle.lock().iter().map(|(handle, session)| (handle.clone(), session.num_plans())).collect()
    }

    fn session(&self, handle: &str) -> Result<Arc<MasterSession>> {
        self.sessions.by_handle.lock().get(handle).cloned().ok_or_else(|| aborted!("Session {handle} is not found."))
    }

    /// All devices of the cluster: the own ones, and the others'.
    async fn cluster_devices(&self) -> Result<DeviceList> {
        let members = Members::select(&self.shared, "", &proto::CreateSessionRequest::default())?;
        let own = self.shared.worker.get_status(proto::GetStatusRequest::default()).await?;
        let others = members.look_around(&self.shared).await?;
        Ok(DeviceList { local: own, remote: others })
    }

    /// Clears containers here, and on the tasks that the filters select.
    async fn clear_containers(&self, containers: Vec<String>, filters: Vec<DeviceSpec>) -> Result<()> {
        let calls = self.shared.peers.others(&filters).into_iter().map(|task| {
            let containers = containers.clone();
            async move { self.shared.peers.worker(&task)?.cleanup_all(containers).await }
        });
        let answers = join_all(calls).await;
        self.shared.worker.cleanup_all(containers).await?;
        answers.into_iter().collect()
    }
}

impl MasterInterface for Master {
    fn create_session(&self, request: proto::CreateSessionRequest) -> Call<'_, SessionHandle> {
        Box::pin(async move {
            let handle = format!("{:016x}", self.shared.env.random_u64());
            let client = self.sessions.new_client(self.shared.env.now());
            let session = MasterSession::open(handle.clone(), self.shared.clone(), client, request).await?;
            self.sessions.by_handle.lock().insert(handle.clone(), Arc::new(session));
            Ok(handle)
        })
    }

    fn heard(&self, session: &str, connection: &Arc<Connection>) {
        if let Ok(session) = self.session(session) {
            session.client.heard_over(connection);
        }
    }

    fn extend_session(&self, session: SessionHandle, graph: proto::GraphDef, version: i64) -> Call<'_, i64> {
        Box::pin(async move { self.session(&session)?.extend(&graph, Some(version)).await })
    }

    fn run_step(&self, request: RunStep) -> Call<'_, RunStepReply> {
        match self.session(&request.session) {
            Ok(session) => Box::pin(session.run(request)),
            Err(error) => Box::pin(ready(Err(error))),
        }
    }

    fn partial_run_setup(
        &self,
        session: SessionHandle,
        feeds: Vec<String>,
        fetches: Vec<String>,
        targets: Vec<String>,
    ) -> Call<'_, String> {
        Box::pin(async move { self.session(&session)?.set_up_partial_run(feeds, fetches, targets).await })
    }

    fn make_callable(&self, session: SessionHandle, options: proto::CallableOptions) -> Call<'_, i64> {
        Box::pin(async move { self.session(&session)?.make_callable(options).await })
    }

    fn run_callable(&self, session: SessionHandle, callable: i64, feeds: Vec<Tensor>) -> Call<'_, RunStepReply> {
        Box::pin(async move { self.session(&session)?.run_callable(callable, feeds).await })
    }

    fn release_callable(&self, session: SessionHandle, callable: i64) -> Call<'_, ()> {
        Box::pin(async move {
            self.session(&session)?.release_callable(callable);
            Ok(())
        })
    }

    fn close_session(&self, session: SessionHandle) -> Call<'_, ()> {
        Box::pin(async move {
            let closed = self.sessions.by_handle.lock().remove(&session);
            let closed = closed
                .ok_or_else(|| aborted!("Session {session} is not found. Possibly, this master has restarted."))?;
            closed.close().await;
            Ok(())
        })
    }

    fn list_devices(&self, session: SessionHandle) -> Call<'_, DeviceList> {
        Box::pin(async move {
            if session.is_empty() {
                return self.cluster_devices().await;
            }
            let found = self.sessions.by_handle.lock().get(&session).cloned();
            let found = found.ok_or_else(|| invalid!("Session {session} is not found."))?;
            Ok(DeviceList { local: found.devices().await?, remote: Vec::new() })
        })
    }

    fn reset(&self, containers: Vec<String>, device_filters: Vec<String>) -> Call<'_, ()> {
        Box::pin(async move {
            let filters = device_filters.iter().map(|f| f.parse()).collect::<Result<_>>()?;
            let sessions = std::mem::take(&mut *self.sessions.by_handle.lock());
            // Their steps end first, so that none of them misses what is cleared.
            sessions.values().for_each(|session| session.closing.close());
            let cleared = self.clear_containers(containers, filters).await;
            join_all(sessions.values().map(|session| session.close())).await;
            cleared
        })
    }
}

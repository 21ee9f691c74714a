//! The master: a session's target. It keeps the sessions' graphs, plans each new run and asks workers to execute it.

mod client_graph;
mod closing;
mod session;
mod step;

use crate::interface::{Call, MasterInterface, RunStep, RunStepReply, SessionHandle, WorkerInterface};
use framework::interpret::Interpreter;
use framework::{Device, Env, Registry};
use parking_lot::Mutex;
use plan::ClientEnd;
use session::MasterSession;
use std::collections::HashMap;
use std::sync::Arc;
use tensor::{Result, aborted, invalid};

/// One task's master.
pub struct Master {
    shared: Arc<Shared>,
    sessions: Mutex<HashMap<SessionHandle, Arc<MasterSession>>>,
}

/// What all sessions of a master use.
struct Shared {
    registry: Arc<Registry>,
    env: Arc<dyn Env>,
    device: Arc<dyn Device>,
    worker: Arc<dyn WorkerInterface>,
    /// Folds constants while planning.
    interpreter: Interpreter,
    client: ClientEnd,
}

impl Master {
    /// A master over one worker, whose device feeds and fetches pass through.
    pub fn new(
        registry: Arc<Registry>,
        env: Arc<dyn Env>,
        device: Arc<dyn Device>,
        worker: Arc<dyn WorkerInterface>,
    ) -> Master {
        let interpreter = Interpreter::new(device.clone(), env.clone());
        let client = ClientEnd { device: device.name().to_string(), incarnation: device.incarnation() };
        let shared = Shared { registry, env, device, worker, interpreter, client };
        Master { shared: Arc::new(shared), sessions: Mutex::default() }
    }

    fn session(&self, handle: &str) -> Result<Arc<MasterSession>> {
        self.sessions.lock().get(handle).cloned().ok_or_else(|| aborted!("Session {handle} is not found."))
    }
}

impl MasterInterface for Master {
    fn create_session(&self, graph: proto::GraphDef, config: proto::ConfigProto) -> Call<'_, SessionHandle> {
        Box::pin(async move {
            let handle = format!("{:016x}", self.shared.env.random_u64());
            let session = MasterSession::new(handle.clone(), self.shared.clone(), config);
            session.extend(&graph, None)?;
            self.shared.worker.create_worker_session(handle.clone()).await?;
            self.sessions.lock().insert(handle.clone(), Arc::new(session));
            Ok(handle)
        })
    }

    fn extend_session(&self, session: SessionHandle, graph: proto::GraphDef, version: i64) -> Call<'_, i64> {
        Box::pin(async move { self.session(&session)?.extend(&graph, Some(version)) })
    }

    fn run_step(&self, request: RunStep) -> Call<'_, RunStepReply> {
        Box::pin(async move { self.session(&request.session)?.run(request).await })
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

    fn close_session(&self, session: SessionHandle) -> Call<'_, ()> {
        Box::pin(async move {
            let closed = self.sessions.lock().remove(&session);
            let closed = closed
                .ok_or_else(|| aborted!("Session {session} is not found. Possibly, this master has restarted."))?;
            closed.close().await
        })
    }

    fn list_devices(&self, session: SessionHandle) -> Call<'_, Vec<proto::DeviceAttributes>> {
        Box::pin(async move {
            if !session.is_empty() && !self.sessions.lock().contains_key(&session) {
                return Err(invalid!("Session {session} is not found."));
            }
            let device = &self.shared.device;
            Ok(vec![proto::DeviceAttributes {
                name: device.name().to_string(),
                device_type: device.name().kind.clone(),
                memory_limit: device.memory_limit() as i64,
                incarnation: device.incarnation(),
                ..Default::default()
            }])
        })
    }

    fn reset(&self, containers: Vec<String>) -> Call<'_, ()> {
        Box::pin(async move {
            let sessions = std::mem::take(&mut *self.sessions.lock());
            self.shared.worker.cleanup_all(containers).await?;
            for session in sessions.into_values() {
                session.close().await?;
            }
            Ok(())
        })
    }
}

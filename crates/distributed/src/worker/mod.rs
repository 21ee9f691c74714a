//! The worker: executes its part of each step.

mod session;
mod stats;
mod step;

use crate::interface::{Call, GraphHandle, RunGraph, RunGraphReply, SessionHandle, WorkerInterface};
use framework::{Device, Env, Graph};
use parking_lot::Mutex;
use runtime::{StepTable, Timer};
use session::WorkerSession;
use std::collections::HashMap;
use std::sync::Arc;
use tensor::{Result, aborted, invalid};

/// One task's worker: sessions, their graphs, and the steps under way.
pub struct Worker {
    device: Arc<dyn Device>,
    env: Arc<dyn Env>,
    sessions: Mutex<HashMap<SessionHandle, Arc<WorkerSession>>>,
    steps: StepTable,
    timer: Timer,
    partial_runs: step::PartialRuns,
}

impl Worker {
    /// A worker on this device.
    pub fn new(device: Arc<dyn Device>, env: Arc<dyn Env>) -> Worker {
        Worker {
            device,
            env,
            sessions: Mutex::default(),
            steps: StepTable::default(),
            timer: Timer::default(),
            partial_runs: Default::default(),
        }
    }

    fn session(&self, handle: &str) -> Result<Arc<WorkerSession>> {
        self.sessions.lock().get(handle).cloned().ok_or_else(|| {
            aborted!(
                "Session handle is not found: {handle}. Possibly this worker (\"{}\") just restarted.",
                self.device.name().task_name()
            )
        })
    }
}

impl WorkerInterface for Worker {
    fn create_worker_session(&self, session: SessionHandle) -> Call<'_, ()> {
        Box::pin(async move {
            if session.is_empty() {
                return Err(invalid!("Session must be non-empty."));
            }
            self.sessions.lock().entry(session).or_default();
            Ok(())
        })
    }

    fn delete_worker_session(&self, session: SessionHandle) -> Call<'_, ()> {
        Box::pin(async move {
            let removed = self.sessions.lock().remove(&session);
            drop(removed); // after the lock is released
            Ok(())
        })
    }

    fn register_graph(&self, session: SessionHandle, graph: Graph) -> Call<'_, GraphHandle> {
        Box::pin(async move { self.session(&session)?.register(&graph, &self.device, &self.env) })
    }

    fn run_graph(&self, request: RunGraph) -> Call<'_, RunGraphReply> {
        Box::pin(self.execute(request))
    }

    fn cleanup_graph(&self, step: i64) -> Call<'_, ()> {
        let partial = self.partial_runs.lock().remove(&step);
        drop(partial); // after the lock is released: its graph ends here if it still runs
        self.steps.remove(step);
        Box::pin(std::future::ready(Ok(())))
    }

    fn cleanup_all(&self, containers: Vec<String>) -> Call<'_, ()> {
        Box::pin(async move {
            if containers.is_empty() {
                self.device.resources().clear("");
            }
            for container in &containers {
                self.device.resources().clear(container);
            }
            Ok(())
        })
    }
}

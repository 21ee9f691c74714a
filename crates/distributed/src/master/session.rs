//! One session: its graph, and the plans made from it so far.

use super::Shared;
use super::client_graph::ClientGraph;
use super::closing::Closing;
use crate::interface::{RunStep, RunStepReply, SessionHandle};
use framework::graph::import;
use parking_lot::Mutex;
use plan::{PlacedGraph, RunSignature, place};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tensor::{Result, aborted, cancelled, invalid};

pub(super) struct MasterSession {
    pub(super) handle: SessionHandle,
    pub(super) shared: Arc<Shared>,
    config: proto::ConfigProto,
    graph: Mutex<Versioned>,
    /// Plans by what they feed, fetch and target.
    plans: Mutex<HashMap<RunSignature, Arc<ClientGraph>>>,
    pub(super) partial_runs: Mutex<HashMap<String, super::step::PartialStep>>,
    pub(super) closing: Closing,
}

#[derive(Default)]
struct Versioned {
    placed: Arc<PlacedGraph>,
    version: i64,
}

impl MasterSession {
    pub(super) fn new(handle: SessionHandle, shared: Arc<Shared>, config: proto::ConfigProto) -> MasterSession {
        MasterSession {
            handle,
            shared,
            config,
            graph: Mutex::default(),
            plans: Mutex::default(),
            partial_runs: Mutex::default(),
            closing: Closing::default(),
        }
    }

    /// Adds nodes; the new version. With `expected`, only if the graph has that version. On error nothing changes.
    pub(super) fn extend(&self, message: &proto::GraphDef, expected: Option<i64>) -> Result<i64> {
        let mut current = self.graph.lock();
        if let Some(expected) = expected
            && expected != current.version
        {
            return Err(aborted!("Current version is {} but caller expected {expected}.", current.version));
        }
        let mut graph = current.placed.graph.clone();
        import::extend(&mut graph, message, &self.shared.registry)?;
        let devices = [self.shared.device.name().clone()];
        let choice = place::Choice {
            devices: &devices,
            master: &devices[0].task_name(),
            default_device: None,
            allow_soft_placement: self.config.allow_soft_placement,
        };
        current.placed = Arc::new(place(graph, &current.placed, &choice, &self.shared.registry)?);
        if expected.is_some() {
            current.version += 1;
        }
        Ok(current.version)
    }

    pub(super) async fn run(&self, request: RunStep) -> Result<RunStepReply> {
        if self.closing.is_closed() {
            return Err(cancelled!("Session has been closed."));
        }
        let deadline = self.deadline(&request.options);
        if !request.partial_run.is_empty() {
            return self.run_partially(request, deadline).await;
        }
        let names = |feeds: &[(String, tensor::Tensor)]| feeds.iter().map(|(name, _)| name.clone()).collect();
        let signature = RunSignature::new(names(&request.feeds), request.fetches.clone(), request.targets.clone())?;
        let plan = self.plan(signature).await?;
        self.run_planned(&plan, request, deadline).await
    }

    /// When a step that starts now must have ended; planning counts.
    fn deadline(&self, options: &proto::RunOptions) -> Option<Instant> {
        let timeout = u64::try_from(options.timeout_in_ms).ok().filter(|ms| *ms > 0)?;
        self.shared.env.now().checked_add(Duration::from_millis(timeout))
    }

    /// The plan for a signature, made now if this is its first run.
    pub(super) async fn plan(&self, signature: RunSignature) -> Result<Arc<ClientGraph>> {
        if let Some(plan) = self.plans.lock().get(&signature) {
            return Ok(plan.clone());
        }
        let placed = self.graph.lock().placed.clone();
        // Two runs may plan the same at once; the first to finish is kept.
        let optimize = !self.optimizer_is_off();
        let made = Arc::new(ClientGraph::make(&self.shared, &self.handle, &placed, &signature, optimize).await?);
        Ok(self.plans.lock().entry(signature).or_insert(made).clone())
    }

    /// Whether the client asked to have its graph run as it is.
    fn optimizer_is_off(&self) -> bool {
        let options = self.config.graph_options.as_ref();
        let rewrite = options.and_then(|o| o.rewrite_options.as_ref());
        rewrite.is_some_and(|r| r.disable_meta_optimizer)
    }

    /// Running steps end, and later ones are refused.
    pub(super) async fn close(&self) -> Result<()> {
        self.closing.close();
        let partial_runs = std::mem::take(&mut *self.partial_runs.lock());
        for run in partial_runs.into_values() {
            self.shared.worker.cleanup_graph(run.step).await?;
        }
        self.shared.worker.delete_worker_session(self.handle.clone()).await
    }

    pub(super) fn partial_step(&self, handle: &str) -> Result<(i64, Arc<ClientGraph>)> {
        let runs = self.partial_runs.lock();
        let run =
            runs.get(handle).ok_or_else(|| invalid!("Must run PartialRunSetup before performing partial runs"))?;
        Ok((run.step, run.plan.clone()))
    }
}

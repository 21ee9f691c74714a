//! Running one step of a plan.

use super::client_graph::ClientGraph;
use super::session::MasterSession;
use crate::interface::{Partial, RunGraph, RunStep, RunStepReply};
use framework::RendezvousKey;
use plan::RunSignature;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;
use tensor::{Result, Tensor, cancelled, invalid};

/// A step whose feeds and fetches come in several calls.
pub(super) struct PartialStep {
    pub(super) step: i64,
    pub(super) plan: Arc<ClientGraph>,
    /// Feeds and fetches that have come.
    seen: HashSet<String>,
}

/// Trace levels that note each node's times.
const NO_TRACE: i32 = 0;

impl MasterSession {
    pub(super) async fn run_planned(
        &self,
        plan: &ClientGraph,
        request: RunStep,
        deadline: Option<Instant>,
    ) -> Result<RunStepReply> {
        let step = self.new_step_id();
        let trace = request.options.trace_level != NO_TRACE;
        let (send, recv, places) = ends(plan, request.feeds, &request.fetches)?;
        let run = RunGraph {
            session: self.handle.clone(),
            graph: plan.graph.clone(),
            step,
            send,
            recv,
            trace,
            deadline,
            partial: None,
        };
        let worker = &self.shared.worker;
        let cleanup = CleanupOnDrop { session: self, step };
        let reply = self.closing.unless_closed(worker.run_graph(run)).await.unwrap_or_else(|| Err(closed()))?;
        drop(cleanup);
        let fetches = places.into_iter().map(|i| reply.recv[i].clone()).collect();
        let mut metadata = proto::RunMetadata::default();
        if trace {
            metadata.step_stats = Some(reply.step_stats);
        }
        Ok(RunStepReply { fetches, metadata })
    }

    fn new_step_id(&self) -> i64 {
        ((self.shared.env.random_u64() >> 8) as i64).max(1)
    }

    pub(super) async fn set_up_partial_run(
        &self,
        feeds: Vec<String>,
        fetches: Vec<String>,
        targets: Vec<String>,
    ) -> Result<String> {
        let plan = self.plan(RunSignature::new(feeds, fetches, targets)?).await?;
        let step = self.new_step_id();
        let handle = format!("{step:x}");
        let run = PartialStep { step, plan, seen: HashSet::new() };
        self.partial_runs.lock().insert(handle.clone(), run);
        Ok(handle)
    }

    pub(super) async fn run_partially(&self, request: RunStep, deadline: Option<Instant>) -> Result<RunStepReply> {
        let (step, plan) = self.partial_step(&request.partial_run)?;
        if !request.targets.is_empty() {
            return Err(invalid!("targets are named when a partial run is set up, not in its steps"));
        }
        let names: Vec<String> =
            request.feeds.iter().map(|(n, _)| n.clone()).chain(request.fetches.iter().cloned()).collect();
        let (send, recv, places) = ends(&plan, request.feeds, &request.fetches)?;
        let is_last = self.note_partial(&request.partial_run, names)?;
        let partial = Some(if is_last { Partial::Last } else { Partial::More });
        let run = RunGraph {
            session: self.handle.clone(),
            graph: plan.graph.clone(),
            step,
            send,
            recv,
            trace: false,
            deadline,
            partial,
        };
        let call = self.shared.worker.run_graph(run);
        let result = self.closing.unless_closed(call).await.unwrap_or_else(|| Err(closed()));
        if is_last || result.is_err() {
            self.partial_runs.lock().remove(&request.partial_run);
            self.shared.worker.cleanup_graph(step).await?;
        }
        let reply = result?;
        let fetches = places.into_iter().map(|i| reply.recv[i].clone()).collect();
        Ok(RunStepReply { fetches, metadata: Default::default() })
    }

    /// Notes what has come; whether that was the last of it.
    fn note_partial(&self, handle: &str, names: Vec<String>) -> Result<bool> {
        let mut runs = self.partial_runs.lock();
        let run = runs.get_mut(handle).ok_or_else(|| invalid!("the partial run {handle} has ended"))?;
        for name in names {
            if !run.seen.insert(name.clone()) {
                return Err(invalid!("'{name}' was already fed or fetched in this partial run"));
            }
        }
        Ok(run.seen.len() == run.plan.num_ends())
    }
}

fn closed() -> tensor::Error {
    cancelled!("Step was cancelled by an explicit call to `Session::Close()`.")
}

/// Tells the worker that a step is over, however it ended.
struct CleanupOnDrop<'a> {
    session: &'a MasterSession,
    step: i64,
}

impl Drop for CleanupOnDrop<'_> {
    fn drop(&mut self) {
        // Within a process the call is done when it returns; there is nothing to wait for.
        drop(self.session.shared.worker.cleanup_graph(self.step));
    }
}

type Ends = (Vec<(RendezvousKey, Tensor)>, Vec<RendezvousKey>, Vec<usize>);

/// What to send, what to receive, and for each fetch its place in the answer: a fetch named twice is received once.
fn ends(plan: &ClientGraph, feeds: Vec<(String, Tensor)>, fetches: &[String]) -> Result<Ends> {
    let send =
        feeds.into_iter().map(|(name, value)| Ok((plan.feed(&name, &value)?, value))).collect::<Result<Vec<_>>>()?;
    let mut recv: Vec<RendezvousKey> = Vec::with_capacity(fetches.len());
    let mut places = Vec::with_capacity(fetches.len());
    for name in fetches {
        let key = plan.fetch(name)?;
        places.push(recv.iter().position(|k| *k == key).unwrap_or_else(|| {
            recv.push(key);
            recv.len() - 1
        }));
    }
    Ok((send, recv, places))
}

//! One task's part of a step: feeds in, the graph executed, fetches out.

use super::{Worker, stats};
use crate::interface::{Partial, RunGraph, RunGraphReply};
use framework::step::Trace;
use framework::{Delivery, Rendezvous, StepContext};
use parking_lot::Mutex;
use runtime::{Elapsed, LocalRendezvous, StepFuture};
use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use tensor::{Error, Result, Tensor, cancelled, deadline_exceeded, invalid};

/// Steps whose feeds and fetches come in several calls.
pub(super) type PartialRuns = Mutex<HashMap<i64, PartialRun>>;

/// The graph runs on its own; the future tells when it ended.
pub(super) struct PartialRun {
    rendezvous: LocalRendezvous,
    running: Option<StepFuture>,
}

impl Worker {
    pub(super) async fn execute(&self, request: RunGraph) -> Result<RunGraphReply> {
        match request.partial {
            Some(partial) => {
                let (deadline, awaited) = (request.deadline, fetch_names(&request));
                let call = self.execute_partially(request, partial);
                self.timer.at_most(call, deadline).await.unwrap_or_else(|Elapsed| Err(overdue(&awaited)))
            }
            None => self.execute_whole(request).await,
        }
    }

    async fn execute_whole(&self, request: RunGraph) -> Result<RunGraphReply> {
        let executor = self.session(&request.session)?.executor(&request.graph)?;
        let rendezvous = self.steps.get(request.step);
        let guard = AbortOnDrop { rendezvous: Some(&rendezvous) };
        let trace = request.trace.then(|| Arc::new(Trace::default()));
        let context =
            Arc::new(StepContext::new(request.step, Arc::new(rendezvous.clone()), self.env.clone(), trace.clone()));
        for (key, value) in request.send {
            rendezvous.send(&key, Delivery::Tensor(value))?;
        }
        let mut running = executor.run(context);
        let result = self.timer.at_most(&mut running, request.deadline).await;
        result.unwrap_or_else(|Elapsed| Err(overdue(&running.waiting())))?;
        let mut recv = Vec::with_capacity(request.recv.len());
        for key in &request.recv {
            let found = rendezvous.try_recv(key);
            recv.push(fetched(found.unwrap_or_else(|| Err(invalid!("nothing was sent under {key}"))), key.as_str())?);
        }
        guard.disarm();
        Ok(RunGraphReply { recv, step_stats: trace.map(|t| stats::step_stats(t.take())).unwrap_or_default() })
    }

    async fn execute_partially(&self, request: RunGraph, partial: Partial) -> Result<RunGraphReply> {
        let rendezvous = self.partial_run(&request)?;
        for (key, value) in request.send {
            rendezvous.send(&key, Delivery::Tensor(value))?;
        }
        self.nudge(request.step).await;
        let result = self.collect(&rendezvous, &request.recv).await;
        let is_over = partial == Partial::Last || result.is_err();
        let running =
            if is_over { self.partial_runs.lock().remove(&request.step).and_then(|run| run.running) } else { None };
        let recv = match (result, running) {
            (Ok(recv), Some(running)) => running.await.map(|()| recv)?,
            (Ok(recv), None) => recv,
            // The step's own error tells more than the rendezvous it closed.
            (Err(e), Some(running)) if e.derived => return Err(running.await.err().unwrap_or(e)),
            (Err(e), _) => return Err(e),
        };
        Ok(RunGraphReply { recv, step_stats: Default::default() })
    }

    /// The meeting place of a partial run; the graph is started by the first call.
    fn partial_run(&self, request: &RunGraph) -> Result<LocalRendezvous> {
        let mut runs = self.partial_runs.lock();
        if let Some(run) = runs.get(&request.step) {
            return Ok(run.rendezvous.clone());
        }
        let executor = self.session(&request.session)?.executor(&request.graph)?;
        let rendezvous = self.steps.get(request.step);
        let context = Arc::new(StepContext::new(request.step, Arc::new(rendezvous.clone()), self.env.clone(), None));
        runs.insert(request.step, PartialRun { rendezvous: rendezvous.clone(), running: Some(executor.run(context)) });
        Ok(rendezvous)
    }

    /// Starts a partial run's graph if it has not started yet: a step starts when it is first polled.
    async fn nudge(&self, step: i64) {
        let taken = self.partial_runs.lock().get_mut(&step).and_then(|run| run.running.take());
        let Some(mut running) = taken else { return };
        let mut ended = false;
        std::future::poll_fn(|cx| {
            ended = Pin::new(&mut running).poll(cx).is_ready();
            if running.is_paused() { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
        if !ended && let Some(run) = self.partial_runs.lock().get_mut(&step) {
            run.running = Some(running);
        }
    }

    async fn collect(&self, rendezvous: &LocalRendezvous, keys: &[framework::RendezvousKey]) -> Result<Vec<Tensor>> {
        let mut values = Vec::with_capacity(keys.len());
        for key in keys {
            values.push(fetched(rendezvous.recv(key).await, key.as_str())?);
        }
        Ok(values)
    }
}

fn fetched(delivery: Result<Delivery>, key: &str) -> Result<Tensor> {
    match delivery? {
        Delivery::Tensor(tensor) => Ok(tensor),
        Delivery::Dead => {
            Err(invalid!("Retval[0] does not have value: '{}' was fetched, but its branch was not taken", edge(key)))
        }
    }
}

/// The output that a key names.
fn edge(key: &str) -> &str {
    key.split(';').nth(3).unwrap_or(key)
}

fn fetch_names(request: &RunGraph) -> Vec<String> {
    request.recv.iter().map(|key| edge(key.as_str()).to_string()).collect()
}

/// The step was still under way at its deadline.
fn overdue(awaited: &[String]) -> Error {
    let doing = if awaited.is_empty() { "computed".into() } else { format!("waited for {}", awaited.join(", ")) };
    deadline_exceeded!("the step took longer than its timeout_in_ms allows; it still {doing}, and was cancelled")
}

/// Wakes everyone who waits for this step when its call is given up.
struct AbortOnDrop<'a> {
    rendezvous: Option<&'a LocalRendezvous>,
}

impl AbortOnDrop<'_> {
    fn disarm(mut self) {
        self.rendezvous = None;
    }
}

impl Drop for AbortOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(rendezvous) = self.rendezvous {
            rendezvous.abort(cancelled!("the step was cancelled: its caller went away").into_derived());
        }
    }
}

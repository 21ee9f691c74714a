//! One task's part of a step: feeds in, the graph executed, fetches out.

use super::outbox::Outbox;
use super::rendezvous::WorkerRendezvous;
use super::session::{RegisteredGraph, WorkerSession};
use super::{Worker, stats};
use crate::interface::{Partial, RunGraph, RunGraphReply};
use framework::step::Trace;
use framework::{Delivery, Rendezvous, RendezvousKey, StepContext};
use parking_lot::Mutex;
use runtime::{Elapsed, LocalRendezvous, StepFuture, Watcher};
use smallvec::SmallVec;
use std::collections::HashMap;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use tensor::{Error, Result, Tensor, deadline_exceeded, invalid};

/// Steps whose feeds and fetches come in several calls.
pub(super) type PartialRuns = Mutex<HashMap<i64, PartialRun>>;

/// The graph runs on its own; the future tells when it ended.
pub(super) struct PartialRun {
    rendezvous: LocalRendezvous,
    running: Option<Running>,
}

impl Worker {
    /// A call of a partial run.
    pub(super) async fn execute_in_part(&self, request: RunGraph, partial: Partial) -> Result<RunGraphReply> {
        let (deadline, awaited) = (request.deadline, fetch_names(&request));
        let call = pin!(self.execute_partially(request, partial));
        self.timer.at_most(call, deadline).await.unwrap_or_else(|Elapsed| Err(overdue(&awaited)))
    }

    /// The whole of a step.
    pub(super) async fn execute(&self, mut request: RunGraph) -> Result<RunGraphReply> {
        let session = self.session(&request.session)?;
        let graph = session.graph(&request.graph)?;
        graph.heard_over(request.connection.as_ref());
        let rendezvous = self.steps.start(request.step, &session.handle);
        let guard = EndOnDrop { worker: Some(self), step: request.step };
        let result = self.run_to_end(&session, &graph, &rendezvous, &mut request).await;
        if let Err(e) = &result {
            rendezvous.abort(e.clone());
        }
        guard.disarm();
        result
    }

    async fn run_to_end(
        &self,
        session: &WorkerSession,
        graph: &RegisteredGraph,
        rendezvous: &LocalRendezvous,
        request: &mut RunGraph,
    ) -> Result<RunGraphReply> {
        self.running.count();
        let trace = request.trace.then(|| Arc::new(Trace::default()));
        let began = if request.trace { self.env.wall_micros() } else { 0 };
        let mut running = self.start(session, graph, rendezvous, request, trace.clone())?;
        let noted = self.noted(request.step, session, &mut running);
        let result = self.timer.at_most(pin!(noted), request.deadline).await;
        result.unwrap_or_else(|Elapsed| Err(overdue(&running.waiting())))?;
        let mut recv = Vec::with_capacity(request.recv.len());
        for key in &request.recv {
            let found = rendezvous.try_recv(key);
            recv.push(fetched(found.unwrap_or_else(|| Err(invalid!("nothing was sent under {key}"))), key.as_str())?);
        }
        let brought = match &running.outbox {
            Some(outbox) => outbox.bring(request.bring_large)?,
            None => Vec::new(),
        };
        Ok(RunGraphReply {
            recv,
            brought,
            step_stats: trace.map(|t| stats::step_stats(t.take(), &graph.parts, began)).unwrap_or_default(),
            graphs: if request.want_graphs { graph.to_proto() } else { Vec::new() },
        })
    }

    /// Runs to the end; a step that does not end at once can be asked meanwhile what it waits for.
    async fn noted(&self, step: i64, session: &WorkerSession, running: &mut Running) -> Result<()> {
        let since = self.env.now();
        let mut note = None;
        std::future::poll_fn(|cx| {
            let polled = Pin::new(&mut *running).poll(cx);
            if polled.is_pending() && note.is_none() {
                let (watchers, outbox) = (running.watchers(), running.outbox.clone());
                note = Some(self.running.note(step, &session.handle, since, watchers, outbox));
            }
            polled
        })
        .await
    }

    /// All executors of a graph, on one step's meeting place, with what came along with the request.
    fn start(
        &self,
        session: &WorkerSession,
        graph: &RegisteredGraph,
        local: &LocalRendezvous,
        request: &mut RunGraph,
        trace: Option<Arc<Trace>>,
    ) -> Result<Running> {
        let step = request.step;
        let mailbox = match &graph.routes {
            Some(routes) => Some(self.steps.open_mailbox(step, &routes.places)?),
            None => None,
        };
        for (key, value) in std::mem::take(&mut request.send) {
            let value = Delivery::Tensor(value);
            let fed = match &mailbox {
                Some(mailbox) => mailbox.put(&key, value),
                None => Some(value),
            };
            fed.map_or(Ok(()), |fed| local.send(&key, fed))?;
        }
        let outbox = graph.routes.as_ref().filter(|routes| !routes.destinations.is_empty()).map(|routes| {
            let (whose, brought_to) = ((session.handle.clone(), step), request.bring_to.as_ref());
            let (routes, peers) = (routes.clone(), session.peers.clone());
            Arc::new(Outbox::new(routes, local.clone(), peers, whose, brought_to, request.is_held))
        });
        if let Some(outbox) = outbox.as_ref().filter(|_| request.is_held) {
            self.held.lock().insert(step, outbox.clone());
        }
        let rendezvous = WorkerRendezvous {
            local: local.clone(),
            step,
            peers: session.peers.clone(),
            env: self.env.clone(),
            log: self.log.clone(),
            mailbox,
            outbox: outbox.clone(),
        };
        let mut context = StepContext::new(step, Arc::new(rendezvous), self.env.clone(), trace);
        context.participant = Some(graph.participant.clone());
        let context = Arc::new(context);
        let parts = graph.executors.iter().map(|e| Some(e.run(context.clone()))).collect();
        Ok(Running { parts, outbox })
    }

    async fn execute_partially(&self, mut request: RunGraph, partial: Partial) -> Result<RunGraphReply> {
        let rendezvous = self.partial_run(&mut request)?;
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
        Ok(RunGraphReply { recv, ..RunGraphReply::default() })
    }

    /// The meeting place of a partial run; the graph is started by the first call.
    fn partial_run(&self, request: &mut RunGraph) -> Result<LocalRendezvous> {
        let mut runs = self.partial_runs.lock();
        if let Some(run) = runs.get(&request.step) {
            return Ok(run.rendezvous.clone());
        }
        let session = self.session(&request.session)?;
        let graph = session.graph(&request.graph)?;
        graph.heard_over(request.connection.as_ref());
        let rendezvous = self.steps.start(request.step, &session.handle);
        let running = self.start(&session, &graph, &rendezvous, request, None)?;
        runs.insert(request.step, PartialRun { rendezvous: rendezvous.clone(), running: Some(running) });
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

    async fn collect(&self, rendezvous: &LocalRendezvous, keys: &[RendezvousKey]) -> Result<Vec<Tensor>> {
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

/// The executors of one graph in one step: done when all are and what they sent has arrived, failed when one is.
struct Running {
    parts: SmallVec<[Option<StepFuture>; 1]>,
    outbox: Option<Arc<Outbox>>,
}

impl Running {
    /// Whether some part can only go on when it is polled again.
    fn is_paused(&self) -> bool {
        self.parts.iter().flatten().any(StepFuture::is_paused)
    }

    /// Tell later what this waits for.
    fn watchers(&self) -> Vec<Watcher> {
        self.parts.iter().flatten().filter_map(StepFuture::watcher).collect()
    }

    /// The nodes that wait for something at this moment.
    fn waiting(&self) -> Vec<String> {
        let sent = self.outbox.iter().flat_map(|outbox| outbox.waiting());
        self.parts.iter().flatten().flat_map(StepFuture::waiting).chain(sent).collect()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(outbox) = &self.outbox {
            outbox.cancel();
        }
    }
}

impl Future for Running {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let mut all_done = true;
        for part in &mut self.parts {
            let Some(running) = part else { continue };
            match Pin::new(running).poll(cx) {
                Poll::Ready(Ok(())) => *part = None,
                Poll::Ready(Err(e)) => return Poll::Ready(Err(e)),
                Poll::Pending => all_done = false,
            }
        }
        let arrived = match &self.outbox {
            Some(outbox) => {
                // Where one device is done and another is not, what the one sent may be what the other waits for.
                if all_done {
                    outbox.flush_at_end()
                } else {
                    outbox.flush()
                }
                outbox.poll_arrived(cx)?
            }
            None => Poll::Ready(()),
        };
        if all_done { arrived.map(Ok) } else { Poll::Pending }
    }
}

/// Ends a step whose caller went away: whoever waits for its values is told, and what it left is dropped.
struct EndOnDrop<'a> {
    worker: Option<&'a Worker>,
    step: i64,
}

impl EndOnDrop<'_> {
    fn disarm(mut self) {
        self.worker = None;
    }
}

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(worker) = self.worker {
            worker.steps.remove(self.step);
        }
    }
}

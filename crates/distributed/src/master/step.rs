//! Running one step of a plan.

use super::client_graph::{ClientGraph, CutStep, from_task};
use super::session::MasterSession;
use crate::interface::{Partial, RunGraph, RunGraphReply, RunStep, RunStepReply};
use futures_util::stream::{FuturesUnordered, StreamExt};
use plan::RunSignature;
use runtime::Elapsed;
use runtime::brief;
use std::collections::HashSet;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};
use tensor::{Error, Result, Tensor, cancelled, deadline_exceeded, invalid};

/// A step whose feeds and fetches come in several calls.
pub(super) struct PartialStep {
    pub(super) step: i64,
    pub(super) plan: Arc<ClientGraph>,
    /// Feeds and fetches that have come.
    seen: HashSet<String>,
}

/// Trace levels that note each node's times.
const NO_TRACE: i32 = 0;
/// How long the cause of an error is waited for when only its consequence is known.
const CAUSE_MAX: Duration = Duration::from_secs(1);
/// How much longer than a task the master waits: the task can tell which node it waited for.
const GRACE: Duration = Duration::from_millis(200);

impl MasterSession {
    /// Runs a step of a plan; takes the feeds out of the request.
    pub(super) async fn run_planned(&self, plan: &ClientGraph, request: &mut RunStep) -> Result<RunStepReply> {
        let deadline = self.deadline(&request.options);
        let step = self.new_step_id();
        let mut cut = plan.cut(&self.handle, step, std::mem::take(&mut request.feeds), &request.fetches)?;
        let trace = request.options.trace_level != NO_TRACE;
        for run in &mut cut.runs {
            (run.trace, run.deadline) = (trace, deadline);
            run.want_graphs = request.options.output_partition_graphs;
        }
        plan.take_shortcuts(&self.members, &mut cut.runs);
        let cleanup = CleanupOnDrop { session: self, plan, step };
        let replies = self.run_parts(plan, &mut cut, deadline).await?;
        drop(cleanup);
        let mut reply = RunStepReply::default();
        let mut received = Vec::with_capacity(replies.len());
        for part in replies {
            received.push(part.recv);
            reply.metadata.partition_graphs.extend(part.graphs);
            if trace {
                reply.metadata.step_stats.get_or_insert_default().dev_stats.extend(part.step_stats.dev_stats);
            }
        }
        reply.fetches = cut.gather(&received)?;
        Ok(reply)
    }

    /// Runs all parts at once, unless the session is closed or the time is over; the answers in order of the parts.
    async fn run_parts(
        &self,
        plan: &ClientGraph,
        cut: &mut CutStep,
        deadline: Option<Instant>,
    ) -> Result<Vec<RunGraphReply>> {
        let runs = std::mem::take(&mut cut.runs);
        let tasks =
            || plan.parts.iter().filter(|p| !p.is_own).map(|p| p.task.to_string()).collect::<Vec<_>>().join(", ");
        let run = pin!(self.run_all(plan, runs));
        let call = self.closing.unless_closed(run);
        match plan.parts.as_slice() {
            [part] if part.is_own => self.or_closed(call.await),
            _ => {
                let deadline = deadline.and_then(|d| d.checked_add(GRACE));
                let ended = self.shared.timer.at_most(call, deadline).await;
                let ended = ended.map(|reply| self.or_closed(reply));
                ended.unwrap_or_else(|Elapsed| {
                    Err(deadline_exceeded!(
                        "the step took longer than its timeout_in_ms allows, and was cancelled; it also ran on {}",
                        tasks()
                    ))
                })
            }
        }
    }

    /// A step that ended because its session was closed, or failed when it was, says just that.
    fn or_closed<T>(&self, ended: Option<Result<T>>) -> Result<T> {
        match ended {
            Some(Ok(reply)) => Ok(reply),
            Some(Err(e)) if !self.closing.is_closed() => Err(e),
            _ => Err(closed()),
        }
    }

    async fn run_all(&self, plan: &ClientGraph, mut runs: Vec<RunGraph>) -> Result<Vec<RunGraphReply>> {
        if let ([part], [_]) = (plan.parts.as_slice(), runs.as_slice()) {
            let reply = part.worker.run_graph(runs.remove(0)).await;
            return Ok(vec![reply.map_err(|e| from_task(&part.task, &self.members, e))?]);
        }
        let call = |(i, run): (usize, RunGraph)| async move {
            let part = &plan.parts[i];
            let reply = part.worker.run_graph(run).await;
            (i, reply.map_err(|e| from_task(&part.task, &self.members, e)))
        };
        let mut calls = FuturesUnordered::new();
        let mut held = runs.iter().find(|run| run.is_held).map(|run| run.step);
        let step = runs.first().map_or(0, |run| run.step);
        let (own, mut others): (Vec<_>, Vec<_>) =
            runs.into_iter().enumerate().partition(|(i, _)| plan.parts[*i].is_own);
        calls.extend(own.into_iter().map(call));
        // The own part goes as far as it can at once: what it sends by then goes along with what the others are asked.
        let mut ended = poll_fn(|cx| match brief::briefly(|| calls.poll_next_unpin(cx)).value {
            Poll::Ready(ended) => Poll::Ready(ended),
            Poll::Pending => Poll::Ready(None),
        })
        .await;
        for (i, run) in &mut others {
            let part = &plan.parts[*i];
            let (takes, bytes_max) = (&part.shortcuts.takes, part.worker.early_bytes_max());
            // Who takes nothing early takes no tensor without elements either.
            if !takes.is_empty() && run.partial.is_none() && bytes_max > 0 {
                run.send.extend(self.shared.worker.take_early(run.step, takes, bytes_max));
            }
        }
        calls.extend(others.into_iter().map(call));
        let mut replies: Vec<Option<RunGraphReply>> = plan.parts.iter().map(|_| None).collect();
        loop {
            if ended.is_none() {
                ended = poll_fn(|cx| {
                    let polled = calls.poll_next_unpin(cx);
                    // The others have been asked by now: what did not go along follows.
                    held.take().map_or(Ok(()), |step| self.shared.worker.let_go(step))?;
                    polled.map(Ok::<_, Error>)
                })
                .await?;
            }
            let Some((i, reply)) = ended.take() else { break };
            match reply {
                Ok(mut reply) => {
                    if let Some(parcel) = plan.parts[i].brought(std::mem::take(&mut reply.brought)) {
                        self.shared.worker.deliver(&self.handle, step, parcel)?;
                    }
                    replies[i] = Some(reply);
                }
                Err(e) => return Err(Box::pin(self.root_cause(e, calls)).await),
            }
        }
        Ok(replies.into_iter().flatten().collect())
    }

    /// The error that others follow from. The parts still under way end when their calls are dropped.
    async fn root_cause<C>(&self, first: Error, mut calls: FuturesUnordered<C>) -> Error
    where
        C: Future<Output = (usize, Result<RunGraphReply>)>,
    {
        if !first.derived {
            return first;
        }
        let search = async {
            while let Some((_, reply)) = calls.next().await {
                if let Err(e) = reply
                    && !e.derived
                {
                    return Some(e);
                }
            }
            None
        };
        let deadline = self.shared.env.now() + CAUSE_MAX;
        self.shared.timer.at_most(pin!(search), Some(deadline)).await.ok().flatten().unwrap_or(first)
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

    pub(super) async fn run_partially(&self, request: RunStep) -> Result<RunStepReply> {
        let (step, plan) = self.partial_step(&request.partial_run)?;
        if !request.targets.is_empty() {
            return Err(invalid!("targets are named when a partial run is set up, not in its steps"));
        }
        let is_last = self.note_partial(&request)?;
        let handle = request.partial_run.clone();
        let result = self.run_part(&plan, step, request, is_last).await;
        if is_last || result.is_err() {
            self.partial_runs.lock().remove(&handle);
            plan.clean_up(&self.members, step);
        }
        result
    }

    async fn run_part(&self, plan: &ClientGraph, step: i64, request: RunStep, is_last: bool) -> Result<RunStepReply> {
        let deadline = self.deadline(&request.options);
        let mut cut = plan.cut(&self.handle, step, request.feeds, &request.fetches)?;
        for run in &mut cut.runs {
            run.partial = Some(if is_last { Partial::Last } else { Partial::More });
            run.deadline = deadline;
        }
        let replies = self.run_parts(plan, &mut cut, deadline).await?;
        let received: Vec<Vec<Tensor>> = replies.into_iter().map(|reply| reply.recv).collect();
        Ok(RunStepReply { fetches: cut.gather(&received)?, metadata: Default::default() })
    }

    /// Notes what has come, unless some of it was not announced or has come before; whether that was the last of it.
    fn note_partial(&self, request: &RunStep) -> Result<bool> {
        let mut runs = self.partial_runs.lock();
        let run = runs.get_mut(&request.partial_run);
        let run = run.ok_or_else(|| invalid!("the partial run {} has ended", request.partial_run))?;
        let feeds = request.feeds.iter().map(|(name, _)| name);
        for name in feeds.clone() {
            run.check(name, run.plan.has_feed(name), "feed", "fed")?;
        }
        for name in &request.fetches {
            run.check(name, run.plan.has_fetch(name), "fetch", "fetched")?;
        }
        run.seen.extend(feeds.chain(&request.fetches).cloned());
        Ok(run.seen.len() == run.plan.num_ends())
    }
}

impl PartialStep {
    fn check(&self, name: &str, is_announced: bool, what: &str, done: &str) -> Result<()> {
        if !is_announced {
            return Err(invalid!("The {what} {name} was not specified in partial_run_setup."));
        }
        if self.seen.contains(name) {
            return Err(invalid!("The {what} {name} has already been {done}."));
        }
        Ok(())
    }
}

fn closed() -> tensor::Error {
    cancelled!("Step was cancelled by an explicit call to `Session::Close()`.")
}

/// Tells the tasks that a step is over, however it ended.
struct CleanupOnDrop<'a> {
    session: &'a MasterSession,
    plan: &'a ClientGraph,
    step: i64,
}

impl Drop for CleanupOnDrop<'_> {
    fn drop(&mut self) {
        self.plan.clean_up(&self.session.members, self.step);
    }
}

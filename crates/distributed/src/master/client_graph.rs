//! The plan of one signature: pruned, optimised, cut into one part for each task, and registered there.

use super::members::Members;
use super::session::MasterSession;
use crate::cluster::TaskName;
use crate::interface::{GraphHandle, Parcel, RegisterGraph, RunGraph, WorkerInterface};
use crate::routes;
use framework::{Arrived, Device, DeviceName, FastMap, RendezvousKey};
use futures_util::future::try_join_all;
use plan::partition::{Part, partition};
use plan::prune::Feed;
use plan::{ClientEnd, PlacedGraph, RunSignature, optimize, prune};
use std::sync::Arc;
use std::task::{Context, Waker};
use tensor::{Error, Result, Tensor, internal, invalid, not_found};

/// Made once for a signature, read by every step of it.
pub(super) struct ClientGraph {
    /// One for each task; the master's own is last, so that the others are under way while it runs.
    pub(super) parts: Vec<PlannedPart>,
    feeds: FastMap<String, (End, Feed)>,
    fetches: FastMap<String, End>,
}

/// What one task does.
pub(super) struct PlannedPart {
    pub(super) task: TaskName,
    pub(super) is_own: bool,
    pub(super) worker: Arc<dyn WorkerInterface>,
    graph: GraphHandle,
    pub(super) shortcuts: Shortcuts,
}

/// What takes no message of its own between a part and the master's own.
#[derive(Default)]
pub(super) struct Shortcuts {
    /// The list of what the part sends to the master's own, which its answer may bring.
    brings: Option<u64>,
    /// What the master's own sends to it, if that is little.
    pub(super) takes: Arc<[RendezvousKey]>,
}

/// More values than this do not go along with a call: their keys would take longer than they save.
const TAKES_MAX: usize = 16;

/// Where a fed value goes in, or a fetched one comes out.
struct End {
    part: usize,
    key: RendezvousKey,
}

/// One step, cut up: what each part is asked, and where each fetch is found in the answers.
pub(super) struct CutStep {
    pub(super) runs: Vec<RunGraph>,
    places: Vec<(usize, usize)>,
}

impl ClientGraph {
    pub(super) async fn make(
        session: &MasterSession,
        placed: &PlacedGraph,
        signature: &RunSignature,
    ) -> Result<ClientGraph> {
        let (shared, members) = (&session.shared, &session.members);
        let client = client_end(session)?;
        let pruned = prune(placed, signature, &client, &shared.registry)?;
        let graph = match session.optimizer_is_off() {
            true => pruned.graph,
            false => optimize(pruned.graph, &signature.targets, &shared.interpreter, &shared.registry)?,
        };
        let group = |device: &DeviceName| TaskName::of(device).to_string();
        let incarnation = |device: &DeviceName| members.incarnation(device);
        let cut = partition(&graph, &shared.registry, &group, &incarnation, &mut session.edge_names.lock())?;
        let own = members.peers.own().to_string();
        let (mine, others): (Vec<_>, Vec<_>) = cut.into_iter().partition(|part| part.name == own);
        let mut shortcuts = match mine.first() {
            Some(mine) => shortcuts(&others, mine, members.peers.own())?,
            None => Vec::new(),
        };
        shortcuts.resize_with(others.len() + mine.len(), Shortcuts::default);
        let mut tasks = Vec::with_capacity(shortcuts.len());
        for part in others.iter().chain(&mine) {
            let task: TaskName = part.name.parse()?;
            tasks.push((members.worker(&task)?, task));
        }
        let pushing: &Vec<TaskName> =
            &tasks.iter().filter(|(worker, _)| worker.can_bring()).map(|(_, task)| task.clone()).collect();
        let parts = others.into_iter().chain(mine).zip(shortcuts).zip(tasks);
        let calls = parts.map(|((part, shortcuts), (worker, task))| async move {
            let (pushing, shortcuts) =
                if pushing.contains(&task) { (pushing.clone(), shortcuts) } else { Default::default() };
            let (handle, config) = (session.handle.clone(), session.config().clone());
            let request = RegisterGraph { session: handle, graph: part.graph, config, pushing };
            let graph = worker.register_graph(request).await.map_err(|e| from_task(&task, members, e))?;
            Ok::<_, Error>(PlannedPart { is_own: task == *members.peers.own(), task, worker, graph, shortcuts })
        });
        let parts = try_join_all(calls).await?;
        let end = |name: &str| {
            let task: TaskName = TaskName::of(&client.device.parse()?);
            let part = parts.iter().position(|p| p.task == task);
            let part = part.ok_or_else(|| internal!("'{name}' is fed or fetched at {task}, which has no part"))?;
            Ok::<_, Error>(End { part, key: client.key(name) })
        };
        let feeds = pruned.feeds.into_iter().map(|f| Ok((f.name.clone(), (end(&f.name)?, f))));
        let feeds = feeds.collect::<Result<_>>()?;
        let fetches = signature.fetches.iter().map(|name| Ok((name.clone(), end(name)?)));
        let fetches = fetches.collect::<Result<_>>()?;
        Ok(ClientGraph { parts, feeds, fetches })
    }

    /// Has parts bring what they send to the master's own, where they can, and the own one hold what it sends until it
    /// is known what goes along with the calls of the others.
    pub(super) fn take_shortcuts(&self, members: &Members, runs: &mut [RunGraph]) {
        for (part, run) in self.parts.iter().zip(runs) {
            run.is_held = part.is_own && self.parts.len() > 1;
            run.bring_to = part.shortcuts.brings.map(|_| members.peers.own().clone());
        }
    }

    /// What each part is asked in one step: a fetch named twice is received once.
    pub(super) fn cut(
        &self,
        session: &str,
        step: i64,
        feeds: Vec<(String, Tensor)>,
        fetches: &[String],
    ) -> Result<CutStep> {
        let run = |part: &PlannedPart| RunGraph {
            session: session.to_string(),
            graph: part.graph.clone(),
            step,
            ..RunGraph::default()
        };
        let mut runs: Vec<RunGraph> = self.parts.iter().map(run).collect();
        for (name, value) in feeds {
            let end = self.feed(&name, &value)?;
            runs[end.part].send.push((end.key.clone(), value));
        }
        let mut places = Vec::with_capacity(fetches.len());
        for name in fetches {
            let end = self.fetches.get(name).ok_or_else(|| not_found!("FetchOutputs node {name}: not found"))?;
            let recv = &mut runs[end.part].recv;
            let place = recv.iter().position(|key| *key == end.key).unwrap_or_else(|| {
                recv.push(end.key.clone());
                recv.len() - 1
            });
            places.push((end.part, place));
        }
        Ok(CutStep { runs, places })
    }

    /// Where a fed value goes, after checking that it fits.
    fn feed(&self, name: &str, value: &Tensor) -> Result<&End> {
        let (end, feed) =
            self.feeds.get(name).ok_or_else(|| not_found!("FeedInputs: unable to find feed output {name}"))?;
        if value.dtype() != feed.dtype {
            return Err(invalid!("'{name}' was fed a tensor of {}, it takes {}", value.dtype(), feed.dtype));
        }
        if !feed.shape.accepts(value.shape()) {
            return Err(invalid!(
                "Cannot feed value of shape {} for Tensor '{name}', which has shape {}",
                value.shape(),
                feed.shape
            ));
        }
        Ok(end)
    }

    /// Whether the plan takes a feed of this name.
    pub(super) fn has_feed(&self, name: &str) -> bool {
        self.feeds.contains_key(name)
    }

    /// Whether the plan gives a fetch of this name.
    pub(super) fn has_fetch(&self, name: &str) -> bool {
        self.fetches.contains_key(name)
    }

    /// How many feeds and fetches there are in all.
    pub(super) fn num_ends(&self) -> usize {
        self.feeds.len() + self.fetches.len()
    }

    /// Tells every task that a step is over. Nobody waits for that.
    pub(super) fn clean_up(&self, members: &Members, step: i64) {
        for part in &self.parts {
            if part.is_own {
                // Done when it returns: there is nothing to wait for.
                drop(part.worker.cleanup_graph(step));
                continue;
            }
            let (worker, task) = (part.worker.clone(), part.task.clone());
            let mut telling = Box::pin(async move {
                if let Err(e) = worker.cleanup_graph(step).await {
                    tracing::debug!(%task, step, "cleaning up: {e}");
                }
            });
            // It is done at once if the task is about to be told of other steps.
            if telling.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
                members.peers.network().spawn(telling);
            }
        }
    }
}

impl CutStep {
    /// The fetched values, in the order they were asked for.
    pub(super) fn gather(&self, received: &[Vec<Tensor>]) -> Result<Vec<Tensor>> {
        let value = |&(part, place): &(usize, usize)| received.get(part)?.get(place).cloned();
        let values = self.places.iter().map(value).collect::<Option<Vec<_>>>();
        values.ok_or_else(|| internal!("a task answered with fewer values than it was asked for"))
    }
}

impl PlannedPart {
    /// What this part has brought, as if it had sent it.
    pub(super) fn brought(&self, values: Vec<(u32, Arrived)>) -> Option<Parcel> {
        let list = self.shortcuts.brings?;
        (!values.is_empty()).then_some(Parcel { list, values })
    }
}

/// What takes no message of its own between each of the others and the master's own.
fn shortcuts(others: &[Part], mine: &Part, own: &TaskName) -> Result<Vec<Shortcuts>> {
    let sent = routes::sends(&mine.graph);
    let shortcuts = |part: &Part| {
        let takes = sent.get(&part.name.parse()?).map(|list| list.keys.clone()).filter(|keys| keys.len() <= TAKES_MAX);
        let brings = routes::sends(&part.graph).get(own).map(|list| list.name);
        Ok(Shortcuts { brings, takes: takes.unwrap_or_default() })
    };
    others.iter().map(shortcuts).collect()
}

/// The device that feeds and fetches pass through: the first of the master's task, as the session calls it.
fn client_end(session: &MasterSession) -> Result<ClientEnd> {
    let device: &Arc<dyn Device> = &session.shared.worker.devices()[0];
    let own = session.members.peers.own();
    let name = DeviceName { job: own.job.clone(), task: own.index, ..device.name().clone() };
    Ok(ClientEnd { device: name.to_string(), incarnation: device.incarnation() })
}

/// A failure of another task says which one it was.
pub(super) fn from_task(task: &TaskName, members: &Members, e: Error) -> Error {
    if task == members.peers.own() {
        return e;
    }
    Error { message: format!("From {task}:\n{}", e.message), ..e }
}

//! One session: its graph, and the plans made from it so far.

use super::Shared;
use super::callable::Callables;
use super::client_graph::ClientGraph;
use super::closing::Closing;
use super::members::Members;
use crate::cluster::TaskName;
use crate::interface::{RunStep, RunStepReply, SessionHandle};
use crate::nearest::nearest;
use framework::graph::import;
use framework::{DeviceName, DeviceSpec, FastMap, Graph, Participant};
use futures_util::future::join_all;
use parking_lot::Mutex;
use plan::partition::EdgeNames;
use plan::place::Choice;
use plan::{PlacedGraph, RunSignature, inline_functions, place};
use runtime::brief;
use std::collections::{BTreeSet, HashMap};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tensor::{Error, Result, aborted, cancelled, invalid};

/// How long closing waits for the tasks to drop the session's share.
const CLOSING_MAX: Duration = Duration::from_secs(10);

pub(super) struct MasterSession {
    pub(super) handle: SessionHandle,
    pub(super) shared: Arc<Shared>,
    pub(super) members: Arc<Members>,
    /// Who opened it.
    pub(super) client: Arc<Participant>,
    /// Whether the tasks were told that the client is gone.
    is_told_lost: AtomicBool,
    config: proto::ConfigProto,
    graph: Mutex<Versioned>,
    /// Plans by what they feed, fetch and target.
    plans: Mutex<FastMap<RunSignature, Arc<ClientGraph>>>,
    pub(super) edge_names: Mutex<EdgeNames>,
    pub(super) callables: Callables,
    pub(super) partial_runs: Mutex<HashMap<String, super::step::PartialStep>>,
    pub(super) closing: Closing,
}

#[derive(Default)]
struct Versioned {
    placed: Arc<PlacedGraph>,
    version: i64,
}

impl MasterSession {
    /// A session on a graph; the tasks that the graph needs have been met.
    pub(super) async fn open(
        handle: SessionHandle,
        shared: Arc<Shared>,
        client: Arc<Participant>,
        mut request: proto::CreateSessionRequest,
    ) -> Result<MasterSession> {
        let members = Members::select(&shared, &handle, &request)?;
        let config = request.config.take().unwrap_or_default();
        if config.use_per_session_threads || !config.session_inter_op_thread_pool.is_empty() {
            return Err(invalid!("Distributed session does not support session thread pool options."));
        }
        let session = MasterSession {
            handle,
            shared,
            members: Arc::new(members),
            client,
            is_told_lost: AtomicBool::new(false),
            config,
            graph: Mutex::default(),
            plans: Mutex::default(),
            edge_names: Mutex::default(),
            callables: Callables::default(),
            partial_runs: Mutex::default(),
            closing: Closing::default(),
        };
        let own = session.members.peers.own().clone();
        let opened = async {
            session.members.meet(&session.shared, [own]).await?;
            session.extend(&request.graph_def.unwrap_or_default(), None).await
        };
        match opened.await {
            Ok(_) => Ok(session),
            Err(e) => {
                session.close().await;
                Err(e)
            }
        }
    }

    /// Adds nodes; the new version. With `expected`, only if the graph has that version. On error nothing changes.
    pub(super) async fn extend(&self, message: &proto::GraphDef, expected: Option<i64>) -> Result<i64> {
        let (before, version) = {
            let current = self.graph.lock();
            (current.placed.clone(), current.version)
        };
        check_version(version, expected.unwrap_or(version))?;
        let mut graph = before.graph.clone();
        import::extend(&mut graph, message, &self.shared.registry)?;
        let graph = inline_functions(graph, &self.shared.registry)?;
        let placed = self.place(graph, &before).await?;
        if self.config.log_device_placement {
            placed.log().lines().for_each(|line| tracing::info!("{line}"));
        }
        let mut current = self.graph.lock();
        check_version(current.version, version)?; // another extension may have been faster
        current.placed = Arc::new(placed);
        if expected.is_some() {
            current.version += 1;
        }
        Ok(current.version)
    }

    /// Gives each node a device, and meets the tasks that this needs. What a task turns out to have may change where
    /// nodes go, so it is repeated until nothing new is learnt.
    pub(super) async fn place(&self, graph: Graph, before: &PlacedGraph) -> Result<PlacedGraph> {
        let master = self.members.peers.own().to_string();
        loop {
            let devices = self.members.device_names()?;
            let choice = Choice {
                devices: &devices,
                master: &master,
                default_device: None,
                allow_soft_placement: self.config.allow_soft_placement,
            };
            let placed = place(graph.clone(), before, &choice, &self.shared.registry);
            let needed: Vec<TaskName> = match &placed {
                Ok(placed) => placed.graph.nodes().map(|(id, _)| TaskName::of(placed.device(id))).collect(),
                // A task that nobody has asked yet may have the device that is missing.
                Err(_) => self.members.unmet(),
            };
            if !self.members.meet(&self.shared, needed).await? {
                return placed.map_err(|e| with_the_job_meant(e, &graph, &devices));
            }
        }
    }

    #[expect(clippy::manual_async_fn, reason = "that would hold the request twice: as it was given, and to be changed")]
    pub(super) fn run(self: Arc<Self>, mut request: RunStep) -> impl Future<Output = Result<RunStepReply>> {
        async move {
            if self.closing.is_closed() {
                return Err(cancelled!("Session has been closed."));
            }
            if !request.partial_run.is_empty() {
                return Box::pin(self.run_partially(request)).await;
            }
            let feeds = request.feeds.iter().map(|(name, _)| name.clone()).collect();
            let signature = RunSignature::new(feeds, request.fetches.clone(), request.targets.clone())?;
            let plan = self.plan(signature).await?;
            self.run_planned(&plan, &mut request).await
        }
    }

    /// When a step that starts now must have ended.
    pub(super) fn deadline(&self, options: &proto::RunOptions) -> Option<Instant> {
        let timeout = u64::try_from(options.timeout_in_ms).ok().filter(|ms| *ms > 0)?;
        self.shared.env.now().checked_add(Duration::from_millis(timeout))
    }

    /// The plan for a signature, made now if this is its first run.
    pub(super) async fn plan(&self, signature: RunSignature) -> Result<Arc<ClientGraph>> {
        if let Some(plan) = self.plans.lock().get(&signature) {
            return Ok(plan.clone());
        }
        brief::enough_time().await;
        let placed = self.graph.lock().placed.clone();
        // Two runs may plan the same at once; the first to finish is kept.
        let made = Arc::new(Box::pin(ClientGraph::make(self, &placed, &signature)).await?);
        Ok(self.plans.lock().entry(signature).or_insert(made).clone())
    }

    /// How many plans have been made.
    pub(super) fn num_plans(&self) -> u32 {
        self.plans.lock().len() as u32
    }

    /// Whether the client asked to have its graph run as it is.
    pub(super) fn optimizer_is_off(&self) -> bool {
        let options = self.config.graph_options.as_ref();
        let rewrite = options.and_then(|o| o.rewrite_options.as_ref());
        rewrite.is_some_and(|r| r.disable_meta_optimizer)
    }

    /// The session's options, as its tasks hear them.
    pub(super) fn config(&self) -> &proto::ConfigProto {
        &self.config
    }

    /// All devices the session may use.
    pub(super) async fn devices(&self) -> Result<Vec<proto::DeviceAttributes>> {
        self.members.all_devices(&self.shared).await
    }

    /// Whether the client has gone since this was last asked.
    pub(super) fn lost_its_client(&self) -> bool {
        let is_lost = self.client.presence().is_lost();
        !self.is_told_lost.swap(is_lost, Ordering::AcqRel) && is_lost
    }

    /// Tells the tasks that the client is gone: what others wait for, it may never give. Its next run, should there be
    /// one, tells them that it is back. Returns at once.
    pub(super) fn tell_of_loss(&self) {
        let (handle, members) = (self.handle.clone(), self.members.clone());
        self.shared.peers.network().spawn(Box::pin(async move {
            join_all(members.met().into_iter().map(|task| {
                let (handle, members) = (handle.clone(), &members);
                async move {
                    let told = members.worker(&task)?.lose_session(handle).await;
                    told.inspect_err(|e| tracing::warn!(%task, "telling that a client is gone: {e}"))
                }
            }))
            .await;
        }));
    }

    /// Running steps end, later ones are refused, and the tasks drop their share. One that does not answer has nothing
    /// to drop, or will notice by itself.
    pub(super) async fn close(&self) {
        self.closing.close();
        let partial_runs = std::mem::take(&mut *self.partial_runs.lock());
        for run in partial_runs.into_values() {
            run.plan.clean_up(&self.members, run.step);
        }
        let calls = self.members.met().into_iter().map(|task| async move {
            let worker = self.members.worker(&task)?;
            let call = worker.delete_worker_session(self.handle.clone()).await;
            call.inspect_err(|e| tracing::warn!(%task, "closing a session: {e}"))
        });
        let deadline = self.shared.env.now() + CLOSING_MAX;
        let _ = self.shared.timer.at_most(pin!(join_all(calls)), Some(deadline)).await;
    }

    pub(super) fn partial_step(&self, handle: &str) -> Result<(i64, Arc<ClientGraph>)> {
        let runs = self.partial_runs.lock();
        let run =
            runs.get(handle).ok_or_else(|| invalid!("Must run PartialRunSetup before performing partial runs"))?;
        Ok((run.step, run.plan.clone()))
    }
}

fn check_version(have: i64, expected: i64) -> Result<()> {
    if have == expected {
        return Ok(());
    }
    Err(aborted!("Current version is {have} but caller expected {expected}."))
}

/// The error of a graph that cannot be placed, with the job that was probably meant.
fn with_the_job_meant(e: Error, graph: &Graph, devices: &[DeviceName]) -> Error {
    let jobs: BTreeSet<&str> = devices.iter().map(|device| device.job.as_str()).collect();
    let wished = graph.nodes().filter_map(|(_, node)| node.device.parse::<DeviceSpec>().ok()?.job);
    let mut mistyped = wished.filter(|job| !jobs.contains(job.as_str()));
    match mistyped.find_map(|job| nearest(&job, jobs.iter().copied()).map(|near| (job.clone(), near))) {
        Some((job, near)) => e.context(format!("there is no job '{job}'; did you mean '{near}'?")),
        None => e,
    }
}

//! Clusters of several tasks in this process, joined without sockets; tasks can be slow, fail, and restart.

use crate::support::{graph, registry, wait};
use distributed::interface::{Call, GraphHandle, Push, RegisterGraph, RunGraph, RunGraphReply, SessionHandle};
use distributed::local::cpu_devices;
use distributed::{ClusterSpec, Master, MasterInterface, Network, Peers, RunStep, TaskName, Worker, WorkerInterface};
use framework::graph::export;
use framework::{BoxFuture, Delivery, RendezvousKey, SystemEnv};
use linalg::parallel::Pool;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Waker;
use std::time::Duration;
use tensor::{Result, Tensor, unavailable};

/// Several tasks.
pub struct Cluster {
    pub spec: ClusterSpec,
    network: Wires,
    tasks: Mutex<HashMap<TaskName, Task>>,
    patience: Duration,
}

#[derive(Clone)]
pub struct Task {
    pub master: Arc<Master>,
    pub worker: Arc<Worker>,
}

/// Joins tasks by address. A task that is not there refuses.
#[derive(Clone, Default)]
struct Wires {
    state: Arc<WiresState>,
}

#[derive(Default)]
struct WiresState {
    workers: Mutex<HashMap<String, Arc<Worker>>>,
    /// Whoever has a call under way, to be told when a task goes away.
    callers: Mutex<Vec<Waker>>,
    /// Nonzero: calls are held back, by how much is decided by numbers drawn from this seed.
    seed: AtomicU64,
    /// How many values were asked for.
    asked: AtomicU64,
    /// How many values were sent unasked.
    pushed: AtomicU64,
    /// Whether what is sent unasked gets stuck on its way.
    is_stuck: AtomicBool,
    /// Whether all know no more than TensorFlow's tasks do.
    is_plain: AtomicBool,
}

impl Wires {
    /// For how many turns a call is held back.
    fn draw(&self) -> u64 {
        let seed = self.state.seed.load(Ordering::Relaxed);
        if seed == 0 {
            return 0;
        }
        let next = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        self.state.seed.store(next | 1, Ordering::Relaxed);
        (next >> 33) % 50
    }

    fn is_there(&self, address: &str, worker: &Arc<Worker>) -> bool {
        self.state.workers.lock().get(address).is_some_and(|w| Arc::ptr_eq(w, worker))
    }

    fn set(&self, address: &str, worker: Option<Arc<Worker>>) {
        match worker {
            Some(worker) => self.state.workers.lock().insert(address.to_string(), worker),
            None => self.state.workers.lock().remove(address),
        };
        std::mem::take(&mut *self.state.callers.lock()).into_iter().for_each(Waker::wake);
    }
}

impl Cluster {
    /// All tasks of `ps|a:1,worker|b:1;c:1`, started.
    pub fn start(spec: &str) -> Cluster {
        let cluster = Cluster::start_without(spec, &[]);
        assert_eq!(cluster.tasks.lock().len(), cluster.spec.tasks().count());
        cluster
    }

    /// The tasks but for some that are down.
    pub fn start_without(spec: &str, down: &[&str]) -> Cluster {
        let spec: ClusterSpec = spec.parse().unwrap();
        let patience = Duration::from_secs(if down.is_empty() { 20 } else { 1 });
        let cluster = Cluster { spec: spec.clone(), network: Wires::default(), tasks: Mutex::default(), patience };
        let down: Vec<TaskName> = down.iter().map(|d| d.parse().unwrap()).collect();
        for (task, _) in spec.tasks().filter(|(t, _)| !down.contains(t)) {
            cluster.start_task(&task.to_string(), &spec);
        }
        cluster
    }

    /// Starts a task, or starts it anew: it remembers nothing.
    pub fn start_task(&self, task: &str, spec: &ClusterSpec) -> Task {
        let task: TaskName = task.parse().unwrap();
        let env = Arc::new(SystemEnv::default());
        let peers = Arc::new(Peers::new(spec.clone(), task.clone(), Arc::new(self.network.clone())));
        let devices = cpu_devices(&task, 2, &Pool::new(2), &*env);
        let worker = Arc::new(Worker::new(devices, registry(), env.clone(), peers));
        let master = Arc::new(Master::new(registry(), env, worker.clone(), self.patience));
        let address = self.spec.task_address(&task.job, task.index).unwrap().to_string();
        self.network.set(&address, Some(worker.clone()));
        let started = Task { master, worker };
        self.tasks.lock().insert(task, started.clone());
        started
    }

    /// A task is gone: whoever calls it is refused.
    pub fn stop_task(&self, task: &str) {
        let task: TaskName = task.parse().unwrap();
        let address = self.spec.task_address(&task.job, task.index).unwrap();
        self.network.set(address, None);
    }

    /// From now on tasks take each other for TensorFlow's.
    pub fn know_little(&self) {
        self.network.state.is_plain.store(true, Ordering::Relaxed);
    }

    /// From now on nothing arrives that is sent unasked.
    pub fn lose_what_is_sent(&self) {
        self.network.state.is_stuck.store(true, Ordering::Relaxed);
    }

    /// From now on calls between tasks take their time.
    pub fn disturb(&self, seed: u64) {
        self.network.state.seed.store(seed, Ordering::Relaxed);
    }

    /// How many values tasks have asked each other for.
    pub fn num_asked(&self) -> u64 {
        self.network.state.asked.load(Ordering::Relaxed)
    }

    /// How many values tasks have sent each other unasked.
    pub fn num_pushed(&self) -> u64 {
        self.network.state.pushed.load(Ordering::Relaxed)
    }

    pub fn task(&self, task: &str) -> Task {
        self.tasks.lock()[&task.parse::<TaskName>().unwrap()].clone()
    }

    /// A session on a task's master.
    pub fn session(&self, task: &str, notation: &str) -> Session {
        self.session_with(task, notation, proto::ConfigProto::default()).unwrap()
    }

    pub fn session_with(&self, task: &str, notation: &str, config: proto::ConfigProto) -> Result<Session> {
        self.session_on(task, graph(notation), config)
    }

    pub fn session_on(&self, task: &str, graph: proto::GraphDef, config: proto::ConfigProto) -> Result<Session> {
        let master = self.task(task).master;
        let request = proto::CreateSessionRequest {
            graph_def: Some(graph),
            config: Some(config),
            target: format!("grpc://{}", self.address(task)),
        };
        let handle = wait(master.create_session(request))?;
        Ok(Session { master, handle })
    }

    fn address(&self, task: &str) -> String {
        let task: TaskName = task.parse().unwrap();
        self.spec.task_address(&task.job, task.index).unwrap().to_string()
    }
}

pub struct Session {
    pub master: Arc<Master>,
    pub handle: String,
}

impl Session {
    pub fn request(&self, feeds: &[(&str, Tensor)], fetches: &[&str], targets: &[&str]) -> RunStep {
        RunStep {
            session: self.handle.clone(),
            feeds: feeds.iter().map(|(name, value)| (name.to_string(), value.clone())).collect(),
            fetches: fetches.iter().map(|f| f.to_string()).collect(),
            targets: targets.iter().map(|t| t.to_string()).collect(),
            ..RunStep::default()
        }
    }

    pub fn run(&self, feeds: &[(&str, Tensor)], fetches: &[&str], targets: &[&str]) -> Result<Vec<Tensor>> {
        Ok(wait(self.master.run_step(self.request(feeds, fetches, targets)))?.fetches)
    }

    #[track_caller]
    pub fn value(&self, fetch: &str) -> Tensor {
        self.run(&[], &[fetch], &[]).unwrap().remove(0)
    }
}

impl Network for Wires {
    fn worker(&self, task: &TaskName, address: &str) -> Result<Arc<dyn WorkerInterface>> {
        Ok(Arc::new(Wire { wires: self.clone(), task: task.clone(), address: address.to_string() }))
    }

    fn spawn(&self, work: BoxFuture<()>) {
        std::thread::spawn(move || runtime::block_on(work, None));
    }
}

/// The way to one task: who is there is decided when a call is made.
struct Wire {
    wires: Wires,
    task: TaskName,
    address: String,
}

impl Wire {
    /// Calls the worker at the other end; a disturbed wire lets others go first now and then.
    fn call<'a, T: Send + 'a>(
        &'a self,
        ask: impl for<'w> FnOnce(&'w Worker) -> Call<'w, T> + Send + 'a,
    ) -> Call<'a, T> {
        Box::pin(async move {
            let refused = || unavailable!("{} at {}: connection refused", self.task, self.address);
            for _ in 0..self.wires.draw() {
                yield_now().await;
            }
            let worker = self.wires.state.workers.lock().get(&self.address).cloned().ok_or_else(refused)?;
            let mut call = ask(&worker);
            // A task that goes away takes its calls along.
            std::future::poll_fn(|cx| {
                if !self.wires.is_there(&self.address, &worker) {
                    return std::task::Poll::Ready(Err(unavailable!(
                        "{} at {}: socket closed",
                        self.task,
                        self.address
                    )));
                }
                self.wires.state.callers.lock().push(cx.waker().clone());
                call.as_mut().poll(cx)
            })
            .await
        })
    }
}

async fn yield_now() {
    let mut is_first = true;
    std::future::poll_fn(|cx| {
        if !std::mem::replace(&mut is_first, false) {
            return std::task::Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        std::task::Poll::Pending
    })
    .await
}

impl WorkerInterface for Wire {
    fn get_status(&self, request: proto::GetStatusRequest) -> Call<'_, Vec<proto::DeviceAttributes>> {
        self.call(|w| w.get_status(request))
    }
    fn create_worker_session(&self, request: proto::CreateWorkerSessionRequest) -> Call<'_, ()> {
        self.call(|w| w.create_worker_session(request))
    }
    fn delete_worker_session(&self, session: SessionHandle) -> Call<'_, ()> {
        self.call(|w| w.delete_worker_session(session))
    }
    fn register_graph(&self, request: RegisterGraph) -> Call<'_, GraphHandle> {
        // As over a network: the graph travels as a message.
        self.call(|w| {
            Box::pin(async move {
                let graph = w.import(&export::export(&request.graph))?;
                w.register_graph(RegisterGraph { graph, ..request }).await
            })
        })
    }
    fn deregister_graph(&self, session: SessionHandle, graph: GraphHandle) -> Call<'_, ()> {
        self.call(|w| w.deregister_graph(session, graph))
    }
    fn run_graph(&self, request: RunGraph) -> Call<'_, RunGraphReply> {
        self.call(|w| w.run_graph(request))
    }
    fn can_bring(&self) -> bool {
        !self.wires.state.is_plain.load(Ordering::Relaxed)
    }
    fn early_bytes_max(&self) -> usize {
        if self.can_bring() { 64 << 10 } else { 0 }
    }
    fn push_bytes_max(&self) -> usize {
        64 << 10
    }
    fn push(&self, push: Push) -> Call<'_, ()> {
        self.wires.state.pushed.fetch_add(push.parcel.values.len() as u64, Ordering::Relaxed);
        match self.wires.state.is_stuck.load(Ordering::Relaxed) {
            true => Box::pin(std::future::pending()),
            false => self.call(|w| w.push(push)),
        }
    }
    fn recv_tensor(&self, step: i64, key: RendezvousKey) -> Call<'_, Delivery> {
        self.wires.state.asked.fetch_add(1, Ordering::Relaxed);
        self.call(move |w| w.recv_tensor(step, key))
    }
    fn cleanup_graph(&self, step: i64) -> Call<'_, ()> {
        self.call(move |w| w.cleanup_graph(step))
    }
    fn cleanup_all(&self, containers: Vec<String>) -> Call<'_, ()> {
        self.call(|w| w.cleanup_all(containers))
    }
    fn logging(&self, request: proto::LoggingRequest) -> Call<'_, proto::LoggingResponse> {
        self.call(|w| w.logging(request))
    }
}

//! `Server`: one task of a cluster.

use distributed::local::cpu_devices;
use distributed::master::DEFAULT_PATIENCE;
use distributed::{ClusterSpec, LocalCluster, Master, MasterInterface, Peers, TaskName, Worker};
use framework::{Env, LostWorker, SystemEnv};
use futures_util::future::join_all;
use linalg::parallel::Pool;
use parking_lot::{Condvar, Mutex};
use proto::ferroflow::{DeviceStatus, SessionStatus, StatusResponse, StepStatus, Wait};
use rpc::{GrpcNetwork, Listener, MasterService, RemoteTask, TaskService, TaskStatus, TensorService, WorkerService};
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tensor::{Error, Result, invalid};

/// How long it may take to tell a parameter server that a task's work is done.
const FAREWELL: Duration = Duration::from_secs(2);

/// How long calls under way may take to end when a server stops.
const DRAIN: Duration = Duration::from_secs(10);

/// One task: a master that sessions are opened on, and a worker that executes graphs. Both answer on one address, to our
/// own sessions and tasks and to TensorFlow's.
///
/// ```
/// use ferroflow::prelude::*;
///
/// let server = Server::create_local()?;
/// let g = Graph::new();
/// let hello = g.constant("Hello, distributed world!");
/// let session = Session::connect(server.target(), &g)?;
/// assert_eq!(session.run(&hello)?.to_string(), "Hello, distributed world!");
/// # Ok::<(), ferroflow::Error>(())
/// ```
///
/// A server that is dropped stops at once and frees its port; [`stop`](Server::stop) lets calls under way end.
pub struct Server {
    task: Arc<Task>,
    target: String,
}

/// How a server is started: made by [`Server::builder`].
pub struct ServerBuilder {
    cluster: ClusterSpec,
    task: TaskName,
    bind: Option<String>,
    devices: u32,
    threads: Option<usize>,
    patience: Duration,
    lost_worker: LostWorker,
}

/// What a running server consists of.
struct Task {
    name: TaskName,
    address: String,
    cluster: ClusterSpec,
    master: Arc<Master>,
    worker: Arc<Worker>,
    started_micros: u64,
    rpc: Mutex<Option<rpc::Server>>,
    stopping: Stopping,
    /// Tasks that have said they are done.
    done: Mutex<BTreeSet<TaskName>>,
}

/// Whether a server was asked to stop.
#[derive(Default)]
struct Stopping {
    asked: Mutex<Option<Duration>>,
    changed: Condvar,
}

/// This process's own servers, by target: a session on one of them needs no network.
static SERVERS: Mutex<Option<HashMap<String, Weak<Task>>>> = Mutex::new(None);

impl Server {
    /// A cluster of one task in this process, on a free port that only this machine reaches.
    pub fn create_local() -> Result<Server> {
        Server::start(&ClusterSpec::new().job("local", ["127.0.0.1:0"]), "local", 0)
    }

    /// All tasks of a cluster in this process, on free ports that only this machine reaches: jobs with their numbers of
    /// tasks, as in `[("ps", 1), ("worker", 2)]`; the servers in that order.
    pub fn create_cluster<'a>(jobs: impl IntoIterator<Item = (&'a str, usize)>) -> Result<Vec<Server>> {
        let mut listeners = Vec::new();
        let mut cluster = ClusterSpec::new();
        for (job, count) in jobs {
            let bound = (0..count).map(|_| Listener::bind("127.0.0.1:0")).collect::<Result<Vec<_>>>()?;
            cluster = cluster.job(job, bound.iter().map(|listener| listener.address().to_string()));
            listeners.extend(bound.into_iter().enumerate().map(|(index, listener)| (job, index as u32, listener)));
        }
        cluster.check()?;
        let start = |(job, index, listener): (&str, u32, Listener)| {
            let own = listener.address().to_string();
            Server::builder(&cluster, job, index).start_on(listener, own)
        };
        listeners.into_iter().map(start).collect()
    }

    /// A task of a cluster, listening on the address of its entry; port 0 takes any that is free.
    pub fn start(cluster: &ClusterSpec, job: &str, index: u32) -> Result<Server> {
        Server::builder(cluster, job, index).start()
    }

    /// A task of a cluster, to be told more before it starts.
    pub fn builder(cluster: &ClusterSpec, job: &str, index: u32) -> ServerBuilder {
        ServerBuilder {
            cluster: cluster.clone(),
            task: TaskName::new(job, index),
            bind: None,
            devices: 1,
            threads: None,
            patience: DEFAULT_PATIENCE,
            lost_worker: LostWorker::default(),
        }
    }

    /// What sessions are opened on, such as `grpc://worker0.example.com:2222`.
    pub fn target(&self) -> &str {
        &self.target
    }

    /// The task this is, such as `/job:worker/replica:0/task:0`.
    pub fn task_name(&self) -> String {
        self.task.name.to_string()
    }

    /// The cluster as this task knows it, its own port filled in.
    pub fn cluster(&self) -> &ClusterSpec {
        &self.task.cluster
    }

    /// Waits until the server is told to stop, by `ferroflow stop` or a signal to end the process (SIGTERM, SIGINT), or
    /// until every worker has said that it is [`done`](Server::done); calls under way have ended then, and the port is
    /// free.
    pub fn join(self) -> Result<()> {
        let task = self.task.clone();
        rpc::runtime::on_signal(move || task.stopping.ask(DRAIN))?;
        let drain = self.task.stopping.wait();
        self.shut_down(drain);
        Ok(())
    }

    /// This task's work is done: tells the parameter servers, which end when the last worker has said so, and stops.
    /// One that cannot be told is none that waits.
    pub fn done(self) {
        let name = self.task_name();
        let servers = self.task.cluster.as_dict().get("ps").into_iter().flat_map(|tasks| tasks.values());
        let remote: Vec<RemoteTask> = servers.map(|address| RemoteTask::new(address, FAREWELL)).collect();
        let told = join_all(remote.iter().map(|server| server.sign_off(&name)));
        for failed in runtime::block_on(told, None).into_iter().flatten().filter_map(Result::err) {
            tracing::debug!("{name} is done, but a parameter server was not told: {failed}");
        }
        self.shut_down(DRAIN);
    }

    /// Stops: refuses new calls, lets those under way end within a limit, frees the port.
    pub fn stop(self) {
        self.shut_down(DRAIN);
    }

    fn shut_down(&self, drain: Duration) {
        forget(&self.target);
        let server = self.task.rpc.lock().take();
        if let Some(server) = server {
            let _ = runtime::block_on(server.stop(drain), None);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        forget(&self.target);
        drop(self.task.rpc.lock().take());
    }
}

impl ServerBuilder {
    /// Listens here rather than on the address of the task's entry: `0.0.0.0:2222` is every interface.
    pub fn bind(mut self, address: impl Into<String>) -> ServerBuilder {
        self.bind = Some(address.into());
        self
    }

    /// How many CPU devices the task has; they share its threads.
    pub fn device_count(mut self, cpus: u32) -> ServerBuilder {
        self.devices = cpus;
        self
    }

    /// How many threads compute; as many as there are cores unless told.
    pub fn threads(mut self, threads: usize) -> ServerBuilder {
        self.threads = Some(threads);
        self
    }

    /// How long a session waits for a task it needs, a minute unless told.
    pub fn patience(mut self, patience: Duration) -> ServerBuilder {
        self.patience = patience;
        self
    }

    /// What to do when a worker of synchronous training is lost, unless the graph says: go on without it unless told.
    pub fn lost_worker(mut self, policy: LostWorker) -> ServerBuilder {
        self.lost_worker = policy;
        self
    }

    /// Starts the server.
    pub fn start(self) -> Result<Server> {
        self.cluster.check()?;
        let own = self.cluster.task_address(&self.task.job, self.task.index)?.to_string();
        let listener = Listener::bind(self.bind.as_deref().unwrap_or(&own)).map_err(|e| self.explain(&own, e))?;
        self.start_on(listener, own)
    }

    fn start_on(self, listener: Listener, own: String) -> Result<Server> {
        let (host, port) = own.rsplit_once(':').ok_or_else(|| invalid!("'{own}' has no port"))?;
        let port = if port == "0" { listener.address().port().to_string() } else { port.to_string() };
        let address = format!("{host}:{port}");
        let cluster = self.cluster.with_address(&self.task, &address)?;

        let env: Arc<dyn Env> = Arc::new(SystemEnv::default());
        let threads = self.threads.unwrap_or_else(default_threads);
        let peers = Arc::new(Peers::new(cluster.clone(), self.task.clone(), Arc::new(GrpcNetwork::new())));
        let devices = cpu_devices(&self.task, self.devices, &Pool::new(threads), &*env);
        let worker = Arc::new(Worker::with_policy(devices, crate::registry(), env.clone(), peers, self.lost_worker));
        let master = Arc::new(Master::new(crate::registry(), env.clone(), worker.clone(), self.patience));
        let task = Arc::new(Task {
            name: self.task,
            address: address.clone(),
            cluster,
            master: master.clone(),
            worker: worker.clone(),
            started_micros: env.wall_micros(),
            rpc: Mutex::new(None),
            stopping: Stopping::default(),
            done: Mutex::default(),
        });
        let status = Arc::new(Status(Arc::downgrade(&task)));
        let server = listener.serve(vec![
            Arc::new(MasterService::new(master)),
            Arc::new(WorkerService::new(worker.clone())),
            Arc::new(TensorService::new(worker)),
            Arc::new(TaskService::new(status)),
        ])?;
        *task.rpc.lock() = Some(server);
        let target = format!("grpc://{address}");
        SERVERS.lock().get_or_insert_default().insert(target.clone(), Arc::downgrade(&task));
        Ok(Server { task, target })
    }

    /// The error of an address that cannot be listened on, with what to do about it.
    fn explain(&self, own: &str, e: Error) -> Error {
        if self.bind.is_some() {
            return e;
        }
        let hint = "a server listens on the address of its own entry in the cluster definition; --bind, or \
                    ServerBuilder::bind, names another one of this machine";
        Error { message: format!("{} cannot start at {own}: {}; {hint}", self.task, e.message), ..e }
    }
}

impl Stopping {
    fn ask(&self, drain: Duration) {
        *self.asked.lock() = Some(drain);
        self.changed.notify_all();
    }

    fn wait(&self) -> Duration {
        let mut asked = self.asked.lock();
        loop {
            if let Some(drain) = *asked {
                return drain;
            }
            self.changed.wait(&mut asked);
        }
    }
}

/// What a task tells of itself, as long as it lives.
struct Status(Weak<Task>);

impl TaskStatus for Status {
    fn status(&self) -> StatusResponse {
        self.0.upgrade().map(|task| task.status()).unwrap_or_default()
    }

    fn stop(&self, drain: Option<Duration>) {
        if let Some(task) = self.0.upgrade() {
            task.stopping.ask(drain.unwrap_or(DRAIN));
        }
    }

    fn signed_off(&self, task: &str) -> Result<()> {
        self.0.upgrade().map_or(Ok(()), |own| own.signed_off(task.parse()?))
    }
}

impl Task {
    /// Another task's work is done; when it was the last worker, so is ours.
    fn signed_off(&self, task: TaskName) -> Result<()> {
        self.cluster.task_address(&task.job, task.index)?;
        let mut done = self.done.lock();
        done.insert(task);
        let is_worker = |job: &str| matches!(job, "worker" | "chief" | "master");
        let is_last =
            self.cluster.tasks().filter(|(task, _)| is_worker(&task.job)).all(|(task, _)| done.contains(&task));
        if is_last && !is_worker(&self.name.job) {
            self.stopping.ask(DRAIN);
        }
        Ok(())
    }

    fn status(&self) -> StatusResponse {
        let worker = self.worker.status();
        let micros = |time: Duration| time.as_micros() as i64;
        let steps = worker.steps.into_iter().map(|step| StepStatus {
            step_id: step.step,
            session: step.session,
            age_micros: micros(step.age),
            wait: step
                .waits
                .into_iter()
                .map(|w| Wait { node: w.node, what: w.what, age_micros: micros(w.age) })
                .collect(),
        });
        let opened = self.master.sessions().into_iter();
        let shares = worker.sessions.into_iter();
        let session = |is_master| move |(handle, graphs)| SessionStatus { handle, is_master, graphs, age_micros: 0 };
        let devices = self.worker.devices().iter();
        StatusResponse {
            task: self.name.to_string(),
            address: self.address.clone(),
            cluster: self.cluster.to_string(),
            start_micros: self.started_micros as i64,
            pid: std::process::id(),
            resident_bytes: resident_bytes(),
            version: env!("CARGO_PKG_VERSION").into(),
            device: devices
                .map(|d| DeviceStatus { name: d.name().to_string(), incarnation: d.incarnation() })
                .collect(),
            session: opened.map(session(true)).chain(shares.map(session(false))).collect(),
            step: steps.collect(),
            steps_run: worker.steps_run,
        }
    }
}

/// The memory this process holds, where the system tells.
fn resident_bytes() -> u64 {
    const PAGE: u64 = 4096;
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * PAGE
}

fn default_threads() -> usize {
    std::thread::available_parallelism().map_or(1, |n| n.get())
}

/// A task of its own, with as many threads as the machine has cores.
pub(crate) fn new_cluster() -> LocalCluster {
    LocalCluster::new("localhost", default_threads(), crate::registry(), Arc::new(SystemEnv::default()))
}

fn forget(target: &str) {
    if let Some(servers) = &mut *SERVERS.lock() {
        servers.remove(target);
    }
}

/// The master of this process that a target names, if there is one.
pub(crate) fn find(target: &str) -> Option<Arc<dyn MasterInterface>> {
    let task = SERVERS.lock().as_ref().and_then(|servers| servers.get(target)?.upgrade())?;
    Some(task.master.clone())
}

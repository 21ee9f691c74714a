//! A master and a worker that do what the names in a request tell them, and a server for both.

use distributed::TaskName;
use distributed::interface::{
    Call, DeviceList, Found, GraphHandle, MasterInterface, Push, RegisterGraph, RunGraph, RunGraphReply, RunStep,
    RunStepReply, SessionHandle, WorkerInterface,
};
use framework::{Arrived, Delivery, Graph, RendezvousKey};
use rpc::{
    Channel, Listener, MasterService, RemoteMaster, RemoteOptions, RemoteWorker, Server, TensorService, WorkerService,
};
use runtime::StepTable;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tensor::{Code, Error, Result, Tensor, invalid};
use tokio::sync::watch;

/// What tests wait at most for anything.
pub const PATIENCE: Duration = Duration::from_secs(60);

#[track_caller]
pub fn wait<T>(future: impl Future<Output = T>) -> T {
    runtime::block_on(future, Some(Instant::now() + PATIENCE)).expect("in time")
}

/// Looks again and again, with a deadline.
#[track_caller]
pub fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::yield_now();
    }
}

/// Calls under way, and how many calls there have been.
#[derive(Default)]
pub struct Counts {
    pub under_way: AtomicUsize,
    pub begun: AtomicUsize,
}

impl Counts {
    fn enter(self: &Arc<Counts>) -> Inside {
        self.begun.fetch_add(1, Ordering::SeqCst);
        self.under_way.fetch_add(1, Ordering::SeqCst);
        Inside(self.clone())
    }

    pub fn begun(&self) -> usize {
        self.begun.load(Ordering::SeqCst)
    }

    pub fn under_way(&self) -> usize {
        self.under_way.load(Ordering::SeqCst)
    }
}

struct Inside(Arc<Counts>);

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Does as it is told: `wait` in a name waits for ever, `gate` until the gate is open, `panic` panics, `fail` fails.
#[derive(Default)]
pub struct Fake {
    pub counts: Arc<Counts>,
    pub gate: watch::Sender<bool>,
    /// Values for those who ask for several at once.
    pub steps: StepTable,
    /// The steps it was told to forget.
    pub forgotten: Mutex<Vec<i64>>,
    /// What it was sent unasked.
    pub pushed: Mutex<Vec<Push>>,
}

impl Fake {
    async fn obey(&self, name: &str) -> Result<()> {
        let _inside = self.counts.enter();
        match name {
            "wait" => std::future::pending().await,
            "gate" => self.gate.subscribe().wait_for(|open| *open).await.map(drop).map_err(|_| invalid!("no gate")),
            "panic" => panic!("as told"),
            "fail" => Err(Error::new(Code::DataLoss, format!("100% lost: ü\n{}", "x".repeat(5000)))),
            "derived" => Err(tensor::cancelled!("follows").into_derived()),
            _ => Ok(()),
        }
    }
}

impl MasterInterface for Fake {
    fn create_session(&self, request: proto::CreateSessionRequest) -> Call<'_, SessionHandle> {
        Box::pin(async move {
            self.obey(&request.target).await?;
            Ok(format!("session of {} nodes", request.graph_def.unwrap_or_default().node.len()))
        })
    }

    fn extend_session(&self, _: SessionHandle, graph: proto::GraphDef, version: i64) -> Call<'_, i64> {
        Box::pin(async move { Ok(version + graph.node.len() as i64) })
    }

    /// Fetches are the feeds of that name.
    fn run_step(&self, request: RunStep) -> Call<'_, RunStepReply> {
        Box::pin(async move {
            for target in &request.targets {
                self.obey(target).await?;
            }
            let find = |name: &String| {
                let found = request.feeds.iter().find(|(feed, _)| feed == name);
                found.map(|(_, tensor)| tensor.clone()).ok_or_else(|| invalid!("{name} is not fed"))
            };
            let fetches = request.fetches.iter().map(find).collect::<Result<_>>()?;
            Ok(RunStepReply { fetches, metadata: Default::default() })
        })
    }

    fn partial_run_setup(
        &self,
        _: SessionHandle,
        feeds: Vec<String>,
        fetches: Vec<String>,
        targets: Vec<String>,
    ) -> Call<'_, String> {
        Box::pin(async move { Ok(format!("{feeds:?} {fetches:?} {targets:?}")) })
    }

    fn make_callable(&self, _: SessionHandle, options: proto::CallableOptions) -> Call<'_, i64> {
        Box::pin(async move { Ok(options.fetch.len() as i64) })
    }

    fn run_callable(&self, _: SessionHandle, _: i64, feeds: Vec<Tensor>) -> Call<'_, RunStepReply> {
        Box::pin(async move { Ok(RunStepReply { fetches: feeds, metadata: Default::default() }) })
    }

    fn release_callable(&self, _: SessionHandle, callable: i64) -> Call<'_, ()> {
        Box::pin(async move { if callable == 7 { Ok(()) } else { Err(invalid!("it is {callable}")) } })
    }

    fn close_session(&self, session: SessionHandle) -> Call<'_, ()> {
        Box::pin(async move { self.obey(&session).await })
    }

    fn list_devices(&self, session: SessionHandle) -> Call<'_, DeviceList> {
        let device = |name: &str| proto::DeviceAttributes { name: name.into(), ..Default::default() };
        let list = DeviceList { local: vec![device(&session)], remote: vec![device("far")] };
        Box::pin(std::future::ready(Ok(list)))
    }

    fn reset(&self, containers: Vec<String>, device_filters: Vec<String>) -> Call<'_, ()> {
        Box::pin(async move { if containers == device_filters { Ok(()) } else { Err(invalid!("they differ")) } })
    }
}

impl WorkerInterface for Fake {
    fn get_status(&self, request: proto::GetStatusRequest) -> Call<'_, Vec<proto::DeviceAttributes>> {
        let _ = request;
        let device = proto::DeviceAttributes { name: "cpu".into(), incarnation: u64::MAX - 1, ..Default::default() };
        Box::pin(std::future::ready(Ok(vec![device])))
    }

    fn create_worker_session(&self, request: proto::CreateWorkerSessionRequest) -> Call<'_, ()> {
        Box::pin(async move { self.obey(&request.session_handle).await })
    }

    fn delete_worker_session(&self, session: SessionHandle) -> Call<'_, ()> {
        Box::pin(async move { self.obey(&session).await })
    }

    fn register_graph(&self, request: RegisterGraph) -> Call<'_, GraphHandle> {
        Box::pin(async move { Ok(format!("graph of '{}'", request.session)) })
    }

    fn deregister_graph(&self, session: SessionHandle, graph: GraphHandle) -> Call<'_, ()> {
        Box::pin(async move { self.obey(&format!("{session}{graph}")).await })
    }

    /// Values asked for are those sent under that key. What is brought is a small value, a dead one, and a large one if it may
    /// be.
    fn run_graph(&self, request: RunGraph) -> Call<'_, RunGraphReply> {
        Box::pin(async move {
            self.obey(&request.graph).await?;
            let find = |key: &RendezvousKey| request.send.iter().find(|(sent, _)| sent == key);
            let recv = request.recv.iter().filter_map(find).map(|(_, tensor)| tensor.clone()).collect();
            let mut brought = Vec::new();
            if request.bring_to.is_some() {
                let value = |bytes, seed| Arrived::Value(Delivery::Tensor(pattern(bytes, seed)));
                let large = if request.bring_large >= LARGE { value(LARGE, 1) } else { Arrived::Alone };
                brought.extend([(0, value(100, 0)), (2, Arrived::Value(Delivery::Dead)), (1, large)]);
            }
            Ok(RunGraphReply { recv, brought, ..Default::default() })
        })
    }

    /// The key says what to deliver; a number is that many bytes.
    fn recv_tensor(&self, step: i64, key: RendezvousKey) -> Call<'_, Delivery> {
        Box::pin(async move {
            self.obey(key.as_str()).await?;
            match key.as_str() {
                "dead" => Ok(Delivery::Dead),
                "strings" => Ok(Delivery::Tensor(Tensor::from(["a", "", "ü"]))),
                number => {
                    let bytes: usize = number.parse().map_err(|_| invalid!("no tensor '{number}'"))?;
                    Ok(Delivery::Tensor(pattern(bytes, step as u8)))
                }
            }
        })
    }

    fn recv_small(&self, step: i64, keys: Arc<[RendezvousKey]>) -> Call<'_, Found> {
        Box::pin(async move {
            let _inside = self.counts.enter();
            self.steps.recv_small(step, &keys).await
        })
    }

    fn push(&self, push: Push) -> Call<'_, ()> {
        Box::pin(async move {
            self.obey(&push.session).await?;
            self.pushed.lock().unwrap().push(push);
            Ok(())
        })
    }

    fn cleanup_graph(&self, step: i64) -> Call<'_, ()> {
        self.forgotten.lock().unwrap().push(step);
        Box::pin(std::future::ready(Ok(())))
    }

    fn cleanup_all(&self, containers: Vec<String>) -> Call<'_, ()> {
        Box::pin(async move { self.obey(&containers.concat()).await })
    }

    fn logging(&self, request: proto::LoggingRequest) -> Call<'_, proto::LoggingResponse> {
        let step = |&step_id: &i64| proto::LabeledStepStats { step_id, step_stats: None };
        Box::pin(std::future::ready(Ok(proto::LoggingResponse {
            step: request.fetch_step_id.iter().map(step).collect(),
        })))
    }
}

/// What is too large to be sent with other things.
pub const LARGE: usize = 600_000;

/// Bytes that differ from place to place.
pub fn pattern(bytes: usize, seed: u8) -> Tensor {
    let values = (0..bytes).map(|i| (i / 4096 + i) as u8 ^ seed).collect();
    Tensor::from_vec([bytes], values).unwrap()
}

/// A run with these feeds, fetches and targets.
pub fn step(feeds: &[(&str, Tensor)], fetches: &[&str], targets: &[&str]) -> RunStep {
    RunStep {
        session: "s".into(),
        feeds: feeds.iter().map(|(name, tensor)| (name.to_string(), tensor.clone())).collect(),
        fetches: fetches.iter().map(|name| name.to_string()).collect(),
        targets: targets.iter().map(|name| name.to_string()).collect(),
        ..RunStep::default()
    }
}

/// A server for a fake, and stubs that lead to it.
pub struct Served {
    pub server: Server,
    pub counts: Arc<Counts>,
    pub fake: Arc<Fake>,
    reach: Reach,
}

/// How stubs reach a server.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reach {
    /// As a process on this machine does.
    Near,
    /// As from another machine, for the first time: over HTTP/2.
    Far,
    /// As from another machine, by those who have found out that they may do without.
    FarDirect,
}

impl Served {
    pub fn start() -> Served {
        Served::at("127.0.0.1:0")
    }

    /// One for each way to reach it.
    pub fn each_way() -> Vec<Served> {
        #[cfg(target_os = "linux")]
        const WAYS: [Reach; 3] = [Reach::Near, Reach::Far, Reach::FarDirect];
        #[cfg(not(target_os = "linux"))]
        const WAYS: [Reach; 1] = [Reach::Far];
        WAYS.map(|reach| Served { reach, ..Served::at("0.0.0.0:0") }).into()
    }

    pub fn at(address: &str) -> Served {
        Served::with(address, |_| Vec::new(), |listener, services| listener.serve(services))
    }

    /// A server that also answers what only tasks of our own kind ask.
    pub fn with_tensors() -> Served {
        Served::with_tensors_at("127.0.0.1:0")
    }

    pub fn with_tensors_at(address: &str) -> Served {
        let more = |fake: Arc<Fake>| vec![Arc::new(TensorService::new(fake)) as Arc<dyn rpc::Service>];
        Served::with(address, more, |listener, services| listener.serve(services))
    }

    /// A server that holds no more than so many bytes of unfinished requests.
    pub fn within(unfinished_bytes_max: usize) -> Served {
        let serve = |listener: Listener, services| listener.serve_within(services, unfinished_bytes_max);
        Served::with("127.0.0.1:0", |_| Vec::new(), serve)
    }

    fn with(
        address: &str,
        more: impl Fn(Arc<Fake>) -> Vec<Arc<dyn rpc::Service>>,
        serve: impl FnOnce(Listener, Vec<Arc<dyn rpc::Service>>) -> Result<Server>,
    ) -> Served {
        let fake = Arc::new(Fake::default());
        let import = |_: &proto::GraphDef| Ok(Graph::new());
        let mut services = more(fake.clone());
        services.push(Arc::new(MasterService::new(fake.clone())));
        services.push(Arc::new(WorkerService::with_import(fake.clone(), import)));
        let server = serve(Listener::bind(address).unwrap(), services).unwrap();
        Served { server, counts: fake.counts.clone(), fake, reach: Reach::Near }
    }

    pub fn address(&self) -> String {
        let address = self.server.address();
        match self.reach {
            Reach::Near if address.ip().is_unspecified() => format!("127.0.0.1:{}", address.port()),
            Reach::Near => address.to_string(),
            // An address of this machine under which it has no name.
            Reach::Far | Reach::FarDirect => format!("127.0.0.2:{}", address.port()),
        }
    }

    pub fn reach(&self) -> Reach {
        self.reach
    }

    pub fn channel(&self) -> Channel {
        let channel = Channel::new(Some(&task()), &self.address());
        if self.reach == Reach::FarDirect {
            self.until_direct(&channel);
        }
        channel
    }

    /// Waits until calls over this channel do without HTTP/2.
    fn until_direct(&self, channel: &Channel) {
        let worker = RemoteWorker::new(channel.clone());
        let fail = proto::CreateWorkerSessionRequest { session_handle: "fail".into(), ..Default::default() };
        until("calls are made directly", || is_whole(&wait(worker.create_worker_session(fail.clone())).unwrap_err()));
        let key = || RendezvousKey::from_text("fail");
        until("tensors are asked for directly", || is_whole(&wait(worker.recv_tensor(0, key())).unwrap_err()));
        self.counts.begun.store(0, Ordering::SeqCst);
    }

    pub fn master(&self) -> RemoteMaster {
        let master = RemoteMaster::new(&format!("grpc://{}", self.address()), RemoteOptions::default());
        if self.reach == Reach::FarDirect {
            let fail = proto::CreateSessionRequest { target: "fail".into(), ..Default::default() };
            until("calls are made directly", || is_whole(&wait(master.create_session(fail.clone())).unwrap_err()));
            self.counts.begun.store(0, Ordering::SeqCst);
        }
        master
    }

    pub fn worker(&self) -> RemoteWorker {
        RemoteWorker::new(self.channel())
    }
}

/// Whether a long error has come as it was: the trailers of HTTP/2 have no room for it.
pub fn is_whole(error: &Error) -> bool {
    assert_eq!(error.code, Code::DataLoss, "{error}");
    !error.message.ends_with(" ... [truncated]")
}

/// The task that stubs of a worker lead to.
pub fn task() -> TaskName {
    TaskName::new("ps", 3)
}

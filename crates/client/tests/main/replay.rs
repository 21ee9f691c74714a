//! What TensorFlow's clients were recorded to ask, asked of our servers: the answers must say the same.

use bytes::Bytes;
use ferroflow::{DType, Server, Tensor, inspect};
use prost::Message;
use rpc::channel::{Channel, Lane, Outgoing};
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::mpsc::TryRecvError;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tensor::{Code, Result};

/// Longer than any answer takes.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(serde::Deserialize)]
struct Index {
    calls: Vec<Recorded>,
}

#[derive(serde::Deserialize)]
struct Recorded {
    n: u32,
    start: u32,
    end: u32,
    link: String,
    method: String,
    status: String,
    request: (usize, usize),
    response: Option<(usize, usize)>,
}

/// One recording, played to servers of ours.
struct Replay {
    folder: String,
    raw: Vec<u8>,
    calls: Vec<Recorded>,
    servers: HashMap<String, Server>,
    /// Our names for the sessions and partial runs that the recording names.
    names: Arc<Mutex<HashMap<String, String>>>,
    /// Whether values depend on chance, so that only their shapes can be compared.
    is_random: bool,
}

impl Replay {
    fn new(folder: &str, jobs: &[(&str, usize)], is_random: bool) -> Replay {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testdata/wire").join(folder);
        let index: Index = serde_json::from_slice(&std::fs::read(path.join("index.json")).unwrap()).unwrap();
        let names = jobs.iter().flat_map(|(job, count)| (0..*count).map(move |i| format!("{job}:{i}")));
        let servers = names.zip(Server::create_cluster(jobs.iter().copied()).unwrap()).collect();
        let raw = std::fs::read(path.join("raw.bin")).unwrap();
        Replay { folder: folder.into(), raw, calls: index.calls, servers, names: Arc::default(), is_random }
    }

    /// Calls begin and end in the recorded order, so that what overlapped there overlaps here.
    fn play(&self) {
        let is_client = |c: &&Recorded| c.link.starts_with("client->") && c.method.contains("MasterService");
        let mut events: BTreeMap<u32, (&Recorded, bool)> = BTreeMap::new();
        for call in self.calls.iter().filter(is_client) {
            events.insert(call.start, (call, true));
            events.insert(call.end, (call, false));
        }
        assert!(!events.is_empty());
        let mut running = HashMap::new();
        for (call, is_start) in events.into_values() {
            if is_start {
                let (stop, thread) = self.start(call);
                self.wait_until_under_way(call, &thread);
                running.insert(call.n, (stop, thread));
            } else {
                let (stop, thread) = running.remove(&call.n).unwrap();
                if call.status == "CANCELLED" {
                    drop(stop); // the client went away; so do we
                    thread.join().unwrap();
                } else {
                    self.compare(call, thread.join().unwrap().expect("answered"));
                }
            }
        }
    }

    /// A step that others overlap must have reached its server before they do.
    fn wait_until_under_way(&self, call: &Recorded, thread: &std::thread::JoinHandle<Option<Result<Bytes>>>) {
        if method(call) != "RunStep" || call.end == call.start + 1 {
            return;
        }
        let target = self.servers[call.link.strip_prefix("client->").unwrap()].target();
        let deadline = Instant::now() + PATIENCE;
        let waits = || inspect::status(target, PATIENCE).unwrap().iter().any(|task| !task.steps.is_empty());
        while !thread.is_finished() && !waits() {
            assert!(Instant::now() < deadline, "call {} does not get under way", call.n);
        }
    }

    #[allow(clippy::type_complexity)]
    fn start(&self, call: &Recorded) -> (std::sync::mpsc::Sender<()>, std::thread::JoinHandle<Option<Result<Bytes>>>) {
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let server = &self.servers[call.link.strip_prefix("client->").unwrap()];
        let channel = Channel::new(None, server.target().strip_prefix("grpc://").unwrap());
        let message = self.translate(call, &self.raw[call.request.0..][..call.request.1]);
        let path: &'static str = Box::leak(call.method.clone().into_boxed_str());
        let is_cancelled = call.status == "CANCELLED";
        let thread = std::thread::spawn(move || {
            let prefix = (message.len() as u32).to_be_bytes(); // after a byte that says: not compressed
            let body = vec![Bytes::from([&[0], &prefix[..], &message].concat())];
            let call = Outgoing { path, body, limit: Some(PATIENCE), lane: Lane::Control, tries: 1 };
            let answer = async { Ok(channel.unary(call).await?.contiguous()) };
            if !is_cancelled {
                return Some(runtime::block_on(answer, None).unwrap());
            }
            let mut answer = Box::pin(answer);
            // Nobody says when the client goes away, so it is looked for now and then.
            while stopped.try_recv() == Err(TryRecvError::Empty) {
                let soon = Instant::now() + Duration::from_millis(5);
                if let Ok(answer) = runtime::block_on(answer.as_mut(), Some(soon)) {
                    return Some(answer);
                }
            }
            None
        });
        (stop, thread)
    }

    /// The recorded request with our names for sessions and partial runs.
    fn translate(&self, call: &Recorded, bytes: &[u8]) -> Vec<u8> {
        let names = self.names.lock().unwrap();
        let ours = |name: &str| names.get(name).cloned().unwrap_or_else(|| name.to_string());
        macro_rules! with_session {
            ($ty:ty) => {{
                let mut message = <$ty>::decode(bytes).unwrap();
                message.session_handle = ours(&message.session_handle);
                message
            }};
        }
        match method(call) {
            "ExtendSession" => with_session!(proto::ExtendSessionRequest).encode_to_vec(),
            "CloseSession" => with_session!(proto::CloseSessionRequest).encode_to_vec(),
            "ListDevices" => with_session!(proto::ListDevicesRequest).encode_to_vec(),
            "MakeCallable" => with_session!(proto::MakeCallableRequest).encode_to_vec(),
            "RunCallable" => with_session!(proto::RunCallableRequest).encode_to_vec(),
            "ReleaseCallable" => with_session!(proto::ReleaseCallableRequest).encode_to_vec(),
            "PartialRunSetup" => with_session!(proto::PartialRunSetupRequest).encode_to_vec(),
            "RunStep" => {
                let mut message = with_session!(proto::RunStepRequest);
                message.partial_run_handle = ours(&message.partial_run_handle);
                message.encode_to_vec()
            }
            _ => bytes.to_vec(),
        }
    }

    fn compare(&self, call: &Recorded, answer: Result<Bytes>) {
        let here = format!("{} call {} {}", self.folder, call.n, method(call));
        let answer = match answer {
            Ok(answer) if call.status == "OK" => answer,
            Ok(_) => panic!("{here}: TensorFlow answered {}, ours was no error", call.status),
            Err(e) => {
                assert_eq!(code_name(e.code), call.status, "{here}: {e}");
                return;
            }
        };
        let recorded = call.response.map_or(&[][..], |(offset, length)| &self.raw[offset..][..length]);
        match method(call) {
            "CreateSession" => {
                let theirs = proto::CreateSessionResponse::decode(recorded).unwrap();
                let ours = proto::CreateSessionResponse::decode(answer).unwrap();
                assert_eq!(ours.graph_version, theirs.graph_version, "{here}");
                self.names.lock().unwrap().insert(theirs.session_handle, ours.session_handle);
            }
            "PartialRunSetup" => {
                let theirs = proto::PartialRunSetupResponse::decode(recorded).unwrap();
                let ours = proto::PartialRunSetupResponse::decode(answer).unwrap();
                self.names.lock().unwrap().insert(theirs.partial_run_handle, ours.partial_run_handle);
            }
            "ExtendSession" => {
                let version = |bytes| proto::ExtendSessionResponse::decode(bytes).unwrap().new_graph_version;
                assert_eq!(version(answer), version(Bytes::copy_from_slice(recorded)), "{here}");
            }
            "ListDevices" => {
                let names = |bytes: Bytes| {
                    let list = proto::ListDevicesResponse::decode(bytes).unwrap();
                    let mut names: Vec<String> =
                        list.local_device.into_iter().chain(list.remote_device).map(|d| d.name).collect();
                    names.sort();
                    names
                };
                assert_eq!(names(answer), names(Bytes::copy_from_slice(recorded)), "{here}");
            }
            "RunStep" => {
                let theirs = proto::RunStepResponse::decode(recorded).unwrap();
                let ours = proto::RunStepResponse::decode(answer).unwrap();
                assert_eq!(ours.status_code, theirs.status_code, "{here}: {}", ours.status_error_message);
                let has_stats = |m: &Option<proto::RunMetadata>| m.as_ref().is_some_and(|m| m.step_stats.is_some());
                assert_eq!(has_stats(&ours.metadata), has_stats(&theirs.metadata), "{here}");
                let by_name = |tensors: Vec<proto::NamedTensorProto>| -> BTreeMap<String, Tensor> {
                    let value = |t: Option<proto::TensorProto>| Tensor::from_proto(&t.unwrap()).unwrap();
                    tensors.into_iter().map(|t| (t.name, value(t.tensor))).collect()
                };
                let (ours, theirs) = (by_name(ours.tensor), by_name(theirs.tensor));
                assert_eq!(ours.keys().collect::<Vec<_>>(), theirs.keys().collect::<Vec<_>>(), "{here}");
                for (name, value) in &ours {
                    self.compare_values(&format!("{here}, {name}"), value, &theirs[name]);
                }
            }
            "RunCallable" => {
                let values = |bytes: Bytes| {
                    let answer = proto::RunCallableResponse::decode(bytes).unwrap();
                    answer.fetch.iter().map(|t| Tensor::from_proto(t).unwrap()).collect::<Vec<_>>()
                };
                let (ours, theirs) = (values(answer), values(Bytes::copy_from_slice(recorded)));
                assert_eq!(ours.len(), theirs.len(), "{here}");
                ours.iter().zip(&theirs).for_each(|(o, t)| self.compare_values(&here, o, t));
            }
            _ => assert_eq!(answer, recorded, "{here}"),
        }
    }

    fn compare_values(&self, here: &str, ours: &Tensor, theirs: &Tensor) {
        assert_eq!((ours.dtype(), ours.shape()), (theirs.dtype(), theirs.shape()), "{here}");
        if self.is_random {
            return;
        }
        match (ours.as_slice::<f32>(), theirs.as_slice::<f32>()) {
            (Ok(ours), Ok(theirs)) => {
                let is_near = |(a, b): (&f32, &f32)| (a - b).abs() <= 1e-5 * b.abs().max(1.0);
                assert!(ours.iter().zip(theirs).all(is_near), "{here}: {ours:?} instead of {theirs:?}");
            }
            // A handle says where a resource is; how its type is hashed is each program's own affair.
            _ if ours.dtype() == DType::Resource => assert_eq!(ours.to_string(), theirs.to_string(), "{here}"),
            _ => assert_eq!(ours, theirs, "{here}"),
        }
    }
}

fn method(call: &Recorded) -> &str {
    call.method.rsplit('/').next().unwrap()
}

/// A code as recordings spell it.
fn code_name(code: Code) -> String {
    let mut name = String::new();
    for c in format!("{code:?}").chars() {
        if c.is_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(c.to_ascii_uppercase());
    }
    name
}

const PS_AND_WORKER: [(&str, usize); 2] = [("ps", 1), ("worker", 1)];

#[test]
fn hello() {
    Replay::new("01_hello", &[("local", 1)], false).play();
}

#[test]
fn a_variable_on_ps() {
    Replay::new("02_variable_on_ps", &PS_AND_WORKER, false).play();
}

#[test]
fn asynchronous_training() {
    Replay::new("03_async_mnist", &PS_AND_WORKER, true).play();
}

#[test]
fn synchronous_training() {
    Replay::new("04_sync_replicas", &[("ps", 1), ("worker", 2)], false).play();
}

#[test]
fn the_client_api_and_its_errors() {
    Replay::new("05_client_api_and_errors", &PS_AND_WORKER, true).play();
}

#[test]
fn control_flow_and_types() {
    Replay::new("06_control_flow_and_dtypes", &PS_AND_WORKER, false).play();
}

#[test]
fn traces_partial_runs_and_cancelled_steps() {
    Replay::new("08_trace_partial_cancel", &PS_AND_WORKER, false).play();
}

#[test]
fn nested_loops() {
    Replay::new("10_nested_loops", &PS_AND_WORKER, false).play();
}

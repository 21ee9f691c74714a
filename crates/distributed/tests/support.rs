//! Sessions on a cluster of one task, opened on graphs in the text notation.

use distributed::interface::Call;
use distributed::{LocalCluster, MasterInterface, RunStep, RunStepReply};
use framework::graph::{export, text};
use framework::{Attr, Registry, SystemEnv};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tensor::{Code, Error, Result, Tensor};

/// Longer than any of these tests takes; whoever waits longer hangs.
const PATIENCE: Duration = Duration::from_secs(30);

pub fn registry() -> Arc<Registry> {
    static REGISTRY: OnceLock<Arc<Registry>> = OnceLock::new();
    REGISTRY.get_or_init(|| Arc::new(ops::registry())).clone()
}

pub fn cluster() -> Arc<LocalCluster> {
    Arc::new(LocalCluster::new("localhost", 2, registry(), Arc::new(SystemEnv::default())))
}

/// Waits for a call that must end.
#[track_caller]
pub fn wait<T>(call: Call<'_, T>) -> Result<T> {
    runtime::block_on(call, Some(Instant::now() + PATIENCE)).expect("the call hangs")
}

/// Waits for a call for a while; `None` if it was given up.
pub fn wait_at_most<T>(call: Call<'_, T>, limit: Duration) -> Option<Result<T>> {
    runtime::block_on(call, Some(Instant::now() + limit)).ok()
}

/// A graph's message from the text notation.
#[track_caller]
pub fn graph(notation: &str) -> proto::GraphDef {
    export::export(&text::parse(notation, &registry()).unwrap())
}

/// A node that nobody has checked.
pub fn node(name: &str, op: &str, inputs: &[&str], attrs: &[(&str, Attr)]) -> proto::NodeDef {
    proto::NodeDef {
        name: name.into(),
        op: op.into(),
        input: inputs.iter().map(|i| i.to_string()).collect(),
        attr: attrs.iter().map(|(name, attr)| (name.to_string(), attr.to_proto())).collect(),
        ..Default::default()
    }
}

/// A constant.
pub fn constant(name: &str, value: impl Into<Tensor>) -> proto::NodeDef {
    let value = value.into();
    node(name, "Const", &[], &[("dtype", value.dtype().into()), ("value", value.into())])
}

pub fn nodes(nodes: impl IntoIterator<Item = proto::NodeDef>) -> proto::GraphDef {
    proto::GraphDef { node: nodes.into_iter().collect(), ..Default::default() }
}

/// A session, and the cluster it is on.
pub struct Session {
    pub cluster: Arc<LocalCluster>,
    pub handle: String,
}

impl Session {
    /// On a cluster of its own.
    #[track_caller]
    pub fn open(notation: &str) -> Session {
        Session::on(&cluster(), graph(notation)).unwrap()
    }

    pub fn on(cluster: &Arc<LocalCluster>, graph: proto::GraphDef) -> Result<Session> {
        let handle = wait(
            cluster
                .master()
                .create_session(proto::CreateSessionRequest { graph_def: Some(graph), ..Default::default() }),
        )?;
        Ok(Session { cluster: cluster.clone(), handle })
    }

    pub fn request(&self, feeds: &[(&str, Tensor)], fetches: &[&str], targets: &[&str]) -> RunStep {
        RunStep {
            session: self.handle.clone(),
            feeds: feeds.iter().map(|(name, value)| (name.to_string(), value.clone())).collect(),
            fetches: strings(fetches),
            targets: strings(targets),
            ..RunStep::default()
        }
    }

    pub fn step(&self, request: RunStep) -> Result<RunStepReply> {
        wait(self.cluster.master().run_step(request))
    }

    pub fn run(&self, feeds: &[(&str, Tensor)], fetches: &[&str]) -> Result<Vec<Tensor>> {
        Ok(self.step(self.request(feeds, fetches, &[]))?.fetches)
    }

    /// The one value that is fetched.
    #[track_caller]
    pub fn value(&self, fetch: &str) -> Tensor {
        self.run(&[], &[fetch]).unwrap().remove(0)
    }

    pub fn target(&self, targets: &[&str]) -> Result<()> {
        self.step(self.request(&[], &[], targets)).map(|_| ())
    }

    pub fn extend(&self, graph: proto::GraphDef, version: i64) -> Result<i64> {
        wait(self.cluster.master().extend_session(self.handle.clone(), graph, version))
    }

    pub fn close(&self) -> Result<()> {
        wait(self.cluster.master().close_session(self.handle.clone()))
    }
}

pub fn strings(list: &[&str]) -> Vec<String> {
    list.iter().map(|s| s.to_string()).collect()
}

/// The error has this code, and its sentence says all of this.
#[track_caller]
pub fn assert_error<T: std::fmt::Debug>(result: Result<T>, code: Code, says: &[&str]) -> Error {
    let error = result.expect_err("an error was wanted");
    assert_eq!(error.code, code, "{error}");
    for part in says {
        assert!(error.message.contains(part), "'{part}' is not in: {}", error.message);
    }
    error
}

//! `Graph`: what a program builds, and where its mistakes are kept.
//!
//! A thin handle over a `Scope` of the framework. Building never fails: the first mistake is kept with the user's file
//! and line, whatever is built from it is void, and the mistake is returned by [`Graph::check`] or the first run.

use crate::variable::{Collections, Variable};
use crate::{Operation, Output};
use framework::scope::{DeviceFn, DeviceQuery};
use framework::{DeviceSpec, Registry, Scope};
use parking_lot::Mutex;
use std::panic::Location;
use std::sync::{Arc, OnceLock};
use tensor::{Element, Error, PartialShape, Result, Tensor, invalid};

/// A graph under construction; clones are handles on the same graph.
///
/// ```
/// use ferroflow::prelude::*;
///
/// let g = Graph::new();
/// let x = g.placeholder::<f32>([None, Some(3)]);
/// let w = g.variable("w", initializers::zeros([3, 2]));
/// let y = g.name_scope("layer", || x.matmul(&w).relu());
/// assert_eq!(y.name(), "layer/Relu");
/// assert_eq!(y.shape().to_string(), "[?,2]");
/// g.check()?;
///
/// let wrong = w.matmul(&w); // the line of this mistake stands in the error
/// assert!(g.check().unwrap_err().message.contains(&format!("{}:{}", file!(), line!() - 1)));
/// # let _ = wrong;
/// # Ok::<(), ferroflow::Error>(())
/// ```
#[derive(Clone)]
pub struct Graph {
    inner: Arc<Inner>,
}

struct Inner {
    scope: Scope,
    mistake: Mutex<Option<Error>>,
    collections: Mutex<Collections>,
    /// Where the user is, while we build on their behalf in closures of our own.
    place: Mutex<Option<&'static Location<'static>>>,
}

impl Default for Graph {
    fn default() -> Graph {
        Graph::new()
    }
}

impl std::fmt::Debug for Graph {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Graph of {} nodes", self.scope().with_graph(|g| g.len()))
    }
}

/// All ops there are, listed once for all graphs of the process.
pub(crate) fn registry() -> Arc<Registry> {
    static REGISTRY: OnceLock<Arc<Registry>> = OnceLock::new();
    REGISTRY.get_or_init(|| Arc::new(ops::registry())).clone()
}

impl Graph {
    /// An empty graph.
    pub fn new() -> Graph {
        Graph::over(Scope::new(registry()))
    }

    /// The graph in a message. Its variables are nodes like any other: they are in no collection.
    pub fn import(message: &proto::GraphDef) -> Result<Graph> {
        let graph = framework::graph::import::import(message, &registry())?;
        Ok(Graph::over(Scope::on(graph, registry())))
    }

    fn over(scope: Scope) -> Graph {
        let inner = Inner { scope, mistake: Mutex::default(), collections: Mutex::default(), place: Mutex::default() };
        Graph { inner: Arc::new(inner) }
    }

    /// The message for this graph, or the first mistake made in building it.
    pub fn to_graph_def(&self) -> Result<proto::GraphDef> {
        self.check()?;
        Ok(self.scope().with_graph(framework::graph::export::export))
    }

    /// The first mistake made in building, with the file and line where it was made.
    pub fn check(&self) -> Result<()> {
        match &*self.inner.mistake.lock() {
            Some(mistake) => Err(mistake.clone()),
            None => Ok(()),
        }
    }

    /// The scope that nodes are added to: for what the face does not offer. Mistakes are then the caller's to handle.
    pub fn scope(&self) -> &Scope {
        &self.inner.scope
    }

    /// A value.
    #[track_caller]
    pub fn constant(&self, value: impl Into<Tensor>) -> Output {
        let value = value.into();
        self.output([], |s, []| s.constant(value))
    }

    /// A value to be fed, of a shape that may have open dimensions: `g.placeholder::<f32>([None, Some(784)])`.
    #[track_caller]
    pub fn placeholder<T: Element>(&self, shape: impl Into<PartialShape>) -> Output {
        let shape = shape.into();
        self.output([], |s, []| s.node("Placeholder").attr("dtype", T::DTYPE).attr("shape", shape).output())
    }

    /// A value that may be fed, and is `default` when it is not.
    #[track_caller]
    pub fn placeholder_with_default(&self, default: impl Into<Tensor>, shape: impl Into<PartialShape>) -> Output {
        let (default, shape) = (default.into(), shape.into());
        self.output([], |s, []| {
            let name = s.unique_name("PlaceholderWithDefault");
            let input = s.with_absolute_name(&name, || {
                s.node("Const").name("input").attr("dtype", default.dtype()).attr("value", default).output()
            })?;
            s.node("PlaceholderWithDefault").name(name + "/").input(input).attr("shape", shape).output()
        })
    }

    /// A node of any op, by name: its first output. What the face has no method for.
    #[track_caller]
    pub fn op<const N: usize>(&self, op: &str, inputs: [&Output; N]) -> Output {
        self.output(inputs, |s, inputs| s.op(op, &inputs))
    }

    /// The output called `name` or `name:index`.
    #[track_caller]
    pub fn find(&self, name: &str) -> Output {
        self.output([], |s, []| {
            let found = s.with_graph(|g| g.find_output(name).filter(|o| g.info(*o).is_ok()));
            found.ok_or_else(|| tensor::not_found!("the graph has no output called '{name}'"))
        })
    }

    /// The node of this name, as something to run.
    #[track_caller]
    pub fn find_operation(&self, name: &str) -> Operation {
        self.operation([], |s, []| {
            s.with_graph(|g| g.find(name)).ok_or_else(|| tensor::not_found!("the graph has no node called '{name}'"))
        })
    }

    /// Happens when all of these have happened.
    #[track_caller]
    pub fn group(&self, operations: &[&Operation]) -> Operation {
        let nodes: Option<Vec<_>> = self.here(|| operations.iter().map(|operation| self.own_node(operation)).collect());
        match nodes {
            Some(nodes) => self.operation([], |s, []| group(s, "group_deps", &nodes)),
            None => Operation::void(self),
        }
    }

    /// What is built inside goes to this device: `"/job:ps/task:0"`, or what a function of each node decides.
    #[track_caller]
    pub fn device<R>(&self, device: impl Into<Device>, build: impl FnOnce() -> R) -> R {
        match device.into() {
            Device::Spec(spec) => match spec.parse::<DeviceSpec>() {
                Ok(spec) => self.scope().with_device(spec, build),
                Err(error) => {
                    self.keep(error);
                    build()
                }
            },
            Device::Function(function) => self.scope().with_device_fn(function, build),
        }
    }

    /// What is built inside is called `name/…`.
    pub fn name_scope<R>(&self, name: &str, build: impl FnOnce() -> R) -> R {
        self.scope().with_name(name, build)
    }

    /// What is built inside runs after these.
    #[track_caller]
    pub fn control_dependencies<R>(&self, after: &[&Operation], build: impl FnOnce() -> R) -> R {
        let nodes: Vec<_> = self.here(|| after.iter().filter_map(|operation| self.own_node(operation)).collect());
        self.scope().with_control(&nodes, build)
    }

    /// The seed that random ops derive theirs from, so that every run of the program draws the same numbers.
    pub fn set_seed(&self, seed: i64) {
        self.scope().set_seed(seed);
    }

    /// Whether both are handles on the same graph.
    pub fn is_same(&self, other: &Graph) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    pub(crate) fn collections(&self) -> &Mutex<Collections> {
        &self.inner.collections
    }

    /// Keeps the first mistake, with the place in the user's program.
    #[track_caller]
    pub(crate) fn keep(&self, error: Error) {
        let place = self.inner.place.lock().unwrap_or(Location::caller());
        let mut mistake = self.inner.mistake.lock();
        if mistake.is_none() {
            *mistake = Some(error.context(format_args!("built at {}:{}", place.file(), place.line())));
        }
    }

    /// Builds on behalf of the caller: mistakes made inside are the caller's, though closures lie between.
    #[track_caller]
    pub(crate) fn here<R>(&self, build: impl FnOnce() -> R) -> R {
        self.at(Location::caller(), build)
    }

    /// The same for a place in the user's program that is known already; the outermost place counts.
    pub(crate) fn at<R>(&self, place: &'static Location<'static>, build: impl FnOnce() -> R) -> R {
        let outer = self.inner.place.lock().replace(place);
        if outer.is_some() {
            *self.inner.place.lock() = outer;
        }
        let built = build();
        *self.inner.place.lock() = outer;
        built
    }

    /// The result of building something, or nothing and a mistake kept.
    #[track_caller]
    pub(crate) fn kept<R>(&self, built: Result<R>) -> Option<R> {
        match built {
            Ok(built) => Some(built),
            Err(error) => {
                self.keep(error);
                None
            }
        }
    }

    /// An output built from others; void if one of those is.
    #[track_caller]
    pub(crate) fn output<const N: usize>(
        &self,
        inputs: [&Output; N],
        build: impl FnOnce(&Scope, [framework::Output; N]) -> Result<framework::Output>,
    ) -> Output {
        match self.own(inputs) {
            Some(inputs) => Output::new(self, self.kept(build(self.scope(), inputs))),
            None => Output::void(self),
        }
    }

    /// An operation built from outputs; void if one of those is.
    #[track_caller]
    pub(crate) fn operation<const N: usize>(
        &self,
        inputs: [&Output; N],
        build: impl FnOnce(&Scope, [framework::Output; N]) -> Result<framework::NodeId>,
    ) -> Operation {
        match self.own(inputs) {
            Some(inputs) => Operation::new(self, self.kept(build(self.scope(), inputs))),
            None => Operation::void(self),
        }
    }

    /// The outputs' numbers in this graph; nothing if one is void, and a mistake if one belongs to another graph.
    #[track_caller]
    pub(crate) fn own<const N: usize>(&self, inputs: [&Output; N]) -> Option<[framework::Output; N]> {
        let mut own = [framework::Output { node: framework::NodeId(0), index: 0 }; N];
        for (own, input) in own.iter_mut().zip(inputs) {
            *own = self.own_one(input)?;
        }
        Some(own)
    }

    #[track_caller]
    pub(crate) fn own_one(&self, input: &Output) -> Option<framework::Output> {
        if !input.graph().is_same(self) {
            self.keep(invalid!("{} belongs to another graph", input.name()));
            return None;
        }
        input.id()
    }

    #[track_caller]
    pub(crate) fn own_node(&self, operation: &Operation) -> Option<framework::NodeId> {
        if !operation.graph().is_same(self) {
            self.keep(invalid!("{} belongs to another graph", operation.name()));
            return None;
        }
        operation.id()
    }

    /// The variables in the order they were made, one of each kind.
    pub fn global_variables(&self) -> Vec<Variable> {
        self.collections().lock().global.clone()
    }

    /// The variables that optimizers change unless told otherwise.
    pub fn trainable_variables(&self) -> Vec<Variable> {
        self.collections().lock().trainable.clone()
    }

    /// The variables that every task keeps for itself.
    pub fn local_variables(&self) -> Vec<Variable> {
        self.collections().lock().local.clone()
    }
}

/// A node that has happened when all of these have, built so that each device reports once.
pub(crate) fn group(s: &Scope, name: &str, nodes: &[framework::NodeId]) -> Result<framework::NodeId> {
    let mut devices: Vec<(String, Vec<framework::NodeId>)> = Vec::new();
    for &node in nodes {
        let device = s.with_graph(|g| g.node(node).device.clone());
        match devices.iter_mut().find(|(d, _)| *d == device) {
            Some((_, members)) => members.push(node),
            None => devices.push((device, vec![node])),
        }
    }
    let name = match name.strip_suffix('/') {
        Some(exact) => exact.to_string(),
        None => s.unique_name(name),
    };
    // A device that a node was put on is completed by what is in force here.
    let group_on = |name: String, device: &str, members: &[framework::NodeId]| {
        let build = || members.iter().fold(s.node("NoOp").name(name), |node, &member| node.control(member)).build();
        s.with_device(device.parse()?, build)
    };
    match devices.as_slice() {
        [] => group_on(name + "/", "", &[]),
        [(device, members)] => group_on(name + "/", device, members),
        _ => {
            devices.sort_by(|a, b| a.0.cmp(&b.0));
            let parts = devices
                .iter()
                .map(|(device, members)| s.with_absolute_name(&name, || group_on("NoOp".into(), device, members)));
            let parts: Vec<_> = parts.collect::<Result<_>>()?;
            group_on(name + "/", "", &parts)
        }
    }
}

/// Where nodes go: a device as written, or a function that decides for each node.
pub enum Device {
    /// Such as `/job:ps/task:0`; parts left open are taken from the enclosing `device`.
    Spec(String),
    /// Decides from the node's op, name and attributes.
    Function(DeviceFn),
}

impl From<&str> for Device {
    fn from(spec: &str) -> Device {
        Device::Spec(spec.into())
    }
}

impl From<String> for Device {
    fn from(spec: String) -> Device {
        Device::Spec(spec)
    }
}

impl<F> From<F> for Device
where
    F: Fn(&DeviceQuery<'_>) -> Result<DeviceSpec> + Send + Sync + 'static,
{
    fn from(function: F) -> Device {
        Device::Function(Arc::new(function))
    }
}

//! `Scope`: where new nodes go, and under which name, device and control inputs.
//!
//! A scope is a handle on a graph under construction; clones share it. Builder functions of ops take a scope and
//! return a `Result`. Names, devices and control inputs are set for the duration of a closure.

use crate::attr::{Attr, Attrs};
use crate::device::DeviceSpec;
use crate::graph::{Graph, NewNode, NodeId, Output, OutputInfo};
use crate::registry::Registry;
use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use tensor::{DType, PartialShape, Result, Tensor, invalid};

/// Decides a new node's device from its op, name and requested device.
pub type DeviceFn = Arc<dyn Fn(&DeviceQuery<'_>) -> Result<DeviceSpec> + Send + Sync>;

/// What a device function may look at.
pub struct DeviceQuery<'a> {
    /// The node's op.
    pub op: &'a str,
    /// The node's name.
    pub name: &'a str,
    /// The `dtype` and `shape` attributes, for variables.
    pub attrs: &'a Attrs,
    /// What inner scopes asked for.
    pub requested: &'a DeviceSpec,
}

/// A handle on a graph under construction.
#[derive(Clone)]
pub struct Scope {
    registry: Arc<Registry>,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    graph: Graph,
    /// How often each name was asked for.
    used: HashMap<String, u32>,
    prefixes: Vec<String>,
    devices: Vec<DeviceChoice>,
    controls: Vec<Vec<NodeId>>,
    colocations: Vec<NodeId>,
    seed: Option<i64>,
}

#[derive(Clone)]
enum DeviceChoice {
    Spec(DeviceSpec),
    Function(DeviceFn),
    /// Forget what outer scopes said.
    Reset,
}

impl Scope {
    /// An empty graph, with these ops to build it from.
    pub fn new(registry: Arc<Registry>) -> Scope {
        Scope { registry, state: Arc::default() }
    }

    /// A graph to build on.
    pub fn on(graph: Graph, registry: Arc<Registry>) -> Scope {
        let scope = Scope::new(registry);
        scope.lock().graph = graph;
        scope
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// The ops.
    pub fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }

    /// Looks at the graph as it stands. The graph is locked meanwhile: do not add to it inside.
    pub fn with_graph<R>(&self, look: impl FnOnce(&Graph) -> R) -> R {
        look(&self.lock().graph)
    }

    /// Changes the graph as it stands. The graph is locked meanwhile: do not add to it by the scope inside.
    pub fn edit_graph<R>(&self, change: impl FnOnce(&mut Graph) -> R) -> R {
        change(&mut self.lock().graph)
    }

    /// Whether both build the same graph.
    pub fn is_same(&self, other: &Scope) -> bool {
        Arc::ptr_eq(&self.state, &other.state)
    }

    /// What is known of an output.
    pub fn info(&self, output: Output) -> Result<OutputInfo> {
        self.lock().graph.info(output).cloned()
    }

    /// An output's element type.
    pub fn dtype(&self, output: Output) -> Result<DType> {
        Ok(self.lock().graph.info(output)?.dtype)
    }

    /// What is known of an output's shape.
    pub fn shape(&self, output: Output) -> Result<PartialShape> {
        Ok(self.lock().graph.info(output)?.shape.clone())
    }

    /// The name of an output's node.
    pub fn node_name(&self, node: NodeId) -> String {
        self.lock().graph.node(node).name.clone()
    }

    /// A node of this op over these inputs; its first output.
    pub fn op(&self, op: &str, inputs: &[Output]) -> Result<Output> {
        self.node(op).inputs(inputs).output()
    }

    /// A constant.
    pub fn constant(&self, value: impl Into<Tensor>) -> Result<Output> {
        let value = value.into();
        self.node("Const").attr("dtype", value.dtype()).attr("value", value).output()
    }

    /// A scalar constant of a given element type.
    pub fn constant_of(&self, dtype: DType, value: f64) -> Result<Output> {
        self.constant(scalar_of(dtype, value)?)
    }

    /// A node that gives the sizes of an output's dimensions: a constant where they are known, so that the output itself
    /// need not be computed for them.
    pub fn sizes(&self, x: Output) -> Result<NodeBuilder<'_>> {
        Ok(match self.shape(x)?.known() {
            Some(shape) => self.node("Const").attr("dtype", DType::I64).attr("value", Tensor::from(shape.to_i64s())),
            None => self.node("Shape").input(x),
        })
    }

    /// A node to be described and then built.
    pub fn node(&self, op: &str) -> NodeBuilder<'_> {
        NodeBuilder {
            scope: self,
            op: op.into(),
            name: None,
            attrs: Attrs::new(),
            inputs: Vec::new(),
            controls: Vec::new(),
            device: None,
        }
    }

    /// Builds inside a name scope: `name/…`.
    pub fn with_name<R>(&self, name: &str, build: impl FnOnce() -> R) -> R {
        let prefix = {
            let mut state = self.lock();
            let full = state.unique(name);
            state.prefixes.push(full.clone());
            full
        };
        let result = build();
        let popped = self.lock().prefixes.pop();
        debug_assert_eq!(popped.as_ref(), Some(&prefix), "name scopes are closed in the order they were opened");
        result
    }

    /// Builds inside an existing name scope, given by its full name; an empty name is the root.
    pub fn with_absolute_name<R>(&self, full: &str, build: impl FnOnce() -> R) -> R {
        self.lock().prefixes.push(full.to_string());
        let result = build();
        self.lock().prefixes.pop();
        result
    }

    /// The name scope now in force, empty at the root.
    pub fn current_name(&self) -> String {
        self.lock().prefixes.last().cloned().unwrap_or_default()
    }

    /// A name not used before, within the name scope now in force; it counts as used from now on.
    pub fn unique_name(&self, name: &str) -> String {
        self.lock().unique(name)
    }

    /// Builds on a device: parts that inner scopes leave open are taken from outer ones.
    pub fn with_device<R>(&self, device: DeviceSpec, build: impl FnOnce() -> R) -> R {
        self.with_choice(DeviceChoice::Spec(device), build)
    }

    /// Builds on devices that a function decides.
    pub fn with_device_fn<R>(&self, device: DeviceFn, build: impl FnOnce() -> R) -> R {
        self.with_choice(DeviceChoice::Function(device), build)
    }

    /// Builds without any device from outer scopes.
    pub fn without_device<R>(&self, build: impl FnOnce() -> R) -> R {
        self.with_choice(DeviceChoice::Reset, build)
    }

    fn with_choice<R>(&self, choice: DeviceChoice, build: impl FnOnce() -> R) -> R {
        self.lock().devices.push(choice);
        let result = build();
        self.lock().devices.pop();
        result
    }

    /// Builds nodes that run after these.
    pub fn with_control<R>(&self, controls: &[NodeId], build: impl FnOnce() -> R) -> R {
        self.lock().controls.push(controls.to_vec());
        let result = build();
        self.lock().controls.pop();
        result
    }

    /// Builds without the control inputs of outer scopes.
    pub fn without_control<R>(&self, build: impl FnOnce() -> R) -> R {
        let saved = std::mem::take(&mut self.lock().controls);
        let result = build();
        self.lock().controls = saved;
        result
    }

    /// Builds nodes that go where this node goes.
    pub fn colocated_with<R>(&self, node: NodeId, build: impl FnOnce() -> R) -> R {
        self.lock().colocations.push(node);
        let result = build();
        self.lock().colocations.pop();
        result
    }

    /// The graph-level seed of random ops.
    pub fn set_seed(&self, seed: i64) {
        self.lock().seed = Some(seed);
    }

    /// The two seeds of a new random op: what TensorFlow gives an op under the same graph and op seeds.
    pub fn seeds(&self, op_seed: Option<i64>) -> (i64, i64) {
        /// The graph seed that goes with an op seed when none was set.
        const DEFAULT_GRAPH_SEED: i64 = 87654321;
        let state = self.lock();
        let (seed, seed2) = match (state.seed, op_seed) {
            (Some(graph), Some(op)) => (graph, op),
            (Some(graph), None) => (graph, state.graph.len() as i64),
            (None, Some(op)) => (DEFAULT_GRAPH_SEED, op),
            (None, None) => return (0, 0),
        };
        // Two zeros would ask for a fresh stream on every run.
        if (seed, seed2) == (0, 0) { (0, (1 << 31) - 1) } else { (seed, seed2) }
    }

    fn add(&self, builder: NodeBuilder<'_>) -> Result<NodeId> {
        let op = self.registry.lookup(&builder.op)?.clone();
        let mut state = self.lock();
        let wanted = builder.name.clone().unwrap_or_else(|| op.name.clone());
        let name = match wanted.strip_suffix('/') {
            Some(full) => state.exactly(full),
            None => state.unique(&wanted),
        };
        let mut attrs = builder.attrs;
        if let Some(&node) = state.colocations.last()
            && !attrs.contains_key("_class")
        {
            let class = state.graph.node(node).colocated_with();
            let group = class.first().cloned().unwrap_or_else(|| state.graph.node(node).name.clone());
            attrs.insert("_class".into(), Attr::Strings(vec![format!("loc:@{group}").into()]));
        }
        let mut control_inputs = builder.controls;
        for &control in state.controls.iter().flatten() {
            // A node that waits for another through its data need not wait for it once more.
            if !control_inputs.contains(&control) && !builder.inputs.iter().any(|i| i.node == control) {
                control_inputs.push(control);
            }
        }
        let (devices, colocated) = (state.devices.clone(), state.colocations.last().copied());
        let device = match (builder.device, colocated) {
            (Some(device), _) => device,
            (None, beside) => {
                // Asked even if the node goes beside another one: TensorFlow does, and turns are counted by it.
                let chosen = choose_device(&devices, &op.name, &name, &attrs)?;
                beside.map_or_else(|| chosen.to_string(), |node| state.graph.node(node).device.clone())
            }
        };
        state.graph.add(NewNode { name, op, attrs, inputs: builder.inputs, control_inputs, device })
    }
}

fn choose_device(choices: &[DeviceChoice], op: &str, name: &str, attrs: &Attrs) -> Result<DeviceSpec> {
    let mut spec = DeviceSpec::default();
    for choice in choices.iter().rev() {
        match choice {
            DeviceChoice::Spec(outer) => spec = spec.or(outer),
            DeviceChoice::Function(f) => spec = spec.or(&f(&DeviceQuery { op, name, attrs, requested: &spec })?),
            DeviceChoice::Reset => break,
        }
    }
    Ok(spec)
}

impl State {
    /// The name within the current scope, with a number behind it if it is taken.
    fn unique(&mut self, name: &str) -> String {
        match self.prefixes.last() {
            Some(prefix) if !prefix.is_empty() => self.unique_full(&format!("{prefix}/{name}")),
            _ => self.unique_full(name),
        }
    }

    /// The name, with a number behind it if it is taken: x, x_1, x_2. Case does not tell two names apart.
    fn unique_full(&mut self, full: &str) -> String {
        let key = full.to_lowercase();
        let asked = self.used.entry(key.clone()).or_insert(0);
        let mut number = *asked;
        *asked += 1;
        if number == 0 && self.graph.find(full).is_none() {
            return full.to_string();
        }
        loop {
            number = number.max(1);
            let candidate = format!("{full}_{number}");
            if let Entry::Vacant(free) = self.used.entry(format!("{key}_{number}"))
                && self.graph.find(&candidate).is_none()
            {
                free.insert(1);
                return candidate;
            }
            number += 1;
        }
    }

    /// This very name, counted as used from now on.
    fn exactly(&mut self, full: &str) -> String {
        let count = self.used.entry(full.to_lowercase()).or_insert(0);
        *count = (*count).max(1);
        full.to_string()
    }
}

/// A node being described.
pub struct NodeBuilder<'s> {
    scope: &'s Scope,
    op: String,
    name: Option<String>,
    attrs: Attrs,
    inputs: Vec<Output>,
    controls: Vec<NodeId>,
    device: Option<String>,
}

impl NodeBuilder<'_> {
    /// Its name within the name scope, made unique; with a slash at the end, its full and exact name: that of a name
    /// scope made before.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// One more input.
    pub fn input(mut self, input: impl Into<Output>) -> Self {
        self.inputs.push(input.into());
        self
    }

    /// More inputs.
    pub fn inputs(mut self, inputs: &[Output]) -> Self {
        self.inputs.extend_from_slice(inputs);
        self
    }

    /// An attribute.
    pub fn attr(mut self, name: &str, value: impl Into<Attr>) -> Self {
        self.attrs.insert(name.to_string(), value.into());
        self
    }

    /// A node that must have run before.
    pub fn control(mut self, node: NodeId) -> Self {
        self.controls.push(node);
        self
    }

    /// A device, whatever the scopes say.
    pub fn device(mut self, device: impl Into<String>) -> Self {
        self.device = Some(device.into());
        self
    }

    /// Adds the node.
    pub fn build(self) -> Result<NodeId> {
        self.scope.add(self)
    }

    /// Adds the node; its first output.
    pub fn output(self) -> Result<Output> {
        Ok(Output { node: self.build()?, index: 0 })
    }

    /// Adds the node; all its outputs.
    pub fn outputs(self) -> Result<Vec<Output>> {
        let scope = self.scope;
        let node = self.build()?;
        let count = scope.with_graph(|g| g.node(node).outputs.len());
        Ok((0..count as u32).map(|index| Output { node, index }).collect())
    }
}

/// A scalar of any numeric element type.
pub fn scalar_of(dtype: DType, value: f64) -> Result<Tensor> {
    use tensor::{Complex, bf16, f16};
    Ok(match dtype {
        DType::F16 => f16::from_f64(value).into(),
        DType::BF16 => bf16::from_f64(value).into(),
        DType::F32 => (value as f32).into(),
        DType::F64 => value.into(),
        DType::I8 => (value as i8).into(),
        DType::I16 => (value as i16).into(),
        DType::I32 => (value as i32).into(),
        DType::I64 => (value as i64).into(),
        DType::U8 => (value as u8).into(),
        DType::U16 => (value as u16).into(),
        DType::U32 => (value as u32).into(),
        DType::U64 => (value as u64).into(),
        DType::Bool => (value != 0.0).into(),
        DType::C64 => Complex::new(value as f32, 0.0).into(),
        DType::C128 => Complex::new(value, 0.0).into(),
        other => return Err(invalid!("there is no number of type {other}")),
    })
}

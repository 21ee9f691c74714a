//! `Variable`: a value that lives from run to run.
//!
//! Nodes are named as TensorFlow names them, so that checkpoints fit: `w`, `w/Assign`, `w/read` for reference
//! variables; `w`, `w/IsInitialized/VarIsInitializedOp`, `w/Assign`, `w/Read/ReadVariableOp` for resource variables.

use crate::graph::group;
use crate::initializers::Initializer;
use crate::operators::Operand;
use crate::partitioned::SaveSlice;
use crate::{Graph, Operation, Output};
use framework::{Attr, NodeId, Scope};
use std::ops::Deref;
use std::sync::Arc;
use tensor::{DType, PartialShape, Result, Shape, Tensor, already_exists, invalid};

/// A value that lives from run to run; used like the `Output` that reads it.
///
/// ```
/// use ferroflow::prelude::*;
///
/// let g = Graph::new();
/// let w = g.variable("w", [1.0f32, 2.0]);
/// let doubled = w.assign(&w * 2.0);
/// let init = g.initialize_all();
///
/// let session = Session::new(&g)?;
/// session.run(&init)?;
/// session.run(&doubled)?;
/// assert_eq!(session.run(&w)?, Tensor::from([2.0f32, 4.0]));
/// # Ok::<(), ferroflow::Error>(())
/// ```
#[derive(Clone)]
pub struct Variable {
    inner: Arc<Inner>,
}

struct Inner {
    /// What reads the value.
    read: Output,
    /// The reference or handle that updates take.
    place: Output,
    initial: Output,
    initializer: Operation,
    is_resource: bool,
    /// Which part of a tensor in a checkpoint it is; all of the one with its name if nothing.
    slice: Option<SaveSlice>,
}

/// What a variable starts as: a value, something built, or an initializer.
pub enum Initial {
    /// A value known now.
    Value(Tensor),
    /// A value that the graph computes.
    Built(Output),
    /// A rule such as `zeros([784, 100])`.
    Rule(Initializer),
}

impl<T: Into<Tensor>> From<T> for Initial {
    fn from(value: T) -> Initial {
        Initial::Value(value.into())
    }
}

impl From<Output> for Initial {
    fn from(output: Output) -> Initial {
        Initial::Built(output)
    }
}

impl From<&Output> for Initial {
    fn from(output: &Output) -> Initial {
        Initial::Built(output.clone())
    }
}

impl From<Initializer> for Initial {
    fn from(initializer: Initializer) -> Initial {
        Initial::Rule(initializer)
    }
}

/// How a variable differs from the ordinary: `VariableOptions { trainable: false, ..Default::default() }`.
#[derive(Clone, Copy, Debug)]
pub struct VariableOptions {
    /// Whether optimizers change it unless told otherwise.
    pub trainable: bool,
    /// Whether every task keeps one for itself, outside checkpoints.
    pub local: bool,
    /// Whether it is a resource variable; the graph's choice if not said.
    pub resource: Option<bool>,
}

impl Default for VariableOptions {
    fn default() -> VariableOptions {
        VariableOptions { trainable: true, local: false, resource: None }
    }
}

/// The variables of a graph.
#[derive(Default)]
pub(crate) struct Collections {
    pub(crate) global: Vec<Variable>,
    pub(crate) trainable: Vec<Variable>,
    pub(crate) local: Vec<Variable>,
    pub(crate) global_step: Option<Variable>,
    pub(crate) summaries: Vec<Output>,
    pub(crate) use_resource: bool,
    pub(crate) queue_runners: Vec<crate::train::QueueRunner>,
}

impl Graph {
    /// A trainable variable. Its name must be new.
    #[track_caller]
    pub fn variable(&self, name: &str, initial: impl Into<Initial>) -> Variable {
        self.variable_with(name, initial, VariableOptions::default())
    }

    /// A trainable resource variable.
    #[track_caller]
    pub fn resource_variable(&self, name: &str, initial: impl Into<Initial>) -> Variable {
        self.variable_with(name, initial, VariableOptions { resource: Some(true), ..Default::default() })
    }

    /// A variable that is not ordinary.
    #[track_caller]
    pub fn variable_with(&self, name: &str, initial: impl Into<Initial>, options: VariableOptions) -> Variable {
        let initial = initial.into();
        let built = claim_name(self.scope(), name).and_then(|full| self.make_variable(full, &initial, options));
        self.kept(built).unwrap_or_else(|| Variable::void(self))
    }

    /// Makes variables resource variables from now on, or reference variables again.
    pub fn use_resource_variables(&self, yes: bool) {
        self.collections().lock().use_resource = yes;
    }

    /// The graph's count of training steps, made on first use: an int64 variable called `global_step`. A variable of
    /// that name made before is taken for it.
    #[track_caller]
    pub fn global_step(&self) -> Variable {
        if let Some(step) = self.known_global_step() {
            return step;
        }
        let zero = crate::initializers::zeros([]).dtype(DType::I64);
        let s = self.scope();
        let options = VariableOptions { trainable: false, ..Default::default() };
        let name = s.with_absolute_name("", || claim_name(s, "global_step"));
        let built = name.and_then(|full| self.make_variable(full, &zero.into(), options));
        let step = self.kept(built).unwrap_or_else(|| Variable::void(self));
        self.collections().lock().global_step = Some(step.clone());
        step
    }

    /// The count of training steps, if there is one already.
    pub(crate) fn known_global_step(&self) -> Option<Variable> {
        let known = self.collections().lock().global_step.clone();
        known.or_else(|| self.global_variables().into_iter().find(|v| v.name() == "global_step"))
    }

    /// Gives every variable made so far its initial value.
    #[track_caller]
    pub fn initialize_all(&self) -> Operation {
        let variables = self.global_variables();
        self.initialize(&variables)
    }

    /// Gives the variables that every task keeps for itself their initial values.
    #[track_caller]
    pub fn initialize_local(&self) -> Operation {
        let variables = self.local_variables();
        self.initialize(&variables)
    }

    /// Gives these variables their initial values.
    #[track_caller]
    pub fn initialize(&self, variables: &[Variable]) -> Operation {
        let nodes: Option<Vec<NodeId>> =
            self.here(|| variables.iter().map(|v| self.own_node(v.initializer())).collect());
        match nodes {
            Some(nodes) => self.operation([], |s, []| group(s, "init", &nodes)),
            None => Operation::void(self),
        }
    }

    /// A variable under a full name that was claimed before.
    pub(crate) fn make_variable(&self, full: String, initial: &Initial, options: VariableOptions) -> Result<Variable> {
        self.make_part(full, initial, options, None)
    }

    /// The same, for one that is a part of a tensor in checkpoints.
    pub(crate) fn make_part(
        &self,
        full: String,
        initial: &Initial,
        options: VariableOptions,
        slice: Option<SaveSlice>,
    ) -> Result<Variable> {
        let is_resource = options.resource.unwrap_or_else(|| self.collections().lock().use_resource);
        let s = self.scope();
        let (initial, place, initializer, read) = s.without_control(|| build_nodes(s, &full, initial, is_resource))?;
        let output = |id| Output::new(self, Some(id));
        let variable = Variable {
            inner: Arc::new(Inner {
                read: output(read),
                place: output(place),
                initial: output(initial),
                initializer: Operation::new(self, Some(initializer)),
                is_resource,
                slice,
            }),
        };
        let mut collections = self.collections().lock();
        if options.local {
            collections.local.push(variable.clone());
        } else {
            collections.global.push(variable.clone());
        }
        if options.trainable {
            collections.trainable.push(variable.clone());
        }
        Ok(variable)
    }

    /// The resource variable that this output reads, if it does.
    pub(crate) fn handle_behind(&self, read: framework::Output) -> Option<framework::Output> {
        let collections = self.collections().lock();
        let all = collections.global.iter().chain(&collections.local);
        all.filter(|v| v.is_resource()).find(|v| v.inner.read.id() == Some(read)).and_then(|v| v.inner.place.id())
    }
}

/// The full name of a new variable; an error if it is taken.
fn claim_name(s: &Scope, name: &str) -> Result<String> {
    let full = s.unique_name(name);
    let prefix = s.current_name();
    let wanted = if prefix.is_empty() { name.to_string() } else { format!("{prefix}/{name}") };
    if full != wanted {
        return Err(already_exists!("Variable {wanted} already exists; a variable's name must be new"));
    }
    Ok(full)
}

type Nodes = (framework::Output, framework::Output, NodeId, framework::Output);

fn build_nodes(s: &Scope, full: &str, initial: &Initial, is_resource: bool) -> Result<Nodes> {
    let first = s.with_graph(|g| g.len());
    let initial_value = match initial {
        Initial::Value(value) => s.with_absolute_name(full, || {
            s.node("Const").name("initial_value").attr("dtype", value.dtype()).attr("value", value.clone()).output()
        })?,
        Initial::Built(output) => output.id().ok_or_else(|| invalid!("the initial value of {full} was not built"))?,
        Initial::Rule(rule) => {
            s.without_device(|| s.with_absolute_name(&format!("{full}/Initializer"), || rule.build(s)))?
        }
    };
    let last = s.with_graph(|g| g.len());
    let info = s.info(initial_value)?;
    let shape = info.shape.known().ok_or_else(|| {
        invalid!("initial_value must have a shape specified: that of {full} has shape {}", info.shape)
    })?;
    let nodes = if is_resource {
        resource_nodes(s, full, initial_value, info.dtype, shape)?
    } else {
        reference_nodes(s, full, initial_value, info.dtype, shape)?
    };
    if let Initial::Rule(_) = initial {
        // What the rule built goes where the variable went, which was not known before its shape was.
        s.edit_graph(|g| {
            let device = g.node(nodes.1.node).device.clone();
            for node in (first..last).map(|i| NodeId(i as u32)) {
                g.annotate(node, "_class", Attr::Strings(vec![format!("loc:@{full}").into()]));
                g.set_device(node, device.clone());
            }
        });
    }
    Ok(nodes)
}

fn reference_nodes(s: &Scope, full: &str, initial: framework::Output, dtype: DType, shape: Shape) -> Result<Nodes> {
    let shape = PartialShape::from(shape);
    let place = s.node("VariableV2").name(format!("{full}/")).attr("dtype", dtype).attr("shape", shape).output()?;
    s.with_absolute_name(full, || {
        s.colocated_with(place.node, || {
            let assign = s.node("Assign").inputs(&[place, initial]).build()?;
            let read = s.node("Identity").name("read").input(place).output()?;
            Ok((initial, place, assign, read))
        })
    })
}

fn resource_nodes(s: &Scope, full: &str, initial: framework::Output, dtype: DType, shape: Shape) -> Result<Nodes> {
    let handle =
        s.node("VarHandleOp").name(format!("{full}/")).attr("dtype", dtype).attr("shape", PartialShape::from(shape));
    let place = handle.attr("shared_name", full).output()?;
    let device = s.with_graph(|g| g.node(place.node).device.clone());
    s.with_absolute_name(full, || {
        s.node("VarIsInitializedOp").name("IsInitialized/VarIsInitializedOp").input(place).device(&*device).build()?;
        let assign = s.node("AssignVariableOp").name("Assign").inputs(&[place, initial]).device(&*device).build()?;
        let read = s.node("ReadVariableOp").name("Read/ReadVariableOp").input(place).attr("dtype", dtype);
        Ok((initial, place, assign, read.device(&*device).output()?))
    })
}

impl Variable {
    fn void(graph: &Graph) -> Variable {
        let void = Output::void(graph);
        let initializer = Operation::void(graph);
        let inner = Inner {
            read: void.clone(),
            place: void.clone(),
            initial: void,
            initializer,
            is_resource: false,
            slice: None,
        };
        Variable { inner: Arc::new(inner) }
    }

    /// A variable whose nodes are there already.
    pub(crate) fn assemble(
        read: Output,
        place: Output,
        initial: Output,
        initializer: Operation,
        is_resource: bool,
        slice: Option<SaveSlice>,
    ) -> Variable {
        Variable { inner: Arc::new(Inner { read, place, initial, initializer, is_resource, slice }) }
    }

    /// Whether both are handles on the same variable.
    pub(crate) fn is_same(&self, other: &Variable) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// The variable's name, which is also its name in checkpoints, unless it is a part of a partitioned variable.
    pub fn name(&self) -> String {
        self.inner.place.name()
    }

    /// Gives it its initial value.
    pub fn initializer(&self) -> &Operation {
        &self.inner.initializer
    }

    /// What it starts as.
    pub fn initial_value(&self) -> &Output {
        &self.inner.initial
    }

    /// Whether it is a resource variable, rather than a reference variable.
    pub fn is_resource(&self) -> bool {
        self.inner.is_resource
    }

    /// Which part of a tensor in a checkpoint it is.
    pub(crate) fn save_slice(&self) -> Option<&SaveSlice> {
        self.inner.slice.as_ref()
    }

    /// The reference or handle itself, as ops that update variables take it.
    pub fn place(&self) -> &Output {
        &self.inner.place
    }

    /// Reads it anew: under the control dependencies now in force, where the variable itself is read at any time.
    #[track_caller]
    pub fn read(&self) -> Output {
        let dtype = self.dtype();
        self.graph().output([self.place()], |s, [place]| match self.is_resource() {
            true => s.node("ReadVariableOp").input(place).attr("dtype", dtype).output(),
            false => s.node("Identity").input(place).output(),
        })
    }

    /// Replaces the value.
    #[track_caller]
    pub fn assign(&self, value: impl Operand) -> Operation {
        self.update("Assign", "AssignVariableOp", value)
    }

    /// Adds to the value.
    #[track_caller]
    pub fn assign_add(&self, value: impl Operand) -> Operation {
        self.update("AssignAdd", "AssignAddVariableOp", value)
    }

    /// Subtracts from the value.
    #[track_caller]
    pub fn assign_sub(&self, value: impl Operand) -> Operation {
        self.update("AssignSub", "AssignSubVariableOp", value)
    }

    #[track_caller]
    fn update(&self, by_reference: &str, by_handle: &str, value: impl Operand) -> Operation {
        let value = value.output_like(self, "value");
        let op = if self.is_resource() { by_handle } else { by_reference };
        self.graph().operation([self.place(), &value], |s, inputs| update(s, op, by_reference, inputs))
    }

    /// Whether it has a value yet.
    #[track_caller]
    pub fn is_initialized(&self) -> Output {
        let op = if self.is_resource() { "VarIsInitializedOp" } else { "IsVariableInitialized" };
        self.graph().output([self.place()], |s, [place]| s.colocated_with(place.node, || s.op(op, &[place])))
    }

    /// Some of its rows; the gradient touches those rows only.
    #[track_caller]
    pub fn gather(&self, indices: &Output) -> Output {
        if !self.is_resource() {
            return Output::gather(self, indices);
        }
        let dtype = self.dtype();
        self.graph().output([self.place(), indices], |s, [place, indices]| {
            let device = s.with_graph(|g| g.node(place.node).device.clone());
            s.node("ResourceGather").inputs(&[place, indices]).attr("dtype", dtype).device(device).output()
        })
    }

    /// The rows for these ids, on the device that holds the table.
    #[track_caller]
    pub fn embedding_lookup(&self, ids: &Output) -> Output {
        let graph = self.graph().clone();
        let rows = graph.here(|| {
            graph.name_scope("embedding_lookup", || match self.id() {
                Some(id) => graph.scope().colocated_with(id.node, || self.gather(ids)),
                None => Output::void(&graph),
            })
        });
        rows.identity()
    }

    /// The ids that updates need: what updates take, and the node to sit beside.
    pub(crate) fn place_id(&self) -> Result<framework::Output> {
        self.inner.place.id().ok_or_else(|| invalid!("a variable that was not built"))
    }
}

/// A node that updates a variable, beside it.
pub(crate) fn update(s: &Scope, op: &str, name: &str, inputs: [framework::Output; 2]) -> Result<NodeId> {
    s.colocated_with(inputs[0].node, || s.node(op).name(name).inputs(&inputs).build())
}

impl Deref for Variable {
    type Target = Output;
    fn deref(&self) -> &Output {
        &self.inner.read
    }
}

impl AsRef<Output> for Variable {
    fn as_ref(&self) -> &Output {
        self
    }
}

impl From<&Variable> for Output {
    fn from(variable: &Variable) -> Output {
        Output::clone(variable)
    }
}

impl std::fmt::Debug for Variable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}{}", self.name(), self.dtype(), self.shape())
    }
}

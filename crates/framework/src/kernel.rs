//! Kernels: what computes a node, and what it sees while computing.

use crate::attr::FromAttr;
use crate::call::{Function, Functions};
use crate::device::Device;
use crate::env::Env;
use crate::graph::{NameAttrList, Node};
use crate::rendezvous::{Delivery, RendezvousKey};
use crate::resource::{Resource, Resources, Variable};
use crate::step::StepContext;
use linalg::parallel::Pool;
use smallvec::SmallVec;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use tensor::{DType, Element, OwnedTensor, Result, Shape, Tensor, failed_precondition, invalid};

/// A future that owns what it needs.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;
/// A node's outputs.
pub type Outputs = SmallVec<[Value; 4]>;

/// What flows along an edge.
#[derive(Clone, Default)]
pub enum Value {
    /// Nothing yet, or taken already.
    #[default]
    Empty,
    /// A tensor.
    Tensor(Tensor),
    /// A reference to a variable: TF1's reference edges.
    Ref(Arc<Variable>),
    /// The branch that would have made this value was not taken.
    Dead,
}

impl From<Delivery> for Value {
    fn from(delivery: Delivery) -> Value {
        match delivery {
            Delivery::Tensor(tensor) => Value::Tensor(tensor),
            Delivery::Dead => Value::Dead,
        }
    }
}

impl Value {
    /// Whether the branch was not taken.
    #[inline]
    pub fn is_dead(&self) -> bool {
        matches!(self, Value::Dead)
    }

    /// The tensor itself, read from the variable if this is a reference.
    pub fn tensor(&self) -> Result<Tensor> {
        match self {
            Value::Tensor(tensor) => Ok(tensor.clone()),
            Value::Ref(variable) => variable.read(),
            Value::Empty | Value::Dead => Err(invalid!("there is no value here")),
        }
    }
}

/// Computes a node. Made once per node, used by many steps, also at the same time.
pub trait Kernel: Send + Sync {
    /// Fills the outputs. Must not block.
    fn compute(&self, ctx: &mut KernelContext<'_>) -> Result<()>;
}

/// Computes a node that may have to wait: a receive, a queue.
pub trait AsyncKernel: Send + Sync {
    /// Does it at once if nothing has to be waited for.
    fn try_compute(&self, ctx: &mut KernelContext<'_>) -> Option<Result<()>> {
        let _ = ctx;
        None
    }

    /// Does it, waiting. To cancel is to drop the future: it then leaves no trace in whatever it waited for.
    fn compute(&self, ctx: AsyncContext) -> BoxFuture<Result<Outputs>>;

    /// What it takes from the step's rendezvous outside of loops, if that is all it does.
    fn receives(&self) -> Option<&RendezvousKey> {
        None
    }
}

/// A kernel of either sort.
#[derive(Clone)]
pub enum BuiltKernel {
    /// Never waits.
    Sync(Arc<dyn Kernel>),
    /// May wait.
    Async(Arc<dyn AsyncKernel>),
}

impl BuiltKernel {
    /// A kernel that never waits.
    pub fn new(kernel: impl Kernel + 'static) -> BuiltKernel {
        BuiltKernel::Sync(Arc::new(kernel))
    }

    /// A kernel that may wait.
    pub fn new_async(kernel: impl AsyncKernel + 'static) -> BuiltKernel {
        BuiltKernel::Async(Arc::new(kernel))
    }
}

/// What a kernel may know while it is made.
pub struct KernelBuild<'a> {
    /// The node to compute.
    pub node: &'a Node,
    /// The device it will run on.
    pub device: &'a Arc<dyn Device>,
    /// Time and randomness.
    pub env: &'a Arc<dyn Env>,
    /// The functions it may call.
    pub functions: &'a Arc<dyn Functions>,
}

impl KernelBuild<'_> {
    /// An attribute of the node. Attributes were checked against the op's definition, so one is only missing if the
    /// definition lacks it.
    pub fn attr<T: FromAttr>(&self, name: &str) -> Result<T> {
        self.node.attr(name)
    }

    /// The function that an attribute of the node names.
    pub fn function(&self, name: &str) -> Result<Function> {
        Ok(Function::new(self.attr(name)?, self.functions.clone()))
    }

    /// The functions that an attribute of the node lists.
    pub fn function_list(&self, name: &str) -> Result<Vec<Function>> {
        let names: Vec<NameAttrList> = self.attr(name)?;
        Ok(names.into_iter().map(|f| Function::new(f, self.functions.clone())).collect())
    }

    /// A type attribute of the node.
    pub fn dtype(&self, name: &str) -> Result<DType> {
        self.node.attr(name)
    }
}

/// What a kernel sees while it computes.
pub struct KernelContext<'a> {
    node: &'a Node,
    device: &'a Arc<dyn Device>,
    step: &'a Arc<StepContext>,
    /// The frame and iteration the node runs in; zeros outside loops.
    frame: (u64, u64),
    inputs: &'a mut [Value],
    outputs: &'a mut [Value],
}

impl<'a> KernelContext<'a> {
    /// For the executor, and for tests that run one kernel.
    #[inline]
    pub fn new(
        node: &'a Node,
        device: &'a Arc<dyn Device>,
        step: &'a Arc<StepContext>,
        frame: (u64, u64),
        inputs: &'a mut [Value],
        outputs: &'a mut [Value],
    ) -> KernelContext<'a> {
        KernelContext { node, device, step, frame, inputs, outputs }
    }

    /// The node being computed.
    pub fn node(&self) -> &'a Node {
        self.node
    }

    /// The device it runs on.
    pub fn device(&self) -> &'a Arc<dyn Device> {
        self.device
    }

    /// The step it belongs to.
    #[inline]
    pub fn step(&self) -> &'a Arc<StepContext> {
        self.step
    }

    /// The frame and iteration it runs in.
    #[inline]
    pub fn frame(&self) -> (u64, u64) {
        self.frame
    }

    /// What to run loops in parallel with.
    #[inline]
    pub fn pool(&self) -> &'a Pool {
        self.device.pool()
    }

    /// The resources of the device.
    pub fn resources(&self) -> &'a Resources {
        self.device.resources()
    }

    /// The number of inputs.
    #[inline]
    pub fn num_inputs(&self) -> usize {
        self.inputs.len()
    }

    /// The number of outputs.
    pub fn num_outputs(&self) -> usize {
        self.outputs.len()
    }

    /// An input. The executor has read references where the op wants values, so this is a tensor.
    #[inline]
    pub fn input(&self, index: usize) -> &Tensor {
        match &self.inputs[index] {
            Value::Tensor(tensor) => tensor,
            _ => panic!("input {index} of {} is not a tensor: taken twice, or a reference", self.node.name),
        }
    }

    /// The inputs in a range, for list arguments.
    pub fn input_list(&self, range: std::ops::Range<usize>) -> impl ExactSizeIterator<Item = &Tensor> + Clone {
        range.map(|i| self.input(i))
    }

    /// An input as it flows along the edge.
    pub fn input_value(&self, index: usize) -> &Value {
        &self.inputs[index]
    }

    /// Takes an input away: if nobody else holds it, its memory can become an output.
    #[inline]
    pub fn take(&mut self, index: usize) -> Tensor {
        match std::mem::take(&mut self.inputs[index]) {
            Value::Tensor(tensor) => tensor,
            _ => panic!("input {index} of {} is not a tensor: taken twice, or a reference", self.node.name),
        }
    }

    /// Takes an input away as it flows along the edge.
    pub fn take_value(&mut self, index: usize) -> Value {
        std::mem::take(&mut self.inputs[index])
    }

    /// Gives back an input that was taken.
    pub fn put_back(&mut self, index: usize, tensor: Tensor) {
        self.inputs[index] = Value::Tensor(tensor);
    }

    /// Takes an input to write to: its own memory when nobody else holds it, a copy otherwise.
    #[inline]
    pub fn take_input<T: Element>(&mut self, index: usize) -> Result<OwnedTensor<T>> {
        self.take(index).into_owned()
    }

    /// Takes an input to overwrite completely: its own memory when nobody else holds it, fresh memory otherwise.
    #[inline]
    pub fn reuse_input<T: Element>(&mut self, index: usize) -> Result<OwnedTensor<T>> {
        if self.input(index).dtype() == T::DTYPE {
            let mut taken = self.take(index);
            if taken.is_unique() {
                return taken.into_owned();
            }
            let shape = taken.shape().clone();
            self.put_back(index, taken);
            return OwnedTensor::new(shape);
        }
        OwnedTensor::new(self.input(index).shape().clone())
    }

    /// Memory for an output; what it holds is arbitrary until written.
    pub fn allocate<T: Element>(&self, shape: impl Into<Shape>) -> Result<OwnedTensor<T>> {
        OwnedTensor::new(shape)
    }

    /// Sets an output.
    #[inline]
    pub fn set_output(&mut self, index: usize, tensor: impl Into<Tensor>) -> Result<()> {
        self.set_value(index, Value::Tensor(tensor.into()))
    }

    /// Takes back an output that was set: for a kernel that goes on where another ended.
    pub fn take_output(&mut self, index: usize) -> Result<Tensor> {
        match std::mem::take(&mut self.outputs[index]) {
            Value::Tensor(tensor) => Ok(tensor),
            _ => Err(tensor::internal!("output {index} was not set")),
        }
    }

    /// Sets an output to whatever flows along edges.
    #[inline]
    pub fn set_value(&mut self, index: usize, value: Value) -> Result<()> {
        self.outputs[index] = value;
        Ok(())
    }

    /// The variable a reference input refers to.
    pub fn variable(&self, index: usize) -> Result<&Arc<Variable>> {
        match &self.inputs[index] {
            Value::Ref(variable) => Ok(variable),
            _ => Err(invalid!("input {index} is not a reference to a variable")),
        }
    }

    /// The resource a handle input names.
    pub fn resource<R: Resource>(&self, index: usize) -> Result<Arc<R>> {
        let handle = match self.input(index).as_handles()? {
            [handle] => handle,
            other => return Err(invalid!("input {index} holds {} resource handles, wanted one", other.len())),
        };
        self.resources().resolve(handle)
    }

    /// The variable that input `index` refers to or names: reference and resource variables alike.
    pub fn any_variable(&self, index: usize) -> Result<Arc<Variable>> {
        match &self.inputs[index] {
            Value::Ref(variable) => Ok(variable.clone()),
            _ => self.resource::<Variable>(index).map_err(|e| {
                let name = self.input(index).as_handles().ok().and_then(|h| h.first().map(|h| (h.name.clone(), h.container.clone())));
                let (name, container) = name.unwrap_or_default();
                failed_precondition!(
                    "Could not find variable {name}. This could mean that the variable has been deleted. In TF1, it can \
                     also mean the variable is uninitialized. Debug info: container={container}, status error message={}",
                    e.message
                )
            }),
        }
    }

    /// For kernels that go on as a future: everything, owned.
    pub fn to_async(&mut self) -> AsyncContext {
        AsyncContext {
            device: self.device.clone(),
            step: self.step.clone(),
            frame: self.frame,
            inputs: self.inputs.iter_mut().map(std::mem::take).collect(),
        }
    }
}

/// What a kernel that waits owns while it waits.
pub struct AsyncContext {
    /// The device it runs on.
    pub device: Arc<dyn Device>,
    /// The step it belongs to.
    pub step: Arc<StepContext>,
    /// The frame and iteration it runs in.
    pub frame: (u64, u64),
    /// The inputs.
    pub inputs: Outputs,
}

impl AsyncContext {
    /// An input tensor.
    pub fn input(&self, index: usize) -> Result<Tensor> {
        self.inputs[index].tensor()
    }
}

/// A plain function as a kernel, for ops without attributes to remember.
pub struct FnKernel<F>(pub F);

impl<F: Fn(&mut KernelContext<'_>) -> Result<()> + Send + Sync> Kernel for FnKernel<F> {
    fn compute(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        (self.0)(ctx)
    }
}

/// A kernel that is a plain function of its context, whatever the element type.
pub fn function(f: fn(&mut KernelContext<'_>) -> Result<()>) -> crate::op::KernelFn {
    Arc::new(move |_| Ok(BuiltKernel::new(FnKernel(f))))
}

/// A kernel made by `build` from the node's attributes, whatever the element type.
pub fn kernel<K: Kernel + 'static>(build: fn(&KernelBuild<'_>) -> Result<K>) -> crate::op::KernelFn {
    Arc::new(move |b| Ok(BuiltKernel::new(build(b)?)))
}

/// A waiting kernel made by `build` from the node's attributes.
pub fn async_kernel<K: AsyncKernel + 'static>(build: fn(&KernelBuild<'_>) -> Result<K>) -> crate::op::KernelFn {
    Arc::new(move |b| Ok(BuiltKernel::new_async(build(b)?)))
}

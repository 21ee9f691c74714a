//! Runs a graph node by node on the calling thread: the slow, obvious way.
//!
//! Constant folding uses it on small pieces, and tests compare faster execution with it. It knows branches that are
//! not taken, but no loops.

use crate::call::{Call, Function, Functions, NoFunctions};
use crate::device::Device;
use crate::env::Env;
use crate::graph::{Graph, NameAttrList, Node, NodeId, Output, sources};
use crate::kernel::{BoxFuture, BuiltKernel, KernelBuild, KernelContext, Value};
use crate::op::ControlFlow;
use crate::rendezvous::{Delivery, Rendezvous, RendezvousKey};
use crate::step::StepContext;
use linalg::denormals::FlushDenormals;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use tensor::{Error, Result, Tensor, internal, invalid, unsupported};

/// Keeps the kernels of a graph between runs, as stateful ones require.
pub struct Interpreter {
    device: Arc<dyn Device>,
    env: Arc<dyn Env>,
    functions: Arc<dyn Functions>,
    kernels: Mutex<HashMap<String, BuiltKernel>>,
}

impl Interpreter {
    /// An interpreter on this device.
    pub fn new(device: Arc<dyn Device>, env: Arc<dyn Env>) -> Interpreter {
        Interpreter { device, env, functions: Arc::new(NoFunctions), kernels: Mutex::default() }
    }

    /// The values of `fetches`, and whatever happens on the way to `targets`, given some outputs' values.
    pub fn run(
        &self,
        graph: &Graph,
        feeds: &HashMap<Output, Tensor>,
        fetches: &[Output],
        targets: &[NodeId],
    ) -> Result<Vec<Tensor>> {
        let _flush = FlushDenormals::here();
        let step = Arc::new(StepContext::new(1, Arc::new(Mailbox::default()), self.env.clone(), None));
        let mut needed = vec![false; graph.len()];
        let mut todo: Vec<NodeId> = fetches.iter().filter(|f| !feeds.contains_key(f)).map(|f| f.node).collect();
        todo.extend(targets);
        while let Some(id) = todo.pop() {
            if !std::mem::replace(&mut needed[id.index()], true) {
                let node = graph.node(id);
                todo.extend(node.inputs.iter().filter(|i| !feeds.contains_key(i)).map(|i| i.node));
                todo.extend(&node.control_inputs);
            }
        }
        let mut values: HashMap<Output, Value> = feeds.iter().map(|(o, t)| (*o, Value::Tensor(t.clone()))).collect();
        let mut dead = vec![false; graph.len()];
        for id in graph.in_topological_order()?.into_iter().filter(|id| needed[id.index()]) {
            let node = graph.node(id);
            let inputs = node
                .inputs
                .iter()
                .map(|i| values.get(i).cloned().ok_or_else(|| internal!("no value for an input of {}", node.name)));
            let inputs: Vec<Value> = inputs.collect::<Result<_>>()?;
            let dead_control = node.control_inputs.iter().any(|c| dead[c.index()]);
            let outputs = self
                .node(node, inputs, dead_control, &step)
                .map_err(|e| e.context(format_args!("[[{{{{node {}}}}}]]", node.name)))?;
            dead[id.index()] = if outputs.is_empty() {
                dead_control || sources(node).any(|s| dead[s.index()])
            } else {
                outputs.iter().all(Value::is_dead)
            };
            for (index, value) in outputs.into_iter().enumerate() {
                values.entry(Output { node: id, index: index as u32 }).or_insert(value);
            }
        }
        fetches
            .iter()
            .map(|f| values.get(f).ok_or_else(|| invalid!("{} has no such output", graph.output_name(*f)))?.tensor())
            .collect()
    }

    /// The outputs of a single stateless node, given its inputs.
    pub fn evaluate(&self, node: &Node, inputs: Vec<Tensor>) -> Result<Vec<Tensor>> {
        let _flush = FlushDenormals::here();
        let step = Arc::new(StepContext::new(1, Arc::new(Mailbox::default()), self.env.clone(), None));
        let mut inputs: Vec<Value> = inputs.into_iter().map(Value::Tensor).collect();
        let mut outputs = vec![Value::Empty; node.outputs.len()];
        let BuiltKernel::Sync(kernel) = build_kernel(node, &self.device, &self.env, &self.functions)? else {
            return Err(unsupported!("'{}' may have to wait", node.name));
        };
        kernel.compute(&mut KernelContext::new(node, &self.device, &step, (0, 0), &mut inputs, &mut outputs))?;
        outputs.iter().map(Value::tensor).collect()
    }

    fn node(
        &self,
        node: &Node,
        mut inputs: Vec<Value>,
        dead_control: bool,
        step: &Arc<StepContext>,
    ) -> Result<Vec<Value>> {
        let count = node.outputs.len();
        match node.op.control_flow {
            ControlFlow::Merge if !dead_control => {
                let alive = inputs.iter().position(|v| !v.is_dead());
                return Ok(match alive {
                    Some(i) => vec![std::mem::take(&mut inputs[i]), Value::Tensor(Tensor::scalar(i as i32))],
                    None => vec![Value::Dead; count],
                });
            }
            ControlFlow::Enter | ControlFlow::Exit | ControlFlow::NextIteration => {
                return Err(unsupported!("'{}' belongs to a loop", node.name));
            }
            ControlFlow::ControlTrigger => {}
            _ if dead_control || inputs.iter().any(Value::is_dead) => return Ok(vec![Value::Dead; count]),
            ControlFlow::Switch => {
                let taken = usize::from(inputs[1].tensor()?.item::<bool>()?);
                let mut outputs = vec![Value::Dead; 2];
                outputs[taken] = std::mem::take(&mut inputs[0]);
                return Ok(outputs);
            }
            _ => {}
        }
        read_references(node, &mut inputs)?;
        let mut outputs = vec![Value::Empty; count];
        let mut context = KernelContext::new(node, &self.device, step, (0, 0), &mut inputs, &mut outputs);
        match self.kernel(node)? {
            BuiltKernel::Sync(kernel) => kernel.compute(&mut context)?,
            BuiltKernel::Async(kernel) => match kernel.try_compute(&mut context) {
                Some(done) => done?,
                None => {
                    let future = kernel.compute(context.to_async());
                    outputs = poll_now(future, &node.name)?.into_vec();
                }
            },
        }
        Ok(outputs)
    }

    fn kernel(&self, node: &Node) -> Result<BuiltKernel> {
        if let Some(kernel) = self.kernels.lock().get(&node.name) {
            return Ok(kernel.clone());
        }
        let kernel = build_kernel(node, &self.device, &self.env, &self.functions)?;
        self.kernels.lock().insert(node.name.clone(), kernel.clone());
        Ok(kernel)
    }
}

/// Makes a node's kernel. A node of a function of the library calls that function.
pub fn build_kernel(
    node: &Node,
    device: &Arc<dyn Device>,
    env: &Arc<dyn Env>,
    functions: &Arc<dyn Functions>,
) -> Result<BuiltKernel> {
    let Some(make) = node.op.kernel.as_ref() else {
        if functions.contains(&node.op.name) {
            let name = NameAttrList { name: node.op.name.clone(), attrs: node.attrs.clone() };
            return Ok(BuiltKernel::new_async(Call(Function::new(name, functions.clone()))));
        }
        return Err(invalid!(
            "No OpKernel was registered to support Op '{}' used by node '{}'",
            node.op.name,
            node.name
        ));
    };
    make(&KernelBuild { node, device, env, functions })
        .map_err(|e| e.context(format_args!("[[{{{{node {}}}}}]]", node.name)))
}

/// Where an op wants a value and a reference arrives, reads the variable.
fn read_references(node: &Node, inputs: &mut [Value]) -> Result<()> {
    for (value, (_, wants_ref)) in inputs.iter_mut().zip(node.input_types()?) {
        if let Value::Ref(variable) = value {
            if !wants_ref && !node.op.passes_references {
                *value = Value::Tensor(variable.read()?);
            } else if !node.op.allows_uninitialized_input && !variable.is_initialized() {
                variable.read()?;
            }
        }
    }
    Ok(())
}

fn poll_now<T>(mut future: BoxFuture<Result<T>>, node: &str) -> Result<T> {
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result,
        Poll::Pending => Err(unsupported!("'{node}' would have to wait")),
    }
}

/// A meeting place for one thread.
#[derive(Default)]
struct Mailbox(Mutex<HashMap<RendezvousKey, Delivery>>);

impl Rendezvous for Mailbox {
    fn send(&self, key: &RendezvousKey, value: Delivery) -> Result<()> {
        self.0.lock().insert(key.clone(), value);
        Ok(())
    }
    fn try_recv(&self, key: &RendezvousKey) -> Option<Result<Delivery>> {
        self.0.lock().remove(key).map(Ok)
    }
    fn recv(&self, key: &RendezvousKey) -> BoxFuture<Result<Delivery>> {
        let found = self.0.lock().remove(key).ok_or_else(|| unsupported!("nothing was sent under {key}"));
        Box::pin(std::future::ready(found))
    }
    fn abort(&self, _: Error) {}
}

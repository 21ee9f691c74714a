//! The vocabulary every other crate speaks: graphs, ops, kernels, devices.
//!
//! Nothing here touches files, sockets or threads, and nothing knows a particular op.

pub mod attr;
pub mod call;
pub mod device;
pub mod env;
pub mod fast;
pub mod gradient;
pub mod graph;
pub mod interpret;
pub mod kernel;
mod numbered;
pub mod op;
pub mod participant;
pub mod registry;
pub mod rendezvous;
pub mod resource;
pub mod scope;
pub mod shapes;
pub mod step;
pub mod typed;
mod widened;

pub use attr::{Attr, Attrs, FromAttr};
pub use call::{Callable, Function, Functions};
pub use device::{CpuDevice, Device, DeviceName, DeviceSpec};
pub use env::{Env, SystemEnv};
pub use fast::{FastMap, FastSet};
pub use gradient::{Grad, GradValue, IndexedSlices, gated_gradients, gradients};
pub use graph::{Graph, Node, NodeId, Output};
pub use kernel::{
    AsyncContext, AsyncKernel, BoxFuture, BuiltKernel, Kernel, KernelBuild, KernelContext, Outputs, Value,
};
pub use linalg::parallel::Pool;
pub use op::{ControlFlow, Op};
pub use participant::{Connection, LostWorker, Participant, Participants, Presence};
pub use registry::Registry;
pub use rendezvous::{Arrived, Asked, Delivery, Receiver, Rendezvous, RendezvousKey};
pub use resource::{ReferenceVariable, Resource, Resources, Variable};
pub use scope::Scope;
pub use shapes::InferenceContext;
pub use step::StepContext;
pub use typed::{Field, Float, Int, Item, Number, Real};

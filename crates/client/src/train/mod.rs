//! Training: what stands around the steps of a program that runs for long, on many tasks, and survives them.

mod coordinator;
mod device_setter;
pub mod hooks;
mod queue_runner;

pub use coordinator::Coordinator;
pub use device_setter::{GreedyLoadBalancing, PsStrategy, ReplicaDeviceSetter, RoundRobin, replica_device_setter};
pub use hooks::{Hook, RunArgs, RunContext, RunValues};
pub use queue_runner::{QueueRunner, start_queue_runners};

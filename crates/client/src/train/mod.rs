//! Training: what stands around the steps of a program that runs for long, on many tasks, and survives them.

mod checkpoints;
#[cfg(feature = "flags")]
mod cluster_flags;
mod coordinator;
mod device_setter;
pub mod hooks;
mod input;
mod leading;
mod meta_graph;
mod monitored_session;
mod queue_runner;
mod report;
mod saver;
mod scaffold;
mod session_manager;
#[cfg(feature = "flags")]
mod slurm;
mod supervisor;
mod sync_replicas;
mod towers;

pub use checkpoints::{CheckpointState, checkpoint_exists, checkpoint_state, latest_checkpoint, remove_checkpoint};
#[cfg(feature = "flags")]
pub use cluster_flags::{ClusterFlags, ClusterTask};
pub use coordinator::Coordinator;
pub use device_setter::{GreedyLoadBalancing, PsStrategy, ReplicaDeviceSetter, RoundRobin, replica_device_setter};
pub use framework::LostWorker;
pub use hooks::{Hook, RunArgs, RunContext, RunValues};
pub use input::{BatchOptions, ProducerOptions};
pub use meta_graph::{export_meta_graph, import_meta_graph};
pub use monitored_session::{MonitoredSession, MonitoredTrainingSession, StepContext};
pub use queue_runner::{QueueRunner, start_queue_runners};
pub use saver::{Saver, SaverBuilder};
pub use scaffold::{Scaffold, report_uninitialized_variables};
pub use session_manager::{Origin, Prepared, SessionManager};
#[cfg(feature = "flags")]
pub use slurm::slurm_allocation;
pub use supervisor::{Supervisor, SupervisorBuilder};
pub use sync_replicas::{SyncReplicas, SyncReplicasHook};
pub use towers::average_gradients;

//! Master and worker: they speak interfaces, never sockets.
//!
//! A [`Master`] holds sessions: it keeps each one's graph, plans each new run, and asks workers to execute their parts.
//! A [`Worker`] holds registered graphs and steps. [`LocalCluster`] is both in one process, joined in memory.

pub mod cluster;
pub mod interface;
pub mod local;
pub mod master;
mod nearest;
mod routes;
pub mod worker;

pub use cluster::{ClusterSpec, Network, Peers, TaskName};
pub use interface::{MasterInterface, RunStep, RunStepReply, WorkerInterface};
pub use local::LocalCluster;
pub use master::Master;
pub use nearest::nearest;
pub use runtime::brief;
pub use worker::Worker;

//! Master and worker over the network: the only crate that knows gRPC.
//!
//! On one side a [`Server`] answers calls with [`MasterService`], [`WorkerService`], [`TensorService`] and [`TaskService`],
//! each of which turns messages into calls of an interface. On the other [`RemoteMaster`] and [`RemoteWorker`] implement the same
//! interfaces by calls over a [`Channel`]. [`GrpcNetwork`] is how a task reaches its peers.
//!
//! gRPC is spoken directly on HTTP/2: all calls are unary, a tensor's bytes go from its own memory to the socket and from
//! the socket into aligned memory, and what went wrong on the way is not lost.

pub mod budget;
pub mod channel;
#[cfg(target_os = "linux")]
mod direct;
#[cfg(target_os = "linux")]
mod drive;
// Elsewhere nobody polls on a thread of his own.
#[cfg_attr(not(target_os = "linux"), expect(dead_code))]
mod errands;
pub mod fields;
pub mod forget;
mod freed;
pub mod grpc;
pub mod holder;
mod joined;
mod lend;
mod lent;
pub mod lost;
#[cfg(target_os = "linux")]
mod mapped;
pub mod master_service;
#[cfg(target_os = "linux")]
mod near;
pub mod network;
mod packed;
#[cfg(target_os = "linux")]
mod patience;
pub mod pieces;
mod push;
pub mod remote_master;
pub mod remote_worker;
pub mod request_ids;
pub mod runtime;
pub mod server;
pub mod small;
mod socket;
pub mod task_service;
pub mod worker_service;

pub use channel::{Channel, Lane};
#[cfg(target_os = "linux")]
pub use drive::{block_on, stay_in_background};
pub use master_service::MasterService;
pub use network::GrpcNetwork;
pub use remote_master::{RemoteMaster, RemoteOptions};
pub use remote_worker::RemoteWorker;
pub use server::{Listener, Server, Service};
pub use small::TensorService;
pub use task_service::{RemoteTask, TaskService, TaskStatus};
pub use worker_service::WorkerService;

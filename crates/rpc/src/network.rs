//! How a task reaches its peers.

use crate::channel::Channel;
use crate::errands;
use crate::remote_worker::RemoteWorker;
use distributed::TaskName;
use distributed::cluster::Network;
use distributed::interface::WorkerInterface;
use framework::BoxFuture;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use tensor::Result;

/// The network as gRPC makes it: one channel for each task and address.
#[derive(Default)]
pub struct GrpcNetwork {
    channels: Mutex<HashMap<(TaskName, String), Channel>>,
}

impl GrpcNetwork {
    /// A network without connections.
    pub fn new() -> GrpcNetwork {
        GrpcNetwork::default()
    }
}

impl Network for GrpcNetwork {
    fn worker(&self, task: &TaskName, address: &str) -> Result<Arc<dyn WorkerInterface>> {
        let mut channels = self.channels.lock();
        let channel = channels
            .entry((task.clone(), address.to_string()))
            .or_insert_with(|| Channel::new(Some(task), address))
            .clone();
        Ok(Arc::new(RemoteWorker::new(channel)))
    }

    fn spawn(&self, work: BoxFuture<()>) {
        errands::spawn(work);
    }
}

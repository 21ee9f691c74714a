//! A cluster of one task, in this process.

use crate::master::Master;
use crate::worker::Worker;
use framework::{CpuDevice, Device, DeviceName, Env, Registry};
use linalg::parallel::Pool;
use std::sync::Arc;

/// A master and a worker, joined in memory.
pub struct LocalCluster {
    master: Arc<Master>,
}

impl LocalCluster {
    /// A task named `/job:JOB/replica:0/task:0` with one CPU of this many threads.
    pub fn new(job: &str, threads: usize, registry: Arc<Registry>, env: Arc<dyn Env>) -> LocalCluster {
        let incarnation = env.random_u64() | 1; // never zero
        let device = CpuDevice::new(DeviceName::cpu(job, 0, 0), incarnation, Pool::new(threads));
        let device: Arc<dyn Device> = Arc::new(device);
        let worker = Arc::new(Worker::new(device.clone(), env.clone()));
        LocalCluster { master: Arc::new(Master::new(registry, env, device, worker)) }
    }

    /// The master: what a session is opened on.
    pub fn master(&self) -> &Arc<Master> {
        &self.master
    }
}

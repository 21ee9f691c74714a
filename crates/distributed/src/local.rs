//! A cluster of one task, in this process.

use crate::cluster::{ClusterSpec, Network, Peers, TaskName};
use crate::interface::WorkerInterface;
use crate::master::{DEFAULT_PATIENCE, Master};
use crate::worker::Worker;
use framework::{BoxFuture, CpuDevice, Device, DeviceName, Env, Registry};
use linalg::parallel::Pool;
use runtime::block_on;
use std::sync::Arc;
use tensor::{Result, unavailable};

/// A master and a worker, joined in memory.
pub struct LocalCluster {
    master: Arc<Master>,
}

impl LocalCluster {
    /// A task named `/job:JOB/replica:0/task:0` with one CPU of this many threads.
    pub fn new(job: &str, threads: usize, registry: Arc<Registry>, env: Arc<dyn Env>) -> LocalCluster {
        let peers = Peers::new(ClusterSpec::new(), TaskName::new(job, 0), Arc::new(Nobody));
        let devices = cpu_devices(peers.own(), 1, &Pool::new(threads), &*env);
        let worker = Arc::new(Worker::new(devices, registry.clone(), env.clone(), Arc::new(peers)));
        LocalCluster { master: Arc::new(Master::new(registry, env, worker, DEFAULT_PATIENCE)) }
    }

    /// The master: what a session is opened on.
    pub fn master(&self) -> &Arc<Master> {
        &self.master
    }
}

/// The CPU devices of a task, which share one pool of threads. Each start gives them new incarnations.
pub fn cpu_devices(task: &TaskName, count: u32, pool: &Pool, env: &dyn Env) -> Vec<Arc<dyn Device>> {
    let device = |index| {
        let incarnation = env.random_u64() | 1; // never zero
        Arc::new(CpuDevice::new(DeviceName::cpu(&task.job, task.index, index), incarnation, pool.clone()))
            as Arc<dyn Device>
    };
    (0..count.max(1)).map(device).collect()
}

/// The network of a task that is alone.
struct Nobody;

impl Network for Nobody {
    fn worker(&self, task: &TaskName, address: &str) -> Result<Arc<dyn WorkerInterface>> {
        Err(unavailable!(
            "{task} at {address} cannot be reached from a task that has no network; start a server instead"
        ))
    }

    fn spawn(&self, work: BoxFuture<()>) {
        std::thread::spawn(move || block_on(work, None));
    }
}

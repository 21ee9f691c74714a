//! A session's share on a worker: its registered graphs, and the kernels they have in common.

use crate::interface::GraphHandle;
use framework::{Device, Env, Graph};
use parking_lot::Mutex;
use runtime::{Executor, KernelCache};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tensor::{Result, aborted};

#[derive(Default)]
pub(super) struct WorkerSession {
    kernels: KernelCache,
    graphs: Mutex<HashMap<GraphHandle, Arc<Executor>>>,
    counter: AtomicU64,
}

impl WorkerSession {
    pub(super) fn register(&self, graph: &Graph, device: &Arc<dyn Device>, env: &Arc<dyn Env>) -> Result<GraphHandle> {
        let executor = Executor::compile(graph, device, env, &self.kernels)?;
        let handle = format!("{:016x}", self.counter.fetch_add(1, Ordering::Relaxed) + 1);
        self.graphs.lock().insert(handle.clone(), Arc::new(executor));
        Ok(handle)
    }

    pub(super) fn executor(&self, handle: &str) -> Result<Arc<Executor>> {
        self.graphs.lock().get(handle).cloned().ok_or_else(|| aborted!("Graph handle is not found: {handle}"))
    }
}

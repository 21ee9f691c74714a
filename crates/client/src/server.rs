//! `Server`: one task of a cluster.

use distributed::LocalCluster;
use framework::SystemEnv;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use tensor::{Result, unavailable};

/// One task: a master that sessions are opened on, and a worker that executes graphs.
///
/// ```
/// use ferroflow::prelude::*;
///
/// let server = Server::create_local()?;
/// let g = Graph::new();
/// let hello = g.constant("Hello, distributed world!");
/// let session = Session::connect(server.target(), &g)?;
/// assert_eq!(session.run(&hello)?.to_string(), "Hello, distributed world!");
/// # Ok::<(), ferroflow::Error>(())
/// ```
pub struct Server {
    cluster: Arc<LocalCluster>,
    target: String,
}

/// This process's own servers, by target: how a session finds one without a network.
static SERVERS: Mutex<Option<HashMap<String, Weak<LocalCluster>>>> = Mutex::new(None);

impl Server {
    /// A cluster of one task, in this process.
    pub fn create_local() -> Result<Server> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let cluster = Arc::new(new_cluster());
        let target = format!("local://{}", NEXT.fetch_add(1, Ordering::Relaxed));
        SERVERS.lock().get_or_insert_default().insert(target.clone(), Arc::downgrade(&cluster));
        Ok(Server { cluster, target })
    }

    /// What sessions are opened on.
    pub fn target(&self) -> &str {
        &self.target
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(servers) = &mut *SERVERS.lock() {
            servers.remove(&self.target);
        }
        let _ = &self.cluster; // sessions that are still open keep the task alive
    }
}

/// A task of its own, with as many threads as the machine has cores.
pub(crate) fn new_cluster() -> LocalCluster {
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    LocalCluster::new("localhost", threads, crate::registry(), Arc::new(SystemEnv::default()))
}

/// The server of this process that a target names.
pub(crate) fn find(target: &str) -> Result<Arc<LocalCluster>> {
    let found = SERVERS.lock().as_ref().and_then(|servers| servers.get(target)?.upgrade());
    found.ok_or_else(|| {
        unavailable!(
            "there is no server at '{target}' in this process; a target is what Server::target() gives, or \"\" for a private one"
        )
    })
}

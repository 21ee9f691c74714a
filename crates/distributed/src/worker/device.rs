//! A device as one session sees it: under another name, or with resources of its own.

use framework::{Device, DeviceName, Resources};
use linalg::parallel::Pool;
use std::sync::Arc;

/// A view of a device.
pub(super) struct SessionDevice {
    base: Arc<dyn Device>,
    name: DeviceName,
    /// Variables and queues of this session alone, if it is isolated.
    own: Option<Resources>,
}

impl SessionDevice {
    pub(super) fn new(base: Arc<dyn Device>, name: DeviceName, is_isolated: bool) -> SessionDevice {
        let own = is_isolated.then(|| Resources::new(name.job.clone()));
        SessionDevice { base, name, own }
    }
}

impl Device for SessionDevice {
    fn name(&self) -> &DeviceName {
        &self.name
    }
    fn incarnation(&self) -> u64 {
        self.base.incarnation()
    }
    fn memory_limit(&self) -> u64 {
        self.base.memory_limit()
    }
    fn resources(&self) -> &Resources {
        self.own.as_ref().unwrap_or_else(|| self.base.resources())
    }
    fn pool(&self) -> &Pool {
        self.base.pool()
    }
}

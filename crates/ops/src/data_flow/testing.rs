//! A graph under construction and an interpreter for it, for the tests of this family and of those that use its queues.

use framework::interpret::Interpreter;
use framework::{CpuDevice, Device, DeviceName, NodeId, Output, Pool, Scope, SystemEnv};
use std::collections::HashMap;
use std::sync::Arc;
use tensor::{Result, Tensor};

/// One graph, run step after step on one device.
pub(crate) struct Session {
    pub s: Scope,
    pub device: Arc<dyn Device>,
    interpreter: Interpreter,
}

impl Session {
    pub fn new() -> Session {
        Session::on(Arc::new(CpuDevice::new(DeviceName::cpu("localhost", 0, 0), 1, Pool::inline())))
    }

    /// A session on a device that others may use too.
    pub fn on(device: Arc<dyn Device>) -> Session {
        let interpreter = Interpreter::new(device.clone(), Arc::new(SystemEnv::default()));
        Session { s: Scope::new(Arc::new(crate::registry())), device, interpreter }
    }

    pub fn fetch(&self, fetches: &[Output]) -> Result<Vec<Tensor>> {
        let graph = self.s.with_graph(Clone::clone);
        self.interpreter.run(&graph, &HashMap::new(), fetches, &[])
    }

    pub fn run(&self, target: NodeId) -> Result<()> {
        let graph = self.s.with_graph(Clone::clone);
        self.interpreter.run(&graph, &HashMap::new(), &[], &[target]).map(|_| ())
    }
}

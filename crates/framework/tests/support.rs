//! The real ops, and running graphs of them.

use framework::interpret::Interpreter;
use framework::{CpuDevice, DeviceName, Graph, Output, Pool, Registry, SystemEnv};
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use tensor::{Code, Result, Tensor};

pub fn registry() -> Arc<Registry> {
    static REGISTRY: OnceLock<Arc<Registry>> = OnceLock::new();
    REGISTRY.get_or_init(|| Arc::new(ops::registry())).clone()
}

pub fn run(graph: &Graph, feeds: &[(Output, Tensor)], fetches: &[Output]) -> Result<Vec<Tensor>> {
    let device = CpuDevice::new(DeviceName::cpu("localhost", 0, 0), 1, Pool::inline());
    let feeds: HashMap<Output, Tensor> = feeds.iter().cloned().collect();
    Interpreter::new(Arc::new(device), Arc::new(SystemEnv::default())).run(graph, &feeds, fetches, &[])
}

#[track_caller]
pub fn assert_error<T: std::fmt::Debug>(result: Result<T>, code: Code, says: &[&str]) {
    let error = result.expect_err("an error was wanted");
    assert_eq!(error.code, code, "{error}");
    for part in says {
        assert!(error.message.contains(part), "'{part}' is not in: {}", error.message);
    }
}

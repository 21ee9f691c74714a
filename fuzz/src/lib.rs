//! What the fuzz targets share: the ops they may run, a limit on memory, and random tensors.

pub mod random;

use framework::{Op, Registry};
use std::sync::{Arc, Once, OnceLock};

/// Every op but those that touch files or end the process: random names are not to be written to.
pub fn registry() -> Arc<Registry> {
    static REGISTRY: OnceLock<Arc<Registry>> = OnceLock::new();
    let make = || {
        let outside: Vec<String> = ops::io::ops().into_iter().map(|op| op.name).collect();
        let inside =
            |op: &Op| !outside.contains(&op.name) && !["Abort", "Print", "PrintV2"].contains(&op.name.as_str());
        Arc::new(Registry::new(ops::registry().iter().map(|op| Op::clone(op)).filter(inside)))
    };
    REGISTRY.get_or_init(make).clone()
}

/// Lets large requests for memory fail at once, as they would on a small machine.
pub fn limit_memory() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let limit = libc::rlimit { rlim_cur: 2 << 30, rlim_max: 2 << 30 };
        // SAFETY: the call only reads the struct it is given.
        unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) };
    });
}

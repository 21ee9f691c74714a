//! What belongs to one step, and is gone when it ends.

use crate::env::Env;
use crate::rendezvous::Rendezvous;
use crate::resource::Resources;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tensor::Error;

/// One run of a graph: its number, its meeting place, its own short-lived resources, and whether it goes on.
pub struct StepContext {
    /// The number the master drew.
    pub id: i64,
    /// Where sends and receives of this step meet.
    pub rendezvous: Arc<dyn Rendezvous>,
    /// Resources that die with the step, such as tensor arrays.
    pub resources: Resources,
    /// Time and randomness.
    pub env: Arc<dyn Env>,
    /// Where times are noted when the step is traced.
    pub trace: Option<Arc<Trace>>,
    ended: AtomicBool,
    why: Mutex<Option<Error>>,
}

impl StepContext {
    /// A step about to start.
    pub fn new(id: i64, rendezvous: Arc<dyn Rendezvous>, env: Arc<dyn Env>, trace: Option<Arc<Trace>>) -> StepContext {
        StepContext {
            id,
            rendezvous,
            resources: Resources::new("step"),
            env,
            trace,
            ended: AtomicBool::new(false),
            why: Mutex::new(None),
        }
    }

    /// Whether the step was told to end; kernels that run for long look at this now and then.
    #[inline]
    pub fn is_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    /// Ends the step for this reason. The first cause wins, except that a derived one gives way to a root cause.
    pub fn end(&self, why: Error) {
        {
            let mut current = self.why.lock();
            match &*current {
                Some(first) if !first.derived || why.derived => return,
                _ => *current = Some(why.clone()),
            }
        }
        self.ended.store(true, Ordering::Release);
        self.rendezvous.abort(why);
    }

    /// Why the step was ended, if it was.
    pub fn why_ended(&self) -> Option<Error> {
        self.why.lock().clone()
    }
}

/// One node's times in a traced step, in microseconds of wall time.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct NodeTimes {
    pub node: String,
    pub op: String,
    pub device: String,
    pub thread: u32,
    pub scheduled: u64,
    pub start: u64,
    pub end: u64,
    pub output_bytes: Vec<u64>,
}

/// Collects the times of a step's nodes.
#[derive(Default)]
pub struct Trace {
    nodes: Mutex<Vec<NodeTimes>>,
}

impl Trace {
    /// Notes one node.
    pub fn record(&self, times: NodeTimes) {
        self.nodes.lock().push(times);
    }

    /// What was noted so far.
    pub fn take(&self) -> Vec<NodeTimes> {
        std::mem::take(&mut self.nodes.lock())
    }
}

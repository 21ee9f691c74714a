//! What belongs to one step, and is gone when it ends.

use crate::env::Env;
use crate::kernel::BoxFuture;
use crate::participant::Participant;
use crate::rendezvous::{Delivery, Rendezvous, RendezvousKey};
use crate::resource::Resources;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tensor::{Error, Result, Tensor, exhausted, invalid};

/// One run of a graph: its number, its meeting place, its own short-lived resources, and whether it goes on.
pub struct StepContext {
    /// The number the master drew.
    pub id: i64,
    /// Where sends and receives of this step meet.
    pub rendezvous: Arc<dyn Rendezvous>,
    /// Resources that die with the step, such as tensor arrays.
    pub resources: Arc<Resources>,
    /// Time and randomness.
    pub env: Arc<dyn Env>,
    /// Where times are noted when the step is traced.
    pub trace: Option<Arc<Trace>>,
    /// Whose step it is, where several sessions take part in something.
    pub participant: Option<Arc<Participant>>,
    /// The call of a function that this is, if it is one.
    pub call: Option<CallFrame>,
    ended: AtomicBool,
    why: Mutex<Option<Error>>,
}

impl StepContext {
    /// A step about to start.
    pub fn new(id: i64, rendezvous: Arc<dyn Rendezvous>, env: Arc<dyn Env>, trace: Option<Arc<Trace>>) -> StepContext {
        StepContext {
            id,
            rendezvous,
            resources: Arc::new(Resources::new("step")),
            env,
            trace,
            participant: None,
            call: None,
            ended: AtomicBool::new(false),
            why: Mutex::new(None),
        }
    }

    /// The call of a function within this step: it shares the step's resources, and ends on its own.
    pub fn call(&self, arguments: Vec<Tensor>, results: usize) -> Result<StepContext> {
        /// Deeper than any sound program: a function that calls itself for ever is an error, not an overflow.
        const DEPTH_MAX: u32 = 64;
        let depth = self.call.as_ref().map_or(0, |c| c.depth) + 1;
        if depth > DEPTH_MAX {
            return Err(exhausted!("functions call each other more than {DEPTH_MAX} deep"));
        }
        Ok(StepContext {
            id: self.id,
            rendezvous: Arc::new(OuterRendezvous(self.rendezvous.clone())),
            resources: self.resources.clone(),
            env: self.env.clone(),
            trace: self.trace.clone(),
            participant: self.participant.clone(),
            call: Some(CallFrame { arguments, results: Mutex::new(vec![None; results]), depth }),
            ended: AtomicBool::new(false),
            why: Mutex::new(None),
        })
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

/// What goes into a function and comes out of it.
pub struct CallFrame {
    arguments: Vec<Tensor>,
    results: Mutex<Vec<Option<Tensor>>>,
    depth: u32,
}

impl CallFrame {
    /// An argument.
    pub fn argument(&self, index: usize) -> Result<Tensor> {
        let count = self.arguments.len();
        self.arguments.get(index).cloned().ok_or_else(|| invalid!("argument {index} of a call with {count} arguments"))
    }

    /// Leaves a result.
    pub fn set_result(&self, index: usize, value: Tensor) -> Result<()> {
        let mut results = self.results.lock();
        let count = results.len();
        let place = results.get_mut(index);
        *place.ok_or_else(|| invalid!("result {index} of a call with {count} results"))? = Some(value);
        Ok(())
    }

    /// All results, once the call is over.
    pub fn take_results(&self) -> Result<Vec<Tensor>> {
        let results = std::mem::take(&mut *self.results.lock());
        let values = results.into_iter().enumerate();
        values.map(|(i, value)| value.ok_or_else(|| invalid!("Retval[{i}] does not have value"))).collect()
    }
}

/// The caller's meeting place. A call that ends early does not end its caller.
struct OuterRendezvous(Arc<dyn Rendezvous>);

impl Rendezvous for OuterRendezvous {
    fn send(&self, key: &RendezvousKey, value: Delivery) -> Result<()> {
        self.0.send(key, value)
    }
    fn try_recv(&self, key: &RendezvousKey) -> Option<Result<Delivery>> {
        self.0.try_recv(key)
    }
    fn recv(&self, key: &RendezvousKey) -> BoxFuture<Result<Delivery>> {
        self.0.recv(key)
    }
    fn abort(&self, _: Error) {}
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

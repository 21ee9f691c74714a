//! Working on a step in a hurry: short nodes run here, long ones and whatever is left in the end on the pool.
//!
//! Which nodes are long is learnt by running them, on either side, so that a change of their inputs' sizes is noticed.

use super::compile::PlanNode;
use super::frame::Iteration;
use super::step::{Local, Step};
use crate::brief;
use framework::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::{Duration, Instant};

/// A node that takes longer is not run in a hurry.
const SHORT: Duration = Duration::from_micros(500);
/// The same while threads have to wait for a core: the clock goes on meanwhile, and so would the wait of another thread.
const SHORT_IN_A_CROWD: Duration = SHORT.saturating_mul(4);
/// How often in a row a long node must turn out short to be taken for one.
const DOUBTS: u8 = 16;

/// A node that takes less is over before it could be put off.
pub(super) const AN_INSTANT: Duration = Duration::from_micros(20);

/// Whether a node has taken long lately.
#[derive(Default)]
pub(super) struct Pace {
    doubts: AtomicU8,
    /// Whether its last run took more than an instant.
    takes_a_while: AtomicBool,
}

impl Pace {
    /// What is known before the first run.
    pub(super) fn new(is_costly: bool) -> Pace {
        Pace { doubts: AtomicU8::new(if is_costly { DOUBTS } else { 0 }), takes_a_while: AtomicBool::new(false) }
    }

    fn is_long(&self) -> bool {
        self.doubts.load(Ordering::Relaxed) > 0
    }

    fn takes_a_while(&self) -> bool {
        self.takes_a_while.load(Ordering::Relaxed)
    }

    /// Notes how long a run took, and what is short. Runs may be noted at the same time; one of them is enough.
    fn note(&self, time: Duration, short: Duration) {
        let doubts = self.doubts.load(Ordering::Relaxed);
        let now = if time > short { DOUBTS } else { doubts.saturating_sub(1) };
        if now != doubts {
            self.doubts.store(now, Ordering::Relaxed);
        }
        if self.takes_a_while() != (time > AN_INSTANT) {
            self.takes_a_while.store(time > AN_INSTANT, Ordering::Relaxed);
        }
    }
}

impl Step {
    /// Runs short nodes until none is left or the time is over, then gives the token back, or passes it on to the pool. What
    /// was sent away leaves before this thread goes on with what nobody else waits for.
    pub(super) fn work_briefly(self: &Arc<Step>, mut iteration: Arc<Iteration>, mut local: Local) {
        let (end, mut now) = (brief::end(), Instant::now());
        let short = self.short();
        let mut has_sent = false;
        while !self.context.is_ended() {
            let Some((other, node)) = local.take(&iteration) else { break };
            iteration = other;
            let PlanNode { pace, leads_out, control_flow, .. } = &self.plan.nodes[node as usize];
            if has_sent && !leads_out && pace.takes_a_while() {
                local.push(node);
                let step = self.clone();
                return brief::later(Box::new(move || step.go_on(iteration, local)));
            }
            has_sent |= *control_flow == ControlFlow::Send;
            if pace.is_long() {
                self.spawn(iteration.clone(), node);
                continue;
            }
            self.run_node(&iteration, node, &mut local);
            let before = std::mem::replace(&mut now, Instant::now());
            pace.note(now - before, short);
            if end.is_some_and(|end| now >= end) && !local.is_empty() {
                let (step, pool) = (self.clone(), self.plan.device.pool());
                return pool.spawn(Box::new(move || step.work(iteration, local)));
            }
        }
        drop((iteration, local));
        self.give_back();
    }

    fn short(&self) -> Duration {
        if self.plan.device.pool().is_crowded() { SHORT_IN_A_CROWD } else { SHORT }
    }

    /// Works on a node that another thread left to the pool, and on what follows from it.
    pub(super) fn work_on(self: &Arc<Step>, iteration: Arc<Iteration>, node: u32) {
        let mut local = Local::default();
        let pace = &self.plan.nodes[node as usize].pace;
        if pace.is_long() && !self.context.is_ended() {
            let start = Instant::now();
            self.run_node(&iteration, node, &mut local);
            pace.note(start.elapsed(), self.short());
        } else {
            local.push(node);
        }
        self.work(iteration, local);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_taken_for_what_it_was_lately() {
        let pace = Pace::new(false);
        assert!(!pace.is_long());
        pace.note(2 * SHORT, SHORT);
        assert!(pace.is_long());
        (1..DOUBTS).for_each(|_| pace.note(SHORT / 2, SHORT));
        assert!(pace.is_long());
        pace.note(SHORT / 2, SHORT);
        assert!(!pace.is_long());
        pace.note(2 * SHORT, SHORT_IN_A_CROWD);
        assert!(!pace.is_long() && pace.takes_a_while());
        pace.note(AN_INSTANT, SHORT);
        assert!(!pace.takes_a_while());
        assert!(Pace::new(true).is_long());
    }
}

//! Working on a step in a hurry: short nodes run here, long ones and whatever is left in the end on the pool.
//!
//! How long nodes take is learnt by running them, on either side, so that a change of their inputs' sizes is noticed. It also
//! tells a thread with time whether it is worth waking another one for the nodes it has no hand for.

use super::compile::PlanNode;
use super::frame::Iteration;
use super::step::{Local, Step};
use crate::brief;
use framework::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// A node that takes longer is not run in a hurry.
const SHORT: Duration = Duration::from_micros(500);
/// The same while threads have to wait for a core: the clock goes on meanwhile, and so would the wait of another thread.
const SHORT_IN_A_CROWD: Duration = SHORT.saturating_mul(4);
/// How often in a row a long node must turn out short to be taken for one.
const DOUBTS: u8 = 16;

/// A node that takes less is over before it could be put off.
pub(super) const AN_INSTANT: Duration = Duration::from_micros(20);

/// Nodes that together take less are not worth another thread: until it has woken up, found its way and warmed its caches,
/// they would be done here, and their loops are spread anyway where that is worth it.
const WORTH_PASSING_ON: Duration = Duration::from_micros(150);

/// How long a node has taken lately.
pub(super) struct Pace {
    doubts: AtomicU8,
    /// Its last run, in microseconds.
    last: AtomicU32,
}

impl Pace {
    /// What is known before the first run.
    pub(super) fn new(is_costly: bool) -> Pace {
        let (doubts, last) = if is_costly { (DOUBTS, u32::MAX) } else { (0, 0) };
        Pace { doubts: AtomicU8::new(doubts), last: AtomicU32::new(last) }
    }

    fn is_long(&self) -> bool {
        self.doubts.load(Ordering::Relaxed) > 0
    }

    fn takes_a_while(&self) -> bool {
        self.last() > AN_INSTANT
    }

    pub(super) fn last(&self) -> Duration {
        Duration::from_micros(self.last.load(Ordering::Relaxed).into())
    }

    /// Notes how long a run took, and what is short. Runs may be noted at the same time; one of them is enough.
    fn note(&self, time: Duration, short: Duration) {
        let doubts = self.doubts.load(Ordering::Relaxed);
        let now = if time > short { DOUBTS } else { doubts.saturating_sub(1) };
        if now != doubts {
            self.doubts.store(now, Ordering::Relaxed);
        }
        self.note_last(time);
    }

    /// Notes how long a run took on a thread with time. It tells little of what is short: such a thread may have waited for
    /// its core meanwhile.
    fn note_last(&self, time: Duration) {
        let micros = u32::try_from(time.as_nanos().div_ceil(1000)).unwrap_or(u32::MAX);
        self.last.store(micros, Ordering::Relaxed);
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
                self.context.rendezvous.flush();
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
                self.context.rendezvous.flush();
                let (step, pool) = (self.clone(), self.plan.device.pool());
                return pool.spawn(Box::new(move || step.work(iteration, local)));
            }
        }
        drop((iteration, local));
        self.end_turn();
    }

    fn short(&self) -> Duration {
        if self.plan.device.pool().is_crowded() { SHORT_IN_A_CROWD } else { SHORT }
    }

    /// Works on a node that another thread left to the pool, and on what follows from it.
    pub(super) fn work_on(self: &Arc<Step>, iteration: Arc<Iteration>, node: u32) {
        let mut local = Local::default();
        if !self.context.is_ended() {
            self.run_timed(&iteration, node, &mut local);
        }
        self.work(iteration, local);
    }

    /// Runs a node that may take long, and notes how long it took.
    pub(super) fn run_timed(self: &Arc<Step>, iteration: &Arc<Iteration>, node: u32, local: &mut Local) {
        let start = Instant::now();
        self.run_node(iteration, node, local);
        let (time, pace) = (start.elapsed(), &self.plan.nodes[node as usize].pace);
        if pace.is_long() { pace.note(time, self.short()) } else { pace.note_last(time) }
    }

    /// Whether another thread should have these nodes: it is not worth waking for what is over by then.
    pub(super) fn is_worth_passing_on(&self, nodes: &[(Arc<Iteration>, u32)]) -> bool {
        let mut sum = Duration::ZERO;
        let mut times = nodes.iter().map(|&(_, node)| self.plan.nodes[node as usize].pace.last());
        times.any(|time| {
            sum += time;
            sum >= WORTH_PASSING_ON
        }) && !self.plan.device.pool().is_crowded()
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

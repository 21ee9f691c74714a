//! What a worker is doing, for people who wonder why nothing moves.

use super::Worker;
use super::outbox::Outbox;
use crate::interface::SessionHandle;
use framework::FastMap;
use parking_lot::Mutex;
use runtime::{Wait, Watcher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What a worker is doing now.
#[derive(Debug, Default)]
pub struct WorkerStatus {
    /// The sessions that have a share here, each with the number of graphs registered.
    pub sessions: Vec<(SessionHandle, u32)>,
    /// The steps under way, the oldest first.
    pub steps: Vec<RunningStep>,
    /// How many steps have been run here since it started.
    pub steps_run: u64,
}

/// A step under way.
#[derive(Debug)]
pub struct RunningStep {
    /// Its number.
    pub step: i64,
    /// The session whose step it is.
    pub session: SessionHandle,
    /// How long it has been running here.
    pub age: Duration,
    /// What it waits for; if nothing, it computes.
    pub waits: Vec<Wait>,
}

/// How many steps there were, and those that did not end at once.
#[derive(Default)]
pub(super) struct RunningSteps {
    count: AtomicU64,
    table: Mutex<FastMap<i64, Entry>>,
}

struct Entry {
    session: Arc<str>,
    since: Instant,
    watchers: Vec<Watcher>,
    outbox: Option<Arc<Outbox>>,
}

impl Entry {
    /// The nodes that wait, and what was sent and has not arrived.
    fn waits(&self, now: Instant) -> Vec<Wait> {
        let age = now.saturating_duration_since(self.since);
        let unsent = self.outbox.iter().flat_map(|outbox| outbox.waiting());
        let unsent = unsent.map(|what| Wait { node: "its end".into(), what, age });
        self.watchers.iter().flat_map(Watcher::waits).chain(unsent).collect()
    }
}

/// A step is forgotten when this is dropped.
pub(super) struct Noted<'a> {
    steps: &'a RunningSteps,
    step: i64,
}

impl RunningSteps {
    /// A step has begun.
    pub(super) fn count(&self) {
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn note(
        &self,
        step: i64,
        session: &Arc<str>,
        since: Instant,
        watchers: Vec<Watcher>,
        outbox: Option<Arc<Outbox>>,
    ) -> Noted<'_> {
        self.table.lock().insert(step, Entry { session: session.clone(), since, watchers, outbox });
        Noted { steps: self, step }
    }
}

impl Drop for Noted<'_> {
    fn drop(&mut self) {
        self.steps.table.lock().remove(&self.step);
    }
}

impl Worker {
    /// What this worker is doing.
    pub fn status(&self) -> WorkerStatus {
        let sessions =
            self.sessions.lock().by_handle.values().map(|s| (s.handle.to_string(), s.num_graphs())).collect();
        let now = self.env.now();
        let step = |(step, entry): (&i64, &Entry)| RunningStep {
            step: *step,
            session: entry.session.to_string(),
            age: now.saturating_duration_since(entry.since),
            waits: entry.waits(now),
        };
        let mut steps: Vec<RunningStep> = self.running.table.lock().iter().map(step).collect();
        steps.sort_by_key(|step| std::cmp::Reverse(step.age));
        WorkerStatus { sessions, steps, steps_run: self.running.count.load(Ordering::Relaxed) }
    }
}

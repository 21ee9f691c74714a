//! `Members`: the sessions that contribute to the rounds of synchronous training, and how much can be asked of them
//! while some are gone.
//!
//! A session is a member from its first contribution on. One that is gone keeps its place until its task comes back
//! with another session, or until all are gone and a new run begins. A session that was lost before it contributed
//! counts too, if it is of the same job as a member: it would have become one.

use framework::participant::{LostWorker, ON_LOST_WORKER, Participant, Participants, Watcher};
use framework::{KernelBuild, StepContext};
use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use tensor::{Error, Result, failed_precondition};

/// The policy that a node chooses, if it does.
pub(crate) fn chosen_policy(b: &KernelBuild<'_>) -> Result<Option<LostWorker>> {
    if !b.node.attrs.contains_key(ON_LOST_WORKER) {
        return Ok(None);
    }
    b.attr::<String>(ON_LOST_WORKER)?.parse().map(Some)
}

/// The policy of the server that runs a step.
pub(crate) fn servers_policy(step: &StepContext) -> LostWorker {
    step.participant.as_ref().map_or(LostWorker::Wait, |p| p.all().policy())
}

/// Who contributes.
pub(crate) struct Members {
    policy: LostWorker,
    list: Vec<Arc<Participant>>,
    /// Where to ask who else was lost; known once somebody came.
    all: Option<Arc<Participants>>,
    here: usize,
    missing: usize,
}

impl Members {
    /// Nobody yet.
    pub fn new(policy: LostWorker) -> Members {
        Members { policy, list: Vec::new(), all: None, here: 0, missing: 0 }
    }

    /// Whether it matters who comes and goes.
    pub fn are_watched(&self) -> bool {
        self.policy != LostWorker::Wait
    }

    /// Whether somebody is gone, and somebody else is not.
    pub fn are_reduced(&self) -> bool {
        self.missing > 0 && self.here > 0
    }

    /// How many there are, with those who are gone.
    pub fn known(&self) -> usize {
        self.here + self.missing
    }

    /// Has the owner of these told when somebody comes or goes; `owner` is asked once.
    pub fn watch(&mut self, somebody: &Participant, owner: impl FnOnce() -> Weak<dyn Watcher>) {
        if self.all.is_none() && self.are_watched() {
            somebody.all().watch(owner());
            self.all = Some(somebody.all().clone());
        }
    }

    /// Counts a session among them.
    pub fn join(&mut self, participant: &Arc<Participant>) {
        if !self.are_watched() || self.list.iter().any(|m| Arc::ptr_eq(m, participant)) || !participant.is_here() {
            return;
        }
        participant.count_on();
        if self.list.iter().all(|m| !m.is_here()) {
            self.list.clear();
        }
        let successor_of = |m: &&mut Arc<Participant>| !m.is_here() && m.name() == participant.name();
        match self.list.iter_mut().find(successor_of) {
            Some(predecessor) => *predecessor = participant.clone(),
            None => self.list.push(participant.clone()),
        }
        self.refresh();
    }

    /// Counts again; needed when somebody's presence has changed.
    pub fn refresh(&mut self) {
        self.here = self.list.iter().filter(|m| m.is_here()).count();
        self.missing = match self.policy {
            LostWorker::Shrink => self.list.len() - self.here + self.lost_strangers().len(),
            // Who is lost is an error, not a reason to ask for less.
            LostWorker::Fail => self.list.iter().filter(|m| !m.is_here() && !m.presence().is_lost()).count(),
            LostWorker::Wait => 0,
        };
    }

    /// How many contributions to wait for when all together would make `wanted` of them.
    pub fn share_of(&self, wanted: usize) -> usize {
        if !self.are_reduced() {
            return wanted;
        }
        let (here, known) = (self.here, self.known());
        // Beyond one for each, what the missing would have added is not asked of the others.
        let asked = if wanted <= known { wanted.min(here) } else { wanted.saturating_mul(here).div_ceil(known) };
        asked.max(1)
    }

    /// Why somebody who waits for the others shall not: one of them was lost, and that is to be an error. A loss before
    /// `waiting` came is none of its concern.
    pub fn loss(&self, waiting: Option<&Participant>) -> Option<Error> {
        if self.policy != LostWorker::Fail {
            return None;
        }
        let waiting = waiting?;
        self.lost().iter().find(|m| waiting.has_seen_leave(m)).map(|m| lost_error(m))
    }

    /// Those who were lost, before they contributed or later.
    pub fn lost(&self) -> Vec<Arc<Participant>> {
        let members = self.list.iter().filter(|m| m.presence().is_lost()).cloned();
        members.chain(self.lost_strangers()).collect()
    }

    /// Those of a member's job who were lost before they contributed.
    fn lost_strangers(&self) -> Vec<Arc<Participant>> {
        let Some(all) = &self.all else { return Vec::new() };
        let names: BTreeSet<&str> = self.list.iter().map(|m| m.name()).collect();
        let jobs: BTreeSet<&str> = names.iter().filter_map(|name| job(name)).collect();
        let is_stranger = |p: &Arc<Participant>| !names.contains(p.name());
        let mut lost: Vec<_> = all.lost().into_iter().filter(is_stranger).collect();
        lost.retain(|p| job(p.name()).is_some_and(|job| jobs.contains(job)));
        lost.sort_by(|a, b| a.name().cmp(b.name()));
        lost.dedup_by(|a, b| a.name() == b.name());
        lost
    }
}

/// The job in a task's name such as `/job:worker/replica:0/task:1`.
fn job(name: &str) -> Option<&str> {
    name.strip_prefix("/job:")?.split('/').next()
}

/// What whoever counted on a lost session is told. Programs recover from `Aborted` and `Unavailable` by trying again:
/// this is neither.
pub(crate) fn lost_error(lost: &Participant) -> Error {
    failed_precondition!(
        "{lost} was lost during synchronous training: its connections are closed, and its session was not; start it \
         again and run on from the last checkpoint, or let the others go on without it by the policy 'shrink' \
         (_on_lost_worker, or --lost-worker of the server)"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    fn worker(index: usize) -> String {
        format!("/job:worker/replica:0/task:{index}")
    }

    struct Training {
        all: Arc<Participants>,
        workers: Vec<Arc<Participant>>,
        members: Members,
        start: Instant,
    }

    impl Training {
        fn of(count: usize, policy: LostWorker) -> Training {
            let (all, start) = (Participants::new(policy), Instant::now());
            let workers: Vec<_> = (0..count).map(|i| all.admit(worker(i), start)).collect();
            let mut members = Members::new(policy);
            workers.iter().for_each(|w| members.join(w));
            members.all = Some(all.clone());
            Training { all, workers, members, start }
        }

        fn later(&self, seconds: u64) -> Instant {
            self.start + Duration::from_secs(seconds)
        }

        fn lose(&mut self, count: usize) {
            let now = self.later(1);
            self.workers[..count].iter().for_each(|w| w.lose(now));
            self.members.refresh();
        }
    }

    #[test]
    fn what_is_asked_of_those_who_are_left() {
        // Workers, lost ones, what all together make, what is asked.
        let cases = [
            (2, 0, 2, 2),
            (2, 1, 2, 1),
            (4, 1, 4, 3),
            (3, 1, 2, 2), // a back-up worker takes the place
            (3, 2, 2, 1),
            (2, 1, 4, 2), // two of each
            (3, 1, 4, 3),
            (3, 2, 4, 2),
            (2, 2, 2, 2), // nobody is left to ask
            (5, 4, 1, 1),
        ];
        for (workers, lost, wanted, asked) in cases {
            let mut training = Training::of(workers, LostWorker::Shrink);
            training.lose(lost);
            assert_eq!(training.members.share_of(wanted), asked, "{lost} of {workers} lost, {wanted} wanted");
            let mut patient = Training::of(workers, LostWorker::Wait);
            patient.lose(lost);
            assert_eq!(patient.members.share_of(wanted), wanted);
        }
    }

    #[test]
    fn a_task_that_comes_back_takes_its_place_again() {
        let mut training = Training::of(2, LostWorker::Shrink);
        training.lose(1);
        assert_eq!(training.members.share_of(2), 1);
        let again = training.all.admit(worker(0), training.later(2));
        training.members.join(&again);
        assert_eq!((training.members.share_of(2), training.members.known()), (2, 2));
        training.workers[1].leave(training.later(3));
        training.members.refresh();
        assert_eq!(training.members.share_of(2), 1, "it finished early");
        again.leave(training.later(4));
        let next_run = training.all.admit(worker(1), training.later(5));
        training.members.join(&next_run);
        assert_eq!((training.members.share_of(2), training.members.known()), (2, 1), "all are new");
    }

    #[test]
    fn who_is_lost_before_its_first_contribution_is_not_waited_for() {
        let mut training = Training::of(1, LostWorker::Shrink);
        let (other, evaluator) = (worker(1), "/job:evaluator/replica:0/task:0");
        let strangers = [other.as_str(), evaluator].map(|name| training.all.admit(name, training.start));
        training.members.refresh();
        assert_eq!(training.members.share_of(2), 2, "it may still come");
        strangers[1].lose(training.later(1));
        training.members.refresh();
        assert_eq!(training.members.share_of(2), 2, "it would not have contributed");
        strangers[0].lose(training.later(1));
        training.members.refresh();
        assert_eq!(training.members.share_of(2), 1);
    }

    #[test]
    fn a_loss_is_an_error_for_those_who_saw_it() {
        let mut training = Training::of(3, LostWorker::Fail);
        let chief = training.workers[2].clone();
        training.workers[1].leave(training.later(1));
        training.members.refresh();
        assert!(training.members.loss(Some(&chief)).is_none(), "to finish is no failure");
        assert_eq!(training.members.share_of(3), 2);
        training.lose(1);
        let error = training.members.loss(Some(&chief)).expect("a worker was lost");
        assert_eq!(error.code, tensor::Code::FailedPrecondition);
        assert!(error.message.starts_with("/job:worker/replica:0/task:0 was lost"), "{error}");
        let new_chief = training.all.admit(worker(2), training.later(2));
        assert!(training.members.loss(Some(&new_chief)).is_none());
        let mut shrinking = Training::of(2, LostWorker::Shrink);
        shrinking.lose(1);
        assert!(shrinking.members.loss(Some(&chief)).is_none());
    }
}

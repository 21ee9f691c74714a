//! `Tokens`: what the token queue of synchronous training knows of those who make tokens and of those who take them.
//!
//! A token says at which global step its taker may work. While a taker is missing there are more tokens than can be
//! used: old ones are dropped, and nobody takes a second share of one step, so that no gradient is computed in vain.
//! When those who make tokens are gone for good, nobody waits for more.
//!
//! Workers of ours ask whether they are to make the tokens. One of them is told so at a time: the chief, and when it is
//! lost the first who asks. TensorFlow's chief never asks: it makes them, and whoever made them before is relieved.

use super::members::{Members, lost_error};
use super::queue::Element;
use framework::participant::{LostWorker, Participant, Presence, Watcher};
use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use tensor::{Error, aborted, out_of_range};

/// The name under which TensorFlow's workers share the token queue.
pub(crate) const TOKEN_QUEUE: &str = "sync_token_q";
/// The name under which some versions' chief shares a queue whose only use is to be closed when training stops; others
/// close the token queue.
pub(crate) const STOP_QUEUE: &str = "dummy_queue";

/// Who makes tokens, and who takes them.
pub(crate) struct Tokens {
    policy: LostWorker,
    takers: Members,
    makers: Vec<Arc<Participant>>,
    /// The one among the makers that asked.
    leader: Option<Arc<Participant>>,
    /// Former leaders, another one having taken their place.
    relieved: Vec<Weak<Participant>>,
    /// The newest step there were tokens for, and how many.
    newest: (i64, usize),
    shares: Vec<Share>,
}

/// What a taker had of the last step it had a token for.
struct Share {
    taker: Arc<Participant>,
    step: i64,
    count: usize,
}

/// What somebody learns who asks whether it is to make the tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Lead {
    /// It is, from now on.
    Anew,
    /// It is, as before.
    Still,
    /// Another one does.
    Follow,
}

impl Tokens {
    /// Nobody yet.
    pub fn new(policy: LostWorker) -> Tokens {
        let takers = Members::new(policy);
        Tokens {
            policy,
            takers,
            makers: Vec::new(),
            leader: None,
            relieved: Vec::new(),
            newest: (i64::MIN, 0),
            shares: Vec::new(),
        }
    }

    /// Whether it matters who comes and goes.
    pub fn are_watched(&self) -> bool {
        self.policy != LostWorker::Wait
    }

    /// Whether somebody who asks is to make the tokens; `None` if that is not decided here, or not for a session without
    /// a name, which is not the same one in each of its graphs.
    pub fn lead(
        &mut self,
        asker: &Arc<Participant>,
        is_chief: bool,
        owner: impl FnOnce() -> Weak<dyn Watcher>,
    ) -> Option<Lead> {
        if self.policy != LostWorker::Shrink || asker.name().is_empty() {
            return None;
        }
        self.takers.watch(asker, owner);
        if self.has_made(asker) {
            return Some(Lead::Still);
        }
        if self.makers.iter().any(|m| m.is_here()) || !(is_chief || self.is_successor(asker)) {
            return Some(Lead::Follow);
        }
        asker.count_on();
        self.relieved.retain(|r| !std::ptr::eq(r.as_ptr(), Arc::as_ptr(asker)));
        self.relieve(self.leader.clone());
        self.leader = Some(asker.clone());
        self.makers = vec![asker.clone()];
        Some(Lead::Anew)
    }

    /// Whether nobody is to be waited for rather than let this one make the tokens: who did was lost, before the first of
    /// them or later, or was an earlier session of the same task.
    fn is_successor(&self, asker: &Participant) -> bool {
        let gives_way = |m: &Arc<Participant>| {
            m.presence().is_lost() || (m.presence() == Presence::Left && m.name() == asker.name())
        };
        self.makers.iter().any(gives_way) || (self.makers.is_empty() && !self.takers.lost().is_empty())
    }

    /// Whether somebody is one of those who make tokens.
    pub fn has_made(&self, somebody: &Arc<Participant>) -> bool {
        self.makers.iter().any(|m| Arc::ptr_eq(m, somebody))
    }

    /// Whether somebody makes tokens.
    pub fn are_made(&self) -> bool {
        !self.makers.is_empty()
    }

    fn relieve(&mut self, leader: Option<Arc<Participant>>) {
        self.relieved.retain(|r| r.strong_count() > 0);
        self.relieved.extend(leader.iter().map(Arc::downgrade));
    }

    /// Why somebody who made tokens is to make no more.
    pub fn relief(&self, maker: &Arc<Participant>) -> Option<Error> {
        let is_relieved = self.relieved.iter().any(|r| std::ptr::eq(r.as_ptr(), Arc::as_ptr(maker)));
        is_relieved.then(|| {
            let successor = self.makers.first().map_or_else(|| "another worker".into(), |m| m.to_string());
            aborted!("{successor} leads the steps of synchronous training now, in the place of {maker}")
        })
    }

    /// Somebody made these; whether all who did before are gone.
    pub fn made(
        &mut self,
        maker: &Arc<Participant>,
        tokens: &VecDeque<Element>,
        owner: impl FnOnce() -> Weak<dyn Watcher>,
    ) -> bool {
        self.takers.watch(maker, owner);
        let begins_anew = !self.makers.is_empty() && self.makers.iter().all(|m| !m.is_here());
        if !self.has_made(maker) && self.relief(maker).is_none() {
            maker.count_on();
            let leader = self.leader.take();
            self.makers.retain(|m| m.is_here() && leader.as_ref().is_none_or(|leader| !Arc::ptr_eq(m, leader)));
            self.makers.push(maker.clone());
            self.relieve(leader);
        }
        for step in tokens.iter().filter_map(step_of) {
            let (newest, count) = &mut self.newest;
            if step > *newest {
                (*newest, *count) = (step, 0);
            }
            *count += usize::from(step == *newest);
        }
        begins_anew && maker.is_here()
    }

    /// Somebody wants one.
    pub fn wanted(&mut self, taker: &Arc<Participant>, owner: impl FnOnce() -> Weak<dyn Watcher>) {
        self.takers.watch(taker, owner);
        self.takers.join(taker);
    }

    /// Somebody took this one.
    pub fn taken(&mut self, taker: &Arc<Participant>, token: &Element) {
        let Some(step) = step_of(token) else { return };
        self.shares.retain(|s| s.taker.is_here());
        match self.shares.iter_mut().find(|s| Arc::ptr_eq(&s.taker, taker)) {
            Some(share) if share.step == step => share.count += 1,
            Some(share) => (share.step, share.count) = (step, 1),
            None => self.shares.push(Share { taker: taker.clone(), step, count: 1 }),
        }
    }

    /// Counts again who is there.
    pub fn refresh(&mut self) {
        self.takers.refresh();
    }

    /// Drops tokens for steps that are over, while there are more than can be used.
    pub fn drop_old(&self, tokens: &mut VecDeque<Element>) {
        if !self.takers.are_reduced() {
            return;
        }
        if let Some(newest) = tokens.iter().filter_map(step_of).max() {
            tokens.retain(|token| step_of(token).is_none_or(|step| step == newest));
        }
    }

    /// Whether somebody may have this token now.
    pub fn may_take(&self, taker: Option<&Arc<Participant>>, token: Option<&Element>) -> bool {
        let (Some(taker), Some(step)) = (taker, token.and_then(step_of)) else { return true };
        if !self.takers.are_reduced() {
            return true;
        }
        let had = self.shares.iter().find(|s| Arc::ptr_eq(&s.taker, taker) && s.step == step).map_or(0, |s| s.count);
        had < self.newest.1.div_ceil(self.takers.known()).max(1)
    }

    /// Why somebody should not wait for a token, if there is none for it now.
    pub fn in_vain(&self, taker: &Participant, queue: &str) -> Option<Error> {
        if !self.are_watched() {
            return None;
        }
        if matches!(taker.presence(), Presence::Left | Presence::Departed) {
            return Some(out_of_range!("the session that waits for a token of '{queue}' has ended"));
        }
        if let Some(loss) = self.takers.loss(Some(taker)) {
            return Some(loss);
        }
        if self.makers.is_empty() {
            // Who was to make them may be among the lost.
            let lost = self.takers.lost();
            let given_up = |m: &&Arc<Participant>| m.presence() == Presence::GivenUp && taker.has_seen_leave(m);
            return lost.iter().find(given_up).map(|m| lost_error(m));
        }
        // A maker that went before this one came belongs to an earlier run.
        if self.makers.iter().any(|m| m.is_here() || !taker.has_seen_leave(m)) {
            return None;
        }
        if let Some(lost) = self.makers.iter().find(|m| m.presence().is_lost()) {
            let is_over = self.policy == LostWorker::Fail || lost.presence() == Presence::GivenUp;
            return is_over.then(|| lost_error(lost));
        }
        self.makers.iter().all(|m| m.presence().is_final()).then(|| {
            let maker = &self.makers[0];
            out_of_range!("'{queue}' is empty, and {maker}, which put tokens into it, has ended: training is over")
        })
    }
}

/// The step a token is for.
fn step_of(token: &Element) -> Option<i64> {
    let token = token.first()?;
    token.item::<i64>().ok().or_else(|| token.item::<i32>().ok().map(i64::from))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data_flow::accumulator::{Accumulator, AccumulatorSpec, Arithmetic, Gradient, Reduction};
    use crate::data_flow::queue::{Amount, Order, Queue, QueueSpec};
    use framework::Participants;
    use linalg::random::{Philox, Words};
    use smallvec::smallvec;
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};
    use std::time::{Duration, Instant};
    use tensor::{Code, DType, PartialShape, Result, Tensor};

    type Waiting<T> = Pin<Box<dyn Future<Output = Result<T>>>>;

    /// Synchronous training, one thing after the other in an order drawn from a seed.
    struct Training {
        all: Arc<Participants>,
        gradients: Arc<Accumulator>,
        queue: Arc<Queue>,
        workers: Vec<Worker>,
        to_aggregate: usize,
        global_step: i64,
        /// The worker whose other thread applies the gradients and makes the tokens.
        leader: usize,
        round: Option<Waiting<Gradient>>,
        /// Gradients that came too late.
        wasted: usize,
        words: Words,
        now: Instant,
    }

    struct Worker {
        who: Arc<Participant>,
        local_step: i64,
        waiting: Option<Waiting<Vec<Element>>>,
        is_running: bool,
    }

    impl Training {
        fn new(workers: usize, to_aggregate: usize, policy: LostWorker, seed: u64) -> Training {
            let (all, now) = (Participants::new(policy), Instant::now());
            let spec = AccumulatorSpec {
                dtype: DType::F32,
                shape: PartialShape::scalar(),
                reduction: Reduction::Mean,
                is_sparse: false,
            };
            let tokens = QueueSpec {
                order: Order::Fifo,
                types: vec![DType::I64],
                shapes: vec![PartialShape::scalar()],
                capacity: -1,
            };
            let mut training = Training {
                gradients: Arc::new(Accumulator::new(spec, Arithmetic::of::<f32>(), policy)),
                queue: Arc::new(Queue::new(TOKEN_QUEUE, tokens, (1, 2)).unwrap().of_tokens(policy)),
                all,
                workers: Vec::new(),
                to_aggregate,
                global_step: 0,
                leader: 0,
                round: None,
                wasted: 0,
                words: Philox::new(seed, 0).words(),
                now,
            };
            (0..workers).for_each(|index| {
                let worker = training.worker(index);
                training.workers.push(worker);
            });
            // Where each has to contribute more than once, it needs a token for that before there was a round.
            training.make_tokens(to_aggregate.saturating_sub(workers));
            training
        }

        fn worker(&self, index: usize) -> Worker {
            let who = self.all.admit(format!("/job:worker/replica:0/task:{index}"), self.now);
            Worker { who, local_step: self.global_step, waiting: None, is_running: true }
        }

        fn later(&mut self) -> Instant {
            self.now += Duration::from_secs(1);
            self.now
        }

        fn draw(&mut self, below: usize) -> usize {
            self.words.next_word() as usize % below
        }

        /// One worker, or the leader's other thread, does the next thing it has to do.
        fn act(&mut self) {
            match self.draw(self.workers.len() + 1) {
                chosen if chosen == self.workers.len() => self.aggregate(),
                chosen if self.workers[chosen].is_running => {
                    self.train(chosen).unwrap();
                    self.stand_by(chosen);
                }
                _ => {}
            }
        }

        /// A worker asks now and then whether it is to lead.
        fn stand_by(&mut self, index: usize) {
            if index != self.leader && self.draw(5) == 0 && self.asks(index, false) == Some(true) {
                self.lead(index);
            }
        }

        fn asks(&self, index: usize, is_chief: bool) -> Option<bool> {
            self.queue.is_led_by(Some(&self.workers[index].who), is_chief)
        }

        /// What a worker does first that is to lead: the step that was under way begins again.
        fn lead(&mut self, index: usize) {
            self.leader = index;
            self.gradients.set_global_step(self.global_step);
            self.make_tokens(self.to_aggregate.max(self.workers.len()));
        }

        fn train(&mut self, index: usize) -> Result<()> {
            let worker = &mut self.workers[index];
            let Some(waiting) = &mut worker.waiting else {
                self.wasted += usize::from(worker.local_step < self.global_step);
                self.gradients.apply(worker.local_step, Gradient::Dense(Tensor::scalar(1f32)), Some(&worker.who))?;
                self.queue.wanted_by(Some(&worker.who));
                worker.waiting = Some(Box::pin(self.queue.dequeue(Amount::Exactly(1), Some(worker.who.clone()))));
                return Ok(());
            };
            if let Poll::Ready(tokens) = waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                worker.waiting = None;
                worker.local_step = tokens?[0][0].item()?;
            }
            Ok(())
        }

        fn aggregate(&mut self) {
            if !self.workers[self.leader].is_running {
                return;
            }
            let chief = self.workers[self.leader].who.clone();
            let (gradients, count) = (self.gradients.clone(), self.to_aggregate);
            let round = self.round.get_or_insert_with(|| Box::pin(gradients.take(count, Some(chief.clone()))));
            if let Poll::Ready(taken) = round.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                taken.unwrap();
                self.round = None;
                self.global_step += 1;
                self.make_tokens(self.to_aggregate.max(self.workers.len()));
            }
        }

        fn make_tokens(&mut self, count: usize) {
            let chief = &self.workers[self.leader].who;
            let tokens: VecDeque<Element> = (0..count).map(|_| smallvec![Tensor::scalar(self.global_step)]).collect();
            self.queue.made_by(Some(chief), &tokens).unwrap();
            self.queue.try_enqueue(tokens).expect("there is always room").unwrap();
        }

        /// Trains for so many rounds; whether that came to its end.
        fn gets_through(&mut self, rounds: i64) -> bool {
            let end = self.global_step + rounds;
            for _ in 0..20_000 {
                if self.global_step >= end {
                    return true;
                }
                self.act();
            }
            false
        }

        #[track_caller]
        fn rounds(&mut self, count: i64) {
            assert!(self.gets_through(count), "nothing moves at step {}", self.global_step);
        }

        fn kill(&mut self, index: usize) {
            let now = self.later();
            let worker = &mut self.workers[index];
            (worker.waiting, worker.is_running) = (None, false);
            worker.who.lose(now);
            if index == self.leader {
                self.round = None;
            }
        }

        fn restart(&mut self, index: usize) {
            self.later();
            self.workers[index] = self.worker(index);
        }
    }

    #[test]
    fn whenever_workers_are_lost_training_goes_on_and_wastes_nothing() {
        // Workers, how many to aggregate, how many are lost.
        for (workers, to_aggregate, lost) in
            [(2, 2, 1), (3, 2, 1), (4, 4, 1), (4, 4, 3), (4, 3, 2), (2, 4, 1), (3, 4, 1)]
        {
            for seed in 0..60 {
                let context = format!("{workers} workers, {to_aggregate} to aggregate, {lost} lost, seed {seed}");
                let mut training = Training::new(workers, to_aggregate, LostWorker::Shrink, seed);
                let before = training.draw(60);
                (0..before).for_each(|_| training.act());
                (0..lost).for_each(|i| training.kill(workers - 1 - i));
                training.rounds(3);
                // From here on each token is of the newest step, and nobody has two shares of one. Shares that do not
                // come out even leave some over.
                let wasted = training.wasted;
                training.rounds(40);
                let is_even = to_aggregate <= workers || to_aggregate % workers == 0;
                assert!(!is_even || training.wasted == wasted, "{context}: {} wasted", training.wasted - wasted);
                (0..lost).for_each(|i| training.restart(workers - 1 - i));
                training.rounds(20);
            }
        }
    }

    #[test]
    fn without_it_training_would_stand_still() {
        // Of two workers one dies, with a token or without.
        let goes_on = |seed| {
            let mut training = Training::new(2, 2, LostWorker::Wait, seed);
            training.rounds(5);
            (0..seed).for_each(|_| training.act());
            training.kill(1);
            training.gets_through(10)
        };
        let stuck = (0..20).filter(|&seed| !goes_on(seed)).count();
        assert!(stuck > 5, "{stuck} of 20: as in TensorFlow, a token that is taken and not used is missing for ever");
    }

    #[test]
    fn who_waits_for_a_token_when_the_chief_has_ended_is_told() {
        for policy in [LostWorker::Shrink, LostWorker::Fail] {
            let mut training = Training::new(2, 2, policy, 3);
            training.rounds(4);
            let chief = training.workers[0].who.clone();
            let now = training.later();
            chief.leave(now);
            let try_all = |training: &mut Training| (0..50).find_map(|_| training.train(1).err());
            assert!(try_all(&mut training).is_none(), "it may open another session");
            chief.lose(now);
            let end = try_all(&mut training).expect("its process has ended");
            assert_eq!(end.code, Code::OutOfRange, "{end}");
            assert!(end.message.contains("/job:worker/replica:0/task:0"), "{end}");
            training.restart(1);
            assert!(try_all(&mut training).is_none(), "that was an earlier run");
        }
    }

    #[test]
    fn a_chief_that_closed_the_queue_when_it_stopped_may_begin_again() {
        for (policy, is_refused) in [(LostWorker::Shrink, false), (LostWorker::Wait, true)] {
            let mut training = Training::new(2, 2, policy, 5);
            training.rounds(4);
            let now = training.later();
            training.queue.close_and_cancel();
            training.workers[0].who.leave(now);
            training.restart(0);
            let chief = training.workers[0].who.clone();
            let tokens: VecDeque<Element> = [smallvec![Tensor::scalar(4i64)]].into();
            training.queue.made_by(Some(&chief), &tokens).unwrap();
            assert_eq!(training.queue.try_enqueue(tokens).expect("there is room").is_err(), is_refused);
        }
    }

    #[test]
    fn whoever_leads_is_lost_and_another_one_leads() {
        for (workers, to_aggregate) in [(2, 2), (3, 3), (3, 2), (4, 4), (2, 4)] {
            for seed in 0..60 {
                let mut training = Training::new(workers, to_aggregate, LostWorker::Shrink, seed);
                assert_eq!(training.asks(0, true), Some(true));
                let before = training.draw(60);
                (0..before).for_each(|_| training.act());
                for _ in 0..5 {
                    let lost = training.leader;
                    training.kill(lost);
                    training.rounds(3);
                    assert_ne!(training.leader, lost);
                    // One who is back finds another one in its place, the chief too.
                    training.restart(lost);
                    assert_eq!(training.asks(lost, lost == 0), Some(false));
                    training.rounds(10);
                }
            }
        }
    }

    #[test]
    fn one_leads_at_a_time() {
        let mut training = Training::new(3, 3, LostWorker::Shrink, 7);
        let ask = |training: &Training| [0, 1, 2].map(|i| training.asks(i, false).unwrap());
        training.rounds(3);
        assert_eq!(ask(&training), [true, false, false], "who makes tokens leads, asked or not");
        let now = training.later();
        training.workers[0].who.lose(now);
        training.workers[0].who.give_up();
        assert_eq!([2, 1, 2].map(|i| training.asks(i, false).unwrap()), [true, false, true], "the first who asks");
        training.workers[0].who.heard_over(&framework::Connection::open());
        assert_eq!(ask(&training), [false, false, true], "the chief is back, and another one leads");
        let now = training.later();
        training.workers[2].who.leave(now);
        assert_eq!([0, 1].map(|i| training.asks(i, false).unwrap()), [false; 2], "who ended was not lost");
        training.restart(2);
        assert_eq!(ask(&training), [false, false, true], "it went to open another session");
        let now = training.later();
        training.workers[2].who.leave(now);
        assert_eq!(training.asks(0, true), Some(true), "a chief that begins leads");
    }

    #[test]
    fn a_chief_that_is_lost_before_its_first_tokens_has_a_successor_too() {
        let mut training = Training::new(2, 2, LostWorker::Shrink, 7);
        training.train(1).unwrap();
        assert_eq!(training.asks(1, false), Some(false), "the chief will come");
        training.kill(0);
        assert_eq!(training.asks(1, false), Some(true));
        let all = Participants::new(LostWorker::Shrink);
        let nobody = all.admit("", training.now);
        assert_eq!(
            training.queue.is_led_by(Some(&nobody), true),
            None,
            "it would be another one in each of its graphs"
        );
        for policy in [LostWorker::Fail, LostWorker::Wait] {
            assert_eq!(Training::new(2, 2, policy, 7).asks(0, true), None, "{policy}");
        }
    }

    #[test]
    fn a_chief_that_does_not_ask_relieves_the_leader() {
        let mut training = Training::new(3, 3, LostWorker::Shrink, 7);
        training.rounds(3);
        training.kill(0);
        assert_eq!(training.asks(1, false), Some(true));
        training.restart(0);
        let [chief, leader] = [0, 1].map(|i| training.workers[i].who.clone());
        let tokens: VecDeque<Element> = [smallvec![Tensor::scalar(3i64)]].into();
        training.queue.made_by(Some(&chief), &tokens).unwrap();
        let relieved = training.queue.made_by(Some(&leader), &tokens).unwrap_err();
        assert_eq!(relieved.code, Code::Aborted);
        assert!(relieved.message.contains("task:0 leads") && relieved.message.contains("task:1"), "{relieved}");
        assert_eq!(training.asks(1, false), Some(false));
        assert!(training.queue.may_be_closed_by(Some(&chief)));
        assert!(!training.queue.may_be_closed_by(Some(&leader)), "the others go on");
        training.kill(0);
        assert_eq!(training.asks(1, false), Some(true));
        training.queue.made_by(Some(&leader), &tokens).unwrap();
    }

    #[test]
    fn a_lost_chief_is_waited_for_unless_that_is_an_error() {
        for policy in [LostWorker::Shrink, LostWorker::Fail] {
            let mut training = Training::new(2, 2, policy, 4);
            training.rounds(4);
            training.kill(0);
            let error = (0..50).find_map(|_| training.train(1).err());
            assert_eq!(error.is_some(), policy == LostWorker::Fail);
            training.workers[0].who.give_up();
            let error = error.or_else(|| (0..50).find_map(|_| training.train(1).err())).expect("it never came back");
            assert_eq!(error.code, Code::FailedPrecondition);
            assert!(error.message.starts_with("/job:worker/replica:0/task:0 was lost"), "{error}");
        }
    }
}

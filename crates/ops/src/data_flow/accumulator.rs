//! `Accumulator`: gradients of several replicas summed up, and steps that wait until there are enough of them.
//!
//! A gradient that was computed from older variables than the accumulator's global step is dropped. Taking the sum
//! starts over and moves the global step on. While some of those who contribute are gone, fewer gradients are enough, or
//! none: `members.rs` tells. This file knows no kernels; `accumulator_ops.rs` has them.

use super::members::Members;
use super::wait::{Decider, Slot, Waiting, Wakers};
use framework::participant::{LostWorker, Participant, Watcher};
use framework::{Float, Resource};
use linalg::elementwise;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use tensor::{DType, Error, OwnedTensor, PartialShape, Result, Shape, Tensor, cancelled, invalid};

/// What becomes of several gradients.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reduction {
    /// Their mean; of sparse ones, the mean of those that have the row.
    Mean,
    /// Their sum.
    Sum,
}

/// What an accumulator accepts.
#[derive(Clone, Debug, PartialEq)]
pub struct AccumulatorSpec {
    /// The element type.
    pub dtype: DType,
    /// The shape of the gradients, as far as declared.
    pub shape: PartialShape,
    /// What becomes of several gradients.
    pub reduction: Reduction,
    /// Whether gradients are rows of a larger tensor.
    pub is_sparse: bool,
}

/// A gradient, or the sum of several.
#[derive(Clone, Debug)]
pub enum Gradient {
    /// All of it.
    Dense(Tensor),
    /// Some rows.
    Sparse(Rows),
}

/// Rows of a larger tensor.
#[derive(Clone, Debug)]
pub struct Rows {
    /// Where each row belongs.
    pub indices: Vec<i64>,
    /// How many gradients each row is the sum of.
    pub counts: Vec<usize>,
    /// The rows.
    pub values: Tensor,
}

/// Sums and means of one element type.
#[derive(Clone, Copy)]
pub struct Arithmetic {
    add: fn(&mut Tensor, &Tensor) -> Result<()>,
    merge: fn(&Rows, &Rows) -> Result<Rows>,
    divide: fn(&mut Tensor, &[usize]) -> Result<()>,
}

impl Arithmetic {
    /// Of this type.
    pub fn of<T: Float>() -> Arithmetic {
        Arithmetic { add: add::<T>, merge: merge::<T>, divide: divide::<T> }
    }
}

/// An accumulator on a device.
pub struct Accumulator {
    spec: AccumulatorSpec,
    arithmetic: Arithmetic,
    state: Mutex<State>,
}

impl Resource for Accumulator {
    const TYPE_NAME: &'static str = "N10tensorflow26ConditionalAccumulatorBaseE";
}

struct State {
    global_step: i64,
    count: usize,
    sum: Option<Gradient>,
    taking: VecDeque<Take>,
    members: Members,
}

struct Take {
    slot: Arc<Slot<Taken>>,
    required: usize,
    taker: Option<Arc<Participant>>,
}

/// A sum and the number of gradients in it.
type Taken = (Gradient, usize);

impl Accumulator {
    /// Nothing accumulated, at global step 0.
    pub fn new(spec: AccumulatorSpec, arithmetic: Arithmetic, policy: LostWorker) -> Accumulator {
        let members = Members::new(policy);
        let state = State { global_step: 0, count: 0, sum: None, taking: VecDeque::new(), members };
        Accumulator { spec, arithmetic, state: Mutex::new(state) }
    }

    /// What it accepts.
    pub fn spec(&self) -> &AccumulatorSpec {
        &self.spec
    }

    /// The number of gradients accumulated since the last were taken.
    pub fn count(&self) -> usize {
        self.state.lock().count
    }

    /// Gradients from steps before this one are dropped from now on.
    pub fn set_global_step(&self, step: i64) {
        self.state.lock().global_step = step;
    }

    /// Adds a gradient that somebody computed at this step, unless it comes too late.
    pub fn apply(
        self: &Arc<Accumulator>,
        local_step: i64,
        gradient: Gradient,
        who: Option<&Arc<Participant>>,
    ) -> Result<()> {
        let mut wakers = Wakers::default();
        let mut state = self.state.lock();
        if let Some(who) = who {
            state.members.watch(who, || self.watcher());
            state.members.join(who);
        }
        let added = self.add(&mut state, local_step, gradient);
        self.settle(&mut state, &mut wakers);
        drop(state);
        wakers.wake();
        added
    }

    fn add(&self, state: &mut State, local_step: i64, gradient: Gradient) -> Result<()> {
        if local_step < state.global_step {
            return Ok(());
        }
        self.check(&gradient, state.sum.as_ref())?;
        match (&mut state.sum, gradient) {
            (empty @ None, gradient) => *empty = Some(gradient),
            (Some(Gradient::Dense(sum)), Gradient::Dense(gradient)) => (self.arithmetic.add)(sum, &gradient)?,
            (Some(Gradient::Sparse(sum)), Gradient::Sparse(rows)) => *sum = (self.arithmetic.merge)(sum, &rows)?,
            _ => return Err(self.wrong_kind()),
        }
        state.count += 1;
        Ok(())
    }

    fn watcher(self: &Arc<Accumulator>) -> Weak<dyn Watcher> {
        Arc::downgrade(self) as Weak<dyn Watcher>
    }

    /// Takes what is accumulated, reduced, if there are enough gradients now.
    pub fn try_take(&self, required: usize) -> Option<Result<Gradient>> {
        let mut state = self.state.lock();
        if !state.taking.is_empty() || state.count < required {
            return None;
        }
        let taken = take(&mut state)?;
        drop(state);
        Some(self.reduced(taken))
    }

    /// Takes what is accumulated, reduced, as soon as there are enough gradients: as many as are required, or as those
    /// make who are left.
    pub fn take(
        self: &Arc<Accumulator>,
        required: usize,
        taker: Option<Arc<Participant>>,
    ) -> impl Future<Output = Result<Gradient>> + Send + use<> {
        let (slot, mut wakers) = (Slot::new(), Wakers::default());
        let mut state = self.state.lock();
        if let Some(taker) = &taker {
            state.members.watch(taker, || self.watcher());
        }
        state.taking.push_back(Take { slot: slot.clone(), required, taker });
        self.settle(&mut state, &mut wakers);
        drop(state);
        wakers.wake();
        let waiting = Waiting::new(slot, self.clone() as Arc<dyn Decider<Taken>>);
        let this = self.clone();
        async move { this.reduced(waiting.await?) }
    }

    /// Serves those who wait, in their order, while there are enough gradients for the first. Who waits in vain is told.
    fn settle(&self, state: &mut State, wakers: &mut Wakers) {
        if state.members.are_watched() {
            let members = &state.members;
            state.taking.retain(|take| match in_vain(members, take.taker.as_deref()) {
                Some(error) => {
                    take.slot.set(Err(error), wakers);
                    false
                }
                None => true,
            });
        }
        while let Some(first) = state.taking.front().filter(|t| state.members.share_of(t.required) <= state.count) {
            let slot = first.slot.clone();
            let Some(taken) = take(state) else { break };
            state.taking.pop_front();
            slot.set(Ok(taken), wakers);
        }
    }

    fn reduced(&self, (gradient, count): Taken) -> Result<Gradient> {
        if self.spec.reduction == Reduction::Sum {
            return Ok(gradient);
        }
        Ok(match gradient {
            Gradient::Dense(mut sum) => {
                (self.arithmetic.divide)(&mut sum, &[count])?;
                Gradient::Dense(sum)
            }
            Gradient::Sparse(mut rows) => {
                (self.arithmetic.divide)(&mut rows.values, &rows.counts)?;
                Gradient::Sparse(rows)
            }
        })
    }

    /// The shape of the whole tensor that taken rows belong to; -1 where nobody said.
    pub fn dense_shape(&self, rows: &Rows) -> Vec<i64> {
        let first = self.spec.shape.dim(0).map_or(-1, |d| d as i64);
        std::iter::once(first).chain(rows.values.dims()[1..].iter().map(|&d| d as i64)).collect()
    }

    fn check(&self, gradient: &Gradient, sum: Option<&Gradient>) -> Result<()> {
        let dtype = match gradient {
            Gradient::Dense(tensor) => tensor.dtype(),
            Gradient::Sparse(rows) => rows.values.dtype(),
        };
        if dtype != self.spec.dtype {
            return Err(invalid!("the accumulator holds {}, found a gradient of {dtype}", self.spec.dtype));
        }
        match gradient {
            Gradient::Dense(tensor) if !self.spec.is_sparse => {
                let before = sum.and_then(|s| if let Gradient::Dense(s) = s { Some(s.shape()) } else { None });
                if !self.spec.shape.accepts(tensor.shape()) || before.is_some_and(|b| b != tensor.shape()) {
                    let wanted = before.map_or(self.spec.shape.clone(), PartialShape::from);
                    return Err(invalid!("Shape mismatch: expected {wanted}, got {}", tensor.shape()));
                }
                Ok(())
            }
            Gradient::Sparse(rows) if self.spec.is_sparse => {
                let before = sum.and_then(|s| if let Gradient::Sparse(s) = s { Some(s.values.shape()) } else { None });
                self.check_rows(rows, before)
            }
            _ => Err(self.wrong_kind()),
        }
    }

    fn check_rows(&self, rows: &Rows, before: Option<&Shape>) -> Result<()> {
        let found = rows.values.shape();
        if found.is_scalar() {
            return Err(invalid!("Values cannot be 0-dimensional."));
        }
        if rows.indices.len() != found.dims()[0] {
            return Err(invalid!("Expected {} non-empty input values, got {}", rows.indices.len(), found.dims()[0]));
        }
        let declared = self.spec.shape.dims().unwrap_or_default();
        if found.rank() < declared.len() {
            return Err(invalid!(
                "Shape mismatch: expected values rank at least {}, got {}",
                declared.len(),
                found.rank()
            ));
        }
        for (i, &dim) in found.dims().iter().enumerate().skip(1) {
            let wanted = declared.get(i).copied().flatten().or(before.and_then(|b| b.dims().get(i).copied()));
            if let Some(wanted) = wanted.filter(|&w| w != dim) {
                return Err(invalid!("Shape mismatch: expected values dim {i} to be {wanted}, got {dim}"));
            }
        }
        if before.is_some_and(|b| b.rank() != found.rank()) {
            return Err(invalid!("Shape mismatch: expected values of another rank than {found}"));
        }
        if let Some(Some(limit)) = declared.first()
            && let Some((slice, index)) = rows.indices.iter().enumerate().find(|(_, i)| **i >= *limit as i64)
        {
            return Err(invalid!(
                "Shape mismatch: index of slice {slice} exceeded limits of shape; index is {index} exceeded {limit}"
            ));
        }
        Ok(())
    }

    fn wrong_kind(&self) -> Error {
        let (has, not) = if self.spec.is_sparse { ("sparse", "dense") } else { ("dense", "sparse") };
        invalid!("the accumulator holds {has} gradients, not {not} ones")
    }
}

/// Why nobody should wait for this one's gradients any more.
fn in_vain(members: &Members, taker: Option<&Participant>) -> Option<Error> {
    if taker.is_some_and(|t| !t.is_here() && !t.presence().is_lost()) {
        return Some(cancelled!("the session that was to take these gradients has ended"));
    }
    members.loss(taker)
}

/// Takes all and starts over.
fn take(state: &mut State) -> Option<Taken> {
    let sum = state.sum.take()?;
    state.global_step = state.global_step.saturating_add(1);
    Some((sum, std::mem::take(&mut state.count)))
}

impl Watcher for Accumulator {
    fn presence_changed(&self) {
        let mut wakers = Wakers::default();
        let mut state = self.state.lock();
        state.members.refresh();
        self.settle(&mut state, &mut wakers);
        drop(state);
        wakers.wake();
    }
}

impl Decider<Taken> for Accumulator {
    fn withdraw(&self, slot: &Arc<Slot<Taken>>) {
        let mut wakers = Wakers::default();
        let mut state = self.state.lock();
        state.taking.retain(|t| !Arc::ptr_eq(&t.slot, slot));
        if let Some(Ok((gradient, count))) = slot.take()
            && state.sum.is_none()
        {
            // Served already, but nobody came for it: it is as if it had not been taken.
            state.global_step -= 1;
            (state.sum, state.count) = (Some(gradient), count);
        }
        self.settle(&mut state, &mut wakers);
        drop(state);
        wakers.wake();
    }
}

fn add<T: Float>(sum: &mut Tensor, other: &Tensor) -> Result<()> {
    elementwise::zip_update_slice(sum.as_mut_slice::<T>()?, other.as_slice::<T>()?, |a: T, b: T| a.add(b));
    Ok(())
}

fn divide<T: Float>(sum: &mut Tensor, counts: &[usize]) -> Result<()> {
    let row = sum.num_elements() / counts.len().max(1);
    if row == 0 || counts.iter().all(|&c| c <= 1) {
        return Ok(());
    }
    for (row, &count) in sum.as_mut_slice::<T>()?.chunks_exact_mut(row).zip(counts) {
        if count.is_power_of_two() {
            // The same number, in a fraction of the time: nothing else can be done while gradients are divided.
            let part = T::from_f64(1.0 / count as f64);
            elementwise::update_slice(row, |v: T| v.mul(part));
        } else {
            let count = T::from_f64(count as f64);
            elementwise::update_slice(row, |v: T| v.div(count));
        }
    }
    Ok(())
}

/// Rows of both, in the order of their indices; a row that both have is their sum. As in TensorFlow, both are taken to
/// be in order already, and what is not stays where a merge of sorted lists leaves it.
fn merge<T: Float>(a: &Rows, b: &Rows) -> Result<Rows> {
    /// Which row comes next.
    enum Next {
        A(usize),
        B(usize),
        Both(usize, usize),
    }
    let (mut i, mut j, mut plan) = (0, 0, Vec::with_capacity(a.indices.len() + b.indices.len()));
    loop {
        match (a.indices.get(i), b.indices.get(j)) {
            (None, None) => break,
            (Some(x), Some(y)) if x == y => {
                plan.push(Next::Both(i, j));
                (i, j) = (i + 1, j + 1);
            }
            (Some(x), y) if y.is_none_or(|y| x < y) => {
                plan.push(Next::A(i));
                i += 1;
            }
            _ => {
                plan.push(Next::B(j));
                j += 1;
            }
        }
    }
    let row_shape = Shape::from(&a.values.dims()[1..]);
    let row = row_shape.num_elements();
    let (x, y) = (a.values.as_slice::<T>()?, b.values.as_slice::<T>()?);
    let mut values = OwnedTensor::<T>::new(super::rows::prepended(plan.len(), &row_shape)?)?;
    let (mut indices, mut counts) = (Vec::with_capacity(plan.len()), Vec::with_capacity(plan.len()));
    for (at, next) in plan.into_iter().enumerate() {
        let into = &mut values[at * row..][..row];
        let (index, count) = match next {
            Next::A(i) => {
                into.copy_from_slice(&x[i * row..][..row]);
                (a.indices[i], a.counts[i])
            }
            Next::B(j) => {
                into.copy_from_slice(&y[j * row..][..row]);
                (b.indices[j], b.counts[j])
            }
            Next::Both(i, j) => {
                for ((v, &p), &q) in into.iter_mut().zip(&x[i * row..]).zip(&y[j * row..]) {
                    *v = p.add(q);
                }
                (a.indices[i], a.counts[i] + b.counts[j])
            }
        };
        indices.push(index);
        counts.push(count);
    }
    Ok(Rows { indices, counts, values: values.into() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use framework::Participants;
    use std::task::{Context, Poll, Waker};
    use std::time::Instant;

    fn accumulator(reduction: Reduction, is_sparse: bool) -> Arc<Accumulator> {
        let spec = AccumulatorSpec { dtype: DType::F32, shape: PartialShape::unknown(), reduction, is_sparse };
        Arc::new(Accumulator::new(spec, Arithmetic::of::<f32>(), LostWorker::Wait))
    }

    fn shared(policy: LostWorker) -> (Arc<Accumulator>, [Arc<Participant>; 2]) {
        let spec = accumulator(Reduction::Mean, false).spec.clone();
        let (all, now) = (Participants::new(policy), Instant::now());
        let workers = [0, 1].map(|i| all.admit(format!("/job:worker/replica:0/task:{i}"), now));
        (Arc::new(Accumulator::new(spec, Arithmetic::of::<f32>(), policy)), workers)
    }

    fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
        std::pin::pin!(future).poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn a_mean_is_the_sum_divided_to_the_last_bit() {
        let values = [1.0, -3.7, 1e-45, 3e-45, -1.1754944e-38, 3.4e38, 0.0, -0.0, f32::INFINITY, 1.0 / 3.0];
        for count in 1..=16 {
            let mut sum = Tensor::from(values);
            divide::<f32>(&mut sum, &[count]).unwrap();
            let bits = |x: f32| x.to_bits();
            let expected = values.map(|x| bits(x / count as f32));
            assert_eq!(
                sum.as_slice::<f32>().unwrap().iter().copied().map(bits).collect::<Vec<_>>(),
                expected,
                "{count}"
            );
        }
    }

    fn soon() -> Instant {
        Instant::now() + std::time::Duration::from_secs(1)
    }

    #[test]
    fn a_round_is_made_by_those_who_are_left_until_the_lost_one_is_back() {
        let (a, [chief, other]) = shared(LostWorker::Shrink);
        let mut round = Box::pin(a.take(2, Some(chief.clone())));
        a.apply(0, dense([1.0]), Some(&chief)).unwrap();
        assert!(poll(&mut round).is_pending(), "the other may still come");
        a.apply(0, dense([3.0]), Some(&other)).unwrap();
        let Poll::Ready(Ok(Gradient::Dense(got))) = poll(&mut round) else { panic!("both have come") };
        assert_eq!(got, Tensor::from([2.0f32]));

        let mut round = Box::pin(a.take(2, Some(chief.clone())));
        a.apply(1, dense([5.0]), Some(&chief)).unwrap();
        assert!(poll(&mut round).is_pending());
        other.lose(soon());
        let Poll::Ready(Ok(Gradient::Dense(got))) = poll(&mut round) else { panic!("one is enough") };
        assert_eq!(got, Tensor::from([5.0f32]));

        let again = other.all().admit(other.name(), soon());
        a.apply(1, dense([7.0]), Some(&again)).unwrap();
        let mut round = Box::pin(a.take(2, Some(chief.clone())));
        a.apply(2, dense([9.0]), Some(&chief)).unwrap();
        assert!(poll(&mut round).is_pending(), "it came with an old gradient, but it came");
        a.apply(2, dense([11.0]), Some(&again)).unwrap();
        assert!(poll(&mut round).is_ready());
    }

    #[test]
    fn whoever_waits_for_a_lost_worker_is_told_or_waits_as_the_policy_says() {
        for policy in [LostWorker::Fail, LostWorker::Wait] {
            let (a, [chief, other]) = shared(policy);
            let mut round = Box::pin(a.take(2, Some(chief.clone())));
            a.apply(-1, dense([1.0]), Some(&other)).unwrap();
            a.apply(0, dense([1.0]), Some(&chief)).unwrap();
            other.lose(soon());
            match (policy, poll(&mut round)) {
                (LostWorker::Wait, Poll::Pending) => {}
                (LostWorker::Fail, Poll::Ready(Err(e))) => {
                    assert!(e.message.starts_with("/job:worker/replica:0/task:1 was lost"), "{e}");
                }
                (policy, _) => panic!("{policy}"),
            }
        }
    }

    #[test]
    fn who_has_left_takes_nothing_any_more() {
        let (a, [chief, _]) = shared(LostWorker::Shrink);
        let mut round = Box::pin(a.take(2, Some(chief.clone())));
        chief.leave(soon());
        let Poll::Ready(Err(e)) = poll(&mut round) else { panic!("it has left") };
        assert_eq!(e.code, tensor::Code::Cancelled);
    }

    fn dense<const N: usize>(values: [f32; N]) -> Gradient {
        Gradient::Dense(Tensor::from(values))
    }

    fn rows<const N: usize>(indices: [i64; N], values: [[f32; 2]; N]) -> Gradient {
        Gradient::Sparse(Rows { indices: indices.to_vec(), counts: vec![1; N], values: Tensor::from(values) })
    }

    #[test]
    fn a_waiting_step_gets_the_mean_and_late_gradients_are_dropped() {
        let a = accumulator(Reduction::Mean, false);
        let mut waiting = Box::pin(a.take(2, None));
        let mut context = Context::from_waker(Waker::noop());
        a.apply(0, dense([1.0, 2.0]), None).unwrap();
        assert!(waiting.as_mut().poll(&mut context).is_pending());
        a.apply(0, dense([3.0, 5.0]), None).unwrap();
        let Poll::Ready(Ok(Gradient::Dense(got))) = waiting.as_mut().poll(&mut context) else { panic!("enough") };
        assert_eq!(got, Tensor::from([2.0f32, 3.5]));
        a.apply(0, dense([1.0, 1.0]), None).unwrap();
        assert_eq!(a.count(), 0, "computed from variables that were changed since");
        a.apply(1, dense([1.0, 1.0]), None).unwrap();
        assert_eq!(a.count(), 1);
        assert!(a.apply(1, dense([1.0]), None).unwrap_err().message.contains("expected [2], got [1]"));
    }

    #[test]
    fn a_dropped_take_takes_nothing() {
        let a = accumulator(Reduction::Sum, false);
        let waiting = a.take(1, None);
        a.apply(0, dense([1.0]), None).unwrap();
        drop(waiting);
        assert_eq!(a.count(), 1);
        let Some(Ok(Gradient::Dense(got))) = a.try_take(1) else { panic!("there is one") };
        assert_eq!(got, Tensor::from([1.0f32]));
    }

    #[test]
    fn sparse_rows_are_divided_by_the_gradients_that_have_them() {
        let a = accumulator(Reduction::Mean, true);
        a.apply(0, rows([1, 3], [[1.0, 2.0], [3.0, 4.0]]), None).unwrap();
        a.apply(0, rows([0, 3], [[1.0, 2.0], [3.0, 5.0]]), None).unwrap();
        let Some(Ok(Gradient::Sparse(got))) = a.try_take(2) else { panic!("there are two") };
        assert_eq!(got.indices, [0, 1, 3]);
        assert_eq!(got.values, Tensor::from([[1.0f32, 2.0], [1.0, 2.0], [3.0, 4.5]]));
        assert_eq!(a.dense_shape(&got), [-1, 2]);
    }
}

//! `Queue`: elements that wait to be taken, and steps that wait to add or take some.
//!
//! A queue is first in, first out on all three sides: attempts to add, elements, attempts to take. Only the front
//! attempt of each side is ever tried. Closing waits behind the attempts to add that came before it. A queue of tokens
//! also minds who takes part (`tokens.rs`). This file knows no kernels; `queue_ops.rs` has them.

use super::rows;
use super::tokens::{Lead, Tokens};
use super::wait::{Decider, Slot, Waiting, Wakers};
use framework::Resource;
use framework::participant::{LostWorker, Participant, Watcher};
use linalg::random::{Philox, Words};
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use tensor::{DType, Error, PartialShape, Result, Shape, Tensor, cancelled, invalid, out_of_range};

/// What is added and taken as one: a tensor for each component.
pub type Element = SmallVec<[Tensor; 2]>;

/// What a queue promises about its elements and their order.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueSpec {
    /// In which order elements leave.
    pub order: Order,
    /// The type of each component.
    pub types: Vec<DType>,
    /// The shape of each component; empty if shapes may vary freely.
    pub shapes: Vec<PartialShape>,
    /// How many elements may wait; negative if there is no bound.
    pub capacity: i64,
}

/// In which order elements leave a queue.
#[derive(Clone, Debug, PartialEq)]
pub enum Order {
    /// As they came.
    Fifo,
    /// As they came; components of different sizes are padded when taken together.
    PaddingFifo,
    /// At random, while at least `min_after_dequeue` elements stay behind.
    Shuffled {
        /// How many stay behind until the queue is closed.
        min_after_dequeue: usize,
        /// The seeds of the order.
        seeds: (i64, i64),
    },
    /// By the first component, a number: the smallest first.
    Priority,
}

impl QueueSpec {
    /// A complaint if the parts contradict each other.
    pub fn check(&self) -> Result<()> {
        if !self.shapes.is_empty() && self.shapes.len() != self.types.len() {
            return Err(invalid!(
                "Different number of component types.  Types: {}, Shapes: {}",
                list(&self.types),
                shape_list(&self.shapes)
            ));
        }
        if self.order == Order::PaddingFifo && self.shapes.len() != self.types.len() {
            return Err(invalid!(
                "Shapes must be provided for all components, but received {} dtypes and {} shapes.",
                self.types.len(),
                self.shapes.len()
            ));
        }
        if let Order::Shuffled { min_after_dequeue, .. } = self.order
            && (0..=min_after_dequeue as i64).contains(&self.capacity)
        {
            return Err(invalid!("min_after_dequeue {min_after_dequeue} must be < capacity {}", self.capacity));
        }
        Ok(())
    }

    /// A complaint if a queue of this sort, shared under `name`, is not what `wanted` declares.
    pub fn check_same(&self, wanted: &QueueSpec, name: &str) -> Result<()> {
        let differs = |what, has: String, asked: String| {
            let verb = if what == "capacity" { "was" } else { "were" };
            Err(invalid!("Shared queue '{name}' has {what} {has} but requested {what} {verb} {asked}"))
        };
        if self.kind() != wanted.kind() {
            return Err(invalid!("Shared queue '{name}': Expected {}, found {}", self.kind(), wanted.kind()));
        }
        if self.order != wanted.order {
            let (has, asked) = (format!("{:?}", self.order), format!("{:?}", wanted.order));
            return differs("order", has, asked);
        }
        if self.capacity.max(-1) != wanted.capacity.max(-1) {
            return differs("capacity", self.capacity.to_string(), wanted.capacity.to_string());
        }
        if self.types != wanted.types {
            return differs("component types", list(&self.types), list(&wanted.types));
        }
        if self.shapes != wanted.shapes {
            return differs("component shapes", shape_list(&self.shapes), shape_list(&wanted.shapes));
        }
        Ok(())
    }

    /// The kind as messages name it.
    pub fn kind(&self) -> &'static str {
        match self.order {
            Order::Fifo => "FIFOQueue",
            Order::PaddingFifo => "PaddingFIFOQueue",
            Order::Shuffled { .. } => "RandomShuffleQueue",
            Order::Priority => "PriorityQueue",
        }
    }
}

pub(super) fn list(types: &[DType]) -> String {
    types.iter().map(|d| d.name()).collect::<Vec<_>>().join(", ")
}

fn shape_list(shapes: &[PartialShape]) -> String {
    format!("[{}]", shapes.iter().map(|s| s.to_string()).collect::<Vec<_>>().join(", "))
}

/// How many elements one attempt takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Amount {
    /// Just so many.
    Exactly(usize),
    /// So many, or what is left once the queue is closed.
    UpTo(usize),
}

/// A queue on a device.
pub struct Queue {
    name: String,
    spec: QueueSpec,
    state: Mutex<State>,
}

impl Resource for Queue {
    const TYPE_NAME: &'static str = "N10tensorflow14QueueInterfaceE";
}

struct State {
    is_closed: bool,
    elements: VecDeque<Element>,
    /// Draws the places from which shuffled elements leave.
    random: Words,
    adding: VecDeque<(Arc<Slot<()>>, Add)>,
    taking: VecDeque<Take>,
    /// Who takes part, if the elements are tokens.
    tokens: Option<Tokens>,
}

enum Add {
    Elements(VecDeque<Element>),
    /// Closing stands in line with those who add.
    Close,
}

struct Take {
    slot: Arc<Slot<Vec<Element>>>,
    amount: Amount,
    taker: Option<Arc<Participant>>,
    /// What was taken so far; given back if the rest never comes.
    taken: Vec<Element>,
}

impl Take {
    fn missing(&self) -> usize {
        let (Amount::Exactly(wanted) | Amount::UpTo(wanted)) = self.amount;
        wanted - self.taken.len()
    }
}

impl Queue {
    /// An empty queue. Seeds of zero draw another order every time: `random_seeds` are used in their place.
    pub fn new(name: impl Into<String>, spec: QueueSpec, random_seeds: (u64, u64)) -> Result<Queue> {
        spec.check()?;
        let (seed, seed2) = match spec.order {
            Order::Shuffled { seeds, .. } if seeds != (0, 0) => (seeds.0 as u64, seeds.1 as u64),
            _ => random_seeds,
        };
        let state = State {
            is_closed: false,
            elements: VecDeque::new(),
            random: Philox::new(seed, seed2).words(),
            adding: VecDeque::new(),
            taking: VecDeque::new(),
            tokens: None,
        };
        Ok(Queue { name: name.into(), spec, state: Mutex::new(state) })
    }

    /// The same, of tokens whose takers and makers are dealt with like this when they are lost.
    pub fn of_tokens(mut self, policy: LostWorker) -> Queue {
        self.state.get_mut().tokens = Some(Tokens::new(policy));
        self
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether closing it means that the session that does so has come to its end.
    pub fn is_closed_at_the_end(&self) -> bool {
        self.state.lock().tokens.as_ref().is_some_and(Tokens::are_watched)
    }

    /// Whether somebody may close it: of a queue that minds, only who fills it.
    pub fn may_be_closed_by(&self, somebody: Option<&Arc<Participant>>) -> bool {
        let state = self.state.lock();
        let (Some(tokens), Some(somebody)) = (&state.tokens, somebody) else { return true };
        !tokens.are_watched() || !tokens.are_made() || somebody.name().is_empty() || tokens.has_made(somebody)
    }

    /// Whether somebody who asks is to fill it; `None` for a queue that leaves that to those who do. One that was closed
    /// when training stopped is opened when another one begins to.
    pub fn is_led_by(self: &Arc<Queue>, asker: Option<&Arc<Participant>>, is_chief: bool) -> Option<bool> {
        let state = &mut *self.state.lock();
        let lead = state.tokens.as_mut()?.lead(asker?, is_chief, || Arc::downgrade(self) as Weak<dyn Watcher>)?;
        state.is_closed &= lead != Lead::Anew;
        Some(lead != Lead::Follow)
    }

    /// Who adds these elements, for a queue that minds: one that was closed when training stopped is opened when it
    /// begins again. An error if others are to be left to another one.
    pub fn made_by(self: &Arc<Queue>, maker: Option<&Arc<Participant>>, elements: &VecDeque<Element>) -> Result<()> {
        let state = &mut *self.state.lock();
        let (Some(maker), Some(tokens)) = (maker, &mut state.tokens) else { return Ok(()) };
        let begins_anew = tokens.made(maker, elements, || Arc::downgrade(self) as Weak<dyn Watcher>);
        state.is_closed &= !(begins_anew && tokens.are_watched());
        tokens.relief(maker).map_or(Ok(()), Err)
    }

    /// Who is about to take elements, for a queue that minds.
    pub fn wanted_by(self: &Arc<Queue>, taker: Option<&Arc<Participant>>) {
        if let (Some(taker), Some(tokens)) = (taker, &mut self.state.lock().tokens) {
            tokens.wanted(taker, || Arc::downgrade(self) as Weak<dyn Watcher>);
        }
    }

    /// What it promises.
    pub fn spec(&self) -> &QueueSpec {
        &self.spec
    }

    /// The number of elements that wait.
    pub fn len(&self) -> usize {
        self.state.lock().elements.len()
    }

    /// Whether no element waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether it was closed.
    pub fn is_closed(&self) -> bool {
        self.state.lock().is_closed
    }

    /// Adds elements if that needs no waiting.
    pub fn try_enqueue(&self, elements: VecDeque<Element>) -> Option<Result<()>> {
        let slot = Slot::new();
        let mut state = self.state.lock();
        let fits = state.elements.len().saturating_add(elements.len()) <= self.capacity();
        if !state.adding.is_empty() || !(fits || state.is_closed) {
            return None;
        }
        state.adding.push_back((slot.clone(), Add::Elements(elements)));
        self.settle(&mut state, Wakers::default(), |_, _| {}).release(state);
        slot.take()
    }

    /// Adds elements as soon as there is room.
    pub fn enqueue(self: &Arc<Queue>, elements: VecDeque<Element>) -> impl Future<Output = Result<()>> + Send + use<> {
        self.add(Add::Elements(elements))
    }

    /// Takes elements if that needs no waiting.
    pub fn try_dequeue(&self, amount: Amount, taker: Option<&Arc<Participant>>) -> Option<Result<Vec<Element>>> {
        let slot = Slot::new();
        let take = Take { slot: slot.clone(), amount, taker: taker.cloned(), taken: Vec::new() };
        let mut state = self.state.lock();
        let fits = take.missing() <= self.available(&state) && may_go(&state, &take);
        if !state.taking.is_empty() || !(fits || state.is_closed) {
            return None;
        }
        state.taking.push_back(take);
        self.settle(&mut state, Wakers::default(), |_, _| {}).release(state);
        slot.take()
    }

    /// Takes elements as soon as they are there.
    pub fn dequeue(
        self: &Arc<Queue>,
        amount: Amount,
        taker: Option<Arc<Participant>>,
    ) -> impl Future<Output = Result<Vec<Element>>> + Send + use<> {
        let slot = Slot::new();
        let take = Take { slot: slot.clone(), amount, taker, taken: Vec::new() };
        self.change(|state, _| state.taking.push_back(take));
        Waiting::new(slot, self.clone() as Arc<dyn Decider<Vec<Element>>>)
    }

    /// Lets nobody add any more, once those who already wait to add have done so.
    pub fn close(self: &Arc<Queue>) -> impl Future<Output = Result<()>> + Send + use<> {
        self.add(Add::Close)
    }

    /// Lets nobody add any more, and turns away those who wait to.
    pub fn close_and_cancel(&self) {
        self.change(|state, wakers| {
            state.is_closed = true;
            for (slot, _) in state.adding.drain(..) {
                slot.set(Err(cancelled!("Enqueue operation was cancelled")), wakers);
            }
        });
    }

    fn add(self: &Arc<Queue>, add: Add) -> Waiting<()> {
        let slot = Slot::new();
        self.change(|state, _| state.adding.push_back((slot.clone(), add)));
        Waiting::new(slot, self.clone() as Arc<dyn Decider<()>>)
    }

    /// Changes the state, lets in and out whoever can go then, and wakes them after the lock is released.
    fn change(&self, change: impl FnOnce(&mut State, &mut Wakers)) {
        let mut state = self.state.lock();
        self.settle(&mut state, Wakers::default(), change).release(state);
    }

    fn settle(&self, state: &mut State, mut wakers: Wakers, change: impl FnOnce(&mut State, &mut Wakers)) -> Settled {
        change(state, &mut wakers);
        while self.let_in(state, &mut wakers) | self.let_out(state, &mut wakers) {}
        self.turn_away(state, &mut wakers);
        Settled(wakers)
    }

    /// Whether an element was added, or an attempt to add came to its end.
    fn let_in(&self, state: &mut State, wakers: &mut Wakers) -> bool {
        let mut moved = false;
        while let Some((slot, add)) = state.adding.front_mut() {
            let outcome = match add {
                Add::Close if state.is_closed => Err(cancelled!("Queue '{}' is already closed.", self.name)),
                Add::Close => {
                    state.is_closed = true;
                    Ok(())
                }
                Add::Elements(_) if state.is_closed => {
                    Err(cancelled!("{} '{}' is closed.", self.kind_of_single(), self.name))
                }
                Add::Elements(elements) => {
                    let room = self.capacity().saturating_sub(state.elements.len()).min(elements.len());
                    for element in elements.drain(..room) {
                        self.put(&mut state.elements, element);
                    }
                    if let Some(tokens) = &state.tokens {
                        tokens.drop_old(&mut state.elements);
                    }
                    moved |= room > 0;
                    if !elements.is_empty() {
                        return moved;
                    }
                    Ok(())
                }
            };
            slot.set(outcome, wakers);
            state.adding.pop_front();
            moved = true;
        }
        moved
    }

    /// Whether an element was taken, or an attempt to take came to its end.
    fn let_out(&self, state: &mut State, wakers: &mut Wakers) -> bool {
        let mut moved = false;
        while let Some(at) = state.taking.iter().position(|take| may_go(state, take)) {
            let mut take = state.taking.remove(at).expect("it was just found");
            let mut outcome = Ok(());
            if state.is_closed && state.elements.len() < take.missing() {
                let complaint = self.insufficient(take.amount, take.missing(), state.elements.len());
                self.give_back(state, &mut take.taken);
                // TensorFlow's queue by priority gives only whole batches.
                match take.amount {
                    Amount::UpTo(_) if !state.elements.is_empty() && self.spec.order != Order::Priority => {
                        take.amount = Amount::UpTo(state.elements.len())
                    }
                    _ => outcome = Err(complaint),
                }
            }
            if outcome.is_ok() {
                let count = take.missing().min(self.available(state));
                for _ in 0..count {
                    take.taken.extend(self.next(state));
                }
                moved |= count > 0;
                if take.missing() > 0 {
                    state.taking.insert(at, take);
                    return moved;
                }
            }
            if let (Some(tokens), Some(taker)) = (&mut state.tokens, &take.taker) {
                take.taken.iter().for_each(|token| tokens.taken(taker, token));
            }
            take.slot.set(outcome.map(|()| take.taken), wakers);
            moved = true;
        }
        moved
    }

    /// Tells those who wait for tokens in vain.
    fn turn_away(&self, state: &mut State, wakers: &mut Wakers) {
        let Some(tokens) = &state.tokens else { return };
        state.taking.retain(|take| match take.taker.as_deref().and_then(|t| tokens.in_vain(t, &self.name)) {
            Some(error) => {
                take.slot.set(Err(error), wakers);
                false
            }
            None => true,
        });
    }

    /// Adds an element behind those that leave before it.
    fn put(&self, elements: &mut VecDeque<Element>, element: Element) {
        match self.spec.order {
            Order::Priority => {
                let own = priority(&element);
                let place = elements.partition_point(|other| priority(other) <= own);
                elements.insert(place, element);
            }
            _ => elements.push_back(element),
        }
    }

    /// The element whose turn it is.
    fn next(&self, state: &mut State) -> Option<Element> {
        match self.spec.order {
            Order::Shuffled { .. } if !state.elements.is_empty() => {
                let place = state.random.next_word() as usize % state.elements.len();
                state.elements.swap_remove_back(place)
            }
            _ => state.elements.pop_front(),
        }
    }

    /// Puts taken elements back where they were.
    fn give_back(&self, state: &mut State, taken: &mut Vec<Element>) {
        for element in taken.drain(..).rev() {
            match self.spec.order {
                Order::Shuffled { .. } => state.elements.push_back(element),
                Order::Priority => {
                    let own = priority(&element);
                    let place = state.elements.partition_point(|other| priority(other) < own);
                    state.elements.insert(place, element);
                }
                _ => state.elements.push_front(element),
            }
        }
    }

    /// How many elements may leave now.
    fn available(&self, state: &State) -> usize {
        match self.spec.order {
            Order::Shuffled { min_after_dequeue, .. } if !state.is_closed => {
                state.elements.len().saturating_sub(min_after_dequeue)
            }
            _ => state.elements.len(),
        }
    }

    fn capacity(&self) -> usize {
        usize::try_from(self.spec.capacity).unwrap_or(usize::MAX)
    }

    /// TensorFlow's padding queue calls itself a plain one except where it pads.
    fn kind_of_single(&self) -> &'static str {
        if self.spec.order == Order::PaddingFifo { "FIFOQueue" } else { self.spec.kind() }
    }

    fn insufficient(&self, amount: Amount, missing: usize, found: usize) -> Error {
        let kind = if amount == Amount::Exactly(1) { self.kind_of_single() } else { self.spec.kind() };
        out_of_range!(
            "{kind} '{}' is closed and has insufficient elements (requested {missing}, current size {found})",
            self.name
        )
    }

    /// An element of these components, if they are what the queue holds.
    pub fn element(&self, components: Element) -> Result<Element> {
        if self.spec.order == Order::Priority && components.first().is_some_and(|p| !p.shape().is_scalar()) {
            let found = components[0].shape();
            return Err(invalid!("Expected the priority element to be a scalar, but received shape: {found}"));
        }
        for (i, (component, shape)) in components.iter().zip(&self.spec.shapes).enumerate() {
            if !shape.accepts(component.shape()) {
                return Err(mismatch(i, shape, component.shape()));
            }
        }
        Ok(components)
    }

    /// The elements that these components are the rows of, if they are what the queue holds.
    pub fn elements(&self, components: &[Tensor]) -> Result<VecDeque<Element>> {
        if self.spec.order == Order::Priority && components.first().is_some_and(|p| p.shape().rank() != 1) {
            let found = components[0].shape();
            return Err(invalid!("Expected the priority element to be a vector, but received shape: {found}"));
        }
        let first = components.first().and_then(|c| c.dims().first().copied());
        let count = first.ok_or_else(|| invalid!("Input tensors must have at least rank 1, found a scalar"))?;
        for (i, component) in components.iter().enumerate() {
            match self.spec.shapes.get(i) {
                Some(shape) => {
                    let wanted = match shape.dims() {
                        Some(dims) => PartialShape::new(std::iter::once(Some(count)).chain(dims.iter().copied())),
                        None => PartialShape::unknown(),
                    };
                    if !wanted.accepts(component.shape()) || component.shape().is_scalar() {
                        return Err(mismatch(i, &wanted, component.shape()));
                    }
                }
                None if component.dims().first() != Some(&count) => {
                    return Err(invalid!(
                        "All input tensors must have the same size in the 0th dimension. Component {i} has shape {}, \
                         and should have {count} rows",
                        component.shape()
                    ));
                }
                None => {}
            }
        }
        let mut elements = VecDeque::from(vec![Element::new(); count]);
        for component in components {
            for (element, row) in elements.iter_mut().zip(rows::split(component)?) {
                element.push(row);
            }
        }
        Ok(elements)
    }

    /// A complaint if elements of this queue cannot be put into one tensor.
    pub fn check_batches(&self) -> Result<()> {
        let specified = match self.spec.order {
            Order::PaddingFifo => self.spec.shapes.iter().all(|s| s.rank().is_some()),
            _ => !self.spec.shapes.is_empty() && self.spec.shapes.iter().all(|s| s.known().is_some()),
        };
        if !specified {
            let kind = self.spec.kind();
            return Err(invalid!(
                "{kind}'s DequeueMany and DequeueUpTo require the components to have specified shapes."
            ));
        }
        Ok(())
    }

    /// Elements put together: one tensor for each component, one row for each element.
    pub fn batch(&self, elements: &[Element]) -> Result<Element> {
        let types = self.spec.types.iter().zip(&self.spec.shapes).enumerate();
        types
            .map(|(i, (&dtype, shape))| {
                let column: Vec<&Tensor> = elements.iter().map(|e| &e[i]).collect();
                let smallest: Shape = shape.dims().unwrap_or_default().iter().map(|d| d.unwrap_or(0)).collect();
                match self.spec.order {
                    Order::PaddingFifo if !column.is_empty() => rows::padded(dtype, smallest.rank(), &column),
                    _ => rows::stacked(dtype, &smallest, column.into_iter()),
                }
            })
            .collect()
    }
}

/// Whether it is an attempt's turn; in plain queues it is that of the first.
fn may_go(state: &State, take: &Take) -> bool {
    state.tokens.as_ref().is_none_or(|tokens| tokens.may_take(take.taker.as_ref(), state.elements.front()))
}

/// The number an element of a priority queue is ordered by.
fn priority(element: &Element) -> i64 {
    element.first().and_then(|p| p.item::<i64>().ok()).unwrap_or(i64::MAX)
}

/// A settled state: the lock can go, and those who waited be woken.
struct Settled(Wakers);

impl Settled {
    fn release<G>(self, guard: G) {
        drop(guard);
        self.0.wake();
    }
}

fn mismatch(component: usize, wanted: &PartialShape, found: &Shape) -> Error {
    invalid!("Shape mismatch in tuple component {component}. Expected {wanted}, got {found}")
}

impl Watcher for Queue {
    fn presence_changed(&self) {
        self.change(|state, _| {
            if let Some(tokens) = &mut state.tokens {
                tokens.refresh();
                tokens.drop_old(&mut state.elements);
            }
        });
    }
}

impl Decider<()> for Queue {
    fn withdraw(&self, slot: &Arc<Slot<()>>) {
        self.change(|state, _| state.adding.retain(|(s, _)| !Arc::ptr_eq(s, slot)));
    }
}

impl Decider<Vec<Element>> for Queue {
    fn withdraw(&self, slot: &Arc<Slot<Vec<Element>>>) {
        self.change(|state, _| {
            let waiting = state.taking.iter().position(|t| Arc::ptr_eq(&t.slot, slot));
            let mut taken = match waiting.and_then(|at| state.taking.remove(at)) {
                Some(take) => take.taken,
                // Served already, but nobody came for it.
                None => slot.take().and_then(Result::ok).unwrap_or_default(),
            };
            self.give_back(state, &mut taken);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use smallvec::smallvec;
    use std::pin::pin;
    use std::task::{Context, Poll, Wake, Waker};
    use tensor::Code;

    fn queue(order: Order, capacity: i64) -> Arc<Queue> {
        let spec = QueueSpec { order, types: vec![DType::I32], shapes: vec![PartialShape::scalar()], capacity };
        Arc::new(Queue::new("q", spec, (1, 2)).unwrap())
    }

    fn numbers(values: impl IntoIterator<Item = i32>) -> VecDeque<Element> {
        values.into_iter().map(|v| smallvec![Tensor::scalar(v)]).collect()
    }

    fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
        pin!(future).poll(&mut Context::from_waker(Waker::noop()))
    }

    fn values(elements: Result<Vec<Element>>) -> Result<Vec<i32>> {
        elements?.iter().map(|e| e[0].item::<i32>()).collect()
    }

    fn fill(queue: &Arc<Queue>, values: impl IntoIterator<Item = i32>) {
        queue.try_enqueue(numbers(values)).expect("there is room").unwrap();
    }

    /// Counts how often it is woken.
    #[derive(Default)]
    struct Counter(std::sync::atomic::AtomicUsize);
    impl Wake for Counter {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        }
    }

    #[test]
    fn whoever_waits_first_is_served_first_and_woken() {
        let q = queue(Order::Fifo, 10);
        let counter = Arc::new(Counter::default());
        let waker = Waker::from(counter.clone());
        let mut context = Context::from_waker(&waker);
        let mut first = Box::pin(q.dequeue(Amount::Exactly(2), None));
        let mut second = Box::pin(q.dequeue(Amount::Exactly(1), None));
        assert!(first.as_mut().poll(&mut context).is_pending());
        assert!(second.as_mut().poll(&mut context).is_pending());
        fill(&q, [1]);
        assert!(q.try_dequeue(Amount::Exactly(1), None).is_none(), "others were first");
        assert!(second.as_mut().poll(&mut context).is_pending(), "the first has it");
        fill(&q, [2, 3]);
        assert_eq!(counter.0.load(std::sync::atomic::Ordering::SeqCst), 2);
        let Poll::Ready(got) = first.as_mut().poll(&mut context) else { panic!("served") };
        assert_eq!(values(got).unwrap(), [1, 2]);
        let Poll::Ready(got) = second.as_mut().poll(&mut context) else { panic!("served") };
        assert_eq!(values(got).unwrap(), [3]);
    }

    #[test]
    fn the_smallest_number_leaves_first_and_equal_ones_as_they_came() {
        let types = vec![DType::I64, DType::String];
        let spec = QueueSpec { order: Order::Priority, types, shapes: vec![PartialShape::scalar(); 2], capacity: 4 };
        let q = Arc::new(Queue::new("q", spec, (1, 2)).unwrap());
        let rows = q.elements(&[Tensor::from([3i64, 1, 2, 1]), Tensor::from(["c", "a", "b", "A"])]).unwrap();
        q.try_enqueue(rows).unwrap().unwrap();
        let waiting = q.enqueue([q.element(smallvec![Tensor::scalar(-5i64), Tensor::from("z")]).unwrap()].into());
        let given_back = q.dequeue(Amount::Exactly(6), None);
        assert_eq!(q.len(), 0, "taken in part");
        drop((given_back, waiting));
        let taken = q.try_dequeue(Amount::Exactly(5), None).unwrap().unwrap();
        let texts: Vec<&[u8]> = taken.iter().map(|e| &e[1].string_item().unwrap()[..]).collect();
        assert_eq!(texts, [&b"z"[..], b"a", b"A", b"b", b"c"]);
        assert!(q.element(smallvec![Tensor::from([1i64]), Tensor::from("x")]).unwrap_err().message.contains("scalar"));
        assert!(q.elements(&[Tensor::scalar(1i64), Tensor::from(["x"])]).unwrap_err().message.contains("vector"));
    }

    #[test]
    fn a_dropped_attempt_leaves_no_trace() {
        let q = queue(Order::Fifo, 2);
        let partial = q.dequeue(Amount::Exactly(3), None);
        fill(&q, [1, 2]);
        assert_eq!(q.len(), 0, "taken in part");
        drop(partial);
        assert_eq!(q.len(), 2, "given back");
        let served = q.dequeue(Amount::Exactly(1), None);
        drop(served);
        assert_eq!(values(q.try_dequeue(Amount::Exactly(2), None).unwrap()).unwrap(), [1, 2], "in order");
        fill(&q, [3, 4]);
        drop(q.enqueue(numbers([5])));
        assert_eq!(values(q.try_dequeue(Amount::Exactly(1), None).unwrap()).unwrap(), [3]);
        assert_eq!(q.len(), 1, "the dropped one never came in");
    }

    #[test]
    fn closing_waits_behind_those_who_add() {
        let q = queue(Order::Fifo, 2);
        let mut adding = Box::pin(q.enqueue(numbers([1, 2, 3])));
        let mut closing = Box::pin(q.close());
        let mut late = Box::pin(q.enqueue(numbers([4])));
        assert!(poll(&mut closing).is_pending());
        assert!(!q.is_closed());
        assert_eq!(values(q.try_dequeue(Amount::Exactly(1), None).unwrap()).unwrap(), [1]);
        assert!(matches!(poll(&mut adding), Poll::Ready(Ok(()))));
        assert!(matches!(poll(&mut closing), Poll::Ready(Ok(()))));
        let Poll::Ready(Err(e)) = poll(&mut late) else { panic!("turned away") };
        assert_eq!((e.code, e.message.as_str()), (Code::Cancelled, "FIFOQueue 'q' is closed."));
        let Poll::Ready(Err(e)) = poll(&mut Box::pin(q.close())) else { panic!("refused") };
        assert_eq!(e.message, "Queue 'q' is already closed.");
    }

    #[test]
    fn closing_at_once_turns_away_those_who_wait_to_add() {
        let q = queue(Order::Fifo, 1);
        let mut adding = Box::pin(q.enqueue(numbers([1, 2])));
        q.close_and_cancel();
        let Poll::Ready(Err(e)) = poll(&mut adding) else { panic!("turned away") };
        assert_eq!((e.code, e.message.as_str()), (Code::Cancelled, "Enqueue operation was cancelled"));
        assert_eq!(q.len(), 1, "what came in stays");
    }

    #[test]
    fn a_closed_queue_gives_what_is_left() {
        let q = queue(Order::Fifo, 10);
        let mut three = Box::pin(q.dequeue(Amount::Exactly(3), None));
        fill(&q, [1, 2]);
        q.close_and_cancel();
        let Poll::Ready(Err(e)) = poll(&mut three) else { panic!("the third never comes") };
        assert_eq!(e.code, Code::OutOfRange);
        assert_eq!(e.message, "FIFOQueue 'q' is closed and has insufficient elements (requested 1, current size 0)");
        assert_eq!(values(q.try_dequeue(Amount::UpTo(5), None).unwrap()).unwrap(), [1, 2]);
        assert!(q.try_dequeue(Amount::UpTo(5), None).unwrap().is_err());
    }

    #[test]
    fn a_shuffled_queue_draws_tensorflows_order_and_keeps_some_back() {
        let q = queue(Order::Shuffled { min_after_dequeue: 0, seeds: (87654321, 7) }, 100);
        fill(&q, 0..20);
        let got = values(q.try_dequeue(Amount::Exactly(20), None).unwrap()).unwrap();
        assert_eq!(got, [7, 4, 19, 15, 0, 8, 10, 11, 14, 6, 16, 1, 12, 3, 17, 5, 2, 18, 13, 9]);
        let q = queue(Order::Shuffled { min_after_dequeue: 2, seeds: (1, 1) }, 100);
        fill(&q, 0..3);
        assert!(q.try_dequeue(Amount::Exactly(1), None).unwrap().is_ok());
        assert!(q.try_dequeue(Amount::Exactly(1), None).is_none());
        q.close_and_cancel();
        assert!(q.try_dequeue(Amount::Exactly(2), None).unwrap().is_ok());
    }

    #[test]
    fn a_padding_queue_pads_what_it_takes_together() {
        let shapes = vec![PartialShape::new([None])];
        let spec = QueueSpec { order: Order::PaddingFifo, types: vec![DType::I32], shapes, capacity: -1 };
        let q = Queue::new("q", spec, (1, 2)).unwrap();
        let elements: Vec<Element> = vec![smallvec![Tensor::from([1i32])], smallvec![Tensor::from([2i32, 3])]];
        assert_eq!(q.batch(&elements).unwrap()[0], Tensor::from([[1i32, 0], [2, 3]]));
        assert_eq!(q.batch(&[]).unwrap()[0].dims(), [0, 0]);
        assert!(q.element(smallvec![Tensor::scalar(1i32)]).is_err());
    }
}

//! One step: who is ready, who runs, what follows.
//!
//! A thread that works on a step holds a token, and so does each node that waits; the step is over when the last
//! token is given back. Nothing else counts nodes outside of loops.

use super::compile::{Arrival, Consumer, Plan, PlanNode, Reading, Work};
use super::counter::Access;
use super::frame::{Frame, Iteration};
use super::receiving::Receiving;
use super::watch::Watcher;
use crate::brief;
use framework::step::NodeTimes;
use framework::{BoxFuture, BuiltKernel, ControlFlow, FastMap, KernelContext, Outputs, StepContext, Value};
use linalg::denormals::FlushDenormals;
use parking_lot::Mutex;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};
use tensor::{Error, Result, Tensor, cancelled, internal};

/// In a node's counter: some input is dead. The low bits count inputs still to come.
pub(super) const DEAD: u32 = 1 << 31;
/// In a merge's counter: a live input has come. The low bits count control inputs still to come, plus one for it.
pub(super) const MERGE_LIVE: u32 = 1 << 31;
/// In a merge's counter: one dead input has come.
pub(super) const MERGE_DEAD_ONE: u32 = 1 << 15;

/// The result of a step. It starts at the first poll; dropping it ends the step.
pub struct StepFuture {
    state: State,
}

enum State {
    Idle(Arc<Plan>, Arc<StepContext>),
    Running(Arc<Step>),
    Done,
}

impl StepFuture {
    pub(super) fn new(plan: Arc<Plan>, context: Arc<StepContext>) -> StepFuture {
        StepFuture { state: State::Idle(plan, context) }
    }

    /// Whether it can only go on when it is polled again; otherwise it goes on by itself.
    pub fn is_paused(&self) -> bool {
        matches!(&self.state, State::Running(step) if step.paused.lock().is_some())
    }

    /// The nodes that wait for something at this moment, each with its op, in the order of the graph.
    pub fn waiting(&self) -> Vec<String> {
        self.watcher().map(|w| w.waits()).unwrap_or_default().into_iter().map(|wait| wait.node).collect()
    }

    /// Tells, from elsewhere, what this step waits for; once it has started.
    pub fn watcher(&self) -> Option<Watcher> {
        match &self.state {
            State::Running(step) => Some(Watcher::new(step)),
            State::Idle(..) | State::Done => None,
        }
    }
}

/// How long a poll may work before it looks up: whoever polls may have a deadline, or somebody to answer to.
const POLL_MAX: Duration = Duration::from_millis(10);
/// For how long costly nodes may keep back what was sent before them, so that it leaves with what they send.
const KEPT_MAX: Duration = Duration::from_millis(1);
/// How many nodes run between two looks at the clock.
const NODES_PER_LOOK: u32 = 256;

impl Future for StepFuture {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let step = match std::mem::replace(&mut self.state, State::Done) {
            State::Idle(plan, context) => Step::start(plan, context),
            State::Running(step) => {
                let paused = step.paused.lock().take();
                if let Some((iteration, local)) = paused {
                    step.work_for_a_while(iteration, local);
                }
                step
            }
            State::Done => panic!("a finished step was polled"),
        };
        if step.paused.lock().is_some() {
            cx.waker().wake_by_ref();
        }
        if !step.finished.load(Ordering::Acquire) {
            let mut waker = step.waker.lock();
            if !step.finished.load(Ordering::Acquire) {
                *waker = Some(cx.waker().clone());
                drop(waker);
                step.plan.device.pool().await_here();
                self.state = State::Running(step);
                return Poll::Pending;
            }
        }
        Poll::Ready(step.context.why_ended().map_or(Ok(()), Err))
    }
}

impl Drop for StepFuture {
    fn drop(&mut self) {
        if let State::Running(step) = &self.state {
            step.end(cancelled!("the step was cancelled: its caller went away"));
        }
    }
}

pub(super) struct Step {
    pub(super) plan: Arc<Plan>,
    pub(super) context: Arc<StepContext>,
    /// Everything outside of loops; frames refer to it without holding it.
    pub(super) root: Arc<Iteration>,
    pub(super) tokens: AtomicUsize,
    finished: AtomicBool,
    waker: Mutex<Option<Waker>>,
    waiting: Mutex<FastMap<u32, Vec<Arc<Waiting>>>>,
    /// What is to come from other tasks, for each of the plan's groups.
    pub(super) receiving: Mutex<Vec<Receiving>>,
    /// What the polling thread had before it when it looked up; the token is kept along with it.
    paused: Mutex<Option<(Arc<Iteration>, Local)>>,
    /// Frames that may still hold on to themselves when a step ends early.
    pub(super) frames: Mutex<Vec<Arc<Frame>>>,
}

/// What one working thread has before it.
#[derive(Default)]
pub(super) struct Local {
    /// Ready nodes of the iteration being worked on.
    ready: Vec<u32>,
    /// Ready nodes of other iterations.
    others: Vec<(Arc<Iteration>, u32)>,
    /// Ready nodes that another thread may take.
    costly: Vec<(Arc<Iteration>, u32)>,
    /// Whether the node that ran last was one of these.
    ran_costly: bool,
    /// How long costly nodes have taken, or take, since what was sent was last told to leave.
    since_flush: Duration,
    outputs: Vec<Value>,
}

impl Local {
    pub(super) fn push(&mut self, node: u32) {
        self.ready.push(node);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ready.is_empty() && self.others.is_empty() && self.costly.is_empty()
    }

    /// Any node there is, and its iteration.
    pub(super) fn take(&mut self, current: &Arc<Iteration>) -> Option<(Arc<Iteration>, u32)> {
        match self.ready.pop() {
            Some(node) => Some((current.clone(), node)),
            None => self.others.pop().or_else(|| self.costly.pop()),
        }
    }
}

impl Step {
    fn start(plan: Arc<Plan>, context: Arc<StepContext>) -> Arc<Step> {
        let root = Iteration::new(&plan, 0, 0, None);
        let mut local = Local::default();
        let step = Arc::new(Step {
            plan,
            context,
            root: root.clone(),
            tokens: AtomicUsize::new(1),
            finished: AtomicBool::new(false),
            waker: Mutex::new(None),
            waiting: Mutex::default(),
            receiving: Mutex::default(),
            paused: Mutex::default(),
            frames: Mutex::default(),
        });
        for &node in step.plan.roots.iter().rev() {
            if step.plan.nodes[node as usize].node.op.is_costly {
                local.costly.push((root.clone(), node));
            } else {
                local.ready.push(node);
            }
        }
        step.receive_all(&mut local);
        step.work_for_a_while(root, local);
        step
    }

    /// Works like [`work`](Step::work) for as long as a poll may take, then keeps what is left for the next poll.
    fn work_for_a_while(self: &Arc<Step>, mut iteration: Arc<Iteration>, mut local: Local) {
        let _flush = FlushDenormals::here();
        if brief::is_brief() {
            return self.work_briefly(iteration, local);
        }
        let end = Instant::now() + POLL_MAX;
        loop {
            for _ in 0..NODES_PER_LOOK {
                if self.context.is_ended() || !self.run_next(&mut iteration, &mut local) {
                    drop((iteration, local));
                    return self.end_turn();
                }
                if local.ran_costly && Instant::now() >= end {
                    break;
                }
            }
            if Instant::now() >= end {
                break;
            }
        }
        self.context.rendezvous.flush();
        *self.paused.lock() = Some((iteration, local));
        if self.context.is_ended() {
            self.drop_paused(); // it ended between the check and the pause
        }
    }

    fn drop_paused(&self) {
        let paused = self.paused.lock().take();
        if let Some(paused) = paused {
            drop(paused);
            self.give_back();
        }
    }

    /// Works on what follows from a wait that is over, as the calling thread has the time; its token is given back.
    pub(super) fn go_on(self: &Arc<Step>, iteration: Arc<Iteration>, local: Local) {
        let _flush = FlushDenormals::here();
        if brief::is_brief() { self.work_briefly(iteration, local) } else { self.work(iteration, local) }
    }

    /// Runs nodes until this thread has none left, then gives its token back.
    pub(super) fn work(self: &Arc<Step>, mut iteration: Arc<Iteration>, mut local: Local) {
        while !self.context.is_ended() && self.run_next(&mut iteration, &mut local) {}
        // What is left of an ended step goes before the token: its values may be what somebody waits to reuse.
        drop((iteration, local));
        self.end_turn();
    }

    /// Runs one of the nodes this thread has before it; `false` if there is none.
    #[inline]
    fn run_next(self: &Arc<Step>, iteration: &mut Arc<Iteration>, local: &mut Local) -> bool {
        local.ran_costly = false;
        let node = if let Some(node) = local.ready.pop() {
            node
        } else if let Some((other, node)) = local.others.pop() {
            *iteration = other;
            node
        } else if let Some((other, node)) = local.costly.pop() {
            if self.is_worth_passing_on(&local.costly) {
                for (iteration, node) in local.costly.drain(..) {
                    self.spawn(iteration, node);
                }
            }
            *iteration = other;
            local.since_flush += self.plan.nodes[node as usize].pace.last();
            if local.since_flush > KEPT_MAX {
                self.context.rendezvous.flush();
                local.since_flush = Duration::ZERO;
            }
            self.run_timed(iteration, node, local);
            local.ran_costly = true;
            return true;
        } else {
            return false;
        };
        self.run_node(iteration, node, local);
        true
    }

    pub(super) fn spawn(self: &Arc<Step>, iteration: Arc<Iteration>, node: u32) {
        self.tokens.fetch_add(1, Ordering::Relaxed);
        let step = self.clone();
        self.plan.device.pool().spawn(Box::new(move || step.work_on(iteration, node)));
    }

    /// Gives back the token of a thread that has nothing left to do. If the step goes on, what was sent need not wait for
    /// more; if it has ended, whoever runs it knows what to do with it.
    pub(super) fn end_turn(&self) {
        self.give_back();
        if !self.finished.load(Ordering::Acquire) {
            self.context.rendezvous.flush();
        }
    }

    pub(super) fn give_back(&self) {
        if self.tokens.fetch_sub(1, Ordering::AcqRel) == 1 {
            for frame in std::mem::take(&mut *self.frames.lock()) {
                frame.clear();
            }
            let waker = {
                let mut waker = self.waker.lock();
                self.finished.store(true, Ordering::Release);
                waker.take()
            };
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }

    /// Ends the step early: no node starts any more, nodes that wait are dropped.
    pub(super) fn end(&self, why: Error) {
        self.context.end(why);
        self.drop_waiting();
        self.drop_receiving();
        self.drop_paused();
    }

    /// The nodes that wait, and since when, in the order of the graph.
    pub(super) fn waiting_since(&self) -> Vec<(u32, Instant)> {
        let waiting = self.waiting.lock();
        let mut nodes: Vec<_> = waiting.iter().filter_map(|(node, list)| Some((*node, list.first()?.since))).collect();
        drop(waiting);
        self.add_receiving(&mut nodes);
        nodes.sort_unstable();
        nodes
    }

    fn drop_waiting(&self) {
        let waiting = std::mem::take(&mut *self.waiting.lock());
        for task in waiting.into_values().flatten() {
            if task.future.lock().take().is_some() {
                self.give_back();
            }
        }
    }

    pub(super) fn fail(&self, node: &PlanNode, error: Error) {
        let tagged = if error.message.contains("[[{{node ") {
            error
        } else {
            error.context(format_args!("[[{{{{node {}}}}}]]", node.node.name))
        };
        self.end(tagged);
    }

    pub(super) fn run_node(self: &Arc<Step>, iteration: &Arc<Iteration>, index: u32, local: &mut Local) {
        let node = &self.plan.nodes[index as usize];
        let counter = iteration.counters[node.counter as usize].get();
        // SAFETY: the node's counter has reached zero (or it has one input, or none), and each ready node is popped
        // by one thread, once.
        let inputs = unsafe { iteration.slots.inputs(node.first_slot, node.num_inputs) };
        let is_dead = match node.control_flow {
            ControlFlow::Merge => counter & MERGE_LIVE == 0,
            ControlFlow::ControlTrigger => false,
            _ => counter & DEAD != 0,
        };
        if is_dead && node.control_flow != ControlFlow::Send {
            clear(inputs);
            return self.finish(iteration, index, &mut [], true, local);
        }
        if let Err(e) = read_references(node, inputs) {
            return self.fail(node, e);
        }
        match &node.work {
            Work::Kernel(kernel) => {
                for (input, value) in &node.constants {
                    inputs[*input as usize] = Value::Tensor(value.clone());
                }
                if is_dead && let Some(first) = inputs.first_mut() {
                    *first = Value::Dead;
                }
                self.run_kernel(iteration, index, kernel, inputs, local);
            }
            Work::Constant(values) => {
                let mut outputs: Outputs = values.iter().cloned().map(Value::Tensor).collect();
                self.finish(iteration, index, &mut outputs, false, local);
            }
            Work::Switch => {
                let taken = match &inputs[1] {
                    Value::Tensor(predicate) => predicate.item::<bool>(),
                    _ => Err(internal!("the predicate of a Switch is not a tensor")),
                };
                match taken {
                    Err(e) => self.fail(node, e),
                    Ok(taken) => {
                        let mut outputs = [Value::Dead, Value::Dead];
                        outputs[usize::from(taken)] = std::mem::take(&mut inputs[0]);
                        inputs[1] = Value::Empty;
                        self.finish(iteration, index, &mut outputs, false, local);
                    }
                }
            }
            Work::Merge { .. } => {
                let alive = inputs.iter().position(|v| !matches!(v, Value::Empty)).unwrap_or_default();
                let value = std::mem::take(&mut inputs[alive]);
                let wants_index = node.edges.last().is_some_and(|e| e.output == 1);
                let which = if wants_index { Value::Tensor(Tensor::scalar(alive as i32)) } else { Value::Empty };
                let mut outputs = [value, which];
                self.finish(iteration, index, &mut outputs, false, local);
            }
            Work::Enter { .. } | Work::Exit | Work::NextIteration => {
                let mut outputs = [std::mem::take(&mut inputs[0])];
                self.finish(iteration, index, &mut outputs, false, local);
            }
        }
    }

    fn run_kernel(
        self: &Arc<Step>,
        iteration: &Arc<Iteration>,
        index: u32,
        kernel: &BuiltKernel,
        inputs: &mut [Value],
        local: &mut Local,
    ) {
        let node = &self.plan.nodes[index as usize];
        let mut outputs = std::mem::take(&mut local.outputs);
        outputs.resize_with(node.num_outputs as usize, Value::default);
        let start = self.context.trace.as_ref().map(|_| self.context.env.wall_micros());
        let mut context = KernelContext::new(
            &node.node,
            &self.plan.device,
            &self.context,
            iteration.frame_id(),
            inputs,
            &mut outputs,
        );
        let result = match kernel {
            BuiltKernel::Sync(kernel) => kernel.compute(&mut context),
            BuiltKernel::Async(kernel) => match kernel.try_compute(&mut context) {
                Some(result) => result,
                None => {
                    let future = kernel.compute(context.to_async());
                    match self.wait(iteration, index, future) {
                        None => {
                            clear(&mut outputs);
                            local.outputs = outputs;
                            return;
                        }
                        Some(Err(e)) => Err(e),
                        Some(Ok(done)) => {
                            outputs.clear();
                            outputs.extend(done);
                            Ok(())
                        }
                    }
                }
            },
        };
        clear(inputs);
        if let Some(start) = start {
            self.record(node, start, &outputs);
        }
        match result {
            Err(e) => self.fail(node, e),
            Ok(()) => self.finish(iteration, index, &mut outputs, false, local),
        }
        clear(&mut outputs);
        local.outputs = outputs;
    }

    fn record(&self, node: &PlanNode, start: u64, outputs: &[Value]) {
        let Some(trace) = &self.context.trace else { return };
        let bytes = |v: &Value| if let Value::Tensor(t) = v { t.num_bytes() as u64 } else { 0 };
        trace.record(NodeTimes {
            node: node.node.name.clone(),
            op: node.node.op.name.clone(),
            device: self.plan.device.name().to_string(),
            thread: thread_number(),
            scheduled: start,
            start,
            end: self.context.env.wall_micros(),
            output_bytes: outputs.iter().map(bytes).collect(),
        });
    }

    /// Hands a node's outputs on.
    pub(super) fn finish(
        self: &Arc<Step>,
        iteration: &Arc<Iteration>,
        index: u32,
        outputs: &mut [Value],
        is_dead: bool,
        local: &mut Local,
    ) {
        let node = &self.plan.nodes[index as usize];
        match node.work {
            Work::Enter { frame, is_constant } => {
                self.enter(iteration, index, frame, is_constant, outputs, is_dead, local)
            }
            Work::Exit => self.exit(iteration, index, outputs, is_dead, local),
            Work::NextIteration => self.next_iteration(iteration, index, outputs, is_dead, local),
            Work::Kernel(_) | Work::Constant(_) | Work::Switch | Work::Merge { .. } => {
                let access = self.access();
                let mut found = 0;
                self.deliver(iteration, node, outputs, is_dead, access, |consumer| {
                    found += 1;
                    if consumer.is_costly {
                        local.costly.push((iteration.clone(), consumer.node));
                    } else {
                        local.ready.push(consumer.node);
                    }
                });
                self.finish_in_place(iteration, found, access, local);
            }
        }
    }

    /// Adds a ready node of an iteration other than the current one to what this thread has before it.
    pub(super) fn push_elsewhere(&self, iteration: &Arc<Iteration>, consumer: Consumer, local: &mut Local) {
        let list = if consumer.is_costly { &mut local.costly } else { &mut local.others };
        list.push((iteration.clone(), consumer.node));
    }

    /// Whether others may work on the step at this moment. The calling thread holds a token.
    #[inline]
    pub(super) fn access(&self) -> Access {
        // Acquire: whoever gave a token back counted before, and was the last to do so.
        if self.tokens.load(Ordering::Acquire) == 1 { Access::Alone } else { Access::Shared }
    }

    /// Gives a node's outputs to their consumers in an iteration; `ready` is told of those that become ready.
    #[inline]
    pub(super) fn deliver(
        &self,
        to: &Iteration,
        from: &PlanNode,
        outputs: &mut [Value],
        is_dead: bool,
        access: Access,
        mut ready: impl FnMut(Consumer),
    ) {
        for edge in &from.edges {
            let value = match outputs.get_mut(edge.output as usize) {
                _ if is_dead => Value::Dead,
                Some(value) if edge.is_last => std::mem::take(value),
                Some(value) => value.clone(),
                None => Value::Dead,
            };
            let is_ready = match edge.to.arrival {
                Arrival::Merges | Arrival::MergesAlone => {
                    to.arrive_at_merge(&self.plan.nodes[edge.to.node as usize], edge, value, access)
                }
                Arrival::Only | Arrival::OnlyAlive | Arrival::Counts => {
                    let is_dead = value.is_dead();
                    // SAFETY: this edge is the slot's only producer, each node runs once in an iteration, and the
                    // consumer is counted down only below.
                    unsafe { to.slots.put(edge.slot, value) };
                    to.count_down(edge.to, is_dead, access)
                }
            };
            if is_ready {
                ready(edge.to);
            }
        }
        // The node itself is dead if it did not run; its control edges say so.
        for &consumer in &from.controls {
            let is_ready = if consumer.arrival == Arrival::Merges {
                to.control_arrives_at_merge(&self.plan.nodes[consumer.node as usize], access)
            } else {
                to.count_down(consumer, is_dead, access)
            };
            if is_ready {
                ready(consumer);
            }
        }
    }

    /// Lets a node wait. `Some` if it did not have to after all.
    fn wait(
        self: &Arc<Step>,
        iteration: &Arc<Iteration>,
        node: u32,
        future: BoxFuture<Result<Outputs>>,
    ) -> Option<Result<Outputs>> {
        let task = Arc::new(Waiting {
            step: self.clone(),
            iteration: iteration.clone(),
            node,
            since: Instant::now(),
            future: Mutex::new(Some(future)),
            state: AtomicU8::new(RUNNING),
            needs_time: AtomicBool::new(false),
        });
        self.tokens.fetch_add(1, Ordering::Relaxed);
        self.waiting.lock().entry(node).or_default().push(task.clone());
        if self.context.is_ended() {
            self.drop_waiting(); // it ended between the check and the entry in the list
        }
        let result = task.advance();
        if result.is_some() {
            self.give_back(); // never the last token: this thread holds its own
        }
        result
    }
}

/// A node that waits: a future, and where to go on.
struct Waiting {
    step: Arc<Step>,
    iteration: Arc<Iteration>,
    node: u32,
    since: Instant,
    future: Mutex<Option<BoxFuture<Result<Outputs>>>>,
    state: AtomicU8,
    /// Whether it asked for a thread that has time.
    needs_time: AtomicBool,
}

/// Nobody polls it.
const IDLE: u8 = 0;
/// Somebody polls it.
const RUNNING: u8 = 1;
/// Somebody polls it and must do so once more.
const AGAIN: u8 = 2;

impl Waiting {
    /// Polls until the result is there or nothing moves. The result comes once, with the duty to give back the token.
    fn advance(self: &Arc<Self>) -> Option<Result<Outputs>> {
        /// A future that wakes itself this often goes on elsewhere: whoever polls the step may have a deadline.
        const TURNS_MAX: u32 = 4;
        let _flush = FlushDenormals::here();
        let waker = Waker::from(self.clone());
        let mut context = Context::from_waker(&waker);
        let pool = self.step.plan.device.pool();
        for turn in 1.. {
            let needs_time = {
                let mut future = self.future.lock();
                let pending = future.as_mut()?;
                let polled = brief::watch(|| pending.as_mut().poll(&mut context));
                if let Poll::Ready(result) = polled.value {
                    *future = None;
                    drop(future);
                    let mut waiting = self.step.waiting.lock();
                    if let Some(list) = waiting.get_mut(&self.node) {
                        list.retain(|t| !Arc::ptr_eq(t, self));
                        if list.is_empty() {
                            waiting.remove(&self.node);
                        }
                    }
                    return Some(result);
                }
                polled.needs_time
            };
            if needs_time {
                self.needs_time.store(true, Ordering::Relaxed);
                self.state.store(RUNNING, Ordering::Release);
                let task = self.clone();
                brief::unhurried(|| pool.spawn(Box::new(move || task.resume())));
                break;
            }
            if self.state.compare_exchange(RUNNING, IDLE, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                return None;
            }
            self.state.store(RUNNING, Ordering::Release);
            if turn >= TURNS_MAX && !pool.is_inline() {
                let task = self.clone();
                pool.spawn(Box::new(move || task.resume()));
                break;
            }
        }
        None
    }

    /// Goes on with the step after the wait is over.
    fn resume(self: Arc<Self>) {
        let Some(result) = self.advance() else { return };
        let mut local = Local::default();
        match result {
            Err(e) => self.step.fail(&self.step.plan.nodes[self.node as usize], e),
            Ok(mut outputs) => self.step.finish(&self.iteration, self.node, &mut outputs, false, &mut local),
        }
        self.step.go_on(self.iteration.clone(), local);
    }
}

impl Wake for Waiting {
    fn wake(self: Arc<Self>) {
        // Whoever polls it now polls once more; if nobody does, this thread does soon, or else the pool.
        if self.state.swap(AGAIN, Ordering::AcqRel) == IDLE {
            self.state.store(RUNNING, Ordering::Release);
            let pool = self.step.plan.device.pool().clone();
            let needs_time = self.needs_time.load(Ordering::Relaxed);
            let resume = Box::new(move || self.resume());
            if needs_time { pool.spawn(resume) } else { brief::soon(&pool, resume) }
        }
    }
}

/// Lets go of values.
#[inline]
fn clear(values: &mut [Value]) {
    for value in values {
        if !matches!(value, Value::Empty) {
            *value = Value::Empty;
        }
    }
}

fn read_references(node: &PlanNode, inputs: &mut [Value]) -> Result<()> {
    for (value, reading) in inputs.iter_mut().zip(&node.readings) {
        if let Value::Ref(variable) = value {
            match reading {
                Reading::Read => *value = Value::Tensor(variable.read()?),
                Reading::CheckInitialized if !variable.is_initialized() => drop(variable.read()?),
                _ => {}
            }
        }
    }
    Ok(())
}

/// A small number for the calling thread, for traces.
fn thread_number() -> u32 {
    use std::sync::atomic::AtomicU32;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    thread_local!(static NUMBER: u32 = NEXT.fetch_add(1, Ordering::Relaxed));
    NUMBER.with(|n| *n)
}

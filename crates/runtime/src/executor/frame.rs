//! Loops: frames and their iterations.
//!
//! A frame is made when the first value enters it, for each iteration of the frame around it anew. Its iterations run
//! side by side up to `parallel_iterations`; values for a further one wait. An iteration is over when none of its nodes
//! is ready or running; a frame is over when all values have entered and no iteration is left, and then its exits that
//! never passed a value are dead.

use super::compile::{Arrival, Consumer, Edge, Plan, PlanNode, Work};
use super::counter::{Access, Counter};
use super::slots::Slots;
use super::step::{DEAD, Local, MERGE_DEAD_ONE, MERGE_LIVE, Step};
use framework::Value;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use tensor::invalid;

/// The values and counters of one iteration of a frame, or of everything outside of loops.
pub(super) struct Iteration {
    pub(super) slots: Slots,
    pub(super) counters: Box<[Counter]>,
    /// Counted only inside loops: nodes ready or running, and frames open inside.
    outstanding: Counter,
    index: u64,
    frame: Option<Arc<Frame>>,
    children: Mutex<Vec<Arc<Frame>>>,
}

/// One run of a loop.
pub(super) struct Frame {
    number: u32,
    /// What peers call it in keys.
    id: u64,
    parent: Weak<Iteration>,
    state: Mutex<FrameState>,
}

#[derive(Default)]
struct FrameState {
    enters_left: u32,
    iterations: VecDeque<Arc<Iteration>>,
    /// Iterations that are over, for the next ones to use again once nobody looks at them any more.
    spare: VecDeque<Arc<Iteration>>,
    next_index: u64,
    /// Values for an iteration that may not start yet.
    deferred: Vec<(u32, Value)>,
    /// Values that every iteration gets.
    invariants: Vec<(u32, Value)>,
    /// Exits that passed a value.
    exited: Vec<u32>,
}

impl Iteration {
    pub(super) fn new(plan: &Plan, frame_number: u32, index: u64, frame: Option<Arc<Frame>>) -> Arc<Iteration> {
        let layout = &plan.frames[frame_number as usize];
        Arc::new(Iteration {
            slots: Slots::new(layout.num_slots as usize),
            counters: layout.counters.iter().map(|&c| Counter::new(c)).collect(),
            outstanding: Counter::default(),
            index,
            frame,
            children: Mutex::default(),
        })
    }

    /// Makes an iteration that is over into a later one.
    fn restart(&mut self, counters: &[u32], index: u64) {
        self.slots.clear();
        for (counter, &start) in self.counters.iter_mut().zip(counters) {
            counter.set(start);
        }
        self.outstanding.set(0);
        self.index = index;
    }

    /// The frame's id and the iteration's number, as keys have them.
    pub(super) fn frame_id(&self) -> (u64, u64) {
        self.frame.as_ref().map_or((0, 0), |f| (f.id, self.index))
    }

    /// An input arrives at a node that is not a merge; whether that makes it ready.
    #[inline]
    pub(super) fn count_down(&self, at: Consumer, is_dead: bool, access: Access) -> bool {
        let counter = &self.counters[at.counter as usize];
        if is_dead {
            counter.or(DEAD, access);
        }
        match at.arrival {
            // Nobody else counts at a node with one input.
            Arrival::Only => true,
            Arrival::OnlyAlive => !is_dead,
            Arrival::Counts | Arrival::Merges | Arrival::MergesAlone => counter.sub(1, access) & !DEAD == 1,
        }
    }

    /// A data input arrives at a merge: the first live one counts and is kept; the others are let go of.
    pub(super) fn arrive_at_merge(&self, merge: &PlanNode, edge: &Edge, value: Value, access: Access) -> bool {
        let counter = &self.counters[edge.to.counter as usize];
        if value.is_dead() {
            let now = counter.add(MERGE_DEAD_ONE, access) + MERGE_DEAD_ONE;
            return self.is_dead_merge(merge, now);
        }
        if counter.or(MERGE_LIVE, access) & MERGE_LIVE != 0 {
            return false;
        }
        // SAFETY: only the one arrival that set MERGE_LIVE writes any slot of this node, and it counts down below, or
        // nobody counts.
        unsafe { self.slots.put(edge.slot, value) };
        edge.to.arrival == Arrival::MergesAlone || (counter.sub(1, access) - 1) & (MERGE_DEAD_ONE - 1) == 0
    }

    pub(super) fn control_arrives_at_merge(&self, merge: &PlanNode, access: Access) -> bool {
        let counter = &self.counters[merge.counter as usize];
        let now = counter.sub(1, access) - 1;
        now & (MERGE_DEAD_ONE - 1) == 0 || self.is_dead_merge(merge, now)
    }

    /// All controls came, and every data input that can come in this iteration is dead.
    fn is_dead_merge(&self, merge: &PlanNode, counter: u32) -> bool {
        let Work::Merge { first, later } = merge.work else { return false };
        let expected = if self.index == 0 { first } else { later };
        let dead = (counter & !MERGE_LIVE) / MERGE_DEAD_ONE;
        counter & MERGE_LIVE == 0 && counter & (MERGE_DEAD_ONE - 1) == 1 && dead == expected
    }
}

impl Frame {
    /// Lets go of everything: frames and iterations refer to each other.
    pub(super) fn clear(&self) {
        let state = std::mem::take(&mut *self.state.lock());
        drop(state);
    }
}

impl Step {
    /// A node of this iteration is done, and made `found` others in it ready.
    #[inline]
    pub(super) fn finish_in_place(
        self: &Arc<Step>,
        iteration: &Arc<Iteration>,
        found: u32,
        access: Access,
        local: &mut Local,
    ) {
        if iteration.frame.is_none() || found == 1 {
            return;
        }
        if found > 1 {
            iteration.outstanding.add(found - 1, access);
        } else {
            self.leave(iteration, local);
        }
    }

    /// One node or inner frame of an iteration is over.
    fn leave(self: &Arc<Step>, iteration: &Arc<Iteration>, local: &mut Local) {
        if let Some(frame) = &iteration.frame
            && iteration.outstanding.sub(1, self.access()) == 1
        {
            self.advance_frame(frame, local);
        }
    }

    /// Gives values to an iteration other than the one being worked on.
    fn deliver_elsewhere(
        &self,
        to: &Arc<Iteration>,
        from: u32,
        outputs: &mut [Value],
        is_dead: bool,
        local: &mut Local,
    ) {
        let (access, mut found) = (self.access(), 0);
        self.deliver(to, &self.plan.nodes[from as usize], outputs, is_dead, access, |consumer| {
            found += 1;
            self.push_elsewhere(to, consumer, local);
        });
        if to.frame.is_some() {
            to.outstanding.add(found, access);
        }
    }

    #[allow(clippy::too_many_arguments)]
    pub(super) fn enter(
        self: &Arc<Step>,
        from: &Arc<Iteration>,
        node: u32,
        frame_number: u32,
        is_constant: bool,
        outputs: &mut [Value],
        is_dead: bool,
        local: &mut Local,
    ) {
        let frame = self.child_frame(from, frame_number);
        let all_entered = {
            let mut state = frame.state.lock();
            let value = if is_dead { Value::Dead } else { std::mem::take(&mut outputs[0]) };
            if is_constant {
                for iteration in &state.iterations {
                    self.deliver_elsewhere(iteration, node, &mut [value.clone()], is_dead, local);
                }
                state.invariants.push((node, value));
            } else if let Some(first) = state.iterations.front() {
                self.deliver_elsewhere(first, node, &mut [value], is_dead, local);
            }
            state.enters_left -= 1;
            state.enters_left == 0
        };
        if all_entered {
            self.advance_frame(&frame, local);
        }
        self.leave(from, local);
    }

    /// The frame with this number inside an iteration, made now if nothing entered it before.
    fn child_frame(&self, parent: &Arc<Iteration>, number: u32) -> Arc<Frame> {
        let mut children = parent.children.lock();
        if let Some(frame) = children.iter().find(|f| f.number == number) {
            return frame.clone();
        }
        let layout = &self.plan.frames[number as usize];
        let (parent_id, parent_index) = parent.frame_id();
        let frame = Arc::new(Frame {
            number,
            id: frame_id(parent_id, parent_index, &layout.name),
            parent: Arc::downgrade(parent),
            state: Mutex::new(FrameState { enters_left: layout.num_enters, ..FrameState::default() }),
        });
        self.new_iteration(&frame, &mut frame.state.lock());
        parent.outstanding.add(1, self.access());
        self.frames.lock().push(frame.clone());
        children.push(frame.clone());
        frame
    }

    fn new_iteration(&self, frame: &Arc<Frame>, state: &mut FrameState) -> Arc<Iteration> {
        let index = state.next_index;
        let make = || Iteration::new(&self.plan, frame.number, index, Some(frame.clone()));
        let mut iteration = state.spare.pop_front().unwrap_or_else(make);
        match Arc::get_mut(&mut iteration) {
            Some(unused) => unused.restart(&self.plan.frames[frame.number as usize].counters, index),
            None => iteration = make(), // somebody still looks at it
        }
        state.next_index += 1;
        state.iterations.push_back(iteration.clone());
        iteration
    }

    /// Starts the next iteration with the values every iteration gets.
    fn start_iteration(&self, frame: &Arc<Frame>, state: &mut FrameState, local: &mut Local) -> Arc<Iteration> {
        let iteration = self.new_iteration(frame, state);
        for (node, value) in &state.invariants {
            self.deliver_elsewhere(&iteration, *node, &mut [value.clone()], value.is_dead(), local);
        }
        iteration
    }

    pub(super) fn next_iteration(
        self: &Arc<Step>,
        from: &Arc<Iteration>,
        node: u32,
        outputs: &mut [Value],
        is_dead: bool,
        local: &mut Local,
    ) {
        // A dead value goes no further: the loop ends here.
        if !is_dead && let Some(frame) = &from.frame {
            let limit = self.plan.frames[frame.number as usize].parallel_iterations;
            let value = std::mem::take(&mut outputs[0]);
            let mut state = frame.state.lock();
            let wanted = from.index + 1;
            let first = state.iterations.front().map_or(state.next_index, |i| i.index);
            if wanted < state.next_index {
                let next = state.iterations[(wanted - first) as usize].clone();
                self.deliver_elsewhere(&next, node, &mut [value], false, local);
            } else if state.iterations.len() as u64 >= limit {
                state.deferred.push((node, value));
            } else {
                let next = self.start_iteration(frame, &mut state, local);
                self.deliver_elsewhere(&next, node, &mut [value], false, local);
            }
        }
        self.leave(from, local);
    }

    pub(super) fn exit(
        self: &Arc<Step>,
        from: &Arc<Iteration>,
        node: u32,
        outputs: &mut [Value],
        is_dead: bool,
        local: &mut Local,
    ) {
        if !is_dead && let Some(frame) = &from.frame {
            let is_first = {
                let mut state = frame.state.lock();
                let is_first = !state.exited.contains(&node);
                state.exited.push(node);
                is_first
            };
            if !is_first {
                let name = &self.plan.nodes[node as usize].node.name;
                return self.end(invalid!("'{name}' left its loop more than once\n\t [[{{{{node {name}}}}}]]"));
            }
            if let Some(parent) = frame.parent.upgrade() {
                self.deliver_elsewhere(&parent, node, outputs, false, local);
            }
        }
        self.leave(from, local);
    }

    /// Removes iterations that are over, oldest first, lets waiting ones start, and closes the frame after the last.
    fn advance_frame(self: &Arc<Step>, frame: &Arc<Frame>, local: &mut Local) {
        let mut state = frame.state.lock();
        while let Some(oldest) = state.iterations.front() {
            let is_over = oldest.outstanding.get() == 0 && (oldest.index > 0 || state.enters_left == 0);
            if !is_over {
                return;
            }
            let over = state.iterations.pop_front();
            state.spare.extend(over);
            if !state.deferred.is_empty() {
                let next = self.start_iteration(frame, &mut state, local);
                for (node, value) in std::mem::take(&mut state.deferred) {
                    self.deliver_elsewhere(&next, node, &mut [value], false, local);
                }
            }
        }
        if state.enters_left > 0 || self.context.is_ended() {
            return;
        }
        let exited = std::mem::take(&mut state.exited);
        let spare = std::mem::take(&mut state.spare);
        state.enters_left = u32::MAX; // closed: whoever comes to the same conclusion later stops above
        drop(state);
        drop(spare);
        self.close_frame(frame, &exited, local);
    }

    fn close_frame(self: &Arc<Step>, frame: &Arc<Frame>, exited: &[u32], local: &mut Local) {
        let Some(parent) = frame.parent.upgrade() else { return };
        parent.children.lock().retain(|f| !Arc::ptr_eq(f, frame));
        self.frames.lock().retain(|f| !Arc::ptr_eq(f, frame));
        for (index, node) in self.plan.nodes.iter().enumerate() {
            let index = index as u32;
            if node.frame == frame.number && matches!(node.work, Work::Exit) && !exited.contains(&index) {
                self.deliver_elsewhere(&parent, index, &mut [Value::Dead], true, local);
            }
        }
        self.leave(&parent, local);
    }
}

/// The id of a frame entered from a given frame and iteration. Peers compute it on their own, so it is TensorFlow's:
/// the check values are in the test.
fn frame_id(parent: u64, parent_iteration: u64, name: &str) -> u64 {
    let combine = |a: u64, b: u64| a ^ b.wrapping_add(0x9e37_79b9_7f4a_7800).wrapping_add(a << 10).wrapping_add(a >> 4);
    combine(parent, combine(parent_iteration, murmur(name.as_bytes())))
}

/// MurmurHash64A.
fn murmur(bytes: &[u8]) -> u64 {
    const M: u64 = 0xc6a4_a793_5bd1_e995;
    const SEED: u64 = 0x00DE_CAFC_AFFE;
    let mut hash = SEED ^ (bytes.len() as u64).wrapping_mul(M);
    let mut chunks = bytes.chunks_exact(8);
    for chunk in &mut chunks {
        let mut k = u64::from_le_bytes(chunk.try_into().expect("a chunk of eight")).wrapping_mul(M);
        k = (k ^ (k >> 47)).wrapping_mul(M);
        hash = (hash ^ k).wrapping_mul(M);
    }
    let rest = chunks.remainder();
    if !rest.is_empty() {
        for (i, &byte) in rest.iter().enumerate() {
            hash ^= u64::from(byte) << (8 * i);
        }
        hash = hash.wrapping_mul(M);
    }
    hash = (hash ^ (hash >> 47)).wrapping_mul(M);
    hash ^ (hash >> 47)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frame_ids_are_those_that_tensorflow_sends() {
        let outer = frame_id(0, 0, "while/while_context");
        assert_eq!(outer, 18186195969791715286);
        let inner = |iteration| frame_id(outer, iteration, "while/while/while_context");
        assert_eq!([inner(0), inner(1), inner(2)], [14089697833663469911, 14089697833663522132, 14089697833663521109]);
    }
}

//! The values of one iteration: written by producers, read by consumers, without locks.
//!
//! Each slot belongs to one input of one node. Its producer writes it once, before counting the node down; the node
//! reads it once, after its counter reached zero. Counting is acquire-release, so the write happens before the read.

use framework::Value;
use std::cell::UnsafeCell;

#[derive(Default)]
pub(super) struct Slots(Box<[UnsafeCell<Value>]>);

// SAFETY: access to each slot is ordered by its node's counter, as said above.
unsafe impl Sync for Slots {}

impl Slots {
    pub(super) fn new(count: usize) -> Slots {
        Slots((0..count).map(|_| UnsafeCell::new(Value::Empty)).collect())
    }

    /// Lets go of whatever values are left.
    pub(super) fn clear(&mut self) {
        for slot in &mut self.0 {
            let value = slot.get_mut();
            if !matches!(value, Value::Empty) {
                *value = Value::Empty;
            }
        }
    }

    /// Puts a value.
    ///
    /// # Safety
    /// The caller is the slot's one producer in this iteration and has not yet counted its node down.
    #[inline]
    pub(super) unsafe fn put(&self, slot: u32, value: Value) {
        // SAFETY: nobody else looks at the slot before the node is counted down.
        unsafe { *self.0[slot as usize].get() = value };
    }

    /// The inputs of a node.
    ///
    /// # Safety
    /// The node's counter reached zero and the caller is the one that runs it, once.
    #[allow(clippy::mut_from_ref)]
    #[inline]
    pub(super) unsafe fn inputs(&self, first: u32, count: u32) -> &mut [Value] {
        let range = &self.0[first as usize..(first + count) as usize];
        // SAFETY: all producers have counted down, and only the running node uses its own slots. UnsafeCell<Value>
        // has the layout of Value.
        unsafe { std::slice::from_raw_parts_mut(range.as_ptr().cast::<Value>().cast_mut(), range.len()) }
    }
}

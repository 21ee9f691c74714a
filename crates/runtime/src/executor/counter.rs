//! Counters that several threads may change, at the price of plain memory while only one does.

use std::sync::atomic::{AtomicU32, Ordering};

/// Who may change the counters of a step at this moment.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Access {
    /// The calling thread alone.
    Alone,
    /// Other threads, too.
    Shared,
}

/// A number that wraps. What a thread did before it changed the number is seen by whoever changes it later.
#[derive(Default)]
pub(super) struct Counter(AtomicU32);

impl Counter {
    pub(super) fn new(start: u32) -> Counter {
        Counter(AtomicU32::new(start))
    }

    #[inline]
    pub(super) fn get(&self) -> u32 {
        self.0.load(Ordering::Acquire)
    }

    #[inline]
    pub(super) fn set(&mut self, value: u32) {
        *self.0.get_mut() = value;
    }

    /// Adds; gives the number before.
    #[inline]
    pub(super) fn add(&self, more: u32, access: Access) -> u32 {
        match access {
            Access::Alone => self.replace(|before| before.wrapping_add(more)),
            Access::Shared => self.0.fetch_add(more, Ordering::AcqRel),
        }
    }

    /// Subtracts; gives the number before.
    #[inline]
    pub(super) fn sub(&self, less: u32, access: Access) -> u32 {
        match access {
            Access::Alone => self.replace(|before| before.wrapping_sub(less)),
            Access::Shared => self.0.fetch_sub(less, Ordering::AcqRel),
        }
    }

    /// Sets bits; gives the number before.
    #[inline]
    pub(super) fn or(&self, bits: u32, access: Access) -> u32 {
        match access {
            Access::Alone => self.replace(|before| before | bits),
            Access::Shared => self.0.fetch_or(bits, Ordering::AcqRel),
        }
    }

    /// A read and a write that nobody comes between, because nobody else is there.
    #[inline]
    fn replace(&self, change: impl FnOnce(u32) -> u32) -> u32 {
        let before = self.0.load(Ordering::Relaxed);
        self.0.store(change(before), Ordering::Relaxed);
        before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_count_alike() {
        for access in [Access::Alone, Access::Shared] {
            let mut counter = Counter::new(3);
            assert_eq!(counter.sub(1, access), 3);
            assert_eq!(counter.or(8, access), 2);
            assert_eq!(counter.add(u32::MAX, access), 10);
            assert_eq!(counter.get(), 9);
            counter.set(0);
            assert_eq!(counter.sub(1, access), 0);
            assert_eq!(counter.get(), u32::MAX);
        }
    }
}

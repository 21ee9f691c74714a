//! Buffers for intermediate results, kept by each thread and used again.
//!
//! Fresh memory costs several times what used memory costs, so a kernel that packs its input takes a buffer here.

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};

/// A slice of single-precision numbers at a 64-byte boundary, with arbitrary content; goes back when dropped.
#[derive(Default)]
pub(crate) struct Scratch {
    memory: Vec<f32>,
    start: usize,
    len: usize,
}

/// A cache line, in elements.
const LINE: usize = 16;
/// How many buffers a thread keeps, and how large each may be, in elements.
const KEPT: usize = 6;
const KEPT_LEN_MAX: usize = 16 << 20;

thread_local! {
    static FREE: RefCell<Vec<Vec<f32>>> = const { RefCell::new(Vec::new()) };
}

impl Scratch {
    /// A buffer of this many elements.
    pub(crate) fn take(len: usize) -> Scratch {
        let need = len + LINE;
        let mut memory = FREE.with(|free| {
            let mut free = free.borrow_mut();
            // The smallest that is large enough, else the largest, which grows.
            let fit = (0..free.len()).min_by_key(|&i| {
                let capacity = free[i].len();
                if capacity >= need { (0, capacity) } else { (1, usize::MAX - capacity) }
            });
            fit.map(|i| free.swap_remove(i)).unwrap_or_default()
        });
        if memory.len() < need {
            memory.clear();
            memory.resize(need, 0.0);
        }
        let start = memory.as_ptr().align_offset(64).min(LINE);
        Scratch { memory, start, len }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let memory = std::mem::take(&mut self.memory);
        if !memory.is_empty() && memory.len() <= KEPT_LEN_MAX {
            // A thread that is ending has no list any more: then the memory is simply freed.
            _ = FREE.try_with(|free| {
                let mut free = free.borrow_mut();
                if free.len() < KEPT {
                    free.push(memory);
                }
            });
        }
    }
}

impl Deref for Scratch {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        &self.memory[self.start..self.start + self.len]
    }
}

impl DerefMut for Scratch {
    fn deref_mut(&mut self) -> &mut [f32] {
        &mut self.memory[self.start..self.start + self.len]
    }
}

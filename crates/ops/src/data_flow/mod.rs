//! Ops through which steps meet or accumulate: queues, conditional accumulators, tensor arrays.

pub mod accumulator;
mod accumulator_ops;
mod declared;
pub mod queue;
pub mod queue_ops;
mod rows;
mod stack;
mod tensor_array;
#[cfg(test)]
pub(crate) mod testing;
mod wait;

use framework::Op;

pub(crate) use declared::{Declared, resolve};

/// All ops of the family.
pub fn ops() -> Vec<Op> {
    [queue_ops::ops(), accumulator_ops::ops(), stack::ops(), tensor_array::ops()].concat()
}

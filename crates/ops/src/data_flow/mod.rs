//! Ops through which steps meet or accumulate: queues, conditional accumulators, tensor arrays and lists.

pub mod accumulator;
mod accumulator_ops;
mod declared;
mod members;
pub mod queue;
pub mod queue_ops;
pub(crate) mod rows;
mod stack;
mod tensor_array;
mod tensor_list;
#[cfg(test)]
pub(crate) mod testing;
mod tokens;
mod wait;

use framework::Op;

pub(crate) use declared::{Declared, resolve};
pub(crate) use tensor_list::TensorList;

/// All ops of the family.
pub fn ops() -> Vec<Op> {
    [queue_ops::ops(), accumulator_ops::ops(), stack::ops(), tensor_array::ops(), tensor_list::ops()].concat()
}

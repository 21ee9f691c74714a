//! Ops that draw random numbers: for given seeds, the numbers that TensorFlow draws.
//!
//! A kernel holds a place in a stream (Philox 4x32-10, keyed by the two seeds) that moves on with every run; it lives
//! as long as the session that made it.

mod distributions;
mod multinomial;
mod shuffle;
mod stateless;
mod uniform_int;

pub use distributions::{random_standard_normal, random_uniform, truncated_normal};
pub use shuffle::random_shuffle;
pub use uniform_int::random_uniform_int;

use framework::{KernelBuild, Op};
use linalg::random::Philox;
use parking_lot::Mutex;
use tensor::{Result, Shape, Tensor, invalid};

/// All ops of the family.
pub fn ops() -> Vec<Op> {
    [distributions::ops(), multinomial::ops(), shuffle::ops(), stateless::ops(), uniform_int::ops()].concat()
}

/// The stream of one kernel.
pub(crate) struct Stream(Mutex<Philox>);

impl Stream {
    /// The stream that a node's two seeds name; one that nobody can foresee if both are zero.
    pub(crate) fn new(b: &KernelBuild<'_>) -> Result<Stream> {
        let (mut seed, mut seed2) = (b.attr::<i64>("seed")? as u64, b.attr::<i64>("seed2")? as u64);
        if (seed, seed2) == (0, 0) {
            (seed, seed2) = (b.env.random_u64(), b.env.random_u64());
        }
        Ok(Stream(Mutex::new(Philox::new(seed, seed2))))
    }

    /// Where to draw this many numbers of a distribution from.
    pub(crate) fn for_outputs(&self, count: usize) -> Philox {
        self.0.lock().reserve_outputs(count as u64)
    }

    /// Where to draw this many words from.
    pub(crate) fn for_words(&self, count: u64) -> Philox {
        self.0.lock().reserve_words(count)
    }
}

/// The shape that a tensor describes.
fn described_shape(tensor: &Tensor) -> Result<Shape> {
    if tensor.shape().rank() != 1 {
        return Err(invalid!("shape must be a vector of int32 or int64, got shape {}", tensor.shape()));
    }
    Shape::checked(tensor.to_i64s()?)
}

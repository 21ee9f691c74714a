//! Ops that draw classes to train against, for losses over very many classes.

mod accidental_hits;
mod distribution;
mod samplers;

pub use accidental_hits::compute_accidental_hits;
pub use samplers::{Candidates, SamplerOptions, log_uniform_candidate_sampler, uniform_candidate_sampler};

use framework::Op;

/// All ops of the family.
pub fn ops() -> Vec<Op> {
    [accidental_hits::ops(), samplers::ops()].concat()
}

//! Every op: definition, shape function, kernels, gradient; one file each.
//!
//! [`registry`] lists them all; whoever needs it is handed it.

pub mod array;
pub mod candidate_sampling;
pub mod control_flow;
pub mod data_flow;
pub mod dataset;
pub mod functional;
pub mod fused;
pub mod io;
pub mod lookup;
pub mod math;
pub mod nn;
mod pace;
pub mod random;
pub mod send_recv;
pub mod sparse;
pub mod state;
pub mod strings;
pub mod summary;
pub mod training;

use framework::{Op, Registry};

/// All ops there are.
pub fn registry() -> Registry {
    Registry::listed_by(ops)
}

fn ops() -> Vec<Op> {
    [
        array::ops(),
        candidate_sampling::ops(),
        control_flow::ops(),
        data_flow::ops(),
        dataset::ops(),
        functional::ops(),
        io::ops(),
        lookup::ops(),
        math::ops(),
        nn::ops(),
        random::ops(),
        sparse::ops(),
        state::ops(),
        strings::ops(),
        summary::ops(),
        training::ops(),
        send_recv::ops(),
        fused::ops(),
    ]
    .concat()
    .into_iter()
    .map(fused::mark)
    .collect()
}

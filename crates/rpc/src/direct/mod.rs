//! Calls between processes of one user on one machine, without HTTP/2.
//!
//! Such processes trust each other as far as the system does, and know each other's version by the name of the socket
//! (`near.rs`). So all that HTTP/2 negotiates, compresses and bounds for strangers is left out: a call is a frame with its path
//! and its message, its answer another. What is left of the work is a third, and most steps are nothing but such calls.
//!
//! Messages that are long go in parts, and others come in between. Calls end as over HTTP/2: with an answer, with a status, or
//! because one side is gone. Tensors that travel alone take HTTP/2 here too, which slows a sender down to its reader's pace.

mod client;
mod frame;
mod server;

pub(crate) use client::{Calls, Connection, Unanswered, open};
pub(crate) use server::converse;

use std::task::Waker;

/// Notes whom to wake; whoever is known already is not cloned again.
fn remember(place: &mut Option<Waker>, waker: &Waker) {
    match place {
        Some(known) => known.clone_from(waker),
        None => *place = Some(waker.clone()),
    }
}

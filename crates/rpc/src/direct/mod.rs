//! Calls between tasks and clients of our own kind, without HTTP/2.
//!
//! They know each other's version: on one machine by the name of the socket (`near.rs`), and across the network by the first
//! bytes that a client says once an answer over HTTP/2 has told it whom it talks to. So all that HTTP/2 negotiates and
//! compresses is left out: a call is a frame with its path and its message, its answer another. What is left of the work is a
//! third, and most steps are nothing but such calls. What a peer may take of our memory and time is bounded as there.
//!
//! Messages that are long go in parts, and others come in between. Calls end as over HTTP/2: with an answer, with a status, or
//! because one side is gone. An answer that is a tensor is read from the socket right into the tensor's memory.

mod client;
mod frame;
mod server;

pub(crate) use client::{Answer, Calls, Connection, Unanswered, open};
pub(crate) use server::converse;

/// What a client says first where others may speak HTTP/2, which begins with another byte.
pub(crate) const PREFACE: [u8; 22] = *b"ferroflow direct 1\r\n\r\n";

use std::task::Waker;

/// Notes whom to wake; whoever is known already is not cloned again.
fn remember(place: &mut Option<Waker>, waker: &Waker) {
    match place {
        Some(known) => known.clone_from(waker),
        None => *place = Some(waker.clone()),
    }
}

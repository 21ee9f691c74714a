//! The public face of the crate: servers and stubs over real sockets.

mod bad_peers;
mod calls;
mod connecting;
mod ending;
mod fakes;
mod lend;
#[cfg(unix)]
mod signals;
mod small;

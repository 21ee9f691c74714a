//! The public face of the crate: servers and stubs over real sockets.

mod bad_peers;
mod calls;
mod connecting;
#[cfg(target_os = "linux")]
mod direct;
#[cfg(target_os = "linux")]
mod driving;
mod ending;
mod fakes;
mod lend;
#[cfg(target_os = "linux")]
mod near;
#[cfg(unix)]
mod signals;
mod small;

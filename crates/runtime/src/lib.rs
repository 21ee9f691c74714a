//! Running one graph in one process: the executor, the meeting place of a step, and waiting for the result.

mod block_on;
pub mod brief;
pub mod executor;
mod function;
pub mod mailbox;
pub mod rendezvous;
mod timer;

pub use block_on::{Elapsed, block_on};
pub use executor::{Executor, KernelCache, StepFuture, Wait, Watcher};
pub use mailbox::{KeyList, Mailbox, Parcel, Places};
pub use rendezvous::{Found, LocalRendezvous, StepTable};
pub use timer::Timer;

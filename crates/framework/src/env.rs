//! The clock and random ids, behind one trait: a test supplies its own.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Time and randomness as the rest of the program sees them.
pub trait Env: Send + Sync {
    /// A clock that never jumps, for deadlines and durations.
    fn now(&self) -> Instant;
    /// Wall time in microseconds since 1970, for logs and traces.
    fn wall_micros(&self) -> u64;
    /// A number nobody can guess or expect to repeat.
    fn random_u64(&self) -> u64;
}

/// The real clock, and randomness seeded by the operating system.
#[derive(Default)]
pub struct SystemEnv {
    state: RandomState,
    counter: AtomicU64,
}

impl Env for SystemEnv {
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn wall_micros(&self) -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_micros() as u64)
    }

    fn random_u64(&self) -> u64 {
        // A keyed hash of a counter: the key comes from the operating system.
        self.state.hash_one((self.counter.fetch_add(1, Ordering::Relaxed), std::process::id()))
    }
}

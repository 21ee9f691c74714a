//! Maps that every step goes through.
//!
//! Those of the standard library are made to withstand keys that somebody chose so that they collide, and take several times
//! as long. These are seeded anew in each process, and their keys are numbers that we have given, or names of what a client
//! has already been let in to make.

use std::collections::{HashMap, HashSet};
use std::hash::BuildHasher;
use std::sync::OnceLock;

/// A map that is looked into in every step.
pub type FastMap<K, V> = HashMap<K, V, foldhash::fast::RandomState>;

/// A set that is looked into in every step.
pub type FastSet<K> = HashSet<K, foldhash::fast::RandomState>;

/// A number for some text: in this process always the same, and another for another text, as far as one can tell.
pub(crate) fn hash(text: &str) -> u64 {
    static HASHING: OnceLock<foldhash::quality::RandomState> = OnceLock::new();
    HASHING.get_or_init(Default::default).hash_one(text)
}

//! `FeedFn`: supplies values to every run.

use super::{Hook, RunArgs, RunContext};
use crate::Feeds;
use tensor::Result;

/// Supplies values to every run: what a function gives each time.
pub struct FeedFn<F> {
    feed: F,
}

impl<F: FnMut() -> Result<Feeds> + Send> FeedFn<F> {
    /// Supplies what `feed` gives. `OutOfRange` is the end of the input.
    pub fn new(feed: F) -> FeedFn<F> {
        FeedFn { feed }
    }
}

impl<F: FnMut() -> Result<Feeds> + Send> Hook for FeedFn<F> {
    fn before_run(&mut self, _: &RunContext<'_>) -> Result<RunArgs> {
        Ok(RunArgs { feeds: (self.feed)()?, ..RunArgs::default() })
    }
}

//! `FinalOps`: computes something when training has ended.

use super::Hook;
use crate::{Feeds, Operation, Output, Session};
use parking_lot::Mutex;
use std::sync::Arc;
use tensor::{Result, Tensor};

/// Computes something when training has ended. Clones are handles on the same hook: one goes to the session, the other
/// tells the values.
#[derive(Clone, Default)]
pub struct FinalOps {
    fetches: Vec<Output>,
    operations: Vec<Operation>,
    feeds: Feeds,
    values: Arc<Mutex<Option<Vec<Tensor>>>>,
}

impl FinalOps {
    /// Computes the values of these.
    pub fn new<O: AsRef<Output>>(outputs: impl IntoIterator<Item = O>) -> FinalOps {
        let fetches = outputs.into_iter().map(|output| output.as_ref().clone()).collect();
        FinalOps { fetches, ..FinalOps::default() }
    }

    /// Lets this happen too.
    pub fn operation(mut self, operation: &Operation) -> FinalOps {
        self.operations.push(operation.clone());
        self
    }

    /// Supplies these values.
    pub fn feeds(mut self, feeds: Feeds) -> FinalOps {
        self.feeds = feeds;
        self
    }

    /// The values, once training has ended.
    pub fn values(&self) -> Option<Vec<Tensor>> {
        self.values.lock().clone()
    }
}

impl Hook for FinalOps {
    fn end(&mut self, session: &Session) -> Result<()> {
        let (values, _) = session.run_with((&self.fetches, &self.operations), self.feeds.clone())?;
        *self.values.lock() = Some(values);
        Ok(())
    }
}

//! Runs prepared once and called by number, with feeds and fetches by position.

use super::client_graph::ClientGraph;
use super::session::MasterSession;
use crate::interface::{RunStep, RunStepReply};
use parking_lot::Mutex;
use plan::RunSignature;
use std::collections::HashMap;
use std::sync::Arc;
use tensor::{Result, Tensor, invalid, unsupported};

/// The callables of a session.
#[derive(Default)]
pub(super) struct Callables {
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    by_handle: HashMap<i64, Arc<Callable>>,
    next: i64,
}

struct Callable {
    plan: Arc<ClientGraph>,
    options: proto::CallableOptions,
}

impl MasterSession {
    pub(super) async fn make_callable(&self, options: proto::CallableOptions) -> Result<i64> {
        if !options.tensor_connection.is_empty() {
            return Err(unsupported!(
                "CallableOptions.tensor_connection is not supported: feed and fetch the tensors instead"
            ));
        }
        let signature = RunSignature::new(options.feed.clone(), options.fetch.clone(), options.target.clone())?;
        let plan = self.plan(signature).await?;
        let mut table = self.callables.table.lock();
        let handle = table.next;
        table.next += 1;
        table.by_handle.insert(handle, Arc::new(Callable { plan, options }));
        Ok(handle)
    }

    pub(super) async fn run_callable(&self, handle: i64, feeds: Vec<Tensor>) -> Result<RunStepReply> {
        let callable = self.callable(handle)?;
        let names = &callable.options.feed;
        if feeds.len() != names.len() {
            return Err(invalid!("callable {handle} takes {} feeds, found {}", names.len(), feeds.len()));
        }
        let mut request = RunStep {
            session: self.handle.clone(),
            feeds: names.iter().cloned().zip(feeds).collect(),
            fetches: callable.options.fetch.clone(),
            targets: callable.options.target.clone(),
            options: callable.options.run_options.clone().unwrap_or_default(),
            partial_run: String::new(),
        };
        self.run_planned(&callable.plan, &mut request).await
    }

    fn callable(&self, handle: i64) -> Result<Arc<Callable>> {
        let table = self.callables.table.lock();
        table.by_handle.get(&handle).cloned().ok_or_else(|| {
            if (0..table.next).contains(&handle) {
                invalid!("Attempted to run callable after handle was released: {handle}")
            } else {
                invalid!("No such callable handle: {handle}")
            }
        })
    }

    /// Forgets a callable; one that is not there is forgotten already.
    pub(super) fn release_callable(&self, handle: i64) {
        self.callables.table.lock().by_handle.remove(&handle);
    }
}

//! The plan of one signature: pruned, optimised, registered with the worker.

use super::Shared;
use crate::interface::GraphHandle;
use framework::RendezvousKey;
use plan::prune::Feed;
use plan::{PlacedGraph, RunSignature, optimize, optimize_for_device, prune};
use std::collections::HashMap;
use tensor::{Result, Tensor, invalid, not_found};

/// Made once for a signature, read by every step of it.
pub(super) struct ClientGraph {
    pub(super) graph: GraphHandle,
    feeds: HashMap<String, (RendezvousKey, Feed)>,
    fetches: HashMap<String, RendezvousKey>,
}

impl ClientGraph {
    pub(super) async fn make(
        shared: &Shared,
        session: &str,
        placed: &PlacedGraph,
        signature: &RunSignature,
        optimized: bool,
    ) -> Result<ClientGraph> {
        let pruned = prune(placed, signature, &shared.client, &shared.registry)?;
        let graph = if optimized {
            let graph = optimize(pruned.graph, &shared.interpreter, &shared.registry)?;
            optimize_for_device(graph, &shared.registry)?
        } else {
            pruned.graph
        };
        let graph = shared.worker.register_graph(session.to_string(), graph).await?;
        let feeds = pruned.feeds.into_iter().map(|f| (f.name.clone(), (shared.client.key(&f.name), f))).collect();
        let fetches = signature.fetches.iter().map(|name| (name.clone(), shared.client.key(name))).collect();
        Ok(ClientGraph { graph, feeds, fetches })
    }

    /// Where a fed value goes, after checking that it fits.
    pub(super) fn feed(&self, name: &str, value: &Tensor) -> Result<RendezvousKey> {
        let (key, feed) =
            self.feeds.get(name).ok_or_else(|| not_found!("FeedInputs: unable to find feed output {name}"))?;
        if value.dtype() != feed.dtype {
            return Err(invalid!("'{name}' was fed a tensor of {}, it takes {}", value.dtype(), feed.dtype));
        }
        if !feed.shape.accepts(value.shape()) {
            return Err(invalid!(
                "Cannot feed value of shape {} for Tensor '{name}', which has shape {}",
                value.shape(),
                feed.shape
            ));
        }
        Ok(key.clone())
    }

    /// Where a fetched value is found.
    pub(super) fn fetch(&self, name: &str) -> Result<RendezvousKey> {
        self.fetches.get(name).cloned().ok_or_else(|| not_found!("FetchOutputs node {name}: not found"))
    }

    /// How many feeds and fetches there are in all.
    pub(super) fn num_ends(&self) -> usize {
        self.feeds.len() + self.fetches.len()
    }
}

//! A step's meeting place as the executor sees it: what other tasks send is fetched from them.

use super::log::TransferLog;
use crate::cluster::{Peers, TaskName};
use crate::interface::Bringing;
use framework::{Asked, BoxFuture, Delivery, Env, Receiver, Rendezvous, RendezvousKey};
use runtime::LocalRendezvous;
use std::sync::Arc;
use tensor::{Error, Result};

/// The local mailbox of a step, and the way to the other tasks'.
pub(super) struct WorkerRendezvous {
    pub(super) local: LocalRendezvous,
    pub(super) step: i64,
    pub(super) peers: Arc<Peers>,
    pub(super) env: Arc<dyn Env>,
    pub(super) log: Arc<TransferLog>,
    /// What comes without being asked for.
    pub(super) bringing: Option<Arc<Bringing>>,
}

impl WorkerRendezvous {
    fn is_from_here(&self, key: &RendezvousKey) -> bool {
        let own = self.peers.own();
        key.source_task().is_none_or(|(job, task)| job == own.job && task == own.index)
    }
}

impl Rendezvous for WorkerRendezvous {
    fn send(&self, key: &RendezvousKey, value: Delivery) -> Result<()> {
        self.local.send(key, value)
    }

    fn try_recv(&self, key: &RendezvousKey) -> Option<Result<Delivery>> {
        if self.is_from_here(key) { self.local.try_recv(key) } else { None }
    }

    fn recv(&self, key: &RendezvousKey) -> BoxFuture<Result<Delivery>> {
        if self.is_from_here(key) {
            return self.local.recv(key);
        }
        let (peers, env, log) = (self.peers.clone(), self.env.clone(), self.log.clone());
        let (key, step) = (key.clone(), self.step);
        Box::pin(async move {
            let (job, index) = key.source_task().unwrap_or_default();
            let peer = peers.worker(&TaskName::new(job, index))?;
            if !log.is_on() {
                return peer.recv_tensor(step, key).await;
            }
            let start = env.wall_micros();
            let delivery = peer.recv_tensor(step, key.clone()).await?;
            log.note(step, &key, &delivery, start, env.wall_micros());
            Ok(delivery)
        })
    }

    fn receive_group(&self, keys: &Arc<[RendezvousKey]>, receiver: Arc<dyn Receiver>) -> Result<Option<Asked>> {
        let Some(first) = keys.first().filter(|first| !self.is_from_here(first)) else { return Ok(None) };
        if let Some(asked) = self.bringing.as_ref().and_then(|bringing| bringing.receive(keys, &receiver)) {
            return Ok(Some(asked));
        }
        if self.log.is_on() {
            return Ok(None);
        }
        let (job, index) = first.source_task().unwrap_or_default();
        let peer = self.peers.worker(&TaskName::new(job, index))?;
        Ok(peer.receive_group(self.step, keys, receiver))
    }

    fn abort(&self, why: Error) {
        self.local.abort(why);
    }
}

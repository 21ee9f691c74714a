//! A step's meeting place as the executor sees it: what other tasks send is fetched from them.

use super::log::TransferLog;
use crate::cluster::{Peers, TaskName};
use crate::interface::Bringing;
use framework::{Arrived, Asked, BoxFuture, Delivery, Env, Receiver, Rendezvous, RendezvousKey};
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
    pub(super) expected: Expected,
}

/// What comes from other tasks without being asked for.
#[derive(Default)]
pub(super) struct Expected {
    /// Something came with the call that started the step, and is in the local mailbox: feeds, or what others sent.
    pub(super) has_early: bool,
    /// This will come.
    pub(super) bringing: Option<Arc<Bringing>>,
}

impl WorkerRendezvous {
    fn is_from_here(&self, key: &RendezvousKey) -> bool {
        let own = self.peers.own();
        key.source_task().is_none_or(|(job, task)| job == own.job && task == own.index)
    }
}

impl WorkerRendezvous {
    /// Takes of a group what came early, if anything did. The rest is then received one by one: it is little.
    fn receive_early(&self, keys: &Arc<[RendezvousKey]>, receiver: &Arc<dyn Receiver>) -> Result<Option<Asked>> {
        let early = self.local.take_present(keys)?;
        if early.is_empty() {
            return Ok(None);
        }
        let mut is_early = vec![false; keys.len()];
        early.iter().for_each(|(place, _)| is_early[*place as usize] = true);
        let alone = (0..).zip(&is_early).filter(|(_, is_early)| !**is_early).map(|(place, _)| place).collect();
        receiver.clone().receive(early.into_iter().map(|(place, value)| (place, Arrived::Value(value))).collect());
        Ok(Some(Asked { alone, interest: Box::new(()) }))
    }

    /// Asks the sender of a group.
    fn ask_for_group(&self, keys: &Arc<[RendezvousKey]>, receiver: Arc<dyn Receiver>) -> Result<Option<Asked>> {
        let Some((job, index)) = keys.first().and_then(|first| first.source_task()) else { return Ok(None) };
        if self.log.is_on() {
            return Ok(None);
        }
        let peer = self.peers.worker(&TaskName::new(job, index))?;
        Ok(peer.receive_group(self.step, keys, receiver))
    }
}

impl Rendezvous for WorkerRendezvous {
    fn send(&self, key: &RendezvousKey, value: Delivery) -> Result<()> {
        self.local.send(key, value)
    }

    fn try_recv(&self, key: &RendezvousKey) -> Option<Result<Delivery>> {
        if self.expected.has_early || self.is_from_here(key) { self.local.try_recv(key) } else { None }
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
        if keys.first().is_none_or(|first| self.is_from_here(first)) {
            return Ok(None);
        }
        if self.expected.has_early
            && let Some(asked) = self.receive_early(keys, &receiver)?
        {
            return Ok(Some(asked));
        }
        if let Some(asked) = self.expected.bringing.as_ref().and_then(|bringing| bringing.receive(keys, &receiver)) {
            return Ok(Some(asked));
        }
        self.ask_for_group(keys, receiver)
    }

    fn abort(&self, why: Error) {
        self.local.abort(why);
    }
}

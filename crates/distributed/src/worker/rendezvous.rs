//! A step's meeting place as the executor sees it: what other tasks send is fetched from them.

use super::log::TransferLog;
use super::outbox::Outbox;
use crate::cluster::{Peers, TaskName};
use framework::{Arrived, Asked, BoxFuture, Delivery, Env, Receiver, Rendezvous, RendezvousKey};
use futures_util::future::{Either, select};
use runtime::mailbox::MailFuture;
use runtime::{LocalRendezvous, Mailbox};
use std::pin::pin;
use std::sync::Arc;
use tensor::{Error, Result};

/// The local mailbox of a step, and the way to the other tasks'.
pub(super) struct WorkerRendezvous {
    pub(super) local: LocalRendezvous,
    pub(super) step: i64,
    pub(super) peers: Arc<Peers>,
    pub(super) env: Arc<dyn Env>,
    pub(super) log: Arc<TransferLog>,
    /// What comes from other tasks without being asked for.
    pub(super) mailbox: Option<Arc<Mailbox>>,
    /// What goes to them.
    pub(super) outbox: Option<Arc<Outbox>>,
}

impl WorkerRendezvous {
    fn is_from_here(&self, key: &RendezvousKey) -> bool {
        let own = self.peers.own();
        key.source_task().is_none_or(|(job, task)| job == own.job && task == own.index)
    }
}

impl WorkerRendezvous {
    /// Waits for what of a group comes by itself.
    fn expect_group(&self, keys: &Arc<[RendezvousKey]>, receiver: &Arc<dyn Receiver>) -> Option<Asked> {
        let mailbox = self.mailbox.as_ref()?;
        if !self.log.is_on() {
            return mailbox.receive(keys, receiver);
        }
        let (log, env) = (self.log.clone(), self.env.clone());
        let (start, receiver) = (env.wall_micros(), receiver.clone());
        let noted: Arc<dyn Receiver> =
            Arc::new(Noted { keys: keys.clone(), step: self.step, log, env, start, receiver });
        mailbox.receive(keys, &noted)
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
        match &self.outbox {
            Some(outbox) => outbox.send(key, value),
            None => self.local.send(key, value),
        }
    }

    fn flush(&self) {
        if let Some(outbox) = &self.outbox {
            outbox.flush();
        }
    }

    fn try_recv(&self, key: &RendezvousKey) -> Option<Result<Delivery>> {
        if self.is_from_here(key) {
            return self.local.try_recv(key);
        }
        self.mailbox.as_ref()?.try_recv(key).map(Ok)
    }

    fn recv(&self, key: &RendezvousKey) -> BoxFuture<Result<Delivery>> {
        if self.is_from_here(key) {
            return self.local.recv(key);
        }
        let (peers, env, log) = (self.peers.clone(), self.env.clone(), self.log.clone());
        let (key, step) = (key.clone(), self.step);
        let is_asked_for = self.mailbox.as_ref().is_some_and(|mailbox| mailbox.is_likely_announced(&key));
        let unasked = self.mailbox.as_ref().and_then(|mailbox| mailbox.recv(&key));
        Box::pin(async move {
            let start = if log.is_on() { env.wall_micros() } else { 0 };
            let ask = async {
                let (job, index) = key.source_task().unwrap_or_default();
                peers.worker(&TaskName::new(job, index))?.recv_tensor(step, key.clone()).await
            };
            let delivery = match (unasked, is_asked_for) {
                (None, _) => ask.await?,
                (Some(unasked), true) => either(unasked, ask).await?,
                (Some(unasked), false) => match unasked.await? {
                    Arrived::Value(delivery) => delivery,
                    Arrived::Alone => ask.await?,
                },
            };
            if log.is_on() {
                log.note(step, &key, &delivery, start, env.wall_micros());
            }
            Ok(delivery)
        })
    }

    fn receive_group(&self, keys: &Arc<[RendezvousKey]>, receiver: Arc<dyn Receiver>) -> Result<Option<Asked>> {
        if keys.first().is_none_or(|first| self.is_from_here(first)) {
            return Ok(None);
        }
        match self.expect_group(keys, &receiver) {
            Some(asked) => Ok(Some(asked)),
            None => self.ask_for_group(keys, receiver),
        }
    }

    fn abort(&self, why: Error) {
        self.local.abort(why);
    }
}

/// A value that is asked for and may yet come by itself, being smaller than it was.
async fn either(unasked: MailFuture, ask: impl Future<Output = Result<Delivery>>) -> Result<Delivery> {
    match select(unasked, pin!(ask)).await {
        Either::Left((Ok(Arrived::Value(delivery)), _)) => Ok(delivery),
        Either::Left((Ok(Arrived::Alone), asking)) => asking.await,
        Either::Left((Err(e), _)) => Err(e),
        Either::Right((asked, _)) => asked,
    }
}

/// Notes what comes before it is handed on.
struct Noted {
    keys: Arc<[RendezvousKey]>,
    step: i64,
    log: Arc<TransferLog>,
    env: Arc<dyn Env>,
    start: u64,
    receiver: Arc<dyn Receiver>,
}

impl Receiver for Noted {
    fn receive(self: Arc<Self>, arrived: Vec<(u32, Arrived)>) {
        for (place, arrived) in &arrived {
            if let (Arrived::Value(delivery), Some(key)) = (arrived, self.keys.get(*place as usize)) {
                self.log.note(self.step, key, delivery, self.start, self.env.wall_micros());
            }
        }
        self.receiver.clone().receive(arrived);
    }

    fn fail(self: Arc<Self>, why: Error) {
        self.receiver.clone().fail(why);
    }
}

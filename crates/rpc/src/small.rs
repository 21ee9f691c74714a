//! Small values travel together: what a step wants from one peer at one time is asked for in one call.
//!
//! Only tasks of our own kind know this call (`/ferroflow.Tensors/Take`); they say so in the head of every answer. The
//! answer holds what is there, as soon as anything is, so that no value waits for another: what is missing is asked for
//! again. Keys that are asked for in every step are told once and then have a name. Large values are left to `RecvTensor`,
//! which puts them where they belong as they come.

use crate::channel::{Channel, Lane, Outgoing};
use crate::errands;
use crate::fields;
use crate::forget::{ForgetRequest, ForgetResponse};
use crate::lend;
use crate::lost::{LoseSessionRequest, LoseSessionResponse};
use crate::master_service::finish;
use crate::packed::{self, Sorted};
use crate::pieces::{Pieces, Writer};
use crate::push;
use crate::server::{Call, Service, unknown_method};
use bytes::Bytes;
use distributed::brief;
use distributed::interface::WorkerInterface;
use framework::rendezvous::ByOwnHash;
use framework::{Arrived, Asked, BoxFuture, FastMap, Receiver, RendezvousKey};
use parking_lot::Mutex;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::future::poll_fn;
use std::hash::{BuildHasher, BuildHasherDefault, Hash, Hasher, RandomState};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use tensor::{Code, Result, internal, invalid};
use tokio::sync::{Notify, oneshot};

const PATH: &str = "/ferroflow.Tensors/Take";
const VALUES: u32 = 1;

/// Asks for values of a step.
#[derive(Clone, PartialEq, prost::Message)]
struct TakeRequest {
    #[prost(int64, tag = "1")]
    step_id: i64,
    #[prost(string, repeated, tag = "2")]
    key: Vec<String>,
    /// Names the keys from now on, or, if there are none, those that were named so. 0 is no name.
    #[prost(fixed64, tag = "3")]
    list: u64,
    /// The places in the list of the keys that are meant; none means all.
    #[prost(uint32, repeated, tag = "4")]
    place: Vec<u32>,
}

/// What is there, by the keys' places in the request. Tensors stand packed in field 1, in the order of `ready`.
#[derive(Clone, PartialEq, prost::Message)]
struct TakeResponse {
    #[prost(uint32, repeated, tag = "2")]
    ready: Vec<u32>,
    /// Values of branches that were not taken.
    #[prost(uint32, repeated, tag = "3")]
    dead: Vec<u32>,
    /// Values to be asked for one by one.
    #[prost(uint32, repeated, tag = "4")]
    large: Vec<u32>,
    /// The keys are not remembered, and have to be told again.
    #[prost(bool, tag = "5")]
    is_forgotten: bool,
}

/// Answers the calls that only tasks of our own kind know: those that make steps short, and the news of a lost client.
pub struct TensorService {
    worker: Arc<dyn WorkerInterface>,
    lists: Mutex<Lists>,
}

/// Keys that are asked for in every step, by the name that was given to them.
#[derive(Default)]
struct Lists {
    known: FastMap<u64, Arc<[RendezvousKey]>>,
    bytes: usize,
}

/// What all remembered keys may take; beyond it, all are told again.
const LISTS_BYTES_MAX: usize = 64 << 20;

impl Lists {
    fn insert(&mut self, name: u64, keys: Arc<[RendezvousKey]>) {
        let bytes = keys.iter().map(|key| key.as_str().len() + size_of::<RendezvousKey>()).sum::<usize>();
        if self.bytes + bytes > LISTS_BYTES_MAX {
            *self = Lists::default();
        }
        if bytes <= LISTS_BYTES_MAX && self.known.insert(name, keys).is_none() {
            self.bytes += bytes;
        }
    }
}

impl TensorService {
    /// Serves the values of this worker.
    pub fn new(worker: Arc<dyn WorkerInterface>) -> TensorService {
        TensorService { worker, lists: Mutex::default() }
    }

    async fn take(&self, message: Pieces) -> Result<Vec<Bytes>> {
        let request: TakeRequest = message.decode("a Take request")?;
        let Some(keys) = self.keys(&request)? else {
            return finish(&TakeResponse { is_forgotten: true, ..Default::default() }, "Take");
        };
        let found = self.worker.recv_small(request.step_id, keys).await?;
        let large = found.large.into_iter().map(|place| (place, Arrived::Alone));
        let values = found.values.into_iter().map(|(place, value)| (place, Arrived::Value(value)));
        let values = Sorted::new(values.chain(large));
        let head = TakeResponse { ready: values.ready, dead: values.dead, large: values.large, is_forgotten: false };
        let mut writer = Writer::default().message(&head);
        packed::put(&mut writer, VALUES, &values.tensors);
        writer.finish("Take")
    }

    /// The keys asked for, unless they are not remembered.
    fn keys(&self, request: &TakeRequest) -> Result<Option<Arc<[RendezvousKey]>>> {
        if request.key.is_empty() && request.list != 0 {
            let known = self.lists.lock().known.get(&request.list).cloned();
            return known.map(|keys| at_places(keys, &request.place)).transpose();
        }
        let keys: Arc<[RendezvousKey]> = request.key.iter().map(|key| RendezvousKey::from_text(key)).collect();
        if request.list != 0 {
            self.lists.lock().insert(request.list, keys.clone());
        }
        Ok(Some(keys))
    }

    async fn forget(&self, message: Pieces) -> Result<Vec<Bytes>> {
        let request: ForgetRequest = message.decode("a Forget request")?;
        for step in request.step_id {
            self.worker.cleanup_graph(step).await?;
        }
        finish(&ForgetResponse {}, "Forget")
    }

    async fn lose_session(&self, message: Pieces) -> Result<Vec<Bytes>> {
        let request: LoseSessionRequest = message.decode("a LoseSession request")?;
        self.worker.lose_session(request.session_handle).await?;
        finish(&LoseSessionResponse {}, "LoseSession")
    }
}

/// The keys at these places, if there are any; all of them otherwise.
fn at_places(keys: Arc<[RendezvousKey]>, places: &[u32]) -> Result<Arc<[RendezvousKey]>> {
    if places.is_empty() {
        return Ok(keys);
    }
    let missing = |place| invalid!("key {place} is asked for, of a list of {}", keys.len());
    places.iter().map(|&place| keys.get(place as usize).cloned().ok_or_else(|| missing(place))).collect()
}

impl Service for TensorService {
    fn name(&self) -> &'static str {
        "ferroflow.Tensors"
    }

    fn takes_long(&self, _: &str) -> bool {
        false
    }

    fn call(self: Arc<Self>, call: Call) -> BoxFuture<Result<Vec<Bytes>>> {
        Box::pin(async move {
            match call.method.as_str() {
                "Take" => self.take(call.message).await,
                "Forget" => self.forget(call.message).await,
                "Push" => push::take(&*self.worker, call).await,
                "Lend" => lend::lend(&*self.worker, call.message, &call.kept).await,
                "Probe" => lend::probe(&call.kept),
                "ProbeMe" => lend::probe_me(call.message, call.process),
                "LoseSession" => self.lose_session(call.message).await,
                _ => Err(unknown_method()),
            }
        })
    }
}

/// Gathers what is wanted from one peer.
pub struct SmallValues {
    channel: Channel,
    /// What is wanted and not asked for yet, by step.
    wanted: Mutex<FastMap<i64, Batch>>,
    large: LargeEdges,
    told: Mutex<Told>,
}

/// Values to be asked for in one call.
#[derive(Default)]
struct Batch {
    keys: Vec<RendezvousKey>,
    waiting: Waiting,
    interest: Arc<Interest>,
}

/// Who waits for the values of a batch.
enum Waiting {
    /// One for each of the keys, until there is an answer.
    Each(Vec<Option<oneshot::Sender<Result<Arrived>>>>),
    /// One for all, who knows each by this number.
    Group(Arc<dyn Receiver>, Vec<u32>),
}

impl Default for Waiting {
    fn default() -> Waiting {
        Waiting::Each(Vec::new())
    }
}

/// How many still wait for something of a batch: when nobody does, nobody asks any more.
#[derive(Default)]
struct Interest {
    count: AtomicUsize,
    gone: Notify,
}

/// One who waits.
struct Interested(Arc<Interest>);

impl Interested {
    fn new(interest: &Arc<Interest>) -> Interested {
        interest.count.fetch_add(1, Ordering::Relaxed);
        Interested(interest.clone())
    }
}

impl Drop for Interested {
    fn drop(&mut self) {
        if self.0.count.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.gone.notify_one();
        }
    }
}

impl SmallValues {
    /// Nothing is wanted yet.
    pub fn new(channel: Channel) -> Arc<SmallValues> {
        Arc::new(SmallValues {
            channel,
            wanted: Mutex::default(),
            large: LargeEdges::default(),
            told: Mutex::default(),
        })
    }

    /// Whether the peer knows the call, and the value was not too large when it was last asked for.
    pub fn may_have(&self, key: &RendezvousKey) -> bool {
        self.channel.is_of_our_kind() && !self.large.contains(key)
    }

    /// Asks for a value together with whatever else is wanted of the step at the same time.
    pub async fn receive(self: &Arc<Self>, step: i64, key: RendezvousKey) -> Result<Arrived> {
        let (waiter, answer) = oneshot::channel();
        let (is_first, _interested) = {
            let mut wanted = self.wanted.lock();
            let batch = wanted.entry(step).or_default();
            batch.keys.push(key);
            if let Waiting::Each(waiters) = &mut batch.waiting {
                waiters.push(Some(waiter));
            }
            (batch.keys.len() == 1, Interested::new(&batch.interest))
        };
        if is_first {
            let this = self.clone();
            self.ask_soon(async move {
                let batch = this.wanted.lock().remove(&step);
                if let Some(batch) = batch {
                    this.ask(step, batch).await;
                }
            });
        }
        answer.await.unwrap_or_else(|_| Err(internal!("the call for a small value ended without an answer")))
    }

    /// Asks for what is small among these values, and hands it to the receiver; `None` if nothing is.
    pub fn receive_group(
        self: &Arc<Self>,
        step: i64,
        keys: &[RendezvousKey],
        receiver: Arc<dyn Receiver>,
    ) -> Option<Asked> {
        if !self.channel.is_of_our_kind() {
            return None;
        }
        let (small, alone) = self.large.divide(keys);
        if small.is_empty() {
            return None;
        }
        let keys = small.iter().map(|&place| keys[place as usize].clone()).collect();
        let batch = Batch { keys, waiting: Waiting::Group(receiver, small), interest: Arc::default() };
        let interest = Box::new(Interested::new(&batch.interest));
        let this = self.clone();
        self.ask_soon(async move { this.ask(step, batch).await });
        Some(Asked { alone, interest })
    }

    /// Asks after what the calling thread does now, when the others have joined. If it is a network thread the request
    /// then leaves with whatever else it sends to the peer.
    fn ask_soon(&self, asking: impl Future<Output = ()> + Send + 'static) {
        let mut asking = Box::pin(asking);
        if !brief::is_brief() {
            return errands::spawn(asking);
        }
        brief::afterwards(Box::new(move || {
            // If it has to wait, it is polled again as a task, which then is what gets woken.
            if asking.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
                errands::spawn(asking);
            }
        }));
    }

    async fn ask(&self, step: i64, mut batch: Batch) {
        let interest = batch.interest.clone();
        let mut gone = pin!(interest.gone.notified());
        let mut asking = pin!(async {
            match self.ask_for_all(step, &mut batch).await {
                Ok(()) => {}
                // Not of our kind any more.
                Err(e) if e.code == Code::Unimplemented => batch.answer_rest(Ok(Arrived::Alone)),
                Err(e) => batch.answer_rest(Err(e)),
            }
        });
        poll_fn(|cx| {
            // What the answer wakes goes on right here.
            if brief::briefly(|| asking.as_mut().poll(cx)).value.is_ready() {
                return Poll::Ready(());
            }
            gone.as_mut().poll(cx)
        })
        .await;
    }

    /// Asks until there is an answer for everyone.
    async fn ask_for_all(&self, step: i64, batch: &mut Batch) -> Result<()> {
        let (list, mut is_told) = self.told.lock().name(&batch.keys);
        let mut left: Vec<u32> = (0..).take(batch.keys.len()).collect();
        while !left.is_empty() {
            let is_whole = left.len() == batch.keys.len();
            let text = |place: &u32| batch.keys[*place as usize].as_str().to_string();
            let request = match is_told {
                true => TakeRequest { list, place: if is_whole { vec![] } else { left.clone() }, ..Default::default() },
                false => TakeRequest {
                    key: left.iter().map(text).collect(),
                    list: if is_whole { list } else { 0 },
                    ..Default::default()
                },
            };
            match self.call(TakeRequest { step_id: step, ..request }, left.len()).await? {
                Some(found) => {
                    self.hand_out(batch, &mut left, found);
                    if is_whole && list != 0 && !is_told {
                        self.told.lock().note(list);
                        is_told = true;
                    }
                }
                None if is_told => {
                    self.told.lock().forget();
                    is_told = false;
                }
                None => return Err(internal!("a task does not know the keys that it was told")),
            }
        }
        Ok(())
    }

    /// One call; nothing if the keys are not remembered.
    async fn call(&self, request: TakeRequest, count: usize) -> Result<Option<Vec<(u32, Arrived)>>> {
        let body = Writer::default().message(&request).finish(PATH)?;
        let call = Outgoing { path: PATH, body, limit: None, lane: Lane::Control, tries: 1 };
        let answer = self.channel.unary(call).await?;
        let (head, values) = fields::split::<TakeResponse>(answer, VALUES, "the answer to Take")?;
        if head.is_forgotten {
            return Ok(None);
        }
        let packed = values.into_iter().next_back().unwrap_or_default();
        let found = packed::read(&head.ready, &head.dead, &head.large, packed)?;
        if found.is_empty() || found.iter().any(|(place, _)| *place as usize >= count) {
            return Err(internal!("an answer holds none of the {count} values asked for, or others"));
        }
        Ok(Some(found))
    }

    /// Gives everyone what was found for him, by its place among the left ones; the others are left.
    fn hand_out(&self, batch: &mut Batch, left: &mut Vec<u32>, mut found: Vec<(u32, Arrived)>) {
        for (place, arrived) in &mut found {
            *place = std::mem::replace(&mut left[*place as usize], FOUND);
            if let (Arrived::Alone, Some(key)) = (arrived, batch.keys.get(*place as usize)) {
                self.large.insert(key);
            }
        }
        left.retain(|&place| place != FOUND);
        found.retain(|(place, _)| *place != FOUND); // said twice
        match &mut batch.waiting {
            Waiting::Each(waiters) => {
                for (place, arrived) in found {
                    if let Some(waiter) = waiters[place as usize].take() {
                        let _ = waiter.send(Ok(arrived)); // or nobody waits for it any more
                    }
                }
            }
            Waiting::Group(receiver, places) => {
                found.iter_mut().for_each(|(place, _)| *place = places[*place as usize]);
                receiver.clone().receive(found);
            }
        }
    }
}

/// Stands for a place whose value has been found.
const FOUND: u32 = u32::MAX;

impl Batch {
    /// Answers everyone who still waits.
    fn answer_rest(&mut self, answer: Result<Arrived>) {
        match (&mut self.waiting, answer) {
            (Waiting::Each(waiters), answer) => {
                waiters.drain(..).flatten().for_each(|waiter| drop(waiter.send(answer.clone())));
            }
            (Waiting::Group(receiver, _), Err(why)) => receiver.clone().fail(why),
            // It takes each once.
            (Waiting::Group(receiver, places), Ok(arrived)) => {
                receiver.clone().receive(places.iter().map(|&place| (place, arrived.clone())).collect());
            }
        }
    }
}

/// Lists of keys that are asked for again and again, and are told only once.
#[derive(Default)]
struct Told {
    lists: HashMap<u64, List, BuildHasherDefault<ByOwnHash>>,
}

struct List {
    keys: Vec<RendezvousKey>,
    /// What the peer calls it; 0 if it was asked for once so far. In a loop every iteration has keys of its own.
    name: u64,
    is_told: bool,
}

/// More than a session's graphs ask for; then what is known is learnt anew.
const LISTS_MAX: usize = 1000;

impl Told {
    /// The name of a list, 0 for none, and whether the peer knows it.
    fn name(&mut self, keys: &[RendezvousKey]) -> (u64, bool) {
        let mut hasher = ByOwnHash::default();
        keys.iter().for_each(|key| key.hash(&mut hasher));
        if self.lists.len() >= LISTS_MAX {
            self.lists.clear();
        }
        match self.lists.entry(hasher.finish()) {
            Entry::Vacant(place) => {
                place.insert(List { keys: keys.to_vec(), name: 0, is_told: false });
                (0, false)
            }
            // Two lists of one hash: the second is told each time.
            Entry::Occupied(found) if found.get().keys != keys => (0, false),
            Entry::Occupied(mut found) => {
                let list = found.get_mut();
                if list.name == 0 {
                    list.name = RandomState::new().hash_one(hasher.finish()).max(1);
                }
                (list.name, list.is_told)
            }
        }
    }

    fn note(&mut self, name: u64) {
        self.lists.values_mut().filter(|list| list.name == name).for_each(|list| list.is_told = true);
    }

    fn forget(&mut self) {
        self.lists.values_mut().for_each(|list| list.is_told = false);
    }
}

/// Edges that carried a large value when they were last used, by their hash. A mistaken one costs a call of its own.
#[derive(Default)]
struct LargeEdges {
    hashes: Mutex<HashSet<u64, BuildHasherDefault<ByOwnHash>>>,
}

/// More than any session's graphs have; then what is known is learnt anew.
const EDGES_MAX: usize = 100_000;

impl LargeEdges {
    fn contains(&self, key: &RendezvousKey) -> bool {
        self.hashes.lock().contains(&key.edge_hash())
    }

    /// The places of the keys whose values may be small, and those of the others.
    fn divide(&self, keys: &[RendezvousKey]) -> (Vec<u32>, Vec<u32>) {
        let hashes = self.hashes.lock();
        let may_be_small = |&place: &u32| !hashes.contains(&keys[place as usize].edge_hash());
        (0..).take(keys.len()).partition(may_be_small)
    }

    fn insert(&self, key: &RendezvousKey) {
        let mut hashes = self.hashes.lock();
        if hashes.len() == EDGES_MAX {
            hashes.clear();
        }
        hashes.insert(key.edge_hash());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(names: &str) -> Vec<RendezvousKey> {
        names.chars().map(|name| RendezvousKey::new("/a", 1, "/b", &name.to_string())).collect()
    }

    #[test]
    fn a_list_gets_a_name_when_it_is_asked_for_again() {
        let mut told = Told::default();
        assert_eq!(told.name(&keys("ab")), (0, false));
        let (name, is_told) = told.name(&keys("ab"));
        assert!(name != 0 && !is_told);
        told.note(name);
        assert_eq!(told.name(&keys("ab")), (name, true));
        assert_eq!(told.name(&keys("ba")), (0, false), "the order matters: answers go by places");
        told.forget();
        assert_eq!(told.name(&keys("ab")), (name, false));
    }

    #[test]
    fn a_place_that_a_list_does_not_have_is_refused() {
        let all: Arc<[RendezvousKey]> = keys("abc").into();
        assert_eq!(*at_places(all.clone(), &[]).unwrap(), *all);
        assert_eq!(*at_places(all.clone(), &[2, 0]).unwrap(), keys("ca"));
        assert_eq!(at_places(all, &[3]).unwrap_err().code, Code::InvalidArgument);
    }

    #[test]
    fn lists_are_forgotten_before_they_take_too_much() {
        let mut lists = Lists::default();
        let long: Arc<[RendezvousKey]> = [RendezvousKey::from_text(&"x".repeat(LISTS_BYTES_MAX / 2))].into();
        lists.insert(1, long.clone());
        lists.insert(1, long.clone());
        assert_eq!(lists.known.len(), 1);
        lists.insert(2, long);
        assert!(lists.known.len() == 1 && lists.known.contains_key(&2) && lists.bytes <= LISTS_BYTES_MAX);
    }
}

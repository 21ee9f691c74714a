//! What comes to a step from other tasks without being asked for.
//!
//! Tasks of our own kind send each other what a step wants as soon as it is there, as *parcels*: values of one sender, by
//! their places in a list of keys that both ends find in their parts of the graph. What is too large for a parcel is only
//! announced in it, and asked for.

use framework::rendezvous::KeyMap;
use framework::{Arrived, Asked, Delivery, FastMap, Receiver, RendezvousKey};
use parking_lot::Mutex;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use tensor::{Error, Result, internal};

/// The keys of what one task sends to another, in an order that both find.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KeyList {
    /// The same for the same keys, in every process.
    pub name: u64,
    /// The keys, each once.
    pub keys: Arc<[RendezvousKey]>,
}

impl KeyList {
    /// The list of these keys.
    pub fn new(mut keys: Vec<RendezvousKey>) -> KeyList {
        keys.sort_unstable_by(|a, b| a.as_str().cmp(b.as_str()));
        keys.dedup();
        KeyList { name: name_of(&keys), keys: keys.into() }
    }
}

/// FNV-1a of the keys, each ended by a byte that no text has.
fn name_of(keys: &[RendezvousKey]) -> u64 {
    let bytes = keys.iter().flat_map(|key| key.as_str().bytes().chain([0xff]));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Values of one list, by their places in it.
#[derive(Debug, Default)]
pub struct Parcel {
    /// The list's name.
    pub list: u64,
    /// The values; those that are to be received alone are asked for.
    pub values: Vec<(u32, Arrived)>,
}

impl Parcel {
    /// How much memory its values take.
    pub fn num_bytes(&self) -> usize {
        let bytes = |(_, arrived): &(u32, Arrived)| match arrived {
            Arrived::Value(Delivery::Tensor(tensor)) => tensor.num_bytes(),
            Arrived::Value(Delivery::Dead) | Arrived::Alone => 0,
        };
        self.values.iter().map(bytes).sum()
    }
}

/// All that comes to the steps of a graph, each value with its place.
#[derive(Debug, Default)]
pub struct Places {
    keys: KeyMap<u32>,
    /// Where each list begins, and its length.
    lists: FastMap<u64, (u32, u32)>,
    /// Which values were only announced when they last came: they are asked for at once.
    announced: Vec<AtomicBool>,
}

impl Places {
    /// Places for the values of these lists.
    pub fn new<'l>(lists: impl IntoIterator<Item = &'l KeyList>) -> Places {
        let mut places = Places::default();
        for list in lists {
            let first = places.keys.len() as u32;
            places.lists.insert(list.name, (first, list.keys.len() as u32));
            places.keys.extend(list.keys.iter().cloned().zip(first..));
        }
        places.announced.resize_with(places.keys.len(), AtomicBool::default);
        places
    }

    fn was_announced(&self, index: u32) -> bool {
        self.announced[index as usize].load(Ordering::Relaxed)
    }

    fn note(&self, index: u32, arrived: &Arrived) {
        let is_announced = matches!(arrived, Arrived::Alone);
        if self.was_announced(index) != is_announced {
            self.announced[index as usize].store(is_announced, Ordering::Relaxed);
        }
    }
}

/// What has come to one step, and who wants what is still to come.
pub struct Mailbox {
    places: Arc<Places>,
    values: Mutex<Vec<State>>,
}

enum State {
    Expected,
    Wanted(Arc<dyn Receiver>, u32),
    Here(Arrived),
    /// It has been handed over.
    Gone,
}

impl Mailbox {
    /// Nothing has come yet.
    pub fn new(places: Arc<Places>) -> Arc<Mailbox> {
        let values = (0..places.keys.len()).map(|_| State::Expected).collect();
        Arc::new(Mailbox { places, values: Mutex::new(values) })
    }

    /// Has these values handed to the receiver when they come; `None` if none of them comes here.
    pub fn receive(self: &Arc<Mailbox>, keys: &[RendezvousKey], receiver: &Arc<dyn Receiver>) -> Option<Asked> {
        let places: Vec<Option<u32>> = keys.iter().map(|key| self.places.keys.get(key).copied()).collect();
        if places.iter().all(Option::is_none) {
            return None;
        }
        let (mut arrived, mut alone, mut wanted) = (Vec::new(), Vec::new(), Vec::with_capacity(places.len()));
        let mut values = self.values.lock();
        for (place, index) in (0..).zip(places) {
            let Some(index) = index.filter(|&index| !self.places.was_announced(index)) else {
                alone.push(place);
                continue;
            };
            let value = &mut values[index as usize];
            match std::mem::replace(value, State::Gone) {
                State::Expected => {
                    *value = State::Wanted(receiver.clone(), place);
                    wanted.push(index);
                }
                State::Here(found) => arrived.push((place, found)),
                taken @ State::Wanted(..) => {
                    *value = taken;
                    alone.push(place);
                }
                State::Gone => alone.push(place),
            }
        }
        drop(values);
        if !arrived.is_empty() {
            receiver.clone().receive(arrived);
        }
        Some(Asked { alone, interest: Box::new(Interest { mailbox: self.clone(), places: wanted }) })
    }

    /// Puts a value at its place; it is given back if it has none here.
    pub fn put(&self, key: &RendezvousKey, value: Delivery) -> Option<Delivery> {
        let Some(&index) = self.places.keys.get(key) else { return Some(value) };
        self.fill(vec![(index, Arrived::Value(value))]);
        None
    }

    /// Takes a value that has come.
    pub fn try_recv(&self, key: &RendezvousKey) -> Option<Delivery> {
        let index = *self.places.keys.get(key)?;
        let mut values = self.values.lock();
        let value = &mut values[index as usize];
        match std::mem::replace(value, State::Gone) {
            State::Here(Arrived::Value(delivery)) => Some(delivery),
            other => {
                *value = other;
                None
            }
        }
    }

    /// Whether a value is likely to be only announced: it had better be asked for while it is waited for.
    pub fn is_likely_announced(&self, key: &RendezvousKey) -> bool {
        self.places.keys.get(key).is_some_and(|&index| self.places.was_announced(index))
    }

    /// Waits for one value; `None` if it does not come here, or has been announced and is to be asked for.
    pub fn recv(self: &Arc<Mailbox>, key: &RendezvousKey) -> Option<MailFuture> {
        let index = *self.places.keys.get(key)?;
        let (waiting, mut interest) = (Arc::new(One::default()), None);
        let mut values = self.values.lock();
        let value = &mut values[index as usize];
        match std::mem::replace(value, State::Gone) {
            State::Expected => {
                *value = State::Wanted(waiting.clone(), 0);
                interest = Some(Interest { mailbox: self.clone(), places: vec![index] });
            }
            State::Here(arrived @ Arrived::Value(_)) => waiting.0.lock().0 = Some(Ok(arrived)),
            State::Here(Arrived::Alone) | State::Gone => return None,
            taken @ State::Wanted(..) => {
                *value = taken;
                waiting.0.lock().0 = Some(Err(internal!("two nodes of a step want {key}, which comes once")));
            }
        }
        drop(values);
        Some(MailFuture { waiting, _interest: interest })
    }

    /// Puts values at their places, or hands them to who wants them. What has come before is not taken again.
    pub fn open(&self, parcel: Parcel) -> Result<()> {
        let Some(&(first, count)) = self.places.lists.get(&parcel.list) else {
            return Err(internal!(
                "values came that nobody here expects: the two ends of an edge do not know the same graph"
            ));
        };
        if let Some((place, _)) = parcel.values.iter().find(|(place, _)| *place >= count) {
            return Err(internal!("value {place} came of a list of {count}"));
        }
        let mut values = parcel.values;
        values.iter_mut().for_each(|(place, _)| *place += first);
        self.fill(values);
        Ok(())
    }

    /// Puts values at their places among all that come.
    fn fill(&self, come: Vec<(u32, Arrived)>) {
        let mut ready: Vec<(Arc<dyn Receiver>, Vec<_>)> = Vec::new();
        let mut values = self.values.lock();
        for (index, arrived) in come {
            self.places.note(index, &arrived);
            let value = &mut values[index as usize];
            match std::mem::replace(value, State::Gone) {
                State::Expected => *value = State::Here(arrived),
                State::Wanted(receiver, place) => match ready.iter_mut().find(|(one, _)| Arc::ptr_eq(one, &receiver)) {
                    Some((_, list)) => list.push((place, arrived)),
                    None => ready.push((receiver, vec![(place, arrived)])),
                },
                before @ State::Here(_) => *value = before,
                State::Gone => {}
            }
        }
        drop(values);
        ready.into_iter().for_each(|(receiver, list)| receiver.receive(list));
    }
}

/// Somebody wants these values. When nobody does any more, he is let go of.
struct Interest {
    mailbox: Arc<Mailbox>,
    places: Vec<u32>,
}

impl Drop for Interest {
    fn drop(&mut self) {
        let mut values = self.mailbox.values.lock();
        let mut let_go = Vec::new();
        for &index in &self.places {
            let value = &mut values[index as usize];
            if matches!(value, State::Wanted(..)) {
                let_go.push(std::mem::replace(value, State::Gone));
            }
        }
        drop(values); // before the receivers, who may be dropped with them
    }
}

/// One value that is waited for, and who waits.
#[derive(Default)]
struct One(Mutex<(Option<Result<Arrived>>, Option<Waker>)>);

impl One {
    fn set(&self, outcome: Result<Arrived>) {
        let mut state = self.0.lock();
        state.0 = Some(outcome);
        let waker = state.1.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Receiver for One {
    fn receive(self: Arc<Self>, arrived: Vec<(u32, Arrived)>) {
        arrived.into_iter().for_each(|(_, arrived)| self.set(Ok(arrived)));
    }

    fn fail(self: Arc<Self>, why: Error) {
        self.set(Err(why));
    }
}

/// Waits for one value.
pub struct MailFuture {
    waiting: Arc<One>,
    _interest: Option<Interest>,
}

impl Future for MailFuture {
    type Output = Result<Arrived>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<Arrived>> {
        let mut state = self.waiting.0.lock();
        match state.0.take() {
            Some(outcome) => Poll::Ready(outcome),
            None => {
                state.1 = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block_on;
    use tensor::{Code, Tensor};

    #[derive(Default)]
    struct Seen(Mutex<Vec<(u32, Option<f32>)>>);

    impl Receiver for Seen {
        fn receive(self: Arc<Self>, arrived: Vec<(u32, Arrived)>) {
            let value = |arrived: Arrived| match arrived {
                Arrived::Value(Delivery::Tensor(tensor)) => tensor.item().ok(),
                _ => None,
            };
            self.0.lock().extend(arrived.into_iter().map(|(place, arrived)| (place, value(arrived))));
        }

        fn fail(self: Arc<Self>, _: Error) {}
    }

    fn key(edge: &str) -> RendezvousKey {
        RendezvousKey::new("/job:ps/replica:0/task:0/device:CPU:0", 1, "/job:w/replica:0/task:0/device:CPU:0", edge)
    }

    fn list(edges: &[&str]) -> KeyList {
        KeyList::new(edges.iter().map(|edge| key(edge)).collect())
    }

    fn value(number: f32) -> Arrived {
        Arrived::Value(Delivery::Tensor(Tensor::scalar(number)))
    }

    /// Two senders, of `a` and `b`, and of `c`.
    fn mailbox() -> Arc<Mailbox> {
        Mailbox::new(Arc::new(Places::new(&[list(&["b", "a"]), list(&["c"])])))
    }

    fn parcel(edges: &[&str], values: Vec<(u32, Arrived)>) -> Parcel {
        Parcel { list: list(edges).name, values }
    }

    #[test]
    fn lists_have_the_same_name_at_both_ends() {
        assert_eq!(list(&["b", "a", "b"]), list(&["a", "b"]));
        assert_ne!(list(&["a", "b"]).name, list(&["a"]).name);
        assert_ne!(list(&["a", "b"]).name, list(&["ab"]).name);
        assert_eq!(KeyList::new(vec![RendezvousKey::from_text("x")]).name, 0x08f1_c907_b58e_ba68, "in every process");
    }

    #[test]
    fn whoever_comes_first_waits_for_the_other() {
        let (mailbox, seen) = (mailbox(), Arc::new(Seen::default()));
        let receiver: Arc<dyn Receiver> = seen.clone();
        let asked = mailbox.receive(&[key("b"), key("never"), key("a")], &receiver).unwrap();
        assert!(asked.alone == [1] && seen.0.lock().is_empty());
        mailbox.open(parcel(&["a", "b"], vec![(0, value(1.0))])).unwrap();
        mailbox.open(parcel(&["c"], vec![(0, value(3.0))])).unwrap();
        mailbox.open(parcel(&["a", "b"], vec![(1, value(2.0)), (0, value(9.0))])).unwrap();
        assert_eq!(*seen.0.lock(), [(2, Some(1.0)), (0, Some(2.0))]);
        let asked = mailbox.receive(&[key("c")], &receiver).unwrap();
        assert!(asked.alone.is_empty());
        assert_eq!(seen.0.lock()[2], (0, Some(3.0)));
        assert_eq!(mailbox.receive(&[key("c")], &receiver).unwrap().alone, [0], "it comes once");
        assert!(mailbox.receive(&[key("never")], &receiver).is_none());
    }

    #[test]
    fn what_is_only_announced_is_to_be_asked_for() {
        let (mailbox, seen) = (mailbox(), Arc::new(Seen::default()));
        let receiver: Arc<dyn Receiver> = seen.clone();
        let _asked = mailbox.receive(&[key("a"), key("b")], &receiver).unwrap();
        mailbox.open(parcel(&["a", "b"], vec![(1, value(2.0)), (0, Arrived::Alone)])).unwrap();
        assert_eq!(*seen.0.lock(), [(1, Some(2.0)), (0, None)]);
        mailbox.open(parcel(&["c"], vec![(0, Arrived::Alone)])).unwrap();
        assert!(mailbox.try_recv(&key("c")).is_none() && mailbox.recv(&key("c")).is_none());
        // In the next step it is asked for at once, and yet may come.
        let next = Mailbox::new(mailbox.places.clone());
        let asked = next.receive(&[key("a"), key("b")], &receiver).unwrap();
        assert!(asked.alone == [0] && next.is_likely_announced(&key("a")) && !next.is_likely_announced(&key("b")));
        next.open(parcel(&["a", "b"], vec![(0, value(1.0))])).unwrap();
        assert!(next.try_recv(&key("a")).is_some() && !next.is_likely_announced(&key("a")));
    }

    #[test]
    fn single_values_are_waited_for_as_well() {
        let mailbox = mailbox();
        assert!(mailbox.recv(&key("never")).is_none() && mailbox.try_recv(&key("a")).is_none());
        let waiting = mailbox.recv(&key("a")).unwrap();
        let twice = block_on(mailbox.recv(&key("a")).unwrap(), None).unwrap().unwrap_err();
        assert_eq!(twice.code, Code::Internal);
        mailbox.open(parcel(&["a", "b"], vec![(0, value(1.0)), (1, Arrived::Value(Delivery::Dead))])).unwrap();
        assert!(matches!(block_on(waiting, None).unwrap().unwrap(), Arrived::Value(Delivery::Tensor(_))));
        assert!(mailbox.recv(&key("a")).is_none(), "it comes once");
        assert!(matches!(mailbox.try_recv(&key("b")), Some(Delivery::Dead)));
        assert!(
            mailbox.put(&key("c"), Delivery::Dead).is_none() && mailbox.put(&key("never"), Delivery::Dead).is_some()
        );
        assert!(matches!(mailbox.try_recv(&key("c")), Some(Delivery::Dead)));
    }

    #[test]
    fn parcels_of_another_graph_are_refused() {
        let mailbox = mailbox();
        for (edges, place, part) in [(&["a"][..], 0, "the same graph"), (&["a", "b"], 2, "of a list of 2")] {
            let error = mailbox.open(parcel(edges, vec![(place, value(1.0))])).unwrap_err();
            assert!(error.message.contains(part), "{error}");
        }
    }

    #[test]
    fn who_has_no_interest_any_more_is_let_go_of() {
        let (mailbox, seen) = (mailbox(), Arc::new(Seen::default()));
        let receiver: Arc<dyn Receiver> = seen.clone();
        let asked = mailbox.receive(&[key("a")], &receiver).unwrap();
        drop(receiver);
        assert_eq!(Arc::strong_count(&seen), 2);
        drop(asked);
        assert_eq!(Arc::strong_count(&seen), 1);
        mailbox.open(parcel(&["a", "b"], vec![(0, value(1.0))])).unwrap();
        assert!(seen.0.lock().is_empty());
    }
}

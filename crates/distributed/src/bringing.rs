//! What a task sends to the master's own comes with the answer that its part has run, where that is soon enough.
//!
//! A part that neither receives nor waits nor computes much, as that of a ps whose variables are read, is over as soon as its
//! values are there. Then nobody has to ask for them. The master says so to both sides: the one takes what it would have sent
//! along with its answer, the other waits for it here. What is too large to be brought is asked for as ever.

use crate::cluster::TaskName;
use framework::rendezvous::KeyMap;
use framework::{Arrived, Asked, ControlFlow, Delivery, DeviceName, Graph, Node, Receiver, RendezvousKey};
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

/// The keys of what graphs send to each task, in an order that every task finds.
pub(crate) fn sends<'g>(graphs: impl IntoIterator<Item = &'g Graph>) -> HashMap<TaskName, Arc<[RendezvousKey]>> {
    let mut found: HashMap<TaskName, Vec<RendezvousKey>> = HashMap::new();
    for (_, node) in graphs.into_iter().flat_map(Graph::nodes) {
        if node.op.control_flow == ControlFlow::Send
            && let Some((to, key)) = edge(node, "recv_device")
        {
            found.entry(to).or_default().push(key);
        }
    }
    let sorted = |mut keys: Vec<RendezvousKey>| {
        keys.sort_unstable_by(|a, b| a.as_str().cmp(b.as_str()));
        keys.into()
    };
    found.into_iter().map(|(task, keys)| (task, sorted(keys))).collect()
}

/// Whether a graph is over as soon as its values are there: it waits for nobody, and computes little.
pub(crate) fn is_brief(graph: &Graph) -> bool {
    let is_brief = |node: &Node| {
        let is_variable = node.op.has_reference_output();
        match node.op.control_flow {
            ControlFlow::Send => true,
            ControlFlow::None => !node.op.is_costly && (is_variable || !node.op.is_stateful),
            _ => false,
        }
    };
    graph.nodes().all(|(_, node)| is_brief(node))
}

/// The tasks of whose values some are received only after others: not all can be waited for from the start.
pub(crate) fn received_later(graph: &Graph) -> HashSet<TaskName> {
    let is_later = |node: &Node| !node.inputs.is_empty() || !node.control_inputs.is_empty();
    let receives = |node: &Node| {
        node.op.control_flow != ControlFlow::Send && node.op.attrs.iter().any(|attr| attr.name == "send_device")
    };
    let later = graph.nodes().map(|(_, node)| node).filter(|node| is_later(node) && receives(node));
    later.filter_map(|node| edge(node, "send_device")).map(|(from, _)| from).collect()
}

/// The task at one end of an edge that was cut, and its key outside of loops.
fn edge(node: &Node, end: &str) -> Option<(TaskName, RendezvousKey)> {
    let text = |name: &str| node.attr::<String>(name).ok();
    let task = TaskName::of(&text(end)?.parse::<DeviceName>().ok()?);
    let incarnation = node.attr::<i64>("send_device_incarnation").ok()? as u64;
    Some((task, RendezvousKey::new(&text("send_device")?, incarnation, &text("recv_device")?, &text("tensor_name")?)))
}

/// Values that are brought in every step of a plan, each with its place.
pub(crate) type Places = Arc<KeyMap<u32>>;

/// The values that are brought in one step, and who wants them.
pub struct Bringing {
    places: Places,
    values: Mutex<Vec<State>>,
}

enum State {
    Expected,
    Wanted(Arc<dyn Receiver>, u32),
    Here(Arrived),
    /// It has been handed over, or is not brought in this step.
    Gone,
}

impl Bringing {
    /// Of all that may be brought, these places are.
    pub(crate) fn new(places: Places, expected: impl IntoIterator<Item = Range<u32>>) -> Arc<Bringing> {
        let mut values: Vec<State> = (0..places.len()).map(|_| State::Gone).collect();
        for range in expected {
            values[range.start as usize..range.end as usize].fill_with(|| State::Expected);
        }
        Arc::new(Bringing { places, values: Mutex::new(values) })
    }

    /// Has these values handed to the receiver when they come; `None` if they are not brought.
    pub(crate) fn receive(self: &Arc<Bringing>, keys: &[RendezvousKey], receiver: &Arc<dyn Receiver>) -> Option<Asked> {
        let places: Option<Vec<u32>> = keys.iter().map(|key| self.places.get(key).copied()).collect();
        let places = places?;
        let (mut arrived, mut alone) = (Vec::new(), Vec::new());
        let mut values = self.values.lock();
        if places.iter().all(|&index| matches!(values[index as usize], State::Gone)) {
            return None;
        }
        for (place, &index) in (0..).zip(&places) {
            let value = &mut values[index as usize];
            match std::mem::replace(value, State::Gone) {
                State::Expected => *value = State::Wanted(receiver.clone(), place),
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
        Some(Asked { alone, interest: Box::new(Interest { bringing: self.clone(), places }) })
    }

    /// The values from this place on have been brought, as far as they are in the list: the others are not.
    pub(crate) fn bring(&self, first: u32, count: u32, found: Vec<(u32, Delivery)>) {
        let mut arrived: Vec<Arrived> = (0..count).map(|_| Arrived::Alone).collect();
        for (place, value) in found {
            arrived[place as usize] = Arrived::Value(value);
        }
        let mut ready: Vec<(Arc<dyn Receiver>, Vec<_>)> = Vec::new();
        let mut values = self.values.lock();
        for (value, arrived) in values[first as usize..][..count as usize].iter_mut().zip(arrived) {
            match std::mem::replace(value, State::Gone) {
                State::Expected => *value = State::Here(arrived),
                State::Wanted(receiver, place) => match ready.last_mut() {
                    Some((last, list)) if Arc::ptr_eq(last, &receiver) => list.push((place, arrived)),
                    _ => ready.push((receiver, vec![(place, arrived)])),
                },
                State::Here(_) | State::Gone => {}
            }
        }
        drop(values);
        ready.into_iter().for_each(|(receiver, list)| receiver.receive(list));
    }
}

impl std::fmt::Debug for Bringing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bringing").field("count", &self.places.len()).finish_non_exhaustive()
    }
}

/// Somebody wants these values. When nobody does any more, he is let go of.
struct Interest {
    bringing: Arc<Bringing>,
    places: Vec<u32>,
}

impl Drop for Interest {
    fn drop(&mut self) {
        let mut values = self.bringing.values.lock();
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

#[cfg(test)]
mod tests {
    use super::*;
    use tensor::{Error, Tensor};

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

    fn value(number: f32) -> Delivery {
        Delivery::Tensor(Tensor::scalar(number))
    }

    fn bringing() -> Arc<Bringing> {
        Bringing::new(Arc::new(["a", "b", "c", "not now"].map(key).into_iter().zip(0..).collect()), [0..2, 2..3])
    }

    #[test]
    fn whoever_comes_first_waits_for_the_other() {
        let (bringing, seen) = (bringing(), Arc::new(Seen::default()));
        let receiver: Arc<dyn Receiver> = seen.clone();
        let asked = bringing.receive(&[key("b"), key("a")], &receiver).unwrap();
        assert!(asked.alone.is_empty() && seen.0.lock().is_empty());
        bringing.bring(0, 2, vec![(0, value(1.0)), (1, value(2.0))]);
        bringing.bring(2, 1, vec![(0, value(3.0))]);
        assert_eq!(*seen.0.lock(), [(1, Some(1.0)), (0, Some(2.0))]);
        let asked = bringing.receive(&[key("c")], &receiver).unwrap();
        assert!(asked.alone.is_empty());
        assert_eq!(seen.0.lock()[2], (0, Some(3.0)));
        for absent in ["c", "not now", "never"] {
            assert!(bringing.receive(&[key(absent)], &receiver).is_none(), "{absent}");
        }
    }

    #[test]
    fn what_was_not_brought_is_to_be_asked_for() {
        let (bringing, seen) = (bringing(), Arc::new(Seen::default()));
        let receiver: Arc<dyn Receiver> = seen.clone();
        let _asked = bringing.receive(&[key("a"), key("b"), key("c")], &receiver).unwrap();
        bringing.bring(0, 3, vec![(1, value(2.0))]);
        assert_eq!(*seen.0.lock(), [(0, None), (1, Some(2.0)), (2, None)]);
    }

    #[test]
    fn who_has_no_interest_any_more_is_let_go_of() {
        let (bringing, seen) = (bringing(), Arc::new(Seen::default()));
        let receiver: Arc<dyn Receiver> = seen.clone();
        let asked = bringing.receive(&[key("a")], &receiver).unwrap();
        drop(receiver);
        assert_eq!(Arc::strong_count(&seen), 2);
        drop(asked);
        assert_eq!(Arc::strong_count(&seen), 1);
        bringing.bring(0, 1, vec![(0, value(1.0))]);
        assert!(seen.0.lock().is_empty());
    }
}

//! Values that come from other tasks, and travel together.
//!
//! Nodes that receive are ready when a step starts. Those that receive from one task are asked for as a group, which spares
//! each of them a future of its own: whoever brings values hands them to the step, many at once. Some are received one by
//! one even so: those that are too large to travel together, or come from where that is not known.

use super::step::{Local, Step};
use crate::brief;
use framework::{Arrived, Receiver, Value};
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;
use tensor::Error;

/// A group of which something is to come. It holds a token.
pub(super) struct Receiving {
    /// By place: whether it is to come.
    is_awaited: Vec<bool>,
    left: usize,
    since: Instant,
    /// Keeps the asking going.
    interest: Option<Box<dyn Any + Send + Sync>>,
}

impl Receiving {
    /// Whether this place was awaited; it is no longer.
    fn take(&mut self, place: u32) -> bool {
        let was_awaited = self.is_awaited.get_mut(place as usize).is_some_and(std::mem::take);
        self.left -= usize::from(was_awaited);
        was_awaited
    }
}

/// Takes the values of one group.
struct GroupReceiver {
    step: Arc<Step>,
    group: usize,
}

impl Step {
    /// Asks for all groups; what has to be received one by one is ready.
    pub(super) fn receive_all(self: &Arc<Step>, local: &mut Local) {
        if self.plan.receives.is_empty() {
            return;
        }
        let groups = &self.plan.receives;
        let since = Instant::now();
        let all = |len: usize| Receiving { is_awaited: vec![true; len], left: len, since, interest: None };
        self.receiving.lock().extend(groups.iter().map(|group| all(group.nodes.len())));
        self.tokens.fetch_add(groups.len(), Ordering::Relaxed);
        if self.context.is_ended() {
            return self.drop_receiving();
        }
        for (index, group) in groups.iter().enumerate() {
            let receiver = Arc::new(GroupReceiver { step: self.clone(), group: index });
            let asked = match self.context.rendezvous.receive_group(&group.keys, receiver) {
                Ok(asked) => asked,
                Err(why) => return self.fail(&self.plan.nodes[group.nodes[0] as usize], why),
            };
            let (alone, interest) = match asked {
                Some(asked) => (asked.alone, Some(asked.interest)),
                None => ((0..).take(group.nodes.len()).collect(), None),
            };
            let is_complete = {
                let mut receiving = self.receiving.lock();
                let Some(waiting) = receiving.get_mut(index) else { return }; // the step has ended
                let had_any = waiting.left > 0;
                for place in alone.into_iter().rev() {
                    if waiting.take(place) {
                        local.push(group.nodes[place as usize]);
                    }
                }
                waiting.interest = interest.filter(|_| waiting.left > 0);
                had_any && waiting.left == 0
            };
            if is_complete {
                self.give_back(); // never the last token: this thread holds its own
            }
        }
    }

    /// Lets go of what is to come.
    pub(super) fn drop_receiving(&self) {
        let receiving = std::mem::take(&mut *self.receiving.lock());
        for group in receiving {
            let is_token_held = group.left > 0;
            drop(group);
            if is_token_held {
                self.give_back();
            }
        }
    }

    /// Adds the nodes that wait for values of groups.
    pub(super) fn add_receiving(&self, nodes: &mut Vec<(u32, Instant)>) {
        for (group, receiving) in self.plan.receives.iter().zip(&*self.receiving.lock()) {
            let awaited = group.nodes.iter().zip(&receiving.is_awaited).filter(|(_, is_awaited)| **is_awaited);
            nodes.extend(awaited.map(|(node, _)| (*node, receiving.since)));
        }
    }

    /// Hands on what has come. The calling thread holds a token, which it gives back.
    fn go_on_with(self: &Arc<Step>, group: usize, arrived: Vec<(u32, Arrived)>) {
        let mut local = Local::default();
        let nodes = &self.plan.receives[group].nodes;
        for (place, arrived) in arrived {
            let node = nodes[place as usize];
            match arrived {
                Arrived::Value(delivery) => {
                    self.finish(&self.root, node, &mut [Value::from(delivery)], false, &mut local)
                }
                Arrived::Alone => local.push(node),
            }
        }
        self.go_on(self.root.clone(), local);
    }
}

impl Receiver for GroupReceiver {
    fn receive(self: Arc<Self>, mut arrived: Vec<(u32, Arrived)>) {
        let last_interest = {
            let mut receiving = self.step.receiving.lock();
            let Some(group) = receiving.get_mut(self.group) else { return }; // the step has ended
            arrived.retain(|(place, _)| group.take(*place));
            if arrived.is_empty() {
                return;
            }
            if group.left > 0 {
                self.step.tokens.fetch_add(1, Ordering::Relaxed);
                None
            } else {
                group.interest.take() // the group's token is now that of whoever goes on
            }
        };
        drop(last_interest);
        let pool = self.step.plan.device.pool().clone();
        brief::soon(&pool, Box::new(move || self.step.go_on_with(self.group, arrived)));
    }

    fn fail(self: Arc<Self>, why: Error) {
        let awaited = {
            let receiving = self.step.receiving.lock();
            receiving.get(self.group).and_then(|group| group.is_awaited.iter().position(|is_awaited| *is_awaited))
        };
        let Some(place) = awaited else { return }; // the step has ended
        let node = self.step.plan.receives[self.group].nodes[place];
        self.step.fail(&self.step.plan.nodes[node as usize], why);
    }
}

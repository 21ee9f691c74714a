//! What goes from task to task in a step without being asked for.
//!
//! The tasks of our own kind that take part in a step know each other from its master. What one of them sends to another goes
//! there by itself, as a parcel, where the other waits for it; so a value takes one message, and one that its receiver has
//! read it, rather than a question and an answer.

use crate::cluster::TaskName;
use framework::rendezvous::KeyMap;
use framework::{ControlFlow, DeviceName, Graph, Node, RendezvousKey};
use runtime::{KeyList, Places};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What one task's part of a graph sends to others, and receives from them, unasked.
pub(crate) struct Routes {
    /// Where it sends to.
    pub(crate) destinations: Vec<Destination>,
    /// What it sends there: the destination, and the place in its list.
    pub(crate) sends: KeyMap<(u32, u32)>,
    /// What comes.
    pub(crate) places: Arc<Places>,
}

/// A task that values go to.
pub(crate) struct Destination {
    pub(crate) task: TaskName,
    pub(crate) list: KeyList,
}

impl Routes {
    /// The routes of a part between its task and others that were named; `None` if there are none.
    pub(crate) fn new(graph: &Graph, own: &TaskName, others: &[TaskName]) -> Option<Routes> {
        let is_meant = |task: &TaskName| task != own && others.contains(task);
        let destinations: Vec<Destination> = sends(graph)
            .into_iter()
            .filter(|(task, _)| is_meant(task))
            .map(|(task, list)| Destination { task, list })
            .collect();
        let sources: Vec<KeyList> =
            receives(graph).into_iter().filter(|(task, _)| is_meant(task)).map(|(_, list)| list).collect();
        if destinations.is_empty() && sources.is_empty() {
            return None;
        }
        let keys = |(index, to): (u32, &Destination)| {
            let places = (0..).map(move |place| (index, place));
            to.list.keys.iter().cloned().zip(places).collect::<Vec<_>>()
        };
        let sends = (0..).zip(&destinations).flat_map(keys).collect();
        Some(Routes { sends, destinations, places: Arc::new(Places::new(&sources)) })
    }
}

/// What a graph sends to each task.
pub(crate) fn sends(graph: &Graph) -> BTreeMap<TaskName, KeyList> {
    lists(graph, "recv_device", |node| node.op.control_flow == ControlFlow::Send)
}

/// What a graph receives from each task.
fn receives(graph: &Graph) -> BTreeMap<TaskName, KeyList> {
    lists(graph, "send_device", |node| {
        node.op.control_flow != ControlFlow::Send && node.op.attrs.iter().any(|attr| attr.name == "send_device")
    })
}

/// The keys of edges that were cut, by the task at the other end.
fn lists(graph: &Graph, end: &str, is_one: impl Fn(&Node) -> bool) -> BTreeMap<TaskName, KeyList> {
    let mut found: BTreeMap<TaskName, Vec<RendezvousKey>> = BTreeMap::new();
    for (task, key) in graph.nodes().filter(|(_, node)| is_one(node)).filter_map(|(_, node)| edge(node, end)) {
        found.entry(task).or_default().push(key);
    }
    found.into_iter().map(|(task, keys)| (task, KeyList::new(keys))).collect()
}

/// The task at one end of an edge that was cut, and its key outside of loops.
fn edge(node: &Node, end: &str) -> Option<(TaskName, RendezvousKey)> {
    let text = |name: &str| node.attr::<String>(name).ok();
    let task = TaskName::of(&text(end)?.parse::<DeviceName>().ok()?);
    let incarnation = node.attr::<i64>("send_device_incarnation").ok()? as u64;
    Some((task, RendezvousKey::new(&text("send_device")?, incarnation, &text("recv_device")?, &text("tensor_name")?)))
}

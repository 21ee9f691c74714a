//! What a step waits for, seen from outside while it runs.

use super::step::Step;
use framework::Node;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// Looks at a step without holding it.
#[derive(Clone)]
pub struct Watcher {
    step: Weak<Step>,
}

/// A node that waits.
#[derive(Clone, Debug)]
pub struct Wait {
    /// Its name, and its op.
    pub node: String,
    /// What it waits for.
    pub what: String,
    /// How long it has waited.
    pub age: Duration,
}

impl Watcher {
    pub(super) fn new(step: &Arc<Step>) -> Watcher {
        Watcher { step: Arc::downgrade(step) }
    }

    /// The nodes that wait at this moment, in the order of the graph; none if the step is over.
    pub fn waits(&self) -> Vec<Wait> {
        let Some(step) = self.step.upgrade() else { return Vec::new() };
        let now = Instant::now();
        let waits = step.waiting_since().into_iter().map(|(node, since)| {
            let node = &step.plan.nodes[node as usize].node;
            let name = format!("{} ({})", node.name, node.op.name);
            Wait { node: name, what: what(node), age: now.saturating_duration_since(since) }
        });
        waits.collect()
    }
}

/// What a node waits for: a value of another device, or whatever its op waits for.
fn what(node: &Node) -> String {
    let (edge, from) = (node.attr::<String>("tensor_name"), node.attr::<String>("send_device"));
    match (edge, from) {
        (Ok(edge), Ok(from)) => format!("{edge} from {from}"),
        _ => {
            let inputs: Vec<&str> = node.op.inputs.iter().map(|i| i.name.as_str()).collect();
            format!("its {}", inputs.first().copied().unwrap_or("turn"))
        }
    }
}

//! The list of all ops, built once and passed to whoever needs it.

use crate::op::Op;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};
use tensor::{Result, not_found};

/// All ops by name; a clone is the same list.
#[derive(Clone)]
pub struct Registry {
    ops: Arc<LazyLock<Ops, Box<dyn FnOnce() -> Ops + Send>>>,
}

type Ops = HashMap<String, Arc<Op>>;

impl Default for Registry {
    fn default() -> Registry {
        Registry::new([])
    }
}

impl Registry {
    /// A registry of these ops. Two of one name are a mistake of ours.
    pub fn new(ops: impl IntoIterator<Item = Op>) -> Registry {
        let ops = by_name(ops);
        Registry { ops: Arc::new(LazyLock::new(Box::new(move || ops))) }
    }

    /// A registry of the ops that this function lists, which is asked when one is first looked for: a server that only
    /// waits has no need of them.
    pub fn listed_by(ops: fn() -> Vec<Op>) -> Registry {
        Registry { ops: Arc::new(LazyLock::new(Box::new(move || by_name(ops())))) }
    }

    /// The op of this name.
    pub fn get(&self, name: &str) -> Option<&Arc<Op>> {
        self.ops.get(name)
    }

    /// The op of this name; the error names the nearest one.
    pub fn lookup(&self, name: &str) -> Result<&Arc<Op>> {
        self.get(name).ok_or_else(|| {
            let near = nearest(name, self.ops.keys().map(String::as_str));
            let hint = near.map(|n| format!(" Did you mean '{n}'?")).unwrap_or_default();
            not_found!("Op type not registered '{name}' in this binary.{hint}")
        })
    }

    /// All ops, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Op>> {
        self.ops.values()
    }
}

fn by_name(ops: impl IntoIterator<Item = Op>) -> Ops {
    let mut by_name = HashMap::new();
    for op in ops {
        let op = op.resolved();
        let name = op.name.clone();
        let old = by_name.insert(name.clone(), Arc::new(op));
        assert!(old.is_none(), "op {name} is defined twice");
    }
    by_name
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Registry of {} ops", self.ops.len())
    }
}

/// The candidate most like a mistyped word, if one is close.
pub fn nearest<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let limit = (word.len() / 3).max(1);
    candidates.map(|c| (distance(word, c), c)).filter(|(d, _)| *d <= limit).min().map(|(_, c)| c)
}

/// How many letters must be changed, added or removed, ignoring case.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<u8>, Vec<u8>) = (a.to_ascii_lowercase().into_bytes(), b.to_ascii_lowercase().into_bytes());
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let change = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn ops_are_listed_when_one_is_looked_for() {
        static ASKED: AtomicU32 = AtomicU32::new(0);
        let registry = Registry::listed_by(|| {
            ASKED.fetch_add(1, Ordering::Relaxed);
            vec![Op::new("Add")]
        });
        let same = registry.clone();
        assert_eq!(ASKED.load(Ordering::Relaxed), 0);
        assert!(registry.get("Add").is_some() && same.get("Add").is_some());
        assert_eq!(ASKED.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn an_unknown_op_is_answered_with_the_nearest() {
        let registry = Registry::new([Op::new("MatMul"), Op::new("Add")]);
        let error = registry.lookup("Matmull").unwrap_err();
        assert_eq!(error.code, tensor::Code::NotFound);
        assert!(error.message.contains("Did you mean 'MatMul'?"), "{error}");
        assert!(!registry.lookup("Softmax").unwrap_err().message.contains("Did you"));
    }
}

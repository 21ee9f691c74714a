//! Which nodes must share a device, and what they together ask for.
//!
//! Whoever takes a reference to a variable, or a handle to a resource, stays with it; nodes that name each other in
//! `_class` stay together. A group's wish is the merged wish of its members, except that whoever makes a reference or
//! a handle overrules those who use it.

use crate::place::PlacedGraph;
use framework::{DeviceName, DeviceSpec, Graph, Node, NodeId};
use std::collections::HashMap;
use std::sync::Arc;
use tensor::{DType, Result, invalid};

/// The groups of a graph.
pub(crate) struct Groups<'a> {
    graph: &'a Graph,
    members: Vec<Member>,
    soft: bool,
}

/// A node, and what its group asks for if it is the one that stands for the group.
#[derive(Clone, Default)]
struct Member {
    parent: usize,
    rank: u32,
    /// What the members ask for, merged.
    wish: DeviceSpec,
    /// The part of it that the makers of references and handles ask for.
    binding: DeviceSpec,
    assigned: Option<Arc<DeviceName>>,
}

impl<'a> Groups<'a> {
    /// The groups of a graph, some nodes of which have been placed before.
    pub(crate) fn new(graph: &'a Graph, before: &PlacedGraph, soft: bool) -> Result<Groups<'a>> {
        let mut parsed: HashMap<&str, DeviceSpec> = HashMap::new();
        let mut members = Vec::with_capacity(graph.len());
        for (id, node) in graph.nodes() {
            let wish = match parsed.get(node.device.as_str()) {
                Some(spec) => spec.clone(),
                None => {
                    let spec = parse(node)?;
                    parsed.insert(&node.device, spec.clone());
                    spec
                }
            };
            members.push(member(node, id, wish, before));
        }
        let mut groups = Groups { graph, members, soft };
        groups.join_references()?;
        groups.join_classes()?;
        Ok(groups)
    }

    /// What a node's group asks for.
    pub(crate) fn wish(&mut self, node: NodeId) -> &DeviceSpec {
        let root = self.root(node.index());
        &self.members[root].wish
    }

    /// Where a node's group has been placed, if it has.
    pub(crate) fn assigned(&mut self, node: NodeId) -> Option<&Arc<DeviceName>> {
        let root = self.root(node.index());
        self.members[root].assigned.as_ref()
    }

    /// Places a node's group.
    pub(crate) fn assign(&mut self, node: NodeId, device: Arc<DeviceName>) {
        let root = self.root(node.index());
        self.members[root].assigned = Some(device);
    }

    /// The nodes of a node's group.
    pub(crate) fn members(&mut self, node: NodeId) -> impl Iterator<Item = NodeId> {
        let root = self.root(node.index());
        let members: Vec<usize> = (0..self.members.len()).filter(|&m| self.root(m) == root).collect();
        members.into_iter().map(|m| NodeId(m as u32))
    }

    fn root(&mut self, mut node: usize) -> usize {
        while self.members[node].parent != node {
            let above = self.members[self.members[node].parent].parent;
            self.members[node].parent = above;
            node = above;
        }
        node
    }

    fn join_references(&mut self) -> Result<()> {
        let graph = self.graph;
        for (id, node) in graph.nodes().filter(|(_, n)| takes_reference(graph, n)) {
            for (input, (dtype, is_ref)) in node.inputs.iter().zip(node.input_types()?) {
                let source = graph.node(input.node);
                let is_dataset = dtype == DType::Variant && is_dataset(source) && is_dataset(node);
                if is_ref || dtype == DType::Resource || is_dataset {
                    self.join_across_reference(input.node, id)?;
                }
            }
        }
        Ok(())
    }

    fn join_across_reference(&mut self, from: NodeId, to: NodeId) -> Result<()> {
        let (source, user) = (self.root(from.index()), self.root(to.index()));
        if source == user {
            return Ok(());
        }
        let (from, to) = (self.graph.node(from), self.graph.node(to));
        let conflict = |what: &str, a: String, b: String| {
            invalid!(
                "Cannot place the graph because a reference or resource edge connects colocation groups with incompatible {what} devices: {a} vs {b}. The edge src node is name='{}' (op='{}'), and the dst node is name='{}' (op='{}').",
                from.name,
                from.op.name,
                to.name,
                to.op.name
            )
        };
        if let (Some(a), Some(b)) = (&self.members[source].assigned, &self.members[user].assigned)
            && a != b
        {
            return Err(conflict("assigned", a.to_string(), b.to_string()));
        }
        let (a, b) = (&self.members[source].binding, &self.members[user].binding);
        if !a.is_compatible(b) {
            return Err(conflict("resource", a.to_string(), b.to_string()));
        }
        if !self.members[source].wish.is_compatible(&self.members[user].wish) {
            // The maker's word counts, and whatever is binding on the user's side already.
            let mut wish = a.or(b);
            if let Some(assigned) = &self.members[user].assigned {
                wish = wish.or(&DeviceSpec::from(&**assigned));
            }
            self.members[user].wish = wish;
        }
        self.unite(source, user).map_err(|e| {
            invalid!(
                "Nodes were connected by a reference or resource connection (requiring them to be on the same device), but the two nodes were assigned two different devices: {}\n\t [[{{{{node {}}}}}]]",
                e.message,
                to.name
            )
        })
    }

    fn join_classes(&mut self) -> Result<()> {
        let graph = self.graph;
        // A class is named after a node, and a node without class belongs to its own.
        let mut first: HashMap<String, NodeId> = HashMap::new();
        for (id, node) in graph.nodes() {
            let mut classes = node.colocated_with();
            if classes.is_empty() {
                classes.push(node.name.clone());
            }
            for class in classes {
                let other = *first.entry(class).or_insert(id);
                let (a, b) = (self.root(id.index()), self.root(other.index()));
                if a == b {
                    continue;
                }
                match self.unite(a, b) {
                    Err(e) if !self.soft => {
                        let (name, other) = (&node.name, &graph.node(other).name);
                        return Err(invalid!(
                            "Cannot colocate nodes {{{{colocation_node {name}}}}} and {{{{colocation_node {other}}}}}: {}\n\t [[{{{{node {name}}}}}]]",
                            e.message
                        ));
                    }
                    // Where soft placement is allowed, a wish that cannot be granted is none.
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// Makes one group of two, unless they contradict each other.
    fn unite(&mut self, a: usize, b: usize) -> Result<()> {
        let (stays, goes) = if self.members[a].rank < self.members[b].rank { (b, a) } else { (a, b) };
        let (into, from) = (&self.members[stays], &self.members[goes]);
        let binding = into.binding.merge(&from.binding, false)?;
        let wish = into.wish.merge(&from.wish, self.soft)?;
        let assigned = match (&into.assigned, &from.assigned) {
            (Some(a), Some(b)) if a != b => {
                DeviceSpec::from(&**a).merge(&DeviceSpec::from(&**b), false)?;
                None
            }
            (a, b) => a.clone().or_else(|| b.clone()),
        };
        let wish = match &assigned {
            Some(device) => DeviceSpec::from(&**device),
            None => binding.or(&wish),
        };
        let rank = into.rank.max(from.rank + 1);
        let kept = &mut self.members[stays];
        (kept.binding, kept.wish, kept.assigned, kept.rank) = (binding, wish, assigned, rank);
        self.members[goes].parent = stays;
        Ok(())
    }
}

fn parse(node: &Node) -> Result<DeviceSpec> {
    node.device.parse().map_err(|_| {
        invalid!("Malformed device specification '{}' in node: {1}\n\t [[{{{{node {1}}}}}]]", node.device, node.name)
    })
}

fn member(node: &Node, id: NodeId, wish: DeviceSpec, before: &PlacedGraph) -> Member {
    let placed = before.graph.find(&node.name).filter(|old| before.graph.node(*old).op.is_stateful);
    if let Some(old) = placed {
        let device = before.shared_device(old).clone();
        let wish = DeviceSpec::from(&*device);
        return Member { parent: id.index(), binding: wish.clone(), wish, assigned: Some(device), rank: 0 };
    }
    let binding = if makes_reference(node) { wish.clone() } else { DeviceSpec::default() };
    Member { parent: id.index(), binding, wish, ..Member::default() }
}

/// Whether references or handles begin here rather than being passed on.
fn makes_reference(node: &Node) -> bool {
    let is_reference = |is_ref: bool, dtype: DType| is_ref || dtype == DType::Resource;
    node.outputs.iter().any(|o| is_reference(o.is_ref, o.dtype))
        && !node.input_types().is_ok_and(|types| types.into_iter().any(|(dtype, is_ref)| is_reference(is_ref, dtype)))
}

/// A cheap look before the types of all inputs are worked out: most nodes take nothing of the kind.
fn takes_reference(graph: &Graph, node: &Node) -> bool {
    node.inputs
        .iter()
        .any(|&input| graph.info(input).is_ok_and(|i| i.is_ref || matches!(i.dtype, DType::Resource | DType::Variant)))
}

fn is_dataset(node: &Node) -> bool {
    node.op.name.contains("Dataset")
}

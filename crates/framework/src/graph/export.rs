//! Graph to GraphDef.

use super::{Graph, Node, Output};

/// The message for a graph.
pub fn export(graph: &Graph) -> proto::GraphDef {
    proto::GraphDef {
        node: graph.nodes().map(|(_, node)| export_node(graph, node)).collect(),
        library: Some(graph.library.to_proto()),
        versions: graph.versions.clone(),
        ..Default::default()
    }
}

/// The message for one node.
pub fn export_node(graph: &Graph, node: &Node) -> proto::NodeDef {
    let data = node.inputs.iter().map(|&input| input_text(graph, input));
    let control = node.control_inputs.iter().map(|&c| format!("^{}", graph.node(c).name));
    proto::NodeDef {
        name: node.name.clone(),
        op: node.op.name.clone(),
        input: data.chain(control).collect(),
        device: node.device.clone(),
        attr: node.attrs.iter().map(|(name, attr)| (name.clone(), attr.to_proto())).collect(),
        ..Default::default()
    }
}

/// `name` for output 0, `name:k` for the others.
pub(super) fn input_text(graph: &Graph, input: Output) -> String {
    let name = &graph.node(input.node).name;
    if input.index == 0 { name.clone() } else { format!("{name}:{}", input.index) }
}

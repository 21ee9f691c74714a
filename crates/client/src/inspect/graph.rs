//! Looks at the nodes of a graph: what they are, where they are to run, how large their values are and what they cost.

use crate::Graph;
use framework::Node;
use tensor::{DType, PartialShape};

/// A node of a graph.
#[derive(Clone, Debug)]
pub struct GraphNode {
    /// Its name.
    pub name: String,
    /// Its op.
    pub op: String,
    /// The device asked for; empty if any will do.
    pub device: String,
    /// The nodes its data comes from.
    pub inputs: Vec<String>,
    /// The nodes that must have run before.
    pub control_inputs: Vec<String>,
    /// What it gives.
    pub outputs: Vec<GraphOutput>,
    /// How many operations on numbers it takes, where that can be told from its shapes.
    pub flops: Option<u64>,
}

/// An output of a node.
#[derive(Clone, Debug)]
pub struct GraphOutput {
    /// Its element type.
    pub dtype: DType,
    /// Its shape, as far as it is known.
    pub shape: String,
    /// How large it is, where that is known.
    pub bytes: Option<u64>,
}

/// The nodes of a graph, in its order.
pub fn nodes(graph: &Graph) -> Vec<GraphNode> {
    graph.scope().with_graph(|g| {
        let name = |id| g.node(id).name.clone();
        let look = |node: &Node| GraphNode {
            name: node.name.clone(),
            op: node.op.name.to_string(),
            device: node.device.clone(),
            inputs: node.inputs.iter().map(|input| name(input.node)).collect(),
            control_inputs: node.control_inputs.iter().map(|input| name(*input)).collect(),
            outputs: node.outputs.iter().map(|output| describe(output.dtype, &output.shape)).collect(),
            flops: flops(node, &|i| g.info(*node.inputs.get(i)?).ok().map(|info| &info.shape)),
        };
        g.nodes().map(|(_, node)| look(node)).collect()
    })
}

fn describe(dtype: DType, shape: &PartialShape) -> GraphOutput {
    let bytes = shape.num_elements().map(|count| (count * dtype.size()) as u64);
    GraphOutput { dtype, shape: shape.to_string(), bytes: bytes.filter(|_| dtype.is_plain()) }
}

/// Two for each product that is added up; one for each element of what works element by element.
fn flops<'a>(node: &Node, input: &dyn Fn(usize) -> Option<&'a PartialShape>) -> Option<u64> {
    let output = node.outputs.first()?.shape.num_elements()? as u64;
    let products = match node.op.name.as_ref() {
        "MatMul" => {
            let transposed: bool = node.attr("transpose_a").ok()?;
            input(0)?.dim(usize::from(!transposed))?
        }
        "BatchMatMul" | "BatchMatMulV2" => {
            let (transposed, rank) = (node.attr::<bool>("adj_x").ok()?, input(0)?.rank()?);
            input(0)?.dim(if transposed { rank.checked_sub(2)? } else { rank.checked_sub(1)? })?
        }
        "Conv2D" => {
            let filter = input(1)?;
            filter.dim(0)? * filter.dim(1)? * filter.dim(2)?
        }
        "Const" | "Placeholder" | "Variable" | "VariableV2" | "VarHandleOp" | "Identity" | "NoOp"
        | "ReadVariableOp" | "Reshape" => return Some(0),
        _ => return node.outputs.first().filter(|output| output.dtype.is_plain()).map(|_| output),
    };
    Some(2 * output * products as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_product_counts_twice_its_inner_size() {
        let g = Graph::new();
        let x = g.placeholder::<f32>([Some(10), Some(20)]);
        let w = g.device("/job:ps", || g.variable("w", vec![0.0f32; 60])).reshape(&[20, 3]);
        let _y = x.matmul(&w).relu();
        let found = nodes(&g);
        let find = |op: &str| found.iter().find(|node| node.op == op).unwrap();
        assert_eq!((find("MatMul").flops, find("Relu").flops), (Some(2 * 10 * 3 * 20), Some(30)));
        assert_eq!(find("MatMul").outputs[0].bytes, Some(120));
        assert_eq!(find("MatMul").outputs[0].shape, "[10,3]");
        assert_eq!(find("Relu").inputs, ["MatMul"]);
        assert_eq!(find("VariableV2").device, "/job:ps");
    }
}

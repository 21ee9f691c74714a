//! GraphDefs in and out: nothing is lost, defaults are filled in, mistakes are named.

use crate::support::{assert_error, registry};
use framework::graph::{export, import};
use framework::{Attr, Graph};
use prost::Message;
use std::collections::BTreeMap;
use tensor::{Code, DType, PartialShape, Result, Tensor};

fn node(name: &str, op: &str, inputs: &[&str], attrs: &[(&str, Attr)]) -> proto::NodeDef {
    proto::NodeDef {
        name: name.into(),
        op: op.into(),
        input: inputs.iter().map(|i| i.to_string()).collect(),
        attr: attrs.iter().map(|(name, attr)| (name.to_string(), attr.to_proto())).collect(),
        ..Default::default()
    }
}

fn import_nodes(nodes: Vec<proto::NodeDef>) -> Result<Graph> {
    import::import(&proto::GraphDef { node: nodes, ..Default::default() }, &registry())
}

fn float() -> (&'static str, Attr) {
    ("T", DType::F32.into())
}

/// A tensor's two encodings are the same value.
fn normal(node: proto::NodeDef) -> (String, String, Vec<String>, String, BTreeMap<String, String>) {
    let attrs = node.attr.into_iter().map(|(name, value)| {
        let text = match Attr::from_proto(&value) {
            Ok(Attr::Tensor(t)) => format!("{} {:?}", t.shape(), t.to_proto()),
            _ => format!("{value:?}"),
        };
        (name, text)
    });
    let attrs = attrs.collect();
    (node.name, node.op, node.input, node.device, attrs)
}

#[test]
fn graphs_that_tensorflow_made_come_out_as_they_went_in() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/graphs");
    let mut count = 0;
    for file in ["mlp.pb", "control_flow.pb", "functions.pb", "queues.pb"] {
        let bytes = std::fs::read(folder.join(file)).unwrap();
        let message = proto::GraphDef::decode(&bytes[..]).unwrap();
        let graph = import::import(&message, &registry()).unwrap_or_else(|e| panic!("{file}: {e}"));
        let out = export::export(&graph);
        assert_eq!(out.node.len(), message.node.len(), "{file}");
        for (ours, theirs) in out.node.iter().zip(&message.node) {
            assert_eq!(normal(ours.clone()), normal(theirs.clone()), "{file}");
        }
        assert_eq!(out.library.unwrap_or_default(), message.library.unwrap_or_default(), "{file}");
        assert_eq!(out.versions, message.versions, "{file}");
        count += out.node.len();
    }
    assert!(count > 200, "{count} nodes are too few to tell");
}

#[test]
fn what_a_graph_carries_along_is_kept() {
    let mut x = node("x", "Placeholder", &[], &[("dtype", DType::F32.into())]);
    x.device = "/job:ps/task:1/device:CPU:0".into();
    let extra = [
        float(),
        ("_class", Attr::Strings(vec!["loc:@x".into()])),
        ("_note", "kept".into()),
        ("_numbers", vec![1i64, 2].into()),
        ("_shape", Attr::Shape([None, Some(3)].into())),
        ("_value", Tensor::from([1.0f32, 2.0]).into()),
    ];
    let y = node("y", "Neg", &["x", "^x"], &extra);
    let graph = import_nodes(vec![x, y]).unwrap();
    let out = export::export(&graph).node;
    assert_eq!(out[0].device, "/job:ps/task:1/device:CPU:0");
    assert_eq!(out[1].input, ["x", "^x"]);
    for (name, attr) in extra {
        assert_eq!(out[1].attr[name], attr.to_proto(), "{name}");
    }
    assert_eq!(graph.node(graph.find("y").unwrap()).colocated_with(), ["x"]);
}

/// As TensorFlow's optimizer notes sizes that are the same and not known, on processors with AVX-512.
#[test]
fn a_note_that_cannot_be_read_is_left_out_and_an_attribute_is_an_error() {
    let dim = |size| proto::tensor_shape_proto::Dim { size, name: String::new() };
    let shape = proto::TensorShapeProto { dim: vec![dim(-7), dim(3)], unknown_rank: false };
    let value = proto::AttrValue { value: Some(proto::attr_value::Value::Shape(shape)) };
    let mut x = node("x", "Placeholder", &[], &[("dtype", DType::F32.into()), ("_note", "kept".into())]);
    x.attr.insert("_input_shapes".into(), value.clone());
    let graph = import_nodes(vec![x.clone()]).unwrap();
    let attrs = &graph.node(graph.find("x").unwrap()).attrs;
    assert!(attrs.contains_key("_note") && !attrs.contains_key("_input_shapes"));
    x.attr.insert("shape".into(), value);
    assert_error(
        import_nodes(vec![x]),
        Code::InvalidArgument,
        &["attribute 'shape': a shape has a dimension of size -7"],
    );
}

#[test]
fn attributes_that_are_not_given_get_their_default() {
    let graph = import_nodes(vec![
        node("a", "Placeholder", &[], &[("dtype", DType::F32.into())]),
        node("y", "MatMul", &["a", "a"], &[]),
    ])
    .unwrap();
    let y = graph.node(graph.find("y").unwrap());
    assert_eq!(y.attr::<DType>("T").unwrap(), DType::F32);
    assert!(!y.attr::<bool>("transpose_a").unwrap());
    let a = graph.node(graph.find("a").unwrap());
    assert_eq!(a.attr::<PartialShape>("shape").unwrap(), PartialShape::unknown());
}

#[test]
fn nodes_may_come_in_any_order() {
    let graph = import_nodes(vec![
        node("z", "Neg", &["y"], &[float()]),
        node("y", "Neg", &["x"], &[float()]),
        node("x", "Placeholder", &[], &[("dtype", DType::F32.into()), ("shape", Attr::Shape([2].into()))]),
    ])
    .unwrap();
    let z = graph.find_output("z").unwrap();
    assert_eq!(graph.info(z).unwrap().shape, [2].into());
}

#[test]
fn mistakes_are_named() {
    let x = || node("x", "Placeholder", &[], &[("dtype", DType::F32.into())]);
    for (nodes, code, says) in [
        (vec![x(), x()], Code::InvalidArgument, "Node 'x' is not unique"),
        (vec![node("", "NoOp", &[], &[])], Code::InvalidArgument, "'' is not a valid node name"),
        (vec![node("y", "Neg", &["x"], &[])], Code::InvalidArgument, "Node 'y': Unknown input node 'x'"),
        (vec![x(), node("y", "Neg", &["x:q"], &[])], Code::InvalidArgument, "malformed input 'x:q'"),
        (vec![x(), node("y", "Neg", &["x:1"], &[])], Code::InvalidArgument, "which has 1 outputs"),
        (vec![x(), node("y", "Neg", &["^x", "x"], &[])], Code::InvalidArgument, "comes after a control input"),
        (vec![node("y", "Neg", &["y"], &[float()])], Code::InvalidArgument, "cycle through node 'y'"),
        (vec![node("y", "Nope", &[], &[])], Code::NotFound, "Op type not registered 'Nope'"),
        (vec![x(), node("y", "Neg", &[], &[float()])], Code::InvalidArgument, "Neg wants 1 inputs, found 0"),
        (vec![x(), node("y", "Neg", &["x"], &[("T", DType::I32.into())])], Code::InvalidArgument, "should be int32"),
    ] {
        assert_error(import_nodes(nodes), code, &[says]);
    }
}

#[test]
fn a_failed_extension_changes_nothing() {
    let mut graph = import_nodes(vec![node("a", "NoOp", &[], &[])]).unwrap();
    let more = proto::GraphDef {
        node: vec![node("b", "NoOp", &["^a"], &[]), node("c", "NoOp", &["^nowhere"], &[])],
        ..Default::default()
    };
    assert_error(import::extend(&mut graph, &more, &registry()), Code::InvalidArgument, &["nowhere"]);
    assert_eq!(graph.len(), 1);
    assert!(graph.find("b").is_none());
}

//! Every mistake a client can make has its status code, and a sentence that names the node, what was wanted and what
//! was found. None of them stops the task: the same session goes on.

use crate::support::{Session, assert_error, cluster, constant, node, nodes};
use framework::Attr;
use tensor::Code::{self, FailedPrecondition, InvalidArgument, NotFound, ResourceExhausted};
use tensor::{DType, PartialShape, Tensor};

/// Opens a session on these nodes, which fails, or runs this fetch, which fails.
#[track_caller]
fn check(graph: Vec<proto::NodeDef>, feeds: &[(&str, Tensor)], fetch: &str, code: Code, says: &[&str]) {
    let cluster = cluster();
    let result = Session::on(&cluster, nodes(graph)).and_then(|s| s.run(feeds, &[fetch]));
    assert_error(result, code, says);
    // The task is none the worse for it.
    let after = Session::on(&cluster, nodes([constant("c", 7i32)])).unwrap();
    assert_eq!(after.value("c"), Tensor::from(7i32));
}

fn float() -> (&'static str, Attr) {
    ("T", DType::F32.into())
}

fn placeholder(name: &str, shape: PartialShape) -> proto::NodeDef {
    node(name, "Placeholder", &[], &[("dtype", DType::F32.into()), ("shape", shape.into())])
}

#[test]
fn an_unknown_op() {
    check(
        vec![constant("c", 1.0f32), node("y", "Sqare", &["c"], &[float()])],
        &[],
        "y",
        NotFound,
        &["Op type not registered 'Sqare'", "{{node y}}", "Did you mean 'Square'?"],
    );
}

#[test]
fn an_unknown_input() {
    check(
        vec![node("y", "Neg", &["nowhere"], &[float()])],
        &[],
        "y",
        InvalidArgument,
        &["Node 'y': Unknown input node 'nowhere'"],
    );
    check(
        vec![constant("c", 1.0f32), node("y", "Neg", &["c", "^nowhere"], &[float()])],
        &[],
        "y",
        InvalidArgument,
        &["Node 'y': Unknown input node 'nowhere'"],
    );
}

#[test]
fn an_output_that_its_node_does_not_have() {
    check(
        vec![constant("c", 1.0f32), node("y", "Neg", &["c:1"], &[float()])],
        &[],
        "y",
        InvalidArgument,
        &["Node 'y'", "invalid output 1 of source node c which has 1 outputs"],
    );
}

#[test]
fn a_name_used_twice() {
    check(vec![constant("c", 1.0f32), constant("c", 2.0f32)], &[], "c", InvalidArgument, &["Node 'c' is not unique"]);
}

#[test]
fn a_name_that_is_none() {
    check(vec![constant("a b", 1.0f32)], &[], "a b", InvalidArgument, &["'a b' is not a valid node name"]);
}

#[test]
fn a_cycle() {
    check(
        vec![node("a", "Neg", &["b"], &[float()]), node("b", "Neg", &["a"], &[float()])],
        &[],
        "a",
        InvalidArgument,
        &["cycle through node 'a'", "2 nodes"],
    );
    check(
        vec![node("a", "NoOp", &["^b"], &[]), node("b", "NoOp", &["^a"], &[])],
        &[],
        "a",
        InvalidArgument,
        &["cycle through node 'a'"],
    );
}

#[test]
fn the_wrong_number_of_inputs() {
    check(
        vec![constant("c", 1.0f32), node("y", "Mul", &["c"], &[float()])],
        &[],
        "y",
        InvalidArgument,
        &["{{node y}}", "Mul wants 2 inputs, found 1"],
    );
}

#[test]
fn the_wrong_element_type() {
    check(
        vec![constant("a", 1.0f32), constant("b", 1i32), node("y", "Mul", &["a", "b"], &[float()])],
        &[],
        "y",
        InvalidArgument,
        &["{{node y}}", "input 1 of Mul should be float, found int32"],
    );
    check(
        vec![constant("a", "text"), node("y", "Neg", &["a"], &[("T", DType::String.into())])],
        &[],
        "y",
        InvalidArgument,
        &["{{node y}}", "attribute 'T' of Neg", "string is not in the list of allowed values"],
    );
}

#[test]
fn a_value_where_a_reference_is_wanted() {
    check(
        vec![constant("a", 1.0f32), constant("b", 1.0f32), node("y", "Assign", &["a", "b"], &[float()])],
        &[],
        "y",
        InvalidArgument,
        &["{{node y}}", "should be a reference"],
    );
}

#[test]
fn attributes_that_do_not_fit() {
    check(
        vec![node("x", "Placeholder", &[], &[])],
        &[],
        "x",
        InvalidArgument,
        &["{{node x}}", "attribute 'dtype' (type) of Placeholder is not given"],
    );
    check(
        vec![node("x", "Placeholder", &[], &[("dtype", Attr::Int(1))])],
        &[],
        "x",
        InvalidArgument,
        &["{{node x}}", "attribute 'dtype'", "wanted type, found int"],
    );
    check(
        vec![node("x", "Placeholder", &[], &[("dtype", DType::F32.into()), ("shape", Attr::Bool(true))])],
        &[],
        "x",
        InvalidArgument,
        &["{{node x}}", "attribute 'shape'", "wanted shape, found bool"],
    );
    check(
        vec![node("p", "Pack", &[], &[("N", Attr::Int(0)), float()])],
        &[],
        "p",
        InvalidArgument,
        &["{{node p}}", "attribute 'N' of Pack", "at least 1, found 0"],
    );
}

#[test]
fn shapes_that_do_not_fit_are_found_when_the_graph_comes() {
    check(
        vec![
            constant("a", [[1.0f32, 2.0, 3.0], [4.0, 5.0, 6.0]]),
            constant("b", [[1.0f32, 2.0], [3.0, 4.0]]),
            node("y", "MatMul", &["a", "b"], &[float()]),
        ],
        &[],
        "y",
        InvalidArgument,
        &["{{node y}}", "3", "2"],
    );
    check(
        vec![
            constant("a", [1.0f32, 2.0, 3.0]),
            constant("b", [1.0f32, 2.0]),
            node("y", "Add", &["a", "b"], &[float()]),
        ],
        &[],
        "y",
        InvalidArgument,
        &["{{node y}}", "[3]", "[2]"],
    );
}

#[test]
fn shapes_that_do_not_fit_are_found_in_the_step() {
    let graph = |op: &str| {
        let unknown = PartialShape::unknown;
        vec![placeholder("a", unknown()), placeholder("b", unknown()), node("y", op, &["a", "b"], &[float()])]
    };
    let feeds = |a: Tensor, b: Tensor| [("a", a), ("b", b)];
    let (wide, square) = (Tensor::from([[1.0f32, 2.0, 3.0]]), Tensor::from([[1.0f32, 2.0], [3.0, 4.0]]));
    check(
        graph("MatMul"),
        &feeds(wide.clone(), square.clone()),
        "y",
        InvalidArgument,
        &["{{node y}}", "[1,3]", "[2,2]"],
    );
    check(graph("Add"), &feeds(wide, square), "y", InvalidArgument, &["{{node y}}", "[1,3]", "[2,2]"]);
}

#[test]
fn a_missing_feed() {
    check(
        vec![placeholder("x", [None, Some(2)].into()), node("y", "Neg", &["x"], &[float()])],
        &[],
        "y",
        InvalidArgument,
        &["You must feed a value for placeholder tensor 'x' with dtype float and shape [?,2]", "{{node x}}"],
    );
}

#[test]
fn a_wrongly_shaped_feed() {
    check(
        vec![placeholder("x", [None, Some(2)].into()), node("y", "Neg", &["x"], &[float()])],
        &[("x:0", Tensor::from([1.0f32, 2.0, 3.0]))],
        "y",
        InvalidArgument,
        &["Cannot feed value of shape [3] for Tensor 'x:0', which has shape [?,2]"],
    );
}

#[test]
fn a_feed_of_the_wrong_type() {
    check(
        vec![placeholder("x", PartialShape::unknown()), node("y", "Neg", &["x"], &[float()])],
        &[("x", Tensor::from(1i64))],
        "y",
        InvalidArgument,
        &["'x'", "int64", "float"],
    );
}

#[test]
fn an_uninitialised_variable() {
    let shape = ("shape", Attr::Shape(PartialShape::scalar()));
    check(
        vec![
            node("v", "VariableV2", &[], &[("dtype", DType::F32.into()), shape.clone()]),
            node("y", "Identity", &["v"], &[float()]),
        ],
        &[],
        "y",
        FailedPrecondition,
        &["Attempting to use uninitialized value v", "{{node "],
    );
    check(
        vec![
            node("w", "VarHandleOp", &[], &[("dtype", DType::F32.into()), shape, ("shared_name", "w".into())]),
            node("y", "ReadVariableOp", &["w"], &[("dtype", DType::F32.into())]),
        ],
        &[],
        "y",
        FailedPrecondition,
        &["Could not find variable w", "container=localhost", "{{node y}}"],
    );
}

#[test]
fn an_index_out_of_range_in_gather() {
    let gather = |index: i32| {
        vec![
            constant("params", [1.0f32, 2.0, 3.0]),
            constant("indices", [0i32, index]),
            constant("axis", 0i32),
            node(
                "y",
                "GatherV2",
                &["params", "indices", "axis"],
                &[("Tparams", DType::F32.into()), ("Tindices", DType::I32.into()), ("Taxis", DType::I32.into())],
            ),
        ]
    };
    for index in [3, -1, i32::MAX, i32::MIN] {
        let found = format!("indices[1] = {index} is not in [0, 3)");
        check(gather(index), &[], "y", InvalidArgument, &["{{node y}}", &found]);
    }
}

#[test]
fn a_label_out_of_range() {
    let loss = |label: i64| {
        vec![
            constant("logits", [[0.1f32, 0.2, 0.3]]),
            constant("labels", [label]),
            node(
                "y",
                "SparseSoftmaxCrossEntropyWithLogits",
                &["logits", "labels"],
                &[float(), ("Tlabels", DType::I64.into())],
            ),
        ]
    };
    for label in [3, -1, i64::MAX] {
        let found = format!("label value of {label}");
        check(loss(label), &[], "y", InvalidArgument, &["{{node y}}", &found, "[0, 3)"]);
    }
}

const TERA: i64 = 1 << 40;

fn claim(dims: &[i64]) -> proto::TensorProto {
    let dim = dims.iter().map(|&size| proto::tensor_shape_proto::Dim { size, ..Default::default() }).collect();
    proto::TensorProto {
        dtype: DType::F32.number(),
        tensor_shape: Some(proto::TensorShapeProto { dim, unknown_rank: false }),
        float_val: vec![1.0],
        ..Default::default()
    }
}

#[test]
fn a_constant_that_claims_a_terabyte() {
    for (dims, code) in [
        (&[TERA][..], ResourceExhausted),
        (&[1 << 20, 1 << 20], ResourceExhausted),
        (&[1 << 62, 1 << 62], InvalidArgument),
        (&[-5], InvalidArgument),
    ] {
        let mut c = constant("c", 1.0f32);
        let value = proto::attr_value::Value::Tensor(claim(dims));
        c.attr.insert("value".into(), proto::AttrValue { value: Some(value) });
        check(vec![c], &[], "c", code, &["{{node c}}", "attribute 'value'"]);
        // A feed comes as the same message.
        assert_error(Tensor::from_proto(&claim(dims)), code, &[]);
    }
}

#[test]
fn an_op_that_is_asked_for_a_terabyte() {
    let one = || constant("one", 1.0f32);
    let dims = |value: &[i64]| constant("dims", value.to_vec());
    let index = |name: &'static str| (name, Attr::Type(DType::I64));
    let wide = |op: &str, inputs: &[&str], attrs: &[(&str, Attr)], says: &[&str], code: Code| {
        let mut wanted = vec!["{{node y}}"];
        wanted.extend(says);
        check(vec![one(), dims(&[TERA]), node("y", op, inputs, attrs)], &[], "y", code, &wanted);
    };
    wide("Fill", &["dims", "one"], &[float(), index("index_type")], &["4398046511104 bytes"], ResourceExhausted);
    wide("BroadcastTo", &["one", "dims"], &[float(), index("Tidx")], &["4398046511104 bytes"], ResourceExhausted);
    wide("Reshape", &["one", "dims"], &[float(), index("Tshape")], &["1", "1099511627776"], InvalidArgument);
    wide(
        "RandomUniform",
        &["dims"],
        &[("dtype", DType::F32.into()), ("T", DType::I64.into())],
        &["4398046511104 bytes"],
        ResourceExhausted,
    );
    check(
        vec![
            constant("x", [1.0f32]),
            dims(&[TERA]),
            node("y", "Tile", &["x", "dims"], &[float(), index("Tmultiples")]),
        ],
        &[],
        "y",
        ResourceExhausted,
        &["{{node y}}", "4398046511104 bytes"],
    );
    check(
        vec![one(), dims(&[1 << 40, 1 << 40]), node("y", "Fill", &["dims", "one"], &[float(), index("index_type")])],
        &[],
        "y",
        InvalidArgument,
        &["{{node y}}"],
    );
    check(
        vec![one(), dims(&[-1]), node("y", "Fill", &["dims", "one"], &[float(), index("index_type")])],
        &[],
        "y",
        InvalidArgument,
        &["{{node y}}", "-1"],
    );
}

#[test]
fn integers_divided_by_zero() {
    for op in ["Div", "FloorDiv", "FloorMod"] {
        check(
            vec![
                constant("a", [4i32, 6]),
                constant("b", [2i32, 0]),
                node("y", op, &["a", "b"], &[("T", DType::I32.into())]),
            ],
            &[],
            "y",
            InvalidArgument,
            &["{{node y}}", "Integer division by zero"],
        );
    }
}

#[test]
fn the_smallest_integer_divided_by_minus_one_is_no_disaster() {
    for op in ["Div", "FloorDiv", "FloorMod"] {
        let attrs = [("T", Attr::Type(DType::I32))];
        let graph = nodes([constant("a", [i32::MIN]), constant("b", [-1i32]), node("y", op, &["a", "b"], &attrs)]);
        let session = Session::on(&cluster(), graph).unwrap();
        session.run(&[], &["y"]).unwrap();
    }
}

#[test]
fn what_is_not_a_number_in_check_numerics() {
    for (value, says) in [(f32::NAN, "NaN"), (f32::INFINITY, "Inf")] {
        check(
            vec![
                constant("x", [1.0, value]),
                node("y", "CheckNumerics", &["x"], &[float(), ("message", "layer 3".into())]),
            ],
            &[],
            "y",
            InvalidArgument,
            &["{{node y}}", "layer 3", says],
        );
    }
}

#[test]
fn a_function_that_returns_nothing() {
    let mut graph = nodes([constant("x", 1.0f32), node("y", "twice", &["x"], &[])]);
    let arg = |name: &str| proto::op_def::ArgDef { name: name.into(), r#type: 1, ..Default::default() };
    let signature = proto::OpDef {
        name: "twice".into(),
        input_arg: vec![arg("a")],
        output_arg: vec![arg("b")],
        ..Default::default()
    };
    let function = proto::FunctionDef { signature: Some(signature), ..Default::default() };
    graph.library = Some(proto::FunctionDefLibrary { function: vec![function], ..Default::default() });
    let session = Session::on(&cluster(), graph).unwrap();
    assert_error(session.run(&[], &["y"]), InvalidArgument, &["Return b missing", "function twice", "{{node y}}"]);
    assert_eq!(session.value("x"), Tensor::from(1.0f32));
}

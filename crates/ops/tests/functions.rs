//! Functions that would never end.

use crate::golden::registry;
use distributed::{LocalCluster, MasterInterface, RunStep};
use framework::graph::NameAttrList;
use framework::{Attr, SystemEnv};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tensor::{Code, DType, Error, Tensor};

fn node(name: &str, op: &str, inputs: &[&str], attrs: &[(&str, Attr)]) -> proto::NodeDef {
    proto::NodeDef {
        name: name.into(),
        op: op.into(),
        input: inputs.iter().map(|i| (*i).to_string()).collect(),
        attr: attrs.iter().map(|(k, v)| ((*k).to_string(), v.to_proto())).collect(),
        ..Default::default()
    }
}

fn named(function: &str) -> Attr {
    Attr::Function(NameAttrList { name: function.into(), attrs: Default::default() })
}

/// A function of one float.
fn function(name: &str, body: proto::NodeDef, result: (DType, &str)) -> proto::FunctionDef {
    let arg = |name: &str, dtype: DType| proto::op_def::ArgDef {
        name: name.into(),
        r#type: dtype.number(),
        ..Default::default()
    };
    proto::FunctionDef {
        signature: Some(proto::OpDef {
            name: name.into(),
            input_arg: vec![arg("x", DType::F32)],
            output_arg: vec![arg("y", result.0)],
            ..Default::default()
        }),
        node_def: vec![body],
        ret: [("y".to_string(), result.1.to_string())].into_iter().collect(),
        ..Default::default()
    }
}

/// Fetches `y` from a graph of one call.
fn run(call: proto::NodeDef, functions: Vec<proto::FunctionDef>, timeout_in_ms: i64) -> Error {
    let value = Attr::Tensor(Tensor::scalar(1.0f32));
    let x = node("x", "Const", &[], &[("value", value), ("dtype", Attr::Type(DType::F32))]);
    run_graph(vec![x, call], functions, timeout_in_ms)
}

fn run_graph(nodes: Vec<proto::NodeDef>, functions: Vec<proto::FunctionDef>, timeout_in_ms: i64) -> Error {
    let cluster = LocalCluster::new("localhost", 2, registry(), Arc::new(SystemEnv::default()));
    let library = proto::FunctionDefLibrary { function: functions, ..Default::default() };
    let graph = proto::GraphDef { node: nodes, library: Some(library), ..Default::default() };
    let request = proto::CreateSessionRequest { graph_def: Some(graph), ..Default::default() };
    let deadline = Some(Instant::now() + Duration::from_secs(60));
    let master = cluster.master();
    let session = runtime::block_on(master.create_session(request), deadline).unwrap().unwrap();
    let options = proto::RunOptions { timeout_in_ms, ..Default::default() };
    let step = RunStep { session, fetches: vec!["y:0".into()], options, ..RunStep::default() };
    runtime::block_on(master.run_step(step), deadline).expect("an answer in time").expect_err("an error")
}

#[test]
fn a_function_that_calls_itself_for_ever_is_an_error() {
    let types = || Attr::Types(vec![DType::F32]);
    let call = |name: &str| {
        node(name, "PartitionedCall", &["x"], &[("f", named("again")), ("Tin", types()), ("Tout", types())])
    };
    let error = run(call("y"), vec![function("again", call("inner"), (DType::F32, "inner:output:0"))], 0);
    assert_eq!(error.code, Code::ResourceExhausted, "{error}");
}

/// Skips more elements than anybody can wait for.
#[test]
fn a_dataset_without_end_ends_at_the_deadline() {
    let number = |name: &str, value: i64| {
        let value = Attr::Tensor(Tensor::scalar(value));
        node(name, "Const", &[], &[("value", value), ("dtype", Attr::Type(DType::I64))])
    };
    let types = || ("output_types", Attr::Types(vec![DType::I64]));
    let shapes = || ("output_shapes", Attr::Shapes(vec![tensor::PartialShape::scalar()]));
    let iterator = [types(), shapes(), ("shared_name", "".into()), ("container", "".into())];
    let nodes = vec![
        number("start", 0),
        number("stop", i64::MAX),
        number("one", 1),
        node("range", "RangeDataset", &["start", "stop", "one"], &[types(), shapes()]),
        node("skip", "SkipDataset", &["range", "stop"], &[types(), shapes()]),
        node("iterator", "IteratorV2", &[], &iterator),
        node("made", "MakeIterator", &["skip", "iterator"], &[]),
        node("y", "IteratorGetNext", &["iterator", "^made"], &[types(), shapes()]),
    ];
    let error = run_graph(nodes, Vec::new(), 200);
    assert_eq!(error.code, Code::DeadlineExceeded, "{error}");
}

#[test]
fn a_loop_without_end_ends_at_the_deadline() {
    let truth = Attr::Tensor(Tensor::scalar(true));
    let always = node("c", "Const", &[], &[("value", truth), ("dtype", Attr::Type(DType::Bool))]);
    let body = node("i", "Identity", &["x"], &[("T", Attr::Type(DType::F32))]);
    let functions = vec![
        function("always", always, (DType::Bool, "c:output:0")),
        function("same", body, (DType::F32, "i:output:0")),
    ];
    let attrs = [("T", Attr::Types(vec![DType::F32])), ("cond", named("always")), ("body", named("same"))];
    let error = run(node("y", "StatelessWhile", &["x"], &attrs), functions, 200);
    assert_eq!(error.code, Code::DeadlineExceeded, "{error}");
}

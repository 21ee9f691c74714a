//! Programs made of functions: what TensorFlow made and computed, with the functions put in place of those who call them.

use crate::execute::{run_cut, run_together};
use crate::support::{client, interpreter, place_more, registry};
use expect_test::expect;
use framework::graph::{import, text};
use framework::{DeviceName, Graph};
use plan::{PlacedGraph, RunSignature, inline_functions};
use prost::Message;
use tensor::Tensor;

fn load(file: &str) -> Graph {
    let file = format!("{}/../../testdata/graphs/{file}", env!("CARGO_MANIFEST_DIR"));
    let message = proto::GraphDef::decode(std::fs::read(file).unwrap().as_slice()).unwrap();
    import::import(&message, &registry()).unwrap()
}

/// What a program of the file gives, and what it should give.
struct Program<'a> {
    placed: &'a PlacedGraph,
    got: Vec<String>,
    want: Vec<String>,
}

impl Program<'_> {
    fn prune(&self, fetches: &[String]) -> Graph {
        let signature = RunSignature::new(vec![], fetches.to_vec(), vec![]).unwrap();
        plan::prune(self.placed, &signature, &client(), &registry()).unwrap().graph
    }

    fn wanted(&self) -> Vec<Tensor> {
        run_together(&[self.prune(&self.want)], &strs(&self.want)).unwrap()
    }
}

fn strs(names: &[String]) -> Vec<&str> {
    names.iter().map(String::as_str).collect()
}

fn check(scope: &str) {
    let inlined = inline_functions(load("functional.pb"), &registry()).unwrap();
    assert!(inlined.nodes().all(|(_, n)| n.op.kernel.is_some() && !is_call(&n.op.name)));
    let placed = place_more(inlined, &PlacedGraph::default(), false).unwrap();
    let names = |what: &str| -> Vec<String> {
        let start = format!("{scope}/{what}_");
        let mut names: Vec<String> =
            placed.graph.nodes().filter(|(_, n)| n.name.starts_with(&start)).map(|(_, n)| n.name.clone()).collect();
        names.sort();
        names
    };
    let program = Program { placed: &placed, got: names("got"), want: names("want") };
    let want = program.wanted();
    assert!(!want.is_empty());
    let pruned = program.prune(&program.got);
    let fetches = strs(&program.got);
    for _ in 0..5 {
        assert_eq!(run_together(std::slice::from_ref(&pruned), &fetches).unwrap(), want, "{scope} whole");
        let (values, num_parts) = run_cut(&pruned, &fetches, &DeviceName::task_name).unwrap();
        assert_eq!(values, want, "{scope} in parts");
        let optimized = plan::optimize(pruned.clone(), &[], &interpreter(), &registry()).unwrap();
        let (values, _) = run_cut(&optimized, &fetches, &DeviceName::task_name).unwrap();
        assert_eq!(values, want, "{scope} optimised and in parts");
        assert!(num_parts >= 2);
    }
    // Each result alone: what the others need is pruned away.
    for (name, want) in program.got.iter().zip(&want) {
        let alone = program.prune(std::slice::from_ref(name));
        assert_eq!(&run_cut(&alone, &[name], &DeviceName::task_name).unwrap().0[0], want, "{name}");
    }
}

fn is_call(op: &str) -> bool {
    op.contains("Call") || op.contains("If") || op.contains("While") || op.contains("Case")
}

#[test]
fn calls_give_what_tensorflow_gives() {
    check("calls");
}

#[test]
fn branches_give_what_tensorflow_gives() {
    check("branches");
}

#[test]
fn effects_happen_before_who_waits_for_them() {
    check("effects");
}

#[test]
fn loops_give_what_tensorflow_gives() {
    check("loops");
}

#[test]
fn cases_give_what_tensorflow_gives() {
    check("cases");
}

#[test]
fn loops_of_branches_of_calls_give_what_tensorflow_gives() {
    check("together");
}

#[test]
fn a_body_stands_in_place_of_the_call_under_its_name() {
    let inlined = inline_functions(load("functions.pb"), &registry()).unwrap();
    expect![[r#"
        x = Placeholder {dtype: float, shape: shape[2]}
        squared = Identity(squared/mul_0)
        far = Identity(far/root_0) @ /device:CPU:0
        copy = Identity(far) @ /device:CPU:0
        squared/mul_0 = Mul(x, x)
        far/sub = Sub(x, squared) @ /device:CPU:0
        far/square = Identity(far/square/mul_0) @ /device:CPU:0
        far/root_0 = Sqrt(far/square) @ /device:CPU:0
        far/square/mul_0 = Mul(far/sub, far/sub) @ /device:CPU:0
    "#]]
    .assert_eq(&text::print(&inlined));
    let again = inline_functions(inlined.clone(), &registry()).unwrap();
    assert_eq!(text::print(&again), text::print(&inlined));
}

fn arg(name: &str) -> proto::op_def::ArgDef {
    proto::op_def::ArgDef { name: name.into(), r#type: 1, ..Default::default() }
}

fn node(name: &str, op: &str, inputs: &[&str]) -> proto::NodeDef {
    let input = inputs.iter().map(|i| i.to_string()).collect();
    proto::NodeDef { name: name.into(), op: op.into(), input, ..Default::default() }
}

/// A function from a float to a float: the sum of what two functions make of it.
fn sum_of(name: &str, first: &str, second: &str) -> proto::FunctionDef {
    let signature =
        proto::OpDef { name: name.into(), input_arg: vec![arg("x")], output_arg: vec![arg("y")], ..Default::default() };
    let mut sum = node("sum", "AddV2", &["a:y:0", "b:y:0"]);
    sum.attr.insert("T".into(), framework::Attr::Type(tensor::DType::F32).to_proto());
    proto::FunctionDef {
        signature: Some(signature),
        node_def: vec![node("a", first, &["x"]), node("b", second, &["x"]), sum],
        ret: [("y".to_string(), "sum:z:0".to_string())].into(),
        ..Default::default()
    }
}

/// A placeholder, and a call of the first of these functions on it.
fn calling(functions: Vec<proto::FunctionDef>) -> Graph {
    let name = functions[0].signature.as_ref().unwrap().name.clone();
    let mut x = node("x", "Placeholder", &[]);
    x.attr.insert("dtype".into(), framework::Attr::Type(tensor::DType::F32).to_proto());
    let library = proto::FunctionDefLibrary { function: functions, ..Default::default() };
    let message =
        proto::GraphDef { node: vec![x, node("call", &name, &["x"])], library: Some(library), ..Default::default() };
    import::import(&message, &registry()).unwrap()
}

#[test]
fn a_function_that_calls_itself_is_inlined_once() {
    let inlined = inline_functions(calling(vec![sum_of("f", "f", "f")]), &registry()).unwrap();
    expect![[r#"
        x = Placeholder {dtype: float}
        call = Identity(call/sum)
        call/a = f(x)
        call/b = f(x)
        call/sum = AddV2(call/a, call/b)
    "#]]
    .assert_eq(&text::print(&inlined));
}

#[test]
fn a_function_that_asks_to_be_left_alone_is() {
    let mut function = sum_of("f", "f", "f");
    function.attr.insert("_noinline".into(), framework::Attr::Bool(true).to_proto());
    let inlined = inline_functions(calling(vec![function]), &registry()).unwrap();
    assert_eq!(inlined.len(), 2);
}

#[test]
fn a_graph_does_not_grow_for_ever() {
    let name = |i: usize| format!("f{i}");
    let chain = (0..40).map(|i| sum_of(&name(i), &name((i + 1) % 40), &name((i + 1) % 40)));
    let inlined = inline_functions(calling(chain.collect()), &registry()).unwrap();
    assert!((1 << 16..1 << 17).contains(&inlined.len()), "{}", inlined.len());
}

#[test]
fn calls_of_unknown_functions_are_left_to_whoever_runs_them() {
    let mut graph = load("functional.pb");
    let before = text::print(&graph);
    graph.library = calling(vec![sum_of("f", "f", "f")]).library;
    assert_eq!(text::print(&inline_functions(graph, &registry()).unwrap()), before);
}

//! Replays what TensorFlow computed: values, status codes, gradients; and gradients once more by finite differences.
//!
//! A case is one node (its inputs as constants and again as feeds of unknown shape) or a small graph run in steps.
//! All failing cases of a file are printed, each with its first difference.

use crate::support::compare::{Closeness, difference};
use crate::support::json::{self, list, text};
use crate::support::runner::{self, Runner};
use framework::gradient::GradValue;
use framework::op::Differentiation;
use framework::{Attr, NodeId, Output, Registry, Scope};
use prost::Message;
use serde_json::Value;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};
use tensor::{Code, DType, Error, PartialShape, Tensor};

/// One test per data file.
macro_rules! files {
    ($($name:ident)*) => {
        /// The data files that are replayed.
        pub const FILES: &[&str] = &[$(concat!(stringify!($name), ".json")),*];
        $(#[test]
        fn $name() {
            replay(concat!(stringify!($name), ".json"));
        })*
    };
}
files! {
    accumulators array bits candidate_sampling cast control_flow conv dataset conv_dilated lookup math_binary math_unary matmul nn parse_example
    pool queues random reductions resource_moves segments sparse state strided_slice strings_io summaries tensor_arrays texts
    functions functional fused lists scans scatter_nd stateless_random training_dense training_sparse variant_moves
}

/// Ops whose floats must come out as they went in.
const MOVES: &[&str] = &[
    "Assign",
    "BatchToSpaceND",
    "BroadcastTo",
    "Concat",
    "ConcatOffset",
    "ConcatV2",
    "DeepCopy",
    "DepthToSpace",
    "Diag",
    "DiagPart",
    "DynamicPartition",
    "DynamicStitch",
    "Enter",
    "Exit",
    "ExpandDims",
    "Fill",
    "Gather",
    "GatherNd",
    "GatherV2",
    "Identity",
    "IdentityN",
    "MatrixBandPart",
    "MatrixDiag",
    "MatrixSetDiag",
    "Merge",
    "MirrorPad",
    "NextIteration",
    "OneHot",
    "Pack",
    "Pad",
    "PadV2",
    "ParallelDynamicStitch",
    "PlaceholderWithDefault",
    "PreventGradient",
    "ReadVariableOp",
    "Reshape",
    "ResourceGather",
    "Reverse",
    "ReverseSequence",
    "ReverseV2",
    "ScatterUpdate",
    "Select",
    "SelectV2",
    "Slice",
    "Snapshot",
    "SpaceToBatchND",
    "SpaceToDepth",
    "Split",
    "SplitV",
    "Squeeze",
    "StopGradient",
    "StridedSlice",
    "StridedSliceGrad",
    "Switch",
    "Tile",
    "TopK",
    "TopKV2",
    "Transpose",
    "Unpack",
    "Where",
];

/// Ops whose registered gradient is not the derivative of what they compute, or that are not continuous at the points
/// the data holds; finite differences say nothing about them.
const NOT_SMOOTH: &[&str] = &[
    // Steps: the derivative is zero almost everywhere, the gradient says more or ends.
    "Floor",
    "Ceil",
    "Round",
    "Rint",
    "FloorDiv",
    "FloorMod",
    "Mod",
    "TruncateMod",
    "Sign",
    "Relu6Grad",
    "ReluGrad",
    // Ends by design.
    "StopGradient",
    "PreventGradient",
    // Moves what is the largest elsewhere when two values tie.
    "MaxPoolGrad",
    "MaxPoolGradWithArgmax",
];

/// Cases in which TensorFlow 2.21 is wrong, and what it does.
const MISTAKES: &[(&str, &str)] = &[
    ("Round of int32", "gives zeros; an integer is its own rounding"),
    ("Round of int64", "gives zeros; an integer is its own rounding"),
];

#[derive(Default)]
struct Tally {
    passed: usize,
    /// Cases of ops that are not registered.
    missing: usize,
    gradients: usize,
    differences: usize,
    failures: Vec<String>,
}

/// What became of a case.
enum Outcome {
    Passed,
    Missing,
}

fn replay(file: &str) {
    // `GOLDEN=Gather` replays only the cases whose name contains it.
    let only = std::env::var("GOLDEN").unwrap_or_default();
    let mut tally = Tally::default();
    let is_mistaken = |name: &str| MISTAKES.iter().any(|(mistake, _)| *mistake == name);
    let chosen = |case: &&Value| text(case, "name").contains(&only) && !is_mistaken(text(case, "name"));
    for case in json::cases(file).iter().filter(chosen) {
        let run = catch_unwind(AssertUnwindSafe(|| {
            let is_graph = case.get("graph").is_some() || case.get("graph_def").is_some();
            if is_graph { graph_case(case) } else { node_case(case, &mut tally) }
        }));
        match run {
            Ok(Ok(Outcome::Passed)) => tally.passed += 1,
            Ok(Ok(Outcome::Missing)) => tally.missing += 1,
            Ok(Err(why)) => tally.failures.push(format!("{}: {why}", text(case, "name"))),
            Err(panic) => {
                let why = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
                tally.failures.push(format!("{}: panicked: {}", text(case, "name"), why.unwrap_or("?")));
            }
        }
    }
    println!(
        "{file}: {} passed ({} gradients, {} by finite differences), {} of missing ops, {} failed",
        tally.passed,
        tally.gradients,
        tally.differences,
        tally.missing,
        tally.failures.len()
    );
    for failure in &tally.failures {
        println!("  {failure}");
    }
    assert!(tally.failures.is_empty(), "{} cases of {file} failed", tally.failures.len());
}

pub fn registry() -> Arc<Registry> {
    static REGISTRY: OnceLock<Arc<Registry>> = OnceLock::new();
    REGISTRY.get_or_init(|| Arc::new(ops::registry())).clone()
}

fn has_ops<'a>(names: impl IntoIterator<Item = &'a str>) -> bool {
    names.into_iter().all(|n| registry().get(n).is_some())
}

fn closeness(case: &Value, op: &str) -> Closeness {
    match case.get("tolerance") {
        Some(tolerance) => Closeness::Within(json::real(tolerance)),
        None if MOVES.contains(&op) => Closeness::Exact,
        None => Closeness::ByType,
    }
}

/// How the plain inputs of a node arrive.
#[derive(Clone, Copy, PartialEq)]
enum Inputs {
    /// As constants: shapes and values are known while the graph is built.
    Known,
    /// As feeds: nothing is known while the graph is built.
    Fed,
    /// Floats as feeds, the rest (axes, indices) as constants: what a gradient usually sees.
    FloatsFed,
}

/// A graph of one node and what feeds it.
struct Bench {
    scope: Scope,
    inputs: Vec<Output>,
    node: NodeId,
    outputs: Vec<Output>,
    feeds: HashMap<Output, Tensor>,
    /// Gives variables their first values.
    setup: Vec<NodeId>,
    /// Reads variables.
    reads: Vec<Option<Output>>,
}

impl Bench {
    fn new(case: &Value, how: Inputs) -> tensor::Result<Bench> {
        let s = Scope::new(registry());
        let (mut inputs, mut setup, mut reads, mut feeds) = (Vec::new(), Vec::new(), Vec::new(), HashMap::new());
        for (i, input) in list(case, "inputs").iter().enumerate() {
            let name = format!("x{i}");
            let (mut read, initial) = (None, input.get("ref").or(input.get("resource_variable")).map(json::tensor));
            let x = match initial {
                Some(initial) if input.get("ref").is_some() => {
                    let shape = PartialShape::from(initial.shape());
                    let v = s.node("VariableV2").name(name).attr("dtype", initial.dtype()).attr("shape", shape);
                    let v = v.output()?;
                    setup.push(s.op("Assign", &[v, s.constant(initial)?])?.node);
                    read = Some(v);
                    v
                }
                Some(initial) => {
                    let (dtype, shape) = (initial.dtype(), PartialShape::from(initial.shape()));
                    let v = s.node("VarHandleOp").attr("shared_name", name.as_str()).name(name);
                    let v = v.attr("dtype", dtype).attr("shape", shape).output()?;
                    let assign = s.node("AssignVariableOp").input(v).input(s.constant(initial)?);
                    setup.push(assign.attr("dtype", dtype).build()?);
                    read = Some(s.node("ReadVariableOp").input(v).attr("dtype", dtype).output()?);
                    v
                }
                None => {
                    let value = json::tensor(input);
                    let attrs = [("dtype", Attr::Type(value.dtype())), ("shape", Attr::Shape(PartialShape::unknown()))];
                    if how == Inputs::Known || (how == Inputs::FloatsFed && !value.dtype().is_floating()) {
                        s.constant(value)?
                    } else {
                        let [dtype, shape] = attrs;
                        let x = s.node("Placeholder").name(name).attr(dtype.0, dtype.1).attr(shape.0, shape.1);
                        let x = x.output()?;
                        feeds.insert(x, value);
                        x
                    }
                }
            };
            inputs.push(x);
            reads.push(read);
        }
        let mut y = s.node(text(case, "op")).name("y").inputs(&inputs);
        for (name, value) in case["attrs"].as_object().into_iter().flatten() {
            y = y.attr(name, json::attr(value));
        }
        let node = y.build()?;
        let count = s.with_graph(|g| g.node(node).outputs.len());
        let outputs = (0..count as u32).map(|index| Output { node, index }).collect();
        Ok(Bench { scope: s, inputs, node, outputs, feeds, setup, reads })
    }

    fn run(&self, runner: &mut dyn Runner, fetches: &[Output], targets: &[NodeId]) -> tensor::Result<Vec<Tensor>> {
        self.scope.with_graph(|graph| runner.run(graph, &self.feeds, fetches, targets))
    }

    /// The node's outputs, and the variables' values afterwards.
    fn outcome(&self) -> tensor::Result<(Vec<Tensor>, Vec<Option<Tensor>>)> {
        let mut runner = runner::for_nodes();
        if !self.setup.is_empty() {
            self.run(&mut *runner, &[], &self.setup)?;
        }
        let fetched: Vec<Output> = self.outputs.clone();
        let outputs = self.run(&mut *runner, &fetched, &[self.node])?;
        let mut after = Vec::new();
        for read in &self.reads {
            after.push(match read {
                Some(read) => Some(self.run(&mut *runner, &[*read], &[])?.remove(0)),
                None => None,
            });
        }
        Ok((outputs, after))
    }
}

fn node_case(case: &Value, tally: &mut Tally) -> Result<Outcome, String> {
    let op = text(case, "op");
    let mut needed = vec![op, "Const", "Placeholder"];
    for input in list(case, "inputs") {
        if input.get("ref").is_some() {
            needed.extend(["VariableV2", "Assign"]);
        }
        if input.get("resource_variable").is_some() {
            needed.extend(["VarHandleOp", "AssignVariableOp", "ReadVariableOp"]);
        }
    }
    if !has_ops(needed) {
        return Ok(Outcome::Missing);
    }
    for how in [Inputs::Known, Inputs::Fed] {
        let found = Bench::new(case, how).and_then(|bench| bench.outcome().map(|outcome| (bench, outcome)));
        match (case.get("error"), found) {
            (Some(error), Ok(_)) => return Err(format!("wanted {}, found no error", text(error, "code"))),
            (Some(error), Err(found)) => check_error(error, &found, how)?,
            (None, Err(error)) => return Err(format!("{error}")),
            (None, Ok((bench, (outputs, after)))) => {
                check_inference(&bench, &outputs)?;
                check_all(&outputs, list(case, "outputs"), closeness(case, op), "output")?;
                let after: Vec<(usize, Tensor)> =
                    after.into_iter().enumerate().filter_map(|(i, t)| Some((i, t?))).collect();
                for (i, found) in after {
                    let wanted = list(case, "refs_after").get(i).filter(|w| !w.is_null());
                    if let Some(wanted) = wanted
                        && let Some(why) = difference(&found, &json::tensor(wanted), closeness(case, op))
                    {
                        return Err(format!("variable {i} afterwards: {why}"));
                    }
                }
            }
        }
    }
    if let Some(grad) = case.get("grad") {
        check_gradient(case, grad, tally).map_err(|why| format!("gradient: {why}"))?;
    }
    Ok(Outcome::Passed)
}

fn check_error(wanted: &Value, found: &Error, how: Inputs) -> Result<(), String> {
    let code = json::code(text(wanted, "code"));
    // What is refused while the graph is built is an invalid argument, whatever the kernel would have called it.
    let early = how == Inputs::Known && found.code == Code::InvalidArgument;
    if found.code != code && !early {
        return Err(format!("wanted {code:?}, found {found}"));
    }
    Ok(())
}

fn check_all(found: &[Tensor], wanted: &[Value], closeness: Closeness, what: &str) -> Result<(), String> {
    if found.len() != wanted.len() {
        return Err(format!("wanted {} {what}s, found {}", wanted.len(), found.len()));
    }
    for (i, (found, wanted)) in found.iter().zip(wanted).enumerate().filter(|(_, (_, w))| !w.is_null()) {
        if let Some(why) = difference(found, &json::tensor(wanted), closeness) {
            return Err(format!("{what} {i}: {why}"));
        }
    }
    Ok(())
}

/// What was known of the outputs while building must hold for the outputs.
fn check_inference(bench: &Bench, outputs: &[Tensor]) -> Result<(), String> {
    for (&output, found) in bench.outputs.iter().zip(outputs) {
        let info = bench.scope.info(output).map_err(|e| e.to_string())?;
        if !info.shape.accepts(found.shape()) {
            return Err(format!("inferred shape {} of output {}, found {found:?}", info.shape, output.index));
        }
        if let Some(value) = &info.value
            && let Some(why) = difference(value, found, Closeness::ByType)
        {
            return Err(format!("inferred value of output {}: {why}", output.index));
        }
    }
    Ok(())
}

fn check_gradient(case: &Value, grad: &Value, tally: &mut Tally) -> Result<(), String> {
    let op = text(case, "op");
    if !matches!(registry().get(op).map(|o| &o.gradient), Some(Differentiation::By(_) | Differentiation::Zero)) {
        return Err("there is none".into());
    }
    for how in [Inputs::Known, Inputs::FloatsFed] {
        let (bench, grads) = gradient_graph(case, grad, how).map_err(|e| e.to_string())?;
        let mut runner = runner::for_nodes();
        if !bench.setup.is_empty() {
            bench.run(&mut *runner, &[], &bench.setup).map_err(|e| e.to_string())?;
        }
        for (i, (found, wanted)) in grads.iter().zip(list(grad, "dx")).enumerate() {
            let mut same = |found: Output, wanted: &Value| {
                let found = bench.run(&mut *runner, &[found], &[]).map_err(|e| format!("of input {i}: {e}"))?;
                let close = match closeness(case, op) {
                    Closeness::Exact => Closeness::ByType,
                    other => other,
                };
                difference(&found[0], &json::tensor(wanted), close)
                    .map_or(Ok(()), |why| Err(format!("of input {i}: {why}")))
            };
            match (found, wanted, wanted.get("sparse")) {
                (None, Value::Null, _) => {}
                (Some(GradValue::Sparse(found)), _, Some(wanted)) => {
                    same(found.values, &wanted["values"])?;
                    same(found.indices, &wanted["indices"])?;
                    if let (Some(shape), false) = (found.dense_shape, wanted["dense_shape"].is_null()) {
                        let found = bench.run(&mut *runner, &[shape], &[]).map_err(|e| e.to_string())?;
                        let (found, wanted) = (found[0].to_i64s(), json::tensor(&wanted["dense_shape"]).to_i64s());
                        if found != wanted {
                            return Err(format!("of input {i}: dense shape {found:?}, wanted {wanted:?}"));
                        }
                    }
                }
                (Some(GradValue::Dense(found)), wanted, None) if !wanted.is_null() => same(*found, wanted)?,
                (found, wanted, _) => return Err(format!("of input {i}: wanted {wanted}, found {found:?}")),
            }
        }
        if how == Inputs::FloatsFed && !NOT_SMOOTH.contains(&op) {
            check_differences(&bench, &grads, grad, tally)?;
        }
    }
    tally.gradients += 1;
    Ok(())
}

/// The node with the gradients of its inputs, given those of its outputs.
fn gradient_graph(case: &Value, grad: &Value, how: Inputs) -> tensor::Result<(Bench, Vec<Option<GradValue>>)> {
    let bench = Bench::new(case, how)?;
    let s = &bench.scope;
    let (mut ys, mut dys) = (Vec::new(), Vec::new());
    for (i, dy) in list(grad, "dy").iter().enumerate().filter(|(_, dy)| !dy.is_null()) {
        ys.push(bench.outputs[i]);
        dys.push(Some(s.constant(json::tensor(dy))?));
    }
    let grads = framework::gradients(s, &ys, &bench.inputs, &dys, &[])?;
    Ok((bench, grads))
}

/// Compares the gradients of fed `double` inputs with central differences of the sum of `dy * y`.
fn check_differences(
    bench: &Bench,
    grads: &[Option<GradValue>],
    grad: &Value,
    tally: &mut Tally,
) -> Result<(), String> {
    const STEP: f64 = 1e-6;
    let dys: Vec<Option<Tensor>> =
        list(grad, "dy").iter().map(|dy| (!dy.is_null()).then(|| json::tensor(dy))).collect();
    if dys.iter().flatten().any(|dy| dy.dtype() != DType::F64) || !bench.setup.is_empty() {
        return Ok(());
    }
    let mut runner = runner::for_nodes();
    let mut value = |feeds: &HashMap<Output, Tensor>| -> Option<f64> {
        let wanted: Vec<Output> =
            bench.outputs.iter().zip(&dys).filter(|(_, dy)| dy.is_some()).map(|(y, _)| *y).collect();
        let ys = bench.scope.with_graph(|g| runner.run(g, feeds, &wanted, &[])).ok()?;
        let mut total = 0.0;
        for (y, dy) in ys.iter().zip(dys.iter().flatten()) {
            let products = y.as_slice::<f64>().ok()?.iter().zip(dy.as_slice::<f64>().ok()?).map(|(y, dy)| y * dy);
            total += products.sum::<f64>();
        }
        Some(total)
    };
    for (i, (x, grad)) in bench.inputs.iter().zip(grads).enumerate() {
        let (Some(GradValue::Dense(grad)), Some(fed)) = (grad, bench.feeds.get(x)) else { continue };
        if fed.dtype() != DType::F64 {
            continue;
        }
        let found = bench.run(&mut *runner::for_nodes(), &[*grad], &[]).map_err(|e| e.to_string())?;
        let found = found[0].as_slice::<f64>().map_err(|e| e.to_string())?;
        let point = fed.as_slice::<f64>().map_err(|e| e.to_string())?;
        for k in 0..point.len() {
            let mut at = |offset: f64| {
                let mut moved = point.to_vec();
                moved[k] += offset;
                let mut feeds = bench.feeds.clone();
                feeds.insert(*x, Tensor::from_vec(fed.shape(), moved).ok()?);
                value(&feeds)
            };
            let step = STEP.max(point[k].abs() * 1e-9);
            let (Some(above), Some(below)) = (at(step), at(-step)) else { continue };
            let slope = (above - below) / (2.0 * step);
            // What rounding of the sums alone can make of it.
            let noise = 4.0 * f64::EPSILON * above.abs().max(below.abs()) / step;
            // Outside an op's domain there is no slope to compare with.
            if slope.is_finite() && point[k].is_finite() && found[k].is_finite() {
                let error = (slope - found[k]).abs();
                if error > 1e-4 * slope.abs().max(found[k].abs()).max(1.0) + noise {
                    return Err(format!("of input {i}[{k}]: the slope is {slope}, the gradient {}", found[k]));
                }
            }
        }
        tally.differences += 1;
    }
    Ok(())
}

/// Runs the steps of a small graph in one session.
fn graph_case(case: &Value) -> Result<Outcome, String> {
    if !has_ops(list(case, "graph").iter().map(|n| text(n, "op"))) {
        return Ok(Outcome::Missing);
    }
    let folder = tempfile::tempdir().map_err(|e| e.to_string())?;
    for (name, contents) in case["files"].as_object().into_iter().flatten() {
        std::fs::write(folder.path().join(name), json::string(contents)).map_err(|e| e.to_string())?;
    }
    let message = match case.get("graph_def") {
        Some(bytes) => Some(proto::GraphDef::decode(json::string(bytes)).map_err(|e| e.to_string())?),
        None => None,
    };
    let case: Value = serde_json::from_str(&case.to_string().replace("{TMP}", &folder.path().to_string_lossy()))
        .map_err(|e| e.to_string())?;
    let message = message.unwrap_or_else(|| graph_def(&case));
    let graph = framework::graph::import::import(&message, &registry()).map_err(|e| e.to_string())?;
    let find = |name: &str| graph.find_output(name).ok_or_else(|| format!("no output {name}"));
    let mut runner = runner::for_graphs();
    for (number, step) in list(&case, "steps").iter().enumerate() {
        let mut feeds = HashMap::new();
        for (name, value) in step["feeds"].as_object().into_iter().flatten() {
            feeds.insert(find(name)?, json::tensor(value));
        }
        let names =
            |key: &str| list(step, key).iter().filter_map(Value::as_str).map(find).collect::<Result<Vec<_>, _>>();
        let targets: Vec<NodeId> = names("targets")?.into_iter().map(|o| o.node).collect();
        let fetches = names("fetches")?;
        let here = |why: String| format!("step {number}: {why}");
        match (step.get("error"), runner.run(&graph, &feeds, &fetches, &targets)) {
            (Some(error), Ok(_)) => return Err(here(format!("wanted {}, found no error", text(error, "code")))),
            (Some(error), Err(found)) => check_error(error, &found, Inputs::Fed).map_err(here)?,
            (None, Err(error)) => return Err(here(error.to_string())),
            (None, Ok(found)) => {
                let ops: Vec<&str> = fetches.iter().map(|f| graph.node(f.node).op.name.as_str()).collect();
                let close = if ops.iter().all(|o| MOVES.contains(o)) { Closeness::Exact } else { Closeness::ByType };
                let close = case.get("tolerance").map_or(close, |t| Closeness::Within(json::real(t)));
                check_all(&found, list(step, "outputs"), close, "fetch").map_err(here)?;
            }
        }
    }
    Ok(Outcome::Passed)
}

fn graph_def(case: &Value) -> proto::GraphDef {
    let nodes = list(case, "graph").iter().map(|node| proto::NodeDef {
        name: text(node, "name").into(),
        op: text(node, "op").into(),
        input: list(node, "inputs").iter().filter_map(Value::as_str).map(String::from).collect(),
        attr: node["attrs"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(name, value)| (name.clone(), json::attr(value).to_proto()))
            .collect(),
        ..Default::default()
    });
    proto::GraphDef { node: nodes.collect(), ..Default::default() }
}

#[test]
fn every_data_file_is_replayed() {
    let found = std::fs::read_dir(json::folder()).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
    let not_cases = ["opdefs.json"];
    let forgotten: Vec<String> = found
        .filter(|n| n.ends_with(".json") && !FILES.contains(&n.as_str()) && !not_cases.contains(&n.as_str()))
        .collect();
    assert!(forgotten.is_empty(), "no test replays {forgotten:?}");
}

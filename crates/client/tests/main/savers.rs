//! Savers: the graph they make is TensorFlow's, and what they save is restored.

use ferroflow::fixed_size_partitioner;
use ferroflow::prelude::*;
use ferroflow::train::{checkpoint_state, latest_checkpoint};
use prost::Message;
use std::path::PathBuf;

/// What TensorFlow exported: see testdata/training/make_savers.py.
fn theirs(name: &str) -> proto::MetaGraphDef {
    let path = format!("{}/../../testdata/training/savers/{name}.meta", env!("CARGO_MANIFEST_DIR"));
    let bytes = std::fs::read(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    proto::MetaGraphDef::decode(bytes.as_slice()).unwrap()
}

/// The nodes of a saver, a line each, in order of their names, without what TensorFlow's own bookkeeping adds.
fn lines(graph: &proto::GraphDef) -> Vec<String> {
    let mut graph = graph.clone();
    graph.node.retain(|node| node.op != "DisableCopyOnRead"); // which nothing runs
    for node in &mut graph.node {
        // Control inputs have no order of their own, and are the last.
        node.input.sort_by_key(|input| input.strip_prefix('^').map(str::to_string));
        for noted in ["_has_manual_control_dependencies", "_output_shapes", "debug_name"] {
            node.attr.remove(noted);
        }
    }
    let text = Graph::import(&graph).unwrap().to_string();
    let mut lines: Vec<String> = text.lines().filter(|l| l.starts_with("save")).map(str::to_string).collect();
    lines.sort();
    lines
}

fn options(resource: bool) -> VariableOptions {
    VariableOptions { resource: Some(resource), ..Default::default() }
}

fn variables(g: &Graph, resource: bool) {
    g.variable_with("b", [[1.0f32, 2.0, 3.0], [4.0, 5.0, 6.0]], options(resource));
    g.device("/job:ps/task:0", || g.variable_with("a", [1.5f32, -2.0], options(resource)));
    let fixed = VariableOptions { trainable: false, ..options(resource) };
    g.device("/job:ps/task:1", || g.variable_with("c", ["x", "yz"], fixed));
}

fn whole(g: &Graph, resource: bool) -> Saver {
    g.global_step();
    variables(g, resource);
    Saver::new(g)
}

fn sharded(g: &Graph, resource: bool) -> Saver {
    variables(g, resource);
    let saver = || Saver::builder(g).sharded(true).max_to_keep(3).keep_checkpoint_every_n_hours(2.5).build();
    g.device("/job:worker", saver)
}

fn partitioned(g: &Graph, resource: bool) {
    g.variable_with("a", [1i32, 2, 3], options(resource));
    let zeros = initializers::zeros([7, 2]);
    let build = || g.partitioned_variable_with("b", zeros, &fixed_size_partitioner(3), options(resource));
    g.device("/job:ps/task:1", build);
}

fn in_parts(g: &Graph, resource: bool) -> Saver {
    partitioned(g, resource);
    Saver::new(g)
}

fn in_parts_sharded(g: &Graph, resource: bool) -> Saver {
    partitioned(g, resource);
    Saver::builder(g).sharded(true).build()
}

fn check_graph(name: &str, build: fn(&Graph, bool) -> Saver) {
    for (kind, resource) in [("reference", false), ("resource", true)] {
        let theirs = theirs(&format!("{name}_{kind}"));
        let g = Graph::new();
        let saver = build(&g, resource);
        let (ours, theirs_lines) = (lines(&g.to_graph_def().unwrap()), lines(theirs.graph_def.as_ref().unwrap()));
        let only = |these: &[String], those: &[String]| -> Vec<String> {
            these.iter().filter(|line| !those.contains(line)).cloned().collect()
        };
        let (more, missing) = (only(&ours, &theirs_lines), only(&theirs_lines, &ours));
        assert!(more.is_empty() && missing.is_empty(), "{name}_{kind}: ours {more:#?}, TensorFlow's {missing:#?}");
        assert_eq!(saver.to_saver_def().unwrap(), theirs.saver_def.unwrap(), "{name}_{kind}");
    }
}

#[test]
fn a_savers_nodes_are_tensorflows() {
    check_graph("whole", whole);
    check_graph("sharded", sharded);
    check_graph("in_parts", in_parts);
    check_graph("in_parts_sharded", in_parts_sharded);
}

#[test]
fn what_tensorflow_exported_is_imported() {
    for name in ["whole", "sharded", "in_parts", "in_parts_sharded"] {
        for kind in ["reference", "resource"] {
            let theirs = theirs(&format!("{name}_{kind}"));
            let (g, saver) = Graph::from_meta_graph(&theirs).unwrap();
            let mut again = g.to_meta_graph(saver.as_ref()).unwrap();
            assert_eq!(again.saver_def, theirs.saver_def, "{name}_{kind}");
            assert_eq!(again.collection_def.len(), theirs.collection_def.len(), "{name}_{kind}");
            for (collection, theirs) in &theirs.collection_def {
                let ours = again.collection_def.remove(collection);
                assert_eq!(ours.map(variable_defs), Some(variable_defs(theirs.clone())), "{name}_{kind} {collection}");
            }
        }
    }
}

/// The variables of a collection. How replicas of one are brought together is not for graphs of the first kind.
fn variable_defs(collection: proto::CollectionDef) -> Vec<proto::VariableDef> {
    let Some(proto::collection_def::Kind::BytesList(list)) = collection.kind else { panic!("{collection:?}") };
    let decode = |bytes| proto::VariableDef { aggregation: 0, ..proto::VariableDef::decode(bytes).unwrap() };
    list.value.into_iter().map(decode).collect()
}

#[test]
fn what_was_saved_is_restored() {
    for sharded in [false, true] {
        for resource in [false, true] {
            let g = Graph::new();
            let a = g.variable_with("layer/a", [[1.0f32, 2.0], [3.0, 4.0]], options(resource));
            let n = g.variable_with("n", 7i64, options(resource));
            let text = g.variable_with("text", ["hello", ""], options(resource));
            let change = g.group(&[&a.assign(&a * 10.0), &n.assign_add(1i64)]);
            let init = g.initialize_all();
            let saver = Saver::builder(&g).sharded(sharded).build();
            let folder = tempfile::tempdir().unwrap();
            let session = Session::new(&g).unwrap();
            session.run(&init).unwrap();
            let path = saver.save(&session, folder.path().join("model.ckpt"), Some(3)).unwrap();
            assert_eq!(path, folder.path().join("model.ckpt-3"));
            session.run(&change).unwrap();
            assert_eq!(session.run(&n).unwrap().item::<i64>().unwrap(), 8);
            saver.restore(&session, &path).unwrap();
            let (a, n, text) = session.run((&a, &n, &text)).unwrap();
            assert_eq!(a, Tensor::from([[1.0f32, 2.0], [3.0, 4.0]]));
            assert_eq!(n, Tensor::from(7i64));
            assert_eq!(text, Tensor::from(["hello", ""]));
            let mut names: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
            names.sort();
            let wanted = ["checkpoint", "model.ckpt-3.data-00000-of-00001", "model.ckpt-3.index", "model.ckpt-3.meta"];
            assert_eq!(names, wanted);
        }
    }
}

#[test]
fn variables_may_have_other_names_in_a_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let g = Graph::new();
    let (a, b) = (g.variable("a", 1.0f32), g.variable("b", 2.0f32));
    let swap = Saver::builder(&g).variables_as([("a", &b), ("b", &a)]).build();
    let saver = Saver::builder(&g).variables([&a, &b]).build();
    let init = g.initialize_all();
    let session = Session::new(&g).unwrap();
    session.run(&init).unwrap();
    let path = saver.save(&session, folder.path().join("m"), None).unwrap();
    swap.restore(&session, &path).unwrap();
    let values = session.run((&a, &b)).unwrap();
    assert_eq!(values, (Tensor::from(2.0f32), Tensor::from(1.0f32)));
}

#[test]
fn the_latest_few_are_kept_also_by_the_next_run() {
    let folder = tempfile::tempdir().unwrap();
    let prefix = folder.path().join("model");
    let path = |step: i64| folder.path().join(format!("model-{step}"));
    let run = |steps: std::ops::Range<i64>| {
        let g = Graph::new();
        g.variable("w", 1.0f32);
        let init = g.initialize_all();
        let saver = Saver::builder(&g).max_to_keep(2).build();
        if let Some(state) = checkpoint_state(folder.path()).unwrap() {
            saver.recover_last_checkpoints(&state.all).unwrap();
        }
        let session = Session::new(&g).unwrap();
        session.run(&init).unwrap();
        for step in steps {
            saver.save(&session, &prefix, Some(step)).unwrap();
        }
        assert_eq!(latest_checkpoint(folder.path()).unwrap(), saver.last_checkpoints().pop());
        saver.last_checkpoints()
    };
    assert_eq!(run(0..3), [path(1), path(2)]);
    assert_eq!(run(3..4), [path(2), path(3)]);
    let indexes = std::fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().path());
    let mut indexes: Vec<PathBuf> = indexes.filter(|p| p.extension().is_some_and(|e| e == "index")).collect();
    indexes.sort();
    assert_eq!(indexes, [path(2), path(3)].map(|p| p.with_extension("index")));
}

#[test]
fn what_does_not_fit_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let g = Graph::new();
    g.variable("a", [1.0f32, 2.0]);
    g.variable("b", 1i32);
    let init = g.initialize_all();
    let saver = Saver::new(&g);
    let session = Session::new(&g).unwrap();
    session.run(&init).unwrap();
    let path = saver.save(&session, folder.path().join("m"), Some(5)).unwrap();

    let check = |prefix: &PathBuf, build: &dyn Fn(&Graph), code: Code, parts: &[&str]| {
        let g = Graph::new();
        build(&g);
        let saver = Saver::new(&g);
        let error = saver.restore(&Session::new(&g).unwrap(), prefix).unwrap_err();
        assert_eq!(error.code, code, "{error}");
        let file = prefix.to_str().unwrap();
        for part in parts.iter().chain(&[file]) {
            assert!(error.message.contains(part), "{part} is not in: {error}");
        }
    };
    let shape = |g: &Graph| drop(g.variable("a", [1.0f32, 2.0, 3.0]));
    check(&path, &shape, Code::InvalidArgument, &["a: wanted float[3], found float[2]"]);
    let dtype = |g: &Graph| drop(g.variable("b", 1i64));
    check(&path, &dtype, Code::InvalidArgument, &["b: wanted int64[], found int32[]"]);
    let name = |g: &Graph| drop(g.variable("c", 1i64));
    check(
        &path,
        &name,
        Code::NotFound,
        &["Key c not found in checkpoint: wanted int64[], the 2 tensors in it are a, b"],
    );
    let gone = folder.path().join("m-6");
    check(&gone, &shape, Code::NotFound, &["Failed to find any matching files"]);
    let data = folder.path().join("m-5.data-00000-of-00001");
    let mut bytes = std::fs::read(&data).unwrap();
    bytes[0] ^= 1;
    std::fs::write(&data, bytes).unwrap();
    let fits = |g: &Graph| drop(g.variable("a", [1.0f32, 2.0]));
    check(&path, &fits, Code::DataLoss, &["m-5.data-00000-of-00001", "tensor \"a\"", "checksum"]);
}

#[test]
fn a_saver_of_nothing_is_a_mistake_unless_it_is_wanted() {
    let g = Graph::new();
    Saver::new(&g);
    assert!(g.check().unwrap_err().message.contains("No variables to save"));

    let g = Graph::new();
    let saver = Saver::builder(&g).allow_empty(true).build();
    let session = Session::new(&g).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = saver.save(&session, folder.path().join("m"), None).unwrap();
    saver.restore(&session, path).unwrap();
    assert_eq!(latest_checkpoint(folder.path()).unwrap(), None);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);

    let g = Graph::new();
    let (a, b) = (g.variable("a", 1.0f32), g.variable("b", 2.0f32));
    Saver::builder(&g).variables_as([("x", &a), ("x", &b)]).build();
    assert!(g.check().unwrap_err().message.contains("At least two variables have the same name: x"));
}

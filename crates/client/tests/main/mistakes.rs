//! A mistake is kept with its line, and returned when the graph is used.

use ferroflow::prelude::*;

/// Checks the first mistake of a graph: its code, part of its sentence, and the line it was made on.
#[track_caller]
fn check(g: &Graph, code: Code, contains: &str, line: u32) {
    let error = g.check().expect_err("a mistake was made");
    let place = format!("built at {}:{line}", file!());
    assert_eq!(error.code, code, "{error}");
    assert!(error.message.contains(contains) && error.message.contains(&place), "{error}\nwanted {contains} {place}");
    let opened = Session::new(g).err().expect("no session is opened on a graph with a mistake");
    assert_eq!(opened.message, error.message);
}

#[test]
fn shapes_that_do_not_fit_are_told_with_the_line() {
    let g = Graph::new();
    let (a, b) = (g.constant([[1.0f32, 2.0]]), g.constant([[1.0f32], [2.0], [3.0]]));
    let wrong = a.matmul(&b);
    let line = line!() - 1;
    let _more = (&wrong * 2.0).relu().sum();
    check(&g, Code::InvalidArgument, "MatMul", line);
}

#[test]
fn operators_tell_the_line_too() {
    let g = Graph::new();
    let _ = g.constant([1.0f32, 2.0]) + g.constant([1.0f32, 2.0, 3.0]);
    check(&g, Code::InvalidArgument, "[2]", line!() - 1);
    let g = Graph::new();
    let _ = g.constant([1i32, 2]) * 0.5;
    check(&g, Code::InvalidArgument, "0.5", line!() - 1);
    let g = Graph::new();
    let _ = g.constant(1.0f32) + g.constant(1i32);
    check(&g, Code::InvalidArgument, "int32", line!() - 1);
}

#[test]
fn a_variables_name_must_be_new() {
    let g = Graph::new();
    g.variable("w", 1.0f32);
    g.variable("w", 2.0f32);
    check(&g, Code::AlreadyExists, "w", line!() - 1);
}

#[test]
fn mistakes_inside_what_we_build_for_the_user_are_the_users() {
    let g = Graph::new();
    let x = g.constant(["a"]);
    let _ = ferroflow::clip_by_norm(&x, 1.0);
    check(&g, Code::InvalidArgument, "string", line!() - 1);
    let g = Graph::new();
    let _ = ferroflow::global_norm(&[Gradient::from(g.constant(["a"]))]);
    check(&g, Code::InvalidArgument, "string", line!() - 1);
    let g = Graph::new();
    let x = g.constant(1.0f32);
    let _ = cond(&x, || x.relu(), || x.abs());
    check(&g, Code::InvalidArgument, "bool", line!() - 1);
}

#[test]
fn a_loss_without_variables_cannot_be_minimised() {
    let g = Graph::new();
    g.variable("w", 1.0f32);
    let loss = g.constant(1.0f32);
    let train = Adam::new(0.1).minimize(&loss);
    check(&g, Code::InvalidArgument, "No gradients provided", line!() - 1);
    let other = Graph::new();
    let error = Session::new(&other).unwrap().run(&train).unwrap_err();
    assert!(error.message.contains("No gradients provided"), "{error}");
}

#[test]
fn graphs_are_not_mixed() {
    let (g, h) = (Graph::new(), Graph::new());
    let (a, b) = (g.constant(1.0f32), h.constant(1.0f32));
    let _ = a.matmul(&b);
    check(&g, Code::InvalidArgument, "belongs to another graph", line!() - 1);
}

#[test]
fn a_device_that_cannot_be_read_is_a_mistake() {
    let g = Graph::new();
    let _ = g.device("ps:0", || g.constant(1.0f32));
    check(&g, Code::InvalidArgument, "ps:0", line!() - 1);
}

#[test]
fn the_first_mistake_wins_and_the_rest_is_void() {
    let g = Graph::new();
    let missing = g.find("nothing");
    let line = line!() - 1;
    let w = g.variable("w", &missing + 1.0);
    let train = GradientDescent::new(0.1).minimize(&(w.square() + &missing));
    let _ = (train, concat(&[&missing, &missing], 0), while_loop(missing.clone(), |x| x.less(1.0), |x| x + 1.0));
    check(&g, Code::NotFound, "nothing", line);
}

#[test]
fn bad_runs_name_the_node() {
    let g = Graph::new();
    let x = g.placeholder::<f32>([None, Some(2)]);
    let w = g.variable("w", 1.0f32);
    let y = x.sum() * &w;
    let session = Session::new(&g).unwrap();
    let error = session.run_with(&y, feed! { x => [[1.0f32, 2.0]] }).unwrap_err();
    assert_eq!(error.code, Code::FailedPrecondition, "{error}");
    assert!(error.message.contains('w'), "{error}");
    session.run(w.initializer()).unwrap();
    let error = session.run(&y).unwrap_err();
    assert_eq!(error.code, Code::InvalidArgument, "{error}");
    assert!(error.message.contains("Placeholder"), "{error}");
    let error = session.run_with(&y, feed! { x => [1.0f32] }).unwrap_err();
    assert_eq!(error.code, Code::InvalidArgument, "{error}");
}

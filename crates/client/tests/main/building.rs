//! What is built, under which names, on which devices.

use ferroflow::prelude::*;

fn text(g: &Graph) -> String {
    g.scope().with_graph(|g| g.to_string())
}

#[test]
fn a_reference_variable_has_tensorflows_nodes() {
    let g = Graph::new();
    g.variable("w", [1.0f32, 2.0]);
    g.initialize_all();
    let nodes: Vec<String> =
        g.scope().with_graph(|g| g.nodes().map(|(_, n)| format!("{} {}", n.op.name, n.name)).collect());
    assert_eq!(nodes, ["Const w/initial_value", "VariableV2 w", "Assign w/Assign", "Identity w/read", "NoOp init"]);
    let class = g.scope().with_graph(|g| g.node(g.find("w/read").unwrap()).colocated_with());
    assert_eq!(class, ["w"]);
}

#[test]
fn a_resource_variable_has_tensorflows_nodes() {
    let g = Graph::new();
    g.resource_variable("w", initializers::zeros([2]));
    let nodes: Vec<String> =
        g.scope().with_graph(|g| g.nodes().map(|(_, n)| format!("{} {}", n.op.name, n.name)).collect());
    assert_eq!(
        nodes,
        [
            "Const w/Initializer/zeros",
            "VarHandleOp w",
            "VarIsInitializedOp w/IsInitialized/VarIsInitializedOp",
            "AssignVariableOp w/Assign",
            "ReadVariableOp w/Read/ReadVariableOp"
        ]
    );
}

#[test]
fn names_are_numbered_as_tensorflow_numbers_them() {
    let g = Graph::new();
    let x = g.constant(1.0f32);
    let sums: Vec<String> = (0..3).map(|_| (&x + 1.0).name()).collect();
    assert_eq!(sums, ["add", "add_1", "add_2"]);
    let scoped: Vec<String> = (0..2).map(|_| g.name_scope("layer", || x.relu().name())).collect();
    assert_eq!(scoped, ["layer/Relu", "layer_1/Relu"]);
    assert!(text(&g).contains("add_1/y = Const"), "{}", text(&g));
}

#[test]
fn devices_names_and_dependencies_hold_inside_their_closures_only() {
    let g = Graph::new();
    let w = g.device("/job:ps/task:0", || g.variable("w", initializers::zeros([2])));
    let first = w.assign_add(Tensor::from([1.0f32, 1.0]));
    let y = g.device("/job:worker", || {
        g.device("/task:7", || g.control_dependencies(&[&first], || g.name_scope("tower", || w.read() * 2.0)))
    });
    let z = y.relu();
    let (device, controls) = g.scope().with_graph(|g| {
        let node = g.node(g.find("tower/mul").unwrap());
        (node.device.clone(), node.control_inputs.len())
    });
    assert_eq!(device, "/job:worker/task:7");
    assert_eq!(controls, 1);
    let found = |name: &str| g.scope().with_graph(|g| g.node(g.find(name).unwrap()).device.clone());
    assert_eq!(found(&z.name()), "");
    assert_eq!(found("w/Initializer/zeros"), "/job:ps/task:0");
    assert_eq!(found("w/Assign"), "/job:ps/task:0");
    assert_eq!(found("AssignAdd"), "/job:ps/task:0", "an update happens where the variable is");
    g.check().unwrap();
}

#[test]
fn a_device_may_be_a_function_of_the_node() {
    let g = Graph::new();
    let w = g.device(
        |node: &framework::scope::DeviceQuery<'_>| {
            if node.op == "VariableV2" { "/job:ps".parse() } else { "/job:worker".parse() }
        },
        || g.variable("w", 1.0f32),
    );
    let device = |name: &str| g.scope().with_graph(|g| g.node(g.find(name).unwrap()).device.clone());
    assert_eq!(device(&w.name()), "/job:ps");
    assert_eq!(device("w/initial_value"), "/job:worker");
}

#[test]
fn groups_report_once_for_each_device() {
    let g = Graph::new();
    let (a, b) = (g.device("/job:a", || g.variable("a", 1.0f32)), g.device("/job:b", || g.variable("b", 1.0f32)));
    let both = g.group(&[a.initializer(), b.initializer()]);
    let name = both.name();
    let parts = g.scope().with_graph(|graph| {
        let node = graph.node(graph.find(&name).unwrap());
        node.control_inputs.iter().map(|&c| graph.node(c).device.clone()).collect::<Vec<_>>()
    });
    assert_eq!(parts, ["/job:a", "/job:b"]);
}

#[test]
fn operators_take_outputs_variables_and_numbers() {
    let g = Graph::new();
    let x = g.constant([1.0f32, 2.0]);
    let w = g.variable("w", [3.0f32, 4.0]);
    let i = g.constant([7i32, -7]);
    let all = [
        &x + &w,
        &w - &x,
        x.clone() * &w,
        &x / 2.0,
        1.0 - &x,
        2.0 * &w + 1.0f32,
        -&x,
        (&i / 2).cast::<f32>(),
        (&i * 2i64).cast::<f32>(),
        x.pow(2.0),
        x.maximum(1.5),
    ];
    let session = Session::new(&g).unwrap();
    session.run(w.initializer()).unwrap();
    let found: Vec<Vec<f32>> = session.run(&all).unwrap().into_iter().map(|t| t.into_vec().unwrap()).collect();
    let want = [
        [4.0, 6.0],
        [2.0, 2.0],
        [3.0, 8.0],
        [0.5, 1.0],
        [0.0, -1.0],
        [7.0, 9.0],
        [-1.0, -2.0],
        [3.0, -3.0],
        [14.0, -14.0],
        [1.0, 4.0],
        [1.5, 2.0],
    ];
    assert_eq!(found, want);
}

#[test]
fn elements_are_moved_about() {
    let g = Graph::new();
    let x = g.constant([[1, 2, 3], [4, 5, 6]]);
    let session = Session::new(&g).unwrap();
    let check = |y: Output, dims: &[usize], values: &[i32]| {
        let found = session.run(&y).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!((found.dims(), found.as_slice::<i32>().unwrap()), (dims, values), "{}", y.name());
        assert!(y.shape().accepts(found.shape()), "{}", y.name());
    };
    check(x.reshape(&[3, -1]), &[3, 2], &[1, 2, 3, 4, 5, 6]);
    check(x.transpose(), &[3, 2], &[1, 4, 2, 5, 3, 6]);
    check(x.permute(&[1, 0]), &[3, 2], &[1, 4, 2, 5, 3, 6]);
    check(x.slice(&[0, 1], &[-1, 2]), &[2, 2], &[2, 3, 5, 6]);
    check(x.row(1), &[3], &[4, 5, 6]);
    check(x.row(-1), &[3], &[4, 5, 6]);
    check(x.gather(&g.constant([1])), &[1, 3], &[4, 5, 6]);
    check(x.gather_along(&g.constant([2, 0]), 1), &[2, 2], &[3, 1, 6, 4]);
    check(x.expand_dims(0).squeeze(&[]), &[2, 3], &[1, 2, 3, 4, 5, 6]);
    check(x.row(0).tile(&[2]), &[6], &[1, 2, 3, 1, 2, 3]);
    check(x.row(0).pad(&[[1, 0]]), &[4], &[0, 1, 2, 3]);
    check(concat(&[&x, &x], 1), &[2, 6], &[1, 2, 3, 1, 2, 3, 4, 5, 6, 4, 5, 6]);
    check(stack(&[&x.row(0), &x.row(1)], 1), &[3, 2], &[1, 4, 2, 5, 3, 6]);
    check(g.constant([0, 2]).one_hot::<i32>(3), &[2, 3], &[1, 0, 0, 0, 0, 1]);
    check(x.sum_axes(&[0], false), &[3], &[5, 7, 9]);
    check(x.max_axes(&[1], true), &[2, 1], &[3, 6]);
    check(x.sum(), &[], &[21]);
    check(x.argmax(1).cast::<i32>(), &[2], &[2, 2]);
    check(x.greater(3).select(&x, &-&x), &[2, 3], &[-1, -2, -3, 4, 5, 6]);
    check(x.shape_output(), &[2], &[2, 3]);
}

#[test]
fn layers_and_losses_compute() {
    let g = Graph::new();
    let logits = g.constant([[1.0f32, 2.0, 3.0], [1.0, 1.0, 1.0]]);
    let dense = logits.softmax_cross_entropy(&g.constant([[0.0f32, 0.0, 1.0], [1.0, 0.0, 0.0]]));
    let sparse = logits.sparse_softmax_cross_entropy(&g.constant([2, 0]));
    let deep = logits.reshape(&[1, 2, 3]).sparse_softmax_cross_entropy(&g.constant([[2, 0]]));
    let binary = g.constant([0.0f32, 2.0]).sigmoid_cross_entropy(&g.constant([1.0f32, 0.0]));
    let kept = logits.dropout(&g.constant(1.0f32));
    let image = g.constant(Tensor::from_vec([1, 4, 4, 1], (0..16).map(|i| i as f32).collect()).unwrap());
    let filter = g.constant(Tensor::from_vec([2, 2, 1, 1], vec![1.0f32; 4]).unwrap());
    let valid = image.conv2d(&filter, Conv2d { strides: [2, 2], ..Conv2d::valid() });
    let pooled = image.max_pool(Pool::by(2));
    let mean = image.avg_pool(Pool::by(4));
    let session = Session::new(&g).unwrap();
    let run = |y: &Output| session.run(y).unwrap().into_vec::<f32>().unwrap();
    let near = |found: &[f32], want: &[f32]| found.iter().zip(want).all(|(f, w)| (f - w).abs() < 1e-5);
    assert!(near(&run(&dense), &[0.407606, 1.0986123]), "{:?}", run(&dense));
    assert!(near(&run(&sparse), &run(&dense)));
    assert_eq!(session.run(&deep).unwrap().dims(), [1, 2]);
    assert!(near(&run(&deep), &run(&dense)));
    assert!(near(&run(&binary), &[std::f32::consts::LN_2, 2.126928]), "{:?}", run(&binary));
    assert_eq!(run(&kept), run(&logits));
    assert_eq!(run(&valid), [10.0, 18.0, 42.0, 50.0]);
    assert_eq!(run(&pooled), [5.0, 7.0, 13.0, 15.0]);
    assert_eq!(run(&mean), [7.5]);
}

#[test]
fn rows_looked_up_have_a_sparse_gradient_on_both_kinds_of_variables() {
    for resource in [false, true] {
        let g = Graph::new();
        g.use_resource_variables(resource);
        let table = g.variable("table", [[1.0f32], [2.0], [3.0]]);
        let rows = table.embedding_lookup(&g.constant([2i64, 0, 2]));
        let both = rows.sum() + table.square().sum();
        let sparse = gradients(&[&rows], &[&table]).remove(0).unwrap();
        let summed = gradients(&[&both], &[&table]).remove(0).unwrap();
        assert!(matches!(sparse, Gradient::Sparse(_)), "resource: {resource}");
        let session = Session::new(&g).unwrap();
        session.run(table.initializer()).unwrap();
        assert_eq!(session.run(sparse.dense()).unwrap(), Tensor::from([[1.0f32], [0.0], [2.0]]));
        assert_eq!(session.run(summed.dense()).unwrap(), Tensor::from([[3.0f32], [4.0], [8.0]]));
    }
}

#[test]
fn a_graph_goes_out_and_in_again() {
    let g = Graph::new();
    let y = (g.constant(2.0f32) * 3.0).named("answer");
    let again = Graph::import(&g.to_graph_def().unwrap()).unwrap();
    let found = again.find("answer");
    assert_eq!(found.name(), y.name());
    assert_eq!(Session::new(&again).unwrap().run(&found).unwrap().item::<f32>().unwrap(), 6.0);
}

#[test]
fn seeds_make_runs_repeatable() {
    let draw = || {
        let g = Graph::new();
        g.set_seed(7);
        let x = g.random_normal([4], 0.0, 1.0);
        Session::new(&g).unwrap().run(&x).unwrap()
    };
    assert_eq!(draw(), draw());
    let g = Graph::new();
    let x = g.truncated_normal([100], 1.0, 0.1);
    let found = Session::new(&g).unwrap().run(&x).unwrap().into_vec::<f32>().unwrap();
    assert!(found.iter().all(|v| (v - 1.0).abs() <= 0.2), "{found:?}");
}

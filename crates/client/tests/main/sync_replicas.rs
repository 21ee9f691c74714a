//! Synchronous training: its graph beside TensorFlow's, and workers that step together.

use crate::golden;
use ferroflow::prelude::*;
use ferroflow::train::{Coordinator, Hook, LostWorker, Supervisor};
use serde_json::Value;
use std::collections::BTreeSet;
use std::time::Duration;

/// The graph of the golden file, and what a program runs of it.
fn golden_graph(case: &Value) -> (Graph, Vec<(&'static str, String)>) {
    let g = Graph::new();
    g.use_resource_variables(case["resource"] == true);
    let cluster = ClusterSpec::new().job("ps", ["a:1", "b:1"]).job("worker", ["c:1", "d:1"]);
    let ops = g.device(replica_device_setter(&cluster).worker_device("/job:worker/task:1"), || {
        let options = VariableOptions { trainable: false, ..Default::default() };
        let zero = if case["step"] == "int32" { Tensor::from(0i32) } else { Tensor::from(0i64) };
        let step = g.variable_with("global_step", zero, options);
        let w = g.variable("w", initializers::zeros([4, 3]));
        let table = g.variable("table", initializers::zeros([5, 3]));
        let x = g.placeholder::<f32>([None, Some(4)]);
        let ids = g.placeholder::<i32>([None]);
        let loss = x.matmul(&w).sum() + table.embedding_lookup(&ids).sum();
        let optimizer = SyncReplicas::new(GradientDescent::new(0.1)).replicas_to_aggregate(2).total_num_replicas(3);
        let train = optimizer.minimize(&loss).increment(&step);
        vec![
            ("train", train.name()),
            ("init_tokens", optimizer.get_init_tokens_op(None).unwrap().name()),
            ("chief_init", optimizer.chief_init_op().unwrap().name()),
            ("local_step_init", optimizer.local_step_init_op().unwrap().name()),
            ("hand_out", optimizer.get_chief_queue_runner().unwrap().to_proto().enqueue_op_name[0].clone()),
        ]
    });
    g.check().unwrap();
    (g, ops)
}

/// What the optimizer inside adds, how groups and initial values are named, and reads nobody takes: these say nothing of
/// what workers share.
fn is_our_own_affair(name: &str) -> bool {
    ["GradientDescent", "sync_replicas/group_deps/"].iter().any(|scope| name.starts_with(scope))
        || name.ends_with("/initial_value")
        || ["ReadVariableOp_1", "ReadVariableOp_2", "sync_rep_local_step/Assign"].contains(&name)
}

fn texts(value: &Value) -> Vec<String> {
    value.as_array().expect("a list").iter().map(|v| v.as_str().expect("text").to_string()).collect()
}

#[test]
fn nodes_are_tensorflows_node_by_node() {
    golden::check_all("sync_replicas.json", |case| {
        let (g, ops) = golden_graph(case);
        for (what, name) in ops {
            if case["ops"][what] != name.as_str() {
                return Err(format!("{what} is {name}, wanted {}", case["ops"][what]));
            }
        }
        let found = g.to_graph_def().unwrap();
        let nodes = case["nodes"].as_array().expect("nodes");
        let wanted: Vec<&Value> = nodes.iter().filter(|n| !is_our_own_affair(n[0].as_str().unwrap())).collect();
        assert!(wanted.len() > 25);
        let differences: Vec<String> = wanted.into_iter().filter_map(|want| difference(&found, want)).collect();
        if differences.is_empty() { Ok(()) } else { Err(differences.join("\n")) }
    });
}

/// How our node of this name differs from TensorFlow's.
fn difference(found: &proto::GraphDef, want: &Value) -> Option<String> {
    let name = want[0].as_str().expect("a name");
    let Some(node) = found.node.iter().find(|n| n.name == name) else { return Some(format!("there is no {name}")) };
    let inputs = |inputs: &[String]| -> BTreeSet<String> {
        let others =
            inputs.iter().filter(|i| !i.starts_with("gradients/") && !i.starts_with("^sync_replicas/group_deps/"));
        others.filter(|i| !i.ends_with("/initial_value")).cloned().collect()
    };
    let text = |attr: &str| {
        node.attr.get(attr).map(|a| match a.value.clone() {
            Some(proto::attr_value::Value::S(text)) => String::from_utf8(text.to_vec()).unwrap(),
            Some(proto::attr_value::Value::List(list)) => String::from_utf8(list.s[0].to_vec()).unwrap(),
            other => panic!("{attr} is {other:?}"),
        })
    };
    let attr = |attr: &str| text(attr).filter(|text| !text.is_empty());
    let ours = (node.op.clone(), node.device.clone(), inputs(&node.input), attr("shared_name"), attr("_class"));
    let golden = |attr: &str| want[4][attr].as_str().map(String::from);
    let theirs = (
        want[1].as_str()?.to_string(),
        want[2].as_str()?.to_string(),
        inputs(&texts(&want[3])),
        golden("shared_name"),
        golden("_class"),
    );
    (ours != theirs).then(|| format!("{name} is\n  {ours:?}, wanted\n  {theirs:?}"))
}

/// A small network on a parameter server, and what trains it.
struct Net {
    x: Output,
    y: Output,
    w: Variable,
    loss: Output,
}

fn net(g: &Graph) -> Net {
    let w = g.variable("w", [[0.5f32], [-0.5], [0.25]]);
    let b = g.variable("b", [0.0f32]);
    let (x, y) = (g.placeholder::<f32>([None, Some(3)]), g.placeholder::<f32>([None, Some(1)]));
    let loss = (x.matmul(&w) + &b - &y).square().mean();
    Net { x, y, w, loss }
}

/// Points, `times` over.
fn points(times: usize) -> (Tensor, Tensor) {
    let x = [[1.0f32, 2.0, -1.0], [0.5, -1.0, 2.0], [-1.5, 0.5, 1.0], [2.0, 1.0, 0.0]];
    let y = [3.0f32, -2.0, 0.5, 1.0];
    let xs = x.iter().cycle().take(4 * times).flatten().copied().collect();
    let ys = y.iter().cycle().take(4 * times).copied().collect();
    (Tensor::from_vec([4 * times, 3], xs).unwrap(), Tensor::from_vec([4 * times, 1], ys).unwrap())
}

const LIMIT: Duration = Duration::from_secs(30);

/// One worker of several, with its session.
struct Worker {
    session: Session,
    threads: Coordinator,
    net: Net,
    step: Variable,
    train: Operation,
}

impl Worker {
    /// The chief is the first, and has made the model ready when the others come.
    fn start(server: &Server, index: u32, optimizer: SyncReplicas, resource: bool) -> Worker {
        let g = Graph::new();
        g.use_resource_variables(resource);
        let setter = replica_device_setter(server.cluster()).worker_device(format!("/job:worker/task:{index}"));
        let (net, step, train) = g.device(setter, || {
            let step = g.global_step();
            let net = net(&g);
            let train = optimizer.minimize(&net.loss).increment(&step);
            (net, step, train)
        });
        let mut hook = optimizer.hook(index == 0);
        hook.begin(&g).unwrap();
        let init = g.initialize_all();
        let options = ferroflow::SessionOptions { operation_timeout: Some(LIMIT), ..Default::default() };
        let session = Session::connect_with(server.target(), &g, options).unwrap();
        if index == 0 {
            session.run(&init).unwrap();
        }
        let threads = Coordinator::new();
        hook.after_create_session(&session, &threads).unwrap();
        Worker { session, threads, net, step, train }
    }

    /// Runs until `steps` are made, and counts the runs.
    fn train_until(&self, steps: i64) -> i64 {
        let (x, y) = points(1);
        for run in 1.. {
            let feeds = feed! { self.net.x => x.clone(), self.net.y => y.clone() };
            let ((), step) = self.session.run_with((&self.train, &*self.step), feeds).unwrap();
            if step.item::<i64>().unwrap() >= steps {
                return run;
            }
        }
        unreachable!("runs are not counted to the end")
    }
}

/// Trains on a cluster until `steps` are made: the steps that were made, the weights, and the runs it took.
fn train_together(workers: u32, aggregate: u32, steps: i64, resource: bool) -> (i64, Vec<f32>, i64) {
    let servers = Server::create_cluster([("ps", 1), ("worker", workers as usize)]).unwrap();
    let start = |index: u32| {
        let optimizer = SyncReplicas::new(Adam::new(0.05)).replicas_to_aggregate(aggregate).total_num_replicas(workers);
        Worker::start(&servers[1 + index as usize], index, optimizer, resource)
    };
    let team: Vec<Worker> = (0..workers).map(start).collect();
    let runs = std::thread::scope(|threads| {
        let running: Vec<_> = team.iter().map(|worker| threads.spawn(|| worker.train_until(steps))).collect();
        running.into_iter().map(|worker| worker.join().unwrap()).sum()
    });
    // Nobody gives gradients any more: what is there stays.
    let (made, weights) = team[0].session.run((&*team[0].step, &*team[0].net.w)).unwrap();
    for worker in &team {
        worker.threads.request_stop();
        worker.session.close().unwrap();
        let _ = worker.threads.join(LIMIT); // the chief's thread ends with the session it waited in
    }
    (made.item().unwrap(), weights.into_vec().unwrap(), runs)
}

/// What one process makes of as many steps, each on the workers' batches together.
fn train_alone(workers: usize, steps: i64) -> Vec<f32> {
    let g = Graph::new();
    let net = net(&g);
    let train = Adam::new(0.05).minimize(&net.loss);
    let init = g.initialize_all();
    let session = Session::new(&g).unwrap();
    session.run(&init).unwrap();
    let (x, y) = points(workers);
    for _ in 0..steps {
        session.run_with(&*train, feed! { net.x => x.clone(), net.y => y.clone() }).unwrap();
    }
    session.run(&*net.w).unwrap().into_vec().unwrap()
}

#[test]
fn workers_together_equal_one_that_sees_all_their_batches() {
    for (workers, resource) in [(1, false), (2, false), (2, true)] {
        let (steps, weights, _) = train_together(workers, workers, 40, resource);
        assert!(steps >= 40, "{steps}");
        for (found, want) in weights.iter().zip(train_alone(workers as usize, steps)) {
            assert!((found - want).abs() < 1e-5, "{workers} workers, {steps} steps: {found}, wanted {want}");
        }
    }
}

#[test]
fn a_worker_more_than_needed_does_not_slow_the_others_and_late_gradients_are_left_out() {
    let (steps, weights, runs) = train_together(3, 2, 30, false);
    assert!((30..=40).contains(&steps) && runs >= 2 * 30, "{steps} steps in {runs} runs");
    for (found, want) in weights.iter().zip(train_alone(1, steps)) {
        assert!((found - want).abs() < 1e-5, "{steps} steps: {found}, wanted {want}");
    }
}

#[test]
fn parameter_servers_are_told_what_to_do_about_lost_workers() {
    for (policy, want) in [(None, "shrink"), (Some(LostWorker::Wait), "wait"), (Some(LostWorker::Fail), "fail")] {
        let g = Graph::new();
        let (w, table) = (g.variable("w", 1.0f32), g.variable("table", [[1.0f32], [2.0]]));
        let loss = &*w * table.embedding_lookup(&g.constant([0])).sum();
        let optimizer = SyncReplicas::new(GradientDescent::new(0.1)).total_num_replicas(2);
        let optimizer = policy.into_iter().fold(optimizer, SyncReplicas::when_a_worker_dies);
        optimizer.minimize(&loss);
        let message = g.to_graph_def().unwrap();
        let marked = message.node.iter().filter_map(|node| Some((node.op.as_str(), node.attr.get("_on_lost_worker")?)));
        let marked: Vec<(&str, String)> = marked
            .map(|(op, attr)| match &attr.value {
                Some(proto::attr_value::Value::S(text)) => (op, String::from_utf8(text.to_vec()).unwrap()),
                other => panic!("{other:?}"),
            })
            .collect();
        let ops = ["ResourceConditionalAccumulator", "SparseConditionalAccumulator", "FIFOQueueV2"];
        assert_eq!(marked, ops.map(|op| (op, want.to_string())));
    }
}

#[test]
fn averages_move_with_each_step() {
    let servers = Server::create_cluster([("ps", 1), ("worker", 1)]).unwrap();
    let g = Graph::new();
    let (w, optimizer, train) = g.device(replica_device_setter(servers[1].cluster()), || {
        let w = g.variable("w", 1.0f32);
        let optimizer = SyncReplicas::new(GradientDescent::new(0.5))
            .replicas_to_aggregate(1)
            .variable_averages(ExponentialMovingAverage::new(0.5), std::slice::from_ref(&w));
        let train = optimizer.minimize(&(&w * 2.0));
        (w, optimizer, train)
    });
    let hand_out = g.find_operation(&optimizer.get_chief_queue_runner().unwrap().to_proto().enqueue_op_name[0]);
    let (chief_init, tokens) = (optimizer.chief_init_op().unwrap(), optimizer.get_init_tokens_op(Some(1)).unwrap());
    let init = g.initialize_all();
    let average = g.find("w/ExponentialMovingAverage");
    let session = Session::connect(servers[1].target(), &g).unwrap();
    for operation in [&init, &chief_init, &tokens, &*train, &hand_out] {
        session.run(operation).unwrap();
    }
    let (w, average) = session.run((&*w, &average)).unwrap();
    assert_eq!((w.item::<f32>().unwrap(), average.item::<f32>().unwrap()), (0.0, 0.5));
}

#[test]
fn a_supervisor_runs_the_steps_as_the_guide_does() {
    let servers = Server::create_cluster([("ps", 1), ("worker", 1)]).unwrap();
    let g = Graph::new();
    let (net, step, optimizer, train) = g.device(replica_device_setter(servers[1].cluster()), || {
        let step = g.global_step();
        let net = net(&g);
        let optimizer = SyncReplicas::new(Adam::new(0.05)).replicas_to_aggregate(1);
        let train = optimizer.minimize(&net.loss).increment(&step);
        (net, step, optimizer, train)
    });
    let runner = optimizer.get_chief_queue_runner().unwrap();
    let tokens = optimizer.get_init_tokens_op(Some(0)).unwrap();
    let supervisor = Supervisor::builder(&g)
        .local_init_op(&optimizer.chief_init_op().unwrap())
        .ready_for_local_init_op(&optimizer.ready_for_local_init_op().unwrap())
        .stop_grace_secs(5.0)
        .build()
        .unwrap();
    let session = supervisor.prepare_or_wait_for_session(servers[1].target(), Default::default()).unwrap();
    supervisor.start_queue_runners(&session, &[runner]).unwrap();
    session.run(&tokens).unwrap();
    let (x, y) = points(1);
    for _ in 0..10 {
        session.run_with(&train, feed! { net.x => x.clone(), net.y => y.clone() }).unwrap();
    }
    // A token came back for each gradient, so that as many steps were made; nobody gives another one.
    let (made, weights) = session.run((&*step, &*net.w)).unwrap();
    assert_eq!(made.item::<i64>().unwrap(), 10);
    for (found, want) in weights.into_vec::<f32>().unwrap().iter().zip(train_alone(1, 10)) {
        assert!((found - want).abs() < 1e-5, "{found}, wanted {want}");
    }
    let _ = supervisor.stop(); // the chief's thread waits for a gradient that does not come
}

#[test]
fn mistakes_say_what_to_do() {
    let message = |build: &dyn Fn(&Graph, &Variable)| {
        let g = Graph::new();
        let w = g.variable("w", 1.0f32);
        build(&g, &w);
        g.check().unwrap_err().message
    };
    let found = message(&|_, w| drop(SyncReplicas::new(Adam::new(0.1)).minimize(&w.square())));
    assert!(found.contains("wanted replicas_to_aggregate(count)"), "{found}");
    let found = message(&|_, w| drop(SyncReplicas::new(Adam::new(0.1)).replicas_to_aggregate(0).minimize(&w.square())));
    assert!(found.contains("replicas_to_aggregate 0, wanted a number from 1"), "{found}");
    let found = message(&|g, w| {
        let count = g.variable("count", 0i64);
        SyncReplicas::new(Adam::new(0.1)).replicas_to_aggregate(1).minimize(&w.square()).increment(&count);
    });
    assert!(found.contains("counts its steps in global_step, not in count"), "{found}");

    let g = Graph::new();
    let w = g.variable("w", 1.0f32);
    let optimizer = SyncReplicas::new(Adam::new(0.1)).replicas_to_aggregate(3).total_num_replicas(1);
    let found = optimizer.hook(true).begin(&g).unwrap_err().message;
    assert!(found.contains("call minimize or apply_gradients before"), "{found}");
    optimizer.minimize(&w.square());
    let found = optimizer.get_init_tokens_op(Some(1)).unwrap_err().message;
    assert!(found.contains("Too few tokens to finish the first step: 1 (given) vs 2 (needed)"), "{found}");
    let found = optimizer.hook(true).begin(&Graph::new()).unwrap_err().message;
    assert!(found.contains("another graph"), "{found}");
}

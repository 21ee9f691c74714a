//! Servers and sessions over the network.

use ferroflow::prelude::*;
use ferroflow::{SessionOptions, inspect};
use prost::Message;
use std::net::TcpListener;
use std::time::{Duration, Instant};

/// Addresses that nobody listens on.
fn free_addresses(count: usize) -> Vec<String> {
    let sockets: Vec<TcpListener> = (0..count).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    sockets.iter().map(|s| s.local_addr().unwrap().to_string()).collect()
}

/// 1 ps and 2 workers in this process, joined by real sockets.
fn cluster() -> Vec<Server> {
    Server::create_cluster([("ps", 1), ("worker", 2)]).unwrap()
}

/// A target by another name, so that the session goes over the network although the server is in this process.
fn over_network(server: &Server) -> String {
    server.target().replace("127.0.0.1", "localhost")
}

#[test]
fn a_cluster_trains_over_the_network() {
    let servers = cluster();
    for target in [servers[1].target().to_string(), over_network(&servers[1]), over_network(&servers[0])] {
        let g = Graph::new();
        let w = g.device("/job:ps/task:0", || g.variable("w", 0.0f32));
        let x = g.placeholder::<f32>([None]);
        let loss = g.device("/job:worker/task:1", || (&x * &w - &x * 3.0).square().mean());
        let train = GradientDescent::new(0.1).minimize(&loss);
        let init = g.initialize_all();
        let session = Session::connect(&target, &g).unwrap();
        session.run(&init).unwrap();
        for _ in 0..30 {
            session.run_with(&train, feed! { x => [1.0f32, 2.0] }).unwrap();
        }
        let found = session.run(&w).unwrap().item::<f32>().unwrap();
        assert!((found - 3.0).abs() < 1e-3, "{target}: {found}");
        session.close().unwrap();
    }
}

#[test]
fn a_large_tensor_goes_there_and_back() {
    let servers = cluster();
    let g = Graph::new();
    let x = g.placeholder::<f32>([None]);
    let y = g.device("/job:ps/task:0", || &x + 1.0);
    let session = Session::connect(over_network(&servers[2]), &g).unwrap();
    let values: Vec<f32> = (0..4 << 20).map(|i| i as f32).collect();
    let found = session.run_with(&y, feed! { x => values.clone() }).unwrap();
    assert_eq!(found.as_slice::<f32>().unwrap().len(), values.len());
    assert!(found.as_slice::<f32>().unwrap().iter().zip(&values).all(|(y, x)| *y == x + 1.0));
}

/// A graph with a node that waits for an element of a queue.
fn a_queue_on(device: &str) -> Graph {
    let types = proto::attr_value::ListValue { r#type: vec![1], ..Default::default() };
    let types = proto::AttrValue { value: Some(proto::attr_value::Value::List(types)) };
    let node = |name: &str, op: &str, input: &[&str]| proto::NodeDef {
        name: name.into(),
        op: op.into(),
        input: input.iter().map(|i| i.to_string()).collect(),
        device: device.into(),
        attr: [("component_types".to_string(), types.clone())].into(),
        ..Default::default()
    };
    let nodes = vec![node("queue", "FIFOQueueV2", &[]), node("get", "QueueDequeueV2", &["queue"])];
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("graph.pb");
    std::fs::write(&file, proto::GraphDef { node: nodes, ..Default::default() }.encode_to_vec()).unwrap();
    Graph::read(&file).unwrap()
}

#[test]
fn status_tells_what_a_step_waits_for_and_the_timeout_ends_it() {
    let servers = cluster();
    let target = over_network(&servers[1]);
    let waiting = {
        let target = target.clone();
        std::thread::spawn(move || {
            let g = a_queue_on("/job:ps/task:0");
            let get = g.find("get");
            let options = SessionOptions { operation_timeout: Some(Duration::from_secs(3)), ..Default::default() };
            let session = Session::connect_with(&target, &g, options).unwrap();
            session.run(&get).map(|_| ())
        })
    };
    let deadline = Instant::now() + Duration::from_secs(20);
    let waits = loop {
        let tasks = inspect::status(&target, Duration::from_secs(5)).unwrap();
        assert_eq!(tasks.len(), 3);
        let ps = tasks.iter().find(|t| t.task == "/job:ps/replica:0/task:0").unwrap();
        if let Some(step) = ps.steps.iter().find(|s| !s.waits.is_empty()) {
            break step.waits[0].0.clone();
        }
        assert!(Instant::now() < deadline, "the step is never seen to wait");
        std::thread::yield_now();
    };
    assert!(waits.contains("get (QueueDequeueV2)"), "{waits}");
    let ended = waiting.join().unwrap().unwrap_err();
    assert_eq!(ended.code, Code::DeadlineExceeded, "{ended}");
}

#[test]
fn a_port_is_free_again_when_its_server_is_dropped() {
    let spec = ClusterSpec::new().job("local", free_addresses(1));
    for _ in 0..20 {
        let server = Server::start(&spec, "local", 0).unwrap();
        let second = Server::start(&spec, "local", 0).map(|_| ()).unwrap_err();
        assert!(second.message.contains(&spec.task_address("local", 0).unwrap().to_string()), "{second}");
        drop(server);
    }
}

#[test]
fn a_target_nobody_listens_on_is_an_error_in_bounded_time() {
    let address = free_addresses(1).remove(0);
    let options = SessionOptions { patience: Some(Duration::from_millis(200)), ..Default::default() };
    let g = Graph::new();
    let failed = Session::connect_with(format!("grpc://{address}"), &g, options).map(|_| ()).unwrap_err();
    assert_eq!(failed.code, Code::Unavailable, "{failed}");
    assert!(failed.message.contains(&address) && failed.message.contains("refused"), "{failed}");
    let failed = Session::connect("nonsense", &g).map(|_| ()).unwrap_err();
    assert!(failed.message.contains("grpc://HOST:PORT"), "{failed}");
}

#[test]
fn a_server_told_to_stop_ends_its_join() {
    let server = Server::create_local().unwrap();
    let target = over_network(&server);
    let joined = std::thread::spawn(move || server.join());
    inspect::stop(&target, Duration::from_secs(1), Duration::from_secs(5)).unwrap();
    joined.join().unwrap().unwrap();
    assert!(inspect::status(&target, Duration::from_secs(1)).is_err());
}

#[test]
fn a_mistyped_job_is_answered_with_the_nearest_one() {
    let servers = cluster();
    let g = Graph::new();
    let x = g.device("/job:wroker/task:0", || g.constant(1.0f32));
    let failed = Session::connect(servers[0].target(), &g).and_then(|session| session.run(&x)).unwrap_err();
    assert_eq!(failed.code, Code::InvalidArgument, "{failed}");
    assert!(failed.message.contains("there is no job 'wroker'; did you mean 'worker'?"), "{failed}");
}

#[test]
fn a_parameter_server_ends_when_every_worker_is_done() {
    let mut servers = cluster();
    let second = servers.pop().unwrap();
    let first = servers.pop().unwrap();
    let ps = servers.pop().unwrap();
    let (target, port) = (over_network(&ps), ps.target().rsplit(':').next().unwrap().parse::<u16>().unwrap());
    let joined = std::thread::spawn(move || ps.join());
    second.done();
    assert!(inspect::status(&target, Duration::from_secs(5)).is_ok(), "one worker is still at work");
    first.done();
    joined.join().unwrap().unwrap();
    TcpListener::bind(("127.0.0.1", port)).unwrap();
}

#[test]
fn tasks_and_clients_may_start_in_any_order() {
    let mut taken = 0;
    'seeds: for seed in 0..200u64 {
        let addresses = free_addresses(4);
        let spec = ClusterSpec::new().job("ps", &addresses[..2]).job("worker", &addresses[2..]);
        let target = format!("grpc://{}", addresses[2].replace("127.0.0.1", "localhost"));
        let client = move || {
            let g = Graph::new();
            let parts =
                ["/job:ps/task:0", "/job:ps/task:1", "/job:worker/task:1"].map(|d| g.device(d, || g.constant(1.0f32)));
            let sum = parts.into_iter().reduce(|a, b| &a + &b).expect("there are three");
            let session = Session::connect(&target, &g)?;
            session.run(&sum)?.item::<f32>()
        };
        // The client comes as the fifth, the first, or in between.
        let mut order = vec![Some(("ps", 0)), Some(("ps", 1)), Some(("worker", 0)), Some(("worker", 1)), None];
        shuffle(&mut order, seed);
        let (mut servers, mut client, mut waiting) = (Vec::new(), Some(client), None);
        for next in order {
            match next {
                Some((job, index)) => match Server::builder(&spec, job, index).threads(1).start() {
                    Ok(server) => servers.push(server),
                    // Another test, or another program, was faster.
                    Err(e) if e.message.contains("the port is taken") && taken < 10 => {
                        taken += 1;
                        continue 'seeds;
                    }
                    Err(e) => panic!("{e}"),
                },
                None => waiting = client.take().map(std::thread::spawn),
            }
        }
        assert_eq!(waiting.unwrap().join().unwrap().unwrap(), 3.0, "seed {seed}");
    }
}

fn shuffle<T>(list: &mut [T], seed: u64) {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for i in (1..list.len()).rev() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        list.swap(i, (state >> 33) as usize % (i + 1));
    }
}

//! Training sessions on clusters whose tasks come late, go and come back.

use ferroflow::SessionOptions;
use ferroflow::prelude::*;
use ferroflow::train::{BatchOptions, Origin, ProducerOptions, SessionManager};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use storage::{Compression, LocalFiles, RecordWriter};

const LIMIT: Duration = Duration::from_secs(60);

/// A cluster on free ports, none of whose tasks is up.
fn spec(ps: usize, workers: usize) -> ClusterSpec {
    let sockets: Vec<TcpListener> = (0..ps + workers).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let addresses: Vec<String> = sockets.iter().map(|s| s.local_addr().unwrap().to_string()).collect();
    ClusterSpec::new().job("ps", &addresses[..ps]).job("worker", &addresses[ps..])
}

/// A task on the port that it had before.
fn start(spec: &ClusterSpec, job: &str, index: u32) -> Server {
    let deadline = Instant::now() + LIMIT;
    loop {
        match Server::builder(spec, job, index).threads(1).start() {
            Ok(server) => return server,
            Err(e) => assert!(Instant::now() < deadline, "{e}"),
        }
        std::thread::yield_now();
    }
}

/// A target by another name, so that the session goes over the network although the server is in this process.
fn over_network(server: &Server) -> String {
    server.target().replace("127.0.0.1", "localhost")
}

/// A graph whose training step adds one to `w` and to the global step, both on the ps.
fn counting() -> (Graph, Variable, Operation) {
    let g = Graph::new();
    g.device("/job:ps/task:0", || {
        let (step, w) = (g.global_step(), g.variable("w", 0.0f32));
        let add = w.assign_add(1.0);
        let train = g.control_dependencies(&[&add], || step.assign_add(1i64));
        (g.clone(), w, train)
    })
}

fn training(g: &Graph, target: &str, dir: &Path) -> MonitoredTrainingSession {
    MonitoredTrainingSession::new(g).master(target).checkpoint_dir(dir).save_checkpoint_steps(5).max_wait(LIMIT)
}

fn steps(session: &mut MonitoredSession, train: &Operation, count: usize) {
    (0..count).for_each(|_| session.run(train).unwrap());
}

fn global_step(session: &MonitoredSession) -> i64 {
    let step = session.graph().global_step();
    session.raw().unwrap().run(&step).unwrap().to_i64().unwrap()
}

#[test]
fn other_workers_begin_soon_after_the_chief_has_initialised() {
    let servers = Server::create_cluster([("ps", 1), ("worker", 2)]).unwrap();
    let target = servers[2].target().to_string();
    let (began, beginning) = mpsc::channel();
    let (waits, waiting) = mpsc::channel();
    let other = std::thread::spawn(move || {
        let (g, _, train) = counting();
        waits.send(()).unwrap();
        let mut session =
            MonitoredTrainingSession::new(&g).master(target).is_chief(false).max_wait(LIMIT).start().unwrap();
        began.send(Instant::now()).unwrap();
        session.run(&train).unwrap();
        session.close().unwrap();
    });
    waiting.recv().unwrap();
    // It is given the time to look and to find nothing, many times over.
    assert!(beginning.recv_timeout(Duration::from_millis(500)).is_err(), "nobody has initialised the model yet");
    let (g, ..) = counting();
    let chief = MonitoredTrainingSession::new(&g).master(servers[1].target()).start().unwrap();
    let initialised = Instant::now();
    let late = beginning.recv_timeout(LIMIT).unwrap().saturating_duration_since(initialised);
    assert!(late < Duration::from_millis(200), "{late:?}");
    other.join().unwrap();
    assert_eq!(global_step(&chief), 1);
}

#[test]
fn what_live_servers_hold_is_taken_over() {
    let servers = Server::create_cluster([("ps", 1), ("worker", 1)]).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let (g, w, train) = counting();
    let mut first = training(&g, servers[1].target(), dir.path()).start().unwrap();
    steps(&mut first, &train, 7);
    drop(first); // as if its process was killed: the checkpoint is that of step 5
    for round in 1..=10 {
        let (g, _, train) = counting();
        let mut chief = training(&g, servers[1].target(), dir.path()).start().unwrap();
        steps(&mut chief, &train, 1);
        assert_eq!(global_step(&chief), 7 + round);
    }
    let anew = training(&g, servers[1].target(), dir.path()).adopt_live_state(false).start().unwrap();
    let found = anew.raw().unwrap().run(&w).unwrap();
    assert!(found.item::<f32>().unwrap() < 17.0, "it is restored on request: {found}");
}

#[test]
fn a_lost_ps_is_survived_from_the_last_checkpoint() {
    let spec = spec(1, 1);
    let (mut ps, worker) = (Some(start(&spec, "ps", 0)), start(&spec, "worker", 0));
    let dir = tempfile::tempdir().unwrap();
    let (g, w, train) = counting();
    let mut session = training(&g, worker.target(), dir.path()).start().unwrap();
    for round in 0..3 {
        let before = global_step(&session);
        steps(&mut session, &train, 8);
        let saved = (before + 8) / 5 * 5;
        drop(ps.take());
        let (up, back) = mpsc::channel();
        let cluster = spec.clone();
        let restart = std::thread::spawn(move || {
            let server = start(&cluster, "ps", 0);
            up.send(Instant::now()).unwrap();
            server
        });
        session.run(&train).unwrap();
        let went_on = back.recv_timeout(LIMIT).unwrap().elapsed();
        assert!(went_on < Duration::from_secs(1), "{went_on:?}");
        assert_eq!(global_step(&session), saved + 1, "round {round}");
        assert_eq!(session.raw().unwrap().run(&w).unwrap().item::<f32>().unwrap(), (saved + 1) as f32);
        ps = Some(restart.join().unwrap());
    }
    session.close().unwrap();
}

#[test]
fn a_workers_server_that_comes_back_loses_no_step() {
    let spec = spec(1, 1);
    let (_ps, mut worker) = (start(&spec, "ps", 0), Some(start(&spec, "worker", 0)));
    let dir = tempfile::tempdir().unwrap();
    let (g, _, train) = counting();
    let target = over_network(worker.as_ref().unwrap());
    let mut session = training(&g, &target, dir.path()).start().unwrap();
    for round in 1..=3 {
        steps(&mut session, &train, 8);
        drop(worker.take());
        let cluster = spec.clone();
        let restart = std::thread::spawn(move || start(&cluster, "worker", 0));
        session.run(&train).unwrap();
        assert_eq!(global_step(&session), round * 9);
        worker = Some(restart.join().unwrap());
    }
}

#[test]
fn a_task_that_stays_away_is_named_in_the_end() {
    let spec = spec(1, 1);
    let worker = start(&spec, "worker", 0);
    let address = spec.task_address("ps", 0).unwrap().to_string();
    for is_chief in [true, false] {
        let (g, ..) = counting();
        let begun = Instant::now();
        let builder = MonitoredTrainingSession::new(&g).master(worker.target()).is_chief(is_chief);
        let error = builder.max_wait(Duration::from_secs(2)).start().map(|_| ()).unwrap_err();
        assert!(begun.elapsed() < Duration::from_secs(60));
        for part in ["/job:ps/replica:0/task:0", &address, "refused"] {
            assert!(error.message.contains(part), "{part} is missing in: {error}");
        }
    }
    let (g, ..) = counting();
    let _ps = start(&spec, "ps", 0);
    let builder = MonitoredTrainingSession::new(&g).master(worker.target()).is_chief(false);
    let error = builder.max_wait(Duration::from_secs(2)).start().map(|_| ()).unwrap_err();
    assert_eq!(error.code, Code::DeadlineExceeded);
    assert!(error.message.contains("no value yet: global_step, w"), "{error}");
}

#[test]
fn a_manager_tells_where_the_model_came_from() {
    let servers = Server::create_cluster([("ps", 1), ("worker", 1)]).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let (g, w, train) = counting();
    let scaffold = Scaffold::new();
    let manager = SessionManager::new(&g, &scaffold).max_wait(LIMIT).checkpoint_dir(dir.path());
    let target = servers[1].target();
    assert!(manager.recover_session(target).unwrap().is_none(), "there is nothing to recover");
    let prepared = manager.prepare_session(target).unwrap();
    assert_eq!(prepared.origin, Origin::Initialized);
    prepared.session.run(&train).unwrap();
    let path = scaffold.get_saver().unwrap().save(&prepared.session, dir.path().join("m"), Some(1)).unwrap();
    prepared.session.run(&train).unwrap();
    let again = manager.recover_session(target).unwrap().unwrap();
    assert_eq!((again.origin, again.session.run(&w).unwrap()), (Origin::Adopted, Tensor::from(2.0f32)));
    let over = manager.adopt_live_state(false).prepare_session(target).unwrap();
    assert_eq!((over.origin, over.session.run(&w).unwrap()), (Origin::Restored(path), Tensor::from(1.0f32)));
}

#[test]
fn an_error_that_is_not_of_the_cluster_ends_the_session() {
    let (g, w, train) = counting();
    let servers = Server::create_cluster([("ps", 1), ("worker", 1)]).unwrap();
    let wrong = g.placeholder::<f32>([None]) + &w;
    let options = SessionOptions { operation_timeout: Some(LIMIT), ..Default::default() };
    let mut session = MonitoredTrainingSession::new(&g).master(servers[1].target()).config(options).start().unwrap();
    session.run(&train).unwrap();
    assert_eq!(session.run(&wrong).unwrap_err().code, Code::InvalidArgument);
    assert!(session.should_stop());
    assert_eq!(session.run(&train).unwrap_err().code, Code::FailedPrecondition);
}

#[test]
fn a_supervisor_serves_the_chief_and_lets_the_others_wait() {
    let servers = Server::create_cluster([("ps", 1), ("worker", 2)]).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let target = servers[2].target().to_string();
    let other = std::thread::spawn(move || {
        let (g, _, train) = counting();
        let supervisor = Supervisor::builder(&g).is_chief(false).recovery_wait_secs(1.0).max_wait(LIMIT).build()?;
        let session = supervisor.prepare_or_wait_for_session(&target, SessionOptions::default())?;
        session.run(&train)?;
        supervisor.stop()
    });
    let (g, w, train) = counting();
    g.scalar_summary("weight", &w);
    let init = g.initialize_all();
    let supervisor = Supervisor::builder(&g)
        .logdir(dir.path())
        .init_op(&init)
        .save_model_secs(0.01)
        .save_summaries_secs(0.01)
        .max_wait(LIMIT)
        .build()
        .unwrap();
    let session = supervisor.prepare_or_wait_for_session(servers[1].target(), SessionOptions::default()).unwrap();
    other.join().unwrap().unwrap();
    let deadline = Instant::now() + LIMIT;
    // Until a checkpoint was saved meanwhile.
    while ferroflow::train::latest_checkpoint(dir.path()).unwrap().is_none() {
        assert!(!supervisor.should_stop() && Instant::now() < deadline);
        session.run(&train).unwrap();
    }
    session.run(&train).unwrap();
    let last = session.run(&g.global_step()).unwrap().to_i64().unwrap();
    supervisor.stop().unwrap();
    let saved = ferroflow::train::latest_checkpoint(dir.path()).unwrap().unwrap();
    assert!(saved.ends_with(format!("model.ckpt-{last}")), "{saved:?} {last}");
    assert!(session.run(&w).is_err(), "the session is closed");

    // A second supervisor goes on where the first one stopped.
    let supervisor = Supervisor::builder(&g).logdir(dir.path()).build().unwrap();
    let found = supervisor.managed_session(servers[1].target(), SessionOptions::default(), |session| {
        session.run(&train)?;
        session.run(&w)?.item::<f32>()
    });
    assert_eq!(found.unwrap(), last as f32 + 1.0);
}

#[test]
fn an_error_of_a_supervised_thread_is_returned_in_the_end() {
    let (g, _, train) = counting();
    let servers = Server::create_cluster([("ps", 1), ("worker", 1)]).unwrap();
    let supervisor = Supervisor::builder(&g).build().unwrap();
    let session = supervisor.prepare_or_wait_for_session(servers[1].target(), SessionOptions::default()).unwrap();
    let mut left = 2;
    let work = move || {
        left -= 1;
        if left == 0 { Err(Error::new(Code::DataLoss, "a bad disk")) } else { Ok(()) }
    };
    supervisor.repeat(Duration::from_millis(1), work).unwrap();
    assert!(supervisor.wait_for_stop(LIMIT));
    session.run(&train).unwrap();
    assert_eq!(supervisor.stop().unwrap_err().message, "a bad disk");
}

/// Numbers that look random and are the same for the same seed.
fn draw(state: &mut u64, below: u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) % below
}

/// A worker that trains until it is told to stop, and counts its runs.
fn train_until_told(
    target: String,
    dir: PathBuf,
    is_chief: bool,
    runs: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
) -> JoinHandle<Result<()>> {
    std::thread::spawn(move || {
        let g = Graph::new();
        let step = g.device("/job:ps/task:0", || g.global_step());
        let w = g.device("/job:ps/task:1", || g.variable("w", 0.0f32));
        let add = w.assign_add(1.0);
        let train = g.control_dependencies(&[&add], || step.assign_add(1i64));
        let mut session = training(&g, &target, &dir).is_chief(is_chief).start()?;
        while !stop.load(Ordering::Relaxed) {
            session.run(&train)?;
            runs.fetch_add(1, Ordering::Relaxed);
        }
        session.close()
    })
}

#[test]
fn tasks_that_are_lost_at_any_moment_are_survived() {
    let spec = spec(2, 2);
    let tasks = [("ps", 0), ("ps", 1), ("worker", 0), ("worker", 1)];
    let mut servers: Vec<Option<Server>> = tasks.iter().map(|(job, index)| Some(start(&spec, job, *index))).collect();
    let dir = tempfile::tempdir().unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let counts: Vec<Arc<AtomicU64>> = (0..2).map(|_| Arc::default()).collect();
    let workers: Vec<JoinHandle<Result<()>>> = (0..2)
        .map(|i| {
            let target = over_network(servers[2 + i].as_ref().unwrap());
            train_until_told(target, dir.path().into(), i == 0, counts[i].clone(), stop.clone())
        })
        .collect();
    let all_go_on = |runs: u64| {
        let before: Vec<u64> = counts.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        let deadline = Instant::now() + LIMIT;
        while counts.iter().zip(&before).any(|(now, before)| now.load(Ordering::Relaxed) < before + runs) {
            assert!(Instant::now() < deadline, "a worker has stopped");
            assert!(workers.iter().all(|worker| !worker.is_finished()), "a worker has given up");
            std::thread::yield_now();
        }
    };
    let mut seed = 7;
    all_go_on(1);
    for _ in 0..12 {
        all_go_on(draw(&mut seed, 5));
        let lost = draw(&mut seed, tasks.len() as u64) as usize;
        servers[lost] = None;
        let (job, index) = tasks[lost];
        servers[lost] = Some(start(&spec, job, index));
    }
    all_go_on(2);
    stop.store(true, Ordering::Relaxed);
    workers.into_iter().for_each(|worker| worker.join().unwrap().unwrap());
}

/// Files, their names from a queue, their records in batches through two more queues: each record comes once per epoch.
#[test]
fn records_flow_through_queues() {
    let dir = tempfile::tempdir().unwrap();
    let files: Vec<PathBuf> = (0..2).map(|k| dir.path().join(format!("{k}.tfrecord"))).collect();
    for (k, file) in files.iter().enumerate() {
        let mut writer = RecordWriter::create(&LocalFiles, file, Compression::None).unwrap();
        (0..6).for_each(|i| writer.write((k * 6 + i).to_string().as_bytes()).unwrap());
        writer.finish().unwrap();
    }
    let g = Graph::new();
    let names: Vec<&str> = files.iter().map(|file| file.to_str().unwrap()).collect();
    let options = ProducerOptions { num_epochs: Some(2), ..Default::default() };
    let names = g.string_input_producer(&names, &options);
    let queue = g.scope().with_graph(|graph| graph.find_output("input_producer")).unwrap();
    let reader = g.scope().node("TFRecordReaderV2").output().unwrap();
    g.scope().node("ReaderReadV2").name("read").input(reader).input(queue).build().unwrap();
    let value = g.find("read:1");
    value.set_shape(Shape::scalar());
    let one = BatchOptions { allow_smaller_final_batch: true, num_threads: 2, ..Default::default() };
    let batch = g.batch(&[&value], 4, &one).remove(0);
    let many = BatchOptions { enqueue_many: true, capacity: 50, seed: Some(3), ..one };
    let shuffled = g.shuffle_batch(&[&batch], 3, 6, &many).remove(0);
    let mut session = MonitoredTrainingSession::new(&g).start().unwrap();
    let mut found = Vec::new();
    let ended = session.run_until_stop(|session| {
        let batch = session.run(&shuffled)?;
        found.extend(batch.as_strings()?.iter().map(|text| String::from_utf8_lossy(text).parse::<i32>().unwrap()));
        Ok(())
    });
    ended.unwrap();
    assert_eq!(names.name(), "input_producer");
    let in_order: Vec<i32> = (0..12).flat_map(|n| [n, n]).collect();
    assert_ne!(found, in_order);
    found.sort();
    assert_eq!(found, in_order);
}

/// The values are those that TensorFlow gives.
#[test]
#[cfg(target_arch = "x86_64")]
fn numbers_too_small_for_all_their_digits_count_as_zero_in_kernels() {
    let g = Graph::new();
    let x = g.placeholder::<f32>([None]);
    let (scaled, added, kept) = (&x * 1e-10f32, &x + 0.0f32, x.identity());
    let folded = g.constant(1e-30f32) * g.constant(1e-10f32);
    let cluster = spec(0, 1);
    let server = start(&cluster, "worker", 0);
    let target = over_network(&server);
    let sessions = [Session::new(&g).unwrap(), Session::connect(&target, &g).unwrap()];
    let small = [1e-30f32, -1e-30, 1e-40, 1e-38, 1.2e-38];
    for session in sessions {
        let results = (&scaled, &added, &kept, &folded);
        let found = session.run_with(results, feed! { x => Tensor::from(small) }).unwrap();
        assert_eq!(found.0, Tensor::from([0.0f32, -0.0, 0.0, 0.0, 0.0]));
        assert_eq!(found.1, Tensor::from([1e-30f32, -1e-30, 0.0, 0.0, 1.2e-38]));
        assert_eq!((found.2, found.3), (Tensor::from(small), Tensor::from(0.0f32)));
        let many = session.run_with(&added, feed! { x => Tensor::from(vec![1e-40f32; 1_000_000]) }).unwrap();
        assert_eq!(many, Tensor::from(vec![0.0f32; 1_000_000]));
    }
    let product = std::hint::black_box(1e-30f32) * std::hint::black_box(1e-10f32);
    assert!(product > 0.0, "the program's own numbers are left alone");
}

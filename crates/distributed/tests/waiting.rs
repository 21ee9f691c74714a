//! Steps that wait for other steps, and what ends them.

use crate::support::{Session, assert_error, cluster, graph, strings, wait, wait_at_most};
use distributed::{MasterInterface, RunStep};
use framework::participant::{FOLLOWS, LEADS};
use framework::{Attr, Connection};
use std::time::{Duration, Instant};
use tensor::Code::{Cancelled, DeadlineExceeded, InvalidArgument, OutOfRange};
use tensor::Tensor;

const QUEUES: &str = "
    q = FIFOQueueV2 {component_types: [int32], shapes: [shape[]], capacity: 2, shared_name: \"q\"}
    x = Placeholder {dtype: int32, shape: shape[]}
    put = QueueEnqueueV2(q, x)
    get = QueueDequeueV2(q) {component_types: [int32]}
    size = QueueSizeV2(q)
    close = QueueCloseV2(q)
    started = FIFOQueueV2 {component_types: [int32], shapes: [shape[]], capacity: 100, shared_name: \"started\"}
    one = Const {dtype: int32, value: int32[] 1}
    tell = QueueEnqueueV2(started, one)
    told = QueueDequeueV2(started) {component_types: [int32]}
    tell_and_get = QueueDequeueV2(q, ^tell) {component_types: [int32]}
";

fn put(session: &Session, value: i32) -> tensor::Result<()> {
    session.step(session.request(&[("x", Tensor::from(value))], &[], &["put"])).map(|_| ())
}

#[test]
fn producers_and_consumers_run_at_once_on_one_session() {
    const EACH: i32 = 50;
    const THREADS: i32 = 4;
    let session = Session::open(QUEUES);
    let mut taken: Vec<i32> = std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let session = &session;
            scope.spawn(move || (0..EACH).for_each(|i| put(session, thread * EACH + i).unwrap()));
        }
        let consume = |_| {
            let take = || (0..EACH).map(|_| session.value("get").item::<i32>().unwrap()).collect::<Vec<i32>>();
            scope.spawn(take)
        };
        let consumers: Vec<_> = (0..THREADS).map(consume).collect();
        consumers.into_iter().flat_map(|c| c.join().unwrap()).collect()
    });
    taken.sort_unstable();
    assert_eq!(taken, (0..THREADS * EACH).collect::<Vec<i32>>());
    assert_eq!(session.value("size"), Tensor::from(0i32));
}

#[test]
fn runs_of_one_signature_do_not_mix_their_values() {
    let session = Session::open(
        "x = Placeholder {dtype: float, shape: shape[?]}
         a = Square(x)
         b = Neg(a)
         c = Add(a, b)
         d = Sub(a, c)",
    );
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let session = &session;
            scope.spawn(move || {
                for i in 0..200 {
                    let x = (thread * 1000 + i) as f32;
                    let fetched = session.run(&[("x", Tensor::from([x; 3]))], &["d"]).unwrap();
                    assert_eq!(fetched, [Tensor::from([x * x; 3])]);
                }
            });
        }
    });
}

#[test]
fn closing_a_session_ends_a_run_that_waits() {
    let cluster = cluster();
    let (waiting, other) =
        (Session::on(&cluster, graph(QUEUES)).unwrap(), Session::on(&cluster, graph(QUEUES)).unwrap());
    std::thread::scope(|scope| {
        let run = scope.spawn(|| waiting.run(&[], &["tell_and_get"]));
        other.value("told"); // it has started
        waiting.close().unwrap();
        let said = "Step was cancelled by an explicit call to `Session::Close()`.";
        assert_error(run.join().unwrap(), Cancelled, &[said]);
    });
    // The queue belongs to the task, and the run that ended takes nothing from it.
    put(&other, 5).unwrap();
    assert_eq!(other.value("get"), Tensor::from(5i32));
}

#[test]
fn a_reset_ends_a_run_that_waits() {
    let cluster = cluster();
    let (waiting, other) =
        (Session::on(&cluster, graph(QUEUES)).unwrap(), Session::on(&cluster, graph(QUEUES)).unwrap());
    std::thread::scope(|scope| {
        let run = scope.spawn(|| waiting.run(&[], &["tell_and_get"]));
        other.value("told");
        wait(cluster.master().reset(vec![], vec![])).unwrap();
        assert_error(run.join().unwrap(), Cancelled, &[]);
    });
}

#[test]
fn a_run_given_up_at_its_deadline_takes_nothing_from_the_queue() {
    let session = Session::open(QUEUES);
    for _ in 0..3 {
        let call = session.cluster.master().run_step(session.request(&[], &["get"], &[]));
        assert!(wait_at_most(call, Duration::from_millis(20)).is_none(), "the queue is empty");
    }
    put(&session, 1).unwrap();
    put(&session, 2).unwrap();
    // Full: a put has to wait, and leaves nothing behind when it is given up.
    let call = session.cluster.master().run_step(session.request(&[("x", Tensor::from(3i32))], &[], &["put"]));
    assert!(wait_at_most(call, Duration::from_millis(20)).is_none(), "the queue is full");
    assert_eq!(session.value("get"), Tensor::from(1i32));
    assert_eq!(session.value("get"), Tensor::from(2i32));
    assert_eq!(session.value("size"), Tensor::from(0i32));
}

/// The same request with a limit on the time it may take.
fn within(millis: i64, request: RunStep) -> RunStep {
    let options = proto::RunOptions { timeout_in_ms: millis, ..request.options.clone() };
    RunStep { options, ..request }
}

#[test]
fn a_step_past_its_timeout_is_ended_and_says_what_it_waited_for() {
    let session = Session::open(QUEUES);
    let result = session.step(within(20, session.request(&[], &["get"], &[])));
    assert_error(result, DeadlineExceeded, &["timeout_in_ms", "waited for get (QueueDequeueV2)"]);
    put(&session, 1).unwrap();
    put(&session, 2).unwrap();
    let result = session.step(within(20, session.request(&[("x", Tensor::from(3i32))], &[], &["put"])));
    assert_error(result, DeadlineExceeded, &["waited for put (QueueEnqueueV2)"]);
    // Neither took or left anything; a step that ends in time notices no limit, and less than none is none.
    for (millis, value) in [(20_000, 1i32), (-1, 2)] {
        let reply = session.step(within(millis, session.request(&[], &["get"], &[]))).unwrap();
        assert_eq!(reply.fetches, [Tensor::from(value)]);
    }
    let reply = session.step(within(i64::MAX, session.request(&[], &["size"], &[]))).unwrap();
    assert_eq!(reply.fetches, [Tensor::from(0i32)]);
}

#[test]
fn a_partial_run_past_its_timeout_is_over() {
    let session = Session::open(QUEUES);
    let set_up = session.cluster.master().partial_run_setup(
        session.handle.clone(),
        strings(&["x"]),
        strings(&["get", "one"]),
        vec![],
    );
    let run = wait(set_up).unwrap();
    let part = |fetch: &str| RunStep { partial_run: run.clone(), ..session.request(&[], &[fetch], &[]) };
    assert_error(session.step(within(20, part("get"))), DeadlineExceeded, &["waited for get,"]);
    assert_error(session.step(part("one")), InvalidArgument, &["PartialRunSetup"]);
    put(&session, 5).unwrap();
    assert_eq!(session.value("get"), Tensor::from(5i32));
}

#[test]
fn closing_a_queue_ends_who_waits_for_more() {
    let session = Session::open(QUEUES);
    std::thread::scope(|scope| {
        let run = scope.spawn(|| session.run(&[], &["tell_and_get"]));
        session.value("told");
        session.target(&["close"]).unwrap();
        let says = ["is closed and has insufficient elements (requested 1, current size 0)", "{{node tell_and_get}}"];
        assert_error(run.join().unwrap(), OutOfRange, &says);
    });
    assert_error(put(&session, 1), Cancelled, &["is closed", "{{node put}}"]);
}

#[test]
fn an_error_ends_what_waits_in_the_same_step() {
    let session = Session::open(
        "q = FIFOQueueV2 {component_types: [int32], shapes: [shape[]], capacity: 2}
         get = QueueDequeueV2(q) {component_types: [int32]}
         zero = Placeholder {dtype: int32, shape: shape[]}
         broken = FloorDiv(zero, zero)
         both = Add(get, broken)",
    );
    let result = session.run(&[("zero", Tensor::from(0i32))], &["both"]);
    assert_error(result, tensor::Code::InvalidArgument, &["Integer division by zero", "{{node broken}}"]);
}

#[test]
fn a_loop_without_end_is_ended_by_its_deadline() {
    let session = Session::open(
        "zero = Const {dtype: int32, value: int32[] 0}
         yes = Const {dtype: bool, value: bool[] true}
         i_in = Enter(zero) {frame_name: \"loop\"}
         yes_in = Enter(yes) {frame_name: \"loop\", is_constant: true}
         i = Merge(i_in, i_next)
         go_on = LoopCond(yes_in)
         i_switch = Switch(i, go_on)
         more = Neg(i_switch:1)
         i_next = NextIteration(more)
         out = Exit(i_switch)",
    );
    for _ in 0..3 {
        let call = session.cluster.master().run_step(session.request(&[], &["out"], &[]));
        assert!(wait_at_most(call, Duration::from_millis(50)).is_none(), "the loop has no end");
    }
    let result = session.step(within(50, session.request(&[], &["out"], &[])));
    assert_error(result, DeadlineExceeded, &["it still computed"]);
    assert_eq!(session.value("zero"), Tensor::from(0i32));
}

#[test]
fn a_partial_run_whose_session_closes_takes_nothing_from_the_queue() {
    let cluster = cluster();
    let (partial, other) =
        (Session::on(&cluster, graph(QUEUES)).unwrap(), Session::on(&cluster, graph(QUEUES)).unwrap());
    let set_up = cluster.master().partial_run_setup(
        partial.handle.clone(),
        strings(&["x"]),
        strings(&["tell_and_get", "one"]),
        vec![],
    );
    let run = wait(set_up).unwrap();
    let request = RunStep { partial_run: run, ..partial.request(&[], &["one"], &[]) };
    partial.step(request).unwrap();
    other.value("told"); // the graph runs, and waits
    partial.close().unwrap();
    put(&other, 5).unwrap();
    assert_eq!(other.value("get"), Tensor::from(5i32));
}

#[test]
fn a_session_whose_client_is_gone_leads_no_longer_and_one_whose_client_is_silent_does() {
    let mut graph = graph(
        "tokens = FIFOQueueV2 {component_types: [int64], shapes: [shape[]], shared_name: \"sync_token_q\"}
         begin = QueueSizeV2(tokens)
         ask = QueueSizeV2(tokens)",
    );
    for (question, role) in graph.node[1..].iter_mut().zip(["chief", "worker"]) {
        question.attr.insert("_asks_to_lead".into(), Attr::String(role.to_string().into()).to_proto());
    }
    let cluster = cluster();
    let [chief, other] = [(); 2].map(|()| Session::on(&cluster, graph.clone()).unwrap());
    let answer = |session: &Session, question: &str| session.value(question).item::<i32>().unwrap();
    let connections = [Connection::open(), Connection::open()];
    connections.iter().for_each(|connection| cluster.master().heard(&chief.handle, connection));
    assert_eq!([answer(&chief, "begin"), answer(&other, "ask")], [LEADS, FOLLOWS]);
    connections[0].close(Instant::now());
    assert_eq!(answer(&other, "ask"), FOLLOWS, "it has another connection");
    connections[1].close(Instant::now());
    let deadline = Instant::now() + Duration::from_secs(30);
    while answer(&other, "ask") != LEADS {
        assert!(Instant::now() < deadline, "the worker never hears that the client is gone");
        std::thread::yield_now();
    }
    cluster.master().heard(&chief.handle, &Connection::open());
    assert_eq!(answer(&chief, "begin"), FOLLOWS, "it is back, and another one leads");
}

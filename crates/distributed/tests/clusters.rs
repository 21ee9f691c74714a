//! Steps that span several tasks.

use crate::memory::{Cluster, Session};
use crate::support::{assert_error, wait};
use distributed::interface::{Call, Push};
use distributed::{MasterInterface, RunStepReply, WorkerInterface};
use std::task::{Context, Waker};
use tensor::Code::{Aborted, Cancelled, DeadlineExceeded, FailedPrecondition, InvalidArgument, Unavailable};
use tensor::{DType, Tensor};

const SPEC: &str = "ps|a:1;b:1,worker|c:1;d:1";

/// Two variables on two tasks, and a product on a third.
const MODEL: &str = "
    w = VariableV2 {dtype: float, shape: shape[2,2]} @ /job:ps/task:0
    b = VariableV2 {dtype: float, shape: shape[2]} @ /job:ps/task:1
    w0 = Const {dtype: float, value: float[2,2] [[1 2] [3 4]]} @ /job:ps/task:0
    b0 = Const {dtype: float, value: float[2] [10 20]} @ /job:ps/task:1
    set_w = Assign(w, w0) @ /job:ps/task:0
    set_b = Assign(b, b0) @ /job:ps/task:1
    init = NoOp(^set_w, ^set_b)
    x = Placeholder {dtype: float, shape: shape[1,2]} @ /job:worker/task:0
    product = MatMul(x, w) @ /job:worker/task:0
    y = Add(product, b) @ /job:worker/task:0
    d = Const {dtype: float, value: float[2] [1 1]} @ /job:worker/task:0
    push = AssignAdd(b, d) @ /job:ps/task:1
    pushed = Identity(push) @ /job:ps/task:1
";

fn x() -> Tensor {
    Tensor::from([[1.0f32, 1.0]])
}

#[test]
fn variables_are_on_two_tasks_and_the_work_on_a_third() {
    let cluster = Cluster::start(SPEC);
    for master in ["/job:worker/task:0", "/job:ps/task:0", "/job:worker/task:1"] {
        let session = cluster.session(master, MODEL);
        session.run(&[], &[], &["init"]).unwrap();
        let y = session.run(&[("x:0", x())], &["y:0"], &[]).unwrap();
        assert_eq!(y, [Tensor::from([[14.0f32, 26.0]])], "by the master of {master}");
        assert_eq!(session.run(&[], &["pushed:0"], &[]).unwrap(), [Tensor::from([11.0f32, 21.0])]);
    }
}

#[test]
fn what_a_ps_sends_to_the_masters_task_comes_with_its_answer() {
    let cluster = Cluster::start(SPEC);
    let session = cluster.session("/job:worker/task:0", MODEL);
    session.run(&[], &[], &["init"]).unwrap();
    let before = cluster.num_asked();
    for _ in 0..3 {
        assert_eq!(session.run(&[("x:0", x())], &["y:0"], &[]).unwrap(), [Tensor::from([[14.0f32, 26.0]])]);
    }
    assert_eq!(cluster.num_asked(), before);
}

#[test]
fn what_a_part_sends_does_not_wait_for_what_the_part_waits_for() {
    let cluster = Cluster::start(SPEC);
    let session = cluster.session(
        "/job:worker/task:0",
        "v = VariableV2 {dtype: float, shape: shape[]} @ /job:ps/task:0
         one = Const {dtype: float, value: float[] 1} @ /job:ps/task:0
         set = Assign(v, one) @ /job:ps/task:0
         q = FIFOQueueV2 {component_types: [float], shapes: [shape[]], shared_name: \"q\"} @ /job:worker/task:1
         get = QueueDequeueV2(q) {component_types: [float]} @ /job:worker/task:1
         got = Add(get, v) @ /job:worker/task:0
         twice = Add(v, v) @ /job:worker/task:0
         put = QueueEnqueueV2(q, twice) {Tcomponents: [float]} @ /job:worker/task:1",
    );
    session.run(&[], &[], &["set"]).unwrap();
    assert_eq!(session.run(&[], &["got:0"], &["put"]).unwrap(), [Tensor::scalar(3f32)]);
}

#[test]
fn what_the_masters_task_has_at_once_goes_along_with_the_call() {
    let cluster = Cluster::start(SPEC);
    let session = cluster.session(
        "/job:worker/task:0",
        "v = VariableV2 {dtype: float, shape: shape[]} @ /job:ps/task:0
         x = Placeholder {dtype: float, shape: shape[]} @ /job:worker/task:0
         large = Placeholder {dtype: float, shape: shape[20000]} @ /job:worker/task:0
         twice = Add(x, x) @ /job:worker/task:0
         set = Assign(v, twice) @ /job:ps/task:0
         now = Identity(set) @ /job:ps/task:0
         back = Add(now, x) @ /job:worker/task:0
         both = Add(large, now) @ /job:ps/task:0",
    );
    for number in [1f32, 2.0, 3.0] {
        // What takes a task too long, on a busy machine, is left to others and sent later. Otherwise it goes along with the
        // call, and what comes of it along with the answer.
        let is_nothing_sent = |_| {
            let before = (cluster.num_asked(), cluster.num_pushed());
            let now = session.run(&[("x:0", number.into())], &["now:0"], &[]).unwrap();
            assert_eq!(now, [Tensor::scalar(2.0 * number)]);
            assert_eq!(cluster.num_asked(), before.0);
            cluster.num_pushed() == before.1
        };
        assert!((0..100).any(is_nothing_sent), "it takes messages of its own");
        let back = session.run(&[("x:0", number.into())], &["back:0"], &[]).unwrap();
        assert_eq!(back, [Tensor::scalar(3.0 * number)]);
        let large = Tensor::from_vec([20000], vec![0.5f32; 20000]).unwrap();
        let both = session.run(&[("x:0", number.into()), ("large:0", large)], &["both:0"], &[]).unwrap();
        assert_eq!(both, [Tensor::from_vec([20000], vec![0.5 + 2.0 * number; 20000]).unwrap()]);
    }
}

/// A value that goes from task to task and back, and once more, as a number and as news of a branch.
const TO_AND_FRO: &str = "
    x = Placeholder {dtype: float, shape: shape[]} @ /job:worker/task:0
    yes = Placeholder {dtype: bool, shape: shape[]} @ /job:worker/task:0
    a = Add(x, x) @ /job:ps/task:0
    b = Add(a, a) @ /job:ps/task:1
    c = Add(b, a) @ /job:ps/task:0
    d = Add(c, b) @ /job:ps/task:1
    which = Switch(d, yes) @ /job:ps/task:1
    one = Neg(which:1) @ /job:ps/task:0
    other = Square(which:0) @ /job:ps/task:0
    y = Merge(one, other) @ /job:worker/task:1
    sum = Add(y, x) @ /job:worker/task:0
";

#[test]
fn tasks_send_each_other_what_a_step_wants_unasked() {
    let cluster = Cluster::start(SPEC);
    for seed in 0..20 {
        cluster.disturb(seed);
        for master in ["/job:worker/task:0", "/job:ps/task:1"] {
            let session = cluster.session(master, TO_AND_FRO);
            for (yes, want) in [(true, 3.0 - 30.0), (false, 3.0 + 900.0)] {
                let feeds = [("x:0", Tensor::scalar(3f32)), ("yes:0", Tensor::scalar(yes))];
                assert_eq!(session.run(&feeds, &["sum:0"], &[]).unwrap(), [Tensor::scalar(want as f32)]);
            }
        }
    }
    assert_eq!(cluster.num_asked(), 0);
}

#[test]
fn what_one_device_sends_does_not_wait_for_what_another_waits_for() {
    let cluster = Cluster::start(SPEC);
    let session = cluster.session(
        "/job:worker/task:0",
        "a = Const {dtype: float, value: float[] 2} @ /job:ps/task:0/device:CPU:0
         q = FIFOQueueV2 {component_types: [float], shapes: [shape[]], shared_name: \"q\"} @ /job:ps/task:0/device:CPU:0
         put = QueueEnqueueV2(q, a) {Tcomponents: [float]} @ /job:ps/task:0/device:CPU:0
         get = QueueDequeueV2(q) {component_types: [float]} @ /job:ps/task:0/device:CPU:0
         b = Square(get) @ /job:worker/task:0
         c = Neg(b) @ /job:ps/task:0/device:CPU:1
         d = Add(c, b) @ /job:worker/task:0",
    );
    for _ in 0..10 {
        session.run(&[], &[], &["put"]).unwrap();
        assert_eq!(session.run(&[], &["d:0", "c:0"], &[]).unwrap(), [Tensor::scalar(0f32), Tensor::scalar(-4f32)]);
    }
    assert_eq!(cluster.num_asked(), 0);
}

#[test]
fn an_edge_may_carry_large_and_small_values_in_turns() {
    let cluster = Cluster::start(SPEC);
    let session = cluster.session(
        "/job:worker/task:0",
        "x = Placeholder {dtype: float, shape: shape[?]} @ /job:ps/task:0
         y = Neg(x) @ /job:ps/task:0
         z = Neg(y) @ /job:worker/task:1",
    );
    for seed in 0..10 {
        cluster.disturb(seed);
        for size in [2, 20_000, 20_000, 3, 2, 20_001, 1, 20_000] {
            let x = Tensor::from(vec![size as f32; size]);
            assert!(session.run(&[("x:0", x.clone())], &["z:0"], &[]).unwrap() == [x], "{size} with seed {seed}");
        }
    }
}

#[test]
fn a_value_that_does_not_arrive_ends_the_step() {
    let cluster = Cluster::start(SPEC);
    let graph = "
        q = FIFOQueueV2 {component_types: [float], shapes: [shape[]], shared_name: \"q\"} @ /job:ps/task:0
        get = QueueDequeueV2(q) {component_types: [float]} @ /job:ps/task:0
        y = Neg(get) @ /job:ps/task:1
        one = Const {dtype: float, value: float[] 1} @ /job:ps/task:0
        put = QueueEnqueueV2(q, one) {Tcomponents: [float]} @ /job:ps/task:0
    ";
    let session = cluster.session("/job:worker/task:0", graph);
    let mut step = session.master.run_step(session.request(&[], &[], &["y"]));
    start(&mut step);
    cluster.start_task("/job:ps/task:1", &cluster.spec); // which knows nothing of it
    session.run(&[], &[], &["put"]).unwrap();
    assert!(wait(step).is_err());
}

#[test]
fn who_waits_for_what_was_sent_to_arrive_says_so() {
    let cluster = Cluster::start(SPEC);
    cluster.lose_what_is_sent();
    let session = cluster.session(
        "/job:worker/task:0",
        "a = Const {dtype: float, value: float[] 2} @ /job:ps/task:0
         v = VariableV2 {dtype: float, shape: shape[]} @ /job:ps/task:0
         b = Assign(v, a) @ /job:ps/task:0
         y = Neg(b) @ /job:ps/task:1",
    );
    let mut request = session.request(&[], &[], &["y"]);
    request.options.timeout_in_ms = 300;
    let mut step = session.master.run_step(request);
    start(&mut step);
    let waits = |task: &str| cluster.task(task).worker.status().steps.into_iter().flat_map(|step| step.waits);
    let sender = waits("/job:ps/task:0").next().expect("it waits");
    assert_eq!(sender.what, "/job:ps/replica:0/task:1 to take what was sent to it");
    assert!(waits("/job:ps/task:1").any(|wait| wait.what.contains("from /job:ps/replica:0/task:0")));
    let failed = wait(step).unwrap_err();
    assert!(failed.code == DeadlineExceeded && failed.message.contains("still waited for"), "{failed}");
}

#[test]
fn a_parcel_for_a_session_that_is_none_is_refused() {
    let cluster = Cluster::start(SPEC);
    let push = Push { session: "nobody".into(), step: 7, ..Push::default() };
    assert_error(wait(cluster.task("/job:ps/task:0").worker.push(push)), Aborted, &["Session handle is not found"]);
    assert_eq!(cluster.task("/job:ps/task:0").worker.num_steps(), 0);
}

#[test]
fn a_task_of_another_kind_is_sent_nothing_unasked() {
    let cluster = Cluster::start(SPEC);
    cluster.know_little();
    let session = cluster.session(
        "/job:worker/task:0",
        "x = Placeholder {dtype: float, shape: shape[?]} @ /job:worker/task:0
         y = Neg(x) @ /job:ps/task:0",
    );
    for values in [vec![1f32, 2.0], vec![]] {
        let before = cluster.num_asked();
        let found = session.run(&[("x:0", Tensor::from(values.clone()))], &["y:0"], &[]).unwrap();
        assert_eq!(found, [Tensor::from(values.into_iter().map(|x| -x).collect::<Vec<f32>>())]);
        assert_eq!((cluster.num_asked() - before, cluster.num_pushed()), (2, 0));
    }
}

#[test]
fn what_is_too_large_to_be_brought_is_asked_for() {
    let cluster = Cluster::start(SPEC);
    let session = cluster.session(
        "/job:worker/task:0",
        "large = VariableV2 {dtype: float, shape: shape[20000]} @ /job:ps/task:0
         small = VariableV2 {dtype: float, shape: shape[]} @ /job:ps/task:0
         p = Placeholder {dtype: float, shape: shape[20000]} @ /job:ps/task:0
         one = Const {dtype: float, value: float[] 1} @ /job:ps/task:0
         set_large = Assign(large, p) @ /job:ps/task:0
         set_small = Assign(small, one) @ /job:ps/task:0
         sum = Add(large, small) @ /job:worker/task:0",
    );
    let value = Tensor::from_vec([20000], vec![1.5f32; 20000]).unwrap();
    session.run(&[("p:0", value)], &[], &["set_large", "set_small"]).unwrap();
    for _ in 0..3 {
        let before = cluster.num_asked();
        assert_eq!(session.value("sum:0"), Tensor::from_vec([20000], vec![2.5f32; 20000]).unwrap());
        assert_eq!(cluster.num_asked() - before, 1, "only the large one is");
    }
}

#[test]
fn two_masters_share_the_variables_of_a_task() {
    let cluster = Cluster::start(SPEC);
    let (one, two) = (cluster.session("/job:worker/task:0", MODEL), cluster.session("/job:worker/task:1", MODEL));
    one.run(&[], &[], &["init"]).unwrap();
    for (i, session) in [&one, &two, &one, &two].into_iter().enumerate() {
        let sum = session.run(&[], &["pushed"], &[]).unwrap();
        assert_eq!(sum, [Tensor::from([11.0 + i as f32, 21.0 + i as f32])]);
    }
}

#[test]
fn a_step_that_ended_leaves_nothing_behind() {
    let cluster = Cluster::start(SPEC);
    let session = cluster.session("/job:worker/task:0", MODEL);
    session.run(&[], &[], &["init"]).unwrap();
    for _ in 0..20 {
        session.run(&[("x:0", x())], &["y:0"], &[]).unwrap();
    }
    wait(session.master.close_session(session.handle.clone())).unwrap();
    for task in ["/job:ps/task:0", "/job:ps/task:1", "/job:worker/task:0"] {
        assert_eq!(cluster.task(task).worker.num_steps(), 0, "{task}");
    }
}

#[test]
fn calls_may_come_in_any_order() {
    for seed in 1..40 {
        let cluster = Cluster::start(SPEC);
        cluster.disturb(seed);
        let session = cluster.session("/job:worker/task:1", MODEL);
        session.run(&[], &[], &["init"]).unwrap();
        for _ in 0..5 {
            let y = session.run(&[("x:0", x())], &["y:0"], &[]).unwrap();
            assert_eq!(y, [Tensor::from([[14.0f32, 26.0]])], "seed {seed}");
        }
    }
}

#[test]
fn an_error_says_which_task_it_comes_from_and_ends_the_others() {
    let cluster = Cluster::start(SPEC);
    let graph = "
        q = FIFOQueueV2 {component_types: [float], shapes: [shape[]]} @ /job:worker/task:1
        never = QueueDequeueV2(q) {component_types: [float]} @ /job:worker/task:1
        v = VariableV2 {dtype: float, shape: shape[]} @ /job:ps/task:0
        read = Identity(v) @ /job:ps/task:0
        sum = Add(read, never) @ /job:worker/task:0
    ";
    let session = cluster.session("/job:worker/task:0", graph);
    let failed = session.run(&[], &["sum"], &[]);
    assert_error(
        failed,
        FailedPrecondition,
        &["From /job:ps/replica:0/task:0:", "uninitialized value v", "{{node read}}"],
    );
}

/// Polls a call once, so that it is under way.
fn start(call: &mut Call<'_, RunStepReply>) {
    assert!(call.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
}

const WAITS_ON_PS: &str = "
    q = FIFOQueueV2 {component_types: [float], shapes: [shape[]], shared_name: \"q\"} @ /job:ps/task:0
    get = QueueDequeueV2(q) {component_types: [float]} @ /job:ps/task:0
    one = Const {dtype: float, value: float[] 1.0} @ /job:worker/task:0
    y = Add(get, one) @ /job:worker/task:0
    put = QueueEnqueueV2(q, one) @ /job:ps/task:0
    size = QueueSizeV2(q) @ /job:ps/task:0
";

#[test]
fn a_task_that_dies_in_a_step_ends_it() {
    let cluster = Cluster::start(SPEC);
    let session = cluster.session("/job:worker/task:0", WAITS_ON_PS);
    let mut step = session.master.run_step(session.request(&[], &["y"], &[]));
    start(&mut step);
    cluster.stop_task("/job:ps/task:0");
    assert_error(wait(step), Unavailable, &["/job:ps/replica:0/task:0 at a:1", "socket closed"]);
    assert_error(session.run(&[], &["y"], &[]), Unavailable, &["/job:ps/replica:0/task:0 at a:1", "refused"]);
}

#[test]
fn a_client_that_goes_away_takes_nothing_along() {
    let cluster = Cluster::start(SPEC);
    let session = cluster.session("/job:worker/task:0", WAITS_ON_PS);
    for _ in 0..10 {
        let mut step = session.master.run_step(session.request(&[], &["y"], &[]));
        start(&mut step);
        drop(step);
    }
    session.run(&[], &[], &["put"]).unwrap();
    assert_eq!(session.value("size"), Tensor::from(1i32));
    assert_eq!(session.value("y"), Tensor::from(2.0f32));
}

#[test]
fn a_restarted_task_is_noticed_and_a_new_session_goes_on() {
    let cluster = Cluster::start(SPEC);
    let session = cluster.session("/job:worker/task:0", MODEL);
    session.run(&[], &[], &["init"]).unwrap();
    session.run(&[("x:0", x())], &["y:0"], &[]).unwrap();
    cluster.start_task("/job:ps/task:0", &cluster.spec);
    let failed = session.run(&[("x:0", x())], &["y:0"], &[]);
    assert_error(failed, Aborted, &["Possibly this worker (\"/job:ps/replica:0/task:0\") just restarted"]);
    let session = cluster.session("/job:worker/task:0", MODEL);
    let failed = session.run(&[("x:0", x())], &["y:0"], &[]);
    assert_error(failed, FailedPrecondition, &["uninitialized value w"]);
    session.run(&[], &[], &["init"]).unwrap();
    assert_eq!(session.run(&[("x:0", x())], &["y:0"], &[]).unwrap(), [Tensor::from([[14.0f32, 26.0]])]);
}

#[test]
fn a_missing_task_is_waited_for_only_if_it_is_needed_and_only_for_a_while() {
    let cluster = Cluster::start_without(SPEC, &["/job:ps/task:1"]);
    let session = cluster.session("/job:worker/task:0", "a = Const {dtype: int32, value: int32[] 7} @ /job:ps/task:0");
    assert_eq!(session.value("a"), Tensor::from(7i32));
    let started = std::time::Instant::now();
    let failed = cluster.session_with("/job:worker/task:0", MODEL, Default::default()).map(|_| ());
    assert!(started.elapsed() > std::time::Duration::from_millis(900), "given up after {:?}", started.elapsed());
    assert_error(
        failed,
        Aborted,
        &["/job:ps/replica:0/task:1 at b:1", "connection refused", " s (", "Is the task started"],
    );
}

#[test]
fn filters_hide_tasks() {
    let cluster = Cluster::start_without(SPEC, &["/job:ps/task:1"]);
    let filtered = |filters: &[&str]| proto::ConfigProto {
        device_filters: filters.iter().map(|f| f.to_string()).collect(),
        ..Default::default()
    };
    let graph = "a = Const {dtype: int32, value: int32[] 7} @ /job:ps/task:1";
    let failed = cluster.session_with("/job:worker/task:0", graph, filtered(&["/job:ps/task:0"])).map(|_| ());
    assert_error(
        failed,
        InvalidArgument,
        &["Cannot assign a device for operation a", "/job:ps/replica:0/task:0/device:CPU:1"],
    );
    let session = cluster.session_with("/job:worker/task:0", "", filtered(&["/job:ps/task:0"])).unwrap();
    let devices = wait(session.master.list_devices(session.handle.clone())).unwrap().local;
    let tasks: Vec<&str> = devices.iter().map(|d| d.name.as_str()).filter(|d| d.ends_with("CPU:0")).collect();
    assert_eq!(tasks, ["/job:ps/replica:0/task:0/device:CPU:0", "/job:worker/replica:0/task:0/device:CPU:0"]);
}

#[test]
fn tasks_that_know_another_cluster_are_found_out() {
    let cluster = Cluster::start(SPEC);
    let other = "ps|a:1;b:1,worker|c:1;elsewhere:1".parse().unwrap();
    cluster.start_task("/job:ps/task:0", &other);
    let failed = cluster.session_with("/job:worker/task:0", MODEL, Default::default()).map(|_| ());
    let texts =
        ["/job:worker/replica:0/task:1 is at elsewhere:1 for /job:ps/replica:0/task:0", "d:1 for the task that asked"];
    assert_error(failed, FailedPrecondition, &texts);
}

#[test]
fn a_task_at_the_wrong_address_is_found_out() {
    let cluster = Cluster::start(SPEC);
    let swapped = "ps|b:1;a:1,worker|c:1;d:1".parse().unwrap();
    cluster.start_task("/job:worker/task:0", &swapped);
    let failed = cluster.session_with("/job:worker/task:0", MODEL, Default::default()).map(|_| ());
    assert_error(
        failed,
        FailedPrecondition,
        &["was asked for, but the task that listens here is /job:ps/replica:0/task:"],
    );
}

#[test]
fn an_isolated_session_has_variables_of_its_own() {
    let cluster = Cluster::start(SPEC);
    let shared = cluster.session("/job:worker/task:0", MODEL);
    shared.run(&[], &[], &["init"]).unwrap();
    let config = proto::ConfigProto { isolate_session_state: true, ..Default::default() };
    let isolated = cluster.session_with("/job:worker/task:0", MODEL, config).unwrap();
    assert_error(isolated.run(&[], &["pushed"], &[]), FailedPrecondition, &["uninitialized value b"]);
    isolated.run(&[], &[], &["init"]).unwrap();
    isolated.run(&[], &["pushed"], &[]).unwrap();
    assert_eq!(shared.value("pushed"), Tensor::from([11.0f32, 21.0]));
}

#[test]
fn a_session_may_bring_its_own_cluster() {
    let cluster = Cluster::start(SPEC);
    let brought: distributed::ClusterSpec = "boss|c:1,helper|a:1".parse().unwrap();
    let config = proto::ConfigProto { cluster_def: Some(brought.to_proto()), ..Default::default() };
    let graph = "
        a = Const {dtype: int32, value: int32[] 7} @ /job:helper/task:0
        b = Neg(a) @ /job:boss/task:0
    ";
    let session = cluster.session_with("/job:worker/task:0", graph, config).unwrap();
    assert_eq!(session.value("b"), Tensor::from(-7i32));
    let same: distributed::ClusterSpec = "worker|c:1".parse().unwrap();
    let config = proto::ConfigProto { cluster_def: Some(same.to_proto()), ..Default::default() };
    let failed = cluster.session_with("/job:worker/task:0", "", config).map(|_| ());
    assert_error(failed, InvalidArgument, &["as it was started"]);
}

#[test]
fn several_devices_of_one_task_exchange_values() {
    let cluster = Cluster::start(SPEC);
    let graph = "
        a = Placeholder {dtype: float, shape: shape[]} @ /job:worker/task:0/cpu:0
        b = Neg(a) @ /job:worker/task:0/cpu:1
        c = Square(b) @ /job:worker/task:0/cpu:0
    ";
    let session = cluster.session("/job:worker/task:0", graph);
    assert_eq!(session.run(&[("a:0", Tensor::from(3.0f32))], &["c"], &[]).unwrap(), [Tensor::from(9.0f32)]);
}

#[test]
fn callables_are_run_by_number() {
    let cluster = Cluster::start(SPEC);
    let session = cluster.session("/job:worker/task:0", MODEL);
    session.run(&[], &[], &["init"]).unwrap();
    let options = proto::CallableOptions {
        feed: vec!["x:0".into()],
        fetch: vec!["y:0".into(), "product:0".into()],
        ..Default::default()
    };
    let master = &session.master;
    let handle = wait(master.make_callable(session.handle.clone(), options)).unwrap();
    assert_eq!(handle, 0);
    let run = |handle, feeds| wait(master.run_callable(session.handle.clone(), handle, feeds)).map(|r| r.fetches);
    assert_eq!(run(0, vec![x()]).unwrap(), [Tensor::from([[14.0f32, 26.0]]), Tensor::from([[4.0f32, 6.0]])]);
    assert_error(run(0, vec![]), InvalidArgument, &["takes 1 feeds, found 0"]);
    assert_error(run(9, vec![x()]), InvalidArgument, &["No such callable handle: 9"]);
    wait(master.release_callable(session.handle.clone(), 0)).unwrap();
    assert_error(run(0, vec![x()]), InvalidArgument, &["Attempted to run callable after handle was released: 0"]);
}

#[test]
fn a_partial_run_spans_tasks() {
    let cluster = Cluster::start(SPEC);
    let graph = "
        a = Placeholder {dtype: float, shape: shape[]} @ /job:worker/task:0
        b = Placeholder {dtype: float, shape: shape[]} @ /job:worker/task:0
        twice = Add(a, a) @ /job:ps/task:0
        sum = Add(twice, b) @ /job:ps/task:1
    ";
    let session = cluster.session("/job:worker/task:0", graph);
    let strings = |names: &[&str]| names.iter().map(|n| n.to_string()).collect::<Vec<_>>();
    let setup = session.master.partial_run_setup(
        session.handle.clone(),
        strings(&["a:0", "b:0"]),
        strings(&["twice:0", "sum:0"]),
        vec![],
    );
    let run = wait(setup).unwrap();
    let part = |feeds: &[(&str, Tensor)], fetches: &[&str]| {
        let request = distributed::RunStep { partial_run: run.clone(), ..session.request(feeds, fetches, &[]) };
        wait(session.master.run_step(request)).map(|r| r.fetches)
    };
    assert_eq!(part(&[("a:0", Tensor::from(2.0f32))], &["twice:0"]).unwrap(), [Tensor::from(4.0f32)]);
    assert_eq!(part(&[("b:0", Tensor::from(1.0f32))], &["sum:0"]).unwrap(), [Tensor::from(5.0f32)]);
}

#[test]
fn closing_a_session_ends_what_waits_elsewhere() {
    let cluster = Cluster::start(SPEC);
    let session = cluster.session("/job:worker/task:0", WAITS_ON_PS);
    let mut step = session.master.run_step(session.request(&[], &["y"], &[]));
    start(&mut step);
    wait(session.master.close_session(session.handle.clone())).unwrap();
    assert_error(wait(step), Cancelled, &["explicit call to `Session::Close()`"]);
    assert_eq!(cluster.task("/job:ps/task:0").worker.num_steps(), 0);
    let again: Session = cluster.session("/job:worker/task:1", WAITS_ON_PS);
    again.run(&[], &[], &["put"]).unwrap();
    assert_eq!(again.value("y").dtype(), DType::F32);
}
#[test]
fn a_loop_may_span_tasks() {
    let cluster = Cluster::start(SPEC);
    let graph = "
        zero = Const {dtype: int32, value: int32[] 0} @ /job:worker/task:0
        enter = Enter(zero) {frame_name: \"loop\"} @ /job:worker/task:0
        merge = Merge(enter, next) @ /job:worker/task:0
        limit = Const(^merge) {dtype: int32, value: int32[] 10} @ /job:worker/task:0
        less = Less(merge, limit) @ /job:worker/task:0
        cond = LoopCond(less) @ /job:worker/task:0
        switch = Switch(merge, cond) @ /job:worker/task:0
        body = Identity(switch:1) @ /job:worker/task:0
        one = Const(^body) {dtype: int32, value: int32[] 1} @ /job:ps/task:0
        add = Add(body, one) @ /job:ps/task:0
        next = NextIteration(add) @ /job:worker/task:0
        exit = Exit(switch) @ /job:worker/task:0
    ";
    let session = cluster.session("/job:worker/task:0", graph);
    assert_eq!(session.value("exit"), Tensor::from(10i32));
}

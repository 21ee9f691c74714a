//! One step: what is fed, what is fetched, what runs, and what is told about it.

use crate::support::{Session, assert_error, strings, wait};
use distributed::{MasterInterface, RunStep};
use std::collections::BTreeMap;
use tensor::Code::{FailedPrecondition, InvalidArgument, NotFound};
use tensor::{Result, Tensor};

/// `y = (x + 1) * 2`, and a variable that counts how often the sum was computed.
const CHAIN: &str = "
    one = Const {dtype: float, value: float[] 1}
    two = Const {dtype: float, value: float[] 2}
    x = Placeholder {dtype: float, shape: shape[]}
    zero = Const {dtype: float, value: float[] 0}
    count = VariableV2 {dtype: float, shape: shape[]}
    init = Assign(count, zero)
    sum = Add(x, one)
    y = Mul(sum, two)
    bump = AssignAdd(count, one, ^sum)
    both = NoOp(^bump, ^y)
";

fn x(value: f32) -> [(&'static str, Tensor); 1] {
    [("x:0", Tensor::from(value))]
}

#[test]
fn placeholders_are_fed() {
    let session = Session::open(CHAIN);
    assert_eq!(session.run(&x(3.0), &["y:0"]).unwrap(), [Tensor::from(8.0f32)]);
    assert_eq!(session.run(&x(4.0), &["y:0"]).unwrap(), [Tensor::from(10.0f32)]);
}

#[test]
fn a_bare_name_means_the_first_output() {
    let session = Session::open(CHAIN);
    assert_eq!(session.run(&[("x", Tensor::from(3.0f32))], &["y"]).unwrap(), [Tensor::from(8.0f32)]);
}

#[test]
fn anything_can_be_fed() {
    let session = Session::open(CHAIN);
    // What computes a fed value does not run: x is not missed.
    assert_eq!(session.run(&[("sum:0", Tensor::from(5.0f32))], &["y"]).unwrap(), [Tensor::from(10.0f32)]);
    assert_eq!(
        session.run(&[("two", Tensor::from(0.5f32)), x(3.0)[0].clone()], &["y"]).unwrap(),
        [Tensor::from(2.0f32)]
    );
    // A variable too, for one step.
    session.target(&["init"]).unwrap();
    let graph_wide = session.run(&[("count", Tensor::from(9.0f32)), ("sum", Tensor::from(1.0f32))], &["y"]);
    assert_eq!(graph_wide.unwrap(), [Tensor::from(2.0f32)]);
    assert_eq!(session.value("count"), Tensor::from(0.0f32));
}

#[test]
fn fetches_come_in_the_order_asked_for_and_as_often() {
    let session = Session::open(CHAIN);
    let fetched = session.run(&x(3.0), &["y", "sum:0", "y", "y:0", "one"]).unwrap();
    assert_eq!(fetched, [8.0f32, 4.0, 8.0, 8.0, 1.0].map(Tensor::from));
}

#[test]
fn targets_run_without_being_fetched() {
    let session = Session::open(CHAIN);
    session.target(&["init"]).unwrap();
    for _ in 0..3 {
        let reply = session.step(session.request(&x(1.0), &[], &["both"])).unwrap();
        assert!(reply.fetches.is_empty());
    }
    session.step(session.request(&x(1.0), &["y"], &["bump:0"])).unwrap();
    assert_eq!(session.value("count"), Tensor::from(4.0f32));
}

#[test]
fn only_what_is_needed_runs() {
    let session = Session::open(CHAIN);
    session.target(&["init"]).unwrap();
    session.run(&x(1.0), &["y"]).unwrap();
    assert_eq!(session.value("count"), Tensor::from(0.0f32));
}

#[test]
fn what_cannot_be_fed_or_fetched_is_refused() {
    let session = Session::open(CHAIN);
    let run = |feeds: &[&str], fetches: &[&str], targets: &[&str]| -> Result<()> {
        let feeds: Vec<(&str, Tensor)> = feeds.iter().map(|f| (*f, Tensor::from(1.0f32))).collect();
        session.step(session.request(&feeds, fetches, targets)).map(|_| ())
    };
    for (result, code, says) in [
        (run(&[], &[], &[]), InvalidArgument, "Must specify at least one target to fetch or execute."),
        (run(&[], &["zz:0"], &[]), NotFound, "FetchOutputs node zz:0: not found"),
        (run(&[], &["one:1"], &[]), InvalidArgument, "FetchOutputs one:1: output index too large, must be < 1"),
        (run(&[], &["one:x"], &[]), NotFound, "FetchOutputs node one:x: not found"),
        (run(&[], &["one:-1"], &[]), NotFound, "FetchOutputs node one:-1: not found"),
        (run(&[], &[""], &[]), NotFound, "not found"),
        (run(&[], &["both"], &[]), InvalidArgument, "Tried to fetch data for 'both', which produces no output."),
        (run(&[], &[], &["zz", "both"]), NotFound, "PruneForTargets: Some target nodes not found: zz "),
        (run(&["q:0"], &["one"], &[]), NotFound, "FeedInputs: unable to find feed output q:0"),
        (run(&["x:1"], &["one"], &[]), NotFound, "FeedInputs: unable to find feed output x:1"),
        (run(&["both"], &["one"], &[]), NotFound, "FeedInputs: unable to find feed output both"),
        (run(&["one:0"], &["one:0"], &[]), InvalidArgument, "one:0 is both fed and fetched."),
        (run(&["x:0", "x:0"], &["y"], &[]), InvalidArgument, "Duplicated feeds: x:0"),
        (run(&["x", "x:0"], &["y"], &[]), InvalidArgument, "Duplicated feeds: x and x:0 are the same"),
    ] {
        assert_error(result, code, &[says]);
    }
    assert_eq!(session.run(&x(3.0), &["y"]).unwrap(), [Tensor::from(8.0f32)]);
}

const BRANCH: &str = "
    p = Placeholder {dtype: bool, shape: shape[]}
    c = Const {dtype: float, value: float[] 4}
    switch = Switch(c, p)
    no = Neg(switch)
    yes = Square(switch:1)
    merge = Merge(no, yes)
";

#[test]
fn one_branch_is_taken() {
    let session = Session::open(BRANCH);
    for (taken, value, index) in [(false, -4.0f32, 0i32), (true, 16.0, 1)] {
        let fetched = session.run(&[("p", Tensor::from(taken))], &["merge", "merge:1"]).unwrap();
        assert_eq!(fetched, [Tensor::from(value), Tensor::from(index)]);
    }
}

#[test]
fn the_branch_not_taken_cannot_be_fetched() {
    let session = Session::open(BRANCH);
    let result = session.run(&[("p", Tensor::from(false))], &["yes"]);
    assert_error(result, InvalidArgument, &["does not have value", "yes"]);
    assert_eq!(session.run(&[("p", Tensor::from(true))], &["yes"]).unwrap(), [Tensor::from(16.0f32)]);
    // Not even beside one that was taken.
    let result = session.run(&[("p", Tensor::from(false))], &["no", "switch:1"]);
    assert_error(result, InvalidArgument, &["does not have value", "switch:1"]);
}

/// Counts to `limit`, doubling `total` on the way.
const LOOP: &str = "
    zero = Const {dtype: int32, value: int32[] 0}
    one = Const {dtype: int32, value: int32[] 1}
    start = Const {dtype: float, value: float[] 1}
    limit = Placeholder {dtype: int32, shape: shape[]}
    i_in = Enter(zero) {frame_name: \"loop\"}
    total_in = Enter(start) {frame_name: \"loop\"}
    limit_in = Enter(limit) {frame_name: \"loop\", is_constant: true}
    one_in = Enter(one) {frame_name: \"loop\", is_constant: true}
    i = Merge(i_in, i_next)
    total = Merge(total_in, total_next)
    less = Less(i, limit_in)
    go_on = LoopCond(less)
    i_switch = Switch(i, go_on)
    total_switch = Switch(total, go_on)
    i_more = Add(i_switch:1, one_in)
    doubled = Add(total_switch:1, total_switch:1)
    i_next = NextIteration(i_more)
    total_next = NextIteration(doubled)
    i_out = Exit(i_switch)
    total_out = Exit(total_switch)
";

#[test]
fn loops_run_until_their_condition_fails() {
    let session = Session::open(LOOP);
    for limit in [0, 1, 10, 100] {
        let fetched = session.run(&[("limit", Tensor::from(limit))], &["total_out", "i_out"]).unwrap();
        assert_eq!(fetched, [Tensor::from(2.0f32.powi(limit)), Tensor::from(limit)]);
    }
}

#[test]
fn a_trace_names_every_node_that_ran_once() {
    let session = Session::open(CHAIN);
    session.target(&["init"]).unwrap();
    let full = proto::RunOptions { trace_level: 3, ..Default::default() };
    let request = RunStep { options: full, ..session.request(&x(3.0), &["y"], &["both"]) };
    let reply = session.step(request).unwrap();
    let stats = reply.metadata.step_stats.expect("a trace was asked for");
    assert_eq!(stats.dev_stats.len(), 1);
    assert_eq!(stats.dev_stats[0].device, "/job:localhost/replica:0/task:0/device:CPU:0");
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    for node in &stats.dev_stats[0].node_stats {
        *seen.entry(&node.node_name).or_default() += 1;
        assert!(node.all_start_micros > 1_600_000_000_000_000, "{} did not run in this century", node.node_name);
        assert!(node.op_end_rel_micros >= 0 && node.all_end_rel_micros >= node.op_end_rel_micros);
        assert!(node.timeline_label.contains(" = "), "{}", node.timeline_label);
    }
    for name in ["one", "two", "count", "sum", "y", "bump", "both"] {
        assert_eq!(seen.get(name), Some(&1), "{name} among {seen:?}");
    }
    assert!(seen.values().all(|&times| times == 1), "{seen:?}");
    assert!(!seen.contains_key("init"), "{seen:?}");
    let untraced = session.step(session.request(&x(3.0), &["y"], &[])).unwrap();
    assert!(untraced.metadata.step_stats.is_none());
}

#[test]
fn a_random_stream_goes_on_from_run_to_run_whatever_else_is_fetched() {
    let graph = "
        shape = Const {dtype: int32, value: int32[1] [2]}
        r = RandomUniform(shape) {dtype: float, seed: 7, seed2: 11}
        other = Neg(r)
    ";
    let alone = Session::open(graph);
    let three: Vec<Tensor> = (0..3).map(|_| alone.value("r")).collect();
    assert_ne!(three[0], three[1]);
    let mixed = Session::open(graph);
    assert_eq!(mixed.value("r"), three[0]);
    assert_eq!(mixed.run(&[], &["other", "r"]).unwrap()[1], three[1]);
    assert_eq!(mixed.value("r"), three[2]);
}

#[test]
fn a_partial_run_takes_its_feeds_and_gives_its_fetches_bit_by_bit() {
    let session = Session::open(
        "x = Placeholder {dtype: float, shape: shape[]}
         z = Placeholder {dtype: float, shape: shape[]}
         one = Const {dtype: float, value: float[] 1}
         a = Add(x, one)
         b = Mul(a, z)",
    );
    let set_up = || {
        let call = session.cluster.master().partial_run_setup(
            session.handle.clone(),
            strings(&["x", "z"]),
            strings(&["a", "b"]),
            vec![],
        );
        wait(call).unwrap()
    };
    let part = |run: &str, feeds: &[(&str, f32)], fetches: &[&str]| {
        let feeds: Vec<(&str, Tensor)> = feeds.iter().map(|(name, value)| (*name, Tensor::from(*value))).collect();
        let request = RunStep { partial_run: run.to_string(), ..session.request(&feeds, fetches, &[]) };
        session.step(request).map(|reply| reply.fetches)
    };
    let (first, second) = (set_up(), set_up());
    assert_eq!(part(&first, &[("x", 2.0)], &["a"]).unwrap(), [Tensor::from(3.0f32)]);
    // Two partial runs do not get in each other's way.
    assert_eq!(part(&second, &[("x", 5.0), ("z", 2.0)], &["b"]).unwrap(), [Tensor::from(12.0f32)]);
    let texts = [
        (part(&first, &[("x", 2.0)], &["b"]), "The feed x has already been fed."),
        (part(&first, &[], &["b", "a"]), "The fetch a has already been fetched."),
        (part(&first, &[("one", 2.0)], &["b"]), "The feed one was not specified in partial_run_setup."),
        (part(&first, &[("z", 2.0)], &["one"]), "The fetch one was not specified in partial_run_setup."),
    ];
    for (found, text) in texts {
        assert_error(found, InvalidArgument, &[text]);
    }
    assert_eq!(part(&first, &[("z", 10.0)], &["b"]).unwrap(), [Tensor::from(30.0f32)]);
    assert_error(
        part(&first, &[], &["b"]),
        InvalidArgument,
        &["Must run PartialRunSetup before performing partial runs"],
    );
    assert_error(part("nonsense", &[], &["b"]), InvalidArgument, &["Must run PartialRunSetup"]);
    assert_eq!(part(&second, &[], &["a"]).unwrap(), [Tensor::from(6.0f32)]);
}

#[test]
fn a_partial_run_that_fails_says_why() {
    let session = Session::open(
        "x = Placeholder {dtype: int32, shape: shape[]}
         one = Const {dtype: int32, value: int32[] 1}
         y = FloorDiv(one, x)",
    );
    let set_up =
        session.cluster.master().partial_run_setup(session.handle.clone(), strings(&["x"]), strings(&["y"]), vec![]);
    let run = wait(set_up).unwrap();
    let request = RunStep { partial_run: run, ..session.request(&[("x", Tensor::from(0i32))], &["y"], &[]) };
    assert_error(session.step(request.clone()), InvalidArgument, &["Integer division by zero", "{{node y}}"]);
    assert_error(session.step(request), InvalidArgument, &["Must run PartialRunSetup"]);
}

#[test]
fn a_read_of_a_reference_variable_shows_what_is_written_before_it_is_used() {
    // As in TensorFlow, where a read shares the variable's memory; synchronous training counts its steps this way.
    let session = Session::open(
        "v = VariableV2 {dtype: float, shape: shape[]}
         one = Const {dtype: float, value: float[] 1}
         init = Assign(v, one)
         read = Identity(v)
         again = Identity(read)
         bump = AssignAdd(v, one, ^read)
         after = Neg(again, ^bump)",
    );
    assert_error(session.run(&[], &["read"]), FailedPrecondition, &["uninitialized value v", "{{node read}}"]);
    session.target(&["init"]).unwrap();
    assert_eq!(session.value("after"), Tensor::from(-2.0f32));
    assert_eq!(session.value("read"), Tensor::from(2.0f32));
}

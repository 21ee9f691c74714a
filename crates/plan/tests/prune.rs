//! What one run needs: backwards from what is wanted, up to what is fed.

use crate::support::{client, place, print, registry};
use expect_test::{Expect, expect};
use plan::{RunSignature, prune};
use tensor::{Code, Result};

const GRAPH: &str = "
    x = Placeholder {dtype: float, shape: shape[?]}
    one = Const {dtype: float, value: float[] 1}
    log = NoOp
    sum = Add(x, one, ^log)
    other = Neg(one)
    split = Split(zero, sum) {num_split: 2}
    y = Mul(sum, split:1)
    done = NoOp(^y, ^other)
";

fn run(feeds: &[&str], fetches: &[&str], targets: &[&str]) -> Result<plan::prune::Pruned> {
    let graph = format!("zero = Const {{dtype: int32, value: int32[] 0}}\n{GRAPH}");
    let strings = |list: &[&str]| list.iter().map(|s| s.to_string()).collect::<Vec<_>>();
    let signature = RunSignature::new(strings(feeds), strings(fetches), strings(targets))?;
    prune(&place(&graph, false)?, &signature, &client(), &registry())
}

#[track_caller]
fn check(feeds: &[&str], fetches: &[&str], targets: &[&str], expect: Expect) {
    expect.assert_eq(&print(&run(feeds, fetches, targets).unwrap().graph));
}

#[test]
fn what_is_not_needed_is_left_out() {
    check(
        &[],
        &["other"],
        &[],
        expect![[r#"
        one = Const {dtype: float, value: float[] 1}
        other = Neg(one)
        _send_other_0 = _Send(other) as other
    "#]],
    );
}

#[test]
fn a_feed_is_received_and_a_fetch_is_sent() {
    check(
        &["x:0"],
        &["y:0"],
        &[],
        expect![[r#"
        _recv_x_0 = _Recv as x:0
        zero = Const {dtype: int32, value: int32[] 0}
        one = Const {dtype: float, value: float[] 1}
        log = NoOp
        sum = Add(_recv_x_0, one, ^log)
        split = Split(zero, sum) {num_split: 2}
        y = Mul(sum, split:1)
        _send_y_0 = _Send(y) as y:0
    "#]],
    );
}

#[test]
fn what_computes_a_fed_value_is_left_out_unless_somebody_waits_for_it() {
    check(
        &["sum"],
        &["y"],
        &[],
        expect![[r#"
        _recv_sum_0 = _Recv as sum
        zero = Const {dtype: int32, value: int32[] 0}
        split = Split(zero, _recv_sum_0) {num_split: 2}
        y = Mul(_recv_sum_0, split:1)
        _send_y_0 = _Send(y) as y
    "#]],
    );
    check(
        &["sum"],
        &[],
        &["sum"],
        expect![[r#"
        _recv_sum_0 = _Recv as sum
        x = Placeholder {dtype: float, shape: shape[?]}
        one = Const {dtype: float, value: float[] 1}
        log = NoOp
        sum = Add(x, one, ^log)
    "#]],
    );
}

#[test]
fn one_output_of_several_can_be_fed() {
    check(
        &["x", "split:1"],
        &["y", "split:0"],
        &[],
        expect![[r#"
        _recv_split_1 = _Recv as split:1
        _recv_x_0 = _Recv as x
        zero = Const {dtype: int32, value: int32[] 0}
        one = Const {dtype: float, value: float[] 1}
        log = NoOp
        sum = Add(_recv_x_0, one, ^log)
        split = Split(zero, sum) {num_split: 2}
        y = Mul(sum, _recv_split_1)
        _send_split_0 = _Send(split) as split:0
        _send_y_0 = _Send(y) as y
    "#]],
    );
}

#[test]
fn targets_run_with_all_they_wait_for() {
    check(
        &["x"],
        &[],
        &["done"],
        expect![[r#"
        _recv_x_0 = _Recv as x
        zero = Const {dtype: int32, value: int32[] 0}
        one = Const {dtype: float, value: float[] 1}
        log = NoOp
        sum = Add(_recv_x_0, one, ^log)
        other = Neg(one)
        split = Split(zero, sum) {num_split: 2}
        y = Mul(sum, split:1)
        done = NoOp(^y, ^other)
    "#]],
    );
}

#[test]
fn one_output_under_two_names_is_sent_twice() {
    check(
        &[],
        &["other", "other:0"],
        &[],
        expect![[r#"
        one = Const {dtype: float, value: float[] 1}
        other = Neg(one)
        _send_other_0 = _Send(other) as other
        _send_other_0_3 = _Send(other) as other:0
    "#]],
    );
}

#[test]
fn feeds_say_what_they_take() {
    let pruned = run(&["x", "split:1"], &["y"], &[]).unwrap();
    let feeds: Vec<String> = pruned.feeds.iter().map(|f| format!("{} {} {}", f.name, f.dtype, f.shape)).collect();
    assert_eq!(feeds, ["split:1 float [?]", "x float [?]"]);
}

#[test]
fn a_signature_is_the_same_in_any_order() {
    let new =
        |fetches: &[&str]| RunSignature::new(vec![], fetches.iter().map(|s| s.to_string()).collect(), vec![]).unwrap();
    assert_eq!(new(&["a", "b", "a"]), new(&["b", "a"]));
    assert_ne!(new(&["a", "b"]), new(&["a"]));
}

#[test]
fn mistakes_have_their_texts() {
    for (feeds, fetches, targets, code, says) in [
        (&[][..], &[][..], &[][..], Code::InvalidArgument, "Must specify at least one target to fetch or execute."),
        (&[], &["zz:0"], &[], Code::NotFound, "FetchOutputs node zz:0: not found"),
        (&[], &["one:1"], &[], Code::InvalidArgument, "FetchOutputs one:1: output index too large, must be < 1"),
        (&[], &[], &["zz"], Code::NotFound, "PruneForTargets: Some target nodes not found: zz "),
        (&["q:0"], &["y"], &[], Code::NotFound, "FeedInputs: unable to find feed output q:0"),
        (&["split:2"], &["y"], &[], Code::NotFound, "FeedInputs: unable to find feed output split:2"),
        (&["one:0"], &["one:0"], &[], Code::InvalidArgument, "one:0 is both fed and fetched."),
        (&["x:0", "x:0"], &["y"], &[], Code::InvalidArgument, "Duplicated feeds: x:0"),
        (&["x", "x:0"], &["y"], &[], Code::InvalidArgument, "Duplicated feeds: x and x:0 are the same"),
        (
            &[],
            &["done"],
            &[],
            Code::InvalidArgument,
            "Tried to fetch data for 'done', which produces no output. To run to a node but not fetch any data, pass \
             'done' as an argument to the 'target_node_names' argument of the Session::Run API.",
        ),
    ] {
        let error = run(feeds, fetches, targets).unwrap_err();
        assert_eq!((error.code, error.message.as_str()), (code, says));
    }
}

#[test]
fn who_waits_for_a_placeholder_waits_for_what_is_fed() {
    let graph = "
        x = Placeholder {dtype: float, shape: shape[?]}
        other = Neg(x)
        y = Const(^x, ^other) {dtype: float, value: float[] 1}
    ";
    let placed = place(graph, false).unwrap();
    let signature = RunSignature::new(vec!["x:0".into()], vec!["y:0".into()], vec![]).unwrap();
    let pruned = prune(&placed, &signature, &client(), &registry()).unwrap();
    let text = pruned.graph.to_string();
    assert!(!text.contains("Placeholder"), "{text}");
    assert!(text.contains("y = Const(^_recv_x_0, ^other)"), "{text}");
}

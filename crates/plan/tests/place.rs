//! Where nodes go, given two tasks with a CPU each.

use crate::support::place;
use expect_test::{Expect, expect};
use tensor::Code;

#[track_caller]
fn check(notation: &str, soft: bool, expect: Expect) {
    let placed = place(notation, soft).unwrap();
    let lines = placed.graph.nodes().map(|(id, node)| format!("{}: {}\n", node.name, placed.device(id)));
    expect.assert_eq(&lines.collect::<String>());
}

#[track_caller]
fn check_error(notation: &str, soft: bool, expect: Expect) {
    let error = place(notation, soft).unwrap_err();
    assert_eq!(error.code, Code::InvalidArgument);
    expect.assert_eq(&error.message);
}

#[test]
fn without_a_wish_the_first_device_is_taken() {
    check(
        "a = NoOp",
        false,
        expect![[r#"
        a: /job:worker/replica:0/task:0/device:CPU:0
    "#]],
    );
}

#[test]
fn devices_are_named_in_many_ways() {
    check(
        "a = NoOp @ /job:ps
         b = NoOp @ /job:ps/replica:0/task:0/device:CPU:0
         c = NoOp @ /cpu:0
         d = NoOp @ /device:CPU:*
         e = NoOp @ /job:*/task:0
         f = NoOp @ /device:CPU:0/job:ps",
        false,
        expect![[r#"
            a: /job:ps/replica:0/task:0/device:CPU:0
            b: /job:ps/replica:0/task:0/device:CPU:0
            c: /job:worker/replica:0/task:0/device:CPU:0
            d: /job:worker/replica:0/task:0/device:CPU:0
            e: /job:worker/replica:0/task:0/device:CPU:0
            f: /job:ps/replica:0/task:0/device:CPU:0
        "#]],
    );
}

#[test]
fn soft_placement_takes_the_cpu_of_the_same_task() {
    let notation = "
        a = NoOp @ /gpu:0
        b = NoOp @ /job:ps/device:GPU:1
        c = NoOp @ /job:ps/device:CPU:3
    ";
    check(
        notation,
        true,
        expect![[r#"
        a: /job:worker/replica:0/task:0/device:CPU:0
        b: /job:ps/replica:0/task:0/device:CPU:0
        c: /job:ps/replica:0/task:0/device:CPU:0
    "#]],
    );
    check_error(
        notation,
        false,
        expect![[r#"
        Cannot assign a device for operation a: {{node a}} was explicitly assigned to /device:GPU:0 but available devices are [ /job:ps/replica:0/task:0/device:CPU:0, /job:worker/replica:0/task:0/device:CPU:0 ]. Make sure the device specification refers to a valid device. The requested device appears to be a GPU, but there is none; allow_soft_placement runs the node on a CPU instead.
        	 [[{{node a}}]]"#]],
    );
}

#[test]
fn a_task_that_does_not_exist_is_an_error_in_any_case() {
    check_error(
        "a = NoOp @ /job:ps/task:7",
        true,
        expect![[r#"
        Cannot assign a device for operation a: {{node a}} was explicitly assigned to /job:ps/task:7 but available devices are [ /job:ps/replica:0/task:0/device:CPU:0, /job:worker/replica:0/task:0/device:CPU:0 ]. Make sure the device specification refers to a valid device.
        	 [[{{node a}}]]"#]],
    );
    check_error(
        "a = NoOp @ /job:nobody",
        false,
        expect![[r#"
        Cannot assign a device for operation a: {{node a}} was explicitly assigned to /job:nobody but available devices are [ /job:ps/replica:0/task:0/device:CPU:0, /job:worker/replica:0/task:0/device:CPU:0 ]. Make sure the device specification refers to a valid device.
        	 [[{{node a}}]]"#]],
    );
}

#[test]
fn what_is_no_device_is_said_so() {
    check_error(
        "a = NoOp @ foo/bar",
        true,
        expect![[r#"
        Malformed device specification 'foo/bar' in node: a
        	 [[{{node a}}]]"#]],
    );
}

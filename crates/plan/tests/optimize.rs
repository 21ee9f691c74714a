//! Folding, merging and fusing: what they do, and what they leave alone.

use crate::support::{graph, interpreter, print, registry};
use expect_test::{Expect, expect};
use framework::Graph;
use std::collections::HashMap;

fn fold(graph: Graph) -> Graph {
    plan::fold::fold(graph, &interpreter(), &registry()).unwrap()
}

fn merge(graph: Graph) -> Graph {
    plan::cse::merge_equal_nodes(graph).unwrap()
}

fn unstretch(graph: Graph) -> Graph {
    plan::unstretch::unstretch(graph, &["target".into()]).unwrap()
}

fn leave_out(graph: Graph) -> Graph {
    plan::unused::leave_out(graph, &["target".into()], &registry()).unwrap()
}

fn bypass(graph: Graph) -> Graph {
    plan::bypass::bypass(graph).unwrap()
}

fn fuse(graph: Graph) -> Graph {
    plan::fuse::fuse(graph, &registry()).unwrap()
}

#[track_caller]
fn check(pass: impl Fn(Graph) -> Graph, notation: &str, expect: Expect) {
    expect.assert_eq(&print(&pass(graph(notation))));
}

#[track_caller]
fn check_unchanged(pass: impl Fn(Graph) -> Graph, notation: &str) {
    let before = graph(notation);
    assert_eq!(print(&pass(before.clone())), print(&before));
}

const TWO: &str = "two = Const {dtype: float, value: float[2] [2 2]}\n";

#[test]
fn what_depends_on_constants_alone_is_computed_while_planning() {
    check(
        fold,
        "two = Const {dtype: float, value: float[2] [2 2]}
         x = Placeholder {dtype: float, shape: shape[2]}
         four = Mul(two, two)
         sixteen = Mul(four, four)
         y = Add(x, sixteen)",
        expect![[r#"
            sixteen = Const {dtype: float, value: float[2] [16 16]}
            two = Const {dtype: float, value: float[2] [2 2]}
            x = Placeholder {dtype: float, shape: shape[2]}
            y = Add(x, sixteen)
        "#]],
    );
}

#[test]
fn several_outputs_become_several_constants() {
    check(
        fold,
        "zero = Const {dtype: int32, value: int32[] 0}
         c = Const {dtype: float, value: float[2] [1 2]}
         split = Split(zero, c) {num_split: 2}
         x = Placeholder {dtype: float, shape: shape[1]}
         y = Add(x, split)
         z = Add(y, split:1)",
        expect![[r#"
            split = Const {dtype: float, value: float[1] [1]}
            split/folded_1 = Const {dtype: float, value: float[1] [2]}
            zero = Const {dtype: int32, value: int32[] 0}
            c = Const {dtype: float, value: float[2] [1 2]}
            x = Placeholder {dtype: float, shape: shape[1]}
            y = Add(x, split)
            z = Add(y, split/folded_1)
        "#]],
    );
}

#[test]
fn a_folded_output_takes_no_name_that_is_taken() {
    check(
        fold,
        "zero = Const {dtype: int32, value: int32[] 0}
         c = Const {dtype: float, value: float[3] [1 2 3]}
         split = Split(zero, c) {num_split: 3}
         split/folded_2 = Neg(c)
         x = Placeholder {dtype: float, shape: shape[1]}
         split/folded_1 = Add(x, split:1)
         y = Add(split/folded_1, split:2)
         z = Add(y, split/folded_2)",
        expect![[r#"
            split/folded_1_1 = Const {dtype: float, value: float[1] [2]}
            split/folded_2_1 = Const {dtype: float, value: float[1] [3]}
            split/folded_2 = Const {dtype: float, value: float[3] [-1 -2 -3]}
            zero = Const {dtype: int32, value: int32[] 0}
            c = Const {dtype: float, value: float[3] [1 2 3]}
            x = Placeholder {dtype: float, shape: shape[1]}
            split/folded_1 = Add(x, split/folded_1_1)
            y = Add(split/folded_1, split/folded_2_1)
            z = Add(y, split/folded_2)
        "#]],
    );
}

#[test]
fn what_has_an_effect_fails_or_waits_is_not_folded() {
    check_unchanged(fold, "shape = Const {dtype: int32, value: int32[1] [2]}\nr = RandomUniform(shape) {dtype: float}");
    check_unchanged(
        fold,
        "zero = Const {dtype: int32, value: int32[] 0}
         broken = FloorDiv(zero, zero)
         y = Neg(broken)",
    );
    check_unchanged(fold, &format!("{TWO}log = NoOp\ny = Neg(two, ^log)\nz = Neg(y)"));
}

#[test]
fn a_large_result_stays_a_computation() {
    check_unchanged(
        fold,
        "dims = Const {dtype: int32, value: int32[2] [1000 1000]}
         one = Const {dtype: float, value: float[] 1}
         big = Fill(dims, one)
         y = Neg(big)",
    );
}

#[test]
fn arithmetic_is_given_what_would_be_repeated_for_it() {
    check(
        unstretch,
        "x = Placeholder {dtype: float, shape: shape[4,3]}
         one = Const {dtype: float, value: float[] 1}
         row = Placeholder {dtype: float, shape: shape[1,3]}
         sizes = Const {dtype: int32, value: int32[2] [4 3]}
         times = Const {dtype: int32, value: int32[2] [4 1]}
         broadcast = BroadcastTo(one, sizes)
         tile = Tile(row, times)
         fill = Fill(sizes, one)
         a = Mul(x, broadcast)
         b = Sub(tile, a)
         c = Maximum(b, fill)",
        expect![[r#"
            x = Placeholder {dtype: float, shape: shape[4,3]}
            one = Const {dtype: float, value: float[] 1}
            row = Placeholder {dtype: float, shape: shape[1,3]}
            a = Mul(x, one)
            b = Sub(row, a)
            c = Maximum(b, one)
        "#]],
    );
}

#[test]
fn arithmetic_on_what_is_repeated_gives_the_same() {
    let ops = ["Add", "AddV2", "Sub", "Mul", "Div", "RealDiv", "Maximum", "Minimum", "SquaredDifference"];
    let repetitions = [
        "row = Const {dtype: float, value: float[3] [4 -2 0.5]}\nall = BroadcastTo(row, sizes)",
        "column = Const {dtype: float, value: float[2,1] [4 -2]}\nall = BroadcastTo(column, sizes)",
        "row = Const {dtype: float, value: float[1,3] [4 -2 0.5]}\nall = Tile(row, times)",
        "number = Const {dtype: float, value: float[] 4}\nall = Fill(sizes, number)",
    ];
    for (op, repetition) in ops.iter().flat_map(|op| repetitions.map(|repetition| (op, repetition))) {
        for operands in ["x, all", "all, x"] {
            let whole = graph(&format!(
                "x = Const {{dtype: float, value: float[2,3] [1 2 3 4 5 6]}}
                 sizes = Const {{dtype: int32, value: int32[2] [2 3]}}
                 times = Const {{dtype: int32, value: int32[2] [2 1]}}
                 {repetition}
                 y = {op}({operands})"
            ));
            let y = |graph: &Graph| {
                let fetches = [graph.find_output("y").unwrap()];
                interpreter().run(graph, &HashMap::new(), &fetches, &[]).unwrap()
            };
            let short = unstretch(whole.clone());
            assert!(short.find_output("all").is_none(), "{op}({operands}), {repetition}");
            assert_eq!(y(&short), y(&whole), "{op}({operands}), {repetition}");
        }
    }
}

#[test]
fn a_repetition_that_others_use_as_well_stays() {
    check(
        unstretch,
        "x = Placeholder {dtype: float, shape: shape[4]}
         one = Const {dtype: float, value: float[] 1}
         sizes = Const {dtype: int32, value: int32[1] [4]}
         ones = Fill(sizes, one)
         target = BroadcastTo(one, sizes)
         a = Mul(x, ones)
         b = Mul(ones, ones)
         c = Mul(a, target)
         d = Neg(ones)",
        expect![[r#"
            x = Placeholder {dtype: float, shape: shape[4]}
            one = Const {dtype: float, value: float[] 1}
            sizes = Const {dtype: int32, value: int32[1] [4]}
            ones = Fill(sizes, one)
            target = BroadcastTo(one, sizes)
            a = Mul(x, one)
            b = Mul(one, ones)
            c = Mul(a, one)
            d = Neg(ones)
        "#]],
    );
}

#[test]
fn what_a_repetition_says_besides_its_value_is_not_lost() {
    let check = |notation: &str| {
        let given = "x = Placeholder {dtype: float, shape: shape[4,3]}
             some = Placeholder {dtype: float, shape: shape[?, 3]}
             one = Const {dtype: float, value: float[] 1}
             times = Const {dtype: int32, value: int32[2] [2 1]}
             sizes = Const {dtype: int32, value: int32[2] [4 3]}\n";
        check_unchanged(unstretch, &format!("{given}{notation}"));
    };
    // The other operand may turn out to be smaller, or is.
    check("ones = Fill(sizes, one)\ny = Mul(some, ones)");
    check("ones = Fill(sizes, one)\ny = Mul(one, ones)");
    // Not each element alone is repeated.
    check("half = Placeholder {dtype: float, shape: shape[2, 3]}\nall = Tile(half, times)\ny = Mul(x, all)");
    // Somebody waits for it, or it waits for somebody, or is as alive as its shape.
    check("ones = Fill(sizes, one)\nlog = NoOp(^ones)\ny = Mul(x, ones)");
    check("log = NoOp\nones = Fill(sizes, one, ^log)\ny = Mul(x, ones)");
    check("read = Identity(sizes)\nones = Fill(read, one)\ny = Mul(x, ones)");
    // A variable may change before it is read once more.
    check("v = VariableV2 {dtype: float, shape: shape[1, 3]}\nall = BroadcastTo(v, sizes)\ny = Mul(x, all)");
    // The gradients of functions take their operands as they are.
    check("ones = Fill(sizes, one)\ny = TanhGrad(x, ones)");
}

#[test]
fn equal_nodes_are_merged() {
    check(
        merge,
        "x = Placeholder {dtype: float, shape: shape[2]}
         a = Neg(x)
         b = Neg(x)
         c = Square(a)
         d = Square(b)
         e = Add(c, d)",
        expect![[r#"
            x = Placeholder {dtype: float, shape: shape[2]}
            a = Neg(x)
            c = Square(a)
            e = Add(c, c)
        "#]],
    );
}

#[test]
fn who_waited_for_a_merged_node_waits_for_the_one_that_stands_for_it() {
    check(
        merge,
        "x = Placeholder {dtype: float, shape: shape[2]}
         a = Neg(x)
         b = Neg(x)
         wait = NoOp(^b)",
        expect![[r#"
            x = Placeholder {dtype: float, shape: shape[2]}
            a = Neg(x)
            wait = NoOp(^a)
        "#]],
    );
}

#[test]
fn nodes_that_differ_in_anything_are_not_merged() {
    check_unchanged(
        merge,
        "x = Placeholder {dtype: float, shape: shape[2,2]}
         x2 = Placeholder {dtype: float, shape: shape[2,2]}
         log = NoOp
         a = MatMul(x, x2)
         b = MatMul(x, x2) {transpose_a: true}
         c = MatMul(x2, x)
         d = MatMul(x, x2, ^log)
         e = MatMul(x, x2) @ /job:ps
         f = Const {dtype: float, value: float[] 1}
         g = Const {dtype: float, value: float[] 2}
         shape = Const {dtype: int32, value: int32[1] [2]}
         h = RandomUniform(shape) {dtype: float}
         i = RandomUniform(shape) {dtype: float}
         v = VariableV2 {dtype: float, shape: shape[2]}
         w = VariableV2 {dtype: float, shape: shape[2]}",
    );
}

#[test]
fn a_chain_becomes_one_node() {
    check(
        fuse,
        "a = Placeholder {dtype: float, shape: shape[2]}
         b = Placeholder {dtype: float, shape: shape[2]}
         c = Placeholder {dtype: float, shape: shape[2]}
         product = Mul(a, b)
         sum = Add(product, c)
         y = Relu(sum)",
        expect![[r#"
            a = Placeholder {dtype: float, shape: shape[2]}
            b = Placeholder {dtype: float, shape: shape[2]}
            c = Placeholder {dtype: float, shape: shape[2]}
            y = _FusedElementwise(a, b, c) {operands: [0, 1, 3, 2, 4], steps: ["Mul", "Add", "Relu"]}
        "#]],
    );
}

#[test]
fn control_edges_come_along() {
    check(
        fuse,
        "a = Placeholder {dtype: float, shape: shape[2]}
         log = NoOp
         b = Neg(a, ^log)
         y = Square(b)
         after = NoOp(^y)",
        expect![[r#"
            a = Placeholder {dtype: float, shape: shape[2]}
            log = NoOp
            y = _FusedElementwise(a, ^log) {operands: [0, 1], steps: ["Neg", "Square"]}
            after = NoOp(^y)
        "#]],
    );
}

#[test]
fn what_others_use_or_wait_for_is_not_drawn_in() {
    check_unchanged(
        fuse,
        "a = Placeholder {dtype: float, shape: shape[2]}
         b = Neg(a)
         y = Square(b)
         shape = Shape(b)",
    );
    check_unchanged(
        fuse,
        "a = Placeholder {dtype: float, shape: shape[2]}
         b = Neg(a)
         y = Square(b)
         after = NoOp(^b)",
    );
}

#[test]
fn shapes_types_and_devices_that_differ_are_not_fused() {
    check_unchanged(
        fuse,
        "a = Placeholder {dtype: float, shape: shape[1]}
         b = Placeholder {dtype: float, shape: shape[3]}
         n = Neg(a)
         y = Add(n, b)",
    );
    check_unchanged(fuse, "a = Placeholder {dtype: double, shape: shape[2]}\nb = Neg(a)\ny = Square(b)");
    check_unchanged(fuse, "a = Placeholder {dtype: float}\nb = Neg(a)\ny = Square(b)");
    check_unchanged(
        fuse,
        "a = Placeholder {dtype: float, shape: shape[2]}
         b = Neg(a) @ /job:ps
         y = Square(b) @ /job:worker",
    );
}

fn split_restores(graph: Graph) -> Graph {
    plan::restore::split_restores(graph, &registry()).unwrap()
}

#[test]
fn tensors_are_restored_one_by_one_when_all_are_there() {
    let restore = r#"p = Const {dtype: string, value: string[] "prefix"}
         n = Const {dtype: string, value: string[2] ["a" "b"]}
         s = Const {dtype: string, value: string[2] ["" ""]}
         first = NoOp
         r = RestoreV2(p, n, s, ^first) {dtypes: [float, int32]}
         x = Neg(r)
         y = Neg(r:1)"#;
    check(
        split_restores,
        restore,
        expect![[r#"
        p = Const {dtype: string, value: string[] "prefix"}
        n = Const {dtype: string, value: string[2] ["a" "b"]}
        s = Const {dtype: string, value: string[2] ["" ""]}
        first = NoOp
        r = _RestoreCheck(p, n, s, ^first) {dtypes: [float, int32]}
        x = Neg(r/_part_0)
        y = Neg(r/_part_1)
        r/_part_0 = _RestorePart(r, n, s) {dtype: float, index: 0}
        r/_part_1 = _RestorePart(r, n, s) {dtype: int32, index: 1}
    "#]],
    );
    check_unchanged(split_restores, &format!("{restore}\n z = NoOp(^r)"));
    check_unchanged(split_restores, &restore.replace(":1", "").replace("[float, int32]", "[float]"));
}

/// Two gradients that are waited for together, of which one is used.
const GRADIENTS: &str = "
    x = Placeholder {dtype: float, shape: shape[2,3]}
    w = Placeholder {dtype: float, shape: shape[3,4]}
    y = MatMul(x, w)
    dy = Relu(y)
    dx = MatMul(dy, w) {transpose_b: true}
    dw = MatMul(x, dy) {transpose_a: true}
    both = NoOp(^dx, ^dw)
    gradient = Identity(dw, ^both)
";

#[test]
fn what_is_only_waited_for_is_not_computed() {
    // `w` comes before `dy` anyway.
    check(
        leave_out,
        GRADIENTS,
        expect![[r#"
            x = Placeholder {dtype: float, shape: shape[2,3]}
            w = Placeholder {dtype: float, shape: shape[3,4]}
            y = MatMul(x, w)
            dy = Relu(y)
            dx = NoOp(^dy)
            dw = MatMul(x, dy) {transpose_a: true}
            both = NoOp(^dx, ^dw)
            gradient = Identity(dw, ^both)
        "#]],
    );
}

#[test]
fn nor_is_what_only_it_would_have_used() {
    check(
        leave_out,
        "x = Placeholder {dtype: float, shape: shape[2]}
         one = Neg(x)
         two = Add(one, one)
         three = Mul(two, x)
         y = Identity(x, ^three)",
        expect![[r#"
            x = Placeholder {dtype: float, shape: shape[2]}
            one = NoOp(^x)
            two = NoOp(^one)
            three = NoOp(^two)
            y = Identity(x, ^three)
        "#]],
    );
}

#[test]
fn what_has_an_effect_checks_or_is_a_target_is_computed() {
    for kept in [
        "y = Neg(x)",                                // nobody waits: it must be a target
        "target = Neg(x)\ny = Identity(x, ^target)", // is one
        "c = CheckNumerics(x) {message: \"bad\"}\ny = Identity(x, ^c)",
        "r = RandomUniform(n) {dtype: float}\ny = Identity(x, ^r)",
        "z = Neg(x)\ny = Add(z, x, ^z)", // is used, too
        "v = VariableV2 {dtype: float, shape: shape[2]}\ny = Identity(x, ^v)",
        "p = Placeholder {dtype: float}\ny = Identity(x, ^p)",
        "s = Switch(x, b)\nway = Identity(s:1)\ny = Identity(x, ^way)", // of the two ways of a switch, one is not taken
    ] {
        let start = "x = Placeholder {dtype: float, shape: shape[2]}\nn = Placeholder {dtype: int32, shape: shape[1]}\n\
                     b = Placeholder {dtype: bool, shape: shape[]}\n";
        check_unchanged(leave_out, &format!("{start}{kept}"));
    }
}

#[test]
fn nodes_that_only_pass_on_are_bypassed() {
    check(
        bypass,
        GRADIENTS,
        expect![[r#"
            x = Placeholder {dtype: float, shape: shape[2,3]}
            w = Placeholder {dtype: float, shape: shape[3,4]}
            y = MatMul(x, w)
            dy = Relu(y)
            dx = MatMul(dy, w) {transpose_b: true}
            dw = MatMul(x, dy) {transpose_a: true}
            gradient = Identity(dw, ^dx)
        "#]],
    );
    check(
        bypass,
        "x = Placeholder {dtype: float, shape: shape[2]}
         a = Identity(x)
         b = StopGradient(a)
         c = Neg(b)
         d = Neg(c, ^b)
         all = NoOp(^c, ^d, ^a)
         e = Neg(d, ^all)
         first = NoOp
         f = Neg(x, ^first)
         end = NoOp(^e, ^f)",
        expect![[r#"
            x = Placeholder {dtype: float, shape: shape[2]}
            c = Neg(x)
            d = Neg(c, ^x)
            e = Neg(d, ^c, ^x)
            f = Neg(x)
            end = NoOp(^e, ^f)
        "#]],
    );
}

#[test]
fn a_wait_for_many_by_many_keeps_its_node() {
    check_unchanged(
        bypass,
        "x = Placeholder {dtype: float, shape: shape[2]}
         a = Neg(x)
         b = Abs(x)
         c = Exp(x)
         all = NoOp(^a, ^b, ^c)
         d = Neg(x, ^all)
         e = Abs(x, ^all)",
    );
}

#[test]
fn what_knows_more_than_it_passes_on_is_not_bypassed() {
    let start = "x = Placeholder {dtype: float, shape: shape[2]}\nb = Placeholder {dtype: bool, shape: shape[]}\n";
    let received = "r = _Recv {client_terminated: false, recv_device: \"/cpu:0\", send_device: \"/cpu:0\", \
                    send_device_incarnation: 1, tensor_name: \"t\", tensor_type: float}\n";
    for kept in [
        "v = VariableV2 {dtype: float, shape: shape[2]}\nread = Identity(v)\ny = Neg(read)",
        "s = Switch(x, b)\nway = Identity(s:1)\ny = Neg(x, ^way)",
        "s = Switch(x, b)\nno = Neg(s)\nyes = Identity(s:1)\nm = Merge(no, yes)",
        "s = Switch(x, b)\nn = NoOp(^s)\ny = Neg(x, ^n)",
        "alone = NoOp",
        &format!("{received}signal = Identity(r)\ny = Neg(x, ^signal)"),
    ] {
        check_unchanged(bypass, &format!("{start}{kept}"));
    }
    check(
        bypass,
        &format!("{received}value = Identity(r)\ny = Neg(value)"),
        expect![[r#"
        r = _Recv as t
        y = Neg(r)
    "#]],
    );
}

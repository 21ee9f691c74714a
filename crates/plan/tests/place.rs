//! Where nodes go: every placement and every text here is what TensorFlow 2.21 answers for the same graph on the same
//! cluster, two tasks of jobs `ps` and `worker` with two CPUs each, and the second worker as master.

use crate::support::{devices, graph, place, place_more, registry};
use expect_test::{Expect, expect};
use framework::DeviceSpec;
use framework::graph::{import, text};
use plan::PlacedGraph;
use plan::place::Choice;
use tensor::Code;

/// `name: job task cpu`, a line for each node.
fn print(placed: &PlacedGraph) -> String {
    let lines = placed.graph.nodes().map(|(id, node)| {
        let device = placed.device(id);
        format!("{}: {} {} {}\n", node.name, device.job, device.task, device.index)
    });
    lines.collect()
}

#[track_caller]
fn check(notation: &str, expect: Expect) {
    expect.assert_eq(&print(&place(notation, false).unwrap()));
}

#[track_caller]
fn check_soft(notation: &str, expect: Expect) {
    expect.assert_eq(&print(&place(notation, true).unwrap()));
}

/// All devices, as messages list them, are left out of the text.
fn error(notation: &str, soft: bool) -> String {
    let error = place(notation, soft).unwrap_err();
    assert_eq!(error.code, Code::InvalidArgument);
    let mut known: Vec<String> = devices().iter().map(|d| d.to_string()).collect();
    known.sort();
    error.message.replace(&known.join(", "), "ALL")
}

#[track_caller]
fn check_error(notation: &str, expect: Expect) {
    expect.assert_eq(&error(notation, false));
}

/// Soft placement does not help.
#[track_caller]
fn check_error_always(notation: &str, expect: Expect) {
    expect.assert_eq(&error(notation, false));
    assert_eq!(error(notation, true), error(notation, false));
}

const HANDLE: &str = "{dtype: float, shape: shape[]}";

#[test]
fn without_a_wish_the_masters_task_is_taken() {
    check(
        "a = NoOp",
        expect![[r#"
        a: worker 1 0
    "#]],
    );
}

#[test]
fn devices_are_named_in_many_ways() {
    check(
        "a = NoOp @ /job:ps
         b = NoOp @ /job:ps/replica:0/task:1/device:CPU:1
         c = NoOp @ /cpu:1
         d = NoOp @ /device:CPU:*
         e = NoOp @ /job:*/task:0
         f = NoOp @ /device:CPU:1/job:worker
         g = NoOp @ /task:0",
        expect![[r#"
            a: ps 0 0
            b: ps 1 1
            c: worker 1 1
            d: worker 1 0
            e: ps 0 0
            f: worker 1 1
            g: ps 0 0
        "#]],
    );
}

#[test]
fn a_constant_goes_where_it_is_used_if_that_is_one_place() {
    check(
        "k = Const {dtype: float, value: float[] 1}
         n = Neg(k) @ /job:ps/task:1/cpu:1
         k2 = Const {dtype: float, value: float[] 1}
         a = Neg(k2) @ /job:ps/task:0
         b = Neg(k2) @ /job:ps/task:1
         k3 = Const {dtype: float, value: float[] 1}
         w3 = NoOp(^k3) @ /job:ps/task:1
         k4 = Const {dtype: float, value: float[] 1}
         n4 = Neg(k4) @ /job:ps/task:1
         w4 = NoOp(^k4)
         k5 = Const {dtype: float, value: float[] 1} @ /cpu:1
         n5 = Neg(k5) @ /job:ps/task:1
         k6 = Const {dtype: float, value: float[] 1} @ /cpu:*
         n6 = Neg(k6) @ /job:ps/task:1
         k7 = Const {dtype: float, value: float[] 1}
         n7 = Neg(k7) @ /job:ps/task:1
         k8 = Const(^k7) {dtype: float, value: float[] 1}
         n8 = Neg(k8) @ /job:ps/task:0
         alone = Const {dtype: float, value: float[] 1}
         k9 = Const {dtype: float, value: float[] 1, _class: ['loc:@q9']}
         n9 = Neg(k9) @ /job:ps/task:1/cpu:1
         q9 = Const {dtype: float, value: float[] 1}
         m9 = Neg(q9) @ /job:ps/task:0",
        expect![[r#"
            k: ps 1 1
            n: ps 1 1
            k2: worker 1 0
            a: ps 0 0
            b: ps 1 0
            k3: ps 1 0
            w3: ps 1 0
            k4: worker 1 0
            n4: ps 1 0
            w4: worker 1 0
            k5: worker 1 1
            n5: ps 1 0
            k6: ps 1 0
            n6: ps 1 0
            k7: worker 1 0
            n7: ps 1 0
            k8: ps 0 0
            n8: ps 0 0
            alone: worker 1 0
            k9: ps 1 1
            n9: ps 1 1
            q9: ps 1 1
            m9: ps 0 0
        "#]],
    );
}

#[test]
fn who_looks_at_a_shape_goes_where_the_value_is() {
    check(
        "k = Const {dtype: float, value: float[] 1}
         q = Neg(k) @ /job:ps/task:1/cpu:1
         shape = Shape(q)
         size = Size(q)
         rank = Rank(q)
         shape_ps0 = Shape(q) @ /job:ps/task:0
         shape_cpu0 = Shape(q) @ /cpu:0
         shape_cpu1 = Shape(q) @ /cpu:1
         zeros = ZerosLike(q)
         shapes = ShapeN(q, q)
         kk = Const {dtype: float, value: float[] 1}
         shape_of_const = Shape(kk)
         k5 = Const {dtype: float, value: float[] 1}
         shape_of_const5 = Shape(k5) @ /job:ps",
        expect![[r#"
            k: ps 1 1
            q: ps 1 1
            shape: ps 1 1
            size: ps 1 1
            rank: ps 1 1
            shape_ps0: ps 0 0
            shape_cpu0: worker 1 0
            shape_cpu1: ps 1 1
            zeros: worker 1 0
            shapes: worker 1 0
            kk: worker 1 0
            shape_of_const: worker 1 0
            k5: ps 0 0
            shape_of_const5: ps 0 0
        "#]],
    );
}

#[test]
fn who_passes_a_value_on_stays_with_it() {
    check(
        &format!(
            "h = VarHandleOp {HANDLE} @ /job:ps/task:1
             r = ReadVariableOp(h) {{dtype: float}}
             last = Identity(r)
             one = Identity(r)
             one_user = Neg(one)
             two = Identity(r)
             two_user = Neg(two)
             two_users = Neg(two)
             told = Identity(r)
             told_user = Neg(told) @ /job:worker/task:0
             tells = Identity(r) @ /job:ps
             log = NoOp
             waits = Identity(r, ^log)
             other = StopGradient(r)
             p = ReadVariableOp(h) {{dtype: float}} @ /job:ps
             same = Identity(p)
             same_user = Neg(same) @ /job:ps"
        ),
        expect![[r#"
            h: ps 1 0
            r: ps 1 0
            last: ps 1 0
            one: ps 1 0
            one_user: worker 1 0
            two: worker 1 0
            two_user: worker 1 0
            two_users: worker 1 0
            told: worker 1 0
            told_user: worker 0 0
            tells: ps 0 0
            log: worker 1 0
            waits: worker 1 0
            other: worker 1 0
            p: ps 1 0
            same: ps 1 0
            same_user: ps 0 0
        "#]],
    );
}

#[test]
fn who_takes_a_handle_goes_where_it_was_made() {
    check(
        &format!(
            "h = VarHandleOp {HANDLE} @ /job:ps/task:1
             i = Identity(h) @ /job:worker/task:0
             r = VarIsInitializedOp(i) @ /job:worker/task:0
             h2 = VarHandleOp {HANDLE}
             r2 = VarIsInitializedOp(h2) @ /job:worker/task:0
             s2 = VarIsInitializedOp(h2) @ /job:ps/task:0
             h3 = VarHandleOp {HANDLE} @ /job:ps
             r3 = VarIsInitializedOp(h3) @ /job:ps/task:1
             s3 = VarIsInitializedOp(h3) @ /job:ps/task:0
             h4 = VarHandleOp {HANDLE} @ /job:ps
             r4 = VarIsInitializedOp(h4) @ /job:worker/task:1
             s4 = VarIsInitializedOp(h4) @ /job:ps/task:1/cpu:1
             h5 = VarHandleOp {HANDLE} @ /job:ps/task:0/cpu:1
             r5 = VarIsInitializedOp(h5) @ /gpu:0
             s5 = VarIsInitializedOp(h5) {{_class: ['loc:@h5']}} @ /job:worker/task:0
             q = FIFOQueueV2 {{component_types: [float]}}
             size = QueueSizeV2(q) @ /job:ps"
        ),
        expect![[r#"
            h: ps 1 0
            i: ps 1 0
            r: ps 1 0
            h2: worker 0 0
            r2: worker 0 0
            s2: worker 0 0
            h3: ps 1 0
            r3: ps 1 0
            s3: ps 1 0
            h4: ps 1 1
            r4: ps 1 1
            s4: ps 1 1
            h5: ps 0 1
            r5: ps 0 1
            s5: ps 0 1
            q: ps 0 0
            size: ps 0 0
        "#]],
    );
}

#[test]
fn who_takes_a_reference_goes_where_the_variable_is() {
    check(
        "v = VariableV2 {dtype: float, shape: shape[]} @ /job:ps/task:1
         k = Const {dtype: float, value: float[] 1}
         set = Assign(v, k) @ /job:worker/task:0
         k2 = Const {dtype: float, value: float[] 1}
         add = AssignAdd(set, k2) @ /job:worker/task:1
         read = Identity(v)
         p = Const {dtype: bool, value: bool[] true}
         switch = RefSwitch(add, p) @ /job:worker/task:0
         v2 = VariableV2 {dtype: float, shape: shape[]}
         k3 = Const {dtype: float, value: float[] 1} @ /job:worker/task:0
         set2 = Assign(v2, k3)",
        expect![[r#"
            v: ps 1 0
            k: ps 1 0
            set: ps 1 0
            k2: ps 1 0
            add: ps 1 0
            read: worker 1 0
            p: ps 1 0
            switch: ps 1 0
            v2: worker 1 0
            k3: worker 0 0
            set2: worker 1 0
        "#]],
    );
}

#[test]
fn nodes_that_name_each_other_stay_together() {
    check(
        "a = NoOp @ /job:worker
         n = NoOp {_class: ['loc:@a']} @ /task:1
         m = NoOp {_class: ['loc:@a']} @ /cpu:1
         o = NoOp {_class: ['loc:@nowhere']}
         o2 = NoOp {_class: ['loc:@nowhere']} @ /job:ps/task:1
         later = NoOp {_class: ['loc:@z']}
         z = NoOp @ /job:ps/task:0",
        expect![[r#"
            a: worker 1 1
            n: worker 1 1
            m: worker 1 1
            o: ps 1 0
            o2: ps 1 0
            later: ps 0 0
            z: ps 0 0
        "#]],
    );
}

#[test]
fn contradictions_between_colocated_nodes() {
    let ids = "a = NoOp @ /job:ps/task:0/cpu:0
               n = NoOp {_class: ['loc:@a']} @ /job:ps/task:0/cpu:1";
    check_error(
        ids,
        expect![[r#"
        Cannot colocate nodes {{colocation_node n}} and {{colocation_node a}}: Cannot merge devices with incompatible ids: '/job:ps/task:0/device:CPU:1' and '/job:ps/task:0/device:CPU:0'
        	 [[{{node n}}]]"#]],
    );
    check_soft(
        ids,
        expect![[r#"
        a: ps 0 0
        n: ps 0 0
    "#]],
    );
    let types = "a = NoOp @ /job:ps/task:0/cpu:0
                 n = NoOp {_class: ['loc:@a']} @ /job:ps/task:0/gpu:1";
    check_error(
        types,
        expect![[r#"
        Cannot colocate nodes {{colocation_node n}} and {{colocation_node a}}: Cannot merge devices with incompatible types: '/job:ps/task:0/device:GPU:1' and '/job:ps/task:0/device:CPU:0'
        	 [[{{node n}}]]"#]],
    );
    check_soft(
        types,
        expect![[r#"
        a: ps 0 0
        n: ps 0 0
    "#]],
    );
    let jobs = "a = NoOp @ /job:ps/task:0
                n = NoOp {_class: ['loc:@a']} @ /job:worker/task:0";
    check_error(
        jobs,
        expect![[r#"
        Cannot colocate nodes {{colocation_node n}} and {{colocation_node a}}: Cannot merge devices with incompatible jobs: '/job:worker/task:0' and '/job:ps/task:0'
        	 [[{{node n}}]]"#]],
    );
    check_soft(
        jobs,
        expect![[r#"
        a: ps 0 0
        n: worker 0 0
    "#]],
    );
    let two = "a = NoOp @ /job:ps/task:0
               b = NoOp @ /job:ps/task:1
               n = NoOp {_class: ['loc:@a', 'loc:@b']}";
    check_error(
        two,
        expect![[r#"
        Cannot colocate nodes {{colocation_node n}} and {{colocation_node b}}: Cannot merge devices with incompatible tasks: '/job:ps/task:0' and '/job:ps/task:1'
        	 [[{{node n}}]]"#]],
    );
    check_soft(
        two,
        expect![[r#"
        a: ps 0 0
        b: ps 1 0
        n: ps 0 0
    "#]],
    );
}

#[test]
fn references_that_lead_to_two_places() {
    check_error_always(
        &format!(
            "v = VarHandleOp {HANDLE} @ /job:ps/task:0
             w = VarHandleOp {HANDLE} @ /job:ps/task:1
             k = Const {{dtype: float, value: float[] 1}}
             apply = ResourceApplyMomentum(v, w, k, k, k)"
        ),
        expect![
            "Cannot place the graph because a reference or resource edge connects colocation groups with incompatible resource devices: /job:ps/task:1 vs /job:ps/task:0. The edge src node is name='w' (op='VarHandleOp'), and the dst node is name='apply' (op='ResourceApplyMomentum')."
        ],
    );
    check_error_always(
        "v = VariableV2 {dtype: float, shape: shape[]} @ /job:ps/task:0/cpu:0
         w = VariableV2 {dtype: float, shape: shape[]} @ /job:ps/task:0/cpu:1
         k = Const {dtype: float, value: float[] 1}
         apply = ApplyMomentum(v, w, k, k, k)",
        expect![
            "Cannot place the graph because a reference or resource edge connects colocation groups with incompatible resource devices: /job:ps/task:0/device:CPU:1 vs /job:ps/task:0/device:CPU:0. The edge src node is name='w' (op='VariableV2'), and the dst node is name='apply' (op='ApplyMomentum')."
        ],
    );
}

#[test]
fn soft_placement_takes_the_cpu_of_the_same_task() {
    let notation = "
        a = NoOp @ /gpu:0
        b = NoOp @ /job:ps/device:GPU:1
        c = NoOp @ /job:ps/device:CPU:3
        d = NoOp @ /device:TPU:0
    ";
    check_soft(
        notation,
        expect![[r#"
        a: worker 1 0
        b: ps 0 0
        c: ps 0 0
        d: worker 1 0
    "#]],
    );
    check_error(
        notation,
        expect![[r#"
        Cannot assign a device for operation a: {{node a}} was explicitly assigned to /device:GPU:0 but available devices are [ ALL ]. Make sure the device specification refers to a valid device. The requested device appears to be a GPU, but CUDA is not enabled.
        	 [[a]]"#]],
    );
    check_error(
        "a = NoOp @ /device:TPU:0",
        expect![[r#"
        Cannot assign a device for operation a: {{node a}} was explicitly assigned to /device:TPU:0 but available devices are [ ALL ]. Make sure the device specification refers to a valid device.
        	 [[a]]"#]],
    );
    let handle = format!("h = VarHandleOp {HANDLE} @ /job:ps/gpu:0\nr = VarIsInitializedOp(h)");
    check_soft(
        &handle,
        expect![[r#"
        h: ps 0 0
        r: ps 0 0
    "#]],
    );
    check_error(
        &handle,
        expect![[r#"
        Cannot assign a device for operation r: Could not satisfy explicit device specification '' because the node {{colocation_node r}} was colocated with a group of nodes that required incompatible device '/job:ps/device:GPU:0'. All available devices [ALL]. 
        The group, with the devices asked for:
          h (VarHandleOp) /job:ps/gpu:0
          r (VarIsInitializedOp) 
        	 [[{{node r}}]]"#]],
    );
}

#[test]
fn a_task_that_does_not_exist_is_an_error_in_any_case() {
    check_error_always(
        "a = NoOp @ /job:ps/task:7",
        expect![[r#"
        Cannot assign a device for operation a: {{node a}} was explicitly assigned to /job:ps/task:7 but available devices are [ ALL ]. Make sure the device specification refers to a valid device.
        	 [[a]]"#]],
    );
    check_error_always(
        "a = NoOp @ /job:nobody",
        expect![[r#"
        Cannot assign a device for operation a: {{node a}} was explicitly assigned to /job:nobody but available devices are [ ALL ]. Make sure the device specification refers to a valid device.
        	 [[a]]"#]],
    );
    check_error_always(
        "a = NoOp\nn = NoOp {_class: ['loc:@a']} @ /job:ps/task:7",
        expect![[r#"
        Cannot assign a device for operation a: Could not satisfy explicit device specification '' because the node {{colocation_node a}} was colocated with a group of nodes that required incompatible device '/job:ps/task:7'. All available devices [ALL]. 
        The group, with the devices asked for:
          a (NoOp) 
          n (NoOp) /job:ps/task:7
        	 [[{{node a}}]]"#]],
    );
}

#[test]
fn what_is_no_device_is_said_so() {
    check_error(
        "a = NoOp @ foo/bar",
        expect![[r#"
        Malformed device specification 'foo/bar' in node: a
        	 [[{{node a}}]]"#]],
    );
}

/// Places `first`, then the graph grown by `more`.
fn grow(first: &str, more: &str, soft: bool) -> tensor::Result<PlacedGraph> {
    let before = place(first, soft)?;
    let whole = text::parse(&format!("{first}\n{more}"), &registry())?;
    place_more(whole, &before, soft)
}

#[test]
fn what_has_state_stays_when_the_graph_grows() {
    let first = format!(
        "h = VarHandleOp {HANDLE} @ /job:ps/task:1
         free = VarHandleOp {HANDLE}
         k = Const {{dtype: float, value: float[] 1}}
         f = Neg(k)"
    );
    let more = "r = VarIsInitializedOp(h) @ /job:worker/task:0
                s = VarIsInitializedOp(free) @ /job:ps/task:0
                m = Neg(k) {_class: ['loc:@h']}
                g = Neg(k) {_class: ['loc:@f']} @ /job:ps/task:1";
    expect![[r#"
        h: ps 1 0
        free: worker 1 0
        k: ps 1 0
        f: ps 1 0
        r: ps 1 0
        s: worker 1 0
        m: ps 1 0
        g: ps 1 0
    "#]]
    .assert_eq(&print(&grow(&first, more, false).unwrap()));
    let error = grow(&first, "q = NoOp {_class: ['loc:@h']} @ /job:worker/task:0", false).unwrap_err();
    expect![[r#"
        Cannot colocate nodes {{colocation_node q}} and {{colocation_node h}}: Cannot merge devices with incompatible jobs: '/job:worker/task:0' and '/job:ps/replica:0/task:1/device:CPU:0'
        	 [[{{node q}}]]"#]].assert_eq(&error.message);
}

#[test]
fn a_default_device_is_preferred() {
    let spec: DeviceSpec = "/job:ps/task:1".parse().unwrap();
    let all = devices();
    let choice = Choice {
        devices: &all,
        master: crate::support::MASTER,
        default_device: Some(&spec),
        allow_soft_placement: false,
    };
    let graph = graph("a = NoOp\nb = NoOp @ /job:worker");
    let placed = plan::place(graph, &PlacedGraph::default(), &choice, &registry()).unwrap();
    expect![[r#"
        a: ps 1 0
        b: worker 1 0
    "#]]
    .assert_eq(&print(&placed));
}

#[test]
fn the_log_has_a_line_for_each_node() {
    let placed = place("a = NoOp\nb = NoOp @ /job:ps", false).unwrap();
    expect![[r#"
        a: (NoOp): /job:worker/replica:0/task:1/device:CPU:0
        b: (NoOp): /job:ps/replica:0/task:0/device:CPU:0
    "#]]
    .assert_eq(&placed.log());
}

#[test]
fn a_message_is_placed_like_a_text() {
    let message = framework::graph::export::export(&graph("a = NoOp @ /job:ps"));
    let graph = import::import(&message, &registry()).unwrap();
    let log = place_more(graph, &PlacedGraph::default(), false).unwrap().log();
    assert_eq!(log, "a: (NoOp): /job:ps/replica:0/task:0/device:CPU:0\n");
}

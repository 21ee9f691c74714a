//! Where edges are cut, and what takes their place.

use crate::support::{graph, registry};
use expect_test::{Expect, expect};
use framework::graph::text;
use framework::{DeviceName, Graph};
use plan::{EdgeNames, Part};
use tensor::Result;

fn partition(graph: &Graph, group_of: &dyn Fn(&DeviceName) -> String) -> Result<Vec<Part>> {
    let incarnation = |device: &DeviceName| Ok(u64::from(device.task) + 1);
    plan::partition(graph, &registry(), group_of, &incarnation, &mut EdgeNames::default())
}

/// `@ ps 0` for the complete device, so that lines stay short.
fn complete(notation: &str) -> String {
    let expand = |line: &str| match line.rsplit_once(" @ ") {
        None => format!("{line} @ {}", DeviceName::cpu("worker", 0, 0)),
        Some((line, place)) => {
            let words: Vec<&str> = place.split(' ').collect();
            let number = |i: usize| words.get(i).map_or(0, |w| w.parse().unwrap());
            format!("{line} @ {}", DeviceName::cpu(words[0], number(1), number(2)))
        }
    };
    notation.lines().filter(|l| !l.trim().is_empty()).map(|l| expand(l) + "\n").collect()
}

/// Each part with its nodes; of sends and receives only the edge and where it leads.
fn print(parts: &[Part]) -> String {
    let short = |device: &str| {
        let device: DeviceName = device.parse().unwrap();
        format!("{} {} {}", device.job, device.task, device.index)
    };
    let mut out = String::new();
    for part in parts {
        out += &format!("{}\n", part.name);
        for (_, node) in part.graph.nodes() {
            let line = text::print_node(&part.graph, node);
            let line = line.split(" @ ").next().unwrap();
            let line = match (node.op.name.as_str(), line.split_once(" {")) {
                ("_Send" | "_Recv", Some((start, _))) => {
                    let attr = |name: &str| node.attr::<String>(name).unwrap();
                    let (from, to) = (short(&attr("send_device")), short(&attr("recv_device")));
                    format!("{start} {} {from} -> {to}", attr("tensor_name"))
                }
                _ => line.to_string(),
            };
            out += &format!("  {line} @ {}\n", short(&node.device));
        }
    }
    out
}

#[track_caller]
fn check(notation: &str, expect: Expect) {
    let parts = partition(&graph(&complete(notation)), &DeviceName::task_name).unwrap();
    expect.assert_eq(&print(&parts));
}

#[test]
fn a_graph_in_one_place_stays_as_it_is() {
    let whole = graph(&complete("a = NoOp\nb = NoOp(^a) @ worker 0 1"));
    let parts = partition(&whole, &DeviceName::task_name).unwrap();
    assert_eq!(parts.len(), 1);
    assert_eq!(parts[0].name, "/job:worker/replica:0/task:0");
    assert_eq!(text::print(&parts[0].graph), text::print(&whole));
    assert!(partition(&Graph::new(), &DeviceName::task_name).unwrap().is_empty());
}

#[test]
fn a_value_read_twice_is_sent_once() {
    check(
        "v = VarHandleOp {dtype: float, shape: shape[2]} @ ps
         w = ReadVariableOp(v) {dtype: float} @ ps
         a = Neg(w)
         b = Abs(w) @ worker 0 1
         c = Abs(w) @ worker 1
         d = Add(w, w)",
        expect![[r#"
            /job:ps/replica:0/task:0
              v = VarHandleOp {dtype: float, shape: shape[2]} @ ps 0 0
              w = ReadVariableOp(v) {dtype: float} @ ps 0 0
              w_S2 = _Send(w) edge_0_w ps 0 0 -> worker 0 0 @ ps 0 0
              w_S5 = _Send(w) edge_3_w ps 0 0 -> worker 1 0 @ ps 0 0
            /job:worker/replica:0/task:0
              w_S1 = _Recv edge_0_w ps 0 0 -> worker 0 0 @ worker 0 0
              a = Neg(w_S1) @ worker 0 0
              b = Abs(w_S1) @ worker 0 1
              d = Add(w_S1, w_S1) @ worker 0 0
            /job:worker/replica:0/task:1
              w_S4 = _Recv edge_3_w ps 0 0 -> worker 1 0 @ worker 1 0
              c = Abs(w_S4) @ worker 1 0
        "#]],
    );
}

#[test]
fn a_small_constant_is_where_it_is_used() {
    let large = format!("{:?}", [1.0f32; 300]).replace(',', "");
    check(
        &format!(
            "here = Const {{dtype: float, value: float[] 1}} @ ps
             used_here = Neg(here) @ ps
             a = Neg(here)
             away = Const {{dtype: float, value: float[] 2}} @ ps
             b = Neg(away)
             c = Neg(away) @ worker 1
             d = Square(away) @ worker 1
             waited = Const {{dtype: float, value: float[] 3}} @ ps
             wait = NoOp(^waited) @ ps
             e = Neg(waited)
             waits = Const(^wait) {{dtype: float, value: float[] 4}} @ ps
             f = Neg(waits)
             large = Const {{dtype: float, value: float[300] {large}}} @ ps
             g = Neg(large)"
        )
        .replace("             ", ""),
        expect![[r#"
            /job:ps/replica:0/task:0
              here = Const {dtype: float, value: float[] 1} @ ps 0 0
              used_here = Neg(here) @ ps 0 0
              waited = Const {dtype: float, value: float[] 3} @ ps 0 0
              wait = NoOp(^waited) @ ps 0 0
              waits = Const(^wait) {dtype: float, value: float[] 4} @ ps 0 0
              waits_S5 = _Send(waits) edge_3_waits ps 0 0 -> worker 0 0 @ ps 0 0
              large = Const {dtype: float, value: float[300] [1 1 1 ... 1 1 1]} @ ps 0 0
              large_S8 = _Send(large) edge_6_large ps 0 0 -> worker 0 0 @ ps 0 0
            /job:worker/replica:0/task:0
              a = Neg(here_S0) @ worker 0 0
              away = Const {dtype: float, value: float[] 2} @ worker 0 0
              b = Neg(away) @ worker 0 0
              e = Neg(waited_S2) @ worker 0 0
              waits_S4 = _Recv edge_3_waits ps 0 0 -> worker 0 0 @ worker 0 0
              f = Neg(waits_S4) @ worker 0 0
              large_S7 = _Recv edge_6_large ps 0 0 -> worker 0 0 @ worker 0 0
              g = Neg(large_S7) @ worker 0 0
              here_S0 = Const {dtype: float, value: float[] 1} @ worker 0 0
              waited_S2 = Const {dtype: float, value: float[] 3} @ worker 0 0
            /job:worker/replica:0/task:1
              c = Neg(away_S1) @ worker 1 0
              d = Square(away_S1) @ worker 1 0
              away_S1 = Const {dtype: float, value: float[] 2} @ worker 1 0
        "#]],
    );
}

#[test]
fn waiting_for_another_task_is_receiving_nothing() {
    check(
        "a = NoOp @ ps
         b = NoOp(^a)
         c = NoOp(^a, ^b)
         d = NoOp(^c) @ ps",
        expect![[r#"
            /job:ps/replica:0/task:0
              a = NoOp @ ps 0 0
              a_S0 = Const(^a) {dtype: float, value: float[0] []} @ ps 0 0
              a_S3 = _Send(a_S0) edge_1_a ps 0 0 -> worker 0 0 @ ps 0 0
              c_S7 = _Recv edge_6_c worker 0 0 -> ps 0 0 @ ps 0 0
              c_S9 = Identity(c_S7) @ ps 0 0
              d = NoOp(^c_S9) @ ps 0 0
            /job:worker/replica:0/task:0
              a_S2 = _Recv edge_1_a ps 0 0 -> worker 0 0 @ worker 0 0
              a_S4 = Identity(a_S2) @ worker 0 0
              b = NoOp(^a_S4) @ worker 0 0
              c = NoOp(^a_S4, ^b) @ worker 0 0
              c_S5 = Const(^c) {dtype: float, value: float[0] []} @ worker 0 0
              c_S8 = _Send(c_S5) edge_6_c worker 0 0 -> ps 0 0 @ worker 0 0
        "#]],
    );
}

#[test]
fn a_reference_is_read_for_each_user_after_what_it_waits_for() {
    check(
        "v = VariableV2 {dtype: float, shape: shape[2]} @ ps
         k = Const {dtype: float, value: float[2] [1 2]} @ ps
         set = Assign(v, k) @ ps
         other = NoOp(^set)
         a = Neg(v, ^set)
         b = Neg(v, ^other)
         c = Neg(set)",
        expect![[r#"
            /job:ps/replica:0/task:0
              v = VariableV2 {dtype: float, shape: shape[2]} @ ps 0 0
              k = Const {dtype: float, value: float[2] [1 2]} @ ps 0 0
              set = Assign(v, k) @ ps 0 0
              set_S0 = Const(^set) {dtype: float, value: float[0] []} @ ps 0 0
              set_S3 = _Send(set_S0) edge_1_set ps 0 0 -> worker 0 0 @ ps 0 0
              v_S7 = _Send(v, ^set) edge_5_v ps 0 0 -> worker 0 0 @ ps 0 0
              v_S10 = _Send(v, ^other_S15) edge_8_v ps 0 0 -> worker 0 0 @ ps 0 0
              other_S13 = _Recv edge_12_other worker 0 0 -> ps 0 0 @ ps 0 0
              other_S15 = Identity(other_S13) @ ps 0 0
              set_S18 = _Send(set) edge_16_set ps 0 0 -> worker 0 0 @ ps 0 0
            /job:worker/replica:0/task:0
              set_S2 = _Recv edge_1_set ps 0 0 -> worker 0 0 @ worker 0 0
              set_S4 = Identity(set_S2) @ worker 0 0
              other = NoOp(^set_S4) @ worker 0 0
              v_S6 = _Recv edge_5_v ps 0 0 -> worker 0 0 @ worker 0 0
              a = Neg(v_S6, ^set_S4) @ worker 0 0
              v_S9 = _Recv edge_8_v ps 0 0 -> worker 0 0 @ worker 0 0
              other_S11 = Const(^other) {dtype: float, value: float[0] []} @ worker 0 0
              other_S14 = _Send(other_S11) edge_12_other worker 0 0 -> ps 0 0 @ worker 0 0
              b = Neg(v_S9, ^other) @ worker 0 0
              set_S17 = _Recv edge_16_set ps 0 0 -> worker 0 0 @ worker 0 0
              c = Neg(set_S17) @ worker 0 0
        "#]],
    );
}

#[test]
fn what_is_known_of_a_value_is_known_where_it_is_received() {
    let parts = partition(
        &graph(&complete("x = Placeholder {dtype: float, shape: shape[2,?]} @ ps\ny = Neg(x)")),
        &DeviceName::task_name,
    );
    let parts = parts.unwrap();
    let recv = parts[1].graph.nodes().find(|(_, n)| n.op.name == "_Recv").unwrap().1;
    assert_eq!(recv.outputs[0].shape.to_string(), "[2,?]");
}

#[test]
fn devices_of_a_task_are_cut_apart_by_the_task_itself() {
    let parts = partition(
        &graph(&complete("x = Const {dtype: float, value: float[] 1}\ny = Neg(x) @ worker 0 1")),
        &DeviceName::to_string,
    );
    expect![[r#"
        /job:worker/replica:0/task:0/device:CPU:1
          x = Const {dtype: float, value: float[] 1} @ worker 0 1
          y = Neg(x) @ worker 0 1
    "#]]
    .assert_eq(&print(&parts.unwrap()));
}

#[test]
fn the_ends_of_the_client_stay_where_they_are() {
    use crate::support::{client, place};
    let placed = place("x = Placeholder {dtype: float} @ /job:ps\ny = Neg(x) @ /job:ps", false).unwrap();
    let signature = plan::RunSignature::new(vec!["x:0".into()], vec!["y:0".into()], vec![]).unwrap();
    let pruned = plan::prune(&placed, &signature, &client(), &registry()).unwrap();
    expect![[r#"
        /job:worker/replica:0/task:1
          _recv_x_0 = _Recv x:0 worker 1 0 -> worker 1 0 @ worker 1 0
          _recv_x_0_S2 = _Send(_recv_x_0) edge_0__recv_x_0 worker 1 0 -> ps 0 0 @ worker 1 0
          y_S4 = _Recv edge_3_y ps 0 0 -> worker 1 0 @ worker 1 0
          _send_y_0 = _Send(y_S4) y:0 worker 1 0 -> worker 1 0 @ worker 1 0
        /job:ps/replica:0/task:0
          _recv_x_0_S1 = _Recv edge_0__recv_x_0 worker 1 0 -> ps 0 0 @ ps 0 0
          y = Neg(_recv_x_0_S1) @ ps 0 0
          y_S5 = _Send(y) edge_3_y ps 0 0 -> worker 1 0 @ ps 0 0
    "#]]
    .assert_eq(&print(&partition(&pruned.graph, &DeviceName::task_name).unwrap()));
}

/// TensorFlow's own tests look for it there in the trace of a run.
#[test]
fn a_constant_that_is_fetched_stays_where_it_was_placed() {
    use crate::support::{client, place};
    let placed = place("k = Const {dtype: int32, value: int32[] 17} @ /job:ps", false).unwrap();
    let signature = plan::RunSignature::new(vec![], vec!["k:0".into()], vec![]).unwrap();
    let pruned = plan::prune(&placed, &signature, &client(), &registry()).unwrap();
    expect![[r#"
        /job:ps/replica:0/task:0
          k = Const {dtype: int32, value: int32[] 17} @ ps 0 0
          k_S2 = _Send(k) edge_0_k ps 0 0 -> worker 1 0 @ ps 0 0
        /job:worker/replica:0/task:1
          k_S1 = _Recv edge_0_k ps 0 0 -> worker 1 0 @ worker 1 0
          _send_k_0 = _Send(k_S1) k:0 worker 1 0 -> worker 1 0 @ worker 1 0
    "#]]
    .assert_eq(&print(&partition(&pruned.graph, &DeviceName::task_name).unwrap()));
}

/// The same nodes with the same edges as TensorFlow makes of this loop, names and order aside.
#[test]
fn a_loop_is_kept_in_step_where_part_of_its_body_is() {
    check(
        "zero = Const {dtype: int32, value: int32[] 0}
         one = Const {dtype: float, value: float[] 1}
         inv = Const {dtype: float, value: float[] 3} @ ps
         i0 = Enter(zero) {frame_name: 'loop'}
         x0 = Enter(one) {frame_name: 'loop'}
         k = Enter(inv) {frame_name: 'loop', is_constant: true}
         i1 = Merge(i0, i5)
         x1 = Merge(x0, x5)
         limit = Const(^i1) {dtype: int32, value: int32[] 3}
         less = Less(i1, limit)
         cond = LoopCond(less)
         i2 = Switch(i1, cond)
         x2 = Switch(x1, cond)
         i3 = Identity(i2:1)
         x3 = Identity(x2:1)
         unit = Const(^i3) {dtype: int32, value: int32[] 1}
         i4 = Add(i3, unit)
         i5 = NextIteration(i4)
         y = Mul(x3, k) @ ps
         fone = Const(^i3) {dtype: float, value: float[] 1}
         x4 = Add(y, fone)
         x5 = NextIteration(x4)
         x6 = Exit(x2) @ ps",
        expect![[r#"
            /job:worker/replica:0/task:0
              zero = Const {dtype: int32, value: int32[] 0} @ worker 0 0
              one = Const {dtype: float, value: float[] 1} @ worker 0 0
              i0 = Enter(zero) {frame_name: "loop"} @ worker 0 0
              x0 = Enter(one) {frame_name: "loop"} @ worker 0 0
              i1 = Merge(i0, i5) @ worker 0 0
              x1 = Merge(x0, x5) @ worker 0 0
              limit = Const(^i1) {dtype: int32, value: int32[] 3} @ worker 0 0
              less = Less(i1, limit) @ worker 0 0
              cond = LoopCond(less) @ worker 0 0
              i2 = Switch(i1, cond) @ worker 0 0
              x2 = Switch(x1, cond) @ worker 0 0
              i3 = Identity(i2:1) @ worker 0 0
              x3 = Identity(x2:1) @ worker 0 0
              unit = Const(^i3) {dtype: int32, value: int32[] 1} @ worker 0 0
              i4 = Add(i3, unit) @ worker 0 0
              i5 = NextIteration(i4) @ worker 0 0
              x3_S12 = _Send(x3) edge_10_x3 worker 0 0 -> ps 0 0 @ worker 0 0
              fone = Const(^i3) {dtype: float, value: float[] 1} @ worker 0 0
              y_S14 = _Recv(^_cloopx4_S7) edge_13_y ps 0 0 -> worker 0 0 @ worker 0 0
              x4 = Add(y_S14, fone) @ worker 0 0
              x5 = NextIteration(x4) @ worker 0 0
              x6 = Exit(x2) @ worker 0 0
              cond_S18 = _Send(cond) edge_16_cond worker 0 0 -> ps 0 0 @ worker 0 0
              x4_S5 = Const {dtype: float, value: float[0] []} @ worker 0 0
              _cloopx4_S6 = Enter(x4_S5) {frame_name: "loop"} @ worker 0 0
              _cloopx4_S7 = Merge(_cloopx4_S6, _cloopx4_S9) @ worker 0 0
              _cloopx4_S8 = Switch(_cloopx4_S7, cond) @ worker 0 0
              _cloopx4_S9 = NextIteration(_cloopx4_S8:1) @ worker 0 0
            /job:ps/replica:0/task:0
              inv = Const {dtype: float, value: float[] 3} @ ps 0 0
              k = Enter(inv) {frame_name: "loop", is_constant: true} @ ps 0 0
              x3_S11 = _Recv(^_cloopy_S2) edge_10_x3 worker 0 0 -> ps 0 0 @ ps 0 0
              y = Mul(x3_S11, k) @ ps 0 0
              y_S15 = _Send(y) edge_13_y ps 0 0 -> worker 0 0 @ ps 0 0
              y_S0 = Const {dtype: float, value: float[0] []} @ ps 0 0
              _cloopy_S1 = Enter(y_S0) {frame_name: "loop"} @ ps 0 0
              _cloopy_S2 = Merge(_cloopy_S1, _cloopy_S4) @ ps 0 0
              cond_S17 = _Recv(^_cloopy_S2) edge_16_cond worker 0 0 -> ps 0 0 @ ps 0 0
              _cloopy_S3 = Switch(_cloopy_S2, cond_S17) @ ps 0 0
              _cloopy_S4 = NextIteration(_cloopy_S3:1) @ ps 0 0
        "#]],
    );
}

#[test]
fn names_never_repeat() {
    let whole = graph(&complete(
        "k = Const {dtype: float, value: float[] 1} @ ps
         x_S1 = Neg(k) @ ps
         x = Neg(k) @ ps
         y = Add(x, x_S1)",
    ));
    let mut names = EdgeNames::default();
    let mut cut = || plan::partition(&whole, &registry(), &DeviceName::task_name, &|_| Ok(1), &mut names).unwrap();
    let all: Vec<Part> = cut().into_iter().chain(cut()).collect();
    let ours = |n: &framework::Node| n.op.name.starts_with('_').then(|| n.name.clone());
    let mut found: Vec<String> = all.iter().flat_map(|p| p.graph.nodes()).filter_map(|(_, n)| ours(n)).collect();
    let count = found.len();
    found.sort();
    found.dedup();
    assert_eq!((count, found.len()), (8, 8));
}

#[test]
fn mistakes_have_their_texts() {
    let error = |notation: &str| partition(&graph(notation), &DeviceName::task_name).unwrap_err().message;
    assert_eq!(error("a = NoOp"), "Node 'a' is missing a device specification");
    assert_eq!(error("a = NoOp @ /job:ps"), "Node 'a' has the incomplete device specification '/job:ps'");
    expect![[r#"
        Node 'set' on /job:worker/replica:0/task:0/device:CPU:0 takes a reference to 'v' on /job:ps/replica:0/task:0/device:CPU:0: they must be on the same device
        	 [[{{node set}}]]"#]].assert_eq(&error(&complete(
        "v = VariableV2 {dtype: float, shape: shape[2]} @ ps
         k = Const {dtype: float, value: float[2] [1 2]} @ ps
         set = Assign(v, k)",
    )));
}

//! Sessions come, grow, share what the task holds, and go.

use crate::support::{Session, assert_error, cluster, constant, graph, node, nodes, wait};
use distributed::MasterInterface;
use tensor::Code::{Aborted, FailedPrecondition, InvalidArgument, NotFound};
use tensor::{DType, Tensor};

fn double(name: &str, of: &str) -> proto::NodeDef {
    node(name, "Add", &[of, of], &[("T", DType::F32.into())])
}

#[test]
fn a_graph_grows_between_runs() {
    let session = Session::open("a = Const {dtype: float, value: float[] 1}");
    assert_eq!(session.value("a"), Tensor::from(1.0f32));
    assert_eq!(session.extend(nodes([double("b", "a")]), 0).unwrap(), 1);
    assert_eq!(session.value("b"), Tensor::from(2.0f32));
    assert_eq!(session.extend(nodes([double("c", "b"), double("d", "c")]), 1).unwrap(), 2);
    assert_eq!(session.run(&[], &["a", "d"]).unwrap(), [Tensor::from(1.0f32), Tensor::from(8.0f32)]);
}

#[test]
fn an_empty_extension_raises_the_version() {
    let session = Session::on(&cluster(), nodes([])).unwrap();
    assert_eq!(session.extend(nodes([]), 0).unwrap(), 1);
    assert_eq!(session.extend(nodes([constant("c", 1i32)]), 1).unwrap(), 2);
    assert_eq!(session.value("c"), Tensor::from(1i32));
}

#[test]
fn an_extension_must_know_the_version() {
    let session = Session::open("a = Const {dtype: float, value: float[] 1}");
    for version in [1, -1, 7] {
        let said = format!("Current version is 0 but caller expected {version}.");
        assert_error(session.extend(nodes([double("b", "a")]), version), Aborted, &[&said]);
    }
    assert_eq!(session.extend(nodes([double("b", "a")]), 0).unwrap(), 1);
    assert_error(
        session.extend(nodes([double("c", "a")]), 0),
        Aborted,
        &["Current version is 1 but caller expected 0."],
    );
}

#[test]
fn after_a_failed_extension_nothing_has_changed() {
    let session = Session::open("a = Const {dtype: float, value: float[] 1}");
    assert_error(
        session.extend(nodes([double("b", "a"), double("a", "a")]), 0),
        InvalidArgument,
        &[
            "GraphDef argument to Extend includes node 'a', which was created by a previous call to Create or Extend in this session.",
        ],
    );
    assert_error(
        session.extend(nodes([double("b", "a"), double("c", "nowhere")]), 0),
        InvalidArgument,
        &["Node 'c': Unknown input node 'nowhere'"],
    );
    assert_error(
        session.extend(nodes([double("b", "a"), node("c", "NoSuchOp", &[], &[])]), 0),
        NotFound,
        &["Op type not registered 'NoSuchOp'"],
    );
    let mut elsewhere = double("c", "a");
    elsewhere.device = "/job:ps".into();
    assert_error(session.extend(nodes([double("b", "a"), elsewhere]), 0), InvalidArgument, &["/job:ps"]);
    assert_error(session.run(&[], &["b"]), NotFound, &["FetchOutputs node b: not found"]);
    assert_eq!(session.extend(nodes([double("b", "a")]), 0).unwrap(), 1);
    assert_eq!(session.value("b"), Tensor::from(2.0f32));
}

#[test]
fn a_session_nobody_opened_is_not_found() {
    let mut session = Session::open("a = NoOp");
    session.handle = "0123456789abcdef".into();
    assert_error(session.target(&["a"]), Aborted, &["Session 0123456789abcdef is not found."]);
    assert_error(session.extend(nodes([]), 0), Aborted, &["Session 0123456789abcdef is not found."]);
    assert_error(session.close(), Aborted, &["is not found. Possibly, this master has restarted."]);
    let call = session.cluster.master().list_devices(session.handle.clone());
    assert_error(wait(call), InvalidArgument, &["is not found"]);
}

#[test]
fn a_closed_session_is_gone() {
    let session = Session::open("a = NoOp");
    session.target(&["a"]).unwrap();
    session.close().unwrap();
    assert_error(session.target(&["a"]), Aborted, &["is not found"]);
    assert_error(session.close(), Aborted, &["is not found"]);
}

#[test]
fn the_devices_are_listed() {
    let session = Session::open("a = NoOp");
    for handle in [session.handle.clone(), String::new()] {
        let devices = wait(session.cluster.master().list_devices(handle)).unwrap().local;
        let names: Vec<&str> = devices.iter().map(|d| d.name.as_str()).collect();
        assert_eq!(names, ["/job:localhost/replica:0/task:0/device:CPU:0"]);
        assert_eq!(devices[0].device_type, "CPU");
        assert_ne!(devices[0].incarnation, 0);
        assert!(devices[0].memory_limit > 0);
    }
}

const VARIABLES: &str = "
    three = Const {dtype: float, value: float[] 3}
    v = VariableV2 {dtype: float, shape: shape[]}
    set_v = Assign(v, three)
    w = VarHandleOp {dtype: float, shape: shape[], shared_name: \"w\"}
    set_w = AssignVariableOp(w, three)
    read_w = ReadVariableOp(w) {dtype: float}
";

#[test]
fn sessions_of_a_task_share_its_variables() {
    let cluster = cluster();
    let first = Session::on(&cluster, graph(VARIABLES)).unwrap();
    let second = Session::on(&cluster, graph(VARIABLES)).unwrap();
    first.target(&["set_v", "set_w"]).unwrap();
    assert_eq!(second.run(&[], &["v", "read_w"]).unwrap(), [Tensor::from(3.0f32), Tensor::from(3.0f32)]);
    // Variables outlive the session that made them.
    first.close().unwrap();
    assert_eq!(second.value("v"), Tensor::from(3.0f32));
    let third = Session::on(&cluster, graph(VARIABLES)).unwrap();
    assert_eq!(third.run(&[], &["v", "read_w"]).unwrap(), [Tensor::from(3.0f32), Tensor::from(3.0f32)]);
}

#[test]
fn tasks_share_nothing() {
    let first = Session::open(VARIABLES);
    let second = Session::open(VARIABLES);
    first.target(&["set_v", "set_w"]).unwrap();
    assert_error(second.run(&[], &["v"]), FailedPrecondition, &["uninitialized value v"]);
    assert_error(second.run(&[], &["read_w"]), FailedPrecondition, &["Could not find variable w"]);
}

#[test]
fn a_reset_ends_all_sessions_and_clears_the_default_container() {
    let cluster = cluster();
    let session = Session::on(&cluster, graph(VARIABLES)).unwrap();
    session.target(&["set_v", "set_w"]).unwrap();
    wait(cluster.master().reset(vec![], vec![])).unwrap();
    assert_error(session.run(&[], &["v"]), Aborted, &["is not found"]);
    let again = Session::on(&cluster, graph(VARIABLES)).unwrap();
    assert_error(again.run(&[], &["v"]), FailedPrecondition, &["uninitialized value v"]);
    assert_error(again.run(&[], &["read_w"]), FailedPrecondition, &["Could not find variable w"]);
    again.target(&["set_v"]).unwrap();
    assert_eq!(again.value("v"), Tensor::from(3.0f32));
}

#[test]
fn a_reset_leaves_other_containers_alone() {
    let cluster = cluster();
    let kept = "
        three = Const {dtype: float, value: float[] 3}
        v = VariableV2 {dtype: float, shape: shape[], container: \"kept\"}
        set = Assign(v, three)
    ";
    Session::on(&cluster, graph(kept)).unwrap().target(&["set"]).unwrap();
    wait(cluster.master().reset(vec![], vec![])).unwrap();
    assert_eq!(Session::on(&cluster, graph(kept)).unwrap().value("v"), Tensor::from(3.0f32));
    wait(cluster.master().reset(vec!["kept".into()], vec![])).unwrap();
    let again = Session::on(&cluster, graph(kept)).unwrap();
    assert_error(again.run(&[], &["v"]), FailedPrecondition, &["uninitialized value v"]);
}

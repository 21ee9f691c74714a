//! Bytes as a GraphDef: imported, exported, imported again; then a session is opened on it, and its last node run.

#![no_main]

use distributed::{LocalCluster, MasterInterface, RunStep};
use framework::SystemEnv;
use framework::graph::{export, import};
use libfuzzer_sys::fuzz_target;
use prost::Message;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Longer than any graph of a few nodes takes; those that wait for something are given up.
const PATIENCE: Duration = Duration::from_secs(1);

fuzz_target!(|bytes: &[u8]| {
    fuzz::limit_memory();
    let Ok(message) = proto::GraphDef::decode(bytes) else { return };
    let registry = fuzz::registry();
    let Ok(graph) = import::import(&message, &registry) else { return };
    let out = export::export(&graph);
    let again = import::import(&out, &registry).expect("an exported graph can be imported");
    assert_eq!(export::export(&again).encode_to_vec(), out.encode_to_vec());
    let Some((_, last)) = graph.nodes().last() else { return };
    run(message, last.name.clone(), !last.outputs.is_empty());
});

fn run(graph: proto::GraphDef, node: String, has_output: bool) {
    static CLUSTER: OnceLock<LocalCluster> = OnceLock::new();
    let new = || LocalCluster::new("localhost", 1, fuzz::registry(), Arc::new(SystemEnv::default()));
    let master = CLUSTER.get_or_init(new).master();
    let deadline = || Some(Instant::now() + PATIENCE);
    let config = proto::ConfigProto { allow_soft_placement: true, ..Default::default() };
    let request = proto::CreateSessionRequest { graph_def: Some(graph), config: Some(config), ..Default::default() };
    let Ok(Ok(session)) = runtime::block_on(master.create_session(request), deadline()) else { return };
    let (fetches, targets) = if has_output { (vec![node], vec![]) } else { (vec![], vec![node]) };
    let step = RunStep { session, fetches, targets, ..RunStep::default() };
    let _ = runtime::block_on(master.run_step(step), deadline());
    let reset = runtime::block_on(master.reset(vec![], vec![]), deadline());
    reset.expect("a reset does not wait").expect("a reset does not fail");
}

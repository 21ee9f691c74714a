//! Programs made of functions, branches and loops over two tasks, and what TensorFlow computed.

use crate::memory::Cluster;
use prost::Message;

#[test]
fn programs_made_of_functions_give_what_tensorflow_gives() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/graphs/functional.pb");
    let message = proto::GraphDef::decode(std::fs::read(file).unwrap().as_slice()).unwrap();
    let gives: Vec<String> = message.node.iter().map(|n| n.name.clone()).filter(|n| n.contains("/got_")).collect();
    assert!(gives.len() > 20);
    let cluster = Cluster::start("ps|a:1,worker|b:1");
    for master in ["/job:worker/task:0", "/job:ps/task:0"] {
        let session = cluster.session_on(master, message.clone(), proto::ConfigProto::default()).unwrap();
        for _ in 0..3 {
            for name in &gives {
                let want = session.value(&name.replace("/got_", "/want_"));
                assert_eq!(session.value(name), want, "{name} by the master of {master}");
            }
        }
    }
}

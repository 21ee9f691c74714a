//! The end of servers and connections.

use crate::fakes::{Served, task, until, wait};
use distributed::interface::{RunGraph, WorkerInterface};
use framework::RendezvousKey;
use futures_util::future::join;
use rpc::Listener;
use std::sync::Arc;
use std::time::Duration;
use tensor::Code;

#[test]
fn a_dropped_server_frees_its_port_at_once() {
    let address = Served::start().address();
    for _ in 0..1000 {
        let served = Served::at(&address);
        assert_eq!(served.address(), address);
    }
}

#[test]
fn a_port_is_free_again_although_there_were_connections() {
    let mut address = "127.0.0.1:0".to_string();
    for _ in 0..50 {
        let served = Served::at(&address);
        address = served.address();
        wait(served.worker().get_status(Default::default())).unwrap();
    }
}

#[test]
fn a_taken_port_names_its_holder() {
    let served = Served::start();
    let error = Listener::bind(&served.address()).unwrap_err();
    for part in [&served.address()[..], &format!("process {}", std::process::id())] {
        assert!(error.message.contains(part), "'{part}' is missing in: {error}");
    }
    let elsewhere = Listener::bind("192.0.2.1:0").unwrap_err();
    assert!(elsewhere.message.contains("192.0.2.1 is not of this machine"), "{elsewhere}");
}

#[test]
fn a_name_is_listened_on_where_others_look_first() {
    let served = Served::at("localhost:0");
    assert!(served.server.address().is_ipv4());
    let address = format!("localhost:{}", served.server.address().port());
    let worker = rpc::RemoteWorker::new(rpc::Channel::new(None, &address));
    wait(worker.get_status(Default::default())).unwrap();
}

#[test]
fn a_call_under_way_breaks_off_when_its_server_goes() {
    for served in Served::each_way() {
        let worker = Arc::new(served.worker());
        let call = {
            let worker = worker.clone();
            rpc::runtime::steps().spawn(async move { worker.recv_tensor(1, RendezvousKey::from_text("wait")).await })
        };
        until("the call is under way", || served.counts.under_way() == 1);
        let (counts, address) = (served.counts.clone(), served.address());
        drop(served);
        let error = wait(call).unwrap().unwrap_err();
        assert_eq!(error.code, Code::Unavailable, "{error}");
        for part in ["RecvTensor", &task().to_string(), &address[..]] {
            assert!(error.message.contains(part), "'{part}' is missing in: {error}");
        }
        until("the handler is gone", || counts.under_way() == 0);
    }
}

#[test]
fn a_server_that_stops_lets_calls_end() {
    for served in Served::each_way() {
        let worker = served.worker();
        wait(worker.get_status(Default::default())).unwrap();
        assert!(wait(served.server.stop(Duration::from_secs(10))), "nothing was under way");
    }
    for served in Served::each_way() {
        let run = |graph: &str| RunGraph { session: "s".into(), graph: graph.into(), ..Default::default() };
        let worker = Arc::new(served.worker());
        let call = |graph: &str| {
            let (worker, run) = (worker.clone(), run(graph));
            rpc::runtime::steps().spawn(async move { worker.run_graph(run).await })
        };
        let (gate, waits) = (call("gate"), call("wait"));
        until("the calls are under way", || served.counts.under_way() == 2);
        let stop = served.server.stop(Duration::from_secs(2));
        let open = async {
            let refused = async || worker.run_graph(run("more")).await.is_err();
            while !refused().await {}
            served.fake.gate.send_replace(true);
            gate.await.unwrap()
        };
        let (has_drained, ended) = wait(join(stop, open));
        ended.expect("what was under way is let end while new calls are refused");
        assert!(!has_drained, "a call never ends");
        assert_eq!(wait(waits).unwrap().unwrap_err().code, Code::Unavailable);
    }
}

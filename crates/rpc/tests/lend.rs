//! Large values are taken from the memory of a task on the same machine, and are held there no longer than that takes.

use crate::fakes::{LARGE, PATIENCE, Served, pattern, step, task, until, wait};
use distributed::interface::{MasterInterface, Parcel, Push, RegisterGraph, RunGraph, WorkerInterface};
use framework::{Arrived, Delivery, Rendezvous, RendezvousKey};
use proto::LentTensor;
use rpc::channel::Outgoing;
use rpc::pieces::Writer;
use rpc::{Channel, Lane, RemoteWorker};
use std::net::SocketAddr;
use std::pin::pin;
use std::task::{Context, Waker};
use tensor::{Code, Tensor};

/// A server, and a stub that knows what kind of server it is.
fn served() -> (Served, RemoteWorker) {
    let served = Served::with_tensors();
    let worker = served.worker();
    wait(worker.get_status(Default::default())).unwrap();
    (served, worker)
}

/// Asks for what the fake gives by this name, having learnt that it is large.
fn take(served: &Served, worker: &RemoteWorker, step: i64, name: &str) -> tensor::Result<Delivery> {
    let key = RendezvousKey::from_text(name);
    let rendezvous = served.fake.steps.start(step, &"session".into());
    rendezvous.send(&key, Delivery::Tensor(pattern(100_000, 0))).unwrap();
    wait(worker.recv_tensor(step, key))
}

#[test]
fn values_of_all_sizes_and_kinds_arrive() {
    let (served, worker) = served();
    for (step, name) in ["1000", "65536", "1048577", "20000001", "70000"].into_iter().enumerate() {
        let Delivery::Tensor(found) = take(&served, &worker, step as i64, name).unwrap() else { panic!("dead") };
        assert!(found == pattern(name.parse().unwrap(), step as u8), "{name} bytes");
    }
    let Delivery::Tensor(found) = take(&served, &worker, 10, "strings").unwrap() else { panic!("dead") };
    assert_eq!(found, Tensor::from(["a", "", "ü"]));
    assert!(matches!(take(&served, &worker, 11, "dead").unwrap(), Delivery::Dead));
    assert_eq!(take(&served, &worker, 12, "fail").unwrap_err().code, Code::DataLoss);
    // Every call has ended, also those whose values were read in place.
    assert!(wait(served.server.stop(PATIENCE)));
}

#[test]
fn a_value_that_nobody_wants_any_more_is_not_waited_for() {
    let (served, worker) = served();
    let key = RendezvousKey::from_text("wait");
    let rendezvous = served.fake.steps.start(1, &"session".into());
    rendezvous.send(&key, Delivery::Tensor(pattern(100_000, 0))).unwrap();
    {
        let mut waiting = pin!(worker.recv_tensor(1, key));
        until("it is asked for alone", || {
            assert!(waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            served.counts.begun.load(std::sync::atomic::Ordering::SeqCst) == 2 && served.counts.under_way() == 1
        });
    }
    until("the call is dropped", || served.counts.under_way() == 0);
    assert!(wait(served.server.stop(PATIENCE)));
}

#[test]
fn a_server_that_lends_nothing_sends_its_values() {
    let served = Served::start();
    let worker = served.worker();
    wait(worker.get_status(Default::default())).unwrap();
    let found = wait(worker.recv_tensor(3, RendezvousKey::from_text("2000000"))).unwrap();
    assert!(matches!(found, Delivery::Tensor(found) if found == pattern(2_000_000, 3)));
}

/// A way to the server that looks like one from another machine: under this address it has no name.
fn from_afar(served: &Served) -> Channel {
    let address = SocketAddr::from(([127, 0, 0, 2], served.server.address().port()));
    Channel::new(Some(&task()), &address.to_string())
}

#[test]
fn values_that_come_with_a_call_or_its_answer_are_lent_on_one_machine_alone() {
    let served = Served::with_tensors_at("0.0.0.0:0");
    let near = SocketAddr::from(([127, 0, 0, 1], served.server.address().port()));
    let near = Channel::new(Some(&task()), &near.to_string());
    for (channel, is_near) in [(near, true), (from_afar(&served), false)] {
        let worker = RemoteWorker::new(channel);
        assert_eq!(worker.early_bytes_max(), 0, "nothing is known of the server");
        let graph = wait(worker.register_graph(RegisterGraph::default())).unwrap();
        assert_eq!(worker.early_bytes_max() > LARGE, is_near);
        let values = [("small", pattern(10, 7)), ("large", pattern(LARGE, 7)), ("empty", pattern(0, 7))];
        let request = RunGraph {
            graph,
            send: values.iter().map(|(key, value)| (RendezvousKey::from_text(key), value.clone())).collect(),
            recv: values.iter().map(|(key, _)| RendezvousKey::from_text(key)).collect(),
            bring_to: Some(task()),
            ..RunGraph::default()
        };
        let mut reply = wait(worker.run_graph(request)).unwrap();
        assert!(reply.recv.iter().eq(values.iter().map(|(_, value)| value)));
        reply.brought.sort_by_key(|(place, _)| *place);
        assert!(reply.brought.iter().map(|(place, _)| *place).eq(0..3));
        match &reply.brought[1].1 {
            Arrived::Value(Delivery::Tensor(large)) => assert!(is_near && *large == pattern(LARGE, 1)),
            other => assert!(!is_near && matches!(other, Arrived::Alone)),
        }
    }
    // Every call has ended, also those with loans.
    assert!(wait(served.server.stop(PATIENCE)));
}

#[test]
fn what_is_sent_unasked_arrives_from_near_and_far() {
    let served = Served::with_tensors_at("0.0.0.0:0");
    let near = SocketAddr::from(([127, 0, 0, 1], served.server.address().port()));
    let near = Channel::new(Some(&task()), &near.to_string());
    let value = |bytes, seed| Arrived::Value(Delivery::Tensor(pattern(bytes, seed)));
    for (channel, is_near) in [(near, true), (from_afar(&served), false)] {
        let worker = RemoteWorker::new(channel);
        let send = |session: &str, step, values| {
            let parcel = Parcel { list: u64::MAX - 1, values };
            wait(worker.push(Push { session: session.into(), step, parcel }))
        };
        assert!(worker.push_bytes_max() < LARGE, "nothing is known of the server");
        // What is announced makes the sender find out whether the next can be lent.
        send("s", 1, vec![(3, Arrived::Alone), (1, value(100, 1)), (2, Arrived::Value(Delivery::Dead))]).unwrap();
        assert_eq!(worker.push_bytes_max() > LARGE, is_near);
        let large = if is_near { LARGE } else { 500_000 };
        send("s", -2, vec![(0, value(large, 2)), (4, value(7, 3)), (1, value(0, 0))]).unwrap();
        let pushed = std::mem::take(&mut *served.fake.pushed.lock().unwrap());
        let mut found: Vec<(i64, u32, String)> = Vec::new();
        for push in pushed {
            assert_eq!((push.session.as_str(), push.parcel.list), ("s", u64::MAX - 1));
            for (place, arrived) in push.parcel.values {
                let what = match arrived {
                    Arrived::Alone => "alone".into(),
                    Arrived::Value(Delivery::Dead) => "dead".into(),
                    Arrived::Value(Delivery::Tensor(tensor)) => {
                        let seed = [(0, 2), (4, 3), (1, if push.step == 1 { 1 } else { 0 })];
                        let seed = seed.iter().find(|(at, _)| *at == place).unwrap().1;
                        assert!(tensor == pattern(tensor.num_bytes(), seed), "place {place}");
                        tensor.num_bytes().to_string()
                    }
                };
                found.push((push.step, place, what));
            }
        }
        found.sort();
        let want = [(-2, 0, large.to_string()), (-2, 1, "0".into()), (-2, 4, "7".into())];
        let before = [(1, 1, "100".into()), (1, 2, "dead".into()), (1, 3, "alone".into())];
        assert!(found.iter().eq(want.iter().chain(&before)), "{found:?}");
        assert_eq!(send("fail", 3, vec![(0, value(large, 2))]).unwrap_err().code, Code::DataLoss);
    }
    assert!(wait(served.server.stop(PATIENCE)));
}

#[test]
fn whoever_has_sent_what_could_be_lent_lends_the_next() {
    let served = Served::with_tensors();
    let worker = served.worker();
    let send = |bytes| {
        let values = vec![(0, Arrived::Value(Delivery::Tensor(pattern(bytes, 1))))];
        wait(worker.push(Push { session: "s".into(), step: 1, parcel: Parcel { list: 1, values } })).unwrap();
        worker.push_bytes_max() > LARGE
    };
    assert_eq!([send(10_000), send(100_000)], [false, true]);
}

#[test]
fn a_client_lends_what_it_feeds() {
    let served = Served::with_tensors();
    let master = served.master();
    // The first is sent, since nothing is known of the server.
    for size in [LARGE, 5 << 20, LARGE] {
        let feeds = [("a", pattern(size, 1)), ("b", pattern(9, 2))];
        let reply = wait(master.run_step(step(&feeds, &["b", "a"], &[]))).unwrap();
        assert!(reply.fetches == [feeds[1].1.clone(), feeds[0].1.clone()]);
        let error = wait(master.run_step(step(&feeds, &["a"], &["fail"]))).unwrap_err();
        assert_eq!(error.code, Code::DataLoss);
    }
}

#[test]
fn what_is_said_to_be_lent_is_not_believed() {
    let served = Served::with_tensors_at("0.0.0.0:0");
    let near = SocketAddr::from(([127, 0, 0, 1], served.server.address().port()));
    let near = Channel::new(Some(&task()), &near.to_string());
    let seal = Box::new(0x1234_5678_9abc_def0u64);
    let content = vec![3u8; LARGE];
    let lent = LentTensor {
        name: "x".into(),
        process: std::process::id(),
        seal_address: (&raw const *seal) as u64,
        seal: *seal,
        address: content.as_ptr() as u64,
        dtype: Tensor::scalar(0u8).dtype().number(),
        dim: vec![LARGE as i64],
        ..Default::default()
    };
    let feed = |channel: &Channel, lent: LentTensor| {
        let request = proto::RunStepRequest { fetch: vec!["x".into()], lent_feed: vec![lent], ..Default::default() };
        let path = "/tensorflow.MasterService/RunStep";
        let body = Writer::default().message(&request).finish(path).unwrap();
        wait(channel.unary(Outgoing { path, body, limit: None, lane: Lane::Control, tries: 1 })).map(drop)
    };
    feed(&near, lent.clone()).unwrap();
    // The process is the one at the other end, whatever a message says.
    feed(&near, LentTensor { process: 1, ..lent.clone() }).unwrap();
    let refused = |channel: &Channel, lent: LentTensor, code: Code, part: &str| {
        let error = feed(channel, lent).unwrap_err();
        assert!(error.code == code && error.message.contains(part), "{error:?}");
    };
    refused(&from_afar(&served), lent.clone(), Code::Unavailable, "not known to be on this machine");
    refused(&near, LentTensor { seal: 1, ..lent.clone() }, Code::Unavailable, "let go of");
    refused(&near, LentTensor { address: 16, ..lent.clone() }, Code::Unavailable, "'x' could not be read");
    refused(&near, LentTensor { dim: vec![1 << 45], ..lent.clone() }, Code::ResourceExhausted, "memory");
    refused(&near, LentTensor { dim: vec![-4], ..lent.clone() }, Code::InvalidArgument, "dimension");
    refused(&near, LentTensor { dtype: 7, ..lent }, Code::InvalidArgument, "not an element type");
}

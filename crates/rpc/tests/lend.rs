//! Large values are taken from the memory of a task on the same machine, and are held there no longer than that takes.

use crate::fakes::{PATIENCE, Served, pattern, until, wait};
use distributed::interface::WorkerInterface;
use framework::{Delivery, Rendezvous, RendezvousKey};
use rpc::RemoteWorker;
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

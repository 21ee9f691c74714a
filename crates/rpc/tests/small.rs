//! What tasks of our own kind spare each other: small values travel together, and ended steps are forgotten together.

use crate::fakes::{Served, until, wait};
use distributed::brief::briefly;
use distributed::interface::WorkerInterface;
use framework::{Delivery, Rendezvous, RendezvousKey};
use futures_util::future::join_all;
use rpc::RemoteWorker;
use runtime::LocalRendezvous;
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::task::{Context, Waker};
use tensor::{Result, Tensor};

const STEP: i64 = 7;

/// A server, a stub that knows what kind of server it is, and the meeting place of a step there.
fn served() -> (Served, RemoteWorker, LocalRendezvous) {
    let served = Served::with_tensors();
    let worker = served.worker();
    wait(worker.get_status(Default::default())).unwrap();
    let rendezvous = served.fake.steps.start(STEP, &"session".into());
    (served, worker, rendezvous)
}

fn key(name: &str) -> RendezvousKey {
    RendezvousKey::new("/a", 1, "/b", name)
}

fn number(found: Result<Delivery>) -> i32 {
    match found.unwrap() {
        Delivery::Tensor(tensor) => tensor.item().unwrap(),
        Delivery::Dead => -1,
    }
}

#[test]
fn what_is_wanted_at_one_time_is_asked_for_in_one_call() {
    let (served, worker, rendezvous) = served();
    for i in 0..100 {
        rendezvous.send(&key(&i.to_string()), Delivery::Tensor(Tensor::scalar(i))).unwrap();
    }
    rendezvous.send(&key("100"), Delivery::Dead).unwrap();
    let before = served.counts.begun();
    let mut all = pin!(join_all((0..=100).map(|i| worker.recv_tensor(STEP, key(&i.to_string())))));
    // As on a network thread: elsewhere the first may be on its way before the last has joined.
    let asked = briefly(|| all.as_mut().poll(&mut Context::from_waker(Waker::noop())));
    assert!(asked.value.is_pending());
    let numbers: Vec<i32> = wait(all).into_iter().map(number).collect();
    assert_eq!(numbers, (0..100).chain([-1]).collect::<Vec<_>>());
    assert_eq!(served.counts.begun() - before, 1);
}

#[test]
fn no_value_waits_for_another() {
    let (served, worker, rendezvous) = served();
    let mut both = pin!(join_all(["early", "late"].map(|name| worker.recv_tensor(STEP, key(name)))));
    assert!(both.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    until("both are asked for", || served.counts.under_way() > 0);
    rendezvous.send(&key("early"), Delivery::Tensor(Tensor::scalar(1))).unwrap();
    until("the early one is taken", || rendezvous.awaited() == [key("late")]);
    rendezvous.send(&key("late"), Delivery::Tensor(Tensor::scalar(2))).unwrap();
    assert_eq!(wait(both).into_iter().map(number).collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn a_large_value_is_fetched_alone_and_known_the_next_time() {
    let (served, worker, rendezvous) = served();
    // The fake delivers as many bytes as the key says when it is asked for one value.
    let large = RendezvousKey::from_text("100000");
    for calls in [2, 3] {
        rendezvous.send(&large, Delivery::Tensor(crate::fakes::pattern(100_000, 0))).unwrap();
        let Delivery::Tensor(found) = wait(worker.recv_tensor(STEP, large.clone())).unwrap() else { panic!("dead") };
        assert_eq!(found, crate::fakes::pattern(100_000, STEP as u8));
        assert_eq!(served.counts.begun.load(Ordering::SeqCst), calls);
    }
}

#[test]
fn a_failure_reaches_all_and_nobody_asks_for_what_nobody_wants() {
    let (served, worker, rendezvous) = served();
    let ask = || join_all(["a", "b", "c"].map(|name| worker.recv_tensor(STEP, key(name))));
    {
        let mut given_up = pin!(ask());
        assert!(given_up.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        until("they are asked for", || rendezvous.awaited().len() == 3);
    }
    until("the call is dropped", || served.counts.under_way() == 0);
    let mut failing = pin!(ask());
    assert!(failing.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    until("they are asked for again", || rendezvous.awaited().len() == 3);
    rendezvous.abort(tensor::cancelled!("over"));
    let codes: Vec<_> = wait(failing).into_iter().map(|found| found.unwrap_err().code).collect();
    assert_eq!(codes, [tensor::Code::Cancelled; 3]);
}

#[test]
fn ended_steps_are_forgotten_together() {
    let (served, worker, _) = served();
    wait(join_all((0..50).map(|step| worker.cleanup_graph(step)))).into_iter().collect::<Result<Vec<()>>>().unwrap();
    assert_eq!(*served.fake.forgotten.lock().unwrap(), (0..50).collect::<Vec<i64>>());
}

#[test]
fn keys_asked_for_in_every_step_are_told_once_and_again_when_they_were_forgotten() {
    let (mut served, worker, _) = served();
    for step in 1..=8 {
        if step == 5 {
            // Another task takes the place of the first, and knows nothing.
            let address = served.address();
            drop(served);
            served = Served::with_tensors_at(&address);
            until("it answers", || wait(worker.get_status(Default::default())).is_ok());
        }
        let rendezvous = served.fake.steps.start(step, &"session".into());
        let send = |name| rendezvous.send(&key(name), Delivery::Tensor(Tensor::scalar(step as i32))).unwrap();
        // The last one comes when the others are there: it is asked for once more, by its place.
        ["a", "b"].into_iter().for_each(send);
        let mut all = pin!(join_all(["a", "b", "c"].map(|name| worker.recv_tensor(step, key(name)))));
        assert!(all.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        until("the others are taken", || rendezvous.awaited() == [key("c")]);
        send("c");
        assert_eq!(wait(all).into_iter().map(number).collect::<Vec<_>>(), [step as i32; 3]);
    }
}

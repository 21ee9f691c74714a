//! Threads that wait for a remote master, and move the bytes of its connection themselves.

use crate::fakes::{PATIENCE, Served, pattern, step, until};
use distributed::interface::{MasterInterface, RunStepReply};
use rpc::{RemoteMaster, RemoteOptions};
use std::future::poll_fn;
use std::io::Read;
use std::net::TcpListener;
use std::pin::Pin;
use std::sync::Arc;
use std::thread::{JoinHandle, spawn};
use std::time::{Duration, Instant};
use tensor::{Code, Error, Result, Tensor};
use tokio::sync::oneshot;

fn drive<T>(future: impl Future<Output = T>) -> T {
    rpc::block_on(future, Some(Instant::now() + PATIENCE)).expect("in time")
}

/// A step in a thread of its own, which ends when the master says so.
fn long(master: &Arc<RemoteMaster>, target: &'static str) -> JoinHandle<Result<RunStepReply>> {
    let master = master.clone();
    spawn(move || drive(master.run_step(step(&[], &[], &[target]))))
}

fn echo(master: &RemoteMaster, value: Tensor) {
    let reply = drive(master.run_step(step(&[("x", value.clone())], &["x"], &[]))).unwrap();
    assert!(reply.fetches == [value], "another value came back");
}

/// A step that does not end, in a thread of its own that gives up when told.
fn until_told(master: &Arc<RemoteMaster>) -> (oneshot::Sender<()>, JoinHandle<()>) {
    let (tell, mut told) = oneshot::channel();
    let master = master.clone();
    let thread = spawn(move || {
        let mut endless = master.run_step(step(&[], &[], &["wait"]));
        drive(poll_fn(|cx| {
            assert!(endless.as_mut().poll(cx).is_pending());
            Pin::new(&mut told).poll(cx)
        }))
        .unwrap();
    });
    (tell, thread)
}

#[test]
fn what_one_thread_does_after_another_is_answered() {
    for served in Served::each_way() {
        let master = served.master();
        assert_eq!(drive(master.create_session(Default::default())).unwrap(), "session of 0 nodes");
        for i in 0..1000 {
            echo(&master, Tensor::scalar(i));
        }
        let error = drive(master.run_step(step(&[], &[], &["fail"]))).unwrap_err();
        assert_eq!(error.code, Code::DataLoss);
    }
}

#[test]
fn a_thread_that_drives_may_block_once_more_on_the_same_connection() {
    for served in Served::each_way() {
        let master = served.master();
        drive(async {
            for i in 0..10 {
                master.run_step(step(&[], &[], &[])).await.unwrap();
                echo(&master, Tensor::scalar(i));
            }
        });
    }
}

#[test]
fn who_gives_up_while_driving_tells_the_server() {
    for served in Served::each_way() {
        let master = served.master();
        let mut limit = Duration::from_millis(20);
        while served.counts.begun() == 0 {
            let endless = master.run_step(step(&[], &[], &["wait"]));
            assert!(rpc::block_on(endless, Some(Instant::now() + limit)).is_none());
            limit *= 2;
        }
        until("the handler is dropped", || served.counts.under_way() == 0);
        let mut request = step(&[], &[], &["wait"]);
        request.options.timeout_in_ms = 100;
        let error = drive(master.run_step(request)).unwrap_err();
        assert_eq!(error.code, Code::DeadlineExceeded, "{error}");
        until("the handler is dropped", || served.counts.under_way() == 0);
    }
}

#[test]
fn who_gives_up_while_another_drives_tells_the_server() {
    for served in Served::each_way() {
        let master = Arc::new(served.master());
        let driver = long(&master, "gate");
        until("the driver's step has begun", || served.counts.under_way() == 1);
        let (tell, thread) = until_told(&master);
        until("both have begun", || served.counts.under_way() == 2);
        tell.send(()).unwrap();
        thread.join().unwrap();
        until("only the driver's step is left", || served.counts.under_way() == 1);
        served.fake.gate.send_replace(true);
        driver.join().unwrap().unwrap();
    }
}

#[test]
fn a_driver_that_is_done_leaves_nobody_behind() {
    for drivers in [1, 3] {
        let served = Served::start();
        let master = Arc::new(served.master());
        let giving_up: Vec<_> = (0..drivers).map(|_| until_told(&master)).collect();
        until("they have begun", || served.counts.under_way() == drivers);
        let waiting: Vec<_> = (0..4).map(|_| long(&master, "gate")).collect();
        until("all have begun", || served.counts.under_way() == drivers + 4);
        for (tell, thread) in giving_up {
            tell.send(()).unwrap();
            thread.join().unwrap();
        }
        served.fake.gate.send_replace(true);
        waiting.into_iter().for_each(|thread| drop(thread.join().unwrap().unwrap()));
    }
}

#[test]
fn short_steps_do_not_wait_for_long_ones() {
    for served in Served::each_way() {
        let master = Arc::new(served.master());
        let mut waiting = vec![long(&master, "wait")];
        until("the first drives", || served.counts.under_way() == 1);
        waiting.extend((0..3).map(|_| long(&master, "wait")));
        let short: Vec<_> = (0..16)
            .map(|thread| {
                let master = master.clone();
                spawn(move || (0..50).for_each(|i| echo(&master, Tensor::scalar(thread * 1000 + i))))
            })
            .collect();
        short.into_iter().for_each(|thread| thread.join().unwrap());
        until("the long ones have begun", || served.counts.under_way() == 4);
        drop(served);
        waiting.into_iter().for_each(|thread| check_lost(&thread.join().unwrap().unwrap_err()));
    }
}

#[test]
fn when_the_server_goes_all_who_wait_are_told() {
    for served in Served::each_way() {
        let master = Arc::new(served.master());
        let waiting: Vec<_> = (0..16).map(|_| long(&master, "wait")).collect();
        until("all have begun", || served.counts.under_way() == 16);
        drop(served);
        waiting.into_iter().for_each(|thread| check_lost(&thread.join().unwrap().unwrap_err()));
    }
}

#[track_caller]
fn check_lost(error: &Error) {
    assert_eq!(error.code, Code::Unavailable);
    assert!(error.message.contains("RunStep on the server at 127.0.0."), "{error}");
}

#[test]
fn large_values_go_both_ways_at_once() {
    for served in Served::each_way() {
        let master = Arc::new(served.master());
        let threads: Vec<_> = (0..4)
            .map(|seed| {
                let master = master.clone();
                spawn(move || echo(&master, pattern(12 << 20, seed)))
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
}

#[test]
fn a_server_that_went_while_nobody_waited_is_found_again() {
    for served in Served::each_way() {
        let address = served.address();
        let master = served.master();
        echo(&master, Tensor::scalar(1));
        drop(served);
        let _served = Served::at(&address);
        until("it is found again", || drive(master.run_step(step(&[], &[], &[]))).is_ok());
    }
}

#[test]
fn one_who_waits_and_one_who_does_not_share_a_connection() {
    for served in Served::each_way() {
        let master = Arc::new(served.master());
        let driver = long(&master, "gate");
        until("the driver's step has begun", || served.counts.under_way() == 1);
        let on_the_network = |value: i32| {
            let master = master.clone();
            rpc::runtime::network()
                .spawn(async move { master.run_step(step(&[("x", Tensor::scalar(value))], &["x"], &[])).await })
        };
        let answers: Vec<_> = (0..20).map(on_the_network).collect();
        for (i, answer) in answers.into_iter().enumerate() {
            assert!(drive(answer).unwrap().unwrap().fetches == [Tensor::scalar(i as i32)]);
        }
        served.fake.gate.send_replace(true);
        driver.join().unwrap().unwrap();
    }
}

#[test]
fn a_connection_on_which_nothing_comes_is_closed() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let options = RemoteOptions { patience: Duration::from_millis(10), operation_timeout: None };
    let master = RemoteMaster::new(&listener.local_addr().unwrap().to_string(), options);
    drive(master.create_session(Default::default())).unwrap_err();
    let (mut stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.read_to_end(&mut Vec::new()).unwrap();
}

/// Refuses one call, and then wants a ping answered.
async fn refuse_and_ping(stream: tokio::net::TcpStream) -> Result<(), h2::Error> {
    let mut connection = h2::server::handshake(stream).await?;
    let mut pings = connection.ping_pong().expect("nobody has taken it");
    let (_, mut respond) = connection.accept().await.expect("a call")?;
    let head = http::Response::builder().header("content-type", "application/grpc").header("grpc-status", "11");
    respond.send_response(head.body(()).unwrap(), true)?;
    let mut is_sent = false;
    poll_fn(|cx| {
        assert!(connection.poll_closed(cx).is_pending(), "the client is still there");
        if !std::mem::replace(&mut is_sent, true) {
            pings.send_ping(h2::Ping::opaque())?;
            assert!(connection.poll_closed(cx).is_pending(), "the client is still there");
        }
        pings.poll_pong(cx).map_ok(drop)
    })
    .await
}

#[test]
fn an_idle_connection_answers_pings() {
    let listener = drive(rpc::runtime::network().spawn(tokio::net::TcpListener::bind("127.0.0.1:0"))).unwrap().unwrap();
    let master = RemoteMaster::new(&listener.local_addr().unwrap().to_string(), RemoteOptions::default());
    let server =
        rpc::runtime::network().spawn(async move { refuse_and_ping(listener.accept().await.unwrap().0).await });
    let error = drive(master.run_step(step(&[], &[], &[]))).unwrap_err();
    assert_eq!(error.code, Code::OutOfRange, "{error}");
    drive(server).unwrap().unwrap();
}

//! Peers that cannot be reached: the error says who, where, why, and since when.

use crate::fakes::{Served, task, until, wait};
use distributed::interface::{MasterInterface, WorkerInterface};
use rpc::{Channel, RemoteMaster, RemoteOptions, RemoteWorker};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::{Duration, Instant};
use tensor::{Code, Error};

fn get_status(address: &str) -> Error {
    let worker = RemoteWorker::new(Channel::new(Some(&task()), address));
    wait(worker.get_status(Default::default())).unwrap_err()
}

#[track_caller]
fn check(error: &Error, code: Code, address: &str, cause: &str) {
    assert_eq!(error.code, code, "{error}");
    for part in ["/job:ps/replica:0/task:3", address, cause, " s"] {
        assert!(error.message.contains(part), "'{part}' is missing in: {error}");
    }
}

/// An address where nobody listens.
fn closed_port() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

/// Answers every connection with these bytes, and then stays or goes.
fn impostor(says: &'static [u8], stays: bool) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(says);
            if stays {
                kept.push(stream);
            }
        }
    });
    address
}

#[test]
fn a_closed_port_is_refused() {
    let address = closed_port();
    check(&get_status(&address), Code::Unavailable, &address, "connection refused");
}

#[test]
fn an_unknown_host_is_named() {
    check(&get_status("no-such-host.invalid:2222"), Code::Unavailable, "no-such-host.invalid:2222", "resolved");
}

#[test]
fn other_protocols_are_told_apart() {
    let http = impostor(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n", true);
    check(&get_status(&http), Code::FailedPrecondition, &http, "HTTP/1.1");
    let tls = impostor(&[0x15, 3, 1, 0, 2, 2, 0x46, 0, 0], true);
    check(&get_status(&tls), Code::FailedPrecondition, &tls, "TLS");
    let mute = impostor(b"", false);
    check(&get_status(&mute), Code::Unavailable, &mute, "accepted");
}

#[test]
fn one_who_accepts_and_is_silent_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    check(&get_status(&address), Code::Unavailable, &address, "nothing came");
}

/// An address where requests for a connection are neither accepted nor refused: its queue of one is full.
#[cfg(target_os = "linux")]
fn black_hole() -> (String, Vec<socket2::Socket>) {
    use socket2::{Domain, Socket, Type};
    let new = || Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    let listener = new();
    listener.bind(&"127.0.0.1:0".parse::<std::net::SocketAddr>().unwrap().into()).unwrap();
    listener.listen(0).unwrap();
    let address = listener.local_addr().unwrap();
    let mut sockets = vec![listener];
    while sockets.len() < 10 {
        let waiting = new();
        let is_full = waiting.connect_timeout(&address, Duration::from_millis(200)).is_err();
        sockets.push(waiting);
        if is_full {
            break;
        }
    }
    (address.as_socket().unwrap().to_string(), sockets)
}

#[test]
#[cfg(target_os = "linux")]
fn a_black_hole_ends_at_the_deadline() {
    let (address, _sockets) = black_hole();
    let options = RemoteOptions { patience: Duration::from_millis(700), operation_timeout: None };
    let started = Instant::now();
    let error = wait(RemoteMaster::new(&address, options).create_session(Default::default())).unwrap_err();
    assert!(started.elapsed() < Duration::from_secs(30), "{:?}", started.elapsed());
    assert_eq!(error.code, Code::Unavailable);
    for part in [&address[..], "connecting for "] {
        assert!(error.message.contains(part), "'{part}' is missing in: {error}");
    }
    check(&get_status(&address), Code::Unavailable, &address, "no answer");
}

#[test]
fn calls_fail_at_once_while_a_peer_is_away_and_attempts_are_few() {
    let address = closed_port();
    let worker = RemoteWorker::new(Channel::new(Some(&task()), &address));
    let started = Instant::now();
    let (mut calls, mut attempts) = (0, 1);
    until("two attempts were made and many calls answered", || {
        let last = wait(worker.get_status(Default::default())).unwrap_err().message;
        calls += 1;
        let number = last.split(" attempts").next().and_then(|text| text.rsplit('(').next()?.parse().ok());
        attempts = number.unwrap_or(attempts);
        attempts >= 2 && calls > 20
    });
    let allowed = 4 + started.elapsed().as_millis() / 200;
    assert!(attempts <= allowed, "{attempts} attempts in {:?}", started.elapsed());
}

#[test]
fn a_session_waits_for_its_server() {
    let address = closed_port();
    let client = std::thread::spawn({
        let address = address.clone();
        move || wait(RemoteMaster::new(&address, RemoteOptions::default()).create_session(Default::default()))
    });
    let started = Instant::now();
    until("some attempts were made", || started.elapsed() > Duration::from_millis(300));
    let _served = Served::at(&address);
    assert_eq!(client.join().unwrap().unwrap(), "session of 0 nodes");
}

#[test]
fn a_client_tries_a_few_times_to_reach_its_master() {
    let address = closed_port();
    let client = std::thread::spawn({
        let address = address.clone();
        move || wait(RemoteMaster::new(&address, RemoteOptions::default()).close_session("s".into()))
    });
    let started = Instant::now();
    until("some attempts were made", || started.elapsed() > Duration::from_millis(300));
    let _served = Served::at(&address);
    client.join().unwrap().unwrap();
    let error = wait(RemoteMaster::new(&closed_port(), RemoteOptions::default()).close_session("s".into()));
    assert!(error.unwrap_err().message.contains("10 attempts"));
}

#[test]
fn a_session_does_not_wait_for_ever() {
    let address = closed_port();
    let options = RemoteOptions { patience: Duration::from_millis(500), operation_timeout: None };
    let started = Instant::now();
    let error = wait(RemoteMaster::new(&address, options).create_session(Default::default())).unwrap_err();
    assert!(started.elapsed() < Duration::from_secs(30));
    assert_eq!(error.code, Code::Unavailable);
    for part in [&address[..], "refused", "waited for "] {
        assert!(error.message.contains(part), "'{part}' is missing in: {error}");
    }
}

#[test]
fn a_server_that_comes_back_is_found_again() {
    let served = Served::start();
    let address = served.address();
    let worker = served.worker();
    wait(worker.get_status(Default::default())).unwrap();
    drop(served);
    until("the loss is noticed", || wait(worker.get_status(Default::default())).is_err());
    let _served = Served::at(&address);
    until("it is found again", || wait(worker.get_status(Default::default())).is_ok());
}

//! Peers that do not keep to the rules: each is turned away, and others do not notice.

use crate::fakes::{PATIENCE, Served, until, wait};
use bytes::Bytes;
use distributed::interface::WorkerInterface;
use framework::RendezvousKey;
use rpc::Lane;
use rpc::channel::Outgoing;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};
use tensor::Code;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];

fn connect(served: &Served) -> TcpStream {
    let stream = TcpStream::connect(served.address()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Sends bytes, and waits until the server hangs up.
#[track_caller]
fn hangs_up_on(served: &Served, bytes: &[u8]) -> Duration {
    let started = Instant::now();
    let mut stream = connect(served);
    let _ = stream.write_all(bytes);
    let mut sink = [0; 4096];
    while let Ok(count @ 1..) = stream.read(&mut sink) {
        assert!(started.elapsed() < PATIENCE, "still sends {count} bytes");
    }
    started.elapsed()
}

#[track_caller]
fn is_well(served: &Served) {
    wait(served.worker().get_status(Default::default())).unwrap();
}

/// Numbers that look random, from a seed.
fn noise(seed: u64, count: usize) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 56) as u8
    };
    (0..count).map(|_| next()).collect()
}

#[test]
fn whoever_does_not_speak_http2_is_hung_up_on() {
    let served = Served::start();
    hangs_up_on(&served, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    for seed in 0..20 {
        hangs_up_on(&served, &noise(seed, 1000));
        hangs_up_on(&served, &[PREFACE, &noise(seed, 1000)].concat());
        hangs_up_on(&served, &[PREFACE, SETTINGS, &[0xff; 9], &noise(seed, 1000)].concat());
    }
    is_well(&served);
}

/// A frame: its kind, flags, stream and payload.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

#[test]
fn whoever_breaks_the_rules_of_frames_is_hung_up_on() {
    let [data, headers, reset, settings, promise, ping, window, continuation] = [0, 1, 3, 4, 5, 6, 8, 9];
    let served = Served::start();
    let call = [0x83, 0x84, 0x86]; // POST, /, http
    let cases = [
        ("data on no stream", frame(data, 0, 0, b"x")),
        ("data on a stream that never began", frame(data, 0, 1, b"x")),
        ("headers on a stream of ours", frame(headers, 4, 2, &call)),
        ("headers on no stream", frame(headers, 4, 0, &call)),
        ("headers that go on and do not", [frame(headers, 0, 1, &call), frame(ping, 0, 0, &[0; 8])].concat()),
        ("a continuation of nothing", frame(continuation, 4, 1, &call)),
        ("headers that refer to none", frame(headers, 4, 1, &[0xff, 0xff, 0xff, 0x7f])),
        ("more padding than frame", frame(headers, 4 | 8, 1, &[200, 0x83])),
        ("a frame larger than allowed", [0xff, 0xff, 0xff, data, 0, 0, 0, 0, 1].to_vec()),
        ("a reset of nothing", frame(reset, 0, 1, &[0, 0, 0, 8])),
        ("a reset of the wrong length", frame(reset, 0, 1, &[0; 3])),
        ("settings of the wrong length", frame(settings, 0, 0, &[0; 5])),
        ("settings of a stream", frame(settings, 0, 1, &[])),
        ("a promise", frame(promise, 4, 1, &[0, 0, 0, 2, 0x83])),
        ("a ping of the wrong length", frame(ping, 0, 0, &[0; 7])),
        ("a window that does not open", frame(window, 0, 0, &[0; 4])),
        ("a window too wide", frame(window, 0, 0, &[0x7f, 0xff, 0xff, 0xff]).repeat(2)),
    ];
    for (what, bytes) in cases {
        let time = hangs_up_on(&served, &[PREFACE, SETTINGS, &bytes].concat());
        assert!(time < Duration::from_secs(20), "{what}: {time:?}");
    }
    is_well(&served);
}

#[test]
fn messages_of_garbage_are_invalid() {
    let served = Served::with_tensors();
    let channel = served.channel();
    let paths = [
        "/tensorflow.MasterService/CreateSession",
        "/tensorflow.MasterService/RunStep",
        "/tensorflow.MasterService/RunCallable",
        "/tensorflow.WorkerService/RegisterGraph",
        "/tensorflow.WorkerService/RunGraph",
        "/tensorflow.WorkerService/RecvTensor",
        "/ferroflow.Tensors/Take",
        "/ferroflow.Tensors/Push",
    ];
    for path in paths {
        for seed in 0..50 {
            let mut body = vec![0, 0, 0, 0, 100];
            body.extend(noise(seed, 100));
            let call = Outgoing { path, body: vec![body.into()], limit: Some(PATIENCE), lane: Lane::Control, tries: 1 };
            let answer = wait(channel.unary(call));
            let code = answer.map(drop).map_err(|error| error.code);
            assert_ne!(code, Err(Code::Internal), "{path} with seed {seed}");
        }
    }
    is_well(&served);
}

#[track_caller]
fn refuses(served: &Served, body: &'static [u8], code: Code) {
    let path = "/tensorflow.WorkerService/GetStatus";
    let call =
        Outgoing { path, body: vec![Bytes::from_static(body)], limit: Some(PATIENCE), lane: Lane::Control, tries: 1 };
    assert_eq!(wait(served.channel().unary(call)).unwrap_err().code, code);
}

#[test]
fn framing_that_is_wrong_is_refused() {
    let served = Served::start();
    refuses(&served, b"\0\0\0\0\x05abc", Code::Internal); // shorter than announced
    refuses(&served, b"\0\0\0\0\x01abc", Code::Internal); // longer
    refuses(&served, b"\0\0", Code::Internal);
    refuses(&served, b"\x07\0\0\0\0", Code::Internal);
    refuses(&served, b"\x01\0\0\0\0", Code::Internal); // packed, but not said how
    refuses(&served, b"\0\xff\xff\xff\xff", Code::ResourceExhausted);
    is_well(&served);
}

/// The memory this process holds.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap();
    status.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

#[test]
fn what_a_header_claims_is_not_allocated() {
    let served = Served::start();
    let before = resident();
    // Two gigabytes announced on each of 50 streams; nothing follows.
    let channel = served.channel();
    let calls: Vec<_> = (0..50)
        .map(|_| {
            let body = vec![Bytes::from_static(b"\0\x7f\xff\xff\xffabc")];
            let limit = Some(Duration::from_millis(300));
            let path = "/tensorflow.WorkerService/RunGraph";
            let channel = channel.clone();
            rpc::runtime::steps().spawn(async move {
                channel.unary(Outgoing { path, body, limit, lane: Lane::Control, tries: 1 }).await
            })
        })
        .collect();
    for call in calls {
        assert!(wait(call).unwrap().is_err());
    }
    // Other tests of this process run meanwhile; what must not be there is a hundred gigabytes.
    assert!(resident().saturating_sub(before) < 2 << 30);
    is_well(&served);
}

#[test]
fn unfinished_messages_hold_no_more_than_they_may() {
    let served = Served::within(1 << 20);
    let ask = |bytes: usize| {
        let mut body = vec![0];
        body.extend((bytes as u32).to_be_bytes());
        body.extend(b"\x1a\x80\x80\x40"); // an unknown field of a megabyte
        body.resize(5 + bytes, 0);
        let path = "/tensorflow.WorkerService/GetStatus";
        let call = Outgoing { path, body: vec![body.into()], limit: Some(PATIENCE), lane: Lane::Control, tries: 1 };
        wait(served.channel().unary(call)).map(drop)
    };
    let error = ask((1 << 20) + 4).unwrap_err();
    assert_eq!(error.code, Code::ResourceExhausted, "{error}");
    assert!(error.message.contains("unfinished messages to this server"), "{error}");
    // What was refused holds nothing any more.
    for _ in 0..5 {
        assert_ne!(ask(1 << 19).unwrap_err().code, Code::ResourceExhausted);
    }
    is_well(&served);
}

#[test]
fn idle_connections_are_kept_and_cost_little() {
    let served = Served::start();
    let idle: Vec<TcpStream> = (0..400)
        .map(|_| {
            let mut stream = connect(&served);
            stream.write_all(&[PREFACE, SETTINGS].concat()).unwrap();
            stream
        })
        .collect();
    let started = Instant::now();
    for _ in 0..20 {
        is_well(&served);
    }
    assert!(started.elapsed() < Duration::from_secs(20));
    drop(idle);
    is_well(&served);
}

/// Sends what it is told to, until it is hung up on, while others are served.
#[track_caller]
fn withstands(served: &Served, flood: impl Iterator<Item = Vec<u8>> + Send) {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut stream = TcpStream::connect(served.address()).unwrap();
            stream.set_write_timeout(Some(Duration::from_secs(2))).unwrap();
            stream.write_all(&[PREFACE, SETTINGS].concat()).unwrap();
            for bytes in flood {
                if stream.write_all(&bytes).is_err() {
                    return;
                }
            }
        });
        for _ in 0..50 {
            is_well(served);
        }
    });
    is_well(served);
    until("nothing is left of it", || served.counts.under_way() == 0);
}

#[test]
fn floods_do_not_stop_others() {
    let served = Served::start();
    // Headers that index the static table (":method: POST", ":path: /", ":scheme: http"), then a reset.
    let call = |id: u32| frame(1, 4, id, &[0x83, 0x84, 0x86]);
    let resets = (1..40_000).step_by(2).map(|id| [call(id), frame(3, 0, id, &[0, 0, 0, 8])].concat());
    withstands(&served, resets);
    withstands(&served, (1..40_000).step_by(2).map(call));
    let many = |frame: Vec<u8>| std::iter::repeat_n(frame.repeat(100), 2_000);
    withstands(&served, many(frame(6, 0, 0, &[7; 8]))); // pings whose answers nobody reads
    withstands(&served, many(frame(4, 0, 0, &[0, 4, 0, 1, 0, 0]))); // settings
    withstands(&served, many(frame(8, 0, 0, &[0, 0, 0, 1]))); // windows
    withstands(&served, many(frame(2, 0, 1, &[0, 0, 0, 0, 9]))); // priorities
    withstands(&served, many(frame(0x20, 0, 0, &[]))); // kinds that nobody knows
}

#[test]
fn whoever_stops_in_the_middle_is_hung_up_on() {
    let served = Served::start();
    let begun = [0, 0, 100, 1, 4, 0, 0, 0, 1]; // the head of a frame, and no more
    let half_headers = [&[0, 0, 1, 1, 0][..], &[0, 0, 0, 1], &[0x83]].concat();
    let cases: [Vec<u8>; 4] = [
        PREFACE[..10].to_vec(),
        [PREFACE, &SETTINGS[..5]].concat(),
        [PREFACE, SETTINGS, &begun].concat(),
        [PREFACE, SETTINGS, &half_headers].concat(),
    ];
    std::thread::scope(|scope| {
        for case in &cases {
            let served = &served;
            scope.spawn(move || {
                let time = hangs_up_on(served, case);
                assert!(time > Duration::from_secs(5) && time < Duration::from_secs(30), "{time:?} for {case:?}");
            });
        }
        scope.spawn(|| {
            // Half a message, and then silence.
            let path = "/tensorflow.WorkerService/GetStatus";
            let address = served.address();
            let status = rpc::runtime::network().spawn(async move {
                let socket = tokio::net::TcpStream::connect(address).await.unwrap();
                let (send, connection) = h2::client::handshake(socket).await.unwrap();
                tokio::spawn(connection);
                let request = http::Request::post(format!("http://test{path}"))
                    .header("content-type", "application/grpc")
                    .body(())
                    .unwrap();
                let mut send = send.ready().await.unwrap();
                let (response, mut stream) = send.send_request(request, false).unwrap();
                stream.send_data(Bytes::from_static(b"\0\0\0\0\x10ab"), false).unwrap();
                response.await.unwrap().headers()["grpc-status"].clone()
            });
            assert_eq!(wait(status).unwrap(), "4");
        });
    });
    is_well(&served);
}

#[test]
fn a_client_that_vanishes_takes_its_calls_along() {
    let served = Served::start();
    for _ in 0..20 {
        let worker = served.worker();
        let call =
            rpc::runtime::steps().spawn(async move { worker.recv_tensor(1, RendezvousKey::from_text("wait")).await });
        until("the call is under way", || served.counts.under_way() == 1);
        call.abort();
        until("the handler is gone", || served.counts.under_way() == 0);
    }
}

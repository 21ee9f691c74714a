//! Calls that do without HTTP/2, on one machine and across the network: what peers may do there, and how it comes to them.

use crate::fakes::{PATIENCE, Served, is_whole, pattern, step, task, until, wait};
use distributed::interface::{MasterInterface, WorkerInterface};
use framework::{Delivery, RendezvousKey};
use futures_util::future::join;
use rpc::{Channel, RemoteWorker};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::spawn;
use tensor::{Code, Error, Tensor};

trait Socket: Read + Write + Send {}
impl<T: Read + Write + Send> Socket for T {}

fn connect_near(served: &Served) -> Box<dyn Socket> {
    let name = SocketAddr::from_abstract_name(format!("ferroflow/direct-1/{}", served.address())).unwrap();
    let stream = UnixStream::connect_addr(&name).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    Box::new(stream)
}

const PREFACE: &[u8] = b"ferroflow direct 1\r\n\r\n";

fn connect_by_tcp(served: &Served) -> TcpStream {
    let stream = TcpStream::connect(served.address()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

fn connect_far(served: &Served) -> Box<dyn Socket> {
    let mut stream = connect_by_tcp(served);
    stream.write_all(PREFACE).unwrap();
    Box::new(stream)
}

/// Begins to speak directly.
type Connect = fn(&Served) -> Box<dyn Socket>;

const WAYS: [Connect; 2] = [connect_near, connect_far];

const HEAD: usize = 24;

/// A frame of this kind, with a part that is said to be so long.
fn frame(kind: u8, is_last: bool, call: u8, name: &[u8], part_len: u32) -> Vec<u8> {
    let mut frame = vec![kind, is_last.into(), name.len() as u8, 0];
    frame.extend(part_len.to_le_bytes());
    frame.extend(u64::from(call).to_le_bytes());
    frame.extend([0xff; 8]);
    frame.extend(name);
    frame
}

const CALL: u8 = 1;

#[track_caller]
fn is_hung_up_on(what: &str, bytes: &[u8]) {
    for connect in WAYS {
        let served = Served::start();
        let mut stream = connect(&served);
        stream.write_all(bytes).unwrap();
        let heard = hears_until_the_end(&mut stream).unwrap_or_default();
        assert!(heard.is_empty() || heard.len() == HEAD, "{what}");
        wait(served.master().run_step(step(&[], &[], &["go on"]))).unwrap();
    }
}

/// What a server says before it hangs up, unless it has not even read all.
#[track_caller]
fn hears_until_the_end(stream: &mut impl Read) -> Option<Vec<u8>> {
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Ok(_) => Some(answer),
        Err(e) if e.kind() == ErrorKind::ConnectionReset => None,
        Err(e) => panic!("{e}"),
    }
}

#[test]
fn whoever_breaks_the_rules_is_hung_up_on() {
    is_hung_up_on("no kind", &frame(77, true, 1, b"", 0));
    is_hung_up_on("the other side's", &frame(2, true, 1, b"", 0));
    is_hung_up_on("another protocol", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    // A step whose target is called "wait".
    let mut waiting = frame(CALL, true, 1, b"/tensorflow.MasterService/RunStep", 11);
    waiting.extend(b"\0\0\0\0\x06\x22\x04wait");
    is_hung_up_on("a call that is under way already", &waiting.repeat(2));
    is_hung_up_on("too long", &frame(CALL, true, 1, b"/a/B", u32::MAX));
}

#[test]
fn whoever_stops_in_the_middle_is_hung_up_on() {
    let path = b"/tensorflow.MasterService/RunStep";
    std::thread::scope(|scope| {
        scope.spawn(|| is_hung_up_on("a head", &frame(CALL, true, 1, b"", 0)[..7]));
        scope.spawn(|| is_hung_up_on("a frame", &frame(CALL, true, 1, path, 100)));
        scope.spawn(|| is_hung_up_on("a message", &frame(CALL, false, 1, path, 0)));
    });
}

#[test]
fn whoever_does_not_say_what_he_speaks_is_hung_up_on() {
    let served = Served::start();
    let another_version = [&PREFACE[..17], &b"2\r\n\r\n"[..]].concat();
    std::thread::scope(|scope| {
        for said in [&b""[..], &PREFACE[..1], &PREFACE[..10], &another_version] {
            let mut stream = connect_by_tcp(&served);
            scope.spawn(move || {
                stream.write_all(said).unwrap();
                assert!(hears_until_the_end(&mut stream).unwrap_or_default().is_empty());
            });
        }
    });
    wait(served.worker().get_status(Default::default())).unwrap();
}

#[test]
fn messages_of_garbage_are_answered() {
    WAYS.into_iter().for_each(is_answered_to_garbage);
}

#[track_caller]
fn is_answered_to_garbage(connect: Connect) {
    let served = Served::start();
    let mut stream = connect(&served);
    let mut sent = Vec::new();
    for (call, path) in [(1, &b"/tensorflow.MasterService/RunStep"[..]), (2, b"nonsense"), (3, b"/a/\xff")] {
        sent.extend(frame(CALL, true, call, path, 3));
        sent.extend(b"???");
    }
    stream.write_all(&sent).unwrap();
    let mut seen = [false; 4];
    while seen != [false, true, true, true] {
        let mut head = [0; HEAD];
        stream.read_exact(&mut head).unwrap();
        let len = u32::from_le_bytes([head[4], head[5], head[6], head[7]]);
        let mut part = vec![0; len as usize];
        stream.read_exact(&mut part).unwrap();
        if head[0] == 4 {
            seen[head[8] as usize] = true;
        }
    }
}

#[test]
fn unfinished_messages_hold_no_more_than_they_may() {
    let served = Served::within(1 << 20);
    let master = served.master();
    let feed = |len: usize| {
        let text = Tensor::string(vec![b'x'; len]);
        wait(master.run_step(step(&[("x", text)], &[], &["t"])))
    };
    feed(900 << 10).unwrap();
    assert_eq!(feed(3 << 20).unwrap_err().code, Code::ResourceExhausted);
    feed(900 << 10).unwrap();
}

#[test]
fn a_short_call_passes_a_long_message() {
    let served = Served::start();
    let master = served.master();
    let text = Tensor::string(vec![b'x'; 64 << 20]);
    let ended = Mutex::new(Vec::new());
    let long = async {
        let reply = master.run_step(step(&[("x", text.clone())], &["x"], &[])).await.unwrap();
        ended.lock().unwrap().push("long");
        reply
    };
    let short = async {
        master.run_step(step(&[], &[], &["t"])).await.unwrap();
        ended.lock().unwrap().push("short");
    };
    let (reply, ()) = wait(join(long, short));
    assert!(reply.fetches == [text]);
    assert_eq!(*ended.lock().unwrap(), ["short", "long"]);
}

/// Stands between clients and a server, as across a network.
struct Relay {
    address: String,
    lets_direct_ones_through: Arc<AtomicBool>,
    /// How many bytes of answers pass a new one until it breaks.
    answers_max: Arc<AtomicU64>,
    /// How many there have been.
    num_direct: Arc<AtomicUsize>,
    /// Both ends of each.
    direct: Arc<Mutex<Vec<TcpStream>>>,
}

impl Relay {
    fn before(served: &Served) -> Relay {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let relay = Relay {
            address: listener.local_addr().unwrap().to_string(),
            lets_direct_ones_through: Arc::new(AtomicBool::new(true)),
            answers_max: Arc::new(AtomicU64::new(u64::MAX)),
            num_direct: Arc::default(),
            direct: Arc::default(),
        };
        let (lets_through, num_direct) = (relay.lets_direct_ones_through.clone(), relay.num_direct.clone());
        let (direct, answers_max, server) = (relay.direct.clone(), relay.answers_max.clone(), served.address());
        spawn(move || {
            for client in listener.incoming() {
                let (client, mut first) = (client.unwrap(), [0]);
                client.peek(&mut first).unwrap();
                let is_direct = first[0] == PREFACE[0];
                num_direct.fetch_add(is_direct.into(), Ordering::SeqCst);
                if is_direct && !lets_through.load(Ordering::SeqCst) {
                    continue;
                }
                let Ok(server) = TcpStream::connect(&server) else { return };
                if is_direct {
                    direct.lock().unwrap().extend([&client, &server].map(|end| end.try_clone().unwrap()));
                }
                let max = if is_direct { answers_max.load(Ordering::SeqCst) } else { u64::MAX };
                for (from, mut to, max) in [(&client, &server, u64::MAX), (&server, &client, max)]
                    .map(|(from, to, max)| (from.try_clone().unwrap(), to.try_clone().unwrap(), max))
                {
                    spawn(move || {
                        let _ = std::io::copy(&mut from.take(max), &mut to);
                        let _ = to.shutdown(Shutdown::Both);
                    });
                }
            }
        });
        relay
    }

    fn worker(&self) -> RemoteWorker {
        RemoteWorker::new(Channel::new(Some(&task()), &self.address))
    }

    /// Direct connections break.
    fn cut(&self) {
        self.direct.lock().unwrap().drain(..).for_each(|end| drop(end.shutdown(Shutdown::Both)));
    }
}

/// An error of the server's that is long.
fn fail(worker: &RemoteWorker) -> Error {
    let request = proto::CreateWorkerSessionRequest { session_handle: "fail".into(), ..Default::default() };
    wait(worker.create_worker_session(request)).unwrap_err()
}

#[test]
fn where_only_http2_passes_it_stays() {
    let served = Served::start();
    let relay = Relay::before(&served);
    relay.lets_direct_ones_through.store(false, Ordering::SeqCst);
    let worker = relay.worker();
    assert!(!is_whole(&fail(&worker)));
    until("it was tried", || relay.num_direct.load(Ordering::SeqCst) == 1);
    for _ in 0..50 {
        assert!(!is_whole(&fail(&worker)));
    }
    assert_eq!(relay.num_direct.load(Ordering::SeqCst), 1, "it is not tried again on the same connection");
}

#[test]
fn a_direct_connection_that_broke_is_made_anew() {
    let served = Served::start();
    let relay = Relay::before(&served);
    let worker = relay.worker();
    for num_before in 0..3 {
        until("calls are made directly", || match fail(&worker) {
            e if e.code == Code::Unavailable => false, // the loss was not noticed yet
            e => is_whole(&e),
        });
        assert_eq!(relay.num_direct.load(Ordering::SeqCst), num_before + 1);
        relay.cut();
        until("the server is reached", || wait(worker.get_status(Default::default())).is_ok());
    }
}

#[test]
fn a_tensor_that_breaks_off_is_an_error() {
    let served = Served::start();
    let relay = Relay::before(&served);
    relay.answers_max.store(1 << 20, Ordering::SeqCst);
    let worker = relay.worker();
    let ask = |name: &str| wait(worker.recv_tensor(1, RendezvousKey::from_text(name)));
    until("tensors are asked for directly", || is_whole(&ask("fail").unwrap_err()));
    relay.answers_max.store(u64::MAX, Ordering::SeqCst);
    let error = ask("5000000").unwrap_err();
    assert_eq!(error.code, Code::Unavailable);
    assert!(error.message.contains("RecvTensor on /job:ps/replica:0/task:3"), "{error}");
    let Delivery::Tensor(found) = ask("5000000").unwrap() else { panic!("it is dead") };
    assert!(found == pattern(5_000_000, 1));
}

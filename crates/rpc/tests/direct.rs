//! Calls between processes of one user on one machine, which do without HTTP/2: what peers may do there.

use crate::fakes::{Served, step, wait};
use distributed::interface::MasterInterface;
use futures_util::future::join;
use std::io::{ErrorKind, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::sync::Mutex;
use tensor::{Code, Tensor};

fn connect(served: &Served) -> UnixStream {
    let name = SocketAddr::from_abstract_name(format!("ferroflow/direct-1/{}", served.address())).unwrap();
    let stream = UnixStream::connect_addr(&name).unwrap();
    stream.set_read_timeout(Some(crate::fakes::PATIENCE)).unwrap();
    stream
}

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
    let served = Served::start();
    let mut stream = connect(&served);
    stream.write_all(bytes).unwrap();
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Ok(_) => assert_eq!(answer.len(), HEAD, "{what}"),
        Err(e) => assert_eq!(e.kind(), ErrorKind::ConnectionReset, "{what}: {e}"),
    }
    wait(served.master().run_step(step(&[], &[], &["go on"]))).unwrap();
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
fn messages_of_garbage_are_answered() {
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

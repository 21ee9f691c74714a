//! How fast calls and tensors go over loopback, beside what plain TCP does: `cargo bench -p ferroflow-rpc`.
//!
//! Calls answer with nothing, so that only the way there and back is measured.

use bytes::Bytes;
use framework::BoxFuture;
use rpc::channel::Outgoing;
use rpc::pieces::Writer;
use rpc::server::Call;
use rpc::{Channel, Lane, Listener, RemoteWorker, Service};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tensor::{DType, Result, Tensor};

/// Answers RecvTensor with a tensor of as many bytes as the step's number says, and all else with nothing.
struct Bench;

impl Service for Bench {
    fn name(&self) -> &'static str {
        "tensorflow.WorkerService"
    }

    fn computes(&self, method: &str) -> bool {
        method == "RunGraph"
    }

    fn call(self: Arc<Self>, call: Call) -> BoxFuture<Result<Vec<Bytes>>> {
        Box::pin(async move {
            let mut writer = Writer::default();
            if call.method == "RecvTensor" {
                let request: proto::RecvTensorRequest = call.message.decode("a request")?;
                let tensor = Tensor::from_filled(DType::U8, [request.step_id as usize], |_| Ok(()))?;
                writer.put_tensor_field(1, "t", &tensor);
            }
            writer.finish("a benchmark")
        })
    }
}

fn wait<T>(future: impl Future<Output = T>) -> T {
    runtime::block_on(future, None).expect("no deadline")
}

fn main() {
    let server = Listener::bind("127.0.0.1:0").and_then(|l| l.serve(vec![Arc::new(Bench)])).expect("a server");
    let channel = Channel::new(None, &server.address().to_string());
    for (what, path) in [
        ("call answered on a network thread", "/tensorflow.WorkerService/GetStatus"),
        ("call answered on a step thread", "/tensorflow.WorkerService/RunGraph"),
    ] {
        calls(what, path, &channel);
    }
    let worker = RemoteWorker::new(channel);
    println!("{:>10} {:>12} {:>12} {:>8}", "bytes", "tensor GB/s", "TCP GB/s", "ratio");
    for shift in [14, 17, 20, 24, 26, 28, 30] {
        transfer(1 << shift, &worker);
    }
}

fn calls(what: &str, path: &'static str, channel: &Channel) {
    let body = Writer::default().finish("a benchmark").expect("short");
    let call = || Outgoing { path, body: body.clone(), limit: None, lane: Lane::Control, tries: 1 };
    let mut times: Vec<Duration> = (0..20_000)
        .map(|_| {
            let started = Instant::now();
            wait(channel.unary(call())).expect("an answer");
            started.elapsed()
        })
        .collect();
    times.sort();
    println!("{what}: p50 {:?}, p99 {:?}", times[times.len() / 2], times[times.len() * 99 / 100]);
}

fn transfer(bytes: usize, worker: &RemoteWorker) {
    use distributed::interface::WorkerInterface;
    let key = framework::RendezvousKey::from_text("k");
    let rounds = (2usize << 30).div_ceil(bytes).min(2000);
    let ours = best(rounds, || drop(wait(worker.recv_tensor(bytes as i64, key.clone())).expect("a tensor")));
    let mut tcp = Tcp::new(bytes);
    let theirs = best(rounds, || tcp.round());
    let rate = |time: Duration| bytes as f64 / time.as_secs_f64() / 1e9;
    println!("{bytes:>10} {:>12.2} {:>12.2} {:>8.2}", rate(ours), rate(theirs), rate(ours) / rate(theirs));
}

/// The median.
fn best(rounds: usize, mut round: impl FnMut()) -> Duration {
    let mut times: Vec<Duration> = (0..rounds)
        .map(|_| {
            let started = Instant::now();
            round();
            started.elapsed()
        })
        .collect();
    times.sort();
    times[times.len() / 2]
}

/// A byte there, so many bytes back, into the same memory.
struct Tcp {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Tcp {
    fn new(bytes: usize) -> Tcp {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a client");
            let data = vec![1u8; bytes];
            while stream.read_exact(&mut [0]).is_ok() && stream.write_all(&data).is_ok() {}
        });
        let stream = TcpStream::connect(address).expect("a server");
        stream.set_nodelay(true).expect("an option");
        Tcp { stream, buffer: vec![0; bytes] }
    }

    fn round(&mut self) {
        self.stream.write_all(&[1]).expect("sent");
        self.stream.read_exact(&mut self.buffer).expect("received");
    }
}

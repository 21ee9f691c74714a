//! How fast calls and tensors go over loopback, beside what plain TCP does: `cargo bench -p ferroflow-rpc`.
//!
//! Calls answer with nothing, so that only the way there and back is measured.

use bytes::Bytes;
use distributed::interface::WorkerInterface;
use framework::BoxFuture;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use parking_lot::Mutex;
use rpc::channel::Outgoing;
use rpc::pieces::Writer;
use rpc::server::Call;
use rpc::{Channel, Lane, Listener, RemoteWorker, Service};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tensor::{Result, Tensor};

/// Answers RecvTensor with a tensor of as many bytes as the step's number says, and all else with nothing.
#[derive(Default)]
struct Bench {
    /// The last one, so that it is not made anew for every call.
    tensor: Mutex<Option<Tensor>>,
}

impl Bench {
    fn tensor(&self, bytes: usize) -> Result<Tensor> {
        let mut kept = self.tensor.lock();
        if kept.as_ref().is_none_or(|tensor| tensor.num_bytes() != bytes) {
            *kept = Some(Tensor::from_vec([bytes], vec![1u8; bytes])?);
        }
        kept.clone().ok_or_else(|| tensor::internal!("it was just made"))
    }
}

impl Service for Bench {
    fn name(&self) -> &'static str {
        "tensorflow.WorkerService"
    }

    fn takes_long(&self, method: &str) -> bool {
        method == "RunGraph"
    }

    fn call(self: Arc<Self>, call: Call) -> BoxFuture<Result<Vec<Bytes>>> {
        Box::pin(async move {
            let mut writer = Writer::default();
            if call.method == "RecvTensor" {
                let request: proto::RecvTensorRequest = call.message.decode("a request")?;
                writer.put_tensor_field(1, "t", &self.tensor(request.step_id as usize)?);
            }
            writer.finish("a benchmark")
        })
    }
}

fn wait<T>(future: impl Future<Output = T>) -> T {
    runtime::block_on(future, None).expect("no deadline")
}

fn main() {
    let server =
        Listener::bind("127.0.0.1:0").and_then(|l| l.serve(vec![Arc::new(Bench::default())])).expect("a server");
    let channel = Channel::new(None, &server.address().to_string());
    for (what, path) in [
        ("call answered on a network thread", "/tensorflow.WorkerService/GetStatus"),
        ("call answered on a step thread", "/tensorflow.WorkerService/RunGraph"),
    ] {
        calls(what, path, &channel);
    }
    let worker = RemoteWorker::new(channel);
    println!(
        "{:>10} {:>12} {:>12} {:>8} {:>14} {:>12}",
        "bytes", "tensor GB/s", "TCP GB/s", "ratio", "CPU ns/byte", "TCP"
    );
    for shift in [14, 17, 20, 24, 26, 28, 30] {
        transfer(1 << shift, &worker);
    }
    many_small(&worker);
}

/// A thousand tensors of a kilobyte at once.
fn many_small(worker: &RemoteWorker) {
    let key = framework::RendezvousKey::from_text("k");
    let round = || {
        let calls: FuturesUnordered<_> = (0..1000).map(|_| worker.recv_tensor(1024, key.clone())).collect();
        assert_eq!(wait(calls.filter(|received| std::future::ready(received.is_ok())).count()), 1000);
    };
    let (time, cpu) = measure(50, round);
    println!("1000 tensors of 1 KB at once: {time:?}, {:.1} us of CPU each", cpu.as_secs_f64() * 1e3);
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
    let key = framework::RendezvousKey::from_text("k");
    let rounds = (1usize << 30).div_ceil(bytes).clamp(2, 2000);
    let (ours, our_cpu) = measure(rounds, || {
        drop(wait(worker.recv_tensor(bytes as i64, key.clone())).expect("a tensor"));
    });
    let mut tcp = Tcp::new(bytes);
    let (theirs, their_cpu) = measure(rounds, || tcp.round());
    let rate = |time: Duration| bytes as f64 / time.as_secs_f64() / 1e9;
    let per_byte = |cpu: Duration| cpu.as_secs_f64() * 1e9 / bytes as f64;
    println!(
        "{bytes:>10} {:>12.2} {:>12.2} {:>8.2} {:>14.2} {:>12.2}",
        rate(ours),
        rate(theirs),
        rate(ours) / rate(theirs),
        per_byte(our_cpu),
        per_byte(their_cpu)
    );
}

/// The median of the times, and the processor time of each round on all threads.
fn measure(rounds: usize, mut round: impl FnMut()) -> (Duration, Duration) {
    round();
    let before = cpu_time();
    let mut times: Vec<Duration> = (0..rounds)
        .map(|_| {
            let started = Instant::now();
            round();
            started.elapsed()
        })
        .collect();
    times.sort();
    (times[times.len() / 2], (cpu_time() - before) / rounds as u32)
}

/// What this process has used so far, where the system tells.
fn cpu_time() -> Duration {
    const TICK: Duration = Duration::from_millis(10);
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    after_name.split_whitespace().skip(11).take(2).filter_map(|ticks| ticks.parse::<u32>().ok()).map(|n| TICK * n).sum()
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

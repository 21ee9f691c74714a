//! Listens on an address and answers calls.
//!
//! A call begins on the thread that took it off the connection: most are answered there and then, and the answer leaves
//! with the connection's next write. One that is not becomes a task of its own, so that any number may wait without
//! holding up others or a thread. A call is dropped, and with it whatever it had under way, when its caller resets it, goes
//! away, or is out of time. Every phase in which a peer could keep us waiting has a limit.

use crate::budget::Budget;
use crate::channel::{CONNECTION_WINDOW, FRAME_MAX, HEADERS_MAX, STREAM_WINDOW};
#[cfg(target_os = "linux")]
use crate::direct;
use crate::grpc::message::{Broken, Incoming};
use crate::grpc::{CONTENT_TYPE, OUR_KIND, status, timeout};
use crate::joined::{Hold, Joined};
#[cfg(target_os = "linux")]
use crate::near::{self, Near};
use crate::pieces::{MESSAGE_MAX, PREFIX, Pieces};
use crate::socket::{Socket, Stream};
use crate::{freed, holder, runtime};
use bytes::Bytes;
use distributed::brief;
use framework::participant::GIVEN_UP_AFTER;
use framework::{BoxFuture, Connection};
use h2::server::SendResponse;
use http::{HeaderValue, Method, Request, Response, header};
use parking_lot::Mutex;
use std::any::Any;
use std::collections::HashMap;
use std::future::poll_fn;
use std::net::{SocketAddr, ToSocketAddrs};
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tensor::{Code, Error, Result, deadline_exceeded, internal, invalid, unavailable};
#[cfg(target_os = "linux")]
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;
#[cfg(target_os = "linux")]
use tokio::net::UnixListener;
use tokio::sync::watch;

/// How long a new connection may take to say that it is HTTP/2.
const HANDSHAKE_TIME: Duration = Duration::from_secs(10);
/// Calls under way on one connection; most of them wait for a tensor.
pub(crate) const CALLS_MAX: u32 = 100_000;
/// Calls that were reset before they were looked at; beyond this a peer only keeps us busy.
const RESETS_MAX: usize = 1_000;
/// The parts of the machine's memory that unfinished requests may take: all of a server's, and one connection's.
const UNFINISHED_SHARE: usize = 2;
const CONNECTION_SHARE: usize = 4;
/// Of a connection whose requests took this much and came to nothing, the memory is given back to the system at once.
const LARGE: usize = 16 << 20;
/// Connections that wait to be accepted.
const BACKLOG: i32 = 4096;
/// The pause after a connection could not be accepted, as when there are too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How long a connection answers calls itself before it leaves further ones to other threads.
const BUSY_MAX: Duration = Duration::from_micros(100);
/// A message that is longer takes a while to be read.
pub(crate) const SHORT_MAX: usize = 1 << 20;

/// How much longer a call may take that is out of time: what is under way can tell better what it waited for.
const LATE_GRACE: Duration = Duration::from_millis(50);

/// How long a caller whose connections are closed may take to open another before it counts as lost.
const LOST_AFTER: Duration = Duration::from_secs(1);

/// Answers the calls of one gRPC service.
pub trait Service: Send + Sync + 'static {
    /// Package and name, as in `tensorflow.WorkerService`.
    fn name(&self) -> &'static str;
    /// Whether a method may compute for long from its beginning: it then gets a thread that has the time.
    fn takes_long(&self, method: &str) -> bool;
    /// Answers a call. Dropping the future cancels it.
    fn call(self: Arc<Self>, call: Call) -> BoxFuture<Result<Vec<Bytes>>>;
}

/// A call that came in.
#[derive(Debug)]
pub struct Call {
    /// The method's name.
    pub method: String,
    /// The request.
    pub message: Pieces,
    /// When the caller stops waiting.
    pub deadline: Option<Instant>,
    /// What it came over.
    pub connection: Arc<Connection>,
    /// The process it came from, if that is one of this user's on this machine.
    pub process: Option<u32>,
    /// For what must outlast the answer.
    pub kept: Kept,
}

/// What an answer refers to. If there is something, the call ends when the caller resets it or is gone, and not before.
#[derive(Clone, Debug, Default)]
pub struct Kept(Arc<Mutex<Option<Box<dyn Any + Send>>>>);

impl Kept {
    /// Keeps this until the call ends.
    pub fn keep(&self, what: impl Send + 'static) {
        *self.0.lock() = Some(Box::new(what));
    }

    pub(crate) fn take(&self) -> Option<Box<dyn Any + Send>> {
        self.0.lock().take()
    }
}

/// The answer to a method that is not there, worded as peers expect it: not at all.
pub fn unknown_method() -> Error {
    Error::new(Code::Unimplemented, "")
}

/// An address that is taken, before anything is served on it.
#[derive(Debug)]
pub struct Listener {
    socket: std::net::TcpListener,
    address: SocketAddr,
}

impl Listener {
    /// Takes `host:port`; port 0 takes any that is free.
    pub fn bind(address: &str) -> Result<Listener> {
        let found = address.to_socket_addrs();
        let found = found.map_err(|e| invalid!("cannot listen on {address}: the address is not known here: {e}"))?;
        // A name such as localhost may have addresses of both kinds; the older one is where others look first.
        let mut candidates: Vec<SocketAddr> = found.collect();
        candidates.sort_by_key(SocketAddr::is_ipv6);
        let mut last = None;
        for candidate in candidates {
            match listen(candidate) {
                Ok(socket) => {
                    let address = socket.local_addr()?;
                    return Ok(Listener { socket, address });
                }
                Err(e) => last = Some(bind_failed(address, candidate, &e)),
            }
        }
        Err(last.unwrap_or_else(|| invalid!("cannot listen on {address}: the host has no address")))
    }

    /// The address that was taken.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Begins to answer calls.
    pub fn serve(self, services: Vec<Arc<dyn Service>>) -> Result<Server> {
        self.serve_within(services, at_least_one_message(tensor::memory_limit() / UNFINISHED_SHARE))
    }

    /// Begins to answer calls, and holds no more than so many bytes of requests that are not complete.
    pub fn serve_within(self, services: Vec<Arc<dyn Service>>, unfinished_bytes_max: usize) -> Result<Server> {
        let listener = {
            let _context = runtime::network().enter();
            Listeners {
                far: TcpListener::from_std(self.socket)?,
                #[cfg(target_os = "linux")]
                near: near::listen(self.address),
            }
        };
        let services: Services = Arc::new(services.into_iter().map(|service| (service.name(), service)).collect());
        let listener = Arc::new(Mutex::new(Some(listener)));
        let server =
            Server { address: self.address, listener: listener.clone(), phase: watch::Sender::new(Phase::Open) };
        let memory = Budget::new(unfinished_bytes_max, "to this server");
        runtime::network().spawn(accept(listener, services, memory, server.phase.subscribe()));
        Ok(server)
    }
}

/// One message of the largest size must fit, on a small machine too.
fn at_least_one_message(bytes: usize) -> usize {
    bytes.max(MESSAGE_MAX + PREFIX)
}

fn listen(address: SocketAddr) -> std::io::Result<std::net::TcpListener> {
    use socket2::{Domain, Protocol, Socket, Type};
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    // Connections of a former server that are still being wound up do not keep its port.
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

fn bind_failed(wanted: &str, address: SocketAddr, e: &std::io::Error) -> Error {
    use std::io::ErrorKind;
    match e.kind() {
        ErrorKind::AddrInUse => match holder::of_port(address.port()) {
            Some(holder) => unavailable!("cannot listen on {wanted}: the port is taken by {holder}"),
            None => unavailable!("cannot listen on {wanted}: the port is taken"),
        },
        ErrorKind::AddrNotAvailable => invalid!("cannot listen on {wanted}: {} is not of this machine", address.ip()),
        ErrorKind::PermissionDenied => Error::new(Code::PermissionDenied, format!("cannot listen on {wanted}: {e}")),
        _ => unavailable!("cannot listen on {wanted}: {e}"),
    }
}

pub(crate) type Services = Arc<HashMap<&'static str, Arc<dyn Service>>>;
type SharedListener = Arc<Mutex<Option<Listeners>>>;

/// Where connections come from.
struct Listeners {
    far: TcpListener,
    /// For processes on this machine.
    #[cfg(target_os = "linux")]
    near: Option<UnixListener>,
}

impl Listeners {
    fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<std::io::Result<Stream>> {
        #[cfg(target_os = "linux")]
        while let Some(Poll::Ready(accepted)) = self.near.as_ref().map(|near| near.poll_accept(cx)) {
            if let Some(near) = accepted.and_then(|(stream, _)| Near::new(stream)).transpose() {
                return Poll::Ready(near.map(Stream::Near));
            }
        }
        self.far.poll_accept(cx).map_ok(|(stream, _)| Stream::Tcp(stream))
    }
}

/// How far a server is from its end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Phase {
    Open,
    /// Calls under way are finished, new ones refused.
    Draining,
    Closed,
}

/// Something that answers calls. Dropping it frees the address at once and breaks off what is under way.
pub struct Server {
    address: SocketAddr,
    listener: SharedListener,
    phase: watch::Sender<Phase>,
}

impl Server {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Frees the address, lets calls under way end within this time, and breaks off the rest. Whether all ended.
    pub async fn stop(&self, limit: Duration) -> bool {
        self.close_listener();
        self.phase.send_replace(Phase::Draining);
        let drained = runtime::within(Some(limit), pin!(self.phase.closed())).await.is_some();
        self.phase.send_replace(Phase::Closed);
        drained
    }

    fn close_listener(&self) {
        drop(self.listener.lock().take());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.close_listener();
        self.phase.send_replace(Phase::Closed);
    }
}

async fn accept(listener: SharedListener, services: Services, memory: Arc<Budget>, mut phase: watch::Receiver<Phase>) {
    while *phase.borrow_and_update() == Phase::Open {
        match next_connection(&listener, &mut phase).await {
            None => return,
            Some(Ok(stream)) => {
                let most = at_least_one_message(tensor::memory_limit() / CONNECTION_SHARE);
                let memory = memory.share(most, "on this connection");
                tokio::spawn(converse(stream, services.clone(), memory, phase.clone()));
            }
            Some(Err(_)) => tokio::time::sleep(ACCEPT_PAUSE).await,
        }
    }
}

/// `None` when the phase changes.
async fn next_connection(
    listener: &SharedListener,
    phase: &mut watch::Receiver<Phase>,
) -> Option<std::io::Result<Stream>> {
    let mut changed = pin!(phase.changed());
    poll_fn(|cx| {
        if changed.as_mut().poll(cx).is_ready() {
            return Poll::Ready(None);
        }
        let listener = listener.lock();
        let Some(listener) = listener.as_ref() else { return Poll::Ready(None) };
        listener.poll_accept(cx).map(Some)
    })
    .await
}

/// One connection, from its first byte to its last.
async fn converse(mut stream: Stream, services: Services, memory: Arc<Budget>, phase: watch::Receiver<Phase>) {
    let Ok(Ok(is_direct)) = tokio::time::timeout(HANDSHAKE_TIME, is_direct(&mut stream)).await else { return };
    match is_direct {
        #[cfg(target_os = "linux")]
        true => {
            let connection_end = ConnectionEnd(Connection::open());
            let caller = Caller { connection: connection_end.0.clone(), process: stream.process() };
            // Apart: the room that it takes is not needed for those who speak HTTP/2, nor theirs for it.
            Box::pin(direct::converse(stream, services, memory, phase, caller)).await;
            drop(connection_end);
        }
        _ => Box::pin(converse_by_http(stream, services, memory, phase)).await,
    }
}

/// Whether a client does without HTTP/2, which is known by his first byte.
#[cfg(target_os = "linux")]
async fn is_direct(stream: &mut Stream) -> std::io::Result<bool> {
    let Stream::Tcp(stream) = stream else { return Ok(true) };
    let mut preface = direct::PREFACE;
    if stream.peek(&mut preface[..1]).await? == 0 || preface[0] != direct::PREFACE[0] {
        return Ok(false);
    }
    stream.read_exact(&mut preface).await?;
    if preface == direct::PREFACE { Ok(true) } else { Err(std::io::ErrorKind::InvalidData.into()) }
}

#[cfg(not(target_os = "linux"))]
async fn is_direct(_: &mut Stream) -> std::io::Result<bool> {
    Ok(false)
}

async fn converse_by_http(stream: Stream, services: Services, memory: Arc<Budget>, mut phase: watch::Receiver<Phase>) {
    let Ok(socket) = Socket::server(stream) else { return };
    let hold = Hold::default();
    let handshake = h2::server::Builder::new()
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_frame_size(FRAME_MAX)
        .max_header_list_size(HEADERS_MAX)
        .max_concurrent_streams(CALLS_MAX)
        .max_pending_accept_reset_streams(RESETS_MAX)
        .handshake::<_, Bytes>(Joined::new(socket, hold.clone()));
    let Ok(Ok(mut connection)) = tokio::time::timeout(HANDSHAKE_TIME, handshake).await else { return };
    let connection_end = ConnectionEnd(Connection::open());
    let caller = Caller { connection: connection_end.0.clone(), process: None };
    let mut busy = Busy::default();
    loop {
        match *phase.borrow_and_update() {
            Phase::Open => {}
            Phase::Draining => connection.graceful_shutdown(),
            Phase::Closed => return,
        }
        match next_request(&mut connection, &hold, &mut phase, &mut busy).await {
            ControlFlow::Continue(None) => {}
            ControlFlow::Continue(Some((request, respond))) => {
                start(request, respond, &services, &memory, &phase, &caller, &busy).await;
            }
            ControlFlow::Break(()) => return,
        }
    }
}

/// Where calls come from.
#[derive(Clone)]
pub(crate) struct Caller {
    pub(crate) connection: Arc<Connection>,
    pub(crate) process: Option<u32>,
}

/// Sees to it, when dropped, that those are lost who had this connection alone.
struct ConnectionEnd(Arc<Connection>);

impl Drop for ConnectionEnd {
    fn drop(&mut self) {
        let connection = self.0.clone();
        runtime::network().spawn(async move {
            tokio::time::sleep(LOST_AFTER).await;
            let lost = connection.close(Instant::now());
            drop(connection);
            if !lost.is_empty() {
                tokio::time::sleep(GIVEN_UP_AFTER).await;
                lost.iter().filter_map(Weak::upgrade).for_each(|participant| participant.give_up());
            }
        });
    }
}

/// Since when a connection has been working on what came in, without a pause.
#[derive(Default)]
pub(crate) struct Busy(Option<Instant>);

impl Busy {
    /// Something has come in.
    pub(crate) fn begin(&mut self) {
        self.0.get_or_insert_with(Instant::now);
    }

    /// Whether further calls had better become tasks at once, which other threads may take.
    pub(crate) fn is_full(&self) -> bool {
        self.0.is_some_and(|since| since.elapsed() > BUSY_MAX)
    }
}

type Arrived = (Request<h2::RecvStream>, SendResponse<Bytes>);

/// The next call on a connection, or nothing if the server's phase has changed; a break at the connection's end.
async fn next_request(
    connection: &mut h2::server::Connection<Joined<Socket>, Bytes>,
    hold: &Hold,
    phase: &mut watch::Receiver<Phase>,
    busy: &mut Busy,
) -> ControlFlow<(), Option<Arrived>> {
    let mut changed = pin!(phase.changed());
    poll_fn(|cx| match changed.as_mut().poll(cx) {
        Poll::Ready(Ok(())) => Poll::Ready(ControlFlow::Continue(None)),
        Poll::Ready(Err(_)) => Poll::Ready(ControlFlow::Break(())), // the server is gone
        Poll::Pending => match accept_next(connection, hold, busy, cx) {
            Poll::Ready(Some(Ok(arrived))) => {
                busy.begin();
                Poll::Ready(ControlFlow::Continue(Some(arrived)))
            }
            // Whatever is wrong with a connection, its peer has been told.
            Poll::Ready(None | Some(Err(_))) => Poll::Ready(ControlFlow::Break(())),
            Poll::Pending => {
                busy.0 = None;
                Poll::Pending
            }
        },
    })
    .await
}

/// Answers to calls that came together leave together, unless that takes long.
fn accept_next(
    connection: &mut h2::server::Connection<Joined<Socket>, Bytes>,
    hold: &Hold,
    busy: &Busy,
    cx: &mut Context<'_>,
) -> Poll<Option<Result<Arrived, h2::Error>>> {
    hold.set(busy.0.is_some() && !busy.is_full());
    let arrived = connection.poll_accept(cx);
    hold.set(false);
    if arrived.is_pending() && hold.has_put_off() { connection.poll_accept(cx) } else { arrived }
}

async fn start(
    request: Request<h2::RecvStream>,
    mut respond: SendResponse<Bytes>,
    services: &Services,
    memory: &Arc<Budget>,
    phase: &watch::Receiver<Phase>,
    caller: &Caller,
    busy: &Busy,
) {
    let (service, method) = match route(&request, services) {
        Ok(found) => found,
        Err(error) => return refuse(&mut respond, &error),
    };
    let takes_long = service.takes_long(&method);
    let (phase, memory, caller) = (phase.clone(), memory.clone(), caller.clone());
    let mut call = Some(Begun(Box::pin(answer(request, respond, service, method, memory, caller, phase))));
    poll_fn(|cx| {
        if let Some(call) = call.take() {
            call.go_on(takes_long, busy, cx);
        }
        Poll::Ready(())
    })
    .await;
}

/// A call that is to be answered. It is allocated for each of them, and what is well below a kilobyte costs much less.
pub(crate) struct Begun(pub(crate) BoxFuture<()>);

impl Begun {
    /// Answers it, here and now if that is possible.
    pub(crate) fn go_on(self, takes_long: bool, busy: &Busy, cx: &mut Context<'_>) {
        if takes_long {
            runtime::steps().spawn(self.0);
            return;
        }
        let mut call = Hasty { call: Some(self.0) };
        // If it has to wait, it is polled again as a task, which then is what gets woken.
        if busy.is_full() || Pin::new(&mut call).poll(cx).is_pending() {
            runtime::network().spawn(call);
        }
    }
}

/// A call on the network's threads: polled briefly, and moved to the others when it needs time.
struct Hasty {
    call: Option<BoxFuture<()>>,
}

impl Future for Hasty {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Some(call) = &mut self.call else { return Poll::Ready(()) };
        let polled = brief::briefly(|| call.as_mut().poll(cx));
        if polled.value.is_pending() && !polled.needs_time {
            return Poll::Pending;
        }
        if let (true, Some(call)) = (polled.value.is_pending(), self.call.take()) {
            runtime::steps().spawn(call);
        }
        Poll::Ready(())
    }
}

fn route(request: &Request<h2::RecvStream>, services: &Services) -> Result<(Arc<dyn Service>, String)> {
    if request.method() != Method::POST {
        return Err(invalid!("a call is a POST, not a {}", request.method()));
    }
    let kind = request.headers().get(header::CONTENT_TYPE).map_or(&b""[..], |value| value.as_bytes());
    if !kind.starts_with(CONTENT_TYPE.as_bytes()) {
        return Err(invalid!("the request is of the type '{}', wanted {CONTENT_TYPE}", String::from_utf8_lossy(kind)));
    }
    let (service, method) = find(request.uri().path(), services)?;
    Ok((service.clone(), method.to_string()))
}

/// Who answers calls to this path, and the name of the method.
pub(crate) fn find<'a>(path: &'a str, services: &'a Services) -> Result<(&'a Arc<dyn Service>, &'a str)> {
    let (name, method) = path.strip_prefix('/').and_then(|path| path.split_once('/')).ok_or_else(unknown_method)?;
    Ok((services.get(name).ok_or_else(unknown_method)?, method))
}

/// Why a call is not answered.
pub(crate) enum Gone {
    /// The caller does not want an answer any more.
    Caller,
    /// The caller's time is up.
    Late(Duration),
}

/// The answer to a call. What of its head matters is taken out first: the rest need not be kept until the end.
fn answer(
    request: Request<h2::RecvStream>,
    mut respond: SendResponse<Bytes>,
    service: Arc<dyn Service>,
    method: String,
    memory: Arc<Budget>,
    caller: Caller,
    until_answered: watch::Receiver<Phase>, // a server that drains waits until the last of these is gone
) -> impl Future<Output = ()> {
    let (head, body) = request.into_parts();
    let limit = head.headers.get(&timeout::GRPC_TIMEOUT).and_then(|value| timeout::parse(value.to_str().ok()?));
    let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
    let (kept, is_of_our_kind) = (Kept::default(), head.headers.contains_key(&OUR_KIND));
    let mut incoming = Incoming::new(body, &head.headers).map(|incoming| incoming.paced(memory.hold()));
    async move {
        let _until_answered = until_answered;
        let work = async {
            let message = read_message(incoming.as_mut().map_err(|e| e.clone())?).await?;
            if message.len() > SHORT_MAX {
                brief::enough_time().await;
            }
            let Caller { connection, process } = caller;
            let call = Call { method: method.clone(), message, deadline, connection, process, kept: kept.clone() };
            service.call(call).await
        };
        let outcome = unless_gone(pin!(work), |cx| respond.poll_reset(cx).map(drop), limit).await;
        match outcome {
            Ok(Ok(parts)) => return send(&mut respond, parts, kept.take(), is_of_our_kind).await,
            Ok(Err(error)) => refuse(&mut respond, &error),
            Err(Gone::Late(limit)) => {
                refuse(&mut respond, &deadline_exceeded!("{method} has not ended within {:.3} s", limit.as_secs_f64()));
            }
            Err(Gone::Caller) => {}
        }
        give_back(&memory);
    }
}

/// What calls that came to nothing have held is of no use to others.
pub(crate) fn give_back(memory: &Budget) {
    if memory.take_peak() >= LARGE {
        freed::give_back();
    }
}

async fn read_message(incoming: &mut Incoming) -> Result<Pieces> {
    match incoming.message().await {
        Ok(Some(message)) => Ok(message),
        Ok(None) => Err(internal!("the request has no message")),
        Err(Broken::Content(error)) => Err(error),
        Err(Broken::Stream(error)) => Err(status::from_h2(&error)),
    }
}

/// Does the work for as long as somebody waits for it; then its caller drops it.
pub(crate) async fn unless_gone<T>(
    mut work: Pin<&mut impl Future<Output = Result<T>>>,
    mut poll_reset: impl FnMut(&mut Context<'_>) -> Poll<()>,
    limit: Option<Duration>,
) -> Result<Result<T>, Gone> {
    let mut alarm = limit.map(|limit| (limit, Box::pin(runtime::sleep(limit.saturating_add(LATE_GRACE)))));
    poll_fn(|cx| {
        // A bug of ours in one call must not leave its caller without an answer.
        match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(cx))) {
            Ok(Poll::Ready(result)) => return Poll::Ready(Ok(result)),
            Ok(Poll::Pending) => {}
            Err(_) => {
                return Poll::Ready(Ok(Err(internal!("the call ended in a panic; the server's log tells where"))));
            }
        }
        if poll_reset(cx).is_ready() {
            return Poll::Ready(Err(Gone::Caller));
        }
        match &mut alarm {
            Some((limit, alarm)) => alarm.as_mut().poll(cx).map(|()| Err(Gone::Late(*limit))),
            None => Poll::Pending,
        }
    })
    .await
}

/// Sends an answer, and keeps what it refers to for as long as the caller does. Errors mean that the caller is gone.
///
/// One of our own kind takes a message that is complete for a success. Others are told so in trailers, which need a write
/// of their own after all but the smallest messages, and wake the caller once more.
async fn send(
    respond: &mut SendResponse<Bytes>,
    parts: Vec<Bytes>,
    kept: Option<Box<dyn Any + Send>>,
    is_of_our_kind: bool,
) {
    let Ok(mut stream) = respond.send_response(head(), false) else { return };
    let count = parts.len();
    let ends_with_message = is_of_our_kind && kept.is_none() && count > 0;
    for (i, part) in parts.into_iter().enumerate() {
        if stream.send_data(part, ends_with_message && i + 1 == count).is_err() {
            return;
        }
    }
    if kept.is_some() {
        let _ = poll_fn(|cx| stream.poll_reset(cx)).await;
    } else if !ends_with_message {
        let _ = stream.send_trailers(status::ok());
    }
}

/// Sends a failure: head and status at once.
fn refuse(respond: &mut SendResponse<Bytes>, error: &Error) {
    let mut response = head();
    response.headers_mut().extend(status::trailers(error));
    let _ = respond.send_response(response, true);
}

fn head() -> Response<()> {
    let mut response = Response::new(());
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(CONTENT_TYPE));
    response.headers_mut().insert(&OUR_KIND, HeaderValue::from_static(env!("CARGO_PKG_VERSION")));
    response
}

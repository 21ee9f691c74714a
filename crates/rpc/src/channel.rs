//! A client's connection to one address.
//!
//! It connects on first use and again when the connection was lost, with growing pauses. While a peer cannot be reached
//! calls fail at once, and say who it is, where, why, and since when. Nothing here needs the network's threads to be
//! polled: calls may be awaited anywhere.
//!
//! Across the network every peer is first spoken to over HTTP/2. If it answers as one of our own kind, another connection is
//! made, for further calls to do without (`direct`).

#[cfg(target_os = "linux")]
use crate::direct::{self, Answer, Unanswered};
#[cfg(target_os = "linux")]
use crate::drive::{self, Drive};
use crate::grpc::message::{Broken, Incoming};
use crate::grpc::{CONTENT_TYPE, OUR_KIND, status, timeout};
use crate::joined::{Hold, Joined};
#[cfg(target_os = "linux")]
use crate::near;
use crate::pieces::Pieces;
use crate::runtime;
use crate::socket::{Socket, Stream};
use bytes::Bytes;
use distributed::{TaskName, brief};
use h2::client::SendRequest;
use http::{Method, Request, Response, Uri, Version, header};
use parking_lot::Mutex;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tensor::{Code, Error, Result, deadline_exceeded, failed_precondition, internal, unavailable};
#[cfg(target_os = "linux")]
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::{oneshot, watch};

/// How long to wait for an address to be found, a connection to be accepted, and the first frame to come.
const STEP_TIME: Duration = Duration::from_secs(5);
/// The pause after a failed attempt: the first, and the longest. Training goes on within a second after a peer is back.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_millis(250);
/// The same while waiting for a server to come up.
const WAIT_MIN: Duration = Duration::from_millis(200);
const WAIT_MAX: Duration = Duration::from_secs(5);

/// How much longer than its time a call is waited for: the peer may have a better idea of what it waited for.
const LATE_GRACE: Duration = Duration::from_millis(200);
/// How often a call is put on another connection because its own was gone before it was sent.
const STALE_MAX: u32 = 3;

/// How much a peer may send ahead of its being read: on one stream, and on all of a connection together.
pub(crate) const STREAM_WINDOW: u32 = 8 << 20;
pub(crate) const CONNECTION_WINDOW: u32 = 32 << 20;
pub(crate) const FRAME_MAX: u32 = 1 << 20;
pub(crate) const HEADERS_MAX: u32 = 64 << 10;

/// Whom a channel leads to.
#[derive(Clone, Debug)]
pub struct Peer {
    task: Option<TaskName>,
    address: String,
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.task {
            Some(task) => write!(f, "{task} at {}", self.address),
            None => write!(f, "the server at {}", self.address),
        }
    }
}

/// Which of a channel's connections a call takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Lane {
    /// For everything that should be quick.
    Control,
    /// For answers that are a tensor, which may be long and must not hold up the rest.
    Tensors,
}

/// Who moves the bytes of a channel's connections.
#[derive(Clone, Copy, PartialEq)]
enum Mover {
    /// The network's threads.
    Network,
    /// The threads that wait for answers, while there are any.
    Caller,
}

/// A client's way to one address.
#[derive(Clone)]
pub struct Channel {
    control: Arc<Link>,
    tensors: Arc<Link>,
}

impl Channel {
    /// A channel to a task, if its name is known, at `host:port`. Nothing is sent yet.
    pub fn new(task: Option<&TaskName>, address: &str) -> Channel {
        Channel::moved_by(Mover::Network, task, address)
    }

    /// A channel for a client whose threads block: they move the bytes themselves, where the system allows it.
    pub fn for_client(address: &str) -> Channel {
        Channel::moved_by(Mover::Caller, None, address)
    }

    fn moved_by(mover: Mover, task: Option<&TaskName>, address: &str) -> Channel {
        let peer = Peer { task: task.cloned(), address: address.to_string() };
        Channel { control: Link::new(&peer, mover), tensors: Link::new(&peer, mover) }
    }

    /// Whom it leads to.
    pub fn peer(&self) -> &Peer {
        &self.control.peer
    }

    /// Whether the last answer came from a task of our own kind, which knows more than TensorFlow's.
    pub fn is_of_our_kind(&self) -> bool {
        self.control.is_of_our_kind.load(Ordering::Relaxed) || self.tensors.is_of_our_kind.load(Ordering::Relaxed)
    }

    /// One call: a message there and a message back. Dropping it resets the stream, which the peer notices.
    pub async fn unary(&self, call: Outgoing) -> Result<Pieces> {
        self.call(call, async |incoming| incoming.message().await).await
    }

    /// As [`unary`](Channel::unary), with the answer read as it comes. `read` gives `None` if there is no message.
    pub async fn call<T>(
        &self,
        call: Outgoing,
        read: impl AsyncFn(&mut Incoming) -> Result<Option<T>, Broken>,
    ) -> Result<T> {
        let (path, limit) = (call.path, call.limit);
        let link = self.link(call.lane).clone();
        let started = Instant::now();
        let limit = limit.map(|limit| limit.saturating_add(LATE_GRACE));
        // Apart: what awaits this is in memory of its own as well, and together they are more than the allocator's threads
        // keep for themselves.
        let answer = runtime::within(limit, Box::pin(link.call(&call, read))).await;
        match answer {
            Some(answer) => answer,
            None => Err(deadline_exceeded!(
                "{} on {} has not ended within {}{}",
                method(path),
                link.peer,
                Seconds(started.elapsed()),
                link.what_it_waits_for()
            )),
        }
    }

    /// Waits until the peer answers, but no longer than this.
    pub async fn wait_until_ready(&self, patience: Duration) -> Result<()> {
        let started = Instant::now();
        let mut pause = WAIT_MIN;
        loop {
            let left = patience.saturating_sub(started.elapsed());
            let ready = runtime::within(Some(left), pin!(self.control.ready())).await;
            let error = match ready {
                Some(Ok(_)) => return Ok(()),
                Some(Err(error)) if error.code != Code::Unavailable => return Err(error),
                Some(Err(error)) => error,
                None => unavailable!("{} does not answer{}", self.peer(), self.control.what_it_waits_for()),
            };
            if started.elapsed() + pause >= patience {
                return Err(Error {
                    message: format!("{}; waited for {}", error.message, Seconds(started.elapsed())),
                    ..error
                });
            }
            runtime::sleep(pause).await;
            pause = (pause * 2).min(WAIT_MAX);
        }
    }

    fn link(&self, lane: Lane) -> &Arc<Link> {
        match lane {
            Lane::Control => &self.control,
            Lane::Tensors => &self.tensors,
        }
    }
}

/// Ends a call whose answer has been read, after what is ready to be done: it would wake the peer before those who wait for
/// what follows from the answer.
fn end_soon(call: impl Send + 'static) {
    brief::later(Box::new(move || drop(call)));
}

/// A call to be made.
#[derive(Clone, Debug)]
pub struct Outgoing {
    /// `/package.Service/Method`.
    pub path: &'static str,
    /// The message, prefix included.
    pub body: Vec<Bytes>,
    /// How long it may take, connecting included.
    pub limit: Option<Duration>,
    /// Which connection it takes.
    pub lane: Lane,
    /// How often to try to reach the peer, with pauses; 1 fails at once. What was sent is never sent again.
    pub tries: u32,
}

/// One connection of a channel, and its history.
struct Link {
    peer: Peer,
    mover: Mover,
    state: Mutex<State>,
    changed: watch::Sender<()>,
    is_of_our_kind: AtomicBool,
}

#[derive(Default)]
struct State {
    stage: Stage,
    /// Counts the connections, so that news of an old one does not touch its successor.
    generation: u64,
    /// Attempts that failed since the last success.
    failures: Option<Failures>,
}

#[derive(Default)]
enum Stage {
    #[default]
    Idle,
    Connecting {
        since: Instant,
    },
    Ready(Way),
}

/// A way to put calls on a connection.
#[derive(Clone)]
struct Way {
    sender: Sender,
    /// For those who wait for the answer.
    #[cfg(target_os = "linux")]
    drive: Option<Arc<Drive>>,
    /// Where a peer may also be reached without HTTP/2, until that has been tried.
    #[cfg(target_os = "linux")]
    untried: Arc<Mutex<Option<SocketAddr>>>,
}

/// What is spoken on a connection.
#[derive(Clone, Copy, PartialEq)]
enum Door {
    Http,
    #[cfg(target_os = "linux")]
    Direct,
}

/// Takes calls.
#[derive(Clone)]
enum Sender {
    Http(SendRequest<Bytes>),
    #[cfg(target_os = "linux")]
    Direct(Arc<direct::Calls>),
}

impl Way {
    /// To be called in each poll of what waits for an answer.
    fn attend(&self) {
        #[cfg(target_os = "linux")]
        match &self.drive {
            Some(drive) => drive::attend(drive),
            None => drive::await_others(),
        }
    }

    /// Where it may yet be tried to do without HTTP/2: once only.
    #[cfg(target_os = "linux")]
    fn take_untried(&self) -> Option<SocketAddr> {
        matches!(self.sender, Sender::Http(_)).then(|| self.untried.lock().take()).flatten()
    }
}

struct Failures {
    since: Instant,
    count: u32,
    last: Error,
    /// Not to be tried again before this.
    pause_ends: Instant,
    pause: Duration,
}

/// Why a call got no answer.
enum Trouble {
    /// There is no connection.
    Unreachable(Error),
    /// The peer has certainly not seen it.
    NotSent(Error),
    /// The peer may have seen it, or answered with this error.
    Failed(Error),
}

impl Link {
    fn new(peer: &Peer, mover: Mover) -> Arc<Link> {
        Arc::new(Link {
            peer: peer.clone(),
            mover,
            state: Mutex::default(),
            changed: watch::Sender::new(()),
            is_of_our_kind: AtomicBool::new(false),
        })
    }

    async fn call<T>(
        self: &Arc<Link>,
        call: &Outgoing,
        read: impl AsyncFn(&mut Incoming) -> Result<Option<T>, Broken>,
    ) -> Result<T> {
        let mut stale = 0;
        let mut tries = 1;
        loop {
            match self.attempt(call, &read).await {
                Ok(answer) => return Ok(answer),
                // A connection that was lost without anybody noticing: once more on a new one.
                Err(Trouble::NotSent(_)) if stale < STALE_MAX => stale += 1,
                Err(Trouble::Unreachable(e)) if tries < call.tries && e.code == Code::Unavailable => {
                    tries += 1;
                    runtime::sleep(self.pause_left()).await;
                }
                Err(Trouble::Failed(e) | Trouble::NotSent(e) | Trouble::Unreachable(e)) => return Err(e),
            }
        }
    }

    async fn attempt<T>(
        self: &Arc<Link>,
        call: &Outgoing,
        read: &impl AsyncFn(&mut Incoming) -> Result<Option<T>, Broken>,
    ) -> Result<T, Trouble> {
        let (way, generation) = self.ready().await.map_err(Trouble::Unreachable)?;
        let answer = {
            let mut exchange = pin!(self.exchange(&way.sender, call, read));
            poll_fn(|cx| {
                way.attend();
                exchange.as_mut().poll(cx)
            })
            .await
        };
        if let Err(Trouble::NotSent(_)) = answer {
            self.discard(generation);
        }
        #[cfg(target_os = "linux")]
        if self.is_of_our_kind.load(Ordering::Relaxed)
            && let Some(address) = way.take_untried()
        {
            runtime::network().spawn(live_directly(Arc::downgrade(self), generation, address, way));
        }
        answer
    }

    fn pause_left(&self) -> Duration {
        let state = self.state.lock();
        let left =
            state.failures.as_ref().map(|failures| failures.pause_ends.saturating_duration_since(Instant::now()));
        left.unwrap_or_default()
    }

    /// The connection, made if there is none. Fails at once during the pause after a failed attempt.
    async fn ready(self: &Arc<Link>) -> Result<(Way, u64)> {
        if let State { stage: Stage::Ready(way), generation, .. } = &*self.state.lock() {
            return Ok((way.clone(), *generation));
        }
        let mut changes = self.changed.subscribe();
        let mut tried = false;
        loop {
            {
                let mut state = self.state.lock();
                changes.borrow_and_update();
                match (&state.stage, &state.failures) {
                    (Stage::Ready(way), _) => return Ok((way.clone(), state.generation)),
                    (Stage::Idle, Some(failures)) if tried || Instant::now() < failures.pause_ends => {
                        return Err(self.unreachable(failures));
                    }
                    (Stage::Idle, _) => self.start(&mut state),
                    (Stage::Connecting { .. }, _) => {}
                }
                tried = true;
            }
            // The sender lives in `self`.
            let _ = changes.changed().await;
        }
    }

    fn start(self: &Arc<Link>, state: &mut State) {
        state.generation += 1;
        state.stage = Stage::Connecting { since: Instant::now() };
        runtime::network().spawn(live(Arc::downgrade(self), state.generation));
    }

    fn set_ready(&self, generation: u64, way: Way) {
        #[cfg(target_os = "linux")]
        if let Sender::Direct(_) = way.sender {
            self.is_of_our_kind.store(true, Ordering::Relaxed);
        }
        let mut state = self.state.lock();
        if state.generation == generation {
            state.stage = Stage::Ready(way);
            state.failures = None;
            self.changed.send_replace(());
        }
    }

    /// From now on calls take this way, if those before took that of this generation; its own generation.
    #[cfg(target_os = "linux")]
    fn replace(&self, former: u64, way: Way) -> Option<u64> {
        let mut state = self.state.lock();
        if state.generation != former || !matches!(state.stage, Stage::Ready(_)) {
            return None;
        }
        state.stage = Stage::Ready(way);
        state.generation += 1;
        Some(state.generation)
    }

    fn set_failed(&self, generation: u64, cause: Error) {
        let mut state = self.state.lock();
        if state.generation != generation {
            return;
        }
        let now = Instant::now();
        let (since, count, pause) = match (&state.failures, &state.stage) {
            (Some(before), _) => (before.since, before.count + 1, (before.pause * 2).min(PAUSE_MAX)),
            (None, Stage::Connecting { since }) => (*since, 1, PAUSE_MIN),
            (None, _) => (now, 1, PAUSE_MIN),
        };
        state.stage = Stage::Idle;
        state.failures = Some(Failures { since, count, last: cause, pause_ends: now + pause, pause });
        self.changed.send_replace(());
    }

    /// The connection of this generation is no good any more.
    fn discard(&self, generation: u64) {
        let mut state = self.state.lock();
        if state.generation == generation && matches!(state.stage, Stage::Ready(_)) {
            state.stage = Stage::Idle;
            self.changed.send_replace(());
        }
    }

    fn unreachable(&self, failures: &Failures) -> Error {
        let tries = if failures.count == 1 { "1 attempt".into() } else { format!("{} attempts", failures.count) };
        let message = format!(
            "{} cannot be reached: {} ({tries} in {})",
            self.peer,
            failures.last.message,
            Seconds(failures.since.elapsed())
        );
        Error { message, ..failures.last.clone() }
    }

    /// For the end of a sentence about a call that took too long.
    fn what_it_waits_for(&self) -> String {
        let state = self.state.lock();
        match (&state.stage, &state.failures) {
            (Stage::Connecting { since }, None) => format!("; it has been connecting for {}", Seconds(since.elapsed())),
            (_, Some(failures)) => {
                format!("; not connected for {}: {}", Seconds(failures.since.elapsed()), failures.last.message)
            }
            _ => String::new(),
        }
    }

    async fn exchange<T>(
        &self,
        sender: &Sender,
        call: &Outgoing,
        read: &impl AsyncFn(&mut Incoming) -> Result<Option<T>, Broken>,
    ) -> Result<T, Trouble> {
        match sender {
            // Apart: it takes more room than a direct one, of which there are many more.
            Sender::Http(connection) => Box::pin(self.exchange_by_http(connection.clone(), call, read)).await,
            #[cfg(target_os = "linux")]
            Sender::Direct(calls) => self.exchange_directly(calls, call, read).await,
        }
    }

    #[cfg(target_os = "linux")]
    async fn exchange_directly<T>(
        &self,
        calls: &Arc<direct::Calls>,
        call: &Outgoing,
        read: &impl AsyncFn(&mut Incoming) -> Result<Option<T>, Broken>,
    ) -> Result<T, Trouble> {
        let trouble = |why| match why {
            Unanswered::NotSent(e) => Trouble::NotSent(self.broke_off(call.path, e)),
            Unanswered::Lost(e) => Trouble::Failed(self.broke_off(call.path, e)),
            Unanswered::Failed(e) => Trouble::Failed(e),
        };
        let wants_tensor = call.lane == Lane::Tensors;
        let mut exchange = calls.start(call.path, call.limit, &call.body, wants_tensor).map_err(trouble)?;
        let mut incoming = match exchange.answer().await.map_err(trouble)? {
            Answer::Message(message) => Incoming::here(message),
            Answer::Tensor(tensor) => Incoming::tensor(tensor),
        };
        let message = read(&mut incoming).await.map_err(|broken| match broken {
            Broken::Stream(e) => Trouble::Failed(self.lost(call.path, &e)),
            Broken::Content(e) => Trouble::Failed(e),
        })?;
        if exchange.is_kept() {
            end_soon(exchange);
        }
        message.ok_or_else(|| Trouble::Failed(internal!("the answer has no message")))
    }

    async fn exchange_by_http<T>(
        &self,
        connection: SendRequest<Bytes>,
        call: &Outgoing,
        read: &impl AsyncFn(&mut Incoming) -> Result<Option<T>, Broken>,
    ) -> Result<T, Trouble> {
        let not_sent = |e: h2::Error| Trouble::NotSent(self.lost(call.path, &e));
        let failed = |e: h2::Error| match e.reason() {
            Some(h2::Reason::REFUSED_STREAM) => not_sent(e),
            _ => Trouble::Failed(self.lost(call.path, &e)),
        };
        let is_known = self.is_of_our_kind.load(Ordering::Relaxed);
        let request = request(call, &self.peer.address, is_known).map_err(Trouble::Failed)?;
        let mut connection = connection.ready().await.map_err(not_sent)?;
        let (response, mut stream) = connection.send_request(request, call.body.is_empty()).map_err(not_sent)?;
        for (i, part) in call.body.iter().enumerate() {
            // A peer may answer before it has heard everything: then that answer tells.
            if stream.send_data(part.clone(), i + 1 == call.body.len()).is_err() {
                break;
            }
        }
        let response = response.await.map_err(failed)?;
        let is_of_our_kind = response.headers().contains_key(&OUR_KIND);
        self.is_of_our_kind.store(is_of_our_kind, Ordering::Relaxed);
        let mut incoming = open(response, &self.peer).map_err(Trouble::Failed)?;
        let message = read(&mut incoming).await.map_err(|broken| match broken {
            Broken::Stream(e) => failed(e),
            Broken::Content(e) => Trouble::Failed(e),
        })?;
        if incoming.has_left() {
            if !incoming.is_over() {
                end_soon((stream, incoming));
            }
        } else {
            match incoming.trailers().await.map_err(failed)?.map(|trailers| status::read(&trailers)) {
                // A task of our own kind leaves out that all went well.
                None if is_of_our_kind => {}
                None | Some(None) => return Err(Trouble::Failed(internal!("the answer has no status"))),
                Some(Some(ended)) => ended.map_err(Trouble::Failed)?,
            }
        }
        message.ok_or_else(|| Trouble::Failed(internal!("the answer has no message")))
    }

    fn lost(&self, path: &str, e: &h2::Error) -> Error {
        self.broke_off(path, status::from_h2(e))
    }

    fn broke_off(&self, path: &str, error: Error) -> Error {
        Error { message: format!("{} on {} broke off: {}", method(path), self.peer, error.message), ..error }
    }
}

/// The head of a call. A peer of our own kind is told of ours.
fn request(call: &Outgoing, authority: &str, is_of_our_kind: bool) -> Result<Request<()>> {
    let uri = Uri::builder().scheme("http").authority(authority).path_and_query(call.path).build();
    let uri = uri.map_err(|e| tensor::invalid!("'{authority}' is not an address: {e}"))?;
    let mut request = Request::builder()
        .method(Method::POST)
        .version(Version::HTTP_2)
        .uri(uri)
        .header(header::TE, "trailers")
        .header(header::CONTENT_TYPE, CONTENT_TYPE)
        .header(header::USER_AGENT, concat!("ferroflow/", env!("CARGO_PKG_VERSION")));
    if is_of_our_kind {
        request = request.header(&OUR_KIND, env!("CARGO_PKG_VERSION"));
    }
    if let Some(limit) = call.limit {
        request = request.header(&timeout::GRPC_TIMEOUT, timeout::format(limit));
    }
    request.body(()).map_err(|e| internal!("a request could not be made: {e}"))
}

/// Looks at the head of an answer: a message may follow, or the failure is known already.
fn open(response: Response<h2::RecvStream>, peer: &Peer) -> Result<Incoming> {
    let (head, body) = response.into_parts();
    if let Some(ended) = status::read(&head.headers) {
        ended?;
    }
    if head.status != http::StatusCode::OK {
        let error = status::from_http(head.status);
        return Err(Error { message: format!("{peer} is no task: {}", error.message), ..error });
    }
    let kind = head.headers.get(header::CONTENT_TYPE).map_or(&b""[..], |value| value.as_bytes());
    if !kind.starts_with(CONTENT_TYPE.as_bytes()) {
        let kind = String::from_utf8_lossy(kind);
        return Err(internal!("{peer} is no task: its answer is of the type '{kind}', wanted {CONTENT_TYPE}"));
    }
    Incoming::new(body, &head.headers)
}

/// A connection's whole life, from the first attempt to its end.
async fn live(link: Weak<Link>, generation: u64) {
    let Some((address, mover)) = link.upgrade().map(|link| (link.peer.address.clone(), link.mover)) else { return };
    let (mut connection, way) = match connect(&address, mover).await {
        Ok(connected) => connected,
        Err(cause) => {
            if let Some(link) = link.upgrade() {
                link.set_failed(generation, cause);
            }
            return;
        }
    };
    if let Some(link) = link.upgrade() {
        link.set_ready(generation, way);
    }
    // However it ends, calls under way hear of it themselves.
    let _ = poll_fn(|cx| connection.poll(cx)).await;
    if let Some(link) = link.upgrade() {
        link.discard(generation);
    }
}

/// The whole life of a connection that does without HTTP/2, to a peer that is reached over it at this address. If there is
/// none to be had, all stays as it is.
#[cfg(target_os = "linux")]
async fn live_directly(link: Weak<Link>, former_generation: u64, address: SocketAddr, former: Way) {
    let Some(mover) = link.upgrade().map(|link| link.mover) else { return };
    let Ok((mut connection, way)) = connect_directly(address, mover).await else { return };
    let Some(generation) = link.upgrade().and_then(|link| link.replace(former_generation, way)) else { return };
    let _ = poll_fn(|cx| connection.poll(cx)).await;
    if let Some(link) = link.upgrade() {
        link.discard(generation);
    }
    // Kept until here: a peer takes whoever has called over a connection for lost when that is closed.
    drop(former);
}

/// A connection, by what is spoken on it.
pub(crate) enum Wire {
    Http(Pin<Box<h2::client::Connection<Joined<Socket>>>>),
    #[cfg(target_os = "linux")]
    Direct(Box<direct::Connection>),
}

impl Wire {
    /// Ready at its end.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        match self {
            Wire::Http(connection) => connection.as_mut().poll(cx).map_err(|e| handshake_failed(&e)),
            #[cfg(target_os = "linux")]
            Wire::Direct(connection) => connection.poll(cx),
        }
    }
}

/// What has to be polled for a connection to go on.
enum Connection {
    Network(Wire),
    #[cfg(target_os = "linux")]
    Kept(drive::Keeper),
}

impl Connection {
    /// Ready at its end.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        match self {
            // What an answer wakes goes on right here.
            Connection::Network(wire) => brief::briefly(|| wire.poll(cx)).value,
            #[cfg(target_os = "linux")]
            Connection::Kept(keeper) => keeper.poll(cx),
        }
    }
}

async fn connect(address: &str, mover: Mover) -> Result<(Connection, Way)> {
    let (door, stream) = open_socket(address).await?;
    greet(door, stream, mover).await
}

/// A connection across the network that does without HTTP/2.
#[cfg(target_os = "linux")]
async fn connect_directly(address: SocketAddr, mover: Mover) -> Result<(Connection, Way)> {
    let open = async {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(&direct::PREFACE).await?;
        Ok::<_, io::Error>(Stream::Tcp(stream))
    };
    let stream = tokio::time::timeout(STEP_TIME, open).await.map_err(|_| silent())??;
    greet(Door::Direct, stream, mover).await
}

/// Begins to speak on a socket, and waits until the peer has answered.
async fn greet(door: Door, stream: Stream, mover: Mover) -> Result<(Connection, Way)> {
    let (mut connection, way, first_frame) = begin(door, stream, mover).await?;
    let mut first_frame = pin!(first_frame);
    let spoken = poll_fn(|cx| {
        if let Poll::Ready(ended) = connection.poll(cx) {
            return Poll::Ready(Err(match ended {
                Ok(()) => unavailable!("the connection was accepted and closed again"),
                Err(e) => e,
            }));
        }
        first_frame.as_mut().poll(cx).map(|_| Ok(()))
    });
    tokio::time::timeout(STEP_TIME, spoken).await.map_err(|_| silent())??;
    Ok((connection, way))
}

/// Begins to speak on a socket. The receiver hears when the peer has answered.
async fn begin(door: Door, stream: Stream, mover: Mover) -> Result<(Connection, Way, oneshot::Receiver<()>)> {
    #[cfg(target_os = "linux")]
    let untried = Arc::new(Mutex::new(stream.far().filter(|_| door == Door::Http)));
    #[cfg(target_os = "linux")]
    if mover == Mover::Caller {
        let line = stream.into_line()?;
        let (wire, sender, first_frame) = speak(door, Stream::Line(line.clone())).await?;
        let keeper = drive::Keeper::new(wire, line)?;
        let way = Way { sender, drive: Some(keeper.drive().clone()), untried };
        return Ok((Connection::Kept(keeper), way, first_frame));
    }
    let (wire, sender, first_frame) = speak(door, stream).await?;
    #[cfg(target_os = "linux")]
    let way = Way { sender, drive: None, untried };
    #[cfg(not(target_os = "linux"))]
    let way = Way { sender };
    Ok((Connection::Network(wire), way, first_frame))
}

async fn speak(door: Door, stream: Stream) -> Result<(Wire, Sender, oneshot::Receiver<()>)> {
    match door {
        Door::Http => {
            let (socket, first_frame) = Socket::client(stream)?;
            let (sender, wire) = shake_hands(socket).await?;
            Ok((wire, Sender::Http(sender), first_frame))
        }
        #[cfg(target_os = "linux")]
        Door::Direct => {
            stream.configure()?;
            let (connection, calls, hello) = direct::open(stream);
            Ok((Wire::Direct(Box::new(connection)), Sender::Direct(calls), hello))
        }
    }
}

async fn shake_hands(socket: Socket) -> Result<(SendRequest<Bytes>, Wire)> {
    let handshake = h2::client::Builder::new()
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_frame_size(FRAME_MAX)
        .max_header_list_size(HEADERS_MAX)
        .enable_push(false)
        .handshake::<_, Bytes>(Joined::new(socket, Hold::default()));
    let step = tokio::time::timeout(STEP_TIME, handshake).await.map_err(|_| silent())?;
    let (sender, connection) = step.map_err(|e| handshake_failed(&e))?;
    Ok((sender, Wire::Http(Box::pin(connection))))
}

fn silent() -> Error {
    unavailable!("the connection was accepted, but nothing came for {}", Seconds(STEP_TIME))
}

fn handshake_failed(e: &h2::Error) -> Error {
    match e.get_io() {
        // What the socket says about other protocols: waiting will not change it.
        Some(io) if io.kind() == io::ErrorKind::InvalidData => failed_precondition!("{io}"),
        Some(io) => unavailable!("the connection was accepted and lost again: {io}"),
        None => unavailable!("the connection was refused: {e}"),
    }
}

async fn open_socket(address: &str) -> Result<(Door, Stream)> {
    let mut last = None;
    for resolved in resolve(address).await? {
        #[cfg(target_os = "linux")]
        if let Some(stream) = near::connect(resolved) {
            return Ok((Door::Direct, Stream::Near(stream)));
        }
        match tokio::time::timeout(STEP_TIME, TcpStream::connect(resolved)).await {
            Ok(Ok(stream)) => return Ok((Door::Http, Stream::Tcp(stream))),
            Ok(Err(e)) if e.kind() == io::ErrorKind::ConnectionRefused => {
                last = Some(unavailable!("connection refused: nothing listens there"));
            }
            Ok(Err(e)) => last = Some(unavailable!("{e}")),
            Err(_) => last = Some(unavailable!("no answer to the request for a connection for {}", Seconds(STEP_TIME))),
        }
    }
    Err(last.unwrap_or_else(|| unavailable!("the host name has no address")))
}

async fn resolve(address: &str) -> Result<Vec<SocketAddr>> {
    let unknown = |e: &dyn fmt::Display| unavailable!("the host name cannot be resolved: {e}");
    match tokio::time::timeout(STEP_TIME, tokio::net::lookup_host(address)).await {
        Ok(found) => Ok(found.map_err(|e| unknown(&e))?.collect()),
        Err(_) => Err(unknown(&format!("no answer for {}", Seconds(STEP_TIME)))),
    }
}

fn method(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// A time as people say it.
struct Seconds(Duration);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1} s", self.0.as_secs_f64())
    }
}

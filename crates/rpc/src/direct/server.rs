//! The answering end of a direct connection.
//!
//! All that came at a time is begun before anything is written, so that answers that are ready leave together.

use super::client::failed;
use super::frame::{Frame, Kind, Leaving, Reader, Writer};
use super::remember;
use crate::budget::Budget;
use crate::grpc::message::{Pace, whole};
use crate::pieces::Pieces;
use crate::server::{
    Begun, Busy, CALLS_MAX, Call, Caller, Gone, Kept, Phase, SHORT_MAX, Service, Services, find, give_back, unless_gone,
};
use crate::socket::{Patience, Stream};
use distributed::brief;
use framework::FastMap;
use parking_lot::Mutex;
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};
use tensor::{Error, deadline_exceeded, exhausted};
use tokio::sync::watch;

/// How often calls that are slow to come are looked for.
const LOOK_PAUSE: Duration = Duration::from_secs(1);

/// One connection, from its first byte to its last.
pub(crate) async fn converse(
    stream: Stream,
    services: Services,
    memory: Arc<Budget>,
    mut phase: watch::Receiver<Phase>,
    caller: Caller,
) {
    if stream.configure().is_err() {
        return;
    }
    let mut conversation = Conversation {
        stream,
        reader: Reader::default(),
        writer: Writer::default(),
        answers: Arc::default(),
        under_way: FastMap::default(),
        unfinished: FastMap::default(),
        patience: Patience::default(),
        looked: Instant::now(),
        services,
        memory,
        phase: phase.clone(),
        caller,
        is_leaving: false,
    };
    conversation.writer.push(Leaving::bare(Kind::Hello, 0));
    loop {
        match *phase.borrow_and_update() {
            Phase::Open => {}
            Phase::Draining => conversation.leave(),
            Phase::Closed => return,
        }
        let mut changed = pin!(phase.changed());
        let is_over = poll_fn(|cx| match changed.as_mut().poll(cx) {
            Poll::Ready(changed) => Poll::Ready(changed.is_err()), // the server is gone
            // Whatever is wrong with a connection, nothing more can be done on it.
            Poll::Pending => conversation.poll(cx).map(|_| true),
        });
        if is_over.await {
            return;
        }
    }
}

struct Conversation {
    stream: Stream,
    reader: Reader,
    writer: Writer,
    answers: Arc<Answers>,
    under_way: FastMap<u64, Arc<Reset>>,
    /// Calls of which not all has come.
    unfinished: FastMap<u64, Unfinished>,
    patience: Patience,
    /// When those were last looked through for slow ones.
    looked: Instant,
    services: Services,
    memory: Arc<Budget>,
    phase: watch::Receiver<Phase>,
    caller: Caller,
    is_leaving: bool,
}

/// A call as far as it has come.
struct Unfinished {
    arrived: Arrived,
    pace: Pace,
    /// It will not be answered: the rest is let pass.
    is_refused: bool,
}

/// A call that has come.
struct Arrived {
    call: u64,
    path: bytes::Bytes,
    limit: Option<Duration>,
    message: Pieces,
}

impl Conversation {
    fn leave(&mut self) {
        if !std::mem::replace(&mut self.is_leaving, true) {
            self.writer.push(Leaving::bare(Kind::Leaving, 0));
        }
    }

    /// Moves what can be moved; ready at the connection's end.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.answers.attend();
        let mut busy = Busy::default();
        loop {
            while let Some(frame) = self.reader.next(|_| false)? {
                if busy.is_full() {
                    self.write(cx)?;
                }
                busy.begin();
                self.patience.renew();
                self.take(frame, &busy, cx)?;
            }
            if self.writer.num_messages() > CALLS_MAX as usize {
                break; // of who asks and does not listen no more is heard until he does
            }
            match self.reader.poll_fill(&mut self.stream, cx)? {
                Poll::Ready(true) => {}
                Poll::Ready(false) => return Poll::Ready(Ok(())),
                Poll::Pending => break,
            }
        }
        self.refuse_slow_ones();
        self.write(cx)?;
        while !self.answers.leave_to(cx.waker()) {
            self.write(cx)?;
        }
        if self.is_leaving && self.under_way.is_empty() && self.writer.is_empty() {
            return Poll::Ready(Ok(()));
        }
        if self.reader.is_unfinished() || !self.unfinished.is_empty() {
            ready!(self.patience.poll_elapsed(cx));
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        Poll::Pending
    }

    fn write(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        for message in self.answers.take() {
            if message.kind != Kind::Kept {
                self.under_way.remove(&message.call);
            }
            self.writer.push(message);
        }
        self.writer.write(&mut self.stream, cx)
    }

    fn take(&mut self, frame: Frame, busy: &Busy, cx: &mut Context<'_>) -> io::Result<()> {
        match frame.kind {
            Kind::Call if self.under_way.contains_key(&frame.call) => return Err(io::ErrorKind::InvalidData.into()),
            Kind::Call if self.has_too_many(&frame) => {
                let error = exhausted!("{CALLS_MAX} calls are under way on this connection, and no more are allowed");
                self.answers.fail(frame.call, &error);
            }
            Kind::Call if frame.is_last && !self.unfinished.contains_key(&frame.call) => {
                let Frame { call, limit, name: path, part, .. } = frame;
                self.begin(Arrived { call, path, limit, message: part.into() }, busy, cx);
            }
            Kind::Call => {
                if let Some(arrived) = self.gather(frame) {
                    self.begin(arrived, busy, cx);
                }
            }
            Kind::Reset => {
                self.unfinished.remove(&frame.call);
                if let Some(reset) = self.under_way.remove(&frame.call) {
                    reset.set();
                }
            }
            _ => return Err(io::ErrorKind::InvalidData.into()),
        }
        Ok(())
    }

    /// Whether one more call would be too many. A call that is refused and goes on is refused for each of its parts.
    fn has_too_many(&self, frame: &Frame) -> bool {
        self.under_way.len() + self.unfinished.len() >= CALLS_MAX as usize && !self.unfinished.contains_key(&frame.call)
    }

    /// Adds to a call that comes in parts; the call when all of it is there.
    fn gather(&mut self, frame: Frame) -> Option<Arrived> {
        let Frame { call, is_last, limit, name: path, part, .. } = frame;
        let unfinished = self.unfinished.entry(call).or_insert_with(|| {
            let arrived = Arrived { call, path, limit, message: Pieces::default() };
            Unfinished { arrived, pace: Pace::new(self.memory.hold()), is_refused: false }
        });
        if !unfinished.is_refused {
            match unfinished.pace.take(part.len()) {
                Ok(()) => unfinished.arrived.message.gather(part),
                Err(error) => unfinished.refuse(&error, &self.memory, &self.answers),
            }
        }
        if !is_last {
            return None;
        }
        let unfinished = self.unfinished.remove(&call)?;
        if unfinished.is_refused {
            give_back(&self.memory);
            return None;
        }
        Some(unfinished.arrived)
    }

    /// Who sends so slowly that his calls never end is not waited for.
    fn refuse_slow_ones(&mut self) {
        if self.unfinished.is_empty() || self.looked.elapsed() < LOOK_PAUSE {
            return;
        }
        self.looked = Instant::now();
        for unfinished in self.unfinished.values_mut().filter(|unfinished| !unfinished.is_refused) {
            if let Err(error) = unfinished.pace.check() {
                unfinished.refuse(&error, &self.memory, &self.answers);
            }
        }
    }

    fn begin(&mut self, arrived: Arrived, busy: &Busy, cx: &mut Context<'_>) {
        let call = arrived.call;
        if self.is_leaving {
            return self.answers.put(Leaving::bare(Kind::Refused, call));
        }
        let path = std::str::from_utf8(&arrived.path).unwrap_or_default();
        let (service, method) = match find(path, &self.services) {
            Ok((service, method)) => (service.clone(), method.to_string()),
            Err(error) => return self.answers.fail(call, &error),
        };
        let takes_long = service.takes_long(&method);
        let reset = Arc::new(Reset::default());
        self.under_way.insert(call, reset.clone());
        let (phase, memory, caller) = (self.phase.clone(), self.memory.clone(), self.caller.clone());
        let place = Place { reset, answers: self.answers.clone(), _until_answered: phase };
        Begun(Box::pin(answer(arrived, service, method, memory, caller, place))).go_on(takes_long, busy, cx);
    }
}

impl Unfinished {
    /// Answers it with this, and lets go of what has come.
    fn refuse(&mut self, error: &Error, memory: &Arc<Budget>, answers: &Answers) {
        self.is_refused = true;
        self.arrived.message = Pieces::default();
        self.pace = Pace::new(memory.hold());
        answers.fail(self.arrived.call, error);
    }
}

impl Drop for Conversation {
    fn drop(&mut self) {
        self.under_way.values().for_each(|reset| reset.set());
    }
}

/// A call's place in its conversation.
struct Place {
    reset: Arc<Reset>,
    answers: Arc<Answers>,
    /// A server that drains waits until the last of these is gone.
    _until_answered: watch::Receiver<Phase>,
}

async fn answer(
    arrived: Arrived,
    service: Arc<dyn Service>,
    method: String,
    memory: Arc<Budget>,
    caller: Caller,
    place: Place,
) {
    let Place { reset, answers, .. } = &place;
    let Arrived { call, limit, message, .. } = arrived;
    let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
    let kept = Kept::default();
    let work = async {
        let message = whole(message)?;
        if message.len() > SHORT_MAX {
            brief::enough_time().await;
        }
        let Caller { connection, process } = caller;
        service.call(Call { method: method.clone(), message, deadline, connection, process, kept: kept.clone() }).await
    };
    let outcome = unless_gone(pin!(work), |cx| reset.poll(cx), limit).await;
    match outcome {
        Ok(Ok(body)) => {
            return match kept.take() {
                None => answers.put(Leaving::with(Kind::Answer, call, body)),
                Some(kept) => {
                    answers.put(Leaving::with(Kind::Kept, call, body));
                    poll_fn(|cx| reset.poll(cx)).await;
                    drop(kept);
                }
            };
        }
        Ok(Err(error)) => answers.fail(call, &error),
        Err(Gone::Late(limit)) => {
            answers.fail(call, &deadline_exceeded!("{method} has not ended within {:.3} s", limit.as_secs_f64()));
        }
        Err(Gone::Caller) => {}
    }
    give_back(&memory);
}

/// What is to be written, from all calls of a connection.
#[derive(Default)]
struct Answers(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    messages: Vec<Leaving>,
    /// Whom to wake; nobody while he is here and will look by himself.
    connection: Option<Waker>,
}

impl Answers {
    fn put(&self, message: Leaving) {
        let mut waiting = self.0.lock();
        waiting.messages.push(message);
        let connection = waiting.connection.take();
        drop(waiting);
        connection.inspect(Waker::wake_by_ref);
    }

    fn fail(&self, call: u64, error: &Error) {
        self.put(Leaving::with(Kind::Failed, call, failed(error)));
    }

    /// The connection is here, and will look for answers before it leaves.
    fn attend(&self) {
        self.0.lock().connection = None;
    }

    /// The connection leaves, unless there is something to be written.
    fn leave_to(&self, connection: &Waker) -> bool {
        let mut waiting = self.0.lock();
        let is_empty = waiting.messages.is_empty();
        if is_empty {
            waiting.connection = Some(connection.clone());
        }
        is_empty
    }

    fn take(&self) -> Vec<Leaving> {
        std::mem::take(&mut self.0.lock().messages)
    }
}

/// Whether the caller has reset a call, or is gone.
#[derive(Default)]
struct Reset(Mutex<ResetState>);

#[derive(Default)]
struct ResetState {
    is_set: bool,
    call: Option<Waker>,
}

impl Reset {
    fn set(&self) {
        let mut state = self.0.lock();
        state.is_set = true;
        let call = state.call.take();
        drop(state);
        call.inspect(Waker::wake_by_ref);
    }

    fn poll(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.0.lock();
        if state.is_set {
            return Poll::Ready(());
        }
        remember(&mut state.call, cx.waker());
        Poll::Pending
    }
}

//! The calling end of a direct connection.

use super::frame::{Frame, Kind, Leaving, Reader, Writer};
use super::remember;
use crate::errands;
use crate::pieces::Pieces;
use crate::socket::Stream;
use bytes::{Buf, Bytes};
use framework::FastMap;
use parking_lot::Mutex;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tensor::{Code, Error, Result, unavailable};
use tokio::sync::oneshot;

/// Begins to call over a connection. The receiver hears when the server has answered.
pub(crate) fn open(stream: Stream) -> (Connection, Arc<Calls>, oneshot::Receiver<()>) {
    let calls = Arc::new(Calls::default());
    let (hello, heard) = oneshot::channel();
    let connection = Connection {
        stream,
        reader: Reader::default(),
        writer: Writer::default(),
        calls: calls.clone(),
        hello: Some(hello),
    };
    (connection, calls, heard)
}

/// The connection itself, which has to be polled for anything to come or go.
pub(crate) struct Connection {
    stream: Stream,
    reader: Reader,
    writer: Writer,
    calls: Arc<Calls>,
    hello: Option<oneshot::Sender<()>>,
}

impl Connection {
    /// Ready at its end.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let end = match self.poll_move(cx) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Ok(())) => None,
            Poll::Ready(Err(e)) => Some(unavailable!("{e}")),
        };
        let why = end.clone().unwrap_or_else(|| unavailable!("the connection was closed by the peer"));
        self.calls.end(&why);
        Poll::Ready(end.map_or(Ok(()), Err))
    }

    fn poll_move(&mut self, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        self.calls.watch(cx.waker());
        self.write(cx)?;
        loop {
            while let Some(frame) = self.reader.next()? {
                match (frame.kind, self.hello.take()) {
                    (Kind::Hello, Some(hello)) => drop(hello.send(())),
                    (_, hello) => {
                        self.hello = hello;
                        self.calls.take(frame);
                    }
                }
            }
            match self.reader.poll_fill(&mut self.stream, cx)? {
                Poll::Ready(true) => {}
                Poll::Ready(false) => return Poll::Ready(Ok(())),
                Poll::Pending => break,
            }
        }
        self.write(cx)?;
        Poll::Pending
    }

    fn write(&mut self, cx: &mut Context<'_>) -> std::io::Result<()> {
        self.calls.hand_over(&mut self.writer);
        self.writer.write(&mut self.stream, cx)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.calls.end(&unavailable!("the connection was given up"));
    }
}

/// The calls on one connection.
#[derive(Default)]
pub(crate) struct Calls(Mutex<Table>);

#[derive(Default)]
struct Table {
    last: u64,
    waiting: FastMap<u64, Waiting>,
    /// To be written.
    leaving: Vec<Leaving>,
    connection: Option<Waker>,
    /// The server takes no further calls.
    is_leaving: bool,
    end: Option<Error>,
}

/// A call without an answer, or with one that was not taken yet.
#[derive(Default)]
struct Waiting {
    message: Pieces,
    outcome: Option<Outcome>,
    caller: Option<Waker>,
}

#[derive(Clone, Copy, PartialEq)]
enum Outcome {
    Answered,
    Kept,
    Failed,
    Refused,
}

/// Why there is no answer.
pub(crate) enum Unanswered {
    /// The peer has not looked at the call.
    NotSent(Error),
    /// The connection has been lost since.
    Lost(Error),
    /// The peer says so.
    Failed(Error),
}

impl Calls {
    /// Makes a call. Dropping the exchange resets it.
    pub(crate) fn start(
        self: &Arc<Calls>,
        path: &'static str,
        limit: Option<Duration>,
        body: &[Bytes],
    ) -> Result<Exchange, Unanswered> {
        let mut table = self.0.lock();
        if let Some(why) = &table.end {
            return Err(Unanswered::NotSent(why.clone()));
        }
        if table.is_leaving {
            return Err(Unanswered::NotSent(unavailable!("the server takes no further calls")));
        }
        table.last += 1;
        let call = table.last;
        table.waiting.insert(call, Waiting::default());
        let body = body.iter().cloned().collect();
        let wake = table.put(Leaving { kind: Kind::Call, call, limit, name: path, body });
        drop(table);
        wake.iter().for_each(errands::wake);
        Ok(Exchange { calls: self.clone(), call, is_kept: false })
    }

    fn watch(&self, connection: &Waker) {
        remember(&mut self.0.lock().connection, connection);
    }

    fn hand_over(&self, writer: &mut Writer) {
        self.0.lock().leaving.drain(..).for_each(|message| writer.push(message));
    }

    fn take(&self, frame: Frame) {
        let mut table = self.0.lock();
        let outcome = match frame.kind {
            Kind::Answer => Outcome::Answered,
            Kind::Kept => Outcome::Kept,
            Kind::Failed => Outcome::Failed,
            Kind::Refused => Outcome::Refused,
            Kind::Leaving => {
                table.is_leaving = true;
                return;
            }
            Kind::Hello | Kind::Call | Kind::Reset => return,
        };
        // Not there if it has been reset meanwhile.
        let Some(waiting) = table.waiting.get_mut(&frame.call) else { return };
        waiting.message.gather(frame.part);
        if frame.is_last {
            waiting.outcome = Some(outcome);
            let caller = waiting.caller.take();
            drop(table);
            caller.inspect(Waker::wake_by_ref);
        }
    }

    /// Nothing comes or goes any more.
    fn end(&self, why: &Error) {
        let mut table = self.0.lock();
        if table.end.is_some() {
            return;
        }
        table.end = Some(why.clone());
        table.leaving.clear();
        let callers: Vec<Waker> = table.waiting.values_mut().filter_map(|waiting| waiting.caller.take()).collect();
        drop(table);
        callers.iter().for_each(Waker::wake_by_ref);
    }
}

impl Table {
    /// Puts a message on its way; whom to wake.
    fn put(&mut self, message: Leaving) -> Option<Waker> {
        self.leaving.push(message);
        // It looks for all of them when it is polled.
        if self.leaving.len() == 1 { self.connection.clone() } else { None }
    }
}

/// A call under way.
pub(crate) struct Exchange {
    calls: Arc<Calls>,
    call: u64,
    is_kept: bool,
}

impl Exchange {
    /// The answer, its prefix included.
    pub(crate) async fn answer(&mut self) -> Result<Pieces, Unanswered> {
        poll_fn(|cx| {
            let mut table = self.calls.0.lock();
            let table = &mut *table;
            let Some(waiting) = table.waiting.get_mut(&self.call) else {
                return Poll::Ready(Err(Unanswered::Lost(unavailable!("the answer has been taken already"))));
            };
            let Some(outcome) = waiting.outcome else {
                if let Some(why) = &table.end {
                    return Poll::Ready(Err(Unanswered::Lost(why.clone())));
                }
                remember(&mut waiting.caller, cx.waker());
                return Poll::Pending;
            };
            let message = std::mem::take(&mut waiting.message);
            self.is_kept = outcome == Outcome::Kept;
            table.waiting.remove(&self.call);
            Poll::Ready(match outcome {
                Outcome::Answered | Outcome::Kept => Ok(message),
                Outcome::Failed => Err(Unanswered::Failed(failure(message))),
                Outcome::Refused => Err(Unanswered::NotSent(unavailable!("the server takes no further calls"))),
            })
        })
        .await
    }

    /// Whether the answer refers to something that the peer keeps until this is dropped.
    pub(crate) fn is_kept(&self) -> bool {
        self.is_kept
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        let mut table = self.calls.0.lock();
        let is_unanswered = table.waiting.remove(&self.call).is_some();
        if table.end.is_some() || !(is_unanswered || self.is_kept) {
            return;
        }
        let wake = table.put(Leaving::bare(Kind::Reset, self.call));
        drop(table);
        wake.iter().for_each(errands::wake);
    }
}

/// The status of a failed call as a message.
pub(super) fn failed(error: &Error) -> Vec<Bytes> {
    let mut body = Vec::with_capacity(2 + error.message.len());
    body.extend([error.code as u8, error.derived.into()]);
    body.extend_from_slice(error.message.as_bytes());
    vec![body.into()]
}

/// Reads what [`failed`] wrote.
fn failure(mut message: Pieces) -> Error {
    if message.len() < 2 {
        return Error::new(Code::Internal, "the call failed, and its status is not whole");
    }
    let (code, derived) = (message.get_u8(), message.get_u8() != 0);
    let text = message.contiguous();
    let code = Code::from_i32(code.into()).unwrap_or(Code::Unknown);
    Error { code, message: String::from_utf8_lossy(&text).into_owned(), derived }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tensor::cancelled;

    #[test]
    fn a_failure_arrives_as_it_was() {
        for error in [cancelled!("follows from another").into_derived(), tensor::invalid!("größer als 1")] {
            let mut message = Pieces::default();
            failed(&error).into_iter().for_each(|part| message.push(part));
            assert_eq!(failure(message), error);
        }
        assert_eq!(failure(Pieces::default()).code, Code::Internal);
    }
}

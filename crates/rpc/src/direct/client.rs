//! The calling end of a direct connection.

use super::frame::{Frame, Kind, Leaving, Reader, Writer, invalid};
use super::remember;
use crate::errands;
use crate::fields::{self, Start};
use crate::grpc::message::prefix;
use crate::pieces::{MESSAGE_MAX, PREFIX, Pieces};
use crate::socket::Stream;
use bytes::{Buf, Bytes};
use framework::FastMap;
use parking_lot::Mutex;
use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;
use tensor::{ArrivingTensor, Code, Error, Result, unavailable};
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

    fn poll_move(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.calls.watch(cx.waker());
        self.write(cx)?;
        loop {
            while let Some(frame) = self.reader.next(|call| self.calls.wants_tensor(call))? {
                match (frame.kind, self.hello.take()) {
                    (Kind::Hello, Some(hello)) => drop(hello.send(())),
                    (_, hello) => {
                        self.hello = hello;
                        self.calls.take(frame)?;
                    }
                }
            }
            match self.poll_read(cx)? {
                Poll::Ready(true) => {}
                Poll::Ready(false) => return Poll::Ready(Ok(())),
                Poll::Pending => break,
            }
        }
        self.write(cx)?;
        Poll::Pending
    }

    /// Reads what there is, and a tensor's bytes right into the tensor; false at the end.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        let place = self.reader.rest_of().and_then(|call| Some((call, self.calls.borrow_tensor(call)?)));
        let Some((call, mut tensor)) = place else { return self.reader.poll_fill(&mut self.stream, cx) };
        let read = self.reader.poll_fill_place(tensor.room(), &mut self.stream, cx);
        if let Poll::Ready(Ok(Some((count, _)))) = read {
            tensor.advance(count);
        }
        self.calls.give_back_tensor(call, tensor);
        match ready!(read)? {
            Some((_, frame)) => Poll::Ready(self.calls.take(frame).map(|()| true)),
            None => Poll::Ready(Ok(false)),
        }
    }

    fn write(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
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
    /// Whether the message may hold a tensor, to be read right into its own memory.
    wants_tensor: bool,
    /// That tensor, once it is known, and not while it is read. No message is gathered then.
    tensor: Option<ArrivingTensor>,
    outcome: Option<Outcome>,
    caller: Option<Waker>,
}

impl Waiting {
    /// Takes the next bytes of the answer.
    fn take(&mut self, part: Bytes, is_last: bool) -> io::Result<()> {
        if let Some(tensor) = &mut self.tensor {
            return tensor.push(&part).map_err(|_| invalid("a message is longer than it says"));
        }
        self.message.gather(part);
        if self.message.len() > MESSAGE_MAX + PREFIX {
            return Err(invalid("a message is longer than any may be"));
        }
        if self.wants_tensor && !is_last {
            self.look_for_tensor();
        }
        Ok(())
    }

    /// Makes room for the tensor if that is what the message holds. What does not parse is told when all of it is there.
    fn look_for_tensor(&mut self) {
        let mut rest = self.message.clone();
        let Some(Ok((false, len))) = (rest.len() >= PREFIX).then(|| prefix(&mut rest)) else { return };
        match fields::start_of_recv_tensor(&mut rest, len) {
            Start::Incomplete => {}
            Start::Other => self.wants_tensor = false,
            Start::Content(mut tensor) if rest.len() <= tensor.missing() => {
                rest.into_iter().try_for_each(|part| tensor.push(&part)).expect("there is room for it");
                self.tensor = Some(tensor);
                self.message = Pieces::default();
            }
            Start::Content(_) => self.wants_tensor = false,
        }
    }
}

/// What a call was answered with.
pub(crate) enum Answer {
    /// A message, its prefix included.
    Message(Pieces),
    /// A message that holds a tensor and nothing else.
    Tensor(ArrivingTensor),
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
        wants_tensor: bool,
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
        table.waiting.insert(call, Waiting { wants_tensor, ..Waiting::default() });
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

    /// Whether a call's answer may hold a tensor, to be read into its own memory.
    fn wants_tensor(&self, call: u64) -> bool {
        self.0.lock().waiting.get(&call).is_some_and(|waiting| waiting.wants_tensor)
    }

    /// The tensor that a call's answer holds, to be [given back](Calls::give_back_tensor) when something was read into it.
    fn borrow_tensor(&self, call: u64) -> Option<ArrivingTensor> {
        self.0.lock().waiting.get_mut(&call)?.tensor.take()
    }

    fn give_back_tensor(&self, call: u64, tensor: ArrivingTensor) {
        // Not there if it has been reset meanwhile.
        if let Some(waiting) = self.0.lock().waiting.get_mut(&call) {
            waiting.tensor = Some(tensor);
        }
    }

    fn take(&self, frame: Frame) -> io::Result<()> {
        let mut table = self.0.lock();
        let outcome = match frame.kind {
            Kind::Answer => Outcome::Answered,
            Kind::Kept => Outcome::Kept,
            Kind::Failed => Outcome::Failed,
            Kind::Refused => Outcome::Refused,
            Kind::Leaving => {
                table.is_leaving = true;
                return Ok(());
            }
            Kind::Hello | Kind::Call | Kind::Reset => return Ok(()),
        };
        // Not there if it has been reset meanwhile.
        let Some(waiting) = table.waiting.get_mut(&frame.call) else { return Ok(()) };
        waiting.take(frame.part, frame.is_last)?;
        if frame.is_last {
            waiting.outcome = Some(outcome);
            let caller = waiting.caller.take();
            drop(table);
            caller.inspect(Waker::wake_by_ref);
        }
        Ok(())
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
    /// The answer, when all of it is there.
    pub(crate) async fn answer(&mut self) -> Result<Answer, Unanswered> {
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
            let answer = match waiting.tensor.take() {
                Some(tensor) => Answer::Tensor(tensor),
                None => Answer::Message(std::mem::take(&mut waiting.message)),
            };
            self.is_kept = outcome == Outcome::Kept;
            table.waiting.remove(&self.call);
            Poll::Ready(match (outcome, answer) {
                (Outcome::Answered | Outcome::Kept, answer) => Ok(answer),
                (Outcome::Failed, Answer::Message(message)) => Err(Unanswered::Failed(failure(message))),
                (Outcome::Failed, Answer::Tensor(_)) => Err(Unanswered::Failed(failure(Pieces::default()))),
                (Outcome::Refused, _) => Err(Unanswered::NotSent(unavailable!("the server takes no further calls"))),
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
    use crate::direct::frame::pair;
    use crate::pieces;
    use tensor::{Tensor, cancelled};

    /// What a call for a tensor is answered with, if this is what the server says.
    fn answer(said: Vec<Leaving>) -> Result<Answer, Unanswered> {
        crate::runtime::network().block_on(async {
            let (mut server, stream) = pair();
            let (mut connection, calls, _hello) = open(stream);
            tokio::spawn(async move { poll_fn(|cx| connection.poll(cx)).await });
            let mut exchange = calls.start("/a/B", None, &[], true)?;
            let mut writer = Writer::default();
            said.into_iter().for_each(|message| writer.push(message));
            let writing = tokio::spawn(async move {
                poll_fn(|cx| writer.poll_write(&mut server, cx)).await.unwrap();
                server // stays open
            });
            let answer = exchange.answer().await;
            drop(writing.await);
            answer
        })
    }

    fn message(tensor: &Tensor) -> Vec<Bytes> {
        let mut writer = pieces::Writer::default();
        writer.put_tensor_field(1, "t", tensor);
        writer.finish("a test").unwrap()
    }

    #[test]
    fn a_tensor_is_read_into_its_own_memory() {
        let values: Vec<i32> = (0..300_000).collect();
        let tensor = Tensor::from_vec([values.len()], values).unwrap();
        let said = Leaving::with(Kind::Answer, 1, message(&tensor));
        let Ok(Answer::Tensor(found)) = answer(vec![Leaving::bare(Kind::Hello, 0), said]) else { panic!("it is one") };
        assert!(found.finish().unwrap() == tensor);
        let small = Leaving::with(Kind::Answer, 1, message(&Tensor::from([1i32, 2])));
        let Ok(Answer::Message(found)) = answer(vec![small]) else { panic!("it came at once") };
        assert!(found.contiguous() == message(&Tensor::from([1i32, 2])).concat());
    }

    #[test]
    fn a_tensor_that_is_not_what_it_says_is_an_error() {
        let tensor = Tensor::from_vec([300_000], vec![7i32; 300_000]).unwrap();
        let mut longer = message(&tensor);
        longer.push(vec![0; 100_000].into());
        let lost = answer(vec![Leaving::with(Kind::Answer, 1, longer)]);
        assert!(matches!(lost, Err(Unanswered::Lost(e)) if e.message.contains("longer than it says")));
        let shorter = message(&tensor).concat()[..1_000_000].to_vec();
        let Ok(Answer::Tensor(found)) = answer(vec![Leaving::with(Kind::Answer, 1, vec![shorter.into()])]) else {
            panic!("so it began")
        };
        assert!(found.finish().is_err());
    }

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

//! Large values between tasks on one machine: the taker copies them out of the giver's memory, and no byte of them passes
//! through a socket.
//!
//! Only tasks of our own kind know the calls, and a taker first tries whether it may read the giver's memory: the system
//! allows that between processes of one user on one machine, if at all. Where it does not, and to TensorFlow's tasks, values
//! are sent as ever.
//!
//! Values are lent in both directions. The answer to a call (`/ferroflow.Tensors/Lend`, or one that brings values) may say
//! where one stands; it stays there until the caller resets the call, or is gone. And a call may do the same for what it
//! would have carried, for as long as it lasts. Who asks must be allowed to ask for the value itself: where it stands is told
//! in the answer alone. Who is told where to read takes the process from the connection, if it is the one that listens: a
//! message could name another's.

use crate::channel::{Channel, Lane, Outgoing};
use crate::fields;
use crate::grpc::message::{Broken, Incoming};
use crate::lent::{self, Loan, Seal};
use crate::pieces::{Pieces, Writer};
use crate::server::Kept;
use bytes::Bytes;
use distributed::interface::WorkerInterface;
use framework::{Delivery, RendezvousKey};
use proto::LentTensor;
use std::io;
use std::sync::atomic::{AtomicU8, Ordering};
use tensor::{Code, Error, Result, Tensor, unavailable};

const LEND: &str = "/ferroflow.Tensors/Lend";
const PROBE: &str = "/ferroflow.Tensors/Probe";
const PROBE_ME: &str = "/ferroflow.Tensors/ProbeMe";
const TENSOR: u32 = 1;

/// Values that come with a call or its answer are lent up to this much: what follows must wait until all are read.
pub(crate) const TOGETHER_MAX: usize = 4 << 20;

/// Asks for a value of a step.
#[derive(Clone, PartialEq, prost::Message)]
struct LendRequest {
    #[prost(int64, tag = "1")]
    step_id: i64,
    #[prost(string, tag = "2")]
    key: String,
}

/// Where the value stands; or that it is none; or the value itself, in field 1.
#[derive(Clone, PartialEq, prost::Message)]
struct LendResponse {
    #[prost(bool, tag = "2")]
    is_dead: bool,
    #[prost(message, optional, tag = "3")]
    lent: Option<LentTensor>,
}

/// Whether the caller's memory can be read.
#[derive(Clone, PartialEq, prost::Message)]
struct ProbeMeResponse {
    #[prost(bool, tag = "1")]
    can_read: bool,
}

/// Answers a call for a value, which is kept as long as the caller wants.
pub(crate) async fn lend(worker: &dyn WorkerInterface, message: Pieces, kept: &Kept) -> Result<Vec<Bytes>> {
    let request: LendRequest = message.decode("a Lend request")?;
    let key = RendezvousKey::from_text(&request.key);
    let mut writer = Writer::default();
    match worker.recv_tensor(request.step_id, key).await? {
        Delivery::Dead => writer.put_message(&LendResponse { is_dead: true, lent: None }),
        Delivery::Tensor(tensor) => match Loan::of(&tensor) {
            Some((loan, lent)) => {
                kept.keep(loan);
                writer.put_message(&LendResponse { is_dead: false, lent: Some(lent) });
            }
            None => writer.put_tensor_field(TENSOR, &request.key, &tensor),
        },
    }
    writer.finish("Lend")
}

/// Answers a call that wants to know whether our memory can be read.
pub(crate) fn probe(kept: &Kept) -> Result<Vec<Bytes>> {
    let seal = Seal::new();
    let body = Writer::default().message(&seal.describe()).finish("Probe");
    kept.keep(seal);
    body
}

/// Answers a call that wants to know whether the caller's memory can be read.
pub(crate) fn probe_me(message: Pieces, process: Option<u32>) -> Result<Vec<Bytes>> {
    let lent: LentTensor = message.decode("a ProbeMe request")?;
    let can_read = process.is_some_and(|process| lent::can_read(&LentTensor { process, ..lent }));
    Writer::default().message(&ProbeMeResponse { can_read }).finish("ProbeMe")
}

/// Reads values that came with a call from this process.
pub(crate) async fn read_all(lent: Vec<LentTensor>, process: Option<u32>) -> Result<Vec<(String, Tensor)>> {
    let mut values = Vec::with_capacity(lent.len());
    for mut lent in lent {
        let name = std::mem::take(&mut lent.name);
        let tensor = read_one(lent, process, &name).await?;
        values.push((name, tensor));
    }
    Ok(values)
}

/// Reads a value that came with a call from this process.
pub(crate) async fn read_one(lent: LentTensor, process: Option<u32>, name: &str) -> Result<Tensor> {
    let failed = |why: &dyn std::fmt::Display| unavailable!("'{name}' could not be read where it is lent: {why}");
    let process = process.ok_or_else(|| failed(&"the caller is not known to be on this machine"))?;
    lent::read(&LentTensor { process, ..lent }).await?.map_err(|e| failed(&e))
}

/// Whether something is possible, once it has been tried.
#[derive(Default)]
struct Tried(AtomicU8);

const UNKNOWN: u8 = 0;
const YES: u8 = 1;
const NO: u8 = 2;

impl Tried {
    fn is_known(&self) -> bool {
        self.0.load(Ordering::Relaxed) != UNKNOWN
    }

    fn is_possible(&self) -> bool {
        self.0.load(Ordering::Relaxed) == YES
    }

    /// Notes how it went. A peer that did not answer is asked again the next time.
    fn note(&self, result: Result<bool>) {
        let state = match result {
            Ok(true) => YES,
            Ok(false) => NO,
            Err(e) if e.code == Code::Unimplemented => NO,
            Err(_) => return,
        };
        self.0.store(state, Ordering::Relaxed);
    }

    fn forget(&self) {
        self.0.store(UNKNOWN, Ordering::Relaxed);
    }
}

/// Takes large values from one peer.
pub(crate) struct Borrower {
    channel: Channel,
    /// Whether the peer's memory can be read.
    can_read: Tried,
}

impl Borrower {
    /// Nothing is known of the peer yet.
    pub(crate) fn new(channel: Channel) -> Borrower {
        Borrower { channel, can_read: Tried::default() }
    }

    /// Whether values can be taken from the peer's memory: tried once.
    pub(crate) async fn can_borrow(&self) -> bool {
        if !cfg!(target_os = "linux") || !self.channel.is_of_our_kind() {
            return false;
        }
        if !self.can_read.is_known() {
            let call = Writer::default().finish(PROBE).map(|body| outgoing(PROBE, body));
            self.can_read.note(match call {
                Ok(call) => self.channel.call(call, try_to_read).await,
                Err(e) => Err(e),
            });
        }
        self.can_read.is_possible()
    }

    /// Takes a value of a step.
    pub(crate) async fn take(&self, step: i64, key: &RendezvousKey) -> Result<Delivery> {
        let request = LendRequest { step_id: step, key: key.as_str().to_string() };
        let body = Writer::default().message(&request).finish(LEND)?;
        let read = self.channel.call(outgoing(LEND, body), read_answer).await?;
        read.map_err(|e| self.unreadable(key.as_str(), &e))
    }

    /// The failure to read something, after which it is tried anew whether anything can be read.
    pub(crate) fn unreadable(&self, what: &str, e: &io::Error) -> Error {
        self.can_read.forget();
        unavailable!("'{what}' could not be read from the memory of {}: {e}", self.channel.peer())
    }
}

async fn try_to_read(incoming: &mut Incoming) -> Result<Option<bool>, Broken> {
    let Some(answer) = incoming.message_and_leave().await? else { return Ok(None) };
    Ok(Some(lent::can_read(&answer.decode("the answer to Probe")?)))
}

/// Reads an answer, and the value where it stands: the call lasts for as long.
async fn read_answer(incoming: &mut Incoming) -> Result<Option<io::Result<Delivery>>, Broken> {
    let Some(answer) = incoming.message_and_leave().await? else { return Ok(None) };
    let (head, tensors) = fields::split::<LendResponse>(answer, TENSOR, "the answer to Lend")?;
    if head.is_dead {
        return Ok(Some(Ok(Delivery::Dead)));
    }
    let Some(lent) = head.lent else {
        let tensor = fields::tensor(tensors.into_iter().next_back().unwrap_or_default())?;
        return Ok(Some(Ok(Delivery::Tensor(tensor))));
    };
    Ok(Some(lent::read(&lent).await?.map(Delivery::Tensor)))
}

/// Lets one peer read large values that calls to it would have carried.
pub(crate) struct Lender {
    channel: Channel,
    /// Whether the peer can read our memory.
    can_read: Tried,
}

impl Lender {
    /// Nothing is known of the peer yet.
    pub(crate) fn new(channel: Channel) -> Lender {
        Lender { channel, can_read: Tried::default() }
    }

    /// Whether the peer is known to be able to read our memory.
    pub(crate) fn can_lend(&self) -> bool {
        self.channel.is_of_our_kind() && self.can_read.is_possible()
    }

    /// Lends those of a call's values that had better not be sent, which are taken off the list. The loans are to be kept
    /// until the call has ended.
    pub(crate) async fn lend<N>(
        &self,
        values: &mut Vec<(N, Tensor)>,
        name: impl Fn(&N) -> &str,
    ) -> (Vec<LentTensor>, Vec<Loan>) {
        let (mut lent, mut loans) = (Vec::new(), Vec::new());
        if values.iter().any(|(_, tensor)| Loan::pays(tensor)) {
            self.find_out().await;
        }
        if self.can_lend() {
            values.retain(|(key, tensor)| {
                let Some((loan, place)) = Loan::of(tensor) else { return true };
                lent.push(LentTensor { name: name(key).to_string(), ..place });
                loans.push(loan);
                false
            });
        }
        (lent, loans)
    }

    /// Tries whether the peer can read our memory, unless that is known.
    pub(crate) async fn find_out(&self) {
        if cfg!(target_os = "linux") && self.channel.is_of_our_kind() && !self.can_read.is_known() {
            self.can_read.note(self.try_to_be_read().await);
        }
    }

    async fn try_to_be_read(&self) -> Result<bool> {
        let seal = Seal::new();
        let body = Writer::default().message(&seal.describe()).finish(PROBE_ME)?;
        let answer: ProbeMeResponse =
            self.channel.unary(outgoing(PROBE_ME, body)).await?.decode("the answer to ProbeMe")?;
        Ok(answer.can_read)
    }

    /// A call that lent something has failed: it is tried anew whether the peer can read.
    pub(crate) fn doubt(&self) {
        self.can_read.forget();
    }
}

fn outgoing(path: &'static str, body: Vec<Bytes>) -> Outgoing {
    Outgoing { path, body, limit: None, lane: Lane::Control, tries: 1 }
}

//! Large values between tasks on one machine: the taker copies them out of the giver's memory, and no byte of them passes
//! through a socket.
//!
//! Only tasks of our own kind know the calls, and a taker first tries whether it may read the giver's memory
//! (`/ferroflow.Tensors/Probe`): the system allows that between processes of one user on one machine, if at all. Where it
//! does not, and to TensorFlow's tasks, values go by `RecvTensor` as ever.
//!
//! The answer to `/ferroflow.Tensors/Lend` says where the value stands. It stays there until the taker resets the call, or
//! is gone, and with it goes a *seal*: a random number somewhere in the giver's memory that is wiped out before the value
//! is let go of. Who finds the seal unbroken after reading has read the value that was meant, from the process that was
//! meant. Who asks must be allowed to ask for the value itself: where a value stands is told in the answer alone.

use crate::channel::{Channel, Lane, Outgoing};
use crate::fields;
use crate::grpc::message::{Broken, Incoming};
use crate::pieces::{Pieces, Writer};
use crate::runtime;
use crate::server::{Kept, SHORT_MAX};
use bytes::Bytes;
use distributed::brief;
use distributed::interface::WorkerInterface;
use framework::{Delivery, Env, RendezvousKey, SystemEnv};
use std::io;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use tensor::{Code, DType, Result, Shape, Tensor, invalid, unavailable};

const LEND: &str = "/ferroflow.Tensors/Lend";
const PROBE: &str = "/ferroflow.Tensors/Probe";
const TENSOR: u32 = 1;

/// What is shorter had better come with the answer.
const LEND_MIN: usize = 64 << 10;
/// What is longer is read by several threads.
const PART: usize = 8 << 20;
const PARTS_MAX: usize = 4;

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
    lent: Option<Lent>,
}

/// Where a value stands, and what it is.
#[derive(Clone, PartialEq, prost::Message)]
struct Lent {
    #[prost(uint32, tag = "1")]
    process: u32,
    #[prost(uint64, tag = "2")]
    seal_address: u64,
    #[prost(fixed64, tag = "3")]
    seal: u64,
    #[prost(uint64, tag = "4")]
    address: u64,
    #[prost(int32, tag = "5")]
    dtype: i32,
    #[prost(int64, repeated, tag = "6")]
    dims: Vec<i64>,
}

/// A value that is being read by another process. The seal is broken first: fields are dropped in order.
struct Loan {
    seal: Seal,
    _content: Bytes,
}

/// A number that stands for as long as what it vouches for.
struct Seal(Box<AtomicU64>);

impl Seal {
    fn new() -> Seal {
        Seal(Box::new(AtomicU64::new(SystemEnv::default().random_u64() | 1)))
    }

    fn describe(&self) -> Lent {
        Lent {
            process: std::process::id(),
            seal_address: (&raw const *self.0) as u64,
            seal: self.0.load(Ordering::Relaxed),
            ..Default::default()
        }
    }
}

impl Drop for Seal {
    fn drop(&mut self) {
        self.0.swap(0, Ordering::SeqCst);
    }
}

/// Answers a call for a value, which is kept as long as the caller wants.
pub(crate) async fn lend(worker: &dyn WorkerInterface, message: Pieces, kept: &Kept) -> Result<Vec<Bytes>> {
    let request: LendRequest = message.decode("a Lend request")?;
    let key = RendezvousKey::from_text(&request.key);
    let mut writer = Writer::default();
    match worker.recv_tensor(request.step_id, key).await? {
        Delivery::Dead => writer.put_message(&LendResponse { is_dead: true, lent: None }),
        Delivery::Tensor(tensor) if tensor.dtype().is_plain() && tensor.num_bytes() >= LEND_MIN => {
            let loan = Loan { seal: Seal::new(), _content: tensor.content() };
            let lent = Lent {
                address: loan._content.as_ptr() as u64,
                dtype: tensor.dtype().number(),
                dims: tensor.dims().iter().map(|&size| size as i64).collect(),
                ..loan.seal.describe()
            };
            kept.keep(loan);
            writer.put_message(&LendResponse { is_dead: false, lent: Some(lent) });
        }
        Delivery::Tensor(tensor) => writer.put_tensor_field(TENSOR, &request.key, &tensor),
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

/// Takes large values from one peer.
pub(crate) struct Loans {
    channel: Channel,
    /// Whether the peer's memory can be read.
    readable: AtomicU8,
}

const UNKNOWN: u8 = 0;
const YES: u8 = 1;
const NO: u8 = 2;

impl Loans {
    /// Nothing is known of the peer yet.
    pub(crate) fn new(channel: Channel) -> Loans {
        Loans { channel, readable: AtomicU8::new(UNKNOWN) }
    }

    /// Whether values can be taken from the peer's memory: tried once.
    pub(crate) async fn are_possible(&self) -> bool {
        if !cfg!(target_os = "linux") || !self.channel.is_of_our_kind() {
            return false;
        }
        if self.readable.load(Ordering::Relaxed) == UNKNOWN {
            // A peer that did not answer is asked again the next time.
            let Some(readable) = self.try_to_read().await else { return false };
            self.readable.store(if readable { YES } else { NO }, Ordering::Relaxed);
        }
        self.readable.load(Ordering::Relaxed) == YES
    }

    async fn try_to_read(&self) -> Option<bool> {
        let body = Writer::default().finish(PROBE).ok()?;
        let call = Outgoing { path: PROBE, body, limit: None, lane: Lane::Control, tries: 1 };
        match self.channel.call(call, try_to_read).await {
            Ok(readable) => Some(readable),
            Err(e) => (e.code == Code::Unimplemented).then_some(false),
        }
    }

    /// Takes a value of a step.
    pub(crate) async fn take(&self, step: i64, key: &RendezvousKey) -> Result<Delivery> {
        let request = LendRequest { step_id: step, key: key.as_str().to_string() };
        let body = Writer::default().message(&request).finish(LEND)?;
        let call = Outgoing { path: LEND, body, limit: None, lane: Lane::Control, tries: 1 };
        self.channel.call(call, read_answer).await?.map_err(|e| {
            self.readable.store(UNKNOWN, Ordering::Relaxed);
            unavailable!("'{}' could not be read from the memory of {}: {e}", key.as_str(), self.channel.peer())
        })
    }
}

async fn try_to_read(incoming: &mut Incoming) -> Result<Option<bool>, Broken> {
    let Some(answer) = incoming.message_and_leave().await? else { return Ok(None) };
    let lent: Lent = answer.decode("the answer to Probe")?;
    Ok(Some(lent.read(&mut []).is_ok()))
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
    let shape = Shape::checked(lent.dims.iter().copied())?;
    let dtype = DType::from_number(lent.dtype).ok_or_else(|| invalid!("{} is not an element type", lent.dtype))?;
    if shape.num_elements() > SHORT_MAX / dtype.size().max(1) {
        brief::enough_time().await;
    }
    let mut read = Ok(());
    let tensor = Tensor::from_filled(dtype, shape, |buffer| {
        read = lent.read(buffer);
        Ok(())
    })?;
    Ok(Some(read.map(|()| Delivery::Tensor(tensor))))
}

impl Lent {
    /// Copies what is lent. It fails if that cannot be read, or may have been let go of meanwhile.
    fn read(&self, buffer: &mut [u8]) -> io::Result<()> {
        let parts = buffer.len().div_ceil(PART).clamp(1, PARTS_MAX.min(runtime::cores()));
        let part_len = buffer.len().div_ceil(parts).max(1);
        let copy = |index: usize, part: &mut [u8]| {
            let address = self.address.wrapping_add((index * part_len) as u64);
            memory::read(self.process, address, part)
        };
        std::thread::scope(|scope| {
            let mut parts = buffer.chunks_mut(part_len).enumerate();
            let first = parts.next();
            let others: Vec<_> = parts.map(|(i, part)| scope.spawn(move || copy(i, part))).collect();
            first.map_or(Ok(()), |(i, part)| copy(i, part))?;
            others.into_iter().try_for_each(|other| other.join().unwrap_or_else(|_| Err(io::Error::other("a panic"))))
        })?;
        let mut seal = [0; size_of::<u64>()];
        memory::read(self.process, self.seal_address, &mut seal)?;
        match u64::from_ne_bytes(seal) == self.seal {
            true => Ok(()),
            false => Err(io::Error::other("it was let go of before it was read")),
        }
    }
}

#[cfg(target_os = "linux")]
mod memory {
    //! The memory of another process.

    use std::ffi::{c_int, c_ulong, c_void};
    use std::io;

    #[repr(C)]
    struct Range {
        start: *mut c_void,
        len: usize,
    }

    unsafe extern "C" {
        fn process_vm_readv(
            process: c_int,
            local: *const Range,
            local_count: c_ulong,
            remote: *const Range,
            remote_count: c_ulong,
            flags: c_ulong,
        ) -> isize;
    }

    /// Copies as many bytes as `buffer` takes.
    pub(super) fn read(process: u32, mut address: u64, mut buffer: &mut [u8]) -> io::Result<()> {
        let process = c_int::try_from(process).map_err(io::Error::other)?;
        while !buffer.is_empty() {
            let local = Range { start: buffer.as_mut_ptr().cast(), len: buffer.len() };
            let start = usize::try_from(address).map_err(io::Error::other)? as *mut c_void;
            let remote = Range { start, len: buffer.len() };
            // SAFETY: the system writes to nothing but the buffer, which is borrowed for as long, and checks the rest.
            let count = unsafe { process_vm_readv(process, &local, 1, &remote, 1, 0) };
            let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            buffer = &mut buffer[count..];
            address += count as u64;
        }
        Ok(())
    }
}

#[cfg(not(target_os = "linux"))]
mod memory {
    //! The memory of another process, which cannot be read here.

    use std::io;

    /// Fails.
    pub(super) fn read(_: u32, _: u64, _: &mut [u8]) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    fn lent(values: &[u8]) -> (Loan, Lent) {
        let loan = Loan { seal: Seal::new(), _content: Bytes::copy_from_slice(values) };
        let lent = Lent { address: loan._content.as_ptr() as u64, ..loan.seal.describe() };
        (loan, lent)
    }

    #[test]
    fn what_is_lent_is_read_in_parts() {
        for len in [0, 1, LEND_MIN, PART + 1, 3 * PART - 5] {
            let values: Vec<u8> = (0..len).map(|i| (i / 4096 + i) as u8).collect();
            let (_loan, lent) = lent(&values);
            let mut found = vec![0; len];
            lent.read(&mut found).unwrap();
            assert!(found == values, "{len} bytes");
        }
    }

    #[test]
    fn a_broken_seal_and_other_memory_are_seen() {
        let (loan, lent) = lent(&[7; 100]);
        let mut found = [0; 100];
        lent.read(&mut found).unwrap();
        assert!(Lent { seal: lent.seal ^ 2, ..lent.clone() }.read(&mut found).is_err());
        assert!(Lent { address: 8, ..lent.clone() }.read(&mut found).is_err());
        assert!(Lent { address: u64::MAX - 3, ..lent.clone() }.read(&mut found).is_err());
        assert!(Lent { seal_address: 8, ..lent.clone() }.read(&mut found).is_err());
        assert!(Lent { process: u32::MAX, ..lent.clone() }.read(&mut found).is_err());
        let Loan { seal, _content } = loan;
        seal.0.store(0, Ordering::Relaxed);
        assert!(lent.read(&mut found).unwrap_err().to_string().contains("let go of"));
    }
}

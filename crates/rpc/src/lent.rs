//! A tensor in the memory of another process on this machine, and how it is read from there.
//!
//! Whoever lends it says where it stands, and keeps it there for as long as the call lasts that says so. With it goes a
//! *seal*: a random number somewhere in the lender's memory that is wiped out before the tensor is let go of. Who finds the
//! seal unbroken after reading has read the tensor that was meant, from the process that was meant.

use crate::runtime;
use crate::server::SHORT_MAX;
use bytes::Bytes;
use distributed::brief;
use framework::{Env, SystemEnv};
use parking_lot::Mutex;
use proto::LentTensor;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
#[cfg(target_os = "linux")]
use tensor::SharedNumber;
use tensor::{DType, Result, Shape, Tensor, invalid};

/// What is shorter had better be sent.
const LEND_MIN: usize = 64 << 10;
/// What is longer is read by several threads.
const PART: usize = 8 << 20;
const THREADS_MAX: usize = 4;
/// How much of it one reads at a time.
const PIECE: usize = 1 << 20;

/// A tensor that another process reads. The seal is broken first: fields are dropped in order.
pub(crate) struct Loan {
    seal: Seal,
    _content: Bytes,
}

impl Loan {
    /// Whether a tensor had better be lent than sent.
    pub(crate) fn pays(tensor: &Tensor) -> bool {
        tensor.dtype().is_plain() && tensor.num_bytes() >= LEND_MIN
    }

    /// Lends a tensor, and says where it is; `None` if it had better be sent.
    pub(crate) fn of(tensor: &Tensor) -> Option<(Loan, LentTensor)> {
        if !Loan::pays(tensor) {
            return None;
        }
        let loan = Loan { seal: Seal::new(), _content: tensor.content() };
        let mut lent = LentTensor {
            address: loan._content.as_ptr() as u64,
            dtype: tensor.dtype().number(),
            dim: tensor.dims().iter().map(|&size| size as i64).collect(),
            ..loan.seal.describe()
        };
        #[cfg(target_os = "linux")]
        if let Some(place) = tensor::shared_place(&loan._content) {
            (lent.file, lent.inode, lent.offset) = (place.file + 1, place.inode, place.offset);
        }
        Some((loan, lent))
    }
}

/// A number that stands for as long as what it vouches for: where others can look at it, or have the system do it.
pub(crate) enum Seal {
    #[cfg(target_os = "linux")]
    Shared(SharedNumber),
    Own(Box<AtomicU64>),
}

impl Seal {
    pub(crate) fn new() -> Seal {
        let number = SystemEnv::default().random_u64() | 1;
        #[cfg(target_os = "linux")]
        if let Some(number) = SharedNumber::new(number) {
            return Seal::Shared(number);
        }
        Seal::Own(Box::new(AtomicU64::new(number)))
    }

    fn number(&self) -> &AtomicU64 {
        match self {
            #[cfg(target_os = "linux")]
            Seal::Shared(number) => number,
            Seal::Own(number) => number,
        }
    }

    /// Where it stands, with nothing else.
    pub(crate) fn describe(&self) -> LentTensor {
        LentTensor {
            process: std::process::id(),
            seal_address: (&raw const *self.number()) as u64,
            seal: self.number().load(Ordering::Relaxed),
            ..Default::default()
        }
    }
}

impl Drop for Seal {
    fn drop(&mut self) {
        // The shared one does so itself.
        if let Seal::Own(number) = self {
            number.swap(0, Ordering::SeqCst);
        }
    }
}

/// Reads what is lent. The outer error is about what it claims to be, the inner one about the memory.
pub(crate) async fn read(lent: &LentTensor) -> Result<io::Result<Tensor>> {
    let shape = Shape::checked(lent.dim.iter().copied())?;
    let dtype = DType::from_number(lent.dtype).filter(|dtype| dtype.is_plain());
    let dtype = dtype.ok_or_else(|| invalid!("{} is not an element type that can be lent", lent.dtype))?;
    if shape.num_elements() > SHORT_MAX / dtype.size().max(1) {
        brief::enough_time().await;
    }
    let mut read = Ok(());
    let tensor = Tensor::from_filled(dtype, shape, |buffer| {
        read = copy(lent, buffer);
        Ok(())
    })?;
    Ok(read.map(|()| tensor))
}

/// Whether memory can be read where this was lent.
pub(crate) fn can_read(lent: &LentTensor) -> bool {
    copy(lent, &mut []).is_ok()
}

/// Copies what is lent. It fails if that cannot be read, or may have been let go of meanwhile.
fn copy(lent: &LentTensor, buffer: &mut [u8]) -> io::Result<()> {
    let seal = match copy_mapped(lent, buffer) {
        Some(Some(seal)) => seal,
        copied => {
            if copied.is_none() {
                copy_by_system(lent, buffer)?;
            }
            let mut seal = [0; size_of::<u64>()];
            memory::read(lent.process, lent.seal_address, &mut seal)?;
            u64::from_ne_bytes(seal)
        }
    };
    match seal == lent.seal {
        true => Ok(()),
        false => Err(io::Error::other("it was let go of before it was read")),
    }
}

/// Copies what stands in memory that is mapped here, and looks at the seal if that does too.
fn copy_mapped(lent: &LentTensor, buffer: &mut [u8]) -> Option<Option<u64>> {
    #[cfg(target_os = "linux")]
    return crate::mapped::copy(lent, buffer);
    #[cfg(not(target_os = "linux"))]
    return None;
}

/// Several threads take piece after piece, so that none waits for one whose core is slower.
fn copy_by_system(lent: &LentTensor, buffer: &mut [u8]) -> io::Result<()> {
    let threads = buffer.len().div_ceil(PART).clamp(1, THREADS_MAX.min(runtime::cores()));
    let pieces = Mutex::new(buffer.chunks_mut(PIECE).enumerate());
    let next = || pieces.lock().next();
    let copy = || {
        while let Some((index, piece)) = next() {
            let address = lent.address.wrapping_add((index * PIECE) as u64);
            memory::read(lent.process, address, piece)?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(copy)).collect();
        copy()?;
        others.into_iter().try_for_each(|other| other.join().unwrap_or_else(|_| Err(io::Error::other("a panic"))))
    })
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

    fn lent(values: &[u8]) -> (Loan, LentTensor) {
        let loan = Loan { seal: Seal::new(), _content: Bytes::copy_from_slice(values) };
        let lent = LentTensor { address: loan._content.as_ptr() as u64, ..loan.seal.describe() };
        (loan, lent)
    }

    #[test]
    fn what_is_lent_is_read_in_parts() {
        for len in [0, 1, LEND_MIN, PART + 1, 3 * PART - 5] {
            let values: Vec<u8> = (0..len).map(|i| (i / 4096 + i) as u8).collect();
            let (_loan, lent) = lent(&values);
            let mut found = vec![0; len];
            copy(&lent, &mut found).unwrap();
            assert!(found == values, "{len} bytes");
        }
    }

    #[test]
    fn large_tensors_of_plain_types_are_lent_whole() {
        let large = Tensor::from_vec([2, 20_000], (0..40_000).collect::<Vec<i32>>()).unwrap();
        let (loan, lent) = Loan::of(&large).unwrap();
        let read = |lent: &LentTensor| crate::runtime::network().block_on(read(lent));
        assert!(read(&lent).unwrap().unwrap() == large);
        drop(loan);
        assert!(read(&lent).unwrap().unwrap_err().to_string().contains("let go of"));
        for not_lent in [Tensor::from([1f32; 100]), Tensor::from(vec![String::from("text"); 9000])] {
            assert!(Loan::of(&not_lent).is_none());
        }
        let wrong = |lent: LentTensor, part: &str| {
            let error = read(&lent).unwrap_err();
            assert!(error.message.contains(part), "{error}");
        };
        wrong(LentTensor { dtype: 7, ..lent.clone() }, "not an element type");
        wrong(LentTensor { dtype: 99, ..lent.clone() }, "not an element type");
        wrong(LentTensor { dim: vec![-1], ..lent.clone() }, "dimension");
        wrong(LentTensor { dim: vec![i64::MAX, i64::MAX], ..lent.clone() }, "elements");
        wrong(LentTensor { dim: vec![1 << 45], ..lent.clone() }, "memory");
    }

    #[test]
    fn a_broken_seal_and_other_memory_are_seen() {
        let (loan, lent) = lent(&[7; 100]);
        let mut found = [0; 100];
        copy(&lent, &mut found).unwrap();
        assert!(copy(&LentTensor { seal: lent.seal ^ 2, ..lent.clone() }, &mut found).is_err());
        assert!(copy(&LentTensor { address: 8, ..lent.clone() }, &mut found).is_err());
        assert!(copy(&LentTensor { address: u64::MAX - 3, ..lent.clone() }, &mut found).is_err());
        assert!(copy(&LentTensor { seal_address: 8, ..lent.clone() }, &mut found).is_err());
        assert!(copy(&LentTensor { process: u32::MAX, ..lent.clone() }, &mut found).is_err());
        let Loan { seal, _content } = loan;
        seal.number().store(0, Ordering::Relaxed);
        assert!(copy(&lent, &mut found).unwrap_err().to_string().contains("let go of"));
    }
}

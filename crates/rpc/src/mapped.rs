//! The memory of neighbours that is mapped here: a value is copied out of it without a call of the system, which takes a third
//! of the time.
//!
//! A process says in which file a value stands and where; the file is opened through `/proc`, which the system allows to the
//! same user alone. What is mapped keeps the memory of a process that is gone, so it is unmapped when a connection to that
//! process ends, and mapped again if it is still needed.

use parking_lot::Mutex;
use proto::LentTensor;
use rustix::fs::{Mode, OFlags, SealFlags, fcntl_get_seals, fstat, open};
use rustix::mm::{ProtFlags, munmap};
use std::collections::HashMap;
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Arc, LazyLock};

/// Files that are mapped at the same time; beyond that all are mapped anew.
const MAPPED_MAX: usize = 256;

static MAPPED: LazyLock<Mutex<HashMap<Key, Arc<Mapped>>>> = LazyLock::new(Mutex::default);

/// Whose file, its number there, and the system's number for it.
type Key = (u32, u32, u64);

/// Copies what is lent, if it stands in a file; else, or if that cannot be mapped, `None`. Then looks at its seal, if that
/// stands in the same file, as it does unless it comes from elsewhere.
pub(crate) fn copy(lent: &LentTensor, buffer: &mut [u8]) -> Option<Option<u64>> {
    let file = lent.file.checked_sub(1)?;
    let mapped = find((lent.process, file, lent.inode)).ok()?;
    mapped.copy(lent.offset, buffer)?;
    // What the lender has mapped there begins where the tensor's offset is counted from.
    let begin = lent.address.checked_sub(lent.offset);
    let seal = begin.and_then(|begin| lent.seal_address.checked_sub(begin));
    Some(seal.and_then(|offset| mapped.number(offset)))
}

/// Lets go of the memory of a process, until it is needed again.
pub(crate) fn forget(process: u32) {
    let gone: Vec<_> = MAPPED.lock().extract_if(|(of, ..), _| *of == process).collect();
    drop(gone); // which takes the system a while
}

fn find(key: Key) -> io::Result<Arc<Mapped>> {
    if let Some(found) = MAPPED.lock().get(&key) {
        return Ok(found.clone());
    }
    let mapped = Arc::new(Mapped::open(key)?);
    let mut all = MAPPED.lock();
    let before = if all.len() >= MAPPED_MAX { std::mem::take(&mut *all) } else { HashMap::new() };
    all.insert(key, mapped.clone());
    drop(all);
    drop(before);
    Ok(mapped)
}

/// A file of another process, mapped to be read.
struct Mapped {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: it is only read, by `copy`, and unmapped by the last owner.
unsafe impl Send for Mapped {}
// SAFETY: as above.
unsafe impl Sync for Mapped {}

impl Mapped {
    fn open((process, file, inode): Key) -> io::Result<Mapped> {
        let path = format!("/proc/{process}/fd/{file}");
        // Whatever it is, opening it neither waits nor does anything.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let opened = open(path, flags, Mode::empty())?;
        let found = fstat(&opened)?;
        let len = usize::try_from(found.st_size).map_err(io::Error::other)?;
        // Only of a file that cannot become shorter can all be read at any time.
        if found.st_ino != inode || len == 0 || !fcntl_get_seals(&opened)?.contains(SealFlags::SHRINK) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let start = tensor::map_shared(&opened, len, ProtFlags::READ)?;
        Ok(Mapped { start, len })
    }

    /// `None` if it does not reach so far.
    fn copy(&self, offset: u64, buffer: &mut [u8]) -> Option<()> {
        let offset = usize::try_from(offset).ok()?;
        let end = offset.checked_add(buffer.len())?;
        if end > self.len {
            return None;
        }
        // SAFETY: within the mapping, of a file that is as long for good. The bytes may be any: the owner says that they do
        // not change while they are lent, and the seal is looked at afterwards.
        unsafe { self.start.add(offset).copy_to_nonoverlapping(NonNull::new(buffer.as_mut_ptr())?, buffer.len()) };
        Some(())
    }

    /// A number, as it is after all that was copied before. `None` if there can be none.
    fn number(&self, offset: u64) -> Option<u64> {
        let offset = usize::try_from(offset).ok()?;
        if !offset.is_multiple_of(size_of::<u64>()) || offset.checked_add(size_of::<u64>())? > self.len {
            return None;
        }
        fence(Ordering::Acquire);
        // SAFETY: aligned, within the mapping, and any bytes are a number.
        Some(unsafe { self.start.add(offset).cast::<AtomicU64>().as_ref() }.load(Ordering::Relaxed))
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: mapped by `open` with this length, and nobody refers to it any more.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tensor::{SharedNumber, Tensor, shared_place};

    fn lent(tensor: &Tensor) -> LentTensor {
        let place = shared_place(tensor.as_bytes().unwrap()).expect("it is of a size that is shared");
        LentTensor {
            process: std::process::id(),
            file: place.file + 1,
            inode: place.inode,
            offset: place.offset,
            ..Default::default()
        }
    }

    #[test]
    fn a_neighbours_memory_is_read_where_it_stands() {
        let tensor = Tensor::from_vec([50_000], (0..50_000).collect::<Vec<i32>>()).unwrap();
        let number = SharedNumber::new(33).unwrap();
        let lent = LentTensor {
            address: tensor.as_bytes().unwrap().as_ptr() as u64,
            seal_address: (&raw const *number) as u64,
            ..lent(&tensor)
        };
        for _ in ["mapped", "known", "mapped anew"] {
            let mut found = vec![0; tensor.num_bytes()];
            assert_eq!(copy(&lent, &mut found), Some(Some(33)));
            assert!(found == tensor.as_bytes().unwrap());
        }
        forget(lent.process);
        for elsewhere in [0, 8, lent.seal_address + 1, lent.seal_address + (1 << 60), u64::MAX] {
            assert_eq!(copy(&LentTensor { seal_address: elsewhere, ..lent.clone() }, &mut [0; 4]), Some(None));
        }
        drop(number);
        // Zero, or already that of another test.
        assert!(copy(&lent, &mut [0; 4]).unwrap().is_some_and(|number| number != 33));
    }

    #[test]
    fn what_is_no_such_memory_is_not_read() {
        let tensor = Tensor::from_vec([50_000], vec![1f32; 50_000]).unwrap();
        let lent = lent(&tensor);
        let mut found = [0; 100];
        for wrong in [
            LentTensor { file: 0, ..lent.clone() },
            LentTensor { file: 1, ..lent.clone() },
            LentTensor { file: 100_000, ..lent.clone() },
            LentTensor { inode: lent.inode + 1, ..lent.clone() },
            LentTensor { offset: u64::MAX - 50, ..lent.clone() },
            LentTensor { offset: 1 << 60, ..lent.clone() },
            LentTensor { process: u32::MAX, ..lent.clone() },
        ] {
            assert!(copy(&wrong, &mut found).is_none(), "{wrong:?}");
        }
    }
}

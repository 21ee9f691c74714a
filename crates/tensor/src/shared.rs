//! Memory that other processes of this user can look into, so that they need not ask the system to copy it for them.
//!
//! It is one file without a name, as large as the machine's memory and empty, all of which is mapped. Blocks are taken from
//! its front; one that is given back is emptied and used again for its size. Whoever may open the file through `/proc` can map
//! it too, and read a block where this process says that it is. It never shrinks, so that looking into it cannot fail.
//!
//! A file gets small pages, so the system is asked to make large ones of those that blocks are taken from. Products and
//! copies then take less time, which otherwise goes into finding pages, most of all where several processes take turns.
//!
//! Where there is no such file, memory comes from the allocator, and is copied by the system.

use crate::buffer::memory_limit;
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, fstat, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::io;
use std::ops::{Deref, Range};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};

/// Sizes that are worth it: what is smaller is sent, and what is larger has large pages of its own.
pub(crate) const SIZES: Range<usize> = 64 << 10..4 << 20;

pub(crate) const PAGE: usize = 4096;
pub(crate) const LARGE_PAGE: usize = 2 << 20;
/// Blocks begin at different places in their first page: numbers that are read side by side from several blocks would
/// otherwise compete for the same lines of the first cache.
const STEP: usize = 64;

/// Where some bytes stand, for others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SharedPlace {
    /// The file's number in this process.
    pub file: u32,
    /// The number by which the system knows the file.
    pub inode: u64,
    /// Where the bytes begin.
    pub offset: u64,
}

/// Where these bytes stand in memory that others can look into, if they do.
pub fn shared_place(bytes: &[u8]) -> Option<SharedPlace> {
    let file = FILE.get()?.as_ref()?;
    let offset = file.offset_of(bytes.as_ptr()).filter(|offset| bytes.len() <= file.len - offset)?;
    Some(SharedPlace { file: file.fd.as_raw_fd() as u32, inode: file.inode, offset: offset as u64 })
}

/// Zero bytes, aligned to a cache line.
pub(crate) fn allocate(capacity: usize) -> Option<NonNull<u8>> {
    let file = FILE.get_or_init(File::create).as_ref()?;
    let base = file.blocks.lock().ok()?.take(capacity, file.len)?;
    file.enlarge_pages(base..base + block_len(capacity));
    let start = file.start.as_ptr().wrapping_add(base + base / PAGE % (PAGE / STEP) * STEP);
    NonNull::new(start)
}

/// Whether this comes from here.
pub(crate) fn is_shared(start: NonNull<u8>) -> bool {
    FILE.get().and_then(Option::as_ref).is_some_and(|file| file.offset_of(start.as_ptr()).is_some())
}

/// Gives a block back. It comes from [`allocate`] with this capacity, and is not used again.
pub(crate) fn free(start: NonNull<u8>, capacity: usize) {
    let Some(file) = FILE.get().and_then(Option::as_ref) else { return };
    let Some(offset) = file.offset_of(start.as_ptr()) else { return };
    let base = offset / PAGE * PAGE;
    let emptied = fallocate(
        &file.fd,
        FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
        base as u64,
        block_len(capacity) as u64,
    );
    // One that is not empty is never used again.
    if let (Ok(()), Ok(mut blocks)) = (emptied, file.blocks.lock()) {
        blocks.free.entry(capacity).or_default().push(base);
    }
}

/// Maps a file, at a place where its large pages can be mapped as such.
pub fn map_shared(file: impl AsFd, len: usize, access: ProtFlags) -> io::Result<NonNull<u8>> {
    let len = len.checked_next_multiple_of(PAGE).ok_or(io::ErrorKind::OutOfMemory)?;
    let room = len.checked_add(LARGE_PAGE).ok_or(io::ErrorKind::OutOfMemory)?;
    // SAFETY: a new mapping, at a place that the system chooses. The file takes the place of a part of it; what lies before
    // and behind is let go of again.
    unsafe {
        let found = mmap_anonymous(null_mut(), room, ProtFlags::empty(), MapFlags::PRIVATE | MapFlags::NORESERVE)?;
        let before = found.cast::<u8>().align_offset(LARGE_PAGE);
        let place = found.byte_add(before);
        let mapped = mmap(place, len, access, MapFlags::SHARED | MapFlags::NORESERVE | MapFlags::FIXED, file, 0);
        if mapped.is_err() {
            munmap(found, room)?;
        } else {
            munmap(place.byte_add(len), LARGE_PAGE - before)?;
            if before > 0 {
                munmap(found, before)?;
            }
        }
        NonNull::new(mapped?.cast()).ok_or(io::ErrorKind::OutOfMemory.into())
    }
}

/// Asks the system to make a large page of what is mapped here, at least one page of which has been used.
///
/// # Safety
///
/// All of it is mapped.
unsafe fn make_large_page(start: NonNull<u8>) {
    unsafe extern "C" {
        fn madvise(start: *mut c_void, len: usize, advice: c_int) -> c_int;
    }
    const COLLAPSE: c_int = 25;
    // SAFETY: the caller's promise; no contents are changed. A system that does not know it, or has none, refuses.
    unsafe { madvise(start.as_ptr().cast(), LARGE_PAGE, COLLAPSE) };
}

/// A number that others can look at, and that becomes zero when it is dropped.
pub struct SharedNumber(&'static AtomicU64);

/// Numbers that nobody uses. They lie a cache line apart, since those of one line would be fetched again for each other.
static NUMBERS: Mutex<Vec<&AtomicU64>> = Mutex::new(Vec::new());

impl SharedNumber {
    /// `None` where there is no memory that others can look into.
    pub fn new(value: u64) -> Option<SharedNumber> {
        let mut unused = NUMBERS.lock().ok()?;
        if unused.is_empty() {
            let start = allocate(SIZES.start)?;
            // SAFETY: the block is zero and of this size, and never freed: so many aligned numbers can be there for good.
            unused.extend((0..SIZES.start / STEP).map(|i| unsafe { start.add(i * STEP).cast::<AtomicU64>().as_ref() }));
        }
        let number = unused.pop()?;
        drop(unused);
        number.store(value, Ordering::Release);
        Some(SharedNumber(number))
    }
}

impl Deref for SharedNumber {
    type Target = AtomicU64;

    fn deref(&self) -> &AtomicU64 {
        self.0
    }
}

impl Drop for SharedNumber {
    fn drop(&mut self) {
        self.0.swap(0, Ordering::SeqCst);
        if let Ok(mut unused) = NUMBERS.lock() {
            unused.push(self.0);
        }
    }
}

static FILE: OnceLock<Option<File>> = OnceLock::new();

struct File {
    fd: OwnedFd,
    inode: u64,
    /// Mapped for as long as the process lives.
    start: NonNull<u8>,
    len: usize,
    blocks: Mutex<Blocks>,
}

// SAFETY: the address is only a number here; who may use which bytes is decided by the blocks, under their lock.
unsafe impl Send for File {}
// SAFETY: as above.
unsafe impl Sync for File {}

#[derive(Default)]
struct Blocks {
    /// Where the part begins that was never used.
    next: usize,
    /// Empty blocks by their capacity.
    free: BTreeMap<usize, Vec<usize>>,
}

impl Blocks {
    fn take(&mut self, capacity: usize, len: usize) -> Option<usize> {
        if let Some(base) = self.free.get_mut(&capacity).and_then(Vec::pop) {
            return Some(base);
        }
        let end = self.next.checked_add(block_len(capacity)).filter(|end| *end <= len)?;
        Some(std::mem::replace(&mut self.next, end))
    }
}

/// Whole pages, with room for where the block begins in the first.
fn block_len(capacity: usize) -> usize {
    capacity.next_multiple_of(PAGE) + PAGE
}

impl File {
    fn create() -> Option<File> {
        let len = memory_limit().next_multiple_of(PAGE);
        let fd = memfd_create("ferroflow-tensors", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).ok()?;
        ftruncate(&fd, len as u64).ok()?;
        fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL).ok()?;
        let inode = fstat(&fd).ok()?.st_ino;
        let start = map_shared(&fd, len, ProtFlags::READ | ProtFlags::WRITE).ok()?;
        Some(File { fd, inode, start, len, blocks: Mutex::default() })
    }

    /// Asks for large pages where a block lies that was just taken, which takes less time than to get as many small ones.
    fn enlarge_pages(&self, block: Range<usize>) {
        let pages = block.start / LARGE_PAGE * LARGE_PAGE..block.end;
        for page in pages.step_by(LARGE_PAGE).filter(|page| page + LARGE_PAGE <= self.len) {
            // SAFETY: both are within the file. What is written lies in the block, which nobody else uses yet, and which is zero.
            unsafe {
                self.start.add(page.max(block.start)).write_volatile(0);
                make_large_page(self.start.add(page));
            }
        }
    }

    fn offset_of(&self, start: *const u8) -> Option<usize> {
        (start as usize).checked_sub(self.start.as_ptr() as usize).filter(|offset| *offset < self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_zero_apart_and_used_again() {
        let capacity = 72 << 10;
        let blocks: Vec<NonNull<u8>> =
            (0..3).map(|_| allocate(capacity).expect("this system has such files")).collect();
        for (i, &start) in blocks.iter().enumerate() {
            assert_eq!(start.as_ptr() as usize % STEP, 0);
            // SAFETY: the block is this test's alone.
            let bytes = unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), capacity) };
            assert!(bytes.iter().all(|&byte| byte == 0));
            bytes.fill(i as u8 + 1);
            let place = shared_place(bytes).unwrap();
            assert_eq!(shared_place(&bytes[10..]).unwrap().offset, place.offset + 10);
        }
        for (i, &start) in blocks.iter().enumerate() {
            // SAFETY: as above.
            let bytes = unsafe { std::slice::from_raw_parts(start.as_ptr(), capacity) };
            assert!(is_shared(start) && bytes.iter().all(|&byte| byte == i as u8 + 1), "nobody else has written there");
        }
        free(blocks[1], capacity);
        let again = allocate(capacity).unwrap();
        assert_eq!(again, blocks[1]);
        // SAFETY: as above.
        assert!(unsafe { std::slice::from_raw_parts(again.as_ptr(), capacity) }.iter().all(|&byte| byte == 0));
        assert!(shared_place(&[0; 100]).is_none());
        [blocks[0], again, blocks[2]].into_iter().for_each(|start| free(start, capacity));
    }

    #[test]
    fn numbers_can_be_looked_at_until_they_are_dropped() {
        let numbers: Vec<SharedNumber> = (1..3000).map(|value| SharedNumber::new(value).unwrap()).collect();
        assert!(numbers.iter().zip(1..).all(|(number, value)| number.load(Ordering::Relaxed) == value));
        let place = &raw const *numbers[7];
        // SAFETY: as many bytes as a number has, which nobody changes meanwhile.
        assert!(shared_place(unsafe { std::slice::from_raw_parts(place.cast(), 8) }).is_some());
        drop(numbers);
        // SAFETY: it stays there for good.
        let left = unsafe { &*place }.load(Ordering::Relaxed);
        assert!([0, 77].contains(&left), "it is zero, or already that of the test below: {left}");
    }

    #[test]
    #[cfg(target_pointer_width = "64")]
    fn files_are_mapped_where_large_pages_can_be() {
        let file = FILE.get_or_init(File::create).as_ref().unwrap();
        let other = map_shared(&file.fd, file.len, ProtFlags::READ).unwrap();
        for start in [file.start, other] {
            assert_eq!(start.as_ptr() as usize % LARGE_PAGE, 0);
        }
        let number = SharedNumber::new(77).unwrap();
        let offset = file.offset_of((&raw const *number).cast()).unwrap();
        // SAFETY: it is mapped there too, for as long as the file is.
        assert_eq!(unsafe { other.add(offset).cast::<AtomicU64>().as_ref() }.load(Ordering::Relaxed), 77);
        // SAFETY: mapped above with this length, and not used again.
        unsafe { munmap(other.as_ptr().cast(), file.len).unwrap() };
    }

    #[test]
    fn there_is_no_more_than_the_file_is_long() {
        let mut blocks = Blocks::default();
        assert_eq!(blocks.take(5000, 20_000), Some(0));
        assert_eq!(blocks.take(5000, 20_000), None);
        assert_eq!(blocks.take(4096, 20_480), Some(12_288));
    }
}

//! Memory for elements: zero-initialised or recycled, never uninitialised, aligned to 64 bytes unless tiny.
//!
//! The `unsafe` memory handling of the crate is here and in `shared.rs`. Large buffers that are let go of are kept for the next
//! taker (fresh pages cost many times what reused ones do), up to a fixed total; those let go of first make room. One that
//! is larger than all that may be kept besides.

#[cfg(target_os = "linux")]
use crate::shared;
use crate::{Element, Result, Word, exhausted};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::{BTreeMap, VecDeque};
use std::ptr::NonNull;
use std::sync::{Mutex, OnceLock};

/// Alignment of every buffer above [`INLINE_MAX`] bytes: a cache line, and the widest vector register.
const ALIGN: usize = 64;
/// Up to this many bytes live inside the struct itself: scalars need no allocation of their own.
const INLINE_MAX: usize = 16;
/// Memory from this size on is wanted in large pages.
#[cfg(target_os = "linux")]
const LARGE_PAGES_MIN: usize = 4 << 20;
/// Buffers from this size on are recycled.
const RECYCLE_MIN: usize = 32 << 10;
/// What all waiting buffers may take together, but for a single one that is larger.
const RECYCLE_TOTAL: usize = 256 << 20;
/// The part of the machine's memory that the single one may take; what is larger goes straight back to the system.
const RECYCLE_SHARE: usize = 8;

/// Larger buffers of zeros are not recycled ones: fresh memory is zero already, and costs nothing before it is used.
const ZEROED_MAX: usize = 64 << 20;

/// Owned bytes, always initialised.
pub(crate) struct Buffer {
    len: usize,
    memory: Memory,
}

#[repr(align(16))]
#[derive(Clone, Copy)]
struct Inline([u8; INLINE_MAX]);

enum Memory {
    Inline(Inline),
    Heap { start: NonNull<u8>, capacity: usize },
}

// SAFETY: a buffer owns its memory alone, like a `Vec<u8>`.
unsafe impl Send for Buffer {}
// SAFETY: shared access is read-only.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// A buffer of `len` bytes with arbitrary but initialised contents.
    #[inline]
    pub(crate) fn new(len: usize) -> Result<Buffer> {
        if len <= INLINE_MAX {
            return Ok(Buffer { len, memory: Memory::Inline(Inline([0; INLINE_MAX])) });
        }
        Buffer::on_heap(len)
    }

    fn on_heap(len: usize) -> Result<Buffer> {
        let capacity = capacity_for(len);
        match recycled(capacity) {
            Some(start) => Ok(Buffer { len, memory: Memory::Heap { start, capacity } }),
            None => Buffer::fresh(len, capacity),
        }
    }

    /// A buffer of `len` zero bytes in memory that was never used.
    fn fresh(len: usize, capacity: usize) -> Result<Buffer> {
        let limit = memory_limit();
        if len > limit {
            return Err(exhausted!("a tensor of {len} bytes was wanted; this machine has {limit} bytes of memory"));
        }
        let start = allocate(capacity).ok_or_else(|| exhausted!("no memory left for a tensor of {len} bytes"))?;
        Ok(Buffer { len, memory: Memory::Heap { start, capacity } })
    }

    /// A buffer of `len` zero bytes.
    pub(crate) fn zeroed(len: usize) -> Result<Buffer> {
        if len > ZEROED_MAX {
            return Buffer::fresh(len, capacity_for(len));
        }
        let mut buffer = Buffer::new(len)?;
        buffer.as_bytes_mut().fill(0);
        Ok(buffer)
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Lets go of all bytes but the first `len`; their memory stays with the others.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    #[inline]
    fn start(&self) -> *const u8 {
        match &self.memory {
            Memory::Inline(bytes) => bytes.0.as_ptr(),
            Memory::Heap { start, .. } => start.as_ptr(),
        }
    }

    #[inline]
    fn start_mut(&mut self) -> *mut u8 {
        match &mut self.memory {
            Memory::Inline(bytes) => bytes.0.as_mut_ptr(),
            Memory::Heap { start, .. } => start.as_ptr(),
        }
    }

    #[inline]
    pub(crate) fn as_bytes(&self) -> &[u8] {
        // SAFETY: `start` is valid for `len` initialised bytes for as long as `self` is borrowed.
        unsafe { std::slice::from_raw_parts(self.start(), self.len) }
    }

    #[inline]
    pub(crate) fn as_bytes_mut(&mut self) -> &mut [u8] {
        let (start, len) = (self.start_mut(), self.len);
        // SAFETY: as in `as_bytes`, and the borrow is unique.
        unsafe { std::slice::from_raw_parts_mut(start, len) }
    }

    /// The bytes as elements. The caller knows that the buffer holds elements of this type.
    #[inline]
    pub(crate) fn as_elements<T: Element>(&self) -> &[T] {
        // SAFETY: memory is aligned to at least 16 bytes (all that an Element needs when inline, 64 otherwise),
        // initialised, and every pattern a tensor of this DTYPE holds is a valid T (contract of Element).
        unsafe { std::slice::from_raw_parts(self.start().cast(), self.len / size_of::<T>()) }
    }

    #[inline]
    pub(crate) fn as_elements_mut<T: Element>(&mut self) -> &mut [T] {
        let (start, len) = (self.start_mut(), self.len);
        // SAFETY: as in `as_elements`, and the borrow is unique.
        unsafe { std::slice::from_raw_parts_mut(start.cast(), len / size_of::<T>()) }
    }

    #[inline]
    pub(crate) fn as_words<W: Word>(&self) -> &[W] {
        // SAFETY: aligned to 16 bytes at least, initialised, and a Word is valid for every bit pattern.
        unsafe { std::slice::from_raw_parts(self.start().cast(), self.len / size_of::<W>()) }
    }

    #[inline]
    pub(crate) fn as_words_mut<W: Word>(&mut self) -> &mut [W] {
        let (start, len) = (self.start_mut(), self.len);
        // SAFETY: as in `as_words`, and the borrow is unique. Writers move whole elements, so a bool stays 0 or 1.
        unsafe { std::slice::from_raw_parts_mut(start.cast(), len / size_of::<W>()) }
    }
}

impl Drop for Buffer {
    #[inline]
    fn drop(&mut self) {
        if let Memory::Heap { start, capacity } = self.memory {
            release(start, capacity);
        }
    }
}

fn release(start: NonNull<u8>, capacity: usize) {
    if !recycle(start, capacity) {
        // SAFETY: nobody refers to it any more, and all memory comes from `allocate` with this capacity.
        unsafe { free(start, capacity) };
    }
}

/// What the allocator aligns to without being asked.
const USUAL_ALIGN: usize = 16;

/// How memory of this capacity is asked for: with the usual alignment, and room to align it. To ask for more takes the
/// allocator longer, and it would write to every byte of large memory to make it zero, which otherwise comes as pages that
/// cost nothing before they are used.
fn layout(capacity: usize) -> Option<Layout> {
    Layout::from_size_align(capacity.checked_add(ALIGN)?, USUAL_ALIGN).ok()
}

/// Zero bytes, aligned to [`ALIGN`], where other processes can read them if they are of a size that these would.
fn allocate(capacity: usize) -> Option<NonNull<u8>> {
    #[cfg(target_os = "linux")]
    if shared::SIZES.contains(&capacity)
        && let Some(start) = shared::allocate(capacity)
    {
        return Some(start);
    }
    allocate_alone(capacity)
}

/// Zero bytes, aligned to [`ALIGN`]. Before them stands how far they are from where they were allocated.
fn allocate_alone(capacity: usize) -> Option<NonNull<u8>> {
    #[cfg(target_os = "linux")]
    if capacity >= LARGE_PAGES_MIN {
        return mapped::allocate(capacity);
    }
    let layout = layout(capacity)?;
    // SAFETY: the layout's size is not zero.
    let allocated = NonNull::new(unsafe { alloc_zeroed(layout) })?;
    let distance = ALIGN - allocated.as_ptr() as usize % ALIGN;
    // SAFETY: the distance is at most ALIGN, by which the allocation is larger than the capacity; and it is a multiple of
    // USUAL_ALIGN above zero, so that an aligned number fits before the start.
    unsafe {
        let start = allocated.add(distance);
        start.cast::<usize>().sub(1).write(distance);
        Some(start)
    }
}

#[cfg(target_os = "linux")]
mod mapped {
    //! Large memory, in large pages: rows picked out of a table then rarely miss in the cache of page addresses, fresh memory
    //! comes with a five-hundredth of the page faults, and other processes copy it twice as fast.
    //!
    //! It is asked of the system and not of the allocator, which may hand out memory that is in small pages already.

    use crate::shared::{LARGE_PAGE, PAGE};
    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
    use std::ptr::{NonNull, null_mut};

    /// Zero bytes, aligned to a large page. Before them stands how far they are from where they were mapped.
    pub(super) fn allocate(capacity: usize) -> Option<NonNull<u8>> {
        let len = capacity.checked_add(LARGE_PAGE)?;
        // SAFETY: new memory, wherever there is room.
        let mapped = unsafe { mmap_anonymous(null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE) };
        let mapped = NonNull::new(mapped.ok()?.cast::<u8>())?;
        let distance = LARGE_PAGE - mapped.as_ptr() as usize % LARGE_PAGE;
        // SAFETY: the distance is at most LARGE_PAGE, by which the mapping is larger than the capacity, and at least PAGE, since
        // mappings begin with a page: an aligned number fits before the start. The advice is about whole pages of the mapping
        // and changes no contents; a system that has no large pages refuses, and nothing is lost.
        unsafe {
            let start = mapped.add(distance);
            start.cast::<usize>().sub(1).write(distance);
            let _ = madvise(start.as_ptr().cast(), capacity / PAGE * PAGE, Advice::LinuxHugepage);
            Some(start)
        }
    }

    /// # Safety
    ///
    /// `start` comes from [`allocate`] with this capacity, and is not used again.
    pub(super) unsafe fn free(start: NonNull<u8>, capacity: usize) {
        // SAFETY: `allocate` wrote the distance there, and mapped so much.
        unsafe {
            let distance = start.cast::<usize>().sub(1).read();
            // It fails for what is not mapped, which this is.
            let _ = munmap(start.sub(distance).as_ptr().cast(), capacity + LARGE_PAGE);
        }
    }
}

/// Gives memory back.
///
/// # Safety
///
/// `start` comes from [`allocate`] with this capacity, and is not used again.
unsafe fn free(start: NonNull<u8>, capacity: usize) {
    #[cfg(target_os = "linux")]
    if shared::is_shared(start) {
        return shared::free(start, capacity);
    }
    #[cfg(target_os = "linux")]
    if capacity >= LARGE_PAGES_MIN {
        // SAFETY: passed on.
        return unsafe { mapped::free(start, capacity) };
    }
    let Some(layout) = layout(capacity) else { return };
    // SAFETY: `allocate_alone` wrote the distance there, and used this layout.
    unsafe {
        let distance = start.cast::<usize>().sub(1).read();
        dealloc(start.sub(distance).as_ptr(), layout);
    }
}

/// Elements as bytes, to copy them into a buffer.
pub(crate) fn bytes_of<T: Element>(values: &[T]) -> &[u8] {
    // SAFETY: an Element is plain memory without padding.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

/// Sizes are rounded up so that a buffer fits many takers: to 64 bytes when small, to an eighth of the power of
/// two below when large.
fn capacity_for(len: usize) -> usize {
    let step = if len < RECYCLE_MIN { ALIGN } else { 1usize << (usize::BITS - 4 - len.leading_zeros()) };
    len.checked_next_multiple_of(step).unwrap_or(len)
}

/// The machine's memory in bytes: no single tensor can be larger.
pub fn memory_limit() -> usize {
    static LIMIT: OnceLock<usize> = OnceLock::new();
    *LIMIT.get_or_init(|| {
        let info = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let total = info
            .lines()
            .find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB")?.trim().parse().ok());
        total.map_or(64 << 30, |kb: usize| kb << 10)
    })
}

/// Buffers waiting to be used again. Process-wide like the allocator it stands in front of.
#[derive(Default)]
struct Recycler {
    total: usize,
    by_capacity: BTreeMap<usize, VecDeque<Waiting>>,
    /// The last buffer that was larger than all others may be together.
    giant: Option<(Waiting, usize)>,
    /// Counts the buffers that were let go of.
    clock: u64,
}

struct Waiting {
    start: NonNull<u8>,
    since: u64,
}
// SAFETY: memory that nobody else refers to.
unsafe impl Send for Waiting {}

static RECYCLER: Mutex<Recycler> =
    Mutex::new(Recycler { total: 0, by_capacity: BTreeMap::new(), giant: None, clock: 0 });

impl Recycler {
    /// Takes the buffer of this capacity that was let go of last: the system has it at hand still.
    fn take(&mut self, capacity: usize) -> Option<NonNull<u8>> {
        if capacity > RECYCLE_TOTAL {
            return self.giant.take_if(|(_, found)| *found == capacity).map(|(waiting, _)| waiting.start);
        }
        let start = self.by_capacity.get_mut(&capacity)?.pop_back()?.start;
        self.total -= capacity;
        Some(start)
    }

    /// Keeps a buffer; those that must go to make room are returned, with their capacities.
    fn keep(&mut self, start: NonNull<u8>, capacity: usize) -> Vec<(NonNull<u8>, usize)> {
        self.clock += 1;
        let waiting = Waiting { start, since: self.clock };
        if capacity > RECYCLE_TOTAL {
            return self
                .giant
                .replace((waiting, capacity))
                .map(|(gone, capacity)| (gone.start, capacity))
                .into_iter()
                .collect();
        }
        let mut gone = Vec::new();
        while self.total + capacity > RECYCLE_TOTAL
            && let Some((start, capacity)) = self.take_oldest()
        {
            gone.push((start, capacity));
        }
        self.total += capacity;
        self.by_capacity.entry(capacity).or_default().push_back(waiting);
        gone
    }

    fn take_oldest(&mut self) -> Option<(NonNull<u8>, usize)> {
        let fronts =
            self.by_capacity.iter().filter_map(|(&capacity, waiting)| Some((waiting.front()?.since, capacity)));
        let (_, capacity) = fronts.min()?;
        let start = self.by_capacity.get_mut(&capacity)?.pop_front()?.start;
        self.total -= capacity;
        Some((start, capacity))
    }
}

/// Whether buffers of this capacity are kept for others.
fn is_recycled(capacity: usize) -> bool {
    let max = RECYCLE_TOTAL.max(memory_limit() / RECYCLE_SHARE);
    (RECYCLE_MIN..=max).contains(&capacity)
}

/// Gives the memory that waits to be used again back to the system.
pub fn give_back_memory() {
    let Ok(mut recycler) = RECYCLER.lock() else { return };
    let all = std::mem::take(&mut *recycler);
    drop(recycler);
    let ordinary =
        all.by_capacity.into_iter().flat_map(|(capacity, waiting)| waiting.into_iter().map(move |w| (w, capacity)));
    for (waiting, capacity) in ordinary.chain(all.giant) {
        // SAFETY: the recycler held it alone, and it came from `allocate` with this capacity.
        unsafe { free(waiting.start, capacity) };
    }
}

fn recycled(capacity: usize) -> Option<NonNull<u8>> {
    if !is_recycled(capacity) {
        return None;
    }
    RECYCLER.lock().ok()?.take(capacity)
}

fn recycle(start: NonNull<u8>, capacity: usize) -> bool {
    if !is_recycled(capacity) {
        return false;
    }
    let Ok(mut recycler) = RECYCLER.lock() else { return false };
    let gone = recycler.keep(start, capacity);
    drop(recycler); // giving memory back takes time
    for (start, capacity) in gone {
        // SAFETY: the recycler held it alone, and it came from `allocate` with this capacity.
        unsafe { free(start, capacity) };
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn large_buffers_are_zero_and_begin_with_a_large_page() {
        for len in [LARGE_PAGES_MIN + 1, 16 << 20, (40 << 20) + 12_345] {
            let capacity = capacity_for(len);
            let start = allocate_alone(capacity).unwrap();
            assert_eq!(start.as_ptr() as usize % (2 << 20), 0, "{len} bytes");
            // SAFETY: so much was just allocated, is zero, and is not used after it was freed.
            unsafe {
                let bytes = std::slice::from_raw_parts_mut(start.as_ptr(), capacity);
                assert!(bytes.iter().all(|byte| *byte == 0), "{len} bytes");
                bytes.fill(7);
                free(start, capacity);
            }
        }
    }

    #[test]
    fn buffers_are_aligned_and_reused() {
        for len in [17, 1000, RECYCLE_MIN - 1, RECYCLE_MIN, 100_000, 1 << 20, ZEROED_MAX + 1] {
            let mut buffer = Buffer::new(len).unwrap();
            assert_eq!(buffer.start() as usize % ALIGN, 0);
            assert_eq!(buffer.len(), len);
            buffer.as_bytes_mut().fill(7);
            drop(buffer);
            assert!(Buffer::zeroed(len).unwrap().as_bytes().iter().all(|&byte| byte == 0));
        }
        // A size no other test uses, so that the two takers meet.
        let first = Buffer::new(3_333_333).unwrap().start();
        assert_eq!(Buffer::new(3_333_333).unwrap().start(), first);
    }

    #[test]
    fn what_was_let_go_of_first_makes_room() {
        let mut recycler = Recycler::default();
        let mut keep = |share: usize| {
            let gone = recycler.keep(NonNull::dangling(), RECYCLE_TOTAL / share);
            assert!(recycler.total <= RECYCLE_TOTAL);
            gone.into_iter().map(|(_, capacity)| RECYCLE_TOTAL / capacity).collect::<Vec<_>>()
        };
        assert_eq!(keep(2), []);
        assert_eq!(keep(4), []);
        assert_eq!(keep(2), [2]);
        assert_eq!(keep(2), [4], "the other of this size came later");
        assert_eq!(keep(1), [2, 2]);
        assert!(recycler.take(RECYCLE_TOTAL).is_some() && recycler.take(RECYCLE_TOTAL).is_none());
        assert_eq!(recycler.total, 0);
    }

    #[test]
    fn one_larger_than_all_others_is_kept_beside_them() {
        let mut recycler = Recycler::default();
        let mut keep = |capacity: usize| recycler.keep(NonNull::dangling(), capacity).len();
        let (giant, larger) = (RECYCLE_TOTAL + 64, RECYCLE_TOTAL + 128);
        assert_eq!([keep(RECYCLE_TOTAL), keep(giant), keep(1 << 20), keep(larger)], [0, 0, 1, 1]);
        assert!(recycler.take(giant).is_none(), "the last one is kept");
        assert!(recycler.take(larger).is_some() && recycler.take(larger).is_none());
        assert_eq!(recycler.total, 1 << 20);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn large_memory_is_not_touched_before_it_is_used() {
        let resident = || -> usize {
            let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
            statm.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 4096
        };
        let before = resident();
        let _buffers: Vec<Buffer> = (0..8).map(|_| Buffer::zeroed(512 << 20).unwrap()).collect();
        assert!(resident() < before + (1 << 30), "four gigabytes that nobody has written to");
    }

    #[test]
    fn a_terabyte_is_refused() {
        assert_eq!(Buffer::new(1 << 50).err().unwrap().code, crate::Code::ResourceExhausted);
    }
}

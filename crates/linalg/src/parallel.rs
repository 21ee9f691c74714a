//! The one compute pool: whole kernels are spawned on it, and loops inside kernels spread over it.
//!
//! A loop's caller always takes part and never waits for a helper that has not started, so loops nest freely and a
//! busy pool only makes them less parallel. Idle threads look for work for a while, as long as that
//! pays, then sleep.
//!
//! The pool knows nothing of priorities or of cancelling: what was spawned runs.

use crate::crowd::Crowd;
use crate::denormals::FlushDenormals;
use crossbeam_deque::{Injector, Steal, Stealer, Worker};
use parking_lot::{Condvar, Mutex};
use std::any::Any;
use std::cell::{OnceCell, RefCell};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Weak};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// A handle on the compute threads; they end when the last handle is dropped and nothing is left to run.
#[derive(Clone)]
pub struct Pool {
    handle: Option<Arc<Handle>>,
}

impl Pool {
    /// A pool of `threads` threads; a loop uses at most that many, its caller included.
    pub fn new(threads: usize) -> Pool {
        let threads = threads.max(1);
        let deques: Vec<Worker<Task>> = (0..threads).map(|_| Worker::new_fifo()).collect();
        let shared = Arc::new(Shared {
            spawned: Injector::new(),
            helps: Injector::new(),
            stealers: deques.iter().map(Worker::stealer).collect(),
            searching: AtomicUsize::new(0),
            helping: AtomicUsize::new(0),
            asleep: AtomicUsize::new(0),
            wakeups: Mutex::new(0),
            wake: Condvar::new(),
            closed: AtomicBool::new(false),
        });
        for (index, deque) in deques.into_iter().enumerate() {
            let shared = shared.clone();
            std::thread::Builder::new()
                .name(format!("compute-{index}"))
                .stack_size(8 << 20)
                .spawn(move || work(shared, index, deque))
                .expect("the system refuses a thread: no computation is possible");
        }
        Pool { handle: Some(Arc::new(Handle { shared, threads, crowd: Crowd::new() })) }
    }

    /// A pool without threads: everything runs on the caller, `spawn` at once.
    pub fn inline() -> Pool {
        Pool { handle: None }
    }

    /// Whether all work is done by whoever asks for it.
    pub fn is_inline(&self) -> bool {
        self.handle.is_none()
    }

    /// How many threads a loop can use.
    pub fn threads(&self) -> usize {
        self.handle.as_ref().map_or(1, |handle| handle.threads)
    }

    /// Whether other threads would only take the core from those who work: then it is better not to wake any.
    pub fn is_crowded(&self) -> bool {
        self.handle.as_ref().is_some_and(|handle| handle.crowd.is_crowded())
    }

    /// Whether a thread looks for work at this moment: it joins a loop at once, while others have to be woken.
    pub fn is_awake(&self) -> bool {
        self.handle.as_ref().is_some_and(|handle| handle.shared.looking() > 0)
    }

    /// Says that the calling thread waits for what runs on this pool: a [`Helper`] may then join its loops.
    pub fn await_here(&self) {
        if let Some(handle) = &self.handle {
            AWAITED.with_borrow_mut(|awaited| {
                if awaited.as_ptr() != Arc::as_ptr(&handle.shared) {
                    *awaited = Arc::downgrade(&handle.shared);
                }
            });
        }
    }

    /// Runs the work on a thread of the pool, never on the caller (unless the pool is `inline`).
    pub fn spawn(&self, work: Box<dyn FnOnce() + Send>) {
        match &self.handle {
            None => work(),
            Some(handle) => handle.shared.push(Task::Run(work)),
        }
    }

    /// Calls `body` on disjoint ranges that cover `0..len`, in parallel, each of `grain` elements or more (but for
    /// the last), and returns when all are done. A grain is worth some ten microseconds; if it is one element, any
    /// time. A panic in `body` is passed on to the caller.
    #[inline]
    pub fn for_each<F: Fn(Range<usize>) + Sync>(&self, len: usize, grain: usize, body: &F) {
        self.spread(len, grain, body);
    }

    fn spread(&self, len: usize, grain: usize, body: &dyn Body) {
        let grain = grain.max(1);
        let is_short = grain > 1 && len < grain.saturating_mul(WORTH_WAKING);
        let is_alone = len <= grain || is_short && !self.is_awake();
        let helped = |handle: &&Arc<Handle>| !is_alone && handle.threads > 1 && !handle.crowd.is_crowded();
        let Some(handle) = self.handle.as_ref().filter(helped) else {
            if len > 0 {
                body.run(0..len);
            }
            return;
        };
        let chunk = (len / (handle.threads * PIECES_PER_THREAD)).max(grain);
        let pieces = len.div_ceil(chunk);
        let spread = Arc::new(Spread {
            body: erase_lifetime(body),
            next: AtomicUsize::new(0),
            finished: AtomicUsize::new(0),
            pieces,
            chunk,
            len,
            caller: std::thread::current(),
            panic: Mutex::new(None),
        });
        for _ in 1..handle.threads.min(pieces) {
            handle.shared.push(Task::Help(spread.clone()));
        }
        spread.take_part();
        spread.wait();
        if let Some(panic) = spread.panic.lock().take() {
            resume_unwind(panic);
        }
    }

    /// Calls `body` on pieces of `out` with the index of each piece's first element, in parallel.
    #[inline]
    pub fn for_each_mut<T: Send, F: Fn(usize, &mut [T]) + Sync>(&self, out: &mut [T], grain: usize, body: &F) {
        self.spread_mut(out, grain, body);
    }

    fn spread_mut<T: Send>(&self, out: &mut [T], grain: usize, body: &dyn Part<T>) {
        let len = out.len();
        let out = SharedMut::new(out);
        self.for_each(len, grain, &|range| {
            // SAFETY: `for_each` hands out disjoint ranges within `0..len`.
            let piece = unsafe { out.slice(range.clone()) };
            body.run(range.start, piece);
        });
    }

    /// Calls `body` on whole rows of `out`, `row` elements each, with the index of the first row, in parallel;
    /// `grain` counts rows.
    #[inline]
    pub fn for_each_row<T: Send, F: Fn(usize, &mut [T]) + Sync>(
        &self,
        out: &mut [T],
        row: usize,
        grain: usize,
        body: &F,
    ) {
        self.spread_rows(out, row, grain, body);
    }

    fn spread_rows<T: Send>(&self, out: &mut [T], row: usize, grain: usize, body: &dyn Part<T>) {
        if row == 0 || out.is_empty() {
            return;
        }
        let rows = out.len() / row;
        let out = SharedMut::new(&mut out[..rows * row]);
        self.for_each(rows, grain, &|range| {
            // SAFETY: disjoint ranges of rows are disjoint ranges of elements.
            let piece = unsafe { out.slice(range.start * row..range.end * row) };
            body.run(range.start, piece);
        });
    }
}

// Closures as objects with one method: those of `Fn` have three, and there are thousands of loops.

/// What is done for a range.
trait Body: Sync {
    fn run(&self, range: Range<usize>);
}

impl<F: Fn(Range<usize>) + Sync> Body for F {
    fn run(&self, range: Range<usize>) {
        self(range);
    }
}

/// What is done to a part of a slice, which begins at an index.
trait Part<T>: Sync {
    fn run(&self, start: usize, part: &mut [T]);
}

impl<T, F: Fn(usize, &mut [T]) + Sync> Part<T> for F {
    fn run(&self, start: usize, part: &mut [T]) {
        self(start, part);
    }
}

/// A loop is cut into this many pieces per thread, so that a thread that is held up does not hold up the loop.
const PIECES_PER_THREAD: usize = 8;
/// A loop of fewer grains is over before a thread that sleeps has woken up and found its part.
const WORTH_WAKING: usize = 8;
/// How long an idle thread looks for work before it sleeps, as long as it finds some: a step's pauses between large loops are
/// shorter, and who is asleep is woken only for loops that are longer than waking takes.
const SEARCH: Duration = Duration::from_micros(120);
/// After so many times in a row in which looking was in vain, a thread sleeps at once: others may want its core.
const VAIN_MAX: u32 = 3;
/// A pause up to this long, the time to wake up included, would have been worth looking through.
const SHORT_PAUSE: Duration = SEARCH.saturating_mul(2);

/// A mutable slice whose disjoint parts several threads write.
///
/// The caller of `slice` promises that no two live parts overlap.
pub(crate) struct SharedMut<T> {
    start: *mut T,
    len: usize,
}

// SAFETY: only disjoint parts are handed out (`slice`'s contract), so sharing it is sending `&mut [T]` parts.
unsafe impl<T: Send> Sync for SharedMut<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Send for SharedMut<T> {}

impl<T> SharedMut<T> {
    pub(crate) fn new(slice: &mut [T]) -> SharedMut<T> {
        SharedMut { start: slice.as_mut_ptr(), len: slice.len() }
    }

    /// # Safety
    /// Parts alive at the same time must not overlap, and none may outlive the slice it was made from.
    #[allow(clippy::mut_from_ref)]
    pub(crate) unsafe fn slice(&self, range: Range<usize>) -> &mut [T] {
        assert!(range.start <= range.end && range.end <= self.len, "a part must lie within its slice");
        // SAFETY: in bounds by the assertion; exclusive by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(range.start), range.end - range.start) }
    }

    /// Where a part begins, for code that writes only some elements of it.
    pub(crate) fn pointer(&self, range: Range<usize>) -> *mut T {
        assert!(range.start <= range.end && range.end <= self.len, "a part must lie within its slice");
        self.start.wrapping_add(range.start)
    }
}

struct Handle {
    shared: Arc<Shared>,
    threads: usize,
    crowd: Crowd,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::SeqCst);
        let mut wakeups = self.shared.wakeups.lock();
        *wakeups += self.shared.asleep.swap(0, Ordering::SeqCst);
        self.shared.wake.notify_all();
    }
}

enum Task {
    Run(Box<dyn FnOnce() + Send>),
    Help(Arc<Spread>),
}

impl Task {
    fn run(self) {
        match self {
            // A panic has been reported by the hook; the thread goes on with the next task.
            Task::Run(work) => drop(catch_unwind(AssertUnwindSafe(work))),
            Task::Help(spread) => spread.take_part(),
        }
    }
}

/// A loop in progress: whoever takes part claims piece after piece.
struct Spread {
    /// Called only for a claimed piece, which the caller of `for_each` waits for: so never after it returned.
    body: &'static dyn Body,
    next: AtomicUsize,
    finished: AtomicUsize,
    pieces: usize,
    chunk: usize,
    len: usize,
    caller: Thread,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

fn erase_lifetime<'a>(body: &'a (dyn Body + 'a)) -> &'static dyn Body {
    // SAFETY: `Spread` calls the body only between claiming a piece and counting it as finished, and `for_each`,
    // which borrows the body, returns only after every piece is counted.
    unsafe { std::mem::transmute(body) }
}

impl Spread {
    fn take_part(&self) {
        loop {
            let piece = self.next.fetch_add(1, Ordering::Relaxed);
            if piece >= self.pieces {
                return;
            }
            let start = piece * self.chunk;
            let range = start..(start + self.chunk).min(self.len);
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.body.run(range))) {
                self.panic.lock().get_or_insert(panic);
            }
            let caller = self.caller.clone();
            if self.finished.fetch_add(1, Ordering::AcqRel) + 1 == self.pieces {
                caller.unpark();
            }
        }
    }

    fn wait(&self) {
        let mut spins = 0u32;
        while self.finished.load(Ordering::Acquire) < self.pieces {
            spins += 1;
            if spins < 2000 {
                std::hint::spin_loop();
            } else if spins < 2100 {
                std::thread::yield_now();
            } else {
                std::thread::park_timeout(Duration::from_millis(1));
            }
        }
    }
}

struct Shared {
    spawned: Injector<Task>,
    /// Parts of loops come before new work: somebody waits for them.
    helps: Injector<Task>,
    stealers: Vec<Stealer<Task>>,
    /// Threads that look for work, and will see a task pushed now.
    searching: AtomicUsize,
    /// Others that look for parts of loops.
    helping: AtomicUsize,
    /// Threads that sleep and have not been told to wake.
    asleep: AtomicUsize,
    /// How many sleepers have been told to wake and have not done so yet.
    wakeups: Mutex<usize>,
    wake: Condvar,
    closed: AtomicBool,
}

struct Local {
    shared: Arc<Shared>,
    deque: Worker<Task>,
}

thread_local! {
    static LOCAL: OnceCell<Local> = const { OnceCell::new() };
}

impl Shared {
    fn push(self: &Arc<Self>, task: Task) {
        let is_help = matches!(task, Task::Help(_));
        match task {
            Task::Help(_) => self.helps.push(task),
            Task::Run(_) => LOCAL.with(|local| match local.get() {
                Some(local) if Arc::ptr_eq(&local.shared, self) => local.deque.push(task),
                _ => self.spawned.push(task),
            }),
        }
        // Pairs with the fence in `sleep`: either we see the sleeper, or it sees the task.
        fence(Ordering::SeqCst);
        let will_see = if is_help { self.looking() } else { self.searching.load(Ordering::Relaxed) };
        if will_see == 0 {
            self.wake_one();
        }
    }

    /// How many will see a part of a loop that is pushed now.
    fn looking(&self) -> usize {
        self.searching.load(Ordering::Relaxed) + self.helping.load(Ordering::Relaxed)
    }

    fn wake_one(&self) {
        if self.asleep.load(Ordering::SeqCst) == 0 {
            return;
        }
        let mut wakeups = self.wakeups.lock();
        if self.asleep.load(Ordering::SeqCst) > 0 {
            self.asleep.fetch_sub(1, Ordering::SeqCst);
            *wakeups += 1;
            self.wake.notify_one();
        }
    }

    /// Whether as many look as could help a loop, whose caller needs a core too.
    fn is_searched_enough(&self) -> bool {
        self.looking() >= (self.stealers.len() - 1).max(1)
    }

    fn is_empty(&self) -> bool {
        self.helps.is_empty() && self.spawned.is_empty() && self.stealers.iter().all(Stealer::is_empty)
    }

    fn find(&self, index: usize, deque: &Worker<Task>, injected_first: bool) -> Option<Task> {
        if let Some(task) = take(|| self.helps.steal()) {
            return Some(task);
        }
        if injected_first && let Some(task) = take(|| self.spawned.steal()) {
            return Some(task);
        }
        if let Some(task) = deque.pop() {
            return Some(task);
        }
        if let Some(task) = take(|| self.spawned.steal_batch_and_pop(deque)) {
            return Some(task);
        }
        let others = (1..self.stealers.len()).map(|step| (index + step) % self.stealers.len());
        others.into_iter().find_map(|other| take(|| self.stealers[other].steal_batch_and_pop(deque)))
    }

    /// Sleeps until woken; false when the pool is closed and nothing is left.
    fn sleep(&self) -> bool {
        let mut wakeups = self.wakeups.lock();
        self.asleep.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let closed = self.closed.load(Ordering::SeqCst);
        if closed || !self.is_empty() {
            self.asleep.fetch_sub(1, Ordering::SeqCst);
            return !(closed && self.is_empty());
        }
        while *wakeups == 0 {
            self.wake.wait(&mut wakeups);
        }
        *wakeups -= 1;
        true
    }
}

fn take(mut steal: impl FnMut() -> Steal<Task>) -> Option<Task> {
    loop {
        match steal() {
            Steal::Success(task) => return Some(task),
            Steal::Empty => return None,
            Steal::Retry => {}
        }
    }
}

/// What a thread of the pool does all its life.
fn work(shared: Arc<Shared>, index: usize, deque: Worker<Task>) {
    let _flush = FlushDenormals::here();
    LOCAL.with(|local| {
        let local = local.get_or_init(|| Local { shared: shared.clone(), deque });
        let (mut turn, mut hope) = (0u32, Hope::default());
        loop {
            // Now and then the queue of outside work comes first, or work that spawns itself would starve it.
            turn = turn.wrapping_add(1);
            if let Some(task) = shared.find(index, &local.deque, turn.is_multiple_of(32)) {
                task.run();
                continue;
            }
            let start = Instant::now();
            let pays = hope.is_left() && !shared.is_searched_enough();
            let found = if pays { search(&shared, index, &local.deque, start) } else { None };
            if found.is_none() && !shared.sleep() {
                return;
            }
            hope.note(start.elapsed());
            if let Some(task) = found {
                task.run();
            }
        }
    });
}

/// Whether it pays to look for work rather than to sleep at once, judged by how long there was none lately.
#[derive(Default)]
struct Hope {
    in_vain: u32,
}

impl Hope {
    fn is_left(&self) -> bool {
        self.in_vain < VAIN_MAX
    }

    /// Notes for how long there was nothing to do, looked for or slept through.
    fn note(&mut self, idle: Duration) {
        self.in_vain = if idle <= SHORT_PAUSE { 0 } else { self.in_vain.saturating_add(1) };
    }
}

fn search(shared: &Shared, index: usize, deque: &Worker<Task>, start: Instant) -> Option<Task> {
    shared.searching.fetch_add(1, Ordering::SeqCst);
    let mut spins = 0u32;
    let found = loop {
        if let Some(task) = shared.find(index, deque, false) {
            break Some(task);
        }
        spins += 1;
        if !spins.is_multiple_of(32) {
            std::hint::spin_loop();
        } else if shared.closed.load(Ordering::Relaxed) || start.elapsed() > SEARCH {
            break None;
        } else {
            std::thread::yield_now(); // whoever wants this core has it
        }
    };
    // Tasks pushed while we searched woke nobody: whoever stops searching last passes the duty on.
    if shared.searching.fetch_sub(1, Ordering::SeqCst) == 1 && found.is_some() {
        fence(Ordering::SeqCst);
        if !shared.is_empty() {
            shared.wake_one();
        }
    }
    found
}

thread_local! {
    /// Whose loops the calling thread waits for.
    static AWAITED: RefCell<Weak<Shared>> = const { RefCell::new(Weak::new()) };
}

/// A thread that is awake and waits for what runs on a pool, and does a part of it meanwhile: it needs not be woken.
pub struct Helper(Arc<Shared>);

impl Helper {
    /// For the pool that the calling thread waits for, if it does. To be asked often, as long as it lives.
    pub fn here() -> Option<Helper> {
        let shared = AWAITED.with_borrow(Weak::upgrade)?;
        shared.helping.fetch_add(1, Ordering::SeqCst);
        Some(Helper(shared))
    }

    /// Joins a loop, if there is one.
    pub fn help(&self) {
        if let Some(task) = take(|| self.0.helps.steal()) {
            self.0.helping.fetch_sub(1, Ordering::SeqCst);
            self.pass_on();
            let flush = FlushDenormals::here();
            task.run();
            drop(flush);
            self.0.helping.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Loops begun while this thread looked woke nobody.
    fn pass_on(&self) {
        fence(Ordering::SeqCst);
        if self.0.looking() == 0 && !self.0.helps.is_empty() {
            self.0.wake_one();
        }
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.0.helping.fetch_sub(1, Ordering::SeqCst);
        self.pass_on();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;
    use std::sync::{Barrier, mpsc};

    #[test]
    fn a_thread_that_looks_in_vain_stops_looking_until_work_comes_quickly() {
        let mut hope = Hope::default();
        (1..VAIN_MAX).for_each(|_| hope.note(2 * SHORT_PAUSE));
        assert!(hope.is_left());
        hope.note(2 * SHORT_PAUSE);
        assert!(!hope.is_left());
        hope.note(SHORT_PAUSE / 2);
        assert!(hope.is_left());
    }

    #[test]
    fn a_loop_covers_its_range_once() {
        for threads in [1, 2, 4] {
            let pool = Pool::new(threads);
            for (len, grain) in [(0, 1), (1, 1), (7, 3), (1000, 1), (1000, 999), (1000, 1000), (4096, 10)] {
                let mut hits = vec![0u8; len];
                pool.for_each_mut(&mut hits, grain, &|_, part| part.iter_mut().for_each(|hit| *hit += 1));
                assert!(hits.iter().all(|&hit| hit == 1), "threads {threads} len {len} grain {grain}");
            }
        }
    }

    #[test]
    fn a_thread_that_waits_joins_loops_while_the_pool_is_busy() {
        assert!(Helper::here().is_none(), "it waits for nobody");
        let pool = Pool::new(2);
        let (release, busy) = (Arc::new(Barrier::new(3)), Arc::new(Barrier::new(3)));
        for _ in 0..2 {
            let (release, busy) = (release.clone(), busy.clone());
            pool.spawn(Box::new(move || {
                busy.wait();
                release.wait();
            }));
        }
        busy.wait();
        pool.await_here();
        let helper = Helper::here().unwrap();
        assert!(pool.is_awake());
        let both = Barrier::new(2);
        std::thread::scope(|scope| {
            // Each piece waits for the other one.
            let caller = scope.spawn(|| pool.for_each(2, 1, &|_| _ = both.wait()));
            while !caller.is_finished() {
                helper.help();
                std::thread::yield_now();
            }
        });
        drop(helper);
        assert!(!pool.is_awake());
        release.wait();
    }

    #[test]
    fn whole_kernels_are_not_left_to_a_thread_that_waits() {
        let pool = Pool::new(1);
        pool.await_here();
        let _helper = Helper::here().unwrap();
        let (done, end) = mpsc::channel();
        pool.spawn(Box::new(move || done.send(()).unwrap()));
        end.recv_timeout(Duration::from_secs(60)).unwrap();
    }

    #[test]
    fn loops_nest() {
        let pool = Pool::new(3);
        let count = AtomicU64::new(0);
        pool.for_each(20, 1, &|outer| {
            for _ in outer {
                pool.for_each(50, 1, &|inner| {
                    count.fetch_add(inner.len() as u64, Ordering::Relaxed);
                });
            }
        });
        assert_eq!(count.into_inner(), 1000);
    }

    #[test]
    fn a_panic_in_a_loop_reaches_its_caller_and_spares_the_pool() {
        let pool = Pool::new(2);
        let result = catch_unwind(AssertUnwindSafe(|| {
            pool.for_each(100, 1, &|range| assert!(!range.contains(&50), "piece with fifty"));
        }));
        assert!(result.is_err());
        let count = AtomicU64::new(0);
        pool.for_each(100, 1, &|range| {
            count.fetch_add(range.len() as u64, Ordering::Relaxed);
        });
        assert_eq!(count.into_inner(), 100);
    }

    #[test]
    fn spawned_work_runs_on_another_thread_even_when_it_spawns_itself() {
        fn again(pool: &Pool, left: u32, done: mpsc::Sender<std::thread::ThreadId>) {
            let next = pool.clone();
            pool.spawn(Box::new(move || {
                if left == 0 {
                    done.send(std::thread::current().id()).unwrap();
                } else {
                    again(&next, left - 1, done);
                }
            }));
        }
        let pool = Pool::new(2);
        let (sender, receiver) = mpsc::channel();
        for _ in 0..8 {
            again(&pool, 1000, sender.clone());
        }
        drop(sender);
        for _ in 0..8 {
            let id = receiver.recv_timeout(Duration::from_secs(20)).expect("spawned work must run");
            assert_ne!(id, std::thread::current().id());
        }
    }

    #[test]
    fn threads_end_when_the_last_handle_is_dropped_on_one_of_them() {
        let pool = Pool::new(2);
        let shared = Arc::downgrade(&pool.handle.as_ref().unwrap().shared);
        let (sender, receiver) = mpsc::channel();
        let last = pool.clone();
        pool.spawn(Box::new(move || {
            receiver.recv().unwrap();
            drop(last);
        }));
        drop(pool);
        sender.send(()).unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        while shared.upgrade().is_some() {
            assert!(Instant::now() < deadline, "threads still hold the pool");
            std::thread::yield_now();
        }
    }

    #[test]
    fn many_sleepy_bursts_lose_no_task() {
        let pool = Pool::new(3);
        for burst in 0..200u64 {
            let (sender, receiver) = mpsc::channel();
            for _ in 0..burst % 7 + 1 {
                let sender = sender.clone();
                pool.spawn(Box::new(move || sender.send(()).unwrap()));
            }
            for _ in 0..burst % 7 + 1 {
                receiver.recv_timeout(Duration::from_secs(20)).expect("every task runs");
            }
            if burst % 20 == 0 {
                std::thread::sleep(Duration::from_micros(300));
            }
        }
    }
}

//! The threads of a process that serve the network: one set for all its servers and clients.
//!
//! There are two kinds. Network threads move bytes, and do with them what can be done at once: a small step passes through
//! one of them from its request to its answer. Whatever takes longer goes to the compute pool, or to step threads: what a
//! network thread has woken meanwhile (a connection with a request to send) must not have to wait for it.

use distributed::brief;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::OnceLock;
use std::task::Poll;
use std::time::{Duration, Instant};
use tensor::Result;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::time::Sleep;

/// The threads that move bytes, started on first use.
pub fn network() -> &'static Handle {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    // Half of the cores: steps that pass through them would only hand each other work over more of them.
    let begin = || {
        keep_freed_memory();
        brief::set_later(|job| put_off(network(), job));
        start("ferroflow-net", cores().div_ceil(2))
    };
    RUNTIME.get_or_init(begin).handle()
}

/// Does a job after all that has been woken so far. A task that is made is next, before what was woken: it gives way first.
fn put_off(threads: &Handle, job: brief::Job) {
    threads.spawn(async {
        tokio::task::yield_now().await;
        brief::briefly(job).value
    });
}

/// The threads for calls that take long, started on first use.
pub fn steps() -> &'static Handle {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| start("ferroflow-step", (cores() + 2).max(4))).handle()
}

/// How many threads can run at once; asked once, since the system looks through several files for it.
pub(crate) fn cores() -> usize {
    static CORES: OnceLock<usize> = OnceLock::new();
    *CORES.get_or_init(|| std::thread::available_parallelism().map_or(1, |n| n.get()))
}

fn start(name: &str, threads: usize) -> Runtime {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(threads).thread_name(name).enable_io().enable_time();
    #[cfg(target_os = "linux")]
    builder.on_thread_park(crate::patience::consider);
    builder.build().expect("the system has threads and an event queue for the network")
}

/// Lets the allocator keep what frames of a megabyte leave: otherwise every one of them is made of fresh pages.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn keep_freed_memory() {
    use std::ffi::c_int;
    unsafe extern "C" {
        fn mallopt(parameter: c_int, value: c_int) -> c_int;
    }
    const TRIM_THRESHOLD: c_int = -1;
    const MMAP_THRESHOLD: c_int = -3;
    // SAFETY: the function takes any two numbers, and what it does not understand it leaves alone.
    unsafe {
        mallopt(TRIM_THRESHOLD, 64 << 20);
        mallopt(MMAP_THRESHOLD, 32 << 20);
    }
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn keep_freed_memory() {}

/// A timer that may be made and waited for on any thread.
pub fn sleep(time: Duration) -> Sleep {
    let _context = network().enter();
    tokio::time::sleep(time)
}

/// The outcome of a future, or `None` if this time passes first. May be waited for on any thread. A large future stays with its
/// owner, pinned: here it would be once more.
pub async fn within<F: Future + Unpin>(limit: Option<Duration>, mut future: F) -> Option<F::Output> {
    let Some(end) = limit.and_then(|limit| Instant::now().checked_add(limit)) else { return Some(future.await) };
    let mut timer = None;
    poll_fn(|cx| {
        if let Poll::Ready(output) = Pin::new(&mut future).poll(cx) {
            return Poll::Ready(Some(output));
        }
        // A thread that is blocked on this looks at the clock itself, and the network's threads are left in peace.
        #[cfg(target_os = "linux")]
        if crate::drive::wake_at(end) {
            return if Instant::now() >= end { Poll::Ready(None) } else { Poll::Pending };
        }
        let left = || Box::pin(sleep(end.saturating_duration_since(Instant::now())));
        timer.get_or_insert_with(left).as_mut().poll(cx).map(|()| None)
    })
    .await
}

/// Does this when the process is first asked to end, by SIGTERM or SIGINT; asked again, it ends at once.
#[cfg(unix)]
pub fn on_signal(action: impl FnOnce() + Send + 'static) -> Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut terminate, mut interrupt) = {
        let _context = network().enter();
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?)
    };
    network().spawn(async move {
        let mut asked = async || {
            poll_fn(|cx| match terminate.poll_recv(cx) {
                Poll::Ready(_) => Poll::Ready(SignalKind::terminate()),
                Poll::Pending => interrupt.poll_recv(cx).map(|_| SignalKind::interrupt()),
            })
            .await
        };
        asked().await;
        action();
        let again = asked().await;
        std::process::exit(128 + again.as_raw_value());
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_off_comes_after_what_was_woken() {
        let one = start("one", 1);
        let (tell, told) = std::sync::mpsc::channel();
        let (wake, mut woken) = tokio::sync::mpsc::unbounded_channel();
        let by_woken = tell.clone();
        let waiting = one.spawn(async move {
            while woken.recv().await.is_some() {
                by_woken.send("woken").unwrap();
            }
        });
        let threads = one.handle().clone();
        one.spawn(async move {
            tokio::task::yield_now().await; // the other one waits by now
            wake.send(()).unwrap();
            let by_job = tell.clone();
            put_off(&threads, Box::new(move || by_job.send("put off").unwrap()));
        });
        let next = || told.recv_timeout(Duration::from_secs(60)).unwrap();
        assert_eq!([next(), next()], ["woken", "put off"]);
        one.block_on(waiting).unwrap();
    }

    #[test]
    fn what_is_put_off_is_done_by_the_network_in_a_hurry() {
        let (tell, told) = std::sync::mpsc::channel();
        network(); // which says how things are put off
        brief::later(Box::new(move || {
            let name = std::thread::current().name().map(str::to_string);
            tell.send((name, brief::is_brief())).unwrap();
        }));
        let done = told.recv_timeout(Duration::from_secs(60)).unwrap();
        assert_eq!(done, (Some("ferroflow-net".into()), true));
    }
}

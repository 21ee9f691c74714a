//! A socket that belongs to no event loop: whoever has the time waits for it.
//!
//! A thread does so in `poll`. The network's threads do it through a set of their own with this socket alone, which is part
//! of their event loop for good: to hand the waiting to them, or take it back, is one call of the system and wakes nobody.

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, epoll, eventfd, poll};
use socket2::Socket;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Instant;
use tokio::io::unix::AsyncFd;
use tokio::io::{Interest, ReadBuf};

/// A socket, and what is needed to wait for it.
pub(crate) struct Line {
    socket: Socket,
    /// Whether there may be something to read.
    is_readable: AtomicBool,
    /// Whether the last write had to stop.
    is_full: AtomicBool,
    /// Wakes a thread that waits.
    bell: OwnedFd,
    watch: Arc<Watch>,
}

/// For the network's threads: readable when the socket is ready and they are to know.
pub(crate) struct Watch(OwnedFd);

impl AsRawFd for Watch {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl Watch {
    /// Makes it a part of the network's event loop. To be called on the network's threads.
    pub(crate) fn register(self: Arc<Watch>) -> io::Result<AsyncFd<Arc<Watch>>> {
        // SAFETY: the descriptor is owned, is always the same one, and is closed only after the registration is gone.
        Ok(unsafe { AsyncFd::register_with_interest(self, Interest::READABLE) }?)
    }

    /// Takes note of what it told.
    pub(crate) fn clear(&self) {
        let mut told = [MaybeUninit::uninit(); 1];
        let _ = epoll::wait(&self.0, &mut told, Some(&Timespec::default()));
    }
}

impl Line {
    /// A line over a connected socket.
    pub(crate) fn new(socket: Socket) -> io::Result<Line> {
        socket.set_nonblocking(true)?;
        let watch = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&watch, &socket, epoll::EventData::new_u64(0), epoll::EventFlags::ONESHOT)?;
        Ok(Line {
            socket,
            is_readable: AtomicBool::new(true),
            is_full: AtomicBool::new(false),
            bell: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            watch: Arc::new(Watch(watch)),
        })
    }

    pub(crate) fn watch(&self) -> Arc<Watch> {
        self.watch.clone()
    }

    /// Lets the network's threads know, once, when the socket is ready.
    pub(crate) fn hand_to_network(&self) {
        let writable = if self.is_full() { epoll::EventFlags::OUT } else { epoll::EventFlags::empty() };
        self.set_watch(epoll::EventFlags::IN | epoll::EventFlags::RDHUP | writable);
    }

    /// Lets them know no more.
    pub(crate) fn take_from_network(&self) {
        self.set_watch(epoll::EventFlags::empty());
    }

    fn set_watch(&self, events: epoll::EventFlags) {
        let set = epoll::modify(
            &self.watch.0,
            &self.socket,
            epoll::EventData::new_u64(0),
            events | epoll::EventFlags::ONESHOT,
        );
        set.expect("the socket has been in this set since both were made");
    }

    /// Whether the last write had to stop: the socket is to be waited for in both directions.
    pub(crate) fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Relaxed)
    }

    /// The next read is worth a call of the system.
    pub(crate) fn expect_bytes(&self) {
        self.is_readable.store(true, Ordering::Relaxed);
    }

    /// What the socket is waited for.
    fn wanted(&self) -> PollFlags {
        let writable = if self.is_full() { PollFlags::OUT } else { PollFlags::empty() };
        PollFlags::IN | PollFlags::RDHUP | writable
    }

    /// Whether the socket is ready for what it is waited for.
    pub(crate) fn is_ready(&self) -> bool {
        let mut socket = [PollFd::new(&self.socket, self.wanted())];
        matches!(poll(&mut socket, Some(&Timespec::default())), Ok(1))
    }

    /// Waits on the calling thread until the socket is ready, the bell rings, or the time is over. May end early.
    pub(crate) fn wait(&self, until: Option<Instant>) {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        let mut fds = [PollFd::new(&self.socket, self.wanted()), PollFd::new(&self.bell, PollFlags::IN)];
        let _ = poll(&mut fds, left.as_ref());
        if !fds[0].revents().is_empty() {
            self.expect_bytes();
        }
        if !fds[1].revents().is_empty() {
            let _ = rustix::io::read(&self.bell, &mut [0u8; 8]);
        }
    }

    /// Wakes the thread that waits.
    pub(crate) fn ring(&self) {
        // Fails only if it has been rung very often already.
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }

    pub(crate) fn read(&self, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if !self.is_readable.load(Ordering::Relaxed) {
            return Poll::Pending;
        }
        let room = buf.remaining();
        match retry(|| receive(&self.socket, buf)) {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                self.is_readable.store(false, Ordering::Relaxed);
                Poll::Pending
            }
            Err(e) => Poll::Ready(Err(e)),
            Ok(len) => {
                // With room left there was no more; what comes later, or the end, is waited for as anything else.
                self.is_readable.store(len == 0 || len == room, Ordering::Relaxed);
                Poll::Ready(Ok(()))
            }
        }
    }

    pub(crate) fn write(&self, bufs: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        match retry(|| self.socket.send_vectored(bufs)) {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                self.is_full.store(true, Ordering::Relaxed);
                Poll::Pending
            }
            result => {
                self.is_full.store(false, Ordering::Relaxed);
                Poll::Ready(result)
            }
        }
    }

    pub(crate) fn shutdown(&self) -> io::Result<()> {
        self.socket.shutdown(Shutdown::Write)
    }
}

/// Reads into memory that was never written.
pub(crate) fn receive(socket: &Socket, buf: &mut ReadBuf<'_>) -> io::Result<usize> {
    // SAFETY: nothing is read from this memory, and only what was received is taken to be written.
    let len = socket.recv(unsafe { buf.unfilled_mut() })?;
    // SAFETY: the call has just written this many bytes.
    unsafe { buf.assume_init(len) };
    buf.advance(len);
    Ok(len)
}

/// Calls again after an interruption by a signal.
pub(crate) fn retry<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

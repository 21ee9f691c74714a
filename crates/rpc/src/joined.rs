//! Small writes that leave together: HTTP/2 writes frame by frame, and a system call for each would cost more than the
//! frame.
//!
//! What is written is kept until it is flushed. Who answers several calls at a time has a [`Hold`], by which a flush is put
//! off until the last of them is answered.

use bytes::{Buf, BytesMut};
use std::io::{self, IoSlice};
use std::iter;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// How much is kept; what is longer goes to the socket by itself.
const KEPT_MAX: usize = 16 << 10;

/// A connection whose small writes are joined.
pub struct Joined<S> {
    inner: S,
    kept: BytesMut,
    hold: Hold,
}

/// Puts off the flushes of a connection.
#[derive(Clone, Default)]
pub struct Hold(Arc<State>);

#[derive(Default)]
struct State {
    is_on: AtomicBool,
    has_put_off: AtomicBool,
}

impl Hold {
    /// From now on, flushes are put off or not.
    pub fn set(&self, is_on: bool) {
        // Only the task that drives the connection looks at these.
        self.0.is_on.store(is_on, Ordering::Relaxed);
    }

    /// Whether a flush was put off and not made up for.
    pub fn has_put_off(&self) -> bool {
        self.0.has_put_off.load(Ordering::Relaxed)
    }

    fn is_on(&self) -> bool {
        self.0.is_on.load(Ordering::Relaxed)
    }

    fn put_off(&self, is_put_off: bool) {
        self.0.has_put_off.store(is_put_off, Ordering::Relaxed);
    }
}

impl<S: AsyncWrite + Unpin> Joined<S> {
    /// Joins what is written to this connection.
    pub fn new(inner: S, hold: Hold) -> Joined<S> {
        Joined { inner, kept: BytesMut::new(), hold }
    }

    fn poll_write_kept(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.kept.is_empty() {
            match ready!(Pin::new(&mut self.inner).poll_write(cx, &self.kept))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => self.kept.advance(written),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Writes what is kept and these, as far as the system takes them; how much of these.
    fn poll_write_through(&mut self, cx: &mut Context<'_>, bufs: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let all: Vec<IoSlice<'_>> =
            iter::once(&*self.kept).chain(bufs.iter().map(|buf| &**buf)).map(IoSlice::new).collect();
        let written = ready!(Pin::new(&mut self.inner).poll_write_vectored(cx, &all))?;
        let of_kept = written.min(self.kept.len());
        self.kept.advance(of_kept);
        match written - of_kept {
            // Of these nothing yet: the rest of what is kept first, which is then as if there had been none.
            0 if of_kept > 0 => {
                ready!(self.poll_write_kept(cx))?;
                Pin::new(&mut self.inner).poll_write_vectored(cx, bufs)
            }
            written => Poll::Ready(Ok(written)),
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Joined<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Joined<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let len: usize = bufs.iter().map(|buf| buf.len()).sum();
        if this.kept.len() + len > KEPT_MAX {
            return this.poll_write_through(cx, bufs);
        }
        bufs.iter().for_each(|buf| this.kept.extend_from_slice(buf));
        Poll::Ready(Ok(len))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.hold.is_on() && !this.kept.is_empty() {
            this.hold.put_off(true);
            return Poll::Ready(Ok(()));
        }
        ready!(this.poll_write_kept(cx))?;
        this.hold.put_off(false);
        Pin::new(&mut this.inner).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_write_kept(cx))?;
        Pin::new(&mut this.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Waker;

    /// Takes so many bytes at a time, and none every other time.
    struct Slow {
        taken: Vec<Vec<u8>>,
        at_a_time: usize,
        is_ready: bool,
    }

    impl AsyncWrite for Slow {
        fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
            self.is_ready = !self.is_ready;
            if !self.is_ready {
                return Poll::Pending;
            }
            let taken = buf[..buf.len().min(self.at_a_time)].to_vec();
            let len = taken.len();
            self.taken.push(taken);
            Poll::Ready(Ok(len))
        }
        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    fn slow(at_a_time: usize) -> (Joined<Slow>, Hold) {
        let hold = Hold::default();
        (Joined::new(Slow { taken: Vec::new(), at_a_time, is_ready: false }, hold.clone()), hold)
    }

    fn cx() -> Context<'static> {
        Context::from_waker(Waker::noop())
    }

    #[test]
    fn small_writes_leave_together_when_they_are_flushed() {
        let (mut joined, hold) = slow(usize::MAX);
        for part in ["one, ", "two, ", "three"] {
            assert!(Pin::new(&mut joined).poll_write(&mut cx(), part.as_bytes()).is_ready());
        }
        hold.set(true);
        assert!(Pin::new(&mut joined).poll_flush(&mut cx()).is_ready());
        assert!(joined.inner.taken.is_empty() && hold.has_put_off());
        hold.set(false);
        assert!(Pin::new(&mut joined).poll_flush(&mut cx()).is_ready());
        assert_eq!(joined.inner.taken, [b"one, two, three".to_vec()]);
        assert!(!hold.has_put_off());
    }

    #[test]
    fn whatever_is_written_arrives_in_order_however_slow_the_socket_is() {
        for at_a_time in [1000, 5000, 40_000] {
            let (mut joined, _) = slow(at_a_time);
            let mut wanted = Vec::new();
            for (round, len) in [10, 20_000, 300, KEPT_MAX, 1, 60_000, 7].into_iter().enumerate() {
                let bytes: Vec<u8> = (0..len).map(|i| (i * 7 + round) as u8).collect();
                wanted.extend_from_slice(&bytes);
                let mut left = &bytes[..];
                while !left.is_empty() {
                    let (first, rest) = left.split_at(left.len() / 3);
                    let slices = [IoSlice::new(first), IoSlice::new(rest)];
                    if let Poll::Ready(written) = Pin::new(&mut joined).poll_write_vectored(&mut cx(), &slices) {
                        left = &left[written.unwrap()..];
                    }
                }
            }
            while Pin::new(&mut joined).poll_flush(&mut cx()).is_pending() {}
            assert!(joined.inner.taken.concat() == wanted, "{at_a_time} at a time");
        }
    }
}

//! Sockets between processes of one user on one machine, which cost less than TCP.
//!
//! A server that listens on an address of this machine alone, or on all, is also found under a name that is made of that
//! address. Names have no file and belong to a network namespace, as loopback itself does. Both ends look at whose the other
//! process is, so that nobody else can take a server's place; if anything about it is not as it should be, TCP is used.

use crate::drive::{receive, retry};
use crate::mapped;
use rustix::process::geteuid;
use socket2::{Domain, SockAddr, Socket, Type};
use std::io::{self, IoSlice};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr};
use std::task::{Context, Poll, ready};
use tokio::io::unix::AsyncFd;
use tokio::io::{Interest, ReadBuf};
use tokio::net::{UnixListener, UnixStream};

/// Connections that wait to be accepted; beyond them clients use TCP.
const BACKLOG: i32 = 4096;

/// Listens for processes on this machine, if the address is one that they would use. To be called on the network's threads.
pub(crate) fn listen(address: SocketAddr) -> Option<UnixListener> {
    let ip = match address.ip() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    let name = name(SocketAddr::new(ip, address.port()))?;
    let listener = || -> io::Result<UnixListener> {
        let socket = Socket::new(Domain::UNIX, Type::STREAM.nonblocking(), None)?;
        socket.bind(&name)?;
        socket.listen(BACKLOG)?;
        UnixListener::from_std(socket.into())
    };
    listener().ok()
}

/// A connection to a process of this user that listens on this address, if there is one. To be called on the network's
/// threads.
pub(crate) fn connect(address: SocketAddr) -> Option<Near> {
    let name = name(address)?;
    let stream = || -> io::Result<UnixStream> {
        let socket = Socket::new(Domain::UNIX, Type::STREAM.nonblocking(), None)?;
        socket.connect(&name)?;
        UnixStream::from_std(socket.into())
    };
    Near::new(stream().ok()?).ok()?
}

/// A connection within this machine.
///
/// Whenever one end reads, the kernel tells the other that there is room to write. It is therefore asked about room only
/// while there is none: to be told each time would wake a process for every message it has sent.
pub struct Near {
    socket: AsyncFd<Socket>,
    /// The same socket, watched for room.
    room: Option<AsyncFd<Socket>>,
    process: Option<Neighbour>,
}

/// A process at the other end, whose memory is let go of with the connection.
struct Neighbour(u32);

impl Drop for Neighbour {
    fn drop(&mut self) {
        mapped::forget(self.0);
    }
}

impl Near {
    /// A connection to a process of this user; none if the other end is somebody else's.
    pub(crate) fn new(stream: UnixStream) -> io::Result<Option<Near>> {
        let peer = stream.peer_cred()?;
        if peer.uid() != geteuid().as_raw() {
            return Ok(None);
        }
        let process = peer.pid().and_then(|process| process.try_into().ok()).map(Neighbour);
        let socket = watched(stream.into_std()?.into(), Interest::READABLE)?;
        Ok(Some(Near { socket, room: None, process }))
    }

    /// The process at the other end, as the system knows it.
    pub(crate) fn process(&self) -> Option<u32> {
        self.process.as_ref().map(|process| process.0)
    }

    pub(crate) fn into_socket(self) -> Socket {
        self.socket.into_inner()
    }

    pub(crate) fn poll_read(&self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let room = buf.remaining();
        loop {
            let mut ready = ready!(self.socket.poll_read_ready(cx))?;
            match retry(|| receive(self.socket.get_ref(), buf)) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => ready.clear_ready(),
                Err(e) => return Poll::Ready(Err(e)),
                Ok(len) => {
                    // With room left there was no more.
                    if 0 < len && len < room {
                        ready.clear_ready();
                    }
                    return Poll::Ready(Ok(()));
                }
            }
        }
    }

    pub(crate) fn poll_write(&mut self, cx: &mut Context<'_>, bufs: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        loop {
            let ready = match &self.room {
                Some(room) => Some(ready!(room.poll_write_ready(cx))?),
                None => None,
            };
            match retry(|| self.socket.get_ref().send_vectored(bufs)) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => match ready {
                    Some(mut ready) => ready.clear_ready(),
                    None => {
                        let socket = self.socket.get_ref().try_clone()?;
                        self.room = Some(watched(socket, Interest::WRITABLE)?);
                    }
                },
                Ok(len) => {
                    if len == bufs.iter().map(|buf| buf.len()).sum::<usize>() {
                        self.room = None;
                    }
                    return Poll::Ready(Ok(len));
                }
                Err(e) => return Poll::Ready(Err(e)),
            }
        }
    }

    pub(crate) fn shutdown(&self) -> io::Result<()> {
        self.socket.get_ref().shutdown(Shutdown::Write)
    }
}

/// Makes a socket a part of the network's event loop.
fn watched(socket: Socket, interest: Interest) -> io::Result<AsyncFd<Socket>> {
    // SAFETY: the socket owns its descriptor, which is always the same one, and closes it only when the registration is gone.
    Ok(unsafe { AsyncFd::register_with_interest(socket, interest) }?)
}

/// With the version of what is spoken: who connects knows that he is understood.
fn name(address: SocketAddr) -> Option<SockAddr> {
    let name = format!("\0ferroflow/direct-1/{address}");
    address.ip().is_loopback().then(|| SockAddr::unix(name).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;

    fn pair() -> (Near, Near) {
        let (a, b) = UnixStream::pair().unwrap();
        let near = |stream| Near::new(stream).unwrap().expect("both ends are this user's");
        (near(a), near(b))
    }

    async fn read(near: &Near, buf: &mut [u8]) -> usize {
        let mut buf = ReadBuf::new(buf);
        poll_fn(|cx| near.poll_read(cx, &mut buf)).await.unwrap();
        buf.filled().len()
    }

    #[test]
    fn what_has_no_room_is_written_when_there_is_some() {
        const LEN: usize = 5_000_000;
        crate::runtime::network().block_on(async {
            let (mut a, b) = pair();
            let reader = tokio::spawn(async move {
                let (mut sum, mut len, mut buf) = (0u64, 0, vec![0; 100_000]);
                loop {
                    match read(&b, &mut buf).await {
                        0 => return (len, sum),
                        n => (len, sum) = (len + n, sum + buf[..n].iter().map(|&byte| u64::from(byte)).sum::<u64>()),
                    }
                }
            });
            let bytes: Vec<u8> = (0..LEN).map(|i| i as u8).collect();
            let (mut written, mut had_to_wait) = (0, false);
            while written < LEN {
                let rest = [IoSlice::new(&bytes[written..])];
                written += poll_fn(|cx| a.poll_write(cx, &rest)).await.unwrap();
                had_to_wait |= a.room.is_some();
            }
            assert!(had_to_wait && a.room.is_none(), "room is watched only while there is none");
            a.shutdown().unwrap();
            assert_eq!(reader.await.unwrap(), (LEN, bytes.iter().map(|&byte| u64::from(byte)).sum()));
        });
    }

    #[test]
    fn an_end_that_goes_is_seen() {
        crate::runtime::network().block_on(async {
            let (mut a, b) = pair();
            poll_fn(|cx| a.poll_write(cx, &[IoSlice::new(b"bye")])).await.unwrap();
            drop(a);
            let mut buf = [0; 10];
            assert_eq!(read(&b, &mut buf).await, 3);
            assert_eq!(read(&b, &mut buf).await, 0);
        });
    }
}

//! Sockets between processes of one user on one machine, which cost less than TCP.
//!
//! A server that listens on an address of this machine alone, or on all, is also found under a name that is made of that
//! address. Names have no file and belong to a network namespace, as loopback itself does. Both ends look at whose the other
//! process is, so that nobody else can take a server's place; if anything about it is not as it should be, TCP is used.

use rustix::process::geteuid;
use socket2::{Domain, SockAddr, Socket, Type};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
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
pub(crate) fn connect(address: SocketAddr) -> Option<UnixStream> {
    let name = name(address)?;
    let stream = || -> io::Result<UnixStream> {
        let socket = Socket::new(Domain::UNIX, Type::STREAM.nonblocking(), None)?;
        socket.connect(&name)?;
        UnixStream::from_std(socket.into())
    };
    stream().ok().filter(is_of_this_user)
}

/// Whether the other end is a process of this user.
pub(crate) fn is_of_this_user(stream: &UnixStream) -> bool {
    stream.peer_cred().is_ok_and(|peer| peer.uid() == geteuid().as_raw())
}

fn name(address: SocketAddr) -> Option<SockAddr> {
    address.ip().is_loopback().then(|| SockAddr::unix(format!("\0ferroflow/{address}")).ok()).flatten()
}

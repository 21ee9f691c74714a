//! A connection under HTTP/2: it looks at where frames begin and end.
//!
//! That is enough to know three things nobody else can tell: that a peer speaks HTTP/2 at all, when its first frame is
//! there, and that it stopped in the middle of one.

#[cfg(target_os = "linux")]
use crate::drive::Line;
#[cfg(target_os = "linux")]
use crate::near::Near;
use socket2::{SockRef, TcpKeepalive};
use std::io::{self, IoSlice};
#[cfg(target_os = "linux")]
use std::net::SocketAddr;
use std::pin::Pin;
#[cfg(target_os = "linux")]
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::{Instant, Sleep, sleep_until};

/// A connection on which nothing moves is asked for a sign of life after this time, and given up after twice as long.
/// The kernel does it: a server of the other kind takes frequent HTTP/2 pings for an attack.
const SIGN_OF_LIFE: Duration = Duration::from_secs(2);
const GIVEN_UP: Duration = Duration::from_secs(4);

/// How long a peer may take over the rest of a frame it began.
const FRAME_TIME: Duration = Duration::from_secs(10);

/// What a client says before its first frame.
const PREFACE_LEN: usize = 24;

/// A connection with an eye on its frames.
pub struct Socket {
    stream: Stream,
    frames: Frames,
    first_frame: Option<oneshot::Sender<()>>,
    patience: Option<Patience>,
}

/// What the bytes go over.
pub enum Stream {
    /// A connection between machines.
    Tcp(TcpStream),
    /// One within a machine.
    #[cfg(target_os = "linux")]
    Near(Near),
    /// Either, moved by whoever has the time rather than by the network's threads.
    #[cfg(target_os = "linux")]
    Line(Arc<Line>),
}

/// For how long the current frame has been unfinished.
pub(crate) struct Patience {
    since: Instant,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Default for Patience {
    fn default() -> Patience {
        Patience { since: Instant::now(), timer: None }
    }
}

impl Socket {
    /// The client's end. The receiver hears when the server's first frame has come.
    pub fn client(stream: Stream) -> io::Result<(Socket, oneshot::Receiver<()>)> {
        stream.configure()?;
        let (first_frame, heard) = oneshot::channel();
        let socket = Socket { stream, frames: Frames::default(), first_frame: Some(first_frame), patience: None };
        Ok((socket, heard))
    }

    /// The server's end, which does not wait for slow peers.
    pub fn server(stream: Stream) -> io::Result<Socket> {
        stream.configure()?;
        let patience = Some(Patience::default());
        Ok(Socket { stream, frames: Frames::after(PREFACE_LEN), first_frame: None, patience })
    }
}

impl Stream {
    /// The process at the other end, if it is one of this user's on this machine.
    pub(crate) fn process(&self) -> Option<u32> {
        match self {
            #[cfg(target_os = "linux")]
            Stream::Near(near) => near.process(),
            _ => None,
        }
    }

    /// Where the other end is, if that may be another machine.
    #[cfg(target_os = "linux")]
    pub(crate) fn far(&self) -> Option<SocketAddr> {
        match self {
            Stream::Tcp(stream) => stream.peer_addr().ok(),
            _ => None,
        }
    }

    pub(crate) fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self {
            Stream::Tcp(stream) => Pin::new(stream).poll_read(cx, buf),
            #[cfg(target_os = "linux")]
            Stream::Near(stream) => stream.poll_read(cx, buf),
            #[cfg(target_os = "linux")]
            Stream::Line(line) => line.read(buf),
        }
    }

    pub(crate) fn poll_write(&mut self, cx: &mut Context<'_>, bufs: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        match self {
            Stream::Tcp(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            #[cfg(target_os = "linux")]
            Stream::Near(stream) => stream.poll_write(cx, bufs),
            #[cfg(target_os = "linux")]
            Stream::Line(line) => line.write(bufs),
        }
    }

    /// The same, moved by whoever has the time.
    #[cfg(target_os = "linux")]
    pub(crate) fn into_line(self) -> io::Result<Arc<Line>> {
        self.configure()?;
        match self {
            Stream::Tcp(stream) => Line::new(stream.into_std()?.into()).map(Arc::new),
            Stream::Near(stream) => Line::new(stream.into_socket()).map(Arc::new),
            Stream::Line(line) => Ok(line),
        }
    }

    /// Sees to it that small writes leave at once, and that it is noticed when the other machine is gone. Of a process on this
    /// one the system knows by itself.
    pub(crate) fn configure(&self) -> io::Result<()> {
        #[cfg_attr(not(target_os = "linux"), expect(irrefutable_let_patterns))]
        let Stream::Tcp(stream) = self else { return Ok(()) };
        stream.set_nodelay(true)?;
        let socket = SockRef::from(stream);
        let keepalive = TcpKeepalive::new().with_time(SIGN_OF_LIFE).with_interval(Duration::from_secs(1));
        #[cfg(target_os = "linux")]
        socket.set_tcp_user_timeout(Some(GIVEN_UP))?;
        socket.set_tcp_keepalive(&keepalive)
    }
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        if this.stream.poll_read(cx, buf)?.is_pending() {
            if let (Some(patience), true) = (&mut this.patience, this.frames.is_unfinished()) {
                ready!(patience.poll_elapsed(cx));
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the peer stopped within a frame")));
            }
            return Poll::Pending;
        }
        let progress = this.frames.read(&buf.filled()[before..])?;
        if this.frames.seen > 0
            && let Some(first_frame) = this.first_frame.take()
        {
            let _ = first_frame.send(());
        }
        if let (Some(patience), true) = (&mut this.patience, progress) {
            patience.renew();
        }
        Poll::Ready(Ok(()))
    }
}

impl Patience {
    /// Something has come.
    pub(crate) fn renew(&mut self) {
        self.since = Instant::now();
    }

    /// Ready when the frame has taken too long. The timer is set once and looks again when it fires.
    pub(crate) fn poll_elapsed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let end = self.since + FRAME_TIME;
            let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(end)));
            ready!(timer.as_mut().poll(cx));
            if Instant::now() >= end {
                return Poll::Ready(());
            }
            timer.as_mut().reset(end);
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.stream.poll_write(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(())) // what is written is on its way
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            #[cfg(target_os = "linux")]
            Stream::Near(stream) => Poll::Ready(stream.shutdown()),
            #[cfg(target_os = "linux")]
            Stream::Line(line) => Poll::Ready(line.shutdown()),
        }
    }
}

const HEADER_LEN: usize = 9;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const CONTINUATION: u8 = 9;
const END_HEADERS: u8 = 4;

/// Follows the frames in a stream of bytes.
#[derive(Default)]
struct Frames {
    /// Left of what comes before the first frame.
    preface: usize,
    header: [u8; HEADER_LEN],
    header_len: usize,
    /// Left of the current frame's payload.
    payload: usize,
    /// Whether a list of headers goes on in the next frame.
    in_headers: bool,
    /// How many frames have begun.
    seen: u64,
}

impl Frames {
    fn after(preface: usize) -> Frames {
        Frames { preface, ..Frames::default() }
    }

    fn is_unfinished(&self) -> bool {
        self.preface > 0 || self.header_len > 0 || self.payload > 0 || self.in_headers
    }

    /// Goes on through these bytes; whether that is progress worth more time: the end of a frame, or any data.
    fn read(&mut self, mut bytes: &[u8]) -> io::Result<bool> {
        let mut progress = false;
        while !bytes.is_empty() {
            let skip = if self.preface > 0 { &mut self.preface } else { &mut self.payload };
            if *skip > 0 {
                let step = bytes.len().min(*skip);
                *skip -= step;
                progress |= *skip == 0 || self.header[3] == DATA;
                bytes = &bytes[step..];
                continue;
            }
            let step = bytes.len().min(HEADER_LEN - self.header_len);
            self.header[self.header_len..][..step].copy_from_slice(&bytes[..step]);
            self.header_len += step;
            bytes = &bytes[step..];
            if self.header_len == HEADER_LEN {
                self.begin()?;
                progress |= !self.is_unfinished();
            }
        }
        Ok(progress)
    }

    fn begin(&mut self) -> io::Result<()> {
        let [a, b, c, kind, flags, ..] = self.header;
        if self.seen == 0 && kind != SETTINGS {
            return Err(self.not_http2());
        }
        self.seen += 1;
        self.header_len = 0;
        self.payload = u32::from_be_bytes([0, a, b, c]) as usize;
        if kind == HEADERS || kind == CONTINUATION {
            self.in_headers = flags & END_HEADERS == 0;
        }
        Ok(())
    }

    fn not_http2(&self) -> io::Error {
        let what = match self.header {
            [0x15, 3, ..] => "it wants TLS".to_string(),
            _ => format!("it begins with \"{}\"", self.header.escape_ascii()),
        };
        io::Error::new(io::ErrorKind::InvalidData, format!("the peer does not speak HTTP/2: {what}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS_FRAME: [u8; 9] = [0, 0, 0, SETTINGS, 0, 0, 0, 0, 0];

    fn frame(kind: u8, flags: u8, payload: usize) -> Vec<u8> {
        let length = (payload as u32).to_be_bytes();
        let mut bytes = vec![length[1], length[2], length[3], kind, flags, 0, 0, 0, 1];
        bytes.resize(HEADER_LEN + payload, 7);
        bytes
    }

    #[test]
    fn frames_are_followed_however_they_are_cut() {
        let mut stream = vec![b'x'; PREFACE_LEN];
        stream.extend(SETTINGS_FRAME);
        stream.extend(frame(HEADERS, 0, 30));
        stream.extend(frame(CONTINUATION, END_HEADERS, 3));
        stream.extend(frame(DATA, 1, 1000));
        for size in [1, 5, 9, 10, 64, 10_000] {
            let mut frames = Frames::after(PREFACE_LEN);
            for part in stream.chunks(size) {
                frames.read(part).unwrap();
            }
            assert_eq!((frames.seen, frames.is_unfinished()), (4, false), "in parts of {size}");
        }
    }

    #[test]
    fn a_peer_within_a_frame_is_seen() {
        let check = |bytes: &[u8], unfinished: bool| {
            let mut frames = Frames::default();
            frames.read(&SETTINGS_FRAME).unwrap();
            frames.read(bytes).unwrap();
            assert_eq!(frames.is_unfinished(), unfinished, "{bytes:?}");
        };
        check(&[], false);
        check(&[0], true);
        check(&frame(HEADERS, END_HEADERS, 5)[..12], true);
        check(&frame(HEADERS, END_HEADERS, 5), false);
        check(&frame(HEADERS, 0, 5), true);
        check(&frame(DATA, 0, 5)[..12], true);
        assert!(Frames::after(PREFACE_LEN).is_unfinished());
    }

    #[test]
    fn only_the_end_of_a_frame_or_data_is_progress() {
        let mut frames = Frames::default();
        assert!(frames.read(&SETTINGS_FRAME).unwrap());
        let headers = frame(HEADERS, END_HEADERS, 5);
        assert!(!frames.read(&headers[..12]).unwrap());
        assert!(frames.read(&headers[12..]).unwrap());
        assert!(frames.read(&frame(DATA, 0, 5)[..12]).unwrap());
    }

    #[test]
    fn other_protocols_are_recognised() {
        let tell = |bytes: &[u8]| Frames::default().read(bytes).unwrap_err().to_string();
        assert!(tell(b"HTTP/1.1 400 Bad Request\r\n").contains("begins with \"HTTP/1.1 \""));
        assert!(tell(&[0x15, 3, 1, 0, 2, 2, 0x46, 0, 0]).contains("wants TLS"));
    }
}

//! What passes over a direct connection: frames of a head, a name, and a message or a part of it.

use crate::socket::Stream;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::ReadBuf;

/// The most of a message that one frame holds: others come in between.
pub(super) const PART_MAX: usize = 256 << 10;
/// What is shorter is copied and leaves in one piece with its neighbours.
const SHARE_MIN: usize = 4 << 10;
/// How much is made ready to be written at a time.
const READY_MAX: usize = 2 * PART_MAX;
/// How much is read at a time, at least.
const READ_MIN: usize = 4 << 10;
/// For how much there is room at first.
const ROOM: usize = 16 << 10;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Kind {
    /// A server's first word.
    Hello,
    /// A call; its path is the name.
    Call,
    /// The answer to a call.
    Answer,
    /// The answer to a call that lasts until the caller resets it.
    Kept,
    /// A call has failed: a code, and the reason.
    Failed,
    /// A call that was not looked at.
    Refused,
    /// The caller wants no answer, or needs what it refers to no longer.
    Reset,
    /// The server takes no further calls.
    Leaving,
}

impl Kind {
    const ALL: [Kind; 8] =
        [Kind::Hello, Kind::Call, Kind::Answer, Kind::Kept, Kind::Failed, Kind::Refused, Kind::Reset, Kind::Leaving];
}

/// A frame that came.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) kind: Kind,
    pub(super) call: u64,
    /// Whether the message ends with it.
    pub(super) is_last: bool,
    pub(super) limit: Option<Duration>,
    pub(super) name: Bytes,
    pub(super) part: Bytes,
}

/// Kind, whether it is the last, the name's length, the part's length, the call, the limit in microseconds.
const HEAD_LEN: usize = 1 + 1 + 2 + 4 + 8 + 8;
const NO_LIMIT: u64 = u64::MAX;

/// Takes frames off a connection.
#[derive(Default)]
pub(super) struct Reader {
    buf: BytesMut,
    /// Of a part that is not waited for as a whole.
    rest: Option<Rest>,
}

/// What is still to come of a part, and whose it is.
#[derive(Clone, Copy, Debug)]
struct Rest {
    kind: Kind,
    call: u64,
    is_last: bool,
    len: usize,
}

impl Rest {
    /// Takes the next bytes.
    fn take(&mut self, part: Bytes) -> Frame {
        self.len -= part.len();
        let is_last = self.is_last && self.len == 0;
        Frame { kind: self.kind, call: self.call, is_last, limit: None, name: Bytes::new(), part }
    }
}

impl Reader {
    /// The call whose bytes come next, if they may be read right to where they belong.
    pub(super) fn rest_of(&self) -> Option<u64> {
        self.rest.filter(|_| self.buf.is_empty()).map(|rest| rest.call)
    }

    /// Reads bytes of [that call](Reader::rest_of) to where they belong; how many, and the frame that they were, which has no
    /// part; nothing at the connection's end.
    pub(super) fn poll_fill_place(
        &mut self,
        place: &mut [u8],
        stream: &mut Stream,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<Option<(usize, Frame)>>> {
        let Some(mut rest) = self.rest else { return Poll::Ready(Ok(None)) };
        let most = place.len().min(rest.len);
        if most == 0 {
            return Poll::Ready(Err(invalid("a message is longer than it says")));
        }
        let mut room = ReadBuf::new(&mut place[..most]);
        ready!(stream.poll_read(cx, &mut room))?;
        let count = room.filled().len();
        rest.len -= count;
        self.rest = Some(rest).filter(|rest| rest.len > 0);
        Poll::Ready(Ok((count > 0).then(|| (count, rest.take(Bytes::new())))))
    }

    /// Reads what there is; false at the end.
    pub(super) fn poll_fill(&mut self, stream: &mut Stream, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        let lens = self.lens().filter(|_| self.rest.is_none());
        let missing = lens.map_or(0, |(name, part)| (HEAD_LEN + name + part).saturating_sub(self.buf.len()));
        if self.buf.capacity() - self.buf.len() < missing.max(READ_MIN) {
            self.buf.reserve(missing.max(ROOM));
        }
        let mut room = ReadBuf::uninit(self.buf.spare_capacity_mut());
        ready!(stream.poll_read(cx, &mut room))?;
        let read = room.filled().len();
        // SAFETY: so many bytes behind the first `len` have just been written.
        unsafe { self.buf.set_len(self.buf.len() + read) };
        Poll::Ready(Ok(read > 0))
    }

    /// Whether a frame has begun and not ended.
    pub(super) fn is_unfinished(&self) -> bool {
        !self.buf.is_empty() || self.rest.is_some()
    }

    /// The next frame, if there is one: a whole one, unless the call is eager for what there is of it. To be called before
    /// more is read.
    pub(super) fn next(&mut self, is_eager: impl Fn(u64) -> bool) -> io::Result<Option<Frame>> {
        if let Some(rest) = &mut self.rest {
            if self.buf.is_empty() {
                return Ok(None);
            }
            let frame = rest.take(self.buf.split_to(rest.len.min(self.buf.len())).freeze());
            self.rest = self.rest.filter(|rest| rest.len > 0);
            return Ok(Some(frame));
        }
        let Some((name_len, part_len)) = self.lens() else { return Ok(None) };
        if part_len > PART_MAX {
            return Err(invalid("a frame is longer than any may be"));
        }
        let has_come = self.buf.len().saturating_sub(HEAD_LEN + name_len).min(part_len);
        let is_whole = self.buf.len() >= HEAD_LEN + name_len + part_len;
        if !is_whole && (has_come == 0 || !is_eager(self.call())) {
            return Ok(None);
        }
        let mut head = self.buf.split_to(HEAD_LEN);
        let kind =
            Kind::ALL.get(head.get_u8() as usize).copied().ok_or_else(|| invalid("a frame is of no known kind"))?;
        let is_last = head.get_u8() != 0;
        head.advance(size_of::<u16>() + size_of::<u32>());
        let (call, limit) = (head.get_u64_le(), head.get_u64_le());
        let limit = (limit != NO_LIMIT).then(|| Duration::from_micros(limit));
        let name = self.buf.split_to(name_len).freeze();
        let part = self.buf.split_to(has_come).freeze();
        self.rest = (!is_whole).then_some(Rest { kind, call, is_last, len: part_len - has_come });
        Ok(Some(Frame { kind, call, is_last: is_last && is_whole, limit, name, part }))
    }

    /// The call of the frame whose head is there.
    fn call(&self) -> u64 {
        self.buf.get(HEAD_LEN - 16..).map_or(0, |mut rest| rest.get_u64_le())
    }

    /// The lengths of the name and the part of the frame whose head is there.
    fn lens(&self) -> Option<(usize, usize)> {
        let head = self.buf.first_chunk::<HEAD_LEN>()?;
        let (name, part) = ([head[2], head[3]], [head[4], head[5], head[6], head[7]]);
        Some((u16::from_le_bytes(name) as usize, u32::from_le_bytes(part) as usize))
    }
}

pub(super) fn invalid(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// A message on its way out.
#[derive(Debug)]
pub(super) struct Leaving {
    pub(super) kind: Kind,
    pub(super) call: u64,
    pub(super) limit: Option<Duration>,
    pub(super) name: &'static str,
    pub(super) body: VecDeque<Bytes>,
}

impl Leaving {
    /// One without a message.
    pub(super) fn bare(kind: Kind, call: u64) -> Leaving {
        Leaving { kind, call, limit: None, name: "", body: VecDeque::new() }
    }

    /// One with a message.
    pub(super) fn with(kind: Kind, call: u64, body: Vec<Bytes>) -> Leaving {
        Leaving { body: body.into(), ..Leaving::bare(kind, call) }
    }
}

/// Puts frames on a connection. Those that are due at one time leave together.
#[derive(Default)]
pub(super) struct Writer {
    messages: VecDeque<Leaving>,
    pieces: VecDeque<Bytes>,
    /// The length of all pieces.
    len: usize,
    small: BytesMut,
}

impl Writer {
    pub(super) fn push(&mut self, message: Leaving) {
        self.messages.push_back(message);
    }

    /// How many messages have not left, nor begun to.
    pub(super) fn num_messages(&self) -> usize {
        self.messages.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.messages.is_empty() && self.pieces.is_empty()
    }

    /// Writes what there is room for. The rest goes when the connection is polled again, for which it is woken.
    pub(super) fn write(&mut self, stream: &mut Stream, cx: &mut Context<'_>) -> io::Result<()> {
        match self.poll_write(stream, cx) {
            Poll::Ready(written) => written,
            Poll::Pending => Ok(()),
        }
    }

    /// Writes all of it; ready when nothing is left.
    pub(super) fn poll_write(&mut self, stream: &mut Stream, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            self.make_ready();
            if self.pieces.is_empty() {
                return Poll::Ready(Ok(()));
            }
            let slices: SmallVec<[IoSlice<'_>; 16]> =
                self.pieces.iter().take(64).map(|piece| IoSlice::new(piece)).collect();
            let mut written = ready!(stream.poll_write(cx, &slices))?;
            drop(slices);
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.len -= written;
            while let Some(first) = self.pieces.front_mut().filter(|_| written > 0) {
                let step = written.min(first.len());
                first.advance(step);
                written -= step;
                if first.is_empty() {
                    self.pieces.pop_front();
                }
            }
        }
    }

    fn make_ready(&mut self) {
        while self.len < READY_MAX
            && let Some(mut message) = self.messages.pop_front()
        {
            if !self.put_frame(&mut message) {
                self.messages.push_back(message);
            }
        }
        self.put_small();
    }

    /// Makes the next frame of a message; whether it is the last.
    fn put_frame(&mut self, message: &mut Leaving) -> bool {
        let left: usize = message.body.iter().map(Bytes::len).sum();
        let mut part = left.min(PART_MAX);
        let limit = message.limit.map_or(NO_LIMIT, |limit| limit.as_micros().min(NO_LIMIT as u128 - 1) as u64);
        let name = std::mem::take(&mut message.name);
        self.small.reserve(HEAD_LEN + name.len());
        self.small.put_u8(message.kind as u8);
        self.small.put_u8((part == left).into());
        self.small.put_u16_le(name.len() as u16);
        self.small.put_u32_le(part as u32);
        self.small.put_u64_le(message.call);
        self.small.put_u64_le(limit);
        self.small.put_slice(name.as_bytes());
        self.len += HEAD_LEN + name.len() + part;
        while let Some(first) = message.body.front_mut().filter(|_| part > 0) {
            let taken = first.split_to(part.min(first.len()));
            part -= taken.len();
            if first.is_empty() {
                message.body.pop_front();
            }
            if taken.len() < SHARE_MIN {
                self.small.put_slice(&taken);
            } else {
                self.put_small();
                self.pieces.push_back(taken);
            }
        }
        message.body.is_empty()
    }

    fn put_small(&mut self) {
        if !self.small.is_empty() {
            self.pieces.push_back(self.small.split().freeze());
        }
    }
}

/// Two ends of a connection. To be called on the network's threads.
#[cfg(test)]
pub(super) fn pair() -> (Stream, Stream) {
    use crate::near::Near;
    let (a, b) = tokio::net::UnixStream::pair().unwrap();
    let near = |stream| Stream::Near(Near::new(stream).unwrap().expect("both ends are this user's"));
    (near(a), near(b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;
    use std::future::poll_fn;

    async fn frames(reader: &mut Reader, stream: &mut Stream) -> io::Result<Vec<Frame>> {
        let mut found = Vec::new();
        loop {
            while let Some(frame) = reader.next(|_| false)? {
                found.push(frame);
            }
            if !poll_fn(|cx| reader.poll_fill(stream, cx)).await? {
                return Ok(found);
            }
        }
    }

    #[test]
    fn messages_arrive_whole_and_short_ones_pass_long_ones() {
        crate::runtime::network().block_on(async {
            let (mut from, mut to) = pair();
            let mut writer = Writer::default();
            let long: Vec<u8> = (0..3 * READY_MAX + 77).map(|i| (i * 31) as u8).collect();
            let short = b"short".to_vec();
            let limit = Some(Duration::from_micros(1_234_567));
            let (first, rest) = long.split_at(5);
            let body = VecDeque::from([Bytes::copy_from_slice(first), Bytes::copy_from_slice(rest)]);
            writer.push(Leaving { kind: Kind::Call, call: 7, limit, name: "/a/B", body });
            writer.push(Leaving::with(Kind::Answer, 8, vec![short.clone().into()]));
            writer.push(Leaving::bare(Kind::Reset, 9));
            let sending = tokio::spawn(async move {
                poll_fn(|cx| writer.poll_write(&mut from, cx)).await.unwrap();
                assert!(writer.is_empty());
            });
            let mut reader = Reader::default();
            let frames = frames(&mut reader, &mut to).await.unwrap();
            sending.await.unwrap();
            assert!(!reader.is_unfinished());
            let mut bodies: HashMap<u64, Vec<u8>> = HashMap::new();
            for frame in &frames {
                bodies.entry(frame.call).or_default().extend_from_slice(&frame.part);
            }
            assert!(bodies[&7] == long && bodies[&8] == short && bodies[&9].is_empty());
            let (head, last) = (&frames[0], &frames[frames.len() - 1]);
            assert_eq!((head.kind, head.limit, &head.name[..], head.is_last), (Kind::Call, limit, &b"/a/B"[..], false));
            assert_eq!((last.call, last.is_last, last.name.len()), (7, true, 0), "the others did not wait for it");
        });
    }

    #[test]
    fn what_is_no_frame_is_refused() {
        crate::runtime::network().block_on(async {
            let head = |kind: u8, part: u32| {
                let mut head = vec![kind, 1, 0, 0];
                head.extend_from_slice(&part.to_le_bytes());
                head.extend_from_slice(&[0; 16]);
                head
            };
            for (what, bytes) in [("kind", head(99, 0)), ("length", head(1, PART_MAX as u32 + 1))] {
                let (mut from, mut to) = pair();
                poll_fn(|cx| from.poll_write(cx, &[IoSlice::new(&bytes)])).await.unwrap();
                drop(from);
                let found = frames(&mut Reader::default(), &mut to).await;
                assert_eq!(found.unwrap_err().kind(), io::ErrorKind::InvalidData, "{what}");
            }
            let (mut from, mut to) = pair();
            poll_fn(|cx| from.poll_write(cx, &[IoSlice::new(&head(1, 100))])).await.unwrap();
            drop(from);
            let mut reader = Reader::default();
            assert!(frames(&mut reader, &mut to).await.unwrap().is_empty() && reader.is_unfinished());
        });
    }
}

//! Reading one message from the frames of a stream.
//!
//! Memory grows with what arrives, never with what a header claims, and the sender's window is opened as its frames
//! are taken up.

use crate::budget::Held;
use crate::pieces::{MESSAGE_MAX, PREFIX, Pieces};
use bytes::{Buf, Bytes};
use flate2::bufread::{GzDecoder, ZlibDecoder};
use h2::RecvStream;
use http::{HeaderMap, HeaderName};
use std::io::Read;
use std::time::{Duration, Instant};
use tensor::{ArrivingTensor, Result, deadline_exceeded, exhausted, internal, unsupported};

/// How the header `grpc-encoding` says that messages are packed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Encoding {
    /// Not at all.
    Identity,
    /// A gzip stream.
    Gzip,
    /// A zlib stream.
    Deflate,
}

/// The name of that header.
pub static GRPC_ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");

impl Encoding {
    /// What can be read, for the header `grpc-accept-encoding`.
    pub const ACCEPTED: &str = "identity,deflate,gzip";

    /// Reads the header.
    pub fn of(headers: &HeaderMap) -> Result<Encoding> {
        match headers.get(&GRPC_ENCODING).map(|value| value.as_bytes()) {
            None | Some(b"identity") => Ok(Encoding::Identity),
            Some(b"gzip") => Ok(Encoding::Gzip),
            Some(b"deflate") => Ok(Encoding::Deflate),
            Some(other) => Err(unsupported!(
                "messages are packed with '{}'; understood are {}",
                String::from_utf8_lossy(other),
                Encoding::ACCEPTED
            )),
        }
    }

    fn unpack(self, packed: Pieces) -> Result<Pieces> {
        let limit = packed.len().saturating_mul(UNPACKED_RATIO_MAX).saturating_add(UNPACKED_FREE).min(MESSAGE_MAX);
        match self {
            Encoding::Identity => Err(internal!("a message is marked as packed, but the call does not say how")),
            Encoding::Gzip => inflate(GzDecoder::new(packed.reader()), limit),
            Encoding::Deflate => inflate(ZlibDecoder::new(packed.reader()), limit),
        }
    }
}

/// A packed message may become this large in any case, and then by this factor: real data does not shrink further, a
/// bomb does.
const UNPACKED_FREE: usize = 64 << 20;
const UNPACKED_RATIO_MAX: usize = 100;
/// Unpacked data is gathered in pieces of this size.
const UNPACKED_PIECE: usize = 256 << 10;

fn inflate(mut source: impl Read, limit: usize) -> Result<Pieces> {
    let mut pieces = Pieces::default();
    loop {
        let mut piece = Vec::new();
        let read = source.by_ref().take(UNPACKED_PIECE as u64).read_to_end(&mut piece);
        read.map_err(|e| internal!("a packed message does not unpack: {e}"))?;
        if piece.is_empty() {
            return Ok(pieces);
        }
        if pieces.len() + piece.len() > limit {
            return Err(exhausted!("a packed message unpacks to more than {limit} bytes"));
        }
        pieces.push(Bytes::from(piece));
    }
}

/// How long a sender may be silent, and how slow it may be on the whole after that time.
const SILENCE_MAX: Duration = Duration::from_secs(10);
const BYTES_PER_SECOND_MIN: u64 = 16 << 10;

/// Takes the frames of one message off a stream.
pub struct Incoming {
    stream: Source,
    encoding: Encoding,
    pace: Option<Pace>,
    has_left: bool,
}

/// Where frames come from.
enum Source {
    Stream(RecvStream),
    /// All have come.
    Here(Pieces),
    /// They have come, as the content of the one tensor that the message holds.
    Tensor(Option<ArrivingTensor>),
}

/// For senders that are not waited for, nor trusted with all our memory.
pub(crate) struct Pace {
    started: Instant,
    received: u64,
    held: Held,
}

impl Incoming {
    /// The message that follows these headers.
    pub fn new(stream: RecvStream, headers: &HeaderMap) -> Result<Incoming> {
        let stream = Source::Stream(stream);
        Ok(Incoming { stream, encoding: Encoding::of(headers)?, pace: None, has_left: false })
    }

    /// A message that has come as a whole.
    pub fn here(message: Pieces) -> Incoming {
        Incoming { stream: Source::Here(message), encoding: Encoding::Identity, pace: None, has_left: false }
    }

    /// A message that has come as a whole, and is nothing but this tensor.
    pub fn tensor(tensor: ArrivingTensor) -> Incoming {
        let stream = Source::Tensor(Some(tensor));
        Incoming { stream, encoding: Encoding::Identity, pace: None, has_left: false }
    }

    /// The tensor, if that is all that the message is, and as such it has come.
    pub fn take_tensor(&mut self) -> Option<ArrivingTensor> {
        match &mut self.stream {
            Source::Tensor(tensor) => tensor.take(),
            _ => None,
        }
    }

    /// Gives up on a sender that dawdles, or sends more than can be held. To be awaited on the network's own threads.
    pub fn paced(mut self, held: Held) -> Incoming {
        self.pace = Some(Pace::new(held));
        self
    }

    /// The next bytes, or `None` at the end.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, Broken> {
        let stream = match &mut self.stream {
            Source::Stream(stream) => stream,
            Source::Here(message) => return Ok(message.pop()),
            Source::Tensor(_) => return Ok(None),
        };
        let next = match &mut self.pace {
            None => stream.data().await,
            Some(pace) => pace.keep(stream.data()).await?,
        };
        let Some(chunk) = next.transpose()? else { return Ok(None) };
        // Fails only on a stream that is over, where no window matters any more.
        let _ = stream.flow_control().release_capacity(chunk.len());
        Ok(Some(chunk))
    }

    /// The message of a stream that its receiver ends: what follows is not waited for.
    pub async fn message_and_leave(&mut self) -> Result<Option<Pieces>, Broken> {
        self.has_left = true;
        self.message().await
    }

    /// Whether the stream is to be ended by us.
    pub fn has_left(&self) -> bool {
        self.has_left
    }

    /// Whether the sender has ended the stream, and all of it has come.
    pub fn is_over(&self) -> bool {
        match &self.stream {
            Source::Stream(stream) => stream.is_end_stream(),
            Source::Here(_) | Source::Tensor(_) => true,
        }
    }

    /// What follows the message.
    pub async fn trailers(&mut self) -> Result<Option<HeaderMap>, h2::Error> {
        match &mut self.stream {
            Source::Stream(stream) => stream.trailers().await,
            Source::Here(_) | Source::Tensor(_) => Ok(None),
        }
    }

    /// The whole message, or `None` if the stream ends without one.
    pub async fn message(&mut self) -> Result<Option<Pieces>, Broken> {
        match &mut self.stream {
            Source::Tensor(_) => Ok(None),
            Source::Here(message) if message.is_empty() => Ok(None),
            Source::Here(message) => Ok(Some(whole(std::mem::take(message))?)),
            // Apart, so that what is here takes no room for it.
            Source::Stream(_) => Box::pin(self.message_after(Pieces::default(), None)).await,
        }
    }

    /// The whole message, when some of it has been taken already: what is left of that, and the prefix.
    pub async fn message_after(
        &mut self,
        mut pieces: Pieces,
        mut announced: Option<(bool, usize)>,
    ) -> Result<Option<Pieces>, Broken> {
        while let Some(chunk) = self.chunk().await? {
            pieces.gather(chunk);
            if announced.is_none() && pieces.len() >= PREFIX {
                announced = Some(prefix(&mut pieces)?);
            }
            if announced.is_some_and(|(_, len)| pieces.len() > len) {
                return Err(internal!("a unary call carries more than one message").into());
            }
            if self.has_left && announced.is_some_and(|(_, len)| pieces.len() == len) {
                break;
            }
        }
        match announced {
            None if pieces.is_empty() => Ok(None),
            Some((packed, len)) if pieces.len() == len => {
                Ok(Some(if packed { self.encoding.unpack(pieces)? } else { pieces }))
            }
            Some((_, len)) => {
                Err(internal!("a message of {len} bytes was announced, only {} came", pieces.len()).into())
            }
            None => Err(internal!("a message ends within its first {PREFIX} bytes").into()),
        }
    }
}

impl Pace {
    /// From now on.
    pub(crate) fn new(held: Held) -> Pace {
        Pace { started: Instant::now(), received: 0, held }
    }

    /// So many bytes have come.
    pub(crate) fn take(&mut self, bytes: usize) -> Result<()> {
        self.held.grow(bytes)?;
        self.received += bytes as u64;
        Ok(())
    }

    /// Fails once the sender has been too slow on the whole.
    pub(crate) fn check(&self) -> Result<()> {
        let overtime = self.started.elapsed().saturating_sub(SILENCE_MAX).as_secs();
        if self.received < overtime * BYTES_PER_SECOND_MIN { Err(self.too_slow()) } else { Ok(()) }
    }

    fn too_slow(&self) -> tensor::Error {
        let (received, time) = (self.received, self.started.elapsed().as_secs());
        deadline_exceeded!("only {received} bytes of the request came in {time} s")
    }

    async fn keep(
        &mut self,
        next: impl Future<Output = Option<Result<Bytes, h2::Error>>>,
    ) -> Result<Option<Result<Bytes, h2::Error>>> {
        let next = tokio::time::timeout(SILENCE_MAX, next).await.map_err(|_| self.too_slow())?;
        if let Some(Ok(chunk)) = &next {
            self.take(chunk.len())?;
        }
        self.check()?;
        Ok(next)
    }
}

/// Why a message could not be read.
#[derive(Debug)]
pub enum Broken {
    /// The stream or its connection ended.
    Stream(h2::Error),
    /// What came is not a message.
    Content(tensor::Error),
}

impl From<h2::Error> for Broken {
    fn from(error: h2::Error) -> Broken {
        Broken::Stream(error)
    }
}

impl From<tensor::Error> for Broken {
    fn from(error: tensor::Error) -> Broken {
        Broken::Content(error)
    }
}

/// A message that has come as a whole, without its prefix.
pub(crate) fn whole(mut pieces: Pieces) -> Result<Pieces> {
    if pieces.len() < PREFIX {
        return Err(internal!("a message ends within its first {PREFIX} bytes"));
    }
    match prefix(&mut pieces)? {
        (false, len) if len == pieces.len() => Ok(pieces),
        (false, len) => Err(internal!("a message of {len} bytes was announced, {} came", pieces.len())),
        (true, _) => Encoding::Identity.unpack(pieces),
    }
}

/// Takes the five bytes before a message: whether it is packed, and its length.
pub(crate) fn prefix(pieces: &mut Pieces) -> Result<(bool, usize)> {
    let (flag, len) = (pieces.get_u8(), pieces.get_u32() as usize);
    if flag > 1 {
        return Err(internal!("a message begins with the byte {flag}, wanted 0 or 1"));
    }
    if len > MESSAGE_MAX {
        return Err(exhausted!("a message of {len} bytes was announced; {MESSAGE_MAX} are allowed"));
    }
    Ok((flag == 1, len))
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::{GzEncoder, ZlibEncoder};
    use std::io::Write;
    use tensor::Code;

    fn headers(encoding: &'static str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(&GRPC_ENCODING, http::HeaderValue::from_static(encoding));
        headers
    }

    #[test]
    fn packed_messages_are_unpacked() {
        let data = vec![9u8; 600_000];
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        gzip.write_all(&data).unwrap();
        let mut zlib = ZlibEncoder::new(Vec::new(), Compression::fast());
        zlib.write_all(&data).unwrap();
        for (name, packed) in [("gzip", gzip.finish().unwrap()), ("deflate", zlib.finish().unwrap())] {
            let encoding = Encoding::of(&headers(name)).unwrap();
            let mut unpacked = encoding.unpack(Bytes::from(packed).into()).unwrap();
            assert_eq!(unpacked.copy_to_bytes(data.len()), data);
        }
        assert_eq!(Encoding::of(&headers("snappy")).unwrap_err().code, Code::Unimplemented);
        assert!(Encoding::Gzip.unpack(Bytes::from_static(b"garbage").into()).is_err());
        assert!(Encoding::Identity.unpack(Pieces::default()).is_err());
    }

    #[test]
    fn a_bomb_is_refused() {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        gzip.write_all(&vec![0u8; 1 << 20]).unwrap();
        let packed = gzip.finish().unwrap();
        let unpack = |limit| inflate(GzDecoder::new(&packed[..]), limit);
        assert_eq!(unpack(1 << 20).unwrap().len(), 1 << 20);
        assert_eq!(unpack((1 << 20) - 1).unwrap_err().code, Code::ResourceExhausted);
    }

    #[test]
    fn a_prefix_is_checked() {
        let read = |bytes: &'static [u8]| prefix(&mut Bytes::from_static(bytes).into());
        assert_eq!(read(b"\0\0\0\0\x07"), Ok((false, 7)));
        assert_eq!(read(b"\x01\x7f\xff\xff\xff"), Ok((true, MESSAGE_MAX)));
        assert_eq!(read(b"\0\x80\0\0\0").unwrap_err().code, Code::ResourceExhausted);
        assert_eq!(read(b"\x02\0\0\0\0").unwrap_err().code, Code::Internal);
    }
}

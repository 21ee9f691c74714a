//! Readers of files whose names come from a queue: `TFRecordReaderV2`, `TextLineReaderV2`, `FixedLengthRecordReaderV2`,
//! `WholeFileReaderV2`, and `ReaderReadV2`, `ReaderNumRecordsProducedV2` that use them.
//!
//! Reads of one reader come one after the other; a read that finds its file at an end waits for the next name.

use crate::data_flow::queue::{Amount, Queue};
use crate::data_flow::{Declared, resolve};
use crate::dataset::files::{failed, next_line};
use bytes::Bytes;
use framework::kernel::{AsyncContext, AsyncKernel, BoxFuture, Outputs, async_kernel, function, kernel};
use framework::op::KernelFn;
use framework::{Kernel, KernelBuild, KernelContext, Op, Resource, Value, shapes};
use futures_util::lock::Mutex;
use std::io::{BufRead, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use storage::{Compression, LocalFiles, RecordReader, open_bytes};
use tensor::{DType, Result, Tensor, internal, invalid};

/// The ops of this file.
pub fn ops() -> Vec<Op> {
    vec![
        declares("TFRecordReaderV2", &[], &["compression_type: string = ''"], kernel(|b| Declare::new(b, records(b)?))),
        declares("TextLineReaderV2", &["skip_header_lines: int = 0"], &[], kernel(|b| Declare::new(b, lines(b)?))),
        declares("WholeFileReaderV2", &[], &[], kernel(|b| Declare::new(b, Format::Whole))),
        declares(
            "FixedLengthRecordReaderV2",
            &["header_bytes: int = 0", "record_bytes: int", "footer_bytes: int = 0", "hop_bytes: int = 0"],
            &["encoding: string = ''"],
            kernel(|b| Declare::new(b, fixed(b)?)),
        ),
        Op::new("ReaderReadV2")
            .input("reader_handle: resource")
            .input("queue_handle: resource")
            .output("key: string")
            .output("value: string")
            .stateful()
            .costly()
            .shape(shapes::scalar)
            .kernel(async_kernel(|_| Ok(Read))),
        Op::new("ReaderNumRecordsProducedV2")
            .input("reader_handle: resource")
            .output("records_produced: int64")
            .stateful()
            .shape(shapes::scalar)
            .kernel(function(num_records_produced)),
    ]
}

fn declares(name: &str, first: &[&str], last: &[&str], kernel: KernelFn) -> Op {
    let common = ["container: string = ''", "shared_name: string = ''"];
    let attrs = first.iter().chain(&common).chain(last);
    let op = attrs.fold(Op::new(name).output("reader_handle: resource"), |op, attr| op.attr(attr));
    op.stateful().shape(shapes::scalar).kernel(kernel)
}

/// What a file holds.
#[derive(Clone, Copy)]
enum Format {
    Records(Compression),
    /// Lines, of which the first few are left out.
    Lines {
        skip: i64,
    },
    /// Records of one length.
    Fixed(Fixed),
    /// One value.
    Whole,
}

fn records(b: &KernelBuild<'_>) -> Result<Format> {
    Ok(Format::Records(Compression::parse(&b.attr::<String>("compression_type")?)?))
}

fn lines(b: &KernelBuild<'_>) -> Result<Format> {
    let skip: i64 = b.attr("skip_header_lines")?;
    if skip < 0 {
        return Err(invalid!("skip_header_lines must be >= 0 not {skip}"));
    }
    Ok(Format::Lines { skip })
}

/// How records of one length lie in a file: `record` bytes every `hop`, between `header` and `footer`.
#[derive(Clone, Copy)]
struct Fixed {
    header: u64,
    record: usize,
    footer: usize,
    hop: usize,
    compression: Compression,
}

fn fixed(b: &KernelBuild<'_>) -> Result<Format> {
    let bytes = |name: &str, least: i64| -> Result<usize> {
        let value: i64 = b.attr(name)?;
        let fits = usize::try_from(value).ok().filter(|_| value >= least);
        fits.ok_or_else(|| invalid!("{name} must be >= {least} not {value}"))
    };
    let record = bytes("record_bytes", 1)?;
    let hop = Some(bytes("hop_bytes", 0)?).filter(|hop| *hop > 0).unwrap_or(record);
    let encoding: String = b.attr("encoding")?;
    let compression = match encoding.as_str() {
        "" => Compression::None,
        "ZLIB" => Compression::Zlib,
        other => return Err(invalid!("encoding is \"{other}\", must be \"\" or \"ZLIB\"")),
    };
    let (header, footer) = (bytes("header_bytes", 0)? as u64, bytes("footer_bytes", 0)?);
    Ok(Format::Fixed(Fixed { header, record, footer, hop, compression }))
}

/// Reads files one after the other.
struct Reader {
    format: Format,
    /// The file being read. Whoever reads holds the lock, also while waiting for the next name.
    current: Mutex<Option<OpenFile>>,
    produced: AtomicI64,
}

struct OpenFile {
    name: Bytes,
    content: Content,
}

enum Content {
    Records(RecordReader),
    Lines { path: PathBuf, bytes: Box<dyn BufRead + Send>, number: i64 },
    Fixed(FixedRecords),
    Whole(Option<Box<dyn BufRead + Send>>, PathBuf),
}

impl Resource for Reader {
    const TYPE_NAME: &'static str = "N10tensorflow15ReaderInterfaceE";
}

impl Reader {
    fn new(format: Format) -> Reader {
        Reader { format, current: Mutex::new(None), produced: AtomicI64::new(0) }
    }

    /// The next record and where it was found.
    async fn read(&self, names: &Arc<Queue>) -> Result<(Bytes, Vec<u8>)> {
        if names.spec().types != [DType::String] {
            return Err(invalid!("a reader wants a queue of strings, found one of {:?}", names.spec().types));
        }
        let mut current = self.current.lock().await;
        loop {
            let file = match &mut *current {
                Some(file) => file,
                none => none.insert(self.open(names).await?),
            };
            if let Some(found) = file.next()? {
                self.produced.fetch_add(1, Ordering::Relaxed);
                return Ok(found);
            }
            *current = None;
        }
    }

    /// The file whose name is next in the queue.
    async fn open(&self, names: &Arc<Queue>) -> Result<OpenFile> {
        let mut taken = names.dequeue(Amount::Exactly(1), None).await?;
        let element = taken.pop().ok_or_else(|| internal!("a dequeue took nothing"))?;
        let name = element.first().map(Tensor::string_item).transpose()?;
        let name = name.ok_or_else(|| internal!("an element without components"))?.clone();
        let path = std::str::from_utf8(&name).map_err(|_| invalid!("the name of a file is not UTF-8"))?;
        let content = Content::open(Path::new(path), self.format)?;
        Ok(OpenFile { name, content })
    }
}

impl OpenFile {
    /// The next value and its key: the file's name, and a place or number there unless the value is the whole file.
    fn next(&mut self) -> Result<Option<(Bytes, Vec<u8>)>> {
        let (place, value) = match &mut self.content {
            Content::Records(records) => (Some(records.offset() as i64), records.next_record()?),
            Content::Lines { path, bytes, number } => {
                *number += 1;
                (Some(*number), next_line(path, bytes)?)
            }
            Content::Fixed(records) => (Some(records.number), records.next_record()?),
            Content::Whole(bytes, path) => (None, bytes.take().map(|bytes| everything(bytes, path)).transpose()?),
        };
        let key = match place {
            Some(place) => [&self.name[..], format!(":{place}").as_bytes()].concat().into(),
            None => self.name.clone(),
        };
        Ok(value.map(|value| (key, value)))
    }
}

impl Content {
    fn open(path: &Path, format: Format) -> Result<Content> {
        let plain = || open_bytes(&LocalFiles, path, Compression::None);
        Ok(match format {
            Format::Records(compression) => Content::Records(RecordReader::open(&LocalFiles, path, compression)?),
            Format::Whole => Content::Whole(Some(plain()?), path.into()),
            Format::Fixed(format) => Content::Fixed(FixedRecords::open(path, format)?),
            Format::Lines { skip } => {
                let (mut bytes, mut number) = (plain()?, 0);
                while number < skip && next_line(path, &mut bytes)?.is_some() {
                    number += 1;
                }
                Content::Lines { path: path.into(), bytes, number }
            }
        })
    }
}

fn everything(mut bytes: Box<dyn BufRead + Send>, path: &Path) -> Result<Vec<u8>> {
    let mut all = Vec::new();
    bytes.read_to_end(&mut all).map_err(|e| failed(path, e))?;
    Ok(all)
}

/// Records of one length. They may overlap, or have bytes between them.
struct FixedRecords {
    path: PathBuf,
    bytes: Box<dyn BufRead + Send>,
    format: Fixed,
    /// Bytes that were read and not left behind yet.
    ahead: Vec<u8>,
    /// How many records there were.
    number: i64,
}

impl FixedRecords {
    fn open(path: &Path, format: Fixed) -> Result<FixedRecords> {
        let mut bytes = open_bytes(&LocalFiles, path, format.compression)?;
        let skipped = std::io::copy(&mut bytes.by_ref().take(format.header), &mut std::io::sink());
        skipped.map_err(|e| failed(path, e))?;
        Ok(FixedRecords { path: path.into(), bytes, format, ahead: Vec::new(), number: 0 })
    }

    /// The next record, if the footer comes after it.
    fn next_record(&mut self) -> Result<Option<Vec<u8>>> {
        let Fixed { record, footer, hop, .. } = self.format;
        let wanted = record.saturating_add(footer);
        self.read_until_ahead(wanted)?;
        if self.ahead.len() < wanted {
            return Ok(None);
        }
        let value = self.ahead[..record].to_vec();
        self.read_until_ahead(hop)?;
        self.ahead.drain(..hop.min(self.ahead.len()));
        self.number += 1;
        Ok(Some(value))
    }

    fn read_until_ahead(&mut self, wanted: usize) -> Result<()> {
        let missing = wanted.saturating_sub(self.ahead.len()) as u64;
        let read = self.bytes.by_ref().take(missing).read_to_end(&mut self.ahead);
        read.map(drop).map_err(|e| failed(&self.path, e))
    }
}

/// Makes a reader, or finds one of its shared name.
struct Declare {
    declared: Declared<Reader>,
    format: Format,
}

impl Declare {
    fn new(b: &KernelBuild<'_>, format: Format) -> Result<Declare> {
        Ok(Declare { declared: Declared::new(b)?, format })
    }
}

impl Kernel for Declare {
    fn compute(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        self.declared.output(ctx, |_| Ok(Reader::new(self.format)), |_, _| Ok(()))
    }
}

struct Read;

impl AsyncKernel for Read {
    fn compute(&self, ctx: AsyncContext) -> BoxFuture<Result<Outputs>> {
        let resources = ctx.device.resources();
        let reader = resolve::<Reader>(resources, &ctx.inputs[0]);
        let names = resolve::<Queue>(resources, &ctx.inputs[1]);
        Box::pin(async move {
            let (key, value) = reader?.read(&names?).await?;
            Ok([Tensor::string(key), Tensor::string(value)].map(Value::Tensor).into_iter().collect())
        })
    }
}

fn num_records_produced(ctx: &mut KernelContext<'_>) -> Result<()> {
    let reader = resolve::<Reader>(ctx.resources(), ctx.input_value(0))?;
    ctx.set_output(0, Tensor::scalar(reader.produced.load(Ordering::Relaxed)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data_flow::queue::{Order, QueueSpec};
    use smallvec::smallvec;
    use std::task::{Context, Waker};
    use storage::RecordWriter;
    use tensor::PartialShape;

    #[test]
    fn a_read_waits_for_the_name_of_a_file_and_leaves_none_behind_when_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("records");
        let mut writer = RecordWriter::create(&LocalFiles, &path, Compression::None).unwrap();
        writer.write(b"first").unwrap();
        writer.write(b"second").unwrap();
        writer.finish().unwrap();
        let spec = QueueSpec {
            order: Order::Fifo,
            types: vec![DType::String],
            shapes: vec![PartialShape::scalar()],
            capacity: -1,
        };
        let names = Arc::new(Queue::new("names", spec, (1, 2)).unwrap());
        let reader = Reader::new(Format::Records(Compression::None));

        let mut context = Context::from_waker(Waker::noop());
        let mut dropped = Box::pin(reader.read(&names));
        assert!(dropped.as_mut().poll(&mut context).is_pending(), "there is no name yet");
        drop(dropped);
        let name = path.to_str().unwrap().to_string();
        names.try_enqueue([smallvec![Tensor::from(name.clone())]].into()).unwrap().unwrap();
        for (offset, want) in [(0, &b"first"[..]), (21, b"second")] {
            let mut read = Box::pin(reader.read(&names));
            let std::task::Poll::Ready(got) = read.as_mut().poll(&mut context) else { panic!("it is all there") };
            assert_eq!(got.unwrap(), (Bytes::from(format!("{name}:{offset}")), want.to_vec()));
        }
        assert_eq!(reader.produced.load(Ordering::Relaxed), 2);
    }
}

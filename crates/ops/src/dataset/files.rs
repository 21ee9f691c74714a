//! `TextLineDataset`, `TFRecordDataset`, `FixedLengthRecordDatasetV2`: what files hold, as strings.

use super::{Dataset, Element, Elements, Next, number, output, ready, scalar_shape, text};
use framework::kernel::function;
use framework::{KernelContext, Op, StepContext};
use std::io::{BufRead, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use storage::{Compression, LocalFiles, RecordReader, open_bytes};
use tensor::{Error, Result, Tensor, invalid, out_of_range};

/// The ops of this file.
pub fn ops() -> Vec<Op> {
    let files = |name: &str| Op::new(name).input("filenames: string");
    let finish = |op: Op| op.output("handle: variant").attr("metadata: string = ''").stateful().shape(scalar_shape);
    vec![
        finish(files("TextLineDataset").input("compression_type: string").input("buffer_size: int64"))
            .kernel(function(|ctx| make(ctx, 1, |_| Ok(Format::Lines)))),
        finish(files("TFRecordDataset").input("compression_type: string").input("buffer_size: int64"))
            .kernel(function(|ctx| make(ctx, 1, |_| Ok(Format::Records)))),
        finish(
            files("TFRecordDatasetV2")
                .input("compression_type: string")
                .input("buffer_size: int64")
                .input("byte_offsets: int64"),
        )
        .kernel(function(|ctx| {
            make(ctx, 1, |ctx| match ctx.input(3).num_elements() {
                0 => Ok(Format::Records),
                _ => Err(tensor::unsupported!("records are read from the start of a file, found byte_offsets")),
            })
        })),
        finish(
            files("FixedLengthRecordDatasetV2")
                .input("header_bytes: int64")
                .input("record_bytes: int64")
                .input("footer_bytes: int64")
                .input("buffer_size: int64")
                .input("compression_type: string"),
        )
        .kernel(function(|ctx| make(ctx, 5, fixed))),
    ]
}

/// What an element is.
#[derive(Clone, Copy)]
enum Format {
    /// A line, without its end.
    Lines,
    /// A record with its checksums.
    Records,
    /// So many bytes, between those that are left out at both ends of the file.
    Fixed { header: u64, record: u64, footer: u64 },
}

fn fixed(ctx: &KernelContext<'_>) -> Result<Format> {
    let bytes = |index: usize, name: &str, least: i64| -> Result<u64> {
        let value = number(ctx, index, name)?;
        if value < least {
            return Err(invalid!("`{name}` must be >= {least}, found {value}"));
        }
        Ok(value as u64)
    };
    Ok(Format::Fixed {
        header: bytes(1, "header_bytes", 0)?,
        record: bytes(2, "record_bytes", 1)?,
        footer: bytes(3, "footer_bytes", 0)?,
    })
}

fn make(
    ctx: &mut KernelContext<'_>,
    compression: usize,
    format: impl FnOnce(&KernelContext<'_>) -> Result<Format>,
) -> Result<()> {
    let names = ctx.input(0);
    if names.shape().rank() > 1 {
        return Err(invalid!("`filenames` must be a scalar or a vector."));
    }
    let path = |name: &bytes::Bytes| match std::str::from_utf8(name) {
        Ok(name) => Ok(PathBuf::from(name)),
        Err(_) => Err(invalid!("the name of a file is not UTF-8")),
    };
    let paths = names.as_strings()?.iter().map(path).collect::<Result<Arc<[PathBuf]>>>()?;
    let compression = Compression::parse(&text(ctx, compression, "compression_type")?)
        .map_err(|e| invalid!("Unsupported compression_type: {}", e.message))?;
    let format = format(ctx)?;
    output(ctx, Files { paths, compression, format })
}

struct Files {
    paths: Arc<[PathBuf]>,
    compression: Compression,
    format: Format,
}

impl Dataset for Files {
    fn iterate(&self) -> Result<Box<dyn Elements>> {
        Ok(Box::new(Pass {
            paths: self.paths.clone(),
            compression: self.compression,
            format: self.format,
            at: 0,
            open: None,
        }))
    }
}

struct Pass {
    paths: Arc<[PathBuf]>,
    compression: Compression,
    format: Format,
    /// The file to open next.
    at: usize,
    open: Option<Open>,
}

enum Open {
    Lines(PathBuf, Box<dyn BufRead + Send>),
    Records(RecordReader),
    Fixed(FixedReader),
}

impl Pass {
    fn read(&mut self) -> Result<Option<Element>> {
        loop {
            if self.open.is_none() {
                let Some(path) = self.paths.get(self.at) else { return Ok(None) };
                let path = path.clone();
                self.at += 1;
                self.open = Some(self.open(&path)?);
            }
            let found = match &mut self.open {
                Some(Open::Lines(path, lines)) => next_line(path, lines),
                Some(Open::Records(records)) => records.next_record(),
                Some(Open::Fixed(records)) => records.next_record(),
                None => Ok(None),
            };
            match found {
                Ok(Some(bytes)) => return Ok(Some(vec![Tensor::string(bytes)])),
                Ok(None) => self.open = None,
                Err(e) => {
                    self.open = None; // whoever asks again goes on with the next file
                    return Err(e);
                }
            }
        }
    }

    fn open(&self, path: &Path) -> Result<Open> {
        Ok(match self.format {
            Format::Lines => Open::Lines(path.into(), open_bytes(&LocalFiles, path, self.compression)?),
            Format::Records => Open::Records(RecordReader::open(&LocalFiles, path, self.compression)?),
            Format::Fixed { header, record, footer } => {
                Open::Fixed(FixedReader::open(path, self.compression, header, record, footer)?)
            }
        })
    }
}

impl Elements for Pass {
    fn next<'a>(&'a mut self, _: &'a StepContext) -> Next<'a> {
        ready(self.read())
    }
}

/// An error of the system's that names the file.
pub(crate) fn failed(path: &Path, error: std::io::Error) -> Error {
    let error = Error::from(error);
    Error { message: format!("{}: {}", path.display(), error.message), ..error }
}

/// A line without its end, which is a line feed or the file's; a carriage return before it goes too.
pub(crate) fn next_line(path: &Path, lines: &mut Box<dyn BufRead + Send>) -> Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    if lines.read_until(b'\n', &mut line).map_err(|e| failed(path, e))? == 0 {
        return Ok(None);
    }
    if line.last() == Some(&b'\n') {
        line.pop();
    }
    // TensorFlow drops every carriage return, wherever it stands.
    line.retain(|&b| b != b'\r');
    Ok(Some(line))
}

/// Reads records of one length.
struct FixedReader {
    path: PathBuf,
    bytes: Box<dyn BufRead + Send>,
    record: u64,
    /// How many records there are.
    left: u64,
}

impl FixedReader {
    fn open(path: &Path, compression: Compression, header: u64, record: u64, footer: u64) -> Result<FixedReader> {
        let length = length(path, compression)?;
        let body = length.checked_sub(header.saturating_add(footer));
        let left = body.filter(|body| body % record == 0).map(|body| body / record).ok_or_else(|| {
            invalid!(
                "Excluding the header ({header} bytes) and footer ({footer} bytes), input file \"{}\" has body length \
                 {} bytes, which is not an exact multiple of the record length ({record} bytes).",
                path.display(),
                length as i128 - i128::from(header) - i128::from(footer)
            )
        })?;
        let mut bytes = open_bytes(&LocalFiles, path, compression)?;
        let skipped = std::io::copy(&mut bytes.by_ref().take(header), &mut std::io::sink());
        skipped.map_err(|e| failed(path, e))?;
        Ok(FixedReader { path: path.into(), bytes, record, left })
    }

    fn next_record(&mut self) -> Result<Option<Vec<u8>>> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        let mut record = Vec::new();
        let read = self.bytes.by_ref().take(self.record).read_to_end(&mut record);
        if (read.map_err(|e| failed(&self.path, e))? as u64) < self.record {
            return Err(out_of_range!("{}: the file has become shorter", self.path.display()));
        }
        Ok(Some(record))
    }
}

/// How many bytes there are when they are no longer compressed.
fn length(path: &Path, compression: Compression) -> Result<u64> {
    match compression {
        Compression::None => storage::Files::size(&LocalFiles, path),
        _ => {
            let mut bytes = open_bytes(&LocalFiles, path, compression)?;
            std::io::copy(&mut bytes, &mut std::io::sink()).map_err(|e| failed(path, e))
        }
    }
}

//! Files of records: each is a length, the length's checksum, the bytes, and their checksum.
//!
//! A file may be compressed as a whole, with the framing inside. What a record holds is not known here.

use std::io::{self, BufRead, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use flate2::bufread::{MultiGzDecoder, ZlibDecoder};
use flate2::write::{GzEncoder, ZlibEncoder};
use tensor::{Code, Error, Result};

use crate::checksum::masked;
use crate::files::{Cursor, Files, Sink, from_io};

const HEADER_LEN: usize = 12;
const FOOTER_LEN: usize = 4;
const BUFFER_LEN: usize = 256 * 1024;
/// Below this a record is read without first asking how long the file is.
const TRUSTED_LEN: u64 = 64 * 1024;

/// How a file of records is compressed as a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// Not at all.
    #[default]
    None,
    /// The zlib format.
    Zlib,
    /// The gzip format.
    Gzip,
}

impl Compression {
    /// The compression that an op's `compression_type` attribute names: empty, `ZLIB` or `GZIP`.
    pub fn parse(name: &str) -> Result<Self> {
        match name {
            "" => Ok(Self::None),
            "ZLIB" => Ok(Self::Zlib),
            "GZIP" => Ok(Self::Gzip),
            _ => Err(tensor::invalid!("compression_type is \"{name}\", must be \"\", \"ZLIB\" or \"GZIP\"")),
        }
    }
}

/// A file's bytes from front to back, no longer compressed.
pub fn open_bytes(files: &dyn Files, path: &Path, compression: Compression) -> Result<Box<dyn BufRead + Send>> {
    let cursor = Cursor { file: files.open_read(path)?, offset: 0 };
    let mut plain = BufReader::with_capacity(BUFFER_LEN, cursor);
    let is_empty = plain.fill_buf().map_err(|e| from_io(path, e))?.is_empty();
    Ok(match compression {
        // An empty file is no compressed stream.
        _ if is_empty => Box::new(plain),
        Compression::None => Box::new(plain),
        Compression::Zlib => Box::new(BufReader::new(ZlibDecoder::new(plain))),
        Compression::Gzip => Box::new(BufReader::new(MultiGzDecoder::new(plain))),
    })
}

/// Reads a file of records from front to back.
pub struct RecordReader {
    path: PathBuf,
    source: Source,
    /// Where the next record starts, counted in uncompressed bytes.
    offset: u64,
}

enum Source {
    Plain(BufReader<Cursor>),
    Inflated(Box<dyn Read + Send>),
}

/// What was found where a record could start.
pub(crate) enum Found {
    Record(Vec<u8>),
    End,
    /// The beginning of a record. More may be on its way: the next call tries the same place again.
    Truncated,
}

impl RecordReader {
    /// Opens a file of records.
    pub fn open(files: &dyn Files, path: &Path, compression: Compression) -> Result<Self> {
        let cursor = Cursor { file: files.open_read(path)?, offset: 0 };
        let mut plain = BufReader::with_capacity(BUFFER_LEN, cursor);
        let is_empty = plain.fill_buf().map_err(|e| from_io(path, e))?.is_empty();
        let source = match compression {
            // An empty file holds no records, although it is no compressed stream either.
            _ if is_empty => Source::Plain(plain),
            Compression::None => Source::Plain(plain),
            Compression::Zlib => Source::Inflated(Box::new(ZlibDecoder::new(plain))),
            Compression::Gzip => Source::Inflated(Box::new(MultiGzDecoder::new(plain))),
        };
        Ok(Self { path: path.to_owned(), source, offset: 0 })
    }

    /// The next record; `None` at the end. A damaged or cut-off record is `DataLoss`.
    pub fn next_record(&mut self) -> Result<Option<Vec<u8>>> {
        match self.find()? {
            Found::Record(data) => Ok(Some(data)),
            Found::End => Ok(None),
            Found::Truncated => {
                Err(tensor::data_loss!("truncated record at {} in {}", self.offset, self.path.display()))
            }
        }
    }

    /// Where the next record starts, counted in uncompressed bytes.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Goes to where a record starts, as [`offset`](Self::offset) once told.
    pub fn seek(&mut self, offset: u64) -> Result<()> {
        match &mut self.source {
            Source::Plain(reader) => {
                reader.seek(SeekFrom::Start(offset)).map_err(|e| from_io(&self.path, e))?;
            }
            Source::Inflated(reader) => {
                let Some(ahead) = offset.checked_sub(self.offset) else {
                    return Err(tensor::unsupported!("{}: cannot go back in a compressed file", self.path.display()));
                };
                let skipped = io::copy(&mut reader.take(ahead), &mut io::sink());
                if skipped.map_err(|e| from_inflate(&self.path, e))? < ahead {
                    return Err(tensor::out_of_range!("{}: ends before offset {offset}", self.path.display()));
                }
            }
        }
        self.offset = offset;
        Ok(())
    }

    pub(crate) fn find(&mut self) -> Result<Found> {
        let found = self.find_at_offset()?;
        match (&found, &mut self.source) {
            (Found::Record(data), _) => self.offset += (HEADER_LEN + data.len() + FOOTER_LEN) as u64,
            (Found::Truncated, Source::Plain(reader)) => {
                reader.seek(SeekFrom::Start(self.offset)).map_err(|e| from_io(&self.path, e))?;
            }
            _ => {}
        }
        Ok(found)
    }

    fn find_at_offset(&mut self) -> Result<Found> {
        let mut header = [0; HEADER_LEN];
        match self.fill(&mut header)? {
            0 => return Ok(Found::End),
            HEADER_LEN => {}
            _ => return Ok(Found::Truncated),
        }
        let (length, length_crc) = header.split_at(8);
        if masked(length) != u32_from(length_crc) {
            return Err(self.corrupted("the checksum of the length does not match"));
        }
        let length = u64::from_le_bytes(length.try_into().expect("eight bytes were split off"));

        let Some(data) = self.read_data(length)? else { return Ok(Found::Truncated) };
        let mut footer = [0; FOOTER_LEN];
        if self.fill(&mut footer)? < FOOTER_LEN {
            return Ok(Found::Truncated);
        }
        if masked(&data) != u32_from(&footer) {
            return Err(self.corrupted("the checksum of the data does not match"));
        }
        Ok(Found::Record(data))
    }

    /// The bytes of a record, unless the file ends first. A length is only believed as far as the file goes.
    fn read_data(&mut self, length: u64) -> Result<Option<Vec<u8>>> {
        let capacity = match &self.source {
            _ if length <= TRUSTED_LEN => length,
            Source::Plain(reader) => {
                let left = reader.get_ref().file.size()?.saturating_sub(self.offset + HEADER_LEN as u64);
                if left < length {
                    return Ok(None);
                }
                length
            }
            // How much is left cannot be known; the vector grows as bytes come.
            Source::Inflated(_) => TRUSTED_LEN,
        };
        let mut data = Vec::with_capacity(capacity as usize);
        let read = self.reader().take(length).read_to_end(&mut data);
        let read = read.map_err(|e| self.failed(e))?;
        Ok((read as u64 == length).then_some(data))
    }

    /// Fills `into` as far as the file goes.
    fn fill(&mut self, into: &mut [u8]) -> Result<usize> {
        let mut done = 0;
        while done < into.len() {
            match self.reader().read(&mut into[done..]) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(self.failed(e)),
            }
        }
        Ok(done)
    }

    fn reader(&mut self) -> &mut dyn Read {
        match &mut self.source {
            Source::Plain(reader) => reader,
            Source::Inflated(reader) => reader,
        }
    }

    fn failed(&self, error: io::Error) -> Error {
        match self.source {
            Source::Plain(_) => from_io(&self.path, error),
            Source::Inflated(_) => from_inflate(&self.path, error),
        }
    }

    fn corrupted(&self, why: &str) -> Error {
        tensor::data_loss!("corrupted record at {} in {}: {why}", self.offset, self.path.display())
    }
}

/// What decompressing finds wrong is the data's fault, unless the file itself could not be read.
fn from_inflate(path: &Path, error: io::Error) -> Error {
    let error = from_io(path, error);
    match error.code {
        Code::InvalidArgument | Code::OutOfRange | Code::Unknown => Error { code: Code::DataLoss, ..error },
        _ => error,
    }
}

/// Writes a file of records.
///
/// What was written is on its way to the disk after [`flush`](Self::flush), and safe there after
/// [`finish`](Self::finish).
pub struct RecordWriter {
    path: PathBuf,
    sink: Deflated,
}

enum Deflated {
    None(BufWriter<Sink>),
    Zlib(ZlibEncoder<BufWriter<Sink>>),
    Gzip(GzEncoder<BufWriter<Sink>>),
}

impl RecordWriter {
    /// Makes an empty file of records in place of any that had the name.
    pub fn create(files: &dyn Files, path: &Path, compression: Compression) -> Result<Self> {
        let plain = BufWriter::with_capacity(BUFFER_LEN, Sink::new(files.create(path)?));
        let level = flate2::Compression::default();
        let sink = match compression {
            Compression::None => Deflated::None(plain),
            Compression::Zlib => Deflated::Zlib(ZlibEncoder::new(plain, level)),
            Compression::Gzip => Deflated::Gzip(GzEncoder::new(plain, level)),
        };
        Ok(Self { path: path.to_owned(), sink })
    }

    /// Appends a record.
    pub fn write(&mut self, data: &[u8]) -> Result<()> {
        let length = (data.len() as u64).to_le_bytes();
        let written = self
            .writer()
            .write_all(&length)
            .and_then(|()| self.writer().write_all(&masked(&length).to_le_bytes()))
            .and_then(|()| self.writer().write_all(data))
            .and_then(|()| self.writer().write_all(&masked(data).to_le_bytes()));
        written.map_err(|e| from_io(&self.path, e))
    }

    /// Hands everything written so far to the file system, where readers see it.
    pub fn flush(&mut self) -> Result<()> {
        let flushed = self.writer().flush();
        flushed.map_err(|e| from_io(&self.path, e))
    }

    /// Ends the file and returns when it is durable.
    pub fn finish(self) -> Result<()> {
        let path = self.path;
        let buffered = match self.sink {
            Deflated::None(plain) => Ok(plain),
            Deflated::Zlib(encoder) => encoder.finish(),
            Deflated::Gzip(encoder) => encoder.finish(),
        };
        let sink = buffered.and_then(|buffered| buffered.into_inner().map_err(|e| e.into_error()));
        sink.map_err(|e| from_io(&path, e))?.finish()
    }

    fn writer(&mut self) -> &mut dyn Write {
        match &mut self.sink {
            Deflated::None(writer) => writer,
            Deflated::Zlib(writer) => writer,
            Deflated::Gzip(writer) => writer,
        }
    }
}

fn u32_from(four: &[u8]) -> u32 {
    u32::from_le_bytes(four.try_into().expect("four bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryFiles;

    const PATH: &str = "/records";
    const ALL: [Compression; 3] = [Compression::None, Compression::Zlib, Compression::Gzip];

    fn sample() -> Vec<Vec<u8>> {
        vec![vec![], b"a".to_vec(), b"hello ".repeat(100), (0..=255).collect()]
    }

    fn write(files: &MemoryFiles, records: &[Vec<u8>], compression: Compression) {
        let mut writer = RecordWriter::create(files, Path::new(PATH), compression).unwrap();
        for record in records {
            writer.write(record).unwrap();
        }
        writer.finish().unwrap();
    }

    fn read(files: &MemoryFiles, compression: Compression) -> Result<Vec<Vec<u8>>> {
        let mut reader = RecordReader::open(files, Path::new(PATH), compression)?;
        let mut records = Vec::new();
        while let Some(record) = reader.next_record()? {
            records.push(record);
        }
        Ok(records)
    }

    #[test]
    fn what_was_written_is_read() {
        let mut records = sample();
        records.push((0..3_000_000u32).map(|i| (i.wrapping_mul(i) >> 7) as u8).collect());
        for compression in ALL {
            for records in [&[], &records[..]] {
                let files = MemoryFiles::new();
                write(&files, records, compression);
                assert!(read(&files, compression).unwrap() == records, "{compression:?}");
            }
        }
    }

    #[test]
    fn an_empty_file_has_no_records() {
        let files = MemoryFiles::new();
        files.put(Path::new(PATH), b"");
        for compression in ALL {
            assert_eq!(read(&files, compression).unwrap(), Vec::<Vec<u8>>::new());
        }
    }

    #[test]
    fn a_flipped_bit_is_found_or_harmless() {
        for compression in ALL {
            let files = MemoryFiles::new();
            write(&files, &sample(), compression);
            let good = files.contents(Path::new(PATH)).unwrap();
            for position in 0..good.len() {
                for mask in [0x01, 0x80, 0xff] {
                    let mut bad = good.clone();
                    bad[position] ^= mask;
                    files.put(Path::new(PATH), &bad);
                    match read(&files, compression) {
                        Ok(records) => {
                            assert_eq!(records, sample(), "byte {position} of {compression:?}");
                            assert_ne!(compression, Compression::None, "byte {position} is checked by nothing");
                        }
                        Err(error) => {
                            assert_eq!(error.code, Code::DataLoss, "{error}");
                            assert!(error.message.contains(PATH), "{error}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn a_cut_file_gives_the_records_before_the_cut() {
        let files = MemoryFiles::new();
        write(&files, &sample(), Compression::None);
        let good = files.contents(Path::new(PATH)).unwrap();
        let mut ends = vec![0];
        ends.extend(sample().iter().scan(0, |end, record| {
            *end += 16 + record.len();
            Some(*end)
        }));
        for len in 0..good.len() {
            files.put(Path::new(PATH), &good[..len]);
            let mut reader = RecordReader::open(&files, Path::new(PATH), Compression::None).unwrap();
            let whole = ends.iter().filter(|&&end| end <= len).count() - 1;
            for record in &sample()[..whole] {
                assert_eq!(reader.next_record().unwrap().as_ref(), Some(record));
            }
            if len == ends[whole] {
                assert_eq!(reader.next_record().unwrap(), None);
            } else {
                let error = reader.next_record().unwrap_err();
                let wanted = format!("truncated record at {} in {PATH}", ends[whole]);
                assert_eq!((error.code, error.message), (Code::DataLoss, wanted));
            }
        }
    }

    #[test]
    fn a_length_of_a_terabyte_is_not_believed() {
        let length = (1u64 << 40).to_le_bytes();
        let mut file = length.to_vec();
        file.extend(masked(&length).to_le_bytes());
        file.extend(b"not that much");
        let files = MemoryFiles::new();
        for compression in ALL {
            let path = Path::new(PATH);
            if compression == Compression::Gzip {
                let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::fast());
                encoder.write_all(&file).unwrap();
                files.put(path, &encoder.finish().unwrap());
            } else if compression == Compression::Zlib {
                let mut encoder = ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
                encoder.write_all(&file).unwrap();
                files.put(path, &encoder.finish().unwrap());
            } else {
                files.put(path, &file);
            }
            let error = read(&files, compression).unwrap_err();
            assert_eq!(error.message, "truncated record at 0 in /records");
        }
    }

    #[test]
    fn reading_goes_on_where_another_reader_stopped() {
        for compression in ALL {
            let files = MemoryFiles::new();
            write(&files, &sample(), compression);
            let mut first = RecordReader::open(&files, Path::new(PATH), compression).unwrap();
            first.next_record().unwrap();
            first.next_record().unwrap();
            let mut second = RecordReader::open(&files, Path::new(PATH), compression).unwrap();
            second.seek(first.offset()).unwrap();
            assert_eq!(second.next_record().unwrap().as_ref(), Some(&sample()[2]));
            assert_eq!(second.seek(0).is_ok(), compression == Compression::None);
        }
    }

    #[test]
    fn a_full_disk_is_told() {
        let files = MemoryFiles::new();
        files.fail_after_bytes(10);
        let mut writer = RecordWriter::create(&files, Path::new(PATH), Compression::None).unwrap();
        writer.write(b"more than ten bytes").unwrap();
        assert_eq!(writer.finish().unwrap_err().code, Code::ResourceExhausted);
    }

    #[test]
    fn nothing_is_written_after_a_failure() {
        let files = MemoryFiles::new();
        let mut writer = RecordWriter::create(&files, Path::new(PATH), Compression::None).unwrap();
        writer.write(b"first").unwrap();
        writer.flush().unwrap();
        files.fail_after_bytes(10);
        assert!(writer.write(&[7; 1_000_000]).is_err());
        files.fail_after_bytes(u64::MAX);
        assert!(writer.write(b"second").and_then(|()| writer.flush()).is_err());
        assert_eq!(writer.finish().unwrap_err().code, Code::ResourceExhausted);
        let mut reader = RecordReader::open(&files, Path::new(PATH), Compression::None).unwrap();
        assert_eq!(reader.next_record().unwrap().as_deref(), Some(&b"first"[..]));
        assert_eq!(reader.next_record().unwrap_err().message, "truncated record at 21 in /records");
    }
}

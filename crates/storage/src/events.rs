//! Event files: what a run tells a dashboard, as records of `Event` messages.
//!
//! One writer appends to one file while readers follow it. When to flush is up to whoever writes.

use std::path::{Path, PathBuf};

use prost::Message;
use proto::{Event, SourceMetadata, event};
use tensor::Result;

use crate::files::Files;
use crate::record::{Compression, Found, RecordReader, RecordWriter};

const VERSION: &str = "brain.Event:2";
/// What readers look for in the names of files.
const NAME_PART: &str = "tfevents";

/// Appends events to a file of its own.
pub struct EventWriter {
    path: PathBuf,
    records: RecordWriter,
}

impl EventWriter {
    /// Makes a file in `dir`, named after the time in seconds since 1970 and this machine.
    pub fn create(files: &dyn Files, dir: &Path, wall_time: f64, hostname: &str) -> Result<Self> {
        files.create_dir_all(dir)?;
        let path = new_path(files, dir, wall_time, hostname)?;
        let mut writer = Self { records: RecordWriter::create(files, &path, Compression::None)?, path };
        writer.write(&Event {
            wall_time,
            source_metadata: Some(SourceMetadata { writer: "ferroflow".into() }),
            what: Some(event::What::FileVersion(VERSION.into())),
            ..Default::default()
        })?;
        writer.flush()?;
        Ok(writer)
    }

    /// Where the events go.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Appends an event; readers see it after the next flush.
    pub fn write(&mut self, event: &Event) -> Result<()> {
        self.records.write(&event.encode_to_vec())
    }

    /// Lets readers see everything written so far.
    pub fn flush(&mut self) -> Result<()> {
        self.records.flush()
    }

    /// Ends the file and returns when it is durable.
    pub fn finish(self) -> Result<()> {
        self.records.finish()
    }
}

/// The first free name: two writers that start in the same second must not share a file.
fn new_path(files: &dyn Files, dir: &Path, wall_time: f64, hostname: &str) -> Result<PathBuf> {
    let first = dir.join(format!("events.out.{NAME_PART}.{:010}.{hostname}", wall_time as u64));
    let mut path = first.clone();
    let mut number = 0;
    while files.exists(&path)? {
        number += 1;
        path = crate::files::with_suffix(&first, &format!(".{number}"));
    }
    Ok(path)
}

/// Reads the events of a file, also while it is still being written.
pub struct EventReader {
    path: PathBuf,
    records: RecordReader,
}

impl EventReader {
    /// Opens an event file.
    pub fn open(files: &dyn Files, path: &Path) -> Result<Self> {
        Ok(Self { records: RecordReader::open(files, path, Compression::None)?, path: path.to_owned() })
    }

    /// The next event; `None` if there is none yet. Asking again later finds what was appended since.
    pub fn next_event(&mut self) -> Result<Option<Event>> {
        let offset = self.records.offset();
        match self.records.find()? {
            Found::Record(data) => {
                let event = Event::decode(bytes::Bytes::from(data));
                let path = self.path.display();
                event.map(Some).map_err(|e| tensor::data_loss!("{path}: the record at {offset} is no event: {e}"))
            }
            Found::End | Found::Truncated => Ok(None),
        }
    }
}

/// The event files in a directory, in the order in which they were begun.
pub fn event_files(files: &dyn Files, dir: &Path) -> Result<Vec<PathBuf>> {
    let names = files.list(dir)?;
    Ok(names.iter().filter(|name| name.contains(NAME_PART)).map(|name| dir.join(name)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryFiles;
    use tensor::Code;

    fn scalar(step: i64, value: f32) -> Event {
        let value = proto::summary::Value {
            tag: "loss".into(),
            value: Some(proto::summary::value::Value::SimpleValue(value)),
            ..Default::default()
        };
        let what = Some(event::What::Summary(proto::Summary { value: vec![value] }));
        Event { wall_time: 1.5, step, what, ..Default::default() }
    }

    #[test]
    fn a_file_begins_with_its_version() {
        let files = MemoryFiles::new();
        let writer = EventWriter::create(&files, Path::new("/log"), 12345.75, "host").unwrap();
        assert_eq!(writer.path(), Path::new("/log/events.out.tfevents.0000012345.host"));
        let mut reader = EventReader::open(&files, writer.path()).unwrap();
        let first = reader.next_event().unwrap().unwrap();
        assert_eq!(first.wall_time, 12345.75);
        assert_eq!(first.what, Some(event::What::FileVersion("brain.Event:2".into())));
    }

    #[test]
    fn a_reader_follows_a_writer() {
        let files = MemoryFiles::new();
        let mut writer = EventWriter::create(&files, Path::new("/log"), 1.0, "host").unwrap();
        let mut reader = EventReader::open(&files, writer.path()).unwrap();
        reader.next_event().unwrap().unwrap();
        for step in 0..3 {
            assert_eq!(reader.next_event().unwrap(), None);
            writer.write(&scalar(step, 0.5)).unwrap();
            writer.flush().unwrap();
            assert_eq!(reader.next_event().unwrap(), Some(scalar(step, 0.5)));
        }
    }

    #[test]
    fn half_a_record_is_waited_for() {
        let files = MemoryFiles::new();
        let mut writer = EventWriter::create(&files, Path::new("/log"), 1.0, "host").unwrap();
        let path = writer.path().to_owned();
        writer.write(&scalar(1, 0.5)).unwrap();
        writer.finish().unwrap();
        let whole = files.contents(&path).unwrap();

        let mut growing = files.create(Path::new("/growing")).unwrap();
        let mut reader = EventReader::open(&files, Path::new("/growing")).unwrap();
        let mut found = Vec::new();
        for byte in whole {
            growing.write_all(&[byte]).unwrap();
            found.extend(reader.next_event().unwrap());
        }
        assert_eq!(found.len(), 2);
        assert_eq!(found[1], scalar(1, 0.5));
    }

    #[test]
    fn two_writers_of_the_same_second_have_two_files() {
        let files = MemoryFiles::new();
        let dir = Path::new("/log");
        let made: Vec<PathBuf> =
            (0..3).map(|_| EventWriter::create(&files, dir, 7.0, "host").unwrap().path().to_owned()).collect();
        files.put(&dir.join("checkpoint"), b"");
        assert_eq!(event_files(&files, dir).unwrap(), made);
    }

    #[test]
    fn a_record_that_is_no_event_is_told_with_its_place() {
        let files = MemoryFiles::new();
        let mut records = RecordWriter::create(&files, Path::new("/f"), Compression::None).unwrap();
        records.write(b"").unwrap();
        records.write(b"\xff\xff\xff").unwrap();
        records.finish().unwrap();
        let mut reader = EventReader::open(&files, Path::new("/f")).unwrap();
        assert_eq!(reader.next_event().unwrap(), Some(Event::default()));
        let error = reader.next_event().unwrap_err();
        assert_eq!(error.code, Code::DataLoss);
        assert!(error.message.starts_with("/f: the record at 16 is no event"), "{error}");
    }
}

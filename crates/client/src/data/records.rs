//! TFRecord files: records read and written one after another, and the `Example` messages they usually hold.

use prost::Message;
use prost::bytes::Bytes;
use proto::feature::Kind;
use std::path::Path;
use storage::{LocalFiles, RecordReader};
use tensor::{Result, invalid, not_found};

pub use storage::Compression;

/// The records of a file from front to back. A damaged record is an error, and ends the file.
///
/// ```
/// use ferroflow::data::records::{self, Compression, Example, RecordWriter};
///
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("points.tfrecord");
/// let mut writer = RecordWriter::create(&path, Compression::Gzip)?;
/// for i in 0..3 {
///     writer.write_example(&Example::new().floats("x", [i as f32, 0.5]).ints("label", [i]))?;
/// }
/// writer.finish()?;
///
/// for record in records::read(&path, Compression::Gzip)? {
///     let example = Example::decode(record?)?;
///     assert_eq!(example.get_floats("x")?.len(), 2);
///     assert!(example.get_ints("label")?[0] < 3);
/// }
/// # Ok::<(), ferroflow::Error>(())
/// ```
pub struct Records {
    /// Nothing after an error: what follows a damaged record cannot be told apart.
    reader: Option<RecordReader>,
}

/// Opens a file of records.
pub fn read(path: impl AsRef<Path>, compression: Compression) -> Result<Records> {
    Ok(Records { reader: Some(RecordReader::open(&LocalFiles, path.as_ref(), compression)?) })
}

impl Iterator for Records {
    type Item = Result<Vec<u8>>;

    fn next(&mut self) -> Option<Result<Vec<u8>>> {
        let next = self.reader.as_mut()?.next_record();
        if next.is_err() {
            self.reader = None;
        }
        next.transpose()
    }
}

/// Writes a file of records.
pub struct RecordWriter {
    writer: storage::RecordWriter,
}

impl RecordWriter {
    /// Makes an empty file in place of any that had the name.
    pub fn create(path: impl AsRef<Path>, compression: Compression) -> Result<RecordWriter> {
        Ok(RecordWriter { writer: storage::RecordWriter::create(&LocalFiles, path.as_ref(), compression)? })
    }

    /// Appends a record.
    pub fn write(&mut self, record: &[u8]) -> Result<()> {
        self.writer.write(record)
    }

    /// Appends an example.
    pub fn write_example(&mut self, example: &Example) -> Result<()> {
        self.write(&example.encode())
    }

    /// Lets readers see what was written so far.
    pub fn flush(&mut self) -> Result<()> {
        self.writer.flush()
    }

    /// Ends the file and returns when it is durable.
    pub fn finish(self) -> Result<()> {
        self.writer.finish()
    }
}

/// An example to learn from: lists of bytes, floats or integers under names, as in TensorFlow's `Example` message.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Example {
    message: proto::Example,
}

impl Example {
    /// An example without features.
    pub fn new() -> Example {
        Example::default()
    }

    /// The example in a record.
    pub fn decode(record: impl Into<Bytes>) -> Result<Example> {
        let message = proto::Example::decode(record.into());
        Ok(Example { message: message.map_err(|e| invalid!("the record holds no Example message: {e}"))? })
    }

    /// The record that holds it.
    pub fn encode(&self) -> Vec<u8> {
        self.message.encode_to_vec()
    }

    /// With a feature that is a list of byte strings.
    pub fn bytes<B: Into<Bytes>>(self, name: &str, values: impl IntoIterator<Item = B>) -> Example {
        let value = values.into_iter().map(Into::into).collect();
        self.with(name, Kind::BytesList(proto::BytesList { value }))
    }

    /// With a feature that is a list of floats.
    pub fn floats(self, name: &str, values: impl IntoIterator<Item = f32>) -> Example {
        self.with(name, Kind::FloatList(proto::FloatList { value: values.into_iter().collect() }))
    }

    /// With a feature that is a list of integers.
    pub fn ints(self, name: &str, values: impl IntoIterator<Item = i64>) -> Example {
        self.with(name, Kind::Int64List(proto::Int64List { value: values.into_iter().collect() }))
    }

    /// The byte strings of a feature.
    pub fn get_bytes(&self, name: &str) -> Result<&[Bytes]> {
        match self.kind(name)? {
            Kind::BytesList(list) => Ok(&list.value),
            other => Err(another_kind(name, "bytes", other)),
        }
    }

    /// The floats of a feature.
    pub fn get_floats(&self, name: &str) -> Result<&[f32]> {
        match self.kind(name)? {
            Kind::FloatList(list) => Ok(&list.value),
            other => Err(another_kind(name, "floats", other)),
        }
    }

    /// The integers of a feature.
    pub fn get_ints(&self, name: &str) -> Result<&[i64]> {
        match self.kind(name)? {
            Kind::Int64List(list) => Ok(&list.value),
            other => Err(another_kind(name, "integers", other)),
        }
    }

    /// The names of the features.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.message.features.iter().flat_map(|features| features.feature.keys().map(String::as_str))
    }

    fn with(mut self, name: &str, kind: Kind) -> Example {
        let features = self.message.features.get_or_insert_default();
        features.feature.insert(name.into(), proto::Feature { kind: Some(kind) });
        self
    }

    fn kind(&self, name: &str) -> Result<&Kind> {
        let feature = self.message.features.as_ref().and_then(|features| features.feature.get(name));
        feature.and_then(|feature| feature.kind.as_ref()).ok_or_else(|| {
            let names: Vec<&str> = self.names().collect();
            not_found!("wanted a feature called '{name}', found {names:?}")
        })
    }
}

fn another_kind(name: &str, wanted: &str, found: &Kind) -> tensor::Error {
    let found = match found {
        Kind::BytesList(_) => "bytes",
        Kind::FloatList(_) => "floats",
        Kind::Int64List(_) => "integers",
    };
    invalid!("wanted {wanted} in the feature '{name}', found {found}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use tensor::Code;

    #[test]
    fn records_come_back_however_they_are_compressed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("records");
        for compression in [Compression::None, Compression::Zlib, Compression::Gzip] {
            let mut writer = RecordWriter::create(&path, compression).unwrap();
            [&b""[..], b"one", &[7; 100_000]].iter().for_each(|record| writer.write(record).unwrap());
            writer.finish().unwrap();
            let found: Vec<Vec<u8>> = read(&path, compression).unwrap().collect::<Result<_>>().unwrap();
            assert_eq!(found.iter().map(Vec::len).collect::<Vec<_>>(), [0, 3, 100_000], "{compression:?}");
        }
    }

    #[test]
    fn a_damaged_record_ends_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("records");
        let mut writer = RecordWriter::create(&path, Compression::None).unwrap();
        (0..3).for_each(|i| writer.write(&[i; 10]).unwrap());
        writer.finish().unwrap();
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[26 + 14] ^= 1; // in the second record's data
        std::fs::write(&path, bytes).unwrap();
        let found: Vec<Result<Vec<u8>>> = read(&path, Compression::None).unwrap().collect();
        assert_eq!(found.len(), 2);
        assert_eq!(found[1].as_ref().unwrap_err().code, Code::DataLoss);
        assert_eq!(read(folder.path().join("none"), Compression::None).err().unwrap().code, Code::NotFound);
    }

    /// The bytes are those of `tf.train.Example` with the same features.
    #[test]
    fn an_example_is_tensorflows() {
        let example = Example::new().ints("label", [3, -1]).floats("x", [0.5]).bytes("name", ["ab"]);
        let wanted =
            b"\n9\n\x18\n\x05label\x12\x0f\x1a\r\n\x0b\x03\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\n\x0e\n\x04name\
            \x12\x06\n\x04\n\x02ab\n\r\n\x01x\x12\x08\x12\x06\n\x04\x00\x00\x00?";
        assert_eq!(example.encode(), wanted);
        let back = Example::decode(example.encode()).unwrap();
        assert_eq!(back, example);
        assert_eq!(back.get_ints("label").unwrap(), [3, -1]);
        assert_eq!(back.get_floats("x").unwrap(), [0.5]);
        assert_eq!(back.get_bytes("name").unwrap(), ["ab"]);
    }

    #[test]
    fn what_is_missing_or_of_another_kind_is_told() {
        let example = Example::new().ints("label", [3]);
        let error = example.get_ints("lable").unwrap_err();
        assert_eq!(error.message, "wanted a feature called 'lable', found [\"label\"]");
        let error = example.get_floats("label").unwrap_err();
        assert_eq!(error.message, "wanted floats in the feature 'label', found integers");
        let error = Example::decode(&b"\xff"[..]).unwrap_err();
        assert!(error.message.contains("no Example message"), "{error}");
    }
}

//! Writes a checkpoint of one data file.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use prost::Message;
use proto::BundleEntryProto;
use tensor::{DType, Result, Shape, Tensor, shape_to_proto};

use super::{HEADER_KEY, PART_KEY_START, data_path, header, native_endianness, publish, strings, temporary_path};
use crate::checksum::masked;
use crate::files::{Files, Sink, from_io, parent_dir};
use crate::slice::TensorSlice;

const BUFFER_LEN: usize = 1024 * 1024;

/// Writes tensors into a checkpoint, which exists once [`finish`](Self::finish) returns and not before.
pub struct BundleWriter {
    files: Arc<dyn Files>,
    prefix: PathBuf,
    /// The data file under its temporary name; taken by `finish`.
    data: Option<BufWriter<Sink>>,
    temporary: PathBuf,
    offset: u64,
    entries: BTreeMap<Vec<u8>, BundleEntryProto>,
}

impl BundleWriter {
    /// Starts a checkpoint with this prefix; the directory is made if need be.
    pub fn create(files: Arc<dyn Files>, prefix: &Path) -> Result<Self> {
        files.create_dir_all(parent_dir(prefix))?;
        let temporary = temporary_path(&*files, &data_path(prefix, 0, 1));
        let data = Some(BufWriter::with_capacity(BUFFER_LEN, Sink::new(files.create(&temporary)?)));
        Ok(Self { files, prefix: prefix.to_owned(), data, temporary, offset: 0, entries: BTreeMap::new() })
    }

    /// Appends a tensor.
    pub fn add(&mut self, name: &str, tensor: &Tensor) -> Result<()> {
        check_name(name)?;
        self.add_entry(name.as_bytes().to_vec(), name, tensor)
    }

    /// Appends a part of a tensor whose whole has the shape `full`.
    pub fn add_slice(&mut self, name: &str, full: &Shape, slice: &TensorSlice, part: &Tensor) -> Result<()> {
        let wanted = slice.shape_within(full)?;
        if wanted != *part.shape() {
            return Err(tensor::invalid!(
                "slice {slice} of shape {full} has shape {wanted}, the part of \"{name}\" has {}",
                part.shape()
            ));
        }
        if wanted == *full {
            return self.add(name, part);
        }
        check_name(name)?;
        self.check_whole(name, full, part.dtype())?;
        self.add_entry(slice.key(name), name, part)?;
        let whole = self.entries.entry(name.as_bytes().to_vec()).or_insert_with(|| BundleEntryProto {
            dtype: part.dtype().number(),
            shape: Some(shape_to_proto(&full.into())),
            ..Default::default()
        });
        whole.slices.push(slice.to_proto());
        Ok(())
    }

    /// Writes the index and gives the files their names.
    pub fn finish(mut self) -> Result<()> {
        let data = self.data.take().expect("only `finish` takes the data file");
        data.into_inner().map_err(|e| from_io(&self.temporary, e.into_error()))?.finish()?;
        publish(&*self.files, &self.prefix, std::slice::from_ref(&self.temporary), |index, count| {
            index.add(HEADER_KEY, &header(count, native_endianness()).encode_to_vec())?;
            self.entries.iter().try_for_each(|(key, entry)| index.add(key, &entry.encode_to_vec()))
        })
    }

    /// A part must belong to what other parts said the whole is.
    fn check_whole(&self, name: &str, full: &Shape, dtype: DType) -> Result<()> {
        let Some(whole) = self.entries.get(name.as_bytes()) else { return Ok(()) };
        if whole.slices.is_empty() {
            return Err(tensor::invalid!("Adding duplicate key: {name}"));
        }
        if whole.dtype != dtype.number() || whole.shape.as_ref() != Some(&shape_to_proto(&full.into())) {
            return Err(tensor::invalid!(
                "a part of \"{name}\" says the whole is {dtype} {full}, another said otherwise"
            ));
        }
        Ok(())
    }

    fn add_entry(&mut self, key: Vec<u8>, name: &str, tensor: &Tensor) -> Result<()> {
        let Entry::Vacant(entry) = self.entries.entry(key) else {
            return Err(tensor::invalid!("Adding duplicate key: {name}"));
        };
        let data = self.data.as_mut().expect("only `finish` takes the data file");
        let mut size = 0;
        let mut write = |bytes: &[u8]| {
            size += bytes.len() as u64;
            data.write_all(bytes).map_err(|e| from_io(&self.temporary, e))
        };
        let crc32c = match tensor.dtype() {
            DType::String => {
                let strings = tensor.as_strings()?;
                let (front, crc32c) = strings::encode(strings);
                write(&front)?;
                strings.iter().try_for_each(|string| write(string))?;
                crc32c
            }
            dtype if dtype.is_plain() => {
                let bytes = tensor.as_bytes()?;
                summed_meanwhile(bytes, || write(bytes))?
            }
            dtype => {
                return Err(tensor::unsupported!("\"{name}\" is a {dtype}, which cannot be stored in a checkpoint"));
            }
        };
        entry.insert(BundleEntryProto {
            dtype: tensor.dtype().number(),
            shape: Some(shape_to_proto(&tensor.shape().into())),
            shard_id: 0,
            offset: self.offset as i64,
            size: size as i64,
            crc32c,
            slices: Vec::new(),
        });
        self.offset += size;
        Ok(())
    }
}

impl Drop for BundleWriter {
    fn drop(&mut self) {
        // What is still to be written need not be: the file goes away. After `finish` it has another name, unless that
        // failed. A leftover does no harm.
        drop(self.data.take().map(BufWriter::into_parts));
        let _ = self.files.remove(&self.temporary);
    }
}

/// The checksum of some bytes that are written: in the same time, if they are many.
fn summed_meanwhile(bytes: &[u8], write: impl FnOnce() -> Result<()>) -> Result<u32> {
    if bytes.len() < BUFFER_LEN {
        return write().map(|()| masked(bytes));
    }
    std::thread::scope(|scope| {
        let sum = std::thread::Builder::new().spawn_scoped(scope, || masked(bytes));
        write()?;
        Ok(sum.ok().and_then(|sum| sum.join().ok()).unwrap_or_else(|| masked(bytes)))
    })
}

fn check_name(name: &str) -> Result<()> {
    match name.as_bytes().first() {
        None | Some(&PART_KEY_START) => Err(tensor::invalid!("a tensor in a checkpoint cannot be named {name:?}")),
        Some(_) => Ok(()),
    }
}

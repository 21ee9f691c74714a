//! Writes a checkpoint: tensors one by one into one data file, or many at once, if large, into several.

use std::collections::BTreeMap;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use prost::Message;
use proto::BundleEntryProto;
use tensor::{DType, Result, Shape, Tensor, shape_to_proto};

use super::{HEADER_KEY, PART_KEY_START, data_path, header, native_endianness, publish, strings, temporary_path};
use crate::checksum::{mask, masked};
use crate::files::{Files, Sink, from_io, parent_dir};
use crate::slice::TensorSlice;

const BUFFER_LEN: usize = 1024 * 1024;
/// A second data file is begun where each gets this much. One file takes the bytes of one thread at a time.
const DATA_FILE_LEN: usize = 32 * 1024 * 1024;
/// More files than these would gain little, and a checkpoint is copied and listed by people too.
const DATA_FILES_MAX: usize = 4;

/// A tensor to be stored, or a part of one.
#[derive(Clone, Debug)]
pub struct Stored<'a> {
    /// The name of the whole tensor.
    pub name: &'a str,
    /// The shape of the whole and which part of it this is; `None` is the whole.
    pub slice: Option<(Shape, TensorSlice)>,
    /// The values.
    pub tensor: &'a Tensor,
}

/// Writes tensors into a checkpoint, which exists once [`finish`](Self::finish) returns and not before.
pub struct BundleWriter {
    files: Arc<dyn Files>,
    prefix: PathBuf,
    data: Vec<DataFile>,
    entries: BTreeMap<Vec<u8>, BundleEntryProto>,
}

impl BundleWriter {
    /// Starts a checkpoint with this prefix; the directory is made if need be.
    pub fn create(files: Arc<dyn Files>, prefix: &Path) -> Result<Self> {
        files.create_dir_all(parent_dir(prefix))?;
        let data = vec![DataFile::create(&files, prefix, 0)?];
        Ok(Self { files, prefix: prefix.to_owned(), data, entries: BTreeMap::new() })
    }

    /// Appends a tensor.
    pub fn add(&mut self, name: &str, tensor: &Tensor) -> Result<()> {
        self.add_all(&[Stored { name, slice: None, tensor }])
    }

    /// Appends a part of a tensor whose whole has the shape `full`.
    pub fn add_slice(&mut self, name: &str, full: &Shape, slice: &TensorSlice, part: &Tensor) -> Result<()> {
        self.add_all(&[Stored { name, slice: Some((full.clone(), slice.clone())), tensor: part }])
    }

    /// Appends tensors; where they are large, in several data files that are written at the same time.
    ///
    /// Which tensor goes to which file depends on their sizes and on the number of processors alone.
    pub fn add_all(&mut self, tensors: &[Stored<'_>]) -> Result<()> {
        let keys = tensors.iter().map(|stored| self.enter(stored)).collect::<Result<Vec<_>>>()?;
        let sizes: Vec<usize> = tensors.iter().map(|stored| len(stored.tensor)).collect();
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let files = (sizes.iter().sum::<usize>() / DATA_FILE_LEN).clamp(1, threads.min(DATA_FILES_MAX));
        let assigned = spread(&sizes, files);
        for number in self.data.len()..assigned.len() {
            self.data.push(DataFile::create(&self.files, &self.prefix, number)?);
        }
        let alone = assigned.len() == 1;
        let mut written: Vec<Result<Vec<Place>>> = assigned.iter().map(|_| Ok(Vec::new())).collect();
        let jobs = Mutex::new(self.data.iter_mut().zip(&assigned).zip(&mut written));
        let next = || jobs.lock().unwrap_or_else(PoisonError::into_inner).next();
        let write = || {
            while let Some(((file, chosen), written)) = next() {
                *written = chosen.iter().map(|&i| file.append(tensors[i].tensor, alone)).collect();
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..assigned.len() {
                // Where there is no thread to be had, this one writes all.
                let _ = std::thread::Builder::new().spawn_scoped(scope, write);
            }
            write();
        });
        for (shard, (chosen, places)) in assigned.iter().zip(written).enumerate() {
            for (&i, place) in chosen.iter().zip(places?) {
                let entry = self.entries.get_mut(&keys[i]).expect("it was entered above");
                (entry.shard_id, entry.offset) = (shard as i32, place.offset as i64);
                (entry.size, entry.crc32c) = (place.size as i64, place.crc32c);
            }
        }
        Ok(())
    }

    /// Writes the index and gives the files their names.
    pub fn finish(mut self) -> Result<()> {
        self.data.iter_mut().try_for_each(DataFile::finish)?;
        let temporary: Vec<PathBuf> = self.data.iter().map(|file| file.temporary.clone()).collect();
        publish(&*self.files, &self.prefix, &temporary, |index, count| {
            index.add(HEADER_KEY, &header(count, native_endianness()).encode_to_vec())?;
            self.entries.iter().try_for_each(|(key, entry)| index.add(key, &entry.encode_to_vec()))
        })
    }

    /// Enters a tensor in the index, if it is a part also in the entry of the whole, and returns its key. Its place in a
    /// data file is not known yet.
    fn enter(&mut self, stored: &Stored<'_>) -> Result<Vec<u8>> {
        let Stored { name, slice, tensor } = stored;
        check_name(name)?;
        let mut part = None;
        if let Some((full, slice)) = slice {
            let wanted = slice.shape_within(full)?;
            if wanted != *tensor.shape() {
                return Err(tensor::invalid!(
                    "slice {slice} of shape {full} has shape {wanted}, the part of \"{name}\" has {}",
                    tensor.shape()
                ));
            }
            if wanted != *full {
                self.check_whole(name, full, tensor.dtype())?;
                part = Some((full, slice));
            }
        }
        let key = part.map_or_else(|| name.as_bytes().to_vec(), |(_, slice)| slice.key(name));
        if self.entries.contains_key(&key) {
            return Err(tensor::invalid!("Adding duplicate key: {name}"));
        }
        let dtype = tensor.dtype();
        if dtype != DType::String && !dtype.is_plain() {
            return Err(tensor::unsupported!("\"{name}\" is a {dtype}, which cannot be stored in a checkpoint"));
        }
        let entry = |shape: &Shape| BundleEntryProto {
            dtype: dtype.number(),
            shape: Some(shape_to_proto(&shape.into())),
            ..Default::default()
        };
        self.entries.insert(key.clone(), entry(tensor.shape()));
        if let Some((full, slice)) = part {
            let whole = self.entries.entry(name.as_bytes().to_vec()).or_insert_with(|| entry(full));
            whole.slices.push(slice.to_proto());
        }
        Ok(key)
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
}

/// A data file that is being written.
struct DataFile {
    files: Arc<dyn Files>,
    /// The name it has until the index is written.
    temporary: PathBuf,
    /// Taken by `finish`.
    out: Option<BufWriter<Sink>>,
    offset: u64,
}

/// Where in a data file a tensor is.
struct Place {
    offset: u64,
    size: u64,
    crc32c: u32,
}

impl DataFile {
    fn create(files: &Arc<dyn Files>, prefix: &Path, number: usize) -> Result<Self> {
        let temporary = temporary_path(&**files, &data_path(prefix, number, number + 1));
        let out = Some(BufWriter::with_capacity(BUFFER_LEN, Sink::new(files.create(&temporary)?)));
        Ok(Self { files: files.clone(), temporary, out, offset: 0 })
    }

    /// Appends the bytes of a tensor; if the file is written `alone`, another thread may help.
    fn append(&mut self, tensor: &Tensor, alone: bool) -> Result<Place> {
        let out = self.out.as_mut().expect("only `finish` takes it");
        let mut size = 0;
        let mut write = |bytes: &[u8]| {
            size += bytes.len() as u64;
            out.write_all(bytes).map_err(|e| from_io(&self.temporary, e))
        };
        let crc32c = if tensor.dtype() == DType::String {
            let strings = tensor.as_strings()?;
            let (front, crc32c) = strings::encode(strings);
            write(&front)?;
            strings.iter().try_for_each(|string| write(string))?;
            crc32c
        } else if alone {
            let bytes = tensor.as_bytes()?;
            summed_meanwhile(bytes, || write(bytes))?
        } else {
            let mut crc = 0;
            for bytes in tensor.as_bytes()?.chunks(BUFFER_LEN) {
                crc = crc32c::crc32c_append(crc, bytes); // they are still near the processor when they are written
                write(bytes)?;
            }
            mask(crc)
        };
        let offset = self.offset;
        self.offset += size;
        Ok(Place { offset, size, crc32c })
    }

    /// Makes what was written durable.
    fn finish(&mut self) -> Result<()> {
        let out = self.out.take().expect("only `finish` takes it, once");
        out.into_inner().map_err(|e| from_io(&self.temporary, e.into_error()))?.finish()
    }
}

impl Drop for DataFile {
    fn drop(&mut self) {
        // What is still to be written need not be: the file goes away. After `finish` it has another name, unless that
        // failed. A leftover does no harm.
        drop(self.out.take().map(BufWriter::into_parts));
        let _ = self.files.remove(&self.temporary);
    }
}

/// How many bytes a tensor takes, nearly.
fn len(tensor: &Tensor) -> usize {
    match tensor.as_strings() {
        Ok(strings) => strings.iter().map(|string| string.len()).sum(),
        Err(_) => tensor.as_bytes().map_or(0, <[u8]>::len),
    }
}

/// Spreads things of these sizes over at most `count` places so that each place gets about as much: the largest first,
/// each to where there is least. Returns what each place gets, in the order of the things; only the first may get nothing.
fn spread(sizes: &[usize], count: usize) -> Vec<Vec<usize>> {
    let mut places = vec![(0, Vec::new()); count.max(1)];
    let mut order: Vec<usize> = (0..sizes.len()).collect();
    order.sort_by_key(|&i| std::cmp::Reverse(sizes[i]));
    for i in order {
        let (total, chosen) = places.iter_mut().min_by_key(|(total, _)| *total).expect("there is at least one place");
        *total += sizes[i];
        chosen.push(i);
    }
    let used = places.iter().filter(|(_, chosen)| !chosen.is_empty()).count();
    places.truncate(used.max(1)); // of empty places the first was filled first
    let in_order = |(_, mut chosen): (usize, Vec<usize>)| {
        chosen.sort_unstable();
        chosen
    };
    places.into_iter().map(in_order).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensors_are_spread_evenly_and_in_order() {
        type Case = (&'static [usize], usize, &'static [&'static [usize]]);
        let cases: [Case; 7] = [
            (&[], 2, &[&[]]),
            (&[5], 2, &[&[0]]),
            (&[0, 0], 2, &[&[0, 1]]),
            (&[1, 2, 3], 1, &[&[0, 1, 2]]),
            (&[1, 2, 3], 2, &[&[2], &[0, 1]]),
            (&[4, 4, 4, 4], 2, &[&[0, 2], &[1, 3]]),
            (&[9, 1, 1, 1], 3, &[&[0], &[1, 3], &[2]]),
        ];
        for (sizes, count, wanted) in cases {
            assert_eq!(spread(sizes, count), wanted, "{sizes:?} over {count}");
        }
    }
}

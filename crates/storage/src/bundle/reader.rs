//! Reads tensors, or parts of them, from a checkpoint.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use prost::Message;
use proto::bundle_header_proto::Endianness;
use proto::{BundleEntryProto, BundleHeaderProto};
use tensor::{Code, DType, Error, Result, Shape, Tensor};

use super::{HEADER_KEY, PART_KEY_START, VERSION, data_path, index_path, native_endianness, strings};
use crate::checksum::mask;
use crate::files::{Files, ReadFile};
use crate::slice::{Region, TensorSlice};
use crate::table::TableReader;

/// How much is read before it is summed: small enough to be still in the cache.
const CHUNK_LEN: usize = 256 * 1024;

/// Reads a checkpoint. Every byte it hands out was checked against the checksum that was stored with it.
pub struct BundleReader {
    files: Arc<dyn Files>,
    prefix: PathBuf,
    table: TableReader,
    shard_count: usize,
    swap_bytes: bool,
    shards: Mutex<HashMap<usize, Shard>>,
}

/// A data file, opened when first asked for.
#[derive(Clone)]
struct Shard {
    file: Arc<dyn ReadFile>,
    len: u64,
}

/// What a checkpoint says of a tensor before it is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    /// The element type.
    pub dtype: DType,
    /// The shape of the whole tensor.
    pub shape: Shape,
    /// The parts it is stored in; none if it is stored whole.
    pub slices: Vec<TensorSlice>,
}

/// A tensor, or a part of one, that lies in one piece in a data file.
struct Part {
    region: Region,
    shard: Shard,
    offset: u64,
    size: usize,
    checksum: u32,
}

impl BundleReader {
    /// Opens the checkpoint with this prefix.
    pub fn open(files: Arc<dyn Files>, prefix: &Path) -> Result<Self> {
        let table = open_index(&*files, prefix)?;
        let header = read_header(&table, prefix)?;
        let shard_count = shard_count(&header, prefix)?;
        let swap_bytes = header.endianness() != native_endianness();
        let prefix = prefix.to_owned();
        Ok(Self { files, prefix, table, shard_count, swap_bytes, shards: Mutex::default() })
    }

    /// The names of all tensors, in order.
    pub fn names(&self) -> Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in self.table.iter() {
            let (key, _) = entry?;
            if is_name(&key) {
                names.push(String::from_utf8(key).map_err(|e| {
                    let name = String::from_utf8_lossy(e.as_bytes()).into_owned();
                    self.corrupt(&name, "its name is not UTF-8")
                })?);
            }
        }
        Ok(names)
    }

    /// Whether there is a tensor of this name.
    pub fn contains(&self, name: &str) -> Result<bool> {
        Ok(is_name(name.as_bytes()) && self.table.get(name.as_bytes())?.is_some())
    }

    /// The type and shape of a tensor. Its bytes are there in full, so the shape can be trusted with memory.
    pub fn lookup(&self, name: &str) -> Result<TensorInfo> {
        Ok(self.find(name)?.0)
    }

    /// Reads a whole tensor.
    pub fn read(&self, name: &str) -> Result<Tensor> {
        let (info, parts) = self.find(name)?;
        self.read_region(name, &info, &parts, &Region::whole(&info.shape))
    }

    /// Reads a part of a tensor, however it is stored.
    pub fn read_slice(&self, name: &str, slice: &TensorSlice) -> Result<Tensor> {
        let (info, parts) = self.find(name)?;
        let region = slice.within(&info.shape).map_err(|e| e.context(format!("reading \"{name}\"")))?;
        self.read_region(name, &info, &parts, &region)
    }

    /// Reads a whole tensor of a plain type into memory that is there already and has just the right size.
    pub fn read_into(&self, name: &str, into: &mut [u8]) -> Result<()> {
        let (info, parts) = self.find(name)?;
        let size = info.shape.num_elements() * info.dtype.size();
        if !info.dtype.is_plain() || size != into.len() {
            return Err(tensor::invalid!(
                "\"{name}\" is {} {}, which does not go into {} bytes",
                info.dtype,
                info.shape,
                into.len()
            ));
        }
        self.fill(name, info.dtype, &parts, &Region::whole(&info.shape), into)
    }

    /// What is known of a tensor and where its parts are: all within their files, of the right size, none over another.
    fn find(&self, name: &str) -> Result<(TensorInfo, Vec<Part>)> {
        let entry = if is_name(name.as_bytes()) { self.entry(name, name.as_bytes())? } else { None };
        let entry = entry.ok_or_else(|| tensor::not_found!("Key {name} not found in checkpoint"))?;
        let dtype = DType::from_number(entry.dtype)
            .ok_or_else(|| self.corrupt(name, format_args!("{} is no element type", entry.dtype)))?;
        if !dtype.is_plain() && dtype != DType::String {
            return Err(tensor::unsupported!("\"{name}\" is a {dtype}, which cannot be read from a checkpoint"));
        }
        let shape = self.shape(name, &entry)?;
        let slices: Vec<TensorSlice> = entry.slices.iter().map(TensorSlice::from_proto).collect();
        let parts = if slices.is_empty() {
            vec![self.part(name, &entry, dtype, Region::whole(&shape))?]
        } else {
            let part = |slice: &TensorSlice| self.part_at(name, &shape, dtype, slice);
            slices.iter().map(part).collect::<Result<Vec<_>>>()?
        };
        let overlapping = overlap(&parts);
        let stored: usize = parts.iter().map(|part| part.region.count()).sum();
        if overlapping || stored < shape.num_elements() {
            return Err(self.corrupt(name, format_args!("its parts do not make up the shape {shape}")));
        }
        Ok((TensorInfo { dtype, shape, slices }, parts))
    }

    fn entry(&self, name: &str, key: &[u8]) -> Result<Option<BundleEntryProto>> {
        let Some(value) = self.table.get(key)? else { return Ok(None) };
        let entry = BundleEntryProto::decode(value).map_err(|e| self.corrupt(name, e))?;
        Ok(Some(entry))
    }

    fn shape(&self, name: &str, entry: &BundleEntryProto) -> Result<Shape> {
        let dims = entry.shape.iter().flat_map(|shape| &shape.dim).map(|dim| dim.size);
        Shape::checked(dims).map_err(|e| self.corrupt(name, e.message))
    }

    fn part_at(&self, name: &str, full: &Shape, dtype: DType, slice: &TensorSlice) -> Result<Part> {
        let region = slice.within(full).map_err(|e| self.corrupt(name, e.message))?;
        let entry = self.entry(name, &slice.key(name))?;
        let entry = entry.ok_or_else(|| self.corrupt(name, format_args!("its part {slice} is missing")))?;
        if entry.dtype != dtype.number() || self.shape(name, &entry)?.dims() != region.len {
            return Err(self.corrupt(name, format_args!("its part {slice} is of another type or shape")));
        }
        self.part(name, &entry, dtype, region)
    }

    fn part(&self, name: &str, entry: &BundleEntryProto, dtype: DType, region: Region) -> Result<Part> {
        let shard =
            usize::try_from(entry.shard_id).ok().filter(|&shard| shard < self.shard_count).ok_or_else(|| {
                self.corrupt(name, format_args!("data file {} of {} does not exist", entry.shard_id, self.shard_count))
            })?;
        let shard = self.shard(shard)?;
        let (offset, size) = (u64::try_from(entry.offset), u64::try_from(entry.size));
        let (Ok(offset), Ok(size)) = (offset, size) else {
            return Err(self.corrupt(name, "its offset or size is negative"));
        };
        let file = shard.file.path().display();
        if offset.checked_add(size).is_none_or(|end| end > shard.len) {
            return Err(self.corrupt(
                name,
                format_args!("{size} bytes at {offset} are wanted of {file}, which has {}", shard.len),
            ));
        }
        let count = region.count();
        let fits = match dtype {
            // A length takes at least a byte.
            DType::String => count as u64 <= size,
            _ => (count as u64).checked_mul(dtype.size() as u64) == Some(size),
        };
        if !fits {
            return Err(self.corrupt(name, format_args!("{count} elements of {dtype} do not take {size} bytes")));
        }
        Ok(Part { region, offset, size: size as usize, checksum: entry.crc32c, shard: shard.clone() })
    }

    fn shard(&self, number: usize) -> Result<Shard> {
        let mut shards = self.shards.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(shard) = shards.get(&number) {
            return Ok(shard.clone());
        }
        let file = self.files.open_read(&data_path(&self.prefix, number, self.shard_count))?;
        let shard = Shard { len: file.size()?, file };
        shards.insert(number, shard.clone());
        Ok(shard)
    }

    fn read_region(&self, name: &str, info: &TensorInfo, parts: &[Part], region: &Region) -> Result<Tensor> {
        let shape = Shape::from(region.len.as_slice());
        match info.dtype {
            DType::String => Tensor::from_strings(shape, self.strings(name, parts, region)?),
            dtype => Tensor::from_filled(dtype, shape, |into| self.fill(name, dtype, parts, region, into)),
        }
    }

    /// Fills `into`, the memory of `region`, from the parts that have something of it.
    fn fill(&self, name: &str, dtype: DType, parts: &[Part], region: &Region, into: &mut [u8]) -> Result<()> {
        let size = dtype.size();
        let mut scratch = Vec::new();
        for part in parts {
            let runs = part.region.runs_to(region);
            if runs.count == 0 {
                continue;
            }
            match runs.single() {
                // The whole part is one stretch of the result: no copy.
                Some((0, to)) if runs.count == part.region.count() => {
                    self.read_part(name, part, &mut into[to * size..(to + runs.count) * size])?;
                }
                _ => {
                    scratch.resize(part.size, 0);
                    self.read_part(name, part, &mut scratch)?;
                    let len = runs.count * size;
                    runs.for_each(|from, to| {
                        into[to * size..][..len].copy_from_slice(&scratch[from * size..][..len]);
                    });
                }
            }
        }
        if self.swap_bytes {
            let width = if dtype.is_complex() { size / 2 } else { size };
            into.chunks_exact_mut(width).for_each(<[u8]>::reverse);
        }
        Ok(())
    }

    fn strings(&self, name: &str, parts: &[Part], region: &Region) -> Result<Vec<Bytes>> {
        if self.swap_bytes {
            return Err(tensor::unsupported!("\"{name}\": strings written by a machine of the other byte order"));
        }
        let mut strings = vec![Bytes::new(); region.count()];
        for part in parts {
            let runs = part.region.runs_to(region);
            // Also an empty tensor has a checksum to be checked.
            if runs.count == 0 && part.region.count() > 0 {
                continue;
            }
            let mut payload = vec![0; part.size];
            part.shard.file.read_exact_at(part.offset, &mut payload)?;
            let stored = strings::decode(payload.into(), part.region.count(), part.checksum);
            let stored = stored.map_err(|why| self.corrupt_in(name, part, why))?;
            runs.for_each(|from, to| strings[to..][..runs.count].clone_from_slice(&stored[from..][..runs.count]));
        }
        Ok(strings)
    }

    fn read_part(&self, name: &str, part: &Part, into: &mut [u8]) -> Result<()> {
        let mut crc = 0;
        let mut offset = part.offset;
        for chunk in into.chunks_mut(CHUNK_LEN) {
            part.shard.file.read_exact_at(offset, chunk)?;
            crc = crc32c::crc32c_append(crc, chunk);
            offset += chunk.len() as u64;
        }
        let found = mask(crc);
        if found != part.checksum {
            let why = format!("the checksum does not match: stored {:08x}, computed {found:08x}", part.checksum);
            return Err(self.corrupt_in(name, part, why));
        }
        Ok(())
    }

    /// The index is at fault.
    fn corrupt(&self, name: &str, why: impl std::fmt::Display) -> Error {
        tensor::data_loss!("{}: tensor \"{name}\": {why}", index_path(&self.prefix).display())
    }

    /// A data file is at fault.
    fn corrupt_in(&self, name: &str, part: &Part, why: impl std::fmt::Display) -> Error {
        tensor::data_loss!("{}: tensor \"{name}\" at {}: {why}", part.shard.file.path().display(), part.offset)
    }
}

/// Opens the index of a checkpoint, or says as TensorFlow does that there is none.
pub(super) fn open_index(files: &dyn Files, prefix: &Path) -> Result<TableReader> {
    TableReader::open(files, &index_path(prefix)).map_err(|error| match error.code {
        Code::NotFound => tensor::not_found!(
            "Unsuccessful TensorSliceReader constructor: Failed to find any matching files for {}",
            prefix.display()
        ),
        _ => error,
    })
}

/// Reads the header and makes sure that this program understands the rest.
pub(super) fn read_header(table: &TableReader, prefix: &Path) -> Result<BundleHeaderProto> {
    let index = index_path(prefix);
    let value = table.get(HEADER_KEY)?;
    let value = value.ok_or_else(|| tensor::data_loss!("{}: there is no header", index.display()))?;
    let header = BundleHeaderProto::decode(value)
        .map_err(|e| tensor::data_loss!("{}: the header is damaged: {e}", index.display()))?;
    let version = header.version.clone().unwrap_or_default();
    if version.min_consumer > VERSION || version.bad_consumers.contains(&VERSION) {
        return Err(tensor::invalid!(
            "{}: needs a reader of version {}, this one has version {VERSION}",
            index.display(),
            version.min_consumer
        ));
    }
    if Endianness::try_from(header.endianness).is_err() {
        return Err(tensor::data_loss!("{}: byte order {} is not known", index.display(), header.endianness));
    }
    Ok(header)
}

/// How many data files a checkpoint has.
pub(super) fn shard_count(header: &BundleHeaderProto, prefix: &Path) -> Result<usize> {
    usize::try_from(header.num_shards)
        .map_err(|_| tensor::data_loss!("{}: {} data files", index_path(prefix).display(), header.num_shards))
}

/// Whether a key is that of a tensor, rather than of the header or of a part.
pub(super) fn is_name(key: &[u8]) -> bool {
    key.first().is_some_and(|&first| first != PART_KEY_START)
}

/// Whether any two parts share an element.
fn overlap(parts: &[Part]) -> bool {
    let mut regions: Vec<&Region> = parts.iter().map(|part| &part.region).collect();
    regions.sort_by(|a, b| a.start.cmp(&b.start));
    regions.iter().enumerate().any(|(i, region)| {
        // Sorted by where they start: those that start after this one ends along the first dimension are far away.
        let mut near = regions[i + 1..].iter().take_while(|next| match (region.start.first(), region.len.first()) {
            (Some(start), Some(len)) => next.start[0] < start + len,
            _ => true,
        });
        near.any(|next| region.intersection(next).count() > 0)
    })
}

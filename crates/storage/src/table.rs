//! Sorted string tables: immutable files of keys in byte order, each with a value, cut into checked blocks.
//!
//! A table is data blocks, an empty block where others keep filters, a block that indexes the data blocks, and a
//! footer that says where the last two are. Any key is allowed, the empty one too. What keys and values mean is
//! not known here.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use prost::encoding::{decode_varint, encode_varint};
use tensor::{Error, Result};

use crate::checksum::mask;
use crate::files::{Files, ReadFile, WriteFile};

const MAGIC: u64 = 0xdb47_7524_8b80_fb57;
const FOOTER_LEN: usize = 48;
/// After each block: how it is compressed, and the checksum of the block and that byte.
const TRAILER_LEN: usize = 5;
const UNCOMPRESSED: u8 = 0;
const SNAPPY: u8 = 1;
/// A block is ended once it is this long, as TensorFlow does for checkpoints.
const BLOCK_LEN: usize = 256 * 1024;
const RESTART_INTERVAL: usize = 16;
/// More than snappy can make of one byte: its best is a 64-byte copy in 3 bytes.
const SNAPPY_RATIO_MAX: usize = 32;

/// Where a block is; the length does not count the trailer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Handle {
    offset: u64,
    len: u64,
}

impl Handle {
    fn encode(self, into: &mut Vec<u8>) {
        encode_varint(self.offset, into);
        encode_varint(self.len, into);
    }

    fn decode(from: &mut &[u8]) -> Option<Self> {
        Some(Self { offset: decode_varint(from).ok()?, len: decode_varint(from).ok()? })
    }
}

/// Writes a table, key by key in order, with the bytes TensorFlow would write.
pub struct TableWriter {
    file: Box<dyn WriteFile>,
    offset: u64,
    block: BlockBuilder,
    index: BlockBuilder,
    /// The last data block, which enters the index once the key after it is known.
    pending: Option<Handle>,
    last_key: Option<Vec<u8>>,
}

impl TableWriter {
    /// Writes into a file that was just made.
    pub fn new(file: Box<dyn WriteFile>) -> Self {
        let block = BlockBuilder::new(RESTART_INTERVAL);
        Self { file, offset: 0, block, index: BlockBuilder::new(1), pending: None, last_key: None }
    }

    /// Appends an entry, whose key must be greater than the last one.
    pub fn add(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        if let Some(last) = &self.last_key {
            if last.as_slice() >= key {
                return Err(tensor::invalid!(
                    "{}: key {:?} comes after {:?}",
                    self.file.path().display(),
                    String::from_utf8_lossy(key),
                    String::from_utf8_lossy(last)
                ));
            }
            if let Some(handle) = self.pending.take() {
                self.index.add_handle(&shortest_between(last, key), handle);
            }
        }
        self.block.add(key, value);
        self.last_key = Some(key.to_vec());
        if self.block.len() >= BLOCK_LEN { self.end_block() } else { Ok(()) }
    }

    /// Writes what is left and makes the file durable.
    pub fn finish(mut self) -> Result<()> {
        if !self.block.is_empty() {
            self.end_block()?;
        }
        let meta = BlockBuilder::new(RESTART_INTERVAL).finish();
        let meta = self.write_block(meta)?;
        if let (Some(handle), Some(last)) = (self.pending.take(), &self.last_key) {
            self.index.add_handle(&shortest_after(last), handle);
        }
        let index = self.index.finish();
        let index = self.write_block(index)?;

        self.file.write_all(&encode_footer(&meta, &index))?;
        self.file.sync()
    }

    fn end_block(&mut self) -> Result<()> {
        let block = self.block.finish();
        self.pending = Some(self.write_block(block)?);
        Ok(())
    }

    fn write_block(&mut self, mut block: Vec<u8>) -> Result<Handle> {
        let handle = Handle { offset: self.offset, len: block.len() as u64 };
        block.push(UNCOMPRESSED);
        block.extend(crate::checksum::masked(&block).to_le_bytes());
        self.file.write_all(&block)?;
        self.offset += block.len() as u64;
        Ok(handle)
    }
}

/// A short key that is at least `last` and less than `next`.
fn shortest_between(last: &[u8], next: &[u8]) -> Vec<u8> {
    let shared = common_prefix_len(last, next);
    match (last.get(shared), next.get(shared)) {
        (Some(&a), Some(&b)) if a < 0xff && a + 1 < b => [&last[..shared], &[a + 1]].concat(),
        _ => last.to_vec(),
    }
}

/// A short key that is at least `last`.
fn shortest_after(last: &[u8]) -> Vec<u8> {
    match last.iter().position(|&byte| byte != 0xff) {
        Some(at) => [&last[..at], &[last[at] + 1]].concat(),
        None => last.to_vec(),
    }
}

fn common_prefix_len(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// Entries, each with only the end of its key that differs from the one before; now and then one with all of it.
struct BlockBuilder {
    restart_interval: usize,
    data: Vec<u8>,
    restarts: Vec<u32>,
    since_restart: usize,
    last_key: Vec<u8>,
}

impl BlockBuilder {
    fn new(restart_interval: usize) -> Self {
        Self { restart_interval, data: Vec::new(), restarts: vec![0], since_restart: 0, last_key: Vec::new() }
    }

    fn add(&mut self, key: &[u8], value: &[u8]) {
        let shared = if self.since_restart < self.restart_interval {
            common_prefix_len(&self.last_key, key)
        } else {
            // A block ends soon after 256 KB, and a value is a small message.
            self.restarts.push(self.data.len() as u32);
            self.since_restart = 0;
            0
        };
        for len in [shared, key.len() - shared, value.len()] {
            encode_varint(len as u64, &mut self.data);
        }
        self.data.extend_from_slice(&key[shared..]);
        self.data.extend_from_slice(value);
        self.since_restart += 1;
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
    }

    fn add_handle(&mut self, key: &[u8], handle: Handle) {
        let mut value = Vec::new();
        handle.encode(&mut value);
        self.add(key, &value);
    }

    fn is_empty(&self) -> bool {
        self.data.is_empty()
    }

    fn len(&self) -> usize {
        self.data.len() + 4 * self.restarts.len() + 4
    }

    /// The block's bytes; the builder is empty again.
    fn finish(&mut self) -> Vec<u8> {
        let done = std::mem::replace(self, Self::new(self.restart_interval));
        let mut block = done.data;
        for restart in &done.restarts {
            block.extend(restart.to_le_bytes());
        }
        block.extend((done.restarts.len() as u32).to_le_bytes());
        block
    }
}

/// Reads a table. Everything it returns was checked against the checksum of its block.
pub struct TableReader {
    file: Arc<dyn ReadFile>,
    file_len: u64,
    /// For each data block, a key not less than any in it and less than any in the next.
    index: Vec<(Vec<u8>, Handle)>,
    /// The block that was read last: neighbouring keys are mostly asked for together.
    last: Mutex<Option<(usize, Arc<Block>)>>,
}

impl TableReader {
    /// Opens a table and reads its index.
    pub fn open(files: &dyn Files, path: &Path) -> Result<Self> {
        let file = files.open_read(path)?;
        let file_len = file.size()?;
        let Some(footer_at) = file_len.checked_sub(FOOTER_LEN as u64) else {
            return Err(corrupt(path, format!("{file_len} bytes are too few for a table")));
        };
        let mut footer = [0; FOOTER_LEN];
        file.read_exact_at(footer_at, &mut footer)?;
        let (mut handles, magic) = footer.split_at(FOOTER_LEN - 8);
        if magic != MAGIC.to_le_bytes() {
            return Err(corrupt(path, "not a table: the last eight bytes are not a table's"));
        }
        let places = Handle::decode(&mut handles).zip(Handle::decode(&mut handles));
        // There is no checksum here, but only one way to write it.
        let Some((meta, index)) = places.filter(|(meta, index)| encode_footer(meta, index) == footer) else {
            return Err(corrupt(path, "the footer does not say where the index is"));
        };
        let mut table = Self { file, file_len, index: Vec::new(), last: Mutex::new(None) };
        // Nothing is in it, but a byte that changed there says that others may have, too.
        table.read_block(meta)?;
        table.index = table.read_index(index)?;
        Ok(table)
    }

    /// The value of a key.
    pub fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        let number = self.index.partition_point(|(last, _)| last.as_slice() < key);
        if number == self.index.len() {
            return Ok(None);
        }
        let block = self.block(number)?;
        block.find(key).map_err(|why| self.corrupt(why))
    }

    /// All entries, in the order of their keys.
    pub fn iter(&self) -> TableIter<'_> {
        TableIter { table: self, next_block: 0, block: None, last_key: None }
    }

    fn read_index(&self, handle: Handle) -> Result<Vec<(Vec<u8>, Handle)>> {
        let block = Arc::new(self.read_block(handle)?);
        let mut entries = BlockEntries::new(block);
        let mut index = Vec::new();
        while let Some((key, value)) = entries.next().map_err(|why| self.corrupt(why))? {
            let handle = Handle::decode(&mut value.as_ref()).ok_or_else(|| self.corrupt("a bad place in the index"))?;
            index.push((key, handle));
        }
        Ok(index)
    }

    fn block(&self, number: usize) -> Result<Arc<Block>> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        match &*last {
            Some((at, block)) if *at == number => Ok(block.clone()),
            _ => {
                let block = Arc::new(self.read_block(self.index[number].1)?);
                *last = Some((number, block.clone()));
                Ok(block)
            }
        }
    }

    fn read_block(&self, handle: Handle) -> Result<Block> {
        let Handle { offset, len } = handle;
        let end = offset.checked_add(len).and_then(|end| end.checked_add(TRAILER_LEN as u64));
        if end.is_none_or(|end| end > self.file_len) {
            return Err(self.corrupt(format!("a block of {len} bytes at {offset} is not within the file")));
        }
        let mut data = vec![0; len as usize + TRAILER_LEN];
        self.file.read_exact_at(offset, &mut data)?;
        let crc = data.split_off(len as usize + 1);
        if mask(crc32c::crc32c(&data)).to_le_bytes() != crc.as_slice() {
            return Err(self.corrupt(format!("the checksum of the block at {offset} does not match")));
        }
        let data = match data.pop() {
            Some(UNCOMPRESSED) => data,
            Some(SNAPPY) => uncompress(&data).map_err(|why| self.corrupt(format!("the block at {offset}: {why}")))?,
            other => return Err(self.corrupt(format!("the block at {offset} is compressed in a way {other:?}"))),
        };
        Block::new(data.into()).map_err(|why| self.corrupt(why))
    }

    fn corrupt(&self, why: impl std::fmt::Display) -> Error {
        corrupt(self.file.path(), why)
    }
}

/// Where the last two blocks are, and what tells that this is a table.
fn encode_footer(meta: &Handle, index: &Handle) -> Vec<u8> {
    let mut footer = Vec::with_capacity(FOOTER_LEN);
    meta.encode(&mut footer);
    index.encode(&mut footer);
    footer.resize(FOOTER_LEN - 8, 0);
    footer.extend(MAGIC.to_le_bytes());
    footer
}

fn corrupt(path: &Path, why: impl std::fmt::Display) -> Error {
    tensor::data_loss!("{}: {why}", path.display())
}

fn uncompress(data: &[u8]) -> Result<Vec<u8>, String> {
    let len = snap::raw::decompress_len(data).map_err(|e| e.to_string())?;
    if len > data.len().saturating_mul(SNAPPY_RATIO_MAX) {
        return Err(format!("{} bytes cannot uncompress to {len}", data.len()));
    }
    snap::raw::Decoder::new().decompress_vec(data).map_err(|e| e.to_string())
}

/// All entries of a table, in the order of their keys; ends after an error.
pub struct TableIter<'t> {
    table: &'t TableReader,
    next_block: usize,
    block: Option<BlockEntries>,
    last_key: Option<Vec<u8>>,
}

impl Iterator for TableIter<'_> {
    type Item = Result<(Vec<u8>, Bytes)>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.try_next();
        if next.is_err() {
            self.block = None;
            self.next_block = self.table.index.len();
        }
        next.transpose()
    }
}

impl TableIter<'_> {
    fn try_next(&mut self) -> Result<Option<(Vec<u8>, Bytes)>> {
        loop {
            if let Some(block) = &mut self.block
                && let Some((key, value)) = block.next().map_err(|why| self.table.corrupt(why))?
            {
                if self.last_key.as_ref().is_some_and(|last| *last >= key) {
                    return Err(self.table.corrupt("keys are not in order"));
                }
                self.last_key = Some(key.clone());
                return Ok(Some((key, value)));
            }
            if self.next_block == self.table.index.len() {
                return Ok(None);
            }
            self.block = Some(BlockEntries::new(self.table.block(self.next_block)?));
            self.next_block += 1;
        }
    }
}

/// A block as it was read: entries, then where full keys are, then how many of those there are.
struct Block {
    data: Bytes,
    entries_len: usize,
}

impl Block {
    fn new(data: Bytes) -> Result<Self, &'static str> {
        let too_short = "a block is too short for its restarts";
        let count_at = data.len().checked_sub(4).ok_or(too_short)?;
        let count = u32_at(&data, count_at).ok_or(too_short)? as usize;
        let restarts_len = count.checked_mul(4).ok_or(too_short)?;
        let entries_len = count_at.checked_sub(restarts_len).ok_or(too_short)?;
        Ok(Self { data, entries_len })
    }

    fn restart_count(&self) -> usize {
        (self.data.len() - 4 - self.entries_len) / 4
    }

    /// Where the `number`th full key is.
    fn restart(&self, number: usize) -> Option<usize> {
        u32_at(&self.data, self.entries_len + 4 * number).map(|at| at as usize)
    }

    /// Reads the entry at `at`, given the key before it, which becomes its own; returns its value and where it ends.
    fn entry(&self, at: usize, key: &mut Vec<u8>) -> Result<(Bytes, usize), &'static str> {
        let bad = "a bad entry in a block";
        let entries = &self.data[..self.entries_len];
        let mut rest = entries.get(at..).ok_or(bad)?;
        let mut len = || decode_varint(&mut rest).ok().and_then(|len| usize::try_from(len).ok()).ok_or(bad);
        let (shared, unshared, value_len) = (len()?, len()?, len()?);
        let key_at = self.entries_len - rest.len();
        let value_at = key_at.checked_add(unshared).ok_or(bad)?;
        let end = value_at.checked_add(value_len).filter(|&end| end <= self.entries_len).ok_or(bad)?;
        if shared > key.len() {
            return Err(bad);
        }
        key.truncate(shared);
        key.extend_from_slice(&entries[key_at..value_at]);
        Ok((self.data.slice(value_at..end), end))
    }

    fn find(&self, wanted: &[u8]) -> Result<Option<Bytes>, &'static str> {
        let mut key = Vec::new();
        let (mut low, mut high) = (0, self.restart_count());
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            key.clear();
            self.entry(self.restart(middle).ok_or("a bad restart in a block")?, &mut key)?;
            if key.as_slice() <= wanted { low = middle } else { high = middle }
        }
        let mut at = self.restart(low).unwrap_or(0);
        key.clear();
        while at < self.entries_len {
            let (value, end) = self.entry(at, &mut key)?;
            match key.as_slice().cmp(wanted) {
                std::cmp::Ordering::Less => at = end,
                std::cmp::Ordering::Equal => return Ok(Some(value)),
                std::cmp::Ordering::Greater => return Ok(None),
            }
        }
        Ok(None)
    }
}

fn u32_at(data: &[u8], at: usize) -> Option<u32> {
    let four = data.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(four.try_into().ok()?))
}

/// Goes through a block's entries.
struct BlockEntries {
    block: Arc<Block>,
    at: usize,
    key: Vec<u8>,
}

impl BlockEntries {
    fn new(block: Arc<Block>) -> Self {
        Self { block, at: 0, key: Vec::new() }
    }

    fn next(&mut self) -> Result<Option<(Vec<u8>, Bytes)>, &'static str> {
        if self.at >= self.block.entries_len {
            return Ok(None);
        }
        let (value, end) = self.block.entry(self.at, &mut self.key)?;
        self.at = end;
        Ok(Some((self.key.clone(), value)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryFiles;
    use std::collections::BTreeMap;
    use tensor::Code;

    const PATH: &str = "/table";

    fn write(files: &MemoryFiles, entries: &BTreeMap<Vec<u8>, Vec<u8>>) {
        let mut writer = TableWriter::new(files.create(Path::new(PATH)).unwrap());
        for (key, value) in entries {
            writer.add(key, value).unwrap();
        }
        writer.finish().unwrap();
    }

    fn read(files: &MemoryFiles) -> Result<BTreeMap<Vec<u8>, Vec<u8>>> {
        let table = TableReader::open(files, Path::new(PATH))?;
        table.iter().map(|entry| entry.map(|(key, value)| (key, value.to_vec()))).collect()
    }

    fn sample(count: usize, value_len: usize) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let names = (0..count).map(|i| (format!("layer{}/weights{i}", i % 7).into_bytes(), vec![i as u8; value_len]));
        names.chain([(vec![], b"header".to_vec()), (vec![0xff; 3], vec![])]).collect()
    }

    #[test]
    fn what_was_written_is_read_in_one_block_and_in_many() {
        for (count, value_len) in [(0, 0), (5, 3), (100, 20), (3000, 500)] {
            let files = MemoryFiles::new();
            let entries = sample(count, value_len);
            write(&files, &entries);
            assert!(read(&files).unwrap() == entries, "{count}");
            let table = TableReader::open(&files, Path::new(PATH)).unwrap();
            assert_eq!(table.index.len() > 1, count == 3000);
            for (key, value) in &entries {
                assert_eq!(table.get(key).unwrap().as_deref(), Some(value.as_slice()));
                let missing = [key.as_slice(), b"\0"].concat();
                assert_eq!(table.get(&missing).unwrap(), None);
            }
        }
    }

    #[test]
    fn a_table_without_entries_can_be_read() {
        let files = MemoryFiles::new();
        write(&files, &BTreeMap::new());
        assert_eq!(read(&files).unwrap(), BTreeMap::new());
        assert_eq!(TableReader::open(&files, Path::new(PATH)).unwrap().get(b"a").unwrap(), None);
    }

    #[test]
    fn keys_out_of_order_are_refused() {
        let files = MemoryFiles::new();
        let mut writer = TableWriter::new(files.create(Path::new(PATH)).unwrap());
        writer.add(b"", b"").unwrap();
        writer.add(b"b", b"").unwrap();
        assert_eq!(writer.add(b"b", b"").unwrap_err().code, Code::InvalidArgument);
        assert_eq!(writer.add(b"a", b"").unwrap_err().code, Code::InvalidArgument);
    }

    #[test]
    fn keys_of_the_index_are_short() {
        let between = |a: &str, b: &str| String::from_utf8(shortest_between(a.as_bytes(), b.as_bytes())).unwrap();
        assert_eq!(between("abcdef", "abzz"), "abd");
        assert_eq!(between("abcdef", "abd"), "abcdef");
        assert_eq!(between("ab", "abc"), "ab");
        assert_eq!(shortest_after(b"str"), b"t");
        assert_eq!(shortest_after(b"\xff\xffa"), b"\xff\xffb");
        assert_eq!(shortest_after(b"\xff"), b"\xff");
    }

    #[test]
    fn blocks_compressed_with_snappy_are_read() {
        let mut block = BlockBuilder::new(RESTART_INTERVAL);
        block.add(b"", &[7; 1000]);
        block.add(b"key", b"value");
        let mut file = snap::raw::Encoder::new().compress_vec(&block.finish()).unwrap();
        assert!(file.len() < 500);
        let data = Handle { offset: 0, len: file.len() as u64 };
        file.push(SNAPPY);
        file.extend(crate::checksum::masked(&file).to_le_bytes());

        let mut index = BlockBuilder::new(1);
        index.add_handle(b"l", data);
        let mut index = index.finish();
        let handle = Handle { offset: file.len() as u64, len: index.len() as u64 };
        index.push(UNCOMPRESSED);
        index.extend(crate::checksum::masked(&index).to_le_bytes());
        file.extend(index);

        file.extend(encode_footer(&handle, &handle));

        let files = MemoryFiles::new();
        files.put(Path::new(PATH), &file);
        let entries = BTreeMap::from([(vec![], vec![7; 1000]), (b"key".to_vec(), b"value".to_vec())]);
        assert_eq!(read(&files).unwrap(), entries);
    }

    #[test]
    fn snappy_cannot_ask_for_more_than_it_can_fill() {
        // Claims four gigabytes less one.
        assert!(uncompress(&[0xff, 0xff, 0xff, 0xff, 0x0f, 0x00]).is_err());
        assert!(uncompress(&[]).is_err());
    }

    #[test]
    fn a_flipped_or_missing_byte_is_found() {
        let files = MemoryFiles::new();
        let entries = sample(20, 5);
        write(&files, &entries);
        let good = files.contents(Path::new(PATH)).unwrap();
        let check = |bad: &[u8]| {
            files.put(Path::new(PATH), bad);
            let error = read(&files).unwrap_err();
            assert_eq!(error.code, Code::DataLoss, "{error}");
            assert!(error.message.contains(PATH), "{error}");
        };
        for position in 0..good.len() {
            for mask in [0x01, 0x80, 0xff] {
                let mut bad = good.clone();
                bad[position] ^= mask;
                check(&bad);
            }
            check(&good[..position]);
        }
    }

    #[test]
    fn a_block_with_a_good_checksum_and_bad_contents_is_an_error() {
        // The checksum is made good again after every change, as one who means harm would.
        let mut block = BlockBuilder::new(2);
        for i in 0..5u8 {
            block.add(&[b'a', i], &[i; 3]);
        }
        let good = block.finish();
        for position in 0..good.len() {
            for value in [0x00, 0x01, 0x7f, 0x80, 0xff] {
                let mut bad = good.clone();
                bad[position] = value;
                if let Ok(block) = Block::new(bad.into()) {
                    let _ = block.find(&[b'a', 3]);
                    let mut entries = BlockEntries::new(Arc::new(block));
                    while let Ok(Some(_)) = entries.next() {}
                }
            }
        }
    }
}

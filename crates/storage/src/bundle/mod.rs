//! Checkpoints: a *prefix* stands for an index file, which is a table from names to places, and data files, in which
//! the tensors' bytes lie end to end.
//!
//! `writer.rs` makes one, `reader.rs` reads one, `merge.rs` makes one of several. Which tensors belong to a model,
//! and which checkpoint is the latest, is not known here.

mod merge;
mod reader;
mod strings;
mod writer;

use std::path::{Path, PathBuf};

use proto::BundleHeaderProto;
use proto::bundle_header_proto::Endianness;
use tensor::Result;

pub use merge::{MergeOptions, merge_bundles};
pub use reader::{BundleReader, TensorInfo};
pub use writer::{BundleWriter, Stored};

use crate::files::{Files, parent_dir, with_suffix};
use crate::table::TableWriter;

/// The version of the format that is written, and the newest that can be read.
const VERSION: i32 = 1;
/// The header's key; it sorts before all others.
const HEADER_KEY: &[u8] = b"";
/// The first byte of the keys of parts, which no tensor's name may have.
const PART_KEY_START: u8 = 0;

/// The name of a checkpoint's index file.
pub(crate) fn index_path(prefix: &Path) -> PathBuf {
    with_suffix(prefix, ".index")
}

fn data_path(prefix: &Path, shard: usize, shard_count: usize) -> PathBuf {
    with_suffix(prefix, &format!(".data-{shard:05}-of-{shard_count:05}"))
}

/// A name of which a writer may make a mess before it gives the file its own.
fn temporary_path(files: &dyn Files, path: &Path) -> PathBuf {
    with_suffix(path, &format!(".tempstate{}", files.unique()))
}

fn native_endianness() -> Endianness {
    if cfg!(target_endian = "big") { Endianness::Big } else { Endianness::Little }
}

fn header(shard_count: usize, endianness: Endianness) -> BundleHeaderProto {
    BundleHeaderProto {
        num_shards: shard_count as i32,
        endianness: endianness as i32,
        version: Some(proto::VersionDef { producer: VERSION, ..Default::default() }),
    }
}

/// Puts data files and an index where a reader will look for them; `write_index` is told how many data files there are.
///
/// The index comes last, in place of an older one at once. Until then the data of an older checkpoint stays: the number of
/// data files is a part of their names, so that another number, if need be with empty ones, keeps old and new apart. At
/// every moment an index stands beside data of its own, so a crash leaves the older checkpoint or the new one.
fn publish(
    files: &dyn Files,
    prefix: &Path,
    data: &[PathBuf],
    write_index: impl FnOnce(&mut TableWriter, usize) -> Result<()>,
) -> Result<()> {
    let index = index_path(prefix);
    let older = if files.exists(&index)? { data_files(files, prefix)? } else { Vec::new() };
    let count = (data.len()..).find(|count| older.iter().all(|(_, used)| used != count)).unwrap_or(data.len());
    let temporary = temporary_path(files, &index);
    let published = files.create(&temporary).and_then(|file| {
        let mut table = TableWriter::new(file);
        write_index(&mut table, count)?;
        table.finish()?;
        if data.iter().any(|file| older.iter().any(|(old, _)| old == file)) {
            files.remove(&index)?; // its own data gets new names
        }
        for (shard, file) in data.iter().enumerate() {
            files.rename(file, &data_path(prefix, shard, count))?;
        }
        for shard in data.len()..count {
            files.create(&data_path(prefix, shard, count))?.sync()?;
        }
        files.sync_dir(parent_dir(prefix))?;
        files.rename(&temporary, &index)?;
        files.sync_dir(parent_dir(prefix))
    });
    match &published {
        // What is left of these files does no harm, and the first failure is the one to tell.
        Ok(()) => older.iter().for_each(|(file, _)| drop(files.remove(file))),
        Err(_) => drop(files.remove(&temporary)),
    }
    published
}

/// The data files of this prefix that are there, each with the number of files it is one of.
fn data_files(files: &dyn Files, prefix: &Path) -> Result<Vec<(PathBuf, usize)>> {
    let dir = parent_dir(prefix);
    let name = prefix.file_name().unwrap_or_default().to_string_lossy();
    let count = |file: &str| {
        let (shard, count) = file.strip_prefix(&*name)?.strip_prefix(".data-")?.split_once("-of-")?;
        shard.parse::<usize>().ok()?;
        count.parse().ok()
    };
    let names = files.list(dir)?;
    Ok(names.iter().filter_map(|file| Some((dir.join(file), count(file)?))).collect())
}

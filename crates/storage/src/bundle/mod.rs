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
pub use writer::BundleWriter;

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

/// Puts data files and an index where a reader will look for them.
///
/// The index comes last, and an older index goes first: at no moment does an index stand beside data that is not its
/// own, so a checkpoint that a crash leaves behind either has no index or is whole.
fn publish(
    files: &dyn Files,
    prefix: &Path,
    data: &[(PathBuf, PathBuf)],
    write_index: impl FnOnce(&mut TableWriter) -> Result<()>,
) -> Result<()> {
    let index = index_path(prefix);
    let temporary = temporary_path(files, &index);
    let published = files.create(&temporary).and_then(|file| {
        let mut table = TableWriter::new(file);
        write_index(&mut table)?;
        table.finish()?;
        if files.exists(&index)? {
            files.remove(&index)?;
        }
        for (from, to) in data {
            files.rename(from, to)?;
        }
        files.sync_dir(parent_dir(prefix))?;
        files.rename(&temporary, &index)?;
        files.sync_dir(parent_dir(prefix))
    });
    if published.is_err() {
        // What is left of the temporary file does no harm, and the first failure is the one to tell.
        let _ = files.remove(&temporary);
    }
    published
}

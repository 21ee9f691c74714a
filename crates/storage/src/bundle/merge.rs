//! Makes one checkpoint of several: the data files are given new names, and the indexes are joined.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::{Path, PathBuf};

use prost::Message;
use proto::{BundleEntryProto, BundleHeaderProto};
use tensor::{Code, Result};

use super::reader::{is_name, open_index, read_header, shard_count};
use super::{HEADER_KEY, data_path, header, index_path, publish};
use crate::files::{Files, parent_dir};
use crate::table::TableReader;

/// How checkpoints are merged.
#[derive(Clone, Copy, Debug, Default)]
pub struct MergeOptions {
    /// Remove the directories the inputs were in, if nothing else is in them.
    pub delete_old_dirs: bool,
    /// Leave out inputs that do not exist, as long as one does.
    pub allow_missing: bool,
}

/// Merges the checkpoints with these prefixes into one; they are gone afterwards.
///
/// Nothing is touched before all inputs were read and found to fit together.
pub fn merge_bundles(files: &dyn Files, inputs: &[PathBuf], merged: &Path, options: MergeOptions) -> Result<()> {
    let mut joined = Joined::default();
    let mut found = Vec::new();
    for input in inputs {
        match open_index(files, input) {
            Err(error) if error.code == Code::NotFound && options.allow_missing => {}
            table => {
                joined.add(files, &table?, input)?;
                found.push(input);
            }
        }
    }
    let Some(first) = joined.header else {
        return Err(tensor::invalid!("none of the {} checkpoints to be merged exists", inputs.len()));
    };

    files.create_dir_all(parent_dir(merged))?;
    publish(files, merged, &joined.shards, |index, count| {
        index.add(HEADER_KEY, &header(count, first.endianness()).encode_to_vec())?;
        joined.entries.iter().try_for_each(|(key, entry)| index.add(key, &entry.encode_to_vec()))
    })?;

    for input in found {
        clean_up(files, input, merged, options);
    }
    Ok(())
}

/// The indexes read so far, as one.
#[derive(Default)]
struct Joined {
    header: Option<BundleHeaderProto>,
    shards: Vec<PathBuf>,
    entries: BTreeMap<Vec<u8>, BundleEntryProto>,
}

impl Joined {
    fn add(&mut self, files: &dyn Files, table: &TableReader, prefix: &Path) -> Result<()> {
        let header = read_header(table, prefix)?;
        let count = shard_count(&header, prefix)?;
        match &self.header {
            Some(first) if first.endianness != header.endianness || first.version != header.version => {
                return Err(tensor::invalid!(
                    "{}: byte order or version differ from those of the other checkpoints to be merged",
                    prefix.display()
                ));
            }
            Some(_) => {}
            None => self.header = Some(header),
        }
        let first_shard = self.shards.len();
        for item in table.iter() {
            let (key, value) = item?;
            if key == HEADER_KEY {
                continue;
            }
            let name = String::from_utf8_lossy(&key).into_owned();
            let corrupt = || tensor::data_loss!("{}: tensor {name:?} is damaged", index_path(prefix).display());
            let mut entry = BundleEntryProto::decode(value).map_err(|_| corrupt())?;
            let shard = usize::try_from(entry.shard_id).ok().filter(|&shard| shard < count).ok_or_else(corrupt)?;
            // The entry of a tensor in parts points nowhere itself.
            if entry.slices.is_empty() {
                entry.shard_id = i32::try_from(first_shard + shard).map_err(|_| corrupt())?;
            }
            self.add_entry(key, entry, prefix)?;
        }
        for path in (0..count).map(|shard| data_path(prefix, shard, count)) {
            if !files.exists(&path)? {
                return Err(tensor::not_found!("{}: no such file", path.display()));
            }
            self.shards.push(path);
        }
        Ok(())
    }

    fn add_entry(&mut self, key: Vec<u8>, entry: BundleEntryProto, prefix: &Path) -> Result<()> {
        let name = String::from_utf8_lossy(&key).into_owned();
        match self.entries.entry(key) {
            Entry::Vacant(vacant) => {
                vacant.insert(entry);
                Ok(())
            }
            Entry::Occupied(known)
                if !is_name(known.key()) || known.get().slices.is_empty() || entry.slices.is_empty() =>
            {
                Err(tensor::invalid!(
                    "Duplicate tensor keyed by {name} encountered, when merging prefix: {}",
                    prefix.display()
                ))
            }
            Entry::Occupied(mut known) => {
                let known = known.get_mut();
                if known.dtype != entry.dtype || known.shape != entry.shape {
                    return Err(tensor::invalid!(
                        "parts of tensor {name} disagree about the type or shape of the whole, when merging prefix: {}",
                        prefix.display()
                    ));
                }
                known.slices.extend(entry.slices);
                Ok(())
            }
        }
    }
}

/// Removes what is left of an input. The merged checkpoint is there already, so failures are not worth one.
fn clean_up(files: &dyn Files, input: &Path, merged: &Path, options: MergeOptions) {
    if input != merged {
        let _ = files.remove(&index_path(input));
    }
    if options.delete_old_dirs && parent_dir(input) != parent_dir(merged) {
        let _ = files.remove_dir(parent_dir(input));
    }
}

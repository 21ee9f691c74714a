//! Bytes on disk: records, tables, checkpoints and event files in TensorFlow's formats.
//!
//! ```
//! use std::path::Path;
//! use std::sync::Arc;
//! use storage::{BundleReader, BundleWriter, MemoryFiles};
//! use tensor::Tensor;
//!
//! let files = Arc::new(MemoryFiles::new());
//! let prefix = Path::new("/tmp/model.ckpt-1000");
//! let mut writer = BundleWriter::create(files.clone(), prefix)?;
//! writer.add("layer1/weights", &Tensor::from_vec([2, 2], vec![1.0f32, 2.0, 3.0, 4.0])?)?;
//! writer.finish()?;
//!
//! let weights = BundleReader::open(files, prefix)?.read("layer1/weights")?;
//! assert_eq!(weights.as_slice::<f32>()?, &[1.0, 2.0, 3.0, 4.0]);
//! # Ok::<(), tensor::Error>(())
//! ```

mod bundle;
mod checkpoint_state;
mod checksum;
mod events;
mod files;
mod memory;
mod record;
mod slice;
mod table;

pub use bundle::{BundleReader, BundleWriter, MergeOptions, Stored, TensorInfo, merge_bundles};
pub use checkpoint_state::{
    CHECKPOINT_STATE_NAME, checkpoint_exists, latest_checkpoint, read_checkpoint_state, write_checkpoint_state,
};
pub use events::{EventReader, EventWriter, event_files};
pub use files::{Files, LocalFiles, ReadFile, WriteFile, replace};
pub use memory::MemoryFiles;
pub use record::{Compression, RecordReader, RecordWriter, open_bytes};
pub use slice::TensorSlice;
pub use table::{TableIter, TableReader, TableWriter};

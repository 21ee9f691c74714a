//! Bytes as the two files of a checkpoint: every tensor is listed and read.

#![no_main]

use libfuzzer_sys::fuzz_target;
use std::path::Path;
use std::sync::Arc;
use storage::{BundleReader, MemoryFiles};

fuzz_target!(|input: (&[u8], &[u8])| {
    fuzz::limit_memory();
    let (index, data) = input;
    let files = MemoryFiles::new();
    files.put(Path::new("/c.index"), index);
    files.put(Path::new("/c.data-00000-of-00001"), data);
    let Ok(reader) = BundleReader::open(Arc::new(files), Path::new("/c")) else { return };
    for name in reader.names().unwrap_or_default() {
        let _ = reader.lookup(&name);
        let _ = reader.read(&name);
    }
});

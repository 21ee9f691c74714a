//! Bytes as a file of records, plain and compressed, and as an event file: read to the end or to the first error.

#![no_main]

use libfuzzer_sys::fuzz_target;
use std::path::Path;
use storage::{Compression, EventReader, MemoryFiles, RecordReader, TableReader};

fuzz_target!(|bytes: &[u8]| {
    fuzz::limit_memory();
    let files = MemoryFiles::new();
    let path = Path::new("/f");
    files.put(path, bytes);
    for compression in ["", "GZIP", "ZLIB"] {
        let compression = Compression::parse(compression).expect("a known name");
        if let Ok(mut reader) = RecordReader::open(&files, path, compression) {
            while let Ok(Some(_)) = reader.next_record() {}
        }
    }
    if let Ok(mut reader) = EventReader::open(&files, path) {
        while let Ok(Some(_)) = reader.next_event() {}
    }
    if let Ok(table) = TableReader::open(&files, path) {
        let _ = table.iter().take_while(Result::is_ok).count();
    }
});

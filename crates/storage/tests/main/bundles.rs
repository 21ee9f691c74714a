//! Checkpoints on disks that fail, with bytes that changed, and asked for what they do not have.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use prost::Message;
use proto::{BundleEntryProto, BundleHeaderProto};
use storage::*;
use tensor::{Bytes, Code, DType, Result, Shape, Tensor};

const PREFIX: &str = "/model/model.ckpt-1";

/// A checkpoint with everything in it that makes a difference; `version` is in every value.
fn write(files: &MemoryFiles, prefix: &str, version: u8) -> Result<()> {
    let mut writer = BundleWriter::create(Arc::new(files.clone()), Path::new(prefix))?;
    writer.add("bias", &Tensor::from_vec([3], vec![f32::from(version); 3])?)?;
    writer.add("step", &Tensor::scalar(i64::from(version)))?;
    writer.add("text", &Tensor::from_strings([2], vec![Bytes::from(vec![version; 5]), Bytes::new()])?)?;
    for (slice, rows) in [("0,1:-", 1), ("1,2:-", 2)] {
        let part = Tensor::from_vec([rows, 2], vec![u16::from(version); 2 * rows])?;
        writer.add_slice("parts", &Shape::from([3, 2]), &TensorSlice::parse(slice)?, &part)?;
    }
    writer.finish()
}

/// Everything in a checkpoint, printed.
fn read(files: &MemoryFiles, prefix: &str) -> Result<String> {
    let reader = BundleReader::open(Arc::new(files.clone()), Path::new(prefix))?;
    let mut text = String::new();
    for name in reader.names()? {
        let tensor = reader.read(&name)?;
        let values = match tensor.dtype() {
            DType::String => format!("{:?}", tensor.as_strings()?),
            _ => format!("{:?}", tensor.as_bytes()?),
        };
        text += &format!("{name} {} {} {values}\n", tensor.dtype(), tensor.shape());
    }
    Ok(text)
}

fn whole(version: u8) -> String {
    let files = MemoryFiles::new();
    write(&files, PREFIX, version).unwrap();
    read(&files, PREFIX).unwrap()
}

/// Reads a checkpoint of which this file was damaged: that is found, and the file is named, and the tensor if it is data.
#[track_caller]
fn check_damaged(files: &MemoryFiles, path: &Path) {
    let error = match read(files, PREFIX) {
        Ok(found) => panic!("{} was damaged, and nobody noticed: {found}", path.display()),
        Err(error) => error,
    };
    assert_eq!(error.code, Code::DataLoss, "{error}");
    assert!(error.message.contains(path.to_str().unwrap()), "{error}");
    assert!(error.message.contains("tensor \"") || path.extension().unwrap() == "index", "{error}");
}

#[test]
fn a_changed_byte_is_found() {
    let files = MemoryFiles::new();
    write(&files, PREFIX, 7).unwrap();
    let wanted = whole(7);
    assert!(wanted.contains("parts uint16 [3,2] [7, 0, 7, 0,"), "{wanted}");
    for path in files.paths() {
        let good = files.contents(&path).unwrap();
        for position in 0..good.len() {
            for mask in [0x01, 0x10, 0x80, 0xff] {
                let mut bad = good.clone();
                bad[position] ^= mask;
                files.put(&path, &bad);
                check_damaged(&files, &path);
            }
            files.put(&path, &good[..position]);
            check_damaged(&files, &path);
        }
        files.put(&path, &good);
    }
}

#[test]
fn ten_thousand_random_flips_and_truncations_are_all_found() {
    const SEED: u64 = 20_240_229;
    let files = MemoryFiles::new();
    write(&files, "/model/temp/part-0", 3).unwrap();
    let mut writer = BundleWriter::create(Arc::new(files.clone()), Path::new("/model/temp/part-1")).unwrap();
    for i in 0..12u32 {
        writer.add(&format!("layer{}/{i}", i % 7), &Tensor::from_vec([16], vec![i; 16]).unwrap()).unwrap();
    }
    writer.finish().unwrap();
    let options = MergeOptions { delete_old_dirs: true, ..Default::default() };
    merge(&files, &["/model/temp/part-0", "/model/temp/part-1"], options).unwrap();
    read(&files, PREFIX).unwrap();
    let paths = files.paths();
    assert_eq!(paths.len(), 3, "{paths:?}");

    let mut state = SEED;
    let mut below = |limit: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % limit
    };
    for _ in 0..10_000 {
        let path = &paths[below(paths.len())];
        let good = files.contents(path).unwrap();
        let mut bad = good.clone();
        match below(4) {
            0 => bad.truncate(below(good.len())),
            flips => {
                // Several at once may cancel each other out.
                while bad == good {
                    (0..flips).for_each(|_| bad[below(good.len())] ^= 1 << below(8));
                }
            }
        }
        files.put(path, &bad);
        check_damaged(&files, path);
        files.put(path, &good);
    }
}

#[test]
fn a_crash_at_any_moment_leaves_a_whole_checkpoint_or_none_and_the_older_one_if_there_was_one() {
    let count = {
        let files = MemoryFiles::new();
        write(&files, PREFIX, 1).unwrap();
        let before = files.operations();
        write(&files, PREFIX, 1).unwrap();
        files.operations() - before
    };
    let mut seen = [0; 3];
    for older in [false, true] {
        for moment in 0..=count + 1 {
            let files = MemoryFiles::new();
            if older {
                write(&files, PREFIX, 1).unwrap();
            }
            files.kill_at(moment);
            let written = write(&files, PREFIX, 2);
            files.lose_power();
            match read(&files, PREFIX) {
                Ok(found) if found == whole(1) && older => seen[0] += 1,
                Ok(found) if found == whole(2) => seen[1] += 1,
                Ok(found) => panic!("torn at {moment}: {found}"),
                Err(error) => {
                    assert_eq!(error.code, Code::NotFound, "{error}");
                    assert!(written.is_err() && !older);
                    seen[2] += 1;
                }
            }
            // A save that failed does not stand in the way of the next ones, and what it left is cleared away.
            for version in [3, 4] {
                write(&files, PREFIX, version).unwrap();
                assert_eq!(read(&files, PREFIX).unwrap(), whole(version));
            }
            let names: Vec<PathBuf> = files.paths();
            let left = names.iter().filter(|name| !name.to_string_lossy().contains(".tempstate")).count();
            assert!((2..=4).contains(&left), "{names:?}");
        }
    }
    assert!(seen.iter().all(|&count| count > 0), "{seen:?}");
}

#[test]
fn a_full_disk_is_told_and_keeps_the_older_checkpoint() {
    let needed: usize = {
        let files = MemoryFiles::new();
        write(&files, PREFIX, 1).unwrap();
        files.paths().iter().map(|path| files.contents(path).unwrap().len()).sum()
    };
    for bytes_max in 0..needed as u64 {
        let files = MemoryFiles::new();
        write(&files, PREFIX, 1).unwrap();
        files.fail_after_bytes(bytes_max);
        let error = write(&files, PREFIX, 2).unwrap_err();
        assert_eq!(error.code, Code::ResourceExhausted, "{error}");
        assert_eq!(read(&files, PREFIX).unwrap(), whole(1));
        assert_eq!(files.paths().len(), 2, "nothing is left over: {:?}", files.paths());
    }
}

#[test]
fn a_writer_that_failed_does_not_finish() {
    let files = MemoryFiles::new();
    let mut writer = BundleWriter::create(Arc::new(files.clone()), Path::new(PREFIX)).unwrap();
    files.fail_after_bytes(10);
    let large = Tensor::zeros(DType::F32, [1 << 20]).unwrap();
    assert_eq!(writer.add("large", &large).unwrap_err().code, Code::ResourceExhausted);
    files.fail_after_bytes(u64::MAX);
    assert_eq!(writer.finish().unwrap_err().code, Code::ResourceExhausted);
    assert_eq!(files.paths(), Vec::<PathBuf>::new());
}

#[test]
fn a_writer_that_is_dropped_leaves_nothing() {
    let files = MemoryFiles::new();
    let mut writer = BundleWriter::create(Arc::new(files.clone()), Path::new(PREFIX)).unwrap();
    writer.add("a", &Tensor::scalar(1i32)).unwrap();
    drop(writer);
    assert_eq!(files.paths(), Vec::<PathBuf>::new());
}

#[test]
fn what_is_not_there_is_told_as_tensorflow_tells_it() {
    let files = Arc::new(MemoryFiles::new());
    let told = |error: tensor::Error| format!("{error}");
    assert_eq!(
        told(BundleReader::open(files.clone(), Path::new("/model/none")).err().unwrap()),
        "NotFound: Unsuccessful TensorSliceReader constructor: Failed to find any matching files for /model/none"
    );
    write(&files, PREFIX, 1).unwrap();
    let reader = BundleReader::open(files.clone(), Path::new(PREFIX)).unwrap();
    for name in ["nope", "", "\0"] {
        assert_eq!(told(reader.read(name).err().unwrap()), format!("NotFound: Key {name} not found in checkpoint"));
        assert!(!reader.contains(name).unwrap());
    }
    assert!(reader.contains("parts").unwrap());
    let outside = TensorSlice::parse("2,2:-").unwrap();
    assert_eq!(reader.read_slice("parts", &outside).unwrap_err().code, Code::InvalidArgument);
    assert_eq!(reader.read_into("bias", &mut [0; 11]).unwrap_err().code, Code::InvalidArgument);
    assert_eq!(reader.read_into("text", &mut []).unwrap_err().code, Code::InvalidArgument);
}

#[test]
fn what_cannot_be_added_is_refused() {
    let files = MemoryFiles::new();
    let mut writer = BundleWriter::create(Arc::new(files.clone()), Path::new(PREFIX)).unwrap();
    let two = Tensor::from_vec([2], vec![1i32, 2]).unwrap();
    let full = Shape::from([4]);
    let slice = |text| TensorSlice::parse(text).unwrap();
    writer.add("whole", &two).unwrap();
    writer.add_slice("parts", &full, &slice("0,2"), &two).unwrap();

    let told = |result: Result<()>| result.unwrap_err().to_string();
    assert_eq!(told(writer.add("whole", &two)), "InvalidArgument: Adding duplicate key: whole");
    assert_eq!(told(writer.add("parts", &two)), "InvalidArgument: Adding duplicate key: parts");
    let again = writer.add_slice("parts", &full, &slice("0,2"), &two);
    assert_eq!(told(again), "InvalidArgument: Adding duplicate key: parts");
    let over_whole = writer.add_slice("whole", &full, &slice("0,2"), &two);
    assert_eq!(told(over_whole), "InvalidArgument: Adding duplicate key: whole");
    let refused = [
        writer.add("", &two),
        writer.add("\0a", &two),
        writer.add_slice("parts", &full, &slice("0,3"), &two),
        writer.add_slice("parts", &full, &slice("3,2"), &two),
        writer.add_slice("parts", &Shape::from([5]), &slice("2,2"), &two),
        writer.add_slice("parts", &full, &slice("2,2"), &Tensor::from_vec([2], vec![1f32, 2.0]).unwrap()),
    ];
    for (number, result) in refused.into_iter().enumerate() {
        assert_eq!(result.unwrap_err().code, Code::InvalidArgument, "{number}");
    }
}

/// Writes an index by hand, with checksums that hold: what somebody could make who means harm.
fn forge(files: &MemoryFiles, header: &BundleHeaderProto, entries: &[(Vec<u8>, BundleEntryProto)], data: &[u8]) {
    files.put(Path::new("/model/model.ckpt-1.data-00000-of-00001"), data);
    let file = files.create(Path::new("/model/model.ckpt-1.index")).unwrap();
    let mut table = TableWriter::new(file);
    table.add(b"", &header.encode_to_vec()).unwrap();
    for (key, entry) in entries {
        table.add(key, &entry.encode_to_vec()).unwrap();
    }
    table.finish().unwrap();
}

fn header() -> BundleHeaderProto {
    BundleHeaderProto { num_shards: 1, ..Default::default() }
}

fn entry(dtype: DType, dims: &[i64]) -> BundleEntryProto {
    let dim = dims.iter().map(|&size| proto::tensor_shape_proto::Dim { size, ..Default::default() }).collect();
    let shape = proto::TensorShapeProto { dim, ..Default::default() };
    BundleEntryProto { dtype: dtype.number(), shape: Some(shape), ..Default::default() }
}

fn checksum(data: &[u8]) -> u32 {
    crc32c::crc32c(data).rotate_right(15).wrapping_add(0xa282_ead8)
}

fn extent(start: i64, length: i64) -> proto::TensorSliceProto {
    let extent = proto::tensor_slice_proto::Extent { start, length: Some(length) };
    proto::TensorSliceProto { extent: vec![extent] }
}

#[test]
fn a_forged_index_is_refused_before_memory_is_taken() {
    let part = |start: u8, size: i64| {
        let key = vec![0, b'w', 0, 1, 1, 1, 0x80 | start, 0x82];
        (key, BundleEntryProto { size, crc32c: checksum(b"da"), ..entry(DType::U8, &[2]) })
    };
    let terabyte = 1i64 << 40;
    let whole = |entry| vec![(b"w".to_vec(), entry)];
    let parts = |slices: Vec<proto::TensorSliceProto>, mut parts: Vec<(Vec<u8>, BundleEntryProto)>| {
        parts.push((b"w".to_vec(), BundleEntryProto { slices, ..entry(DType::U8, &[4]) }));
        parts
    };
    let cases = [
        whole(BundleEntryProto { size: terabyte, ..entry(DType::U8, &[terabyte]) }),
        whole(entry(DType::U8, &[terabyte])),
        whole(entry(DType::String, &[terabyte])),
        whole(entry(DType::F64, &[1 << 61])),
        whole(entry(DType::F64, &[1 << 40, 1 << 40])),
        whole(entry(DType::U8, &[-1])),
        whole(BundleEntryProto { size: 2, offset: 3, ..entry(DType::U8, &[2]) }),
        whole(BundleEntryProto { size: 2, offset: i64::MAX, ..entry(DType::U8, &[2]) }),
        whole(BundleEntryProto { size: 2, offset: -1, ..entry(DType::U8, &[2]) }),
        whole(BundleEntryProto { size: -2, ..entry(DType::U8, &[2]) }),
        whole(BundleEntryProto { size: 2, shard_id: 1, ..entry(DType::U8, &[2]) }),
        whole(BundleEntryProto { size: 2, shard_id: -1, ..entry(DType::U8, &[2]) }),
        whole(BundleEntryProto { size: 2, dtype: 77, ..entry(DType::U8, &[2]) }),
        whole(BundleEntryProto { size: 4, ..entry(DType::U8, &[4]) }),
        parts(vec![extent(0, 2)], vec![]),
        parts(vec![extent(0, 2)], vec![part(0, 2)]),
        parts(vec![extent(0, 2), extent(0, 2)], vec![part(0, 2)]),
        parts(vec![extent(0, 2), extent(1, 2)], vec![part(0, 2), part(1, 2)]),
        parts(vec![extent(0, 2), extent(3, 2)], vec![part(0, 2), part(3, 2)]),
        parts(vec![extent(0, 2), extent(-1, 2)], vec![part(0, 2)]),
        parts(vec![extent(0, i64::MAX), extent(2, 2)], vec![part(0, 2), part(2, 2)]),
        parts(vec![extent(0, 2), extent(2, 2)], vec![part(0, 2), part(2, 1)]),
        parts(vec![proto::TensorSliceProto::default()], vec![]),
    ];
    let good = parts(vec![extent(0, 2), extent(2, 2)], vec![part(0, 2), part(2, 2)]);
    let files = MemoryFiles::new();
    forge(&files, &header(), &good, b"data");
    assert_eq!(read(&files, PREFIX).unwrap(), "w uint8 [4] [100, 97, 100, 97]\n");
    for (number, entries) in cases.into_iter().enumerate() {
        let files = MemoryFiles::new();
        forge(&files, &header(), &entries, b"data");
        let error = read(&files, PREFIX).unwrap_err();
        assert_eq!(error.code, Code::DataLoss, "case {number}: {error}");
        assert!(error.message.contains("\"w\""), "case {number}: {error}");
    }
}

#[test]
fn a_header_of_another_time_is_refused() {
    let version = |min_consumer, bad_consumers| {
        let version = proto::VersionDef { producer: 9, min_consumer, bad_consumers };
        BundleHeaderProto { version: Some(version), ..header() }
    };
    let check = |header: BundleHeaderProto, code| {
        let files = MemoryFiles::new();
        forge(&files, &header, &[], b"");
        assert_eq!(read(&files, PREFIX).err().map(|e| e.code), code);
    };
    check(version(1, vec![]), None);
    check(version(2, vec![]), Some(Code::InvalidArgument));
    check(version(0, vec![1]), Some(Code::InvalidArgument));
    check(BundleHeaderProto { endianness: 2, ..header() }, Some(Code::DataLoss));
    check(BundleHeaderProto { num_shards: -1, ..header() }, Some(Code::DataLoss));
}

#[test]
fn bytes_of_the_other_order_are_turned_round() {
    let files = MemoryFiles::new();
    let other = if cfg!(target_endian = "big") { 0 } else { 1 };
    let data: Vec<u8> = (0..16).collect();
    let at = |dtype, offset, size: usize| BundleEntryProto {
        offset,
        size: size as i64,
        crc32c: checksum(&data[offset as usize..][..size]),
        ..entry(dtype, &[(size / dtype.size()) as i64])
    };
    let entries = [
        (b"c".to_vec(), at(DType::C64, 0, 8)),
        (b"i".to_vec(), at(DType::I32, 4, 8)),
        (b"u".to_vec(), at(DType::U8, 0, 3)),
    ];
    forge(&files, &BundleHeaderProto { endianness: other, ..header() }, &entries, &data);
    let reader = BundleReader::open(Arc::new(files), Path::new(PREFIX)).unwrap();
    assert_eq!(reader.read("c").unwrap().as_bytes().unwrap(), [3, 2, 1, 0, 7, 6, 5, 4]);
    assert_eq!(reader.read("i").unwrap().as_bytes().unwrap(), [7, 6, 5, 4, 11, 10, 9, 8]);
    assert_eq!(reader.read("u").unwrap().as_bytes().unwrap(), [0, 1, 2]);
}

fn save(files: &MemoryFiles, prefix: &str, tensors: &[(&str, i32)]) {
    let mut writer = BundleWriter::create(Arc::new(files.clone()), Path::new(prefix)).unwrap();
    for (name, value) in tensors {
        writer.add(name, &Tensor::scalar(*value)).unwrap();
    }
    writer.finish().unwrap();
}

fn merge(files: &MemoryFiles, inputs: &[&str], options: MergeOptions) -> Result<()> {
    let inputs: Vec<PathBuf> = inputs.iter().map(PathBuf::from).collect();
    merge_bundles(files, &inputs, Path::new(PREFIX), options)
}

#[test]
fn merged_checkpoints_can_be_merged_again() {
    let files = MemoryFiles::new();
    save(&files, "/a/1", &[("a", 1)]);
    save(&files, "/a/2", &[("b", 2)]);
    save(&files, "/b/3", &[("c", 3), ("d", 4)]);
    let inputs = ["/a/1", "/a/2"].map(PathBuf::from);
    merge_bundles(&files, &inputs, Path::new("/b/12"), MergeOptions::default()).unwrap();
    assert!(files.exists(Path::new("/a")).unwrap(), "directories stay unless told otherwise");
    merge(&files, &["/b/3", "/b/12"], MergeOptions { delete_old_dirs: true, ..Default::default() }).unwrap();
    assert!(!files.exists(Path::new("/b")).unwrap());
    let reader = BundleReader::open(Arc::new(files.clone()), Path::new(PREFIX)).unwrap();
    for (name, value) in [("a", 1), ("b", 2), ("c", 3), ("d", 4)] {
        assert_eq!(reader.read(name).unwrap().item::<i32>().unwrap(), value);
    }
    assert_eq!(files.paths().len(), 4);
}

#[test]
fn inputs_that_do_not_fit_together_are_left_alone() {
    let files = MemoryFiles::new();
    save(&files, "/a/1", &[("a", 1), ("b", 2)]);
    save(&files, "/a/2", &[("b", 2)]);
    let before = files.paths();
    let error = merge(&files, &["/a/1", "/a/2"], MergeOptions::default()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "InvalidArgument: Duplicate tensor keyed by b encountered, when merging prefix: /a/2"
    );
    let error = merge(&files, &["/a/1", "/a/none"], MergeOptions::default()).unwrap_err();
    assert_eq!(error.code, Code::NotFound);
    files.remove(Path::new("/a/2.data-00000-of-00001")).unwrap();
    let error = merge(&files, &["/a/2"], MergeOptions::default()).unwrap_err();
    assert_eq!(error.code, Code::NotFound);
    files.put(Path::new("/a/2.data-00000-of-00001"), b"");
    assert_eq!(files.paths(), before);
}

#[test]
fn missing_inputs_may_be_allowed() {
    let files = MemoryFiles::new();
    let options = MergeOptions { allow_missing: true, ..Default::default() };
    assert_eq!(merge(&files, &["/a/1", "/a/2"], options).unwrap_err().code, Code::InvalidArgument);
    save(&files, "/a/2", &[("b", 2)]);
    merge(&files, &["/a/1", "/a/2"], options).unwrap();
    assert!(read(&files, PREFIX).unwrap().starts_with("b int32"));
}

#[test]
fn a_crash_while_merging_leaves_a_whole_checkpoint_or_none() {
    check_crashes_while_merging(|_| {});
}

#[test]
fn a_crash_while_merging_into_an_older_checkpoint_leaves_either() {
    check_crashes_while_merging(|files| save(files, PREFIX, &[("a", 7)]));
}

/// Merges on a disk on which `make_older` may have put a checkpoint, and crashes at each moment.
fn check_crashes_while_merging(make_older: impl Fn(&MemoryFiles)) {
    let prepare = || {
        let files = MemoryFiles::new();
        make_older(&files);
        save(&files, "/a/1", &[("a", 1)]);
        save(&files, "/a/2", &[("b", 2)]);
        files
    };
    let options = MergeOptions { delete_old_dirs: true, ..Default::default() };
    let files = prepare();
    let before = files.operations();
    merge(&files, &["/a/1", "/a/2"], options).unwrap();
    let count = files.operations() - before;
    let wanted = read(&files, PREFIX).unwrap();
    let older = read(&prepare(), PREFIX).ok();
    let mut whole = 0;
    for moment in 0..=count {
        let files = prepare();
        files.kill_at(moment);
        let _ = merge(&files, &["/a/1", "/a/2"], options);
        files.lose_power();
        match read(&files, PREFIX) {
            Ok(found) if found == wanted => whole += 1,
            Ok(found) => assert_eq!(Some(found), older),
            Err(error) => assert!(error.code == Code::NotFound && older.is_none(), "{error}"),
        }
    }
    assert!(whole > 0 && whole < count);
}

#[test]
fn large_tensors_and_many_go_to_a_real_disk_and_back() {
    let dir = tempfile::tempdir().unwrap();
    let prefix = dir.path().join("deep/er/model.ckpt");
    let large: Vec<u32> = (0..3_000_000u32).map(|i| i.wrapping_mul(2_654_435_761)).collect();
    let large = Tensor::from_vec([3000, 1000], large).unwrap();
    let mut writer = BundleWriter::create(Arc::new(LocalFiles), &prefix).unwrap();
    for i in 0..5000 {
        writer
            .add(
                &format!("layer{}/{i}/weights_with_a_long_name_to_fill_a_block_of_the_index", i % 97),
                &Tensor::scalar(i),
            )
            .unwrap();
    }
    writer.add("large", &large).unwrap();
    writer.finish().unwrap();
    let reader = BundleReader::open(Arc::new(LocalFiles), &prefix).unwrap();
    assert_eq!(reader.names().unwrap().len(), 5001);
    for i in [0, 1, 2500, 4999] {
        let name = format!("layer{}/{i}/weights_with_a_long_name_to_fill_a_block_of_the_index", i % 97);
        assert_eq!(reader.read(&name).unwrap().item::<i32>().unwrap(), i);
    }
    assert!(reader.read("large").unwrap().as_bytes().unwrap() == large.as_bytes().unwrap());
    assert_eq!(std::fs::read_dir(prefix.parent().unwrap()).unwrap().count(), 2);
}

/// The shape of a whole, and the slice of it, if this is not all.
type Part = Option<(Shape, TensorSlice)>;

/// Tensors of about 40, 30 and 10 MB, some small ones, and parts; each has values of its own.
fn large_ones() -> Vec<(String, Part, Tensor)> {
    let values = |seed: u32, len: usize| {
        let values = (0..len as u32).map(|i| i.wrapping_mul(2_654_435_761).rotate_left(seed)).collect();
        Tensor::from_vec([len], values).unwrap()
    };
    let mut tensors: Vec<_> = [10_000_000, 7_500_000, 3, 2_500_000, 1_000]
        .into_iter()
        .enumerate()
        .map(|(i, len)| (format!("layer{i}"), None, values(i as u32, len)))
        .collect();
    for (seed, slice) in [(7, "0,100"), (8, "100,200")] {
        let slice = TensorSlice::parse(slice).unwrap();
        let len = slice.shape_within(&Shape::from([300])).unwrap().num_elements();
        tensors.push(("parts".into(), Some((Shape::from([300]), slice)), values(seed, len)));
    }
    let text = Tensor::from_strings([2], vec![Bytes::from_static(b"two"), Bytes::from_static(b"words")]).unwrap();
    tensors.push(("text".into(), None, text));
    tensors
}

fn write_large(files: &MemoryFiles) -> Result<()> {
    let tensors = large_ones();
    let stored = tensors.iter().map(|(name, slice, tensor)| Stored { name, slice: slice.clone(), tensor });
    let mut writer = BundleWriter::create(Arc::new(files.clone()), Path::new(PREFIX))?;
    writer.add("before", &Tensor::scalar(1i32))?;
    writer.add_all(&stored.collect::<Vec<_>>())?;
    writer.add("after", &Tensor::scalar(2i32))?;
    writer.finish()
}

#[test]
fn large_tensors_are_written_to_several_files_at_once_and_read_from_them() {
    let files = MemoryFiles::new();
    write_large(&files).unwrap();
    let several = std::thread::available_parallelism().map_or(1, usize::from).min(2); // 80 MB are 2 times 32
    let sizes: Vec<usize> = files
        .paths()
        .iter()
        .filter(|path| path.extension().unwrap() != "index")
        .map(|path| files.contents(path).unwrap().len())
        .collect();
    assert_eq!(sizes.len(), several, "{:?}", files.paths());
    assert!(sizes.iter().all(|&size| size >= 80_000_000 / several), "{sizes:?}");
    let reader = BundleReader::open(Arc::new(files.clone()), Path::new(PREFIX)).unwrap();
    for (name, slice, wanted) in large_ones() {
        let found = slice.map_or_else(|| reader.read(&name), |(_, slice)| reader.read_slice(&name, &slice)).unwrap();
        match wanted.as_strings() {
            Ok(wanted) => assert_eq!(found.as_strings().unwrap(), wanted, "{name}"),
            Err(_) => assert!(found.as_bytes().unwrap() == wanted.as_bytes().unwrap(), "{name} differs"),
        }
    }
    for (name, wanted) in [("before", 1), ("after", 2)] {
        assert_eq!(reader.read(name).unwrap().item::<i32>().unwrap(), wanted);
    }
    let again = MemoryFiles::new();
    write_large(&again).unwrap();
    assert_eq!(files.paths(), again.paths());
    for path in files.paths() {
        assert!(files.contents(&path).unwrap() == again.contents(&path).unwrap(), "{} differs", path.display());
    }
}

#[test]
fn a_full_disk_while_several_files_are_written_leaves_nothing() {
    let files = MemoryFiles::new();
    files.fail_after_bytes(50_000_000);
    assert_eq!(write_large(&files).unwrap_err().code, Code::ResourceExhausted);
    assert_eq!(files.paths(), Vec::<PathBuf>::new());
}

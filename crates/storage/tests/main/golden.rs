//! Files written by TensorFlow (`testdata/storage/make.py`): we read what it wrote, and write the same bytes.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use proto::event::What;
use proto::session_log::SessionStatus;
use storage::*;
use tensor::{Bytes, Complex, DType, Element, Shape, Tensor, bf16, f16};

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/storage").join(name)
}

fn open(name: &str) -> BundleReader {
    BundleReader::open(Arc::new(LocalFiles), &golden(name)).unwrap()
}

fn ramp<T: Element>(convert: impl Fn(u8) -> T) -> Tensor {
    Tensor::from_vec([2, 3], (0..6).map(convert).collect()).unwrap()
}

fn strings(shape: impl Into<Shape>, values: &[&str]) -> Tensor {
    let values = values.iter().map(|value| Bytes::copy_from_slice(value.as_bytes())).collect();
    Tensor::from_strings(shape, values).unwrap()
}

fn floats(shape: impl Into<Shape>, values: std::ops::Range<u16>) -> Tensor {
    Tensor::from_vec(shape, values.map(f32::from).collect()).unwrap()
}

/// The tensors of `dtypes.ckpt`, in the order in which they were saved.
fn dtypes() -> Vec<(&'static str, Tensor)> {
    let long = "x".repeat(300);
    vec![
        ("dtype/f32", ramp(f32::from)),
        ("dtype/f64", ramp(f64::from)),
        ("dtype/f16", ramp(|i| f16::from_f32(i.into()))),
        ("dtype/i8", ramp(|i| i as i8)),
        ("dtype/i16", ramp(i16::from)),
        ("dtype/i32", ramp(i32::from)),
        ("dtype/i64", ramp(i64::from)),
        ("dtype/u8", ramp(|i| i)),
        ("dtype/u16", ramp(u16::from)),
        ("dtype/u32", ramp(u32::from)),
        ("dtype/u64", ramp(u64::from)),
        ("dtype/bf16", ramp(|i| bf16::from_f32(i.into()))),
        ("dtype/bool", ramp(|i| i % 2 == 1)),
        ("dtype/c64", ramp(|i| Complex::new(f32::from(i), f32::from(i + 10)))),
        ("dtype/c128", ramp(|i| Complex::new(f64::from(i), f64::from(i + 10)))),
        ("global_step", Tensor::scalar(1234567890123i64)),
        ("empty", Tensor::zeros(DType::F32, [0, 4]).unwrap()),
        ("text", strings([3], &["hello", "", &long])),
        ("text/scalar", strings([], &["naïve"])),
        ("text/empty", strings([0], &[])),
    ]
}

/// The parts in `slices.ckpt`, in the order in which they were saved.
fn slices() -> Vec<(&'static str, &'static str, Tensor)> {
    let grid = |rows: [i32; 2], columns: std::ops::Range<i32>| {
        let values = rows.into_iter().flat_map(|row| columns.clone().map(move |column| row * 6 + column));
        Tensor::from_vec([2, columns.len()], values.collect()).unwrap()
    };
    vec![
        ("rows", "5 2 0,3:-", floats([3, 2], 0..6)),
        ("rows", "5 2 3,2:-", floats([2, 2], 6..10)),
        ("grid", "4 6 0,2:0,4", grid([0, 1], 0..4)),
        ("grid", "4 6 0,2:4,2", grid([0, 1], 4..6)),
        ("grid", "4 6 2,2:0,4", grid([2, 3], 0..4)),
        ("grid", "4 6 2,2:4,2", grid([2, 3], 4..6)),
        ("words", "4 0,1", strings([1], &["word0"])),
        ("words", "4 1,3", strings([3], &["word1", "word2", "word3"])),
        ("tall", "300 2 0,150:-", floats([150, 2], 0..300)),
        ("tall", "300 2 150,150:-", floats([150, 2], 300..600)),
        ("whole", "5 2 -:-", floats([5, 2], 0..10)),
        ("a\0bÿ", "5 2 0,3:-", floats([3, 2], 0..6)),
        ("a\0bÿ", "5 2 3,2:-", floats([2, 2], 6..10)),
    ]
}

#[track_caller]
fn assert_same(found: &Tensor, wanted: &Tensor, name: &str) {
    assert_eq!((found.dtype(), found.shape()), (wanted.dtype(), wanted.shape()), "{name}");
    if found.dtype() == DType::String {
        assert_eq!(found.as_strings().unwrap(), wanted.as_strings().unwrap(), "{name}");
    } else {
        assert_eq!(found.as_bytes().unwrap(), wanted.as_bytes().unwrap(), "{name}");
    }
}

#[track_caller]
fn assert_same_file(files: &MemoryFiles, written: &str, golden_name: &str) {
    let wanted = std::fs::read(golden(golden_name)).unwrap();
    assert_eq!(files.contents(Path::new(written)).unwrap(), wanted, "{golden_name}");
}

#[test]
fn tensors_of_every_type_are_read() {
    let reader = open("dtypes.ckpt");
    let mut names: Vec<&str> = dtypes().iter().map(|(name, _)| *name).collect();
    names.sort();
    assert_eq!(reader.names().unwrap(), names);
    for (name, wanted) in dtypes() {
        let info = reader.lookup(name).unwrap();
        let wanted_info = TensorInfo { dtype: wanted.dtype(), shape: wanted.shape().clone(), slices: vec![] };
        assert_eq!(info, wanted_info);
        assert_same(&reader.read(name).unwrap(), &wanted, name);
        if wanted.dtype() != DType::String {
            let mut into = vec![0xaa; wanted.num_bytes()];
            reader.read_into(name, &mut into).unwrap();
            assert_eq!(into, wanted.as_bytes().unwrap());
        }
    }
}

#[test]
fn the_same_tensors_give_the_same_files() {
    let files = MemoryFiles::new();
    let mut writer = BundleWriter::create(Arc::new(files.clone()), Path::new("/dtypes.ckpt")).unwrap();
    for (name, tensor) in dtypes() {
        writer.add(name, &tensor).unwrap();
    }
    writer.finish().unwrap();
    assert_same_file(&files, "/dtypes.ckpt.data-00000-of-00001", "dtypes.ckpt.data-00000-of-00001");
    assert_same_file(&files, "/dtypes.ckpt.index", "dtypes.ckpt.index");
    assert_eq!(files.paths().len(), 2, "{:?}", files.paths());
}

#[test]
fn parts_are_put_together() {
    let reader = open("slices.ckpt");
    let grid = Tensor::from_vec([4, 6], (0..24).collect::<Vec<i32>>()).unwrap();
    let words = strings([4], &["word0", "word1", "word2", "word3"]);
    assert_eq!(reader.names().unwrap(), ["a\0bÿ", "grid", "rows", "tall", "whole", "words"]);
    assert_eq!(reader.lookup("grid").unwrap().slices.len(), 4);
    for (name, wanted) in [
        ("rows", floats([5, 2], 0..10)),
        ("grid", grid),
        ("words", words),
        ("tall", floats([300, 2], 0..600)),
        ("whole", floats([5, 2], 0..10)),
        ("a\0bÿ", floats([5, 2], 0..10)),
    ] {
        assert_same(&reader.read(name).unwrap(), &wanted, name);
    }
}

#[test]
fn any_part_can_be_read_however_it_was_stored() {
    let reader = open("slices.ckpt");
    let read = |name, slice| reader.read_slice(name, &TensorSlice::parse(slice).unwrap()).unwrap();
    for (name, text, part) in slices() {
        let (_, slice) = TensorSlice::parse_with_shape(text).unwrap();
        assert_same(&reader.read_slice(name, &slice).unwrap(), &part, text);
    }
    assert_same(&read("rows", "2,2:1,1"), &Tensor::from_vec([2, 1], vec![5f32, 7.0]).unwrap(), "rows");
    assert_same(&read("whole", "2,2:1,1"), &Tensor::from_vec([2, 1], vec![5f32, 7.0]).unwrap(), "whole");
    assert_same(&read("grid", "1,2:3,2"), &Tensor::from_vec([2, 2], vec![9, 10, 15, 16]).unwrap(), "grid");
    assert_same(&read("words", "0,2"), &strings([2], &["word0", "word1"]), "words");
}

#[test]
fn the_same_parts_give_the_same_files() {
    let files = MemoryFiles::new();
    let mut writer = BundleWriter::create(Arc::new(files.clone()), Path::new("/slices.ckpt")).unwrap();
    for (name, text, part) in slices() {
        let (full, slice) = TensorSlice::parse_with_shape(text).unwrap();
        writer.add_slice(name, &full, &slice, &part).unwrap();
    }
    writer.finish().unwrap();
    assert_same_file(&files, "/slices.ckpt.data-00000-of-00001", "slices.ckpt.data-00000-of-00001");
    assert_same_file(&files, "/slices.ckpt.index", "slices.ckpt.index");
}

#[test]
fn a_sharded_checkpoint_is_read() {
    let reader = open("sharded.ckpt");
    assert_eq!(reader.names().unwrap(), ["bias", "rows", "step"]);
    assert_same(&reader.read("bias").unwrap(), &floats([2], 1..3), "bias");
    assert_same(&reader.read("rows").unwrap(), &floats([5, 2], 0..10), "rows");
    assert_same(&reader.read("step").unwrap(), &Tensor::scalar(7i64), "step");
}

#[test]
fn merging_gives_the_same_files() {
    let files = MemoryFiles::new();
    let parts: Vec<PathBuf> = (0..2).map(|i| format!("/sharded.ckpt_temp/part-{i:05}-of-00002").into()).collect();
    let rows = |writer: &mut BundleWriter, text: &str, part: &Tensor| {
        let (full, slice) = TensorSlice::parse_with_shape(text).unwrap();
        writer.add_slice("rows", &full, &slice, part).unwrap();
    };
    let mut writer = BundleWriter::create(Arc::new(files.clone()), &parts[0]).unwrap();
    writer.add("bias", &floats([2], 1..3)).unwrap();
    rows(&mut writer, "5 2 0,3:-", &floats([3, 2], 0..6));
    writer.finish().unwrap();
    let mut writer = BundleWriter::create(Arc::new(files.clone()), &parts[1]).unwrap();
    writer.add("step", &Tensor::scalar(7i64)).unwrap();
    rows(&mut writer, "5 2 3,2:-", &floats([2, 2], 6..10));
    writer.finish().unwrap();

    let options = MergeOptions { delete_old_dirs: true, ..Default::default() };
    merge_bundles(&files, &parts, Path::new("/sharded.ckpt"), options).unwrap();
    for name in ["sharded.ckpt.data-00000-of-00002", "sharded.ckpt.data-00001-of-00002", "sharded.ckpt.index"] {
        assert_same_file(&files, &format!("/{name}"), name);
    }
    assert_eq!(files.paths().len(), 3);
    assert!(!files.exists(Path::new("/sharded.ckpt_temp")).unwrap());
}

#[test]
fn records_are_read_and_written_alike() {
    let wanted: Vec<Vec<u8>> = vec![vec![], b"a".to_vec(), b"hello ".repeat(100), (0..=255).collect()];
    for (name, compression) in [
        ("records.tfrecord", Compression::None),
        ("records.tfrecord.gz", Compression::Gzip),
        ("records.tfrecord.zlib", Compression::Zlib),
    ] {
        let mut reader = RecordReader::open(&LocalFiles, &golden(name), compression).unwrap();
        for record in &wanted {
            assert_eq!(reader.next_record().unwrap().as_ref(), Some(record), "{name}");
        }
        assert_eq!(reader.next_record().unwrap(), None);
    }
    let files = MemoryFiles::new();
    let mut writer = RecordWriter::create(&files, Path::new("/records"), Compression::None).unwrap();
    for record in &wanted {
        writer.write(record).unwrap();
    }
    writer.finish().unwrap();
    assert_same_file(&files, "/records", "records.tfrecord");
}

#[test]
fn events_are_read() {
    let made = event_files(&LocalFiles, &golden("")).unwrap();
    assert_eq!(made, [golden("events.out.tfevents.1571234567.host")]);
    let mut reader = EventReader::open(&LocalFiles, &made[0]).unwrap();
    let mut lines = Vec::new();
    while let Some(event) = reader.next_event().unwrap() {
        lines.push(match event.what.unwrap() {
            What::FileVersion(version) => version,
            What::Summary(summary) => {
                assert_eq!(event.wall_time, 1571234567.0 + event.step as f64);
                let value = &summary.value[0];
                format!("{} {}: {:?}", event.step, value.tag, value.value.as_ref().unwrap())
            }
            What::SessionLog(log) => match log.status() {
                SessionStatus::Start => format!("{} start", event.step),
                SessionStatus::Checkpoint => format!("{} checkpoint {}", event.step, log.checkpoint_path),
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        });
    }
    assert_eq!(
        lines,
        [
            "brain.Event:2",
            "0 start",
            "1 loss: SimpleValue(0.5)",
            "2 loss: SimpleValue(0.25)",
            "2 checkpoint model.ckpt-2"
        ]
    );
}

#[test]
fn the_checkpoint_state_is_read_and_written_alike() {
    let state = read_checkpoint_state(&LocalFiles, &golden("checkpoint")).unwrap().unwrap();
    assert_eq!(state.model_checkpoint_path, "model \"ü\"\n.ckpt-20");
    assert_eq!(state.all_model_checkpoint_paths, ["model.ckpt-10", "model \"ü\"\n.ckpt-20"]);
    assert_eq!(state.all_model_checkpoint_timestamps, [1571234567.25, 1571234599.0]);
    assert_eq!(state.last_preserved_timestamp, 1571230000.5);
    let files = MemoryFiles::new();
    write_checkpoint_state(&files, Path::new("/checkpoint"), &state).unwrap();
    assert_same_file(&files, "/checkpoint", "checkpoint");
}

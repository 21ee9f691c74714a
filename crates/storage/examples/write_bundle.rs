//! Writes one file of every format into a directory, for another program to read.
//!
//! ```text
//! cargo run -p ferroflow-storage --example write_bundle -- DIRECTORY
//! ```
//!
//! `model.ckpt` holds tensors of several types, one stored in parts, over two data files; `many.ckpt` has an index of
//! several blocks; `records.tfrecord`, `records.tfrecord.gz` and `records.tfrecord.zlib` hold the same three records;
//! the event file has a loss of 1/(step+1) for ten steps; `checkpoint` names `model.ckpt` as the latest.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use storage::{
    BundleWriter, CHECKPOINT_STATE_NAME, Compression, EventWriter, LocalFiles, MergeOptions, RecordWriter, Stored,
    TensorSlice, merge_bundles, write_checkpoint_state,
};
use tensor::{Bytes, Complex, Result, Shape, Tensor, bf16, f16};

fn main() -> Result<()> {
    let Some(dir) = std::env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!("usage: write_bundle DIRECTORY");
        std::process::exit(2);
    };
    write_sharded_checkpoint(&dir)?;
    write_large_index(&dir)?;
    write_several_files(&dir)?;
    write_records(&dir)?;
    write_events(&dir)?;
    let state = proto::CheckpointState {
        model_checkpoint_path: "model.ckpt".into(),
        all_model_checkpoint_paths: vec!["many.ckpt".into(), "model.ckpt".into()],
        ..Default::default()
    };
    write_checkpoint_state(&LocalFiles, &dir.join(CHECKPOINT_STATE_NAME), &state)
}

fn write_sharded_checkpoint(dir: &Path) -> Result<()> {
    let inputs = [0, 1].map(|i| dir.join(format!("model.ckpt_temp/part-{i:05}-of-00002")));
    let full = Shape::from([5, 2]);

    let mut writer = BundleWriter::create(Arc::new(LocalFiles), &inputs[0])?;
    writer.add("f32", &Tensor::from_vec([2, 3], vec![0f32, 1.0, 2.0, 3.0, 4.0, 5.0])?)?;
    writer.add("f16", &Tensor::from_vec([2], vec![f16::from_f32(0.5), f16::from_f32(-2.0)])?)?;
    writer.add("bf16", &Tensor::from_vec([2], vec![bf16::from_f32(0.5), bf16::from_f32(-2.0)])?)?;
    writer.add("bool", &Tensor::from_vec([2], vec![true, false])?)?;
    let first = Tensor::from_vec([3, 2], vec![0f64, 1.0, 2.0, 3.0, 4.0, 5.0])?;
    writer.add_slice("rows", &full, &TensorSlice::parse("0,3:-")?, &first)?;
    writer.finish()?;

    let mut writer = BundleWriter::create(Arc::new(LocalFiles), &inputs[1])?;
    writer.add("global_step", &Tensor::scalar(1234567890123i64))?;
    writer.add("c64", &Tensor::scalar(Complex::new(1f32, -1.0)))?;
    writer.add("empty", &Tensor::from_vec([0, 4], Vec::<f32>::new())?)?;
    let text = vec![Bytes::from_static(b"hello"), Bytes::new(), Bytes::from(vec![b'x'; 300])];
    writer.add("text", &Tensor::from_strings([3], text)?)?;
    let second = Tensor::from_vec([2, 2], vec![6f64, 7.0, 8.0, 9.0])?;
    writer.add_slice("rows", &full, &TensorSlice::parse("3,2:-")?, &second)?;
    writer.finish()?;

    let options = MergeOptions { delete_old_dirs: true, ..Default::default() };
    merge_bundles(&LocalFiles, &inputs, &dir.join("model.ckpt"), options)
}

fn write_large_index(dir: &Path) -> Result<()> {
    let mut writer = BundleWriter::create(Arc::new(LocalFiles), &dir.join("many.ckpt"))?;
    for i in 0..20_000 {
        writer.add(&format!("layer{}/unit{i}/weights", i % 97), &Tensor::scalar(i))?;
    }
    writer.finish()
}

/// Large enough to be written to several data files; the values of each start with another number.
fn write_several_files(dir: &Path) -> Result<()> {
    for half in 0..2 {
        let names: Vec<String> = (0..3).map(|i| format!("half{half}/{i}")).collect();
        let values = |i: u32| Tensor::from_vec([6 << 20], (i..i + (6 << 20)).collect());
        let tensors = (0..3).map(values).collect::<Result<Vec<_>>>()?;
        let stored = names.iter().zip(&tensors).map(|(name, tensor)| Stored { name, slice: None, tensor });
        let mut writer = BundleWriter::create(Arc::new(LocalFiles), &dir.join(format!("large-{half}.ckpt")))?;
        writer.add_all(&stored.collect::<Vec<_>>())?;
        writer.finish()?;
    }
    Ok(())
}

fn write_records(dir: &Path) -> Result<()> {
    for (name, compression) in [
        ("records.tfrecord", Compression::None),
        ("records.tfrecord.gz", Compression::Gzip),
        ("records.tfrecord.zlib", Compression::Zlib),
    ] {
        let mut writer = RecordWriter::create(&LocalFiles, &dir.join(name), compression)?;
        for record in [&b""[..], b"hello", &[7; 100_000]] {
            writer.write(record)?;
        }
        writer.finish()?;
    }
    Ok(())
}

fn write_events(dir: &Path) -> Result<()> {
    let mut writer = EventWriter::create(&LocalFiles, dir, 1571234567.0, "host")?;
    for step in 0..10 {
        let value = proto::summary::Value {
            tag: "loss".into(),
            value: Some(proto::summary::value::Value::SimpleValue(1.0 / (step + 1) as f32)),
            ..Default::default()
        };
        let summary = proto::Summary { value: vec![value] };
        writer.write(&proto::Event {
            wall_time: 1571234567.0 + step as f64,
            step,
            what: Some(proto::event::What::Summary(summary)),
            ..Default::default()
        })?;
    }
    writer.finish()
}

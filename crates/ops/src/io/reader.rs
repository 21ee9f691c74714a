//! `TFRecordReaderV2`, `ReaderReadV2`, `ReaderNumRecordsProducedV2`: the records of files whose names come from a queue.
//!
//! Reads of one reader come one after the other; a read that finds its file at an end waits for the next name.

use crate::data_flow::queue::{Amount, Queue};
use crate::data_flow::{Declared, resolve};
use bytes::Bytes;
use framework::kernel::{AsyncContext, AsyncKernel, BoxFuture, Outputs, async_kernel, function, kernel};
use framework::{Kernel, KernelBuild, KernelContext, Op, Resource, Value, shapes};
use futures_util::lock::Mutex;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use storage::{Compression, LocalFiles, RecordReader};
use tensor::{DType, Result, Tensor, internal, invalid};

/// The ops of this file.
pub fn ops() -> Vec<Op> {
    vec![
        Op::new("TFRecordReaderV2")
            .output("reader_handle: resource")
            .attr("container: string = ''")
            .attr("shared_name: string = ''")
            .attr("compression_type: string = ''")
            .stateful()
            .shape(shapes::scalar)
            .kernel(kernel(Declare::new)),
        Op::new("ReaderReadV2")
            .input("reader_handle: resource")
            .input("queue_handle: resource")
            .output("key: string")
            .output("value: string")
            .stateful()
            .costly()
            .shape(shapes::scalar)
            .kernel(async_kernel(|_| Ok(Read))),
        Op::new("ReaderNumRecordsProducedV2")
            .input("reader_handle: resource")
            .output("records_produced: int64")
            .stateful()
            .shape(shapes::scalar)
            .kernel(function(num_records_produced)),
    ]
}

/// Reads files one after the other.
struct Reader {
    compression: Compression,
    /// The file being read. Whoever reads holds the lock, also while waiting for the next name.
    current: Mutex<Option<OpenFile>>,
    produced: AtomicI64,
}

struct OpenFile {
    name: Bytes,
    records: RecordReader,
}

impl Resource for Reader {
    const TYPE_NAME: &'static str = "N10tensorflow15ReaderInterfaceE";
}

impl Reader {
    /// The next record and where it was found.
    async fn read(&self, names: &Arc<Queue>) -> Result<(Bytes, Vec<u8>)> {
        if names.spec().types != [DType::String] {
            return Err(invalid!("a reader wants a queue of strings, found one of {:?}", names.spec().types));
        }
        let mut current = self.current.lock().await;
        loop {
            let file = match &mut *current {
                Some(file) => file,
                none => none.insert(self.open(names).await?),
            };
            let offset = file.records.offset();
            if let Some(record) = file.records.next_record()? {
                self.produced.fetch_add(1, Ordering::Relaxed);
                let key = [&file.name[..], format!(":{offset}").as_bytes()].concat();
                return Ok((key.into(), record));
            }
            *current = None;
        }
    }

    /// The file whose name is next in the queue.
    async fn open(&self, names: &Arc<Queue>) -> Result<OpenFile> {
        let mut taken = names.dequeue(Amount::Exactly(1), None).await?;
        let element = taken.pop().ok_or_else(|| internal!("a dequeue took nothing"))?;
        let name = element.first().map(Tensor::string_item).transpose()?;
        let name = name.ok_or_else(|| internal!("an element without components"))?.clone();
        let path = std::str::from_utf8(&name).map_err(|_| invalid!("the name of a file is not UTF-8"))?;
        let records = RecordReader::open(&LocalFiles, Path::new(path), self.compression)?;
        Ok(OpenFile { name, records })
    }
}

/// Makes a reader, or finds one of its shared name.
struct Declare {
    declared: Declared<Reader>,
    compression: Compression,
}

impl Declare {
    fn new(b: &KernelBuild<'_>) -> Result<Declare> {
        let compression = Compression::parse(&b.attr::<String>("compression_type")?)?;
        Ok(Declare { declared: Declared::new(b)?, compression })
    }
}

impl Kernel for Declare {
    fn compute(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let compression = self.compression;
        self.declared.output(
            ctx,
            |_| Ok(Reader { compression, current: Mutex::new(None), produced: AtomicI64::new(0) }),
            |_, _| Ok(()),
        )
    }
}

struct Read;

impl AsyncKernel for Read {
    fn compute(&self, ctx: AsyncContext) -> BoxFuture<Result<Outputs>> {
        let resources = ctx.device.resources();
        let reader = resolve::<Reader>(resources, &ctx.inputs[0]);
        let names = resolve::<Queue>(resources, &ctx.inputs[1]);
        Box::pin(async move {
            let (key, value) = reader?.read(&names?).await?;
            Ok([Tensor::string(key), Tensor::string(value)].map(Value::Tensor).into_iter().collect())
        })
    }
}

fn num_records_produced(ctx: &mut KernelContext<'_>) -> Result<()> {
    let reader = resolve::<Reader>(ctx.resources(), ctx.input_value(0))?;
    ctx.set_output(0, Tensor::scalar(reader.produced.load(Ordering::Relaxed)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data_flow::queue::{Order, QueueSpec};
    use smallvec::smallvec;
    use std::task::{Context, Waker};
    use storage::RecordWriter;
    use tensor::PartialShape;

    #[test]
    fn a_read_waits_for_the_name_of_a_file_and_leaves_none_behind_when_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("records");
        let mut writer = RecordWriter::create(&LocalFiles, &path, Compression::None).unwrap();
        writer.write(b"first").unwrap();
        writer.write(b"second").unwrap();
        writer.finish().unwrap();
        let spec = QueueSpec {
            order: Order::Fifo,
            types: vec![DType::String],
            shapes: vec![PartialShape::scalar()],
            capacity: -1,
        };
        let names = Arc::new(Queue::new("names", spec, (1, 2)).unwrap());
        let reader = Reader { compression: Compression::None, current: Mutex::new(None), produced: AtomicI64::new(0) };

        let mut context = Context::from_waker(Waker::noop());
        let mut dropped = Box::pin(reader.read(&names));
        assert!(dropped.as_mut().poll(&mut context).is_pending(), "there is no name yet");
        drop(dropped);
        let name = path.to_str().unwrap().to_string();
        names.try_enqueue([smallvec![Tensor::from(name.clone())]].into()).unwrap().unwrap();
        for (offset, want) in [(0, &b"first"[..]), (21, b"second")] {
            let mut read = Box::pin(reader.read(&names));
            let std::task::Poll::Ready(got) = read.as_mut().poll(&mut context) else { panic!("it is all there") };
            assert_eq!(got.unwrap(), (Bytes::from(format!("{name}:{offset}")), want.to_vec()));
        }
        assert_eq!(reader.produced.load(Ordering::Relaxed), 2);
    }
}

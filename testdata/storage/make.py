"""Makes the files in this directory with TensorFlow 2.21, for the tests of `crates/storage`.

Run `python make.py` here, with TensorFlow installed. Everything but the time in the first record of the event
file comes out the same each time. The values are simple enough to be written down again in the tests.
"""

import glob
import os
import shutil

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import numpy as np
import tensorflow as tf

HERE = os.path.dirname(os.path.abspath(__file__))
raw = tf.raw_ops
v1 = tf.compat.v1


def path(name):
    return os.path.join(HERE, name)


def save(prefix, tensors, slices=None):
    """One SaveV2; `tensors` is a list of (name, value) in the order in which they are to be laid down."""
    raw.SaveV2(
        prefix=path(prefix),
        tensor_names=[name for name, _ in tensors],
        shape_and_slices=slices or [""] * len(tensors),
        tensors=[tf.constant(value) if not tf.is_tensor(value) else value for _, value in tensors],
    )


def dtypes():
    ramp = np.arange(6).reshape(2, 3)
    plain = {
        "f32": np.float32, "f64": np.float64, "f16": np.float16, "i8": np.int8, "i16": np.int16, "i32": np.int32,
        "i64": np.int64, "u8": np.uint8, "u16": np.uint16, "u32": np.uint32, "u64": np.uint64,
    }
    tensors = [(f"dtype/{name}", ramp.astype(kind)) for name, kind in plain.items()]
    tensors += [
        ("dtype/bf16", tf.cast(ramp, tf.bfloat16)),
        ("dtype/bool", ramp % 2 == 1),
        ("dtype/c64", (ramp + 1j * (ramp + 10)).astype(np.complex64)),
        ("dtype/c128", (ramp + 1j * (ramp + 10)).astype(np.complex128)),
        ("global_step", np.int64(1234567890123)),
        ("empty", np.zeros([0, 4], np.float32)),
        ("text", np.array(["hello", "", "x" * 300], dtype=object)),
        ("text/scalar", np.array("naïve", dtype=object)),
        ("text/empty", tf.zeros([0], tf.string)),
    ]
    save("dtypes.ckpt", tensors)


def slices():
    rows = np.arange(10, dtype=np.float32).reshape(5, 2)
    grid = np.arange(24, dtype=np.int32).reshape(4, 6)
    words = np.array([f"word{i}" for i in range(4)], dtype=object)
    tall = np.arange(600, dtype=np.float32).reshape(300, 2)
    save(
        "slices.ckpt",
        [
            ("rows", rows[0:3]), ("rows", rows[3:5]),
            ("grid", grid[0:2, 0:4]), ("grid", grid[0:2, 4:6]), ("grid", grid[2:4, 0:4]), ("grid", grid[2:4, 4:6]),
            ("words", words[0:1]), ("words", words[1:4]),
            ("tall", tall[0:150]), ("tall", tall[150:300]),
            ("whole", rows), ("a\0b\xff", rows[0:3]), ("a\0b\xff", rows[3:5]),
        ],
        [
            "5 2 0,3:-", "5 2 3,2:-",
            "4 6 0,2:0,4", "4 6 0,2:4,2", "4 6 2,2:0,4", "4 6 2,2:4,2",
            "4 0,1", "4 1,3",
            "300 2 0,150:-", "300 2 150,150:-",
            "5 2 -:-", "5 2 0,3:-", "5 2 3,2:-",
        ],
    )


def sharded():
    parts = [path(f"sharded.ckpt_temp/part-{i:05}-of-00002") for i in range(2)]
    rows = np.arange(10, dtype=np.float32).reshape(5, 2)
    save("sharded.ckpt_temp/part-00000-of-00002", [("bias", np.float32([1, 2])), ("rows", rows[0:3])], ["", "5 2 0,3:-"])
    save("sharded.ckpt_temp/part-00001-of-00002", [("step", np.int64(7)), ("rows", rows[3:5])], ["", "5 2 3,2:-"])
    raw.MergeV2Checkpoints(checkpoint_prefixes=parts, destination_prefix=path("sharded.ckpt"), delete_old_dirs=True)


def records():
    contents = [b"", b"a", b"hello " * 100, bytes(range(256))]
    for suffix, compression in [("", ""), (".gz", "GZIP"), (".zlib", "ZLIB")]:
        options = tf.io.TFRecordOptions(compression_type=compression)
        with tf.io.TFRecordWriter(path("records.tfrecord" + suffix), options) as writer:
            for content in contents:
                writer.write(content)


def events():
    with tf.Graph().as_default():
        directory = path("events_temp")
        with v1.summary.FileWriter(directory) as writer:
            def add(step, **what):
                writer.add_event(tf.compat.v1.Event(wall_time=1571234567.0 + step, step=step, **what))

            add(0, session_log=v1.SessionLog(status=v1.SessionLog.START))
            add(1, summary=v1.Summary(value=[v1.Summary.Value(tag="loss", simple_value=0.5)]))
            add(2, summary=v1.Summary(value=[v1.Summary.Value(tag="loss", simple_value=0.25)]))
            add(2, session_log=v1.SessionLog(status=v1.SessionLog.CHECKPOINT, checkpoint_path="model.ckpt-2"))
        (made,) = glob.glob(os.path.join(directory, "*"))
        shutil.move(made, path("events.out.tfevents.1571234567.host"))
        shutil.rmtree(directory)


def state():
    directory = path("state_temp")
    os.makedirs(directory)
    v1.train.update_checkpoint_state(
        directory,
        'model "ü"\n.ckpt-20',
        all_model_checkpoint_paths=["model.ckpt-10", 'model "ü"\n.ckpt-20'],
        all_model_checkpoint_timestamps=[1571234567.25, 1571234599.0],
        last_preserved_timestamp=1571230000.5,
    )
    shutil.move(os.path.join(directory, "checkpoint"), path("checkpoint"))
    shutil.rmtree(directory)


for made in glob.glob(path("*")):
    if not made.endswith("make.py"):
        os.remove(made)
for make in [dtypes, slices, sharded, records, events, state]:
    make()

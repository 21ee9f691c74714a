"""Lets TensorFlow and TensorBoard read the files we write, runs a graph we built, and compares.

    python tests/interop/run.py

Needs a Python with TensorFlow and TensorBoard, and cargo. Prints a line per check and a closing line; exits with 1 if any failed.
"""

import glob
import os
import subprocess
import sys
import tempfile
import traceback

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import numpy as np
import tensorflow as tf

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def checkpoint_is_found_and_read(folder):
    prefix = tf.train.latest_checkpoint(folder)
    assert prefix == os.path.join(folder, "model.ckpt"), prefix
    reader = tf.train.load_checkpoint(prefix)
    np.testing.assert_array_equal(reader.get_tensor("f32"), np.arange(6, dtype=np.float32).reshape(2, 3))
    assert reader.get_tensor("f16").tolist() == [0.5, -2]
    assert reader.get_tensor("bf16").astype(np.float32).tolist() == [0.5, -2]
    assert reader.get_tensor("bool").tolist() == [True, False]
    assert reader.get_tensor("global_step") == 1234567890123
    assert reader.get_tensor("c64") == 1 - 1j
    assert reader.get_tensor("empty").shape == (0, 4)
    assert reader.get_tensor("text").tolist() == [b"hello", b"", b"x" * 300]


def sliced_tensors_are_restored(folder):
    prefix = os.path.join(folder, "model.ckpt")
    whole = tf.train.load_checkpoint(prefix).get_tensor("rows")
    np.testing.assert_array_equal(whole, np.arange(10.0).reshape(5, 2))
    part, all_rows = tf.raw_ops.RestoreV2(
        prefix=prefix, tensor_names=["rows", "rows"], shape_and_slices=["5 2 2,2:1,1", ""], dtypes=[tf.float64] * 2
    )
    assert part.numpy().tolist() == [[5], [7]]
    np.testing.assert_array_equal(all_rows, whole)


def many_tensors_come_out_byte_for_byte_the_same(folder):
    names = [f"layer{i % 97}/unit{i}/weights" for i in range(20000)]
    reader = tf.train.load_checkpoint(os.path.join(folder, "many.ckpt"))
    for i in range(0, len(names), 37):
        assert reader.get_tensor(names[i]) == i, names[i]
    theirs = os.path.join(folder, "theirs.ckpt")
    values = [tf.constant(i) for i in range(len(names))]
    tf.raw_ops.SaveV2(prefix=theirs, tensor_names=names, shape_and_slices=[""] * len(names), tensors=values)
    for end in [".index", ".data-00000-of-00001"]:
        with open(os.path.join(folder, "many.ckpt" + end), "rb") as ours, open(theirs + end, "rb") as other:
            assert ours.read() == other.read(), f"{end} differs"


def a_checkpoint_of_several_data_files_is_read_and_merged(folder):
    halves = [os.path.join(folder, f"large-{half}.ckpt") for half in range(2)]
    merged = os.path.join(folder, "large.ckpt")

    def check(prefix, half):
        reader = tf.train.load_checkpoint(prefix)
        for i in range(3):
            wanted = np.arange(i, i + (6 << 20), dtype=np.uint32)
            np.testing.assert_array_equal(reader.get_tensor(f"half{half}/{i}"), wanted)

    for half, prefix in enumerate(halves):
        assert len(glob.glob(prefix + ".data-*")) == min(2, os.cpu_count()), glob.glob(prefix + "*")
        check(prefix, half)
    tf.raw_ops.MergeV2Checkpoints(checkpoint_prefixes=halves, destination_prefix=merged)
    for half in range(2):
        check(merged, half)


NUMBERS = np.arange(6).reshape(2, 3)
CONTENTS = {
    "bf16": NUMBERS.astype(tf.bfloat16.as_numpy_dtype),
    "bool": NUMBERS % 2 == 1,
    "c128": (NUMBERS + 1j * (1 - NUMBERS)).astype(np.complex128),
    "c64": (NUMBERS + 1j * (1 - NUMBERS)).astype(np.complex64),
    "empty": np.zeros([0, 4], np.float32),
    "f16": NUMBERS.astype(np.float16),
    "f32": NUMBERS.astype(np.float32),
    "f64": NUMBERS.astype(np.float64),
    "i16": NUMBERS.astype(np.int16),
    "i32": NUMBERS.astype(np.int32),
    "i64": NUMBERS.astype(np.int64),
    "i8": NUMBERS.astype(np.int8),
    "scalar": np.int64(1234567890123),
    "table": np.array([[10 * row, 10 * row + 1] for row in range(7)], np.float32),
    "text": np.array([[b"word %d" % i for i in row] for row in NUMBERS], object),
    "u16": NUMBERS.astype(np.uint16),
    "u32": NUMBERS.astype(np.uint32),
    "u64": NUMBERS.astype(np.uint64),
    "u8": NUMBERS.astype(np.uint8),
}
EXCHANGED = [(kind, sharded) for kind in ["reference", "resource"] for sharded in [False, True]]


def exchanged(folder, kind, sharded):
    return os.path.join(folder, f"{'sharded' if sharded else 'whole'}_{kind}")


def variables_of_all_types(resource, parts):
    """A variable of each, on two devices in turn, and the table in parts."""
    v1 = tf.compat.v1
    place = iter(range(100))
    values = {}
    for name, value in CONTENTS.items():
        with v1.device(f"/cpu:{next(place) % 2}"):
            initial = tf.constant(value)
            if name == "table":
                table = v1.get_variable(
                    name, initializer=initial, use_resource=resource, partitioner=v1.fixed_size_partitioner(parts)
                )
                values[name] = tf.convert_to_tensor(table)
            else:
                values[name] = v1.Variable(initial, name=name, use_resource=resource, trainable=False)
    return values


def two_cpus():
    return tf.compat.v1.Session(config=tf.compat.v1.ConfigProto(device_count={"CPU": 2}, allow_soft_placement=True))


def run_example(package, example, argument):
    command = ["cargo", "run", "--quiet", "-p", package, "--example", example, "--", argument]
    subprocess.run(command, cwd=ROOT, check=True)


def their_savers_checkpoints_are_restored_by_us(folder):
    v1 = tf.compat.v1
    for kind, sharded in EXCHANGED:
        with tf.Graph().as_default(), two_cpus() as session:
            variables_of_all_types(kind == "resource", 3)
            saver = v1.train.Saver(sharded=sharded)
            session.run(v1.global_variables_initializer())
            saver.save(session, exchanged(os.path.join(folder, "theirs"), kind, sharded))
    run_example("ferroflow", "exchange_checkpoints", folder)  # which writes ours, too


def check_values(session, values):
    for name, found in session.run(values).items():
        np.testing.assert_array_equal(found, CONTENTS[name], name)


def our_savers_checkpoints_are_restored(folder):
    folder = os.path.join(folder, "ours")
    for kind, sharded in EXCHANGED:
        prefix = exchanged(folder, kind, sharded)
        reader = tf.train.load_checkpoint(prefix)
        assert sorted(reader.get_variable_to_shape_map()) == sorted(CONTENTS)
        for name, value in CONTENTS.items():
            np.testing.assert_array_equal(reader.get_tensor(name), value, name)
        files = [name for name in os.listdir(folder) if name.startswith(os.path.basename(prefix) + ".data")]
        # One saved over another has a file more: old and new must not have the same names.
        assert len(files) == (2 if sharded else 1) + (kind == "resource"), files
        for parts in [1, 3]:
            with tf.Graph().as_default(), two_cpus() as session:
                values = variables_of_all_types(kind == "reference", parts)
                tf.compat.v1.train.Saver().restore(session, prefix)
                check_values(session, values)
    state = tf.train.get_checkpoint_state(folder)
    assert state.model_checkpoint_path == tf.train.latest_checkpoint(folder) == exchanged(folder, *EXCHANGED[-1])


def our_meta_graphs_are_imported(folder):
    v1 = tf.compat.v1
    for kind, sharded in EXCHANGED:
        prefix = exchanged(os.path.join(folder, "ours"), kind, sharded)
        with tf.Graph().as_default(), two_cpus() as session:
            saver = v1.train.import_meta_graph(prefix + ".meta", clear_devices=True)
            saver.restore(session, prefix)
            values = {v.op.name: v for v in v1.global_variables()}
            parts = [values.pop("table/part_0"), values.pop("table/part_1")]
            assert sorted(values) == sorted(set(CONTENTS) - {"table"})
            values["table"] = tf.concat(parts, 0)
            check_values(session, values)
            again = v1.train.Saver().save(session, os.path.join(folder, "again"))
            np.testing.assert_array_equal(tf.train.load_checkpoint(again).get_tensor("table"), CONTENTS["table"])


def records_are_read(folder):
    for end, compression in [("", ""), (".gz", "GZIP"), (".zlib", "ZLIB")]:
        path = os.path.join(folder, "records.tfrecord" + end)
        found = [record.numpy() for record in tf.data.TFRecordDataset(path, compression)]
        assert found == [b"", b"hello", b"\7" * 100000], end


def events_are_read(folder):
    path = os.path.join(folder, "events.out.tfevents.1571234567.host")
    events = list(tf.compat.v1.train.summary_iterator(path))
    assert events[0].file_version == "brain.Event:2" and len(events) == 11, len(events)
    found = [event.summary.value[0].simple_value for event in events[1:]]
    assert found == [np.float32(1) / np.float32(i + 1) for i in range(10)], found


def tensorboard_shows_a_run(folder):
    from tensorboard.backend.event_processing import event_accumulator

    kinds = [event_accumulator.SCALARS, event_accumulator.HISTOGRAMS, event_accumulator.IMAGES, event_accumulator.TENSORS]
    found = event_accumulator.EventAccumulator(os.path.join(folder, "events"), dict.fromkeys(kinds, 0)).Reload()
    loss = found.Scalars("loss")
    assert [event.step for event in loss] == list(range(20))
    assert loss[0].value == 31.5 and loss[19].value < 1e-3, loss
    histogram = found.Histograms("errors")[0].histogram_value
    assert (histogram.num, histogram.min, histogram.max) == (4, 0, 81), histogram
    assert sum(histogram.bucket) == 4 and len(histogram.bucket) == len(histogram.bucket_limit)
    image = found.Images("picture/image/0")[0]
    pixels = tf.io.decode_png(image.encoded_image_string).numpy()
    assert pixels.shape == (2, 2, 1) and pixels.max() == 255, pixels
    assert found.Tensors("note")[0].tensor_proto.string_val == [b"a *line* through 0"]
    assert found.SummaryMetadata("note").plugin_data.plugin_name == "text"
    nodes = {node.name: node for node in found.Graph().node}
    assert nodes["model/Square"].attr["_output_shapes"].list.shape[0].dim[0].size == -1
    assert found.RunMetadata("step10").step_stats.dev_stats[0].node_stats


def a_training_graph_with_resource_variables_gives_the_same_numbers(folder):
    train(os.path.join(folder, "resource"))


def a_training_graph_with_reference_variables_gives_the_same_numbers(folder):
    # Their updates happen in place, beside whatever still reads them: try often enough to see a race.
    for _ in range(20):
        train(os.path.join(folder, "reference"))


def train(folder):
    with open(os.path.join(folder, "run.txt")) as f:
        lines = f.read().split("\n")
    names = dict(line.split(" ") for line in lines if " " in line)
    wanted = [float(line) for line in lines if line and " " not in line]
    message = tf.compat.v1.GraphDef()
    with open(os.path.join(folder, "graph.pb"), "rb") as f:
        message.ParseFromString(f.read())
    tensor = lambda what: names[what] if ":" in names[what] else names[what] + ":0"
    found = []
    with tf.Graph().as_default():
        tf.import_graph_def(message, name="")
        with tf.compat.v1.Session() as session:
            session.run(names["init"])
            for step in range(10):
                x = np.sin([[step + row + 2 * column for column in range(4)] for row in range(6)])
                labels = [[1 - row % 2, row % 2] for row in range(6)]
                feeds = {tensor("x"): x.astype(np.float32), tensor("labels"): labels}
                found.append(session.run([tensor("loss"), names["train"]], feeds)[0])
            found.extend(session.run(tensor("weights")).flatten())
    np.testing.assert_allclose(found, wanted, rtol=1e-4)
    assert found[9] < found[0], "nothing was learned"


CHECKS = [
    a_training_graph_with_resource_variables_gives_the_same_numbers,
    a_training_graph_with_reference_variables_gives_the_same_numbers,
    checkpoint_is_found_and_read,
    sliced_tensors_are_restored,
    many_tensors_come_out_byte_for_byte_the_same,
    a_checkpoint_of_several_data_files_is_read_and_merged,
    their_savers_checkpoints_are_restored_by_us,
    our_savers_checkpoints_are_restored,
    our_meta_graphs_are_imported,
    records_are_read,
    events_are_read,
    tensorboard_shows_a_run,
]


def main():
    passed = failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for package, example, into in [
            ("ferroflow-storage", "write_bundle", folder),
            ("ferroflow", "export_training", folder),
            ("ferroflow", "write_events", os.path.join(folder, "events")),
        ]:
            run_example(package, example, into)
        for check in CHECKS:
            try:
                check(folder)
                passed += 1
                print(f"ok      {check.__name__}")
            except Exception:
                failed += 1
                print(f"FAILED  {check.__name__}")
                traceback.print_exc()
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

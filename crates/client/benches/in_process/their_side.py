"""TensorFlow's side of the in-process benchmark: takes graphs by file and measures them when asked."""
import os
import statistics
import sys
import time

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
answers = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(2, 1)  # whatever the libraries print must not mix with the answers
import numpy as np  # noqa: E402
import tensorflow.compat.v1 as tf  # noqa: E402

tf.disable_v2_behavior()


def load(path, init, target, rewriting, feeds):
    message = tf.GraphDef()
    with open(path, "rb") as f:
        message.ParseFromString(f.read())
    config = tf.ConfigProto()
    if rewriting == "off":
        config.graph_options.rewrite_options.disable_meta_optimizer = True
        config.graph_options.optimizer_options.opt_level = tf.OptimizerOptions.L0
    graph = tf.Graph()
    with graph.as_default():
        tf.import_graph_def(message, name="")
    session = tf.Session(graph=graph, config=config)
    if init:
        session.run(graph.get_operation_by_name(init))
    values, names = [], []
    rng = np.random.default_rng(1)
    for feed in feeds.split():
        name, kind = feed.split("=")
        dtype, dims = kind.split(":")
        shape = [int(d) for d in dims.split(",") if d]
        numbers = rng.random(shape, dtype=np.float32) if dtype == "float" else rng.integers(0, 10, shape)
        values.append(np.asarray(numbers, dtype=tf.as_dtype(dtype).as_numpy_dtype))
        names.append(graph.get_tensor_by_name(name))
    call = session.make_callable(graph.get_operation_by_name(target), feed_list=names)
    return lambda: call(*values)


def measure(run, seconds):
    for _ in range(3):
        run()
    times, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 5:
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


run = None
for line in sys.stdin:
    words = line.rstrip("\n").split("\t")
    if words[0] == "load":
        run = load(*words[1:])
        answers.write("ok\n")
    else:
        answers.write("%.9g\n" % measure(run, float(words[1])))

"""What is measured: programs of a stock TensorFlow client, each on a cluster of its own.

A workload is a function of a cluster that gives measurements: name -> (value, unit, whether more is better).
"""

import os
import shutil
import statistics
import tempfile
import threading
import time

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import numpy as np
import tensorflow.compat.v1 as tf

tf.logging.set_verbosity(tf.logging.ERROR)
tf.disable_eager_execution()
tf.disable_resource_variables()

PS, WORKER = "/job:ps/task:0", "/job:worker/task:0"
SECONDS = float(os.environ.get("BENCH_SECONDS", "1.5"))


def null_step(cluster):
    """A step that does nothing."""
    with tf.device(WORKER):
        step = tf.no_op()
    with tf.Session(cluster.target) as session:
        yield from rates(cluster, "null step", lambda: session.run(step))


def step_over_two_tasks(cluster):
    """A variable on the ps is read by the worker."""
    with tf.device(PS):
        variable = tf.Variable(1.0)
    with tf.device(WORKER):
        read = variable + 1.0
    with tf.Session(cluster.target) as session:
        session.run(tf.global_variables_initializer())
        yield from rates(cluster, "step over ps and worker", lambda: session.run(read))


def training(cluster):
    """The MNIST network of TensorFlow's distributed tutorial on random data, two workers, asynchronous."""
    done = [0, 0]
    stop = threading.Event()
    graphs = [mnist_replica(cluster, index) for index in range(2)]
    with tf.Session(cluster.target, graph=graphs[0][0]) as session:
        session.run(graphs[0][1])

    def work(index):
        graph, _, train, feeds = graphs[index]
        with tf.Session("grpc://" + cluster.addresses["worker"][index], graph=graph) as session:
            session.run(train, feeds)
            ready.wait()
            while not stop.is_set():
                session.run(train, feeds)
                done[index] += 1

    ready = threading.Barrier(3)
    threads = [threading.Thread(target=work, args=(index,), daemon=True) for index in range(2)]
    [thread.start() for thread in threads]
    ready.wait()
    before, start = cluster.cpu_seconds(), time.perf_counter()
    time.sleep(2 * SECONDS)
    stop.set()
    [thread.join(30) for thread in threads]
    steps, wall = sum(done), time.perf_counter() - start
    yield "MNIST replica, asynchronous, 1 ps and 2 workers", steps / wall, "steps/s", True
    yield "MNIST replica: server CPU", (cluster.cpu_seconds() - before) / steps * 1e6, "µs/step", False


def mnist_replica(cluster, index):
    graph = tf.Graph()
    with graph.as_default(), tf.device(
        tf.train.replica_device_setter(worker_device="/job:worker/task:%d" % index, cluster=cluster.addresses)
    ):
        step = tf.Variable(0, trainable=False)
        images, labels = tf.placeholder(tf.float32, [None, 784]), tf.placeholder(tf.float32, [None, 10])
        hidden_w = tf.Variable(tf.truncated_normal([784, 100], stddev=1.0 / 28))
        hidden_b = tf.Variable(tf.zeros([100]))
        out_w = tf.Variable(tf.truncated_normal([100, 10], stddev=0.1))
        out_b = tf.Variable(tf.zeros([10]))
        hidden = tf.nn.relu(tf.nn.xw_plus_b(images, hidden_w, hidden_b))
        out = tf.nn.softmax(tf.nn.xw_plus_b(hidden, out_w, out_b))
        loss = -tf.reduce_sum(labels * tf.log(tf.clip_by_value(out, 1e-10, 1.0)))
        train = tf.train.AdamOptimizer(0.01).minimize(loss, global_step=step)
        init = tf.global_variables_initializer()
    random = np.random.RandomState(index)
    feeds = {images: random.rand(100, 784), labels: np.eye(10)[random.randint(10, size=100)]}
    return graph, init, train, feeds


def dense(size):
    """A variable of this many bytes is pulled from the ps and pushed to it."""

    def workload(cluster):
        count = size // 4
        with tf.device(PS):
            variable = tf.get_variable("v", [count], initializer=tf.zeros_initializer())
        with tf.device(WORKER):
            gradient = tf.get_variable("g", [count], initializer=tf.ones_initializer(), trainable=False)
            pull = tf.slice(variable, [count - 1], [1])
            sent = tf.identity(gradient)
        with tf.device(PS):
            push = tf.train.GradientDescentOptimizer(1e-6).apply_gradients([(sent, variable)])
        with tf.Session(cluster.target) as session:
            session.run(tf.global_variables_initializer())
            for name, step in (("pull", pull), ("push", push)):
                time_ = statistics.median(times(session.make_callable(step)))
                yield "%s %s" % (name, in_bytes(size)), size / time_ / 1e9, "GB/s", True
        if size >= 256 << 20:
            yield "peak memory of the ps, variable of %s" % in_bytes(size), cluster.peak_mb("ps"), "MB", False

    workload.__name__ = "dense_%s" % in_bytes(size).replace(" ", "")
    return workload


def in_bytes(size):
    return "%d MB" % (size >> 20) if size >= 1 << 20 else "%d KB" % (size >> 10)


def many_small(cluster, count=1000):
    """A thousand variables of a kilobyte are read, and updated."""
    with tf.device(PS):
        variables = [tf.get_variable("v%d" % i, [256], initializer=tf.zeros_initializer()) for i in range(count)]
    with tf.device(WORKER):
        total = tf.add_n(variables)
        gradients = tf.get_variable("g", [count, 256], initializer=tf.ones_initializer(), trainable=False)
        gradients = tf.unstack(tf.identity(gradients))
    with tf.device(PS):
        push = tf.train.GradientDescentOptimizer(1e-3).apply_gradients(list(zip(gradients, variables)))
    with tf.Session(cluster.target) as session:
        session.run(tf.global_variables_initializer())
        for name, step in (("read", total.op), ("push", push)):
            time_ = statistics.median(times(session.make_callable(step)))
            yield "%d variables of 1 KB, %s" % (count, name), 1 / time_, "steps/s", True


def embedding(cluster, rows=1_000_000, width=64, batch=4096):
    """Rows of a table on the ps are looked up and trained."""
    with tf.device(tf.train.replica_device_setter(worker_device=WORKER, cluster=cluster.addresses)):
        uniform = tf.random_uniform_initializer(-1, 1)
        tables = [tf.get_variable(name, [rows, width], initializer=uniform) for name in ("a", "b")]
        ids = tf.random_uniform([batch], 0, rows, dtype=tf.int64)
        looked_up = [tf.nn.embedding_lookup(table, ids) for table in tables]
        optimizers = [tf.train.GradientDescentOptimizer(0.1), tf.train.AdagradOptimizer(0.1)]
        train = [o.minimize(tf.reduce_sum(tf.square(rows))) for o, rows in zip(optimizers, looked_up)]
        steps = {"gather": tf.slice(looked_up[0], [0, 0], [1, 1]), "SGD": train[0], "Adagrad": train[1]}
    with tf.Session(cluster.target) as session:
        session.run(tf.global_variables_initializer())
        for name, step in steps.items():
            time_ = statistics.median(times(session.make_callable(step)))
            yield "embedding of a million rows, %s" % name, batch / time_, "rows/s", True


def towers(cluster):
    """Four towers in one graph, averaged on the ps."""
    with tf.device(PS):
        weights = tf.Variable(tf.truncated_normal([256, 256], stddev=0.05))
    losses = []
    for tower in range(4):
        with tf.device("/job:worker/task:%d" % (tower % 2)):
            x = tf.random_uniform([64, 256])
            losses.append(tf.reduce_mean(tf.square(tf.matmul(tf.tanh(tf.matmul(x, weights)), weights))))
    with tf.device(PS):
        train = tf.train.GradientDescentOptimizer(0.1).minimize(tf.add_n(losses) / 4)
    with tf.Session(cluster.target) as session:
        session.run(tf.global_variables_initializer())
        yield "in-graph, 4 towers", 1 / statistics.median(times(session.make_callable(train))), "steps/s", True


def checkpoint(cluster, megabytes=400, count=40):
    """Variables on the ps are saved to memory and restored."""
    folder = tempfile.mkdtemp(dir="/dev/shm")
    try:
        with tf.device(PS):
            shape = [megabytes * 1_000_000 // count // 4]
            uniform = tf.random_uniform_initializer()
            variables = [tf.get_variable("v%d" % i, shape, initializer=uniform) for i in range(count)]
            saver = tf.train.Saver(variables)
        with tf.Session(cluster.target) as session:
            session.run(tf.global_variables_initializer())
            path = os.path.join(folder, "model")
            save = times(lambda: saver.save(session, path, write_meta_graph=False), at_least=3)
            restore = times(lambda: saver.restore(session, path), at_least=3)
        yield "checkpoint of %d MB, save" % megabytes, megabytes / statistics.median(save), "MB/s", True
        yield "checkpoint of %d MB, restore" % megabytes, megabytes / statistics.median(restore), "MB/s", True
        yield "checkpoint: peak memory of the ps", cluster.peak_mb("ps"), "MB", False
    finally:
        shutil.rmtree(folder)


ONE_AND_ONE, ONE_AND_TWO = {"ps": 1, "worker": 1}, {"ps": 1, "worker": 2}
WORKLOADS = [
    (null_step, ONE_AND_ONE),
    (step_over_two_tasks, ONE_AND_ONE),
    (training, ONE_AND_TWO),
    *[(dense(size), ONE_AND_ONE) for size in (4 << 10, 1 << 20, 16 << 20, 64 << 20, 256 << 20)],
    (many_small, ONE_AND_ONE),
    (embedding, ONE_AND_ONE),
    (towers, ONE_AND_TWO),
    (checkpoint, ONE_AND_ONE),
]


def rates(cluster, name, step):
    for threads in (1, 16):
        drive(step, threads, 0.3)
        before, (latencies, wall) = cluster.cpu_seconds(), drive(step, threads, SECONDS)
        used = cluster.cpu_seconds() - before
        title = "%s, %d thread%s" % (name, threads, "s" if threads > 1 else "")
        yield title, len(latencies) / wall, "steps/s", True
        yield title + ": median time", statistics.median(latencies) * 1e6, "µs", False
        yield title + ": server CPU", used / len(latencies) * 1e6, "µs/step", False


def drive(step, count, seconds):
    """Times of all steps that this many threads make, and how long it took."""
    found = [[] for _ in range(count)]
    end = time.perf_counter() + seconds

    def loop(mine):
        while (start := time.perf_counter()) < end:
            step()
            mine.append(time.perf_counter() - start)

    threads = [threading.Thread(target=loop, args=(mine,)) for mine in found]
    start = time.perf_counter()
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    return sum(found, []), time.perf_counter() - start


def times(step, at_least=6, warm_up=3):
    for _ in range(warm_up):
        step()
    found, end = [], time.perf_counter() + SECONDS
    while len(found) < at_least or time.perf_counter() < end:
        start = time.perf_counter()
        step()
        found.append(time.perf_counter() - start)
    return found

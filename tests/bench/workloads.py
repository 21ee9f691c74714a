"""What is measured: programs of a stock TensorFlow client, each on a cluster of its own.

A workload is a function of a cluster that yields what it measures: name, value, unit. `growth.py` has those that make curves,
`catalogue.py` lists all.
"""

import gzip
import itertools
import multiprocessing
import os
import pathlib
import statistics
import threading
import time

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import numpy as np
import tensorflow.compat.v1 as tf

from cluster import cpu_seconds

tf.logging.set_verbosity(tf.logging.ERROR)
tf.disable_eager_execution()
tf.disable_resource_variables()

PS, WORKER = "/job:ps/task:0", "/job:worker/task:0"
FORK = multiprocessing.get_context("fork")
SECONDS = float(os.environ.get("BENCH_SECONDS", "1.5"))


def null_step(cluster):
    """A step that does nothing."""
    with tf.device(WORKER):
        step = tf.no_op()
    with tf.Session(cluster.target()) as session:
        yield from rates(cluster, "null step", lambda: session.run(step))


def step_over_two_tasks(cluster):
    """A variable on the ps is read by the worker."""
    with tf.device(PS):
        variable = tf.Variable(1.0)
    with tf.device(WORKER):
        read = variable + 1.0
    with tf.Session(cluster.target()) as session:
        session.run(tf.global_variables_initializer())
        yield from rates(cluster, "step over ps and worker", lambda: session.run(read))


def training(cluster):
    """The MNIST network of TensorFlow's distributed tutorial and its digits, two workers, asynchronous."""
    yield from replicas(cluster, together=False)


def training_sync(cluster):
    """The same with SyncReplicasOptimizer: both workers' gradients make a step."""
    yield from replicas(cluster, together=True)


def training_own(cluster):
    """Each worker and its client are one process, as in the tutorial's program."""
    yield from replicas(cluster, together=False, own=True)


def training_own_sync(cluster):
    yield from replicas(cluster, together=True, own=True)


OWN_TRAINING = (training_own, training_own_sync)


def replicas(cluster, together, own=False):
    """A client process for each worker, which may be its own."""
    seen = FORK.RawArray("q", 2)
    initialized, failures = FORK.Event(), FORK.SimpleQueue()
    work = lambda index: train(cluster, index, together, own, initialized, seen, failures)
    clients = [FORK.Process(target=work, args=(index,), daemon=True) for index in range(2)]
    [client.start() for client in clients]
    while min(seen) < 20:
        if not failures.empty():
            raise RuntimeError(failures.get())
        time.sleep(0.001)
    cpu = lambda: cluster.cpu_seconds() + sum(cpu_seconds(client.pid) for client in clients if own)
    first, before, start = max(seen), cpu(), time.perf_counter()
    time.sleep(2 * SECONDS)
    steps, wall, used = max(seen) - first, time.perf_counter() - start, cpu() - before
    # Before they are killed: what the last one sees of the others' end is no failure.
    if not failures.empty():
        raise RuntimeError(failures.get())
    [client.kill() for client in clients]
    how = ("client in the worker, " if own else "") + ("synchronous" if together else "asynchronous")
    yield "MNIST replica, %s, 1 ps and 2 workers" % how, steps / wall, "steps/s"
    yield "MNIST replica, %s: server CPU" % how, used / steps * 1e6, "µs/step"


def train(cluster, index, together, own, initialized, seen, failures):
    """One worker's client: trains for ever, telling each global step."""
    try:
        target = cluster.target("worker", index)
        if own:
            server = tf.train.Server(tf.train.ClusterSpec(cluster.addresses), job_name="worker", task_index=index)
            target = server.target
        place = tf.train.replica_device_setter(worker_device="/job:worker/task:%d" % index, cluster=cluster.addresses)
        with tf.device(place):
            step = tf.Variable(0, trainable=False, dtype=tf.int64)
            images, labels = digits()
            optimizer = tf.train.AdamOptimizer(0.01)
            if together:
                optimizer = tf.train.SyncReplicasOptimizer(optimizer, replicas_to_aggregate=2, total_num_replicas=2)
            step_op = optimizer.minimize(guide_loss(network(), images, labels), global_step=step)
            if together and index == 0:
                runner, tokens = optimizer.get_chief_queue_runner(), optimizer.get_init_tokens_op()
            init = tf.global_variables_initializer()
        config = tf.ConfigProto(device_filters=["/job:ps", "/job:worker/task:%d" % index])
        session = tf.Session(target, config=config)
        if index == 0:
            session.run(init)
            initialized.set()
        initialized.wait()
        if together:
            session.run(optimizer.chief_init_op if index == 0 else optimizer.local_step_init_op)
        if together and index == 0:
            runner.create_threads(session, daemon=True, start=True)
            session.run(tokens)
        for feeds in batches(images, labels, index):
            _, seen[index] = session.run([step_op, step], feeds)
    except Exception as error:
        failures.put("worker %d: %s" % (index, error))


def one_process(cluster):
    """One ps and one worker against the same network in one process."""
    local = None
    if cluster.kind == "theirs":
        with tf.Graph().as_default():
            images, labels = digits()
            step = tf.train.AdamOptimizer(0.01).minimize(guide_loss(network(), images, labels))
            local = rate_of_training(tf.Session(), step, images, labels)
        yield "MNIST, one process", local, "steps/s"
    with tf.device(tf.train.replica_device_setter(worker_device=WORKER, cluster=cluster.addresses)):
        images, labels = digits()
        step = tf.train.AdamOptimizer(0.01).minimize(guide_loss(network(), images, labels))
    remote = rate_of_training(tf.Session(cluster.target()), step, images, labels)
    yield "MNIST, 1 ps and 1 worker", remote, "steps/s"
    if local:
        yield "MNIST, 1 ps and 1 worker: part of one process", remote / local, "×"


def rate_of_training(session, step, images, labels):
    feeds = batches(images, labels, 0)
    with session:
        session.run(tf.global_variables_initializer())
        return 1 / statistics.median(times(lambda: session.run(step, next(feeds))))


def towers(cluster):
    """A copy of the network on each of four workers, in one graph; fed, or with input of the workers' own."""
    for fed in (True, False):
        with tf.Graph().as_default():
            with tf.device(PS):
                variables = network()
                optimizer = tf.train.AdamOptimizer(0.01)
            gradients, feeds = [], {}
            for index in range(len(cluster.addresses["worker"])):
                with tf.device("/job:worker/task:%d" % index):
                    images, labels = digits() if fed else random_digits()
                    loss = tf.nn.softmax_cross_entropy_with_logits_v2(labels=labels, logits=logits(variables, images))
                    gradients.append(optimizer.compute_gradients(tf.reduce_mean(loss), variables))
                if fed:
                    feeds.update(zip((images, labels), random_batch(index)))
            with tf.device(PS):
                mean = [(tf.add_n([g for g, _ in pairs]) / len(pairs), pairs[0][1]) for pairs in zip(*gradients)]
                step = optimizer.apply_gradients(mean)
            with tf.Session(cluster.target()) as session:
                session.run(tf.global_variables_initializer())
                time_ = statistics.median(times(lambda: session.run(step, feeds)))
        how = "fed by the client" if fed else "input made on the workers"
        yield "in-graph, %d towers, %s" % (len(gradients), how), 1 / time_, "steps/s"


BATCH, BATCHES = 100, 20


def digits():
    return tf.placeholder(tf.float32, [None, 784]), tf.placeholder(tf.float32, [None, 10])


def random_digits():
    return tf.random_uniform([BATCH, 784]), tf.one_hot(tf.random_uniform([BATCH], 0, 10, dtype=tf.int32), 10)


def network():
    return [
        tf.Variable(tf.truncated_normal([784, 100], stddev=1.0 / 28)),
        tf.Variable(tf.zeros([100])),
        tf.Variable(tf.truncated_normal([100, 10], stddev=0.1)),
        tf.Variable(tf.zeros([10])),
    ]


def logits(variables, images):
    hidden_w, hidden_b, out_w, out_b = variables
    return tf.nn.xw_plus_b(tf.nn.relu(tf.nn.xw_plus_b(images, hidden_w, hidden_b)), out_w, out_b)


def guide_loss(variables, images, labels):
    """As the tutorial computes it."""
    return -tf.reduce_sum(labels * tf.log(tf.clip_by_value(tf.nn.softmax(logits(variables, images)), 1e-10, 1.0)))


def batches(images, labels, seed):
    """Feeds of digits, for ever; a few, so that drawing them takes no time."""
    pictures, answers = mnist()
    chosen = np.random.RandomState(seed).randint(len(answers), size=(BATCHES, BATCH))
    return itertools.cycle([{images: pictures[some], labels: answers[some]} for some in chosen])


def mnist():
    """The digits that the client has compiled in: pixels from 0 to 1, labels one-hot."""
    directory = pathlib.Path(__file__).resolve().parents[2] / "crates/client/data/mnist"
    read = lambda name, header: np.frombuffer(gzip.open(directory / name).read(), np.uint8, offset=header)
    pictures = read("train-images-idx3-ubyte.gz", 16).reshape(-1, 784) / np.float32(255)
    return pictures, np.eye(10, dtype=np.float32)[read("train-labels-idx1-ubyte.gz", 8)]


def random_batch(seed):
    random = np.random.RandomState(seed)
    labels = np.eye(10, dtype=np.float32)[random.randint(10, size=BATCH)]
    return random.rand(BATCH, 784).astype(np.float32), labels


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
        with tf.Session(cluster.target()) as session:
            session.run(tf.global_variables_initializer())
            for name, step in (("pull", pull.op), ("push", push)):
                time_ = statistics.median(times(session.make_callable(step)))
                found = (size / time_ / 1e9, "GB/s") if size >= 1 << 20 else (time_ * 1e6, "µs")
                yield "%s %s" % (name, in_bytes(size)), *found
        if size == 256 << 20:
            yield "peak memory of the ps, variable of %s" % in_bytes(size), cluster.peak_mb("ps"), "MB"

    workload.__name__ = "dense_%s" % in_bytes(size).replace(" ", "")
    return workload


def in_bytes(size):
    return next("%d %sB" % (size >> shift, unit) for shift, unit in ((30, "G"), (20, "M"), (10, "K")) if size >> shift)


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
    with tf.Session(cluster.target()) as session:
        session.run(tf.global_variables_initializer())
        for name, step in (("read", total.op), ("push", push)):
            time_ = statistics.median(times(session.make_callable(step)))
            yield "%d variables of 1 KB, %s" % (count, name), 1 / time_, "steps/s"


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
    with tf.Session(cluster.target()) as session:
        session.run(tf.global_variables_initializer())
        for name, step in steps.items():
            time_ = statistics.median(times(session.make_callable(step)))
            yield "embedding of a million rows, %s" % name, batch / time_, "rows/s"


def checkpoint(cluster, megabytes=400, count=40):
    """Variables on the ps are saved to memory and restored."""
    with tf.device(PS):
        shape = [megabytes * 1_000_000 // count // 4]
        uniform = tf.random_uniform_initializer()
        variables = [tf.get_variable("v%d" % i, shape, initializer=uniform) for i in range(count)]
        saver = tf.train.Saver(variables)
    with tf.Session(cluster.target()) as session:
        session.run(tf.global_variables_initializer())
        path = os.path.join(cluster.scratch, "model")
        save = times(lambda: saver.save(session, path, write_meta_graph=False), at_least=3)
        restore = times(lambda: saver.restore(session, path), at_least=3)
    yield "checkpoint of %d MB, save" % megabytes, megabytes / statistics.median(save), "MB/s"
    yield "checkpoint of %d MB, restore" % megabytes, megabytes / statistics.median(restore), "MB/s"
    yield "checkpoint: peak memory of the ps", cluster.peak_mb("ps"), "MB"


def kernel(cluster, size=1024):
    """A product of large matrices, in this process."""
    a, b = (tf.get_variable(name, [size, size], initializer=tf.ones_initializer()) for name in "ab")
    product = tf.matmul(a, b).op
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        time_ = statistics.median(times(session.make_callable(product)))
    yield "matrix product of %d rows, in one process" % size, 2 * size**3 / time_ / 1e9, "GFLOP/s"


def rates(cluster, name, step):
    for threads in (1, 16):
        drive(step, threads, 0.3)
        before, (latencies, wall) = cluster.cpu_seconds(), drive(step, threads, SECONDS)
        used = cluster.cpu_seconds() - before
        title = "%s, %d thread%s" % (name, threads, "s" if threads > 1 else "")
        yield title, len(latencies) / wall, "steps/s"
        yield title + ": median time", statistics.median(latencies) * 1e6, "µs"
        yield title + ": server CPU", used / len(latencies) * 1e6, "µs/step"


def drive(step, count, seconds):
    """Times of all steps that this many threads make, and how long it took."""
    found, errors = [[] for _ in range(count)], []
    end = time.perf_counter() + seconds

    def loop(mine):
        try:
            while (start := time.perf_counter()) < end:
                if answered(step):
                    mine.append(time.perf_counter() - start)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=loop, args=(mine,)) for mine in found]
    start = time.perf_counter()
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    if errors:
        raise errors[0]
    return sum(found, []), time.perf_counter() - start


def answered(step):
    """Whether it was; some sound steps are not by TensorFlow's servers, which take them for repeated ones."""
    try:
        step()
        return True
    except tf.errors.AbortedError as error:
        if "received twice" not in str(error):
            raise
        return False


def times(step, at_least=6, warm_up=3):
    for _ in range(warm_up):
        step()
    found, end = [], time.perf_counter() + SECONDS
    while len(found) < at_least or time.perf_counter() < end:
        start = time.perf_counter()
        if answered(step):
            found.append(time.perf_counter() - start)
    return found

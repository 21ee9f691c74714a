"""How cost grows: with the number of tasks, with the size of a table; and what a task costs that does nothing."""

import statistics
import time

from cluster import Cluster
from workloads import PS, WORKER, in_bytes, tf, times


def startup(cluster):
    """From the start of a server to its first answer, and the memory that it then holds."""
    warm_up(cluster)
    with Cluster(cluster.kind, cluster.binary, {"worker": 1}) as fresh:
        yield "server, start to open port", (time.perf_counter() - fresh.began) * 1e3, "ms"
        null_step_on(fresh, ["/job:worker/task:0"])
        yield "server, start to first answered step", (time.perf_counter() - fresh.began) * 1e3, "ms"
        time.sleep(1)
        yield "server, memory when idle", fresh.memory_mb("VmRSS", "worker"), "MB"


def scale(cluster, count=16):
    """So many ps and workers: until a first step has been on all; then a scalar from each ps, and to each worker."""
    warm_up(cluster)
    with Cluster(cluster.kind, cluster.binary, {"ps": count, "worker": count}) as many:
        null_step_on(many, ["/job:%s/task:%d" % name for name in many.tasks])
        yield "%d tasks, start to first step over all" % (2 * count), time.perf_counter() - many.began, "s"
        variables, to_workers = [], []
        for index in range(count):
            with tf.device("/job:ps/task:%d" % index):
                variables.append(tf.Variable(1.0))
        for index in range(count):
            with tf.device("/job:worker/task:%d" % index):
                to_workers.append((variables[0] + 1.0).op)
        sizes = [1 << i for i in range(count.bit_length())]
        with tf.device(WORKER):
            from_ps = {size: tf.add_n(variables[:size]).op for size in sizes}
        with tf.Session(many.target()) as session:
            session.run(tf.global_variables_initializer())
            for size in sizes:
                yield "null step over %d ps" % size, microseconds(session.make_callable(from_ps[size])), "µs"
            for size in sizes:
                name = "null step over %d worker%s" % (size, "s" if size > 1 else "")
                yield name, microseconds(session.make_callable(to_workers[:size])), "µs"


def lookup(size, rows=32, width=64):
    """A few rows of a table of this many bytes, whose pages are all written: what is zero may have no memory yet."""

    def workload(cluster):
        count = size // width // 4
        with tf.device(PS):
            table = tf.get_variable("table", [count, width], initializer=tf.ones_initializer())
        with tf.device(WORKER):
            found = tf.nn.embedding_lookup(table, tf.random_uniform([rows], 0, count, dtype=tf.int64))
            step = tf.slice(found, [0, 0], [1, 1])
        with tf.Session(cluster.target()) as session:
            session.run(tf.global_variables_initializer())
            yield "lookup of %d rows, table of %s" % (rows, in_bytes(size)), microseconds(session.make_callable(step)), "µs"

    workload.__name__ = "lookup_%s" % in_bytes(size).replace(" ", "")
    return workload


def warm_up(cluster):
    """The client's first session costs more than later ones, which is not the servers' doing."""
    with Cluster("ours", cluster.binary, {"worker": 1}) as other:
        null_step_on(other, ["/job:worker/task:0"])


def null_step_on(cluster, devices):
    steps = []
    with tf.Graph().as_default():
        for device in devices:
            with tf.device(device):
                steps.append(tf.no_op())
        with tf.Session(cluster.target()) as session:
            session.run(steps)


def microseconds(step):
    """The first steps of a session are slower, and its curve would say so of the place that is measured first."""
    return statistics.median(times(step, warm_up=300)) * 1e6

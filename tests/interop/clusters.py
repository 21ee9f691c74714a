"""Runs training programs of a stock TensorFlow client on clusters of our tasks, of TensorFlow's, and of both.

    python tests/interop/clusters.py [NAME ...]      # all programs, or those whose names contain one of these

Every program gives numbers. They must be the same on every cluster as on one of TensorFlow's tasks alone, whoever is
master and whoever holds the variables. Needs a Python with TensorFlow, and cargo. Exits with 1 if anything differed.
"""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_eager_execution()
tf.logging.set_verbosity(tf.logging.ERROR)

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TASKS = [("ps", 0), ("worker", 0), ("worker", 1)]
# Who runs ps:0, worker:0 (the master of every program) and worker:1.
CLUSTERS = {
    "their tasks": ["theirs"] * 3,
    "our tasks": ["ours"] * 3,
    "their ps, our workers": ["theirs", "ours", "ours"],
    "our ps, their workers": ["ours", "theirs", "theirs"],
    "their master, our ps and worker": ["ours", "theirs", "ours"],
    "our master, their ps and worker": ["theirs", "ours", "theirs"],
}
REFERENCE = "their tasks"
STARTUP = 60  # seconds


class Cluster:
    """Three tasks on free ports of this machine."""

    def __init__(self, kinds, binary):
        sockets = [socket.socket() for _ in TASKS]
        for s in sockets:
            s.bind(("127.0.0.1", 0))
        addresses = ["127.0.0.1:%d" % s.getsockname()[1] for s in sockets]
        for s in sockets:
            s.close()
        self.spec = {"ps": addresses[:1], "worker": addresses[1:]}
        self.addresses = addresses
        self.pids = []
        start = {"ours": lambda job, index: self.start_ours(binary, job, index), "theirs": self.start_theirs}
        for kind, (job, index) in zip(kinds, TASKS):
            start[kind](job, index)

    def start_ours(self, binary, job, index):
        spec = ",".join("%s|%s" % (name, ";".join(tasks)) for name, tasks in self.spec.items())
        command = [binary, "--log", "warn", "server", "--cluster", spec, "--job-name", job, "--task-index", str(index)]
        self.pids.append(subprocess.Popen(command).pid)

    def start_theirs(self, job, index):
        # A fork shares the import of TensorFlow, which is most of the time a process takes to start.
        pid = os.fork()
        if pid:
            self.pids.append(pid)
            return
        server = tf.train.Server(tf.train.ClusterSpec(self.spec), job_name=job, task_index=index)
        server.join()

    def wait(self):
        deadline = time.time() + STARTUP
        for address in self.addresses:
            host, port = address.split(":")
            while True:
                try:
                    socket.create_connection((host, int(port)), 1).close()
                    break
                except OSError:
                    assert time.time() < deadline, "no task came up at " + address
                    time.sleep(0.05)

    def stop(self):
        for pid in self.pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)

    @property
    def target(self):
        return "grpc://" + self.addresses[1]


def network(images, hidden_device=None):
    """Two layers whose first values everybody knows."""
    numbers = np.random.RandomState(1)
    w1 = tf.get_variable("w1", initializer=numbers.randn(8, 6).astype(np.float32))
    b1 = tf.get_variable("b1", initializer=np.zeros(6, np.float32))
    w2 = tf.get_variable("w2", initializer=numbers.randn(6, 3).astype(np.float32))
    with tf.device(hidden_device):
        hidden = tf.nn.relu(tf.matmul(images, w1) + b1)
    return tf.matmul(hidden, w2)


def batch(seed):
    numbers = np.random.RandomState(seed)
    return numbers.randn(10, 8).astype(np.float32), numbers.randint(0, 3, 10)


def inputs():
    return tf.placeholder(tf.float32, [None, 8]), tf.placeholder(tf.int64, [None])


def loss_of(logits, labels):
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))


def session(target, **options):
    return tf.Session(target, config=tf.ConfigProto(allow_soft_placement=True, operation_timeout_in_ms=30000, **options))


def asynchronous(cluster, optimizer):
    with tf.device(tf.train.replica_device_setter(cluster=cluster.spec, worker_device="/job:worker/task:0")):
        images, labels = inputs()
        step = tf.train.get_or_create_global_step()
        loss = loss_of(network(images), labels)
        train = optimizer.minimize(loss, global_step=step)
    found = []
    filters = ["/job:ps", "/job:worker/task:0"]
    with session(cluster.target, device_filters=filters) as sess:
        sess.run(tf.global_variables_initializer())
        for i in range(6):
            x, y = batch(i)
            found.append(sess.run([loss, train, step], {images: x, labels: y})[0])
        found += sess.run(tf.global_variables())
    return found


def adam(cluster):
    return asynchronous(cluster, tf.train.AdamOptimizer(0.05))


def momentum(cluster):
    return asynchronous(cluster, tf.train.MomentumOptimizer(0.05, 0.9, use_nesterov=True))


def synchronous(cluster):
    with tf.device(tf.train.replica_device_setter(cluster=cluster.spec, worker_device="/job:worker/task:0")):
        images, labels = inputs()
        step = tf.train.get_or_create_global_step()
        loss = loss_of(network(images), labels)
        optimizer = tf.train.SyncReplicasOptimizer(tf.train.AdagradOptimizer(0.1), 1, total_num_replicas=1)
        train = optimizer.minimize(loss, global_step=step)
    found = []
    hooks = [optimizer.make_session_run_hook(True, num_tokens=0), tf.train.StopAtStepHook(last_step=5)]
    config = tf.ConfigProto(device_filters=["/job:ps", "/job:worker/task:0"])
    # The chief's queue runner waits for gradients that nobody sends any more; there is no point in waiting for it.
    with tf.train.MonitoredTrainingSession(
        cluster.target, True, hooks=hooks, config=config, stop_grace_period_secs=0
    ) as sess:
        while not sess.should_stop():
            x, y = batch(len(found))
            found.append(sess.run([loss, train], {images: x, labels: y})[0])
    return found


def in_graph(cluster):
    images, labels = inputs()
    with tf.device("/job:ps/task:0"):
        with tf.variable_scope("model"):
            network(images)
    towers = []
    optimizer = tf.train.GradientDescentOptimizer(0.1)
    for task in range(2):
        with tf.device("/job:worker/task:%d" % task), tf.variable_scope("model", reuse=True):
            loss = loss_of(network(images + float(task)), labels)
            towers.append((loss, optimizer.compute_gradients(loss)))
    with tf.device("/job:ps/task:0"):
        averaged = [((a[0] + b[0]) / 2, a[1]) for a, b in zip(towers[0][1], towers[1][1])]
        train = optimizer.apply_gradients(averaged)
    found = []
    with session(cluster.target) as sess:
        sess.run(tf.global_variables_initializer())
        for i in range(4):
            x, y = batch(i)
            found += sess.run([towers[0][0], towers[1][0], train], {images: x, labels: y})[:2]
        found += sess.run(tf.global_variables())
    return found


def loop_over_tasks(cluster):
    """Every iteration visits all three tasks, and is differentiated."""

    def body(i, x):
        with tf.device("/job:ps/task:0"):
            x = x * 1.5
        with tf.device("/job:worker/task:1"):
            return i + 1, tf.tanh(x)

    with tf.device("/job:worker/task:0"):
        x = tf.placeholder(tf.float32, [3])
        _, y = tf.while_loop(lambda i, _: i < 4, body, [tf.constant(0), x])
        (slope,) = tf.gradients(tf.reduce_sum(y), x)
        chosen = tf.cond(tf.reduce_sum(y) > 0, lambda: y * 2, lambda: y - 1)
    with session(cluster.target) as sess:
        return [v for sign in [1, -1] for v in sess.run([y, slope, chosen], {x: np.float32([0.1, 0.5, 0.9]) * sign})]


def pieces_of_all_types(cluster):
    """Values of every type cross from task to task."""
    values = [np.array([1, 2], t) for t in "bool int8 uint8 int16 uint16 int32 int64 float16 float32 float64".split()]
    values += [np.array([1 + 2j], np.complex64), np.array([b"a", b"", b"x" * 3000], object), np.zeros([0, 3], np.float32)]
    with tf.device("/job:ps/task:0"):
        sent = [tf.placeholder(tf.as_dtype(v.dtype)) for v in values]
        here = [tf.identity(s) for s in sent]
    with tf.device("/job:worker/task:1"):
        there = [tf.identity(h) for h in here]
    with session(cluster.target) as sess:
        return [np.array(v) for v in sess.run(there, dict(zip(sent, values)))]


def queue_on_ps(cluster):
    with tf.device("/job:ps/task:0"):
        queue = tf.FIFOQueue(10, [tf.int32, tf.string], shapes=[[], []], shared_name="interop")
    with tf.device("/job:worker/task:1"):
        put = queue.enqueue_many([tf.range(5), tf.constant(["a", "b", "", "d", "e"])])
        get = queue.dequeue_many(3)
    with session(cluster.target) as sess:
        sess.run(put)
        found = list(sess.run(get)) + [sess.run(queue.size())]
        sess.run(queue.close())
        try:
            sess.run(get)
        except tf.errors.OutOfRangeError:
            found.append("closed")
    return found


def errors(cluster):
    """What goes wrong has the same class everywhere."""
    with tf.device("/job:ps/task:0"):
        v = tf.get_variable("v", initializer=1.0)
        q = tf.FIFOQueue(1, [tf.float32])
        never = q.dequeue()
    with tf.device("/job:worker/task:1"):
        uninitialised = v + 1.0
        x = tf.placeholder(tf.float32)
        checked = tf.check_numerics(x, "not a number")
    with session(cluster.target) as sess:
        runs = [
            lambda: sess.run(uninitialised),
            lambda: sess.run(checked),
            lambda: sess.run(checked, {x: np.nan}),
            lambda: sess.run(never, options=tf.RunOptions(timeout_in_ms=200)),
            lambda: sess.run("nothing:0"),
        ]
        return [error_of(run) for run in runs]


def error_of(run):
    try:
        run()
    except Exception as e:
        return type(e).__name__
    return "no error"


def partial_runs(cluster):
    """Feeds and fetches of one step that come bit by bit, and what is wrong with them."""
    a, b = tf.placeholder(tf.float32, []), tf.placeholder(tf.float32, [])
    with tf.device("/job:ps/task:0"):
        first = a + 1
    with tf.device("/job:worker/task:1"):
        second = first * b
    found = []
    with session(cluster.target) as sess:
        run = sess.partial_run_setup([first, second], [a, b])
        found.append(sess.partial_run(run, first, {a: 2.0}))
        for fetch, feed in [(first, {b: 1.0}), (second, {a: 1.0}), (second, {first: 1.0}), (a, {})]:
            try:
                sess.partial_run(run, fetch, feed)
            except tf.errors.InvalidArgumentError as e:
                found.append([what in e.message for what in ("already been", "was not specified in partial_run_setup")])
        found.append(sess.partial_run(run, second, {b: 5.0}))
    return found


def a_cluster_the_client_brings(cluster):
    """The client names the tasks itself; a constant is computed where it was put, as the trace tells."""
    config = tf.ConfigProto(operation_timeout_in_ms=30000)
    job = config.cluster_def.job.add(name="brought")
    for index, address in enumerate([cluster.addresses[1], cluster.addresses[0], cluster.addresses[2]]):
        job.tasks[2 * index] = address
    with tf.device("/job:brought/task:4"):
        constant = tf.constant(17, name="here")
        v = tf.get_variable("v", initializer=2.0)
    found = []
    trace, traced = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE), tf.RunMetadata()
    with tf.Session(cluster.target, config=config) as sess, tf.Session(cluster.target, config=config) as other:
        found.append(sess.run(constant, options=trace, run_metadata=traced))
        found.append([d.device for d in traced.step_stats.dev_stats if any(n.node_name == "here" for n in d.node_stats)])
        sess.run(v.initializer)
        found += [sess.run(v), error_of(lambda: other.run(v)), sorted(d.name for d in sess.list_devices())]
    return found


def files_and_queues(cluster):
    """Readers that take names from a queue, and a queue by priority, on another task than the master's."""
    path = "/tmp/ferroflow-interop-%d.txt" % os.getpid()
    with open(path, "w") as f:
        f.write("a,b\n1,2\r\n3,4")
    with tf.device("/job:ps/task:0"):
        names = tf.FIFOQueue(10, [tf.string], shapes=[[]])
        put = names.enqueue_many([[path, path]])
        lines = tf.TextLineReader(skip_header_lines=1).read(names)
        whole = tf.WholeFileReader().read(names)
        first = tf.PriorityQueue(10, [tf.string], [[]], shared_name="first")
        add = first.enqueue_many([np.int64([3, 1, 2]), ["c", "a", "b"]])
        smallest, closed = first.dequeue_many(2), first.is_closed()
    with session(cluster.target) as sess:
        sess.run([put, add])
        found = [sess.run(lines), sess.run(lines), sess.run(whole), sess.run(smallest), sess.run(closed)]
    os.remove(path)
    return found


def saved_and_restored(cluster):
    with tf.device("/job:ps/task:0"):
        a = tf.get_variable("a", initializer=np.arange(6, dtype=np.float32).reshape(2, 3))
        b = tf.get_variable("b", initializer=np.int64(7))
    saver = tf.train.Saver(sharded=True)
    change = tf.group(a.assign(a * 0), b.assign(b * 0))
    prefix = "/tmp/ferroflow-interop-%d/model" % os.getpid()
    os.makedirs(os.path.dirname(prefix), exist_ok=True)
    with session(cluster.target) as sess:
        sess.run(tf.global_variables_initializer())
        path = saver.save(sess, prefix)
        sess.run(change)
        saver.restore(sess, path)
        return sess.run([a, b])


def rust_client(cluster):
    """A session of our own, on whoever is master."""
    hosts = ["--%s_hosts=%s" % (job, ",".join(tasks)) for job, tasks in cluster.spec.items()]
    command = [example("device_pinned"), "--existing_servers"] + hosts
    output = subprocess.check_output(command, timeout=120, text=True)
    return [np.float32(line.split()[-1]) for line in output.splitlines()]


PROGRAMS = [
    rust_client,
    adam,
    momentum,
    synchronous,
    in_graph,
    loop_over_tasks,
    pieces_of_all_types,
    queue_on_ps,
    errors,
    partial_runs,
    a_cluster_the_client_brings,
    files_and_queues,
    saved_and_restored,
]
VARIABLES = {"reference": tf.disable_resource_variables, "resource": tf.enable_resource_variables}


def run(program, cluster, variables):
    VARIABLES[variables]()
    tf.Session.reset(cluster.target)
    with tf.Graph().as_default():
        tf.disable_control_flow_v2()
        return program(cluster)


def same(found, wanted):
    if isinstance(found, (list, tuple)):
        return len(found) == len(wanted) and all(same(f, w) for f, w in zip(found, wanted))
    found, wanted = np.asarray(found), np.asarray(wanted)
    if found.dtype != wanted.dtype or found.shape != wanted.shape:
        return False
    if found.dtype.kind in "fc":
        return np.allclose(found, wanted, rtol=1e-4, atol=1e-5)
    return bool(np.all(found == wanted))


def built(name):
    target = os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target"))
    return os.path.join(target, "debug", name)


def example(name):
    return built(os.path.join("examples", name))


def main():
    threading.excepthook = lambda _: None  # queue runners complain when their session is closed
    build = ["cargo", "build", "--quiet", "-p", "ferroflow-cli", "-p", "ferroflow", "--bin", "ferroflow"]
    subprocess.check_call(build + ["--example", "device_pinned"], cwd=ROOT)
    binary = built("ferroflow")
    programs = [p for p in PROGRAMS if not sys.argv[1:] or any(name in p.__name__ for name in sys.argv[1:])]
    clusters = {name: Cluster(kinds, binary) for name, kinds in CLUSTERS.items()}
    failed = passed = 0
    try:
        for cluster in clusters.values():
            cluster.wait()
        for program in programs:
            for variables in VARIABLES:
                wanted = run(program, clusters[REFERENCE], variables)
                for name, cluster in clusters.items():
                    if name == REFERENCE:
                        continue
                    what = "%s, %s variables, %s" % (program.__name__, variables, name)
                    try:
                        found = run(program, cluster, variables)
                        assert same(found, wanted), "found %s\nwanted %s" % (found, wanted)
                        passed += 1
                        print("ok    ", what, flush=True)
                    except Exception:
                        failed += 1
                        print("FAILED", what)
                        print("    " + traceback.format_exc(limit=-3).replace("\n", "\n    ")[:4000], flush=True)
    finally:
        for cluster in clusters.values():
            cluster.stop()
    print("%d passed, %d failed" % (passed, failed))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()

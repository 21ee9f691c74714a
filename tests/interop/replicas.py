"""Lets a Rust worker and a worker of stock TensorFlow train one model together, on a parameter server of ours.

    python tests/interop/replicas.py

Asynchronously and synchronously, and with either as chief. Both must take part, end by themselves, and agree on the steps
that were made. Needs a Python with TensorFlow, and cargo. Exits with 1 if anything failed.
"""

import math
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import numpy as np
import tensorflow.compat.v1 as tf

tf.logging.set_verbosity(tf.logging.ERROR)
tf.disable_v2_behavior()

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
STEPS = 150
LIMIT = 120  # seconds


def python_worker(ps, workers, index, sync, folder):
    """The guide's program, as far as it trains; gives the last global step that it saw, and its number of runs."""
    cluster = tf.train.ClusterSpec({"ps": [ps], "worker": workers})
    server = tf.train.Server(cluster, job_name="worker", task_index=index)
    device = "/job:worker/task:%d" % index
    with tf.device(tf.train.replica_device_setter(cluster=cluster, worker_device=device)):
        step = tf.Variable(0, name="global_step", trainable=False)
        hid_w = tf.Variable(tf.truncated_normal([784, 100], stddev=1.0 / 28), name="hid_w")
        hid_b = tf.Variable(tf.zeros([100]), name="hid_b")
        sm_w = tf.Variable(tf.truncated_normal([100, 10], stddev=1.0 / math.sqrt(100)), name="sm_w")
        sm_b = tf.Variable(tf.zeros([10]), name="sm_b")
        x = tf.placeholder(tf.float32, [None, 784])
        labels = tf.placeholder(tf.float32, [None, 10])
        hidden = tf.nn.relu(tf.nn.xw_plus_b(x, hid_w, hid_b))
        y = tf.nn.softmax(tf.nn.xw_plus_b(hidden, sm_w, sm_b))
        loss = -tf.reduce_sum(labels * tf.log(tf.clip_by_value(y, 1e-10, 1.0)))
        optimizer = tf.train.AdamOptimizer(0.01)
        hooks = [tf.train.StopAtStepHook(last_step=STEPS)]
        if sync:
            optimizer = tf.train.SyncReplicasOptimizer(optimizer, 2, 2, name="mnist_sync_replicas")
        train = optimizer.minimize(loss, global_step=step)
        if sync:
            hooks.append(optimizer.make_session_run_hook(index == 0))
    config = tf.ConfigProto(device_filters=["/job:ps", device])
    numbers = np.random.RandomState(index)
    seen = runs = 0
    write(folder, "built", "")
    if index > 0:  # it would look again only after 30 s if it came before the chief
        wait_until("the chief", lambda: os.path.exists(os.path.join(folder, "go")), time.time() + LIMIT)
    with tf.train.MonitoredTrainingSession(
        server.target, index == 0, hooks=hooks, config=config, stop_grace_period_secs=1
    ) as sess:
        write(folder, "ready", "")
        while not sess.should_stop():
            digits = numbers.randint(0, 10, 100)
            images = np.eye(784, dtype=np.float32)[digits] + 0.1 * numbers.rand(100, 784).astype(np.float32)
            seen = sess.run([train, step], {x: images, labels: np.eye(10, dtype=np.float32)[digits]})[1]
            runs += 1
    return seen, runs


def start_python(ps, workers, index, sync, folder):
    """The worker as a process of its own; it says in files when it is ready, and which step it saw last."""
    arguments = [ps, ",".join(workers), str(index), "sync" if sync else "async", folder]
    return subprocess.Popen([sys.executable, os.path.abspath(__file__), "worker"] + arguments)


def be_python_worker(ps, workers, index, mode, folder):
    threading.excepthook = lambda _: None  # queue runners complain when their session is closed
    found = python_worker(ps, workers.split(","), int(index), mode == "sync", folder)
    write(folder, "python", "%d %d" % found)
    os._exit(0)  # such a thread may still wait in a server


def write(folder, name, text):
    path = os.path.join(folder, name)
    with open(path + ".part", "w") as file:
        file.write(text)
    os.rename(path + ".part", path)


def start_rust(ps, workers, job, index, sync, output):
    command = [built("examples/mnist_replica"), "--ps_hosts=" + ps, "--worker_hosts=" + ",".join(workers)]
    command += ["--job_name=" + job, "--task_index=%d" % index, "--train_steps=%d" % STEPS]
    return subprocess.Popen(command + ["--sync_replicas"] * sync, stdout=output, stderr=subprocess.STDOUT)


def wait_until(what, happened, deadline):
    while not happened():
        assert time.time() < deadline, "waited in vain for " + what
        time.sleep(0.05)


def together(sync, rust_is_chief):
    ports = [socket.socket() for _ in range(3)]
    for port in ports:
        port.bind(("127.0.0.1", 0))
    ps, *workers = ["127.0.0.1:%d" % port.getsockname()[1] for port in ports]
    for port in ports:
        port.close()
    deadline = time.time() + LIMIT
    rust_index, python_index = (0, 1) if rust_is_chief else (1, 0)
    started = []
    with tempfile.TemporaryDirectory() as folder, open(os.path.join(folder, "rust"), "w+") as output:
        said = lambda: open(output.name).read()
        try:
            started.append(start_rust(ps, workers, "ps", 0, sync, subprocess.DEVNULL))
            python = start_python(ps, workers, python_index, sync, folder)
            started.append(python)
            # Both are to be there while there are steps to make: Python's start takes long.
            wait_until("Python", lambda: os.path.exists(os.path.join(folder, "built")), deadline)
            if not rust_is_chief:
                wait_until("the chief", lambda: os.path.exists(os.path.join(folder, "ready")), deadline)
            rust = start_rust(ps, workers, "worker", rust_index, sync, output)
            started.append(rust)
            if rust_is_chief:
                wait_until("the chief", lambda: "initialization complete" in said(), deadline)
                write(folder, "go", "")
            for name, worker in [("Rust", rust), ("Python", python)]:
                wait_until("the %s worker to end" % name, lambda: worker.poll() is not None, deadline)
                assert worker.returncode == 0, "the %s worker failed" % name
            seen = [int(number) for number in re.findall(r"global step: (\d+)", said())]
            seen_by_python, runs = [int(number) for number in open(os.path.join(folder, "python")).read().split()]
            made = steps_made(ps)
            assert seen == sorted(seen) and len(seen) > 2 and runs > 2, "only one of them trained: %s, %d" % (seen, runs)
            # A run may read its own step before it is counted. Nobody sees a step that was not made, or stops early.
            for last in [seen[-1], seen_by_python]:
                assert STEPS - 1 <= last <= made <= STEPS + 3, (seen[-1], seen_by_python, made)
            assert sync or made == len(seen) + runs, (made, len(seen), runs)
            return "%d steps, %d runs of the Rust worker, %d of the Python worker" % (made, len(seen), runs)
        except BaseException:
            print(said()[-2000:])
            raise
        finally:
            for process in started:
                process.kill()
                process.wait()


def steps_made(ps):
    """What the parameter server counted."""
    with tf.Graph().as_default(), tf.device("/job:ps/task:0"):
        step = tf.Variable(0, name="global_step")
        with tf.Session("grpc://" + ps) as sess:
            return int(sess.run(step))


def built(name):
    return os.path.join(os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target")), "debug", name)


def main():
    subprocess.check_call(["cargo", "build", "--quiet", "-p", "ferroflow", "--example", "mnist_replica"], cwd=ROOT)
    failed = 0
    for sync in [False, True]:
        for rust_is_chief in [True, False]:
            what = "%s, the %s worker is chief" % (
                "synchronous" if sync else "asynchronous",
                "Rust" if rust_is_chief else "Python",
            )
            try:
                print("ok    ", what + ":", together(sync, rust_is_chief), flush=True)
            except Exception as error:
                failed += 1
                print("FAILED", what + ":", error, flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    be_python_worker(*sys.argv[2:]) if sys.argv[1:2] == ["worker"] else main()

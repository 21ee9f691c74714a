"""Kills workers of stock synchronous training, a TensorFlow program, whose parameter server is ours.

    python tests/interop/lost_workers.py

Every worker is a process with a TensorFlow server of its own, or a client of a server of ours. With TensorFlow's parameter
server the others would wait for ever. Needs a Python with TensorFlow, and cargo. Exits with 1 if anything hangs or ends badly.
"""

import os
import socket
import subprocess
import sys
import threading
import time
import traceback

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LIMIT = 120  # seconds, on a busy machine


def worker(hosts, index, batches, is_client):
    """The program: trains on so many batches, and says when it has done each."""
    import tensorflow.compat.v1 as tf

    tf.disable_eager_execution()
    tf.logging.set_verbosity(tf.logging.ERROR)
    cluster = tf.train.ClusterSpec({"ps": hosts[:1], "worker": hosts[1:]})
    if is_client:
        target = "grpc://" + hosts[1 + index]
    else:
        target = tf.train.Server(cluster, job_name="worker", task_index=index).target
    workers = len(hosts) - 1
    device = "/job:worker/task:%d" % index
    with tf.device(tf.train.replica_device_setter(worker_device=device, cluster=cluster)):
        step = tf.train.get_or_create_global_step()
        w = tf.get_variable("w", initializer=[4.0, -2.0])
        optimizer = tf.train.SyncReplicasOptimizer(
            tf.train.GradientDescentOptimizer(0.01), replicas_to_aggregate=workers, total_num_replicas=workers)
        train = optimizer.minimize(tf.reduce_sum(tf.square(w)), global_step=step)
    hooks = [optimizer.make_session_run_hook(index == 0)]
    with tf.train.MonitoredTrainingSession(target, is_chief=index == 0, hooks=hooks) as session:
        print("ready", flush=True)
        sys.stdin.readline()
        for _ in range(batches):
            if session.should_stop():
                break
            session.run(train)
            print("step", flush=True)
    print("done", flush=True)
    # A TensorFlow server cannot be stopped.
    os._exit(0)


class Process:
    def __init__(self, command):
        self.child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.lines, self.changed = [], threading.Condition()
        threading.Thread(target=self.follow, daemon=True).start()

    def follow(self):
        for line in self.child.stdout:
            with self.changed:
                self.lines.append(line.rstrip())
                self.changed.notify_all()

    def begin(self):
        """Lets a worker train as soon as its session is there."""
        self.child.stdin.write("\n")
        self.child.stdin.flush()
        return self

    def wait_until_ready(self):
        with self.changed:
            assert self.changed.wait_for(lambda: "ready" in self.lines, LIMIT), self.tail()

    def steps(self):
        return self.lines.count("step")

    def wait_for_steps(self, count, limit=LIMIT):
        """Until it has said so many more."""
        with self.changed:
            wanted = self.steps() + count
            reached = self.changed.wait_for(lambda: self.steps() >= wanted, limit)
        assert reached, "%d steps more, wanted %d:\n%s" % (self.steps() - wanted + count, count, self.tail())

    def finish(self):
        status = self.child.wait(LIMIT)
        assert status == 0 and "done" in self.lines, "ended with %d:\n%s" % (status, self.tail())

    def tail(self):
        return "\n".join(self.lines[-30:])


class Training:
    def __init__(self, binary, batches, policy="shrink", is_of_clients=False):
        sockets = [socket.socket() for _ in range(len(batches) + 1)]
        for s in sockets:
            s.bind(("127.0.0.1", 0))
        self.hosts = ["127.0.0.1:%d" % s.getsockname()[1] for s in sockets]
        for s in sockets:
            s.close()
        command = [binary, "--log", "warn", "server", "--lost-worker", policy, "--ps_hosts", self.hosts[0]]
        command += ["--worker_hosts", ",".join(self.hosts[1:])]
        tasks = [("ps", 0)] + [("worker", index) for index in range(len(batches))] * is_of_clients
        self.servers = [Process(command + ["--job_name", job, "--task_index", str(index)]) for job, index in tasks]
        self.is_of_clients = is_of_clients
        self.workers = [self.start(index, count) for index, count in enumerate(batches)]

    def start(self, index, batches):
        """A worker that trains when it is told to."""
        kind = "client" if self.is_of_clients else "server"
        return Process([sys.executable, __file__, ",".join(self.hosts), str(index), str(batches), kind])

    def stop(self):
        for process in self.servers + self.workers:
            process.child.kill()
            process.child.wait()


ENDLESS = 10**9


def a_killed_worker_holds_nobody_up(binary):
    kill_the_second_again_and_again(Training(binary, [ENDLESS, ENDLESS]))


def a_killed_client_holds_nobody_up_although_its_server_lives(binary):
    kill_the_second_again_and_again(Training(binary, [ENDLESS, ENDLESS], is_of_clients=True))


def kill_the_second_again_and_again(training):
    try:
        chief, _ = [process.begin() for process in training.workers]
        for pause in (0.0, 0.013, 0.4):
            training.workers[1].wait_for_steps(5)
            time.sleep(pause)
            training.workers[1].child.kill()
            since = time.time()
            chief.wait_for_steps(5)
            took = time.time() - since
            print("        went on after %.1f s" % took)
            training.workers[1] = training.start(1, ENDLESS).begin()
    finally:
        training.stop()


def a_lost_worker_is_an_error_if_that_is_wanted(binary):
    kill_and_see_the_other_end(binary, 1, "fail")


def a_lost_chief_is_an_error_if_that_is_wanted(binary):
    kill_and_see_the_other_end(binary, 0, "fail")


def a_lost_chief_that_nobody_can_replace_is_an_error_after_a_minute(binary):
    kill_and_see_the_other_end(binary, 0, "shrink")


def kill_and_see_the_other_end(binary, victim, policy):
    training = Training(binary, [ENDLESS, ENDLESS], policy)
    try:
        for process in training.workers:
            process.begin()
        for process in training.workers:
            process.wait_for_steps(5)
        training.workers[victim].child.kill()
        other = training.workers[1 - victim]
        assert other.child.wait(LIMIT) != 0
        assert "/job:worker/replica:0/task:%d was lost" % victim in "\n".join(other.lines), other.tail()
    finally:
        training.stop()


def all_end_well_with_uneven_data(binary):
    for batches in ([40, 30, 10], [10, 40, 40]):
        training = Training(binary, batches)
        try:
            # A chief alone would contribute for everybody, and be gone before the others have come.
            for process in training.workers:
                process.wait_until_ready()
            for process in training.workers:
                process.begin()
            for process in training.workers:
                process.finish()
        finally:
            training.stop()


CHECKS = [
    a_killed_worker_holds_nobody_up,
    a_killed_client_holds_nobody_up_although_its_server_lives,
    a_lost_worker_is_an_error_if_that_is_wanted,
    a_lost_chief_is_an_error_if_that_is_wanted,
    a_lost_chief_that_nobody_can_replace_is_an_error_after_a_minute,
    all_end_well_with_uneven_data,
]


def main():
    subprocess.check_call(["cargo", "build", "--quiet", "-p", "ferroflow-cli"], cwd=ROOT)
    target = os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target"))
    failed = 0
    for check in CHECKS:
        since = time.time()
        try:
            check(os.path.join(target, "debug", "ferroflow"))
            print("ok      %s, %.1f s" % (check.__name__, time.time() - since), flush=True)
        except Exception:
            failed += 1
            print("FAILED  " + check.__name__)
            traceback.print_exc()
    print("%d passed, %d failed" % (len(CHECKS) - failed, failed))
    return 1 if failed else 0


if __name__ == "__main__":
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    if len(sys.argv) > 1:
        worker(sys.argv[1].split(","), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "client")
    sys.exit(main())

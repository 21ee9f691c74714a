"""Tasks of a cluster on this machine, of our kind or of TensorFlow's, and what they cost."""

import os
import signal
import socket
import subprocess
import sys
import time

STARTUP = 120  # seconds
TICKS = os.sysconf("SC_CLK_TCK")

THEIRS = """
import sys, os
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow.compat.v1 as tf
jobs = dict(job.split("|") for job in sys.argv[1].split(","))
spec = tf.train.ClusterSpec({job: tasks.split(";") for job, tasks in jobs.items()})
tf.train.Server(spec, job_name=sys.argv[2], task_index=int(sys.argv[3])).join()
"""


class Cluster:
    """`with Cluster("ours", binary, ps=1, worker=1) as c:`; every task is killed at the end."""

    def __init__(self, kind, binary, **jobs):
        self.addresses = {job: [free_address() for _ in range(count)] for job, count in jobs.items()}
        spec = ",".join("%s|%s" % (job, ";".join(tasks)) for job, tasks in self.addresses.items())
        self.tasks = {}
        for job, tasks in self.addresses.items():
            for index in range(len(tasks)):
                self.tasks[job, index] = subprocess.Popen(
                    command(kind, binary, spec, job, index), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
                )
        self.target = "grpc://" + self.addresses.get("worker", self.addresses.get("ps"))[0]

    def __enter__(self):
        try:
            for job, tasks in self.addresses.items():
                for address in tasks:
                    wait_for(address)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        for task in self.tasks.values():
            task.send_signal(signal.SIGKILL)
            task.wait()

    def cpu_seconds(self):
        """What all tasks have used so far."""
        return sum(cpu_seconds(task.pid) for task in self.tasks.values())

    def peak_mb(self, job, index=0):
        """The most memory that a task has held."""
        with open("/proc/%d/status" % self.tasks[job, index].pid) as status:
            return next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM"))


def command(kind, binary, spec, job, index):
    if kind == "theirs":
        return [sys.executable, "-c", THEIRS, spec, job, str(index)]
    return [binary, "--log", "error", "server", "--cluster", spec, "--job-name", job, "--task-index", str(index)]


def cpu_seconds(pid):
    with open("/proc/%d/stat" % pid) as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def free_address():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return "127.0.0.1:%d" % s.getsockname()[1]


def wait_for(address):
    host, port = address.split(":")
    deadline = time.time() + STARTUP
    while time.time() < deadline:
        with socket.socket() as s:
            if s.connect_ex((host, int(port))) == 0:
                return
        time.sleep(0.01)
    raise TimeoutError("%s does not listen after %d s" % (address, STARTUP))

"""Tasks of a cluster on this machine, of our kind or of TensorFlow's, and what they cost."""

import os
import signal
import socket
import subprocess
import sys
import time

from processes import die_with_parent

STARTUP = 240  # seconds
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
    """`with Cluster("ours", binary, {"ps": 1, "worker": 1}) as c:`; every task is killed at the end.

    Jobs that are `absent` have addresses, but nobody is started there. In a process that has imported TensorFlow and not yet
    used it, TensorFlow's tasks can be `forked`, which saves them seconds of importing it themselves. Given `strangers`, each of
    our tasks is one.
    """

    def __init__(self, kind, binary, jobs, absent=(), forked=False, strangers=None):
        names = [(job, index) for job, count in jobs.items() for index in range(count)]
        free = dict(zip(names, free_addresses(len(names))))
        self.addresses = {job: [free[job, index] for index in range(count)] for job, count in jobs.items()}
        spec = ",".join("%s|%s" % (job, ";".join(tasks)) for job, tasks in self.addresses.items())
        self.began = time.perf_counter()
        self.present = [(job, index) for job, index in names if job not in absent]
        forked = forked and kind == "theirs"
        self.tasks = {
            (job, index): start(command(kind, binary, spec, job, index), forked, strangers) for job, index in self.present
        }

    def __enter__(self):
        try:
            for job, index in self.present:
                wait_for(self.addresses[job][index], self.tasks[job, index])
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        for task in self.tasks.values():
            task.send_signal(signal.SIGKILL)
        for task in self.tasks.values():
            task.wait()

    def target(self, job="worker", index=0):
        """What a session connects to."""
        return "grpc://" + self.addresses[job][index]

    def cpu_seconds(self):
        """What all tasks have used so far."""
        return sum(cpu_seconds(task.pid) for task in self.tasks.values())

    def peak_mb(self, job, index=0):
        """The most memory that a task has held."""
        return self.memory_mb("VmHWM", job, index)

    def memory_mb(self, line, job, index=0):
        """A line of what the kernel says of a task's memory."""
        with open("/proc/%d/status" % self.tasks[job, index].pid) as status:
            return next(int(words.split()[1]) / 1024 for words in status if words.startswith(line))


def command(kind, binary, spec, job, index):
    if kind == "theirs":
        return [sys.executable, "-c", THEIRS, spec, job, str(index)]
    return [binary, "--log", "error", "server", "--cluster", spec, "--job-name", job, "--task-index", str(index)]


def start(command, forked, strangers):
    if forked:
        return Forked(command[3:])
    silent = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    user = strangers.next() if strangers else {}
    return subprocess.Popen(command, **silent, **user, preexec_fn=die_with_parent)


class Forked:
    """A task of TensorFlow's in a copy of this process, with what `subprocess` offers for a program."""

    def __init__(self, arguments):
        self.returncode = None
        self.pid = os.fork()
        if self.pid == 0:
            try:
                die_with_parent()
                nowhere = os.open(os.devnull, os.O_RDWR)
                [os.dup2(nowhere, number) for number in range(3)]
                sys.argv = ["-c", *arguments]
                exec(THEIRS, {})
            finally:
                os._exit(1)

    def poll(self, options=os.WNOHANG):
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, options)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self):
        return self.poll(0)

    def send_signal(self, number):
        if self.poll() is None:
            os.kill(self.pid, number)


def cpu_seconds(pid):
    with open("/proc/%d/stat" % pid) as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def free_addresses(count):
    """So many at once that no two are the same."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        [s.bind(("127.0.0.1", 0)) for s in sockets]
        return ["127.0.0.1:%d" % s.getsockname()[1] for s in sockets]
    finally:
        [s.close() for s in sockets]


def wait_for(address, task):
    host, port = address.split(":")
    deadline = time.time() + STARTUP
    while time.time() < deadline:
        with socket.socket() as s:
            if s.connect_ex((host, int(port))) == 0:
                return
        if task.poll() is not None:
            raise RuntimeError("the task at %s ended with %d" % (address, task.returncode))
        time.sleep(0.002)
    raise TimeoutError("%s does not listen after %d s" % (address, STARTUP))

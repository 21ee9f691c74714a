"""Processes that end when they should: each measurement is one, with a limit in time and nothing left behind."""

import ctypes
import json
import os
import select
import signal
import sys
import time
import traceback

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
LIBC = ctypes.CDLL(None, use_errno=True)


def die_with_parent():
    """To be called in a new process: whoever started it takes it along."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Strangers:
    """Users that nobody has been yet: processes of two of them neither share memory nor do without TCP, as if each had a
    machine of its own. Only root can start them."""

    def __init__(self):
        self.last = 100_000

    def next(self):
        """Arguments for `subprocess.Popen`."""
        self.last += 1
        return {"user": self.last, "group": self.last, "extra_groups": []}


def adopt_orphans():
    """Processes whose parent has ended become ours, so that we can see them end too."""
    LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1)


def in_a_process(measure, seconds):
    """What `measure` yields in a process of its own, and why it ended early or None.

    Whatever that process started is killed with it. It must be forked before this one uses TensorFlow.
    """
    reader, writer = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        os.close(reader)
        run_child(measure, writer)
    os.close(writer)
    try:
        lines, in_time = read_until_closed(reader, time.time() + seconds)
    finally:
        os.close(reader)
        kill_group(child)
    found = [tuple(line["found"]) for line in lines if "found" in line]
    reasons = [line["failed"] for line in lines if "failed" in line]
    if not in_time:
        return found, "not done after %d s" % seconds
    ended_well = any("done" in line for line in lines)
    return found, None if ended_well else (reasons or ["its process died"])[0]


def run_child(measure, writer):
    """Never returns."""
    tell = lambda line: os.write(writer, (json.dumps(line) + "\n").encode())
    try:
        os.setsid()
        die_with_parent()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        for found in measure():
            tell({"found": found})
        tell({"done": True})
    except BaseException as error:
        if os.environ.get("BENCH_TRACEBACK"):
            traceback.print_exc()
        tell({"failed": "%s: %s" % (type(error).__name__, " ".join(str(error).split())[:300])})
    finally:
        os._exit(0)


def read_until_closed(reader, deadline):
    """The lines that came, and whether that was all before the deadline. Processes that linger keep the pipe open, so
    that what is last said counts as the end."""
    text = b""
    while (left := deadline - time.time()) > 0:
        if not select.select([reader], [], [], left)[0]:
            break
        piece = os.read(reader, 1 << 16)
        text += piece
        lines = [json.loads(line) for line in text.decode().split("\n")[:-1]]
        if not piece or any("done" in line or "failed" in line for line in lines):
            return lines, True
    return [json.loads(line) for line in text.decode().split("\n")[:-1]], False


def kill_group(leader):
    try:
        os.killpg(leader, signal.SIGKILL)
    except ProcessLookupError:
        os.kill(leader, signal.SIGKILL)  # not the leader of a group yet
    deadline = time.time() + 10
    while time.time() < deadline:
        try:
            if os.waitpid(-leader, os.WNOHANG) == (0, 0):
                time.sleep(0.005)
        except ChildProcessError:
            return

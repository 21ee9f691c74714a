"""Measures our servers and TensorFlow's in turns, with TensorFlow's client and with ours, and writes what came out.

    python tests/bench/run.py BINARY [NAME ...] [--client CLIENT] [--rounds N] [--write docs/benchmarks.md] [--readme README.md]

BINARY is a release build of `ferroflow`, CLIENT one of the example `bench_client`; `cargo xtask bench` makes both and calls
this. Needs a Python with TensorFlow. With names, only workloads whose names contain one of them are measured. Each
measurement is a process with a time limit: one that fails or hangs is reported, and the others go on.
"""

import argparse
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import catalogue
import processes
import report
import yardsticks
from cluster import Cluster
from workloads import SECONDS, tf

KINDS = report.KINDS


def main():
    arguments = parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended from outside"))
    processes.adopt_orphans()
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    workloads = catalogue.APART if arguments.apart else catalogue.ALL
    chosen = [w for w in workloads if not arguments.names or any(name in w.name for name in arguments.names)]
    if not chosen:
        sys.exit("no workload is called so; there are: %s" % " ".join(w.name for w in workloads))
    load = Load()
    book = report.Book(yardsticks.measure(), arguments.rounds, arguments.apart)
    for number, workload in enumerate(chosen):
        measure_in_turns(workload, "[%d/%d] %s" % (number + 1, len(chosen), workload.name), arguments, book)
        print("\n".join(report.rows(book.of(workload.name))), flush=True)
        book.others = load.of_others()
        if arguments.keep:
            book.save(arguments.keep)
    for line in book.failures():
        print(line)
    if arguments.write:
        book.write(arguments.write, arguments.readme)


def measure_in_turns(workload, title, arguments, book):
    """Each kind once, and again in every round."""
    kinds = [kind for kind in workload.kinds if kind in arguments.kinds]
    rounds = workload.rounds(arguments.rounds)
    for round_ in range(rounds):
        for kind in list(kinds):
            begin = time.time()
            print("%s, %d of %d, %s:" % (title, round_ + 1, rounds, report.NAMES[kind]), end=" ", file=sys.stderr, flush=True)
            found, failed = measure(workload, kind, arguments)
            for name, value, unit in found:
                book.add(workload.name, name, unit, kind, value)
            if failed:
                book.fail(workload.name, kind, failed)
            if failed and time.time() - begin > workload.seconds / 2:
                kinds.remove(kind)  # the next rounds would cost as much
            print(failed or "%.1f s" % (time.time() - begin), file=sys.stderr, flush=True)


def measure(workload, kind, arguments):
    """What was found, and why not all was, or None."""
    free = available_gigabytes()
    if free < workload.gigabytes:
        return [], "left out: needs %.0f GB of memory, %.1f are free" % (workload.gigabytes, free)
    by_rust = kind == catalogue.RUST or workload.run is None
    if by_rust and not arguments.client:
        return [], "left out: no --client is given"
    scratch = tempfile.mkdtemp(prefix="ferroflow-bench-", dir="/dev/shm")
    try:
        steps = lambda: in_cluster(workload, kind, by_rust, arguments, scratch)
        return processes.in_a_process(steps, workload.seconds)
    finally:
        shutil.rmtree(scratch)


def in_cluster(workload, kind, by_rust, arguments, scratch):
    servers = "theirs" if kind == catalogue.THEIRS else "ours"
    absent = workload.absent.get(kind, ())
    strangers = processes.Strangers() if arguments.apart else None
    with Cluster(servers, arguments.binary, workload.jobs, absent, forked=True, strangers=strangers) as cluster:
        if by_rust:
            yield from rust_client(workload, cluster, arguments.client, strangers)
            return
        cluster.kind, cluster.binary, cluster.scratch = kind, arguments.binary, scratch
        with tf.Graph().as_default():
            yield from workload.run(cluster)


def rust_client(workload, cluster, client, strangers):
    command = [client, workload.name, "--seconds", str(SECONDS)]
    command += ["--%s_hosts=%s" % (job, ",".join(addresses)) for job, addresses in cluster.addresses.items()]
    if cluster.tasks:
        command += ["--pids", ",".join(str(task.pid) for task in cluster.tasks.values())]
    user = strangers.next() if strangers else {}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **user) as running:
        for line in running.stdout:
            name, value, unit = line.rstrip("\n").split("\t")
            yield name, float(value), unit
        errors = running.stderr.read()
    if running.returncode:
        raise RuntimeError("%s ended with %d: %s" % (os.path.basename(client), running.returncode, errors.strip()))


def available_gigabytes():
    with open("/proc/meminfo") as info:
        return next(int(line.split()[1]) for line in info if line.startswith("MemAvailable")) / (1 << 20)


class Load:
    """What others take of the machine while we measure."""

    def __init__(self):
        self.start = self.busy_seconds(), self.own_seconds(), time.time()

    def of_others(self):
        """The part of all cores."""
        busy, own, begin = self.start
        others = (self.busy_seconds() - busy) - (self.own_seconds() - own)
        return max(0.0, others / (time.time() - begin) / os.cpu_count())

    @staticmethod
    def busy_seconds():
        with open("/proc/stat") as stat:
            user, nice, system, _idle, _waiting, irq, softirq, stolen = map(int, stat.readline().split()[1:9])
        return (user + nice + system + irq + softirq + stolen) / os.sysconf("SC_CLK_TCK")

    @staticmethod
    def own_seconds():
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return sum(one.ru_utime + one.ru_stime for one in used)


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--client", help="the Rust client; examples/bench_client beside BINARY if it is there")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="*", default=[], help="the same as NAME")
    parser.add_argument("--kinds", default=",".join(KINDS), help="which of %(default)s")
    parser.add_argument(
        "--apart",
        action="store_true",
        help="as across a network: every process of ours is a user of its own; to be run by root",
    )
    parser.add_argument("--write", help="the page to write")
    parser.add_argument("--readme", help="a page with a marked place for a few rows")
    parser.add_argument("--keep", help="a file for all values, from which report.py can write the pages again")
    arguments = parser.parse_intermixed_args()  # names may stand on either side of flags
    arguments.names += arguments.only
    arguments.kinds = arguments.kinds.split(",")
    arguments.binary = os.path.abspath(arguments.binary)
    beside = os.path.join(os.path.dirname(arguments.binary), "examples", "bench_client")
    arguments.client = os.path.abspath(arguments.client) if arguments.client else beside if os.path.exists(beside) else None
    if arguments.apart and os.geteuid() != 0:
        parser.error("--apart starts processes of several users, for which it must be run by root")
    for file in filter(None, (arguments.binary, arguments.client)):
        if not os.access(file, os.X_OK):
            parser.error("%s is not a program" % file)
    return arguments


if __name__ == "__main__":
    main()

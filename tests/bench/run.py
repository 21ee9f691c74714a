"""Measures our servers and TensorFlow's with the same client, in turns, and writes what came out.

    python tests/bench/run.py BINARY [--rounds N] [--only NAME ...] [--write docs/benchmarks.md]

BINARY is a release build of `ferroflow`; `cargo xtask bench` makes one and calls this. Needs a Python with TensorFlow.
"""

import argparse

import report
import yardsticks
from cluster import Cluster
from workloads import WORKLOADS, tf

KINDS = ("theirs", "ours")


def main():
    arguments = parse()
    machine = yardsticks.measure()
    results = {}
    for workload, jobs in WORKLOADS:
        if arguments.only and not any(name in workload.__name__ for name in arguments.only):
            continue
        for _ in range(arguments.rounds):
            for kind in KINDS:
                for name, value, unit, more_is_better in measure(workload, jobs, kind, arguments.binary):
                    result = results.setdefault(name, report.Result(name, unit, more_is_better))
                    result.values[kind].append(value)
        print(report.table(results.values()), flush=True)
    if arguments.write:
        report.write(arguments.write, machine, list(results.values()), arguments.rounds)


def measure(workload, jobs, kind, binary):
    with Cluster(kind, binary, **jobs) as cluster, tf.Graph().as_default():
        return list(workload(cluster))


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--write")
    return parser.parse_args()


if __name__ == "__main__":
    main()

"""All workloads: what is measured on which cluster, by whom, how often, and how long that may take."""

import dataclasses

import growth
import report
import workloads

THEIRS, OURS, RUST = report.KINDS


@dataclasses.dataclass
class Workload:
    """`run` is a function of a cluster, or None if the Rust client does it on all kinds of servers."""

    name: str
    run: object
    jobs: dict
    kinds: tuple = report.KINDS
    absent: dict = dataclasses.field(default_factory=dict)  # jobs that a kind's client brings itself
    once: bool = False
    seconds: int = 90
    gigabytes: float = 3

    def rounds(self, wanted):
        return 1 if self.once else wanted


def workload(run, jobs, **more):
    return Workload(run.__name__, run, jobs, **more)


PYTHON = (THEIRS, OURS)
NONE, ONE_AND_ONE, ONE_AND_TWO = {}, {"ps": 1, "worker": 1}, {"ps": 1, "worker": 2}
OWN_WORKER = {THEIRS: ["worker"], RUST: ["worker"]}
KB, MB, GB = 1 << 10, 1 << 20, 1 << 30

ALL = [
    workload(workloads.null_step, ONE_AND_ONE),
    workload(workloads.step_over_two_tasks, ONE_AND_ONE),
    workload(workloads.training, ONE_AND_TWO),
    workload(workloads.training_sync, ONE_AND_TWO),
    *[workload(run, ONE_AND_TWO, kinds=(THEIRS, RUST), absent=OWN_WORKER) for run in workloads.OWN_TRAINING],
    workload(workloads.one_process, ONE_AND_ONE, absent={RUST: ["worker"]}),
    workload(workloads.towers, {"ps": 1, "worker": 4}),
    *[workload(workloads.dense(size), ONE_AND_ONE) for size in (4 * KB, MB, 16 * MB, 64 * MB, 256 * MB)],
    workload(workloads.dense(GB), ONE_AND_ONE, once=True, seconds=180, gigabytes=16),
    workload(workloads.many_small, ONE_AND_ONE),
    workload(workloads.embedding, ONE_AND_ONE),
    workload(workloads.checkpoint, ONE_AND_ONE, kinds=PYTHON),
    workload(workloads.kernel, NONE, kinds=(THEIRS, RUST)),
    workload(growth.startup, NONE, kinds=PYTHON),
    workload(growth.scale, NONE, kinds=PYTHON, once=True, seconds=300, gigabytes=10),
    *[workload(growth.lookup(size), ONE_AND_ONE, kinds=PYTHON) for size in (64 * MB, 256 * MB, GB)],
    *[
        workload(growth.lookup(count * GB), ONE_AND_ONE, kinds=PYTHON, seconds=180, gigabytes=1.3 * count + 2)
        for count in (4, 8)
    ],
    Workload("connections", None, {"worker": 1}, kinds=PYTHON, seconds=150),
]

# What is measured where all of our processes are apart: training, and what is on its way then.
APART = [w for w in ALL if w.kinds == report.KINDS or w.run in workloads.OWN_TRAINING]

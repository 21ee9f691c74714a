"""Turns measurements into pages: tables of ratios, curves, and a few rows for the README.

    python tests/bench/report.py VALUES.json docs/benchmarks.md [README.md]

writes the pages again from the values that `run.py --keep` kept.
"""

import json
import os
import pathlib
import platform
import re
import statistics
import sys

import svg

KINDS = ("theirs", "ours", "rust")
NAMES = {"theirs": "TensorFlow", "ours": "ferroflow, same client", "rust": "ferroflow, Rust client"}
MORE_IS_BETTER = {"steps/s", "GB/s", "MB/s", "rows/s", "GFLOP/s", "×"}

# Which results are points of a curve: file, title, what the places are, and how the place is found in a result's name.
CURVES = [
    ("pull", "Pulling a variable from a parameter server", "size of the variable", r"pull (\d+ [MG]B)"),
    ("push", "Pushing a gradient to a parameter server", "size of the variable", r"push (\d+ [MG]B)"),
    ("ps", "A worker reads a scalar from each parameter server", "parameter servers", r"null step over (\d+) ps"),
    ("workers", "Each worker reads a scalar from one parameter server", "workers", r"null step over (\d+) workers?"),
    ("lookup", "32 rows of a table on a parameter server", "size of the table", r"lookup of 32 rows, table of (\d+ [MG]B)"),
    ("connections", "Null steps of many clients at once", "connections", r"null steps over (\d+) connections"),
    ("connections-cpu", "Server CPU of null steps of many clients at once", "connections",
     r"null steps over (\d+) connections: server CPU"),
    ("in-turn", "Null steps of ten clients, over many connections in turn", "connections",
     r"null steps over (\d+) connections in turn"),
]

# What the README shows.
SHORT = [
    "null step, 1 thread: median time",
    "step over ps and worker, 1 thread",
    "MNIST replica, asynchronous, 1 ps and 2 workers",
    "MNIST replica, synchronous, 1 ps and 2 workers",
    "in-graph, 4 towers, fed by the client",
    "pull 64 MB",
    "push 64 MB",
    "1000 variables of 1 KB, read",
    "embedding of a million rows, Adagrad",
    "peak memory of the ps, variable of 256 MB",
    "server, start to first answered step",
]
BEGIN, END = "<!-- benchmarks: written by `cargo xtask bench` -->", "<!-- end of benchmarks -->"


class Result:
    """One thing that was measured, some times with each kind of servers and client."""

    def __init__(self, workload, name, unit):
        self.workload, self.name, self.unit = workload, name, unit
        self.values = {kind: [] for kind in KINDS}

    def median(self, kind):
        return statistics.median(self.values[kind])

    def spread(self, kind):
        """Half the distance from the lowest to the highest, in percent of the median."""
        values = self.values[kind]
        return 50 * (max(values) - min(values)) / self.median(kind) if self.median(kind) else 0.0

    def ratio(self, kind):
        """To TensorFlow's; None if one of both is missing."""
        if self.values[kind] and self.values["theirs"] and self.median("theirs"):
            return self.median(kind) / self.median("theirs")

    def times_better(self, kind):
        ratio = self.ratio(kind)
        return ratio if ratio is None or self.unit in MORE_IS_BETTER else 1 / ratio if ratio else None


class Book:
    """All results, and what failed."""

    def __init__(self, machine, rounds, apart=False):
        self.machine, self.rounds, self.apart, self.others = machine, rounds, apart, 0.0
        self.results, self.failed = {}, []

    def add(self, workload, name, unit, kind, value):
        self.results.setdefault(name, Result(workload, name, unit)).values[kind].append(value)

    def fail(self, workload, kind, reason):
        if (workload, kind, reason) not in self.failed:
            self.failed.append((workload, kind, reason))

    def failures(self):
        return ["- `%s`, %s: %s" % (workload, NAMES[kind], reason) for workload, kind, reason in self.failed]

    def of(self, workload):
        return [result for result in self.results.values() if result.workload == workload]

    def save(self, path):
        results = [vars(result) for result in self.results.values()]
        with open(path, "w") as file:
            json.dump({**vars(self), "results": results}, file, indent=1)

    @staticmethod
    def load(path):
        with open(path) as file:
            kept = json.load(file)
        book = Book(kept["machine"], kept["rounds"], kept.get("apart", False))
        book.others, book.failed = kept["others"], [tuple(entry) for entry in kept["failed"]]
        for result in kept["results"]:
            for kind, values in result["values"].items():
                for value in values:
                    book.add(result["workload"], result["name"], result["unit"], kind, value)
        return book

    def write(self, page, readme=None):
        """The page, with its curves in `images` beside it, and the marked place of the README."""
        stem = os.path.splitext(os.path.basename(page))[0]
        images = os.path.join(os.path.dirname(page), "images")
        os.makedirs(images, exist_ok=True)
        sections, on_curves = [], set()
        for name, title, x_title, pattern in CURVES:
            points = {m[1]: r for r in self.results.values() if (m := re.fullmatch(pattern, r.name))}
            if len(points) > 1:
                file = "%s-%s.svg" % (stem, name)
                with open(os.path.join(images, file), "w") as image:
                    image.write(curve(title, x_title, points))
                sections += ["### %s" % title, "", "![%s](images/%s)" % (title, file), ""]
                sections += ["- %s." % growth_in_words(kind, points) for kind in KINDS if grown(kind, points)] + [""]
                sections += table(points.values()) + [""]
                on_curves.update(r.name for r in points.values())
        rest = [r for r in self.results.values() if r.name not in on_curves or r.name in LARGE]
        lines = [self.introduction(), *beside(page), "", "## Workloads", "", *table(rest), "", *self.shares_of_loopback(), *FOOT]
        if sections:
            lines += ["", "## Growth", "", *sections]
        if self.failed:
            lines += ["## What failed or was left out", "", *self.failures(), ""]
        with open(page, "w") as file:
            file.write("\n".join(lines).rstrip("\n") + "\n")
        if readme:
            self.fill(readme)

    def introduction(self):
        yardsticks = ["| %s | %s %s |" % (name, short(value), unit) for name, value, unit in self.machine or []]
        machine = processor() + (APART if self.apart else "")
        return "\n".join([
            HEAD % (self.rounds, plural(self.rounds), os.cpu_count(), machine, 100 * self.others), "",
            "| yardstick | |", "|---|---|", *yardsticks,
        ])

    def shares_of_loopback(self):
        """Transfers beside what TCP itself does here."""
        loopback = next((value for name, value, _ in self.machine or [] if name == LOOPBACK), None)
        rows = [self.results[name] for name in LARGE if name in self.results]
        if not loopback or not rows:
            return []
        part = lambda r, kind: "%.0f %%" % (100 * r.median(kind) / loopback) if r.values[kind] else "–"
        lines = ["| of loopback TCP, one stream | %s |" % " | ".join(NAMES[kind] for kind in KINDS), "|---|---|---|---|"]
        return lines + ["| %s | %s |" % (r.name, " | ".join(part(r, kind) for kind in KINDS)) for r in rows] + [""]

    def fill(self, readme):
        with open(readme) as file:
            before, rest = file.read().split(BEGIN)
        after = rest.split(END)[1]
        rows = [self.results[name] for name in SHORT if name in self.results]
        better = lambda r, kind: "**%s ×**" % short(r.times_better(kind)) if r.times_better(kind) else "–"
        lines = [BEGIN, "", "| times better than TensorFlow | with TensorFlow's own Python client | with the Rust client |"]
        lines += ["|---|---|---|"]
        lines += ["| %s | %s | %s |" % (r.name, better(r, "ours"), better(r, "rust")) for r in rows]
        with open(readme, "w") as file:
            file.write(before + "\n".join([*lines, "", END]) + after)


LOOPBACK = "loopback TCP, one stream"
LARGE = ["%s %s" % (way, size) for size in ("1 MB", "64 MB", "256 MB") for way in ("pull", "push")]

HEAD = """# Benchmarks

TensorFlow's servers and ours on one machine, in turns. The first two columns have the same client: TensorFlow's own, in
Python. The third has our Rust client on our servers, and is compared with TensorFlow's client on TensorFlow's servers.
Medians of %d round%s, with half the range as spread; ratios are to TensorFlow. To repeat it, with any Python that has
TensorFlow:

```sh
cargo xtask bench --python PYTHON
```

`cargo xtask bench --python PYTHON NAME…` measures the workloads whose names contain one of the names and writes nothing;
`tests/bench/catalogue.py` lists them. `--page docs/benchmarks_KIND.md` writes the page of another kind of machine, and
`--apart` one for which our processes neither share memory nor do without TCP, as if each had a machine of its own.

Machine: %d cores, %s; other processes used %.0f %% of it meanwhile."""

# What follows the machine where our processes were strangers to each other.
APART = ", every process of ours a user of its own"

FOOT = [
    "The MNIST network is that of TensorFlow's distributed tutorial: 784-100-10, batches of 100, Adam; the parameters are on the",
    "ps. It is fed with digits, four fifths of which are zero, and our products skip zeros; the towers are fed with noise.",
    "With 1 ps and 1 worker the Rust program is its own worker. Server CPU is the time of all tasks for one step. Where many",
    "clients are connected at once, they are Rust clients of both kinds of servers.",
]


def beside(page):
    """Links to pages of other machines or conditions, which have other names in the same folder."""
    links = []
    for other in sorted(pathlib.Path(page).resolve().parent.glob("benchmarks*.md")):
        if other.name != os.path.basename(page) and (machine := re.search(r"^Machine: \d+ cores, (.*?);", other.read_text(), re.M)):
            links.append("[%s](%s)" % (machine[1], other.name))
    return ["", "Other pages: %s." % "; ".join(links)] if links else []


def table(results):
    heads = ["what", "better", NAMES["theirs"], NAMES["ours"], "ratio", NAMES["rust"], "ratio"]
    return ["| %s |" % " | ".join(heads), "|---" * len(heads) + "|", *rows(results)]


def rows(results):
    for result in results:
        cell = lambda kind: "%s ± %.0f %%" % (short(result.median(kind)), result.spread(kind)) if result.values[kind] else "–"
        ratio = lambda kind: "–" if result.ratio(kind) is None else "**%s**" % two_digits(result.ratio(kind))
        better = "more" if result.unit in MORE_IS_BETTER else "less"
        cells = [cell("theirs"), cell("ours"), ratio("ours"), cell("rust"), ratio("rust")]
        yield "| %s, %s | %s | %s |" % (result.name, result.unit, better, " | ".join(cells))


def curve(title, x_title, points):
    found = {kind: {label: r.median(kind) for label, r in points.items() if r.values[kind]} for kind in KINDS}
    found = {kind: values for kind, values in found.items() if values}
    return svg.draw(title, x_title, next(iter(points.values())).unit, found, NAMES, short)


def grown(kind, points):
    return [(label, r.median(kind)) for label, r in points.items() if r.values[kind]]


def growth_in_words(kind, points):
    found = grown(kind, points)
    (first, start), (last, end) = found[0], found[-1]
    values = [value for _, value in found]
    words = "%s: at %s it is %.2f times what it is at %s; from the lowest point to the highest %.2f times"
    return words % (NAMES[kind], last, end / start, first, max(values) / min(values))


def short(value):
    return "{:,.0f}".format(value) if value >= 100 else "%.3g" % value


def two_digits(value):
    return "%.2f" % value if value >= 0.1 else "%.2g" % value


def plural(count):
    return "" if count == 1 else "s"


def processor():
    """Its name, and its family and model, as a virtual machine's processors of several generations have one name."""
    with open("/proc/cpuinfo") as info:
        fields = dict(re.findall(r"^(model name|cpu family|model)\s*: (.*)$", info.read(), re.M))
    name = fields.get("model name", platform.machine())
    return "%s, family %s model %s" % (name, fields["cpu family"], fields["model"]) if "cpu family" in fields else name


if __name__ == "__main__":
    Book.load(sys.argv[1]).write(*sys.argv[2:])

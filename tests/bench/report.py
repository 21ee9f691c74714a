"""Turns measurements into a page: a table of ratios, and curves as SVG."""

import os
import platform
import re
import statistics


class Result:
    """One thing that was measured on both kinds of servers, some times each."""

    def __init__(self, name, unit, more_is_better):
        self.name, self.unit, self.more_is_better = name, unit, more_is_better
        self.values = {"theirs": [], "ours": []}

    def median(self, kind):
        return statistics.median(self.values[kind])

    def spread(self, kind):
        """Half the distance from the lowest to the highest, in percent of the median."""
        values = self.values[kind]
        return 50 * (max(values) - min(values)) / self.median(kind) if self.median(kind) else 0.0

    def ratio(self):
        """Ours to theirs."""
        return self.median("ours") / self.median("theirs") if self.median("theirs") else float("nan")


def table(results):
    rows = ["| what | TensorFlow | ferroflow | ratio | better |", "|---|---|---|---|---|"]
    for result in results:
        if result.values["ours"] and result.values["theirs"]:
            cells = ["%s ± %.0f %%" % (short(result.median(kind)), result.spread(kind)) for kind in ("theirs", "ours")]
            better = "more" if result.more_is_better else "less"
            rows.append("| %s, %s | %s | %s | **%.2f** | %s |" % (result.name, result.unit, *cells, result.ratio(), better))
    return "\n".join(rows)


def short(value):
    if value >= 100:
        return "{:,.0f}".format(value)
    return "%.3g" % value


def write(path, machine, results, rounds):
    """The page, with its curves beside it."""
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    lines = [
        "# Benchmarks",
        "",
        "Our servers and TensorFlow's, driven by the same stock TensorFlow client on the same machine, in turns; medians of",
        "%d rounds, with half the range as spread. Written by `cargo xtask bench`; `tests/bench` says what is measured." % rounds,
        "",
        "Machine: %d cores, %s." % (os.cpu_count(), processor()),
        "",
        "| yardstick | |",
        "|---|---|",
        *["| %s | %s %s |" % (name, short(value), unit) for name, value, unit in machine],
        "",
        table(results),
        "",
    ]
    points = [(r, re.fullmatch(r"(pull|push) (\d+) ([KM])B", r.name)) for r in results]
    for direction in ("pull", "push"):
        found = [(r, m) for r, m in points if m and m[1] == direction]
        if len(found) > 1:
            name = "benchmarks-%s.svg" % direction
            sizes = [int(m[2]) * (1024 if m[3] == "M" else 1) for _, m in found]
            curves = {kind: [r.median(kind) for r, _ in found] for kind in ("theirs", "ours")}
            with open(os.path.join(os.path.dirname(path), name), "w") as file:
                file.write(svg("%s: GB/s by size in KB" % direction, sizes, curves))
            lines += ["![%s](%s)" % (direction, name), ""]
    with open(path, "w") as file:
        file.write("\n".join(lines))


def processor():
    with open("/proc/cpuinfo") as info:
        names = (line.split(":", 1)[1].strip() for line in info if line.startswith("model name"))
        return next(names, platform.machine())


WIDTH, HEIGHT, MARGIN = 640, 320, 48
COLOURS = {"theirs": "#d1495b", "ours": "#00798c"}
LABELS = {"theirs": "TensorFlow", "ours": "ferroflow"}


def svg(title, xs, curves):
    """Curves over equally spaced places, from zero."""
    top = max(max(ys) for ys in curves.values()) * 1.1
    x = lambda i: MARGIN + i * (WIDTH - 2 * MARGIN) / (len(xs) - 1)
    y = lambda value: HEIGHT - MARGIN - value / top * (HEIGHT - 2 * MARGIN)
    text = '<text x="%.0f" y="%.0f" font-family="sans-serif" font-size="12" text-anchor="%s" fill="%s">%s</text>'
    parts = [text % (WIDTH / 2, 20, "middle", "#222", title)]
    for step in range(5):
        value = top * step / 4
        parts.append('<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="#ddd"/>' % (MARGIN, WIDTH - MARGIN, y(value), y(value)))
        parts.append(text % (MARGIN - 6, y(value) + 4, "end", "#222", short(value) if value else "0"))
    parts += [text % (x(i), HEIGHT - MARGIN + 18, "middle", "#222", "{:,}".format(label)) for i, label in enumerate(xs)]
    for row, (kind, ys) in enumerate(curves.items()):
        line = " ".join("%.1f,%.1f" % (x(i), y(value)) for i, value in enumerate(ys))
        parts.append('<polyline points="%s" fill="none" stroke="%s" stroke-width="2"/>' % (line, COLOURS[kind]))
        parts.append(text % (WIDTH - MARGIN, 36 + 16 * row, "end", COLOURS[kind], LABELS[kind]))
    return '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d">\n%s\n</svg>\n' % (WIDTH, HEIGHT, "\n".join(parts))

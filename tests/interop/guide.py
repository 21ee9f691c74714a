"""Runs what the guide shows: its Python on servers of ours, and the help of each command for the flags it names.

    python tests/interop/guide.py

Needs a Python with TensorFlow, and cargo. Prints a line per check and a closing line; exits with 1 if any failed.
"""

import glob
import os
import re
import shlex
import subprocess
import sys
import tempfile

from clusters import CLUSTERS, ROOT, Cluster, built

PAGES = sorted(glob.glob(os.path.join(ROOT, "docs", "src", "*.md")) + [os.path.join(ROOT, "README.md")])
# Where the guide's cluster listens: ps:0, worker:0 and worker:1.
ADDRESSES = ["localhost:2222", "localhost:2223", "localhost:2224"]


def blocks(page, language):
    with open(page) as f:
        return re.findall(r"^```%s\n(.*?)^```" % language, f.read(), re.M | re.S)


def run_python(program, cluster):
    for shown, real in zip(ADDRESSES, cluster.addresses):
        program = program.replace(shown, real)
    program = program.replace("localhost:PORT", cluster.addresses[1])  # any task's will do
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([sys.executable, "-c", program], cwd=folder, timeout=120, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]


def commands(script):
    """The words of each `ferroflow` command, up to the program it launches, the next command or a comment."""
    for line in script.splitlines():
        _, found, rest = line.partition("ferroflow ")
        if found and not line.lstrip().startswith(("cargo", "git", "#")):
            words = shlex.split(rest, comments=True)
            ends = [i for i, word in enumerate(words) if word in ("--", "&", "|")]
            yield words[: min(ends, default=len(words))]


def check_command(binary, words):
    names = []
    for word in words:
        if word.startswith("-") or not re.fullmatch("[a-z]+", word):
            break
        names.append(word)
    # The last name may be an argument, such as a directory.
    helps = [subprocess.run([binary] + names[:n] + ["--help"], capture_output=True, text=True) for n in (len(names), 1)]
    help = next((h.stdout for h in helps if h.returncode == 0), None)
    assert help, "there is no command '%s'" % " ".join(names)
    alike = lambda text: text.replace("-", "_")  # either is understood
    for word in words:
        flag = word.split("=")[0]
        assert not flag.startswith("--") or alike(flag) in alike(help), "%s has no flag %s" % (names, flag)


def checks(binary, cluster):
    """What is to be checked, with a title each."""
    for page in PAGES:
        name = os.path.basename(page)
        for number, program in enumerate(blocks(page, "python")):
            yield "%s, Python block %d" % (name, number + 1), lambda: run_python(program, cluster)
        for words in (words for script in blocks(page, "sh") for words in commands(script)):
            yield "%s: ferroflow %s" % (name, " ".join(words)), lambda: check_command(binary, words)


def main():
    subprocess.check_call(["cargo", "build", "--quiet", "-p", "ferroflow-cli"], cwd=ROOT)
    passed = failed = 0
    cluster = Cluster(CLUSTERS["our tasks"], built("ferroflow"))
    try:
        cluster.wait()
        for title, check in checks(built("ferroflow"), cluster):
            try:
                check()
                passed += 1
                print("ok     ", title, flush=True)
            except Exception as error:
                failed += 1
                print("FAILED ", title, "\n", error, flush=True)
    finally:
        cluster.stop()
    print("%d passed, %d failed" % (passed, failed))
    sys.exit(1 if failed or not passed else 0)


if __name__ == "__main__":
    main()

"""`make test-luck`: the suite in random order, on a busy machine, five times; what fails once is told.

    python -m tests.luck [--runs 5] [--seed 1] [--workers 3] [--busy 4] [-- pytest's arguments]

A test that fails in any run depends on luck, for the code is the same: no test may. Exit code 1: some did.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

ROOT = Path(__file__).resolve().parents[1]
ORDER = "EOSLOG_TEST_ORDER"
"""A seed: tests run in an order of its own (conftest.py)."""
NOTHING_RAN = 5
"""pytest's exit code where no test was chosen."""


def shuffled(items: Sequence[pytest.Item], seed: str) -> list[pytest.Item]:
    """Files in any order, and their tests in any order; those of a file stay together, for its fixtures."""
    random, files = Random(seed), dict[str, list[pytest.Item]]()
    for item in items:
        files.setdefault(item.nodeid.partition("::")[0], []).append(item)
    names = sorted(files)
    random.shuffle(names)
    for name in names:
        random.shuffle(files[name])
    return [item for name in names for item in files[name]]


@contextmanager
def busy(processes: int) -> Iterator[None]:
    """Processes that compute all the while."""
    started = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def failed(report: Path) -> list[str]:
    """The tests that failed, or whose fixtures did, as pytest's report names them."""
    cases = ElementTree.parse(report).getroot().iter("testcase")
    wrong = [case for case in cases if {child.tag for child in case} & {"failure", "error"}]
    return [f"{case.attrib['classname']}::{case.attrib['name']}" for case in wrong]


def told(runs: Sequence[Sequence[str]]) -> list[str]:
    """A line for each test that failed in any run: in how many of them."""
    counted = Counter(name for run in runs for name in set(run))
    return [f"{times} of {len(runs)}  {name}" for name, times in sorted(counted.items())]


def run(seed: int, arguments: Sequence[str]) -> list[str]:
    """Run the suite once; the tests that failed. Raises RuntimeError if pytest has made no report."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "--tb=short", f"--junitxml={report}", *arguments]
        code = subprocess.run(command, cwd=ROOT, env={**os.environ, ORDER: str(seed)}, check=False).returncode
        if code == NOTHING_RAN or not report.exists():
            raise RuntimeError(f"pytest ended with {code}: no test ran; correct {' '.join(arguments)!r}")
        return failed(report)


def main() -> int:
    """Run the suite several times, and tell what failed in any of the runs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1, help="of the first run; the next run has the next one")
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--busy", type=int, default=2 * (os.cpu_count() or 2), help="processes that compute")
    parser.add_argument("pytest", nargs="*", help="arguments for pytest")
    given = parser.parse_args()
    together = ["-n", str(given.workers), "--dist", "loadfile", "--no-loadscope-reorder", *given.pytest]
    runs = []
    with busy(given.busy):
        for seed in range(given.seed, given.seed + given.runs):
            runs.append(run(seed, together))
            print(f"== order {seed}: {len(runs[-1])} failed", flush=True)
    lines = told(runs)
    print("\n".join(lines or [f"none failed in {given.runs} runs"]))
    return int(bool(lines))


if __name__ == "__main__":
    sys.exit(main())

"""`make mutants`: breaks one rule after another and says which breaks no test notices.

A rule is never broken in the checkout: what tests need of it is copied, and each mutant runs in a copy of its
own, several at a time. First the tests run on a copy that is whole, for a test that is red by itself proves
nothing. The exit code is 1 if a mutant survives. What takes long to import is imported once, here, and every
run of pytest is a fork of this process; so nothing of eoslog may be imported here.
"""

import argparse
import gc
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import _hypothesis_pytestplugin  # noqa: F401 - these are imported for the forks
import confluent_kafka  # noqa: F401
import hypothesis.internal.conjecture.engine
import hypothesis.strategies
import pandas  # noqa: F401
import pyarrow.compute
import pyarrow.fs  # noqa: F401
import pyspark.sql.streaming.datasource  # noqa: F401
import pytest

from tests.mutants.mutant import ROOT, Mutant, whole
from tests.mutants.table import MUTANTS

hypothesis.settings.register_profile("not shrunk", phases=(hypothesis.Phase.explicit, hypothesis.Phase.generate))
LEFT_OUT = shutil.ignore_patterns(".*", "build", "dist", "*.egg-info", "__pycache__")
COMPILED = ("eoslog", "protocol", "broker", "client", "connector", "tests")
LIMIT_SECONDS, HANGS_SECONDS = 600.0, 60.0
BASELINE_SECONDS = 1800.0
KILLED, SURVIVED, TIMED_OUT, UNFIT = "killed", "SURVIVED", "OUT OF TIME", "UNFIT"
QUIET = (
    "-xq",
    "--tb=no",
    "-rfE",
    "--assert=plain",
    "-pno:xdist",
    "--timeout=0",
    "-mnot spark and (long or not long)",
)
"""How pytest is run: to the first red test. No Spark is started; no time-out but ours. Assertions are not
rewritten: nobody reads why one fails, and what pytest compiles it tells by its time and length."""


class Outcome(NamedTuple):
    """What became of a mutant: `by` the test that noticed, or what else is to be said."""

    mutant: Mutant
    verdict: str
    by: str
    seconds: float


class Run(NamedTuple):
    """A run of pytest that has ended; `code` None: out of time."""

    code: int | None
    output: str
    seconds: float


def copy_sources(to: Path, written: Iterable[str]) -> Path:
    """The checkout as tests see it, some files written as mutants are, without comments. Compiled files are told
    by their contents: a rule may be broken within the second and at the length of the one before."""
    shutil.copytree(ROOT, to, ignore=LEFT_OUT, symlinks=True)
    for file in written:
        (to / file).write_text(whole(file))
    compiler = [sys.executable, "-m", "compileall", "-q", "--invalidation-mode", "checked-hash"]
    subprocess.run([*compiler, *COMPILED], cwd=to, check=True)
    return to


class Running:
    """pytest at work in a copy, with all that it starts."""

    def __init__(self, tree: Path, tests: Sequence[str]) -> None:
        self._began = time.monotonic()
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - closed when the run has ended
        sys.stdout.flush()
        self._pid = os.fork()
        if self._pid == 0:
            _be_pytest(tree, tests, self._output.fileno())

    def ended(self, limit: float) -> Run | None:
        """The run if it has ended, or is ended now; None: it is at work."""
        pid, status = os.waitpid(self._pid, os.WNOHANG)
        seconds = time.monotonic() - self._began
        if pid == 0 and seconds < limit:
            return None
        self.kill()
        if pid == 0:
            os.waitpid(self._pid, 0)
        self._output.seek(0)
        text = self._output.read().decode(errors="replace")
        self._output.close()
        return Run(os.waitstatus_to_exitcode(status) if pid else None, text, seconds)

    def kill(self) -> None:
        """End it, and whatever it has left behind."""
        try:
            os.killpg(self._pid, signal.SIGKILL)
        except ProcessLookupError:  # all have ended
            return


def _be_pytest(tree: Path, tests: Sequence[str], output: int) -> None:
    """What the fork does: the rest of its life is a run of pytest in the copy."""
    code = 70
    try:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        for stream in (1, 2):
            os.dup2(output, stream)
        for name in [name for name in sys.modules if name.partition(".")[0] in ("tests", "eoslog")]:
            del sys.modules[name]
        os.chdir(tree)
        sys.path[0] = str(tree)
        os.environ.pop("PYTHONPATH", None)
        hypothesis.settings.load_profile("not shrunk")
        import eoslog.connector

        if not Path(eoslog.connector.__file__ or "").is_relative_to(tree):
            raise RuntimeError(f"not the copy in {tree} is tested, but {eoslog.connector.__file__}")
        code = int(pytest.main([*QUIET, *tests]))
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def judge(mutant: Mutant, run: Run) -> Outcome:
    """What a run says of a mutant."""
    if run.code is None:
        verdict = KILLED if mutant.hangs else TIMED_OUT
        return Outcome(mutant, verdict, f"no end within {run.seconds:.0f} s", run.seconds)
    red = [line for line in run.output.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    if run.code == 1 and red:
        return Outcome(mutant, KILLED, red[0].split(" ", 1)[1].partition(" - ")[0], run.seconds)
    if run.code == 0:
        return Outcome(mutant, SURVIVED, "", run.seconds)
    return Outcome(mutant, UNFIT, f"pytest ended with {run.code}: {run.output.strip()[-300:]}", run.seconds)


class Broken:
    """A mutant at work in a copy: the rule is broken there, and mended when it has ended."""

    def __init__(self, mutant: Mutant, tree: Path) -> None:
        self.mutant, self.tree = mutant, tree
        self._path = tree / mutant.file
        self._whole = self._path.read_text()
        self._path.write_text(mutant.broken())
        self._running = Running(tree, mutant.tests)

    def ended(self) -> Outcome | None:
        """What became of it, once that is known."""
        run = self._running.ended(HANGS_SECONDS if self.mutant.hangs else LIMIT_SECONDS)
        if run is None:
            return None
        self._path.write_text(self._whole)
        return judge(self.mutant, run)

    def kill(self) -> None:
        """The runner is interrupted."""
        self._running.kill()


def run_all(mutants: Sequence[Mutant], trees: Sequence[Path]) -> Iterator[Outcome]:
    """Every mutant in turn, one in each copy at a time."""
    left, free, at_work = list(reversed(mutants)), list(trees), list[Broken]()
    try:
        while left or at_work:
            while left and free:
                at_work.append(Broken(left.pop(), free.pop()))
            time.sleep(0.02)
            for broken in list(at_work):
                outcome = broken.ended()
                if outcome is not None:
                    at_work.remove(broken)
                    free.append(broken.tree)
                    yield outcome
    finally:
        for broken in at_work:
            broken.kill()


def run_whole(tree: Path, tests: Sequence[str]) -> Run:
    """The tests with nothing broken."""
    running, run = Running(tree, tests), None
    while run is None:
        time.sleep(0.1)
        run = running.ended(BASELINE_SECONDS)
    return run


def told(outcome: Outcome) -> str:
    """A line of the table."""
    by = outcome.by.replace("tests/connector/", "")
    return f"{outcome.verdict:<12}{outcome.seconds:5.0f} s  {outcome.mutant.title:<90}  {by}"


def main() -> int:
    """0: none survives; 1: some do; 2: the tests are red without a mutant."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("only", nargs="*", help="parts of file names or names: those mutants alone")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--no-baseline", action="store_true", help="do not run the tests on whole sources first")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what is at work ends with us
    wanted = [m for m in MUTANTS if not given.only or any(part in m.title for part in given.only)]
    for mutant in wanted:
        mutant.broken()
    gc.freeze()  # so no fork collects what is imported here
    with tempfile.TemporaryDirectory(prefix="eoslog-mutants-") as folder:
        files = {mutant.file for mutant in wanted}
        trees = [copy_sources(Path(folder) / str(number), files) for number in range(given.jobs)]
        if not given.no_baseline:
            tests = dict.fromkeys(test for mutant in wanted for test in mutant.tests)
            whole = run_whole(trees[0], list(tests))
            if whole.code != 0:
                print(f"the tests are red without any mutant:\n{whole.output[-3000:]}")
                return 2
            print(
                f"{len(wanted)} mutants; their tests are green without them ({whole.seconds:.0f} s)",
                flush=True,
            )
        outcomes = []
        for outcome in run_all(wanted, trees):
            outcomes.append(outcome)
            print(told(outcome), flush=True)
    left = [outcome for outcome in outcomes if outcome.verdict != KILLED]
    print(f"\n{len(outcomes) - len(left)} of {len(outcomes)} mutants killed; {len(left)} survivors")
    for outcome in left:
        print(told(outcome))
    return 1 if left or not outcomes else 0


if __name__ == "__main__":
    sys.exit(main())

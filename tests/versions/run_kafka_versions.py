"""`make test-kafka-versions`: the connector on one version of Apache Kafka after another, on each transaction
protocol that a version has. It runs file by file: each result is kept at once, and the table of
docs/evidence.md made anew. So a long run can be stopped and gone on with.

    python -m tests.versions.run_kafka_versions 3.9.1 4.3.1 [--suites "crash table,copy"] [--levels 2]
    python -m tests.versions.run_kafka_versions 3.9.1 --missing --minutes 8

Suites are run in the order of `--suites`, each on all versions. Exits with 1 if a test failed.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from tests.versions.kafka_results import (
    LEVELS,
    SUITES,
    WHOLE,
    WITH_ZOOKEEPER,
    Result,
    Results,
    cell,
    environment,
    levels_of,
    of_junit,
    put_into_page,
)

ROOT = Path(__file__).parents[2]
PLACES = {
    "client": ("client",),
    "source": ("connector/source", "connector/checkpoint"),
    "sink": ("connector/sink", "connector/run"),
    "crash table": ("connector/crashes",),
}
"""Suite -> folders of tests. The folders left out ask no broker, or start clusters of their own."""
TEST_SECONDS = 600
"""A test may take this long: nodes start slowly on a busy machine."""
COPY_ROWS, COPY_KILLS, COPY_SEED = 20_000, 5, 7
_VERDICT = re.compile(r"(\d+) rows: (\d+) lost, (\d+) doubled, (\d+) out of order, (\d+) damaged")


class Run(NamedTuple):
    """What is run on one node: a file of a suite, or the whole copy."""

    version: str
    level: str
    suite: str
    file: str
    of: int


def files_of(suite: str) -> list[str]:
    """The suite's test files, by their path in the repository; the copy is a whole."""
    if suite == "copy":
        return [WHOLE]
    found = [file for folder in PLACES[suite] for file in (ROOT / "tests" / folder).rglob("test_*.py")]
    return sorted(str(file.relative_to(ROOT)) for file in found)


def run_tests(run: Run, more: list[str]) -> Result:
    """Run a file's tests on nodes of this version."""
    with tempfile.TemporaryDirectory() as directory:
        report = Path(directory) / "report.xml"
        pytest = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "--timeout",
            str(TEST_SECONDS),
            f"--junitxml={report}",
        ]
        told = os.environ | environment(run.version, run.level)
        ended = subprocess.run([*pytest, run.file, *more], cwd=ROOT, env=told, check=False)
        if not report.exists():
            raise RuntimeError(
                f"{run.file} on {run.version}: pytest ended with {ended.returncode}, no report"
            )
        passed, skipped, failed = of_junit(report)
    return Result(
        run.version, run.level, run.suite, _today(), passed, skipped, failed, file=run.file, of=run.of
    )


def run_copy(version: str, level: str, rows: int, kills: int) -> Result:
    """A copy whose driver is killed, judged by a stock client."""
    node = ["--zookeeper"] if level == WITH_ZOOKEEPER else [f"--transaction-version={level}"]
    detail, failed = copied("kafka", rows, kills, rows // 20, COPY_SEED, f"--kafka={version}", *node)
    return Result(version, level, "copy", _today(), int(not failed), 0, failed, detail)


def copied(
    subject: str,
    rows: int,
    kills: int,
    batch: int,
    seed: int,
    *more: str,
    environment: Mapping[str, str] | None = None,
) -> tuple[str, tuple[str, ...]]:
    """Run tests/soaks/soak_copy.py: its verdict, and what failed. Raises RuntimeError if it says nothing."""
    sizes = [f"--rows={rows}", f"--kills={kills}", f"--batch={batch}", f"--seed={seed}"]
    command = [sys.executable, "-u", "-m", "tests.soaks.soak_copy", f"--only={subject}", *sizes, *more]
    ended = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    print(ended.stdout, flush=True)
    verdict = _VERDICT.search(ended.stdout)
    if verdict is None:
        raise RuntimeError(f"the copy ended with {ended.returncode} and no verdict: {' '.join(command)}")
    _, lost, doubled, _, _ = verdict.groups()
    detail = f"{rows:,} rows, {kills} kills: {lost} lost, {doubled} doubled"
    return detail, ("the copy is not exact, or the query stopped by itself",) if ended.returncode else ()


def chosen(options: argparse.Namespace, kept: Results) -> Iterator[Run]:
    """What to run, suite by suite."""
    for suite in options.suites.split(","):
        files = files_of(suite)
        for version in options.versions:
            for level in levels_of(version):
                if options.levels and (level or "none") not in options.levels.split(","):
                    continue
                node = version, level, suite
                wanted = files
                if options.missing or options.failed:
                    wanted = (kept.missing if options.missing else kept.failed)(*node, files)
                for file in wanted:
                    yield Run(*node, file, len(files))


def main() -> None:
    """Run what was asked for."""
    options = _options()
    runs, wrong = list(chosen(options, Results.read())), []
    until = time.monotonic() + options.minutes * 60
    for number, run in enumerate(runs):
        if time.monotonic() >= until:
            print(f"{options.minutes:g} minutes are over: {len(runs) - number} of {len(runs)} runs are left")
            break
        node = f"Apache Kafka {run.version}, transaction.version {LEVELS[run.level]}"
        print(f"{node}: {run.suite} {run.file}", flush=True)
        if run.suite == "copy":
            result = run_copy(run.version, run.level, options.rows, options.kills)
        else:
            result = run_tests(run, options.pytest.split())
        print(f"  {cell([result])}", flush=True)
        if result.failed:
            wrong.append(f"{run.version} {run.level} {run.suite} {run.file}")
        if not options.pytest:
            _keep(result)
    sys.exit(f"not right: {'; '.join(wrong)}" if wrong else 0)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("versions", nargs="+")
    parser.add_argument("--suites", default=",".join(SUITES), help=f"of {', '.join(SUITES)}")
    parser.add_argument(
        "--levels", default="", help="of transaction.version, from 4.0 on: 1,2; before: none,ZooKeeper"
    )
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin nothing after them")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--missing", action="store_true", help="what has no result")
    which.add_argument("--failed", action="store_true", help="what has failed")
    parser.add_argument("--rows", type=int, default=COPY_ROWS)
    parser.add_argument("--kills", type=int, default=COPY_KILLS)
    parser.add_argument("--pytest", default="", help="more arguments of pytest; nothing is kept then")
    return parser.parse_args()


def _keep(result: Result) -> None:
    kept = Results.read()
    kept.add(result)
    kept.write()
    put_into_page(kept)


def _today() -> str:
    return datetime.now(UTC).date().isoformat()


if __name__ == "__main__":
    main()

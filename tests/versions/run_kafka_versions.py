"""`make test-kafka-versions`: the connector on one version of Apache Kafka after another, on each transaction
protocol that a version has. Each result is kept at once, and the table of docs/cluster.md made anew.

    python -m tests.versions.run_kafka_versions 3.9.1 4.3.1 [--suites "crash table,copy"] [--levels 2]

Exits with 1 if a test failed or a suite ran nothing.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from tests.versions.kafka_results import (
    SUITES,
    Result,
    Results,
    environment,
    levels_of,
    of_junit,
    put_into_page,
)

ROOT = Path(__file__).parents[2]
_CONNECTOR = "tests/connector"
PLACES = {
    "client": ("client",),
    "source": ("source", "checkpoint"),
    "sink": ("sink", "run"),
    "crash table": ("crashes",),
}
"""Suite -> folders of tests/connector. The folders left out ask no broker, or start clusters of their own."""
TEST_SECONDS = 600
"""A test may take this long: nodes start slowly on a busy machine."""
COPY_ROWS, COPY_KILLS, COPY_SEED = 20_000, 5, 7
_VERDICT = re.compile(r"(\d+) rows: (\d+) lost, (\d+) doubled, (\d+) out of order, (\d+) damaged")


def run_tests(version: str, level: str, suite: str, more: list[str]) -> Result:
    """Run a suite's tests on nodes of this version."""
    folders = [f"{_CONNECTOR}/{folder}" for folder in PLACES[suite]]
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
        told = os.environ | environment(version, level)
        ended = subprocess.run([*pytest, *folders, *more], cwd=ROOT, env=told, check=False)
        if not report.exists():
            raise RuntimeError(f"{suite} on {version}: pytest ended with {ended.returncode} and no report")
        passed, skipped, failed = of_junit(report)
    return Result(version, level, suite, _today(), passed, skipped, failed)


def run_copy(version: str, level: str, rows: int, kills: int) -> Result:
    """A copy whose driver is killed, judged by a stock client."""
    sizes = [f"--rows={rows}", f"--kills={kills}", f"--batch={rows // 20}", f"--seed={COPY_SEED}"]
    which = ["--only=kafka", f"--kafka={version}", f"--transaction-version={level}"]
    command = [sys.executable, "-u", "-m", "tests.soaks.soak_copy", *sizes, *which]
    ended = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    print(ended.stdout, flush=True)
    verdict = _VERDICT.search(ended.stdout)
    if verdict is None:
        raise RuntimeError(f"the copy on {version} ended with {ended.returncode} and no verdict")
    _, lost, doubled, _, _ = verdict.groups()
    detail = f"{rows:,} rows, {kills} kills: {lost} lost, {doubled} doubled"
    failed = ("the copy is not exact, or the query stopped by itself",) if ended.returncode else ()
    return Result(version, level, "copy", _today(), int(not failed), 0, failed, detail)


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("versions", nargs="+")
    parser.add_argument("--suites", default=",".join(SUITES), help=f"of {', '.join(SUITES)}")
    parser.add_argument("--levels", default="", help="of transaction.version, from 4.0 on: 1,2")
    parser.add_argument("--rows", type=int, default=COPY_ROWS)
    parser.add_argument("--kills", type=int, default=COPY_KILLS)
    parser.add_argument("--pytest", default="", help="more arguments of pytest; nothing is kept then")
    options = parser.parse_args()
    wrong = []
    for version in options.versions:
        for level in levels_of(version):
            if level and options.levels and level not in options.levels.split(","):
                continue
            for suite in options.suites.split(","):
                print(f"Apache Kafka {version}, transaction.version {level or 'none'}: {suite}", flush=True)
                result = (
                    run_copy(version, level, options.rows, options.kills)
                    if suite == "copy"
                    else run_tests(version, level, suite, options.pytest.split())
                )
                print(f"  {result.cell}", flush=True)
                if result.failed or not result.passed:
                    wrong.append(f"{version} {level} {suite}")
                if not options.pytest:
                    _keep(result)
    sys.exit(f"not right: {'; '.join(wrong)}" if wrong else 0)


def _keep(result: Result) -> None:
    kept = Results.read()
    kept.found[result.key] = result
    kept.write()
    put_into_page(kept)


def _today() -> str:
    return datetime.now(UTC).date().isoformat()


if __name__ == "__main__":
    main()

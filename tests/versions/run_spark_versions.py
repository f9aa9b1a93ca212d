"""`make test-spark-versions`: the judges that start Spark, with one PySpark after another. It keeps each
result at once, and makes the table of docs/evidence.md anew.

    python -m tests.versions.run_spark_versions 4.0.5 4.1.4 [--suites "crash table;shadow"] [--missing]
        [--minutes 15]

Exits with 1 if a test failed. A PySpark is taken from .peers/pyspark-VERSION, or is the environment's own.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from eoslog.connector.spark.libraries import numbers
from eoslog.connector.spark.versions import FEATURES
from tests.kit.program import ROOT
from tests.versions.kafka_results import DOCS, Result, Results, cell, of_junit, put_between
from tests.versions.run_kafka_versions import copied
from tests.versions.sparks import SPARKS

KEPT, PAGE = DOCS / "spark-versions.json", DOCS / "evidence.md"
BY_VERSION = "connector-options.md#by-version-of-pyspark"
BEGIN, END = "<!-- PySpark versions -->", "<!-- end of PySpark versions -->"
TEST_SECONDS = 900
COPY = "20 kills"
COPY_ROWS, COPY_KILLS, COPY_BATCH, COPY_SEED = 40_000, 20, 500, 7


class Suite(NamedTuple):
    """pytest's -m, the files, and -k: with {line}, a test for each PySpark. `needs`: one of FEATURES."""

    marks: str
    files: str
    chosen: str = ""
    needs: str = ""


SUITES = {
    "killed once": Suite("long or not long", "tests/versions/test_sparks.py", "{line}."),
    COPY: Suite("", "tests/soaks/soak_copy.py"),
    "crash table": Suite("spark or not spark", "tests/connector/crashes/test_crash_table.py"),
    "source": Suite(
        "spark",
        "tests/connector/source/test_source_stream.py tests/connector/source/test_source_batch.py",
    ),
    "sink, foreachBatch": Suite(
        "spark",
        "tests/connector/sink/test_writer_spark.py tests/connector/sink/test_write_tokens_spark.py "
        "tests/connector/sink/test_writer_spark.py",
    ),
    "beside Spark's connector": Suite("kafka", "tests/connector/differential/test_differential.py"),
    "migration": Suite("kafka", "tests/connector/differential/test_differential.py"),
    "named sources": Suite(
        "spark",
        "tests/connector/checkpoint/test_named_sources_spark.py tests/checkpoint/test_edits_spark.py",
        needs="names",
    ),
    "state.topic": Suite("spark", "tests/stateful/test_stateful.py"),
    "shadow": Suite("spark", "tests/shadow/test_shadow_spark.py tests/shadow/test_take_over_spark.py"),
    "Connect": Suite("spark", "tests/connector/spark/test_spark_connect.py"),
    "pip, jar": Suite("packages", "tests/packages/test_installs.py", "{line}."),
}
"""What the table calls it -> what runs."""


def run(version: str, suite: str) -> Result:
    """One suite with one PySpark."""
    paths = [str(path) for path in (SPARKS[version], os.environ.get("PYTHONPATH")) if path]
    told = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    today = datetime.now(UTC).date().isoformat()
    if suite == COPY:
        detail, failed = copied("bundled", COPY_ROWS, COPY_KILLS, COPY_BATCH, COPY_SEED, environment=told)
        return Result(version, "", suite, today, int(not failed), 0, failed, detail)
    marks, files, chosen, _ = SUITES[suite]
    with tempfile.TemporaryDirectory() as made:
        report = Path(made) / "report.xml"
        which = ["-m", marks, "-k", chosen.format(line=line_of(version))]
        pytest = [sys.executable, "-m", "pytest", "-q", "-n", "0", "--timeout", str(TEST_SECONDS), *which]
        command = [*pytest, f"--junitxml={report}", *files.split()]
        subprocess.run(command, cwd=ROOT, env=told, check=False)  # the report says what failed
        passed, skipped, failed = of_junit(report)
    return Result(version, "", suite, today, passed, skipped, failed)


def line_of(version: str) -> str:
    """4.0 of 4.0.5."""
    return ".".join(version.split(".")[:2])


def lacks(version: str, suite: str) -> str:
    """What the table says of a suite that asks for a later PySpark; empty: it runs."""
    needs = SUITES[suite].needs
    since = FEATURES[needs].since if needs else version
    return "" if numbers(version) >= numbers(since) else f"[from {since} on]({BY_VERSION})"


def table(results: Results) -> str:
    """The table as Markdown, and what failed."""
    versions = sorted({version for version, *_ in results.found})
    lines = [f"| PySpark | {' | '.join(SUITES)} | run on |", "|---" * (len(SUITES) + 2) + "|"]
    for version in versions:
        ran = {suite: results.of_suite(version, "", suite) for suite in SUITES}
        dates = sorted({result.date for found in ran.values() for result in found})
        cells = [lacks(version, suite) or cell(found) for suite, found in ran.items()]
        lines.append(f"| {version} | {' | '.join(cells)} | {', '.join(dates)} |")
    failed = [f"- {r.version}, {r.suite}: `{name}`" for r in results.found.values() for name in r.failed]
    return "\n".join([*lines, *(["", "Failed:", "", *sorted(failed)] if failed else [])])


def put_into_page(results: Results, page: Path = PAGE) -> None:
    """Replace the table of the page. Raises ValueError if the page has no place for it."""
    put_between(page, BEGIN, table(results), END)


def chosen(options: argparse.Namespace, kept: Results) -> list[tuple[str, str]]:
    """Version and suite of each run: first those without a result, then those that ran longest ago."""
    dates: dict[tuple[str, str], str] = {}
    for version in options.versions:
        for suite in options.suites.split(";"):
            if not lacks(version, suite):
                known = kept.of_suite(version, "", suite)
                dates[version, suite] = min((one.date for one in known), default="")
    return sorted((run for run in dates if not (options.missing and dates[run])), key=lambda run: dates[run])


def main() -> int:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("versions", nargs="+", choices=list(SPARKS))
    parser.add_argument("--suites", default=";".join(SUITES), help="of: %(default)s")
    parser.add_argument("--missing", action="store_true", help="only what has no result yet")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin nothing after them")
    options = parser.parse_args()
    red, until = False, time.monotonic() + options.minutes * 60
    for version, suite in chosen(options, Results.read(KEPT)):
        if time.monotonic() >= until:
            break
        result = run(version, suite)
        print(f"{version}, {suite}: {cell([result])}", flush=True)
        red = red or bool(result.failed) or not result.passed
        results = Results.read(KEPT)
        results.add(result)
        results.write(KEPT)
        put_into_page(results)
    print(table(Results.read(KEPT)))
    return int(red)


if __name__ == "__main__":
    sys.exit(main())

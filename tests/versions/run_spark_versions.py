"""`make test-spark-versions`: the judges that start Spark, with one PySpark after another. It keeps each
result at once, and makes the table of docs/installing.md anew.

    python -m tests.versions.run_spark_versions 4.0.5 4.1.4 [--suites "crash table;shadow"] [--missing]

Exits with 1 if a test failed. A PySpark is taken from .peers/pyspark-VERSION, or is the environment's own.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from tests.kit.program import ROOT
from tests.versions.kafka_results import DOCS, Result, Results, cell, of_junit, put_between
from tests.versions.sparks import SPARKS

KEPT, PAGE = DOCS / "spark-versions.json", DOCS / "installing.md"
BEGIN, END = "<!-- PySpark versions -->", "<!-- end of PySpark versions -->"
TEST_SECONDS = 900
SUITES = {
    "killed copies": ("long or not long", "tests/versions/test_sparks.py"),
    "source": (
        "spark",
        "tests/connector/source/test_source_stream.py tests/connector/source/test_source_batch.py "
        "tests/connector/source/test_tables.py",
    ),
    "sink, tokens": (
        "spark",
        "tests/connector/sink/test_writer_spark.py tests/connector/sink/test_write_tokens_spark.py "
        "tests/connector/sink/test_started_again_spark.py",
    ),
    "crash table": ("spark", "tests/connector/crashes/test_crash_table.py"),
    "state.topic": ("spark", "tests/stateful/test_lost_checkpoint.py"),
    "shadow": ("spark", "tests/shadow/test_shadow_spark.py tests/shadow/test_take_over_spark.py"),
    "Connect": ("spark", "tests/connector/spark/test_spark_connect.py"),
    "beside Spark's connector": (
        "kafka",
        "tests/connector/differential/test_checkpoints.py tests/connector/differential/test_streams.py "
        "tests/connector/differential/test_writes.py",
    ),
}
"""What the table calls it -> pytest's -m, and files."""


def run(version: str, suite: str) -> Result:
    """One suite with one PySpark."""
    marks, files = SUITES[suite]
    folder = SPARKS[version]
    paths = [str(path) for path in (folder, os.environ.get("PYTHONPATH")) if path]
    chosen = ["-k", version] if suite == "killed copies" else []
    with tempfile.TemporaryDirectory() as made:
        report = Path(made) / "report.xml"
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-n",
            "0",
            "--timeout",
            str(TEST_SECONDS),
            "-m",
            marks,
        ]
        subprocess.run(
            [*command, f"--junitxml={report}", *chosen, *files.split()],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            check=False,  # the report says what failed
        )
        passed, skipped, failed = of_junit(report)
    return Result(version, "", suite, datetime.now(UTC).date().isoformat(), passed, skipped, failed)


def table(results: Results) -> str:
    """The table as Markdown, and what failed."""
    versions = sorted({version for version, *_ in results.found})
    lines = [f"| PySpark | {' | '.join(SUITES)} | run on |", "|---" * (len(SUITES) + 2) + "|"]
    for version in versions:
        ran = [results.of_suite(version, "", suite) for suite in SUITES]
        dates = sorted({result.date for found in ran for result in found})
        lines.append(f"| {version} | {' | '.join(map(cell, ran))} | {', '.join(dates)} |")
    failed = [f"- {r.version}, {r.suite}: `{name}`" for r in results.found.values() for name in r.failed]
    return "\n".join([*lines, *(["", "Failed:", "", *sorted(failed)] if failed else [])])


def put_into_page(results: Results, page: Path = PAGE) -> None:
    """Replace the table of the page. Raises ValueError if the page has no place for it."""
    put_between(page, BEGIN, table(results), END)


def main() -> int:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("versions", nargs="+", choices=list(SPARKS))
    parser.add_argument("--suites", default=";".join(SUITES), help="of: %(default)s")
    parser.add_argument("--missing", action="store_true", help="only what has no result yet")
    options = parser.parse_args()
    results, red = Results.read(KEPT), False
    for suite in options.suites.split(";"):
        for version in options.versions:
            if options.missing and results.of_suite(version, "", suite):
                continue
            result = run(version, suite)
            print(f"{version}, {suite}: {cell([result])}", flush=True)
            red = red or bool(result.failed) or not result.passed
            results.add(result)
            results.write(KEPT)
            put_into_page(results)
    print(table(results))
    return int(red)


if __name__ == "__main__":
    sys.exit(main())

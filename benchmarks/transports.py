"""`make bench-transports`: how Spark talks with its Python processes, where it lets its user choose.

A session for each choice, all up at once: they take turns at reading a topic as a batch (into nothing) and at
writing generated rows, on one bundled broker. The figures are seconds, medians of the turns.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from contextlib import ExitStack
from typing import NamedTuple

from eoslog.testing import EmbeddedBroker

_UNIX, _PIPELINED = "spark.python.unix.domain.socket.enabled", "spark.python.udf.pipelined.enabled"
CHOICES: dict[str, dict[str, str]] = {
    "as it comes": {},
    "unix sockets": {_UNIX: "true"},
    "pipelined": {_PIPELINED: "true"},
    "both": {_UNIX: "true", _PIPELINED: "true"},
}
TOPIC, PARTITIONS = "transports", 2


class Work(NamedTuple):
    """What one turn does: `what` is read, write or small (a write of two rows)."""

    what: str
    rows: int


class Session:
    """A process with a session of its own, which works a line at a time."""

    def __init__(self, bootstrap: str, settings: dict[str, str]) -> None:
        command = [sys.executable, "-m", "benchmarks.transports", "--serve", bootstrap, json.dumps(settings)]
        environment = os.environ | {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def seconds(self, work: Work) -> float:
        """How long the work takes there."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(work) + "\n")
        self._process.stdin.flush()
        return float(self._process.stdout.readline())

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *exc: object) -> None:
        self._process.communicate()  # its input ends, and so does it


def serve(bootstrap: str, settings: dict[str, str]) -> None:
    """Work as told on standard input; seconds go to standard output."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    spark = builder.config("spark.driver.memory", "700m").config(map=dict(settings)).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    servers = {"kafka.bootstrap.servers": bootstrap}
    for line in sys.stdin:
        what, rows = json.loads(line)
        began = time.monotonic()
        if what == "read":
            found = spark.read.format("eoslog").options(**servers).option("subscribe", TOPIC).load()
            found.select("value").write.format("noop").mode("overwrite").save()
        else:
            made = spark.range(0, rows, 1, PARTITIONS).selectExpr(
                "lpad(cast(id as string), 100, '.') as value"
            )
            to = TOPIC if what == "fill" else f"{TOPIC}-{what}"
            made.write.format("eoslog").options(**servers).option("topic", to).mode("append").save()
        print(time.monotonic() - began, flush=True)
    spark.stop()


def main() -> None:
    """Print a table: a line for each choice, in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--serve", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        return serve(given.serve[0], json.loads(given.serve[1]))
    works = (Work("read", given.rows), Work("write", given.rows), Work("small", 2))
    took: dict[tuple[str, str], list[float]] = {}
    with ExitStack() as stack:
        config = {"num.partitions": str(PARTITIONS)}
        bootstrap = stack.enter_context(EmbeddedBroker(config=config)).bootstrap
        sessions = {name: stack.enter_context(Session(bootstrap, choice)) for name, choice in CHOICES.items()}
        next(iter(sessions.values())).seconds(Work("fill", given.rows))
        for turn in range(given.turns + 1):
            for work in works:
                for name, session in sessions.items():
                    seconds = session.seconds(work)
                    if turn:  # the first warms up
                        took.setdefault((name, work.what), []).append(seconds)
    print(f"| {given.rows} rows of 100 bytes, s | read | write | write two rows |\n|---|---|---|---|")
    for name in CHOICES:
        cells = (took[name, work.what] for work in works)
        shown = (f"{statistics.median(one):.2f} ({min(one):.2f} to {max(one):.2f})" for one in cells)
        print(f"| {name} | {' | '.join(shown)} |")


if __name__ == "__main__":
    main()

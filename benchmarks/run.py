"""`make bench`: eoslog beside its peers, in turns, on this machine.

    python -m benchmarks.run [--quick] [--only NAME[,NAME]] [--list] [--draw]

Prints each section's table as it is done, and writes docs/benchmarks.md, its chart and
docs/benchmark-tables.md from the results kept in docs/benchmarks.json; with --only the other sections keep
what they had. --quick does an eighth of the work in fewer turns, and writes nothing. What another PySpark
than the environment's reaches (make bench BENCH_SPARK=4.0.5) is kept beside that.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import traceback
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path

import pyspark

from benchmarks import broker, scale, spark_lines
from benchmarks.broker import Subject, idempotent, subjects, transactions
from benchmarks.results import Sizes, Store, chart, in_short, replace_made_part, table, write_tables
from benchmarks.spark import PATIENT, Bench
from eoslog.testing import EmbeddedBroker
from tests.kit.kafka_nodes import ApacheKafka, spark_kafka

ROOT = Path(__file__).parents[1]
KAFKA = ROOT / ".peers" / "kafka-4.3.1"
_WARM_UP_RECORDS = 1_000_000


class Context:
    """Shared by the sections of a group: how much to do, and brokers and Spark, started when first asked for.
    Everything it started ends with it."""

    def __init__(self, sizes: Sizes) -> None:
        self.sizes = sizes
        self._stack = ExitStack()

    def __enter__(self) -> Context:
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()

    @property
    def jars(self) -> Path:
        """Apache Kafka's own."""
        return KAFKA

    @cached_property
    def spark(self) -> Bench:
        """Spark with both connectors, and brokers of its own."""
        return self._stack.enter_context(Bench(KAFKA, spark_kafka()))

    @cached_property
    def brokers(self) -> list[Subject]:
        """The bundled broker and Apache Kafka, for stock clients, warm: a JVM's speed comes with its work."""
        return [self._warmed(one) for one in self._stack.enter_context(subjects(KAFKA))]

    @cached_property
    def flushed_peer(self) -> Subject:
        """Apache Kafka as durable as the bundled broker: each append is synced before it is answered."""
        settings = {**PATIENT, "log.flush.interval.messages": "1"}
        started = self._stack.enter_context(ApacheKafka(KAFKA, settings))
        return self._warmed(Subject("Apache Kafka, flush.messages=1", started.bootstrap, started.pid))

    def _warmed(self, subject: Subject) -> Subject:
        for work in (idempotent, transactions):
            work(subject, self.sizes.records(_WARM_UP_RECORDS), 1000)
        return subject

    @cached_property
    def unflushed(self) -> Subject:
        """The bundled broker as durable as Apache Kafka's default: acknowledged when in the page cache."""
        broker = self._stack.enter_context(EmbeddedBroker(flush="os"))
        return Subject("eoslog, flush.mode=os", broker.bootstrap, broker.pid)


GROUPS = [
    spark_lines.SECTIONS,
    broker.SECTIONS,
    scale.SECTIONS,
]
NAMES = [section.name for group in GROUPS for section in group]
FULL = Sizes()
QUICK = Sizes(rounds=2, share=1 / 8, spark_rounds=2, spark_warm_ups=1, broker_warm_ups=1, spark_bytes=(100,))
LEFT_OUT_OF_QUICK = frozenset(
    [
        "spark-sink-stream",
        "spark-short",
        "guarantee",
        "delay",
        "foreach-batch",
        "micro-batch-light",
        "batch-sizes",
        "disk",
        "broker-sizes",
        "broker-java",
        "broker-java-cost",
        "growth",
    ]
)
KEPT = ROOT / "docs/benchmarks.json"
PAGE, TABLES, CHART = (
    ROOT / "docs" / name for name in ("benchmarks.md", "benchmark-tables.md", "pictures/benchmarks.svg")
)


def chosen(options: argparse.Namespace) -> list[str]:
    """The sections to run. Raises SystemExit for a name that there is none of."""
    if not options.only:
        return [name for name in NAMES if not (options.quick and name in LEFT_OUT_OF_QUICK)]
    asked = options.only.split(",")
    wrong = [name for name in asked if name not in NAMES]
    if wrong:
        raise SystemExit(f"no section {', '.join(wrong)}: there are {', '.join(NAMES)}")
    return [name for name in NAMES if name in asked]


def run(names: list[str], sizes: Sizes, store: Store | None) -> list[str]:
    """Measure, print, keep. Returns the sections that failed, after their errors were printed."""
    failed = []
    for group in GROUPS:
        with Context(sizes) as context:
            for section in group:
                if section.name not in names:
                    continue
                load, started = os.getloadavg()[0], time.monotonic()
                try:
                    results = section.measure(context)
                except Exception:  # the others are worth their time; the run fails at its end
                    traceback.print_exc()
                    failed.append(section.name)
                    continue
                print(f"\n{section.name}: {time.monotonic() - started:.0f} s, load {load:.1f} at its start")
                print(table(results), flush=True)
                if store is not None:
                    store.put(section.name, results, load, other_spark())
    return failed


def other_spark() -> str:
    """The PySpark that was given in place of the environment's own; empty: none was."""
    return "" if Path(pyspark.__file__).is_relative_to(sys.prefix) else pyspark.__version__


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--list", action="store_true", help="names of the sections")
    parser.add_argument("--draw", action="store_true", help="only write pages and chart anew")
    options = parser.parse_args()
    if options.list:
        print("\n".join(NAMES))
        return
    names, started = chosen(options), time.monotonic()
    print(f"PySpark {pyspark.__version__}, {spark_kafka().name}")
    store = None if options.quick else Store(KEPT)
    if options.quick:
        left = ", ".join(sorted(LEFT_OUT_OF_QUICK))
        print(f"quick: an eighth of the work, two turns, Spark of 100 bytes only, without {left}")
    failed = [] if options.draw else run(names, QUICK if options.quick else FULL, store)
    if store is not None:
        write_tables(TABLES, store, NAMES)
        replace_made_part(PAGE, in_short(store))
        CHART.write_text(chart(store))
    print(f"\n{time.monotonic() - started:.0f} s")
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()

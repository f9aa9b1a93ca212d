"""`make bench-tasks`: micro-batches of ten rows a task, with more and more tasks.

Each task with rows is a participant of the micro-batch: a transaction of its own. Three subjects copy what
Spark makes up (rate-micro-batch), one after the other for each number of tasks, in one session: Spark's
Kafka connector and eoslog on Apache Kafka, eoslog on the bundled broker. A batch's time is Spark's
addBatch; a commit's is told by `progress.log`. The first micro-batch of a query is left out.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import SparkSession

from benchmarks.starts import WARM, make, session
from benchmarks.starts import Subject as Program
from eoslog.connector.progress import HEAD
from eoslog.testing import EmbeddedBroker
from tests.kit.kafka_nodes import ApacheKafka

ROWS = 10
DECISIONS = {"offsets.topic.num.partitions": "50"}
"""Apache Kafka's default: a decision names all participants, and has room for some 100 a partition."""


class Subject(NamedTuple):
    """Who writes, and where to."""

    name: str
    format: str
    bootstrap: str


class Took(NamedTuple):
    """Milliseconds of a micro-batch, medians; `commit` None: it is nothing of its own."""

    batch: float
    commit: float | None


def measure(spark: SparkSession, subject: Subject, tasks: int, batches: int, told: Path) -> Took:
    """Run a query for so many micro-batches and one more."""
    topic = f"tasks-{tasks}-{subject.format}"
    make(subject.bootstrap, topic)
    before = told.stat().st_size
    rate = {"rowsPerBatch": str(ROWS * tasks), "numPartitions": str(tasks)}
    rows = spark.readStream.format("rate-micro-batch").options(**rate).load()
    writer = rows.selectExpr("cast(value as string) as value").writeStream.format(subject.format)
    to = {"kafka.bootstrap.servers": subject.bootstrap, "topic": topic}
    if subject.format == "eoslog":
        to["progress.log"] = "true"
    with tempfile.TemporaryDirectory() as checkpoint:
        query = writer.options(**to, checkpointLocation=checkpoint).start()
        while (last := query.lastProgress) is None or last["batchId"] < batches:
            assert query.isActive, query.exception()
            time.sleep(0.05)
        progress = {one["batchId"]: one["durationMs"]["addBatch"] for one in query.recentProgress}
        query.stop()
    took = statistics.median(progress[number] for number in range(1, batches + 1))
    with told.open() as log:
        log.seek(before)
        lines = [json.loads(line.partition(HEAD)[2]) for line in log if HEAD in line]
    commits = [sum(line["ms"].values()) for line in lines if 1 <= line["batch"] <= batches]
    return Took(took, statistics.median(commits) if commits else None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, nargs="+", default=[10, 100, 1000, 4000])
    parser.add_argument("--batches", type=int, default=5, help="of each query, besides the first")
    parser.add_argument("--kafka", type=Path, default=Path(".peers/kafka-4.3.1"))
    parser.add_argument("--spark-kafka", type=Path, default=Path(".peers/spark-kafka-4.2.0"))
    given = parser.parse_args()
    with ExitStack() as stack:
        told = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="eoslog-tasks-"))) / "log"
        with told.open("ab") as log:
            os.dup2(log.fileno(), 2)  # of the JVM and its Python processes
        jars = ",".join(map(str, sorted(given.spark_kafka.glob("*.jar"))))
        spark = session(Program("", "eoslog", {"spark.driver.memory": "2g"}, WARM), jars)
        stack.callback(spark.stop)
        peer = stack.enter_context(ApacheKafka(given.kafka, DECISIONS)).bootstrap
        own = stack.enter_context(EmbeddedBroker(config=DECISIONS)).bootstrap
        subjects = (
            Subject("Spark's Kafka connector", "kafka", peer),
            Subject("eoslog on Apache Kafka", "eoslog", peer),
            Subject("eoslog on its broker", "eoslog", own),
        )
        for subject in subjects:  # the JVM's compilers have seen the code before it is timed
            measure(spark, subject, 50, 4, told)
        print("| tasks | subject | a micro-batch, ms | of these commit | ms a task | commit's a task |")
        print("|---|---|---|---|---|---|")
        for tasks in given.tasks:
            for subject in subjects:
                batch, commit = measure(spark, subject, tasks, given.batches, told)
                figures = ("-", "-") if commit is None else (f"{commit:,.0f}", f"{commit / tasks:.2f}")
                each = f"{batch / tasks:.1f}"
                print(
                    f"| {tasks:,} | {subject.name} | {batch:,.0f} | {figures[0]} | {each} | {figures[1]} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()

"""`make bench-starts`: how soon a query's first rows are there, subjects in turns.

Short programs first: README's `python first.py` from the prompt back to the prompt. Then from start() to
the end of the first micro-batch with rows: each subject has a JVM of its own, and all of them live; a query
copies a thousand rows on Apache Kafka and is stopped. The first turn is cold and stands by itself. Before
half of the others a minute and more goes by, in which Spark ends idle Python workers, as between two cells
of a notebook.

Three subjects show what a limit is made of: a Python source and sink that do nothing, with and without
eoslog-python, and Spark's own rate source with its noop sink. They copy nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from benchmarks.limits import Handed, Idle
from benchmarks.peers import ApacheKafka

ROWS, PARTITIONS = 1000, 4
PAUSE_SECONDS = 75.0
"""Longer than spark.python.worker's idle workers live."""


class Subject(NamedTuple):
    """Who starts: its format, and what its session is told."""

    name: str
    format: str
    settings: dict[str, str]
    python: str = sys.executable
    sink: str = ""
    """Its format, where it is another one than the source's."""


WARM = str(Path(sys.executable).with_name("eoslog-python"))
SUBJECTS = (
    Subject("kafka", "kafka", {}),
    Subject("eoslog", "eoslog", {}),
    Subject("eoslog-python", "eoslog", {}, WARM),
    Subject("nothing in Python", Handed.name(), {}, sink=Idle.name()),
    Subject("nothing, eoslog-python", Handed.name(), {}, WARM, sink=Idle.name()),
    Subject("Spark alone", "rate-micro-batch", {}, sink="noop"),
)
MADE = {
    Handed.name(): {"rows": str(ROWS // PARTITIONS), "lean": "true"},
    "rate-micro-batch": {"rowsPerBatch": str(ROWS), "numPartitions": str(PARTITIONS)},
}
"""What sources are told that read no topic."""


def session(subject: Subject, jars: str) -> SparkSession:
    """A subject's session. What README's program leaves out is told to all alike."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = subject.python
    builder = SparkSession.builder.master("local[2]").config("spark.jars", jars)
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": "2",
        **subject.settings,
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    for source in (Idle, Handed) if subject.sink == Idle.name() else ():
        spark.dataSource.register(source)
    return spark


def copy(
    spark: SparkSession, subject: Subject, bootstrap: str, target: str, checkpoint: str
) -> DataStreamWriter:
    """A copy of the thousand rows, to be started."""
    to = {"kafka.bootstrap.servers": bootstrap}
    given = MADE.get(subject.format, {**to, "startingOffsets": "earliest", "subscribe": "starts"})
    frame = spark.readStream.format(subject.format).options(**given).load()
    writer = frame.select("value").writeStream.format(subject.sink or subject.format)
    return writer.options(**to, topic=target, checkpointLocation=checkpoint)


def once(subject: Subject, bootstrap: str, jars: str, target: str) -> None:
    """README's first.py."""
    with tempfile.TemporaryDirectory() as checkpoint:
        writer = copy(session(subject, jars), subject, bootstrap, target, checkpoint)
        writer.trigger(availableNow=True).start().awaitTermination()


def serve(subject: Subject, bootstrap: str, jars: str) -> None:
    """A subject's process: a query for each line of standard input; prints how long its first rows took."""
    spark = session(subject, jars)
    print("ready", flush=True)
    for line in sys.stdin:
        with tempfile.TemporaryDirectory() as checkpoint:
            began = time.monotonic()
            query = copy(spark, subject, bootstrap, line.strip(), checkpoint).start()
            while not any(one["numInputRows"] for one in query.recentProgress):
                assert query.isActive, query.exception()
                time.sleep(0.005)
            print(f"took {time.monotonic() - began}", flush=True)
            query.stop()


class Child:
    """A subject's process."""

    def __init__(
        self, number: int, bootstrap: str, jars: str, log: Path, module: str = "benchmarks.starts"
    ) -> None:
        command = [sys.executable, "-m", module, "--child", str(number), bootstrap, jars]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log.open("w"), text=True
        )
        self.pid = self._process.pid
        self._expect("ready")

    def start(self, target: str) -> float:
        """Seconds to the first rows."""
        assert self._process.stdin is not None
        print(target, file=self._process.stdin, flush=True)
        return float(self._expect("took").split()[1])

    def close(self) -> None:
        """End it."""
        self._process.communicate()

    def _expect(self, word: str) -> str:
        assert self._process.stdout is not None
        line = next((line for line in self._process.stdout if line.startswith(word)), None)
        assert line is not None, f"the process said no {word}"
        return line


@contextmanager
def cluster(kafka: Path) -> Iterator[str]:
    """Apache Kafka with a thousand rows."""
    with ApacheKafka(kafka, {}) as broker:
        make(broker.bootstrap, "starts")
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for number in range(ROWS):
            producer.produce("starts", b"v" * 100, key=b"%d" % number)
        assert producer.flush(60) == 0
        yield broker.bootstrap


def make(bootstrap: str, topic: str) -> None:
    """A topic."""
    admin = AdminClient({"bootstrap.servers": bootstrap})  # kept until it has answered
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(60)


def prompt(number: int, bootstrap: str, jars: str, target: str) -> float:
    """Seconds of a program of the subject's that makes a session, copies the rows and ends."""
    command = [sys.executable, "-m", "benchmarks.starts", "--child", str(number), bootstrap, jars]
    began = time.monotonic()
    subprocess.run(
        [*command, "--once", target], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    return time.monotonic() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--turns", type=int, default=6, help="after the cold one; the second half after a pause"
    )
    parser.add_argument("--kafka", type=Path, default=Path(".peers/kafka-4.3.1"))
    parser.add_argument("--spark-kafka", type=Path, default=Path(".peers/spark-kafka-4.2.0"))
    parser.add_argument("--child", nargs=3, metavar=("NUMBER", "BOOTSTRAP", "JARS"), help=argparse.SUPPRESS)
    parser.add_argument("--once", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        number, bootstrap, jars = given.child
        subject = SUBJECTS[int(number)]
        once(subject, bootstrap, jars, given.once) if given.once else serve(subject, bootstrap, jars)
        return
    jars = ",".join(map(str, sorted(given.spark_kafka.glob("*.jar"))))
    took: dict[str, dict[str, list[float]]] = {
        one.name: {"prompt to prompt": [], "cold": [], "at once": [], "after a pause": []} for one in SUBJECTS
    }
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="eoslog-starts-")))
        bootstrap = stack.enter_context(cluster(given.kafka))
        for turn in range(given.turns // 2):
            for number, subject in enumerate(SUBJECTS):
                target = f"once-{turn}-{number}"
                make(bootstrap, target)
                took[subject.name]["prompt to prompt"].append(prompt(number, bootstrap, jars, target))
        children = [Child(n, bootstrap, jars, folder / f"{n}.log") for n in range(len(SUBJECTS))]
        for child in children:
            stack.callback(child.close)
        for turn in range(given.turns + 1):
            kind = "cold" if turn == 0 else "at once" if turn <= given.turns // 2 else "after a pause"
            if kind == "after a pause":
                time.sleep(PAUSE_SECONDS)
            for subject, child in zip(SUBJECTS, children, strict=True):
                target = f"target-{turn}-{SUBJECTS.index(subject)}"
                make(bootstrap, target)
                took[subject.name][kind].append(child.start(target))
    print("| seconds | " + " | ".join(took) + " |\n|---|" + "---|" * len(took))
    for kind in ("prompt to prompt", "cold", "at once", "after a pause"):
        figures = [
            f"{statistics.median(one[kind]):.2f} ({min(one[kind]):.2f} to {max(one[kind]):.2f})"
            for one in took.values()
        ]
        print(f"| {kind} | " + " | ".join(figures) + " |")
    print(json.dumps(took))


if __name__ == "__main__":
    main()

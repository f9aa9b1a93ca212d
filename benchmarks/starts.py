"""Subjects with a JVM of their own: how soon a query's first rows are there, and what a small stream costs.

`make bench-starts` times subjects in turns. Short programs first: README's `python first.py` from the
prompt back to the prompt. Then from start() to the end of the first micro-batch with rows: all subjects
live; a query copies a thousand rows on Apache Kafka and is stopped. The first turn is cold and stands by
itself. Before half of the others a minute and more goes by, in which Spark ends idle Python workers, as
between two cells of a notebook.

Three subjects show what a limit is made of: a Python source and sink that do nothing, with and without
eoslog-python, and Spark's own rate source with its noop sink. They copy nothing.

`make bench-cost` (--cost) tells CPU and memory. A stream of 1,000 rows a second is copied on Apache Kafka
at triggers of half a second; subjects run one after the other, 40 s each after 20 s to settle. CPU is that
of all processes of a subject, of which those of Python stand by themselves. Memory is the proportional set
(Pss): what processes share is counted once.
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

import psutil
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from benchmarks.limits import Handed, Idle
from tests.kit.kafka_nodes import ApacheKafka

# -- starts ----------------------------------------------------------------------------------------

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

    def __init__(self, number: int, bootstrap: str, jars: str, log: Path, *more: str) -> None:
        command = [sys.executable, "-m", "benchmarks.starts", "--child", str(number), bootstrap, jars, *more]
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


# -- what a small stream costs ---------------------------------------------------------------------

SETTLE_SECONDS, MEASURED_SECONDS = 20.0, 40.0
TRIGGER = "500 milliseconds"
STREAMS = (
    Subject("Spark's Kafka connector", "kafka", {}),
    Subject("eoslog", "eoslog", {}),
    Subject("eoslog, eoslog-python", "eoslog", {}, WARM),
    Subject("Python source and sink that do nothing", "idle", {}),
    Subject("the same, eoslog-python", "idle", {}, WARM),
)


class Cost(NamedTuple):
    """CPU seconds since the processes began; MiB."""

    cpu: float
    python_cpu: float
    python_memory: float
    pythons: int


def cost(process: psutil.Process) -> Cost:
    """Of a program, its JVM and their Python processes; the program itself counts as none."""
    cpu = python_cpu = memory = 0.0
    pythons = 0
    for one in process.children(recursive=True):
        try:
            times = one.cpu_times()
            spent = times.user + times.system
            cpu += spent
            if "python" in one.exe():
                python_cpu += spent
                memory += one.memory_full_info().pss / 2**20
                pythons += 1
        except psutil.NoSuchProcess:
            continue
    return Cost(cpu, python_cpu, memory, pythons)


def stream(subject: Subject, bootstrap: str, jars: str) -> None:
    """A subject's process: begins its query, says so, and runs until its standard input is closed."""
    spark = session(subject, jars)
    spark.dataSource.register(Idle)
    to = {"kafka.bootstrap.servers": bootstrap}
    read = spark.readStream.format(subject.format).options(**to, subscribe="small", rows="50")
    frame = read.load().select("key", "value")
    with tempfile.TemporaryDirectory() as checkpoint:
        writer = frame.writeStream.format(subject.format).options(**to, topic="copied")
        query = writer.option("checkpointLocation", checkpoint).trigger(processingTime=TRIGGER).start()
        print("ready", flush=True)
        sys.stdin.read()
        query.stop()


def measure(number: int, bootstrap: str, jars: str, log: Path) -> tuple[Cost, Cost]:
    """What a subject has spent at the beginning and at the end of the minute."""
    child = Child(number, bootstrap, jars, log, "--stream")
    try:
        process = psutil.Process(child.pid)
        time.sleep(SETTLE_SECONDS)
        before = cost(process)
        time.sleep(MEASURED_SECONDS)
        return before, cost(process)
    finally:
        child.close()


def starts(kafka: Path, jars: str, turns: int) -> None:
    """Print the table."""
    took: dict[str, dict[str, list[float]]] = {
        one.name: {"prompt to prompt": [], "cold": [], "at once": [], "after a pause": []} for one in SUBJECTS
    }
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="eoslog-starts-")))
        bootstrap = stack.enter_context(cluster(kafka))
        for turn in range(turns // 2):
            for number, subject in enumerate(SUBJECTS):
                target = f"once-{turn}-{number}"
                make(bootstrap, target)
                took[subject.name]["prompt to prompt"].append(prompt(number, bootstrap, jars, target))
        children = [Child(n, bootstrap, jars, folder / f"{n}.log") for n in range(len(SUBJECTS))]
        for child in children:
            stack.callback(child.close)
        for turn in range(turns + 1):
            kind = "cold" if turn == 0 else "at once" if turn <= turns // 2 else "after a pause"
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


def costs(kafka: Path, jars: str) -> None:
    """Print the table."""
    from benchmarks.spark_works import trickle  # not in the programs that are timed

    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="eoslog-cost-")))
        bootstrap = stack.enter_context(ApacheKafka(kafka, {})).bootstrap
        for topic in ("small", "copied"):
            make(bootstrap, topic)
        stack.enter_context(trickle(bootstrap, "small", 100))
        print("| 40 s of 1,000 rows a second | CPU, s | of Python | Python, MiB | Python processes |")
        print("|---|---|---|---|---|")
        for number, subject in enumerate(STREAMS):
            before, after = measure(number, bootstrap, jars, folder / f"{number}.log")
            spent = (after.cpu - before.cpu, after.python_cpu - before.python_cpu, after.python_memory)
            figures = f"{spent[0]:.1f} | {spent[1]:.1f} | {spent[2]:.0f} | {after.pythons}"
            print(f"| {subject.name} | {figures} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--turns", type=int, default=6, help="after the cold one; the second half after a pause"
    )
    parser.add_argument("--kafka", type=Path, default=Path(".peers/kafka-4.3.1"))
    parser.add_argument("--spark-kafka", type=Path, default=Path(".peers/spark-kafka-4.2.0"))
    parser.add_argument("--child", nargs=3, metavar=("NUMBER", "BOOTSTRAP", "JARS"), help=argparse.SUPPRESS)
    parser.add_argument("--once", help=argparse.SUPPRESS)
    parser.add_argument("--stream", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--cost", action="store_true", help="what a small stream costs")
    given = parser.parse_args()
    if given.child:
        number, bootstrap, jars = given.child
        if given.stream:
            return stream(STREAMS[int(number)], bootstrap, jars)
        subject = SUBJECTS[int(number)]
        return once(subject, bootstrap, jars, given.once) if given.once else serve(subject, bootstrap, jars)
    jars = ",".join(map(str, sorted(given.spark_kafka.glob("*.jar"))))
    return costs(given.kafka, jars) if given.cost else starts(given.kafka, jars, given.turns)


if __name__ == "__main__":
    main()

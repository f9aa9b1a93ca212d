"""`make bench-cost`: what a small stream costs in CPU and memory, for as long as it runs.

A stream of 1,000 rows a second is copied on Apache Kafka at triggers of half a second; each subject in a
JVM of its own, one after the other, 40 s each after 20 s to settle. CPU is that of all processes of a
subject, of which those of Python stand by themselves. Memory is the proportional set (Pss): what processes
share is counted once.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import psutil

from benchmarks.limits import Idle
from benchmarks.peers import ApacheKafka
from benchmarks.spark_works import trickle
from benchmarks.starts import WARM, Child, Subject, make, session

SETTLE_SECONDS, MEASURED_SECONDS = 20.0, 40.0
TRIGGER = "500 milliseconds"
SUBJECTS = (
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
    child = Child(number, bootstrap, jars, log, module="benchmarks.stream_cost")
    try:
        process = psutil.Process(child.pid)
        time.sleep(SETTLE_SECONDS)
        before = cost(process)
        time.sleep(MEASURED_SECONDS)
        return before, cost(process)
    finally:
        child.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kafka", type=Path, default=Path(".peers/kafka-4.3.1"))
    parser.add_argument("--spark-kafka", type=Path, default=Path(".peers/spark-kafka-4.2.0"))
    parser.add_argument("--child", nargs=3, metavar=("NUMBER", "BOOTSTRAP", "JARS"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        number, bootstrap, jars = given.child
        stream(SUBJECTS[int(number)], bootstrap, jars)
        return
    jars = ",".join(map(str, sorted(given.spark_kafka.glob("*.jar"))))
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="eoslog-cost-")))
        bootstrap = stack.enter_context(ApacheKafka(given.kafka, {})).bootstrap
        for topic in ("small", "copied"):
            make(bootstrap, topic)
        stack.enter_context(trickle(bootstrap, "small", 100))
        print("| 40 s of 1,000 rows a second | CPU, s | of Python | Python, MiB | Python processes |")
        print("|---|---|---|---|---|")
        for number, subject in enumerate(SUBJECTS):
            before, after = measure(number, bootstrap, jars, folder / f"{number}.log")
            spent = (after.cpu - before.cpu, after.python_cpu - before.python_cpu, after.python_memory)
            figures = f"{spent[0]:.1f} | {spent[1]:.1f} | {spent[2]:.0f} | {after.pythons}"
            print(f"| {subject.name} | {figures} |", flush=True)


if __name__ == "__main__":
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    main()

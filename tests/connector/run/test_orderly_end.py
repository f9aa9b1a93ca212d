"""An orderly end in the middle of a batch leaves nothing open: who else writes to the topic is seen at once.

Stops, signals, exceptions, in a real Spark; `make test-ends` has more moments. Between two requests the model
judges (commit/test_model.py).
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Producer

from eoslog.client.admin import transaction_states
from eoslog.client.wire.cluster import Cluster
from eoslog.client.wire.config import ClientConfig, parse_addresses
from eoslog.testing import EmbeddedBroker
from tests.connector.brokers import Broker, Kafka
from tests.connector.spark_application import PATIENCE_SECONDS, Application
from tests.connector.spark_probe import DECIDED, PREPARED, STARTED, UNDECIDED, WRITING
from tests.kit.program import Program, until

pytestmark = pytest.mark.spark

AT_ONCE_SECONDS = 2.0
ROWS = [b"%06d" % number for number in range(16_000)]
SIGNALS: dict[str, Callable[[Application], None]] = {
    "SIGTERM to the JVM": lambda app: jvm_of(app).terminate(),
    "SIGTERM to the script": lambda app: app.process.terminate(),
    "Ctrl-C": lambda app: os.killpg(app.process.pid, signal.SIGINT),
    "SIGKILL to the JVM": lambda app: jvm_of(app).kill(),
}


def jvm_of(app: Application) -> psutil.Process:
    return next(child for child in app.process.children(recursive=True) if child.name() == "java")


def filled(kafka: Kafka) -> str:
    source = kafka.topic(2)
    for partition in range(2):
        kafka.put(source, ROWS[partition::2], partition=partition)
    return source


def still_open(kafka: Kafka, prefix: str) -> list[str]:
    with Cluster(ClientConfig(parse_addresses(kafka.bootstrap))) as cluster:
        found = transaction_states.list_transactions(cluster, prefix, ["Ongoing"])
    return [listing.transactional_id for listing in found]


def judge_ends(broker: Broker, folder: Path, ends: list[str], how: str, way: str = "stream") -> None:
    """Each of the ends, in one application; after each the same is run again, to its end. Then a signal ends
    the application while the tasks of one more `way` to write do that, and it is run again, to its end."""
    kafka = Kafka(broker.bootstrap)
    source, target = filled(kafka), kafka.topic(2)
    last = f"{target}-{len(ends)}"
    for number in range(len(ends) + 1):
        kafka.topic(2, name=f"{target}-{number}")
    copy = ("tests.connector.run.ending_spark", kafka.bootstrap, source)
    with Application(folder / "ends", *copy, target, folder / "c", *ends, f"wait:{way}@{WRITING}") as app:
        app.wait_until("the ends", lambda: len(notes(app)) == len(ends))
        app.wait_for(2, WRITING, batch=0 if way == "write" else 1)
        told = notes(app)
        assert still_open(kafka, last)
        java = jvm_of(app)
        SIGNALS[how](app)
        java.wait(60)
        judge_signal(kafka, last, how)
    with Application(folder / "again", *copy, last, f"{folder / 'c'}-{len(ends)}", f"run@{way}") as again:
        assert again.end() == 0, again.tail()
    assert sorted(row[3] for row in kafka.rows(last, 2)) == [*ROWS, b"somebody else's"]
    assert [note["end"] for note in told] == ends
    print(*told, sep="\n")
    for number, note in enumerate(told):
        at_once = 8.0 if note["end"].startswith("late") else AT_ONCE_SECONDS
        late = {after: names for after, names in note["open"].items() if float(after) >= at_once}
        assert not any(late.values()) and note["seen"], note
        assert note["late"] or not note["end"].startswith("late"), "no task has written after the end"
        assert sorted(row[3] for row in kafka.rows(f"{target}-{number}", 2)) == [*ROWS, b"somebody else's"]


def notes(app: Application) -> list[dict[str, Any]]:
    path = app.folder / "ends.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def judge_signal(kafka: Kafka, target: str, how: str) -> None:
    """The JVM is gone: nothing of the sink is open two seconds later, and somebody else's row is seen."""
    ended, seen = time.monotonic(), []
    while (passed := time.monotonic() - ended) < AT_ONCE_SECONDS + 1:
        seen.append((round(passed, 2), still_open(kafka, target)))
        time.sleep(0.2)
    print(how, seen)
    assert not seen[-1][1] and not any(names for after, names in seen if after >= AT_ONCE_SECONDS)
    kafka.put(target, [b"somebody else's"])
    assert b"somebody else's" in [row[3] for row in kafka.rows(target, 2)]


@pytest.mark.timeout(3 * PATIENCE_SECONDS)
@pytest.mark.parametrize(
    ("way", "ends"),
    [("stream", [f"stop@{WRITING}", "fail:write@-", f"stop:tokens@{WRITING}"]), ("write", [])],
)
def test_a_stop_a_failed_write_and_a_signal_leave_nothing_open(
    broker: Broker, tmp_path: Path, way: str, ends: list[str]
) -> None:
    judge_ends(broker, tmp_path, ends, "SIGTERM to the JVM", way)


# -- more moments (make test-ends) -----------------------------------------------------------------
# More orderly ends in the middle of a batch than test_orderly_end.py has time for: `make test-ends`.


@pytest.mark.long
@pytest.mark.timeout(6 * PATIENCE_SECONDS)
@pytest.mark.parametrize("way", ["stream", "tokens", "write"])
@pytest.mark.parametrize("how", SIGNALS)
def test_an_application_that_is_ended_leaves_nothing_open(
    broker: Broker, tmp_path: Path, how: str, way: str
) -> None:
    judge_ends(broker, tmp_path, [], how, way)


@pytest.mark.long
@pytest.mark.timeout(6 * PATIENCE_SECONDS)
def test_a_query_that_is_stopped_or_fails_leaves_nothing_open(broker: Broker, tmp_path: Path) -> None:
    places = (STARTED, WRITING, PREPARED, UNDECIDED, DECIDED)
    ends = [*(f"stop@{place}" for place in places * 2), "fail@-", "fail:write@-", "fail:tokens@-"]
    judge_ends(broker, tmp_path, [*ends, *(f"stop:tokens@{place}" for place in places)], "SIGTERM to the JVM")


@pytest.mark.long
@pytest.mark.timeout(6 * PATIENCE_SECONDS)
@pytest.mark.parametrize("way", ["stream", "tokens"])
def test_tasks_that_are_killed_late_leave_nothing_open_for_long(
    broker: Broker, tmp_path: Path, way: str
) -> None:
    """Each opens a transaction four seconds after abort, and is killed two seconds later."""
    judge_ends(broker, tmp_path, [f"late:{way}@{STARTED}"], "SIGTERM to the JVM")


# -- Ctrl-C ----------------------------------------------------------------------------------------
# Ctrl-C ends a streaming program in order and without a flood, as docs/errors/index.md has it.


PAGE = Path(__file__).parents[3] / "docs" / "errors" / "index.md"
PATIENCE_SECONDS_OF_CTRL_C = 120
MOST_LINES = 8
FREED_SECONDS = 10
"""Tasks may die for some seconds after the stop; what they hold open is ended then."""
_PROGRAM = """
import sys
from pyspark.sql import SparkSession

bootstrap, source, target, checkpoint = sys.argv[1:]
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
to = {"kafka.bootstrap.servers": bootstrap}
read = spark.readStream.format("eoslog").options(**to, subscribe=source, startingOffsets="earliest").load()
writer = read.select("key", "value").writeStream.format("eoslog").options(**to, topic=target)
query = writer.option("checkpointLocation", checkpoint).start()
"""


def what_the_page_says() -> str:
    section = PAGE.read_text().partition("\n## Ctrl-C and SIGTERM\n")[2]
    (code,) = re.findall(r"```python\n(.*?)```", section.partition("\n# ")[0], re.DOTALL)
    return str(code)


@pytest.mark.timeout(2 * PATIENCE_SECONDS_OF_CTRL_C)
def test_ctrl_c_in_the_midst_of_it(tmp_path: Path) -> None:
    with EmbeddedBroker() as broker:
        kafka = Kafka(broker.bootstrap)
        source, target, over = kafka.topic(1, "in"), kafka.topic(1, "out"), threading.Event()

        def feed() -> None:
            producer = Producer({"bootstrap.servers": broker.bootstrap})
            while not over.wait(0.02):
                producer.produce(source, b"row")
                producer.poll(0)
            producer.flush(10)

        feeder = threading.Thread(target=feed)
        feeder.start()
        try:
            said = run_and_interrupt(kafka, source, target, tmp_path)
        finally:
            over.set()
            feeder.join()
        assert len(said) <= MOST_LINES, "\n".join(said)
        kafka.put(target, [b"behind"])
        until(
            lambda: kafka.rows(target, 1)[-1][3] == b"behind",
            "no open transaction holds readers back",
            FREED_SECONDS,
        )


def run_and_interrupt(kafka: Kafka, source: str, target: str, folder: Path) -> list[str]:
    """Ctrl-C as a terminal sends it: to the whole group. Returns the lines after it."""
    words = [sys.executable, "-c", _PROGRAM + what_the_page_says(), kafka.bootstrap, source, target]
    with Program(
        [*words, folder / "checkpoint"], folder / "log", patience=PATIENCE_SECONDS_OF_CTRL_C
    ) as program:
        program.wait_until("rows arrive", lambda: len(kafka.rows(target, 1)) >= 50)
        before = len(program.log.read_text().splitlines())
        os.killpg(program.process.pid, signal.SIGINT)
        assert program.end() == 0, program.tail()
        return program.log.read_text().splitlines()[before:]

"""An orderly end in the middle of a batch leaves nothing open: who else writes to the topic is seen at once.

Stops, signals, exceptions, in a real Spark; `make test-ends` has more moments. Between two requests the model
judges (commit/test_model.py).
"""

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from eoslog.client.admin import transaction_states
from eoslog.client.wire.cluster import Cluster
from eoslog.client.wire.config import ClientConfig, parse_addresses
from tests.connector.brokers import Broker
from tests.connector.spark_application import PATIENCE_SECONDS, Application
from tests.connector.spark_probe import WRITING
from tests.connector.stock_kafka import Kafka

pytestmark = [pytest.mark.spark, pytest.mark.timeout(3 * PATIENCE_SECONDS)]

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


@pytest.mark.parametrize(
    ("way", "ends"),
    [("stream", [f"stop@{WRITING}", "fail:write@-", f"stop:tokens@{WRITING}"]), ("write", [])],
)
def test_a_stop_a_failed_write_and_a_signal_leave_nothing_open(
    broker: Broker, tmp_path: Path, way: str, ends: list[str]
) -> None:
    judge_ends(broker, tmp_path, ends, "SIGTERM to the JVM", way)

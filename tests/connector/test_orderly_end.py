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

import psutil
import pytest
from brokers import Broker
from spark_application import PATIENCE_SECONDS, Application
from spark_probe import WRITING
from stock_kafka import Kafka

from eoslog.connector.client import transactions
from eoslog.connector.client.cluster import Cluster
from eoslog.connector.client.config import ClientConfig, parse_addresses

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
        found = transactions.list_transactions(cluster, prefix, ["Ongoing"])
    return [listing.transactional_id for listing in found]


def judge_ends(broker: Broker, folder: Path, ends: list[str]) -> None:
    """Each of the ends, in one application; after each the same is run again, to its end."""
    kafka = Kafka(broker.bootstrap)
    source, target = filled(kafka), kafka.topic(2)
    for number in range(len(ends)):
        kafka.topic(2, name=f"{target}-{number}")
    with Application(
        folder / "ends", "ending_spark.py", kafka.bootstrap, source, target, folder / "c", *ends
    ) as app:
        assert app.end() == 0, app.tail()
        told = [json.loads(line) for line in (app.folder / "ends.jsonl").read_text().splitlines()]
    assert [note["end"] for note in told] == ends
    print(*told, sep="\n")
    for number, note in enumerate(told):
        late = {after: names for after, names in note["open"].items() if float(after) >= AT_ONCE_SECONDS}
        assert not any(late.values()) and note["seen"], note
        assert sorted(row[3] for row in kafka.rows(f"{target}-{number}", 2)) == [*ROWS, b"somebody else's"]


def judge_signal(broker: Broker, tmp_path: Path, how: str) -> None:
    """The application is ended by it while its tasks write; then it is run to its end."""
    kafka = Kafka(broker.bootstrap)
    source, target = filled(kafka), kafka.topic(2)
    copy = ("ending_spark.py", kafka.bootstrap, source, target, tmp_path / "checkpoint")
    with Application(tmp_path / "first", *copy, "wait") as first:
        first.order({"at": WRITING, "batch": 1, "do": "wait"})
        first.wait_for(2, WRITING, batch=1)
        assert still_open(kafka, target)
        java = jvm_of(first)
        SIGNALS[how](first)
        java.wait(60)
        ended = time.monotonic()
        seen = []
        while (passed := time.monotonic() - ended) < AT_ONCE_SECONDS + 1:
            seen.append((round(passed, 2), still_open(kafka, target)))
            time.sleep(0.2)
        print(how, seen)
        assert not seen[-1][1] and not any(names for after, names in seen if after >= AT_ONCE_SECONDS)
    kafka.put(target, [b"somebody else's"])
    assert b"somebody else's" in [row[3] for row in kafka.rows(target, 2)]
    with Application(tmp_path / "again", *copy, "run") as again:
        assert again.end() == 0, again.tail()
    assert sorted(row[3] for row in kafka.rows(target, 2)) == [*ROWS, b"somebody else's"]


def test_an_application_that_is_terminated_leaves_nothing_open(broker: Broker, tmp_path: Path) -> None:
    judge_signal(broker, tmp_path, "SIGTERM to the JVM")


def test_a_stopped_query_and_a_failed_write_leave_nothing_open(broker: Broker, tmp_path: Path) -> None:
    judge_ends(broker, tmp_path, [f"stop@{WRITING}", "write@-"])

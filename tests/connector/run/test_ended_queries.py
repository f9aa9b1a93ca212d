"""A session that stays open all day: nothing stays of the queries that have ended in it.

With fewer, and without Spark: test_guard.py, test_nothing_stays_of_twenty_queries.
"""

import contextlib
from pathlib import Path

import psutil
import pytest

from eoslog.connector.run import abandoned_run
from tests.connector.brokers import Broker
from tests.connector.spark_application import Application
from tests.connector.stock_kafka import Kafka

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.timeout(900)]

FIRST, LAST = 2, 52
GONE_SECONDS = 60.0


def processes_of(folder: Path) -> dict[int, float]:
    """The memory in MB of each process that the application has started, its child or not."""
    found = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            if process.environ().get("EOSLOG_PROBE") == str(folder):
                found[process.pid] = process.memory_info().rss / 1e6
    return found


def test_nothing_stays_of_fifty_queries(broker: Broker, tmp_path: Path) -> None:
    assert abandoned_run.REST_SECONDS + 10 < GONE_SECONDS
    kafka = Kafka(broker.bootstrap)
    source, target = kafka.topic(), kafka.topic()
    kafka.put(source, [b"row"] * 10)
    folder = tmp_path / "probe"
    arguments = (kafka.bootstrap, source, target, tmp_path / "checkpoints")
    with Application(folder, "tests.connector.run.many_queries_spark", *arguments) as app:
        (folder / f"start-{FIRST}").touch()
        app.wait_until("the first ones", (folder / f"ended-{FIRST}").exists)
        first = len(processes_of(folder))
        (folder / f"start-{LAST}").touch()
        app.wait_until("fifty queries", (folder / f"ended-{LAST}").exists)
        at_once = processes_of(folder)
        app.wait_until("they are gone", lambda: len(processes_of(folder)) <= first - FIRST)
        later = processes_of(folder)
        for when, found in (("at once", at_once), ("when nothing was left to watch", later)):
            print(f"after {LAST} queries, {when}: {len(found)} processes, {sum(found.values()):.0f} MB")
        (folder / "leave").touch()
        assert app.end() == 0, app.tail()
    assert len(kafka.rows(target)) == 10 * LAST

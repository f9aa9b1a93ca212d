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
    """Each Python process of the application, its child or not, with its memory in MB: its share of what it
    shares with others (PSS)."""
    found = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            mine = process.environ().get("EOSLOG_PROBE") == str(folder)
            if mine and process.name().startswith("python"):
                found[process.pid] = process.memory_full_info().pss / 1e6
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
        before = processes_of(folder)
        (folder / f"start-{LAST}").touch()
        app.wait_until("fifty queries", (folder / f"ended-{LAST}").exists)
        at_once = processes_of(folder)
        app.wait_until("they are gone", lambda: len(processes_of(folder)) <= len(before) - FIRST)
        later = processes_of(folder)
        told = {f"after {FIRST} queries": before, f"after {LAST}": at_once, "when no guard is left": later}
        for when, found in told.items():
            print(f"{when}: {len(found)} Python processes, {sum(found.values()):.1f} MB")
        (folder / "leave").touch()
        assert app.end() == 0, app.tail()
    assert len(kafka.rows(target)) == 10 * LAST

"""A session that stays open all day: nothing stays of the queries that have ended in it.

With fewer, and without Spark: test_guard.py, test_nothing_stays_of_twenty_queries.
"""

import contextlib
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest

from eoslog.connector.run import abandoned_run
from tests.connector.brokers import Broker
from tests.connector.spark_application import Application
from tests.connector.stock_kafka import Kafka

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.timeout(900)]

FIRST, LAST = 2, 52
GONE_SECONDS = 60.0


class Found(NamedTuple):
    """A process of the application. `mb`: its memory, and its share of what it shares with others (PSS)."""

    parent: int
    name: str
    mb: float


def processes_of(folder: Path) -> dict[int, Found]:
    """Each process of the application, its child or not."""
    found = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            if process.environ().get("EOSLOG_PROBE") == str(folder):
                memory = process.memory_full_info().pss / 1e6
                found[process.pid] = Found(process.ppid(), process.name(), memory)
    return found


def guards(found: dict[int, Found], application: int) -> int:
    """How many of them belong to no other process of the application: who watches a query outlives Spark."""
    return sum(one.parent not in found for pid, one in found.items() if pid != application)


def told(when: str, found: dict[int, Found], application: int) -> float:
    """The memory of its Python processes in MB, printed."""
    pythons, watching = [one.mb for one in found.values() if one.name != "java"], guards(found, application)
    print(f"{when}: {len(pythons)} Python processes, {sum(pythons):.0f} MB, {watching} guards")
    return sum(pythons)


def test_nothing_stays_of_fifty_queries(broker: Broker, tmp_path: Path) -> None:
    assert abandoned_run.REST_SECONDS + 10 < GONE_SECONDS
    kafka = Kafka(broker.bootstrap)
    source, target = kafka.topic(), kafka.topic()
    kafka.put(source, [b"row"] * 10)
    folder = tmp_path / "probe"
    arguments = (kafka.bootstrap, source, target, tmp_path / "checkpoints")
    with Application(folder, "tests.connector.run.many_queries_spark", *arguments) as app:

        def without_guards() -> dict[int, Found] | None:
            found = processes_of(folder)
            return None if guards(found, app.process.pid) else found

        (folder / f"start-{FIRST}").touch()
        app.wait_until("the first ones", (folder / f"ended-{FIRST}").exists)
        before = app.wait_until("nobody watches them", without_guards)
        (folder / f"start-{LAST}").touch()
        app.wait_until("fifty queries", (folder / f"ended-{LAST}").exists)
        told(f"after {LAST} queries, at once", processes_of(folder), app.process.pid)
        later = app.wait_until("nobody watches those", without_guards)
        first = told(f"after {FIRST} queries", before, app.process.pid)
        last = told(f"after {LAST} queries", later, app.process.pid)
        assert len(later) < len(before) + (LAST - FIRST) / 5 and last < 2 * first
        (folder / "leave").touch()
        assert app.end() == 0, app.tail()
    assert len(kafka.rows(target)) == 10 * LAST

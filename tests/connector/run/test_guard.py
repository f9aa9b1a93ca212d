"""Who looks after a run that nobody goes on with: processes of their own, on a real broker.

The same with a real Spark: test_orderly_end.py.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import psutil
import pyarrow as pa
import pytest

from eoslog.client.admin import transaction_states, transactions
from eoslog.client.wire.cluster import shared_cluster
from eoslog.connector.commit.abandon import Aborted, Ended, end_run, is_over, run_of
from eoslog.connector.commit.commands import Rules
from eoslog.connector.commit.task_reports import Batch as Batch_
from eoslog.connector.commit.task_reports import Begun, Prepared, Run
from eoslog.connector.commit.transactional_ids import Sink
from eoslog.connector.options.sink_options import SinkOptions, sink_options
from eoslog.connector.run import abandoned_run, run_memory
from eoslog.connector.run.runner import Runner
from eoslog.connector.sink import committer
from eoslog.connector.sink.task_message import Attempt
from eoslog.connector.sink.task_writer import write_rows
from eoslog.connector.spark import processes
from eoslog.errors import BrokerUnreachable
from tests.connector.brokers import Broker, Kafka
from tests.connector.spark_application import Application
from tests.kit.program import until

AT_ONCE_SECONDS = 2.0


class Batch:
    """A batch of one sink, begun, whose tasks are run by the test."""

    def __init__(self, kafka: Kafka, topic: str, **more: str) -> None:
        given = {"kafka.bootstrap.servers": kafka.bootstrap, "topic": topic, "transactional.id": topic}
        self.options: SinkOptions = sink_options(given | more, stream=False)
        begun = committer.begin_batch(self.options)
        assert begun is not None
        self.begun: Begun = begun
        self.sink = Sink(begun.sink_id)
        self.key = ("a cluster", topic, "a query")
        run = run_of((), begun)
        assert run is not None
        self.run = run

    def task(self, partition: int) -> Prepared:
        rows = iter([pa.record_batch({"value": pa.array([b"row"])})])
        attempt = Attempt(self.run.batch.query_id, self.run.batch.batch_id, partition)
        report = write_rows(self.options, self.begun, attempt, rows).report
        assert isinstance(report, Prepared)
        return report

    def runner(self) -> Runner:
        return committer.runner_for(self.options)

    def open(self) -> list[str]:
        found = transaction_states.list_transactions(
            shared_cluster(self.options.client), self.sink.id, ["Ongoing"]
        )
        return [listing.transactional_id for listing in found]

    def closed_within(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while self.open():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        return True


@pytest.fixture
def batch(kafka: Kafka) -> Batch:
    return Batch(kafka, kafka.topic())


@pytest.fixture
def daemon(monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[bytes]]:
    """What stands for Spark's: while it lives, the driver does."""
    monkeypatch.setattr(abandoned_run, "is_sparks", lambda: True)
    with subprocess.Popen(["sleep", "300"]) as started:
        told = processes.ProcessIdentity(started.pid, processes._started(started.pid))
        monkeypatch.setattr(processes, "parent_of", lambda pid: told)
        processes.driver_process.cache_clear()
        yield started
        started.kill()
    processes.driver_process.cache_clear()


@pytest.fixture
def watchers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """How many processes that were left behind since live."""
    cut_loose = abandoned_run._cut_loose

    def noted() -> None:
        (tmp_path / str(os.getpid())).touch()
        cut_loose()

    monkeypatch.setattr(abandoned_run, "_cut_loose", noted)
    return lambda: sum(lives(int(path.name)) for path in tmp_path.glob("[0-9]*"))


def becomes(number: int, watchers: Callable[[], int]) -> bool:
    """Whether there are so many within some seconds."""
    deadline = time.monotonic() + 10
    while watchers() != number:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def lives(pid: int) -> bool:
    """Whether it is there, and no zombie: who has adopted it may not care."""
    try:
        alive: bool = psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
        return alive
    except psutil.NoSuchProcess:
        return False


def test_what_a_dead_driver_has_open_is_ended(batch: Batch, daemon: subprocess.Popen[bytes]) -> None:
    run_memory.keep(batch.run, *batch.key)
    abandoned_run.watch(batch.sink, batch.run.incarnation, batch.key, batch.runner)
    batch.task(0)
    time.sleep(3 * abandoned_run.WATCH_SECONDS)
    assert batch.open(), "the driver lives"
    daemon.kill()
    daemon.wait()
    assert batch.closed_within(AT_ONCE_SECONDS)
    batch.task(1)
    assert batch.open() == [], "a task that comes later sees that nobody waits for it"
    name = killed(batch, 0)
    assert batch.open() == [name], "or it is killed before"
    assert batch.closed_within(AT_ONCE_SECONDS)


def test_a_newer_drivers_transactions_are_left_alone(
    batch: Batch, kafka: Kafka, daemon: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    run_memory.keep(batch.run, *batch.key)
    abandoned_run.watch(batch.sink, batch.run.incarnation, batch.key, batch.runner)
    monkeypatch.setattr(abandoned_run, "is_sparks", lambda: False)  # it lives elsewhere, and goes on
    newer = Batch(kafka, batch.sink.id)
    report = newer.task(0)
    daemon.kill()
    daemon.wait()
    time.sleep(1)
    assert newer.open() == [report.participant.name]
    committer.commit_batch(newer.options, [report])
    assert [row[3] for row in kafka.rows(batch.sink.id)] == [b"row"]


def test_abort_does_not_wait_for_dying_tasks_and_looks_again(
    batch: Batch, daemon: subprocess.Popen[bytes]
) -> None:
    batch.task(0)
    began = time.monotonic()
    committer.abort_write(batch.options, batch.begun, [None])
    assert time.monotonic() - began < 1 and batch.open() == []
    for number, pause in enumerate((0.0, abandoned_run.TASK_KILL_SECONDS)):
        time.sleep(pause)
        name = killed(batch, number)
        assert batch.open() == [name], "a task that is killed before it looks"
        assert batch.closed_within(AT_ONCE_SECONDS)


def test_what_could_not_be_ended_is_tried_again_until_it_can(
    batch: Batch, daemon: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A right that is taken away and given back: no later begin comes back to the names of such a write."""
    given_back = tmp_path / "given back"

    def refused(sink: Sink, run: Run) -> Rules[Ended]:
        if given_back.exists():
            return (yield from end_run(sink, run))
        return Ended(Aborted.CLEARED, left=("the right is missing",))

    monkeypatch.setattr(abandoned_run, "end_run", refused)
    monkeypatch.setattr(abandoned_run, "clear_again", lambda sink, run, ended: refused(sink, run))
    for name in ("TASK_KILL_SECONDS", "LATE_SECONDS", "LATE_LOOK_SECONDS"):
        monkeypatch.setattr(abandoned_run, name, 0.1)
    report = batch.task(0)
    committer.abort_write(batch.options, batch.begun, [report])  # no task is dying
    time.sleep(1.0)
    assert batch.open() == [report.participant.name]
    given_back.touch()
    assert batch.closed_within(AT_ONCE_SECONDS)


def killed(batch: Batch, number: int) -> str:
    """A task opens its transaction, and no more."""
    name = f"{batch.sink.prefix}{batch.run.incarnation}/0/killed.{number}"
    cluster = shared_cluster(batch.options.client)
    identity = transactions.init_producer_id(cluster, name, 60_000)
    place = {("__consumer_offsets", 0): (0, "")}
    transactions.commit_offsets(cluster, name, identity, f"{batch.sink.id}-killed", place)
    return name


@pytest.mark.parametrize("token", ["", "job", "job-7"])
@pytest.mark.parametrize("end", ["the driver dies", "commit", "abort"])
def test_a_batch_write_is_watched_until_its_end(
    kafka: Kafka, daemon: subprocess.Popen[bytes], token: str, end: str
) -> None:
    topic = kafka.topic()
    batch = Batch(kafka, topic, **({"write.token": token} if token else {}))
    report = batch.task(0)
    if end == "the driver dies":
        daemon.kill()
        daemon.wait()
        assert batch.closed_within(AT_ONCE_SECONDS)
        return
    if end == "commit":
        committer.commit_batch(batch.options, [report])
        assert [row[3] for row in kafka.rows(topic)] == [b"row"]
    else:
        committer.abort_write(batch.options, batch.begun, [report])
    key = committer._write_key(batch.options, batch.run)
    assert run_memory.look(*key) is None and not batch.open()


@pytest.mark.usefixtures("daemon")
def test_who_watches_a_batch_write_goes_with_it(kafka: Kafka, watchers: Callable[[], int]) -> None:
    """The driver lives and is quiet: no process is left of its writes."""
    batch = Batch(kafka, kafka.topic())
    assert becomes(1, watchers)
    committer.commit_batch(batch.options, [batch.task(0)])
    assert becomes(0, watchers)


def test_the_tokens_of_a_stem_are_watched_by_one(
    kafka: Kafka, daemon: subprocess.Popen[bytes], watchers: Callable[[], int]
) -> None:
    topic = kafka.topic()
    for number in range(3):
        batch = Batch(kafka, topic, **{"write.token": f"job-{number}"})
        committer.commit_batch(batch.options, [batch.task(0)])
        assert becomes(1, watchers)
        time.sleep(2 * abandoned_run.WATCH_SECONDS)
        assert watchers() == 1
    assert [row[3] for row in kafka.rows(topic)] == [b"row"] * 3
    batch = Batch(kafka, topic, **{"write.token": "job-3"})
    batch.task(0)
    daemon.kill()
    daemon.wait()
    assert batch.closed_within(AT_ONCE_SECONDS)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards look soon whether they are needed any more."""
    monkeypatch.setattr(abandoned_run, "REST_SECONDS", 0.5)


def begins(batch: Batch) -> None:
    """As the begin of each micro-batch of its run does."""
    run_memory.keep(batch.run, *batch.key)
    abandoned_run.watch(batch.sink, batch.run.incarnation, batch.key, batch.runner)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("end", ["commit", "abort"])
def test_who_watches_a_query_goes_soon_after_its_last_batch(
    kafka: Kafka, daemon: subprocess.Popen[bytes], watchers: Callable[[], int], end: str
) -> None:
    """The driver lives on, as a notebook does all day. A later batch is watched again."""
    batch = Batch(kafka, kafka.topic(), **{"transactional.id": f"q-{end}"})
    committer._unwatch(batch.options, batch.run)  # that of a batch write
    assert becomes(0, watchers)
    begins(batch)
    report = batch.task(0)
    if end == "commit":
        committer.commit_batch(batch.options, [report])
    else:
        abandoned_run.end(batch.sink, batch.run, batch.runner, continues=False)
    assert becomes(0, watchers)
    lock = run_memory._path((*batch.key, str(batch.run.incarnation)))
    assert lock is not None and not lock.with_suffix(".guard").exists(), "nothing stays of it"

    later = Batch(kafka, batch.sink.id, **{"transactional.id": f"q-{end}"})
    committer._unwatch(later.options, later.run)
    assert becomes(0, watchers)
    begins(later)
    later.task(0)
    assert becomes(1, watchers) and later.open()
    daemon.kill()
    daemon.wait()
    assert later.closed_within(AT_ONCE_SECONDS)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("opened", [True, False], ids=["with rows", "before its first row"])
def test_a_long_batch_is_watched_to_its_end(
    batch: Batch, daemon: subprocess.Popen[bytes], watchers: Callable[[], int], opened: bool
) -> None:
    committer._unwatch(batch.options, batch.run)
    assert becomes(0, watchers)
    begins(batch)
    if opened:
        batch.task(0)
    time.sleep(6 * abandoned_run.REST_SECONDS)
    assert watchers() == 1
    if not opened:
        batch.task(0)
    daemon.kill()
    daemon.wait()
    assert batch.closed_within(AT_ONCE_SECONDS)


@pytest.mark.usefixtures("daemon", "impatient")
def test_who_cannot_ask_whether_he_is_needed_stays(
    batch: Batch, watchers: Callable[[], int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    committer._unwatch(batch.options, batch.run)
    assert becomes(0, watchers)
    asked = tmp_path / "asked"

    def away() -> Runner:
        asked.touch()
        raise BrokerUnreachable("nobody answers")

    monkeypatch.setattr(batch, "runner", away)
    begins(batch)
    until(asked.exists, "it has asked")
    time.sleep(2 * abandoned_run.REST_SECONDS)
    assert watchers() == 1


@pytest.mark.usefixtures("impatient")
def test_a_batch_that_begins_while_its_watcher_goes_is_watched(
    batch: Batch,
    daemon: subprocess.Popen[bytes],
    watchers: Callable[[], int],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """It has asked whether it is needed, and hears about the batch before; meanwhile the next one begins."""
    committer._unwatch(batch.options, batch.run)
    assert becomes(0, watchers)
    asks, begun = tmp_path / "asks", tmp_path / "begun"
    over = is_over

    def late(sink: Sink, run: Run) -> Rules[bool]:
        if asks.exists():
            return (yield from over(sink, run))
        asks.touch()
        until(begun.exists, "the next batch has begun")
        return True

    monkeypatch.setattr(abandoned_run, "is_over", late)
    begins(batch)
    until(asks.exists, "it asks")
    begins(batch)
    batch.task(0)
    begun.touch()
    time.sleep(4 * abandoned_run.REST_SECONDS)
    assert watchers() == 1
    daemon.kill()
    daemon.wait()
    assert batch.closed_within(AT_ONCE_SECONDS)


@pytest.mark.usefixtures("daemon", "impatient")
def test_one_watches_a_run_of_many_batches(batch: Batch, watchers: Callable[[], int]) -> None:
    committer._unwatch(batch.options, batch.run)
    assert becomes(0, watchers)
    for number in range(20):
        later = Batch_(batch.run.batch.query_id, number, "")
        batch.run = replace(batch.run, batch=later)
        begins(batch)
    assert becomes(1, watchers)
    time.sleep(abandoned_run.REST_SECONDS)
    assert watchers() == 1


@pytest.mark.usefixtures("daemon", "impatient")
def test_nothing_stays_of_twenty_queries(kafka: Kafka, watchers: Callable[[], int]) -> None:
    """Below they are counted after fifty in a real Spark."""
    topic = kafka.topic()
    for number in range(20):
        batch = Batch(kafka, topic, **{"transactional.id": f"{topic}-{number}"})
        begins(batch)
        committer.commit_batch(batch.options, [batch.task(0)])
    assert becomes(0, watchers)
    assert len(kafka.rows(topic)) == 20


# -- a session that stays open all day -------------------------------------------------------------
# A session that stays open all day: nothing stays of the queries that have ended in it.
#
# With fewer, and without Spark: test_guard.py, test_nothing_stays_of_twenty_queries.


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


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(900)
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

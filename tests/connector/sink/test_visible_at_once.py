"""On the bundled broker readers see all rows of a batch or none; when a write has returned, all.

Batches of two to eight participants are finished as the sink does it, while somebody reads all partitions as
fast as it can: with fetches of its own, which see of each partition what one moment shows, and with stock
clients.
"""

from __future__ import annotations

import json
import multiprocessing
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import Any, Self

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, IsolationLevel, TopicPartition

from eoslog.broker.coordinator.transactions.transaction_changes import ReadBarrier
from eoslog.client.admin import transactions
from eoslog.client.admin.topics import list_offsets
from eoslog.client.admin.transactions import AcquiredTransaction
from eoslog.client.records.produce import Producer
from eoslog.client.wire.cluster import Cluster, shared_cluster
from eoslog.client.wire.config import ClientConfig, parse_addresses
from eoslog.client.wire.connection import BrokerConnection
from eoslog.connector.commit.task_reports import Report
from eoslog.connector.options.sink_options import SinkOptions, sink_options
from eoslog.connector.sink import committer
from eoslog.errors import BrokerUnreachable, ConnectionLost
from eoslog.protocol.apis import APIS, ApiKey
from eoslog.protocol.batch import iter_headers
from eoslog.protocol.encode import EncodedBatch, encode_batches
from eoslog.protocol.producer_identity import ProducerIdentity
from eoslog.testing import EmbeddedBroker
from tests.connector.brokers import LATEST, Kafka
from tests.connector.sink.test_round_trips import prepare

TASKS = 8
FORK = multiprocessing.get_context("spawn")


class Sink:
    """Batches of participants, each with a row on a partition of its own, and their commits."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self.topic, self.partitions, self.batches = topic, partitions, 0
        self.cluster = Cluster(ClientConfig(parse_addresses(bootstrap)))

    def prepare(self, tasks: int) -> dict[str, ProducerIdentity]:
        """Write a batch and seal it; who ends what. Each partition is written by one of its tasks."""
        names = [f"{self.topic}/{number}" for number in range(tasks)]
        for number, name in enumerate(names):
            identity = transactions.init_producer_id(self.cluster, name, 60_000)
            with Producer(self.cluster, identity=identity, transactional_id=name) as producer:
                for partition in range(number, self.partitions, tasks):
                    for batch in rows(self.batches):
                        producer.send(self.topic, partition, batch)
                producer.flush()
        self.batches += 1
        kept = transactions.keep_prepared(self.cluster, names, 60_000)
        return {name: one.holder for name, one in kept.items() if isinstance(one, AcquiredTransaction)}

    def finish(self, held: dict[str, ProducerIdentity]) -> None:
        """Commit all of them."""
        commit(self.cluster, held)


def rows(number: int) -> list[EncodedBatch]:
    now_ms = int(time.time() * 1000)  # what is old is deleted
    return encode_batches(None, pa.array([b"%d" % number]), None, now_ms, codec=0, max_batch_bytes=1000)


def commit(cluster: Cluster, held: dict[str, ProducerIdentity]) -> None:
    answers = transactions.end_txns(cluster, held, True)
    assert all(isinstance(answer, ProducerIdentity) for answer in answers.values()), answers


class Watcher:
    """Fetches all partitions again and again, over new connections if need be."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self.host, port = bootstrap.split(":")
        self.port, self.topic = int(port), topic
        self.rows, self.offsets = [0] * partitions, [0] * partitions
        self.fetches = 0
        self.parts: list[list[int]] = []
        """How many rows of each partition were seen, where that was not the same of all."""
        self.failed: BaseException | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        if self.failed is not None:
            raise self.failed

    def _run(self) -> None:
        while not self._over.is_set() and self.failed is None:
            try:
                with suppress(BrokerUnreachable, ConnectionLost):
                    connection = BrokerConnection(
                        self.host, self.port, ClientConfig(((self.host, self.port),))
                    )
                    while not self._over.is_set():
                        self._look(connection)
            except BaseException as error:  # it is raised in the test's thread
                self.failed = error
            time.sleep(0.001)

    def _look(self, connection: BrokerConnection) -> None:
        partitions = [
            {"partition": index, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
            for index, offset in enumerate(self.offsets)
        ]
        body = {"max_wait_ms": random.choice([0, 0, 200]), "min_bytes": 1, "max_bytes": 1 << 24,
                "isolation_level": 1, "session_epoch": -1,
                "topics": [{"topic": self.topic, "partitions": partitions}]}  # fmt: skip
        answer = connection.call(APIS[ApiKey.FETCH], body, max_version=12)
        self.fetches += 1
        for part in [part for topic in answer["responses"] for part in topic["partitions"]]:
            assert part["error_code"] == 0, part
            index = part["partition_index"]
            for _, header in iter_headers(part["records"] or b""):
                self.offsets[index] = header.next_offset
                self.rows[index] += 0 if header.is_control else header.count
        if len(set(self.rows)) > 1:
            self.parts.append(list(self.rows))

    def wait_for(self, batches: int) -> None:
        deadline = time.monotonic() + 60
        while set(self.rows) != {batches}:
            assert time.monotonic() < deadline and self.failed is None, (self.rows, self.failed)
            time.sleep(0.005)


@contextmanager
def site(partitions: int = TASKS, **more: Any) -> Iterator[tuple[EmbeddedBroker, Sink, Watcher]]:
    with EmbeddedBroker(**more) as broker:
        topic = Kafka(broker.bootstrap).topic(partitions)
        with Watcher(broker.bootstrap, topic, partitions) as watcher:
            yield broker, Sink(broker.bootstrap, topic, partitions), watcher


def run_batches(sink: Sink, watcher: Watcher, batches: int, stop: Callable[[], bool] = lambda: False) -> None:
    for number in range(batches):
        sink.finish(sink.prepare(2 + number % (TASKS - 1)))
        watcher.wait_for(sink.batches)
        if stop():
            break


def test_no_fetch_sees_a_part_of_a_batch() -> None:
    with site() as (_, sink, watcher):
        run_batches(sink, watcher, 70)
    assert watcher.parts == []
    print(f"{watcher.fetches} fetches, {sink.batches} batches")


def test_without_the_rule_a_fetch_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ReadBarrier, "draw", lambda self, partition: None)
    with site(in_thread=True) as (broker, sink, watcher):
        for partition in range(1, TASKS, 2):  # some disks are slower than others
            broker.faults.delay_fsync(0.02, path=f"{sink.topic}-{partition}/")
        run_batches(sink, watcher, 100, stop=lambda: bool(watcher.parts))
    assert watcher.parts


@pytest.mark.parametrize(("tasks", "batches"), [(2, 20), (8, 10), (64, 3)])
def test_beside_a_request_for_each(tasks: int, batches: int) -> None:
    """As on Apache Kafka, in turns on the same broker. `pytest -s` prints what docs/exactly-once.md tells."""
    seconds: dict[bool, list[float]] = {True: [], False: []}
    torn = {True: 0, False: 0}
    with site(tasks) as (_, sink, watcher):
        for together in [True, False] * batches:
            held = sink.prepare(tasks)
            sink.cluster.coordinator("transaction", next(iter(held))).ends_together = together
            begun = time.perf_counter()
            sink.finish(held)
            seconds[together].append(time.perf_counter() - begun)
            watcher.wait_for(sink.batches)
            torn[together] += bool(watcher.parts)
            watcher.parts.clear()
    for together, how in ((False, "a request for each"), (True, "one request")):
        took, parts = 1000 * median(seconds[together]), torn[together]
        print(f"\n{tasks} tasks, {how}: finished in {took:.1f} ms, {parts} of {batches} seen in parts")
    assert torn[True] == 0 and torn[False] > 0


def test_who_sees_one_row_can_see_all_with_stock_clients() -> None:
    """The stock consumer gets a row; the stock admin client asks by one request where all partitions end."""
    with site() as (broker, sink, watcher):
        kafka = Kafka(broker.bootstrap)
        consumer = Consumer({
            "bootstrap.servers": broker.bootstrap, "group.id": "g", "isolation.level": "read_committed",
            "auto.offset.reset": "earliest", "fetch.wait.max.ms": 20,
        })  # fmt: skip
        places = [TopicPartition(sink.topic, index) for index in range(TASKS)]
        consumer.assign([TopicPartition(place.topic, place.partition, 0) for place in places])
        finishing = threading.Thread(target=run_batches, args=(sink, watcher, 40))
        finishing.start()
        counts: dict[bytes | None, int] = {str(number).encode(): 0 for number in range(40)}
        while any(count < TASKS for count in counts.values()):
            message = consumer.poll(60)
            assert message is not None and message.error() is None
            value = message.value()
            first, counts[value] = counts[value] == 0, counts[value] + 1
            if first:
                assert value is not None
                asked = {place: LATEST for place in places}
                found = kafka.admin.list_offsets(asked, isolation_level=IsolationLevel.READ_COMMITTED)
                ends = {future.result().offset for future in found.values()}
                assert len(ends) == 1 and ends.pop() >= 2 * (int(value) + 1), "each batch: a row and a marker"
        finishing.join()
        consumer.close()
    assert set(counts.values()) == {TASKS} and watcher.parts == []


def end_in_a_process(bootstrap: str, held: dict[str, ProducerIdentity], begun: Any) -> None:
    """The driver that is to be killed."""
    cluster = Cluster(ClientConfig(parse_addresses(bootstrap)))
    cluster.coordinators("transaction", held)
    begun.set()
    commit(cluster, held)


def test_the_driver_is_killed_while_it_finishes() -> None:
    chance = random.Random(7)
    with site() as (broker, sink, watcher):
        for number in range(6):
            held = sink.prepare(2 + number)
            begun = FORK.Event()
            driver = FORK.Process(target=end_in_a_process, args=(broker.bootstrap, held, begun))
            driver.start()
            assert begun.wait(60)
            time.sleep(chance.uniform(0, 0.03))
            driver.kill()
            driver.join()
            sink.finish(held)  # whoever starts next
            watcher.wait_for(sink.batches)
    assert watcher.parts == []


@pytest.mark.parametrize("seed", [1, 2])
def test_the_broker_is_killed_while_it_finishes(seed: int) -> None:
    chance = random.Random(seed)
    with site() as (broker, sink, watcher):
        for number in range(5):
            held = sink.prepare(2 + number)
            finishing = threading.Thread(target=sink.finish, args=(held,))
            finishing.start()
            time.sleep(chance.uniform(0, 0.03))
            broker.kill()
            broker.restart()
            finishing.join()
            watcher.wait_for(sink.batches)
    assert watcher.parts == []


def test_what_is_decided_is_finished_before_anybody_is_served() -> None:
    """The power fails when some markers are on the disk, and the disk is slow when it is back."""
    with site(faults=True) as (broker, sink, watcher):
        held = sink.prepare(TASKS)
        last = f"{sink.topic}-{TASKS - 1}/"
        stuck = broker.faults.delay_fsync(60, path=last)
        finishing = threading.Thread(target=sink.finish, args=(held,))
        finishing.start()
        stuck.wait()
        time.sleep(0.5)  # the others are through
        broker.lose_unsynced()
        broker.faults.delay_fsync(1, path=last)
        broker.start()
        finishing.join()
        watcher.wait_for(1)
    assert watcher.parts == []


# -- when a write has returned -------------------------------------------------------------------
# Who reads when a write has returned sees all of its rows, of a micro-batch as well: markers are waited for.
#
# Apache Kafka answers EndTxn when the commit is certain and writes the markers afterwards.

WRITING_TASKS, WRITES, THE_END = 64, 4, -1


def options_of(kafka: Kafka, topic: str, *, stream: bool, **more: str) -> SinkOptions:
    to = {"kafka.bootstrap.servers": kafka.bootstrap, "topic": topic, "transactional.id": f"readable-{topic}"}
    return sink_options({**to, **more}, stream=stream)


def hidden(options: SinkOptions, topic: str) -> int:
    """Offsets of the topic's partition that readers of committed rows do not see."""
    cluster, place = shared_cluster(options.client), (topic, 0)
    stable = list_offsets(cluster, {place: THE_END}, committed=True)[place]
    return list_offsets(cluster, {place: THE_END}, committed=False)[place] - stable


def test_of_a_write(kafka: Kafka) -> None:
    topic = kafka.topic()
    options = options_of(kafka, topic, stream=False)
    found = []
    for _ in range(WRITES):
        begun = committer.begin_batch(options)
        assert begun is not None
        cluster = shared_cluster(options.client)
        reports: list[Report | None] = [
            prepare(cluster, begun, topic, number) for number in range(WRITING_TASKS)
        ]
        committer.commit_batch(options, reports)
        found.append(hidden(options, topic))
    assert found == [0] * WRITES


def test_of_a_micro_batch(kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.topic()
    for log in ("offsets", "commits"):
        (tmp_path / log).mkdir()
    (tmp_path / "metadata").write_text(json.dumps({"id": "readable"}))
    options = options_of(kafka, topic, stream=True, checkpointLocation=str(tmp_path))
    found = []
    for batch_id in range(WRITES):
        (tmp_path / "offsets" / str(batch_id)).write_text(f'v1\n{{}}\n{{"in":{{"0":{batch_id}}}}}')
        begun = committer.begin_stream(options)
        assert begun is not None
        cluster = shared_cluster(options.client)
        reports: list[Report | None] = [
            prepare(cluster, begun, topic, number) for number in range(WRITING_TASKS)
        ]
        committer.commit_stream(options, reports, batch_id)
        found.append(hidden(options, topic))
        (tmp_path / "commits" / str(batch_id)).write_text("v1\n{}")
    assert found == [0] * WRITES

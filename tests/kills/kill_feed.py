"""The rows of a round: written for as long as it lasts, and judged at its end."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from eoslog.client.admin.transaction_states import describe, list_transactions
from eoslog.client.wire.cluster import Cluster
from eoslog.client.wire.config import ClientConfig, parse_addresses
from tests.kills.kill_query import MARK, Job
from tests.soaks.copy_audit import POISON, Id, Row, Verdict, audit, end_of, ids, row

# -- the source ----------------------------------------------------------------------------------
# The source of a round: numbered rows, written for as long as the round lasts, by stock clients.
#
# They speak to the brokers directly, over no proxy. Aborted rows of another producer lie between: nobody may
# see one. Each partition ends with rows, so the last batch of a query has some.

_FOR_EVER = 1 << 40
_CHUNK = 50
_LATER = 8


class Feed:
    """A thread that writes `rate` rows a second until it is told to end. `written`: how many so far."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        partitions: int,
        rate: float,
        twice: str | None = None,
        first: int = 0,
    ) -> None:
        """`twice`: a topic that gets each row two times, the second time some hundred rows later. `first`:
        how many rows there are already."""
        self._twice = twice
        self._bootstrap, self._topic, self._partitions, self._rate = bootstrap, topic, partitions, rate
        self.written = first
        self.aborted = 0
        self._failed: list[Any] = []
        self._over = threading.Event()
        self._failure: BaseException | None = None
        self._writes, self._aborts = (
            threading.Thread(target=self._guarded, args=(work,)) for work in (self._write, self._abort)
        )

    def start(self) -> None:
        """Begin."""
        self._aborts.start()
        self._writes.start()

    def end(self) -> int:
        """Write no more; how many rows there are. Raises what went wrong."""
        self._over.set()
        for thread in (self._writes, self._aborts):
            thread.join()
        if self._failure is not None:
            raise self._failure
        return self.written

    def _guarded(self, work: Any) -> None:
        try:
            work()
        except BaseException as error:
            self._failure = error

    def _write(self) -> None:
        """Idempotent and without a time-out: a broker's death costs time, and no row is there twice."""
        producer = Producer({
            "bootstrap.servers": self._bootstrap, "enable.idempotence": True, "message.timeout.ms": 0,
            "linger.ms": 5, "log_level": 0, "reconnect.backoff.max.ms": 500,
        })  # fmt: skip
        wanted = islice(ids(_FOR_EVER, self._partitions), self.written, None)
        again = deque[list[Id]]()
        ended = False
        while not ended:
            ended = self._over.is_set()
            if ended:
                self._aborts.join()  # its rows lie before these
            chunk = list(islice(wanted, _CHUNK))
            self._send(producer, self._topic, chunk)
            if self._twice is not None:
                self._send(producer, self._twice, chunk)
                again.append(chunk)
                if len(again) > _LATER:
                    self._send(producer, self._twice, again.popleft())
            self.written += len(chunk)
            while len(producer) > 20 * _CHUNK:  # no broker; let it not pile up
                producer.poll(0.1)
            self._over.wait(_CHUNK / self._rate)
        for chunk in again:
            self._send(producer, str(self._twice), chunk)
        left = producer.flush(180)
        assert left == 0 and not self._failed, f"the source is not written: {left} left, {self._failed[:3]}"

    def _send(self, producer: Producer, topic: str, chunk: list[Id]) -> None:
        for partition, number in chunk:
            made = row(partition, number)
            producer.produce(
                topic, made.value, made.key, partition, headers=list(made.headers), on_delivery=self._told
            )
        producer.poll(0)

    def _told(self, error: Any, _: Any) -> None:
        if error:
            self._failed.append(error)

    def _abort(self) -> None:
        """Rows that are aborted: whether all of them arrive does not matter, so no failure of it does."""
        while not self._over.wait(1.0):
            try:
                producer = Producer({
                    "bootstrap.servers": self._bootstrap, "transactional.id": f"{self._topic}-aborts",
                    "transaction.timeout.ms": 10_000, "log_level": 0,
                })  # fmt: skip
                producer.init_transactions(20)
                while not self._over.wait(1.0):
                    producer.begin_transaction()
                    for partition in range(self._partitions):
                        producer.produce(self._topic, POISON, partition=partition)
                    producer.flush(10)
                    producer.abort_transaction(10)
                    self.aborted += self._partitions
            except KafkaException:
                time.sleep(0.2)


# -- the judge -----------------------------------------------------------------------------------
# What is judged at the end of a round: each query's rows by a stock client, and what is left open.

OPEN_SECONDS = 5.0
"""After the last orderly end, what a sink may have open for so long."""


def unmarked(name: str) -> Callable[[Row], Row]:
    """A row as its source had it: without the header of the query that has to have written it. A row of
    another query, or of none, stays as it is: damaged."""
    mark = (MARK, name.encode())

    def strip(found: Row) -> Row:
        return found._replace(headers=found.headers[:-1]) if found.headers[-1:] == (mark,) else found

    return strip


def verdict_of(job: Job, bootstrap: str, rows: int, partitions: int) -> Verdict:
    """Read the job's target whole and compare it with the rows that the source was given."""
    group = (job.group, job.source) if job.has_group else None
    found = audit(bootstrap, job.target, rows, partitions, group, unmarked(job.name))
    if job.kind == "spark-dedup":
        found.reordered = 0  # its rows went through a shuffle
    return found


def left_open(bootstrap: str, sinks: Sequence[str]) -> dict[str, float]:
    """Transactions of these sinks that are open still, five seconds after their ends: how long each was open
    at the end, in seconds; below 0, it was opened since."""
    ended = time.monotonic()
    while (found := _open(bootstrap, sinks)) and time.monotonic() < ended + OPEN_SECONDS:
        time.sleep(0.2)
    return {name: round(age - (time.monotonic() - ended), 1) for name, age in found.items()}


def _open(bootstrap: str, sinks: Sequence[str]) -> dict[str, float]:
    """What is open, and for how many seconds."""
    with Cluster(ClientConfig(parse_addresses(bootstrap), client_id="auditor")) as cluster:
        listed = [each for sink in sinks for each in list_transactions(cluster, sink, ["Ongoing"])]
        found = describe(cluster, [each.transactional_id for each in listed]) if listed else {}
    return {
        name: time.time() - state.start_ms / 1000
        for name, state in found.items()
        if state is not None and state.state == "Ongoing"
    }


def ends_of(bootstrap: str, topic: str, partitions: int) -> dict[str, int]:
    """Where each partition ends for readers of committed data, as Spark's offsets name it."""
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": "auditor", "log_level": 0})
    places = [TopicPartition(topic, number) for number in range(partitions)]
    found = {str(at.partition): end_of(reader, at) for at in places}
    reader.close()
    return found

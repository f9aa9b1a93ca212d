"""Steps that many scenarios take."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

from tests.scenarios.drivers.base import TIMEOUT, Client, Consumer, Place, Producer, Record

QUIET = 0.5
"""Seconds without a record after which a consumer that was promised no end is thought to be through."""


def values(records: Iterable[Record]) -> list[bytes | None]:
    """The values, in order."""
    return [record.value for record in records]


def read(consumer: Consumer, count: int, timeout: float = TIMEOUT) -> list[Record]:
    """Poll until so many records are there; a few more may come along."""
    found: list[Record] = []
    deadline = time.monotonic() + timeout
    while len(found) < count:
        assert time.monotonic() < deadline, (
            f"{len(found)} of {count} records within {timeout} s: {found[-3:]}"
        )
        found += consumer.poll(0.2)
    return found


def nothing_more(consumer: Consumer, quiet: float = QUIET) -> None:
    """Nothing comes for a while."""
    found = []
    deadline = time.monotonic() + quiet
    while time.monotonic() < deadline:
        found += consumer.poll(0.1)
    assert not found


def everything(
    client: Client, bootstrap: str, places: list[Place], *, committed: bool = True
) -> dict[Place, list[Record]]:
    """All records of partitions up to the end that this isolation level shows."""
    with client.consumer(bootstrap, committed=committed) as consumer:
        consumer.assign(dict.fromkeys(places, 0))
        ends = {place: consumer.ends(place)[1] for place in places}
        found: dict[Place, list[Record]] = {place: [] for place in places}
        deadline = time.monotonic() + TIMEOUT
        while any(consumer.position(place) < end for place, end in ends.items()):
            assert time.monotonic() < deadline, f"no end of {places}: {ends}"
            for record in consumer.poll(0.1):
                found[Place(record.topic, record.partition)].append(record)
        return found


def is_committed(consumer: Consumer, place: Place, offset: int) -> bool:
    """Whether this is the committed offset of the consumer's group."""
    return consumer.committed([place]) == {place: offset}


def until(
    condition: Callable[[], bool], what: str, *consumers: Consumer, timeout: float = 2 * TIMEOUT
) -> None:
    """Poll the consumers at the same time, as members of a group do, until the condition holds.

    One after the other would not do: a join ends when the last member asks for it, and kafka-python throws
    away a join that ends while nobody polls it.
    """
    deadline = time.monotonic() + timeout
    with ThreadPoolExecutor(max(len(consumers), 1)) as pool:
        while not condition():
            assert time.monotonic() < deadline, f"not within {timeout} s: {what}"
            for polled in [pool.submit(consumer.poll, consumer.patience) for consumer in consumers]:
                polled.result()
            if not consumers:
                time.sleep(0.02)


def plain_producer(client: Client, bootstrap: str) -> Producer:
    """For rows that only have to be there: librdkafka's idempotent one waits half a second for its id."""
    return client.producer(bootstrap, idempotent=False)


def put(producer: Producer, place: Place, *sent: bytes) -> list[int]:
    """Send values to a partition and wait; answers their offsets."""
    deliveries = [producer.send(place.topic, value, partition=place.partition) for value in sent]
    producer.flush()
    return [delivery.result()[1] for delivery in deliveries]

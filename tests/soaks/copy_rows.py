"""The rows of the copy soaks: made from their numbers, so that any of them can be checked anywhere.

Row (partition, number) of the source has an id that stands in its header `id`, or in its value where it has
no headers. Some rows have no key, some no value, some no headers, some a header without a value.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from typing import NamedTuple

from confluent_kafka import Producer

Header = tuple[str, bytes | None]
Id = tuple[int, int]
"""Partition of the source, and the row's number in it."""

POISON = b"aborted"
"""Value of rows that are in aborted transactions: nobody may see one."""

_KEYS = 40
_IN_ONE = 700
"""Rows of a source transaction, about."""


class Row(NamedTuple):
    """What is copied of a record."""

    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]


def row(partition: int, number: int) -> Row:
    """The row of an id. A key is in one partition only."""
    name = f"{partition}:{number}"
    digest = hashlib.sha256(name.encode()).hexdigest().encode()
    key = None if number % 7 == 0 else f"key-{partition}-{digest[0] * 7 % _KEYS}".encode()
    bare = number % 10 == 0 and number % 13 != 0
    value = None if number % 13 == 0 else name.encode() + b" " + digest * (number % 4)
    headers: list[Header] = [] if bare else [("id", name.encode()), ("sum", digest[:8])]
    if number % 9 == 0 and headers:
        headers.append(("none", None))
    return Row(key, value, tuple(headers))


def id_of(found: Row) -> Id | None:
    """The id that a row says it has; None: it cannot be read."""
    name = dict(found.headers).get("id") if found.headers else (found.value or b"").split(b" ")[0]
    try:
        partition, number = (name or b"").decode().split(":")
        return int(partition), int(number)
    except ValueError:
        return None


def ids(rows: int, partitions: int) -> Iterator[Id]:
    """The ids of so many rows, spread evenly."""
    return ((at % partitions, at // partitions) for at in range(rows))


def publish(bootstrap: str, topic: str, rows: int, partitions: int, seed: int) -> int:
    """Write all rows in transactions, some aborted ones between them; returns how many were aborted."""
    draw, aborted = random.Random(seed), 0
    producer = Producer({
        "bootstrap.servers": bootstrap, "transactional.id": f"{topic}-publisher", "linger.ms": 20,
        "log_level": 2,
    })  # fmt: skip
    producer.init_transactions(60)
    wanted = list(ids(rows, partitions))
    at = 0
    while at < len(wanted):
        if draw.random() < 0.1:
            producer.begin_transaction()
            for partition in range(partitions):
                producer.produce(topic, POISON, partition=partition)
            producer.flush(60)  # an aborted row that was never sent would test nothing
            producer.abort_transaction(60)
            aborted += partitions
        until = at + draw.randint(1, 2 * _IN_ONE)
        producer.begin_transaction()
        for partition, number in wanted[at:until]:
            made = row(partition, number)
            producer.produce(topic, made.value, made.key, partition, headers=list(made.headers))
            producer.poll(0)
        producer.commit_transaction(60)
        at = until
    return aborted

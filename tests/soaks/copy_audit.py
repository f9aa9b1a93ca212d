"""The rows of the copy soaks, made from their numbers, and their independent auditor: a stock client that
counts.
"""

from __future__ import annotations

import hashlib
import random
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, cast

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

# -- rows ----------------------------------------------------------------------------------------
# The rows of the copy soaks: made from their numbers, so that any of them can be checked anywhere.
#
# Row (partition, number) of the source has an id that stands in its header `id`, or in its value where it has
# no headers. Some rows have no key, some no value, some no headers, some a header without a value.

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


# -- the auditor ---------------------------------------------------------------------------------
# The independent auditor of the copy soaks: a stock client that reads committed rows, and counts.
#
# Shares no code with the connector.

PATIENCE = 120.0
"""Seconds without any answer, or with readers held back, after which the auditor gives up."""

_MOVING = (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE, KafkaError._TRANSPORT)

Seen = tuple[int, Row]
"""A record of the target: its partition, and what is in it."""


@dataclass
class Verdict:
    """What is wrong with a copy; all 0 for a right one."""

    rows: int = 0
    lost: int = 0
    doubled: int = 0
    reordered: int = 0
    damaged: int = 0
    split_keys: int = 0
    held_back: int = 0
    group_off: int = 0
    samples: list[str] = field(default_factory=list)

    @property
    def right(self) -> bool:
        """Whether every row is there once, whole, in order, readable, and the group is at the end."""
        wrong = (self.lost, self.doubled, self.reordered, self.damaged, self.split_keys)
        return not any((*wrong, self.held_back, self.group_off))


def judge(seen: Iterable[Seen], rows: int, partitions: int) -> Verdict:
    """Compare a target's records, in the order of each partition, with the rows of the source.

    `lost`: ids that are not there; `doubled`: records whose id was there before; `reordered`: first
    occurrences behind a later row of the same source partition, in the same target partition;
    `damaged`: records of no id, or other than the source's; `split_keys`: keys in more than one partition.
    """
    found, count = Verdict(), 0
    known: set[Id] = set()
    newest: dict[tuple[int, int], int] = {}
    homes: dict[bytes, set[int]] = {}
    wanted = set(ids(rows, partitions))
    for where, record in seen:
        count += 1
        if record.key is not None:
            homes.setdefault(record.key, set()).add(where)
        name = id_of(record)
        if name is None or name not in wanted or record != row(*name):
            found.damaged += 1
            _note(found, f"damaged, in partition {where}: {record}")
            continue
        if name in known:
            found.doubled += 1
            continue
        known.add(name)
        line = (name[0], where)
        if name[1] < newest.get(line, -1):
            found.reordered += 1
            _note(found, f"row {name} came after {newest[line]} in partition {where}")
        newest[line] = max(name[1], newest.get(line, -1))
    lost = wanted - known
    found.rows, found.lost = count, len(lost)
    found.split_keys = sum(len(places) > 1 for places in homes.values())
    if lost:
        _note(found, f"lost: {sorted(lost)[:5]}")
    return found


def _note(verdict: Verdict, text: str) -> None:
    if len(verdict.samples) < 5:
        verdict.samples.append(text)


def _as_it_is(found: Row) -> Row:
    return found


def audit(
    bootstrap: str,
    target: str,
    rows: int,
    partitions: int,
    group: tuple[str, str] | None = None,
    as_read: Callable[[Row], Row] = _as_it_is,
) -> Verdict:
    """Read the whole target and judge it. `group`: (consumer group, source topic), to compare the group's
    offsets with the source's end. `as_read`: a row of the target as it was in the source, where the query
    has changed it. Raises TimeoutError where nothing can be read."""
    consumer = _consumer(bootstrap, "read_committed")
    number = _partitions(consumer, target)
    held = _held_back(bootstrap, target, number)
    seen = ((where, as_read(found)) for where, found in _records(consumer, target, number))
    verdict = judge(seen, rows, partitions)
    consumer.close()
    verdict.held_back = held
    if group is not None:
        verdict.group_off = _group_off(bootstrap, *group)
    return verdict


def _consumer(bootstrap: str, isolation: str, group: str | None = None) -> Consumer:
    return Consumer({
        "bootstrap.servers": bootstrap, "group.id": group or uuid.uuid4().hex, "enable.auto.commit": False,
        "enable.partition.eof": True, "auto.offset.reset": "earliest", "isolation.level": isolation,
        "log_level": 2,
    })  # fmt: skip


def _partitions(consumer: Consumer, topic: str) -> int:
    return len(consumer.list_topics(topic, timeout=60).topics[topic].partitions)


def _records(consumer: Consumer, topic: str, partitions: int) -> Iterable[Seen]:
    """Every record that read_committed readers see, up to the end of each partition."""
    consumer.assign([TopicPartition(topic, p, 0) for p in range(partitions)])
    ended: set[int] = set()
    deadline = time.monotonic() + PATIENCE
    while len(ended) < partitions:
        for message in consumer.consume(10_000, 1.0):
            deadline = time.monotonic() + PATIENCE
            if message.error():
                ended.add(int(message.partition() or 0))
            else:
                yield int(message.partition() or 0), _row(message)
        if time.monotonic() > deadline:
            raise TimeoutError(f"{topic}: nothing to read for {PATIENCE} s; at their end: {ended}")


def _row(message: Message) -> Row:
    return Row(message.key(), message.value(), tuple(cast("list[Header]", message.headers() or [])))


def _held_back(bootstrap: str, topic: str, partitions: int) -> int:
    """Partitions whose committed end stays before their end: an open transaction holds readers back.

    Markers are on their way for a moment; a partition counts when that does not pass.
    """
    committed, plain = _consumer(bootstrap, "read_committed"), _consumer(bootstrap, "read_uncommitted")
    places = [TopicPartition(topic, p) for p in range(partitions)]
    deadline = time.monotonic() + PATIENCE
    while True:
        held = sum(end_of(committed, place) != end_of(plain, place) for place in places)
        if not held or time.monotonic() > deadline:
            committed.close()
            plain.close()
            return held
        time.sleep(0.2)


def end_of(consumer: Consumer, place: TopicPartition) -> int:
    """Where a partition ends for the consumer's readers."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return int(consumer.get_watermark_offsets(place, timeout=30)[1])
        except KafkaException as error:  # its leader has moved, and the client has not heard of it
            if error.args[0].code() not in _MOVING or time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def _group_off(bootstrap: str, group: str, source: str) -> int:
    """Partitions of the source where the group's committed offset is not the end."""
    consumer = _consumer(bootstrap, "read_committed", group)
    places = [TopicPartition(source, p) for p in range(_partitions(consumer, source))]
    off = [p for p in consumer.committed(places, timeout=60) if p.offset != end_of(consumer, p)]
    consumer.close()
    return len(off)

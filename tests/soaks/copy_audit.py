"""The independent auditor of the copy soaks: a stock client that reads committed rows, and counts.

Shares no code with the connector.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import cast

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from tests.soaks.copy_rows import Header, Id, Row, id_of, ids, row

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

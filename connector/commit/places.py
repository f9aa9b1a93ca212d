"""Where the rows of a batch are in the sink's partitions. Pure.

Brokers forget a transactional id, and the offsets of a group, after days without use. The log keeps the rows
and the markers: at a place that a transaction has written it shows how that transaction has ended.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import Enum
from itertools import repeat
from typing import Any, NamedTuple

from eoslog.connector.commit.task_reports import Prepared
from eoslog.protocol.producer_identity import ProducerIdentity
from eoslog.protocol.topic_partitions import TopicPartition


class Place(NamedTuple):
    """The last row that a transaction has written to a partition. `topic_id` None: brokers do not report it.
    `time_ms`: the largest timestamp of its record batch. Brokers that are put back to a copy give the same
    offsets and producer ids again, at a later time."""

    topic: str
    topic_id: str | None
    partition: int
    offset: int
    writer: ProducerIdentity
    time_ms: int

    def __str__(self) -> str:
        return f"offset {self.offset} of {self.topic}-{self.partition}"


def made_anew(topic: str, then: str | None, now: str | None) -> str:
    """What to say of a topic whose id is another one than then; "" if it is not, or is not known."""
    if None in (then, now) or then == now:
        return ""
    return f"topic {topic} was deleted and created again (its id was {then} and is {now})"


class Seen(Enum):
    """What the log shows at a place."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    OPEN = "in a transaction that is open"
    GONE = "not in the log"
    REMOVED = "removed since, by retention or compaction"
    REPLACED = "in a topic that is not there any more"
    HIDDEN = "not to be read by this user"


Places = tuple[Place, ...]


class OpenRows(NamedTuple):
    """The rows that a transaction has written to a partition: the offset of the first one, as far as brokers
    told it, and the sequence number of the last one; -1: not known."""

    where: TopicPartition
    offset: int
    writer: ProducerIdentity
    last_sequence: int = -1


class OpenThere(NamedTuple):
    """A transaction that is open in a partition: its first offset, and the sequence number of its writer's
    last record there; -1: not told."""

    offset: int
    last_sequence: int = -1


class PartitionState(NamedTuple):
    """A partition as its leader sees it. `begins`: the log's first offset; -1: not told. `opened`: the first
    offset of each transaction that is open there; None: not told."""

    begins: int
    opened: Mapping[ProducerIdentity, OpenThere] | None


def open_rows_of(reports: Iterable[Prepared]) -> tuple[OpenRows, ...]:
    """The rows of each task's transaction in each partition of which the first offset was told."""
    return tuple(
        OpenRows(where, offset, report.participant.identity, last)
        for report in reports
        for where, offset, last in zip(
            report.written, report.first_rows, report.last_sequences or repeat(-1), strict=False
        )
        if offset >= 0
    )


def told_by(
    writer: ProducerIdentity,
    first: Mapping[TopicPartition, int],
    last_sequence: Callable[[TopicPartition], int],
) -> tuple[OpenRows, ...]:
    """The rows of one transaction, of a producer's first offsets and last sequence numbers."""
    return tuple(OpenRows(where, offset, writer, last_sequence(where)) for where, offset in first.items())


def placed_by(
    writer: ProducerIdentity,
    last: Mapping[TopicPartition, tuple[int, int]],
    topic_ids: Mapping[str, str | None],
) -> Places:
    """The last row in each partition of one transaction, of a producer's last offsets and times."""
    return tuple(
        Place(topic, topic_ids.get(topic), partition, offset, writer, at)
        for (topic, partition), (offset, at) in sorted(last.items())
    )


def why_gone_from(rows: OpenRows, state: PartitionState) -> str:
    """Why rows of a transaction that is yet to be committed will never be visible; "": nothing shows that.
    What nobody could read yet was not deleted after it was read. A sequence number that is lower than the
    writer's last one says that acknowledged rows are gone: a leader was elected that did not have them."""
    (topic, partition), offset, writer, last = rows
    if state.begins > offset:
        return f"{topic}-{partition} begins at {state.begins}, and rows were written from {offset} on"
    there = None if state.opened is None else state.opened.get(writer, OpenThere(-1))
    if there is None or (-1 < there.offset <= offset and not -1 < there.last_sequence < last):
        return ""
    if -1 < there.offset <= offset:
        return (
            f"{topic}-{partition} has lost the last {last - there.last_sequence} rows of {writer}, which it "
            "had acknowledged"
        )
    later = f" before {there.offset}" if there.offset >= 0 else ""
    return f"{topic}-{partition} has no open transaction of {writer}{later}, and its rows begin at {offset}"


def why_unread(
    places: Places, writer: ProducerIdentity, logs: Mapping[TopicPartition, PartitionState]
) -> str:
    """Why rows of a decided transaction that is open can never be read; "": nothing shows that. Where its
    leader does not tell its first row, its last one counts, if `places` has it."""
    last = {(place.topic, place.partition): place.offset for place in places if place.writer == writer}
    first = {where: (state.opened or {}).get(writer) for where, state in logs.items()}
    rows = last | {where: there.offset for where, there in first.items() if there is not None}
    gone = [(where, at) for where, at in sorted(rows.items()) if where in logs and logs[where].begins > at]
    return "; ".join(f"{t}-{p} begins at {logs[t, p].begins}, and rows were at {at}" for (t, p), at in gone)


def places_of(reports: Sequence[Prepared]) -> Places:
    """The last place in each partition, and one of each transaction."""
    found = [
        Place(topic, dict(report.topic_ids).get(topic), partition, offset, report.participant.identity, at)
        for report in reports
        for (topic, partition), (offset, at) in zip(report.written, report.last_rows, strict=False)
        if offset >= 0
    ]
    found.sort(key=lambda place: place.offset)
    last = {place[:3]: place for place in found}
    told = {place.writer for place in last.values()}
    of_writers = {place.writer: place for place in found if place.writer not in told}
    return tuple(sorted((*last.values(), *of_writers.values()), key=_order))


def outlasting(
    earlier: Iterable[Place], later: Iterable[Place], written: Collection[TopicPartition] = ()
) -> Places:
    """The last one of `earlier`, which are in the order in which they were written, in each partition where
    `later` has none, and whose topic was not made anew since. `written`: where rows went later, although
    perhaps no place of them is known: then none of `earlier` is the last one there."""
    newer = by_partition(later)
    topics = {place.topic: place.topic_id for place in newer.values()}
    return tuple(
        place
        for where, place in by_partition(earlier).items()
        if where not in newer
        and where not in written
        and topics.get(place.topic, place.topic_id) == place.topic_id
    )


def by_partition(places: Iterable[Place]) -> dict[TopicPartition, Place]:
    """The last one of each partition, in the order in which they were written."""
    return {(place.topic, place.partition): place for place in places}


def _order(place: Place) -> tuple[Any, ...]:
    return place.topic, place.topic_id or "", *place[2:]


def to_json(places: Iterable[Place]) -> list[list[Any]]:
    """A topic's places in a list: its name, its id, then partition, offset, writer and time of each."""
    topics: dict[tuple[str, str | None], list[list[int]]] = {}
    for place in places:
        numbers = [place.partition, place.offset, *place.writer, place.time_ms]
        topics.setdefault((place.topic, place.topic_id), []).append(numbers)
    return [[topic, number, *found] for (topic, number), found in topics.items()]


def from_json(topics: Iterable[Sequence[Any]]) -> Places:
    """The reverse of to_json. Raises ValueError, TypeError."""
    return tuple(
        Place(str(topic), number, int(partition), int(offset), ProducerIdentity(producer, epoch), int(at))
        for topic, number, *found in topics
        for partition, offset, producer, epoch, at in found
    )


def ended(seen: Mapping[Place, Seen]) -> dict[ProducerIdentity, Seen]:
    """How each transaction has ended: one place that shows it is enough. Else a topic that is not there any
    more says most: what the others show may be of another cluster."""
    known = {place.writer: how for place, how in seen.items()}
    known |= {place.writer: how for place, how in seen.items() if how is Seen.REPLACED}
    return known | {place.writer: how for place, how in seen.items() if how in (Seen.COMMITTED, Seen.ABORTED)}

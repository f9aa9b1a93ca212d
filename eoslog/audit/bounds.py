"""What is audited: partitions and offsets, fixed before reading starts, so that the audit of a live topic
ends.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from eoslog.client.admin.topics import EARLIEST, LATEST, list_offsets
from eoslog.client.wire.cluster import Cluster
from eoslog.errors import EoslogError
from eoslog.protocol.topic_partitions import TopicPartition

_OFFSET = re.compile(r"(?:(?P<topic>[^:,]+):)?(?P<partition>\d+):(?P<offset>\d+)")


class BadBound(EoslogError):
    """A bound that is not valid, or that the log does not reach."""


@dataclass(frozen=True)
class Bound:
    """Where partitions begin or end: `special` EARLIEST or LATEST, a time (ms since 1970), or offsets.

    Partitions without an offset of their own begin at the log's start, and end at its end.
    """

    option: str
    special: int | None = None
    timestamp: int | None = None
    offsets: Mapping[tuple[str | None, int], int] = field(default_factory=dict)

    @classmethod
    def parse(cls, option: str, text: str) -> Bound:
        """Make a bound of `earliest`, `latest`, a time as 2026-11-21T10:00:00+01:00, or
        `[TOPIC:]PARTITION:OFFSET,...`.

        Raises BadBound, which names the option.
        """
        if text in ("earliest", "latest"):
            return cls(option, special=EARLIEST if text == "earliest" else LATEST)
        try:
            return cls(option, timestamp=int(datetime.fromisoformat(text).timestamp() * 1000))
        except ValueError:
            pass  # not a time: parse it as offsets
        found = [_OFFSET.fullmatch(piece.strip()) for piece in text.split(",")]
        offsets = {(m["topic"], int(m["partition"])): int(m["offset"]) for m in found if m is not None}
        if len(offsets) < len(found):
            raise BadBound(
                f"{option} {text}: give earliest, latest, a time as 2026-11-21T10:00:00+01:00, or offsets as "
                "0:1200,1:900 (with several topics as orders:0:1200)"
            )
        return cls(option, offsets=offsets)

    def offset_of(self, where: TopicPartition) -> int | None:
        """The offset given for a partition."""
        return self.offsets.get(where, self.offsets.get((None, where[1])))


@dataclass(frozen=True)
class AuditedRange:
    """A partition and the offsets start..end-1 of it that are audited."""

    topic: str
    topic_id: str | None
    partition: int
    start: int
    end: int
    hidden: int = 0
    """Offsets after `end` that no reader may see yet, because of an open transaction."""

    @property
    def size(self) -> int:
        """Offsets to read; there are at most as many records."""
        return self.end - self.start

    def where(self, position: int) -> dict[str, Any]:
        """An offset of it, for the report."""
        return {"topic": self.topic, "partition": self.partition, "offset": position}

    def described(self, records: int) -> dict[str, Any]:
        """What was read of it, for the report."""
        return {
            "topic": self.topic, "partition": self.partition, "start": self.start, "end": self.end,
            "records": records, "hidden_by_open_transactions": self.hidden,
        }  # fmt: skip

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def places(
    cluster: Cluster, topics: Sequence[str], start: Bound, end: Bound, *, committed: bool
) -> list[AuditedRange]:
    """All partitions of the topics, with their bounds. Raises BadBound, UnknownTopic, KafkaError,
    EoslogError.
    """
    described = {name: cluster.describe(name) for name in dict.fromkeys(topics)}
    where = [(name, partition) for name, info in described.items() for partition in sorted(info.leaders)]
    _check_names(start, where)
    _check_names(end, where)
    firsts = list_offsets(cluster, dict.fromkeys(where, EARLIEST), committed=committed)
    lasts = list_offsets(cluster, dict.fromkeys(where, LATEST), committed=committed)
    marks = list_offsets(cluster, dict.fromkeys(where, LATEST), committed=False)
    starts = _offsets(cluster, start, firsts, lasts, firsts)
    ends = _offsets(cluster, end, firsts, lasts, lasts)
    return [
        AuditedRange(
            name, described[name].topic_id, partition,
            min(starts[name, partition], ends[name, partition]), ends[name, partition],
            _hidden(ends[name, partition], lasts[name, partition], marks[name, partition]),
        )
        for name, partition in where
    ]  # fmt: skip


def settled(cluster: Cluster, sources: Sequence[AuditedRange], before_ms: int) -> list[int]:
    """For each place, the offset of its first record at or after `before_ms`; its end if there is none."""
    asked = {(place.topic, place.partition): before_ms for place in sources}
    found = list_offsets(cluster, asked, committed=False)
    offsets = [found[place.topic, place.partition] for place in sources]
    return [
        place.end if offset < 0 else min(offset, place.end)
        for place, offset in zip(sources, offsets, strict=True)
    ]


def _hidden(end: int, stable: int, mark: int) -> int:
    return max(mark - stable, 0) if end == stable else 0


def _check_names(bound: Bound, where: Sequence[TopicPartition]) -> None:
    for topic, partition in bound.offsets:
        if not any(partition == number and topic in (None, name) for name, number in where):
            name = f"{topic or where[0][0]}-{partition}"
            raise BadBound(f"{bound.option}: there is no partition {name}")


def _offsets(
    cluster: Cluster,
    bound: Bound,
    firsts: Mapping[TopicPartition, int],
    lasts: Mapping[TopicPartition, int],
    default: Mapping[TopicPartition, int],
) -> dict[TopicPartition, int]:
    if bound.special is not None:
        return dict(firsts if bound.special == EARLIEST else lasts)
    if bound.timestamp is not None:
        found = list_offsets(cluster, dict.fromkeys(firsts, bound.timestamp), committed=False)
        return {where: lasts[where] if at < 0 else min(at, lasts[where]) for where, at in found.items()}
    given = {where: bound.offset_of(where) for where in firsts}
    for where, offset in given.items():
        if offset is not None and not firsts[where] <= offset <= lasts[where]:
            raise BadBound(
                f"{bound.option}: offset {offset} of {where[0]}-{where[1]} does not exist, its log has "
                f"{firsts[where]} to {lasts[where]}"
            )
    return {where: default[where] if at is None else at for where, at in given.items()}

"""Where an edit sets a query to: the options that say so, and the offset of each partition that they mean."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

import click

from eoslog.checkpoint.edit_numbers import NotEditable
from eoslog.checkpoint.standing import SourcePlace, lowest
from eoslog.client.admin.topics import EARLIEST, LATEST, list_offsets
from eoslog.client.wire.cluster import Cluster
from eoslog.connector.offsets.offsets import AtTime, Offsets, SourcePosition, parse_bound
from eoslog.protocol.topic_partitions import TopicPartition

TO_HELP = 'earliest, latest, a time as 2026-11-21T10:00:00+01:00, or offsets as {"orders":{"0":1200,"1":-1}}'


@dataclass(frozen=True)
class Target:
    """One of: EARLIEST or LATEST for every partition, offsets (or -2, -1) of some, a time, a shift by `by`
    offsets."""

    special: int | None = None
    offsets: Mapping[TopicPartition, int] | None = None
    time_ms: int | None = None
    by: int | None = None

    @classmethod
    def parse(cls, to: str | None, by: int | None) -> Target:
        """Make a target of --to or --by. Raises click.UsageError, OptionError."""
        if (to is None) == (by is None):
            raise click.UsageError("give one of --to and --by")
        if to is None:
            return cls(by=by)
        try:
            return cls(time_ms=int(datetime.fromisoformat(to).timestamp() * 1000))
        except ValueError:
            bound = parse_bound("--to", to)  # not a time
        assert not isinstance(bound, (AtTime, SourcePosition))  # which startingOffsets alone may be
        return cls(special=bound) if isinstance(bound, int) else cls(offsets=bound)


@dataclass(frozen=True)
class LogBounds:
    """Where the log of each partition begins, and where a reader of it ends."""

    first: Offsets
    end: Offsets

    @classmethod
    def of(cls, cluster: Cluster, partitions: list[TopicPartition], *, committed: bool) -> LogBounds:
        """Ask. Raises UnknownTopic, KafkaError, RetriesExhausted."""
        if not partitions:
            return cls({}, {})
        first = list_offsets(cluster, dict.fromkeys(partitions, EARLIEST), committed=False)
        return cls(first, list_offsets(cluster, dict.fromkeys(partitions, LATEST), committed=committed))

    @classmethod
    def of_those_there(
        cls, cluster: Cluster, partitions: Iterable[TopicPartition], *, committed: bool
    ) -> LogBounds:
        """The same, without partitions that do not exist (any more). Raises KafkaError, RetriesExhausted."""
        wanted = sorted({*partitions})
        there = cluster.metadata(sorted({topic for topic, _ in wanted})).topics if wanted else {}
        known = [(t, p) for t, p in wanted if t in there and p in there[t].leaders]
        return cls.of(cluster, known, committed=committed)


def with_new_partitions(cluster: Cluster, stands: Mapping[SourcePlace, int]) -> dict[SourcePlace, int]:
    """Where the query stands; in partitions that its topics have got since, at their beginning."""
    reads = sorted({place[:2] for place in stands})
    there = cluster.metadata(sorted({topic for _, topic in reads})).topics if reads else {}
    new = [
        (source, topic, partition)
        for source, topic in reads
        if topic in there
        for partition in there[topic].leaders
        if (source, topic, partition) not in stands
    ]
    first = LogBounds.of(cluster, sorted({place[1:] for place in new}), committed=False).first
    return {**stands, **{place: first[place[1:]] for place in new}}


def resolve(
    cluster: Cluster, target: Target, at: Mapping[SourcePlace, int], bounds: LogBounds, *, back: bool | None
) -> dict[SourcePlace, int]:
    """The new offset of each place. `back`: no offset may rise, as in a rewind; False: none may fall; None:
    only one that is given may.

    A word, a time or a shift leaves a partition alone that it would move the other way. Raises NotEditable.
    """
    stands = lowest(at)
    wanted = _wanted(cluster, target, at, bounds)
    explicit = target.offsets is not None
    found = {}
    for place, now in at.items():
        where = place[1:]
        new = wanted.get(place, now)
        if (new > now) if back else (new < now):
            if explicit and back is not None:
                other = "skip-to" if back else "rewind"
                raise NotEditable(
                    f"{_name(where)} stands at {now}, and --to says {new}: use eoslog checkpoint {other}"
                )
            new = new if explicit else now
        if new != now and not bounds.first[where] <= new <= bounds.end[where]:
            raise NotEditable(
                f"offset {new} of {_name(where)} is not in the log, which has {bounds.first[where]} to "
                f"{bounds.end[where]}: give --to within it"
            )
        found[place] = new
    unknown = sorted({*(target.offsets or ())} - {*stands})
    if unknown:
        raise NotEditable(
            f"--to: the query does not read {_name(unknown[0])}. It reads "
            f"{', '.join(map(_name, sorted(stands)))}. To have it read a topic more: eoslog checkpoint "
            "add-topic"
        )
    return found


def _wanted(
    cluster: Cluster, target: Target, at: Mapping[SourcePlace, int], bounds: LogBounds
) -> dict[SourcePlace, int]:
    words = {EARLIEST: bounds.first, LATEST: bounds.end}
    if target.by is not None:
        return {
            place: min(max(now + target.by, bounds.first[place[1:]]), bounds.end[place[1:]])
            for place, now in at.items()
        }
    if target.special is not None:
        return {place: words[target.special][place[1:]] for place in at}
    if target.time_ms is not None:
        times = list_offsets(cluster, {place[1:]: target.time_ms for place in at}, committed=False)
        return {place: bounds.end[place[1:]] if times[place[1:]] < 0 else times[place[1:]] for place in at}
    given = target.offsets or {}
    return {
        place: words[given[place[1:]]][place[1:]] if given[place[1:]] in words else given[place[1:]]
        for place in at
        if place[1:] in given
    }


def _name(where: TopicPartition) -> str:
    return f"{where[0]}-{where[1]}"

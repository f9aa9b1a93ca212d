"""From two looks to what is shown: rates, sizes, lag, ages. Pure.

A rate is what was added between the looks, over the time between them; without an earlier look there is none.
A partition whose end went back (a topic made anew) or whose log got smaller (retention) adds nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from eoslog.top.look import Look, Partition, TopicPartition


@dataclass(frozen=True)
class Row:
    """Partitions summed up: of a topic, of a broker's leaders, or of all. Rates a second, None: not known."""

    name: str
    partitions: int
    records: int
    """Offsets between start and end: markers and what compaction took out are counted too."""
    size: int | None
    records_rate: float | None
    bytes_rate: float | None
    held: int
    """Offsets that open transactions hide from read_committed readers."""


@dataclass(frozen=True)
class Lag:
    """A group; `behind` counts offsets up to the end of what it has committed, None where that is unknown."""

    name: str
    state: str
    kind: str
    partitions: int
    behind: int | None


@dataclass(frozen=True)
class Age:
    """An open transaction; `seconds` since it began, None where that is not told."""

    transactional_id: str
    state: str
    seconds: float | None
    partitions: int


@dataclass(frozen=True)
class Figures:
    """All that is shown of a look."""

    cluster_id: str | None
    now_ms: int
    total: Row
    brokers: list[Row]
    topics: list[Row]
    groups: list[Lag]
    transactions: list[Age]
    without_leader: int
    problems: list[str]


Key = Callable[[Row], float]
SORTS: dict[str, Key] = {
    "records": lambda row: -(row.records_rate or 0),
    "bytes": lambda row: -(row.bytes_rate or 0),
    "size": lambda row: -(row.size or 0),
    "held": lambda row: -row.held,
    "name": lambda row: 0,
}
"""How topics may be sorted; equal ones by name."""


def figures(look: Look, before: Look | None, *, sort: str = "records", internal: bool = False) -> Figures:
    """What is to be shown; `internal`: the topics that brokers keep for themselves, too."""
    seconds = 0.0 if before is None else look.at - before.at
    earlier = {} if before is None or seconds <= 0 else before.partitions

    def row(name: str, chosen: Iterable[TopicPartition]) -> Row:
        return _row(name, {where: look.partitions[where] for where in chosen}, earlier, seconds)

    by_topic: dict[str, list[TopicPartition]] = {}
    by_broker: dict[int, list[TopicPartition]] = {broker.node: [] for broker in look.brokers}
    for where, partition in look.partitions.items():
        by_topic.setdefault(where[0], []).append(where)
        by_broker.setdefault(partition.leader, []).append(where)
    shown = [name for name in sorted(by_topic) if internal or name not in look.internal]
    return Figures(
        look.cluster_id,
        look.now_ms,
        row("", look.partitions),
        [row(f"{broker.node} {broker.address}", by_broker[broker.node]) for broker in look.brokers],
        sorted((row(name, by_topic[name]) for name in shown), key=SORTS[sort]),
        sorted(_lags(look), key=lambda lag: (-(lag.behind or 0), lag.name)),
        sorted(_ages(look), key=lambda age: (-(age.seconds or 0), age.transactional_id)),
        look.without_leader,
        look.problems,
    )


def _row(
    name: str,
    partitions: dict[TopicPartition, Partition],
    earlier: dict[TopicPartition, Partition],
    seconds: float,
) -> Row:
    pairs = [(now, earlier[where]) for where, now in partitions.items() if where in earlier]
    sizes = [now.size for now in partitions.values() if now.size is not None]
    grown = [
        max(now.size - was.size, 0) for now, was in pairs if now.size is not None and was.size is not None
    ]
    return Row(
        name,
        len(partitions),
        sum(now.end - now.start for now in partitions.values()),
        sum(sizes) if sizes or not partitions else None,
        sum(max(now.end - was.end, 0) for now, was in pairs) / seconds if earlier else None,
        sum(grown) / seconds if earlier and (grown or not pairs) else None,
        sum(now.end - now.stable for now in partitions.values()),
    )


def _lags(look: Look) -> Iterable[Lag]:
    for group in look.groups:
        known = [
            max(look.partitions[where].end - offset, 0)
            for where, offset in group.committed.items()
            if where in look.partitions
        ]
        yield Lag(group.name, group.state, group.kind, len(group.committed), sum(known) if known else None)


def _ages(look: Look) -> Iterable[Age]:
    for found in look.transactions:
        seconds = None if found.began_ms is None else max(look.now_ms - found.began_ms, 0) / 1000
        yield Age(found.transactional_id, found.state, seconds, found.partitions)

"""Turns two snapshots into what is shown: rates, sizes, lag, ages. Pure.

A rate is what was added between the snapshots, divided by the time between them; the first snapshot has none.
A partition adds nothing if its end went back (the topic was created again) or its log got smaller
(retention).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from eoslog.protocol.names_by_sink import made, sinks_of_groups, sinks_of_ids
from eoslog.protocol.topic_partitions import TopicPartition
from eoslog.top.cluster_snapshot import ClusterSnapshot, PartitionView
from eoslog.top.display_options import (
    AGE_SORTS,
    DEFAULT,
    GROUP_SORTS,
    SINK_SORTS,
    TOPIC_SORTS,
    DisplayOptions,
)
from eoslog.top.rows import Age, Figures, Lag, Row


def figures(look: ClusterSnapshot, before: ClusterSnapshot | None, wish: DisplayOptions = DEFAULT) -> Figures:
    """What to show of a snapshot, with rates since the one before."""
    seconds = 0.0 if before is None else look.at - before.at
    earlier = {} if before is None or seconds <= 0 else before.partitions

    def row(name: str, chosen: Iterable[TopicPartition]) -> Row:
        return _row(name, {where: look.partitions[where] for where in chosen}, earlier, seconds)

    by_topic: dict[str, list[TopicPartition]] = {}
    by_broker: dict[int, list[TopicPartition]] = {broker.node: [] for broker in look.brokers}
    for where, partition in look.partitions.items():
        by_topic.setdefault(where[0], []).append(where)
        by_broker.setdefault(partition.leader, []).append(where)
    names = [
        name for name in sorted(by_topic) if wish.has(name) and (wish.internal or name not in look.internal)
    ]
    topics = [row(name, by_topic[name]) for name in names]
    ids, groups = _sinks(look, wish)
    lags = [lag for lag in _lags(look, groups) if wish.has(lag.name)]
    ages = list(_ages(look, ids))
    opened = {age.transactional_id: age.seconds for age in ages}
    shown = [age for age in ages if wish.has(age.transactional_id)]
    return Figures(
        look.cluster_id,
        look.now_ms,
        row("", look.partitions),
        [row(f"{broker.node} {broker.address}", by_broker[broker.node]) for broker in look.brokers],
        sorted(topics, key=TOPIC_SORTS[wish.topics]),
        sorted(lags, key=lambda lag: (*GROUP_SORTS[wish.groups](lag), lag.name)),
        sorted(shown, key=lambda age: (*AGE_SORTS[wish.transactions](age), age.transactional_id)),
        look.without_leader,
        look.problems,
        sorted(made(ids, groups, opened), key=SINK_SORTS[wish.transactions]),
    )


def _sinks(look: ClusterSnapshot, wish: DisplayOptions) -> tuple[dict[str, str], dict[str, str]]:
    """The sink of each transactional id and of each group that a sink made, if the filter shows it."""
    groups = sinks_of_groups({group.name: {topic for topic, _ in group.committed} for group in look.groups})
    names = {*look.ids, *(found.transactional_id for found in look.transactions)}
    ids = sinks_of_ids(names, groups.values())
    return _wished(ids, wish), _wished(groups, wish)


def _wished(sinks: dict[str, str], wish: DisplayOptions) -> dict[str, str]:
    return {name: sink for name, sink in sinks.items() if wish.has(name) or wish.has(sink)}


def _row(
    name: str,
    partitions: dict[TopicPartition, PartitionView],
    earlier: dict[TopicPartition, PartitionView],
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


def _lags(look: ClusterSnapshot, sinks: Mapping[str, str]) -> Iterable[Lag]:
    for group in look.groups:
        sink = sinks.get(group.name)
        known = [
            max(look.partitions[where].end - offset, 0)
            for where, offset in group.committed.items()
            if where in look.partitions and sink is None
        ]
        behind = sum(known) if known else None
        yield Lag(group.name, group.state, group.kind, len(group.committed), behind, sink)


def _ages(look: ClusterSnapshot, sinks: Mapping[str, str]) -> Iterable[Age]:
    for found in look.transactions:
        name = found.transactional_id
        seconds = None if found.began_ms is None else max(look.now_ms - found.began_ms, 0) / 1000
        yield Age(name, found.state, seconds, found.partitions, sinks.get(name))

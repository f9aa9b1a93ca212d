"""Turns two snapshots into what is shown: rates, sizes, lag, ages. Pure.

A rate is what was added between the snapshots, divided by the time between them; the first snapshot has none.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from eoslog.protocol.names_by_sink import made, sinks_of_groups, sinks_of_ids
from eoslog.protocol.topic_partitions import TopicPartition
from eoslog.top.cluster_snapshot import ClusterSnapshot
from eoslog.top.columns import (
    DEFAULT,
    GROUPS,
    SINKS,
    TOPICS,
    TRANSACTIONS,
    DisplayOptions,
    Group,
    Partitions,
    Row,
    Transaction,
)


@dataclass(frozen=True)
class Figures:
    """All that is shown of a snapshot: a page."""

    cluster_id: str | None
    now_ms: int
    total: Row
    brokers: list[Row]
    topics: list[Row]
    groups: list[Row]
    transactions: list[Row]
    without_leader: int
    problems: list[str]
    sinks: list[Row]
    """What eoslog's sinks made, one line each; their ids and groups are in the other lists too."""


def figures(look: ClusterSnapshot, before: ClusterSnapshot | None, wish: DisplayOptions = DEFAULT) -> Figures:
    """What to show of a snapshot, with rates since the one before."""
    seconds = 0.0 if before is None else look.at - before.at
    earlier = {} if before is None or seconds <= 0 else before.partitions

    def row(name: str, chosen: Iterable[TopicPartition]) -> Row:
        now = {where: look.partitions[where] for where in chosen}
        return TOPICS.row(Partitions(name, now, earlier, seconds))

    by_topic: dict[str, list[TopicPartition]] = {}
    by_broker: dict[int, list[TopicPartition]] = {broker.node: [] for broker in look.brokers}
    for where, partition in look.partitions.items():
        by_topic.setdefault(where[0], []).append(where)
        by_broker.setdefault(partition.leader, []).append(where)
    names = [name for name in by_topic if wish.has(name) and (wish.internal or name not in look.internal)]
    ids, sinks = _sinks(look, wish)
    groups = [Group(group, sinks.get(group.name), look.partitions) for group in look.groups]
    opened = [Transaction(one, ids.get(one.transactional_id), look.now_ms) for one in look.transactions]
    ages = {one.seen.transactional_id: one.seconds for one in opened}
    return Figures(
        look.cluster_id,
        look.now_ms,
        row("", look.partitions),
        [row(f"{broker.node} {broker.address}", by_broker[broker.node]) for broker in look.brokers],
        TOPICS.in_order([row(name, by_topic[name]) for name in names], wish),
        GROUPS.in_order([GROUPS.row(one) for one in groups if wish.has(one.seen.name)], wish),
        TRANSACTIONS.in_order(
            [TRANSACTIONS.row(one) for one in opened if wish.has(one.seen.transactional_id)], wish
        ),
        look.without_leader,
        look.problems,
        SINKS.in_order(map(SINKS.row, made(ids, sinks, ages)), wish),
    )


def _sinks(look: ClusterSnapshot, wish: DisplayOptions) -> tuple[dict[str, str], dict[str, str]]:
    """The sink of each transactional id and of each group that a sink made, if the filter shows it."""
    groups = sinks_of_groups({group.name: group.topics for group in look.groups})
    names = {*look.ids, *(found.transactional_id for found in look.transactions)}
    ids = sinks_of_ids(names, groups.values())
    return _wished(ids, wish), _wished(groups, wish)


def _wished(sinks: dict[str, str], wish: DisplayOptions) -> dict[str, str]:
    return {name: sink for name, sink in sinks.items() if wish.has(name) or wish.has(sink)}

"""A snapshot of a cluster: its brokers, partitions, groups and open transactions."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from eoslog.client.admin import transaction_states
from eoslog.client.admin.groups import ListedGroup, fetch_committed, list_groups
from eoslog.client.admin.topics import EARLIEST, LATEST, list_offsets
from eoslog.client.admin.transaction_states import ENDED
from eoslog.client.wire.cluster import Cluster, ClusterMetadata
from eoslog.client.wire.retry import check
from eoslog.errors import EoslogError, UnknownTopic
from eoslog.protocol.errors import KafkaError
from eoslog.protocol.names_by_sink import ANCHOR, is_anchor
from eoslog.protocol.topic_partitions import TopicPartition
from eoslog.protocol.typed import DESCRIBE_LOG_DIRS

T = TypeVar("T")

_TRIES = 3


@dataclass(frozen=True)
class PartitionView:
    """`start`, `stable` (the end for read_committed readers) and `end` (the high watermark) are offsets."""

    leader: int
    start: int
    stable: int
    end: int
    size: int | None = None
    """Bytes of its log on the leader; None: unknown."""


@dataclass(frozen=True)
class BrokerView:
    """A broker that answers."""

    node: int
    address: str


@dataclass(frozen=True)
class GroupView:
    """A consumer group with the offsets it has committed. `notes`: those that hold a sink's notes, and are no
    places in a topic."""

    name: str
    state: str
    kind: str
    committed: dict[TopicPartition, int] = field(default_factory=dict)
    notes: frozenset[TopicPartition] = frozenset()

    @property
    def topics(self) -> set[str]:
        """The topics that it has committed offsets of; ANCHOR for notes, whatever topic keeps them."""
        return {ANCHOR if where in self.notes else where[0] for where in self.committed}

    @property
    def places(self) -> dict[TopicPartition, int]:
        """Its committed offsets that are places in a topic."""
        return {where: offset for where, offset in self.committed.items() if where not in self.notes}


@dataclass(frozen=True)
class Open:
    """An open transaction. `began_ms` is its start in ms since 1970, None if unknown."""

    transactional_id: str
    state: str
    began_ms: int | None
    partitions: int


@dataclass(frozen=True)
class ClusterSnapshot:
    """The state of a cluster at `at` (seconds of a monotonic clock) and `now_ms` (since 1970)."""

    at: float
    now_ms: int
    cluster_id: str | None
    brokers: list[BrokerView]
    partitions: dict[TopicPartition, PartitionView]
    internal: frozenset[str]
    without_leader: int
    groups: list[GroupView]
    transactions: list[Open]
    problems: list[str]
    """What could not be read, and why."""
    ids: list[str] = field(default_factory=list)
    """Every transactional id, open or not."""


def look(cluster: Cluster) -> ClusterSnapshot:
    """Read the cluster's state. If groups, transactions or sizes are refused, `problems` says so.

    Raises EoslogError and KafkaError if brokers or offsets cannot be read.
    """
    for _ in range(_TRIES - 1):
        try:
            return _look(cluster)
        except UnknownTopic:
            continue  # a topic was deleted in the meantime: the next answer is without it
    return _look(cluster)


def _look(cluster: Cluster) -> ClusterSnapshot:
    problems: list[str] = []
    seen = cluster.metadata(None)
    leaders = {
        (name, number): leader
        for name, info in seen.topics.items()
        for number, leader in info.leaders.items()
        if leader in seen.nodes
    }
    partitions = _partitions(cluster, leaders, _or_problem(problems, lambda: _sizes(cluster, seen), {}))
    no_groups: list[GroupView] = []
    nothing: tuple[list[str], list[Open]] = [], []
    groups = _or_problem(problems, lambda: _groups(cluster), no_groups)
    ids, opened = _or_problem(problems, lambda: _transactions(cluster), nothing)
    return ClusterSnapshot(
        at=time.monotonic(),
        now_ms=int(time.time() * 1000),
        cluster_id=seen.cluster_id,
        brokers=[BrokerView(node, f"{host}:{port}") for node, (host, port) in sorted(seen.nodes.items())],
        partitions=partitions,
        internal=frozenset(name for name, info in seen.topics.items() if info.internal),
        without_leader=sum(len(info.leaders) for info in seen.topics.values()) - len(leaders),
        groups=groups,
        transactions=opened,
        problems=problems,
        ids=ids,
    )


def _or_problem(problems: list[str], ask: Callable[[], T], otherwise: T) -> T:
    """The result of `ask`; if it is refused, `otherwise` and a line in `problems`."""
    try:
        return ask()
    except (EoslogError, KafkaError) as error:
        problems.append(str(error))
        return otherwise


def _partitions(
    cluster: Cluster, leaders: dict[TopicPartition, int], sizes: dict[tuple[int, str, int], int]
) -> dict[TopicPartition, PartitionView]:
    starts = list_offsets(cluster, dict.fromkeys(leaders, EARLIEST), committed=False)
    stables = list_offsets(cluster, dict.fromkeys(leaders, LATEST), committed=True)
    ends = list_offsets(cluster, dict.fromkeys(leaders, LATEST), committed=False)
    return {
        where: PartitionView(leader, starts[where], stables[where], ends[where], sizes.get((leader, *where)))
        for where, leader in leaders.items()
    }


def _sizes(cluster: Cluster, seen: ClusterMetadata) -> dict[tuple[int, str, int], int]:
    """Bytes of each log by (node, topic, partition)."""
    nodes = {address: node for node, address in seen.nodes.items()}
    sizes = {}
    for connection in cluster.brokers():
        node = nodes.get((connection.host, connection.port))
        answer = connection.call(DESCRIBE_LOG_DIRS, {"topics": None})
        name = f"sizes of logs on {connection.host}:{connection.port}"
        check(answer["error_code"], name)
        for directory in answer["results"]:
            check(directory["error_code"], f"{name}, {directory['log_dir']}")
            for topic in directory["topics"]:
                for part in topic["partitions"]:
                    if node is not None and not part["is_future_key"]:
                        sizes[node, topic["name"], part["partition_index"]] = part["partition_size"]
    return sizes


def _groups(cluster: Cluster) -> list[GroupView]:
    return [_group(cluster, found) for found in list_groups(cluster)]


def _group(cluster: Cluster, found: ListedGroup) -> GroupView:
    committed = fetch_committed(cluster, found.group, None, require_stable=False)
    notes = {where for where, (_, said) in committed.items() if is_anchor(found.group, where[0], said)}
    offsets = {where: offset for where, (offset, _) in committed.items()}
    return GroupView(found.group, found.state, found.kind, offsets, frozenset(notes))


def _transactions(cluster: Cluster) -> tuple[list[str], list[Open]]:
    """All transactional ids, and the transactions that are open."""
    listed = transaction_states.list_transactions(cluster, "")
    names = [found.transactional_id for found in listed if found.state not in ENDED]
    described = transaction_states.describe(cluster, names) if names else {}
    return [found.transactional_id for found in listed], [
        Open(name, found.state, found.start_ms if found.start_ms >= 0 else None, len(found.partitions))
        for name, found in described.items()
        if found is not None and found.state not in ENDED
    ]

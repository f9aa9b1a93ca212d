"""Topics as brokers describe them, their configs, DeleteTopics, and where partitions begin and end."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from eoslog.client.wire.cluster import Cluster, ask_controller
from eoslog.client.wire.config import Address
from eoslog.client.wire.connection import BrokerConnection
from eoslog.client.wire.retry import check, retrying
from eoslog.errors import RetriesExhausted
from eoslog.errors.pages import see
from eoslog.protocol import errors
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.errors import ErrorCode
from eoslog.protocol.topic_partitions import TopicPartition, by_topic
from eoslog.protocol.typed import (
    DELETE_TOPICS,
    DESCRIBE_CONFIGS,
    LIST_OFFSETS,
    METADATA,
    OFFSET_FOR_LEADER_EPOCH,
)

if TYPE_CHECKING:
    from eoslog.protocol.typed import (
        DeleteTopicsRequestDraft,
        DeleteTopicsResponse,
        DeleteTopicsResponseResponse,
        DescribeConfigsRequestResourceDraft,
        ListOffsetsRequestDraft,
        ListOffsetsRequestPartitionDraft,
        MetadataRequestDraft,
        MetadataResponsePartition,
        OffsetForLeaderEpochRequestPartitionDraft,
        OffsetForLeaderEpochRequestTopicDraft,
    )

# -- topics ----------------------------------------------------------------------------------------
# Topics as brokers describe them (Metadata), their configs (DescribeConfigs), DeleteTopics.


TOPIC = 2  # resource type of DescribeConfigs
WAIT_MS = 30_000
"""How long a controller may take for a change of topics."""
_PAUSE_SECONDS = 0.05
_BY_NAME = 12  # the newest version of Metadata here; it can ask for topics by name
_DELETED_BY_NAME = 5  # the last version of DeleteTopics that takes only names
_UNKNOWN = (errors.UnknownTopicOrPartition,)


@dataclass(frozen=True)
class DescribedTopic:
    """A topic as Metadata describes it; `partitions` has its partitions' messages, by number."""

    name: str
    topic_id: bytes
    internal: bool
    partitions: dict[int, MetadataResponsePartition]


def describe_topics(cluster: Cluster, names: Iterable[str] | None = None) -> dict[str, DescribedTopic]:
    """The topics of these names, or all. Raises KafkaError UNKNOWN_TOPIC_OR_PARTITION, which names one."""
    body: MetadataRequestDraft = {
        "topics": None if names is None else [{"name": name} for name in names],
        "allow_auto_topic_creation": False,
    }

    def attempt() -> dict[str, DescribedTopic]:
        answer = cluster.any_broker().call(METADATA, body, max_version=_BY_NAME)
        found = {}
        for topic in answer["topics"]:
            name = topic["name"] or ""  # null only for an unknown id, and this asks by name
            check(topic["error_code"], f"topic {name}")
            partitions = {part["partition_index"]: part for part in topic["partitions"]}
            found[name] = DescribedTopic(
                name, topic["topic_id"], topic["is_internal"], dict(sorted(partitions.items()))
            )
        return dict(sorted(found.items()))

    return retrying(cluster, "Metadata", attempt, final=_UNKNOWN)


def topic_configs(cluster: Cluster, topics: Iterable[str], names: Iterable[str]) -> dict[str, dict[str, str]]:
    """The values of the configs `names` of each topic, as text. Raises KafkaError, RetriesExhausted."""
    wanted = list(names)
    resources: list[DescribeConfigsRequestResourceDraft] = [
        {"resource_type": TOPIC, "resource_name": topic, "configuration_keys": wanted} for topic in topics
    ]

    def attempt() -> dict[str, dict[str, str]]:
        answer = cluster.ask_any(DESCRIBE_CONFIGS, {"resources": resources}, max_version=4)
        found = {}
        for result in answer["results"]:
            check(result["error_code"], f"DescribeConfigs of topic {result['resource_name']}")
            found[result["resource_name"]] = {c["name"]: c["value"] or "" for c in result["configs"]}
        return found

    return retrying(cluster, "DescribeConfigs", attempt)


def delete_topics(cluster: Cluster, names: Sequence[str]) -> list[DeleteTopicsResponseResponse]:
    """Delete topics and their records. Returns what became of each. Raises KafkaError, EoslogError."""
    body: DeleteTopicsRequestDraft = {"topic_names": list(names), "timeout_ms": WAIT_MS}

    def failed(answer: DeleteTopicsResponse) -> int:
        codes = {done["error_code"] for done in answer["responses"]}
        return ErrorCode.NOT_CONTROLLER if ErrorCode.NOT_CONTROLLER in codes else ErrorCode.NONE

    return ask_controller(cluster, DELETE_TOPICS, body, failed, _DELETED_BY_NAME)["responses"]


# -- offsets of partitions -------------------------------------------------------------------------
# Where partitions begin and end (ListOffsets): earliest, latest, or the first offset at a time. Where leader
# epochs end (OffsetForLeaderEpoch, KIP-320) shows if a log is still the same.


LATEST = -1
EARLIEST = -2

_NEWEST = -3

_MAX = 7  # the first with _NEWEST
_MIN = 2  # the first with an isolation level


class ListedOffset(NamedTuple):
    """An offset and its leader epoch: for the end, the leader's own; -1: none. `timestamp`: the record's, if
    a time was asked for."""

    offset: int
    leader_epoch: int
    timestamp: int = -1


def list_offsets(
    cluster: Cluster, wanted: Mapping[TopicPartition, int], *, committed: bool
) -> dict[TopicPartition, int]:
    """The offset of each partition for EARLIEST, LATEST or a time (ms). For a time it is that of the first
    record that is not older, -1 if there is none. With `committed` LATEST is the last stable offset, where
    read_committed readers stop, else the high watermark. Raises KafkaError, UnknownTopic, RetriesExhausted.
    """
    return {tp: found.offset for tp, found in list_places(cluster, wanted, committed=committed).items()}


def settled_end(cluster: Cluster, where: TopicPartition, until: int | None = None) -> int:
    """Where the partition ends for read_committed readers, once they can read up to `until`; None: once all
    transactions that were open there have ended. Others of the topic's users hold back what is committed.
    Raises RetriesExhausted after kafka.default.api.timeout.ms, and what list_offsets raises."""
    if until is None:
        until = list_offsets(cluster, {where: LATEST}, committed=False)[where]
    limit_ms = cluster.config.api_timeout_ms
    deadline = time.monotonic() + limit_ms / 1000
    while (end := list_offsets(cluster, {where: LATEST}, committed=True)[where]) < until:
        if time.monotonic() > deadline:
            raise RetriesExhausted(
                f"{where[0]}-{where[1]}: a transaction is open at offset {end}, and has not ended in "
                f"{limit_ms} ms (kafka.default.api.timeout.ms). End it first. "
                f"{see('no-committed-record-can-be-read')}"
            )
        time.sleep(_PAUSE_SECONDS)
    return end


def newest(cluster: Cluster, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """The largest timestamp in each partition, in its aborted and open transactions, too; -1: not known.
    Raises as list_offsets, and UnsupportedByBroker before Kafka 3.0."""
    found = list_places(cluster, dict.fromkeys(partitions, _NEWEST), committed=False)
    return {tp: at.timestamp for tp, at in found.items() if at.offset >= 0}


def list_places(
    cluster: Cluster, wanted: Mapping[TopicPartition, int], *, committed: bool
) -> dict[TopicPartition, ListedOffset]:
    """As `list_offsets`, with leader epochs."""
    found: dict[TopicPartition, ListedOffset] = {}

    def attempt() -> None:
        left = {tp: at for tp, at in wanted.items() if tp not in found}
        for address, partitions in by_leader(cluster, left).items():
            found.update(_ask(cluster, address, partitions, committed))

    def forget() -> None:
        for topic, _ in wanted:
            cluster.forget_topic(topic)

    retrying(cluster, "ListOffsets", attempt, forget=forget)
    return {tp: found[tp] for tp in wanted}


def by_leader(
    cluster: Cluster, wanted: Mapping[TopicPartition, int]
) -> dict[Address, dict[TopicPartition, int]]:
    """Group what is wanted from each partition by the address of its leader."""
    grouped: dict[Address, dict[TopicPartition, int]] = {}
    for (topic, partition), at in wanted.items():
        grouped.setdefault(cluster.leader_address(topic, partition), {})[topic, partition] = at
    return grouped


def request(
    connection: BrokerConnection, wanted: Mapping[TopicPartition, int], *, committed: bool
) -> tuple[ListOffsetsRequestDraft, int]:
    """What is asked of one leader, and in which version. Raises UnsupportedByBroker."""
    rows: Iterator[tuple[str, int, ListOffsetsRequestPartitionDraft]] = (
        (t, p, {"partition_index": p, "timestamp": at}) for (t, p), at in wanted.items()
    )
    body: ListOffsetsRequestDraft = {
        "replica_id": -1,
        "isolation_level": int(committed),
        "topics": [{"name": topic, "partitions": parts} for topic, parts in by_topic(rows)],
    }
    least = _MAX if _NEWEST in wanted.values() else _MIN
    return body, connection.pick(ApiKey.LIST_OFFSETS, max_version=_MAX, min_version=least)


def _ask(
    cluster: Cluster, address: Address, wanted: Mapping[TopicPartition, int], committed: bool
) -> dict[TopicPartition, ListedOffset]:
    connection = cluster.leader(*next(iter(wanted)))
    body, version = request(connection, wanted, committed=committed)
    answer = connection.call(LIST_OFFSETS, body, version=version)
    found = {}
    for topic in answer["topics"]:
        for part in topic["partitions"]:
            where = (topic["name"], part["partition_index"])
            check(part["error_code"], f"ListOffsets of {where[0]}-{where[1]}")
            found[where] = ListedOffset(part["offset"], part["leader_epoch"], part["timestamp"])
    return found


def epoch_ends(cluster: Cluster, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, ListedOffset]:
    """For each partition the largest leader epoch of its log up to the given one, and the offset where that
    epoch ends; -1 and -1 if the log has no such epoch. One request for each leader.

    Raises KafkaError, UnknownTopic, RetriesExhausted.
    """
    found: dict[TopicPartition, ListedOffset] = {}

    def attempt() -> None:
        left = {tp: epoch for tp, epoch in epochs.items() if tp not in found}
        for asked in by_leader(cluster, left).values():
            found.update(_ask_epochs(cluster, asked))

    def forget() -> None:
        for topic, _ in epochs:
            cluster.forget_topic(topic)

    retrying(cluster, "OffsetForLeaderEpoch", attempt, forget=forget, api=ApiKey.OFFSET_FOR_LEADER_EPOCH)
    return found


def cut_below(
    cluster: Cluster, ended: Mapping[TopicPartition, int], epochs: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Partitions whose log is not the one any more that was read up to these offsets in these leader epochs,
    with the offset from which it differs. Raises KafkaError, RetriesExhausted."""
    found = epoch_ends(cluster, epochs) if epochs else {}
    return {tp: max(end.offset, 0) for tp, end in found.items() if end.offset < ended[tp]}


def _ask_epochs(cluster: Cluster, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, ListedOffset]:
    rows: Iterator[tuple[str, int, OffsetForLeaderEpochRequestPartitionDraft]] = (
        (t, p, {"partition": p, "leader_epoch": epoch}) for (t, p), epoch in epochs.items()
    )
    topics: list[OffsetForLeaderEpochRequestTopicDraft] = [
        {"topic": topic, "partitions": parts} for topic, parts in by_topic(rows)
    ]
    answer = cluster.leader(*next(iter(epochs))).call(
        OFFSET_FOR_LEADER_EPOCH, {"replica_id": -1, "topics": topics}
    )
    found = {}
    for topic in answer["topics"]:
        for part in topic["partitions"]:
            where = (topic["topic"], part["partition"])
            check(part["error_code"], f"OffsetForLeaderEpoch of {where[0]}-{where[1]}")
            found[where] = ListedOffset(part["end_offset"], part["leader_epoch"])
    return found

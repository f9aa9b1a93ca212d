"""Where leader epochs end in a log (OffsetForLeaderEpoch, KIP-320): shows if it is still the same log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from eoslog.client.admin.list_offsets import ListedOffset, by_leader
from eoslog.client.wire.cluster import Cluster
from eoslog.client.wire.retry import check, retrying
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.topic_partitions import TopicPartition, by_topic
from eoslog.protocol.typed import OFFSET_FOR_LEADER_EPOCH

if TYPE_CHECKING:
    from eoslog.protocol.typed import (
        OffsetForLeaderEpochRequestPartitionDraft,
        OffsetForLeaderEpochRequestTopicDraft,
    )


def epoch_ends(cluster: Cluster, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, ListedOffset]:
    """For each partition the largest leader epoch of its log up to the given one, and the offset where that
    epoch ends; -1 and -1 if the log has no such epoch. One request for each leader.

    Raises KafkaError, UnknownTopic, RetriesExhausted.
    """
    found: dict[TopicPartition, ListedOffset] = {}

    def attempt() -> None:
        left = {tp: epoch for tp, epoch in epochs.items() if tp not in found}
        for asked in by_leader(cluster, left).values():
            found.update(_ask(cluster, asked))

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


def _ask(cluster: Cluster, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, ListedOffset]:
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

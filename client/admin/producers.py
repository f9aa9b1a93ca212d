"""Producers, as known by the partitions that they write to (DescribeProducers, KIP-664)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from eoslog.client.wire.cluster import Cluster
from eoslog.client.wire.connection import BrokerConnection
from eoslog.client.wire.retry import check, retrying
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.topic_partitions import TopicPartition, by_topic
from eoslog.protocol.typed import DESCRIBE_PRODUCERS

if TYPE_CHECKING:
    from eoslog.protocol.typed import (
        DescribeProducersRequestTopicDraft,
        DescribeProducersResponseActiveProducer,
        DescribeProducersResponsePartition,
        DescribeProducersResponseTopic,
    )


PARTITIONS_A_CALL = 500


@dataclass(frozen=True)
class ActiveProducer:
    """A producer as a partition knows it. `start`: the first offset of its open transaction, -1 if none."""

    where: TopicPartition
    producer_id: int
    epoch: int
    coordinator_epoch: int
    last_sequence: int
    last_timestamp: int
    start: int


def producers(cluster: Cluster, partitions: Sequence[TopicPartition]) -> list[ActiveProducer]:
    """All producers that the partitions' leaders remember. Raises KafkaError naming the partition."""
    found: list[ActiveProducer] = []
    for first in range(0, len(partitions), PARTITIONS_A_CALL):
        chunk = partitions[first : first + PARTITIONS_A_CALL]
        found += retrying(
            cluster, "DescribeProducers", partial(_ask_leaders, cluster, chunk), api=ApiKey.DESCRIBE_PRODUCERS
        )
    return found


def _ask_leaders(cluster: Cluster, partitions: Iterable[TopicPartition]) -> list[ActiveProducer]:
    leaders: dict[BrokerConnection, list[TopicPartition]] = {}
    for where in partitions:
        leaders.setdefault(cluster.leader(*where), []).append(where)
    found = []
    for connection, wanted in leaders.items():
        topics: list[DescribeProducersRequestTopicDraft] = [
            {"name": topic, "partition_indexes": numbers}
            for topic, numbers in by_topic((topic, number, number) for topic, number in wanted)
        ]
        answer = connection.call(DESCRIBE_PRODUCERS, {"topics": topics})
        found += [
            _producer(topic["name"], part, entry)
            for topic in answer["topics"]
            for part in topic["partitions"]
            if _fine(topic, part)
            for entry in part["active_producers"]
        ]
    return found


def _fine(topic: DescribeProducersResponseTopic, part: DescribeProducersResponsePartition) -> bool:
    check(part["error_code"], f"producers of {topic['name']}-{part['partition_index']}")
    return True


def _producer(
    topic: str, part: DescribeProducersResponsePartition, entry: DescribeProducersResponseActiveProducer
) -> ActiveProducer:
    return ActiveProducer(
        (topic, part["partition_index"]), entry["producer_id"], entry["producer_epoch"],
        entry["coordinator_epoch"], entry["last_sequence"], entry["last_timestamp"],
        entry["current_txn_start_offset"],
    )  # fmt: skip

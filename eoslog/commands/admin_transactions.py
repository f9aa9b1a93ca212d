"""What brokers tell about producers and transactions, and the ways to end one that hangs (KIP-664)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from eoslog.commands.admin import TopicPartition, again
from eoslog.connector.client import transactions
from eoslog.connector.client.cluster import Cluster
from eoslog.connector.client.connection import Connection
from eoslog.connector.client.grouping import by_topic
from eoslog.connector.client.retry import check
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.schema import Message

ENDED = ("Empty", "CompleteCommit", "CompleteAbort", "Dead")
"""States of a transactional id in which nothing is open."""

PARTITIONS_A_CALL = 500
UNDER_TV1 = 0


@dataclass(frozen=True)
class Producer:
    """A producer as a partition knows it; `start` is its open transaction's first offset, -1 without one."""

    where: TopicPartition
    producer_id: int
    epoch: int
    coordinator_epoch: int
    last_sequence: int
    last_timestamp: int
    start: int


def producers(cluster: Cluster, partitions: Sequence[TopicPartition]) -> list[Producer]:
    """All producers that the partitions' leaders remember. Raises KafkaError naming the partition."""
    found: list[Producer] = []
    for first in range(0, len(partitions), PARTITIONS_A_CALL):
        chunk = partitions[first : first + PARTITIONS_A_CALL]
        found += again(cluster, "DescribeProducers", partial(_ask_leaders, cluster, chunk))
    return found


def _ask_leaders(cluster: Cluster, partitions: Iterable[TopicPartition]) -> list[Producer]:
    leaders: dict[Connection, list[TopicPartition]] = {}
    for where in partitions:
        leaders.setdefault(cluster.leader(*where), []).append(where)
    found = []
    for connection, wanted in leaders.items():
        topics = [
            {"name": topic, "partition_indexes": numbers}
            for topic, numbers in by_topic((topic, number, number) for topic, number in wanted)
        ]
        answer = connection.call(ApiKey.DESCRIBE_PRODUCERS, {"topics": topics})
        found += [
            _producer(topic["name"], part, entry)
            for topic in answer["topics"]
            for part in topic["partitions"]
            if _fine(topic, part)
            for entry in part["active_producers"]
        ]
    return found


def _fine(topic: Message, part: Message) -> bool:
    check(part["error_code"], f"producers of {topic['name']}-{part['partition_index']}")
    return True


def _producer(topic: str, part: Message, entry: Message) -> Producer:
    return Producer(
        (topic, part["partition_index"]), entry["producer_id"], entry["producer_epoch"],
        entry["coordinator_epoch"], entry["last_sequence"], entry["last_timestamp"],
        entry["current_txn_start_offset"],
    )  # fmt: skip


def owners(cluster: Cluster, producer_ids: Iterable[int]) -> dict[int, str]:
    """The transactional id of each producer id that some coordinator knows."""
    wanted = set(producer_ids)
    return {
        listing.producer_id: listing.transactional_id
        for listing in transactions.list_transactions(cluster, "")
        if listing.producer_id in wanted
    }


def hanging(cluster: Cluster, open_here: Sequence[Producer]) -> list[Producer]:
    """Those of these open transactions that no coordinator will ever end: see `is_hanging`."""
    named = owners(cluster, (producer.producer_id for producer in open_here))
    known = transactions.describe(cluster, sorted(set(named.values()))) if named else {}
    return [producer for producer in open_here if is_hanging(producer, named, known)]


def is_hanging(
    producer: Producer, named: Mapping[int, str], known: Mapping[str, transactions.Description | None]
) -> bool:
    """Whether no coordinator counts the partition among those that the transaction still has to end on."""
    description = known.get(named.get(producer.producer_id, ""))
    return description is None or producer.where not in description.partitions


def abort_on_partition(cluster: Cluster, producer: Producer) -> None:
    """Write the marker that aborts a producer's transaction on one partition (WriteTxnMarkers).

    A marker of the coordinator epoch that the partition knows is taken; 0 where it knows none yet. Kafka
    lets a marker under TV2 only pass with a higher epoch than the producer's, so it goes as TV1's.
    Raises KafkaError.
    """
    topic, number = producer.where
    marker = {
        "producer_id": producer.producer_id,
        "producer_epoch": producer.epoch,
        "transaction_result": False,
        "topics": [{"name": topic, "partition_indexes": [number]}],
        "coordinator_epoch": max(producer.coordinator_epoch, 0),
        "transaction_version": UNDER_TV1,
    }

    def attempt() -> None:
        connection = cluster.leader(topic, number)
        answer = connection.call(ApiKey.WRITE_TXN_MARKERS, {"markers": [marker]})
        for done in answer["markers"][0]["topics"]:
            for part in done["partitions"]:
                check(part["error_code"], f"abort on {topic}-{number} of producer id {producer.producer_id}")

    again(cluster, "WriteTxnMarkers", attempt)

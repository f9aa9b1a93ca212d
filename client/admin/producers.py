"""Producers, as known by the partitions that they write to (DescribeProducers, KIP-664), and the transactions
of theirs that hold back readers of committed records.

Readers stop at the last stable offset of a partition: at the beginning of its oldest open transaction.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from eoslog.client.admin import transaction_states
from eoslog.client.wire.cluster import Cluster
from eoslog.client.wire.connection import BrokerConnection
from eoslog.client.wire.retry import check, retrying
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.names_by_sink import sink_of
from eoslog.protocol.producer_identity import NEVER_MS
from eoslog.protocol.topic_partitions import TopicPartition, by_topic
from eoslog.protocol.typed import DESCRIBE_PRODUCERS, WRITE_TXN_MARKERS

if TYPE_CHECKING:
    from eoslog.protocol.typed import (
        DescribeProducersRequestTopicDraft,
        DescribeProducersResponseActiveProducer,
        DescribeProducersResponsePartition,
        DescribeProducersResponseTopic,
        WriteTxnMarkersRequestMarkerDraft,
    )


PARTITIONS_A_CALL = 500
_UNDER_TV1 = 0  # transaction_version of a marker


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


_BEING_ENDED = ("PrepareCommit", "PrepareAbort")


@dataclass(frozen=True)
class Holder:
    """The transaction that holds a partition back: as the partition knows it, its transactional id (None: not
    known), and as its coordinator describes it (None: the coordinator does not know it)."""

    producer: ActiveProducer
    name: str | None
    found: transaction_states.TransactionDescription | None

    @property
    def sink(self) -> str | None:
        """The eoslog sink whose transaction it is; None: by its name it belongs to none."""
        return None if self.name is None else sink_of(self.name)

    @property
    def hangs(self) -> bool:
        """Whether no coordinator will end the transaction on this partition."""
        return self.found is None or self.producer.where not in self.found.partitions

    @property
    def sealed(self) -> bool:
        """Whether it takes part in a two-phase commit, and never times out."""
        return self.found is not None and not self.hangs and self.found.timeout_ms == NEVER_MS

    def way_out(self) -> str:
        """What to do, as a sentence without its full stop."""
        if self.hangs or self.found is None:
            topic, partition = self.producer.where
            return (
                "no coordinator will end it, as far as this user can see (Describe on its transactional id); "
                f"to end it, eoslog transactions abort --topic {topic} --partition {partition} "
                f"--start-offset {self.producer.start}"
            )
        if self.found.state in _BEING_ENDED:
            return (
                "its coordinator is ending it, and waits for its partitions' leaders: if that takes more "
                "than some seconds, check the brokers"
            )
        if not self.sealed:
            return (
                "it ends when its producer or its time-out ends it; to end it now, "
                f"eoslog transactions abort --transactional-id {self.name}"
            )
        who = "the program that began it ends it" if self.sink is None else (
            f"start the query of sink {self.sink} again, which ends it"
        )  # fmt: skip
        return (
            f"it is sealed for a two-phase commit and never times out: {who}; if that never happens, "
            f"eoslog transactions abort --transactional-id {self.name} --force"
        )


def oldest(found: Iterable[ActiveProducer]) -> list[ActiveProducer]:
    """The first open transaction of each partition: that is the one that holds readers back."""
    first: dict[TopicPartition, ActiveProducer] = {}
    for producer in found:
        known = first.get(producer.where)
        if producer.start >= 0 and (known is None or producer.start < known.start):
            first[producer.where] = producer
    return list(first.values())


def holders(cluster: Cluster, open_there: Sequence[ActiveProducer]) -> list[Holder]:
    """What the coordinators know of these transactions. Raises KafkaError, EoslogError."""
    if not open_there:
        return []
    ids = sorted({producer.producer_id for producer in open_there})
    listed = transaction_states.list_transactions(cluster, "", producer_ids=ids)
    names = {listing.producer_id: listing.transactional_id for listing in listed}
    known = transaction_states.describe(cluster, sorted(set(names.values()))) if names else {}
    return [
        Holder(producer, names.get(producer.producer_id), known.get(names.get(producer.producer_id, "")))
        for producer in open_there
    ]


def clock(ms: int) -> str:
    """A time in ms since 1970, as text (UTC)."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(ms / 1000))


def abort_on_partition(cluster: Cluster, producer: ActiveProducer) -> None:
    """Write the marker that aborts a producer's transaction on one partition (WriteTxnMarkers).

    The marker gets the coordinator epoch that the partition knows, 0 if it knows none yet. Under TV2, Kafka
    accepts a marker only with a higher epoch than the producer's, so this one is sent as under TV1. Raises
    KafkaError.
    """
    topic, number = producer.where
    marker: WriteTxnMarkersRequestMarkerDraft = {
        "producer_id": producer.producer_id,
        "producer_epoch": producer.epoch,
        "transaction_result": False,
        "topics": [{"name": topic, "partition_indexes": [number]}],
        "coordinator_epoch": max(producer.coordinator_epoch, 0),
        "transaction_version": _UNDER_TV1,
    }

    def attempt() -> None:
        connection = cluster.leader(topic, number)
        answer = connection.call(WRITE_TXN_MARKERS, {"markers": [marker]})
        for done in answer["markers"][0]["topics"]:
            for part in done["partitions"]:
                check(part["error_code"], f"abort on {topic}-{number} of producer id {producer.producer_id}")

    retrying(cluster, "WriteTxnMarkers", attempt)

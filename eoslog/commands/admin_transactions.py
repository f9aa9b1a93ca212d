"""What brokers report about producers and transactions, and how to end a transaction that hangs (KIP-664)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from eoslog.client.admin import transactions
from eoslog.client.admin.producers import ActiveProducer
from eoslog.client.admin.producers import producers as producers
from eoslog.client.admin.readers_held_back import Holder
from eoslog.client.wire.cluster import Cluster
from eoslog.client.wire.retry import check
from eoslog.commands.admin import again
from eoslog.protocol.typed import WRITE_TXN_MARKERS

if TYPE_CHECKING:
    from eoslog.protocol.typed import WriteTxnMarkersRequestMarkerDraft


ENDED = ("Empty", "CompleteCommit", "CompleteAbort", "Dead")
"""States of a transactional id in which nothing is open."""
ONGOING = "Ongoing"

UNDER_TV1 = 0


def owners(cluster: Cluster, producer_ids: Iterable[int]) -> dict[int, str]:
    """The transactional id of each producer id that a coordinator knows."""
    found = transactions.list_transactions(cluster, "", producer_ids=sorted(set(producer_ids)))
    return {listing.producer_id: listing.transactional_id for listing in found}


def hanging(cluster: Cluster, open_here: Sequence[ActiveProducer]) -> list[ActiveProducer]:
    """The open transactions that no coordinator will ever end: see `is_hanging`."""
    named = owners(cluster, (producer.producer_id for producer in open_here))
    known = transactions.describe(cluster, sorted(set(named.values()))) if named else {}
    return [producer for producer in open_here if is_hanging(producer, named, known)]


def is_hanging(
    producer: ActiveProducer,
    named: Mapping[int, str],
    known: Mapping[str, transactions.TransactionDescription | None],
) -> bool:
    """Whether no coordinator has this partition among those on which it still has to end the transaction."""
    name = named.get(producer.producer_id)
    return Holder(producer, name, known.get(name or "")).hangs


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
        "transaction_version": UNDER_TV1,
    }

    def attempt() -> None:
        connection = cluster.leader(topic, number)
        answer = connection.call(WRITE_TXN_MARKERS, {"markers": [marker]})
        for done in answer["markers"][0]["topics"]:
            for part in done["partitions"]:
                check(part["error_code"], f"abort on {topic}-{number} of producer id {producer.producer_id}")

    again(cluster, "WriteTxnMarkers", attempt)

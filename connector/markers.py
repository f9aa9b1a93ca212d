"""Open transactions as the partitions themselves see them, and markers written from outside (KIP-664).

Only for recovery: a healthy cluster closes what its coordinators have ended within milliseconds.
"""

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import TypeVar

from eoslog.connector.client.cluster import Cluster
from eoslog.connector.client.connection import Connection
from eoslog.connector.client.grouping import by_topic
from eoslog.connector.client.retry import Backoff, check, retrying
from eoslog.connector.commit.commands import Held
from eoslog.connector.commit.names import Identity, Participant
from eoslog.connector.errors import UnknownTopic, UnsupportedByBroker
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.errors import ErrorCode, KafkaError
from eoslog.protocol.schema import Message

log = logging.getLogger(__name__)

T = TypeVar("T")
TopicPartition = tuple[str, int]

PATIENCE_MS = 10_000
"""How long markers may be on their way before they count as lost."""
_WRITE_VERSION = 1  # version 2 would have the marker carry the next epoch


def find_held(
    cluster: Cluster, places: Iterable[TopicPartition], participants: Iterable[Participant]
) -> tuple[Held, ...]:
    """Places where one of the participants has an open transaction, and still has it PATIENCE_MS later.

    A place that is gone holds nothing; a broker that cannot tell (before Kafka 2.8) is believed.
    Raises KafkaError, RetriesExhausted.
    """
    names = {participant.identity: participant for participant in participants}
    wanted = list(places)
    backoff: Backoff | None = None  # from the first answer on: a leader that is away gets no markers
    while True:
        try:
            held = [h for place in wanted for h in _held_at(cluster, place, names)]
        except UnsupportedByBroker:
            return ()
        backoff = backoff or Backoff(cluster.config, PATIENCE_MS)
        if not held or backoff.over:
            return tuple(held)
        wanted = sorted({h.place for h in held})
        backoff.pause()


def _held_at(cluster: Cluster, place: TopicPartition, names: dict[Identity, Participant]) -> list[Held]:
    topic, partition = place
    body = {"topics": [{"name": topic, "partition_indexes": [partition]}]}

    def attempt(leader: Connection) -> Message:
        answer: Message = leader.call(ApiKey.DESCRIBE_PRODUCERS, body)["topics"][0]["partitions"][0]
        check(answer["error_code"], f"DescribeProducers of {topic}-{partition}")
        return answer

    try:
        answer = _at_leader(cluster, place, "DescribeProducers", attempt)
    except UnknownTopic:
        return []
    except KafkaError as error:
        if error.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:  # a sink may write without the right to read
            log.warning("not proven that %s-%d is readable, the coordinator is believed: %s", *place, error)
            return []
        if error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return []
        raise
    return [
        Held(place, names[who], max(state["coordinator_epoch"], 0))
        for state in answer["active_producers"]
        if (who := Identity(state["producer_id"], state["producer_epoch"])) in names
        and state["current_txn_start_offset"] >= 0
    ]


def write_commit_markers(cluster: Cluster, held: Iterable[Held]) -> None:
    """Commit each held transaction on its partition. Raises KafkaError, for instance
    CLUSTER_AUTHORIZATION_FAILED."""
    for place, participant, coordinator_epoch in held:
        marker = {
            "producer_id": participant.identity.producer_id,
            "producer_epoch": participant.identity.epoch,
            "transaction_result": True,
            "topics": [
                {"name": topic, "partition_indexes": numbers}
                for topic, numbers in by_topic([(*place, place[1])])
            ],
            "coordinator_epoch": coordinator_epoch,
        }
        _at_leader(cluster, place, "WriteTxnMarkers", partial(_write, marker))


def _write(marker: Message, leader: Connection) -> None:
    answer = leader.call(ApiKey.WRITE_TXN_MARKERS, {"markers": [marker]}, version=_WRITE_VERSION)
    for topic in answer["markers"][0]["topics"]:
        for part in topic["partitions"]:
            check(part["error_code"], f"WriteTxnMarkers on {topic['name']}-{part['partition_index']}")


def _at_leader(cluster: Cluster, place: TopicPartition, what: str, attempt: Callable[[Connection], T]) -> T:
    return retrying(
        cluster,
        f"{what} of {place[0]}-{place[1]}",
        lambda: attempt(cluster.leader(*place)),
        timeout_ms=cluster.config.api_timeout_ms,
        option="kafka.default.api.timeout.ms",
        forget=lambda: cluster.forget_topic(place[0]),
        final=frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}),
    )

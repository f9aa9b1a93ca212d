"""Asks partitions for their open transactions, and writes markers that were lost (KIP-664).

Only for recovery: in a healthy cluster the markers follow a coordinator's decision within milliseconds.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from eoslog.connector.client.wire.by_topic import by_topic
from eoslog.connector.client.wire.cluster import Cluster
from eoslog.connector.client.wire.config import Address
from eoslog.connector.client.wire.connection import BrokerConnection
from eoslog.connector.client.wire.retry import Backoff, check, retrying
from eoslog.connector.commit.commands import HeldBack
from eoslog.connector.commit.transactional_ids import Participant
from eoslog.connector.errors import UnknownTopic, UnsupportedByBroker
from eoslog.protocol import errors
from eoslog.protocol.apis import APIS, ApiKey
from eoslog.protocol.errors import ErrorCode
from eoslog.protocol.producer_identity import ProducerIdentity
from eoslog.protocol.typed import DESCRIBE_PRODUCERS, WRITE_TXN_MARKERS

if TYPE_CHECKING:
    from eoslog.protocol.typed import (
        DescribeProducersRequestDraft,
        DescribeProducersResponsePartition,
        WriteTxnMarkersRequestMarkerDraft,
    )


log = logging.getLogger(__name__)

T = TypeVar("T")
TopicPartition = tuple[str, int]

PATIENCE_MS = 10_000
"""How long markers may be on their way before they count as lost."""
_WRITE_VERSION = 1  # version 2 would have the marker carry the next epoch


def find_held(
    cluster: Cluster, places: Iterable[TopicPartition], participants: Iterable[Participant]
) -> tuple[HeldBack, ...]:
    """The places where one of the participants has an open transaction, and still has it PATIENCE_MS later.

    A place that does not exist has none. If a broker cannot report them (before Kafka 2.8), none is assumed.
    Raises KafkaError, RetriesExhausted.
    """
    names = {participant.identity: participant for participant in participants}
    return _patiently(
        cluster, list(places), lambda wanted: [h for place in wanted for h in _held_at(cluster, place, names)]
    )


def find_open(
    cluster: Cluster, topic: str, numbers: Iterable[int], name: str, producer_id: int
) -> tuple[HeldBack, ...]:
    """The same on partitions of one topic, for any epoch of the producer id of the transactional id `name`.
    One request to each leader."""

    def look(places: list[TopicPartition]) -> list[HeldBack]:
        return retrying(
            cluster,
            f"DescribeProducers of {topic}",
            lambda: _open_on(cluster, topic, [number for _, number in places], name, producer_id),
            timeout_ms=cluster.config.api_timeout_ms,
            option="kafka.default.api.timeout.ms",
            forget=lambda: cluster.forget_topic(topic),
        )

    return _patiently(cluster, [(topic, number) for number in numbers], look)


def _patiently(
    cluster: Cluster, wanted: list[TopicPartition], look: Callable[[list[TopicPartition]], list[HeldBack]]
) -> tuple[HeldBack, ...]:
    backoff: Backoff | None = None  # starts at the first answer: an absent leader gets no markers
    while True:
        try:
            held = look(wanted)
        except UnsupportedByBroker:
            return ()
        backoff = backoff or Backoff(cluster.config, PATIENCE_MS)
        if not held or backoff.over:
            return tuple(held)
        wanted = sorted({h.place for h in held})
        backoff.pause()


def _open_on(cluster: Cluster, topic: str, numbers: list[int], name: str, producer_id: int) -> list[HeldBack]:
    held: list[HeldBack] = []
    leaders: dict[Address, list[int]] = {}
    for number in numbers:
        leaders.setdefault(cluster.leader_address(topic, number), []).append(number)
    for mine in leaders.values():
        body: DescribeProducersRequestDraft = {"topics": [{"name": topic, "partition_indexes": mine}]}
        answer = cluster.leader(topic, mine[0]).call(DESCRIBE_PRODUCERS, body)
        for part in answer["topics"][0]["partitions"]:
            place = (topic, part["partition_index"])
            if part["error_code"] == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                _unproven(place, "the right to read it is missing")
                continue
            check(part["error_code"], f"DescribeProducers of {topic}-{place[1]}")
            opened = [(who, epoch) for who, epoch in _open_in(part) if who.producer_id == producer_id]
            held += [HeldBack(place, Participant(name, who), epoch) for who, epoch in opened]
    return held


def _open_in(part: DescribeProducersResponsePartition) -> list[tuple[ProducerIdentity, int]]:
    """The producers that have a transaction open on a partition, and the coordinator's epoch of each."""
    return [
        (ProducerIdentity(state["producer_id"], state["producer_epoch"]), max(state["coordinator_epoch"], 0))
        for state in part["active_producers"]
        if state["current_txn_start_offset"] >= 0
    ]


def _unproven(place: TopicPartition, why: object) -> None:
    log.warning(
        "not proven that %s-%d is readable, the coordinator is believed: %s. "
        "See troubleshooting.md#markersmissing",
        *place,
        why,
    )


def _held_at(
    cluster: Cluster, place: TopicPartition, names: dict[ProducerIdentity, Participant]
) -> list[HeldBack]:
    topic, partition = place
    body: DescribeProducersRequestDraft = {"topics": [{"name": topic, "partition_indexes": [partition]}]}

    def attempt(leader: BrokerConnection) -> DescribeProducersResponsePartition:
        answer = leader.call(DESCRIBE_PRODUCERS, body)["topics"][0]["partitions"][0]
        check(answer["error_code"], f"DescribeProducers of {topic}-{partition}")
        return answer

    try:
        answer = _at_leader(cluster, place, ApiKey.DESCRIBE_PRODUCERS, attempt)
    except (UnknownTopic, errors.UnknownTopicOrPartition):
        return []
    except errors.TopicAuthorizationFailed as error:  # a sink may write without the right to read
        _unproven(place, error)
        return []
    return [HeldBack(place, names[who], epoch) for who, epoch in _open_in(answer) if who in names]


def write_markers(cluster: Cluster, held: Iterable[HeldBack], *, commit: bool) -> None:
    """Commit or abort each held transaction on its partition. Raises KafkaError, for instance
    CLUSTER_AUTHORIZATION_FAILED."""
    for place, participant, coordinator_epoch in held:
        marker: WriteTxnMarkersRequestMarkerDraft = {
            "producer_id": participant.identity.producer_id,
            "producer_epoch": participant.identity.epoch,
            "transaction_result": commit,
            "topics": [
                {"name": topic, "partition_indexes": numbers}
                for topic, numbers in by_topic([(*place, place[1])])
            ],
            "coordinator_epoch": coordinator_epoch,
        }
        _at_leader(cluster, place, ApiKey.WRITE_TXN_MARKERS, partial(_write, marker))
        log.warning(
            "%s-%d held %s of %s open, whose marker was lost: %s marker written. "
            "See troubleshooting.md#markersmissing",
            *place,
            participant.identity,
            participant.name,
            "COMMIT" if commit else "ABORT",
        )


def _write(marker: WriteTxnMarkersRequestMarkerDraft, leader: BrokerConnection) -> None:
    answer = leader.call(WRITE_TXN_MARKERS, {"markers": [marker]}, version=_WRITE_VERSION)
    for topic in answer["markers"][0]["topics"]:
        for part in topic["partitions"]:
            check(part["error_code"], f"WriteTxnMarkers on {topic['name']}-{part['partition_index']}")


def _at_leader(
    cluster: Cluster, place: TopicPartition, api: ApiKey, attempt: Callable[[BrokerConnection], T]
) -> T:
    return retrying(
        cluster,
        f"{APIS[api].name} of {place[0]}-{place[1]}",
        lambda: attempt(cluster.leader(*place)),
        timeout_ms=cluster.config.api_timeout_ms,
        option="kafka.default.api.timeout.ms",
        forget=lambda: cluster.forget_topic(place[0]),
        api=api,
    )

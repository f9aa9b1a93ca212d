"""Asks partitions for their open transactions, and writes markers that were lost (KIP-664).

Each decision asks whether its transactions are still open. The rest is for recovery: in a healthy cluster the
markers follow a coordinator's decision within milliseconds.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Self, TypeVar
from weakref import WeakKeyDictionary

from eoslog.client.admin.topics import EARLIEST, by_leader, request
from eoslog.client.wire.cluster import Cluster
from eoslog.client.wire.config import Address
from eoslog.client.wire.connection import BrokerConnection
from eoslog.client.wire.retry import Backoff, check, retrying
from eoslog.connector.commit.commands import HeldBack
from eoslog.connector.commit.places import OpenThere, PartitionState
from eoslog.connector.commit.transactional_ids import Participant
from eoslog.errors import (
    ConnectionLost,
    EoslogError,
    RefusedByBroker,
    UnknownTopic,
    UnsupportedByBroker,
)
from eoslog.errors.pages import see
from eoslog.protocol import errors
from eoslog.protocol.apis import APIS, ApiKey
from eoslog.protocol.errors import ErrorCode, KafkaError
from eoslog.protocol.producer_identity import ProducerIdentity
from eoslog.protocol.topic_partitions import TopicPartition, by_topic
from eoslog.protocol.typed import DESCRIBE_PRODUCERS, LIST_OFFSETS, WRITE_TXN_MARKERS

if TYPE_CHECKING:
    from eoslog.protocol.typed import (
        DescribeProducersRequestDraft,
        DescribeProducersRequestTopicDraft,
        DescribeProducersResponse,
        DescribeProducersResponsePartition,
        ListOffsetsResponse,
        WriteTxnMarkersRequestMarkerDraft,
    )


logger = logging.getLogger(__name__)

T = TypeVar("T")

PATIENCE_MS = 10_000
"""How long markers may be on their way before they count as lost."""
_TOLD: WeakKeyDictionary[Cluster, set[str]] = WeakKeyDictionary()
"""Topics of which a warning has said that the user may not read them."""
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
            forget=lambda: cluster.forget_topic(topic),
        )

    return _patiently(cluster, [(topic, number) for number in numbers], look)


class PendingLook:
    """A look at partitions that was asked of each leader, on its own connections, and not been answered."""

    def __init__(
        self, cluster: Cluster, places: Iterable[TopicPartition], *, wait: bool = True, late: bool = False
    ) -> None:
        """`wait` False: only over idle connections, to known leaders. `late`: as in FindOpen.
        Raises KafkaError, EoslogError."""
        self._cluster, self._late = cluster, late
        self._asked: list[tuple[BrokerConnection, bool]] = []
        try:
            for address, wanted in by_leader(cluster, dict.fromkeys(places, EARLIEST)).items():
                connection = cluster.take(address) if wait else cluster.idle(address)
                if connection is None:
                    raise ConnectionLost("no idle connection")
                self._ask(connection, wanted)
        except BaseException:
            self.drop()
            raise

    def _ask(self, connection: BrokerConnection, wanted: Mapping[TopicPartition, int]) -> None:
        # Kafka has it since 2.8. The bundled broker refuses markers that its coordinator has not decided.
        shows = int(ApiKey.DESCRIBE_PRODUCERS) in connection.versions
        shows = shows and (self._late or not connection.ends_together)
        self._asked.append((connection, shows))
        if shows:
            topics: list[DescribeProducersRequestTopicDraft] = [
                {"name": topic, "partition_indexes": numbers}
                for topic, numbers in by_topic((topic, number, number) for topic, number in wanted)
            ]
            connection.ask(DESCRIBE_PRODUCERS, {"topics": topics})
        connection.ask(LIST_OFFSETS, *request(connection, wanted, committed=False))

    @classmethod
    def ahead(cls, cluster: Cluster, places: Collection[TopicPartition]) -> Self | None:
        """Ask if that takes no waiting; else None. look_at_partitions reads the answers."""
        if _not_remembered(cluster, places):
            return None
        try:
            return cls(cluster, places, wait=False)
        except (EoslogError, KafkaError) as error:
            logger.debug("partitions are looked at later: %s", error)
            return None

    def answers(self) -> dict[TopicPartition, PartitionState]:
        """What the leaders say. Raises KafkaError, ConnectionLost."""
        opened = dict[TopicPartition, dict[ProducerIdentity, OpenThere]]()
        begins = dict[TopicPartition, int]()
        try:
            for connection, shows in self._asked:
                if shows:
                    opened |= _opened(connection.answer(DESCRIBE_PRODUCERS))
                begins |= _begins(connection.answer(LIST_OFFSETS))
        finally:
            self.drop()
        return {place: PartitionState(at, opened.get(place)) for place, at in begins.items()}

    def drop(self) -> None:
        """Give the connections back; one that still waits for an answer is closed."""
        for connection, _ in self._asked:
            self._cluster.give_back(connection)
        self._asked = []


def _not_remembered(cluster: Cluster, places: Iterable[TopicPartition]) -> set[str]:
    """Topics of which not all of these partitions are known."""
    known = {topic: cluster.remembered(topic) for topic in {topic for topic, _ in places}}
    return {topic for topic, number in places if (info := known[topic]) is None or number not in info.leaders}


def look_at_partitions(
    cluster: Cluster,
    places: Collection[TopicPartition],
    *,
    ahead: PendingLook | None = None,
    late: bool = False,
) -> dict[TopicPartition, PartitionState]:
    """Where each partition's log begins, and which transactions are open there. The requests to all leaders
    are sent together. `ahead`: the same, sent earlier. `late`: as in FindOpen. Raises KafkaError,
    RetriesExhausted."""

    for topic in _not_remembered(cluster, places):
        cluster.forget_topic(topic)  # tasks have written to partitions that are newer than what is remembered

    def attempt() -> dict[TopicPartition, PartitionState]:
        nonlocal ahead
        asked, ahead = ahead, None
        found = (asked or PendingLook(cluster, places, late=late)).answers()
        missing = [place for place in places if place not in found]
        if missing:
            raise RefusedByBroker(ErrorCode.UNKNOWN_SERVER_ERROR, f"ListOffsets left out {missing}")
        return found

    def forget() -> None:
        for topic in {topic for topic, _ in places}:
            cluster.forget_topic(topic)

    try:
        return retrying(cluster, "DescribeProducers", attempt, forget=forget, api=ApiKey.DESCRIBE_PRODUCERS)
    except UnknownTopic as error:
        raise RefusedByBroker(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, str(error)) from error


def _opened(answer: DescribeProducersResponse) -> dict[TopicPartition, dict[ProducerIdentity, OpenThere]]:
    return {
        (topic["name"], part["partition_index"]): {
            ProducerIdentity(state["producer_id"], state["producer_epoch"]): OpenThere(
                state["current_txn_start_offset"], state["last_sequence"]
            )
            for state in part["active_producers"]
            if state["current_txn_start_offset"] >= 0
        }
        for topic in answer["topics"]
        for part in topic["partitions"]
        if _may(part["error_code"], f"DescribeProducers of {topic['name']}-{part['partition_index']}")
    }


def _begins(answer: ListOffsetsResponse) -> dict[TopicPartition, int]:
    return {
        (topic["name"], part["partition_index"]): (
            part["offset"]
            if _may(part["error_code"], f"ListOffsets of {topic['name']}-{part['partition_index']}")
            else -1
        )
        for topic in answer["topics"]
        for part in topic["partitions"]
    }


def _may(code: int, what: str) -> bool:
    """Whether this was answered: a sink may write without the right to read. Raises KafkaError."""
    if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        logger.debug("%s is not allowed: the coordinators are believed", what)
        return False
    check(code, what)
    return True


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
                _unproven(cluster, topic)
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


def _unproven(cluster: Cluster, topic: str) -> None:
    """Warn once of each topic: a sink may write without the right to read."""
    told = _TOLD.setdefault(cluster, set())
    if topic not in told:
        told.add(topic)
        logger.warning(
            "not proven that %s is readable, the coordinator is believed: the right Read on topic %s is "
            f"missing, which is optional. {see('markersmissing')}",
            topic,
            topic,
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
    except errors.TopicAuthorizationFailed:
        _unproven(cluster, topic)
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
        logger.warning(
            f"%s-%d held %s of %s open, whose marker was lost: %s marker written. {see('markersmissing')}",
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
        forget=lambda: cluster.forget_topic(place[0]),
        api=api,
    )

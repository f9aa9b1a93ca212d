"""What coordinators know of transactions: lists (ListTransactions), states (DescribeTransactions).

Each broker lists only the transactions that it coordinates. If a coordinator moves from a broker that has not
answered yet to one that has, no answer contains its transactions. So each broker is also asked, before and
after its list, for the leaders of STATE_TOPIC's partitions (they are the coordinators, and brokers learn of a
move before they carry it out) and for the list of brokers. If the answers differ, or a broker was not asked,
all are asked once more. If nothing moves, this is one round trip.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Self

from eoslog.client.wire.cluster import METADATA_MAX, Cluster, ClusterMetadata, read_metadata
from eoslog.client.wire.connection import BrokerConnection
from eoslog.client.wire.pipelined import by_connection
from eoslog.client.wire.retry import DELIVERY_TIMEOUT, check, retrying
from eoslog.errors import EoslogError, RefusedByBroker
from eoslog.protocol.apis import APIS, ApiKey
from eoslog.protocol.errors import ErrorCode, KafkaError
from eoslog.protocol.producer_identity import ProducerIdentity
from eoslog.protocol.topic_partitions import TopicPartition
from eoslog.protocol.typed import DESCRIBE_TRANSACTIONS, LIST_TRANSACTIONS, METADATA

if TYPE_CHECKING:
    from eoslog.protocol.typed import (
        DescribeTransactionsResponseTransactionState,
        ListTransactionsRequestDraft,
        ListTransactionsResponse,
        MetadataRequestDraft,
        MetadataRequestTopicDraft,
    )


MARKERS_SECONDS = 10.0
"""How long to wait for markers. They take some milliseconds, unless a partition's leader is down."""
FIRST_LOOK_SECONDS, LAST_LOOK_SECONDS = 0.001, 0.1
"""Pauses between two looks."""
_PREPARED = frozenset({"PrepareCommit", "PrepareAbort"})
ONGOING = "Ongoing"
ENDED = ("Empty", "CompleteCommit", "CompleteAbort", "Dead")
"""States of a transactional id in which nothing is open."""


@dataclass(frozen=True)
class TransactionDescription:
    """A transactional id's state, such as Ongoing or CompleteCommit. Times in ms, `start_ms` since 1970."""

    state: str
    identity: ProducerIdentity
    timeout_ms: int
    start_ms: int
    partitions: list[TopicPartition]


def describe(cluster: Cluster, ids: Sequence[str]) -> dict[str, TransactionDescription | None]:
    """The coordinators' description of each id (DescribeTransactions); None: the id is unknown."""
    found: dict[str, TransactionDescription | None] = {}

    def attempt() -> None:
        left = [i for i in ids if i not in found]
        for connection, names in by_connection(cluster.coordinators("transaction", left)).items():
            answer = connection.call(DESCRIBE_TRANSACTIONS, {"transactional_ids": names})
            for state in answer["transaction_states"]:
                found[state["transactional_id"]] = _description(state)
            missing = [name for name in names if name not in found]
            if missing:
                raise RefusedByBroker(
                    ErrorCode.UNKNOWN_SERVER_ERROR, f"DescribeTransactions left out {missing}"
                )

    forget = partial(cluster.forget_coordinator, "transaction", *ids)
    retrying(
        cluster,
        APIS[ApiKey.DESCRIBE_TRANSACTIONS].name,
        attempt,
        option=DELIVERY_TIMEOUT,
        forget=forget,
        api=ApiKey.DESCRIBE_TRANSACTIONS,
    )
    return {i: found[i] for i in ids}


def await_markers(cluster: Cluster, ids: Sequence[str]) -> tuple[str, ...]:
    """Wait until the markers of ended transactions are written, for at most MARKERS_SECONDS. Returns the ids
    whose markers are not. A coordinator that ends several in one step has written them when it answers."""
    until, pause = time.monotonic() + MARKERS_SECONDS, FIRST_LOOK_SECONDS
    coordinators = by_connection(cluster.coordinators("transaction", ids))
    left = [name for at, names in coordinators.items() if not at.ends_together for name in names]
    while left:
        states = describe(cluster, left)
        left = [name for name, state in states.items() if state and state.state in _PREPARED]
        if not left or time.monotonic() >= until:
            break
        time.sleep(pause)
        pause = min(2 * pause, LAST_LOOK_SECONDS)
    return tuple(left)


def _description(state: DescribeTransactionsResponseTransactionState) -> TransactionDescription | None:
    if state["error_code"] == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
        return None
    check(state["error_code"], f"DescribeTransactions of {state['transactional_id']!r}")
    return TransactionDescription(
        state["transaction_state"],
        ProducerIdentity(state["producer_id"], state["producer_epoch"]),
        state["transaction_timeout_ms"],
        state["transaction_start_time_ms"],
        [(topic["topic"], p) for topic in state["topics"] for p in topic["partitions"]],
    )


logger = logging.getLogger(__name__)

STATE_TOPIC = "__transaction_state"
LOOKS = 3
"""How often all brokers are asked at most. If coordinators move all the time, a transaction that is found in
none of these rounds is left to the next listing: it stays open longer, and nothing is lost or doubled."""

_Leaders = dict[int, int]


class Listing(NamedTuple):
    """One line of ListTransactions."""

    transactional_id: str
    producer_id: int
    state: str


class PendingListing:
    """A ListTransactions that has been sent to each broker, on its own connections, and not been answered."""

    def __init__(
        self,
        cluster: Cluster,
        brokers: Sequence[BrokerConnection],
        prefix: str,
        states: Sequence[str],
        producer_ids: Sequence[int] = (),
    ) -> None:
        self._cluster, self._prefix, self.brokers = cluster, prefix, brokers
        coordinators = len(brokers) > 1 and cluster.may_ask(STATE_TOPIC)  # of one broker none can move
        topics: list[MetadataRequestTopicDraft] = [{"name": STATE_TOPIC}] if coordinators else []
        who: MetadataRequestDraft = {"topics": topics, "allow_auto_topic_creation": False}
        for broker in brokers:
            version = broker.pick(ApiKey.LIST_TRANSACTIONS)
            pattern = _quoted(prefix) + ".*" if version >= 2 and prefix else None
            body: ListTransactionsRequestDraft = {
                "state_filters": list(states),
                "producer_id_filters": list(producer_ids),
                "transactional_id_pattern": pattern,
            }
            asking = broker.pick(ApiKey.METADATA, max_version=METADATA_MAX)
            broker.ask(METADATA, who, asking)
            broker.ask(LIST_TRANSACTIONS, body, version)
            broker.ask(METADATA, who, asking)

    @classmethod
    def ahead(cls, cluster: Cluster, prefix: str, states: Sequence[str]) -> Self | None:
        """Ask all known brokers; list_transactions reads the answers. Does not wait: returns None if there is
        no open connection to one of them, or it was lost."""
        brokers = [cluster.idle(address) for address in cluster.known_addresses()]
        connected = [broker for broker in brokers if broker is not None]
        try:
            if connected and len(connected) == len(brokers):
                return cls(cluster, connected, prefix, states)
        except (EoslogError, KafkaError) as error:
            logger.debug("transactions are listed later: %s", error)
        for broker in connected:
            cluster.give_back(broker)
        return None

    def answers(self) -> tuple[dict[str, Listing], list[ClusterMetadata]]:
        """The lists of all brokers, and each broker's metadata before and after its list."""
        try:
            answers = [
                (b, b.answer(METADATA), b.answer(LIST_TRANSACTIONS), b.answer(METADATA)) for b in self.brokers
            ]
        finally:
            self.drop()
        found = {row.transactional_id: row for b, _, answer, _ in answers for row in _rows(b, answer)}
        listed = {name: row for name, row in found.items() if name.startswith(self._prefix)}
        told = [read_metadata(metadata) for _, before, _, after in answers for metadata in (before, after)]
        if any(one.errors.get(STATE_TOPIC) == ErrorCode.TOPIC_AUTHORIZATION_FAILED for one in told):
            self._cluster.note_right(STATE_TOPIC, has=False)
        return listed, told

    def drop(self) -> None:
        """Give the connections back; one that still waits for an answer is closed."""
        for broker in self.brokers:
            self._cluster.give_back(broker)


def list_transactions(
    cluster: Cluster,
    prefix: str,
    states: Sequence[str] = (),
    producer_ids: Sequence[int] = (),
    *,
    ahead: PendingListing | None = None,
) -> list[Listing]:
    """Every transactional id that begins with `prefix`, is in one of `states` (none given: any) and has one
    of `producer_ids` (likewise), sorted. `ahead`: the same request, sent earlier.

    A broker that is still loading is waited for: its empty list would prove nothing. The requests to all
    brokers are sent together. Raises KafkaError, RetriesExhausted.
    """
    known = True  # the list of brokers, from this client's memory

    def ask() -> PendingListing:
        nonlocal known, ahead
        asked, ahead = ahead, None
        addresses = cluster.known_addresses() if known else []
        known = False
        if asked is not None:
            return asked
        if not addresses:
            cluster.metadata([])
        brokers = [cluster.take(address) for address in addresses or cluster.known_addresses()]
        return PendingListing(cluster, brokers, prefix, states, producer_ids)

    def attempt() -> dict[str, Listing]:
        found: dict[str, Listing] = {}
        for _ in range(LOOKS):
            asked = ask()
            listed, metadata = asked.answers()
            found |= listed
            if _is_all(asked.brokers, metadata):
                break
        return found

    found = retrying(cluster, "ListTransactions", attempt, option=DELIVERY_TIMEOUT)
    return [found[name] for name in sorted(found)]


def _is_all(brokers: Sequence[BrokerConnection], metadata: Sequence[ClusterMetadata]) -> bool:
    """Whether all brokers were asked and no coordinator has moved meanwhile."""
    asked, first = {(broker.host, broker.port) for broker in brokers}, _leaders(metadata[0])
    if any(set(one.nodes.values()) != asked for one in metadata):
        return False
    return len(brokers) == 1 or (bool(first) and all(_leaders(one) == first for one in metadata))


def _rows(broker: BrokerConnection, answer: ListTransactionsResponse) -> list[Listing]:
    check(answer["error_code"], f"ListTransactions on {broker.host}:{broker.port}")
    if answer["unknown_state_filters"]:
        raise RefusedByBroker(ErrorCode.INVALID_REQUEST, f"unknown states {answer['unknown_state_filters']}")
    return [
        Listing(t["transactional_id"], t["producer_id"], t["transaction_state"])
        for t in answer["transaction_states"]
    ]


def _leaders(metadata: ClusterMetadata) -> _Leaders:
    """The leader of each partition of STATE_TOPIC; empty if that does not exist yet or is not allowed."""
    topic = metadata.topics.get(STATE_TOPIC)
    return topic.leaders if topic else {}


def _quoted(text: str) -> str:
    """`text` as a pattern that matches only itself, in the brokers' syntax (RE2)."""
    return "".join(c if c.isalnum() or ord(c) > 127 else "\\" + c for c in text)

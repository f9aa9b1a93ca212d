"""What coordinators know of transactions (DescribeTransactions), and waiting for their markers."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from eoslog.client.wire.cluster import Cluster
from eoslog.client.wire.pipelined import by_connection
from eoslog.client.wire.retry import DELIVERY_TIMEOUT, check, retrying
from eoslog.errors import RefusedByBroker
from eoslog.protocol.apis import APIS, ApiKey
from eoslog.protocol.errors import ErrorCode
from eoslog.protocol.producer_identity import ProducerIdentity
from eoslog.protocol.topic_partitions import TopicPartition
from eoslog.protocol.typed import DESCRIBE_TRANSACTIONS

if TYPE_CHECKING:
    from eoslog.protocol.typed import DescribeTransactionsResponseTransactionState


MARKERS_SECONDS = 10.0
"""How long to wait for markers. They take some milliseconds, unless a partition's leader is down."""
FIRST_LOOK_SECONDS, LAST_LOOK_SECONDS = 0.001, 0.1
"""Pauses between two looks."""
_PREPARED = frozenset({"PrepareCommit", "PrepareAbort"})


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

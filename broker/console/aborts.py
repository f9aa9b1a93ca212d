"""The console's only changes: aborting a transaction, by the same rules as `eoslog transactions abort`.

Only the transaction that the user saw is aborted: a request names its producer, epoch and start. If the
coordinator has another transaction by now, nothing happens.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from eoslog.broker.console.broker_access import BrokerAccess, Caller
from eoslog.broker.console.transactions import describe, producers_of, refusal
from eoslog.broker.coordinator.transactions.transaction_state import PREPARED, TransactionState
from eoslog.protocol.errors import ErrorCode, KafkaError
from eoslog.protocol.typed import INIT_PRODUCER_ID, WRITE_TXN_MARKERS

if TYPE_CHECKING:
    from eoslog.protocol.typed import (
        DescribeTransactionsResponseTransactionState,
        InitProducerIdRequestDraft,
        WriteTxnMarkersRequestMarkerDraft,
    )

logger = logging.getLogger(__name__)

_LONGEST_TIMEOUT_MS = 60_000
_UNDER_TV1 = 0
_TRIES, _PAUSE = 100, 0.05
_UNDER_WAY = frozenset(state.text for state in PREPARED)
_AGAIN = (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

Row = dict[str, Any]


class TransactionChanged(Exception):
    """The transaction is not the one that the request describes, or not any more. Nothing was changed."""


class SeenTransaction(NamedTuple):
    """The transaction that the user saw and wants to abort."""

    transactional_id: str
    producer_id: int
    epoch: int
    started_ms: int


async def abort_id(inside: BrokerAccess, caller: Caller, seen: SeenTransaction) -> Row:
    """Abort a transactional id's open transaction, and fence its producer. Raises Changed, KafkaError."""
    name = seen.transactional_id
    described = await _described(inside, caller, seen)
    why_not = refusal(described)
    if why_not is not None:
        raise TransactionChanged(f"{name}: {why_not}")
    timeout_ms = min(described["transaction_timeout_ms"], _LONGEST_TIMEOUT_MS)
    body: InitProducerIdRequestDraft = {
        "transactional_id": name,
        "transaction_timeout_ms": timeout_ms,
        "producer_id": -1,
        "producer_epoch": -1,
    }
    for _ in range(_TRIES):
        same = partial(_check_same, inside, seen)
        answer = await inside.ask(caller, INIT_PRODUCER_ID, 4, body, first=same)
        if answer["error_code"] not in _AGAIN:
            _check(answer["error_code"], f"transactional id {name}")
        described = await _ended(inside, caller, seen)
        if described["transaction_state"] != TransactionState.ONGOING.text:
            break
    if described["transaction_state"] != TransactionState.COMPLETE_ABORT.text:
        raise TransactionChanged(
            f"{name}: it is not aborted but {described['transaction_state']}; look again"
        )
    logger.warning(
        "%s, at the console from %s, aborted the transaction of %s", caller.name, caller.host, name
    )
    return {"transactional_id": name, "state": described["transaction_state"]}


async def _described(
    inside: BrokerAccess, caller: Caller, seen: SeenTransaction
) -> DescribeTransactionsResponseTransactionState:
    found = await describe(inside, caller, [seen.transactional_id])
    if not found:
        raise TransactionChanged(
            f"there is no transactional id {seen.transactional_id}, or you may not describe it"
        )
    return found[0]


def _check_same(inside: BrokerAccess, seen: SeenTransaction) -> None:
    """On the broker's loop, right before the abort: check that it is still the same transaction."""
    known = inside.broker.transactions.describe(seen.transactional_id)
    if known is None or known.state is not TransactionState.ONGOING or seen != (
        known.transactional_id, known.producer_id, known.producer_epoch, known.start_ms,
    ):  # fmt: skip
        raise TransactionChanged(
            f"{seen.transactional_id} has another transaction by now, or none; look again"
        )


async def _ended(
    inside: BrokerAccess, caller: Caller, seen: SeenTransaction
) -> DescribeTransactionsResponseTransactionState:
    """Wait for a while until the decided end is complete; returns the coordinator's description then."""
    for _ in range(_TRIES):
        described = await _described(inside, caller, seen)
        if described["transaction_state"] not in _UNDER_WAY:
            break
        await asyncio.sleep(_PAUSE)
    return described


async def abort_place(
    inside: BrokerAccess, caller: Caller, topic: str, partition: int, producer_id: int, start_offset: int
) -> Row:
    """Write the marker that aborts a hanging transaction on one partition. Raises Changed, KafkaError.

    INVALID_TXN_STATE where a coordinator would still end it: our marker could split the transaction.
    """
    name = f"{topic}-{partition}"
    found = [
        one
        for one in await producers_of(inside, caller, [(topic, partition)])
        if (one["producer_id"], one["start_offset"]) == (producer_id, start_offset)
    ]
    if not found:
        raise TransactionChanged(
            f"producer id {producer_id} has no transaction open on {name} from offset {start_offset}"
        )
    answer = await inside.ask(caller, WRITE_TXN_MARKERS, 1, {"markers": [_marker(found[0])]})
    for done in answer["markers"][0]["topics"]:
        for part in done["partitions"]:
            _check(part["error_code"], f"producer id {producer_id} on {name}")
    logger.warning(
        "%s, at the console from %s, wrote an abort marker for producer id %d on %s",
        caller.name, caller.host, producer_id, name,
    )  # fmt: skip
    return {"topic": topic, "partition": partition, "state": "aborted"}


def _marker(producer: Row) -> WriteTxnMarkersRequestMarkerDraft:
    return {
        "producer_id": producer["producer_id"],
        "producer_epoch": producer["epoch"],
        "transaction_result": False,
        "topics": [{"name": producer["topic"], "partition_indexes": [producer["partition"]]}],
        "coordinator_epoch": max(producer["coordinator_epoch"], 0),
        "transaction_version": _UNDER_TV1,
    }


def _check(code: int, what: str) -> None:
    if code:
        raise KafkaError(code, what)

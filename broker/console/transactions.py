"""Transactions by transactional id, and hanging ones on partitions, which no coordinator will end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from eoslog.broker.console.broker_access import (
    END,
    MOST,
    MOST_LOOKED_AT,
    NAME,
    BrokerAccess,
    Caller,
    PageQuery,
    Row,
    arranged,
    by_topic,
    check,
    chosen,
    matching,
    offsets,
    pieces,
)
from eoslog.broker.coordinator.transactions.transaction_state import PREPARED, TransactionState
from eoslog.protocol.acls import CLUSTER_NAME, AclOperation, ResourceType
from eoslog.protocol.errors import ErrorCode
from eoslog.protocol.names_by_sink import made, sink_of, sinks_of_ids
from eoslog.protocol.topic_partitions import TopicPartition
from eoslog.protocol.typed import (
    DESCRIBE_PRODUCERS,
    DESCRIBE_TRANSACTIONS,
    INIT_PRODUCER_ID,
    LIST_TRANSACTIONS,
    METADATA,
    WRITE_TXN_MARKERS,
)

if TYPE_CHECKING:
    from eoslog.protocol.typed import (
        DescribeProducersRequestTopicDraft,
        DescribeTransactionsResponseTransactionState,
        InitProducerIdRequestDraft,
        ListTransactionsResponseTransactionState,
        WriteTxnMarkersRequestMarkerDraft,
    )

OPEN = tuple(sorted(state.text for state in (TransactionState.ONGOING, *PREPARED)))
"""States in which a transaction is open or being ended."""

NEVER_MS = 2**31 - 1
"""The time-out of a transaction under two-phase commit (KIP-939)."""

_MOST_SEARCHED = 5000  # partitions behind their high watermark, checked for hanging transactions
_MOST_PARTITIONS = 100  # partitions shown of one transaction in the list

SORTS = (NAME, "state", "age")


async def transactions(
    inside: BrokerAccess, caller: Caller, want: PageQuery, *, everything: bool, writable: bool
) -> Row:
    """The wanted transactional ids that the caller may describe; by default those in `OPEN` states.

    `abortable`: whether the caller may abort it here. If not, `why_not` says why.
    """
    known = await _listed(inside, caller, [] if everything or want.fold or want.sink else OPEN)
    sinks = sinks_of_ids({_name(one) for one in known})
    found = matching(known, _name, want.contains)
    shown = [one for one in found if everything or one["transaction_state"] in OPEN]
    wanted = [one for one in shown if want.wants(sinks.get(_name(one)))]
    if want.sort == "age" and len(wanted) > MOST_LOOKED_AT:
        want = replace(want, sort=NAME, down=False)
    listed, more = chosen(wanted, _name, want)
    names = await _in_order(inside, caller, listed, want)
    page: Row = {
        "transactions": await _rows(inside, caller, names, sinks, writable),
        "total": sum(everything or one["transaction_state"] in OPEN for one in known),
        "matching": len(wanted),
        "sorted": want.sort,
        "next": more,
    }
    if want.fold:
        mine = [one for one in found if _name(one) in sinks]
        lines = await _lines(inside, caller, mine, sinks, want, everything)
        page |= {"sinks": lines[:MOST], "total_sinks": len(lines)}
    return page


async def _in_order(
    inside: BrokerAccess,
    caller: Caller,
    listed: list[ListTransactionsResponseTransactionState],
    want: PageQuery,
) -> list[str]:
    ages = await _ages(inside, caller, listed if want.sort == "age" else [])
    entries = [
        {"name": _name(one), "state": one["transaction_state"], "age": ages.get(_name(one))} for one in listed
    ]
    return [entry["name"] for entry in arranged(entries, want)]


async def _lines(
    inside: BrokerAccess,
    caller: Caller,
    mine: list[ListTransactionsResponseTransactionState],
    sinks: dict[str, str],
    want: PageQuery,
    everything: bool,
) -> list[Row]:
    """One row per sink, sorted as wanted; its state is the number of open transactions."""
    ids = {_name(one): sinks[_name(one)] for one in mine}
    opened = [one for one in mine if one["transaction_state"] in OPEN]
    ages = await _ages(inside, caller, opened[:MOST_LOOKED_AT]) | dict.fromkeys(
        map(_name, opened[MOST_LOOKED_AT:])
    )
    rows = [
        {"sink": one.sink, "ids": one.ids, "open": one.open, "age_ms": one.oldest}
        for one in made(ids, {}, ages)
        if everything or one.open
    ]
    column = {NAME: NAME, "state": "open", "age": "age_ms"}[want.sort]
    if want.sort == NAME and want.down:
        rows.reverse()
    return arranged(rows, replace(want, sort=column, limit=len(rows)))


async def _listed(
    inside: BrokerAccess, caller: Caller, states: Iterable[str]
) -> list[ListTransactionsResponseTransactionState]:
    answer = await inside.ask(
        caller, LIST_TRANSACTIONS, 0, {"state_filters": list(states), "producer_id_filters": []}
    )
    check(answer["error_code"], "transactions")
    return answer["transaction_states"]


async def _rows(
    inside: BrokerAccess, caller: Caller, names: list[str], sinks: dict[str, str], writable: bool
) -> list[Row]:
    """In the order of the names; ids that have been removed meanwhile are omitted."""
    described = {one["transactional_id"]: one for one in await describe(inside, caller, names)}
    mine = await inside.look(
        lambda: {name for name in described if inside.allows(caller, AclOperation.WRITE, _ID, name)}
    )
    now_ms = inside.broker.clock.now_ms()
    return [
        _row(described[name], now_ms, writable, name in mine) | {"sink": sinks.get(name)}
        for name in names
        if name in described
    ]


async def _ages(
    inside: BrokerAccess, caller: Caller, listed: list[ListTransactionsResponseTransactionState]
) -> dict[str, float | None]:
    """Milliseconds since each open transaction began; None where unknown."""
    names = [_name(one) for one in listed if one["transaction_state"] in OPEN]
    ages: dict[str, float | None] = {}
    for first in range(0, len(names), MOST):
        now_ms = inside.broker.clock.now_ms()
        for described in await describe(inside, caller, names[first : first + MOST]):
            ages[described["transactional_id"]] = _age(described, now_ms)
    return ages


def _age(described: DescribeTransactionsResponseTransactionState, now_ms: int) -> int | None:
    started = described["transaction_start_time_ms"]
    return max(0, now_ms - started) if described["transaction_state"] in OPEN and started >= 0 else None


_ID = ResourceType.TRANSACTIONAL_ID


def _name(listed: ListTransactionsResponseTransactionState) -> str:
    return listed["transactional_id"]


async def describe(
    inside: BrokerAccess, caller: Caller, names: Iterable[str]
) -> list[DescribeTransactionsResponseTransactionState]:
    """The coordinator's description of each; ids that are unknown or may not be described are omitted."""
    answer = await inside.ask(caller, DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": list(names)})
    return [one for one in answer["transaction_states"] if not one["error_code"]]


def refusal(described: DescribeTransactionsResponseTransactionState) -> str | None:
    """Why no caller can abort a transaction from here; None if it is possible."""
    state = described["transaction_state"]
    if state in (one.text for one in PREPARED):
        return "it is decided and being ended"
    if state != TransactionState.ONGOING.text:
        return f"nothing is open ({state})"
    if described["transaction_timeout_ms"] == NEVER_MS:
        sink = sink_of(described["transactional_id"])
        whose = "" if sink is None else f" of the sink {sink}"
        return (
            f"it is sealed for a two-phase commit{whose} and never times out: ask the one who decides (start "
            "that query again), or abort it with --force"
        )
    return None


def _row(
    described: DescribeTransactionsResponseTransactionState, now_ms: int, writable: bool, mine: bool
) -> Row:
    is_open, why_not = described["transaction_state"] in OPEN, refusal(described)
    if why_not is None and not writable:
        why_not = "the console is read-only (console.writable)"
    elif why_not is None and not mine:
        why_not = "you may not use this transactional id"
    places = [f"{topic['topic']}-{index}" for topic in described["topics"] for index in topic["partitions"]]
    return {
        "transactional_id": described["transactional_id"],
        "state": described["transaction_state"],
        "open": is_open,
        "producer_id": described["producer_id"],
        "epoch": described["producer_epoch"],
        "timeout_ms": described["transaction_timeout_ms"],
        "started_ms": described["transaction_start_time_ms"],
        "age_ms": _age(described, now_ms),
        "partitions": places[:_MOST_PARTITIONS],
        "total_partitions": len(places),
        "abortable": why_not is None,
        "why_not": why_not,
    }


async def hanging(inside: BrokerAccess, caller: Caller, *, writable: bool) -> Row:
    """Open transactions that no coordinator will end (KIP-664), on partitions that the caller may read.

    Only partitions whose last stable offset is behind their high watermark are checked.
    """
    answer = await inside.ask(caller, METADATA, 12, {"topics": None, "allow_auto_topic_creation": False})
    places = [
        (topic["name"], part["partition_index"])
        for topic in answer["topics"]
        if topic["name"] is not None
        for part in topic["partitions"]
    ]
    ends = await offsets(inside, caller, places, END)
    stable = await offsets(inside, caller, places, END, committed=True)
    held = [place for place in places if stable.get(place, 0) < ends.get(place, 0)]
    rows: list[Row] = []
    for piece in pieces(held[:_MOST_SEARCHED]):
        rows += await _ownerless(inside, caller, piece)
    mine = writable and await inside.look(lambda: _may_mark(inside, caller))
    return {
        "hanging": [row | {"abortable": mine} for row in rows],
        "held_back": len(held),
        "searched": min(len(held), _MOST_SEARCHED),
    }


def _may_mark(inside: BrokerAccess, caller: Caller) -> bool:
    needed = (AclOperation.ALTER, AclOperation.CLUSTER_ACTION)
    return any(inside.allows(caller, one, ResourceType.CLUSTER, CLUSTER_NAME) for one in needed)


async def _ownerless(inside: BrokerAccess, caller: Caller, places: list[TopicPartition]) -> list[Row]:
    producers = await producers_of(inside, caller, places)

    def owned() -> list[str | None]:
        owner_of = inside.broker.transactions.owner_of
        return [owner_of(one["producer_id"], one["topic"], one["partition"]) for one in producers]

    owners = await inside.look(owned)
    now_ms = inside.broker.clock.now_ms()
    return [
        one | {"age_ms": max(0, now_ms - one["last_timestamp"])}
        for one, owner in zip(producers, owners, strict=True)
        if owner is None
    ]


async def producers_of(inside: BrokerAccess, caller: Caller, places: list[TopicPartition]) -> list[Row]:
    """The producers with an open transaction on these partitions, as far as the caller may read them."""
    wanted: list[DescribeProducersRequestTopicDraft] = [
        {"name": topic, "partition_indexes": indexes} for topic, indexes in by_topic(places).items()
    ]
    answer = await inside.ask(caller, DESCRIBE_PRODUCERS, 0, {"topics": wanted})
    return [
        {
            "topic": topic["name"],
            "partition": part["partition_index"],
            "producer_id": one["producer_id"],
            "epoch": one["producer_epoch"],
            "coordinator_epoch": one["coordinator_epoch"],
            "start_offset": one["current_txn_start_offset"],
            "last_timestamp": one["last_timestamp"],
        }
        for topic in answer["topics"]
        for part in topic["partitions"]
        if not part["error_code"]
        for one in part["active_producers"]
        if one["current_txn_start_offset"] >= 0
    ]


# -- aborts ----------------------------------------------------------------------------------------
# The console's only changes: aborting a transaction, by the same rules as `eoslog transactions abort`.
#
# Only the transaction that the user saw is aborted: a request names its producer, epoch and start. If the
# coordinator has another transaction by now, nothing happens.


logger = logging.getLogger(__name__)

_LONGEST_TIMEOUT_MS = 60_000
_UNDER_TV1 = 0
_TRIES, _PAUSE = 100, 0.05
_UNDER_WAY = frozenset(state.text for state in PREPARED)
_AGAIN = (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


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
            check(answer["error_code"], f"transactional id {name}")
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
            check(part["error_code"], f"producer id {producer_id} on {name}")
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

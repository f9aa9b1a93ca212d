"""Transactions, by requests to their coordinator: open, end, commit offsets in them, abort by epoch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eoslog.client.admin.groups import Epochs, at_once, rows_of
from eoslog.client.admin.transaction_states import TransactionDescription, describe
from eoslog.client.wire.cluster import Cluster, at_coordinator
from eoslog.client.wire.connection import BrokerConnection
from eoslog.client.wire.pipelined import at_coordinators
from eoslog.client.wire.retry import DELIVERY_TIMEOUT, Backoff, check, passes, retrying
from eoslog.errors import BrokerUnreachable, ConnectionLost, EoslogError, RefusedByBroker, RetriesExhausted
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.errors import ErrorCode, KafkaError
from eoslog.protocol.producer_identity import ProducerIdentity
from eoslog.protocol.topic_partitions import TopicPartition, by_topic
from eoslog.protocol.typed import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    INIT_PRODUCER_ID,
    TXN_OFFSET_COMMIT,
)

if TYPE_CHECKING:
    from eoslog.protocol.typed import (
        AddOffsetsToTxnRequestDraft,
        AddPartitionsToTxnRequestDraft,
        AddPartitionsToTxnRequestV3AndBelowTopicDraft,
        EndTxnRequestDraft,
        EndTxnRequestTogetherDraft,
        EndTxnResponse,
        EndTxnResponseTogether,
        InitProducerIdRequestDraft,
        InitProducerIdResponse,
        TxnOffsetCommitRequestDraft,
    )

# -- abort by the next epoch -----------------------------------------------------------------------
# Aborts open transactions under their next epoch, by InitProducerId: for transaction.version below 2.
#
# There an abort by EndTxn leaves the epoch as it is, and its markers carry the same one. A batch of the
# aborted transaction that reaches a leader after the marker is then in sequence. Leaders refuse it only if
# they ask the coordinator first (KIP-890, from Kafka 3.6 on, unless
# `transaction.partition.verification.enable=false`). Others take it, in a transaction that no coordinator
# knows of, and the next commit of the same producer id makes its rows visible. InitProducerId by the
# present owner (KIP-360) aborts as a time-out does: the markers carry the next epoch, so every partition of
# the transaction refuses the older one from then on.


Ended = ProducerIdentity | EoslogError | KafkaError

INIT_CURRENT, INIT_MAX = 3, 5
"""InitProducerId by who has the id already (KIP-360); version 6 is two-phase commit (KIP-939)."""
_OPEN, _ABORTED = "Ongoing", frozenset({"PrepareAbort", "CompleteAbort"})
_MOST_TIMEOUT_MS = 60_000
"""A time-out that no broker refuses. An aborted transaction does not get it."""


def abort_by_epoch(cluster: Cluster, identities: Mapping[str, ProducerIdentity]) -> dict[str, Ended]:
    """Abort the transactions that are open under exactly these identities, each under the next epoch.

    Returns for each its raised identity, or why it may still be open. Transactional ids that have nothing
    open, or that of another identity, are not in the result: nothing was asked of them. The abort is certain
    when this returns; markers may follow.
    """
    ended: dict[str, Ended] = {}
    left, asked = list(identities), False
    backoff = Backoff(cluster.config, cluster.config.delivery_timeout_ms)
    while left:
        try:
            states = describe(cluster, left)
        except (KafkaError, ConnectionLost, BrokerUnreachable, RetriesExhausted) as error:
            return ended | dict.fromkeys(left, error)
        still = {name: identities[name] for name in left if _is_open(states[name], identities[name])}
        if asked:
            over = [name for name in left if name not in still]
            ended |= {name: _outcome(name, states[name], identities[name]) for name in over}
            if still and backoff.over:
                return ended | dict.fromkeys(still, _given_up(cluster, next(iter(still))))
            if still:
                backoff.pause(KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS))
        refused = _ask(cluster, still, states)
        ended |= refused
        left, asked = [name for name in still if name not in refused], True
    return ended


def _ask(
    cluster: Cluster,
    identities: Mapping[str, ProducerIdentity],
    states: Mapping[str, TransactionDescription | None],
) -> dict[str, Ended]:
    """Send the requests together. Returns those that failed. For the others only the state says what was
    done: an answer is the same while the abort goes on and while another change is being written."""

    def request(connection: BrokerConnection, name: str) -> tuple[InitProducerIdRequestDraft, int]:
        state, who = states[name], identities[name]
        assert state is not None, "it is open"
        body: InitProducerIdRequestDraft = {
            "transactional_id": name,
            "transaction_timeout_ms": min(state.timeout_ms, _MOST_TIMEOUT_MS),
            "producer_id": who.producer_id,
            "producer_epoch": who.epoch,
        }
        return body, connection.pick(ApiKey.INIT_PRODUCER_ID, min_version=INIT_CURRENT, max_version=INIT_MAX)

    def read(name: str, answer: InitProducerIdResponse) -> None:
        if answer["error_code"] != ErrorCode.CONCURRENT_TRANSACTIONS:
            check(answer["error_code"], f"abort of {name!r} as {identities[name]} under its next epoch")

    answers = at_coordinators(cluster, "InitProducerId(abort)", identities, INIT_PRODUCER_ID, request, read)
    return {name: answer for name, answer in answers.items() if answer is not None}


def _given_up(cluster: Cluster, name: str) -> RetriesExhausted:
    limit = f"{cluster.config.delivery_timeout_ms} ms (kafka.delivery.timeout.ms)"
    return RetriesExhausted(
        f"abort of {name!r} under its next epoch: gave up after {limit}: its coordinator is busy with "
        "another change of it. Are the brokers up and well? Then start the query again"
    )


def _is_open(state: TransactionDescription | None, identity: ProducerIdentity) -> bool:
    return state is not None and (state.state, state.identity) == (_OPEN, identity)


def _outcome(name: str, state: TransactionDescription | None, identity: ProducerIdentity) -> Ended:
    """What has become of a transaction that is no longer open under its identity."""
    raised = identity._replace(epoch=identity.epoch + 1)
    if state is not None and state.state in _ABORTED and state.identity == raised:
        return raised
    seen = f"{state.state} at {state.identity}" if state is not None else "unknown to its coordinator"
    return RefusedByBroker(ErrorCode.PRODUCER_FENCED, f"abort of {name!r} as {identity}: it is {seen}")


# -- transactions ----------------------------------------------------------------------------------
# Transactions, by requests to their coordinator: open, end, commit offsets in them.
#
# Each call is retried while its failure may pass (see retry.py). All of them may be repeated if the first
# answer was lost. InitProducerId then only bumps the epoch once more. EndTxn answers a repeated request
# with its outcome if version and epoch stay the same (KIP-890), so all tries of a call use one version. TV2
# is transaction.version >= 2: no AddPartitionsToTxn, no AddOffsetsToTxn, and EndTxn 5 returns a bumped
# epoch. Every abort raises the epoch: by EndTxn 5, and below TV2 by InitProducerId (abort_by_epoch).
# Many transactional ids are ended, or taken over, by requests sent together (pipelined.py); the bundled
# broker ends them by one request, all visible at once.


TV2 = 2
_END_TXN_TV2 = 5
_END_TXN_TV1 = 4
_INIT_KEEPS = 6
_ADD_PARTITIONS_MAX = 3  # later versions are for brokers
_ADD_OFFSETS_MAX = 4
_TXN_OFFSETS_TV1 = 4


@dataclass(frozen=True)
class AcquiredTransaction:
    """A transaction that was taken over: the identity that can end it, and the one that wrote it (None:
    nothing was open)."""

    holder: ProducerIdentity
    wrote: ProducerIdentity | None


def init_producer_id(
    cluster: Cluster, transactional_id: str | None, timeout_ms: int, current: ProducerIdentity | None = None
) -> ProducerIdentity:
    """Get a producer id and epoch (InitProducerId). With a transactional id this fences its older users and
    aborts their open transaction; with `current` only if the id still has this identity (KIP-360), else
    PRODUCER_FENCED or INVALID_PRODUCER_EPOCH. Raises KafkaError, such as INVALID_TRANSACTION_TIMEOUT if the
    broker's transaction.max.timeout.ms is lower than `timeout_ms`."""
    body: InitProducerIdRequestDraft = {
        "transactional_id": transactional_id,
        "transaction_timeout_ms": timeout_ms,
    }
    if current is not None:
        body |= {"producer_id": current.producer_id, "producer_epoch": current.epoch}

    def attempt(connection: BrokerConnection) -> ProducerIdentity:
        version = connection.pick(
            ApiKey.INIT_PRODUCER_ID, min_version=INIT_CURRENT if current else 0, max_version=INIT_MAX
        )
        answer = connection.call(INIT_PRODUCER_ID, body, version=version)
        check(answer["error_code"], f"InitProducerId of {transactional_id!r} with time-out {timeout_ms} ms")
        return ProducerIdentity(answer["producer_id"], answer["producer_epoch"])

    if transactional_id is None:
        return retrying(
            cluster,
            "InitProducerId",
            lambda: attempt(cluster.any_broker()),
            option=DELIVERY_TIMEOUT,
            api=ApiKey.INIT_PRODUCER_ID,
        )
    return at_coordinator(
        cluster, "transaction", transactional_id, ApiKey.INIT_PRODUCER_ID, attempt, option=DELIVERY_TIMEOUT
    )


def end_txn(
    cluster: Cluster, transactional_id: str, identity: ProducerIdentity, commit: bool
) -> ProducerIdentity:
    """Commit or abort. Returns the identity to continue with. Raises KafkaError if refused, for instance
    INVALID_PRODUCER_EPOCH or PRODUCER_FENCED (another owner), INVALID_TXN_STATE (ended already)."""
    answer = end_txns(cluster, {transactional_id: identity}, commit)[transactional_id]
    if isinstance(answer, Exception):
        raise answer
    return answer


def end_txns(
    cluster: Cluster, identities: Mapping[str, ProducerIdentity], commit: bool
) -> dict[str, ProducerIdentity | EoslogError | KafkaError]:
    """`end_txn` for several transactional ids, by requests sent together. Returns each one's identity to
    continue with, or why it was not ended. If a broker can, it ends all that it coordinates in one step."""
    verb = "commit" if commit else "abort"
    aborted = {} if commit or cluster.transaction_version() >= TV2 else abort_by_epoch(cluster, identities)
    to_end = [name for name in identities if name not in aborted]
    chosen: dict[str, int] = {}

    def choose(connection: BrokerConnection, name: str) -> int:
        if name not in chosen:
            tv2 = cluster.transaction_version() >= TV2
            chosen[name] = connection.pick(ApiKey.END_TXN, max_version=_END_TXN_TV2 if tv2 else _END_TXN_TV1)
        return chosen[name]

    def named(name: str) -> EndTxnRequestTogetherDraft:
        who = identities[name]
        return {"transactional_id": name, "producer_id": who.producer_id, "producer_epoch": who.epoch}

    def request(connection: BrokerConnection, name: str) -> tuple[EndTxnRequestDraft, int]:
        who = identities[name]
        body: EndTxnRequestDraft = {
            "transactional_id": name,
            "producer_id": who.producer_id,
            "producer_epoch": who.epoch,
            "committed": commit,
        }
        return body, choose(connection, name)

    def together(
        connection: BrokerConnection, names: Sequence[str]
    ) -> dict[str, EndTxnResponse | EndTxnResponseTogether]:
        offered = connection.ends_together and len(names) > 1
        if not offered or {choose(connection, name) for name in names} != {_END_TXN_TV2}:
            return {}
        first, *others = names
        body, version = request(connection, first)
        body["together"] = [named(name) for name in others]
        answer = connection.call(END_TXN, body, version=version)
        others_ended = {other["transactional_id"]: other for other in answer["together"]}
        return {first: answer, **others_ended}

    def read(name: str, answer: EndTxnResponse | EndTxnResponseTogether) -> ProducerIdentity:
        check(answer["error_code"], f"{verb} of {name!r} as {identities[name]}")
        if chosen[name] < _END_TXN_TV2 or answer["producer_id"] < 0:
            return identities[name]
        return ProducerIdentity(answer["producer_id"], answer["producer_epoch"])

    return aborted | at_coordinators(cluster, f"EndTxn({verb})", to_end, END_TXN, request, read, together)


def keep_prepared(
    cluster: Cluster, names: Sequence[str], timeout_ms: int
) -> dict[str, AcquiredTransaction | EoslogError | KafkaError]:
    """Take over open transactions as they are. Only the new holder ends them, no time-out does (KIP-939).

    A transactional id without an open transaction starts a new one. The requests are sent together.
    UnsupportedByBroker if the broker has no InitProducerId 6. (`timeout_ms` only matters to brokers that use
    it in that request.)
    """

    def request(connection: BrokerConnection, name: str) -> tuple[InitProducerIdRequestDraft, int]:
        body: InitProducerIdRequestDraft = {
            "transactional_id": name,
            "transaction_timeout_ms": timeout_ms,
            "enable2_pc": True,
            "keep_prepared_txn": True,
        }
        return body, connection.pick(ApiKey.INIT_PRODUCER_ID, min_version=_INIT_KEEPS)

    def read(name: str, answer: InitProducerIdResponse) -> AcquiredTransaction:
        check(answer["error_code"], f"InitProducerId(keepPreparedTxn) of {name!r}")
        wrote = ProducerIdentity(answer["ongoing_txn_producer_id"], answer["ongoing_txn_producer_epoch"])
        holder = ProducerIdentity(answer["producer_id"], answer["producer_epoch"])
        return AcquiredTransaction(holder, wrote if wrote.producer_id >= 0 else None)

    return at_coordinators(cluster, "InitProducerId(keepPreparedTxn)", names, INIT_PRODUCER_ID, request, read)


def add_partitions(
    cluster: Cluster, transactional_id: str, identity: ProducerIdentity, partitions: Iterable[TopicPartition]
) -> None:
    """Add partitions to the transaction before their first record is sent (TV1 only). Raises KafkaError."""
    wanted = list(partitions)
    topics: list[AddPartitionsToTxnRequestV3AndBelowTopicDraft] = [
        {"name": topic, "partitions": numbers} for topic, numbers in by_topic((t, p, p) for t, p in wanted)
    ]
    body: AddPartitionsToTxnRequestDraft = {
        "v3_and_below_transactional_id": transactional_id,
        "v3_and_below_producer_id": identity.producer_id,
        "v3_and_below_producer_epoch": identity.epoch,
        "v3_and_below_topics": topics,
    }

    def attempt(connection: BrokerConnection) -> None:
        answer = connection.call(ADD_PARTITIONS_TO_TXN, body, max_version=_ADD_PARTITIONS_MAX)
        codes = {
            (topic["name"], part["partition_index"]): part["partition_error_code"]
            for topic in answer["results_by_topic_v3_and_below"]
            for part in topic["results_by_partition"]
        }
        _check_all(codes, wanted, f"AddPartitionsToTxn of {transactional_id!r}")

    at_coordinator(
        cluster,
        "transaction",
        transactional_id,
        ApiKey.ADD_PARTITIONS_TO_TXN,
        attempt,
        option=DELIVERY_TIMEOUT,
    )


def commit_offsets(
    cluster: Cluster,
    transactional_id: str,
    identity: ProducerIdentity,
    group: str,
    offsets: Mapping[TopicPartition, tuple[int, str]],
    epochs: Epochs | None = None,
) -> None:
    """Commit offsets and their metadata (at most 4,096 characters each) in the open transaction.

    `epochs`: the leader epoch of the record before each offset, if known. Raises KafkaError if any partition
    is refused, even if others were accepted: then abort.
    """
    tv2 = cluster.transaction_version() >= TV2
    if not tv2:
        _add_offsets(cluster, transactional_id, identity, group)
    for part in at_once(group, offsets):
        body: TxnOffsetCommitRequestDraft = {
            "transactional_id": transactional_id,
            "group_id": group,
            "producer_id": identity.producer_id,
            "producer_epoch": identity.epoch,
            "topics": rows_of(part, epochs),
        }
        _commit_at_once(cluster, body, list(part), tv2)


def _commit_at_once(
    cluster: Cluster, body: TxnOffsetCommitRequestDraft, wanted: list[TopicPartition], tv2: bool
) -> None:
    name, group = body["transactional_id"], body["group_id"]

    def attempt(connection: BrokerConnection) -> None:
        version = connection.pick(
            ApiKey.TXN_OFFSET_COMMIT,
            max_version=None if tv2 else _TXN_OFFSETS_TV1,
            min_version=_TXN_OFFSETS_TV1 + 1 if tv2 else 0,
        )
        answer = connection.call(TXN_OFFSET_COMMIT, body, version=version)
        codes = {
            (topic["name"], part["partition_index"]): part["error_code"]
            for topic in answer["topics"]
            for part in topic["partitions"]
        }
        _check_all(codes, wanted, f"TxnOffsetCommit of {name!r} to group {group!r}")

    at_coordinator(cluster, "group", group, ApiKey.TXN_OFFSET_COMMIT, attempt, option=DELIVERY_TIMEOUT)


def _add_offsets(cluster: Cluster, transactional_id: str, identity: ProducerIdentity, group: str) -> None:
    body: AddOffsetsToTxnRequestDraft = {
        "transactional_id": transactional_id,
        "producer_id": identity.producer_id,
        "producer_epoch": identity.epoch,
        "group_id": group,
    }

    def attempt(connection: BrokerConnection) -> None:
        answer = connection.call(ADD_OFFSETS_TO_TXN, body, max_version=_ADD_OFFSETS_MAX)
        check(answer["error_code"], f"AddOffsetsToTxn of {transactional_id!r} for group {group!r}")

    at_coordinator(
        cluster, "transaction", transactional_id, ApiKey.ADD_OFFSETS_TO_TXN, attempt, option=DELIVERY_TIMEOUT
    )


def _check_all(codes: Mapping[TopicPartition, int], wanted: Sequence[TopicPartition], what: str) -> None:
    """Raise the worst error: one that will not pass comes before one that may."""
    missing = [tp for tp in wanted if tp not in codes]
    if missing:
        raise RefusedByBroker(ErrorCode.UNKNOWN_SERVER_ERROR, f"{what}: no answer for {_named(missing)}")
    refused = sorted((passes(KafkaError(code)), tp, code) for tp, code in codes.items() if code)
    if refused:
        worst = refused[0][2]
        names = [tp for _, tp, code in refused if code == worst]
        check(worst, f"{what}: refused for {_named(names)}")


def _named(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(f"{topic}-{p}" for topic, p in partitions)

"""Aborts open transactions under their next epoch, by InitProducerId: for transaction.version below 2.

There an abort by EndTxn leaves the epoch as it is, and its markers carry the same one. A batch of the aborted
transaction that reaches a leader after the marker is then in sequence. Leaders refuse it only if they ask the
coordinator first (KIP-890, from Kafka 3.6 on, unless `transaction.partition.verification.enable=false`).
Others take it, in a transaction that no coordinator knows of, and the next commit of the same producer id
makes its rows visible. InitProducerId by the present owner (KIP-360) aborts as a time-out does: the markers
carry the next epoch, so every partition of the transaction refuses the older one from then on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from eoslog.client.admin.transaction_states import TransactionDescription, describe
from eoslog.client.wire.cluster import Cluster
from eoslog.client.wire.connection import BrokerConnection
from eoslog.client.wire.pipelined import at_coordinators
from eoslog.client.wire.retry import Backoff, check
from eoslog.errors import (
    BrokerUnreachable,
    ConnectionLost,
    EoslogError,
    RefusedByBroker,
    RetriesExhausted,
)
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.errors import ErrorCode, KafkaError
from eoslog.protocol.producer_identity import ProducerIdentity
from eoslog.protocol.typed import INIT_PRODUCER_ID

if TYPE_CHECKING:
    from eoslog.protocol.typed import InitProducerIdRequestDraft, InitProducerIdResponse

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

"""DescribeTransactions (key 65, version 0): state, producer, time-out and partitions of transactional ids.

The answer is durable. For a prepared transaction only the partitions that have no marker yet are listed
(KIP-664). An unknown id gets TRANSACTIONAL_ID_NOT_FOUND, an empty one INVALID_REQUEST.

Complete.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from eoslog.broker.authorize.access import TRANSACTION_DENIED, AccessRequest, Restore, remove_denied
from eoslog.broker.requests import RequestContext
from eoslog.protocol.acls import AclOperation, ResourceType
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from eoslog.protocol.typed import (
        DescribeTransactionsRequest,
        DescribeTransactionsResponseDraft,
        DescribeTransactionsResponseTopicDraft,
        DescribeTransactionsResponseTransactionStateDraft,
    )


KEY = ApiKey.DESCRIBE_TRANSACTIONS
VERSIONS = (0, 0)


def access(
    asked: AccessRequest[DescribeTransactionsRequest],
) -> Restore[DescribeTransactionsResponseDraft]:
    """Needs DESCRIBE on each id; topics that may not be described are omitted."""
    restore_denied = remove_denied(
        asked,
        "transactional_ids",
        lambda name: asked.may(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, name),
        TRANSACTION_DENIED,
    )

    def restore(answer: DescribeTransactionsResponseDraft) -> DescribeTransactionsResponseDraft:
        states = [
            state
            | {
                "topics": [
                    topic
                    for topic in state.get("topics", ())
                    if asked.may(AclOperation.DESCRIBE, ResourceType.TOPIC, topic["topic"], log=False)
                ]
            }
            for state in answer["transaction_states"]
        ]
        answer = answer | {"transaction_states": states}
        return restore_denied(answer) if restore_denied else answer

    return restore


def handle(
    context: RequestContext, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponseDraft:
    """Describe each id separately."""
    return {"transaction_states": [_describe(context, named) for named in request["transactional_ids"]]}


def _describe(
    context: RequestContext, transactional_id: str
) -> DescribeTransactionsResponseTransactionStateDraft:
    if not transactional_id:
        return _nothing(transactional_id, ErrorCode.INVALID_REQUEST)
    try:
        found = context.broker.transactions.describe(transactional_id)
    except KafkaError as error:
        return _nothing(transactional_id, error.code)
    if found is None:
        return _nothing(transactional_id, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    return {
        "error_code": 0,
        "transactional_id": transactional_id,
        "transaction_state": found.state.text,
        "transaction_timeout_ms": found.timeout_ms,
        "transaction_start_time_ms": found.start_ms,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "topics": _by_topic(found.partitions),
    }


def _nothing(transactional_id: str, code: ErrorCode) -> DescribeTransactionsResponseTransactionStateDraft:
    return {
        "error_code": code,
        "transactional_id": transactional_id,
        "transaction_state": "",
        "transaction_timeout_ms": 0,
        "transaction_start_time_ms": 0,
        "producer_id": 0,
        "producer_epoch": 0,
        "topics": [],
    }


def _by_topic(partitions: Iterable[tuple[str, int]]) -> list[DescribeTransactionsResponseTopicDraft]:
    topics: dict[str, list[int]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append(index)
    return [{"topic": topic, "partitions": indexes} for topic, indexes in topics.items()]

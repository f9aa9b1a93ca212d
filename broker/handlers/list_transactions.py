"""ListTransactions (key 66, versions 0-2): transactional ids by state, producer id, age (v1), pattern (v2).

An id must pass all filters given. States are named as in DescribeTransactions; unknown names are returned in
unknown_state_filters. The age counts from the start of the last transaction; an id that never had one is old.
The pattern, in RE2's dialect as in Kafka, must match the whole id (KIP-1152); an invalid one gets
INVALID_REGULAR_EXPRESSION.

COORDINATOR_NOT_AVAILABLE without a list if the outcome of a change is unknown after a disk fault: a list
without that id would be taken as proof that it does not exist.

Complete.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from eoslog.broker.authorize.access import AccessRequest, Restore
from eoslog.broker.coordinator.groups.consumer_group_state import check_regex, matching
from eoslog.broker.coordinator.transactions.transaction_state import STATE_BY_TEXT, TransactionMetadata
from eoslog.broker.requests import RequestContext
from eoslog.protocol.acls import AclOperation, ResourceType
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.errors import KafkaError

if TYPE_CHECKING:
    from eoslog.protocol.typed import ListTransactionsRequest, ListTransactionsResponseDraft


KEY = ApiKey.LIST_TRANSACTIONS
VERSIONS = (0, 2)


def access(
    asked: AccessRequest[ListTransactionsRequest],
) -> Restore[ListTransactionsResponseDraft]:
    """Lists the ids that the client may describe."""

    def restore(answer: ListTransactionsResponseDraft) -> ListTransactionsResponseDraft:
        states = [
            state
            for state in answer["transaction_states"]
            if asked.may(
                AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, state["transactional_id"], log=False
            )
        ]
        return answer | {"transaction_states": states}

    return restore


def handle(context: RequestContext, request: ListTransactionsRequest) -> ListTransactionsResponseDraft:
    """List the transactions that pass all filters."""
    try:
        found = _matching(request.get("transactional_id_pattern"), context.broker.transactions.list())
    except KafkaError as error:
        return {"error_code": error.code, "unknown_state_filters": [], "transaction_states": []}
    texts = request["state_filters"]
    states = {STATE_BY_TEXT[text] for text in texts if text in STATE_BY_TEXT}
    producers, age = set(request["producer_id_filters"]), request.get("duration_filter", -1)
    now_ms = context.broker.clock.now_ms()

    def passes(one: TransactionMetadata) -> bool:
        return (
            (not texts or one.state in states)
            and (not producers or one.producer_id in producers)
            and (age < 0 or now_ms - one.start_ms > age)
        )

    return {
        "error_code": 0,
        "unknown_state_filters": [text for text in texts if text not in STATE_BY_TEXT],
        "transaction_states": [
            {
                "transactional_id": one.transactional_id,
                "producer_id": one.producer_id,
                "transaction_state": one.state.text,
            }
            for one in found
            if passes(one)
        ],
    }


def _matching(pattern: str | None, all_ids: Sequence[TransactionMetadata]) -> Sequence[TransactionMetadata]:
    """The transactions whose whole id matches; an empty or missing pattern matches all. Raises KafkaError."""
    if not pattern:
        return all_ids
    check_regex(pattern)
    names = matching(pattern, (one.transactional_id for one in all_ids))
    return [one for one in all_ids if one.transactional_id in names]

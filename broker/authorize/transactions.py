"""Access to transactional ids and transactions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eoslog.broker.authorize.access_request import AccessRequest, RequestRefused, Restore
from eoslog.broker.authorize.filtering import (
    CLUSTER_DENIED,
    GROUP_DENIED,
    TOPIC_DENIED,
    TRANSACTION_DENIED,
    denied_entries,
    in_turn,
    needs,
    refusal,
    remove_denied,
)
from eoslog.broker.authorize.groups import read_topics
from eoslog.broker.rules.acls import AclOperation, ResourceType
from eoslog.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from eoslog.protocol.typed import (
        AddPartitionsToTxnRequest,
        AddPartitionsToTxnRequestV3AndBelowTopic,
        AddPartitionsToTxnResponseDraft,
        DescribeTransactionsRequest,
        DescribeTransactionsResponseDraft,
        EndTxnRequest,
        EndTxnRequestTogether,
        EndTxnResponseDraft,
        FindCoordinatorRequest,
        FindCoordinatorResponseDraft,
        InitProducerIdRequest,
        InitProducerIdResponseDraft,
        ListTransactionsRequest,
        ListTransactionsResponseDraft,
        WriteTxnMarkersRequest,
        WriteTxnMarkersResponseDraft,
    )


_ID = ResourceType.TRANSACTIONAL_ID

_writes = needs(AclOperation.WRITE, _ID, "transactional_id")


def _together(asked: AccessRequest[EndTxnRequest]) -> Restore[EndTxnResponseDraft] | None:
    def allowed(named: EndTxnRequestTogether) -> bool:
        return asked.may(AclOperation.WRITE, _ID, named["transactional_id"])

    return remove_denied(asked, "together", allowed, TRANSACTION_DENIED)


end_txn = in_turn(_writes, _together)

add_offsets_to_txn = in_turn(_writes, needs(AclOperation.READ, ResourceType.GROUP, "group_id"))

txn_offset_commit = in_turn(
    _writes,
    needs(AclOperation.READ, ResourceType.GROUP, "group_id"),
    read_topics,
)


def init_producer_id(
    asked: AccessRequest[InitProducerIdRequest],
) -> RequestRefused[InitProducerIdResponseDraft] | None:
    """Needs WRITE on the transactional id; without an id, IDEMPOTENT_WRITE or WRITE on some topic."""
    name = asked.request["transactional_id"]
    if name is None:
        if asked.may_cluster(AclOperation.IDEMPOTENT_WRITE, log=False) or asked.may_some(
            AclOperation.WRITE, ResourceType.TOPIC
        ):
            return None
        return refusal(asked, CLUSTER_DENIED)
    if asked.may(AclOperation.WRITE, _ID, name) and (
        not asked.request["enable2_pc"] or asked.may(AclOperation.TWO_PHASE_COMMIT, _ID, name)
    ):
        return None
    return refusal(asked, TRANSACTION_DENIED)


_BATCHED = 4


def add_partitions_to_txn(
    asked: AccessRequest[AddPartitionsToTxnRequest],
) -> RequestRefused[AddPartitionsToTxnResponseDraft] | None:
    """Needs WRITE on the id and on every topic, or nothing is added. From version 4 for brokers only."""
    request = asked.request
    if asked.version >= _BATCHED:
        if asked.may_cluster(AclOperation.CLUSTER_ACTION):
            return None
        return refusal(asked, CLUSTER_DENIED)
    topics = request["v3_and_below_topics"]
    if not asked.may(AclOperation.WRITE, _ID, request["v3_and_below_transactional_id"]):
        return refusal(asked, TRANSACTION_DENIED)
    denied = {t["name"] for t in topics if not asked.may_topic(AclOperation.WRITE, t["name"])}
    if not denied:
        return None

    def code(topic: AddPartitionsToTxnRequestV3AndBelowTopic) -> ErrorCode:
        return TOPIC_DENIED if topic["name"] in denied else ErrorCode.OPERATION_NOT_ATTEMPTED

    return RequestRefused(denied_entries(asked, "v3_and_below_topics", topics, code))


def write_txn_markers(
    asked: AccessRequest[WriteTxnMarkersRequest],
) -> RequestRefused[WriteTxnMarkersResponseDraft] | None:
    """Needs ALTER or CLUSTER_ACTION on the cluster."""
    if asked.may_cluster(AclOperation.ALTER, log=False) or asked.may_cluster(AclOperation.CLUSTER_ACTION):
        return None
    return refusal(asked, CLUSTER_DENIED)


def describe_transactions(
    asked: AccessRequest[DescribeTransactionsRequest],
) -> Restore[DescribeTransactionsResponseDraft]:
    """Needs DESCRIBE on each id; topics that may not be described are omitted."""
    restore_denied = remove_denied(
        asked,
        "transactional_ids",
        lambda name: asked.may(AclOperation.DESCRIBE, _ID, name),
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


def list_transactions(
    asked: AccessRequest[ListTransactionsRequest],
) -> Restore[ListTransactionsResponseDraft]:
    """Lists the ids that the client may describe."""

    def restore(answer: ListTransactionsResponseDraft) -> ListTransactionsResponseDraft:
        states = [
            state
            for state in answer["transaction_states"]
            if asked.may(AclOperation.DESCRIBE, _ID, state["transactional_id"], log=False)
        ]
        return answer | {"transaction_states": states}

    return restore


def find_coordinator(
    asked: AccessRequest[FindCoordinatorRequest],
) -> RequestRefused[FindCoordinatorResponseDraft] | Restore[FindCoordinatorResponseDraft] | None:
    """Needs DESCRIBE on the group or the transactional id."""
    kinds = {0: (ResourceType.GROUP, GROUP_DENIED), 1: (_ID, TRANSACTION_DENIED)}
    found = kinds.get(asked.request["key_type"])
    if found is None:
        return None  # the handler knows no other
    resource, code = found
    if asked.version < _BATCHED:
        allowed = asked.may(AclOperation.DESCRIBE, resource, asked.request["key"])
        return None if allowed else refusal(asked, code)
    return remove_denied(
        asked, "coordinator_keys", lambda key: asked.may(AclOperation.DESCRIBE, resource, key), code
    )

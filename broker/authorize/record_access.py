"""Access to records: Produce, Fetch, ListOffsets and other APIs that read or write partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eoslog.broker.authorize.access_request import AccessRequest, RequestRefused, Restore
from eoslog.broker.authorize.filtering import TOPIC_DENIED, TRANSACTION_DENIED, in_turn, refusal, topics
from eoslog.broker.rules.acls import AclOperation, ResourceType
from eoslog.protocol.batch import CorruptBatch, read_header
from eoslog.protocol.error_places import error_answer

if TYPE_CHECKING:
    from eoslog.protocol.typed import (
        FetchRequest,
        FetchResponseDraft,
        OffsetForLeaderEpochRequest,
        OffsetForLeaderEpochResponseDraft,
        ProduceRequest,
        ProduceResponseDraft,
    )


def _transactional_id(asked: AccessRequest[ProduceRequest]) -> RequestRefused[ProduceResponseDraft] | None:
    """A client that writes transactional batches needs WRITE on their id, or nothing is appended."""
    transactional_id = asked.request["transactional_id"]
    if not _has_transactional(asked.request) or (
        transactional_id is not None
        and asked.may(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)
    ):
        return None
    return RequestRefused(error_answer(asked.key, asked.version, asked.request, TRANSACTION_DENIED))


def _has_transactional(request: ProduceRequest) -> bool:
    """Whether one of the batches is transactional. Malformed batches are refused later."""
    for topic in request["topic_data"]:
        for part in topic["partition_data"]:
            try:
                if part["records"] and read_header(part["records"]).is_transactional:
                    return True
            except CorruptBatch:
                continue
    return False


produce = in_turn(
    _transactional_id,
    topics(AclOperation.WRITE, field="topic_data"),
)


_fetched = topics(AclOperation.READ, name="topic")


def fetch(
    asked: AccessRequest[FetchRequest],
) -> RequestRefused[FetchResponseDraft] | Restore[FetchResponseDraft] | None:
    """Consumers need READ on each topic. A client that claims to be a follower needs CLUSTER_ACTION."""
    request = asked.request
    if max(request["replica_id"], request["replica_state"]["replica_id"]) < 0:
        return _fetched(asked)
    if asked.may_cluster(AclOperation.CLUSTER_ACTION):
        return None
    return refusal(asked, TOPIC_DENIED)


list_offsets = topics(AclOperation.DESCRIBE)

_epochs = topics(AclOperation.DESCRIBE, name="topic")


def offset_for_leader_epoch(
    asked: AccessRequest[OffsetForLeaderEpochRequest],
) -> RequestRefused[OffsetForLeaderEpochResponseDraft] | Restore[OffsetForLeaderEpochResponseDraft] | None:
    """Needs DESCRIBE on each topic; with CLUSTER_ACTION all topics are allowed."""
    if asked.may_cluster(AclOperation.CLUSTER_ACTION, log=False):
        return None
    return _epochs(asked)


delete_records = topics(AclOperation.DELETE)

describe_producers = topics(AclOperation.READ)

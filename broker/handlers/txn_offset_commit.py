"""TxnOffsetCommit (key 28, versions 0-5): commit a group's offsets as part of a transaction.

The offsets become visible when the transaction's commit marker is in `__consumer_offsets`, and never if it
aborts. Up to version 4 AddOffsetsToTxn must have come before: else TRANSACTION_ABORTABLE (version 4) or
INVALID_TXN_STATE. From version 5 this request itself adds the group's partition to the transaction (KIP-890).
COORDINATOR_LOAD_IN_PROGRESS is COORDINATOR_NOT_AVAILABLE before version 2.
If one topic or partition does not exist, the whole request is refused with UNKNOWN_TOPIC_OR_PARTITION, so
that offsets that belong together are not half committed. Metadata that is too long is refused for its
partition only.

Complete.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from eoslog.broker.authorize.access import in_turn, needs, topics
from eoslog.broker.coordinator.groups.group_offsets import Results, TransactionalCommit
from eoslog.broker.handlers.offset_commit import Named, committer
from eoslog.broker.requests import RequestContext
from eoslog.protocol.acls import AclOperation, ResourceType
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from eoslog.protocol.typed import TxnOffsetCommitRequest, TxnOffsetCommitResponseDraft


KEY = ApiKey.TXN_OFFSET_COMMIT
VERSIONS = (0, 5)


_writes = needs(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, "transactional_id")


access = in_turn(
    _writes,
    needs(AclOperation.READ, ResourceType.GROUP, "group_id"),
    topics(AclOperation.READ),
)


def handle(
    context: RequestContext, request: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponseDraft | Awaitable[TxnOffsetCommitResponseDraft]:
    """Commit all offsets, unless one of the partitions does not exist."""
    named = Named(context, KEY, [(topic["name"], topic) for topic in request["topics"]])
    if named.unknown:
        return {"topics": named.refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)}
    txn = TransactionalCommit(
        request["transactional_id"],
        request["producer_id"],
        request["producer_epoch"],
        context.header.api_version,
    )
    try:
        who = committer(request, request["generation_id"])
        pending = context.broker.groups.txn_commit_offsets(txn, who, named.offsets)
    except KafkaError as error:
        return {"topics": named.refused(error.code)}
    # Not `Settled`: it may still have to join the transaction, and a later EndTxn must wait for it.
    return _answer(named, pending)


async def _answer(named: Named, pending: Awaitable[Results]) -> TxnOffsetCommitResponseDraft:
    return {"topics": await named.settled(pending)}

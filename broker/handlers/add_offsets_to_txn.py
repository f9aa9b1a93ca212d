"""AddOffsetsToTxn (key 25, versions 0-4): let a group's offsets be committed in a transaction.

Adds the group's partition of `__consumer_offsets` to the transaction. Clients of KIP-890 part 2 do not send
this request: their TxnOffsetCommit does the same. PRODUCER_FENCED is INVALID_PRODUCER_EPOCH before version 2.

Complete.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eoslog.broker.authorize.access import in_turn, needs
from eoslog.broker.requests import RequestContext
from eoslog.protocol.acls import AclOperation, ResourceType
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.error_places import for_version
from eoslog.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from eoslog.protocol.typed import AddOffsetsToTxnRequest, AddOffsetsToTxnResponseDraft


KEY = ApiKey.ADD_OFFSETS_TO_TXN
VERSIONS = (0, 4)


_writes = needs(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, "transactional_id")


access = in_turn(_writes, needs(AclOperation.READ, ResourceType.GROUP, "group_id"))


async def handle(context: RequestContext, request: AddOffsetsToTxnRequest) -> AddOffsetsToTxnResponseDraft:
    """Add the group's partition."""
    try:
        if not request["group_id"]:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
        partition = context.broker.groups.group_partition(request["group_id"])
        await context.broker.transactions.add_partitions(
            request["transactional_id"],
            request["producer_id"],
            request["producer_epoch"],
            [(partition.topic, partition.index)],
        )
    except KafkaError as error:
        return {"error_code": for_version(KEY, context.header.api_version, error.code)}
    return {"error_code": 0}

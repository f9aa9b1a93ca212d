"""CreatePartitions (key 37, versions 0-3): add partitions to topics (KIP-195).

The new partitions can be used at once, and a crash never leaves a topic with only some of them. A number that
is not larger than the present one is INVALID_PARTITIONS, and so is any change of the broker's own topics. A
manual assignment must name this node alone for each new partition, else INVALID_REPLICA_ASSIGNMENT. A topic
that is named twice is INVALID_REQUEST. validate_only checks all that and adds nothing.

Complete.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from eoslog.broker.authorize.access import TOPIC_DENIED, AccessRequest, Restore, remove_denied
from eoslog.broker.requests import RequestContext
from eoslog.broker.topics.partition_creation import check_replicas
from eoslog.protocol.acls import AclOperation
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from eoslog.protocol.typed import (
        CreatePartitionsRequest,
        CreatePartitionsRequestTopic,
        CreatePartitionsResponseDraft,
        CreatePartitionsResponseResultDraft,
    )


KEY = ApiKey.CREATE_PARTITIONS
VERSIONS = (0, 3)


def access(
    asked: AccessRequest[CreatePartitionsRequest],
) -> Restore[CreatePartitionsResponseDraft] | None:
    """Needs ALTER on the topic."""

    def allowed(topic: CreatePartitionsRequestTopic) -> bool:
        return asked.may_topic(AclOperation.ALTER, topic["name"])

    return remove_denied(asked, "topics", allowed, TOPIC_DENIED)


async def handle(context: RequestContext, request: CreatePartitionsRequest) -> CreatePartitionsResponseDraft:
    """Enlarge each topic separately: one that is refused does not stop the others."""
    counts = Counter(topic["name"] for topic in request["topics"])
    wanted = {topic["name"]: topic for topic in request["topics"]}
    results: list[CreatePartitionsResponseResultDraft] = []
    for name, topic in wanted.items():
        code, message = ErrorCode.NONE, None
        try:
            if counts[name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"topic {name} is in this request twice")
            await _enlarge(context, topic, request["validate_only"])
        except KafkaError as error:
            code, message = error.code, error.message
        results.append({"name": name, "error_code": code, "error_message": message})
    return {"results": results}


async def _enlarge(
    context: RequestContext, wanted: CreatePartitionsRequestTopic, validate_only: bool
) -> None:
    broker, name = context.broker, wanted["name"]
    total, assignments = wanted["count"], wanted["assignments"]
    added = total - len(broker.topics.check_add_partitions(name, total).partitions)
    if assignments is not None:
        if len(assignments) != added:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"topic {name}: {added} new partitions, but {len(assignments)} assignments",
            )
        for one in assignments:
            check_replicas(broker.node_id, one["broker_ids"])
    if not validate_only:
        await broker.topics.add_partitions_gently(name, total)

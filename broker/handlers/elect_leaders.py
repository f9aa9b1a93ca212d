"""ElectLeaders (key 43, versions 0-2): the one node leads everything (KIP-460).

No election is ever needed. Each partition in the request gets ELECTION_NOT_NEEDED. A request that names none
means all; its answer lists the topics without partitions, as in Kafka. Unknown partitions are
UNKNOWN_TOPIC_OR_PARTITION, unknown kinds of election INVALID_REQUEST.

Complete.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eoslog.broker.authorize.access import needs
from eoslog.broker.requests import RequestContext
from eoslog.protocol.acls import AclOperation, ResourceType
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from eoslog.protocol.typed import (
        ElectLeadersRequest,
        ElectLeadersResponseDraft,
        ElectLeadersResponsePartitionResultDraft,
    )


KEY = ApiKey.ELECT_LEADERS
VERSIONS = (0, 2)


access = needs(AclOperation.ALTER, ResourceType.CLUSTER)


_PREFERRED, _UNCLEAN = 0, 1


def handle(context: RequestContext, request: ElectLeadersRequest) -> ElectLeadersResponseDraft:
    """Return for each partition that its leader stays."""
    topics = context.broker.topics
    if request["election_type"] not in (_PREFERRED, _UNCLEAN):
        return {"error_code": ErrorCode.INVALID_REQUEST, "replica_election_results": []}
    if request["topic_partitions"] is None:
        return {
            "replica_election_results": [{"topic": name, "partition_result": []} for name in topics.names()]
        }
    return {
        "replica_election_results": [
            {
                "topic": wanted["topic"],
                "partition_result": [
                    _result(index, topics.partition(wanted["topic"], index) is not None)
                    for index in wanted["partitions"]
                ],
            }
            for wanted in request["topic_partitions"]
        ]
    }


def _result(index: int, known: bool) -> ElectLeadersResponsePartitionResultDraft:
    code = ErrorCode.ELECTION_NOT_NEEDED if known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    message = "the only node is already its leader" if known else "there is no such partition"
    return {"partition_id": index, "error_code": code, "error_message": message}

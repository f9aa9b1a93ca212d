"""ListGroups (key 16, versions 0-5): all groups, including those that have only offsets.

Filters by state from version 4 (KIP-518) and by type from version 5 (KIP-848), in upper or lower case. A
group is "classic" or "consumer" (KIP-848). If some groups cannot be read, the answer is an error without a
list.

Complete.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eoslog.broker.authorize.access import AccessRequest, Restore
from eoslog.broker.coordinator.groups.classic_group_state import ClassicGroup
from eoslog.broker.coordinator.groups.committed_offsets import PROTOCOL_TYPE
from eoslog.broker.coordinator.groups.consumer_group_state import ConsumerGroup
from eoslog.broker.requests import RequestContext
from eoslog.protocol.acls import AclOperation, ResourceType
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.errors import KafkaError

if TYPE_CHECKING:
    from eoslog.protocol.typed import (
        ListGroupsRequest,
        ListGroupsResponseDraft,
        ListGroupsResponseGroupDraft,
    )


KEY = ApiKey.LIST_GROUPS
VERSIONS = (0, 5)


def access(asked: AccessRequest[ListGroupsRequest]) -> Restore[ListGroupsResponseDraft] | None:
    """With DESCRIBE on the cluster all groups are listed, else those that the client may describe."""
    if asked.may_cluster(AclOperation.DESCRIBE, log=False):
        return None

    def restore(answer: ListGroupsResponseDraft) -> ListGroupsResponseDraft:
        groups = [
            group
            for group in answer["groups"]
            if asked.may(AclOperation.DESCRIBE, ResourceType.GROUP, group["group_id"], log=False)
        ]
        return answer | {"groups": groups}

    return restore


def handle(context: RequestContext, request: ListGroupsRequest) -> ListGroupsResponseDraft:
    """List the groups that pass the filters; all pass an empty filter."""
    states = {state.lower() for state in request["states_filter"]}
    types = {kind.lower() for kind in request["types_filter"]}
    try:
        found = context.broker.groups.list_groups()
    except KafkaError as error:
        return {"error_code": error.code, "groups": []}
    groups = [
        listed
        for listed in map(_listed, found)
        if (not states or listed["group_state"].lower() in states)
        and (not types or listed["group_type"] in types)
    ]
    return {"groups": groups}


def _listed(group: ClassicGroup | ConsumerGroup) -> ListGroupsResponseGroupDraft:
    if isinstance(group, ClassicGroup):
        kind, protocol = "classic", group.protocol_type or ""
    else:
        kind, protocol = "consumer", PROTOCOL_TYPE
    return {
        "group_id": group.group_id,
        "protocol_type": protocol,
        "group_state": group.state.value,
        "group_type": kind,
    }

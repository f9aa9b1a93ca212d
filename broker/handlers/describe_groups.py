"""DescribeGroups (key 15, versions 0-6): state and members of classic groups.

Every group in the request is in the answer, in its order (librdkafka stops the process otherwise). One that
does not exist is Dead, from version 6 with GROUP_ID_NOT_FOUND (KIP-1043). Subscriptions and assignments of
members are shown only for Stable groups. Authorized operations are returned if asked for and ACLs are on;
else they are "not asked for". Consumer groups (KIP-848) are not included: ConsumerGroupDescribe describes
them.

Complete.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eoslog.broker.authorize.access import (
    GROUP_DENIED,
    AccessRequest,
    Restore,
    add_group_operations,
    remove_denied,
)
from eoslog.broker.coordinator.groups.classic_group_state import ClassicGroup, ClassicGroupState
from eoslog.broker.requests import RequestContext
from eoslog.protocol.acls import AclOperation, ResourceType
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.error_places import for_version
from eoslog.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from eoslog.protocol.typed import (
        DescribeGroupsRequest,
        DescribeGroupsResponseDraft,
        DescribeGroupsResponseGroupDraft,
    )


KEY = ApiKey.DESCRIBE_GROUPS
VERSIONS = (0, 6)


def access(asked: AccessRequest[DescribeGroupsRequest]) -> Restore[DescribeGroupsResponseDraft]:
    """Needs DESCRIBE on each group; adds the authorized operations where the request asks for them."""
    restore_denied = remove_denied(
        asked,
        "groups",
        lambda group: asked.may(AclOperation.DESCRIBE, ResourceType.GROUP, group),
        GROUP_DENIED,
    )
    ask = asked.request["include_authorized_operations"]

    def restore(answer: DescribeGroupsResponseDraft) -> DescribeGroupsResponseDraft:
        if ask:
            add_group_operations(asked, answer["groups"])
        return restore_denied(answer) if restore_denied else answer

    return restore


_MESSAGES_SINCE = 6


def handle(context: RequestContext, request: DescribeGroupsRequest) -> DescribeGroupsResponseDraft:
    """Describe each group."""
    version = context.header.api_version
    return {"groups": [_describe(context, group_id, version) for group_id in request["groups"]]}


def _describe(context: RequestContext, group_id: str, version: int) -> DescribeGroupsResponseGroupDraft:
    try:
        group = context.broker.groups.describe(group_id)
    except KafkaError as error:
        message: DescribeGroupsResponseGroupDraft = (
            {"error_message": str(error)} if version >= _MESSAGES_SINCE else {}
        )
        return {"group_id": group_id, "error_code": error.code, **message}
    return _group(group_id, group, version)


def _group(group_id: str, group: ClassicGroup | None, version: int) -> DescribeGroupsResponseGroupDraft:
    if group is None:
        code = for_version(KEY, version, ErrorCode.GROUP_ID_NOT_FOUND)
        missing: DescribeGroupsResponseGroupDraft = {
            "group_id": group_id,
            "group_state": ClassicGroupState.DEAD.value,
            "error_code": code,
        }
        if code:
            missing["error_message"] = f"Group {group_id} not found."
        return missing
    stable = group.state is ClassicGroupState.STABLE
    protocol = group.protocol or ""
    return {
        "group_id": group_id,
        "group_state": group.state.value,
        "protocol_type": group.protocol_type or "",
        "protocol_data": protocol if stable else "",
        "members": [
            {
                "member_id": member.member_id,
                "group_instance_id": member.instance_id,
                "client_id": member.client_id,
                "client_host": member.client_host,
                "member_metadata": member.metadata(protocol) if stable else b"",
                "member_assignment": member.assignment if stable else b"",
            }
            for member in group.members.values()
        ],
    }

"""ConsumerGroupDescribe (key 69, versions 0-1): state, epochs and members of consumer groups (KIP-848).

Every group in the request is answered, in its order; one that is not a consumer group gets
GROUP_ID_NOT_FOUND. A member's assignment includes the partitions that it still has to give back. From version
1 all members are reported as using the consumer protocol. Authorized operations are returned if asked for and
ACLs are on; else they are "not asked for".

Complete.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from eoslog.broker.authorize.access import (
    GROUP_DENIED,
    TOPIC_DENIED,
    AccessRequest,
    Restore,
    add_group_operations,
    remove_denied,
)
from eoslog.broker.coordinator.groups.consumer_group_state import (
    ConsumerGroup,
    ConsumerGroupMember,
    ConsumerGroupState,
    Part,
)
from eoslog.broker.coordinator.groups.group_records import write_parts
from eoslog.broker.requests import RequestContext
from eoslog.protocol.acls import AclOperation, ResourceType
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from eoslog.protocol.typed import (
        ConsumerGroupDescribeRequest,
        ConsumerGroupDescribeResponseAssignmentDraft,
        ConsumerGroupDescribeResponseDraft,
        ConsumerGroupDescribeResponseGroupDraft,
        ConsumerGroupDescribeResponseMemberDraft,
        ConsumerGroupDescribeResponseTopicPartitionDraft,
    )


KEY = ApiKey.CONSUMER_GROUP_DESCRIBE
VERSIONS = (0, 1)


def access(
    asked: AccessRequest[ConsumerGroupDescribeRequest],
) -> Restore[ConsumerGroupDescribeResponseDraft]:
    """The same for groups of KIP-848; one with a topic that may not be described is not told at all."""
    restore_denied = remove_denied(
        asked,
        "group_ids",
        lambda group: asked.may(AclOperation.DESCRIBE, ResourceType.GROUP, group),
        GROUP_DENIED,
    )
    ask = asked.request["include_authorized_operations"]

    def restore(answer: ConsumerGroupDescribeResponseDraft) -> ConsumerGroupDescribeResponseDraft:
        groups = [_hidden(asked, group) for group in answer["groups"]]
        if ask:
            add_group_operations(asked, groups)
        answer = answer | {"groups": groups}
        return restore_denied(answer) if restore_denied else answer

    return restore


def _hidden(
    asked: AccessRequest[ConsumerGroupDescribeRequest], group: ConsumerGroupDescribeResponseGroupDraft
) -> ConsumerGroupDescribeResponseGroupDraft:
    names = {
        part["topic_name"]
        for one in group.get("members", ())
        for assignment in (one["assignment"], one["target_assignment"])
        for part in assignment["topic_partitions"]
    }
    if all(asked.may(AclOperation.DESCRIBE, ResourceType.TOPIC, name, log=False) for name in names):
        return group
    return {
        "group_id": group["group_id"],
        "error_code": TOPIC_DENIED,
        "error_message": "The group has topics that the client may not describe.",
    }


_CONSUMER = 1


def handle(
    context: RequestContext, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponseDraft:
    """Describe each group."""
    return {"groups": [_describe(context, group_id) for group_id in request["group_ids"]]}


def _describe(context: RequestContext, group_id: str) -> ConsumerGroupDescribeResponseGroupDraft:
    try:
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
        group = context.broker.groups.describe_consumer(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
    except KafkaError as error:
        return {
            "group_id": group_id,
            "error_code": error.code,
            "error_message": error.message,
            "group_state": ConsumerGroupState.DEAD.value,
        }
    return _body(context, group)


def _body(context: RequestContext, group: ConsumerGroup) -> ConsumerGroupDescribeResponseGroupDraft:
    return {
        "group_id": group.group_id,
        "group_state": group.state.value,
        "group_epoch": group.epoch,
        "assignment_epoch": group.target_epoch,
        "assignor_name": context.broker.groups.consumers.assignor(group),
        "members": [_member(context, group, member) for member in group.members.values()],
    }


def _member(
    context: RequestContext, group: ConsumerGroup, member: ConsumerGroupMember
) -> ConsumerGroupDescribeResponseMemberDraft:
    profile = member.profile
    return {
        "member_id": member.member_id,
        "instance_id": profile.instance_id,
        "rack_id": profile.rack_id,
        "member_epoch": member.current.epoch,
        "client_id": profile.client_id,
        "client_host": profile.client_host,
        "subscribed_topic_names": sorted(profile.topics),
        "subscribed_topic_regex": profile.regex or None,
        "assignment": _assignment(context, member.owns),
        "target_assignment": _assignment(context, group.target(member.member_id)),
        "member_type": _CONSUMER,
    }


def _assignment(
    context: RequestContext, parts: Iterable[Part]
) -> ConsumerGroupDescribeResponseAssignmentDraft:
    """Deleted topics have no name and are left out, as in Kafka."""
    topics: list[ConsumerGroupDescribeResponseTopicPartitionDraft] = []
    for part in write_parts(parts):
        topic = context.broker.topics.by_id(part["topic_id"])
        if topic is not None:
            topics.append({**part, "topic_name": topic.name})
    return {"topic_partitions": topics}

"""Access to groups and their offsets."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from eoslog.broker.authorize.access_request import AccessRequest, RequestRefused, Restore
from eoslog.broker.authorize.filtering import (
    GROUP_DENIED,
    TOPIC_DENIED,
    denied_entries,
    in_turn,
    needs,
    refusal,
    remove_denied,
    split,
    topics,
)
from eoslog.broker.rules.acls import AclOperation, ResourceType

if TYPE_CHECKING:
    from eoslog.protocol.typed import (
        ConsumerGroupDescribeRequest,
        ConsumerGroupDescribeResponseDraft,
        ConsumerGroupDescribeResponseGroupDraft,
        ConsumerGroupHeartbeatRequest,
        ConsumerGroupHeartbeatResponseDraft,
        DeleteGroupsRequest,
        DeleteGroupsResponseDraft,
        DescribeGroupsRequest,
        DescribeGroupsResponseDraft,
        DescribeGroupsResponseGroupDraft,
        ListGroupsRequest,
        ListGroupsResponseDraft,
        OffsetDeleteRequest,
        OffsetDeleteResponseDraft,
        OffsetFetchRequest,
        OffsetFetchRequestGroup,
        OffsetFetchRequestGroupTopic,
        OffsetFetchResponseDraft,
        OffsetFetchResponseGroupDraft,
        OffsetFetchResponseGroupTopicDraft,
        OffsetFetchResponseGroupTopicPartitionDraft,
        OffsetFetchResponseTopicDraft,
    )


_GROUP = ResourceType.GROUP

_Topic = TypeVar("_Topic", "OffsetFetchResponseTopicDraft", "OffsetFetchResponseGroupTopicDraft")
_Group: TypeAlias = "DescribeGroupsResponseGroupDraft | ConsumerGroupDescribeResponseGroupDraft"

member = needs(AclOperation.READ, _GROUP, "group_id")
"""Joining, leaving and everything in between."""


read_topics = topics(AclOperation.READ)
"""A client that commits offsets needs READ on their topics."""

offset_commit = in_turn(needs(AclOperation.READ, _GROUP, "group_id"), read_topics)


def _deleted(
    asked: AccessRequest[OffsetDeleteRequest],
) -> RequestRefused[OffsetDeleteResponseDraft] | Restore[OffsetDeleteResponseDraft] | None:
    """As `read_topics`; where the whole request is refused (a group with members) no topic is named."""
    checked = read_topics(asked)
    if checked is None or isinstance(checked, RequestRefused):
        return checked

    def restore(answer: OffsetDeleteResponseDraft) -> OffsetDeleteResponseDraft:
        restored: OffsetDeleteResponseDraft = answer if answer.get("error_code") else checked(answer)
        return restored

    return restore


offset_delete = in_turn(needs(AclOperation.DELETE, _GROUP, "group_id"), _deleted)


# OffsetFetch

_BATCHED = 8


_seen_topics = topics(AclOperation.DESCRIBE)


def offset_fetch(
    asked: AccessRequest[OffsetFetchRequest],
) -> RequestRefused[OffsetFetchResponseDraft] | Restore[OffsetFetchResponseDraft] | None:
    """Needs DESCRIBE on the group and each topic; a fetch of all topics omits what may not be described."""
    if asked.version >= _BATCHED:
        return _fetch_groups(asked)
    request = asked.request
    if not asked.may(AclOperation.DESCRIBE, _GROUP, request["group_id"]):
        return refusal(asked, GROUP_DENIED)
    if request["topics"] is None:
        return lambda answer: answer | {"topics": _visible(asked, answer["topics"])}
    return _seen_topics(asked)


def _visible(asked: AccessRequest[OffsetFetchRequest], topics_found: Iterable[_Topic]) -> list[_Topic]:
    return [
        topic
        for topic in topics_found
        if asked.may(AclOperation.DESCRIBE, ResourceType.TOPIC, asked.topic_name(topic) or "", log=False)
    ]


def _fetch_groups(asked: AccessRequest[OffsetFetchRequest]) -> Restore[OffsetFetchResponseDraft]:
    kept, denied = split(
        asked.request["groups"], lambda group: asked.may(AclOperation.DESCRIBE, _GROUP, group["group_id"])
    )
    asked.request["groups"] = kept
    all_topics = [group["topics"] is None for group in kept]
    removed = [_remove_denied_topics(asked, group) for group in kept]
    refused: list[OffsetFetchResponseGroupDraft] = (
        denied_entries(asked, "groups", denied, GROUP_DENIED)["groups"] if denied else []
    )

    def restore(answer: OffsetFetchResponseDraft) -> OffsetFetchResponseDraft:
        groups: list[OffsetFetchResponseGroupDraft] = []
        for group, everything, refused_topics in zip(answer["groups"], all_topics, removed, strict=True):
            visible = _visible(asked, group["topics"]) if everything else [*group["topics"], *refused_topics]
            groups.append(group | {"topics": visible if not group.get("error_code") else group["topics"]})
        return answer | {"groups": [*groups, *refused]}

    return restore


def _no_offset(index: int) -> OffsetFetchResponseGroupTopicPartitionDraft:
    return {"partition_index": index, "committed_offset": -1, "error_code": TOPIC_DENIED}


def _remove_denied_topics(
    asked: AccessRequest[OffsetFetchRequest], group: OffsetFetchRequestGroup
) -> list[OffsetFetchResponseGroupTopicDraft]:
    """Remove a group's topics that may not be described; returns their entries for the answer."""
    if group["topics"] is None:
        return []

    def allowed(topic: OffsetFetchRequestGroupTopic) -> bool:
        name = asked.topic_name(topic)
        return name is None or asked.may_topic(AclOperation.DESCRIBE, name)

    group["topics"], denied = split(group["topics"], allowed)
    return [
        {
            "name": topic["name"],
            "topic_id": topic["topic_id"],
            "partitions": [_no_offset(index) for index in topic["partition_indexes"]],
        }
        for topic in denied
    ]


# Describing, listing, deleting


def describe_groups(asked: AccessRequest[DescribeGroupsRequest]) -> Restore[DescribeGroupsResponseDraft]:
    """Needs DESCRIBE on each group; adds the authorized operations where the request asks for them."""
    restore_denied = remove_denied(
        asked, "groups", lambda group: asked.may(AclOperation.DESCRIBE, _GROUP, group), GROUP_DENIED
    )
    ask = asked.request["include_authorized_operations"]

    def restore(answer: DescribeGroupsResponseDraft) -> DescribeGroupsResponseDraft:
        if ask:
            _add_operations(asked, answer["groups"])
        return restore_denied(answer) if restore_denied else answer

    return restore


def describe_consumer_groups(
    asked: AccessRequest[ConsumerGroupDescribeRequest],
) -> Restore[ConsumerGroupDescribeResponseDraft]:
    """The same for groups of KIP-848; one with a topic that may not be described is not told at all."""
    restore_denied = remove_denied(
        asked, "group_ids", lambda group: asked.may(AclOperation.DESCRIBE, _GROUP, group), GROUP_DENIED
    )
    ask = asked.request["include_authorized_operations"]

    def restore(answer: ConsumerGroupDescribeResponseDraft) -> ConsumerGroupDescribeResponseDraft:
        groups = [_hidden(asked, group) for group in answer["groups"]]
        if ask:
            _add_operations(asked, groups)
        answer = answer | {"groups": groups}
        return restore_denied(answer) if restore_denied else answer

    return restore


def _add_operations(asked: AccessRequest[Any], groups: Iterable[_Group]) -> None:
    for group in groups:
        if not group.get("error_code"):
            group["authorized_operations"] = asked.operations(_GROUP, group["group_id"])


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


def list_groups(asked: AccessRequest[ListGroupsRequest]) -> Restore[ListGroupsResponseDraft] | None:
    """With DESCRIBE on the cluster all groups are listed, else those that the client may describe."""
    if asked.may_cluster(AclOperation.DESCRIBE, log=False):
        return None

    def restore(answer: ListGroupsResponseDraft) -> ListGroupsResponseDraft:
        groups = [
            group
            for group in answer["groups"]
            if asked.may(AclOperation.DESCRIBE, _GROUP, group["group_id"], log=False)
        ]
        return answer | {"groups": groups}

    return restore


def delete_groups(asked: AccessRequest[DeleteGroupsRequest]) -> Restore[DeleteGroupsResponseDraft] | None:
    """Needs DELETE on each group."""
    return remove_denied(
        asked, "groups_names", lambda group: asked.may(AclOperation.DELETE, _GROUP, group), GROUP_DENIED
    )


def consumer_heartbeat(
    asked: AccessRequest[ConsumerGroupHeartbeatRequest],
) -> RequestRefused[ConsumerGroupHeartbeatResponseDraft] | None:
    """Needs READ on the group, and DESCRIBE on every topic that is subscribed to by name."""
    if not asked.may(AclOperation.READ, _GROUP, asked.request["group_id"]):
        return refusal(asked, GROUP_DENIED)
    names = asked.request["subscribed_topic_names"] or ()
    if not all([asked.may_topic(AclOperation.DESCRIBE, name) for name in names]):
        return refusal(asked, TOPIC_DENIED)
    return None

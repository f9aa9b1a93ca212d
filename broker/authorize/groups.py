"""Access to groups and their offsets."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from eoslog.broker.authorize.access_request import AccessRequest, Mend, RequestRefused
from eoslog.broker.authorize.filtering import (
    GROUP_DENIED,
    TOPIC_DENIED,
    cut,
    in_turn,
    needs,
    refusal,
    split,
    told,
    topics,
)
from eoslog.broker.rules.acls import AclOperation, ResourceType

if TYPE_CHECKING:
    from eoslog.protocol.typed.consumer_group_describe import (
        ConsumerGroupDescribeRequest,
        ConsumerGroupDescribeResponseDraft,
        ConsumerGroupDescribeResponseGroupDraft,
    )
    from eoslog.protocol.typed.consumer_group_heartbeat import (
        ConsumerGroupHeartbeatRequest,
        ConsumerGroupHeartbeatResponseDraft,
    )
    from eoslog.protocol.typed.delete_groups import DeleteGroupsRequest, DeleteGroupsResponseDraft
    from eoslog.protocol.typed.describe_groups import (
        DescribeGroupsRequest,
        DescribeGroupsResponseDraft,
        DescribeGroupsResponseGroupDraft,
    )
    from eoslog.protocol.typed.list_groups import ListGroupsRequest, ListGroupsResponseDraft
    from eoslog.protocol.typed.offset_delete import OffsetDeleteRequest, OffsetDeleteResponseDraft
    from eoslog.protocol.typed.offset_fetch import (
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

_Told = TypeVar("_Told", "OffsetFetchResponseTopicDraft", "OffsetFetchResponseGroupTopicDraft")
_Group: TypeAlias = "DescribeGroupsResponseGroupDraft | ConsumerGroupDescribeResponseGroupDraft"

member = needs(AclOperation.READ, _GROUP, "group_id")
"""Joining, leaving and everything in between."""


read_topics = topics(AclOperation.READ)
"""A client that commits offsets needs READ on their topics."""

offset_commit = in_turn(needs(AclOperation.READ, _GROUP, "group_id"), read_topics)


def _deleted(
    asked: AccessRequest[OffsetDeleteRequest],
) -> RequestRefused[OffsetDeleteResponseDraft] | Mend[OffsetDeleteResponseDraft] | None:
    """As `read_topics`; where the whole request is refused (a group with members) no topic is named."""
    verdict = read_topics(asked)
    if verdict is None or isinstance(verdict, RequestRefused):
        return verdict

    def mend(answer: OffsetDeleteResponseDraft) -> OffsetDeleteResponseDraft:
        told: OffsetDeleteResponseDraft = answer if answer.get("error_code") else verdict(answer)
        return told

    return mend


offset_delete = in_turn(needs(AclOperation.DELETE, _GROUP, "group_id"), _deleted)


# OffsetFetch

_BATCHED = 8


_seen_topics = topics(AclOperation.DESCRIBE)


def offset_fetch(
    asked: AccessRequest[OffsetFetchRequest],
) -> RequestRefused[OffsetFetchResponseDraft] | Mend[OffsetFetchResponseDraft] | None:
    """Needs DESCRIBE on the group and each topic; a fetch of all topics omits what may not be described."""
    if asked.version >= _BATCHED:
        return _fetch_groups(asked)
    request = asked.request
    if not asked.may(AclOperation.DESCRIBE, _GROUP, request["group_id"]):
        return refusal(asked, GROUP_DENIED)
    if request["topics"] is None:
        return lambda answer: answer | {"topics": _seen(asked, answer["topics"])}
    return _seen_topics(asked)


def _seen(asked: AccessRequest[OffsetFetchRequest], told: Iterable[_Told]) -> list[_Told]:
    return [
        topic
        for topic in told
        if asked.may(AclOperation.DESCRIBE, ResourceType.TOPIC, asked.topic_name(topic) or "", told=False)
    ]


def _fetch_groups(asked: AccessRequest[OffsetFetchRequest]) -> Mend[OffsetFetchResponseDraft]:
    kept, denied = split(
        asked.request["groups"], lambda group: asked.may(AclOperation.DESCRIBE, _GROUP, group["group_id"])
    )
    asked.request["groups"] = kept
    whole = [group["topics"] is None for group in kept]
    cuts = [_cut_group(asked, group) for group in kept]
    refused: list[OffsetFetchResponseGroupDraft] = (
        told(asked, "groups", denied, GROUP_DENIED)["groups"] if denied else []
    )

    def mend(answer: OffsetFetchResponseDraft) -> OffsetFetchResponseDraft:
        groups: list[OffsetFetchResponseGroupDraft] = []
        for group, everything, refused_topics in zip(answer["groups"], whole, cuts, strict=True):
            seen = _seen(asked, group["topics"]) if everything else [*group["topics"], *refused_topics]
            groups.append(group | {"topics": seen if not group.get("error_code") else group["topics"]})
        return answer | {"groups": [*groups, *refused]}

    return mend


def _no_offset(index: int) -> OffsetFetchResponseGroupTopicPartitionDraft:
    return {"partition_index": index, "committed_offset": -1, "error_code": TOPIC_DENIED}


def _cut_group(
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


def describe_groups(asked: AccessRequest[DescribeGroupsRequest]) -> Mend[DescribeGroupsResponseDraft]:
    """Needs DESCRIBE on each group; adds the authorized operations where the request asks for them."""
    cutting = cut(
        asked, "groups", lambda group: asked.may(AclOperation.DESCRIBE, _GROUP, group), GROUP_DENIED
    )
    ask = asked.request["include_authorized_operations"]

    def mend(answer: DescribeGroupsResponseDraft) -> DescribeGroupsResponseDraft:
        if ask:
            _tell_operations(asked, answer["groups"])
        return cutting(answer) if cutting else answer

    return mend


def describe_consumer_groups(
    asked: AccessRequest[ConsumerGroupDescribeRequest],
) -> Mend[ConsumerGroupDescribeResponseDraft]:
    """The same for groups of KIP-848; one with a topic that may not be described is not told at all."""
    cutting = cut(
        asked, "group_ids", lambda group: asked.may(AclOperation.DESCRIBE, _GROUP, group), GROUP_DENIED
    )
    ask = asked.request["include_authorized_operations"]

    def mend(answer: ConsumerGroupDescribeResponseDraft) -> ConsumerGroupDescribeResponseDraft:
        groups = [_hidden(asked, group) for group in answer["groups"]]
        if ask:
            _tell_operations(asked, groups)
        answer = answer | {"groups": groups}
        return cutting(answer) if cutting else answer

    return mend


def _tell_operations(asked: AccessRequest[Any], groups: Iterable[_Group]) -> None:
    for group in groups:
        if not group.get("error_code"):
            group["authorized_operations"] = asked.operations(_GROUP, group["group_id"])


def _hidden(
    asked: AccessRequest[ConsumerGroupDescribeRequest], group: ConsumerGroupDescribeResponseGroupDraft
) -> ConsumerGroupDescribeResponseGroupDraft:
    names = {
        part["topic_name"]
        for one in group.get("members", ())
        for held in (one["assignment"], one["target_assignment"])
        for part in held["topic_partitions"]
    }
    if all(asked.may(AclOperation.DESCRIBE, ResourceType.TOPIC, name, told=False) for name in names):
        return group
    return {
        "group_id": group["group_id"],
        "error_code": TOPIC_DENIED,
        "error_message": "The group has topics that the client may not describe.",
    }


def list_groups(asked: AccessRequest[ListGroupsRequest]) -> Mend[ListGroupsResponseDraft] | None:
    """With DESCRIBE on the cluster all groups are listed, else those that the client may describe."""
    if asked.may_cluster(AclOperation.DESCRIBE, told=False):
        return None

    def mend(answer: ListGroupsResponseDraft) -> ListGroupsResponseDraft:
        groups = [
            group
            for group in answer["groups"]
            if asked.may(AclOperation.DESCRIBE, _GROUP, group["group_id"], told=False)
        ]
        return answer | {"groups": groups}

    return mend


def delete_groups(asked: AccessRequest[DeleteGroupsRequest]) -> Mend[DeleteGroupsResponseDraft] | None:
    """Needs DELETE on each group."""
    return cut(
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

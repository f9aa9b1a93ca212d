"""Access to topics: describing, creating, changing and deleting them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eoslog.broker.authorize.access_request import AccessRequest, Check, Restore
from eoslog.broker.authorize.filtering import (
    CODES,
    NO_ID,
    TOPIC_DENIED,
    appended,
    denied_entries,
    remove_denied,
    split,
)
from eoslog.broker.rules.acls import CLUSTER_NAME, AclOperation, ResourceType
from eoslog.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from eoslog.protocol.typed import (
        AlterConfigsRequestResource,
        CreatePartitionsRequest,
        CreatePartitionsRequestTopic,
        CreatePartitionsResponseDraft,
        CreateTopicsRequest,
        CreateTopicsRequestTopic,
        CreateTopicsResponseDraft,
        CreateTopicsResponseTopicDraft,
        DeleteTopicsRequest,
        DeleteTopicsRequestTopic,
        DeleteTopicsResponseDraft,
        DeleteTopicsResponseResponseDraft,
        DescribeClusterRequest,
        DescribeClusterResponseDraft,
        DescribeConfigsRequestResource,
        DescribeTopicPartitionsRequest,
        DescribeTopicPartitionsRequestTopic,
        DescribeTopicPartitionsResponseDraft,
        DescribeTopicPartitionsResponseTopicDraft,
        IncrementalAlterConfigsRequestResource,
        MetadataRequest,
        MetadataRequestTopic,
        MetadataResponseDraft,
        MetadataResponseTopicDraft,
    )


_TOPIC, _CLUSTER = ResourceType.TOPIC, ResourceType.CLUSTER


def metadata(asked: AccessRequest[MetadataRequest]) -> Restore[MetadataResponseDraft]:
    """Topics that may not be described are refused if the request names them, else omitted."""
    request = asked.request
    wanted = request["topics"]
    everything = wanted is None or (asked.version == 0 and not wanted)
    denied: list[MetadataRequestTopic] = []
    if not everything:
        request["topics"], denied = split(wanted or (), lambda topic: _may_see(asked, topic))
    ask_topics = bool(request["include_topic_authorized_operations"])
    ask_cluster = bool(request["include_cluster_authorized_operations"])
    nothing_left = not everything and not request["topics"] and asked.version == 0
    refused = denied_entries(asked, "topics", denied, TOPIC_DENIED)

    def restore(answer: MetadataResponseDraft) -> MetadataResponseDraft:
        topics = [] if nothing_left else answer["topics"]
        if everything:
            topics = [
                t for t in topics if asked.may(AclOperation.DESCRIBE, _TOPIC, t["name"] or "", log=False)
            ]
        if ask_topics:
            for topic in topics:
                _add_operations(asked, topic)
        restored: MetadataResponseDraft = appended(refused)(answer | {"topics": topics})
        if ask_cluster:
            restored["cluster_authorized_operations"] = cluster_operations(asked)
        return restored

    return restore


def _may_see(asked: AccessRequest[MetadataRequest], topic: MetadataRequestTopic) -> bool:
    name = asked.topic_name(topic)
    if name is None:
        return True  # an unknown id: the handler answers that
    if not asked.may_topic(AclOperation.DESCRIBE, name):
        return False
    if asked.topics.get(name) is not None or not asked.request["allow_auto_topic_creation"]:
        return True
    return _may_create(asked, name)


def _may_create(asked: AccessRequest[Any], name: str) -> bool:
    return asked.may_cluster(AclOperation.CREATE, log=False) or asked.may_topic(AclOperation.CREATE, name)


def _add_operations(
    asked: AccessRequest[Any], topic: MetadataResponseTopicDraft | DescribeTopicPartitionsResponseTopicDraft
) -> None:
    name = topic.get("name")
    if name and not topic.get("error_code"):
        topic["topic_authorized_operations"] = asked.operations(_TOPIC, name)


def cluster_operations(asked: AccessRequest[Any]) -> int:
    """The operations that the client may do to the cluster, as bits; none if it may not describe it."""
    if not asked.may_cluster(AclOperation.DESCRIBE):
        return 0
    return asked.operations(_CLUSTER, CLUSTER_NAME)


def describe_cluster(
    asked: AccessRequest[DescribeClusterRequest],
) -> Restore[DescribeClusterResponseDraft] | None:
    """Open to all, except for the authorized operations."""
    if not asked.request["include_cluster_authorized_operations"]:
        return None

    def restore(answer: DescribeClusterResponseDraft) -> DescribeClusterResponseDraft:
        if answer.get("error_code"):
            return answer
        return answer | {"cluster_authorized_operations": cluster_operations(asked)}

    return restore


def describe_topic_partitions(
    asked: AccessRequest[DescribeTopicPartitionsRequest],
) -> Restore[DescribeTopicPartitionsResponseDraft]:
    """As Metadata: named topics are refused, of all topics those that may not be seen are left out.

    A request for all topics gets the visible names filled in, so that the answer's limit counts only these.
    """
    request = asked.request
    named = request["topics"]
    denied: list[DescribeTopicPartitionsRequestTopic] = []
    if named:
        request["topics"], denied = split(
            named, lambda topic: asked.may_topic(AclOperation.DESCRIBE, topic["name"])
        )
    else:
        names = (n for n in asked.topics.names() if asked.may(AclOperation.DESCRIBE, _TOPIC, n, log=False))
        request["topics"] = [{"name": name} for name in names]
    nothing_left = not request["topics"]
    refused = denied_entries(asked, "topics", denied, TOPIC_DENIED)

    def restore(answer: DescribeTopicPartitionsResponseDraft) -> DescribeTopicPartitionsResponseDraft:
        topics = [] if nothing_left else answer["topics"]
        for topic in topics:
            _add_operations(asked, topic)
        cursor = None if nothing_left else answer.get("next_cursor")
        restored: DescribeTopicPartitionsResponseDraft = answer | {"topics": topics, "next_cursor": cursor}
        complete: DescribeTopicPartitionsResponseDraft = appended(refused)(restored)
        return complete

    return restore


def create_topics(asked: AccessRequest[CreateTopicsRequest]) -> Restore[CreateTopicsResponseDraft] | None:
    """Needs CREATE on the cluster or the topic; the answer has configs if the client may describe them."""

    def allowed(topic: CreateTopicsRequestTopic) -> bool:
        return _may_create(asked, topic["name"])

    restore_denied = remove_denied(asked, "topics", allowed, TOPIC_DENIED, "Authorization failed.")

    def restore(answer: CreateTopicsResponseDraft) -> CreateTopicsResponseDraft:
        shown = [_without_configs(asked, topic) for topic in answer["topics"]]
        answer = answer | {"topics": shown}
        return restore_denied(answer) if restore_denied else answer

    return restore


_CONFIGS_SINCE = 5


def _without_configs(
    asked: AccessRequest[CreateTopicsRequest], topic: CreateTopicsResponseTopicDraft
) -> CreateTopicsResponseTopicDraft:
    if asked.version < _CONFIGS_SINCE or topic.get("error_code"):
        return topic
    if asked.may(AclOperation.DESCRIBE_CONFIGS, _TOPIC, topic["name"], log=False):
        return topic
    return topic | {
        "topic_config_error_code": TOPIC_DENIED,
        "num_partitions": -1,
        "replication_factor": -1,
        "configs": None,
    }


def delete_topics(asked: AccessRequest[DeleteTopicsRequest]) -> Restore[DeleteTopicsResponseDraft] | None:
    """Needs DELETE. The id of a topic that may not be described is answered like an unknown id."""
    if asked.version < 6:
        return remove_denied(
            asked, "topic_names", lambda name: asked.may_topic(AclOperation.DELETE, name), TOPIC_DENIED
        )

    def allowed(topic: DeleteTopicsRequestTopic) -> bool:
        name = asked.topic_name(topic)
        return name is None or asked.may_topic(AclOperation.DELETE, name)

    def refuse(topic: DeleteTopicsRequestTopic) -> DeleteTopicsResponseResponseDraft:
        if topic["name"] is not None:
            return {"name": topic["name"], "topic_id": NO_ID, "error_code": TOPIC_DENIED}
        name = asked.topic_name(topic)
        if name is not None and asked.may(AclOperation.DESCRIBE, _TOPIC, name, log=False):
            return {"name": name, "topic_id": topic["topic_id"], "error_code": TOPIC_DENIED}
        return {"name": None, "topic_id": topic["topic_id"], "error_code": ErrorCode.UNKNOWN_TOPIC_ID}

    asked.request["topics"], denied = split(asked.request["topics"], allowed)
    return appended({"responses": [refuse(topic) for topic in denied]}) if denied else None


def create_partitions(
    asked: AccessRequest[CreatePartitionsRequest],
) -> Restore[CreatePartitionsResponseDraft] | None:
    """Needs ALTER on the topic."""

    def allowed(topic: CreatePartitionsRequestTopic) -> bool:
        return asked.may_topic(AclOperation.ALTER, topic["name"])

    return remove_denied(asked, "topics", allowed, TOPIC_DENIED)


# Resource types of the config APIs -> the type whose ACLs apply; all others: the cluster's.
_CONFIG_OF = {2: ResourceType.TOPIC, 32: ResourceType.GROUP}


def configs(operation: AclOperation) -> Check:
    """Needs the operation on each topic or group, and on the cluster for all other resources."""

    def where(
        resource: AlterConfigsRequestResource
        | DescribeConfigsRequestResource
        | IncrementalAlterConfigsRequestResource,
    ) -> tuple[ResourceType, str]:
        kind = _CONFIG_OF.get(resource["resource_type"], _CLUSTER)
        return kind, CLUSTER_NAME if kind is _CLUSTER else resource["resource_name"]

    def check(asked: AccessRequest[Any]) -> Restore[Any] | None:
        return remove_denied(
            asked,
            "resources",
            lambda resource: asked.may(operation, *where(resource)),
            lambda resource: CODES[where(resource)[0]],
        )

    return check

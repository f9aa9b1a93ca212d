"""Metadata (key 3, versions 0-13): topics, their partitions and leaders.

The one node leads everything, in the leader epoch of its present run (`log.epochs`). A partition that is
offline (its log is damaged or its disk failed) has no leader: LEADER_NOT_AVAILABLE. An unknown topic
requested by name is created with num.partitions if both the broker (auto.create.topics.enable) and the
request (from version 4) allow it; it can be used at once. Topics can be requested by id from version 12
(KIP-516); if a request has ids, its names are ignored.

Complete.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eoslog.broker.authorize.access import (
    TOPIC_DENIED,
    AccessRequest,
    Restore,
    add_topic_operations,
    appended,
    cluster_operations,
    denied_entries,
    may_create_topic,
    split,
)
from eoslog.broker.handlers.describe_cluster import CLUSTER_OPERATIONS, NOT_ASKED
from eoslog.broker.log.partition import Partition
from eoslog.broker.requests import RequestContext
from eoslog.broker.topics.topics import METADATA_TOPIC, Topic, check_name, is_internal
from eoslog.protocol.acls import AclOperation, ResourceType
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from eoslog.protocol.typed import (
        MetadataRequest,
        MetadataRequestTopic,
        MetadataResponseDraft,
        MetadataResponsePartitionDraft,
        MetadataResponseTopicDraft,
    )


KEY = ApiKey.METADATA
VERSIONS = (0, 13)


def access(asked: AccessRequest[MetadataRequest]) -> Restore[MetadataResponseDraft]:
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
                t
                for t in topics
                if asked.may(AclOperation.DESCRIBE, ResourceType.TOPIC, t["name"] or "", log=False)
            ]
        if ask_topics:
            for topic in topics:
                add_topic_operations(asked, topic)
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
    return may_create_topic(asked, name)


TOPIC_OPERATIONS = sum(1 << bit for bit in (3, 4, 5, 6, 7, 8, 10, 11))
"""All operations on a topic, as bits by their number."""

_NO_ID = bytes(16)
_NO_LEADER = -1
_FIRST_WITH_IDS = 12


def handle(context: RequestContext, request: MetadataRequest) -> MetadataResponseDraft:
    """Return the node and the requested topics, all topics if none is named."""
    broker, version = context.broker, context.header.api_version
    wanted, all_topics = request["topics"], False
    if wanted is None or (version == 0 and not wanted):
        wanted, all_topics = [{"name": name, "topic_id": _NO_ID} for name in broker.topics.names()], True
    may_create = (
        broker.config.topics.auto_create_topics and request["allow_auto_topic_creation"] and not all_topics
    )
    operations = TOPIC_OPERATIONS if request["include_topic_authorized_operations"] else NOT_ASKED
    cluster = CLUSTER_OPERATIONS if request["include_cluster_authorized_operations"] else NOT_ASKED
    return {
        "brokers": [{"node_id": broker.node_id, "host": context.host, "port": context.port}],
        "cluster_id": broker.cluster_id,
        "controller_id": broker.node_id,
        "topics": [
            _topic(context, name, topic_id, may_create) | {"topic_authorized_operations": operations}
            for name, topic_id in _asked_for(wanted, version)
        ],
        "cluster_authorized_operations": cluster,
    }


def _asked_for(wanted: list[MetadataRequestTopic], version: int) -> list[tuple[str | None, bytes]]:
    """Names and ids, each once; names only if no id is given."""
    pairs = [(one["name"], one["topic_id"]) for one in wanted]
    if version >= _FIRST_WITH_IDS and any(topic_id != _NO_ID for _, topic_id in pairs):
        return list(dict.fromkeys((None, topic_id) for _, topic_id in pairs if topic_id != _NO_ID))
    return list(dict.fromkeys(pairs))


def _topic(
    context: RequestContext, name: str | None, topic_id: bytes, may_create: bool
) -> MetadataResponseTopicDraft:
    topics = context.broker.topics
    try:
        if name is not None:
            if topic_id != _NO_ID:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "ids begin with version 12")
            topic = topics.get(name) or _create(context, name, may_create)
            return _described(context, topic)
        if topic_id == _NO_ID or context.header.api_version < _FIRST_WITH_IDS:
            # Before version 12 a request may have a null name, but an answer may not.
            return {"error_code": ErrorCode.INVALID_REQUEST, "name": "", "topic_id": topic_id}
        found = topics.by_id(topic_id)
        if found is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "there is no topic of this id")
        return _described(context, found)
    except KafkaError as error:
        internal = name is not None and is_internal(name)
        return {"error_code": error.code, "name": name, "topic_id": topic_id, "is_internal": internal}


def _create(context: RequestContext, name: str, may_create: bool) -> Topic:
    """Create a requested topic. Raises KafkaError if it cannot or must not be created."""
    topics = context.broker.topics
    if not may_create or name == METADATA_TOPIC:
        check_name(name)
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")
    if is_internal(name):
        topics.internal(name)
        made = topics.get(name)
        assert made is not None
        return made
    return topics.create(name, context.broker.config.topics.num_partitions, {})


def _described(context: RequestContext, topic: Topic) -> MetadataResponseTopicDraft:
    return {
        "name": topic.name,
        "topic_id": topic.topic_id,
        "is_internal": topic.internal,
        "partitions": [described_partition(context, partition) for partition in topic.partitions],
    }


def described_partition(context: RequestContext, partition: Partition) -> MetadataResponsePartitionDraft:
    """A partition as Metadata and DescribeTopicPartitions describe it."""
    node = context.broker.node_id
    offline = partition.offline is not None
    return {
        "error_code": ErrorCode.LEADER_NOT_AVAILABLE if offline else ErrorCode.NONE,
        "partition_index": partition.index,
        "leader_id": _NO_LEADER if offline else node,
        "leader_epoch": partition.leader_epoch,
        "replica_nodes": [node],
        "isr_nodes": [] if offline else [node],
        "offline_replicas": [node] if offline else [],
    }

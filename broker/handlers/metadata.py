"""Metadata (key 3, versions 0-13): topics, their partitions and who leads them.

The one node leads everything, at leader epoch 0. An unknown topic asked for by name is made with
num.partitions if both the broker (auto.create.topics.enable) and the request (from version 4) allow it; it
can be used at once. Topics can be asked for by id from version 12.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eoslog.broker.dispatch import RequestContext
from eoslog.broker.handlers.describe_cluster import CLUSTER_OPERATIONS, NOT_ASKED
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.errors import ErrorCode, KafkaError
from eoslog.protocol.schema import Message

if TYPE_CHECKING:
    from eoslog.broker.topics import Topic

KEY = ApiKey.METADATA

LEADER_EPOCH = 0
"""A single node never changes leaders."""

TOPIC_OPERATIONS = sum(1 << bit for bit in (3, 4, 5, 6, 7, 8, 10, 11))
"""All operations a topic knows, as bits by their number."""

_NO_ID = bytes(16)


def handle(context: RequestContext, request: Message) -> Message:
    """Answer the node and the topics asked for, all of them when none is named."""
    broker, version = context.broker, context.header.api_version
    wanted = request["topics"]
    if wanted is None or (version == 0 and not wanted):
        wanted = [{"name": name, "topic_id": _NO_ID} for name in broker.topics.names()]
    may_create = broker.config.auto_create_topics and request["allow_auto_topic_creation"]
    operations = TOPIC_OPERATIONS if request["include_topic_authorized_operations"] else NOT_ASKED
    cluster = CLUSTER_OPERATIONS if request["include_cluster_authorized_operations"] else NOT_ASKED
    return {
        "brokers": [{"node_id": broker.node_id, "host": context.host, "port": context.port}],
        "cluster_id": broker.cluster_id,
        "controller_id": broker.node_id,
        "topics": [
            _topic(context, one, may_create) | {"topic_authorized_operations": operations} for one in wanted
        ],
        "cluster_authorized_operations": cluster,
    }


def _topic(context: RequestContext, wanted: Message, may_create: bool) -> Message:
    name, topic_id = wanted["name"], wanted["topic_id"]
    topics = context.broker.topics
    if name is None:
        topic = topics.by_id(topic_id)
        if topic is None:
            return {"error_code": ErrorCode.UNKNOWN_TOPIC_ID, "name": None, "topic_id": topic_id}
        return _described(context, topic)
    try:
        topic = topics.get(name) or (_create(context, name) if may_create else None)
    except KafkaError as error:
        return {"error_code": error.code, "name": name}
    if topic is None:
        return {"error_code": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "name": name}
    return _described(context, topic)


def _create(context: RequestContext, name: str) -> Topic | None:
    topics = context.broker.topics
    if name in ("__consumer_offsets", "__transaction_state"):
        topics.internal(name)
        return topics.get(name)
    return topics.create(name, context.broker.config.num_partitions, {})


def _described(context: RequestContext, topic: Topic) -> Message:
    nodes = [context.broker.node_id]
    return {
        "name": topic.name,
        "topic_id": topic.topic_id,
        "is_internal": topic.internal,
        "partitions": [
            {
                "partition_index": partition.index,
                "leader_id": context.broker.node_id,
                "leader_epoch": LEADER_EPOCH,
                "replica_nodes": nodes,
                "isr_nodes": nodes,
            }
            for partition in topic.partitions
        ],
    }

"""DeleteTopics (key 20, versions 1-6): remove topics by name, from version 6 also by id.

A group's offsets in a deleted topic go with it. The broker's own topics cannot be deleted.
"""

from __future__ import annotations

from eoslog.broker.dispatch import RequestContext
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.errors import ErrorCode, KafkaError
from eoslog.protocol.schema import Message

KEY = ApiKey.DELETE_TOPICS

_NO_ID = bytes(16)


def handle(context: RequestContext, request: Message) -> Message:
    """Delete each topic by itself: one that is refused does not stop the others."""
    if context.header.api_version >= 6:
        wanted = [(topic["name"], topic["topic_id"]) for topic in request["topics"]]
    else:
        wanted = [(name, _NO_ID) for name in request["topic_names"]]
    return {"responses": [_delete(context, name, topic_id) for name, topic_id in wanted]}


def _delete(context: RequestContext, name: str | None, topic_id: bytes) -> Message:
    broker = context.broker
    try:
        topic = broker.topics.by_id(topic_id) if name is None else broker.topics.get(name)
        if topic is None:
            code = ErrorCode.UNKNOWN_TOPIC_ID if name is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            raise KafkaError(code, "there is no such topic")
        name, topic_id = topic.name, topic.topic_id
        if topic.internal:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, f"{name} is the broker's own")
        broker.topics.delete(name)
        broker.groups.on_topic_deleted(name)
    except KafkaError as error:
        return {"name": name, "topic_id": topic_id, "error_code": error.code, "error_message": error.message}
    return {"name": name, "topic_id": topic_id}

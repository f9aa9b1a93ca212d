"""DeleteTopics (key 20, versions 1-6): remove topics by name, from version 6 also by id.

A topic's records, and all offsets that groups committed for it, are deleted with it; a crash never leaves a
part of it. The broker's own topics cannot be deleted (POLICY_VIOLATION). A topic that is named twice, also
once by name and once by id, or by both in one entry, is INVALID_REQUEST. With delete.topic.enable=false
everything is refused: TOPIC_DELETION_DISABLED, before version 3 INVALID_REQUEST.

Complete.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from eoslog.broker.authorize.access import (
    NO_ID,
    TOPIC_DENIED,
    AccessRequest,
    Restore,
    appended,
    remove_denied,
    split,
)
from eoslog.broker.requests import RequestContext
from eoslog.broker.topics.topics import Topic
from eoslog.protocol.acls import AclOperation, ResourceType
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.error_places import for_version
from eoslog.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from eoslog.protocol.typed import (
        DeleteTopicsRequest,
        DeleteTopicsRequestTopic,
        DeleteTopicsResponseDraft,
        DeleteTopicsResponseResponseDraft,
    )


KEY = ApiKey.DELETE_TOPICS
VERSIONS = (1, 6)


def access(asked: AccessRequest[DeleteTopicsRequest]) -> Restore[DeleteTopicsResponseDraft] | None:
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
        if name is not None and asked.may(AclOperation.DESCRIBE, ResourceType.TOPIC, name, log=False):
            return {"name": name, "topic_id": topic["topic_id"], "error_code": TOPIC_DENIED}
        return {"name": None, "topic_id": topic["topic_id"], "error_code": ErrorCode.UNKNOWN_TOPIC_ID}

    asked.request["topics"], denied = split(asked.request["topics"], allowed)
    return appended({"responses": [refuse(topic) for topic in denied]}) if denied else None


_NO_ID = bytes(16)
_Named = tuple[str | None, bytes]


def handle(context: RequestContext, request: DeleteTopicsRequest) -> DeleteTopicsResponseDraft:
    """Delete each topic separately: one that is refused does not stop the others."""
    if context.header.api_version >= 6:
        wanted = [(topic["name"], topic["topic_id"]) for topic in request["topics"]]
    else:
        wanted = [(name, _NO_ID) for name in request["topic_names"]]
    found = {named: _find(context, named) for named in wanted}
    counts = Counter(_identity(found[named], named) for named in wanted)
    return {
        "responses": [
            _delete(context, named, topic, counts[_identity(topic, named)] > 1)
            for named, topic in found.items()
        ]
    }


def _find(context: RequestContext, named: _Named) -> Topic | None:
    name, topic_id = named
    topics = context.broker.topics
    return topics.by_id(topic_id) if name is None else topics.get(name)


def _identity(topic: Topic | None, named: _Named) -> object:
    return topic.topic_id if topic else named


def _delete(
    context: RequestContext, named: _Named, topic: Topic | None, twice: bool
) -> DeleteTopicsResponseResponseDraft:
    broker = context.broker
    name, topic_id = named
    try:
        _check(context, named, twice)
        if topic is None:
            code = ErrorCode.UNKNOWN_TOPIC_ID if name is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            raise KafkaError(code, "there is no such topic")
        name, topic_id = topic.name, topic.topic_id
        if topic.internal:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, f"topic {name} is the broker's own")
        broker.topics.delete(name)
        broker.groups.on_topic_deleted(name)
    except KafkaError as error:
        code = for_version(KEY, context.header.api_version, error.code)
        return {"name": name, "topic_id": topic_id, "error_code": code, "error_message": error.message}
    return {"name": name, "topic_id": topic_id}


def _check(context: RequestContext, named: _Named, twice: bool) -> None:
    """Raise KafkaError if the request itself is not valid."""
    if not context.broker.config.topics.delete_topic_enable:
        text = "topics cannot be deleted here (delete.topic.enable=false)"
        raise KafkaError(ErrorCode.TOPIC_DELETION_DISABLED, text)
    name, topic_id = named
    if (name is None) == (topic_id == _NO_ID):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "name a topic either by name or by id")
    if twice:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "this topic is in the request twice")

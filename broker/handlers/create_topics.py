"""CreateTopics (key 19, versions 2-7): create topics, or only check whether they could be created.

A topic is durable and can be used when this is answered. On a single node a replication factor is 1 (or -1,
the default); a larger one is INVALID_REPLICATION_FACTOR unless accept.any.replication.factor is set. A manual
assignment must number the partitions from 0 and name this node alone for each, else
INVALID_REPLICA_ASSIGNMENT. Null, unknown and invalid configs are INVALID_CONFIG, a topic named twice is
INVALID_REQUEST, more than max.partitions is POLICY_VIOLATION. From version 5 the answer has the configs in
effect, with their sources (KIP-525). Other requests are served while many partitions are created.

Left out: a request's time-out is ignored.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from eoslog.broker.authorize.access import (
    TOPIC_DENIED,
    AccessRequest,
    Restore,
    may_create_topic,
    remove_denied,
)
from eoslog.broker.requests import RequestContext
from eoslog.broker.resources import topic_entries
from eoslog.broker.topics.partition_creation import DEFAULT, REPLICATION_FACTOR, check_factor, check_replicas
from eoslog.protocol.acls import AclOperation, ResourceType
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from eoslog.protocol.typed import (
        CreateTopicsRequest,
        CreateTopicsRequestTopic,
        CreateTopicsResponseDraft,
        CreateTopicsResponseTopicDraft,
    )


KEY = ApiKey.CREATE_TOPICS
VERSIONS = (2, 7)


def access(asked: AccessRequest[CreateTopicsRequest]) -> Restore[CreateTopicsResponseDraft] | None:
    """Needs CREATE on the cluster or the topic; the answer has configs if the client may describe them."""

    def allowed(topic: CreateTopicsRequestTopic) -> bool:
        return may_create_topic(asked, topic["name"])

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
    if asked.may(AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, topic["name"], log=False):
        return topic
    return topic | {
        "topic_config_error_code": TOPIC_DENIED,
        "num_partitions": -1,
        "replication_factor": -1,
        "configs": None,
    }


async def handle(context: RequestContext, request: CreateTopicsRequest) -> CreateTopicsResponseDraft:
    """Create each topic separately: one that is refused does not stop the others."""
    counts = Counter(topic["name"] for topic in request["topics"])
    answers = []
    for name, wanted in {topic["name"]: topic for topic in request["topics"]}.items():
        try:
            if counts[name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"topic {name} is in this request twice")
            answers.append(await _make(context, wanted, request["validate_only"]))
        except KafkaError as error:
            answers.append({"name": name, "error_code": error.code, "error_message": error.message})
    return {"topics": answers}


async def _make(
    context: RequestContext, wanted: CreateTopicsRequestTopic, validate_only: bool
) -> CreateTopicsResponseTopicDraft:
    name = wanted["name"]
    partitions, configs = _partitions(context, wanted), _given(wanted)
    topics = context.broker.topics
    topic_id = bytes(16)
    if validate_only:
        topics.check_create(name, partitions, configs)
    else:
        topic_id = (await topics.create_gently(name, partitions, configs)).topic_id
    return {
        "name": name,
        "topic_id": topic_id,
        "error_message": None,
        "num_partitions": partitions,
        "replication_factor": REPLICATION_FACTOR,
        "configs": [
            {"name": entry.name, "value": entry.value, "config_source": entry.source}
            for entry in topic_entries(context.broker, configs)
        ],
    }


def _given(wanted: CreateTopicsRequestTopic) -> dict[str, str]:
    configs = {}
    for config in wanted["configs"]:
        if config["value"] is None:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{config['name']}: a value must not be null")
        configs[config["name"]] = config["value"]
    return configs


def _partitions(context: RequestContext, wanted: CreateTopicsRequestTopic) -> int:
    """The number of partitions asked for. Raises KafkaError if one node cannot have them."""
    count, factor, assignments = wanted["num_partitions"], wanted["replication_factor"], wanted["assignments"]
    if assignments:
        if (count, factor) != (DEFAULT, DEFAULT):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, "give either an assignment or numbers of partitions and replicas"
            )
        if sorted(one["partition_index"] for one in assignments) != list(range(len(assignments))):
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT, "an assignment numbers its partitions from 0, each once"
            )
        for one in assignments:
            check_replicas(context.broker.node_id, one["broker_ids"])
        return len(assignments)
    check_factor(context.broker.config, factor)
    return context.broker.config.topics.num_partitions if count == DEFAULT else int(count)

"""CreateTopics (key 19, versions 2-7): make topics, or only check whether they could be made.

On a single node a replication factor is 1 (or -1, the default); a larger one is refused unless
accept.any.replication.factor is set. A manual assignment is taken if it numbers the partitions from 0 and
names this node alone for each.
"""

from __future__ import annotations

from collections import Counter

from eoslog.broker.dispatch import RequestContext
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.errors import ErrorCode, KafkaError
from eoslog.protocol.schema import Message

KEY = ApiKey.CREATE_TOPICS

_CONFIG_DYNAMIC_TOPIC, _CONFIG_DEFAULT = 1, 5


def handle(context: RequestContext, request: Message) -> Message:
    """Make each topic by itself: one that is refused does not stop the others."""
    counts = Counter(topic["name"] for topic in request["topics"])
    answers = []
    for wanted in request["topics"]:
        name = wanted["name"]
        try:
            if counts[name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"topic {name} is in this request twice")
            answers.append(_make(context, wanted, request["validate_only"]))
        except KafkaError as error:
            answers.append({"name": name, "error_code": error.code, "error_message": error.message})
    return {"topics": answers}


def _make(context: RequestContext, wanted: Message, validate_only: bool) -> Message:
    name = wanted["name"]
    partitions = _partitions(context, wanted)
    configs = {config["name"]: config["value"] for config in wanted["configs"] if config["value"] is not None}
    topics = context.broker.topics
    if validate_only:
        topics.check_create(name, partitions, configs)
        topic_id = bytes(16)
    else:
        topic_id = topics.create(name, partitions, configs).topic_id
    return {
        "name": name,
        "topic_id": topic_id,
        "error_message": None,
        "num_partitions": partitions,
        "replication_factor": 1,
        "configs": _configs(context, configs),
    }


def _partitions(context: RequestContext, wanted: Message) -> int:
    """The number of partitions asked for. Raises KafkaError for what one node cannot do."""
    count, factor, assignments = wanted["num_partitions"], wanted["replication_factor"], wanted["assignments"]
    if assignments:
        if (count, factor) != (-1, -1):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, "give either an assignment or numbers of partitions and replicas"
            )
        return _assigned(context, assignments)
    if factor not in (-1, 1) and not (factor > 1 and context.broker.config.accept_replication_factor):
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"replication factor {factor}: this is a single node, ask for 1"
            " (or start the broker with accept.any.replication.factor=true)",
        )
    return context.broker.config.num_partitions if count == -1 else int(count)


def _assigned(context: RequestContext, assignments: list[Message]) -> int:
    node = context.broker.node_id
    if sorted(one["partition_index"] for one in assignments) != list(range(len(assignments))):
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "an assignment numbers its partitions from 0")
    if any(one["broker_ids"] != [node] for one in assignments):
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"the only node there is has id {node}")
    return len(assignments)


def _configs(context: RequestContext, given: dict[str, str]) -> list[Message]:
    """The topic's configs in effect, each with where it comes from (KIP-525)."""
    effective = context.broker.config.topic_defaults() | given
    return [
        {
            "name": name,
            "value": value,
            "config_source": _CONFIG_DYNAMIC_TOPIC if name in given else _CONFIG_DEFAULT,
        }
        for name, value in sorted(effective.items())
    ]

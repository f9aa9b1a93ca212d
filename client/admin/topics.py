"""Topics as brokers describe them (Metadata), their configs (DescribeConfigs), DeleteTopics."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eoslog.client.wire.cluster import Cluster, ask_controller
from eoslog.client.wire.retry import check, retrying
from eoslog.protocol import errors
from eoslog.protocol.errors import ErrorCode
from eoslog.protocol.typed import DELETE_TOPICS, DESCRIBE_CONFIGS, METADATA

if TYPE_CHECKING:
    from eoslog.protocol.typed import (
        DeleteTopicsRequestDraft,
        DeleteTopicsResponse,
        DeleteTopicsResponseResponse,
        DescribeConfigsRequestResourceDraft,
        MetadataRequestDraft,
        MetadataResponsePartition,
    )

TOPIC = 2  # resource type of DescribeConfigs
WAIT_MS = 30_000
"""How long a controller may take for a change of topics."""
_BY_NAME = 12  # the newest version of Metadata here; it can ask for topics by name
_DELETED_BY_NAME = 5  # the last version of DeleteTopics that takes only names
_UNKNOWN = (errors.UnknownTopicOrPartition,)


@dataclass(frozen=True)
class DescribedTopic:
    """A topic as Metadata describes it; `partitions` has its partitions' messages, by number."""

    name: str
    topic_id: bytes
    internal: bool
    partitions: dict[int, MetadataResponsePartition]


def describe_topics(cluster: Cluster, names: Iterable[str] | None = None) -> dict[str, DescribedTopic]:
    """The topics of these names, or all. Raises KafkaError UNKNOWN_TOPIC_OR_PARTITION, which names one."""
    body: MetadataRequestDraft = {
        "topics": None if names is None else [{"name": name} for name in names],
        "allow_auto_topic_creation": False,
    }

    def attempt() -> dict[str, DescribedTopic]:
        answer = cluster.any_broker().call(METADATA, body, max_version=_BY_NAME)
        found = {}
        for topic in answer["topics"]:
            name = topic["name"] or ""  # null only for an unknown id, and this asks by name
            check(topic["error_code"], f"topic {name}")
            partitions = {part["partition_index"]: part for part in topic["partitions"]}
            found[name] = DescribedTopic(
                name, topic["topic_id"], topic["is_internal"], dict(sorted(partitions.items()))
            )
        return dict(sorted(found.items()))

    return retrying(cluster, "Metadata", attempt, final=_UNKNOWN)


def topic_configs(cluster: Cluster, topics: Iterable[str], names: Iterable[str]) -> dict[str, dict[str, str]]:
    """The values of the configs `names` of each topic, as text. Raises KafkaError, RetriesExhausted."""
    wanted = list(names)
    resources: list[DescribeConfigsRequestResourceDraft] = [
        {"resource_type": TOPIC, "resource_name": topic, "configuration_keys": wanted} for topic in topics
    ]

    def attempt() -> dict[str, dict[str, str]]:
        answer = cluster.ask_any(DESCRIBE_CONFIGS, {"resources": resources}, max_version=4)
        found = {}
        for result in answer["results"]:
            check(result["error_code"], f"DescribeConfigs of topic {result['resource_name']}")
            found[result["resource_name"]] = {c["name"]: c["value"] or "" for c in result["configs"]}
        return found

    return retrying(cluster, "DescribeConfigs", attempt)


def delete_topics(cluster: Cluster, names: Sequence[str]) -> list[DeleteTopicsResponseResponse]:
    """Delete topics and their records. Returns what became of each. Raises KafkaError, EoslogError."""
    body: DeleteTopicsRequestDraft = {"topic_names": list(names), "timeout_ms": WAIT_MS}

    def failed(answer: DeleteTopicsResponse) -> int:
        codes = {done["error_code"] for done in answer["responses"]}
        return ErrorCode.NOT_CONTROLLER if ErrorCode.NOT_CONTROLLER in codes else ErrorCode.NONE

    return ask_controller(cluster, DELETE_TOPICS, body, failed, _DELETED_BY_NAME)["responses"]

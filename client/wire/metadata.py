"""A cluster as Metadata describes it: nodes, topics, and the leaders of partitions. Pure."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from eoslog.client.wire.config import Address
from eoslog.errors import RefusedByBroker, UnknownTopic

if TYPE_CHECKING:
    from eoslog.protocol.typed import MetadataResponse

METADATA_MAX = 12  # names topics; later versions add nothing that is used here


@dataclass(frozen=True)
class TopicInfo:
    """A topic: `leaders` maps each partition to its leader's node id, -1 while there is none.

    `topic_id` is in the form of Kafka's tools; None if the broker sends none. A topic that was deleted and
    created again has another one (KIP-516).
    """

    name: str
    leaders: dict[int, int]
    internal: bool = False
    topic_id: str | None = None


@dataclass(frozen=True)
class ClusterMetadata:
    """One answer about the cluster. `errors`: codes of the topics that could not be described."""

    nodes: dict[int, Address]
    topics: dict[str, TopicInfo]
    errors: dict[str, int] = field(default_factory=dict)
    cluster_id: str | None = None


def no_partition(info: TopicInfo, partition: int) -> UnknownTopic:
    """The message about a partition that a topic does not have."""
    have = ", ".join(map(str, sorted(info.leaders)))
    return UnknownTopic(
        f"topic {info.name!r} has no partition {partition}, but {have}: check assign or the offsets given"
    )


def read_metadata(answer: MetadataResponse) -> ClusterMetadata:
    """Read a broker's answer. Raises KafkaError."""
    if answer["error_code"]:
        raise RefusedByBroker(answer["error_code"], "the broker could not answer Metadata")
    topics, errors = {}, {}
    for topic in answer["topics"]:
        name = topic["name"] or ""  # null for an unknown id alone, and none is asked for
        if topic["error_code"]:
            errors[name] = topic["error_code"]
        else:
            leaders = {p["partition_index"]: p["leader_id"] for p in topic["partitions"]}
            number = topic["topic_id"]
            topic_id = urlsafe_b64encode(number).decode().rstrip("=") if any(number) else None
            topics[name] = TopicInfo(name, leaders, topic["is_internal"], topic_id)
    nodes = {broker["node_id"]: (broker["host"], broker["port"]) for broker in answer["brokers"]}
    return ClusterMetadata(nodes, topics, errors, answer["cluster_id"])

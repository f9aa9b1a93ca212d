"""Reads what limits.py compares: configs of brokers and topics, and how many replicas topics have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from eoslog.client.admin.topics import describe_topics, topic_configs
from eoslog.client.wire.cluster import Cluster
from eoslog.client.wire.retry import check
from eoslog.connector.commit.decision import ANCHOR
from eoslog.protocol import errors
from eoslog.protocol.typed import DESCRIBE_CONFIGS
from eoslog.rehearse.limits import (
    BROKER_CONFIGS,
    TOPIC_CONFIGS,
    UNCLEAN,
    Configs,
    Query,
    broker_rows,
    topic_rows,
    unclean_by_default,
    unclean_row,
)
from eoslog.rehearse.rows import Row

if TYPE_CHECKING:
    from eoslog.protocol.typed import DescribeConfigsRequestDraft, DescribeConfigsResponse

_TOPIC, _BROKER = 2, 4
INTERNAL = (ANCHOR, "__transaction_state")
"""Where brokers keep committed offsets, so the decisions, and how transactions ended."""


def limits_of_brokers(cluster: Cluster, query: Query) -> Iterator[Row]:
    """Compare every broker's limits with the query. Raises KafkaError."""
    nodes = cluster.metadata([]).nodes
    yield from broker_rows({node: _broker_configs(cluster, node) for node in nodes}, query)


def limits_of_internal(cluster: Cluster, topic: str) -> Row:
    """Whether an internal topic may lose what it has. Of one whose configs are not shown, the brokers'
    default is told, which it has unless it was given a config of its own. Raises KafkaError."""
    try:
        answer = cluster.ask_any(DESCRIBE_CONFIGS, _asked(_TOPIC, topic, [UNCLEAN]), max_version=4)
        return unclean_row(topic, topic, _values(answer).get(UNCLEAN, ""))
    except (errors.TopicAuthorizationFailed, errors.UnknownTopicOrPartition):
        nodes = cluster.metadata([]).nodes
        return unclean_by_default(topic, {_broker_configs(cluster, node).get(UNCLEAN, "") for node in nodes})


def _broker_configs(cluster: Cluster, node: int) -> Configs:
    """One broker's configs, which only it knows."""
    address = cluster.address(node)
    assert address is not None, "it was in the last answer"
    connection = cluster.take(address)
    try:
        return _values(connection.call(DESCRIBE_CONFIGS, _asked(_BROKER, str(node), BROKER_CONFIGS)))
    finally:
        cluster.give_back(connection)


def _asked(kind: int, name: str, keys: Sequence[str]) -> DescribeConfigsRequestDraft:
    return {"resources": [{"resource_type": kind, "resource_name": name, "configuration_keys": list(keys)}]}


def _values(answer: DescribeConfigsResponse) -> Configs:
    """The configs of the one resource that was asked for. Raises KafkaError."""
    (found,) = answer["results"]
    check(found["error_code"], f"DescribeConfigs of {found['resource_name']}")
    return {config["name"]: config["value"] or "" for config in found["configs"]}


def limits_of_topic(cluster: Cluster, name: str, label: str, query: Query) -> Iterator[Row]:
    """Compare a topic's retention with the query. Raises KafkaError."""
    configs = topic_configs(cluster, [name], TOPIC_CONFIGS)[name]
    yield from topic_rows(
        name if label.startswith("topic ") else "", label, configs, _replicas(cluster, name), query
    )


def _replicas(cluster: Cluster, name: str) -> int:
    partitions = describe_topics(cluster, [name])[name].partitions.values()
    return min(len(partition["replica_nodes"]) for partition in partitions)

"""Reads what limits.py compares: configs of brokers and topics, and how many replicas topics have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from eoslog.commands import admin
from eoslog.connector.client.admin.configs import topic_configs
from eoslog.connector.client.wire.cluster import Cluster
from eoslog.connector.client.wire.retry import check
from eoslog.protocol.typed.apis import DESCRIBE_CONFIGS
from eoslog.rehearse.limits import BROKER_CONFIGS, TOPIC_CONFIGS, Configs, Query, broker_rows, topic_rows
from eoslog.rehearse.rows import Row

if TYPE_CHECKING:
    from eoslog.protocol.typed.describe_configs import DescribeConfigsRequestDraft

_BROKER = 4


def limits_of_brokers(cluster: Cluster, query: Query) -> Iterator[Row]:
    """Compare every broker's limits with the query. Raises KafkaError."""
    nodes = cluster.metadata([]).nodes
    yield from broker_rows({node: _broker_configs(cluster, node) for node in nodes}, query)


def _broker_configs(cluster: Cluster, node: int) -> Configs:
    """One broker's configs, which only it knows."""
    address = cluster.address(node)
    assert address is not None, "it was in the last answer"
    body: DescribeConfigsRequestDraft = {
        "resources": [
            {
                "resource_type": _BROKER,
                "resource_name": str(node),
                "configuration_keys": list(BROKER_CONFIGS),
            }
        ]
    }
    connection = cluster.take(address)
    try:
        (answer,) = connection.call(DESCRIBE_CONFIGS, body)["results"]
    finally:
        cluster.give_back(connection)
    check(answer["error_code"], f"DescribeConfigs of broker {node}")
    return {config["name"]: config["value"] or "" for config in answer["configs"]}


def limits_of_topic(cluster: Cluster, name: str, label: str, query: Query) -> Iterator[Row]:
    """Compare a topic's retention with the query. Raises KafkaError."""
    configs = topic_configs(cluster, [name], TOPIC_CONFIGS)[name]
    yield from topic_rows(
        name if label.startswith("topic ") else "", label, configs, _replicas(cluster, name), query
    )


def _replicas(cluster: Cluster, name: str) -> int:
    partitions = admin.topics(cluster, [name])[name].partitions.values()
    return min(len(partition["replica_nodes"]) for partition in partitions)

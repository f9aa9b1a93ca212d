"""Configs of topics (DescribeConfigs), for writers that must know a topic's limits before they write."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from eoslog.client.wire.cluster import Cluster
from eoslog.client.wire.retry import check, retrying
from eoslog.protocol.typed import DESCRIBE_CONFIGS

if TYPE_CHECKING:
    from eoslog.protocol.typed import DescribeConfigsRequestResourceDraft


_TOPIC = 2


def topic_configs(cluster: Cluster, topics: Iterable[str], names: Iterable[str]) -> dict[str, dict[str, str]]:
    """The values of the configs `names` of each topic, as text. Raises KafkaError, RetriesExhausted."""
    wanted = list(names)
    resources: list[DescribeConfigsRequestResourceDraft] = [
        {"resource_type": _TOPIC, "resource_name": topic, "configuration_keys": wanted} for topic in topics
    ]

    def attempt() -> dict[str, dict[str, str]]:
        answer = cluster.ask_any(DESCRIBE_CONFIGS, {"resources": resources}, max_version=4)
        found = {}
        for result in answer["results"]:
            check(result["error_code"], f"DescribeConfigs of topic {result['resource_name']}")
            found[result["resource_name"]] = {c["name"]: c["value"] or "" for c in result["configs"]}
        return found

    return retrying(cluster, "DescribeConfigs", attempt)

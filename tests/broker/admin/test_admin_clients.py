"""What the admin clients of confluent-kafka and kafka-python ask for beyond the scenarios."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import kafka.admin
import pytest
from confluent_kafka import ElectionType, KafkaException, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewTopic,
)
from kafka.admin import KafkaAdminClient

from eoslog.testing import EmbeddedBroker


def only(futures: dict[Any, Future[Any]]) -> Any:
    """The result of the one future."""
    (future,) = futures.values()
    return future.result(10)


@pytest.fixture
def admin(broker: EmbeddedBroker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap})


@pytest.fixture
def python(broker: EmbeddedBroker) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    yield client
    client.close()


def code(futures: dict[Any, Future[Any]]) -> str:
    with pytest.raises(KafkaException) as caught:
        only(futures)
    name: str = caught.value.args[0].name()
    return name


# -- confluent-kafka ---------------------------------------------------------------------------


def test_confluent_changes_configs(admin: AdminClient, topic: str) -> None:
    only(admin.create_topics([NewTopic(topic, 1, 1)]))
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)

    def told(name: str) -> ConfigEntry:
        asked = ConfigResource(ConfigResource.Type.TOPIC, topic)
        found: ConfigEntry = only(admin.describe_configs([asked]))[name]
        return found

    resource.add_incremental_config(
        ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.APPEND)
    )
    resource.add_incremental_config(
        ConfigEntry("retention.ms", "7", incremental_operation=AlterConfigOpType.SET)
    )
    only(admin.incremental_alter_configs([resource]))
    assert (told("cleanup.policy").value, told("retention.ms").value) == ("delete,compact", "7")
    assert ConfigSource(told("retention.ms").source) is ConfigSource.DYNAMIC_TOPIC_CONFIG
    assert [one.name for one in told("retention.ms").synonyms.values()] == [
        "retention.ms",
        "log.retention.ms",
    ]
    only(admin.alter_configs([ConfigResource(ConfigResource.Type.TOPIC, topic, {"segment.ms": "9"})]))
    assert ConfigSource(told("retention.ms").source) is ConfigSource.DEFAULT_CONFIG
    wrong = ConfigResource(ConfigResource.Type.TOPIC, topic, {"segment.ms": "soon"})
    assert code(admin.alter_configs([wrong])) == "INVALID_CONFIG"
    broker = only(admin.describe_configs([ConfigResource(ConfigResource.Type.BROKER, "1")]))
    assert broker["num.partitions"].is_read_only
    assert not broker["log.retention.ms"].is_read_only


def test_confluent_asks_about_the_cluster(admin: AdminClient, broker: EmbeddedBroker, topic: str) -> None:
    only(admin.create_topics([NewTopic(topic, 1, 1)]))
    cluster = admin.describe_cluster(include_authorized_operations=True).result(10)
    assert ([node.id for node in cluster.nodes], cluster.controller.id) == ([1], 1)
    assert cluster.cluster_id
    elected = admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition(topic, 0)]).result(10)
    assert [error.name() for error in elected.values()] == ["ELECTION_NOT_NEEDED"]


# -- kafka-python ------------------------------------------------------------------------------


def test_kafka_python_changes_configs(python: KafkaAdminClient, topic: str) -> None:
    python.create_topics([kafka.admin.NewTopic(topic, num_partitions=1, replication_factor=1)])

    def resource(**configs: str) -> kafka.admin.ConfigResource:
        named = {name.replace("_", "."): value for name, value in configs.items()}
        return kafka.admin.ConfigResource(kafka.admin.ConfigResourceType.TOPIC, topic, configs=named or None)

    python.alter_configs([resource(retention_ms="7")])
    found = str(python.describe_configs([resource()]))
    assert "retention.ms" in found
    assert "7" in found
    refused = str(python.alter_configs([resource(segment_ms="soon")]))
    assert "segment.ms=soon" in refused
    python.reset_configs([resource(retention_ms="")])
    assert "retention.ms" not in str(python.describe_configs([resource()]))
    assert topic in str(python.list_config_resources())

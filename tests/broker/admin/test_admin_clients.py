"""The admin clients of confluent-kafka and kafka-python, as they are."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import kafka.admin
import pytest
from confluent_kafka import ElectionType, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
)
from kafka.admin import KafkaAdminClient
from kafka.errors import InvalidPartitionsError

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


def test_confluent_makes_enlarges_and_deletes_topics(admin: AdminClient, topic: str) -> None:
    new = NewTopic(topic, num_partitions=2, replication_factor=1, config={"retention.ms": "5000"})
    only(admin.create_topics([new], validate_only=True))
    assert topic not in admin.list_topics(timeout=10).topics
    only(admin.create_topics([new]))
    assert code(admin.create_topics([new])) == "TOPIC_ALREADY_EXISTS"
    assert code(admin.create_topics([NewTopic(topic + "3", 1, 3)])) == "INVALID_REPLICATION_FACTOR"
    only(admin.create_partitions([NewPartitions(topic, 5)]))
    assert code(admin.create_partitions([NewPartitions(topic, 2)])) == "INVALID_PARTITIONS"
    described = only(admin.describe_topics(TopicCollection([topic])))
    assert (described.name, described.is_internal, len(described.partitions)) == (topic, False, 5)
    assert described.partitions[4].leader.id == 1
    only(admin.delete_topics([topic]))
    assert code(admin.delete_topics([topic])) == "UNKNOWN_TOPIC_OR_PART"


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


def test_kafka_python_makes_enlarges_and_deletes_topics(python: KafkaAdminClient, topic: str) -> None:
    new = kafka.admin.NewTopic(topic, num_partitions=2, replication_factor=1)
    python.create_topics([new])
    python.create_partitions({topic: kafka.admin.NewPartitions(4)})
    with pytest.raises(InvalidPartitionsError):
        python.create_partitions({topic: kafka.admin.NewPartitions(3)})
    (described,) = python.describe_topics([topic])
    assert len(described["partitions"]) == 4
    page = python.describe_topic_partitions([topic], response_partition_limit=3)
    assert len(page["topics"][0]["partitions"]) == 3
    assert page["next_cursor"]["partition_index"] == 3
    python.delete_topics([topic])
    assert topic not in python.list_topics()


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


def test_kafka_python_asks_about_the_cluster(
    python: KafkaAdminClient, broker: EmbeddedBroker, topic: str
) -> None:
    python.create_topics([kafka.admin.NewTopic(topic, num_partitions=1, replication_factor=1)])
    assert [node["broker_id"] for node in python.describe_cluster()["brokers"]] == [1]
    quorum = python.describe_metadata_quorum()
    assert "leader_id" in str(quorum)
    assert "transaction.version" in str(python.describe_features())
    assert not python.list_partition_reassignments()
